/* step/rows.c: rows for plans whose schedule's name does not say the order. */
#include "step/rows.h"

#include "core/minmax.h"
#include "step/estimate_parts.h"
#include "step/pipeline_bound.h"
#include "step/schedule.h"

#define MCP_ROWS_WORK 1500000 /* slots to play for the rows of one plan: some 0.1 s */

static int64_t busy_ns(const struct mcp_slot_price *slot)
{
    return slot->lead_ns + slot->body_ns + slot->send_ns;
}

static void price_stages(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                         struct mcp_stage *priced, struct mcp_synthesis_stage *out)
{
    mcp_pricer_turn(pricer);
    for (int k = 0; k < plan->pipeline_parallel * plan->virtual_stages; k++) {
        struct mcp_stage *stage = &priced[k];
        mcp_stage_price(pricer, plan, k, &plan->chunks[k], stage);
        out[k] = (struct mcp_synthesis_stage){
            .forward_ns = busy_ns(&stage->forward),
            .backward_input_ns = busy_ns(&stage->backward_input),
            .backward_weight_ns = busy_ns(&stage->backward_weight),
            .forward_lead_ns = stage->forward.lead_ns,
            .backward_lead_ns = stage->backward_input.lead_ns,
            .forward_delay_ns = stage->forward.delay_ns,
            .backward_delay_ns = stage->backward.delay_ns,
            .kept_bytes = stage->memory.kept_bytes,
            .kept_for_weight_bytes = stage->memory.weight_kept_bytes,
        };
    }
}

static int64_t largest_update_ns(const struct mcp_plan *plan, const struct mcp_stage *priced)
{
    int64_t largest = 0;
    for (int r = 0; r < plan->pipeline_parallel; r++) {
        int64_t update = 0;
        for (int c = 0; c < plan->virtual_stages; c++)
            update += priced[mcp_plan_virtual_stage(plan, r, c)].update_ns;
        largest = update > largest ? update : largest;
    }
    return largest;
}

/* One microbatch, all chunks up and down: what a rank cannot do without. */
static struct mcp_schedule_row shortest_row(struct mcp_arena *arena, int virtual_stages)
{
    int v = virtual_stages;
    struct mcp_schedule_row row = {3 * v, MCP_ARRAY(arena, 3 * v, struct mcp_action)};
    for (int c = 0; c < v; c++) {
        row.actions[c] = (struct mcp_action){c, 0, MCP_PASS_FORWARD};
        row.actions[v + 2 * c] = (struct mcp_action){v - 1 - c, 0, MCP_PASS_BACKWARD_INPUT};
        row.actions[v + 2 * c + 1] = (struct mcp_action){v - 1 - c, 0, MCP_PASS_BACKWARD_WEIGHT};
    }
    return row;
}

/* What each rank's GPUs can keep: one microbatch and what is left beside it; false: not even
 * that. */
static bool measure_room(struct mcp_arena *arena, struct mcp_pricer *pricer,
                         const struct mcp_plan *plan, const struct mcp_stage *priced,
                         int64_t *room_bytes)
{
    int p = plan->pipeline_parallel, count = p * plan->virtual_stages;
    const struct mcp_stack *stack = pricer->question->stack;
    double each = (1 + stack->fragmentation_frac) * stack->activation_memory_factor;
    const struct mcp_stage **stages = MCP_ARRAY(arena, count, const struct mcp_stage *);
    struct mcp_schedule_row *rows = MCP_ARRAY(arena, p, struct mcp_schedule_row);
    struct mcp_plan shortest = *plan;
    shortest.rows = rows;
    for (int k = 0; k < count; k++)
        stages[k] = &priced[k];
    for (int r = 0; r < p; r++)
        rows[r] = shortest_row(arena, plan->virtual_stages);
    for (int r = 0; r < p; r++) {
        int64_t left =
            mcp_stage_limit_bytes(pricer, plan, r) - mcp_stages_bytes(pricer, &shortest, r, stages);
        if (left < 0)
            return false;
        room_bytes[r] = (int64_t)((double)left / each);
        for (int c = 0; c < plan->virtual_stages; c++)
            room_bytes[r] += stages[mcp_plan_virtual_stage(plan, r, c)]->memory.kept_bytes;
    }
    return true;
}

