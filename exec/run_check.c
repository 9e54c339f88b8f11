/* exec/run_check.c: files and folders of a run's options, one after the other. */
#include "exec/run_check.h"

#include "exec/evaluate.h"
#include "exec/hugging_face.h"
#include "exec/run_data.h"
#include "exec/run_log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* --- what is read --- */

static enum mcp_status check_files(const struct mcp_run_options *options, struct mcp_error *err)
{
    const char *const paths[] = {options->program, options->frozen_program, options->eval_program};
    for (size_t i = 0; i < MCP_COUNT_OF(paths); i++)
        if (paths[i] != NULL && access(paths[i], R_OK) != 0)
            return mcp_fail(err, MCP_IO, "%s: %s", paths[i], strerror(errno));
    return MCP_OK;
}

/* Without a program any vocabulary will do, and sequences of any length. */
static enum mcp_status count_sequences(struct mcp_arena *scratch, const struct mcp_program *program,
                                       const char *path, int64_t *sequences, struct mcp_error *err)
{
    const struct mcp_data_options any = {.sequence_length = 1, .vocab_size = INT32_MAX};
    const struct mcp_run_source source = {.path = path};
    const struct mcp_data_options options =
        program != NULL ? mcp_run_data_options(program, &source) : any;
    const struct mcp_data *data;
    MCP_TRY(mcp_data_open(scratch, &path, 1, &options, &data, err));
    *sequences = mcp_data_sequences(data);
    return MCP_OK;
}

static enum mcp_status check_data(struct mcp_arena *scratch, const struct mcp_run_options *options,
                                  const struct mcp_program *program, struct mcp_error *err)
{
    int64_t sequences, steps;
    MCP_TRY(count_sequences(scratch, program, options->data, &sequences, err));
    if (options->eval_data == NULL)
        return MCP_OK;
    MCP_TRY(count_sequences(scratch, program, options->eval_data, &sequences, err));
    return program == NULL ? MCP_OK
                           : mcp_evaluation_steps(options, sequences, mcp_batch_sequences(program),
                                                  &steps, err);
}

static enum mcp_status check_weights(struct mcp_arena *scratch,
                                     const struct mcp_run_options *options,
                                     const struct mcp_program *program, struct mcp_error *err)
{
    const struct mcp_hf_model *model = NULL;
    enum mcp_hf_naming naming;
    if (options->init_from != NULL)
        MCP_TRY(mcp_hf_open(scratch, options->init_from, &model, err));
    if (program == NULL)
        return MCP_OK;
    if (model != NULL)
        MCP_TRY(mcp_hf_check(model, program, err));
    return options->export_path != NULL ? mcp_hf_naming_for(program, &naming, err) : MCP_OK;
}

static enum mcp_status check_sources(struct mcp_arena *scratch,
                                     const struct mcp_run_options *options,
                                     const struct mcp_program *program, struct mcp_error *err)
{
    if (program != NULL)
        MCP_TRY(mcp_program_check_trained(program, err));
    MCP_TRY(check_files(options, err));
    MCP_TRY(check_data(scratch, options, program, err));
    return check_weights(scratch, options, program, err);
}

enum mcp_status mcp_run_check_sources(const struct mcp_run_options *options,
                                      const struct mcp_program *program, struct mcp_error *err)
{
    struct mcp_arena *scratch = mcp_arena_new();
    const enum mcp_status status = check_sources(scratch, options, program, err);
    mcp_arena_free(scratch);
    return status;
}

/* --- where it writes --- */

enum mcp_status mcp_run_check_seed(const struct mcp_run_options *options,
                                   const struct mcp_checkpoint_state *state, struct mcp_error *err)
{
    const uint64_t seed = (uint64_t)options->seed;
    if (seed == 0 || seed == state->seed)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "--seed %llu: the checkpoint of step %lld has %llu, with which the run goes on "
                    "(leave --seed out)",
                    (unsigned long long)seed, (long long)state->step,
                    (unsigned long long)state->seed);
}

/* A new run beside checkpoints of another would lose its own: only the newest are kept. One
 * that is not whole is passed over when the run goes on. */
static enum mcp_status check_newest(struct mcp_arena *scratch,
                                    const struct mcp_run_options *options, struct mcp_error *err)
{
    const char *folder = options->checkpoint_dir;
    const struct mcp_checkpoint *checkpoint = NULL;
    struct mcp_error passed_over;
    const int64_t newest = mcp_checkpoint_finished(scratch, folder);
    if (newest < 0)
        return MCP_OK;
    if (!options->resume)
        return mcp_fail(err, MCP_INVALID,
                        "%s holds a checkpoint of step %lld: --resume goes on from it, another "
                        "--checkpoint-dir keeps both",
                        folder, (long long)newest);
    if (mcp_checkpoint_open(scratch, folder, newest, false, &checkpoint, &passed_over) != MCP_OK)
        return MCP_OK;
    const struct mcp_checkpoint_state state = mcp_checkpoint_state(checkpoint);
    return mcp_run_check_seed(options, &state, err);
}

static enum mcp_status check_places(struct mcp_arena *scratch,
                                    const struct mcp_run_options *options, struct mcp_error *err)
{
    const char *const files[] = {options->timeline, options->export_path, options->summary};
    const char *const folders[] = {options->tensorboard_dir, options->checkpoint_dir};
    for (size_t i = 0; i < MCP_COUNT_OF(files); i++)
        if (files[i] != NULL)
            MCP_TRY(mcp_file_check_place(scratch, files[i], err));
    for (size_t i = 0; i < MCP_COUNT_OF(folders); i++)
        if (folders[i] != NULL)
            MCP_TRY(mcp_file_check_folder(scratch, folders[i], err));
    if (options->metrics != NULL)
        MCP_TRY(mcp_run_log_check(scratch, options->metrics, err));
    return options->checkpoint_dir != NULL ? check_newest(scratch, options, err) : MCP_OK;
}

enum mcp_status mcp_run_check_places(const struct mcp_run_options *options, struct mcp_error *err)
{
    struct mcp_arena *scratch = mcp_arena_new();
    const enum mcp_status status = check_places(scratch, options, err);
    mcp_arena_free(scratch);
    return status;
}
