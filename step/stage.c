/* step/stage.c: one chunk of layers priced on its place in the pipeline. */
#include "step/stage.h"

#include "core/minmax.h"
#include "core/stack.h"
#include "step/estimate_parts.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct mcp_overlap mcp_stack_overlap(const struct mcp_stack *stack)
{
    return (struct mcp_overlap){
        .tensor = stack->tensor_overlap_frac > 0,
        .data = stack->data_overlap_frac > 0,
        .pipeline = stack->pipeline_overlap_frac > 0,
        .expert = stack->expert_overlap_frac > 0,
        .gather = stack->data_overlap_frac > 0,
        .context = true,
    };
}

int64_t mcp_data_exposed_ns(const struct mcp_question *question, const struct mcp_plan *plan,
                            const struct mcp_data_moves *moves, int64_t compute_ns)
{
    int64_t asked =
        (plan->overlap.gather ? moves->gather_ns : 0) + (plan->overlap.data ? moves->reduce_ns : 0);
    int64_t hideable = (int64_t)llround((double)asked * question->stack->data_overlap_frac);
    return moves->gather_ns + moves->reduce_ns - (hideable < compute_ns ? hideable : compute_ns);
}

/* The slower of both ends' links. */
static double send_seconds(const struct mcp_question *question, const struct mcp_plan *plan,
                           int stage, int delta, double bytes)
{
    int stages = plan->pipeline_parallel;
    const int ends[2] = {stage, (stage + delta + stages) % stages};
    double slowest = 0;
    for (int i = 0; i < 2; i++) {
        struct mcp_question at = *question;
        if (plan->stage_pool != NULL)
            at.cluster = mcp_cluster_pool(question->cluster, plan->stage_pool[ends[i]]);
        const struct mcp_pricing pricing = {&at, plan};
        slowest = fmax(slowest, mcp_send_seconds(&pricing, stage, delta, bytes));
        if (plan->stage_pool == NULL)
            break;
    }
    return slowest;
}

int64_t mcp_message_price(const struct mcp_question *question, const struct mcp_plan *plan,
                          const struct mcp_layer_type *type, int stage, bool forward,
                          struct mcp_slot_price *slot)
{
    const struct mcp_pricing pricing = {question, plan};
    const struct mcp_block *send = &type->blocks[forward ? MCP_SEND_FORWARD : MCP_SEND_BACKWARD];
    const struct mcp_block *receive =
        &type->blocks[forward ? MCP_RECEIVE_FORWARD : MCP_RECEIVE_BACKWARD];
    const struct mcp_op *op = &send->ops[0];
    double bytes = (double)op->dims[0] * mcp_dtype_bytes((enum mcp_dtype)op->dtype);
    double seconds = send_seconds(question, plan, stage, op->delta, bytes);
    for (int i = 1; i < receive->num_ops; i++)
        seconds += mcp_op_seconds(&pricing, &receive->ops[i]);
    /* stacks hide messages of interleaved schedules only: 1F1B waits for each */
    bool hides = plan->overlap.pipeline && plan->virtual_stages > 1;
    double exposed = hides ? 1 - question->stack->pipeline_overlap_frac : 1;
    slot->send_ns = mcp_to_ns(seconds * exposed);
    slot->delay_ns = mcp_to_ns(seconds) - slot->send_ns;
    return mcp_to_ns(seconds);
}

/* A plan asks for few kinds of layer, many times: remember them while it lasts. */
static struct layer_run look_up(const struct mcp_pricer *pricer, struct priced_pool *pool,
                                const struct mcp_plan *plan, const struct mcp_layer_spec *spec)
{
    int index = ((spec->kind - MCP_KIND_HEAD) * 2 + (spec->mtp ? 1 : 0)) * MCP_NUM_RECOMPUTES +
                (int)spec->recompute;
    index = 2 * index + (spec->mirrored ? 1 : 0);
    struct layer_run *memo = &pool->memo[index];
    if (pool->memo_plan[index] != pricer->plans) {
        pool->memo_plan[index] = pricer->plans;
        memo->layer = mcp_layer_price(pool->cache, plan, spec);
        memo->step = mcp_layer_step_price(pool->cache, plan, spec);
        memo->count = 1;
    }
    return *memo;
}

/* Extended layers [first, first + count), and what they have from their place. */
struct extent {
    int first, count;
    struct mcp_layer_spec placed;
};

