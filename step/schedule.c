/* step/schedule.c: the order of forwards and backwards on a pipeline rank. */
#include "step/schedule.h"

#include "core/minmax.h"

#include <assert.h>

int mcp_schedule_length(int virtual_stages, int num_microbatches)
{
    return 2 * virtual_stages * num_microbatches;
}

int mcp_schedule_warm_up(enum mcp_schedule schedule, int pipeline_parallel, int virtual_stages,
                         int num_microbatches, int rank)
{
    int p = pipeline_parallel, v = virtual_stages, m = num_microbatches;
    if (schedule == MCP_GPIPE)
        return m * v;
    if (schedule == MCP_1F1B)
        return mcp_min_int(p - 1 - rank, m * v);
    return mcp_min_int(2 * (p - 1 - rank) + (v - 1) * p, m * v);
}

/* The index-th forward of a rank: for each group of p microbatches, chunk 0 ..
 * v-1. The index-th backward has the same microbatch and the mirrored chunk. */
static struct mcp_action action_at(int p, int v, int index, bool backward)
{
    enum mcp_pass pass = backward ? MCP_PASS_BACKWARD : MCP_PASS_FORWARD;
    if (v == 1)
        return (struct mcp_action){0, index, pass};
    int group = index / (p * v), within = index % (p * v);
    int chunk = within / p;
    return (struct mcp_action){backward ? v - 1 - chunk : chunk, group * p + within % p, pass};
}

void mcp_schedule_actions(enum mcp_schedule schedule, int pipeline_parallel, int virtual_stages,
                          int num_microbatches, int rank, struct mcp_action *actions)
{
    int p = pipeline_parallel, v = virtual_stages, total = num_microbatches * v;
    assert(v == 1 || num_microbatches % p == 0);
    int forward = mcp_schedule_warm_up(schedule, p, v, num_microbatches, rank);
    int n = 0;
    for (int i = 0; i < forward; i++)
        actions[n++] = action_at(p, v, i, false);
    for (int i = 0; i < total; i++) {
        if (forward < total)
            actions[n++] = action_at(p, v, forward++, false);
        actions[n++] = action_at(p, v, i, true);
    }
}

/* ZB-H1 and ZB-H2: weight gradients lag behind input gradients, more on later ranks,
 * whose forwards come later: with both, as much is kept on every rank. */
static struct mcp_schedule_row zero_bubble_row(struct mcp_arena *arena, enum mcp_schedule schedule,
                                               int p, int m, int rank)
{
    int twice = schedule == MCP_ZB_H2 ? 2 : 1, lag = twice * rank, forward = 0;
    int warm_up = mcp_min_int(twice * (p - 1 - rank), m);
    struct mcp_schedule_row row = {0, MCP_ARRAY(arena, 3 * (size_t)m, struct mcp_action)};
    while (forward < warm_up)
        row.actions[row.num_actions++] = (struct mcp_action){0, forward++, MCP_PASS_FORWARD};
    for (int i = 0; i < m + lag; i++) {
        if (forward < m)
            row.actions[row.num_actions++] = (struct mcp_action){0, forward++, MCP_PASS_FORWARD};
        if (i < m)
            row.actions[row.num_actions++] = (struct mcp_action){0, i, MCP_PASS_BACKWARD_INPUT};
        if (i >= lag)
            row.actions[row.num_actions++] =
                (struct mcp_action){0, i - lag, MCP_PASS_BACKWARD_WEIGHT};
    }
    return row;
}

struct mcp_schedule_row mcp_generated_row(struct mcp_arena *arena, enum mcp_schedule schedule,
                                          const struct mcp_schedule_shape *shape, int rank)
{
    int p = shape->pipeline_parallel, v = shape->virtual_stages, m = shape->num_microbatches;
    assert(mcp_schedule_has_generator(schedule));
    if (schedule == MCP_ZB_H1 || schedule == MCP_ZB_H2)
        return zero_bubble_row(arena, schedule, p, m, rank);
    int length = mcp_schedule_length(v, m);
    struct mcp_schedule_row row = {length, MCP_ARRAY(arena, length, struct mcp_action)};
    mcp_schedule_actions(schedule, p, v, m, rank, row.actions);
    return row;
}

struct mcp_schedule_row mcp_plan_row(struct mcp_arena *arena, const struct mcp_plan *plan,
                                     int num_microbatches, int rank)
{
    if (plan->rows != NULL)
        return plan->rows[rank];
    return mcp_generated_row(arena, plan->schedule,
                             &(struct mcp_schedule_shape){plan->pipeline_parallel,
                                                          plan->virtual_stages, num_microbatches},
                             rank);
}
