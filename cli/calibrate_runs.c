/* cli/calibrate_runs.c: layouts run through `mcpplan train`, their spans taken as samples. */
#include "cli/calibrate.h"
#include "cli/child.h"

#include "core/mesh.h"
#include "core/units.h"
#include "exec/tokens.h"
#include "step/build.h"
#include "step/measured.h"
#include "step/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Files of the runs, in one folder. */
struct files {
    const char *folder, *plan, *data, *timeline, *log;
};
enum { MAX_LOG_BYTES = 1 << 20 };

static enum mcp_status make_files(struct mcp_context *ctx, struct files *out)
{
    const char *folder;
    MCP_TRY(mcp_temporary_folder(ctx, &folder));
    out->folder = folder;
    out->plan = mcp_format(ctx->arena, "%s/plan.json", folder);
    out->data = mcp_format(ctx->arena, "%s/tokens", folder);
    out->timeline = mcp_format(ctx->arena, "%s/timeline.json", folder);
    out->log = mcp_format(ctx->arena, "%s/log", folder);
    return MCP_OK;
}

static void remove_files(const struct files *files)
{
    unlink(files->plan);
    unlink(files->data);
    unlink(files->timeline);
    unlink(files->log);
    rmdir(files->folder);
}

/* Which tokens does not matter: two batches of different ones. */
static enum mcp_status write_tokens(struct mcp_context *ctx, const struct mcp_question *question,
                                    const char *path)
{
    const struct mcp_job *job = question->job;
    const int vocabulary = question->model->vocab_size;
    const struct mcp_token_facts facts = {.vocab_size = vocabulary, .end_of_document = -1};
    struct mcp_token_writer *writer = NULL;
    int64_t count = 2 * job->global_batch_size * (job->sequence_length + 1);
    uint32_t state = 1;
    MCP_TRY(mcp_token_writer_open(ctx->arena, path, 0, &facts, &writer, &ctx->err));
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u; /* Knuth's */
        int32_t id = (int32_t)((state >> 8) % (uint32_t)vocabulary);
        MCP_TRY(mcp_token_writer_add(writer, &id, 1, &ctx->err));
    }
    return mcp_token_writer_finish(writer, NULL, NULL, &ctx->err);
}

static enum mcp_status write_plan(struct mcp_context *ctx, const struct mcp_question *question,
                                  const struct mcp_plan *plan, const char *path)
{
    struct mcp_json *json = mcp_json_new_object(ctx->arena);
    mcp_json_set_string(json, "schema", "mcpplan.plan/1");
    mcp_model_to_json(question->model, mcp_json_set_object(json, "model"));
    mcp_cluster_to_json(question->cluster, mcp_json_set_object(json, "cluster"));
    mcp_job_to_json(question->job, mcp_json_set_object(json, "job"));
    mcp_stack_to_json(question->stack, mcp_json_set_object(json, "stack"));
    mcp_plan_to_json(plan, json);
    return mcp_json_write(path, json, &ctx->err);
}

/* --- a run --- */