/* Layers of virtual stage k, as runs of equal prices, first layer first. */
static int list_runs(const struct mcp_pricer *pricer, struct priced_pool *pool,
                     const struct mcp_plan *plan, const struct mcp_chunk *chunk,
                     const struct extent *extent, struct layer_run *runs)
{
    int num_runs = 0;
    struct mcp_layer_spec last = {0};
    const struct mcp_model *model = pricer->question->model;
    int run = 0, left = chunk->num_runs > 0 ? chunk->runs[0].num_layers : 0;
    for (int i = 0; i < extent->count; i++) {
        int layer = extent->first + i;
        struct mcp_layer_spec spec = {.kind = MCP_KIND_EMBEDDING};
        if (layer > model->num_layers) {
            spec = mcp_end_spec(model, layer, mcp_chunk_last_recompute(chunk));
        } else if (layer > 0) {
            for (; left == 0; left = chunk->runs[run].num_layers)
                run++;
            spec.kind = model->layer_kind[layer - 1];
            spec.recompute = chunk->runs[run].recompute;
            left--;
        }
        spec.split_backward = extent->placed.split_backward;
        spec.mirrored = extent->placed.mirrored;
        if (num_runs > 0 && mcp_layer_spec_equal(&spec, &last)) {
            runs[num_runs - 1].count++;
            continue;
        }
        last = spec;
        runs[num_runs++] = look_up(pricer, pool, plan, &spec);
    }
    return num_runs;
}

static void add_costs(double *sum, const double *cost, double times)
{
    for (int i = 0; i < MCP_NUM_COSTS; i++)
        sum[i] += cost[i] * times;
}

/* A backward in two parts, and how it differs from a whole one. */
static void add_parts(struct mcp_stage *sum, const struct mcp_layer_costs *costs, int n)
{
    const struct mcp_block_price *parts[2] = {&costs->input, &costs->weight};
    add_costs(sum->whole.cost_s, costs->backward.cost_s, n);
    add_costs(sum->whole.comm_s, costs->backward.comm_s, n);
    for (int i = 0; i < 2; i++) {
        add_costs(sum->cost_s, parts[i]->cost_s, n);
        add_costs(sum->comm_s, parts[i]->comm_s, n);
        add_costs(sum->whole.cost_s, parts[i]->cost_s, -n);
        add_costs(sum->whole.comm_s, parts[i]->comm_s, -n);
    }
}

static void add_block(struct mcp_stage *sum, const struct mcp_block_price *price, int n)
{
    add_costs(sum->cost_s, price->cost_s, n);
    add_costs(sum->comm_s, price->comm_s, n);
}

/* What its seconds are spent on, where that was asked for. */
static void add_spent(struct mcp_stage *sum, const struct layer_run *run, bool split)
{
    const struct mcp_layer_costs *costs = run->layer->costs;
    int n = run->count;
    if (costs == NULL)
        return;
    add_block(sum, &costs->forward, n);
    if (split)
        add_parts(sum, costs, n);
    else
        add_block(sum, &costs->backward, n);
    add_block(sum, &costs->recompute, n);
    sum->recompute_flops += n * costs->recompute.flops;
    add_costs(sum->update_cost_s, run->step->update->cost_s, n);
    add_costs(sum->update_comm_s, run->step->update->comm_s, n);
}

static int64_t backward_ns(const struct mcp_layer_price *layer, bool split)
{
    return layer->recompute_ns + (split ? layer->input_ns + layer->weight_ns : layer->backward_ns);
}

static void add_times(struct mcp_stage *sum, const struct layer_run *run, bool split)
{
    const struct mcp_layer_price *layer = run->layer;
    int n = run->count;
    sum->forward_ns += n * layer->forward_ns;
    sum->backward_ns += n * backward_ns(layer, split);
    sum->gather_ns += n * run->step->gather_ns;
    sum->reduce_ns += n * run->step->reduce_ns;
    sum->update_ns += n * run->step->update_ns;
}

/* Lives inside a chunk: forward builds frames up layer by layer, backward takes
 * them down from the top; the output waits to be sent above the last layer. */
