/* tests/exec/ranks_run.c: builds, trains and ends one run of a test. */
#include "tests/exec/ranks_run.h"

#include "step/rows.h"
#include "step/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const model_files[] = {
    "tests/exec/models/gpt2-tiny.json", "tests/exec/models/llama-tiny.json",
    "tests/exec/models/moe-tiny.json", [RANKS_DEMO] = "examples/demo/gpt.json"};

/* --- data: each step's sequences, alike on all ranks --- */

/* Each token follows from the one before but for a little noise: there is something to learn. */
static const int32_t *sequence(void *context, int64_t index)
{
    struct data *data = context;
    uint32_t state = (uint32_t)(data->step * BATCH + index) * 2654435761u + 12345u;
    int token = (int)(state % (uint32_t)data->vocabulary);
    for (int i = 0; i <= SEQUENCE; i++) {
        data->ids[i] = token;
        state = state * 1664525u + 1013904223u;
        int noise = (state >> 24) < 64 ? (int)((state >> 16) & 15) : 0;
        token = (token * 7 + 3 + noise) % data->vocabulary;
    }
    return data->ids;
}

/* --- a program and its trainer --- */

void stop(const struct mcp_error *err, const char *what)
{
    fprintf(stderr, "ranks: %s: %s\n", what, err->text);
    exit(1);
}

static struct mcp_plan plan_of(const struct ranks_case *c)
{
    struct mcp_plan plan = mcp_plan_default();
    plan.tensor_parallel = c->tensor;
    plan.context_parallel = c->context;
    plan.pipeline_parallel = c->pipeline;
    plan.data_parallel = c->data;
    plan.expert_parallel = c->expert;
    plan.sequence_parallel = c->sequence_parallel;
    plan.context_parallel_kind = (enum mcp_context_kind)c->context_kind;
    plan.zero_stage = c->zero_stage;
    plan.reshard_after_forward = c->reshard;
    plan.schedule = (enum mcp_schedule)c->schedule;
    plan.virtual_stages = c->virtual_stages;
    plan.microbatch_size = c->microbatch_size;
    return plan;
}

/* Of a schedule that is made, the rows; MCP_INFEASIBLE is an answer. */
static enum mcp_status make_rows(struct run *run, struct mcp_error *err)
{
    const char *broken = mcp_illegal_rule(&run->question, &run->plan);
    if (broken != NULL)
        return mcp_fail(err, MCP_INVALID, "%s", broken);
    return mcp_schedule_is_made(run->plan.schedule)
               ? mcp_plan_make_rows(run->arena, mcp_pricer_new(run->arena, &run->question),
                                    &run->plan, err)
               : MCP_OK;
}

static bool is_legal(struct run *run)
{
    struct mcp_refusals refusals = {0};
    struct mcp_error err = {""};
    const char *why = err.text;
    bool legal = make_rows(run, &err) == MCP_OK;
    if (legal && !mcp_legal(run->arena, &run->question, &run->plan, &refusals)) {
        legal = false;
        why = refusals.items[0].text;
    }
    if (!legal && !ranks_full())
        fprintf(stderr, "ranks: refused: %s\n", why);
    return legal;
}

/* Of a run of which nothing but the job is known. */
static bool plan_job(struct run *run, const struct ranks_case *c, const char *model,
                     const char *cluster)
{
    run->arena = mcp_arena_new();
    run->clip_norm = mcp_train_options_default().clip_norm;
    CHECK(mcp_model_load(run->arena, model != NULL ? model : model_files[c->model], &run->model,
                         &err));
    CHECK(mcp_cluster_load(run->arena, cluster, &run->cluster, &err));
    CHECK(mcp_stack_load(run->arena, "mcpplan-cpu", &run->stack, &err));
    run->job.attention = "flash2"; /* fused: what kernels of the CPU do */
    run->job.global_batch_size = BATCH;
    run->question = (struct mcp_question){
        .model = &run->model, .cluster = &run->cluster, .job = &run->job, .stack = &run->stack};
    run->plan = plan_of(c);
    CHECK(mcp_cluster_set_gpus(&run->cluster, mcp_plan_world(&run->plan), &err));
    mcp_plan_uniform_chunks(run->arena, &run->plan, run->model.num_layers,
                            (enum mcp_recompute)c->recompute);
    return is_legal(run);
}

bool plan_case(struct run *run, const struct ranks_case *c)
{
    return plan_model(run, c, NULL, SEQUENCE);
}

bool plan_model(struct run *run, const struct ranks_case *c, const char *model,
                int64_t sequence_length)
{
    memset(run, 0, sizeof *run);
    run->job = mcp_job_default();
    run->job.precision = MCP_PRECISION_FP32;
    run->job.sequence_length = sequence_length;
    return plan_job(run, c, model, "dgx-a100");
}

