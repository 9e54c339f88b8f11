/* tests/exec/ranks.c: trains the cases of one world size, each beside one rank. */
#include "tests/exec/ranks.h"

#include "exec/cpu_backend.h"
#include "exec/init.h"
#include "exec/train.h"
#include "step/build.h"
#include "step/estimate.h"
#include "step/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE = 32, BATCH = 8 };

static const char *const model_files[RANKS_MODELS] = {"tests/exec/models/gpt2-tiny.json",
                                                      "tests/exec/models/llama-tiny.json",
                                                      "tests/exec/models/moe-tiny.json"};

/* --- data: each step's sequences, alike on all ranks --- */

struct data {
    int64_t step;
    int vocabulary;
    int32_t ids[SEQUENCE + 1];
};

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

struct run {
    struct mcp_arena *arena;
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_question question;
    struct mcp_plan plan;
    struct mcp_program program;
    struct mcp_prediction prediction;
    struct mcp_backend *backend;
    struct mcp_backend_calls calls;
    struct data data;
    struct mcp_batch batch;
    struct mcp_trainer *trainer;
};

static void stop(const struct mcp_error *err, const char *what)
{
    fprintf(stderr, "ranks: %s: %s\n", what, err->text);
    exit(1);
}

#define CHECK(call)                                                                                \
    do {                                                                                           \
        struct mcp_error err = {""};                                                               \
        if ((call) != MCP_OK)                                                                      \
            stop(&err, #call);                                                                     \
    } while (0)

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

static bool build(struct run *run, const struct ranks_case *c)
{
    struct mcp_refusals refusals = {0};
    memset(run, 0, sizeof *run);
    run->arena = mcp_arena_new();
    CHECK(mcp_model_load(run->arena, model_files[c->model], &run->model, &err));
    CHECK(mcp_cluster_load(run->arena, "dgx-a100", &run->cluster, &err));
    CHECK(mcp_stack_load(run->arena, "mcpplan-cpu", &run->stack, &err));
    run->job = mcp_job_default();
    run->job.precision = MCP_PRECISION_FP32;
    run->job.attention = "flash2"; /* fused: what kernels of the CPU do */
    run->job.sequence_length = SEQUENCE;
    run->job.global_batch_size = BATCH;
    run->question = (struct mcp_question){
        .model = &run->model, .cluster = &run->cluster, .job = &run->job, .stack = &run->stack};
    run->plan = plan_of(c);
    CHECK(mcp_cluster_set_gpus(&run->cluster, mcp_plan_world(&run->plan), &err));
    mcp_plan_uniform_chunks(run->arena, &run->plan, run->model.num_layers,
                            (enum mcp_recompute)c->recompute);
    if (!mcp_legal(run->arena, &run->question, &run->plan, &refusals)) {
        fprintf(stderr, "ranks: refused: %s\n", refusals.items[0].text);
        return false;
    }
    mcp_program_build(run->arena, &run->question, &run->plan, &run->program);
    CHECK(mcp_program_verify(run->arena, &run->program, &err));
    return true;
}

static enum mcp_status agree_alone(struct mcp_backend *backend, double *values, int count,
                                   char operation, struct mcp_error *err)
{
    (void)backend, (void)values, (void)count, (void)operation, (void)err;
    return MCP_OK;
}

static void begin(struct run *run, struct mcp_cpu_world *world, bool alone)
{
    const struct mcp_cpu_options options = {.timeout_s = 8};
    struct mcp_train_options train = mcp_train_options_default();
    train.rate = (struct mcp_learning_rate){.peak = 3e-3, .warmup_steps = 3};
    train.seed = 7;
    train.interpret.order = true;
    run->calls = mcp_cpu_backend;
    if (alone)
        run->calls.agree = agree_alone;
    run->data.vocabulary = run->model.vocab_size;
    run->batch = (struct mcp_batch){sequence, &run->data};
    CHECK(mcp_cpu_backend_open(run->arena, world, &run->program, &options, &run->backend, &err));
    CHECK(mcp_trainer_new(run->arena, &run->program, alone ? 0 : mcp_cpu_world_rank(world),
                          &run->calls, run->backend, &run->batch, &train, &run->trainer, &err));
}

static void end(struct run *run)
{
    run->calls.close(run->backend);
    mcp_arena_free(run->arena);
}

/* --- gradients in one order: first moments after the first step, times a constant --- */

struct tensor {
    char name[64];
    uint64_t key;
    int64_t first, elements;
};
struct gradients {
    struct tensor tensors[256];
    int num_tensors;
    int64_t count;
    double *values;
};

static uint64_t key_of(const struct mcp_weight *w, int layer, int expert)
{
    return w->twin ? mcp_init_key(0, "embedding", 0, 0) : mcp_init_key(0, w->name, layer, expert);
}

static struct tensor *find(struct gradients *g, uint64_t key)
{
    for (int i = 0; i < g->num_tensors; i++)
        if (g->tensors[i].key == key)
            return &g->tensors[i];
    return NULL;
}

/* All tensors of the model, from a program of one rank. */
static void list_tensors(const struct run *one, struct gradients *g)
{
    const struct mcp_pool *pool = mcp_interpreter_pool(mcp_trainer_interpreter(one->trainer));
    for (int layer = 0; layer < one->program.num_layers; layer++) {
        const struct mcp_layer_type *type = &one->program.types[mcp_pool_type(pool, layer)];
        for (int i = 0; i < type->num_weights; i++)
            for (int copy = 0; copy < type->weights[i].copies; copy++) {
                int64_t elements = mcp_weight_elements(&type->weights[i]);
                struct tensor *tensor = &g->tensors[g->num_tensors++];
                snprintf(tensor->name, sizeof tensor->name, "%d.%s.%d", layer,
                         type->weights[i].name, copy);
                tensor->key = key_of(&type->weights[i], layer, type->weights[i].expert ? copy : 0);
                tensor->first = g->count;
                tensor->elements = elements;
                g->count += elements;
            }
    }
    g->values = MCP_ARRAY(one->arena, g->count, double);
}

struct collected {
    double *sums, *counts;
};

static void collect_part(const struct run *run, const struct mcp_flat_place *place,
                         const float *moments, int layer, int part, struct gradients *g,
                         const struct collected *out)
{
    const struct mcp_rank *rank = mcp_trainer_rank(run->trainer);
    const struct mcp_pool *pool = mcp_interpreter_pool(mcp_trainer_interpreter(run->trainer));
    const struct mcp_layer_type *type = &run->program.types[mcp_pool_type(pool, layer)];
    const struct mcp_weight *w = &type->weights[part];
    int member = mcp_group_index(&run->plan, MCP_EXPERT, rank->rank);
    for (int copy = 0; copy < w->copies; copy++) {
        struct tensor *tensor =
            find(g, key_of(w, layer, w->expert ? member * w->copies + copy : 0));
        int64_t offset =
            mcp_weight_offset(type, part, copy) - mcp_flat_first(type, place->flat) - place->first;
        for (int64_t x = 0; x < mcp_weight_elements(w); x++) {
            int64_t at = mcp_weight_global_index(w, rank->at.tensor, run->plan.tensor_parallel,
                                                 x / w->columns, x % w->columns);
            if (offset + x < 0 || offset + x >= place->count || at >= tensor->elements)
                continue;
            out->sums[tensor->first + at] += (double)moments[offset + x];
            out->counts[tensor->first + at] += 1;
        }
    }
}

/* Mean over whoever holds an element; all hold the same. */
static void collect(const struct run *run, struct gradients *g, double *out)
{
    struct mcp_flat_place places[MCP_NUM_FLATS];
    const struct mcp_interpreter *in = mcp_trainer_interpreter(run->trainer);
    const struct collected sums = {MCP_ARRAY(run->arena, g->count, double),
                                   MCP_ARRAY(run->arena, g->count, double)};
    for (int layer = 0; layer < run->program.num_layers; layer++) {
        int count = mcp_flat_places(in, mcp_trainer_rank(run->trainer), layer, places);
        for (int i = 0; i < count; i++) {
            const struct mcp_layer_type *type =
                &run->program.types[mcp_pool_type(mcp_interpreter_pool(in), layer)];
            const float *moments = (const float *)(const void *)places[i].state;
            moments += places[i].has_master ? places[i].state_stride : 0;
            for (int part = 0; part < type->num_weights; part++)
                if (mcp_weight_flat(&type->weights[part]) == places[i].flat)
                    collect_part(run, &places[i], moments, layer, part, g, &sums);
        }
    }
    CHECK(run->calls.agree(run->backend, sums.sums, (int)g->count, '+', &err));
    CHECK(run->calls.agree(run->backend, sums.counts, (int)g->count, '+', &err));
    for (int64_t i = 0; i < g->count; i++)
        out[i] = sums.sums[i] / sums.counts[i];
}

/* The largest over tensors of |a - b| / |b|, and of which; what NaN fails. */
static double distance(const struct gradients *g, const double *a, const double *b,
                       const char **which)
{
    double worst = 0;
    for (int i = 0; i < g->num_tensors; i++) {
        double apart = 0, norm = 0;
        for (int64_t x = g->tensors[i].first; x < g->tensors[i].first + g->tensors[i].elements;
             x++) {
            apart += (a[x] - b[x]) * (a[x] - b[x]);
            norm += b[x] * b[x];
        }
        double relative = norm > 0 ? sqrt(apart / norm) : sqrt(apart);
        if (!(relative <= worst)) {
            worst = relative;
            *which = g->tensors[i].name;
        }
    }
    return worst;
}

/* --- one case --- */

struct result {
    double losses[RANKS_STEPS], norms[RANKS_STEPS];
    int64_t peak_bytes;
};

static void train(struct run *run, struct gradients *g, double *gradients, struct result *out)
{
    struct mcp_step_report report;
    for (int step = 0; step < RANKS_STEPS; step++) {
        run->data.step = step;
        CHECK(mcp_trainer_step(run->trainer, &report, &err));
        out->losses[step] = report.loss;
        out->norms[step] = report.grad_norm;
        if (step == 0 && g != NULL)
            collect(run, g, gradients);
    }
    out->peak_bytes =
        mcp_pool_peak_bytes(mcp_interpreter_pool(mcp_trainer_interpreter(run->trainer)));
}

static double worst_of(const double *a, const double *b)
{
    double worst = 0;
    for (int i = 0; i < RANKS_STEPS; i++) {
        double relative = fabs(a[i] - b[i]) / fabs(b[i]);
        if (!(relative <= worst))
            worst = relative;
    }
    return worst;
}

/* The planner's peak of this rank's stage without what it reserves. */
static int64_t planned_bytes(struct run *run, int stage)
{
    struct mcp_pricer *pricer = mcp_pricer_new(run->arena, &run->question);
    mcp_estimate(pricer, &run->plan, &run->prediction);
    return mcp_memory_allocated(&run->prediction.stages[stage].memory);
}

/* What one rank makes of a model: each process trains it for itself, once. */
struct reference {
    bool made;
    struct run run;
    struct gradients gradients;
    struct result result;
};

static struct reference *reference_of(struct mcp_cpu_world *world, struct reference *all,
                                      const struct ranks_case *c)
{
    struct reference *one = &all[c->model];
    const struct ranks_case alone = {
        c->model,         1, 1,     1,        1, 1, false,
        MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 1, MCP_RECOMPUTE_NONE};
    if (one->made)
        return one;
    one->made = build(&one->run, &alone);
    begin(&one->run, world, true);
    list_tensors(&one->run, &one->gradients);
    train(&one->run, &one->gradients, one->gradients.values, &one->result);
    return one;
}

/* "case, worst loss, worst norm, worst gradient, memory beyond the planned, first loss, last" */
static void run_case(struct mcp_cpu_world *world, struct reference *all, int number, FILE *out)
{
    const struct ranks_case *c = &ranks_cases[number];
    struct reference *one = reference_of(world, all, c);
    struct run *many = MCP_NEW(one->run.arena, struct run);
    struct result got;
    if (!build(many, c)) {
        if (out != NULL)
            fprintf(out, "%d refused\n", number);
        return;
    }
    begin(many, world, false);
    double *gradients = MCP_ARRAY(many->arena, one->gradients.count, double);
    train(many, &one->gradients, gradients, &got);
    const struct mcp_rank *rank = mcp_trainer_rank(many->trainer);
    double beyond = (double)(got.peak_bytes - planned_bytes(many, rank->at.pipeline));
    CHECK(many->calls.agree(many->backend, &beyond, 1, '>', &err));
    const char *which = "none";
    double apart = distance(&one->gradients, gradients, one->gradients.values, &which);
    if (out != NULL)
        fprintf(out, "%d %.3g %.3g %.3g %.0f %.6f %.6f %s\n", number,
                worst_of(got.losses, one->result.losses), worst_of(got.norms, one->result.norms),
                apart, beyond, got.losses[0], got.losses[RANKS_STEPS - 1], which);
    end(many);
}

int main(int argc, char **argv)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_cpu_world *world = NULL;
    CHECK(mcp_cpu_world_open(arena, &argc, &argv, &world, &err));
    bool writes = mcp_cpu_world_rank(world) == 0;
    FILE *out = writes && argc > 1 ? fopen(argv[1], "w") : NULL;
    struct reference *all = MCP_ARRAY(arena, RANKS_MODELS, struct reference);
    int only = argc > 2 ? atoi(argv[2]) : -1;
    for (int i = 0; i < ranks_num_cases; i++)
        if (ranks_world(&ranks_cases[i]) == mcp_cpu_world_size(world) && (only < 0 || only == i)) {
            run_case(world, all, i, out);
            if (out != NULL)
                fflush(out);
        }
    if (out != NULL)
        fclose(out);
    for (int i = 0; i < RANKS_MODELS; i++)
        mcp_arena_free(all[i].run.arena);
    mcp_arena_free(arena);
    return 0;
}
