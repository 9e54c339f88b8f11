/* planner/space.c: enumerate layouts, and the choices under each. */
#include "planner/space.h"

#include "core/units.h"
#include "step/stage.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>

enum { MOST_SEQUENCES_IN_MICROBATCH = 4096 };

const char *const mcp_knob_names[MCP_NUM_KNOBS] = {MCP_KNOB_NAMES};

int mcp_knob_value(enum mcp_knob knob, const struct mcp_plan *plan)
{
    const int values[MCP_NUM_KNOBS] = {
        [MCP_KNOB_TENSOR] = plan->tensor_parallel,
        [MCP_KNOB_CONTEXT] = plan->context_parallel,
        [MCP_KNOB_PIPELINE] = plan->pipeline_parallel,
        [MCP_KNOB_DATA] = plan->data_parallel,
        [MCP_KNOB_EXPERT] = plan->expert_parallel,
        [MCP_KNOB_VIRTUAL_STAGES] = plan->virtual_stages,
        [MCP_KNOB_MICROBATCH] = plan->microbatch_size,
        [MCP_KNOB_ZERO_STAGE] = plan->zero_stage,
        [MCP_KNOB_SEQUENCE_PARALLEL] = plan->sequence_parallel,
        [MCP_KNOB_CONTEXT_KIND] = (int)plan->context_parallel_kind,
        [MCP_KNOB_SCHEDULE] = (int)plan->schedule,
        [MCP_KNOB_RESHARD] = plan->reshard_after_forward,
    };
    if (knob == MCP_KNOB_RECOMPUTE)
        return (int)mcp_uniform_recompute(plan);
    return knob == MCP_KNOB_RANK_ORDER ? mcp_rank_order_index(plan->rank_order) : values[knob];
}

const char *mcp_knob_text(struct mcp_arena *arena, enum mcp_knob knob, int value)
{
    switch (knob) {
    case MCP_KNOB_SEQUENCE_PARALLEL:
    case MCP_KNOB_RESHARD:
        return value ? "on" : "off";
    case MCP_KNOB_RANK_ORDER:
        return mcp_rank_order_names[value];
    case MCP_KNOB_CONTEXT_KIND:
        return mcp_context_kind_names[value];
    case MCP_KNOB_SCHEDULE:
        return mcp_schedule_names[value];
    case MCP_KNOB_RECOMPUTE:
        return value < MCP_NUM_RECOMPUTES ? mcp_recompute_names[value] : "mixed";
    default:
        return mcp_format(arena, "%d", value);
    }
}

struct mcp_plan_space mcp_space_default(void)
{
    return (struct mcp_plan_space){.pipeline_rule = true, .batch_rule = true, .overlap = true};
}

void mcp_space_pin(struct mcp_plan_space *space, enum mcp_knob knob, int value)
{
    space->knobs[knob] = (struct mcp_interval){true, value, value};
}

bool mcp_space_pinned(const struct mcp_plan_space *space, enum mcp_knob knob)
{
    const struct mcp_interval *interval = &space->knobs[knob];
    return interval->given && interval->low == interval->high;
}

bool mcp_space_keeps_pipeline_rule(const struct mcp_plan_space *space)
{
    return space->pipeline_rule && !mcp_space_pinned(space, MCP_KNOB_PIPELINE);
}

bool mcp_space_keeps_batch_rule(const struct mcp_plan_space *space)
{
    return space->batch_rule && !mcp_space_pinned(space, MCP_KNOB_MICROBATCH);
}

static bool allows(const struct mcp_plan_space *space, enum mcp_knob knob, int64_t value)
{
    const struct mcp_interval *interval = &space->knobs[knob];
    return !interval->given || (interval->low <= value && value <= interval->high);
}

/* Lists */

static struct mcp_values values_new(struct mcp_arena *arena, int capacity)
{
    return (struct mcp_values){0, MCP_ARRAY(arena, capacity, int)};
}

static void values_add(struct mcp_values *values, int value)
{
    values->items[values->count++] = value;
}

static struct mcp_values one_value(struct mcp_arena *arena, int value)
{
    struct mcp_values values = values_new(arena, 1);
    values_add(&values, value);
    return values;
}