bool plan_precision(struct run *run, const struct ranks_case *c, const char *model,
                    enum mcp_precision precision)
{
    memset(run, 0, sizeof *run);
    run->job = mcp_job_default();
    run->job.precision = precision;
    run->job.sequence_length = SEQUENCE;
    return plan_job(run, c, model, "dgx-h100");
}

bool build_program(struct run *run)
{
    mcp_program_build(run->arena, &run->question, &run->plan, &run->program);
    CHECK(mcp_program_verify(run->arena, &run->program, &err));
    for (int t = 0; t < run->program.num_types; t++)
        if (*run->program.types[t].facts.lack != '\0')
            return false;
    return true;
}

static enum mcp_status agree_alone(struct mcp_backend *backend, double *values, int count,
                                   char operation, struct mcp_error *err)
{
    (void)backend, (void)values, (void)count, (void)operation, (void)err;
    return MCP_OK;
}

static void note_launch(void *context, enum mcp_block_role role, const struct mcp_launch *launch)
{
    (void)role;
    struct run *run = context;
    run->launched = mcp_grow(run->arena, run->launched, run->num_launched, &run->launched_capacity,
                             sizeof *run->launched);
    run->launched[run->num_launched++] =
        (struct launched){launch->op, launch->layer, launch->microbatch};
}

struct mcp_train_options train_options(struct run *run)
{
    struct mcp_train_options train = mcp_train_options_default();
    train.rate = (struct mcp_learning_rate){.peak = 3e-3, .warmup_steps = 3};
    train.seed = 7;
    train.clip_norm = run->clip_norm;
    if (run->loss_scale > 0)
        train.initial_loss_scale = run->loss_scale;
    train.frozen = run->frozen;
    train.freeze_step = run->freeze_step;
    train.evaluation = run->evaluation;
    train.interpret.look = note_launch;
    train.interpret.look_context = run;
    run->data.vocabulary = run->model.vocab_size;
    run->batch = (struct mcp_batch){sequence, &run->data};
    return train;
}

void begin(struct run *run, struct mcp_cpu_world *world, bool alone, double delay_s)
{
    const struct mcp_cpu_options options = {.timeout_s = 60, .delay_s = delay_s};
    const struct mcp_train_options train = train_options(run);
    run->calls = mcp_cpu_backend;
    if (alone)
        run->calls.agree = agree_alone;
    CHECK(mcp_cpu_backend_open(run->arena, world, &run->program, &options, &run->backend, &err));
    CHECK(mcp_trainer_new(run->arena, &run->program, alone ? 0 : mcp_cpu_world_rank(world),
                          &run->calls, run->backend, &run->batch, &train, &run->trainer, &err));
}

void end(struct run *run)
{
    run->calls.close(run->backend);
    mcp_arena_free(run->arena);
}

static bool is_next(const struct run *run, size_t at, const struct launched *want)
{
    const struct launched *got = &run->launched[at];
    return at < run->num_launched && got->op == want->op && got->layer == want->layer &&
           got->microbatch == want->microbatch;
}

/* As one rank's class lists them, slot by slot. */
static void check_order(const struct run *run)
{
    size_t at = 0;
    const struct mcp_rank *rank = mcp_trainer_rank(run->trainer);
    const struct mcp_program *program = rank->program;
    const struct mcp_program_class *class = &program->classes[rank->at.pipeline];
    struct mcp_error wrong = {"ops ran in another order than the program's"};
    for (int s = 0; s < class->num_slots; s++) {
        const struct mcp_slot *slot = &class->slots[s];
        const struct mcp_entry_list *list = &program->lists[slot->list];
        for (int e = 0; e < list->num_entries; e++) {
            const struct mcp_entry *entry = &list->entries[e];
            const struct mcp_block *block = &program->types[entry->type].blocks[entry->role];
            struct launched want = {
                NULL, entry->layer,
                slot->microbatch < 0 ? -1 : slot->microbatch + entry->microbatch_offset};
            for (int i = 0; i < block->num_ops; i++, at++) {
                want.op = &block->ops[i];
                if (!is_next(run, at, &want))
                    stop(&wrong, "order");
            }
        }
    }
    if (at != run->num_launched)
        stop(&wrong, "order");
}

void train_step(struct run *run, int step, struct mcp_step_report *report)
{
    run->data.step = step;
    run->num_launched = 0;
    CHECK(mcp_trainer_step(run->trainer, report, &err));
    check_order(run);
}

void train_losses(struct run *run, double losses[RANKS_STEPS])
{
    struct mcp_step_report report;
    for (int step = 0; step < RANKS_STEPS; step++) {
        train_step(run, step, &report);
        losses[step] = report.loss;
    }
}

double worst_of(const double *a, const double *b)
{
    double worst = 0;
    for (int i = 0; i < RANKS_STEPS; i++)
        worst = ranks_worse(worst, fabs(a[i] - b[i]) / fabs(b[i]));
    return worst;
}
