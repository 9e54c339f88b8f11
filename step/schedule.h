/* step/schedule.h: in which order does a pipeline rank run its forwards and
 * backwards? Generators, one per schedule that has one; others bring rows.
 *
 * GPipe (Huang et al. 2019): all forwards, then all backwards. 1F1B (Narayanan
 * et al. 2021, PipeDream-Flush): min(p-1-r, m) warm-up forwards, then pairs.
 * Interleaved (Narayanan et al. 2021 section 2.2): for each group of p
 * microbatches, chunk 0 .. v-1; warm-up min(2(p-1-r) + (v-1)p, m v); backward
 * takes chunks v-1 .. 0. Backwards of a chunk keep the order 0 .. m-1, except
 * GPipe's which may run in any order and here run 0 .. m-1 too.
 *
 * Zero bubble (Qi et al. 2023) splits the backward: ZB-H1 is 1F1B with the weight
 * gradient of microbatch i after the input gradient of i + r on rank r; ZB-H2 has
 * 2(p-1-r) warm-up forwards and i + 2r. The rest of both comes at the end.
 *
 * DualPipeV (DeepSeek-AI 2025, github.com/deepseek-ai/DualPipe, after DeepSeek-V3's DualPipe,
 * arXiv 2412.19437 section 3.2.1): two chunks a rank in V placement, a forward of one beside a
 * backward of the other. DualPipe is the same with two copies: on 2p ranks, of which r holds
 * stages r and 2p-1-r, microbatches enter from both ends, and what rank r does for those from
 * one end rank 2p-1-r does for those from the other. So either half is a DualPipeV of p ranks
 * and half the microbatches, and both are replicas of each other: the two copies' gradients
 * meet in the data groups. Twice a stage's weights a rank, 2p + 1 microbatches of a chunk
 * kept, and for equal stages a bubble of (p-1)(F&B + B - 3W), F&B a forward and a backward
 * side by side. Messages between both halves are left out. */
#ifndef MCP_STEP_SCHEDULE_H
#define MCP_STEP_SCHEDULE_H

#include "core/arena.h"
#include "core/plan.h"

#include <stdbool.h>

/* The row of `rank`: the plan's own, or made by its schedule (then the arena's). The plan
 * must be legal. */
struct mcp_schedule_row mcp_plan_row(struct mcp_arena *arena, const struct mcp_plan *plan,
                                     int num_microbatches, int rank);
/* Why the plan's rows cannot be played: an action that is missing, comes twice or too early,
 * waits for ever, or awaits messages in another order than they are sent in. NULL: they can. */
const char *mcp_rows_fault(struct mcp_arena *arena, const struct mcp_plan *plan,
                           int num_microbatches);

/* The row of `rank` under DualPipeV, in the arena; of no fewer microbatches than 2 p. */
struct mcp_schedule_row mcp_dualpipe_v_row(struct mcp_arena *arena, int pipeline_parallel,
                                           int num_microbatches, int rank);
static inline int mcp_dualpipe_v_least_microbatches(int pipeline_parallel)
{
    return 2 * pipeline_parallel;
}

struct mcp_schedule_shape {
    int pipeline_parallel, virtual_stages, num_microbatches;
};
/* A schedule whose name says the order: mcp_schedule_has_generator(). */
struct mcp_schedule_row mcp_generated_row(struct mcp_arena *arena, enum mcp_schedule schedule,
                                          const struct mcp_schedule_shape *shape, int rank);

/* Schedules with whole backwards: 2 m v actions of rank `rank`. The plan must be legal
 * (m % p == 0 if v > 1). */
int mcp_schedule_length(int virtual_stages, int num_microbatches);
void mcp_schedule_actions(enum mcp_schedule schedule, int pipeline_parallel, int virtual_stages,
                          int num_microbatches, int rank, struct mcp_action *actions);

/* Forwards before the first backward of rank `rank`. */
int mcp_schedule_warm_up(enum mcp_schedule schedule, int pipeline_parallel, int virtual_stages,
                         int num_microbatches, int rank);

#endif
