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

/* Cores that this process may use: what control groups, taskset or a launcher leave it. */
struct mcp_host_cores {
    int count;      /* at least 1 */
    int *numbers;   /* [count] hwloc's, of all cores: neighbours beside each other */
    void *topology; /* hwloc's; of the arena */
};
/* MCP_IO when the operating system tells nothing. */
enum mcp_status mcp_host_cores(struct mcp_arena *arena, struct mcp_host_cores *out,
                               struct mcp_error *err);
/* Binds this process, with threads that it has or will have, to `count` of them from `first` on.
 * MCP_IO where that is not allowed. */
enum mcp_status mcp_host_bind(const struct mcp_host_cores *cores, int first, int count,
                              struct mcp_error *err);
/* Binds this process to those of the cores it may use that are nearest to a PCI device,
 * "0000:3b:00.0". MCP_IO: there is no such device, it is as near to all, or that is not allowed. */
enum mcp_status mcp_host_bind_beside(struct mcp_arena *arena, const char *pci_address,
                                     struct mcp_error *err);
/* "0-3,6": the numbers of `count` of them from `first` on. */
const char *mcp_host_cores_text(struct mcp_arena *arena, const struct mcp_host_cores *cores,
                                int first, int count);

void mcp_host_to_json(const struct mcp_host *host, struct mcp_json *object);

#endif
