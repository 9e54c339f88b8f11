/* sim/ops.h: a program played op by op, on links that are shared.
 *
 * One rank of each pipeline coordinate stands for all of it, or, where ranks are unequal,
 * for those of its cell (sim/unequal.h): jitter is drawn as in mcp_sim_play(). Every op
 * runs on its stream; a transfer takes its latency, then the links of the tiers it
 * crosses, phase by phase, where it shares with whatever else its ranks send at that time
 * (sim/network.h): data-parallel transfers beside tensor, context and pipeline traffic.
 * When nothing meets, the same nanoseconds as mcp_sim_play(). Of a partly hidden transfer
 * the exposed part is played. */
#ifndef MCP_SIM_OPS_H
#define MCP_SIM_OPS_H

#include "sim/sim.h"

struct mcp_sim_span {
    int cell; /* of unequal ranks (sim/cells.h); 0 where all are equal */
    int stage, slot;
    int entry; /* of its list; -1: the whole slot */
    int op;    /* of its block; -1: the whole entry, or slot */
    enum mcp_stream stream;
    int64_t start_ns, end_ns;
};

struct mcp_sim_ops_options {
    bool shared_links;                   /* false: every transfer as if alone */
    const struct mcp_sim_options *ranks; /* what makes them unequal; NULL: nothing */
    void (*span)(void *context, const struct mcp_sim_span *span); /* NULL: none wanted */
    void *context;
};

void mcp_sim_play_ops(struct mcp_arena *arena, const struct mcp_question *question,
                      const struct mcp_program *program, const struct mcp_sim_ops_options *options,
                      struct mcp_sim_result *out);

#endif
