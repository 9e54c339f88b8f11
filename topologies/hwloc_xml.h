/* topologies/hwloc_xml.h: hwloc's XML (lstopo --of xml), formats 1, 2 and 3.
 *
 * Debian's hwloc reads no newer format than its own, so this is our reader. GPUs are
 * PCI devices (3D controllers, accelerators, displays of makers of GPUs), not the
 * OSDevs of which one GPU has several or none. Sockets are Package objects; NUMA nodes
 * with the same processors are kinds of memory. NVLinks come from the distances named
 * NVLinkBandwidth; NVSwitches in it are one fabric. Distances that a file lacks are
 * unknown. */
#ifndef MCP_TOPOLOGIES_HWLOC_XML_H
#define MCP_TOPOLOGIES_HWLOC_XML_H

#include "topologies/node.h"
#include "topologies/xml.h"

/* `root` is <topology>; `name` stands for the file in messages. MCP_FORMAT when it
 * holds no machine, MCP_INVALID for a bus id that two devices have. */
enum mcp_status mcp_hwloc_xml(struct mcp_arena *arena, const char *name, const struct mcp_xml *root,
                              struct mcp_node *out, struct mcp_error *err);

#endif
