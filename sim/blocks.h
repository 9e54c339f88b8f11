/* sim/blocks.h: blocks as graphs of ops with durations. Private to sim/.
 *
 * The rules are those of step/price.c: streams are queues, a host op stops issue,
 * tensor and expert transfers stop compute. So a block whose ops take their own time
 * ends when its price says. */
#ifndef MCP_SIM_BLOCKS_H
#define MCP_SIM_BLOCKS_H

#include "sim/steps.h"

/* More is asked of a link than it has: rounding left out. */
#define MCP_SIM_FULL_LINK (1 + 1e-6)

/* How a transfer lies on the tiers: what it fills of a rank's port in each. */
struct mcp_sim_shape {
    double loads[MCP_MAX_TIERS];
};

/* A part of a transfer: first its latency, then links, alone on them for so long. */
struct mcp_sim_phase {
    int64_t fixed_ns, shared_ns;
    struct mcp_sim_shape shape;
};

struct mcp_sim_op {
    int64_t time_ns; /* as priced, exposed part only */
    unsigned char stream;
    enum mcp_cost cost;
    int num_phases; /* of a transfer, one after the other: they sum to time_ns; 0: no transfer */
    const struct mcp_sim_phase *phases;
    int num_before; /* ops it waits for */
    int first_after, num_after;
    int64_t alone_ns; /* after the block's start, where nothing else is on the links */
};

struct mcp_sim_block {
    int num_ops;
    struct mcp_sim_op *ops;
    int *after; /* ops that wait for one, by first_after */
    int64_t host_ns;
    int64_t alone_ns;                /* until all of it has ended, launches included */
    int64_t ports_ns[MCP_MAX_TIERS]; /* until its transfers need the tier's port no more */
    bool meets_itself;               /* its own transfers ask more of a port than that has */
};

/* [class's pool][type][role] of `steps`; made when first asked for. */
struct mcp_sim_blocks;
struct mcp_sim_blocks *mcp_sim_blocks_new(struct mcp_arena *arena,
                                          const struct mcp_sim_steps *steps);
const struct mcp_sim_block *mcp_sim_block_of(struct mcp_sim_blocks *blocks, int class,
                                             const struct mcp_entry *entry);
/* A message of the class to a neighbour on `side`; *fixed_ns: its latency. */
struct mcp_sim_shape mcp_sim_message_shape(const struct mcp_sim_steps *steps, int class, int side,
                                           int64_t *fixed_ns);

#endif
