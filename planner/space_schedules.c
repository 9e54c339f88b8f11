/* planner/space_schedules.c: which schedules a space holds, and on which pipelines. */
#include "planner/space.h"

unsigned mcp_space_schedules(const struct mcp_plan_space *space, const struct mcp_stack *stack)
{
    const struct mcp_interval *knob = &space->knobs[MCP_KNOB_SCHEDULE];
    unsigned schedules = 0, asked = space->schedules != 0 ? space->schedules : stack->schedules;
    bool pinned = mcp_space_pinned(space, MCP_KNOB_SCHEDULE);
    for (int s = 0; s < MCP_NUM_SCHEDULES; s++) {
        bool allowed = !knob->given || (knob->low <= s && s <= knob->high);
        if (allowed && (pinned || (asked >> s & 1) != 0))
            schedules |= 1u << s;
    }
    return schedules;
}

bool mcp_schedule_is_even(enum mcp_schedule schedule)
{
    return (MCP_UNEVEN_SCHEDULES >> schedule & 1) == 0;
}

bool mcp_schedule_suits(enum mcp_schedule schedule, int pipeline_parallel, int virtual_stages)
{
    static const unsigned on_one =
        1u << MCP_GPIPE | 1u << MCP_1F1B | 1u << MCP_ZB_H1 | 1u << MCP_ZB_H2;
    unsigned bit = 1u << schedule;
    if (virtual_stages > 1)
        return schedule == MCP_INTERLEAVED || (virtual_stages == 2 && (bit & MCP_V_SCHEDULES) != 0);
    return schedule == MCP_1F1B || (pipeline_parallel > 1 && (bit & on_one) != 0);
}
