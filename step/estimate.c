/* step/estimate.c: adds up a plan: chunks, pipeline, data-parallel edges, update. */
#include "step/estimate.h"

#include "core/json.h"
#include "core/mesh.h"
#include "core/minmax.h"
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

struct mcp_pricer *mcp_pricer_with(struct mcp_arena *arena, const struct mcp_question *question,
                                   const struct mcp_pricer_options *options)
{
    struct mcp_pricer *pricer = MCP_NEW(arena, struct mcp_pricer);
    pricer->question = question;
    pricer->sums_only = options->sums_only;
    pricer->num_pools = mcp_cluster_num_pools(question->cluster);
    pricer->pools = MCP_ARRAY(arena, pricer->num_pools, struct priced_pool);
    for (int i = 0; i < pricer->num_pools; i++) {
        struct priced_pool *pool = &pricer->pools[i];
        pool->question = *question;
        pool->question.cluster = mcp_cluster_pool(question->cluster, i);
        const struct mcp_price_cache_options of_cache = {
            options->sums_only, options->beside != NULL ? options->beside->pools[i].cache : NULL};
        pool->cache = mcp_price_cache_new(arena, &pool->question, &of_cache);
    }
    pricer->scratch = mcp_arena_new();
    mcp_defer(arena, free_arena, pricer->scratch);
    pricer->forward_flops =
        (double)question->job->global_batch_size * (double)question->job->sequence_length *
        mcp_model_flops_per_token_forward(question->model, question->job->sequence_length);
    return pricer;
}

struct mcp_pricer *mcp_pricer_new(struct mcp_arena *arena, const struct mcp_question *question)
{
    const struct mcp_pricer_options all = {.sums_only = false};
    return mcp_pricer_with(arena, question, &all);
}

void mcp_pricer_rest(struct mcp_pricer *pricer)
{
    for (int i = 0; i < pricer->num_pools; i++)
        mcp_price_cache_rest(pricer->pools[i].cache);
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
static int last_chunk(const struct mcp_plan *plan, int rank)
{
    if (plan->rows == NULL)
        return 0;
    const struct mcp_schedule_row *row = &plan->rows[rank];
    return row->actions[row->num_actions - 1].chunk;
}

void mcp_data_once_add(const struct mcp_question *question, const struct mcp_plan *plan,
                       struct mcp_data_moves moves, int64_t compute_ns, struct mcp_data_once *once)
{
    once->moves.gather_ns += moves.gather_ns;
    once->moves.reduce_ns += moves.reduce_ns;
    int64_t all_ns = once->moves.gather_ns + once->moves.reduce_ns;
    once->alone_ns = mcp_data_exposed_ns(question, plan, &once->moves, all_ns);
    int64_t hidden_ns = all_ns - once->alone_ns;
    once->late_ns = mcp_max_int64(once->late_ns, hidden_ns - once->between_ns - compute_ns);
    once->between_ns += (plan->rows == NULL ? plan->pipeline_parallel : 1) * compute_ns;
}

void mcp_rank_edges(const struct mcp_question *question, const struct mcp_plan *plan, int rank,
                    const struct mcp_stage *const *chunks, struct mcp_rank_edges *out)
{
    bool again = mcp_plan_gathers_again(plan);
    bool gathers = plan->zero_stage > 0 && !again, reduces = plan->zero_stage < 2;
    struct mcp_data_once head = {0}, tail = {0};
    for (int c = 0; c < plan->virtual_stages; c++) {
        struct mcp_data_moves gather = {gathers ? chunks[c]->gather_ns : 0, 0};
        struct mcp_data_moves reduce = {0, reduces ? chunks[c]->reduce_ns : 0};
        mcp_data_once_add(question, plan, gather, chunks[c]->forward_ns, &head);
        mcp_data_once_add(question, plan, reduce, chunks[c]->backward_ns, &tail);
    }
    const struct mcp_data_moves first = {chunks[0]->bottom_gather_ns, 0};
    const struct mcp_data_moves last = {0, chunks[last_chunk(plan, rank)]->bottom_reduce_ns};
    out->head_ns = again ? hidden_part(question, plan, first) : head.alone_ns + head.late_ns;
    out->tail_ns = reduces ? tail.alone_ns + tail.late_ns : hidden_part(question, plan, last);
    out->moved_ns = head.moves.gather_ns + tail.moves.reduce_ns;
}

/* What all ranks pay once a step for their data-parallel groups. */
static void edges(struct mcp_pricer *pricer, const struct mcp_plan *plan, struct estimate *e)
{
    struct mcp_mark mark = mcp_arena_mark(pricer->scratch);
    const struct mcp_stage **chunks =
        MCP_ARRAY(pricer->scratch, plan->virtual_stages, const struct mcp_stage *);
    for (int r = 0; r < plan->pipeline_parallel; r++) {
        struct mcp_rank_edges out;
        for (int c = 0; c < plan->virtual_stages; c++)
            chunks[c] = e->stages[mcp_plan_virtual_stage(plan, r, c)];
        mcp_rank_edges(pricer->question, plan, r, chunks, &out);
        e->head_ns[r] = out.head_ns;
        e->tail_ns[r] = out.tail_ns;
        e->moved_once_ns[r] = out.moved_ns;
    }
    mcp_arena_rewind(pricer->scratch, mark);
}

/* The scalars every rank agrees on: the global norm, once a step; with the slowest. */
static int64_t agreement_ns(const struct mcp_pricer *pricer, const struct mcp_plan *plan)
{
    const struct mcp_layer_spec step = {.kind = MCP_KIND_STEP};
    int64_t slowest = 0;
    for (int i = 0; i < pricer->num_pools; i++)
        slowest = mcp_max_int64(
            slowest, mcp_layer_step_price(pricer->pools[i].cache, plan, &step)->update_ns);
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
    edges(pricer, plan, e);
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
        e->end_ns = mcp_max_int64(e->end_ns, e->ranks[r].end_ns + e->tail_ns[r]);
        update = mcp_max_int64(update, e->update_ns[r]);
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
    out->iteration_s = (double)e->step_ns * 1e-9;
    if (!pricer->sums_only)
        mcp_estimate_times(pricer, plan, m, e, out);
    mcp_estimate_memory(pricer, plan, e, out);
    mcp_arena_rewind(pricer->scratch, mark);
}
