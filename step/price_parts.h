/* step/price_parts.h: pieces of a price. Private to step/, and to whoever plays its ops. */
#ifndef MCP_STEP_PRICE_PARTS_H
#define MCP_STEP_PRICE_PARTS_H

#include "step/price.h"

static inline enum mcp_code mcp_op_code(const struct mcp_op *op)
{
    return (enum mcp_code)mcp_functions[op->function].code;
}

/* Seconds of a local op, without its kernels' start-up. */
double mcp_compute_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op);
/* ... and that start-up. */
double mcp_op_start_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op);
/* Launches the host makes for the op. */
int mcp_op_launches(const struct mcp_pricing *pricing, const struct mcp_op *op);
/* Seconds of a transfer between ranks. Sends are priced at their slowest boundary. */
double mcp_transfer_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op);

/* The kind of time an op's seconds are. */
enum mcp_cost mcp_op_cost(const struct mcp_op *op);
bool mcp_op_is_transfer(const struct mcp_op *op);

/* Seconds as integer nanoseconds, to nearest. */
int64_t mcp_to_ns(double seconds);

/* What a rank gets of one tier's links, bytes per second and direction: large messages,
 * as the stack drives them. */
double mcp_tier_bandwidth(const struct mcp_pricing *pricing, int tier);
/* Members of a group of `ranks` in one domain of `tier`; all of them in the last. */
int mcp_members_in(const struct mcp_pricing *pricing, unsigned axes, int tier, int ranks);

#endif
