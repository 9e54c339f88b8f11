/* step/estimate.c: adds up a plan: chunks, pipeline, data-parallel edges, update. */
#include "step/estimate.h"

#include "core/json.h"
#include "core/stack.h"
#include "step/estimate_parts.h"
#include "step/layer_price.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct mcp_pricer *mcp_pricer_new(struct mcp_arena *arena, const struct mcp_question *question)
{
    struct mcp_pricer *pricer = MCP_NEW(arena, struct mcp_pricer);
    pricer->arena = arena;
    pricer->question = question;
    pricer->cache = mcp_price_cache_new(arena, question);
    pricer->scratch = mcp_arena_new();
    mcp_defer(arena, (void (*)(void *))mcp_arena_free, pricer->scratch);
    pricer->forward_flops =
        (double)question->job->global_batch_size * (double)question->job->sequence_length *
        mcp_model_flops_per_token_forward(question->model, question->job->sequence_length);
    return pricer;
}

int64_t mcp_memory_allocated(const struct mcp_memory *m)
{
    return m->weights_bytes + m->gradients_bytes + m->optimizer_bytes + m->activations_bytes +
           m->buffers_bytes;
}

int64_t mcp_memory_total(const struct mcp_memory *m)
{
    return mcp_memory_allocated(m) + m->reserve_bytes;
}

/* Transfers beside compute: the stack hides `hidden_frac` of them at best, and no
 * more than there is compute. */
static int64_t exposed_beside(int64_t transfer_ns, int64_t compute_ns, double hidden_frac)
{
    int64_t hideable = (int64_t)llround((double)transfer_ns * hidden_frac);
    int64_t left = hideable > compute_ns ? hideable - compute_ns : 0;
    return transfer_ns - hideable + left;
}

int64_t mcp_data_exposed_ns(const struct mcp_question *question, const struct mcp_plan *plan,
                            int64_t transfer_ns, int64_t compute_ns)
{
    double hidden = plan->overlap.data ? question->stack->data_overlap_frac : 0;
    return exposed_beside(transfer_ns, compute_ns, hidden);
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
    double seconds = mcp_send_seconds(&pricing, stage, op->delta, bytes);
    for (int i = 1; i < receive->num_ops; i++)
        seconds += mcp_op_seconds(&pricing, &receive->ops[i]);
    /* stacks hide messages of interleaved schedules only: 1F1B waits for each */
    bool hides = plan->overlap.pipeline && plan->virtual_stages > 1;
    double exposed = hides ? 1 - question->stack->pipeline_overlap_frac : 1;
    slot->send_ns = mcp_to_ns(seconds * exposed);
    slot->delay_ns = mcp_to_ns(seconds) - slot->send_ns;
    return mcp_to_ns(seconds);
}

static bool same_spec(const struct mcp_layer_spec *a, const struct mcp_layer_spec *b)
{
    return a->kind == b->kind && a->mtp == b->mtp && a->recompute == b->recompute;
}

/* A plan asks for few kinds of layer, many times: remember them while it lasts. */
static struct layer_run look_up(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                                const struct mcp_layer_spec *spec)
{
    int index = ((spec->kind - MCP_KIND_HEAD) * 2 + (spec->mtp ? 1 : 0)) * MCP_NUM_RECOMPUTES +
                (int)spec->recompute;
    struct layer_run *memo = &pricer->memo[index];
    if (pricer->memo_plan[index] != pricer->plans) {
        pricer->memo_plan[index] = pricer->plans;
        memo->layer = mcp_layer_price(pricer->cache, plan, spec);
        memo->step = mcp_layer_step_price(pricer->cache, plan, spec);
        memo->count = 1;
    }
    return *memo;
}

/* Layers of virtual stage k, as runs of equal prices, first layer first. */
static int list_runs(struct mcp_pricer *pricer, const struct mcp_plan *plan, int k,
                     struct layer_run *runs)
{
    int first, count, num_runs = 0;
    struct mcp_layer_spec last = {.kind = -9};
    mcp_chunk_extent(pricer->question, plan, k, &first, &count);
    const struct mcp_chunk *chunk = &plan->chunks[k];
    const struct mcp_model *model = pricer->question->model;
    int run = 0, left = chunk->num_runs > 0 ? chunk->runs[0].num_layers : 0;
    for (int i = 0; i < count; i++) {
        int layer = first + i;
        struct mcp_layer_spec spec = {.kind = MCP_KIND_EMBEDDING};
        if (layer > model->num_layers) {
            spec = mcp_layer_spec_at(pricer->question, plan, layer);
        } else if (layer > 0) {
            for (; left == 0; left = chunk->runs[run].num_layers)
                run++;
            spec.kind = model->layer_kind[layer - 1];
            spec.recompute = chunk->runs[run].recompute;
            left--;
        }
        if (num_runs > 0 && same_spec(&spec, &last)) {
            runs[num_runs - 1].count++;
            continue;
        }
        last = spec;
        runs[num_runs++] = look_up(pricer, plan, &spec);
    }
    return num_runs;
}

