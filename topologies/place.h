/* topologies/place.h: how near two devices are in a tree of PCI bridges and processors.
 *
 * hwloc and NCCL both write such trees. The link of two devices is named after the
 * innermost element that holds both, in nvidia-smi's words: a PCIe switch (PIX when no
 * further bridge lies on the way, PXB otherwise), a host bridge (PHB), a NUMA node
 * (NODE); devices of different NUMA nodes are SYS apart. Where a NUMA node is unknown,
 * so is the link. */
#ifndef MCP_TOPOLOGIES_PLACE_H
#define MCP_TOPOLOGIES_PLACE_H

#include "topologies/node.h"
#include "topologies/xml.h"

enum mcp_place_kind { MCP_PLACE_HOST, MCP_PLACE_HOST_BRIDGE, MCP_PLACE_BRIDGE };

/* Sets every unknown link of the node from `holders` [devices]: the bridges or parts of
 * the host that the devices hang on, all of one tree. */
void mcp_node_link_places(struct mcp_node *node, const struct mcp_xml *const *holders,
                          enum mcp_place_kind (*kind_of)(const struct mcp_xml *element));

#endif
