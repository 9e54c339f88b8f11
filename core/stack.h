/* core/stack.h: the software that runs the plan, as data (stacks/NAME.json).
 *
 * A stack says how well it fuses, launches and overlaps, what it keeps in
 * memory and what it reserves. Each number's source stands in the file's
 * "sources"; one that begins with "fitted" is counted by `mcpplan validate`. */
#ifndef MCP_CORE_STACK_H
#define MCP_CORE_STACK_H

#include "core/arena.h"
#include "core/calibration.h"
#include "core/error.h"
#include "core/json.h"
#include "core/precision.h"

#include <stdbool.h>
#include <stdint.h>

/* Layer parts that selective recompute runs again (bits). */
enum mcp_recompute_module {
    MCP_RECOMPUTE_ATTENTION_CORE = 1, /* Korthikanti et al. 2022 section 5 */
    MCP_RECOMPUTE_NORM = 2,
    MCP_RECOMPUTE_ACTIVATION = 4,        /* the MLP's, experts included */
    MCP_RECOMPUTE_MLA_UP = 8,            /* MLA up-projections */
    MCP_RECOMPUTE_MLP = 16,              /* dense MLP, or shared expert, whole */
    MCP_RECOMPUTE_ALTERNATE_MATMULS = 32 /* torchtitan: every second product, all element-wise */
};

/* How a group adds up, gathers or scatters (docs/COST_MODEL.md 4.2). */
enum mcp_collective_algorithm {
    MCP_RING,
    MCP_TREE,         /* all-reduces: double binary trees between domains; else rings */
    MCP_IN_SWITCH,    /* all-reduces: in the tiers whose switches add up; else rings */
    MCP_HIERARCHICAL, /* one tier after the other */
    MCP_FASTEST,      /* of those, for each transfer */
    MCP_NUM_COLLECTIVE_ALGORITHMS
};
extern const char *const mcp_collective_algorithm_names[MCP_NUM_COLLECTIVE_ALGORITHMS];

struct mcp_stack {
    const char *name;
    /* time */
    double elementwise_factor; /* element-wise traffic over that of perfectly fused kernels */
    double matmul_frac;        /* products' rate over the bare kernel's */
    double host_launch_s;      /* host seconds per kernel launch */
    double graph_launch_frac;  /* ... times this under CUDA graphs */
    double step_overhead_s;    /* per step: logging, data, synchronisation */
    double fp8_cast_factor;    /* traffic of 8 and 4 bit casts */
    double fp8_matmul_frac;    /* rate factor of the scaling mode (row-wise < 1) */
    bool cuda_graph;           /* steps are replayed from graphs */
    bool fused_casts;          /* casts ride on the producers of their inputs */
    bool fused_epilogues;      /* products add biases and apply GELU; false where no file says */
    bool casts_operands;       /* 8 bit products read what ops of the program cast: it can be run
                                * as it is written; false where no file says */
    /* overlap: share of the communication hidden when the plan switches it on */
    double tensor_overlap_frac;
    double data_overlap_frac;
    double pipeline_overlap_frac;
    double expert_overlap_frac;
    double regather_exposed_frac; /* SP's backward re-gathers, when nothing is overlapped */
    double network_frac;          /* this stack's share of the fabric's efficiency */
    double message_network_frac;  /* messages between stages: their rate over that of rings */
    /* behaviour */
    /* MCP_RING where no file says */
    enum mcp_collective_algorithm collective_algorithm;
    const char *attention;         /* default kernel */
    bool fused_attention_sinks;    /* sinks do not force unfused attention */
    bool scatter_gather_pipeline;  /* a message is cut over the tensor group without SP */
    bool all_reduce_gradients;     /* ZeRO-1 still all-reduces gradients */
    bool deduplicated_dispatch;    /* a token crosses to a node once (DeepEP, HybridEP) */
    bool recompute_whole_layer;    /* recompute does not stop at the last saved value */
    unsigned selective_modules;    /* what `recompute: selective` means here */
    unsigned schedules;            /* bits of enum mcp_schedule: the pipelines that it runs */
    double broadcast_s_per_rank;   /* owner-by-owner parameter broadcast, per data rank */
    int64_t bucket_bytes;          /* of gradient and parameter collectives */
    int moe_launches;              /* kernels of routing per pass, beyond the ops' own */
    int moe_fp8_launches;          /* further launches of 8 bit experts on slow hosts */
    double expert_capacity_factor; /* room for tokens that other ranks send, over the expected:
                                    * up to all that may come; 1: routing is even, or drops */
    double moe_sync_s; /* device-to-host wait for split sizes, per forward and recompute */
    /* memory */
    double gradient_bytes;           /* per parameter, held */
    double dummy_gradient_bytes;     /* per parameter of one layer: what autograd is handed */
    double gradient_reduce_bytes;    /* per parameter, on the wire */
    double optimizer_bytes;          /* per parameter: master, two moments */
    double activation_memory_factor; /* kept activations over those of the saved list */
    double logits_bytes;             /* per logit alive at the loss */
    /* messages between stages leave from copies, of each way as many as virtual stages; false
     * where no file says */
    bool message_copies;
    int64_t reserve_bytes;     /* context, communicators, workspaces */
    double fragmentation_frac; /* reserved by the allocator over allocated, minus 1 */
    /* honesty */
    double uncertainty_frac;     /* half-width of an 80-92 % interval, dense */
    double moe_uncertainty_frac; /* the same with experts */
    const char *source;
    int num_fitted;
    /* ops measured on the machine, in place of what else is said of their time; NULL: none */
    const struct mcp_calibration *calibration;
};

enum mcp_status mcp_stack_load(struct mcp_arena *arena, const char *name_or_path,
                               struct mcp_stack *out, struct mcp_error *err);
/* Absent keys take the value of the stack named by "based_on", else are an error. */
enum mcp_status mcp_stack_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                    struct mcp_stack *out, struct mcp_error *err);
void mcp_stack_to_json(const struct mcp_stack *stack, struct mcp_json *object);

#endif
