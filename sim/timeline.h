/* sim/timeline.h: spans as a timeline (step/timeline.h), and as a trace for Chrome and
 * Perfetto.
 *
 * The timeline has spans of the first rank of each pipeline stage; all others are like it. In the trace a stage is a process and a stream a track; on the compute track
 * a slot holds its entries and an entry its ops, and on no track do spans cross: where
 * messages of one stream would, the later begins when the earlier has ended. */
#ifndef MCP_SIM_TIMELINE_H
#define MCP_SIM_TIMELINE_H

#include "core/text.h"
#include "sim/ops.h"
#include "step/timeline.h"

struct mcp_sim_timeline;
struct mcp_sim_timeline *mcp_sim_timeline_new(struct mcp_arena *arena,
                                              const struct mcp_program *program);
/* A sink of mcp_sim_ops_options; the context is the timeline. */
void mcp_sim_timeline_take(void *timeline, const struct mcp_sim_span *span);

/* In the arena of `timeline`. */
void mcp_sim_timeline_fill(const struct mcp_sim_timeline *timeline,
                           const struct mcp_sim_result *result, struct mcp_timeline *out);
void mcp_sim_timeline_trace(const struct mcp_sim_timeline *timeline,
                            const struct mcp_sim_result *result, struct mcp_text *out);

#endif
