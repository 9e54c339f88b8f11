/* step/stage.c: one chunk of layers priced on its place in the pipeline. */
#include "step/stage.h"

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
    struct layer_run *memo = &pool->memo[index];
    if (pool->memo_plan[index] != pricer->plans) {
        pool->memo_plan[index] = pricer->plans;
        memo->layer = mcp_layer_price(pool->cache, plan, spec);
        memo->step = mcp_layer_step_price(pool->cache, plan, spec);
        memo->count = 1;
    }
    return *memo;
}

/* Extended layers [first, first + count). */
struct extent {
    int first, count;
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

static void add_times(struct mcp_stage *sum, const struct layer_run *run)
{
    const struct mcp_layer_price *layer = run->layer;
    int n = run->count;
    sum->forward_ns += n * layer->forward.time_ns;
    sum->backward_ns += n * (layer->backward.time_ns + layer->recompute.time_ns);
    const struct mcp_block_price *parts[3] = {&layer->forward, &layer->backward, &layer->recompute};
    for (int i = 0; i < 3; i++) {
        add_costs(sum->cost_s, parts[i]->cost_s, n);
        add_costs(sum->comm_s, parts[i]->comm_s, n);
    }
    sum->recompute_flops += n * layer->recompute.flops;
    sum->gather_ns += n * run->step->gather.time_ns;
    sum->reduce_ns += n * run->step->reduce.time_ns;
    sum->update_ns += n * run->step->update.time_ns;
    add_costs(sum->update_cost_s, run->step->update.cost_s, n);
    add_costs(sum->update_comm_s, run->step->update.comm_s, n);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
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
    sum->memory.forward_bytes =
        larger(sum->memory.forward_bytes, top + layer->x_bytes + layer->forward_bytes + output);
    int64_t gradient = last_run && !sends ? 0 : sum->x_bytes;
    sum->memory.backward_bytes =
        larger(sum->memory.backward_bytes, top + layer->backward_bytes + gradient);
    sum->memory.kept_bytes += n * layer->kept_bytes;
    sum->weights_bytes += n * run->step->weights_bytes;
    sum->gradients_bytes += n * run->step->gradients_bytes;
    sum->optimizer_bytes += n * run->step->optimizer_bytes;
    sum->gathered_bytes += n * run->step->gathered_bytes;
    sum->largest_gathered = larger(sum->largest_gathered, run->step->gathered_bytes);
    sum->largest_dense = larger(sum->largest_dense, layer->dense_parameters);
    sum->largest_transient = larger(sum->largest_transient, run->step->transient_bytes);
}

/* ZeRO-2 and 3 move gradients, and weights, beside every slot. Inner stages receive
 * while they send; the ends have nothing to send against one receive, which keeps
 * them as busy (as part of the lead: it may pass while they wait anyway). */
static void price_slots(const struct mcp_pricer *pricer, const struct mcp_plan *plan, int k,
                        struct mcp_stage *out)
{
    const struct mcp_question *q = pricer->question;
    int p = plan->pipeline_parallel, stages = p * plan->virtual_stages;
    bool again =
        plan->zero_stage == 3 && plan->reshard_after_forward; /* else kept: the edges pay */
    int64_t gather = again ? out->gather_ns : 0;
    int64_t reduce = plan->zero_stage >= 2 ? out->reduce_ns : 0;
    const struct mcp_data_moves forward = {gather, 0}, backward = {gather, reduce};
    int64_t beside_forward = mcp_data_exposed_ns(q, plan, &forward, out->forward_ns);
    int64_t beside_backward = mcp_data_exposed_ns(q, plan, &backward, out->backward_ns);
    out->forward.body_ns = out->forward_ns + beside_forward;
    out->backward.lead_ns = out->lead_ns;
    out->backward.body_ns = out->backward_ns + beside_backward - out->lead_ns;
    out->beside_ns = beside_forward + beside_backward;
    out->moved_ns = 2 * gather + reduce;
    if (k < stages - 1)
        out->message_ns += mcp_message_price(q, plan, out->top, k % p, true, &out->forward);
    if (k > 0)
        out->message_ns += mcp_message_price(q, plan, out->top, k % p, false, &out->backward);
    if (p > 1 && k == stages - 1)
        out->forward.lead_ns += out->backward.send_ns;
    if (p > 1 && k == 0)
        out->backward.lead_ns += out->forward.send_ns;
}

void mcp_pricer_turn(struct mcp_pricer *pricer)
{
    pricer->plans++;
}

void mcp_stage_price(struct mcp_pricer *pricer, const struct mcp_plan *plan, int k,
                     const struct mcp_chunk *chunk, struct mcp_stage *out)
{
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    struct extent extent;
    struct mcp_mark mark = mcp_arena_mark(pricer->scratch);
    mcp_chunk_layers(pricer->question->model, stages, k, chunk, &extent.first, &extent.count);
    struct layer_run *runs = MCP_ARRAY(pricer->scratch, extent.count, struct layer_run);
    struct priced_pool *pool = mcp_stage_pool(pricer, plan, k % plan->pipeline_parallel);
    int num_runs = list_runs(pricer, pool, plan, chunk, &extent, runs);
    assert(num_runs > 0); /* every chunk holds a layer, or an end of the model */
    memset(out, 0, sizeof *out);
    out->x_bytes = mcp_residual_bytes(pricer->question, plan);
    for (int i = 0; i < num_runs; i++) {
        add_times(out, &runs[i]);
        add_memory(out, &runs[i], i == num_runs - 1, k < stages - 1);
    }
    const struct layer_run *top = &runs[num_runs - 1];
    out->top = top->layer->type;
    out->lead_ns = k < stages - 1 ? top->layer->recompute.time_ns : 0;
    out->bottom_gather_ns = runs[0].step->gather.time_ns;
    out->bottom_reduce_ns = runs[0].step->reduce.time_ns;
    price_slots(pricer, plan, k, out);
    mcp_arena_rewind(pricer->scratch, mark);
}
