/* step/pipeline_bound.h: what no order of slots can beat.
 *
 * For any rows with these prices and this placement, whatever memory allows. For each rank
 * r, with its virtual stage of chunk 0 (where its first forward and its last backward run) and
 * all sums over its chunks:
 *
 *   head  = the first forward's way to r           tail = from r's last input gradient back
 *                                                         to stage 0, and what follows there
 *   T >= head + m sum(F + B + W)                   all its work
 *   T >= head + m sum(F + B) + tail                its weight gradients may wait, others not
 *   T >= one microbatch there and back             its chain through all stages
 *
 * A whole backward counts as B + W, or as B, where that is less. Messages: `send` keeps the
 * sender busy, `delay` is on the way, leads may pass before they come (step/pipeline.h).
 * Admissible: the exact recurrence is never less (tests/step/test_pipeline_bound.c). The
 * step's own edges, release_ns, are in `head`. */
#ifndef MCP_STEP_PIPELINE_BOUND_H
#define MCP_STEP_PIPELINE_BOUND_H

#include "step/pipeline.h"

/* `rows` and `schedule` are not looked at; both parts of the backward must have prices.
 * tail_ns, NULL or [pipeline]: what follows a rank's last slot before the step ends. */
int64_t mcp_pipeline_bound_ns(struct mcp_arena *scratch, const struct mcp_pipeline *pipeline,
                              const int64_t *tail_ns);

#endif
