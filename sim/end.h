/* sim/end.h: what is played as a sum, op by op. Private to sim/.
 *
 * Clearing, agreement on the norm, and the optimizer follow the last slot; transfers of once
 * a step of which nothing is hidden stand at its edges (sim/sim.h). Here their ops are laid
 * one after the other where those sums lie. */
#ifndef MCP_SIM_END_H
#define MCP_SIM_END_H

#include "sim/blocks.h"
#include "sim/ops.h"

/* Spans of every stage, all within the step. */
void mcp_sim_end_spans(const struct mcp_sim_steps *steps, struct mcp_sim_blocks *blocks,
                       const struct mcp_sim_ops_options *options,
                       struct mcp_sim_result *result);

#endif
