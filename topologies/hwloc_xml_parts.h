/* topologies/hwloc_xml_parts.h: what the parts of the reader of hwloc's XML share. */
#ifndef MCP_TOPOLOGIES_HWLOC_XML_PARTS_H
#define MCP_TOPOLOGIES_HWLOC_XML_PARTS_H

#include "topologies/node.h"
#include "topologies/xml.h"

struct mcp_hwloc_reader {
    struct mcp_arena *arena;
    struct mcp_error *err;
    const char *file;
    struct mcp_node *node;
    bool kinds_add_up; /* of OSDevs, in format 3 */
    int num_packages;
    size_t package_capacity;
    const struct mcp_xml **packages; /* [num_packages] */
    size_t numa_capacity;
    const struct mcp_xml **numas; /* [node->num_numa_nodes] */
    int num_numas_left_out;
    int num_pci_devices;
    const struct mcp_xml **gpus; /* [node->num_gpus] PCIDev objects */
    const struct mcp_xml **nics; /* [node->num_nics] OSDev objects */
};

/* "" when there is none. */
const char *mcp_hwloc_attribute(const struct mcp_xml *object, const char *name);
/* An <object> of that type. */
bool mcp_hwloc_is(const struct mcp_xml *element, const char *type);
/* Value of <info name=...>; NULL: none. */
const char *mcp_hwloc_info(const struct mcp_xml *object, const char *name);
/* The part of the machine that a device hangs on. */
const struct mcp_xml *mcp_hwloc_host(const struct mcp_xml *device);
/* Its NUMA node; -1: several, or unknown. */
int mcp_hwloc_numa(const struct mcp_hwloc_reader *r, const struct mcp_xml *host);

/* Fills GPUs and NICs. */
enum mcp_status mcp_hwloc_devices(struct mcp_hwloc_reader *r, const struct mcp_xml *machine);
/* Links from the distances called NVLinkBandwidth. */
enum mcp_status mcp_hwloc_nvlinks(struct mcp_hwloc_reader *r, const struct mcp_xml *root);
/* Links from the tree of PCI devices, where there are none yet. */
void mcp_hwloc_paths(struct mcp_hwloc_reader *r);

#endif
