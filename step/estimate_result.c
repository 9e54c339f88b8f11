/* step/estimate_result.c: what an estimate says: accounts that sum to one, memory, JSON. */
#include "core/json.h"
#include "core/minmax.h"
#include "core/stack.h"
#include "step/constants.h"
#include "step/estimate_parts.h"

#include <math.h>
#include <string.h>

struct estimate *mcp_estimate_room(struct mcp_arena *scratch, int ranks, int stages)
{
    struct estimate *e = MCP_NEW(scratch, struct estimate);
    e->stages = MCP_ARRAY(scratch, stages, const struct mcp_stage *);
    e->forward = MCP_ARRAY(scratch, stages, struct mcp_slot_price);
    e->backward = MCP_ARRAY(scratch, stages, struct mcp_slot_price);
    e->backward_input = MCP_ARRAY(scratch, stages, struct mcp_slot_price);
    e->backward_weight = MCP_ARRAY(scratch, stages, struct mcp_slot_price);
    e->whole_backwards = MCP_ARRAY(scratch, stages, int);
    e->ranks = MCP_ARRAY(scratch, ranks, struct mcp_pipeline_rank);
    int64_t **arrays[] = {&e->head_ns,       &e->tail_ns,         &e->update_ns,
                          &e->message_ns,    &e->beside_ns,       &e->moved_ns,
                          &e->moved_once_ns, &e->whole_beside_ns, &e->whole_moved_ns};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = MCP_ARRAY(scratch, ranks, int64_t);
    return e;
}

static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

static void add_whole_backwards(const struct mcp_stage *stage, int count, double *cost,
                                double *comm_s)
{
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        cost[i] += count * stage->whole.cost_s[i];
        comm_s[i] += count * stage->whole.comm_s[i];
    }
}

/* Sends, and the receives that no send goes with. */
static int64_t messages_ns(const struct mcp_plan *plan, int k, const struct estimate *e)
{
    return (mcp_plan_has_boundary(plan, k - 1) ? 1 : 2) * e->forward[k].send_ns +
           (mcp_plan_has_boundary(plan, k) ? 1 : 2) * e->backward[k].send_ns;
}

/* Every second of rank r is one kind of time; what nothing else claims is bubble. */
static void account(const struct mcp_plan *plan, int r, int m, const struct estimate *e,
                    struct mcp_stage_prediction *stage, double *comm_s)
{
    double *cost = stage->cost_s, sends = 0;
    for (int c = 0; c < plan->virtual_stages; c++) {
        int k = mcp_plan_virtual_stage(plan, r, c), whole = e->whole_backwards[k];
        for (int i = 0; i < MCP_NUM_COSTS; i++) {
            cost[i] += m * e->stages[k]->cost_s[i] + e->stages[k]->update_cost_s[i];
            comm_s[i] += m * e->stages[k]->comm_s[i] + e->stages[k]->update_comm_s[i];
        }
        if (whole > 0)
            add_whole_backwards(e->stages[k], whole, cost, comm_s);
        sends += m * seconds(messages_ns(plan, k, e));
    }
    cost[MCP_COST_PIPELINE] += sends + seconds(e->ranks[r].exposed_ns);
    cost[MCP_COST_DATA] +=
        m * seconds(e->beside_ns[r]) + seconds(e->whole_beside_ns[r]) +
        seconds(e->head_ns[r] + e->tail_ns[r] + e->broadcast_ns + e->agreement_ns);
    cost[MCP_COST_HOST] += seconds(e->overhead_ns);
    comm_s[MCP_COST_PIPELINE] += m * seconds(e->message_ns[r]);
    comm_s[MCP_COST_DATA] += m * seconds(e->moved_ns[r]) + seconds(e->whole_moved_ns[r]) +
                             seconds(e->moved_once_ns[r] + e->broadcast_ns + e->agreement_ns);
    double claimed = 0;
    for (int i = 0; i < MCP_COST_BUBBLE; i++)
        claimed += cost[i];
    cost[MCP_COST_BUBBLE] = fmax(0, seconds(e->step_ns) - claimed);
    stage->end_ns = e->ranks[r].end_ns;
}

