/* step/account.h: what a rank's seconds were, from its spans alone.
 *
 * Each instant of the step is one of the kinds below, so that they sum to the step:
 *
 *     compute, optimizer, host  an op of the compute stream runs, or a host op
 *     tensor, context, expert   none does, and that transfer runs: it is awaited
 *     pipeline                  a send keeps the rank busy, or the message that its next slot
 *                               waits for is under way
 *     bubble                    that message was not sent yet; or the rank has done all its
 *                               slots, or all its spans, and another rank has not
 *     data                      a gather or reduction runs, and nothing else is awaited
 *     host                      nothing runs: launches, what follows the last span
 *
 * Predicted and measured timelines are counted alike. */
#ifndef MCP_STEP_ACCOUNT_H
#define MCP_STEP_ACCOUNT_H

#include "step/timeline.h"

enum mcp_second {
    MCP_SECOND_COMPUTE,
    MCP_SECOND_OPTIMIZER,
    MCP_SECOND_TENSOR,
    MCP_SECOND_CONTEXT,
    MCP_SECOND_EXPERT,
    MCP_SECOND_PIPELINE,
    MCP_SECOND_DATA,
    MCP_SECOND_HOST,
    MCP_SECOND_BUBBLE,
    MCP_NUM_SECONDS
};
extern const char *const mcp_second_names[MCP_NUM_SECONDS];

struct mcp_account {
    int64_t ns[MCP_NUM_SECONDS]; /* sum to the step's */
};

/* Of all ranks: when the step ends (iteration_ns, or the last span's end where that is later or
 * alone), when the last span does, and the last of slots (what is no part of the update). */
struct mcp_timeline_ends {
    int64_t step_ns, spans_ns, slots_ns;
};
struct mcp_timeline_ends mcp_timeline_ends(const struct mcp_timeline *timeline);

/* The spans are those of one rank, in the order in which they were read. Counts up to
 * ends->step_ns, which may be earlier than the last of them. `arena`: scratch. */
void mcp_account_of(struct mcp_arena *arena, const struct mcp_timeline_span *spans, size_t count,
                    const struct mcp_timeline_ends *ends, struct mcp_account *out);

double mcp_account_bubble_frac(const struct mcp_account *account);
double mcp_account_exposed_comm_frac(const struct mcp_account *account);

#endif
