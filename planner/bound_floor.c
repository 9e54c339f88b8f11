/* planner/bound_floor.c: prices of a plan's parts, for bounds. */
#include "planner/bound_parts.h"

#include "core/stack.h"
#include "planner/space.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

struct loader {
    struct mcp_pricer *pricer;
    const struct mcp_question *question;
    const struct mcp_plan *plan;
    const bool *recompute;
    enum mcp_floor_detail detail;
    double exposed_frac;
};

/* Exposed at least; a slot's sum is rounded to whole nanoseconds. */
static double exposed(const struct loader *l, int64_t transfer_ns)
{
    return fmax(0, (double)transfer_ns * l->exposed_frac - 0.5);
}

static void take_stage(const struct loader *l, const struct mcp_stage *stage,
                       struct mcp_layer_floor *out)
{
    const struct mcp_plan *plan = l->plan;
    bool again = plan->zero_stage == 3 && plan->reshard_after_forward;
    double gather = again ? exposed(l, stage->gather_ns) : 0;
    double reduce = plan->zero_stage >= 2 ? exposed(l, stage->reduce_ns) : 0;
    memset(out, 0, sizeof *out);
    out->forward_ns = (double)stage->forward_ns + gather;
    out->backward_ns = (double)stage->backward_ns + gather + reduce;
    out->lead_ns = (double)stage->lead_ns;
    out->gather_ns = (double)stage->gather_ns;
    out->reduce_ns = (double)stage->reduce_ns;
    out->update_ns = (double)stage->update_ns;
    out->weights_bytes = (double)stage->weights_bytes;
    out->gradients_bytes = (double)stage->gradients_bytes;
    out->optimizer_bytes = (double)stage->optimizer_bytes;
    out->gathered_bytes = (double)stage->largest_gathered;
    out->transient_bytes = (double)stage->largest_transient;
    out->kept_bytes = out->least_kept_bytes = (double)stage->memory.kept_bytes;
    out->working_bytes = (double)(stage->memory.backward_bytes - stage->memory.kept_bytes);
}

/* On an inner stage of rank `rank`. */
static void price_one_layer(const struct loader *l, int rank, int layer,
                            enum mcp_recompute recompute, struct mcp_stage *out)
{
    struct mcp_plan plan = *l->plan;
    struct mcp_recompute_run run = {recompute, 1};
    const struct mcp_chunk chunk = {layer, 1, 1, &run};
    plan.virtual_stages = 3;
    mcp_stage_price(l->pricer, &plan, plan.pipeline_parallel + rank, &chunk, out);
}

struct saving { /* of one recompute over the fastest */
    double bytes, ns;
};

static struct saving saving_of(const struct mcp_stage *base, const struct mcp_stage *other)
{
    int64_t more = other->forward_ns + other->backward_ns - base->forward_ns - base->backward_ns;
    return (struct saving){(double)(base->memory.kept_bytes - other->memory.kept_bytes),
                           (double)(more > 0 ? more : 0)};
}

/* What another recompute gives back and costs. */
static void compare_recompute(const struct mcp_stage *other, struct saving saving,
                              struct mcp_layer_floor *out)
{
    if (saving.bytes > 0) {
        out->saved_bytes += saving.bytes;
        out->ns_per_byte = fmin(out->ns_per_byte, saving.ns / saving.bytes);
    }
    out->least_kept_bytes = fmin(out->least_kept_bytes, (double)other->memory.kept_bytes);
    out->working_bytes =
        fmin(out->working_bytes, (double)(other->memory.backward_bytes - other->memory.kept_bytes));
}

/* The line from the cheapest saving per byte to a larger one, where there is one. */
static void join_savings(struct saving a, struct saving b, struct mcp_layer_floor *out)
{
    out->last_ns_per_byte = INFINITY;
    if (a.bytes <= 0 || b.bytes <= 0)
        return;
    bool in_order = a.ns * b.bytes <= b.ns * a.bytes;
    struct saving cheap = in_order ? a : b, large = in_order ? b : a;
    if (large.bytes <= cheap.bytes)
        return;
    out->last_ns_per_byte = (large.ns - cheap.ns) / (large.bytes - cheap.bytes);
    out->last_ns = out->last_ns_per_byte * cheap.bytes - cheap.ns;
}

/* The fastest recompute that is allowed: none, or of the others the one that is. */
static enum mcp_recompute fastest(const struct loader *l, int rank, int layer)
{
    int best = MCP_RECOMPUTE_NONE;
    int64_t least = INT64_MAX;
    for (int r = 0; !l->recompute[MCP_RECOMPUTE_NONE] && r < MCP_NUM_RECOMPUTES; r++) {
        struct mcp_stage stage;
        if (!l->recompute[r])
            continue;
        price_one_layer(l, rank, layer, (enum mcp_recompute)r, &stage);
        if (stage.forward_ns + stage.backward_ns < least) {
            least = stage.forward_ns + stage.backward_ns;
            best = r;
        }
    }
    return (enum mcp_recompute)best;
}

