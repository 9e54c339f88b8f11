/* step/estimate.c: adds up a plan: chunks, pipeline, data-parallel edges, update. */
#include "step/estimate.h"

#include "core/json.h"
#include "core/mesh.h"
#include "core/stack.h"
#include "step/estimate_parts.h"
#include "step/layer_price.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static void free_arena(void *arena)
{
    mcp_arena_free((struct mcp_arena *)arena);
}

struct mcp_pricer *mcp_pricer_new(struct mcp_arena *arena, const struct mcp_question *question)
{
    struct mcp_pricer *pricer = MCP_NEW(arena, struct mcp_pricer);
    pricer->question = question;
    pricer->num_pools = mcp_cluster_num_pools(question->cluster);
    pricer->pools = MCP_ARRAY(arena, pricer->num_pools, struct priced_pool);
    for (int i = 0; i < pricer->num_pools; i++) {
        struct priced_pool *pool = &pricer->pools[i];
        pool->question = *question;
        pool->question.cluster = mcp_cluster_pool(question->cluster, i);
        pool->cache = mcp_price_cache_new(arena, &pool->question);
    }
    pricer->scratch = mcp_arena_new();
    mcp_defer(arena, free_arena, pricer->scratch);
    pricer->forward_flops =
        (double)question->job->global_batch_size * (double)question->job->sequence_length *
        mcp_model_flops_per_token_forward(question->model, question->job->sequence_length);
    return pricer;
}

const struct mcp_question *mcp_pricer_question(const struct mcp_pricer *pricer)
{
    return pricer->question;
}