static void utilization(const struct mcp_pricer *pricer, const struct mcp_plan *plan, int m,
                        const struct estimate *e, struct mcp_prediction *out)
{
    const struct mcp_question *q = pricer->question;
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    double again = 0,
           replicas = plan->tensor_parallel * plan->context_parallel * plan->data_parallel;
    for (int k = 0; k < stages; k++)
        again += m * e->stages[k]->recompute_flops * replicas;
    double peak = 0;
    for (int r = 0; r < plan->pipeline_parallel; r++)
        peak += replicas * mcp_stage_pool(pricer, plan, r)
                               ->question.cluster->gpu.peak_flops_per_s[q->job->precision];
    double model = 3 * pricer->forward_flops;
    out->model_flops_utilization = model / (out->iteration_s * peak);
    out->hardware_flops_utilization = (model + again) / (out->iteration_s * peak);
}

/* By how much the step is longer than any rank's own pipeline: where ranks end in the order
 * in which they began, idling before the first slot makes up for that after the last. The
 * papers' ratio leaves it out. */
static int64_t skew_ns(int p, const struct estimate *e)
{
    int64_t end = 0, longest = 0;
    for (int r = 0; r < p; r++) {
        int64_t late = e->ranks[r].start_ns - e->head_ns[r];
        end = e->ranks[r].end_ns > end ? e->ranks[r].end_ns : end;
        longest = e->ranks[r].end_ns - late > longest ? e->ranks[r].end_ns - late : longest;
    }
    return end - longest;
}

void mcp_estimate_times(const struct mcp_pricer *pricer, const struct mcp_plan *plan, int m,
                        const struct estimate *e, struct mcp_prediction *out)
{
    const struct mcp_job *job = pricer->question->job;
    int p = plan->pipeline_parallel;
    double busy = 0, exposed = 0;
    memset(out->cost_s, 0, sizeof out->cost_s);
    memset(out->comm_s, 0, sizeof out->comm_s);
    for (int r = 0; r < p; r++) {
        struct mcp_stage_prediction *stage = &out->stages[r];
        memset(stage, 0, sizeof *stage);
        account(plan, r, m, e, stage, out->comm_s);
        for (int i = 0; i < MCP_NUM_COSTS; i++)
            out->cost_s[i] += stage->cost_s[i] / p;
        busy += seconds(e->ranks[r].busy_ns) / p;
    }
    for (int i = 0; i < MCP_NUM_COSTS; i++)
        out->comm_s[i] /= p;
    for (int i = MCP_COST_TENSOR; i <= MCP_COST_DATA; i++)
        exposed += out->cost_s[i];
    out->tokens_per_s =
        (double)job->global_batch_size * (double)job->sequence_length / out->iteration_s;
    out->bubble_frac = out->cost_s[MCP_COST_BUBBLE] / out->iteration_s;
    double bubble = fmax(0, out->cost_s[MCP_COST_BUBBLE] - seconds(skew_ns(p, e)));
    out->bubble_over_ideal = busy > 0 ? bubble / busy : 0;
    out->exposed_comm_frac = exposed / out->iteration_s;
    utilization(pricer, plan, m, e, out);
}

/* Rank space: the shared head's weights and gradients. */
static void add_shared(const struct mcp_pricer *pricer, const struct mcp_plan *plan, int r,
                       struct mcp_memory *memory)
{
    int last = plan->pipeline_parallel * plan->virtual_stages - 1;
    if (r != mcp_plan_rank_of(plan, last))
        return;
    memory->weights_bytes += mcp_shared_weights_bytes(pricer->question, plan);
    memory->gradients_bytes += mcp_shared_gradients_bytes(pricer->question, plan);
}

/* ZeRO-3 holds two layers' weights whole (one in use, one on its way when it is gathered
 * ahead), or all of them when they are kept; ZeRO-2 and 3 two layers' gradients likewise. */