static void add_memory(struct mcp_stage *sum, const struct layer_run *run, bool last_run,
                       bool sends)
{
    const struct mcp_layer_price *layer = run->layer;
    int64_t below = sum->memory.kept_bytes, n = run->count;
    int64_t top = below + (n - 1) * layer->kept_bytes; /* frames under the last of the run */
    int64_t output = last_run && !sends ? 0 : layer->x_bytes;
    if (layer->x_bytes == 0)
        output = sum->x_bytes; /* the embedding's output */
    sum->memory.forward_bytes = mcp_max_int64(sum->memory.forward_bytes,
                                              top + layer->x_bytes + layer->forward_bytes + output);
    int64_t gradient = last_run && !sends ? 0 : sum->x_bytes;
    sum->memory.backward_bytes =
        mcp_max_int64(sum->memory.backward_bytes, top + layer->backward_bytes + gradient);
    sum->memory.kept_bytes += n * layer->kept_bytes;
    sum->weights_bytes += n * run->step->weights_bytes;
    sum->gradients_bytes += n * run->step->gradients_bytes;
    sum->optimizer_bytes += n * run->step->optimizer_bytes;
    sum->gathered_bytes += n * run->step->gathered_bytes;
    sum->largest_gathered = mcp_max_int64(sum->largest_gathered, run->step->gathered_bytes);
    sum->largest_dense = mcp_max_int64(sum->largest_dense, layer->dense_parameters);
    sum->largest_transient = mcp_max_int64(sum->largest_transient, run->step->transient_bytes);
}

/* A backward in two parts, from the top down: layers that are done keep what their weight
 * gradients need, which then run from the top down too. */
static void add_split_memory(struct mcp_stage *out, const struct layer_run *runs, int num_runs,
                             bool sends)
{
    struct mcp_chunk_memory *memory = &out->memory;
    int64_t below = memory->kept_bytes, above = 0, kept = 0;
    for (int i = num_runs - 1; i >= 0; i--) {
        const struct mcp_layer_price *layer = runs[i].layer;
        int64_t n = runs[i].count, left = layer->weight_kept_bytes;
        int64_t gradient = i == num_runs - 1 && !sends ? 0 : out->x_bytes;
        int64_t first = below - layer->kept_bytes + above;
        int64_t last = below - n * layer->kept_bytes + above + (n - 1) * left;
        memory->input_bytes = mcp_max_int64(memory->input_bytes, mcp_max_int64(first, last) +
                                                                     layer->input_bytes + gradient);
        below -= n * layer->kept_bytes;
        above += n * left;
    }
    for (int i = 0; i < num_runs; i++) {
        const struct mcp_layer_price *layer = runs[i].layer;
        kept += runs[i].count * layer->weight_kept_bytes;
        memory->weight_bytes = mcp_max_int64(memory->weight_bytes,
                                             kept - layer->weight_kept_bytes + layer->weight_bytes);
    }
    memory->weight_kept_bytes = kept;
}

/* What virtual stage k exchanges with its neighbours on other ranks. */
struct boundaries {
    bool previous, next;
    struct mcp_slot_price forth, back; /* of what it sends to the next, to the previous */
};

static struct boundaries price_messages(const struct mcp_question *q, const struct mcp_plan *plan,
                                        int k, struct mcp_stage *out)
{
    struct boundaries at = {0};
    int rank = mcp_plan_rank_of(plan, k);
    at.next = mcp_plan_has_boundary(plan, k);
    at.previous = mcp_plan_has_boundary(plan, k - 1);
    if (at.next)
        out->message_ns += mcp_message_price(q, plan, out->top, rank, true, &at.forth);
    if (at.previous)
        out->message_ns += mcp_message_price(q, plan, out->top, rank, false, &at.back);
    return at;
}

/* Inner stages receive while they send. Where nothing is sent against a receive it keeps
 * them as busy (as part of the lead: it may pass while they wait anyway). */
static struct mcp_slot_price message_slot(const struct mcp_slot_price *sent, bool sends,
                                          const struct mcp_slot_price *opposite, bool receives)
{
    struct mcp_slot_price slot = {0};
    if (sends)
        slot = *sent;
    else if (receives)
        slot.lead_ns = opposite->send_ns;
    return slot;
}

/* ZeRO-2 and 3 move gradients, and weights, beside every slot. */
static int64_t fill_slot(const struct mcp_question *q, const struct mcp_plan *plan,
                         int64_t compute_ns, struct mcp_data_moves moves,
                         struct mcp_slot_price *slot)
{
    int64_t beside = mcp_data_exposed_ns(q, plan, &moves, compute_ns);
    slot->body_ns = compute_ns + beside;
    return beside;
}

/* A backward's message does not wait for the bottom layer's reduction, which follows it: what
 * of that stands alone. */
