/* exec/spans.h: what was measured of a run: what each step's seconds were, and the timeline of
 * the fastest step of all ranks.
 *
 * The fastest, as steps are slow for reasons that are not theirs: the first touches its
 * memory, others share the machine with strangers. All ranks call these alike.
 *
 * Times count from the start of the rank that begins first. A receive begins when its
 * message was sent, if that is later than when it was asked for: what comes before is
 * waiting for another stage. */
#ifndef MCP_EXEC_SPANS_H
#define MCP_EXEC_SPANS_H

#include "exec/interpret.h"

struct mcp_spans {
    struct mcp_arena *arena;
    const struct mcp_plan *plan;
    int rank;
    const struct mcp_backend_calls *calls;
    struct mcp_backend *backend;
    double step_s;            /* of the fastest step so far, on its slowest rank; 0: none */
    struct mcp_timeline own;  /* its spans on this rank, in issue order */
    struct mcp_timeline last; /* those of the last step */
};

/* Means over ranks, of 0 to 1: step/account.h says what counts as what. */
struct mcp_spans_shares {
    double bubble_frac, exposed_comm_frac;
};

/* After a step that took `step_s` on this rank. The interpreter keeps the spans of its steps. */
enum mcp_status mcp_spans_take(struct mcp_spans *spans, const struct mcp_interpreter *interpreter,
                               double step_s, struct mcp_spans_shares *out, struct mcp_error *err);
/* Those of all ranks, sorted; on every rank. */
enum mcp_status mcp_spans_gather(struct mcp_spans *spans, struct mcp_timeline *out,
                                 struct mcp_error *err);

/* Lets receives begin when their messages were sent; by rank, spans in issue order. */
void mcp_spans_pair(struct mcp_arena *arena, const struct mcp_plan *plan,
                    struct mcp_timeline *timeline);

#endif