/* low .. high of what the knob allows; what was given where that is nothing. */
static struct mcp_values values_between(struct mcp_arena *arena, const struct mcp_plan_space *space,
                                        enum mcp_knob knob, int low, int high)
{
    struct mcp_values values = values_new(arena, high - low + 1);
    for (int value = low; value <= high; value++)
        if (allows(space, knob, value))
            values_add(&values, value);
    return values.count > 0 ? values : one_value(arena, space->knobs[knob].low);
}

/* Divisors of n up to `most`, ascending. */
static struct mcp_values divisors(struct mcp_arena *arena, int64_t n, int64_t most)
{
    int count = 0;
    for (int64_t i = 1; i <= most && i <= n / i; i++)
        count += n % i == 0;
    struct mcp_values values = values_new(arena, 2 * count + 1);
    for (int64_t i = 1; i <= most && i <= n / i; i++)
        if (n % i == 0)
            values_add(&values, (int)i);
    for (int i = values.count - 1; i >= 0; i--) {
        int64_t other = n / values.items[i];
        if (other <= most && other != values.items[i])
            values_add(&values, (int)other);
    }
    return values;
}

/* A pinned value, and the lowest of bounds that hold none, stay for legality to
 * refuse. */
static struct mcp_values allowed(struct mcp_arena *arena, const struct mcp_plan_space *space,
                                 enum mcp_knob knob, const struct mcp_values *all)
{
    struct mcp_values values = values_new(arena, all->count + 1);
    for (int i = 0; i < all->count; i++)
        if (allows(space, knob, all->items[i]))
            values_add(&values, all->items[i]);
    if (values.count == 0)
        values_add(&values, space->knobs[knob].given ? space->knobs[knob].low : 1);
    return values;
}

/* Layouts */

static int most_experts(const struct mcp_model *model)
{
    int most = 0;
    for (int k = 0; k < model->num_kinds; k++)
        if (model->kinds[k].mlp == MCP_MLP_EXPERTS && model->kinds[k].num_experts > most)
            most = model->kinds[k].num_experts;
    return most;
}

struct layouts {
    struct mcp_arena *arena;
    const struct mcp_plan_space *space;
    int num_experts;
    struct mcp_layout *items;
    size_t count, capacity;
};

static void add_layout(struct layouts *layouts, struct mcp_layout layout)
{
    layouts->items = mcp_grow(layouts->arena, layouts->items, layouts->count, &layouts->capacity,
                              sizeof *layouts->items);
    layouts->items[layouts->count++] = layout;
}

/* Expert degrees spread over all ranks of a stage. */
static void add_experts(struct layouts *layouts, struct mcp_layout layout)
{
    int64_t ranks =
        (int64_t)layout.tensor_parallel * layout.context_parallel * layout.data_parallel;
    bool pinned = mcp_space_pinned(layouts->space, MCP_KNOB_EXPERT);
    if (pinned || layouts->num_experts == 0) {
        bool one = allows(layouts->space, MCP_KNOB_EXPERT, 1);
        layout.expert_parallel = one ? 1 : layouts->space->knobs[MCP_KNOB_EXPERT].low;
        add_layout(layouts, layout);
        return;
    }
    for (int e = 1; e <= layouts->num_experts && e <= ranks; e++) {
        layout.expert_parallel = e;
        if (layouts->num_experts % e == 0 && ranks % e == 0 &&
            allows(layouts->space, MCP_KNOB_EXPERT, e))
            add_layout(layouts, layout);
    }
}

static void add_pipelines(struct layouts *layouts, const struct mcp_values *degrees, int gpus,
                          struct mcp_layout layout)
{
    for (int i = 0; i < degrees->count; i++) {
        int p = degrees->items[i];
        if (gpus % p != 0 || !allows(layouts->space, MCP_KNOB_PIPELINE, p) ||
            !allows(layouts->space, MCP_KNOB_DATA, gpus / p))
            continue;
        layout.pipeline_parallel = p;
        layout.data_parallel = gpus / p;
        add_experts(layouts, layout);
    }
}

int mcp_space_layouts(struct mcp_arena *arena, const struct mcp_question *question,
                      const struct mcp_plan_space *space, struct mcp_layout **out)
{
    struct layouts layouts = {arena, space, most_experts(question->model), NULL, 0, 0};
    int gpus = mcp_cluster_gpus(question->cluster);
    struct mcp_values degrees = divisors(arena, gpus, gpus);
    for (int i = 0; i < degrees.count; i++) {
        int t = degrees.items[i];
        if (!allows(space, MCP_KNOB_TENSOR, t))
            continue;
        for (int j = 0; j < degrees.count; j++) {
            int c = degrees.items[j];
            if (gpus / t % c == 0 && allows(space, MCP_KNOB_CONTEXT, c))
                add_pipelines(&layouts, &degrees, gpus / t / c, (struct mcp_layout){t, c, 1, 1, 1});
        }
    }
    *out = layouts.items;
    return (int)layouts.count;
}

