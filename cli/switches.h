/* cli/switches.h: a plan's savings in communication as switches: what hides what, where
 * ranks lie, how the optimizer sends. */
#ifndef MCP_CLI_SWITCHES_H
#define MCP_CLI_SWITCHES_H

#include "core/rank_map.h"
#include "step/legal.h"

/* "topology": ranks on consecutive GPUs; "scrambled" or "scrambled:SEED": on nodes in an
 * order drawn from the seed (default 1). NULL: as the plan has it. */
enum mcp_status mcp_switch_placement(struct mcp_arena *arena, const char *text,
                                     const struct mcp_cluster *cluster, struct mcp_plan *plan,
                                     struct mcp_error *err);

/* "none", "all" (that the stack can hide), or names of plan.json's overlap joined by commas.
 * NULL: as it is. */
enum mcp_status mcp_switch_overlap(struct mcp_arena *arena, const char *text,
                                   const struct mcp_stack *stack, struct mcp_overlap *overlap,
                                   struct mcp_error *err);

/* Another optimizer, or phase, for the job; -1: as it is. */
void mcp_switch_optimizer(int optimizer, int phase, struct mcp_job *job);

/* What each switch saves a plan: one row with none of them, one with each alone, one with
 * all. Rows of what the plan has no use for are left out. */
struct mcp_saving {
    const char *name; /* "none", a key of overlap, "overlap" (all of those where there are
                       * several), "one_bit_adam", "topology", "all" */
    const char *text; /* for people */
    double iteration_s, exposed_comm_frac;
    double played_s; /* by entry (sim/sim.h) */
};
#define MCP_MOST_SAVINGS 11
struct mcp_savings {
    int count;
    struct mcp_saving rows[MCP_MOST_SAVINGS];
};
void mcp_savings_of(struct mcp_arena *arena, const struct mcp_question *question,
                    const struct mcp_plan *plan, struct mcp_savings *out);

struct mcp_table;
struct mcp_table *mcp_savings_table(struct mcp_arena *arena, const struct mcp_savings *savings);
void mcp_savings_to_json(const struct mcp_savings *savings, struct mcp_json *list);

/* 1-bit Adam's two phases, and what a step takes on average over the run. */
struct mcp_phases {
    double warm_s, frozen_s, warm_frac, average_s;
};
void mcp_phases_of(struct mcp_arena *arena, const struct mcp_question *question,
                   const struct mcp_plan *plan, struct mcp_phases *out);
/* The same in a sentence. */
const char *mcp_phases_text(struct mcp_arena *arena, const struct mcp_phases *phases);

#endif
