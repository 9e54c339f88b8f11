/* step/schedule.c: the order of forwards and backwards on a pipeline rank. */
#include "step/schedule.h"

#include <assert.h>

int mcp_schedule_length(int virtual_stages, int num_microbatches)
{
    return 2 * virtual_stages * num_microbatches;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

int mcp_schedule_warm_up(enum mcp_schedule schedule, int pipeline_parallel, int virtual_stages,
                         int num_microbatches, int rank)
{
    int p = pipeline_parallel, v = virtual_stages, m = num_microbatches;
    if (schedule == MCP_GPIPE)
        return m * v;
    if (schedule == MCP_1F1B)
        return smaller(p - 1 - rank, m * v);
    return smaller(2 * (p - 1 - rank) + (v - 1) * p, m * v);
}

/* The index-th forward of a rank: for each group of p microbatches, chunk 0 ..
 * v-1. The index-th backward has the same microbatch and the mirrored chunk. */
static struct mcp_action action_at(int p, int v, int index, bool backward)
{
    if (v == 1)
        return (struct mcp_action){0, index, backward};
    int group = index / (p * v), within = index % (p * v);
    int chunk = within / p;
    return (struct mcp_action){backward ? v - 1 - chunk : chunk, group * p + within % p, backward};
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