static int64_t add_static(const struct mcp_pricer *pricer, const struct mcp_plan *plan, int r,
                          const struct mcp_stage *const *stages, struct mcp_memory *memory)
{
    int64_t gathered = 0, largest = 0, transient = 0, dense = 0;
    for (int c = 0; c < plan->virtual_stages; c++) {
        const struct mcp_stage *sum = stages[mcp_plan_virtual_stage(plan, r, c)];
        memory->weights_bytes += sum->weights_bytes;
        memory->gradients_bytes += sum->gradients_bytes;
        memory->optimizer_bytes += sum->optimizer_bytes;
        gathered += sum->gathered_bytes;
        largest = sum->largest_gathered > largest ? sum->largest_gathered : largest;
        transient = sum->largest_transient > transient ? sum->largest_transient : transient;
        dense = sum->largest_dense > dense ? sum->largest_dense : dense;
    }
    int64_t dummy = (int64_t)llround((double)dense * pricer->question->stack->dummy_gradient_bytes);
    int64_t few = (plan->overlap.gather ? 2 : 1) * largest;
    few = few < gathered ? few : gathered;
    return (plan->reshard_after_forward ? few : gathered) + 2 * transient + dummy;
}

/* Of each stream of messages, which chunks that run from the last rank down have for themselves:
 * step/outbox.h. */
static int64_t message_copies(const struct mcp_question *question, const struct mcp_plan *plan,
                              int r, int num_microbatches)
{
    const int64_t limit = (int64_t)plan->pipeline_parallel * plan->virtual_stages;
    int64_t messages[2][2] = {{0}}, places = 0;
    if (!question->stack->message_copies)
        return 0;
    for (int c = 0; c < plan->virtual_stages; c++) {
        const int k = mcp_plan_virtual_stage(plan, r, c);
        int64_t *const of = messages[mcp_plan_is_mirrored(plan, k)];
        of[0] += mcp_plan_has_boundary(plan, k) ? num_microbatches : 0;
        of[1] += mcp_plan_has_boundary(plan, k - 1) ? num_microbatches : 0;
    }
    for (int i = 0; i < 4; i++)
        places += mcp_min_int64(limit, messages[i / 2][i % 2]);
    return places * mcp_message_bytes(question, plan);
}

static void rank_memory(const struct mcp_pricer *pricer, const struct mcp_plan *plan, int r,
                        const struct mcp_stage *const *stages, struct mcp_memory *memory)
{
    const struct mcp_stack *stack = pricer->question->stack;
    int m = (int)mcp_num_microbatches(plan, pricer->question->job);
    struct mcp_chunk_memory *chunks =
        MCP_ARRAY(pricer->scratch, plan->virtual_stages, struct mcp_chunk_memory);
    memset(memory, 0, sizeof *memory);
    for (int c = 0; c < plan->virtual_stages; c++)
        chunks[c] = stages[mcp_plan_virtual_stage(plan, r, c)]->memory;
    int64_t whole = add_static(pricer, plan, r, stages, memory), kept;
    add_shared(pricer, plan, r, memory);
    int64_t peak = mcp_stage_peak(plan, m, r, chunks, &kept);
    double factor = stack->activation_memory_factor;
    memory->activations_bytes = (int64_t)llround((double)kept * factor);
    memory->buffers_bytes = (int64_t)llround((double)(peak - kept) * factor) + whole;
    int64_t allocated = mcp_memory_allocated(memory);
    memory->reserve_bytes = stack->reserve_bytes + message_copies(pricer->question, plan, r, m) +
                            (int64_t)llround((double)allocated * stack->fragmentation_frac);
}

int64_t mcp_stages_bytes(struct mcp_pricer *pricer, const struct mcp_plan *plan, int rank,
                         const struct mcp_stage *const *stages)
{
    struct mcp_memory memory;
    struct mcp_mark mark = mcp_arena_mark(pricer->scratch);
    rank_memory(pricer, plan, rank, stages, &memory);
    mcp_arena_rewind(pricer->scratch, mark);
    return mcp_memory_total(&memory);
}

int64_t mcp_stage_limit_bytes(const struct mcp_pricer *pricer, const struct mcp_plan *plan,
                              int rank)
{
    const struct mcp_gpu *gpu = &mcp_stage_pool(pricer, plan, rank)->question.cluster->gpu;
    return (int64_t)((double)gpu->memory_bytes * pricer->question->job->memory_limit_frac);
}

