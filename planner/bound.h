/* planner/bound.h: what no split of a plan's layers can beat, and whether any can fit.
 *
 * Cheap: no chunk is priced. Admissible for every split, every recompute and (where
 * said) every rank order: tests/planner/test_bound.c compares with exact prices. */
#ifndef MCP_PLANNER_BOUND_H
#define MCP_PLANNER_BOUND_H

#include "step/stage.h"

#include <stdint.h>

/* Nanoseconds of the whole step, at least; `plan`'s own rank order, no chunks. */
int64_t mcp_bound_ns(struct mcp_pricer *pricer, const struct mcp_plan *plan);

/* NULL when some split may fit, else what cannot: "weights", "optimizer",
 * "one layer's activations" ...: a stable name. */
const char *mcp_refute_memory(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                              int64_t limit_bytes);

#endif
