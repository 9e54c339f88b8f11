/* planner/search_rows.c: rows of plans whose schedule's name does not say them. */
#include "planner/search_parts.h"
#include "step/rows.h"
#include "step/schedule.h"

#include "core/text.h"

static bool lacks_rows(const struct mcp_plan *plan)
{
    return plan->rows == NULL && mcp_schedule_is_made(plan->schedule);
}

bool mcp_search_order(const struct mcp_rows_order *order, struct mcp_plan *plan, bool *bounded)
{
    *bounded = false;
    if (!mcp_schedule_is_even(plan->schedule) || plan->schedule == MCP_CUSTOM)
        return true;
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_rows_problem problem =
        mcp_rows_problem(scratch, order->pricer, plan, order->unlimited);
    bool fits = problem.synthesis.limit_bytes != NULL;
    *bounded = fits && problem.bound_ns > order->cutoff_ns;
    if (fits && !*bounded && lacks_rows(plan)) {
        struct mcp_error unused;
        problem.synthesis.quick = true;
        if (order->cutoff_ns < INT64_MAX) /* prices may be a little less than synthesis thinks */
            problem.synthesis.give_up_ns = order->cutoff_ns + order->cutoff_ns / 64;
        fits = mcp_rows_make(order->arena, &problem, plan, &unused) == MCP_OK;
        *bounded = fits && plan->rows == NULL;
    }
    mcp_arena_free(scratch);
    return fits && !*bounded;
}

int64_t mcp_search_rows_bound_ns(const struct mcp_rows_order *order, const struct mcp_plan *plan)
{
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_rows_problem problem =
        mcp_rows_problem(scratch, order->pricer, plan, order->unlimited);
    int64_t bound_ns = problem.synthesis.limit_bytes != NULL ? problem.bound_ns : INT64_MAX;
    mcp_arena_free(scratch);
    return bound_ns;
}

/* Rows that were given: for as many microbatches as the plan has? */
static bool rows_go(const struct mcp_question *question, const struct mcp_plan *plan)
{
    struct mcp_arena *scratch = mcp_arena_new();
    int64_t m = mcp_num_microbatches(plan, question->job);
    bool go = mcp_rows_fault(scratch, plan, (int)m) == NULL;
    mcp_arena_free(scratch);
    return go;
}

/* The rule about rows is the last of those asked, so that it hides no other. */
const char *mcp_search_illegal(const struct mcp_question *question, const struct mcp_plan *plan)
{
    const char *rule = mcp_illegal_rule(question, plan);
    if (rule == NULL && plan->rows != NULL && !rows_go(question, plan))
        return "rows_can_be_played";
    return rule != NULL && mcp_same(rule, "schedule_has_rows") && lacks_rows(plan) ? NULL : rule;
}

const char *mcp_search_stands_for(const struct mcp_search *search, const struct mcp_plan *plan)
{
    unsigned schedules = mcp_space_schedules(search->space, search->question->stack);
    bool less = plan->schedule == MCP_V_HALF || plan->schedule == MCP_V_MIN;
    bool other = (schedules >> MCP_ZB_V & 1) != 0 && search->objective != MCP_OBJECTIVE_MEMORY;
    struct mcp_plan sibling = *plan;
    sibling.schedule = MCP_ZB_V;
    bool allowed =
        search->refuse == NULL || search->refuse(search->refuse_context, &sibling) == NULL;
    return less && other && allowed ? mcp_rule_zb_v : NULL;
}
