/* cli/topo_picture.h: a machine or a cluster as boxes in boxes, drawn as text or SVG.
 *
 * Builders make the boxes; one layout, in characters, serves both drawings. */
#ifndef MCP_CLI_TOPO_PICTURE_H
#define MCP_CLI_TOPO_PICTURE_H

#include "core/cluster.h"
#include "reports/style.h"
#include "topologies/hwloc.h"
#include "topologies/node.h"

enum mcp_part_kind {
    MCP_PART_BOX,
    MCP_PART_GPU,  /* a small label */
    MCP_PART_NIC,  /* likewise */
    MCP_PART_CORE, /* likewise */
    MCP_PART_MORE  /* words: what is left out */
};

struct mcp_part {
    enum mcp_part_kind kind;
    const char *title;
    const char *bus;    /* what joins its parts; NULL: nothing does */
    const char *detail; /* a line below them; NULL: none */
    bool is_apart;      /* in a row of its own kind, which its parent's bus does not reach */
    struct mcp_part *first, *last, *next;
    /* of the layout: from the parent's corner, in characters */
    int x, y, width, height;
};

/* Somebody's name for something, printable, its end cut off when long. */
const char *mcp_part_name(struct mcp_arena *arena, const char *name);
struct mcp_part *mcp_part_new(struct mcp_arena *arena, enum mcp_part_kind kind, const char *title);
void mcp_part_add(struct mcp_part *part, struct mcp_part *child);

/* cli/topo_boxes.c: one pool's tiers; equal domains are folded into one and a count. */
struct mcp_part *mcp_picture_cluster(struct mcp_arena *arena, const struct mcp_cluster *pool);
/* cli/topo_node.c: NUMA nodes, PCIe switches and NVLink islands as far as they nest;
 * what does not is told in a line. */
struct mcp_part *mcp_picture_node(struct mcp_arena *arena, const struct mcp_node *node);
/* cli/topo_host.c: packages, cores and caches, with the NICs where `node` has no GPUs. */
struct mcp_part *mcp_picture_host(struct mcp_arena *arena, const struct mcp_host *host,
                                  const struct mcp_node *node);
/* Packages and NUMA nodes of a dump, with its NICs. */
struct mcp_part *mcp_picture_processors(struct mcp_arena *arena, const struct mcp_node *node);

/* cli/topo_draw.c */
void mcp_picture_text(struct mcp_part *part, const struct mcp_style *style, struct mcp_text *out);
/* All `count` pictures below each other. */
const struct mcp_text *mcp_picture_svg(struct mcp_arena *arena, struct mcp_part *const *parts,
                                       int count, const char *title);

#endif
