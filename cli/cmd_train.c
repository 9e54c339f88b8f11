/* cli/cmd_train.c: mcpplan train: builds a plan's step program and starts its ranks. */
#include "cli/child.h"
#include "cli/commands.h"
#include "cli/launcher.h"
#include "cli/plan_file.h"
#include "cli/train_backend.h"
#include "cli/train_end.h"
#include "cli/train_options.h"
#include "cli/train_places.h"
#include "cli/train_ranks.h"
#include "core/units.h"
#include "exec/run_check.h"
#include "step/build.h"
#include "step/dump.h"
#include "step/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the command line of the ranks --- */

struct words {
    struct mcp_arena *arena;
    const char **items;
    size_t count, capacity;
};

static void add(struct words *words, const char *word)
{
    words->items =
        mcp_grow(words->arena, words->items, words->count, &words->capacity, sizeof *words->items);
    words->items[words->count++] = word;
}

/* Ranks bind themselves to cores. */
static void add_mpirun(struct words *words, int world)
{
    static const char *const free[] = {"--oversubscribe", "--bind-to", "none"};
    add(words, "mpirun");
    add(words, "-np");
    add(words, mcp_format(words->arena, "%d", world));
    for (size_t i = 0; i < MCP_COUNT_OF(free); i++)
        add(words, free[i]);
}

/* What the ranks find in their environment, unless the user has said otherwise. */
static void set_environment(struct mcp_arena *arena, int threads)
{
    if (threads > 0)
        setenv("OMP_NUM_THREADS", mcp_format(arena, "%d", threads), 0);
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    if (geteuid() == 0) { /* Open MPI wants to hear it twice */
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
}

/* A shell's numbers of ranks without a launcher that has started them: exec/store.h would
 * believe them before mpirun's. */
static void forget_ranks(void)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
    for (size_t i = 0; i < MCP_COUNT_OF(names); i++)
        unsetenv(names[i]);
}

/* How ranks are started, once and again. */
struct start {
    const struct mcp_train_args *args;
    const struct mcp_plan *plan;
    bool is_mpirun;
    struct mcp_train_meeting meeting;
    const char *executor;
};

static enum mcp_status start_once(struct mcp_context *ctx, const struct start *start)
{
    const struct mcp_train_args *args = start->args;
    const bool is_mpirun = start->is_mpirun, on_gpus = args->backend.value == MCP_TRAIN_CUDA;
    struct words words = {.arena = ctx->arena};
    const char **options;
    set_environment(ctx->arena, args->threads);
    if (is_mpirun)
        add_mpirun(&words, mcp_plan_world(start->plan));
    if (is_mpirun && on_gpus)
        MCP_TRY(mcp_train_set_meeting(ctx, &start->meeting));
    add(&words, start->executor);
    int count = mcp_run_options_words(ctx->arena, &args->run, &options);
    for (int i = 0; i < count; i++)
        add(&words, options[i]);
    add(&words, NULL);
    return mcp_train_ranks(words.items, is_mpirun, on_gpus ? start->plan->rank_map : NULL,
                           &ctx->err);
}

/* Do we start the ranks, or are we one of them? Where a launcher is about, says so. */
static bool starts_mpirun(struct mcp_context *ctx, int world)
{
    const struct mcp_launcher launcher = mcp_launcher_find(ctx->arena);
    if (!launcher.starts_ranks)
        forget_ranks();
    if (world == 1)
        return false;
    if (launcher.sign != NULL && launcher.starts_ranks && launcher.is_first)
        mcp_note("%s: this is one of the ranks that a launcher has started", launcher.sign);
    if (launcher.sign != NULL && !launcher.starts_ranks)
        mcp_note("%s: no launcher has started several ranks, so mpirun starts %d", launcher.sign,
                 world);
    return !launcher.starts_ranks;
}

/* A run that failed begins again from the newest checkpoint, but not one that was asked to
 * end; what the user gave wrong would fail again. */
static enum mcp_status start(struct mcp_context *ctx, struct mcp_train_args *args,
                             const struct mcp_plan *plan, int *restarts)
{
    struct start once = {.args = args, .plan = plan, .meeting = mcp_train_meeting_given()};
    MCP_TRY(mcp_train_executor(ctx, (enum mcp_train_backend)args->backend.value, &once.executor));
    once.is_mpirun = starts_mpirun(ctx, mcp_plan_world(plan));
    enum mcp_status status = start_once(ctx, &once);
    for (int i = 1; status == MCP_RUN_FAILURE && i <= args->max_restarts; i++) {
        if (mcp_child_asked() != 0)
            break;
        mcp_note("%s; restart %d of %d from the newest checkpoint",
                 ctx->err.text[0] != '\0' ? ctx->err.text : "the run has failed", i,
                 args->max_restarts);
        args->run.resume = true;
        *restarts = i;
        mcp_train_set_restart(ctx->arena, i);
        status = start_once(ctx, &once);
    }
    if (status == MCP_OK && mcp_child_asked() != 0)
        mcp_note("ended as asked by signal %d (%s)%s", mcp_child_asked(),
                 strsignal(mcp_child_asked()),
                 args->run.checkpoint_dir != NULL ? ": --resume goes on" : "; nothing was saved");
    return status;
}