static void load_kind(const struct loader *l, int rank, int kind, struct mcp_layer_floor *out)
{
    struct mcp_stage base, other;
    struct saving savings[MCP_NUM_RECOMPUTES] = {{0, 0}};
    const struct mcp_model *model = l->question->model;
    int layer = 0, count = 0;
    while (model->layer_kind[layer] != kind)
        layer++;
    enum mcp_recompute first = fastest(l, rank, layer);
    price_one_layer(l, rank, layer, first, &base);
    take_stage(l, &base, out);
    out->num_layers = mcp_model_layers_of_kind(model, kind);
    out->ns_per_byte = INFINITY;
    out->slowest_ns = l->detail == MCP_FLOOR_ALL ? 0 : INFINITY;
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
        bool other_one = l->recompute[r] && r != (int)first;
        if (!other_one || (l->detail != MCP_FLOOR_ALL && first == MCP_RECOMPUTE_NONE))
            continue;
        price_one_layer(l, rank, layer, (enum mcp_recompute)r, &other);
        savings[count] = saving_of(&base, &other);
        out->slowest_ns = fmax(out->slowest_ns, savings[count].ns);
        out->given_bytes[r] = savings[count].bytes;
        out->extra_ns[r] = savings[count].ns;
        compare_recompute(&other, savings[count++], out);
        out->lead_ns = fmax(out->lead_ns, first == MCP_RECOMPUTE_NONE ? 0 : (double)other.lead_ns);
    }
    join_savings(savings[0], savings[1], out);
}

/* Both ends without a layer: the message between stages is theirs too. */
static void load_ends(const struct loader *l, struct mcp_floor *out)
{
    struct mcp_stage first, last;
    struct mcp_plan plan = *l->plan;
    const struct mcp_chunk none = {0, 0, 0, NULL};
    if (plan.pipeline_parallel == 1)
        plan.virtual_stages = 2; /* so that each has a stage */
    mcp_stage_price(l->pricer, &plan, 0, &none, &first);
    mcp_stage_price(l->pricer, &plan, plan.pipeline_parallel * plan.virtual_stages - 1, &none,
                    &last);
    take_stage(l, &first, &out->ends[0]);
    take_stage(l, &last, &out->ends[1]);
    if (plan.pipeline_parallel == 1 || plan.stage_pool != NULL) /* links differ: 0 is less */
        return;
    out->hop_forward_ns = (double)(first.forward.send_ns + first.forward.delay_ns);
    out->hop_backward_ns = (double)(last.backward.send_ns + last.backward.delay_ns);
    out->send_ns = (double)(first.forward.send_ns < last.backward.send_ns ? first.forward.send_ns
                                                                          : last.backward.send_ns);
}

/* Messages do not wait for the reduction of the layer they come from (step/stage.c), which is
 * a part of that layer's backward here. */
static void pass_reductions(const struct loader *l, struct mcp_floor *out)
{
    double longest = out->ends[1].reduce_ns;
    for (int pool = 0; pool < out->num_pools; pool++)
        for (int i = 0; i < out->num_kinds; i++)
            longest = fmax(longest, out->kinds[pool][i].reduce_ns);
    double hidden = l->plan->overlap.data ? l->question->stack->data_overlap_frac : 0;
    if (l->plan->zero_stage >= 2 && out->p > 1)
        out->hop_backward_ns -= (1 - hidden) * longest + 0.5; /* prices are rounded */
}

static double room_of(const struct mcp_question *question, int64_t limit_bytes)
{
    const struct mcp_stack *stack = question->stack;
    const double roundings = 4;
    return ((double)(limit_bytes - stack->reserve_bytes) + 1) / (1 + stack->fragmentation_frac) +
           roundings;
}

void mcp_floor_number_kinds(const struct mcp_model *model, struct mcp_floor *out)
{
    out->layer_kind = model->layer_kind;
    out->num_layers = model->num_layers;
    out->num_kinds = 0;
    for (int kind = 0; kind < model->num_kinds; kind++)
        out->kind_of[kind] = mcp_model_layers_of_kind(model, kind) > 0 ? out->num_kinds++ : -1;
}

