/* topologies/tiers.h: from one machine's links to a cluster of such machines.
 *
 * Tiers, smallest first: "nvlink" islands of equal size; "switch", GPUs under common
 * PCIe switches; "pcie", GPUs whose paths stay within a NUMA node; "smp", between NUMA
 * nodes, when the node has such paths; "network" between nodes. Where every path reads
 * SYS, the GPUs' NUMA nodes tell the sockets. A tier that would join no more than the
 * one below is left out. Bandwidths come from the GPU's data: NVLinks in use x
 * rate of one (GPUs that name more links to their peers than they have sit
 * behind a switch and use each link for all), or the PCIe slot. */
#ifndef MCP_TOPOLOGIES_TIERS_H
#define MCP_TOPOLOGIES_TIERS_H

#include "core/cluster.h"
#include "topologies/node.h"

struct mcp_node_use {
    const char *name; /* of the cluster */
    const struct mcp_gpu *gpu;
    int num_nodes;
    double network_bytes_per_s; /* per GPU and direction; NaN: unknown */
    const char *source;
};

/* MCP_INVALID without GPUs, with unknown links between them, with unknown NVLinks of GPUs
 * that have some, or for several nodes without a network. What is assumed is appended to
 * `notes`, a sentence a line. A bandwidth that is not known stays NaN: mcp_cluster_check() then
 * names it. */
enum mcp_status mcp_node_cluster(struct mcp_arena *arena, const struct mcp_node *node,
                                 const struct mcp_node_use *use, struct mcp_cluster *out,
                                 struct mcp_text *notes, struct mcp_error *err);

/* Joins `num_nodes` such nodes by a tier "network"; one node stays as it is when
 * `bandwidth_bytes_per_s` (per GPU and direction) is NaN. MCP_INVALID for more
 * nodes without a bandwidth, and for one that no network has. */
enum mcp_status mcp_cluster_add_network(struct mcp_cluster *cluster, int num_nodes,
                                        double bandwidth_bytes_per_s, struct mcp_error *err);

#endif
