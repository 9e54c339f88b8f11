/* step/measured.h: what an op is to a calibration (core/calibration.h): its sizes and work.
 *
 *   matmul      M, N, K, groups                              floating-point operations
 *   attention   batch x heads, pairs, head_dim, queries      floating-point operations
 *   others that compute   rows, columns                      bytes moved
 *   transfers   bytes of the full-size buffer, ranks         those bytes */
#ifndef MCP_STEP_MEASURED_H
#define MCP_STEP_MEASURED_H

#include "core/calibration.h"
#include "step/price.h"

/* All but the seconds. False: an op of no size, of the host, or a receive. */
bool mcp_op_sample(const struct mcp_op *op, const struct mcp_plan *plan, struct mcp_sample *out);
/* A message of `bytes` between two ranks, from its sending until it is there. */
struct mcp_sample mcp_message_sample(double bytes);

/* What the stack's calibration says of an op, start included; false: nothing. */
bool mcp_op_measured(const struct mcp_pricing *pricing, const struct mcp_op *op, double *seconds);
bool mcp_message_measured(const struct mcp_pricing *pricing, double bytes, double *seconds);

#endif
