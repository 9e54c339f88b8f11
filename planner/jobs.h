/* planner/jobs.h: several jobs on several pools of machines, by one integer programme.
 *
 * An option is a job on some nodes of a pool, for a time that its plan says. With a
 * horizon H cut into slots, z[option, start] in {0, 1}, N nodes reserved of a pool for
 * all of H, and e of a job that is left out:
 *
 *     min   sum_pools price N H + sum energy_price energy z + sum penalty e
 *     sum_options,starts z + e = 1                        for each job
 *     sum_(active in slot) nodes z <= N <= most_nodes     for each pool and slot
 *     sum_pools watts N <= power
 *
 * A job ends by its deadline and by H. One slot: all jobs side by side. The penalty is
 * above all that machines can cost, times the job's weight: no job is left out to save.
 * Where a pool's price is unknown, GPU-hours take the place of prices. */
#ifndef MCP_PLANNER_JOBS_H
#define MCP_PLANNER_JOBS_H

#include "core/arena.h"

#include <stdbool.h>

struct mcp_jobs_pool {
    const char *name;
    int most_nodes, gpus_per_node;
    double price_per_node_hour; /* NaN: unknown */
    double watts_per_node;      /* of the site; NaN: unknown */
};

struct mcp_jobs_job {
    const char *name;
    double deadline_s; /* from now; NaN: the horizon alone */
    double weight;     /* of leaving it out, above 0 */
};

struct mcp_jobs_option {
    int job, pool; /* indices */
    int nodes;     /* spares in */
    double time_s;
    double energy_joules; /* NaN: unknown */
};

struct mcp_jobs_problem {
    int num_pools, num_jobs, num_options;
    const struct mcp_jobs_pool *pools;
    const struct mcp_jobs_job *jobs;
    const struct mcp_jobs_option *options;
    double horizon_s;
    int slots;
    double power_watts;          /* NaN: no limit; a pool of unknown watts is then not used */
    double energy_price_per_kwh; /* 0: energy costs nothing beside */
};

struct mcp_jobs_answer {
    int *option; /* [num_jobs] index; -1: left out */
    int *start;  /* [num_jobs] slot */
    int *nodes;  /* [num_pools] reserved */
    int num_left_out;
    bool priced; /* cost is a price; else GPU-hours */
    double cost; /* of what is reserved, and of the energy */
    double gap;  /* no answer that leaves out as much costs less by more than that share */
    bool proven;
    int columns, nodes_visited; /* of the programme */
};

/* Can the option end in time when it starts in slot `start`? */
bool mcp_jobs_can_start(const struct mcp_jobs_problem *problem,
                        const struct mcp_jobs_option *option, int start);
/* Slots that it is active in. */
int mcp_jobs_slots(const struct mcp_jobs_problem *problem, const struct mcp_jobs_option *option);

void mcp_jobs_solve(struct mcp_arena *arena, const struct mcp_jobs_problem *problem,
                    struct mcp_jobs_answer *out);

#endif
