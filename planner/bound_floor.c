/* planner/bound_floor.c: prices of a plan's parts, for bounds. */
#include "planner/bound.h"

#include "core/stack.h"

#include <math.h>

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

/* What another recompute gives back and costs. */
static void compare_recompute(const struct mcp_stage *base, const struct mcp_stage *other,
                              struct mcp_layer_floor *out)
{
    double kept = (double)other->memory.kept_bytes, saved = out->kept_bytes - kept;
    double more =
        (double)(other->forward_ns + other->backward_ns - base->forward_ns - base->backward_ns);
    if (saved > 0)
        out->ns_per_byte = fmin(out->ns_per_byte, fmax(0, more) / saved);
    out->least_kept_bytes = fmin(out->least_kept_bytes, kept);
    out->working_bytes =
        fmin(out->working_bytes, (double)(other->memory.backward_bytes - other->memory.kept_bytes));
}

static void load_kind(const struct loader *l, int rank, int kind, struct mcp_layer_floor *out)
{
    struct mcp_stage base, other;
    const struct mcp_model *model = l->question->model;
    int layer = 0, first = 0;
    while (model->layer_kind[layer] != kind)
        layer++;
    while (!l->recompute[first])
        first++;
    price_one_layer(l, rank, layer, (enum mcp_recompute)first, &base);
    take_stage(l, &base, out);
    out->num_layers = mcp_model_layers_of_kind(model, kind);
    out->ns_per_byte = INFINITY;
    for (int r = first + 1; l->detail == MCP_FLOOR_ALL && r < MCP_NUM_RECOMPUTES; r++) {
        if (!l->recompute[r])
            continue;
        price_one_layer(l, rank, layer, (enum mcp_recompute)r, &other);
        compare_recompute(&base, &other, out);
    }
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

static double room_of(const struct mcp_question *question, int64_t limit_bytes)
{
    const struct mcp_stack *stack = question->stack;
    const double roundings = 4;
    return ((double)(limit_bytes - stack->reserve_bytes) + 1) / (1 + stack->fragmentation_frac) +
           roundings;
}

/* The kinds as the pool of stage `rank` runs them. */
static void load_pool(const struct loader *l, int pool, int rank, struct mcp_floor *out)
{
    const struct mcp_model *model = l->question->model;
    int count = 0;
    for (int kind = 0; kind < model->num_kinds; kind++) {
        if (mcp_model_layers_of_kind(model, kind) == 0)
            continue;
        struct mcp_layer_floor *layer = &out->kinds[pool][count], *least = &out->least[count];
        load_kind(l, rank, kind, layer);
        if (pool == 0)
            *least = *layer;
        least->forward_ns = fmin(least->forward_ns, layer->forward_ns);
        least->backward_ns = fmin(least->backward_ns, layer->backward_ns);
        least->lead_ns = fmax(least->lead_ns, layer->lead_ns);
        least->update_ns = fmin(least->update_ns, layer->update_ns);
        count++;
    }
    out->num_kinds = count;
    out->room[pool] = INFINITY;
    if (l->detail == MCP_FLOOR_ALL)
        out->room[pool] = room_of(l->question, mcp_stage_limit_bytes(l->pricer, l->plan, rank));
}

static void load_pools(const struct loader *l, struct mcp_floor *out)
{
    const int *stage_pool = l->plan->stage_pool;
    out->num_pools = 1;
    if (stage_pool == NULL) {
        load_pool(l, 0, 0, out);
        return;
    }
    out->num_pools = mcp_cluster_num_pools(l->question->cluster);
    for (int pool = 0; pool < out->num_pools; pool++)
        for (int s = 0; s < out->p; s++)
            if (stage_pool[s] == pool) {
                load_pool(l, pool, s, out);
                break;
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
    double hidden = plan->overlap.data ? stack->data_overlap_frac : 0;
    const struct loader l = {pricer, question, plan, recompute, detail, 1 - hidden};
    bool step = detail != MCP_FLOOR_SLOTS, kept = !plan->reshard_after_forward;
    out->p = plan->pipeline_parallel;
    out->v = plan->virtual_stages;
    out->m = mcp_num_microbatches(plan, question->job);
    out->schedule = plan->schedule;
    out->num_layers = question->model->num_layers;
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
    out->fixed_ns = step ? (double)mcp_step_fixed_ns(pricer, plan) : 0;
    if (!step)
        forget_updates(out);
}

void mcp_floor_limit(struct mcp_floor *floor, const struct mcp_question *question,
                     int64_t limit_bytes)
{
    for (int pool = 0; pool < floor->num_pools; pool++)
        floor->room[pool] = room_of(question, limit_bytes);
}
