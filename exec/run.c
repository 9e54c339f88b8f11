/* exec/run.c: program, data, steps, timeline. */
#include "exec/run.h"

#include "exec/evaluate.h"
#include "exec/run_check.h"
#include "exec/run_data.h"
#include "exec/run_logs.h"
#include "exec/save.h"
#include "exec/spans.h"
#include "exec/summary.h"
#include "exec/watch.h"
#include "step/dump.h"
#include "step/verify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_BAD_STEPS = 10 }; /* whose loss or gradients are not finite, in a row */

struct mcp_run {
    struct mcp_arena *arena;
    struct mcp_run_setting setting;
    struct mcp_feed *feed;
    struct mcp_batch batch;
    struct mcp_trainer *trainer;
    struct mcp_votes votes;
    struct mcp_saved_rank saved;
    struct mcp_run_logs logs;
    struct mcp_spans spans;
    struct mcp_summary summary;
    struct mcp_watch *watch;           /* NULL: never */
    struct mcp_evaluation *evaluation; /* NULL: never */
    struct mcp_checkpoint_state state; /* steps done, data seen */
    int64_t checkpointed;              /* steps of the newest checkpoint; -1: none */
};

static enum mcp_status load(struct mcp_arena *arena, const char *path, bool verify,
                            struct mcp_program *out, struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_json_read(arena, path, &json, err));
    MCP_TRY(mcp_program_from_json(arena, json, out, err));
    if (!verify)
        return MCP_OK;
    struct mcp_arena *scratch = mcp_arena_new();
    enum mcp_status status = mcp_program_verify(scratch, out, err);
    mcp_arena_free(scratch);
    if (status != MCP_OK)
        mcp_error_prefix(err, path);
    return status;
}

enum mcp_status mcp_run_load(struct mcp_arena *arena, const struct mcp_run_options *options,
                             struct mcp_program *out, struct mcp_error *err)
{
    MCP_TRY(load(arena, options->program, !options->no_verify, out, err));
    for (int t = 0; t < out->num_types; t++)
        out->types[t].facts.residual_init_std *= options->residual_init_scale;
    return MCP_OK;
}

enum mcp_status mcp_run_load_other(struct mcp_arena *arena, const struct mcp_run_options *options,
                                   const char *path, const struct mcp_program **out,
                                   struct mcp_error *err)
{
    struct mcp_program *program = MCP_NEW(arena, struct mcp_program);
    *out = NULL;
    if (path == NULL)
        return MCP_OK;
    *out = program;
    return load(arena, path, !options->no_verify, program, err);
}

/* --- timeline --- */

static enum mcp_status write_timeline(struct mcp_run *self, struct mcp_error *err)
{
    const struct mcp_run_setting *run = &self->setting;
    struct mcp_text text = mcp_text_new(self->arena);
    struct mcp_timeline all;
    enum mcp_status status = MCP_OK;
    MCP_TRY(mcp_spans_gather(&self->spans, &all, err));
    if (run->rank == 0) {
        mcp_timeline_write(&all, mcp_timeline_is_lines(run->options->timeline), &text);
        status = mcp_file_replace(run->options->timeline, text.data, text.length, err);
    }
    return mcp_votes_all_or_none(&self->votes, status, "write the timeline", err);
}

/* --- facts --- */

static enum mcp_status write_summary(struct mcp_run *run, struct mcp_error *err)
{
    const char *path = run->setting.options->summary;
    enum mcp_status status = MCP_OK;
    if (path == NULL)
        return MCP_OK;
    run->summary.checkpoint = run->checkpointed;
    if (run->setting.rank == 0)
        status = mcp_json_write(path, mcp_summary_json(run->arena, &run->summary), err);
    return mcp_votes_all_or_none(&run->votes, status, "write what came of the run", err);
}

/* --- checkpoints --- */

static enum mcp_status begin_from(struct mcp_run *run, const char *path, struct mcp_error *err)
{
    struct mcp_arena *scratch = mcp_arena_new();
    const struct mcp_hf_model *model = NULL;
    enum mcp_status status = mcp_hf_open(scratch, path, &model, err);
    if (status == MCP_OK)
        status = mcp_load_hugging_face(&run->saved, model, err);
    mcp_arena_free(scratch);
    return status;
}