struct priced_pool *mcp_stage_pool(const struct mcp_pricer *pricer, const struct mcp_plan *plan,
                                   int stage)
{
    return &pricer->pools[plan->stage_pool != NULL ? plan->stage_pool[stage] : 0];
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

/* Do all stages send over links of one kind? Not where some neighbours share a
 * domain and others do not, where pools differ, or ranks lie anyhow. */
static bool equal_boundaries(const struct mcp_pricer *pricer, const struct mcp_plan *plan)
{
    const struct mcp_cluster *cluster = pricer->question->cluster;
    for (int tier = 0; tier < cluster->num_tiers - 1; tier++) {
        int members = mcp_group_in_domain(plan, MCP_PIPELINE, cluster->tiers[tier].ranks);
        if (members > 1 && members < plan->pipeline_parallel)
            return false;
    }
    return pricer->num_pools == 1 && plan->rank_map == NULL;
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

/* Of the first gather and the last reduction, what slots counted as hidden: nothing runs
 * beside them. */
static int64_t hidden_part(const struct mcp_question *question, const struct mcp_plan *plan,
                           struct mcp_data_moves moves)
{
    int64_t all_ns = moves.gather_ns + moves.reduce_ns;
    return all_ns - mcp_data_exposed_ns(question, plan, &moves, all_ns);
}

/* The chunk whose backward is the rank's last slot. */
static const struct mcp_stage *last_stage(const struct mcp_plan *plan, int rank,
                                          const struct estimate *e)
{
    int chunk = 0;
    if (plan->rows != NULL) {
        const struct mcp_schedule_row *row = &plan->rows[rank];
        chunk = row->actions[row->num_actions - 1].chunk;
    }
    return e->stages[mcp_plan_virtual_stage(plan, rank, chunk)];
}

/* What a rank pays once a step for its data-parallel group: before its first
 * forward, and after its last backward. */
static void edges(const struct mcp_pricer *pricer, const struct mcp_plan *plan, int rank,
                  struct estimate *e)
{
    int64_t gather = 0, reduce = 0, forward = 0, backward = 0;
    for (int c = 0; c < plan->virtual_stages; c++) {
        const struct mcp_stage *sum = e->stages[mcp_plan_virtual_stage(plan, rank, c)];
        gather += sum->gather_ns;
        reduce += sum->reduce_ns;
        forward += sum->forward_ns;
        backward += sum->backward_ns;
    }
    const struct mcp_stage *last = last_stage(plan, rank, e);
    bool kept = plan->zero_stage == 3 && !plan->reshard_after_forward;
    if (plan->zero_stage == 3 && !kept) {
        e->head_ns[rank] = hidden_part(
            pricer->question, plan, (struct mcp_data_moves){e->stages[rank]->bottom_gather_ns, 0});
        e->tail_ns[rank] =
            hidden_part(pricer->question, plan, (struct mcp_data_moves){0, last->bottom_reduce_ns});
        return;
    }
    if (plan->zero_stage == 0)
        gather = 0;
    e->head_ns[rank] =
        mcp_data_exposed_ns(pricer->question, plan, &(struct mcp_data_moves){gather, 0}, forward);
    e->moved_once_ns[rank] = gather;
    if (plan->zero_stage >= 2) {
        e->tail_ns[rank] =
            hidden_part(pricer->question, plan, (struct mcp_data_moves){0, last->bottom_reduce_ns});
        return;
    }
    e->tail_ns[rank] =
        mcp_data_exposed_ns(pricer->question, plan, &(struct mcp_data_moves){0, reduce}, backward);
    e->moved_once_ns[rank] += reduce;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The scalars every rank agrees on: the global norm, once a step; with the slowest. */
static int64_t agreement_ns(const struct mcp_pricer *pricer, const struct mcp_plan *plan)
{
    const struct mcp_layer_spec step = {.kind = MCP_KIND_STEP};
    int64_t slowest = 0;
    for (int i = 0; i < pricer->num_pools; i++)
        slowest = larger(slowest,
                         mcp_layer_step_price(pricer->pools[i].cache, plan, &step)->update.time_ns);
    return slowest;
}

static void fixed_parts(const struct mcp_pricer *pricer, const struct mcp_plan *plan,
                        struct estimate *e)
{
    const struct mcp_stack *stack = pricer->question->stack;
    e->broadcast_ns =
        plan->zero_stage >= 1 ? mcp_to_ns(stack->broadcast_s_per_rank * plan->data_parallel) : 0;
    e->agreement_ns = agreement_ns(pricer, plan);
    e->overhead_ns = mcp_to_ns(stack->step_overhead_s);
}

int64_t mcp_step_fixed_ns(struct mcp_pricer *pricer, const struct mcp_plan *plan)
{
    struct estimate e = {0};
    fixed_parts(pricer, plan, &e);
    return e.broadcast_ns + e.agreement_ns + e.overhead_ns;
}

/* Rows may have whole backwards beside those in parts. */
static void count_whole_backwards(const struct mcp_plan *plan, struct estimate *e)
{
    for (int r = 0; r < plan->pipeline_parallel; r++)
        for (int i = 0; i < plan->rows[r].num_actions; i++) {
            const struct mcp_action *a = &plan->rows[r].actions[i];
            int k = mcp_plan_virtual_stage(plan, r, a->chunk);
            if (a->pass != MCP_PASS_BACKWARD || !e->stages[k]->splits_backward)
                continue;
            e->whole_backwards[k]++;
            e->whole_beside_ns[r] += e->stages[k]->whole.beside_ns;
            e->whole_moved_ns[r] += e->stages[k]->whole.moved_ns;
        }
}

/* Slots and edges of all ranks, and the pipeline played over them. */
static void compose(struct mcp_pricer *pricer, const struct mcp_plan *plan, int m,
                    struct estimate *e)
{
    int p = plan->pipeline_parallel, stages = p * plan->virtual_stages;
    int64_t update = 0;
    for (int k = 0; k < stages; k++) {
        const struct mcp_stage *stage = e->stages[k];
        int rank = mcp_plan_rank_of(plan, k);
        e->forward[k] = stage->forward;
        e->backward[k] = stage->backward;
        e->backward_input[k] = stage->backward_input;
        e->backward_weight[k] = stage->backward_weight;
        e->message_ns[rank] += stage->message_ns;
        e->beside_ns[rank] += stage->beside_ns;
        e->moved_ns[rank] += stage->moved_ns;
        e->update_ns[rank] += stage->update_ns;
    }
    for (int r = 0; r < p; r++)
        edges(pricer, plan, r, e);
    if (plan->rows != NULL)
        count_whole_backwards(plan, e);
    const struct mcp_pipeline pipeline = {
        .schedule = plan->schedule,
        .pipeline_parallel = p,
        .virtual_stages = plan->virtual_stages,
        .num_microbatches = m,
        .forward = e->forward,
        .backward = e->backward,
        .release_ns = e->head_ns,
        .backward_input = e->backward_input,
        .backward_weight = e->backward_weight,
        .placement = mcp_plan_placement(plan),
        .rows = plan->rows,
    };
    mcp_pipeline_play(pricer->scratch, &pipeline, e->ranks, NULL);
    for (int r = 0; r < p; r++) {
        e->end_ns = larger(e->end_ns, e->ranks[r].end_ns + e->tail_ns[r]);
        update = larger(update, e->update_ns[r]);
    }
    fixed_parts(pricer, plan, e);
    e->step_ns = e->end_ns + update + e->broadcast_ns + e->agreement_ns + e->overhead_ns;
}

int64_t mcp_stages_time_ns(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                           const struct mcp_stage *const *stages)
{
    int p = plan->pipeline_parallel, count = p * plan->virtual_stages;
    struct mcp_mark mark = mcp_arena_mark(pricer->scratch);
    struct estimate *e = mcp_estimate_room(pricer->scratch, p, count);
    memcpy(e->stages, stages, (size_t)count * sizeof(const struct mcp_stage *));
    compose(pricer, plan, (int)mcp_num_microbatches(plan, pricer->question->job), e);
    int64_t step_ns = e->step_ns;
    mcp_arena_rewind(pricer->scratch, mark);
    return step_ns;
}

void mcp_estimate(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                  struct mcp_prediction *out)
{
    int p = plan->pipeline_parallel, count = p * plan->virtual_stages;
    int m = (int)mcp_num_microbatches(plan, pricer->question->job);
    struct mcp_mark mark = mcp_arena_mark(pricer->scratch);
    mcp_pricer_turn(pricer);
    struct estimate *e = mcp_estimate_room(pricer->scratch, p, count);
    struct mcp_stage *stages = MCP_ARRAY(pricer->scratch, count, struct mcp_stage);
    bool shared = equal_boundaries(pricer, plan);
    for (int k = 0; k < count; k++) {
        if (shared && k > 1 && k < count - 1 && same_as_previous(pricer, plan, k)) {
            e->stages[k] = e->stages[k - 1];
            continue;
        }
        mcp_stage_price(pricer, plan, k, &plan->chunks[k], &stages[k]);
        e->stages[k] = &stages[k];
    }
    compose(pricer, plan, m, e);
    mcp_estimate_times(pricer, plan, m, e, out);
    mcp_estimate_memory(pricer, plan, e, out);
    mcp_arena_rewind(pricer->scratch, mark);
}
