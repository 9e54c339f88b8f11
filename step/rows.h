/* step/rows.h: rows for plans whose schedule's name does not say the order.
 *
 * The plan's stages are priced and step/synthesis.h makes rows from these prices, for
 * steps that end together. A rank may keep what the schedule's name stands for, but no
 * more than its GPUs have room for. */
#ifndef MCP_STEP_ROWS_H
#define MCP_STEP_ROWS_H

#include "step/stage.h"
#include "step/synthesis.h"

/* The plan's stages, and what each rank may keep, as a problem. */
struct mcp_rows_problem {
    struct mcp_synthesis synthesis; /* limit_bytes NULL: not even one microbatch of each chunk
                                       fits the GPUs of some rank */
    int64_t bound_ns;               /* no rows make the step shorter */
};

/* In `arena`. The plan is legal but for its rows and has chunks; its schedule splits the
 * backward, or rows say its order. unlimited: the GPUs' memory does not count. */
struct mcp_rows_problem mcp_rows_problem(struct mcp_arena *arena, struct mcp_pricer *pricer,
                                         const struct mcp_plan *plan, bool unlimited);

/* ZB-V, V-half and V-min, whose rows follow from prices, and DualPipeV, whose order is
 * stated (step/schedule.h): rows are made here. Of custom they are given. */
bool mcp_schedule_is_made(enum mcp_schedule schedule);

/* Sets plan->rows, in `arena`. Only of a schedule that is made.
 * MCP_INFEASIBLE where limit_bytes cannot even hold a microbatch; MCP_INVALID where
 * DualPipeV has too few microbatches. */
/* The same for a problem of that plan which is at hand: limit_bytes, max_work, quick and
 * give_up_ns are its. Rows are NULL where all that were made take longer than give_up_ns. */
enum mcp_status mcp_rows_make(struct mcp_arena *arena, const struct mcp_rows_problem *problem,
                              struct mcp_plan *plan, struct mcp_error *err);
enum mcp_status mcp_plan_make_rows(struct mcp_arena *arena, struct mcp_pricer *pricer,
                                   struct mcp_plan *plan, struct mcp_error *err);

#endif
