/* cli/plan_refine.h: --refine K: the best K plans by price are played, and the fastest played wins.
 *
 * Played op by op on links that are shared, without noise. What the planner proves is
 * proven of its price; among the K the simulator has the last word. */
#ifndef MCP_CLI_PLAN_REFINE_H
#define MCP_CLI_PLAN_REFINE_H

#include "cli/output.h"
#include "cli/plan_view.h"
#include "reports/table.h"

/* Plays the first `most` of the answer and puts the fastest played first; fills refined,
 * num_refined or not_refined of the view. Ctrl-C leaves all as it was. */
void mcp_plan_refine(struct mcp_context *ctx, int most, const struct mcp_search_options *options,
                     struct mcp_answer *answer, struct mcp_plan_view *view);

/* Is the fastest played another than the fastest by price? */
bool mcp_plan_refine_changed(const struct mcp_plan_view *view);
/* In a sentence; NULL: nothing to say. */
const char *mcp_plan_refine_text(struct mcp_arena *arena, const struct mcp_plan_view *view);
const struct mcp_table *mcp_plan_refine_table(struct mcp_arena *arena,
                                              const struct mcp_plan_view *view);
void mcp_plan_refine_write(struct mcp_text *out, const struct mcp_style *style,
                           const struct mcp_plan_view *view);

#endif