static enum mcp_status load_checkpoint(struct mcp_run *run, const struct mcp_checkpoint *checkpoint,
                                       struct mcp_error *err)
{
    run->state = mcp_checkpoint_state(checkpoint);
    MCP_TRY(mcp_run_check_seed(run->setting.options, &run->state, err));
    MCP_TRY(mcp_load_rank(&run->saved, checkpoint, err));
    run->checkpointed = run->state.step;
    mcp_trainer_go_on(run->trainer, &(struct mcp_trainer_state){run->state.step, run->state.updates,
                                                                run->state.variance_updates,
                                                                run->state.loss_scale,
                                                                run->state.steps_since_skip});
    return MCP_OK;
}

/* Told of every step, and at the end. */
static enum mcp_status find_fullest(struct mcp_run *run, struct mcp_error *err)
{
    double bytes = (double)mcp_interpreter_peak_bytes(mcp_trainer_interpreter(run->trainer));
    MCP_TRY(run->setting.calls->agree(run->setting.backend, &bytes, 1, '>', err));
    run->logs.peak_memory_bytes = run->summary.peak_memory_bytes = (int64_t)bytes;
    return MCP_OK;
}

/* Which is right for the first run of many, and not what a wrong name asks for. */
static void note_nothing(const struct mcp_run *run)
{
    if (run->setting.rank > 0)
        return;
    run->setting.observer.note(run->setting.observer.context,
                               mcp_format(run->arena,
                                          "%s holds no checkpoint: the run begins at step 0",
                                          run->setting.options->checkpoint_dir));
}

/* All ranks from one checkpoint, or none from any. */
static enum mcp_status resume(struct mcp_run *run, struct mcp_error *err)
{
    const struct mcp_run_options *options = run->setting.options;
    const struct mcp_checkpoint *checkpoint = NULL;
    struct mcp_text passed_over = mcp_text_new(run->arena);
    if (!options->resume || options->checkpoint_dir == NULL)
        return MCP_OK;
    MCP_TRY(mcp_load_newest(run->arena, &run->saved, options->checkpoint_dir, &checkpoint,
                            &passed_over, err));
    if (run->setting.rank == 0 && passed_over.length > 0)
        run->setting.observer.note(run->setting.observer.context, passed_over.data);
    if (checkpoint == NULL) {
        note_nothing(run);
        return MCP_OK;
    }
    return mcp_votes_all_or_none(&run->votes, load_checkpoint(run, checkpoint, err),
                                 "go on from the checkpoint", err);
}

static enum mcp_status save(struct mcp_run *run, struct mcp_error *err)
{
    const char *folder = run->setting.options->checkpoint_dir;
    if (folder == NULL || run->checkpointed == run->state.step)
        return MCP_OK;
    run->checkpointed = run->state.step;
    return mcp_save_run(&run->saved, folder, &run->state, err);
}

/* Rank 0 writes what the newest checkpoint holds as a model of Hugging Face's. */
static enum mcp_status export_weights(struct mcp_run *run, struct mcp_error *err)
{
    const struct mcp_run_options *options = run->setting.options;
    const struct mcp_program *program = run->setting.program;
    const struct mcp_checkpoint *checkpoint = NULL;
    enum mcp_hf_naming naming;
    enum mcp_status status = MCP_OK;
    if (run->setting.rank == 0) {
        status = mcp_checkpoint_open(run->arena, options->checkpoint_dir, run->state.step, false,
                                     &checkpoint, err);
        if (status == MCP_OK)
            status = mcp_hf_naming_for(program, &naming, err);
        if (status == MCP_OK)
            status =
                mcp_hf_write(options->export_path, naming, program, checkpoint, &run->votes, err);
    }
    return mcp_votes_all_or_none(&run->votes, status, "write the model's file", err);
}

/* Of steps that are done already, nothing is left to do. */
static void note_end(const struct mcp_run *run)
{
    char text[120];
    const int64_t steps = run->setting.options->steps;
    if (run->setting.rank > 0 || run->state.step < steps)
        return;
    snprintf(text, sizeof text, "the checkpoint has %lld steps done; --steps %lld asks for no more",
             (long long)run->state.step, (long long)steps);
    run->setting.observer.note(run->setting.observer.context, text);
}

static bool is_due(const struct mcp_run *run)
{
    int64_t every = run->setting.options->checkpoint_every;
    return every > 0 && run->state.step % every == 0;
}