static int64_t after_send_ns(const struct mcp_question *q, const struct mcp_plan *plan,
                             int64_t reduce_ns, int64_t beside_ns)
{
    const struct mcp_data_moves moves = {0, reduce_ns};
    int64_t alone = mcp_data_exposed_ns(q, plan, &moves, reduce_ns);
    return alone < beside_ns ? alone : beside_ns;
}

/* Compute of one microbatch in the parts of a backward, and gathers of its first. */
struct backward_parts {
    int64_t whole_ns, input_ns, weight_ns, input_gather_ns;
};

static struct backward_parts sum_parts(const struct layer_run *runs, int num_runs)
{
    struct backward_parts sum = {0};
    for (int i = 0; i < num_runs; i++) {
        const struct mcp_layer_price *layer = runs[i].layer;
        int n = runs[i].count;
        sum.whole_ns += n * (layer->backward_ns + layer->recompute_ns);
        sum.input_ns += n * (layer->input_ns + layer->recompute_ns);
        sum.weight_ns += n * layer->weight_ns;
        sum.input_gather_ns += layer->has_input ? n * runs[i].step->gather_ns : 0;
    }
    return sum;
}

static void price_slots(const struct mcp_question *q, const struct mcp_plan *plan, int k,
                        const struct backward_parts *parts, struct mcp_stage *out)
{
    bool again = mcp_plan_gathers_again(plan); /* else kept: the edges pay */
    int64_t gather = again ? out->gather_ns : 0, input_gather = again ? parts->input_gather_ns : 0;
    int64_t reduce = plan->zero_stage >= 2 ? out->reduce_ns : 0;
    struct boundaries at = price_messages(q, plan, k, out);
    out->forward = message_slot(&at.forth, at.next, &at.back, at.previous);
    out->backward = message_slot(&at.back, at.previous, &at.forth, at.next);
    out->backward_input = out->backward;
    int64_t beside =
        fill_slot(q, plan, out->forward_ns, (struct mcp_data_moves){gather, 0}, &out->forward);
    int64_t whole = fill_slot(q, plan, parts->whole_ns, (struct mcp_data_moves){gather, reduce},
                              &out->backward);
    out->backward.lead_ns += out->lead_ns;
    out->backward.body_ns -= out->lead_ns;
    if (plan->zero_stage >= 2 && at.previous)
        out->backward.after_ns = after_send_ns(q, plan, out->bottom_reduce_ns, whole);
    out->beside_ns = beside + whole;
    out->moved_ns = 2 * gather + reduce;
    if (!out->splits_backward)
        return;
    int64_t split = fill_slot(q, plan, parts->input_ns, (struct mcp_data_moves){input_gather, 0},
                              &out->backward_input) +
                    fill_slot(q, plan, parts->weight_ns, (struct mcp_data_moves){0, reduce},
                              &out->backward_weight);
    out->backward_input.lead_ns += out->lead_ns;
    out->backward_input.body_ns -= out->lead_ns;
    out->beside_ns = beside + split;
    out->moved_ns = gather + input_gather + reduce;
    out->whole.beside_ns = whole - split;
    out->whole.moved_ns = gather - input_gather;
}

void mcp_pricer_turn(struct mcp_pricer *pricer)
{
    pricer->plans++;
}

void mcp_stage_price(struct mcp_pricer *pricer, const struct mcp_plan *plan, int k,
                     const struct mcp_chunk *chunk, struct mcp_stage *out)
{
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    struct extent extent = {.placed = mcp_placed_spec(plan, k)};
    struct mcp_mark mark = mcp_arena_mark(pricer->scratch);
    mcp_chunk_layers(pricer->question->model, stages, k, chunk, &extent.first, &extent.count);
    struct layer_run *runs = MCP_ARRAY(pricer->scratch, extent.count, struct layer_run);
    struct priced_pool *pool = mcp_stage_pool(pricer, plan, mcp_plan_rank_of(plan, k));
    int num_runs = list_runs(pricer, pool, plan, chunk, &extent, runs);
    assert(num_runs > 0); /* every chunk holds a layer, or an end of the model */
    memset(out, 0, sizeof *out);
    out->splits_backward = extent.placed.split_backward;
    out->x_bytes = mcp_residual_bytes(pricer->question, plan);
    for (int i = 0; i < num_runs; i++) {
        add_times(out, &runs[i], out->splits_backward);
        add_spent(out, &runs[i], out->splits_backward);
        add_memory(out, &runs[i], i == num_runs - 1, k < stages - 1);
    }
    if (out->splits_backward)
        add_split_memory(out, runs, num_runs, k < stages - 1);
    if (mcp_plan_hands_over(plan, k))
        out->memory.passed_forward_bytes = out->x_bytes;
    if (k > 0 && mcp_plan_hands_over(plan, k - 1))
        out->memory.passed_backward_bytes = out->x_bytes;
    const struct layer_run *top = &runs[num_runs - 1];
    bool awaits = mcp_plan_has_boundary(plan, k);
    out->top = top->layer->type;
    out->lead_ns = awaits ? top->layer->recompute_ns : 0;
    out->bottom_gather_ns = runs[0].step->gather_ns;
    out->bottom_reduce_ns = runs[0].step->reduce_ns;
    const struct backward_parts parts = sum_parts(runs, num_runs);
    price_slots(pricer->question, plan, k, &parts, out);
    mcp_arena_rewind(pricer->scratch, mark);
}

