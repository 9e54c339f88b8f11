/* tests/exec/ranks_bits.c: 1-bit Adam on ranks: its signs beside one process that does the
 * same arithmetic, its bytes, and its losses beside Adam's; saved activations of 8 bits. */
#include "tests/exec/ranks_bits.h"

#include "core/mesh.h"
#include "exec/init.h"
#include "step/weights.h"
#include "tests/exec/ranks_sent.h"

#include <math.h>
#include <string.h>

enum { FREEZE = 8, STEPS = 24, COMPARED = 2, MEAN_OF = 4 };

#define CASE(model, t, c, p, d)                                                                    \
    {                                                                                              \
        RANKS_##model, t, c, p, d, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 2,           \
            MCP_RECOMPUTE_NONE                                                                     \
    }
static const struct ranks_case cases[] = {
    CASE(GPT2, 1, 1, 1, 2), CASE(LLAMA, 1, 2, 1, 1), CASE(MOE, 1, 1, 1, 2),
    CASE(GPT2, 1, 1, 1, 4), CASE(GPT2, 2, 1, 1, 2),  CASE(GPT2, 1, 1, 2, 2),
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

/* --- a run of both phases --- */

struct both {
    struct run run;
    struct mcp_program frozen;
};

static void begin_both(struct both *both, const struct ranks_case *c, struct mcp_cpu_world *world)
{
    struct run *run = &both->run;
    struct mcp_error refused = {"a case of 1-bit Adam is not legal"};
    if (!plan_case(run, c))
        stop(&refused, "bits");
    run->job.optimizer = MCP_OPTIMIZER_ONE_BIT_ADAM;
    run->job.phase = MCP_PHASE_FROZEN;
    build_program(run);
    both->frozen = run->program;
    run->job.phase = MCP_PHASE_WARM;
    build_program(run);
    run->frozen = &both->frozen;
    run->freeze_step = FREEZE;
    begin(run, world, false, 0);
}

/* --- the arithmetic of one flat buffer, in one process for all ranks of its group --- */

struct member {
    double *gradient, *worker; /* [n] */
    double *server;            /* [own] */
};

struct replay {
    struct both *both;
    int layer, ranks, self;
    struct mcp_flat_place place;
    int64_t n, own; /* own: of a rank, with padding */
    struct member *members;
    const float *moment, *variance; /* before the step */
    double signs, beyond;           /* that differ; largest distance, of a scale */
};

static const float *floats_at(const struct both *both, int layer, int index)
{
    int64_t bytes = 0;
    return mcp_interpreter_buffer(mcp_trainer_interpreter(both->run.trainer), layer, index, &bytes);
}

/* This rank's values among those of all members. */
static void share(struct replay *r, double *rows, int64_t count, const float *values)
{
    const struct run *run = &r->both->run;
    for (int64_t i = 0; i < count; i++)
        rows[r->self * count + i] = (double)values[i];
    CHECK(run->calls.agree(run->backend, rows, (int)(count * r->ranks), '+', &err));
}

static double *new_rows(const struct replay *r, int64_t count)
{
    return MCP_ARRAY(r->both->run.arena, count * r->ranks, double);
}

static const float *copy_of(const struct replay *r, const float *values)
{
    float *copy = MCP_ARRAY(r->both->run.arena, r->n, float);
    memcpy(copy, values, (size_t)r->n * sizeof *copy);
    return copy;
}

/* Of the dense buffer of a layer, whose errors begin at 0; before a step. */
static void look_before(struct replay *r)
{
    struct run *run = &r->both->run;
    const struct mcp_rank *rank = mcp_trainer_rank(run->trainer);
    struct mcp_flat_place places[MCP_NUM_FLATS];
    mcp_flat_places(mcp_trainer_interpreter(run->trainer), rank, r->layer, places);
    r->place = places[0];
    r->n = r->place.elements;
    r->ranks = mcp_group_size(&run->plan, (unsigned)MCP_DATA | MCP_CONTEXT);
    r->self = r->place.index;
    int64_t unit = INT64_C(8) * r->ranks;
    r->own = (r->n + unit - 1) / unit * 8;
    r->moment = copy_of(r, (const float *)(const void *)r->place.state);
    r->variance = copy_of(r, (const float *)(const void *)r->place.state + r->n);
    double *worker = new_rows(r, r->n), *server = new_rows(r, r->own);
    share(r, worker, r->n, floats_at(r->both, r->layer, MCP_LAYER_WORKER_ERROR));
    share(r, server, r->own, floats_at(r->both, r->layer, MCP_LAYER_SERVER_ERROR));
    r->members = MCP_ARRAY(run->arena, r->ranks, struct member);
    for (int j = 0; j < r->ranks; j++) {
        r->members[j].worker = worker + j * r->n;
        r->members[j].server = server + j * r->own;
    }
}

/* Signs of u[count] in place of it, +-scale; returns the scale. 0 where masked. */
static double compress(const float *variance, int64_t count, double *u)
{
    double squares = 0, elements = 0;
    for (int64_t i = 0; i < count; i++)
        if (variance[i] > 0) {
            squares += u[i] * u[i];
            elements++;
        }
    double scale = elements > 0 ? (double)(float)sqrt(squares / elements) : 0;
    for (int64_t i = 0; i < count; i++)
        u[i] = variance[i] <= 0 ? 0 : u[i] < 0 ? -scale : scale;
    return scale;
}

/* What this rank has now beside what one process makes of it: where |u| is above what
 * rounding does. */
static void compare(struct replay *r, int64_t first, int64_t count, const double *u, double scale)
{
    const float *now = (const float *)(const void *)r->place.state + first;
    for (int64_t i = 0; i < count; i++) {
        if (r->variance[first + i] <= 0 || fabs(u[i]) <= 1e-5 * scale)
            continue;
        r->signs += (now[i] < 0) != (u[i] < 0);
        double apart = fabs(fabs((double)now[i]) - scale) / scale;
        if (!(apart <= r->beyond))
            r->beyond = apart;
    }
}

static void look_after(struct replay *r)
{
    const double beta = 0.9;
    double *gradients = new_rows(r, r->n), *u = new_rows(r, r->n);
    double *mean = MCP_ARRAY(r->both->run.arena, r->n, double);
    share(r, gradients, r->n, floats_at(r->both, r->layer, MCP_LAYER_GRADIENTS));
    for (int j = 0; j < r->ranks; j++) {
        double *signs = u + j * r->n;
        for (int64_t i = 0; i < r->n; i++)
            signs[i] = beta * (double)r->moment[i] +
                       (1 - beta) * r->ranks * gradients[j * r->n + i] + r->members[j].worker[i];
        compress(r->variance, r->n, signs);
        for (int64_t i = 0; i < r->n; i++)
            mean[i] += signs[i] / r->ranks;
    }
    for (int j = 0; j < r->ranks; j++) {
        int64_t first = j * r->own, count = r->n - first < r->own ? r->n - first : r->own;
        if (count <= 0)
            continue;
        double *signs = MCP_ARRAY(r->both->run.arena, count, double);
        for (int64_t i = 0; i < count; i++)
            signs[i] = mean[first + i] += r->members[j].server[i];
        compare(r, first, count, mean + first, compress(r->variance + first, count, signs));
    }
}

/* --- bytes: 2 (k - 1) / k n / 8 of signs and 8 (k - 1) of scales, of each flat buffer; and the
 * norm, one number that the first rank sums and sends to all others --- */

static double signs_bytes(const struct both *both)
{
    const struct mcp_interpreter *in = mcp_trainer_interpreter(both->run.trainer);
    struct mcp_flat_place places[MCP_NUM_FLATS];
    double bytes = 4 * (mcp_plan_world(&both->run.plan) - 1);
    for (int layer = 0; layer < both->run.program.num_layers; layer++) {
        int count = mcp_flat_places(in, mcp_trainer_rank(both->run.trainer), layer, places);
        for (int i = 0; i < count; i++) {
            unsigned axes = places[i].flat == MCP_FLAT_EXPERT ? (unsigned)MCP_EXPERT_DATA
                                                              : (unsigned)MCP_DATA | MCP_CONTEXT;
            double k = mcp_group_size(&both->run.plan, axes);
            double n = ceil((double)places[i].elements / (8 * k)) * 8 * k;
            bytes += 2 * (k - 1) / k * n / 8 + 8 * (k - 1);
        }
    }
    return bytes;
}

/* --- weights that must be alike, and those that must stay --- */

static double largest_apart(const struct both *both, const struct mcp_layer_type *type,
                            const struct mcp_flat_place *place)
{
    const struct run *run = &both->run;
    int count = (int)mcp_flat_replicated(type, place->flat);
    double *low = MCP_ARRAY(run->arena, count, double),
           *high = MCP_ARRAY(run->arena, count, double);
    double apart = 0;
    for (int i = 0; i < count; i++)
        low[i] = high[i] = (double)((const float *)(const void *)place->weights)[i];
    CHECK(run->calls.agree(run->backend, low, count, '<', &err));
    CHECK(run->calls.agree(run->backend, high, count, '>', &err));
    for (int i = 0; i < count; i++)
        apart = ranks_worse(apart, high[i] - low[i]);
    return apart;
}

/* Norms and biases of all decoder layers, over all ranks: of no pipeline. */
static double replicas_apart(const struct both *both)
{
    const struct mcp_interpreter *in = mcp_trainer_interpreter(both->run.trainer);
    struct mcp_flat_place places[MCP_NUM_FLATS];
    double worst = 0;
    for (int layer = 1; layer <= both->run.model.num_layers; layer++) {
        const struct mcp_layer_type *type =
            &both->run.program.types[mcp_pool_type(mcp_interpreter_pool(in), layer)];
        mcp_flat_places(in, mcp_trainer_rank(both->run.trainer), layer, places);
        worst = ranks_worse(worst, largest_apart(both, type, &places[0]));
    }
    return worst;
}

struct still {
    float *weights;
    int64_t moved, masked;
};

/* Weights of the embedding's layer that had no gradient up to the freeze. */
static void watch(const struct both *both, struct still *still, bool before)
{
    struct mcp_flat_place places[MCP_NUM_FLATS];
    mcp_flat_places(mcp_trainer_interpreter(both->run.trainer), mcp_trainer_rank(both->run.trainer),
                    0, places);
    const float *now = (const float *)(const void *)places[0].weights;
    const float *variance = (const float *)(const void *)places[0].state + places[0].state_stride;
    if (before) {
        still->weights = MCP_ARRAY(both->run.arena, places[0].elements, float);
        memcpy(still->weights, now, (size_t)places[0].elements * sizeof *now);
        return;
    }
    for (int64_t i = 0; i < places[0].elements; i++) {
        still->masked += variance[i] <= 0;
        still->moved += variance[i] <= 0 && memcmp(&now[i], &still->weights[i], sizeof *now) != 0;
    }
}

/* --- a case --- */

struct story {
    double losses[STEPS];
    double warm_bytes, frozen_bytes, planned_bytes;
    double signs, beyond, replicas;
    struct still still;
};

static void train_both(struct both *both, struct story *s)
{
    struct mcp_step_report report;
    struct replay replay = {.both = both, .layer = 1};
    for (int step = 0; step < STEPS; step++) {
        const int64_t before = ranks_sent_bytes();
        bool compared = step >= FREEZE && step < FREEZE + COMPARED &&
                        both->run.plan.pipeline_parallel * both->run.plan.tensor_parallel == 1;
        if (step == FREEZE && both->run.plan.pipeline_parallel == 1)
            watch(both, &s->still, true);
        if (compared)
            look_before(&replay);
        train_step(&both->run, step, &report);
        *(step < FREEZE ? &s->warm_bytes : &s->frozen_bytes) =
            (double)(ranks_sent_bytes() - before);
        if (compared)
            look_after(&replay);
        s->losses[step] = report.loss;
    }
    s->signs = replay.signs;
    s->beyond = replay.beyond;
    s->planned_bytes = signs_bytes(both);
    if (both->run.plan.pipeline_parallel > 1)
        return;
    watch(both, &s->still, false);
    s->replicas = replicas_apart(both);
}

static void train_plain(const struct ranks_case *c, struct mcp_cpu_world *world,
                        double losses[STEPS])
{
    struct mcp_step_report report;
    struct run run;
    plan_case(&run, c);
    build_program(&run);
    begin(&run, world, false, 0);
    for (int step = 0; step < STEPS; step++) {
        train_step(&run, step, &report);
        losses[step] = report.loss;
    }
    end(&run);
}

static double last_of(const double losses[STEPS])
{
    double sum = 0;
    for (int i = STEPS - MEAN_OF; i < STEPS; i++)
        sum += losses[i];
    return sum / MEAN_OF;
}

static void tell(FILE *out, const char *name, double value)
{
    if (out != NULL)
        fprintf(out, "bits %s %.9g\n", name, value);
}

static void run_case(struct mcp_cpu_world *world, const struct ranks_case *c, FILE *out)
{
    struct both both;
    struct story s = {.signs = 0};
    double plain[STEPS];
    bool data_alone = c->tensor * c->context * c->pipeline == 1;
    begin_both(&both, c, world);
    train_both(&both, &s);
    if (data_alone) {
        train_plain(c, world, plain);
        tell(out, "warm_differs", memcmp(s.losses, plain, FREEZE * sizeof *plain) != 0);
        tell(out, "loss", last_of(s.losses) / last_of(plain));
    }
    tell(out, "learnt", last_of(s.losses) / s.losses[FREEZE]);
    tell(out, "replicas_apart", s.replicas);
    tell(out, "masked_moved", (double)s.still.moved);
    if (c->model == RANKS_GPT2 && c->pipeline == 1)
        tell(out, "masked", (double)s.still.masked);
    if (c->tensor * c->pipeline == 1) {
        tell(out, "signs_differ", s.signs);
        tell(out, "moments_apart", s.beyond);
    }
    if (data_alone && c->model != RANKS_MOE) { /* nothing else is sent */
        tell(out, "bytes_beyond", s.frozen_bytes - s.planned_bytes);
        tell(out, "bytes_less", s.warm_bytes / s.frozen_bytes);
    }
    end(&both.run);
}

/* --- saved activations of 8 bits --- */

#define KEPT(model, t, c, p, d, schedule, recompute)                                               \
    {                                                                                              \
        RANKS_##model, t, c, p, d, 1, false, MCP_CONTEXT_RING, 0, false, schedule, 1, 2, recompute \
    }
static const struct ranks_case kept[] = {
    KEPT(GPT2, 1, 1, 1, 1, MCP_1F1B, MCP_RECOMPUTE_NONE),
    KEPT(LLAMA, 1, 1, 1, 1, MCP_1F1B, MCP_RECOMPUTE_SELECTIVE),
    KEPT(MOE, 1, 1, 1, 1, MCP_1F1B, MCP_RECOMPUTE_NONE),
    KEPT(LLAMA, 1, 1, 2, 1, MCP_ZB_H1, MCP_RECOMPUTE_NONE),
    KEPT(LLAMA, 1, 1, 2, 1, MCP_1F1B, MCP_RECOMPUTE_FULL),
    KEPT(LLAMA, 2, 2, 1, 1, MCP_1F1B, MCP_RECOMPUTE_SELECTIVE),
};
enum { NUM_KEPT = sizeof kept / sizeof *kept };

static void train_kept(struct mcp_cpu_world *world, const struct ranks_case *c, int bits,
                       double losses[RANKS_STEPS], double peaks[2])
{
    struct mcp_error refused = {"a case of 8 bit activations is not legal"};
    struct run run;
    if (!plan_case(&run, c))
        stop(&refused, "bits");
    run.job.saved_activation_bits = bits;
    build_program(&run);
    begin(&run, world, false, 0);
    train_losses(&run, losses);
    const struct mcp_rank *rank = mcp_trainer_rank(run.trainer);
    struct mcp_pricer *pricer = mcp_pricer_new(run.arena, &run.question);
    mcp_estimate(pricer, &run.plan, &run.prediction);
    peaks[0] =
        (double)mcp_pool_peak_bytes(mcp_interpreter_pool(mcp_trainer_interpreter(run.trainer)));
    peaks[1] = (double)mcp_memory_allocated(&run.prediction.stages[rank->at.pipeline].memory);
    end(&run);
}

static void compare_kept(struct mcp_cpu_world *world, const struct ranks_case *c, FILE *out)
{
    double whole[RANKS_STEPS], small[RANKS_STEPS], whole_peaks[2], small_peaks[2];
    train_kept(world, c, 0, whole, whole_peaks);
    train_kept(world, c, 8, small, small_peaks);
    tell(out, "kept_first_differs", memcmp(whole, small, sizeof *whole) != 0);
    tell(out, "kept_all_same", memcmp(whole, small, sizeof whole) == 0);
    tell(out, "kept_losses_apart", worst_of(small, whole));
    tell(out, "kept_bytes_beyond", fabs(small_peaks[0] - small_peaks[1]));
    tell(out, c->recompute == MCP_RECOMPUTE_FULL ? "input_bytes_share" : "kept_bytes_share",
         small_peaks[0] / whole_peaks[0]);
}

void run_bits(struct mcp_cpu_world *world, FILE *out)
{
    for (int i = 0; i < NUM_KEPT; i++)
        if (ranks_world(&kept[i]) == mcp_cpu_world_size(world))
            compare_kept(world, &kept[i], out);
    for (int i = 0; i < NUM_CASES; i++)
        if (ranks_world(&cases[i]) == mcp_cpu_world_size(world))
            run_case(world, &cases[i], out);
}
