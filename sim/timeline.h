/* sim/timeline.h: spans as files: timeline.json, and a trace for Chrome and Perfetto.
 *
 * docs/FORMATS.md has both. `rank` is the first of the pipeline stage, whose ranks are
 * equal. In the trace a stage is a process and a stream a track; on the compute track
 * a slot holds its entries and an entry its ops, and on no track do spans cross: where
 * messages of one stream would, the later begins when the earlier has ended. */
#ifndef MCP_SIM_TIMELINE_H
#define MCP_SIM_TIMELINE_H

#include "core/text.h"
#include "sim/ops.h"

struct mcp_sim_timeline;
struct mcp_sim_timeline *mcp_sim_timeline_new(struct mcp_arena *arena,
                                              const struct mcp_program *program);
/* A sink of mcp_sim_ops_options; the context is the timeline. */
void mcp_sim_timeline_take(void *timeline, const struct mcp_sim_span *span);

void mcp_sim_timeline_json(const struct mcp_sim_timeline *timeline, struct mcp_text *out);
void mcp_sim_timeline_trace(const struct mcp_sim_timeline *timeline,
                            const struct mcp_sim_result *result, struct mcp_text *out);

#endif
