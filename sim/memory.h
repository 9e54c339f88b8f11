/* sim/memory.h: bytes of a pipeline rank over the step.
 *
 * What step/stage.h takes from the buffer table, laid along the times that were
 * played: frames that a forward saves live until their backward; while a slot runs,
 * its working set is added. A slot counts at its fullest from its start to its end. */
#ifndef MCP_SIM_MEMORY_H
#define MCP_SIM_MEMORY_H

#include "sim/sim.h"

struct mcp_sim_moment {
    int64_t time_ns;
    int64_t bytes; /* from then on, reserve included */
};

struct mcp_sim_curve {
    int count;
    struct mcp_sim_moment *moments;
    int64_t static_bytes; /* what never changes: all that is left without activations */
    int64_t peak_bytes;
};

/* Whose memory: a plan, its price and how it was played. */
struct mcp_sim_played {
    struct mcp_pricer *pricer;
    const struct mcp_plan *plan;
    const struct mcp_prediction *predicted;
    const struct mcp_sim_result *result;
};
void mcp_sim_memory(struct mcp_arena *arena, const struct mcp_sim_played *of, int stage,
                    struct mcp_sim_curve *out);

/* The fullest bytes in each of `count` equal parts of the step. */
void mcp_sim_memory_sample(const struct mcp_sim_curve *curve, int64_t step_ns, double *bytes,
                           int count);

#endif
