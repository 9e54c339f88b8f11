/* sim/cells.h: ranks that run in lockstep. Private to sim/. */
#ifndef MCP_SIM_CELLS_H
#define MCP_SIM_CELLS_H

#include "core/arena.h"
#include "core/plan.h"

/* The ranks of stage 0 in cells: cell i has members[first[i]] .. members[first[i + 1]].
 * On stage s the same cell has the ranks that lie s stages on. */
struct mcp_sim_cells {
    int num_cells;
    int *first;   /* [num_cells + 1] */
    int *members; /* ranks of stage 0 */
};

/* Tensor, context and expert groups meet within slots; data groups too from ZeRO-2 on. */
struct mcp_sim_cells mcp_sim_cells_of(struct mcp_arena *arena, const struct mcp_plan *plan);

/* The rank `stages` stages on. */
int mcp_sim_rank_on(const struct mcp_plan *plan, int rank, int stages);

#endif