/* --- the run --- */

/* What costs little to find out, before memory is taken: each rank its files, the first what
 * it will write. */
static enum mcp_status prepare(struct mcp_run *run, struct mcp_error *err)
{
    const struct mcp_run_options *options = run->setting.options;
    run->state = (struct mcp_checkpoint_state){.seed = (uint64_t)options->seed};
    run->checkpointed = -1;
    MCP_TRY(mcp_run_check_sources(options, run->setting.program, err));
    if (run->setting.rank > 0)
        return MCP_OK;
    MCP_TRY(mcp_run_check_places(options, err));
    return options->checkpoint_dir != NULL
               ? mcp_checkpoint_lock(run->arena, options->checkpoint_dir, err)
               : MCP_OK;
}

/* Memory, and the weights to begin with. */
static enum mcp_status set_up(struct mcp_run *run, struct mcp_error *err)
{
    const struct mcp_run_setting *setting = &run->setting;
    struct mcp_train_options train = mcp_run_train_options(setting->options);
    train.frozen = setting->frozen;
    train.evaluation = setting->evaluation;
    if (setting->options->watch_every > 0) {
        run->watch =
            mcp_watch_new(run->arena, setting->program, setting->options->tensorboard_dir != NULL);
        train.interpret.look = mcp_watch_op;
        train.interpret.look_context = run->watch;
    }
    MCP_TRY(mcp_trainer_new(run->arena, setting->program, setting->rank, setting->calls,
                            setting->backend, &run->batch, &train, &run->trainer, err));
    run->saved = (struct mcp_saved_rank){mcp_trainer_interpreter(run->trainer),
                                         mcp_trainer_rank(run->trainer), setting->calls,
                                         setting->backend, &run->votes};
    const char *weights = setting->options->init_from;
    return weights == NULL ? MCP_OK : begin_from(run, weights, err);
}

/* Where a run goes on in data that are not those it began with. */
static void note_data(struct mcp_run *run, int64_t sequences)
{
    const int64_t before = run->state.data_sequences;
    char text[160];
    run->state.data_sequences = sequences;
    if (run->setting.rank > 0 || before == 0 || before == sequences)
        return;
    snprintf(text, sizeof text,
             "--data have %lld sequences, those of the checkpoint had %lld: what has been seen may "
             "come again before the rest",
             (long long)sequences, (long long)before);
    run->setting.observer.note(run->setting.observer.context, text);
}

/* What is read and written as it runs. */
static enum mcp_status open_files(struct mcp_run *run, struct mcp_error *err)
{
    const struct mcp_run_setting *setting = &run->setting;
    const struct mcp_run_source source = {setting->options->data, run->state.seed, false};
    int64_t sequences = 0;
    MCP_TRY(mcp_run_feed_open(run->arena, setting, &source, &run->feed, &sequences, err));
    note_data(run, sequences);
    run->batch = (struct mcp_batch){mcp_feed_sequence, run->feed};
    MCP_TRY(mcp_evaluation_open(run->arena, setting, run->trainer, &run->evaluation, err));
    return setting->rank == 0
               ? mcp_run_logs_open(run->arena, setting, run->state.step, &run->logs, err)
               : MCP_OK;
}

enum mcp_status mcp_run_open(struct mcp_arena *arena, const struct mcp_run_setting *setting,
                             struct mcp_run **out, struct mcp_error *err)
{
    struct mcp_run *run = MCP_NEW(arena, struct mcp_run);
    const struct mcp_plan *plan = &setting->program->plan;
    *out = run;
    run->arena = arena;
    run->setting = *setting;
    run->votes = (struct mcp_votes){.calls = setting->calls,
                                    .backend = setting->backend,
                                    .rank = setting->rank,
                                    .world = mcp_plan_world(plan)};
    run->spans = (struct mcp_spans){.arena = arena,
                                    .plan = plan,
                                    .rank = setting->rank,
                                    .calls = setting->calls,
                                    .backend = setting->backend};
    MCP_TRY(mcp_votes_all_or_none(&run->votes, prepare(run, err), "begin", err));
    MCP_TRY(mcp_votes_all_or_none(&run->votes, set_up(run, err), "begin", err));
    MCP_TRY(find_fullest(run, err));
    MCP_TRY(resume(run, err));
    return mcp_votes_all_or_none(&run->votes, open_files(run, err), "open its files", err);
}