static void become(const struct mcp_calibrate *calibrate, const struct files *files,
                   const char *steps)
{
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    int log = open(files->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (length <= 0 || log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        return;
    self[length] = '\0';
    const char *const words[] = {
        self,         "train",         files->plan,
        "--data",     files->data,     "--steps",
        steps,        "--backend",     mcp_train_backend_names[calibrate->backend],
        "--timeline", files->timeline, NULL};
    execv(self, (char *const *)(const void *)words);
}

/* The last sentence that `speaker` said, unless it is a note; NULL: none. */
static const char *sentence_of(struct mcp_arena *arena, const char *log, const char *speaker)
{
    const char *sentence = NULL;
    for (const char *line = log; *line != '\0';) {
        const size_t length = strcspn(line, "\n"), name = strlen(speaker);
        if (mcp_starts_with(line, speaker) && !mcp_starts_with(line + name, "note: "))
            sentence = mcp_strndup(arena, line + name, length - name);
        line += length + (line[length] != '\0');
    }
    return sentence;
}

/* Why a run failed: what a rank without mpirun said of it, else what was made of its ranks'. */
static const char *read_reason(struct mcp_context *ctx, enum mcp_train_backend backend,
                               const char *path)
{
    const char *speaker =
        mcp_format(ctx->arena, "mcpplan-exec-%s: ", mcp_train_backend_names[backend]);
    struct mcp_text log;
    struct mcp_error ignored;
    if (mcp_file_read(ctx->arena, path, MAX_LOG_BYTES, &log, &ignored) != MCP_OK)
        return "it said nothing";
    const char *sentence = sentence_of(ctx->arena, log.data, speaker);
    if (sentence == NULL)
        sentence = sentence_of(ctx->arena, log.data, "mcpplan: ");
    const char *loader = strstr(log.data, "error while loading shared libraries: ");
    if (sentence == NULL && loader != NULL)
        sentence = mcp_strndup(ctx->arena, loader, strcspn(loader, "\n"));
    return sentence != NULL ? sentence : "it said nothing";
}

static enum mcp_status train(struct mcp_context *ctx, const struct mcp_calibrate *calibrate,
                             const struct files *files, const char *name)
{
    const char *steps = mcp_format(ctx->arena, "%d", calibrate->steps);
    pid_t child = mcp_child_fork(SIGTERM);
    if (child == 0) {
        become(calibrate, files, steps);
        _exit(127);
    }
    if (child < 0)
        return mcp_fail(&ctx->err, MCP_RUN_FAILURE, "cannot start a run: %s", strerror(errno));
    const int status = mcp_child_end();
    if (mcp_child_asked() != 0) /* the run itself may have ended well */
        return mcp_fail(&ctx->err, MCP_RUN_FAILURE, "ended by signal %d (%s), as asked",
                        mcp_child_asked(), strsignal(mcp_child_asked()));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return MCP_OK;
    return mcp_fail(&ctx->err, MCP_RUN_FAILURE, "the run of %s has failed: %s", name,
                    read_reason(ctx, calibrate->backend, files->log));
}

/* --- its spans --- */

static const struct mcp_op *op_of(const struct mcp_program *program,
                                  const struct mcp_timeline_span *span)
{
    int class = mcp_mesh_coordinate(&program->plan, span->rank).pipeline;
    const struct mcp_slot *slot = &program->classes[class].slots[span->slot];
    const struct mcp_entry *entry = &program->lists[slot->list].entries[span->entry];
    return &program->types[entry->type].blocks[entry->role].ops[span->op];
}

/* Who comes late finds the others' parts there, who is early waits: a collective takes from
 * the last start to the last end of its ranks. Spans are sorted; those of every rank are the
 * same ops, but in pipelines, whose few collectives say nothing. */
static double collective_s(const struct mcp_timeline *timeline, size_t index, int ranks)
{
    size_t each = timeline->num_spans / (size_t)ranks;
    int64_t start = 0, end = 0;
    for (int r = 0; r < ranks; r++) {
        size_t at = index + (size_t)r * each;
        const struct mcp_timeline_span *span = &timeline->spans[at];
        if (at >= timeline->num_spans || span->slot != timeline->spans[index].slot ||
            span->entry != timeline->spans[index].entry || span->op != timeline->spans[index].op)
            return 0; /* not the same ops after all */
        start = span->start_ns > start ? span->start_ns : start;
        end = span->end_ns > end ? span->end_ns : end;
    }
    return 1e-9 * (double)(end - start);
}

static void keep(struct mcp_context *ctx, const struct mcp_sample *sample, double seconds,
                 struct mcp_calibration *times, size_t *capacity)
{
    times->samples = mcp_grow(ctx->arena, times->samples, (size_t)times->num_samples, capacity,
                              sizeof *times->samples);
    times->samples[times->num_samples] = *sample;
    times->samples[times->num_samples++].seconds = fmax(1e-9, seconds);
}

/* What a message takes its receiver knows. */
static void take(struct mcp_context *ctx, const struct mcp_program *program,
                 const struct mcp_timeline *timeline, size_t index, struct mcp_calibrate *out)
{
    const struct mcp_timeline_span *span = &timeline->spans[index];
    const struct mcp_op *op = op_of(program, span);
    int code = mcp_functions[op->function].code, ranks = mcp_plan_world(&program->plan);
    double seconds = 1e-9 * (double)(span->end_ns - span->start_ns);
    struct mcp_sample sample;
    if (code == MCP_RECEIVE)
        sample =
            mcp_message_sample((double)op->dims[0] * mcp_dtype_bytes((enum mcp_dtype)op->dtype));
    else if (code == MCP_SEND || !mcp_op_sample(op, &program->plan, &sample))
        return;
    if (sample.work <= 0)
        return;
    if (code == MCP_COLLECTIVE || code == MCP_SHIFT) {
        if (span->rank != 0 || program->plan.pipeline_parallel > 1)
            return;
        seconds = collective_s(timeline, index, ranks);
        if (seconds <= 0)
            return;
    }
    keep(ctx, &sample, seconds, &out->times, &out->times_capacity);
}

static int by_start(const void *x, const void *y)
{
    const struct mcp_timeline_span *a = x, *b = y;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

/* Time of rank 0 in which any op runs, or any of the compute stream; spans by start. */
static int64_t busy_ns(const struct mcp_timeline *timeline, bool compute_alone)
{
    int64_t busy = 0, until = 0;
    for (size_t i = 0; i < timeline->num_spans && timeline->spans[i].rank == 0; i++) {
        const struct mcp_timeline_span *span = &timeline->spans[i];
        if (compute_alone && span->stream != MCP_STREAM_COMPUTE)
            continue;
        int64_t start = span->start_ns > until ? span->start_ns : until;
        busy += span->end_ns > start ? span->end_ns - start : 0;
        until = span->end_ns > until ? span->end_ns : until;
    }
    return busy;
}

/* What the step took, and rank 0 between its ops, and its transfers. */
static void sum_up(struct mcp_timeline *timeline, struct mcp_calibration_run *run)
{
    int64_t data = 0;
    double iteration_s = 1e-9 * (double)timeline->iteration_ns;
    if (timeline->num_spans > 0)
        qsort(timeline->spans, timeline->num_spans, sizeof *timeline->spans, by_start);
    for (size_t i = 0; i < timeline->num_spans && timeline->spans[i].rank == 0; i++) {
        const struct mcp_timeline_span *span = &timeline->spans[i];
        data += span->stream == MCP_STREAM_DATA ? span->end_ns - span->start_ns : 0;
    }
    if (run->iteration_s > 0 && run->iteration_s <= iteration_s)
        return;
    run->iteration_s = iteration_s;
    run->idle_s = fmax(0, iteration_s - 1e-9 * (double)busy_ns(timeline, false));
    run->data_s = 1e-9 * (double)data;
    run->exposed_s = 1e-9 * (double)(busy_ns(timeline, false) - busy_ns(timeline, true));
}

static enum mcp_status measure(struct mcp_context *ctx, struct mcp_calibrate *calibrate,
                               struct mcp_calibration_run *run, const struct files *files)
{
    struct mcp_program program;
    struct mcp_timeline timeline = {0};
    mcp_program_build(ctx->arena, calibrate->question, &run->plan, &program);
    MCP_TRY(write_plan(ctx, calibrate->question, &run->plan, files->plan));
    MCP_TRY(train(ctx, calibrate, files, run->name));
    MCP_TRY(mcp_timeline_read(ctx->arena, files->timeline, &timeline, &ctx->err));
    for (size_t i = 0; i < timeline.num_spans && !run->plan.overlap.data; i++)
        take(ctx, &program, &timeline, i, calibrate);
    sum_up(&timeline, run); /* sorts by start */
    return MCP_OK;
}

/* --- all of them --- */

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

static void note_plan(struct mcp_context *ctx, const struct mcp_calibrate *c)
{
    const struct mcp_question *question = c->question;
    const int ranks = mcp_cluster_gpus(question->cluster), layers = question->model->num_layers;
    const int runs = c->num_runs * c->repeats;
    mcp_note("%d run%s of %d step%s: %d layout%s of %d layer%s of %s on %d rank%s, batch %s x %s "
             "tokens, %d run%s of each",
             runs, plural(runs), c->steps, plural(c->steps), c->num_runs, plural(c->num_runs),
             layers, plural(layers), mcp_printable(ctx->arena, question->model->name), ranks,
             plural(ranks), mcp_show_integer(ctx->arena, question->job->global_batch_size),
             mcp_show_integer(ctx->arena, question->job->sequence_length), c->repeats,
             plural(c->repeats));
}

static const char begin_line[] = "\r\033[K"; /* over what stands there */

/* Where a terminal listens: what runs, and how long the others will take if they take as long as
 * those that are done. */
static void show_progress(const struct mcp_calibrate *c, int done, double since_s)
{
    const int all = c->num_runs * c->repeats;
    struct mcp_arena *scratch = mcp_arena_new();
    const double left_s = done == 0 ? 0 : (mcp_now_s() - since_s) / done * (all - done);
    if (isatty(STDERR_FILENO) == 1)
        fprintf(stderr, "%s  run %d of %d: %s%s%s%s", begin_line, done + 1, all,
                c->runs[done % c->num_runs].name, done == 0 ? "" : "; about ",
                done == 0 ? "" : mcp_show(scratch, left_s, MCP_SECONDS), done == 0 ? "" : " left");
    fflush(stderr);
    mcp_arena_free(scratch);
}

static enum mcp_status run_all(struct mcp_context *ctx, struct mcp_calibrate *calibrate,
                               const struct files *files)
{
    const double since_s = mcp_now_s();
    enum mcp_status status = MCP_OK;
    MCP_TRY(write_tokens(ctx, calibrate->question, files->data));
    for (int i = 0; status == MCP_OK && i < calibrate->num_runs * calibrate->repeats; i++) {
        show_progress(calibrate, i, since_s);
        status = measure(ctx, calibrate, &calibrate->runs[i % calibrate->num_runs], files);
    }
    if (isatty(STDERR_FILENO) == 1)
        fputs(begin_line, stderr);
    return status;
}

enum mcp_status mcp_calibrate_run(struct mcp_context *ctx, struct mcp_calibrate *calibrate)
{
    struct files files = {0};
    mcp_child_watch();
    note_plan(ctx, calibrate);
    MCP_TRY(make_files(ctx, &files));
    enum mcp_status status = run_all(ctx, calibrate, &files);
    remove_files(&files);
    return status;
}
