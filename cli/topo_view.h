/* cli/topo_view.h: what mcpplan topo found, before it is text, a drawing or JSON. */
#ifndef MCP_CLI_TOPO_VIEW_H
#define MCP_CLI_TOPO_VIEW_H

#include "cli/output.h"
#include "core/cluster.h"
#include "topologies/detect.h"

struct mcp_topo_view {
    bool is_this;    /* machine.host is known */
    bool is_cluster; /* a preset or a cluster file: machine is empty */
    struct mcp_machine machine;
    bool has_cluster;
    struct mcp_cluster cluster;
    struct mcp_text notes; /* a sentence a line */
};

enum { MCP_MOST_PICTURES = 2 + MCP_MAX_POOLS };
struct mcp_part; /* cli/topo_picture.h */

/* cli/topo_text.c */
int mcp_topo_pictures(struct mcp_arena *arena, const struct mcp_topo_view *view,
                      struct mcp_part *parts[MCP_MOST_PICTURES]);
void mcp_topo_text(struct mcp_context *ctx, const struct mcp_topo_view *view, struct mcp_text *out);

#endif