/* What a checkpoint says of the steps so far. */
static void note_progress(struct mcp_run *run)
{
    const struct mcp_trainer_state trainer = mcp_trainer_state(run->trainer);
    run->state.step = trainer.step;
    run->state.updates = trainer.updates;
    run->state.variance_updates = trainer.variance_updates;
    run->state.loss_scale = trainer.loss_scale;
    run->state.steps_since_skip = trainer.steps_since_skip;
}

static bool is_watched(const struct mcp_run *run)
{
    const struct mcp_run_options *options = run->setting.options;
    return run->state.step % options->watch_every == 0 || run->state.step + 1 == options->steps;
}

static enum mcp_status run_step(struct mcp_run *run, struct mcp_step_report *report,
                                struct mcp_error *err)
{
    const struct mcp_run_observer *observer = &run->setting.observer;
    double wait_s = 0;
    MCP_TRY(mcp_feed_step(run->feed, run->state.sequences_seen, &wait_s, err));
    const bool watched = run->watch != NULL && is_watched(run);
    if (watched)
        mcp_watch_begin(run->watch, &run->saved);
    MCP_TRY(mcp_trainer_step(run->trainer, report, err));
    if (watched)
        MCP_TRY(mcp_watch_end(run->watch, err));
    run->logs.watch = watched ? run->watch : NULL;
    struct mcp_spans_shares shares;
    MCP_TRY(mcp_spans_take(&run->spans, mcp_trainer_interpreter(run->trainer), report->step_s,
                           &shares, err));
    report->bubble_frac = shares.bubble_frac;
    report->exposed_comm_frac = shares.exposed_comm_frac;
    report->data_wait_s = wait_s;
    note_progress(run);
    run->state.sequences_seen += mcp_batch_sequences(run->setting.program);
    report->evaluated = mcp_evaluation_is_due(run->evaluation, run->state.step);
    if (report->evaluated)
        MCP_TRY(mcp_evaluation_run(run->evaluation, &report->eval_loss, err));
    observer->step(observer->context, report);
    mcp_summary_add(&run->summary, report);
    if (run->setting.rank == 0)
        MCP_TRY(mcp_run_logs_step(&run->logs, &run->setting, report, err));
    return is_due(run) ? save(run, err) : MCP_OK;
}

/* One rank that is asked to end ends all. */
static enum mcp_status is_over(struct mcp_run *run, bool *over, struct mcp_error *err)
{
    const struct mcp_run_observer *observer = &run->setting.observer;
    double stops = observer->stop(observer->context);
    MCP_TRY(run->setting.calls->agree(run->setting.backend, &stops, 1, '>', err));
    *over = stops > 0;
    return MCP_OK;
}

/* Alike on all ranks. */
static enum mcp_status give_up(const struct mcp_step_report *report, struct mcp_error *err)
{
    char where[32] = "";
    if (report->first_bad_rank >= 0)
        snprintf(where, sizeof where, " on rank %d", report->first_bad_rank);
    return mcp_fail(err, MCP_RUN_FAILURE,
                    "the loss%s or gradients were not finite in %d steps in a row, the last one "
                    "step %lld: go on from an earlier checkpoint with a lower learning rate",
                    where, MAX_BAD_STEPS, (long long)report->step);
}

enum mcp_status mcp_run_steps(struct mcp_run *run, struct mcp_error *err)
{
    const struct mcp_run_options *options = run->setting.options;
    struct mcp_step_report report = {0};
    bool over = false;
    int bad_steps = 0;
    note_end(run);
    while (run->state.step < options->steps && !over) {
        MCP_TRY(run_step(run, &report, err));
        const bool bad = (report.skipped && !report.scaled_down) || !isfinite(report.loss);
        bad_steps = bad ? bad_steps + 1 : 0;
        if (bad_steps == MAX_BAD_STEPS)
            return give_up(&report, err);
        MCP_TRY(is_over(run, &over, err));
    }
    run->summary.was_asked_to_end = over;
    MCP_TRY(save(run, err));
    MCP_TRY(write_summary(run, err));
    if (options->export_path != NULL)
        MCP_TRY(export_weights(run, err));
    return options->timeline == NULL ? MCP_OK : write_timeline(run, err);
}