/* Most that a rank's slot works with beside what is kept: room has it all the time, though
 * the fullest moment may be one that needs less. */
static int64_t working_bytes(const struct mcp_plan *plan, const struct mcp_stage *priced, int rank)
{
    int64_t most = 0;
    for (int c = 0; c < plan->virtual_stages; c++) {
        const struct mcp_chunk_memory *memory =
            &priced[mcp_plan_virtual_stage(plan, rank, c)].memory;
        most = mcp_max_int64(most, mcp_max_int64(memory->forward_bytes, memory->backward_bytes));
        most = mcp_max_int64(most, mcp_max_int64(memory->input_bytes, memory->weight_bytes));
    }
    return most;
}

/* From prices, within what the schedule's name stands for. */
static bool is_synthesised(enum mcp_schedule schedule)
{
    return schedule == MCP_ZB_V || schedule == MCP_V_HALF || schedule == MCP_V_MIN;
}

bool mcp_schedule_is_made(enum mcp_schedule schedule)
{
    return is_synthesised(schedule) || schedule == MCP_DUALPIPE_V;
}

/* Rows that are not synthesised keep what they keep. */
static int64_t bound_ns(struct mcp_arena *arena, struct mcp_synthesis synthesis,
                        const struct mcp_plan *plan, const struct mcp_stage *priced,
                        const int64_t *room_bytes)
{
    int64_t *limit = MCP_ARRAY(arena, plan->pipeline_parallel, int64_t);
    for (int r = 0; r < plan->pipeline_parallel; r++) {
        bool made = is_synthesised(plan->schedule); /* within their limit, then */
        int64_t working = made || room_bytes == NULL ? 0 : working_bytes(plan, priced, r);
        limit[r] = made ? synthesis.limit_bytes[r] : INT64_MAX;
        if (room_bytes != NULL)
            limit[r] = mcp_min_int64(limit[r], room_bytes[r] + working);
    }
    synthesis.limit_bytes = limit;
    return mcp_synthesis_bound_ns(&synthesis);
}

/* DualPipeV has whole backwards too, which may take less than their parts. */
static int64_t any_order_ns(struct mcp_arena *arena, const struct mcp_plan *plan, int m,
                            const struct mcp_stage *priced)
{
    int count = plan->pipeline_parallel * plan->virtual_stages;
    struct mcp_slot_price *prices[MCP_NUM_PASSES];
    for (int pass = 0; pass < MCP_NUM_PASSES; pass++)
        prices[pass] = MCP_ARRAY(arena, count, struct mcp_slot_price);
    for (int k = 0; k < count; k++) {
        prices[MCP_PASS_FORWARD][k] = priced[k].forward;
        prices[MCP_PASS_BACKWARD][k] = priced[k].backward;
        prices[MCP_PASS_BACKWARD_INPUT][k] = priced[k].backward_input;
        prices[MCP_PASS_BACKWARD_WEIGHT][k] = priced[k].backward_weight;
    }
    const struct mcp_pipeline pipeline = {.pipeline_parallel = plan->pipeline_parallel,
                                          .virtual_stages = plan->virtual_stages,
                                          .num_microbatches = m,
                                          .forward = prices[MCP_PASS_FORWARD],
                                          .backward = prices[MCP_PASS_BACKWARD],
                                          .backward_input = prices[MCP_PASS_BACKWARD_INPUT],
                                          .backward_weight = prices[MCP_PASS_BACKWARD_WEIGHT],
                                          .placement = mcp_plan_placement(plan)};
    return mcp_pipeline_bound_ns(arena, &pipeline, NULL);
}

