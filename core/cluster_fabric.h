/* core/cluster_fabric.h: the network between nodes, from its build to tiers.
 *
 * B is a GPU's NIC, P a switch's ports, g the GPUs of a node (a NIC each), s the
 * oversubscription (1: as much bandwidth up as down). A switch then has
 * d = floor(P s / (1 + s)) ports down. Bandwidths per GPU and direction:
 *
 *   flat       every pair of nodes at B
 *   fat-tree   leaf: d / g nodes at B; spine: P such leaves at B / s, or, when that
 *              is too few, P pods of P / 2 leaves under a core at B / s (Al-Fares,
 *              Loukissas and Vahdat 2008)
 *   rail       a leaf joins the GPUs of one number: d nodes at B; spine and core as
 *              above, of leaves that are g times as many (NVIDIA DGX SuperPOD); with g
 *              above P / 2 each rail has spines of its own. What crosses rails is taken
 *              to hop within the node first, as NCCL's PXN does
 *   dragonfly  h = (P + 1) / 4, p = h NICs on each of a = 2h switches of a group; group:
 *              B min(1, (a - 1) / 2p), between groups: B h / 2p / s, as Valiant's routing
 *              takes two hops where a ring's neighbours share one link (Kim, Dally, Scott
 *              and Abts 2008); at most a h + 1 groups
 *   torus      a node's NICs feed 2 links in each of D dimensions: lines, planes ... of
 *              nodes at B / D. A ring goes one way at a time: what uses several
 *              dimensions at once is faster than this by up to D
 *
 * Sites joined by a wide-area network of bandwidth W each add B = W / GPUs of a site
 * and its round trip. Latencies (2 us for the first switch, 0.25 us for each further
 * one) and a network's efficiency of 0.85 are assumed where no preset says. */
#ifndef MCP_CORE_CLUSTER_FABRIC_H
#define MCP_CORE_CLUSTER_FABRIC_H

#include "core/cluster.h"

enum mcp_fabric_kind {
    MCP_FABRIC_FLAT,
    MCP_FABRIC_FAT_TREE,
    MCP_FABRIC_RAIL,
    MCP_FABRIC_DRAGONFLY,
    MCP_FABRIC_TORUS,
    MCP_NUM_FABRICS
};
extern const char *const mcp_fabric_names[MCP_NUM_FABRICS]; /* "flat", "fat-tree" ... */

#define MCP_MAX_TORUS_DIMENSIONS 3

/* What is 0 has its default. */
struct mcp_fabric {
    enum mcp_fabric_kind kind;
    double nic_bytes_per_s;  /* 0: as the cluster's own network says */
    int switch_ports;        /* 0: 64 */
    int nodes_per_leaf;      /* or rail, or dragonfly's group; 0: what the ports allow */
    double oversubscription; /* 1 or more; 0: 1 */
    int num_dimensions;      /* of a torus */
    int torus[MCP_MAX_TORUS_DIMENSIONS]; /* nodes in each; the product is the cluster's */
    int num_sites;                       /* 0, 1: no wide-area network */
    double wan_bytes_per_s;              /* of one site, per direction */
    double round_trip_s;                 /* between sites */
};

/* "4x4x8". MCP_USAGE. */
enum mcp_status mcp_fabric_parse_torus(const char *text, struct mcp_fabric *fabric,
                                       struct mcp_error *err);

/* `num_nodes` nodes like those of `cluster`, joined by `fabric` in place of its network.
 * MCP_INVALID for mixed clusters, without a NIC's bandwidth, for more nodes than the
 * switches can join, sizes that do not nest, or more than MCP_MAX_TIERS tiers. */
enum mcp_status mcp_cluster_set_fabric(struct mcp_arena *arena, struct mcp_cluster *cluster,
                                       int num_nodes, const struct mcp_fabric *fabric,
                                       struct mcp_error *err);

#endif
