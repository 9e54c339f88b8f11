/* topologies/hwloc.h: this machine's processors, memory and devices, through hwloc
 * (the only door to it). */
#ifndef MCP_TOPOLOGIES_HWLOC_H
#define MCP_TOPOLOGIES_HWLOC_H

#include "core/arena.h"
#include "core/error.h"
#include "core/json.h"

#include <stdint.h>

struct mcp_host_package {
    int num_cores;
    int num_numa_nodes;   /* with processors of their own */
    int64_t memory_bytes; /* next to it */
};

enum mcp_host_device_kind { MCP_HOST_GPU, MCP_HOST_NIC };

struct mcp_host_device {
    enum mcp_host_device_kind kind;
    const char *name; /* "mlx5_0", "eth0", a GPU's model */
    int numa_node;    /* -1: unknown */
};

struct mcp_host {
    const char *cpu; /* model name; NULL: unknown */
    int num_packages;
    struct mcp_host_package *packages; /* [num_packages] */
    int num_numa_nodes;
    int num_cores;
    int num_hardware_threads;
    int64_t memory_bytes;
    int64_t cache_bytes[3]; /* one L1 data, L2, L3; 0: none */
    int num_devices;
    struct mcp_host_device *devices; /* [num_devices] */
};

/* MCP_IO when the operating system tells nothing. */
enum mcp_status mcp_host_read(struct mcp_arena *arena, struct mcp_host *out, struct mcp_error *err);
void mcp_host_to_json(const struct mcp_host *host, struct mcp_json *object);

#endif
