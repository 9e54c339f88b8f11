/* cli/topo_fabric.h: the network between nodes as options of mcpplan topo. */
#ifndef MCP_CLI_TOPO_FABRIC_H
#define MCP_CLI_TOPO_FABRIC_H

#include "cli/options.h"
#include "core/cluster_fabric.h"
#include "topologies/node.h"

struct mcp_fabric_args {
    struct mcp_choice kind;
    int switch_ports, nodes_per_leaf, sites; /* 0: not given */
    double oversubscription;                 /* NaN: not given */
    const char *torus, *wan, *round_trip;
};

struct mcp_fabric_args mcp_fabric_args_none(void);
bool mcp_fabric_is_given(const struct mcp_fabric_args *args);
/* `num_nodes` nodes of `cluster`, joined as the options say; a NIC's bandwidth NaN: as
 * the cluster's own network. */
enum mcp_status mcp_fabric_apply(struct mcp_context *ctx, const struct mcp_fabric_args *args,
                                 int num_nodes, double nic_bytes_per_s,
                                 struct mcp_cluster *cluster);

/* What the NICs next to the GPUs (all, where none shares a PCIe switch with one) give
 * each GPU; NaN when the rate of one is unknown. *count: how many they are. */
double mcp_fabric_nic_rate(const struct mcp_node *node, int *count);

#endif
