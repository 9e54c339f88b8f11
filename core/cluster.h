/* core/cluster.h: the machines: GPUs, and the tiers of links that join them.
 *
 * Ranks are numbered so that neighbours share the fastest links. Tier 0 is the
 * smallest domain (NVLink); tier k joins `ranks` consecutive ranks, of which
 * each tier below is a part. A group that fits in a tier's domain uses that
 * tier. Bandwidths are per GPU and per direction. Unknown values are NaN and
 * print as null: nothing is invented.
 *
 * A node is what people buy and count: a server, or a rack whose GPUs share one
 * NVLink domain (GB200 NVL72 is a node of 72). Files: topologies/README.md. */
#ifndef MCP_CORE_CLUSTER_H
#define MCP_CORE_CLUSTER_H

#include "core/arena.h"
#include "core/error.h"
#include "core/json.h"
#include "core/precision.h"

#include <stdbool.h>
#include <stdint.h>

/* An attention kernel's speed: fraction of the dense 16-bit peak it reaches on
 * long sequences, and the length at which it reaches half of that. */
struct mcp_attention_kernel {
    const char *name; /* "flash1", "flash2", "fused" ... */
    double forward_frac;
    double backward_frac;
    double ramp_tokens;
};
#define MCP_MAX_ATTENTION_KERNELS 6

/* A GPU (or a CPU seen as one device). Files: topologies/gpus/NAME.json. */
struct mcp_gpu {
    const char *name;
    double peak_flops_per_s[MCP_NUM_PRECISIONS]; /* dense datasheet rates; NaN: cannot */
    int64_t memory_bytes;                        /* usable */
    double memory_bandwidth_bytes_per_s;
    int num_multiprocessors;
    double matmul_frac[MCP_NUM_PRECISIONS]; /* best fraction of peak in a short benchmark */
    double sustained_clock_frac;            /* rate held in a training step over that benchmark's */
    double grouped_matmul_frac; /* rate of grouped (expert) products over plain ones; above 1
                                    where plain ones throttle the clock more */
    int num_attention_kernels;
    struct mcp_attention_kernel attention_kernels[MCP_MAX_ATTENTION_KERNELS];
    /* links, for clusters made from a machine's own description */
    int num_nvlinks;               /* 0: none */
    double nvlink_bytes_per_s;     /* of one link, per direction; NaN: none or unknown */
    double nvlink_efficiency_frac; /* large messages over all links */
    double pcie_bytes_per_s;       /* its slot's, per direction; NaN: unknown */
    bool host_is_slow;             /* x86 hosts launch expert FP8 work slowly; Grace does not */
    double power_watts;            /* of one GPU; NaN: unknown */
    double price_per_gpu_hour;     /* NaN: unknown */
    const char *source;
    int num_fitted; /* values in the file marked as fitted */
};

struct mcp_tier {
    const char *name; /* "nvlink", "infiniband" ... */
    int ranks;        /* in one domain of this tier; the last tier spans the cluster */
    int full_ranks;   /* in a domain with all its places taken; 0: no limit (the last tier).
                         Domains fill evenly: `ranks` is the largest equal part <= full_ranks */
    double bandwidth_bytes_per_s; /* per GPU, per direction */
    double efficiency_frac;       /* large messages over bandwidth_bytes_per_s */
    double latency_s;             /* added per further domain of the tier below that a ring meets */
    double round_trip_s;          /* a WAN's; 0 otherwise */
    bool in_switch_reduction;     /* its switches add up what ranks send (NVLink SHARP,
                                   * InfiniBand SHARP) */
};
#define MCP_MAX_TIERS 6
#define MCP_MAX_GPUS (1 << 20) /* in a cluster */

struct mcp_cluster {
    const char *name;
    struct mcp_gpu gpu;
    int num_nodes;
    int gpus_per_node;
    int num_tiers;
    struct mcp_tier tiers[MCP_MAX_TIERS];
    const char *source;
    const char *note; /* what to keep in mind; NULL: nothing */
    /* Machines of another kind that follow in rank order, NULL: none. Such parts of
     * a mixed cluster are its pools; a pipeline stage lies within one of them. */
    const struct mcp_cluster *next;
};
#define MCP_MAX_POOLS 4

/* Of all pools. */
int mcp_cluster_gpus(const struct mcp_cluster *cluster);
int mcp_cluster_num_pools(const struct mcp_cluster *cluster);
/* Pool 0 <= index < num_pools; pool 0 is the cluster itself. */
const struct mcp_cluster *mcp_cluster_pool(const struct mcp_cluster *cluster, int index);
int mcp_pool_gpus(const struct mcp_cluster *pool);

/* "PRESET", "PRESET:NODES", a file of ours, or "FILE:NODES"; several joined by "+"
 * make a mixed cluster. MCP_INVALID when the node count is impossible for it. */
enum mcp_status mcp_cluster_load(struct mcp_arena *arena, const char *name_or_path,
                                 struct mcp_cluster *out, struct mcp_error *err);
enum mcp_status mcp_cluster_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                      struct mcp_cluster *out, struct mcp_error *err);
void mcp_cluster_to_json(const struct mcp_cluster *cluster, struct mcp_json *object);

/* Assumed of a network where no preset says: what large messages reach, and the first
 * switch. */
#define MCP_NETWORK_EFFICIENCY_FRAC 0.85
#define MCP_NETWORK_LATENCY_S 2e-6

/* The largest equal part of `total` that is at most `full` and a multiple of `unit`,
 * which divides `total`. */
int mcp_even_part(int total, int full, int unit);
/* Another number of nodes of the same kind; outer tiers grow with it. */
enum mcp_status mcp_cluster_resize(struct mcp_cluster *cluster, int num_nodes,
                                   struct mcp_error *err);
/* `gpus` of its GPUs: a part of one node, or equal parts, each more than half, of
 * as few nodes as can be (256 of NVL72 racks are 4 x 64). MCP_INVALID when there
 * are not as many, or no equal parts. */
enum mcp_status mcp_cluster_take(struct mcp_cluster *cluster, int gpus, struct mcp_error *err);
/* The same from as many nodes as it needs. */
enum mcp_status mcp_cluster_set_gpus(struct mcp_cluster *cluster, int gpus, struct mcp_error *err);

/* `name_or_path`: a preset of gpus/ or a file. */
enum mcp_status mcp_gpu_load(struct mcp_arena *arena, const char *name_or_path, struct mcp_gpu *out,
                             struct mcp_error *err);
enum mcp_status mcp_gpu_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                  struct mcp_gpu *out, struct mcp_error *err);
void mcp_gpu_to_json(const struct mcp_gpu *gpu, struct mcp_json *object);
/* The preset of a product as nvidia-smi names it, NULL when there is none. */
const char *mcp_gpu_preset(struct mcp_arena *arena, const char *product);
/* Every value known and within physical bounds (MCP_INVALID). */
enum mcp_status mcp_gpu_check(const struct mcp_gpu *gpu, struct mcp_error *err);

/* A quantity of our files: a string with a unit where a person wrote it, a number
 * in the base unit (which the key names) where we did. *out keeps what it had
 * when the key is absent or null. */
enum mcp_status mcp_json_maybe_amount(struct mcp_json *json, const char *key,
                                      enum mcp_dimension dimension, double *out,
                                      struct mcp_error *err);

/* Positive finite rates, tiers that nest and span all ranks (MCP_INVALID). */
enum mcp_status mcp_cluster_check(const struct mcp_cluster *cluster, struct mcp_error *err);

#endif