static void add_costs(double *sum, const double *cost, double times)
{
    for (int i = 0; i < MCP_NUM_COSTS; i++)
        sum[i] += cost[i] * times;
}

static void add_times(struct chunk_sum *sum, const struct layer_run *run)
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
static void add_memory(struct chunk_sum *sum, const struct layer_run *run, bool last_run,
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
    sum->static_weights += n * run->step->weights_bytes;
    sum->static_gradients += n * run->step->gradients_bytes;
    sum->static_optimizer += n * run->step->optimizer_bytes;
    sum->gathered_bytes += n * run->step->gathered_bytes;
    sum->largest_gathered = larger(sum->largest_gathered, run->step->gathered_bytes);
    sum->largest_dense = larger(sum->largest_dense, layer->dense_parameters);
    sum->largest_transient = larger(sum->largest_transient, run->step->transient_bytes);
}

/* The residual stream between two layers; a chunk may hold no layer to ask. */
static int64_t residual_bytes(const struct mcp_question *question, const struct mcp_plan *plan)
{
    int64_t tokens =
        plan->microbatch_size * (question->job->sequence_length / plan->context_parallel);
    int64_t shard = plan->sequence_parallel ? tokens / plan->tensor_parallel : tokens;
    double element = mcp_dtype_bytes(mcp_activation_dtype(question->job->precision));
    return (int64_t)((double)shard * (double)question->model->hidden_size * element);
}

/* Inner chunks of a model with one kind of layer are often all alike. */
static bool same_as_previous(const struct mcp_pricer *pricer, const struct mcp_plan *plan, int k)
{
    const struct mcp_chunk *a = &plan->chunks[k - 1], *b = &plan->chunks[k];
    if (pricer->question->model->num_kinds > 1 || a->num_layers != b->num_layers ||
        a->num_runs != b->num_runs || a->num_layers == 0)
        return false;
    for (int i = 0; i < a->num_runs; i++)
        if (a->runs[i].recompute != b->runs[i].recompute ||
            a->runs[i].num_layers != b->runs[i].num_layers)
            return false;
    return true;
}

static void sum_chunk(struct mcp_pricer *pricer, const struct mcp_plan *plan, int k,
                      struct chunk_sum *sum)
{
    int first, count;
    mcp_chunk_extent(pricer->question, plan, k, &first, &count);
    struct layer_run *runs = MCP_ARRAY(pricer->scratch, count, struct layer_run);
    int num_runs = list_runs(pricer, plan, k, runs);
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    memset(sum, 0, sizeof *sum);
    sum->x_bytes = residual_bytes(pricer->question, plan);
    for (int i = 0; i < num_runs; i++) {
        add_times(sum, &runs[i]);
        add_memory(sum, &runs[i], i == num_runs - 1, k < stages - 1);
    }
    assert(num_runs > 0); /* every chunk holds a layer, or an end of the model */
    const struct layer_run *top = &runs[num_runs - 1];
    sum->top = top->layer->type;
    sum->lead_ns = k < stages - 1 ? top->layer->recompute.time_ns : 0;
    sum->bottom_gather_ns = runs[0].step->gather.time_ns;
    sum->bottom_reduce_ns = runs[0].step->reduce.time_ns;
}

/* ZeRO-2 and 3 move gradients, and weights, beside every slot. Inner stages receive
 * while they send; the ends have nothing to send against one receive, which keeps
 * them as busy (as part of the lead: it may pass while they wait anyway). */
static void slot_prices(struct mcp_pricer *pricer, const struct mcp_plan *plan, int k,
                        const struct chunk_sum *sum, struct estimate *e)
{
    const struct mcp_question *q = pricer->question;
    int p = plan->pipeline_parallel, stages = p * plan->virtual_stages;
    struct mcp_slot_price forward = {0}, backward = {0};
    int64_t gather = plan->zero_stage == 3 ? sum->gather_ns : 0;
    int64_t again = plan->zero_stage == 3 && plan->reshard_after_forward ? sum->gather_ns : 0;
    int64_t reduce = plan->zero_stage >= 2 ? sum->reduce_ns : 0;
    if (plan->zero_stage == 3 && !plan->reshard_after_forward)
        gather = 0; /* kept from the first microbatch on: paid with the edges */
    int64_t beside_forward = mcp_data_exposed_ns(q, plan, gather, sum->forward_ns);
    int64_t beside_backward = mcp_data_exposed_ns(q, plan, again + reduce, sum->backward_ns);
    forward.body_ns = sum->forward_ns + beside_forward;
    backward.lead_ns = sum->lead_ns;
    backward.body_ns = sum->backward_ns + beside_backward - sum->lead_ns;
    if (k < stages - 1)
        e->message_ns[k % p] += mcp_message_price(q, plan, sum->top, k % p, true, &forward);
    if (k > 0)
        e->message_ns[k % p] += mcp_message_price(q, plan, sum->top, k % p, false, &backward);
    if (p > 1 && k == stages - 1)
        forward.lead_ns += backward.send_ns;
    if (p > 1 && k == 0)
        backward.lead_ns += forward.send_ns;
    e->forward[k] = forward;
    e->backward[k] = backward;
    e->beside_ns[k % p] += beside_forward + beside_backward;
    e->moved_ns[k % p] += gather + again + reduce;
}