/* The kinds as the pool of stage `rank` runs them. */
static void load_pool(const struct loader *l, int pool, int rank, bool first, struct mcp_floor *out)
{
    const struct mcp_model *model = l->question->model;
    for (int kind = 0; kind < model->num_kinds; kind++) {
        int at = out->kind_of[kind];
        if (at < 0)
            continue;
        struct mcp_layer_floor *layer = &out->kinds[pool][at], *least = &out->least[at];
        load_kind(l, rank, kind, layer);
        if (first)
            *least = *layer;
        least->forward_ns = fmin(least->forward_ns, layer->forward_ns);
        least->backward_ns = fmin(least->backward_ns, layer->backward_ns);
        least->lead_ns = fmax(least->lead_ns, layer->lead_ns);
        least->update_ns = fmin(least->update_ns, layer->update_ns);
    }
    out->room[pool] = INFINITY;
    if (l->detail == MCP_FLOOR_ALL)
        out->room[pool] = room_of(l->question, mcp_stage_limit_bytes(l->pricer, l->plan, rank));
}

static void load_pools(const struct loader *l, struct mcp_floor *out)
{
    const int *stage_pool = l->plan->stage_pool;
    out->num_pools = 1;
    if (stage_pool == NULL) {
        load_pool(l, 0, 0, true, out);
        return;
    }
    out->num_pools = mcp_cluster_num_pools(l->question->cluster);
    for (int s = 0; s < out->p; s++) {
        int before = 0;
        while (before < s && stage_pool[before] != stage_pool[s])
            before++;
        if (before == s)
            load_pool(l, stage_pool[s], s, s == 0, out);
    }
}

static void forget_updates(struct mcp_floor *out)
{
    for (int i = 0; i < out->num_kinds; i++)
        out->least[i].update_ns = 0;
    out->ends[0].update_ns = out->ends[1].update_ns = 0;
}

void mcp_floor_load(struct mcp_pricer *pricer, const struct mcp_plan *plan, const bool *recompute,
                    enum mcp_floor_detail detail, struct mcp_floor *out)
{
    const struct mcp_question *question = mcp_pricer_question(pricer);
    const struct mcp_stack *stack = question->stack;
    bool hides = plan->overlap.data || plan->overlap.gather;
    double hidden = hides ? stack->data_overlap_frac : 0;
    const struct loader l = {pricer, question, plan, recompute, detail, 1 - hidden};
    bool step = detail != MCP_FLOOR_SLOTS, kept = !plan->reshard_after_forward;
    out->p = plan->pipeline_parallel;
    out->v = plan->virtual_stages;
    out->m = mcp_num_microbatches(plan, question->job);
    out->schedule = plan->schedule;
    out->any_order = mcp_schedule_is_even(plan->schedule);
    mcp_floor_number_kinds(question->model, out);
    out->stage_pool = plan->stage_pool;
    out->exposed_frac = l.exposed_frac;
    out->memory_factor = stack->activation_memory_factor;
    out->gathers_all = plan->zero_stage == 3 && kept;
    out->gathers_once = step && plan->zero_stage >= 1 && (plan->zero_stage < 3 || kept);
    out->reduces_once = step && plan->zero_stage < 2;
    out->hop_forward_ns = out->hop_backward_ns = out->send_ns = 0;
    mcp_pricer_turn(pricer);
    load_pools(&l, out);
    load_ends(&l, out);
    pass_reductions(&l, out);
    out->fixed_ns = step ? (double)mcp_step_fixed_ns(pricer, plan) : 0;
    if (!step)
        forget_updates(out);
}

void mcp_floor_copy(const struct mcp_floor *floor, struct mcp_floor *out)
{
    size_t kinds = (size_t)floor->num_kinds * sizeof *floor->least;
    memcpy(out, floor, offsetof(struct mcp_floor, least));
    memcpy(out->least, floor->least, kinds);
    for (int pool = 0; pool < floor->num_pools; pool++)
        memcpy(out->kinds[pool], floor->kinds[pool], kinds);
}

void mcp_floor_limit(struct mcp_floor *floor, const struct mcp_question *question,
                     int64_t limit_bytes)
{
    for (int pool = 0; pool < floor->num_pools; pool++)
        floor->room[pool] = room_of(question, limit_bytes);
}

/* The fullest has the least room left, so that another may hold more by as much as its
 * GPUs do. */
void mcp_floor_limit_fullest(struct mcp_floor *floor, const struct mcp_question *question,
                             int64_t bytes)
{
    int64_t least = INT64_MAX;
    for (int pool = 0; pool < floor->num_pools; pool++) {
        int64_t memory = mcp_cluster_pool(question->cluster, pool)->gpu.memory_bytes;
        least = memory < least ? memory : least;
    }
    for (int pool = 0; pool < floor->num_pools; pool++) {
        int64_t memory = mcp_cluster_pool(question->cluster, pool)->gpu.memory_bytes;
        floor->room[pool] = room_of(question, bytes + (memory - least));
    }
}