struct mcp_rows_problem mcp_rows_problem(struct mcp_arena *arena, struct mcp_pricer *pricer,
                                         const struct mcp_plan *plan, bool unlimited)
{
    int p = plan->pipeline_parallel, count = p * plan->virtual_stages;
    struct mcp_synthesis_stage *stages = MCP_ARRAY(arena, count, struct mcp_synthesis_stage);
    struct mcp_stage *priced = MCP_ARRAY(arena, count, struct mcp_stage);
    int64_t *limit = MCP_ARRAY(arena, p, int64_t);
    int64_t *room = unlimited ? NULL : MCP_ARRAY(arena, p, int64_t);
    price_stages(pricer, plan, priced, stages);
    struct mcp_rows_problem problem = {
        .synthesis = {.placement = mcp_plan_placement(plan),
                      .pipeline_parallel = p,
                      .virtual_stages = plan->virtual_stages,
                      .num_microbatches = (int)mcp_num_microbatches(plan, pricer->question->job),
                      .stages = stages,
                      .limit_bytes = limit}};
    mcp_synthesis_limit(plan->schedule, &problem.synthesis, limit);
    bool fits = unlimited || measure_room(arena, pricer, plan, priced, room);
    if (!fits) {
        problem.synthesis.limit_bytes = NULL;
        return problem;
    }
    int m = problem.synthesis.num_microbatches;
    problem.bound_ns = (plan->schedule == MCP_DUALPIPE_V
                            ? any_order_ns(arena, plan, m, priced)
                            : bound_ns(arena, problem.synthesis, plan, priced, room)) +
                       largest_update_ns(plan, priced) + mcp_step_fixed_ns(pricer, plan);
    for (int r = 0; r < p && room != NULL; r++)
        limit[r] = mcp_min_int64(limit[r], room[r]);
    return problem;
}

static enum mcp_status make_dualpipe_v(struct mcp_arena *arena, int m, const struct mcp_plan *plan,
                                       struct mcp_schedule_row *rows, struct mcp_error *err)
{
    int p = plan->pipeline_parallel, least = mcp_dualpipe_v_least_microbatches(p);
    if (m < least)
        return mcp_fail(err, MCP_INVALID,
                        "schedule dualpipe-v on pipeline_parallel=%d needs %d microbatches or "
                        "more, there are %d",
                        p, least, m);
    for (int r = 0; r < p; r++)
        rows[r] = mcp_dualpipe_v_row(arena, p, m, r);
    return MCP_OK;
}

enum mcp_status mcp_rows_make(struct mcp_arena *arena, const struct mcp_rows_problem *problem,
                              struct mcp_plan *plan, struct mcp_error *err)
{
    const struct mcp_synthesis *synthesis = &problem->synthesis;
    int64_t time_ns = 0;
    struct mcp_schedule_row *rows =
        MCP_ARRAY(arena, plan->pipeline_parallel, struct mcp_schedule_row);
    if (plan->schedule == MCP_DUALPIPE_V)
        MCP_TRY(make_dualpipe_v(arena, synthesis->num_microbatches, plan, rows, err));
    else
        MCP_TRY(mcp_synthesize(arena, synthesis, rows, &time_ns, err));
    plan->rows = time_ns < INT64_MAX ? rows : NULL;
    return MCP_OK;
}

enum mcp_status mcp_plan_make_rows(struct mcp_arena *arena, struct mcp_pricer *pricer,
                                   struct mcp_plan *plan, struct mcp_error *err)
{
    struct mcp_arena *scratch = mcp_arena_new();
    bool unlimited = plan->schedule == MCP_DUALPIPE_V; /* its order is one, whatever fits */
    struct mcp_rows_problem problem = mcp_rows_problem(scratch, pricer, plan, unlimited);
    problem.synthesis.max_work = MCP_ROWS_WORK;
    enum mcp_status status =
        problem.synthesis.limit_bytes != NULL
            ? mcp_rows_make(arena, &problem, plan, err)
            : mcp_fail(err, MCP_INFEASIBLE,
                       "not even one microbatch fits the memory of each stage");
    mcp_arena_free(scratch);
    return status;
}
