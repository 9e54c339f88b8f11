/* topologies/node.h: one machine as its tools describe it: GPUs, NICs, and how
 * each pair of them is joined.
 *
 * Devices are numbered GPUs first, then NICs. What a tool does not say stays
 * unknown (NULL, -1, 0) and prints as null. */
#ifndef MCP_TOPOLOGIES_NODE_H
#define MCP_TOPOLOGIES_NODE_H

#include "core/arena.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"

#include <stdint.h>

/* The worst thing that a path crosses, from near to far. */
enum mcp_link_kind {
    MCP_LINK_UNKNOWN,
    MCP_LINK_NVLINK,
    MCP_LINK_PIX,  /* one PCIe switch */
    MCP_LINK_PXB,  /* several PCIe switches */
    MCP_LINK_PHB,  /* a host bridge */
    MCP_LINK_NODE, /* host bridges of one NUMA node */
    MCP_LINK_SYS,  /* between NUMA nodes */
    MCP_NUM_LINK_KINDS
};
extern const char *const mcp_link_kind_names[MCP_NUM_LINK_KINDS]; /* "NVLINK", "PIX" ... */

struct mcp_link {
    enum mcp_link_kind kind;
    int count; /* bonded NVLinks; 1 otherwise */
};

struct mcp_node_gpu {
    const char *name; /* product, NULL: unknown */
    int index;
    int numa_node;        /* of the CPUs next to it; -1: unknown */
    int64_t memory_bytes; /* 0: unknown */
};

struct mcp_node_nic {
    const char *name; /* "mlx5_0" */
    int numa_node;    /* -1: unknown */
};

#define MCP_NODE_MAX_DEVICES 512

struct mcp_node {
    int num_gpus;
    int num_nics;
    struct mcp_node_gpu *gpus; /* [num_gpus] */
    struct mcp_node_nic *nics; /* [num_nics] */
    struct mcp_link *links;    /* [devices, devices], symmetric; the diagonal is unknown */
};

int mcp_node_devices(const struct mcp_node *node);
const struct mcp_link *mcp_node_link(const struct mcp_node *node, int a, int b);
/* "GPU3" or a NIC's name. */
const char *mcp_node_device_name(struct mcp_arena *arena, const struct mcp_node *node, int device);
/* Pairs of devices of which no tool told the link. */
int mcp_node_unknown_links(const struct mcp_node *node);

/* The keys gpus, nics, links of mcpplan.topo/1; unknown links are left out. */
void mcp_node_to_json(struct mcp_arena *arena, const struct mcp_node *node,
                      struct mcp_json *object);

/* Groups of GPUs joined by paths of kind `farthest` or nearer: sets
 * island[num_gpus] to the lowest GPU of each group; returns their number. */
int mcp_node_islands(const struct mcp_node *node, enum mcp_link_kind farthest, int *island);
/* GPUs in each island when all are equal, 0 otherwise. */
int mcp_node_island_size(const struct mcp_node *node, const int *island);

#endif