/* --- the program --- */

static enum mcp_status write_program(struct mcp_context *ctx, const struct mcp_program *program,
                                     const char *path)
{
    const char *text = mcp_json_text(ctx->arena, mcp_program_to_json(ctx->arena, program));
    return mcp_file_replace(path, text, strlen(text), &ctx->err);
}

/* The plan's program of a phase; -1: of the plan's own. */
static enum mcp_status write_phase(struct mcp_context *ctx, int phase, const char *path)
{
    struct mcp_plan_file *file = MCP_NEW(ctx->arena, struct mcp_plan_file);
    struct mcp_plan_changes changes = mcp_plan_unchanged();
    changes.phase = phase;
    MCP_TRY(mcp_plan_file_load(ctx, ctx->operands[0], &changes, file));
    return write_program(ctx, &file->program, path);
}

/* Of 1-bit Adam both phases, the second one where the run gets to it. */
static enum mcp_status write_programs(struct mcp_context *ctx, const struct mcp_job *job,
                                      const char *folder, struct mcp_run_options *run)
{
    run->program = mcp_format(ctx->arena, "%s/program.json", folder);
    if (job->optimizer != MCP_OPTIMIZER_ONE_BIT_ADAM)
        return write_phase(ctx, -1, run->program);
    MCP_TRY(write_phase(ctx, MCP_PHASE_WARM, run->program));
    if (run->freeze_step == 0)
        run->freeze_step = job->freeze_step;
    if (run->freeze_step == 0)
        run->freeze_step = (int64_t)ceil(MCP_WARM_FRAC * (double)run->steps);
    run->frozen_program = mcp_format(ctx->arena, "%s/frozen.json", folder);
    return write_phase(ctx, MCP_PHASE_FROZEN, run->frozen_program);
}

/* The plan's forwards alone, for --eval-data. */
static enum mcp_status write_evaluation(struct mcp_context *ctx, const struct mcp_plan_file *file,
                                        const char *folder, struct mcp_run_options *run)
{
    struct mcp_program *program = MCP_NEW(ctx->arena, struct mcp_program);
    if (run->eval_data == NULL)
        return MCP_OK;
    mcp_program_build_evaluation(ctx->arena, &file->question, &file->plan, program);
    MCP_TRY(mcp_program_verify(ctx->arena, program, &ctx->err));
    run->eval_program = mcp_format(ctx->arena, "%s/evaluation.json", folder);
    return write_program(ctx, program, run->eval_program);
}

/* The peak is the plan's, of CPUs or GPUs as it was made for: of others it would say nothing. */
static void set_flops(const struct mcp_plan_file *file, enum mcp_train_backend backend,
                      struct mcp_run_options *run)
{
    const double peak = file->cluster.gpu.peak_flops_per_s[file->job.precision];
    const bool for_cpus = mcp_same(file->cluster.gpu.name, "cpu");
    run->flops_per_token =
        3 * mcp_model_flops_per_token_forward(&file->model, file->job.sequence_length);
    if (for_cpus == (backend == MCP_TRAIN_CPU) && isfinite(peak))
        run->peak_flops_per_s = peak * mcp_plan_world(&file->plan);
}

/* What the plan's options ask of programs that files bring. */
static enum mcp_status check_programs(const struct mcp_run_options *run, const struct mcp_job *job,
                                      struct mcp_error *err)
{
    const struct mcp_run_options standard = mcp_run_options_default();
    if (run->program != NULL)
        return MCP_OK;
    if (job->precision != MCP_PRECISION_FP16 &&
        (run->initial_loss_scale != standard.initial_loss_scale ||
         run->loss_scale_window != standard.loss_scale_window))
        return mcp_fail(err, MCP_INVALID,
                        "--initial-loss-scale and --loss-scale-window are of fp16; the plan's "
                        "precision is %s",
                        mcp_precision_names[job->precision]);
    if (run->frozen_program != NULL)
        return mcp_fail(err, MCP_USAGE,
                        "--frozen-program is the second of two files: --program names the first");
    if (run->freeze_step > 0 && job->optimizer != MCP_OPTIMIZER_ONE_BIT_ADAM)
        return mcp_fail(err, MCP_INVALID,
                        "--freeze-step is of optimizer one_bit_adam; the plan's is %s",
                        mcp_optimizer_names[job->optimizer]);
    return MCP_OK;
}

