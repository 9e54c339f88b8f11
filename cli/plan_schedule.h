/* cli/plan_schedule.h: --schedule, and what the schedule that was found gains. */
#ifndef MCP_CLI_PLAN_SCHEDULE_H
#define MCP_CLI_PLAN_SCHEDULE_H

#include "cli/plan_options.h"
#include "cli/plan_view.h"

/* Reads args->schedule: "auto" (also NULL: what the stack runs), names with commas between,
 * or a file of PyTorch's that ends in .csv. */
enum mcp_status mcp_plan_schedule_read(struct mcp_context *ctx, struct mcp_plan_args *args);
/* What it says of the space. */
void mcp_plan_schedule_bound(const struct mcp_plan_args *args, struct mcp_plan_space *space);
/* Tells which of the schedules asked for the stack does not run. */
void mcp_plan_schedule_note(struct mcp_context *ctx, const struct mcp_plan_args *args,
                            const struct mcp_stack *stack);

/* Once a plan is found: better rows for it, where they were made in haste, that meet what is
 * required. */
void mcp_plan_schedule_polish(struct mcp_arena *arena, const struct mcp_question *question,
                              const struct mcp_requirements *requirements, struct mcp_found *found);

/* Bits of the schedules that the answer is the best of. */
unsigned mcp_plan_schedules_looked_at(const struct mcp_plan_view *view);

/* The answer's degrees and recompute in 1F1B; false where that says nothing: it is 1F1B, has
 * one stage, recomputes unevenly, or is not legal so. */
struct mcp_plan_in_1f1b {
    double iteration_s;
    int64_t peak_memory_bytes;
    bool fits;
};
bool mcp_plan_in_1f1b(struct mcp_arena *arena, const struct mcp_plan_view *view,
                      struct mcp_plan_in_1f1b *out);
/* "zb-v instead of 1f1b: 7.4 % faster (15.4 s), 3.1 GiB more at the peak"; NULL where false. */
const char *mcp_plan_schedule_gain(struct mcp_arena *arena, const struct mcp_plan_view *view);
/* "; zb-v with layers spread evenly and rows as they are made here": what a proof is over
 * besides; "" where all schedules are looked at in full. */
const char *mcp_plan_schedule_proof(struct mcp_arena *arena, const struct mcp_plan_view *view);

#endif
