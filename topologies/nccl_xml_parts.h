/* topologies/nccl_xml_parts.h: what the parts of the reader of NCCL's XML share. */
#ifndef MCP_TOPOLOGIES_NCCL_XML_PARTS_H
#define MCP_TOPOLOGIES_NCCL_XML_PARTS_H

#include "topologies/node.h"
#include "topologies/xml.h"

/* A device: its <gpu> or <net> (or the <pci>, where that is all there is). */
struct mcp_nccl_device {
    const struct mcp_xml *element;
    const struct mcp_xml *pci; /* its own; NULL: a NIC right under a <cpu> */
    const char *bus_id;
};

struct mcp_nccl_reader {
    struct mcp_arena *arena;
    struct mcp_error *err;
    const char *file;
    struct mcp_node *node;
    int num_cpus;
    int num_gpus;
    int num_nics;
    struct mcp_nccl_device gpus[MCP_NODE_MAX_DEVICES];
    struct mcp_nccl_device nics[MCP_NODE_MAX_DEVICES];
};

/* The <cpu> that holds the element. */
const struct mcp_xml *mcp_nccl_cpu(const struct mcp_xml *element);
/* Its NUMA node; -1: unknown. */
int mcp_nccl_numa(const struct mcp_xml *cpu);
/* A bridge, by class or as it holds other <pci>. */
bool mcp_nccl_is_bridge(const struct mcp_xml *pci);

/* Links from <nvlink> and <xgmi>. */
enum mcp_status mcp_nccl_nvlinks(struct mcp_nccl_reader *r);
/* Links from the tree, where there are none yet. */
void mcp_nccl_paths(struct mcp_nccl_reader *r);

#endif
