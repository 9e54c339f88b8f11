/* sim/failure.h: a rank that dies within a step, and what it leaves waiting.
 *
 * Played entry by entry, ranks equal: the dead rank's stage ends what it has ended by then and
 * sends no more. Its neighbours go on with the messages that they have, theirs with those, until
 * every stage awaits one that never comes, or has run all its slots and awaits the end of the
 * step. Ranks that share tensor, context or expert groups with the dead one, from ZeRO-2 on data
 * groups too, are stopped with it: their next collective cannot end.
 *
 * Nobody is told: who awaits a transfer gives up when its library's timeout has passed. The step
 * is lost, and whatever followed the last checkpoint. */
#ifndef MCP_SIM_FAILURE_H
#define MCP_SIM_FAILURE_H

#include "sim/sim.h"

struct mcp_sim_failure {
    int rank;
    int64_t at_ns; /* after the step's begin; not negative */
};

/* How far a pipeline stage of the dead rank's replica comes. */
struct mcp_sim_stop {
    int64_t waits_ns; /* from then on; of the dead rank's stage: at_ns */
    int slot;         /* of the program, at which it waits; num_slots: it has run all of them */
    int num_slots;
};

/* stops: [pipeline_parallel]. Returns the dead rank's stage. The program must be verified, and
 * the rank one of its plan's. */
int mcp_sim_play_failure(struct mcp_arena *arena, const struct mcp_question *question,
                         const struct mcp_program *program, const struct mcp_sim_failure *failure,
                         struct mcp_sim_stop *stops);

#endif