/* What the numbers cannot mean */

struct nearest {
    int below, above; /* 0: none */
};

static struct nearest nearest_divisors(int64_t n, int value)
{
    struct nearest nearest = {0, 0};
    for (int64_t i = 1; i <= n / i; i++) {
        if (n % i != 0)
            continue;
        const int64_t pair[2] = {i, n / i};
        for (int k = 0; k < 2; k++) {
            if (pair[k] <= value && pair[k] > nearest.below)
                nearest.below = (int)pair[k];
            if (pair[k] > value && pair[k] <= INT_MAX &&
                (nearest.above == 0 || pair[k] < nearest.above))
                nearest.above = (int)pair[k];
        }
    }
    return nearest;
}

static const char *say_nearest(struct nearest nearest, char *text, size_t size)
{
    if (nearest.below > 0 && nearest.above > 0)
        snprintf(text, size, "%d and %d", nearest.below, nearest.above);
    else
        snprintf(text, size, "%d", nearest.below > 0 ? nearest.below : nearest.above);
    return text;
}

static enum mcp_status check_degree(const struct mcp_plan_space *space, enum mcp_knob knob,
                                    int gpus, struct mcp_error *err)
{
    const struct mcp_interval *asked = &space->knobs[knob];
    char near[48];
    if (!asked->given)
        return MCP_OK;
    struct nearest nearest = nearest_divisors(gpus, asked->low);
    if (nearest.below == asked->low || (nearest.above > 0 && nearest.above <= asked->high))
        return MCP_OK;
    say_nearest(nearest, near, sizeof near);
    if (asked->low == asked->high)
        return mcp_fail(err, MCP_INVALID,
                        "%s=%d does not divide %d GPUs (%d = %d x %d + %d); nearest: %s",
                        mcp_knob_names[knob], asked->low, gpus, gpus, asked->low, gpus / asked->low,
                        gpus % asked->low, near);
    return mcp_fail(err, MCP_INVALID, "%s=%d..%d holds no divisor of %d GPUs; nearest: %s",
                    mcp_knob_names[knob], asked->low, asked->high, gpus, near);
}

/* "tensor_parallel=8 x pipeline_parallel=16", of those that must be at least so. */
static int64_t pinned_product(const struct mcp_plan_space *space, char *text, size_t size,
                              int *pinned)
{
    int64_t product = 1;
    size_t used = 0;
    text[0] = '\0';
    *pinned = 0;
    for (int knob = MCP_KNOB_TENSOR; knob <= MCP_KNOB_DATA; knob++) {
        if (!mcp_space_pinned(space, (enum mcp_knob)knob))
            continue;
        if (!mcp_multiply(product, space->knobs[knob].low, &product))
            product = INT64_MAX;
        int n = snprintf(text + used, size - used, "%s%s=%d", used > 0 ? " x " : "",
                         mcp_knob_names[knob], space->knobs[knob].low);
        used += n > 0 && (size_t)n < size - used ? (size_t)n : 0;
        ++*pinned;
    }
    return product;
}

static enum mcp_status check_product(const struct mcp_plan_space *space, int gpus,
                                     struct mcp_error *err)
{
    char text[192];
    int pinned;
    int64_t product = pinned_product(space, text, sizeof text, &pinned);
    if (pinned == 4 && product != gpus)
        return mcp_fail(err, MCP_INVALID,
                        "%s = %lld ranks, but there are %d GPUs; leave data_parallel out, or ask "
                        "for --gpus %lld",
                        text, (long long)product, gpus, (long long)product);
    if (product <= gpus && gpus % product == 0)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "%s = %lld does not divide %d GPUs; the nearest number of GPUs is %lld", text,
                    (long long)product, gpus,
                    (long long)(product > gpus ? product : gpus / product * product));
}

