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

static void take_layer(const struct loader *l, const struct mcp_layer_alone *layer,
                       struct mcp_layer_floor *out)
{
    const struct mcp_plan *plan = l->plan;
    bool again = mcp_plan_gathers_again(plan);
    double gather = again ? exposed(l, layer->gather_ns) : 0;
    double reduce = plan->zero_stage >= 2 ? exposed(l, layer->reduce_ns) : 0;
    memset(out, 0, sizeof *out);
    out->forward_ns = (double)layer->forward_ns + gather;
    out->backward_ns = (double)layer->backward_ns + gather + reduce;
    out->lead_ns = (double)layer->lead_ns;
    out->gather_ns = (double)layer->gather_ns;
    out->reduce_ns = (double)layer->reduce_ns;
    out->update_ns = (double)layer->update_ns;
    out->weights_bytes = (double)layer->weights_bytes;
    out->gradients_bytes = (double)layer->gradients_bytes;
    out->optimizer_bytes = (double)layer->optimizer_bytes;
    out->gathered_bytes = (double)layer->gathered_bytes;
    out->transient_bytes = (double)layer->transient_bytes;
    out->kept_bytes = out->least_kept_bytes = (double)layer->kept_bytes;
    out->working_bytes = (double)(layer->backward_bytes - layer->kept_bytes);
}

/* On an inner stage of rank `rank`. */
static void price_one_layer(const struct loader *l, int rank, int kind,
                            enum mcp_recompute recompute, struct mcp_layer_alone *out)
{
    struct mcp_plan plan = *l->plan;
    plan.virtual_stages = 3;
    mcp_layer_alone_price(l->pricer, &plan, plan.pipeline_parallel + rank, kind, recompute, out);
}

struct saving { /* of one recompute over the fastest */
    double bytes, ns;
};

static struct saving saving_of(const struct mcp_layer_alone *base,
                               const struct mcp_layer_alone *other)
{
    int64_t more = other->forward_ns + other->backward_ns - base->forward_ns - base->backward_ns;
    return (struct saving){(double)(base->kept_bytes - other->kept_bytes),
                           (double)(more > 0 ? more : 0)};
}

/* What another recompute gives back and costs. */
static void compare_recompute(const struct mcp_layer_alone *other, struct saving saving,
                              struct mcp_layer_floor *out)
{
    if (saving.bytes > 0) {
        out->saved_bytes += saving.bytes;
        out->ns_per_byte = fmin(out->ns_per_byte, saving.ns / saving.bytes);
    }
    out->least_kept_bytes = fmin(out->least_kept_bytes, (double)other->kept_bytes);
    out->working_bytes =
        fmin(out->working_bytes, (double)(other->backward_bytes - other->kept_bytes));
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
static enum mcp_recompute fastest(const struct loader *l, int rank, int kind)
{
    int best = MCP_RECOMPUTE_NONE;
    int64_t least = INT64_MAX;
    for (int r = 0; !l->recompute[MCP_RECOMPUTE_NONE] && r < MCP_NUM_RECOMPUTES; r++) {
        struct mcp_layer_alone layer;
        if (!l->recompute[r])
            continue;
        price_one_layer(l, rank, kind, (enum mcp_recompute)r, &layer);
        if (layer.forward_ns + layer.backward_ns < least) {
            least = layer.forward_ns + layer.backward_ns;
            best = r;
        }
    }
    return (enum mcp_recompute)best;
}

static void load_kind(const struct loader *l, int rank, int kind, struct mcp_layer_floor *out)
{
    struct mcp_layer_alone base, other;
    struct saving savings[MCP_NUM_RECOMPUTES] = {{0, 0}};
    int count = 0;
    enum mcp_recompute first = fastest(l, rank, kind);
    price_one_layer(l, rank, kind, first, &base);
    take_layer(l, &base, out);
    out->ns_per_byte = INFINITY;
    out->slowest_ns = l->detail == MCP_FLOOR_ALL ? 0 : INFINITY;
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
        bool other_one = l->recompute[r] && r != (int)first;
        if (!other_one || (l->detail != MCP_FLOOR_ALL && first == MCP_RECOMPUTE_NONE))
            continue;
        price_one_layer(l, rank, kind, (enum mcp_recompute)r, &other);
        savings[count] = saving_of(&base, &other);
        out->slowest_ns = fmax(out->slowest_ns, savings[count].ns);
        out->given_bytes[r] = savings[count].bytes;
        out->extra_ns[r] = savings[count].ns;
        compare_recompute(&other, savings[count++], out);
        out->lead_ns = fmax(out->lead_ns, first == MCP_RECOMPUTE_NONE ? 0 : (double)other.lead_ns);
    }
    join_savings(savings[0], savings[1], out);
}

static void load_ends(const struct loader *l, struct mcp_floor *out)
{
    struct mcp_ends_alone alone;
    mcp_ends_alone_price(l->pricer, l->plan, &alone);
    const struct mcp_slot_price *up = &alone.messages[0], *down = &alone.messages[1];
    for (int i = 0; i < 2; i++)
        take_layer(l, &alone.ends[i], &out->ends[i]);
    out->hop_forward_ns = (double)(up->send_ns + up->delay_ns);
    out->hop_backward_ns = (double)(down->send_ns + down->delay_ns);
    out->send_ns = (double)(up->send_ns < down->send_ns ? up->send_ns : down->send_ns);
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
    int counts[MCP_MAX_LAYER_KINDS] = {0};
    out->layer_kind = model->layer_kind;
    out->num_layers = model->num_layers;
    out->num_kinds = 0;
    for (int layer = 0; layer < model->num_layers; layer++)
        counts[model->layer_kind[layer]]++;
    for (int kind = 0; kind < model->num_kinds; kind++) {
        out->kind_of[kind] = counts[kind] > 0 ? out->num_kinds : -1;
        if (counts[kind] > 0)
            out->layers_of[out->num_kinds++] = counts[kind];
    }
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
        layer->num_layers = out->layers_of[at];
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

static struct loader loader_of(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                               const bool *recompute, enum mcp_floor_detail detail)
{
    const struct mcp_question *question = mcp_pricer_question(pricer);
    bool hides = plan->overlap.data || plan->overlap.gather;
    double hidden = hides ? question->stack->data_overlap_frac : 0;
    return (struct loader){pricer, question, plan, recompute, detail, 1 - hidden};
}

void mcp_floor_complete(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                        const bool *recompute, struct mcp_floor *floor)
{
    const struct loader l = loader_of(pricer, plan, recompute, MCP_FLOOR_ALL);
    load_pools(&l, floor);
}

void mcp_floor_load(struct mcp_pricer *pricer, const struct mcp_plan *plan, const bool *recompute,
                    enum mcp_floor_detail detail, struct mcp_floor *out)
{
    const struct mcp_question *question = mcp_pricer_question(pricer);
    const struct mcp_stack *stack = question->stack;
    const struct loader l = loader_of(pricer, plan, recompute, detail);
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
