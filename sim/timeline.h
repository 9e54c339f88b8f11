/* sim/timeline.h: spans as a timeline (step/timeline.h), and as a trace for Chrome and
 * Perfetto.
 *
 * Ranks that run in lockstep have the same spans: those of one pipeline stage where all are
 * equal, else those of one cell (sim/cells.h) on one stage. They are kept once, and the
 * timeline says who is like whom. In the trace a rank is a process and a stream a track; on
 * the compute track a slot holds its entries and an entry its ops, and on no track do spans
 * cross: where messages of one stream would, the later begins when the earlier has ended.
 *
 * Neither grows without bound: ops that begin after a moment, the same for all ranks, are
 * left out so that as many remain as were asked for; so are slots, with a moment of their
 * own. */
#ifndef MCP_SIM_TIMELINE_H
#define MCP_SIM_TIMELINE_H

#include "core/text.h"
#include "sim/ops.h"
#include "step/timeline.h"

struct mcp_sim_timeline;
/* Of the first rank of each stage, without bound. */
struct mcp_sim_timeline *mcp_sim_timeline_new(struct mcp_arena *arena,
                                              const struct mcp_program *program);

struct mcp_sim_timeline_options {
    bool unequal;     /* cells differ */
    const int *ranks; /* whose spans are kept, in this order */
    int num_ranks;    /* 0: the first of each stage, of the pipeline of `around` */
    int around;
    int64_t most_spans, most_trace_spans; /* ops in the timeline, in the trace */
};
struct mcp_sim_timeline *mcp_sim_timeline_new_of(struct mcp_arena *arena,
                                                 const struct mcp_program *program,
                                                 const struct mcp_sim_timeline_options *options);

/* A sink of mcp_sim_ops_options; the context is the timeline. */
void mcp_sim_timeline_take(void *timeline, const struct mcp_sim_span *span);

/* In the arena of `timeline`. */
void mcp_sim_timeline_fill(struct mcp_sim_timeline *timeline, const struct mcp_sim_result *result,
                           struct mcp_timeline *out);
void mcp_sim_timeline_trace(struct mcp_sim_timeline *timeline, struct mcp_text *out);

/* What the last of them holds, of all that was played on the ranks that were asked for. */
struct mcp_sim_kept {
    int64_t ops, all_ops;
    int64_t slots, all_slots;             /* of a trace */
    int64_t ops_until_ns, slots_until_ns; /* left out from then on; INT64_MAX: nothing */
};
struct mcp_sim_kept mcp_sim_timeline_kept(const struct mcp_sim_timeline *timeline);

#endif