static enum mcp_status check_replicas(const struct mcp_plan_space *space, int64_t global_batch_size,
                                      struct mcp_error *err)
{
    int64_t data = space->knobs[MCP_KNOB_DATA].low;
    int64_t nearest = (global_batch_size + data - 1) / data * data;
    if (global_batch_size == nearest)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "data_parallel=%lld does not divide global_batch_size=%lld (remainder %lld); "
                    "nearest: global_batch_size=%lld",
                    (long long)data, (long long)global_batch_size,
                    (long long)(global_batch_size % data), (long long)nearest);
}

/* A replica's batch is the whole one where data is free: 1 may be chosen. */
static enum mcp_status check_microbatch(const struct mcp_plan_space *space,
                                        int64_t global_batch_size, struct mcp_error *err)
{
    char near[48];
    bool pinned = mcp_space_pinned(space, MCP_KNOB_DATA);
    int data = pinned ? space->knobs[MCP_KNOB_DATA].low : 1;
    int microbatch = space->knobs[MCP_KNOB_MICROBATCH].low;
    int64_t replica = global_batch_size / data;
    if (replica % microbatch == 0)
        return MCP_OK;
    say_nearest(nearest_divisors(replica, microbatch), near, sizeof near);
    if (!pinned)
        return mcp_fail(err, MCP_INVALID,
                        "microbatch_size=%d does not divide global_batch_size=%lld; nearest: %s",
                        microbatch, (long long)global_batch_size, near);
    return mcp_fail(err, MCP_INVALID,
                    "microbatch_size=%d does not divide a replica's batch, %lld / %d = %lld; "
                    "nearest: %s",
                    microbatch, (long long)global_batch_size, data, (long long)replica, near);
}

static enum mcp_status check_zero(const struct mcp_question *question,
                                  const struct mcp_plan_space *space, struct mcp_error *err)
{
    const struct mcp_interval *zero = &space->knobs[MCP_KNOB_ZERO_STAGE];
    if (question->job->optimizer != MCP_OPTIMIZER_ONE_BIT_ADAM || !zero->given || zero->low == 0)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "zero_stage=%d shards moments that every rank of one_bit_adam keeps whole; "
                    "nearest legal 0, or optimizer adam",
                    zero->low);
}

enum mcp_status mcp_space_check(const struct mcp_question *question,
                                const struct mcp_plan_space *space, struct mcp_error *err)
{
    int gpus = mcp_cluster_gpus(question->cluster);
    for (int knob = MCP_KNOB_TENSOR; knob <= MCP_KNOB_DATA; knob++)
        MCP_TRY(check_degree(space, (enum mcp_knob)knob, gpus, err));
    MCP_TRY(check_product(space, gpus, err));
    MCP_TRY(check_zero(question, space, err));
    if (mcp_space_pinned(space, MCP_KNOB_DATA))
        MCP_TRY(check_replicas(space, question->job->global_batch_size, err));
    if (mcp_space_pinned(space, MCP_KNOB_MICROBATCH))
        MCP_TRY(check_microbatch(space, question->job->global_batch_size, err));
    return MCP_OK;
}

/* Choices */

/* Of the numbers of virtual stages with equal largest chunks, the smallest has
 * the most even ones; where virtual stages are bounded all are looked at. */
static struct mcp_values virtual_stages(struct mcp_arena *arena, const struct mcp_plan_space *space,
                                        int num_layers, int pipeline, unsigned schedules)
{
    const struct mcp_interval *asked = &space->knobs[MCP_KNOB_VIRTUAL_STAGES];
    int most = num_layers / pipeline;
    if (asked->given && asked->low > most)
        return one_value(arena, asked->low);
    if (asked->given)
        return values_between(arena, space, MCP_KNOB_VIRTUAL_STAGES, asked->low,
                              asked->high < most ? asked->high : most);
    if (pipeline == 1 || most < 1)
        return one_value(arena, 1);
    struct mcp_values values = values_new(arena, most);
    int64_t layers_before = INT64_MAX;
    for (int v = 1; v <= most; v++) {
        int64_t stages = (int64_t)pipeline * v, layers = (num_layers + stages - 1) / stages;
        bool many = v == 1 || (schedules >> MCP_INTERLEAVED & 1) != 0;
        if ((v == 2 && (schedules & MCP_V_SCHEDULES) != 0) || (layers < layers_before && many))
            values_add(&values, v);
        layers_before = layers;
    }
    return values;
}

