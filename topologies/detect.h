/* topologies/detect.h: the machine that runs us, as a node and as a cluster.
 *
 * GPUs are found through NVML, else by running nvidia-smi when it is on PATH. A machine
 * without them, or where they find none, computes on its processors: one device per package. */
#ifndef MCP_TOPOLOGIES_DETECT_H
#define MCP_TOPOLOGIES_DETECT_H

#include "core/cluster.h"
#include "topologies/hwloc.h"
#include "topologies/node.h"

struct mcp_machine {
    struct mcp_host host;
    struct mcp_node node; /* its GPUs (none: num_gpus 0) and NICs */
    const char *note;     /* why GPUs are not used although a tool for them is there; "" */
};

enum mcp_status mcp_machine_detect(struct mcp_arena *arena, struct mcp_machine *out,
                                   struct mcp_error *err);

/* A package as a device: cores, clock and vector width as the machine says, rates
 * per core that no operating system tells as topologies/gpus/cpu.json assumes.
 * `cpuinfo` is the text of /proc/cpuinfo, `max_clock_hz` what the frequency driver
 * says, 0: nothing. */
enum mcp_status mcp_cpu_device(struct mcp_arena *arena, const struct mcp_host *host,
                               const char *cpuinfo, double max_clock_hz, struct mcp_gpu *out,
                               struct mcp_error *err);

/* What `--cluster this` means: this machine alone, checked. MCP_INVALID when its
 * GPUs have no preset. */
enum mcp_status mcp_cluster_detect(struct mcp_arena *arena, struct mcp_cluster *out,
                                   struct mcp_error *err);
/* The cluster of a machine that was detected before. Appends what is assumed to
 * `notes`, a sentence a line. */
enum mcp_status mcp_machine_cluster(struct mcp_arena *arena, const struct mcp_machine *machine,
                                    struct mcp_cluster *out, struct mcp_text *notes,
                                    struct mcp_error *err);

#endif
