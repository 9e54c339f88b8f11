/* cli/sim_case.h: what mcpplan sim plays: a plan, and what is wrong with its machines. */
#ifndef MCP_CLI_SIM_CASE_H
#define MCP_CLI_SIM_CASE_H

#include "cli/options.h"
#include "cli/plan_file.h"
#include "cli/sim_view.h"
#include "core/cluster.h"

struct mcp_sim_args {
    double noise;
    int64_t seed, max_spans;
    const char *slow_rank, *slow_link, *dead_link, *ranks;
    const char *fail_rank, *failure_timeout;
    struct mcp_choice optimizer, phase;
    const char *overlap, *placement;
    struct mcp_choice level, schedule, collective_algorithm;
    const char *timeline, *trace, *report;
};

struct mcp_sim_case {
    struct mcp_plan_file file;
    struct mcp_stack stack;
    struct mcp_cluster pools[MCP_MAX_POOLS];      /* links as all ranks have them */
    struct mcp_cluster port_pools[MCP_MAX_POOLS]; /* ... as those of one rank are */
    struct mcp_question question, port_question;  /* of these */
    struct mcp_sim_options options;
};

/* Makes the case what the options say, one thing after the other, each played entry by entry:
 * `view` gets what each costs, against what the planner says (view->predicted). `file` must
 * be loaded. MCP_INFEASIBLE: the step cannot finish. */
enum mcp_status mcp_sim_case_make(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                  struct mcp_sim_case *out, struct mcp_sim_view *view);

/* A rank of the plan, in decimal. MCP_USAGE. */
enum mcp_status mcp_sim_rank_read(struct mcp_context *ctx, const struct mcp_plan *plan,
                                  const char *text, int *out);

/* --fail-rank: plays the step in which it dies (sim_death.c). view->death stays NULL where none
 * is asked for. MCP_USAGE, MCP_INVALID: it outlives the step. */
enum mcp_status mcp_sim_death_play(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                   const struct mcp_sim_case *played, struct mcp_sim_view *view);

/* Plays op by op and writes --timeline and --trace (sim_files.c). */
enum mcp_status mcp_sim_files_play(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                   const struct mcp_sim_case *played,
                                   struct mcp_sim_result *result);

#endif