static void add_interleaves(struct mcp_arena *arena, const struct mcp_question *question,
                            const struct mcp_plan_space *space, struct mcp_choices *out)
{
    int pipeline = out->base.pipeline_parallel;
    bool pinned = mcp_space_pinned(space, MCP_KNOB_SCHEDULE);
    unsigned schedules = mcp_space_schedules(space, question->stack);
    struct mcp_values stages =
        virtual_stages(arena, space, question->model->num_layers, pipeline, schedules);
    out->interleaves = MCP_ARRAY(arena, stages.count * MCP_NUM_SCHEDULES, struct mcp_interleave);
    for (int i = 0; i < stages.count; i++) {
        for (int s = 0; s < MCP_NUM_SCHEDULES; s++) {
            enum mcp_schedule schedule = (enum mcp_schedule)s;
            bool suits = pinned || mcp_schedule_suits(schedule, pipeline, stages.items[i]);
            if (suits && (schedules >> s & 1) != 0)
                out->interleaves[out->num_interleaves++] =
                    (struct mcp_interleave){stages.items[i], schedule};
        }
    }
}

/* ZeRO shards what context x data ranks, or an expert's copies, hold alike; 1-bit Adam lets
 * nothing be sharded. */
static bool can_shard(const struct mcp_question *question, const struct mcp_plan *plan)
{
    if (question->job->optimizer == MCP_OPTIMIZER_ONE_BIT_ADAM)
        return false;
    int64_t copies = (int64_t)plan->context_parallel * plan->data_parallel;
    return copies > 1 || copies * plan->tensor_parallel > plan->expert_parallel;
}

/* Resharding means something to ZeRO-3 alone; a pin means that stage, or nothing. */
static void add_zeros(struct mcp_arena *arena, const struct mcp_plan_space *space,
                      struct mcp_choices *out)
{
    out->zeros = MCP_ARRAY(arena, out->zero_stages.count + 1, struct mcp_zero);
    for (int i = 0; i < out->zero_stages.count; i++) {
        int stage = out->zero_stages.items[i];
        if (stage != 3 || allows(space, MCP_KNOB_RESHARD, 1))
            out->zeros[out->num_zeros++] = (struct mcp_zero){stage, true};
        if (stage == 3 && allows(space, MCP_KNOB_RESHARD, 0))
            out->zeros[out->num_zeros++] = (struct mcp_zero){stage, false};
    }
}

static void add_chunks(struct mcp_arena *arena, int num_layers, struct mcp_choices *out)
{
    int count = out->recomputes.count;
    out->chunks = MCP_ARRAY(arena, out->num_interleaves * count, struct mcp_chunk *);
    for (int i = 0; i < out->num_interleaves; i++) {
        struct mcp_plan plan = out->base;
        plan.virtual_stages = out->interleaves[i].virtual_stages;
        if ((int64_t)plan.pipeline_parallel * plan.virtual_stages > num_layers)
            continue;
        for (int r = 0; r < count; r++) {
            mcp_plan_uniform_chunks(arena, &plan, num_layers,
                                    (enum mcp_recompute)out->recomputes.items[r]);
            out->chunks[i * count + r] = plan.chunks;
        }
    }
}

static struct mcp_plan base_plan(const struct mcp_question *question,
                                 const struct mcp_plan_space *space,
                                 const struct mcp_layout *layout)
{
    const struct mcp_stack *stack = question->stack;
    struct mcp_plan plan = mcp_plan_default();
    plan.tensor_parallel = layout->tensor_parallel;
    plan.context_parallel = layout->context_parallel;
    plan.pipeline_parallel = layout->pipeline_parallel;
    plan.data_parallel = layout->data_parallel;
    plan.expert_parallel = layout->expert_parallel;
    plan.rows = space->rows;
    plan.placement = space->placement;
    plan.overlap = mcp_stack_overlap(stack);
    if (!space->overlap)
        plan.overlap = (struct mcp_overlap){.tensor = false};
    return plan;
}

