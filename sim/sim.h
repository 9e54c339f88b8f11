/* sim/sim.h: a step program played in virtual time.
 *
 * Entries are events: compute, and data-parallel transfers beside it on their own
 * stream, of which the stack hides its share (step/stage.h). A pipeline rank runs its
 * entries in order; a message is awaited where its slot receives it:
 *
 *     receive: t = max(t + back, arrival)    send: t += send, arrival = t + delay
 *     gather, reduce: start = max(data stream's end, t)
 *
 * Time is integer nanoseconds and every order is a total one, so the same inputs give
 * the same bytes. Ranks that differ in nothing are played once: one per pipeline
 * coordinate. Jitter, a slow rank or a slow port makes them unequal; then every *cell* of ranks
 * that run in lockstep (tensor, context and expert groups; the whole stage where data
 * groups meet in every slot) is played with all its stages.
 *
 * What is left out: jitter inside a slot (a group takes the largest factor of its
 * ranks, for the whole slot), and sharing of links (sim/ops.h plays that). */
#ifndef MCP_SIM_SIM_H
#define MCP_SIM_SIM_H

#include "core/arena.h"
#include "step/estimate.h"
#include "step/program.h"

struct mcp_sim_options {
    double noise; /* spread of the logarithm of a slot's compute time, per (rank, slot);
                   * the mean factor is 1 */
    uint64_t seed;
    int slow_rank;      /* -1: none */
    double slow_factor; /* times its compute */
    int slow_port;      /* a rank whose links are those of slow_links; -1: none */
    const struct mcp_question *slow_links;
};
struct mcp_sim_options mcp_sim_options_default(void);
/* Does anything of it make ranks unequal? */
bool mcp_sim_is_unequal(const struct mcp_sim_options *options);

struct mcp_sim_slot_time {
    int64_t start_ns, end_ns; /* waiting for its message left out at the start */
};

struct mcp_sim_stage {
    int64_t earliest_end_ns, latest_end_ns; /* of the last slot, over its ranks */
    double cost_s[MCP_NUM_COSTS];           /* mean over its ranks; sums to the step */
    double busy_s;                          /* slots, what they send included */
    /* transfers of once a step: what nothing hides, before the first slot, after the last */
    int64_t head_ns, tail_ns;
    bool head_laid, tail_laid; /* by op: nothing of them ran beside compute, so all has spans */
    /* of the pipeline that ends last, as are the times */
    int num_slots;
    const struct mcp_slot *slots; /* the program's: prologue first, epilogue last */
    struct mcp_sim_slot_time *times;
};

struct mcp_sim_result {
    int64_t step_ns, end_ns; /* end: of the last slot and its reductions */
    int64_t update_ns, agreement_ns, broadcast_ns, overhead_ns; /* after end_ns */
    double cost_s[MCP_NUM_COSTS];                               /* mean over ranks */
    double comm_s[MCP_NUM_COSTS];                               /* hidden or not */
    double bubble_frac, bubble_over_ideal, exposed_comm_frac;
    int64_t events;
    int num_cells; /* pipelines played: 1 when folded */
    int num_stages;
    struct mcp_sim_stage *stages;
};

/* Plays the program, which must be verified (step/verify.h). The plan's question. */
void mcp_sim_play(struct mcp_arena *arena, const struct mcp_question *question,
                  const struct mcp_program *program, const struct mcp_sim_options *options,
                  struct mcp_sim_result *out);

#endif