static void add_alone(const struct layer_run *run, bool split, struct mcp_layer_alone *sum)
{
    const struct mcp_layer_price *layer = run->layer;
    const struct mcp_layer_step_price *step = run->step;
    sum->forward_ns += layer->forward_ns;
    sum->backward_ns += backward_ns(layer, split);
    sum->gather_ns += step->gather_ns;
    sum->reduce_ns += step->reduce_ns;
    sum->update_ns += step->update_ns;
    sum->weights_bytes += step->weights_bytes;
    sum->gradients_bytes += step->gradients_bytes;
    sum->optimizer_bytes += step->optimizer_bytes;
}

void mcp_layer_alone_price(struct mcp_pricer *pricer, const struct mcp_plan *plan, int k, int kind,
                           enum mcp_recompute recompute, struct mcp_layer_alone *out)
{
    struct mcp_layer_spec spec = mcp_placed_spec(plan, k);
    spec.kind = kind;
    spec.recompute = recompute;
    struct priced_pool *pool = mcp_stage_pool(pricer, plan, mcp_plan_rank_of(plan, k));
    const struct layer_run run = look_up(pricer, pool, plan, &spec);
    memset(out, 0, sizeof *out);
    add_alone(&run, spec.split_backward, out);
    out->lead_ns = mcp_plan_hands_over(plan, k) ? 0 : run.layer->recompute_ns;
    out->gathered_bytes = run.step->gathered_bytes;
    out->transient_bytes = run.step->transient_bytes;
    out->kept_bytes = run.layer->kept_bytes;
    out->backward_bytes = run.layer->backward_bytes + mcp_residual_bytes(pricer->question, plan);
}

/* Extended layers of an end, on virtual stage k; returns the type of the last. */
static const struct mcp_layer_type *add_end(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                                            int k, struct mcp_layer_alone *sum)
{
    const struct mcp_model *model = pricer->question->model;
    const struct mcp_layer_spec placed = mcp_placed_spec(plan, k);
    struct priced_pool *pool = mcp_stage_pool(pricer, plan, mcp_plan_rank_of(plan, k));
    const struct mcp_chunk none = {0, 0, 0, NULL};
    struct layer_run run = {0};
    int first, count;
    mcp_chunk_layers(model, plan->pipeline_parallel * plan->virtual_stages, k, &none, &first,
                     &count);
    for (int i = first; i < first + count; i++) {
        struct mcp_layer_spec spec = {.kind = MCP_KIND_EMBEDDING};
        if (i > 0)
            spec = mcp_end_spec(model, i, MCP_RECOMPUTE_NONE);
        spec.split_backward = placed.split_backward;
        spec.mirrored = placed.mirrored;
        run = look_up(pricer, pool, plan, &spec);
        add_alone(&run, spec.split_backward, sum);
    }
    return run.layer->type;
}

void mcp_ends_alone_price(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                          struct mcp_ends_alone *out)
{
    struct mcp_plan two = *plan;
    if (plan->pipeline_parallel == 1)
        two.virtual_stages = 2; /* so that each has a stage */
    int last = two.pipeline_parallel * two.virtual_stages - 1;
    memset(out, 0, sizeof *out);
    const struct mcp_layer_type *tops[2] = {add_end(pricer, &two, 0, &out->ends[0]),
                                            add_end(pricer, &two, last, &out->ends[1])};
    if (plan->pipeline_parallel == 1 || plan->stage_pool != NULL)
        return;
    mcp_message_price(pricer->question, plan, tops[0], 0, true, &out->messages[0]);
    mcp_message_price(pricer->question, plan, tops[1], mcp_plan_rank_of(plan, last), false,
                      &out->messages[1]);
}
