/* sim/unequal.h: ranks that are not as fast as priced, and who waits for them. Private to
 * sim/.
 *
 * Equal ranks are one pipeline. Jitter, a slow rank or a slow port make them unequal: then
 * every cell (sim/cells.h) is a pipeline of its own, and a group is as slow as the slowest of
 * its ranks. */
#ifndef MCP_SIM_UNEQUAL_H
#define MCP_SIM_UNEQUAL_H

#include "sim/cells.h"
#include "sim/steps.h"

struct mcp_sim_unequal {
    const struct mcp_sim_steps *steps;
    const struct mcp_sim_options *options;
    bool any; /* false: one cell, of all ranks */
    struct mcp_sim_cells cells;
    int *offsets;              /* [classes] ranks on stage s lie so far from stage 0's */
    int slow_stage, slow_cell; /* of the slow port; -1: none */
    enum mcp_cost group_cost;  /* what waiting for slower ranks of one's group is */
};
void mcp_sim_unequal_of(struct mcp_arena *arena, const struct mcp_sim_steps *steps,
                        const struct mcp_sim_options *options, struct mcp_sim_unequal *out);

/* The cell's ranks over all of a stage's. */
double mcp_sim_cell_share(const struct mcp_sim_unequal *unequal, int cell);

/* How much slower than priced a slot's compute is: the slowest rank's factor, for which
 * its group waits, and their mean. */
struct mcp_sim_stretch {
    double largest, mean;
};
struct mcp_sim_stretch mcp_sim_stretch_of(const struct mcp_sim_unequal *unequal, int cell,
                                          int class, int slot);

/* A step as it goes through the slow port's groups. */
const struct mcp_sim_step *mcp_sim_step_at(const struct mcp_sim_unequal *unequal, int cell,
                                           int class, int list, int index);
bool mcp_sim_is_slow(const struct mcp_sim_unequal *unequal, int cell, int class,
                     const struct mcp_sim_step *step);
/* The class's transfers of once a step. */
const struct mcp_sim_class *mcp_sim_edges_of(const struct mcp_sim_unequal *unequal, int class);

#endif
