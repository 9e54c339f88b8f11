/* step/synthesis.h: rows of a pipeline made from the costs of its stages.
 *
 * Given what a forward (F), the input half (B) and the weight half (W) of a backward take
 * on each virtual stage, what messages take and what activations each rank may keep, finds
 * in which order each rank runs its slots so that the step ends early. W waits for nothing
 * but its own B and nobody waits for it, so it fills what would be idle (Qi et al. 2023,
 * "Zero Bubble Pipeline Parallelism"); with V placement lifespans of a rank's two chunks
 * add up to the same on every rank (Qi et al. 2024, "Pipeline Parallelism with
 * Controllable Memory").
 *
 * Patterns: every microbatch takes the same steps, one period later; how long it stays at
 * each stage decides how many are alive. Of each shape the longest stay that memory
 * allows, and the published order of ZB-V, are played by list scheduling under the exact
 * costs and memory; the best are scheduled again by their latest starts; then neighbours
 * on the critical path are swapped while that helps. Deterministic. A heuristic: nothing
 * says that no other order is better; mcp_synthesis_bound() says by how much at most. */
#ifndef MCP_STEP_SYNTHESIS_H
#define MCP_STEP_SYNTHESIS_H

#include "core/arena.h"
#include "core/error.h"
#include "core/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct mcp_synthesis_stage { /* of one virtual stage, for one microbatch */
    int64_t forward_ns, backward_input_ns, backward_weight_ns;
    /* Of the first and the second of these: needs no message, runs while it comes. */
    int64_t forward_lead_ns, backward_lead_ns;
    /* From the end of a slot to its arrival at the next stage, and at the one before: the
     * part that does not keep the sender busy. Unused where both are on one rank. */
    int64_t forward_delay_ns, backward_delay_ns;
    int64_t kept_bytes;            /* from the start of F to the end of B */
    int64_t kept_for_weight_bytes; /* from the end of B to the end of W */
};

struct mcp_synthesis {
    enum mcp_placement placement;
    int pipeline_parallel, virtual_stages, num_microbatches;
    const struct mcp_synthesis_stage *stages; /* [pipeline x virtual] by virtual stage */
    const int64_t *limit_bytes;               /* [pipeline] of what is kept, by rank */
    const int64_t *release_ns;                /* [pipeline] earliest start; NULL: 0 */
    const int64_t *tail_ns;                   /* [pipeline] what follows a rank's last slot
                                                 before the step ends; NULL: 0 */
    /* Steps follow each other without a barrier: judged by the longest time from a rank's
     * first slot to its last, as papers do. false: by the end of the last rank. */
    bool no_barrier;
    int64_t max_work; /* slots to play while looking; 0: MCP_SYNTHESIS_WORK */
    /* The published order and one pattern under a few policies, nothing after: for plans that are
     * compared. Rows that take longer than give_up_ns, where that is not 0, are of no use then:
     * found to be so they are not finished. With a barrier alone. */
    bool quick;
    int64_t give_up_ns;
};

#define MCP_SYNTHESIS_WORK 5000000 /* some 0.4 s */

/* rows: [pipeline], each of 3 x virtual_stages x num_microbatches actions in `arena`, forward,
 * backward_input and backward_weight; microbatches of a chunk in order. *time_ns, NULL
 * allowed: what they take in the sense of no_barrier. MCP_INFEASIBLE where a rank cannot
 * keep one microbatch of each of its chunks. INT64_MAX, and rows not set, where all take
 * longer than give_up_ns. */
enum mcp_status mcp_synthesize(struct mcp_arena *arena, const struct mcp_synthesis *problem,
                               struct mcp_schedule_row *rows, int64_t *time_ns,
                               struct mcp_error *err);

/* What rows take, played as step/pipeline.h does: a slot starts when the one before has
 * ended and its message has come. INT64_MAX where they wait for each other in a circle.
 * Rows as mcp_synthesize() makes them. */
int64_t mcp_synthesis_time_ns(struct mcp_arena *scratch, const struct mcp_synthesis *problem,
                              const struct mcp_schedule_row *rows);

/* No rows take less. For each rank r, after the first forward has come to it: all its
 * slots; or all its F and B, and from its last B back to the first stage with its W; or, as
 * long as what all microbatches keep there, each at least as long as the way up from there
 * and back, takes within its limit (limit_bytes NULL: none). Without a barrier: the first
 * and the last of these, from the start. */
int64_t mcp_synthesis_bound_ns(const struct mcp_synthesis *problem);

/* Sets limit[pipeline] as a schedule's name says, where a rank keeps a pair of bytes for one
 * microbatch of all its chunks, counted in the largest pair of all ranks: ZB-H1 and ZB-V p
 * pairs, as 1F1B's first rank does; ZB-H2 2 p; V-half floor((p + 2) / 2), V-min
 * floor((p + 4) / 3) (Qi et al. 2024, table 1). */
void mcp_synthesis_limit(enum mcp_schedule schedule, const struct mcp_synthesis *problem,
                         int64_t *limit_bytes);

#endif