/* The fullest stage is the one with the least room left. */
void mcp_estimate_memory(const struct mcp_pricer *pricer, const struct mcp_plan *plan,
                         const struct estimate *e, struct mcp_prediction *out)
{
    const struct mcp_question *q = pricer->question;
    int64_t least_room = INT64_MAX;
    for (int r = 0; r < plan->pipeline_parallel; r++) {
        struct mcp_memory *memory = &out->stages[r].memory;
        rank_memory(pricer, plan, r, e->stages, memory);
        out->stages[r].static_bytes =
            memory->weights_bytes + memory->gradients_bytes + memory->optimizer_bytes;
        int64_t room = mcp_stage_limit_bytes(pricer, plan, r) - mcp_memory_total(memory);
        if (room < least_room) {
            least_room = room;
            out->peak_stage = r;
        }
    }
    out->memory = out->stages[out->peak_stage].memory;
    out->peak_memory_bytes = mcp_memory_total(&out->memory);
    out->memory_limit_bytes = mcp_stage_limit_bytes(pricer, plan, out->peak_stage);
    out->fits = least_room >= 0;
    out->uncertainty_frac = mcp_uncertainty_frac(q);
}

double mcp_uncertainty_frac(const struct mcp_question *question)
{
    const struct mcp_model *model = question->model;
    double frac = mcp_model_has_experts(model) ? question->stack->moe_uncertainty_frac
                                               : question->stack->uncertainty_frac;
    for (int i = 0; i < model->num_kinds; i++)
        if (mcp_is_recurrent(&model->kinds[i]) || model->kinds[i].index_topk > 0)
            frac = fmax(frac, MCP_UNMEASURED_FRAC);
    return frac;
}

static void costs_to_json(const double *cost_s, struct mcp_json *object, int first, int last)
{
    for (int i = first; i <= last; i++) {
        char key[32];
        size_t n = strlen(mcp_cost_names[i]);
        memcpy(key, mcp_cost_names[i], n);
        memcpy(key + n, "_s", 3);
        mcp_json_set_double(object, key, cost_s[i]);
    }
}

static void memory_to_json(const struct mcp_memory *memory, struct mcp_json *object)
{
    mcp_json_set_int(object, "weights_bytes", memory->weights_bytes);
    mcp_json_set_int(object, "gradients_bytes", memory->gradients_bytes);
    mcp_json_set_int(object, "optimizer_bytes", memory->optimizer_bytes);
    mcp_json_set_int(object, "activations_bytes", memory->activations_bytes);
    mcp_json_set_int(object, "buffers_bytes", memory->buffers_bytes);
    mcp_json_set_int(object, "reserve_bytes", memory->reserve_bytes);
}

void mcp_prediction_to_json(const struct mcp_prediction *prediction, struct mcp_json *object)
{
    mcp_json_set_double(object, "iteration_s", prediction->iteration_s);
    mcp_json_set_double(object, "tokens_per_s", prediction->tokens_per_s);
    mcp_json_set_double(object, "model_flops_utilization", prediction->model_flops_utilization);
    mcp_json_set_double(object, "hardware_flops_utilization",
                        prediction->hardware_flops_utilization);
    mcp_json_set_double(object, "bubble_frac", prediction->bubble_frac);
    mcp_json_set_double(object, "bubble_over_ideal", prediction->bubble_over_ideal);
    mcp_json_set_double(object, "exposed_comm_frac", prediction->exposed_comm_frac);
    costs_to_json(prediction->cost_s, mcp_json_set_object(object, "cost"), 0, MCP_NUM_COSTS - 1);
    costs_to_json(prediction->comm_s, mcp_json_set_object(object, "comm"), MCP_COST_TENSOR,
                  MCP_COST_DATA);
    mcp_json_set_int(object, "peak_memory_bytes", prediction->peak_memory_bytes);
    mcp_json_set_int(object, "peak_stage", prediction->peak_stage);
    memory_to_json(&prediction->memory, mcp_json_set_object(object, "memory"));
    mcp_json_set_int(object, "memory_limit_bytes", prediction->memory_limit_bytes);
    mcp_json_set_bool(object, "fits", prediction->fits);
    mcp_json_set_double(object, "uncertainty_frac", prediction->uncertainty_frac);
}
