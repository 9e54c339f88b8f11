/* topologies/rocm_smi.h: what AMD's rocm-smi --showtopo prints: tables of weights, of
 * hops and of link types between GPUs, and their NUMA nodes.
 *
 * The table of link types is needed: XGMI joins directly; PCIE goes through the host,
 * within a NUMA node or between two, as the GPUs' NUMA nodes (else the hops: 2 stay
 * within a processor, 3 cross) say. */
#ifndef MCP_TOPOLOGIES_ROCM_SMI_H
#define MCP_TOPOLOGIES_ROCM_SMI_H

#include "topologies/node.h"

bool mcp_rocm_smi_is_topo(const char *text);
/* MCP_FORMAT without link types, or for a link type that is neither. */
enum mcp_status mcp_rocm_smi_topo(struct mcp_arena *arena, const char *name, const char *text,
                                  size_t length, struct mcp_node *out, struct mcp_error *err);

#endif
