/* topologies/nccl_xml.h: NCCL's topology XML (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE).
 *
 * <system> holds a <cpu> for each NUMA node, that <pci> bridges and devices, those <gpu>
 * and <nic>. A GPU without <gpu> is told by its PCI class. numaid -1 and 0xffff are
 * unknown NUMA nodes of this machine. Links to NVSwitches (class 0x068000) join all GPUs
 * that have some; an NVLink of a GPU to itself means nothing. */
#ifndef MCP_TOPOLOGIES_NCCL_XML_H
#define MCP_TOPOLOGIES_NCCL_XML_H

#include "topologies/node.h"
#include "topologies/xml.h"

/* `root` is <system>; `name` stands for the file in messages. MCP_FORMAT for another
 * nesting, MCP_INVALID for a bus id that two devices have. */
enum mcp_status mcp_nccl_xml(struct mcp_arena *arena, const char *name, const struct mcp_xml *root,
                             struct mcp_node *out, struct mcp_error *err);

#endif
