/* step/price.h: op -> FLOPs, bytes, seconds; block -> integer nanoseconds.
 *
 * Compute ops: roofline with measured efficiencies, tiles and waves. Collectives:
 * latency, ramp and bus bandwidth of the tiers their group spans. A block: its
 * ops played on its streams, or the host's launches where those take longer.
 * docs/COST_MODEL.md derives every formula. All functions are pure. */
#ifndef MCP_STEP_PRICE_H
#define MCP_STEP_PRICE_H

#include "step/legal.h"
#include "step/program.h"

/* Kinds of time. Every second of a rank's compute stream is one of these. */
enum mcp_cost {
    MCP_COST_MATMUL,
    MCP_COST_ATTENTION,
    MCP_COST_ELEMENTWISE, /* casts included */
    MCP_COST_LAUNCH,      /* start-up of kernels on the device */
    MCP_COST_TENSOR,      /* exposed communication from here .. */
    MCP_COST_CONTEXT,
    MCP_COST_EXPERT,
    MCP_COST_PIPELINE,
    MCP_COST_DATA, /* .. to here */
    MCP_COST_OPTIMIZER,
    MCP_COST_HOST, /* the device waits for launches, or for the step's overhead */
    MCP_COST_BUBBLE,
    MCP_NUM_COSTS
};
extern const char *const mcp_cost_names[MCP_NUM_COSTS];

/* Everything a price depends on besides the op. */
struct mcp_pricing {
    const struct mcp_question *question;
    const struct mcp_plan *plan;
};

/* Multiply-adds x 2 of this rank; 0 for ops that are not products or attention. */
double mcp_op_flops(const struct mcp_op *op);
/* Those that a kernel has to make: of fused attention's backward 5 products for the forward's 2,
 * since scores are computed again (Dao 2023, section 4.1); else mcp_op_flops(). */
double mcp_op_kernel_flops(const struct mcp_op *op);
/* Device memory traffic in bytes, before any stack's fusion factor. */
double mcp_op_moved_bytes(const struct mcp_op *op);
/* ... of one kernel that does the op in as few passes as can be, each operand in its own format:
 * mcp_op_moved_bytes() but for losses, updates, norms and embeddings, which software is priced
 * for that passes over them more often. `type`, of `program`, is the op's. */
double mcp_op_kernel_bytes(const struct mcp_program *program, const struct mcp_layer_type *type,
                           const struct mcp_op *op);
/* Bytes this rank sends, bandwidth-optimal algorithms (docs/COST_MODEL.md 4.1);
 * `ranks` is the size of the op's group. */
double mcp_op_sent_bytes(const struct mcp_op *op, int ranks);

/* Seconds on the op's own stream, alone; launch start-up included. */
double mcp_op_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op);
/* Share of a tensor or expert transfer that its stack cannot hide under this plan,
 * 0 .. 1. 1 for all others: a block's play says how far a context ring is hidden,
 * step/stage.h how far what crosses blocks is. */
double mcp_op_exposed_frac(const struct mcp_pricing *pricing, const struct mcp_op *op);

/* One collective alone: `bytes` is the full-size buffer n (all_to_all: what each
 * rank holds). Seconds; 0 for one rank. */
double mcp_collective_seconds(const struct mcp_pricing *pricing, enum mcp_function function,
                              unsigned axes, double bytes);
/* One message of `bytes` from pipeline stage `stage` to stage + delta (a ring). */
double mcp_send_seconds(const struct mcp_pricing *pricing, int stage, int delta, double bytes);

struct mcp_block_price {
    int64_t time_ns;
    double cost_s[MCP_NUM_COSTS]; /* exposed; sums to time_ns */
    double comm_s[MCP_NUM_COSTS]; /* all communication, hidden or not */
    double flops;                 /* executed on this rank */
    int launches;
};
void mcp_block_price(const struct mcp_pricing *pricing, const struct mcp_block *block,
                     struct mcp_block_price *out);

/* Memory of a block beyond what it finds when it starts. A value lives from its
 * first write to its last read; frames that the block reads last (`last_reader`:
 * a backward pass) are given back as they die, but for those that backward_weight reads
 * after backward_input. */
struct mcp_block_memory {
    int64_t peak_bytes; /* largest sum; at least 0 */
    int64_t end_bytes;  /* frames written, less frames given back: may be negative */
};
void mcp_block_memory(const struct mcp_layer_type *type, enum mcp_block_role role, bool last_reader,
                      struct mcp_block_memory *out);

#endif
