/* topologies/node.h: one machine as its tools describe it: GPUs, NICs, how each
 * pair of them is joined, and the processors that they hang on.
 *
 * Every reader fills this one description; topologies/dump.h merges several. Devices
 * are numbered GPUs first, then NICs. What a tool does not say stays unknown (NULL,
 * -1, 0) and prints as null; what is odd in its output becomes a note. */
#ifndef MCP_TOPOLOGIES_NODE_H
#define MCP_TOPOLOGIES_NODE_H

#include "core/arena.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"

#include <stdbool.h>
#include <stdint.h>

/* The worst thing that a path crosses, from near to far. */
enum mcp_link_kind {
    MCP_LINK_UNKNOWN,
    MCP_LINK_XGMI, /* AMD's links between GPUs */
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

/* A part of a GPU that MIG made a device of its own. */
struct mcp_node_mig {
    const char *profile; /* "3g.40gb" */
    int index;           /* within the GPU */
    const char *uuid;
};

struct mcp_node_gpu {
    const char *name; /* product, NULL: unknown */
    int index;
    int numa_node;        /* of the CPUs next to it; -1: unknown */
    int64_t memory_bytes; /* 0: unknown */
    const char *bus_id;   /* "0000:0c:00.0", see mcp_bus_id() */
    const char *uuid;
    const char *cpu_affinity;  /* as printed, "0-15,32-47" */
    const char *numa_affinity; /* as printed, "0,3-9" or "N/A"; NULL: not printed */
    int memory_numa_node;      /* the NUMA node that its memory is; -1: unknown, none */
    int package;               /* the processor package next to it; -1: unknown */
    int pcie_generation;       /* the most that GPU and slot can; 0: unknown */
    int pcie_width;            /* lanes */
    double clock_hz;           /* the highest of its multiprocessors; 0: unknown */
    double memory_clock_hz;    /* the highest */
    double power_limit_watts;  /* 0: unknown */
    int switch_links;          /* NVLinks that end at a switch; 0: none or unknown */
    const char *mig_mode;      /* "Enabled" or "Disabled"; NULL: unknown, or it has none */
    int num_migs;
    struct mcp_node_mig *migs; /* [num_migs] */
};

struct mcp_node_nic {
    const char *name;       /* "mlx5_0" */
    int numa_node;          /* -1: unknown */
    const char *interfaces; /* network interfaces of the same device, "ib0 ib1"; NULL: none */
    const char *bus_id;
    int package;        /* -1: unknown */
    double bytes_per_s; /* of its ports, per direction; 0: unknown */
};

/* NUMA nodes with the same processors are kinds of memory of one place. */
struct mcp_node_numa {
    int id; /* the operating system's */
    int64_t memory_bytes;
    const char *kind; /* "HBM", "DRAM"; NULL: not told */
    int package;      /* -1: unknown */
    int cpu_set;      /* equal for equal sets of processors; -1: it has none */
};

#define MCP_NODE_MAX_DEVICES 512

struct mcp_node {
    int num_gpus;
    int num_nics;
    struct mcp_node_gpu *gpus; /* [num_gpus] */
    struct mcp_node_nic *nics; /* [num_nics] */
    struct mcp_link *links;    /* [devices, devices], symmetric; the diagonal is unknown */
    bool links_are_derived;    /* from the tree of PCI devices: nvidia-smi's words win */
    bool nvlinks_unknown;      /* a PCI path is known, but not whether NVLinks go beside it */
    int num_gpus_attached;     /* when only some were listed; 0: all were */
    int num_nvlink_switches;   /* 0: none or unknown, as all below */
    int num_pcie_switches;
    int num_untyped; /* PCI devices of which the file does not tell what they are */
    const char *cpu; /* model name */
    int num_packages;
    int num_cores;
    int num_hardware_threads;
    int num_numa_nodes;
    struct mcp_node_numa *numa_nodes; /* [num_numa_nodes] */
    const char *driver;               /* version of the GPUs' driver */
    const char *notes;                /* what is odd, a sentence a line; NULL: nothing */
};

/* All unknown but the number. */
struct mcp_node_gpu mcp_node_gpu_unknown(int index);
struct mcp_node_nic mcp_node_nic_unknown(const char *name);
/* A node of unknown links. */
void mcp_node_alloc(struct mcp_arena *arena, struct mcp_node *node, int num_gpus, int num_nics);
/* Appends a sentence. */
void mcp_node_note(struct mcp_arena *arena, struct mcp_node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

int mcp_node_devices(const struct mcp_node *node);
const struct mcp_link *mcp_node_link(const struct mcp_node *node, int a, int b);
/* Both directions. */
void mcp_node_set_link(struct mcp_node *node, int a, int b, struct mcp_link link);
/* "GPU3" or a NIC's name. */
const char *mcp_node_device_name(struct mcp_arena *arena, const struct mcp_node *node, int device);
/* NVLink or XGMI: between two GPUs, not through PCI. */
bool mcp_link_is_direct(const struct mcp_link *link);
/* "NV12", "PIX", "unknown" ... */
const char *mcp_link_name(struct mcp_arena *arena, const struct mcp_link *link);
/* Pairs of devices of which no tool told the link. */
int mcp_node_unknown_links(const struct mcp_node *node);
/* Every pair of GPUs that have links to switches is joined by the links of the one
 * that has fewer: the switches of a node are one fabric. */
void mcp_node_join_switched(struct mcp_node *node);

/* "domain:bus:device.function" of "00000000:0C:00.0" in one form: small letters, four
 * digits of domain unless it needs more. NULL when it is none. */
const char *mcp_bus_id(struct mcp_arena *arena, const char *text);

/* The keys gpus, nics, links, numa_nodes ... of mcpplan.topo/1; unknown links are
 * left out. */
void mcp_node_to_json(struct mcp_arena *arena, const struct mcp_node *node,
                      struct mcp_json *object);

/* Groups of GPUs joined by paths of kind `farthest` or nearer: sets
 * island[num_gpus] to the lowest GPU of each group; returns their number. */
int mcp_node_islands(const struct mcp_node *node, enum mcp_link_kind farthest, int *island);
/* The same within NUMA nodes. Some drivers print SYS for every pair: then those whose
 * affinity names the same NUMA node are together. */
int mcp_node_sockets(const struct mcp_node *node, int *island);
/* GPUs in each island when all are equal, 0 otherwise. */
int mcp_node_island_size(const struct mcp_node *node, const int *island);
/* True when each pair of these GPUs is joined by XGMI or NVLink, directly or through
 * switches. */
bool mcp_node_fully_joined(const struct mcp_node *node, const int *gpus, int count);

#endif