/* What the plan's rank 0 has left: for machines where it is asked for, else for people. Of
 * processes that a launcher has started one has it, and not always the launcher's first:
 * exec/main_cuda.c. */
static enum mcp_status put_summary(struct mcp_context *ctx, const struct mcp_train_end *end)
{
    const struct mcp_text nothing = mcp_text_new(ctx->arena);
    const char *path = end->run->summary;
    struct mcp_json *json;
    if (mcp_launcher_find(ctx->arena).starts_ranks && access(path, F_OK) != 0)
        return MCP_OK;
    MCP_TRY(mcp_json_read(ctx->arena, path, &json, &ctx->err));
    MCP_TRY(mcp_output_result(ctx, &nothing, json));
    return ctx->json ? MCP_OK : mcp_train_end_note(ctx, json, end);
}

/* A trial of some steps under the recipe of a long run learns nothing: say why. */
static void note_warmup(struct mcp_arena *arena, const struct mcp_run_options *run)
{
    const bool asked = run->warmup_steps != mcp_run_options_default().warmup_steps;
    if (asked || run->warmup_steps <= run->steps || !mcp_launcher_find(arena).is_first)
        return;
    mcp_note("the learning rate rises for %s steps (--warmup-steps), and this run has %s: it "
             "ends at %.2e",
             mcp_show_integer(arena, run->warmup_steps), mcp_show_integer(arena, run->steps),
             run->learning_rate * (double)run->steps / (double)run->warmup_steps);
}

/* With programs in `folder` that no file brings. */
static enum mcp_status train_in(struct mcp_context *ctx, struct mcp_train_args *args,
                                const struct mcp_plan_file *file, const char *folder)
{
    struct mcp_run_options *run = &args->run;
    struct mcp_train_end end = {.run = run};
    const double since_s = mcp_now_s();
    if (run->program == NULL)
        MCP_TRY(write_programs(ctx, &file->job, folder, run));
    MCP_TRY(write_evaluation(ctx, file, folder, run));
    run->summary = mcp_format(ctx->arena, "%s/summary.json", folder);
    note_warmup(ctx->arena, run);
    MCP_TRY(start(ctx, args, &file->plan, &end.restarts));
    end.seconds = mcp_now_s() - since_s;
    return put_summary(ctx, &end);
}

/* A wrong name is told before anything starts; ranks that a launcher has started agree on it
 * among themselves. What a program file asks for is not known here. */
static enum mcp_status check_files(struct mcp_context *ctx, const struct mcp_run_options *run,
                                   const struct mcp_program *program)
{
    if (mcp_launcher_find(ctx->arena).starts_ranks)
        return MCP_OK;
    MCP_TRY(mcp_run_check_sources(run, run->program == NULL ? program : NULL, &ctx->err));
    return mcp_run_check_places(run, &ctx->err);
}

static enum mcp_status train(struct mcp_context *ctx, struct mcp_train_args *args)
{
    static const char *const names[] = {"program", "frozen", "evaluation", "summary"};
    struct mcp_plan_file *file = MCP_NEW(ctx->arena, struct mcp_plan_file);
    mcp_child_watch();
    const struct mcp_plan_changes same = mcp_plan_unchanged();
    const char *folder;
    MCP_TRY(mcp_plan_file_load(ctx, ctx->operands[0], &same, file));
    if (args->dry_run)
        return args->backend.value == MCP_TRAIN_CUDA
                   ? mcp_train_devices(ctx, &file->plan, &file->cluster)
                   : mcp_train_places(ctx, &file->plan, args->threads);
    set_flops(file, (enum mcp_train_backend)args->backend.value, &args->run);
    if (args->backend.value == MCP_TRAIN_CUDA)
        mcp_train_set_planned(file, &args->run);
    MCP_TRY(check_programs(&args->run, &file->job, &ctx->err));
    MCP_TRY(mcp_output_check_place(ctx));
    MCP_TRY(check_files(ctx, &args->run, &file->program));
    MCP_TRY(mcp_temporary_folder(ctx, &folder));
    enum mcp_status status = train_in(ctx, args, file, folder);
    for (size_t i = 0; i < MCP_COUNT_OF(names); i++)
        unlink(mcp_format(ctx->arena, "%s/%s.json", folder, names[i]));
    rmdir(folder);
    return status;
}

enum mcp_status mcp_cmd_train(struct mcp_context *ctx, int argc, char **argv)
{
    struct mcp_train_args args;
    if (!mcp_train_args_parse(ctx, &args, argc, argv))
        return ctx->status;
    return train(ctx, &args);
}
