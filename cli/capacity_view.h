/* cli/capacity_view.h: what the answer of mcpplan capacity is made of. */
#ifndef MCP_CLI_CAPACITY_VIEW_H
#define MCP_CLI_CAPACITY_VIEW_H

#include "cli/output.h"
#include "planner/capacity.h"

struct mcp_capacity_view {
    const struct mcp_capacity_ask *ask;
    int num_machines;
    const struct mcp_capacity_machine *machines;
    const struct mcp_capacity *capacity;
};

void mcp_capacity_text(struct mcp_text *out, const struct mcp_style *style,
                       const struct mcp_capacity_view *view);
struct mcp_json *mcp_capacity_json(struct mcp_arena *arena, const struct mcp_capacity_view *view);
/* "within 90 days, at a price of at most 5.00M"; "" without limits. */
const char *mcp_capacity_limits_text(struct mcp_arena *arena, const struct mcp_capacity_ask *ask);
/* Why nothing meets the limits, and the size that comes nearest, in one sentence. */
enum mcp_status mcp_capacity_fail(struct mcp_arena *arena, const struct mcp_capacity_view *view,
                                  struct mcp_error *err);

/* cli/capacity_options.c: words of the command line. MCP_USAGE when they are none;
 * `option` is named in the sentence. */
enum mcp_status mcp_capacity_parse_tokens(struct mcp_arena *arena, const char *text, int64_t *out,
                                          struct mcp_error *err);

/* cli/capacity_jobs.c: --jobs FILE. */
enum mcp_status mcp_capacity_jobs(struct mcp_context *ctx, const char *path,
                                  const struct mcp_capacity_ask *ask);

#endif
