/* sim/end.h: what follows the last slot, op by op. Private to sim/.
 *
 * Clearing, agreement on the norm, and the optimizer are played as sums (sim/sim.h); here
 * their ops are laid one after the other where those sums lie. */
#ifndef MCP_SIM_END_H
#define MCP_SIM_END_H

#include "sim/blocks.h"
#include "sim/ops.h"

/* Spans of every stage, all within result->end_ns and result->step_ns. */
void mcp_sim_end_spans(const struct mcp_sim_steps *steps, struct mcp_sim_blocks *blocks,
                       const struct mcp_sim_ops_options *options,
                       const struct mcp_sim_result *result);

#endif