/* Of the first gather and the last reduction, what slots counted as hidden: nothing runs
 * beside them. */
static int64_t hidden_part(const struct mcp_question *question, const struct mcp_plan *plan,
                           int64_t transfer_ns)
{
    return transfer_ns - mcp_data_exposed_ns(question, plan, transfer_ns, transfer_ns);
}

/* What a rank pays once a step for its data-parallel group: before its first
 * forward, and after its last backward. */
static void edges(struct mcp_pricer *pricer, const struct mcp_plan *plan, int rank,
                  const struct chunk_sum *chunks, struct estimate *e)
{
    int64_t gather = 0, reduce = 0, forward = 0, backward = 0;
    int p = plan->pipeline_parallel;
    for (int c = 0; c < plan->virtual_stages; c++) {
        const struct chunk_sum *sum = &chunks[c * p + rank];
        gather += sum->gather_ns;
        reduce += sum->reduce_ns;
        forward += sum->forward_ns;
        backward += sum->backward_ns;
    }
    bool kept = plan->zero_stage == 3 && !plan->reshard_after_forward;
    if (plan->zero_stage == 3 && !kept) {
        e->head_ns[rank] = hidden_part(pricer->question, plan, chunks[rank].bottom_gather_ns);
        e->tail_ns[rank] = hidden_part(pricer->question, plan, chunks[rank].bottom_reduce_ns);
        return;
    }
    if (plan->zero_stage == 0)
        gather = 0;
    e->head_ns[rank] = mcp_data_exposed_ns(pricer->question, plan, gather, forward);
    e->moved_once_ns[rank] = gather;
    if (plan->zero_stage >= 2) {
        e->tail_ns[rank] = hidden_part(pricer->question, plan, chunks[rank].bottom_reduce_ns);
        return;
    }
    e->tail_ns[rank] = mcp_data_exposed_ns(pricer->question, plan, reduce, backward);
    e->moved_once_ns[rank] += reduce;
}

/* The scalars every rank agrees on: the global norm, once a step. */
static int64_t agreement_ns(struct mcp_pricer *pricer, const struct mcp_plan *plan)
{
    const struct mcp_pricing pricing = {pricer->question, plan};
    unsigned all = (unsigned)MCP_TENSOR | MCP_CONTEXT | MCP_DATA | MCP_PIPELINE;
    return mcp_to_ns(mcp_collective_seconds(&pricing, MCP_FN_ALL_REDUCE, all, 4));
}

static void play(struct mcp_pricer *pricer, const struct mcp_plan *plan, int m, struct estimate *e)
{
    int p = plan->pipeline_parallel;
    const struct mcp_pipeline pipeline = {
        plan->schedule, p, plan->virtual_stages, m, e->forward, e->backward, e->head_ns};
    mcp_pipeline_play(pricer->scratch, &pipeline, e->ranks, NULL);
    const struct mcp_stack *stack = pricer->question->stack;
    int64_t update = 0;
    e->end_ns = 0;
    for (int r = 0; r < p; r++) {
        e->end_ns = larger(e->end_ns, e->ranks[r].end_ns + e->tail_ns[r]);
        update = larger(update, e->update_ns[r]);
    }
    e->broadcast_ns =
        plan->zero_stage >= 1 ? mcp_to_ns(stack->broadcast_s_per_rank * plan->data_parallel) : 0;
    e->agreement_ns = agreement_ns(pricer, plan);
    e->overhead_ns = mcp_to_ns(stack->step_overhead_s);
    e->longest_update_ns = update;
    e->step_ns = e->end_ns + update + e->broadcast_ns + e->agreement_ns + e->overhead_ns;
}

void mcp_estimate(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                  struct mcp_prediction *out)
{
    int p = plan->pipeline_parallel, stages = p * plan->virtual_stages;
    int m = (int)mcp_num_microbatches(plan, pricer->question->job);
    struct mcp_mark mark = mcp_arena_mark(pricer->scratch);
    pricer->plans++;
    struct estimate *e = mcp_estimate_room(pricer->scratch, p, stages);
    for (int k = 0; k < stages; k++) {
        if (k > 1 && k < stages - 1 && same_as_previous(pricer, plan, k))
            e->chunks[k] = e->chunks[k - 1];
        else
            sum_chunk(pricer, plan, k, &e->chunks[k]);
        slot_prices(pricer, plan, k, &e->chunks[k], e);
        e->update_ns[k % p] += e->chunks[k].update_ns;
    }
    for (int r = 0; r < p; r++)
        edges(pricer, plan, r, e->chunks, e);
    play(pricer, plan, m, e);
    mcp_estimate_times(pricer, plan, m, e, out);
    mcp_estimate_memory(pricer, plan, m, e, out);
    mcp_arena_rewind(pricer->scratch, mark);
}