void mcp_space_tuples(struct mcp_arena *arena, const struct mcp_question *question,
                      const struct mcp_plan_space *space, const struct mcp_layout *layout,
                      struct mcp_choices *out)
{
    *out = (struct mcp_choices){.base = base_plan(question, space, layout)};
    const struct mcp_plan *base = &out->base;
    out->context_kinds = values_between(arena, space, MCP_KNOB_CONTEXT_KIND, 0,
                                        base->context_parallel > 1 ? MCP_NUM_CONTEXT_KINDS - 1 : 0);
    out->sequence_parallel =
        values_between(arena, space, MCP_KNOB_SEQUENCE_PARALLEL, 0, base->tensor_parallel > 1);
    struct mcp_values batches =
        divisors(arena, question->job->global_batch_size / base->data_parallel,
                 MOST_SEQUENCES_IN_MICROBATCH);
    out->microbatches = allowed(arena, space, MCP_KNOB_MICROBATCH, &batches);
    out->zero_stages =
        values_between(arena, space, MCP_KNOB_ZERO_STAGE, 0, can_shard(question, base) ? 3 : 0);
    add_zeros(arena, space, out);
    mcp_choices_place(arena, question, space, out);
    out->recomputes = values_between(arena, space, MCP_KNOB_RECOMPUTE, 0, MCP_NUM_RECOMPUTES - 1);
    add_interleaves(arena, question, space, out);
}

void mcp_space_choices(struct mcp_arena *arena, const struct mcp_question *question,
                       const struct mcp_plan_space *space, const struct mcp_layout *layout,
                       struct mcp_choices *out)
{
    mcp_space_tuples(arena, question, space, layout, out);
    add_chunks(arena, question->model->num_layers, out);
}

int64_t mcp_choices_count(const struct mcp_choices *choices)
{
    return (int64_t)choices->context_kinds.count * choices->sequence_parallel.count *
           choices->num_interleaves * choices->microbatches.count * choices->num_zeros *
           choices->num_placements * choices->rank_orders.count * choices->recomputes.count;
}

/* The last digit of a number whose digits count to `count`; drops it. */
static int take_digit(int64_t *number, int count)
{
    int digit = (int)(*number % count);
    *number /= count;
    return digit;
}

struct mcp_choice_index mcp_choices_at(const struct mcp_choices *choices, int64_t index)
{
    struct mcp_choice_index at;
    assert(index >= 0 && index < mcp_choices_count(choices));
    at.recompute = take_digit(&index, choices->recomputes.count);
    at.rank_order = take_digit(&index, choices->rank_orders.count);
    at.placement = take_digit(&index, choices->num_placements);
    at.zero = take_digit(&index, choices->num_zeros);
    at.microbatch = take_digit(&index, choices->microbatches.count);
    at.interleave = take_digit(&index, choices->num_interleaves);
    at.sequence_parallel = take_digit(&index, choices->sequence_parallel.count);
    at.context_kind = (int)index;
    return at;
}

void mcp_choices_plan(const struct mcp_choices *choices, int64_t index, struct mcp_plan *out)
{
    struct mcp_choice_index at = mcp_choices_at(choices, index);
    *out = choices->base;
    out->context_parallel_kind =
        (enum mcp_context_kind)choices->context_kinds.items[at.context_kind];
    out->sequence_parallel = choices->sequence_parallel.items[at.sequence_parallel] != 0;
    out->virtual_stages = choices->interleaves[at.interleave].virtual_stages;
    out->schedule = choices->interleaves[at.interleave].schedule;
    out->microbatch_size = choices->microbatches.items[at.microbatch];
    out->zero_stage = choices->zeros[at.zero].stage;
    out->reshard_after_forward = choices->zeros[at.zero].reshard;
    out->stage_pool = choices->placements[at.placement];
    mcp_rank_order(choices->rank_orders.items[at.rank_order], out->rank_order);
    if (out->schedule != MCP_CUSTOM)
        out->rows = NULL;
    out->chunks = NULL;
    if (choices->chunks != NULL)
        out->chunks = choices->chunks[at.interleave * choices->recomputes.count + at.recompute];
}

enum mcp_recompute mcp_uniform_recompute(const struct mcp_plan *plan)
{
    int count = plan->pipeline_parallel * plan->virtual_stages, seen = -1;
    for (int k = 0; k < count; k++)
        for (int i = 0; i < plan->chunks[k].num_runs; i++) {
            const struct mcp_recompute_run *run = &plan->chunks[k].runs[i];
            if (run->num_layers == 0 || (int)run->recompute == seen)
                continue;
            if (seen >= 0)
                return MCP_NUM_RECOMPUTES;
            seen = (int)run->recompute;
        }
    return seen < 0 ? MCP_RECOMPUTE_NONE : (enum mcp_recompute)seen;
}
