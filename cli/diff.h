/* cli/diff.h: what differs between two answers of the same command.
 *
 * Objects are compared key by key, elements of arrays by their name (links by their
 * ends, else, and in long arrays, by place). A key that is absent or null is unknown. */
#ifndef MCP_CLI_DIFF_H
#define MCP_CLI_DIFF_H

#include "cli/output.h"

enum mcp_scalar_type { MCP_SCALAR_UNKNOWN, MCP_SCALAR_NUMBER, MCP_SCALAR_TEXT, MCP_SCALAR_SWITCH };

struct mcp_scalar {
    enum mcp_scalar_type type;
    double number; /* a switch: 0 or 1 */
    const char *text;
};

struct mcp_difference {
    const char *path; /* "cluster.tiers[nvlink].ranks" */
    struct mcp_scalar a, b;
};

struct mcp_differences {
    struct mcp_arena *arena;
    const char *const *ignored; /* keys that say nothing of the matter, NULL at the end */
    int count, capacity;
    struct mcp_difference *items;
};

/* Appends all that differs; `arena` and `ignored` are set. */
void mcp_diff(struct mcp_differences *out, struct mcp_json *a, struct mcp_json *b);

/* The answer of --diff. MCP_CHECK_FAILED when there are differences. */
enum mcp_status mcp_diff_show(struct mcp_context *ctx, const struct mcp_differences *differences,
                              const char *name_a, const char *name_b);

#endif
