/* planner/jobs.c: the integer programme of jobs on pools. */
#include "planner/jobs.h"

#include "planner/ilp.h"

#include <math.h>

enum { MOST_NODES = 20000 }; /* of the solver's tree: a limit that never varies */

/* All costs together make 100 at most; a penalty is 200 at least. */
static const double cost_scale = 100, penalty_scale = 200;

struct column {
    int option, start;
};

struct writer {
    const struct mcp_jobs_problem *problem;
    struct mcp_ilp *ilp;
    struct column *columns; /* of z: the first ones, from 0 */
    int num_columns;
    int first_pool, first_job; /* of N, e */
    int *job_rows;             /* [num_jobs] */
    int *slot_rows;            /* [num_pools][slots] */
    bool priced;
    double unit; /* cost of 1 in the programme */
};

int mcp_jobs_slots(const struct mcp_jobs_problem *problem, const struct mcp_jobs_option *option)
{
    double slots = ceil(option->time_s * problem->slots / problem->horizon_s - 1e-9);
    return slots < 1 ? 1 : slots > problem->slots ? problem->slots + 1 : (int)slots;
}

bool mcp_jobs_can_start(const struct mcp_jobs_problem *problem,
                        const struct mcp_jobs_option *option, int start)
{
    double deadline_s = problem->jobs[option->job].deadline_s;
    double end_s = start * problem->horizon_s / problem->slots + option->time_s;
    const struct mcp_jobs_pool *pool = &problem->pools[option->pool];
    bool powered = isnan(problem->power_watts) || !isnan(pool->watts_per_node);
    return powered && option->nodes <= pool->most_nodes &&
           start + mcp_jobs_slots(problem, option) <= problem->slots && !(end_s > deadline_s);
}

static double hours(const struct mcp_jobs_problem *problem)
{
    return problem->horizon_s / 3600;
}

/* Of one node for all the horizon. */
static double node_cost(const struct writer *w, int pool)
{
    const struct mcp_jobs_pool *p = &w->problem->pools[pool];
    return (w->priced ? p->price_per_node_hour : p->gpus_per_node) * hours(w->problem);
}

/* Unknown energy costs nothing; the caller says so. */
static double energy_cost(const struct writer *w, const struct mcp_jobs_option *option)
{
    if (!w->priced || isnan(option->energy_joules))
        return 0;
    return option->energy_joules / 3.6e6 * w->problem->energy_price_per_kwh;
}

static void set_unit(struct writer *w)
{
    const struct mcp_jobs_problem *problem = w->problem;
    double most = 0;
    w->priced = true;
    for (int i = 0; i < problem->num_pools; i++)
        w->priced = w->priced && !isnan(problem->pools[i].price_per_node_hour);
    for (int i = 0; i < problem->num_pools; i++)
        most += node_cost(w, i) * problem->pools[i].most_nodes;
    for (int i = 0; i < problem->num_options; i++)
        most += energy_cost(w, &problem->options[i]);
    w->unit = most > 0 ? most / cost_scale : 1;
}

static void add_rows(struct mcp_arena *arena, struct writer *w)
{
    const struct mcp_jobs_problem *problem = w->problem;
    w->job_rows = MCP_ARRAY(arena, problem->num_jobs + 1, int);
    w->slot_rows = MCP_ARRAY(arena, problem->num_pools * problem->slots + 1, int);
    for (int i = 0; i < problem->num_jobs; i++)
        w->job_rows[i] = mcp_ilp_row(w->ilp, 1, 1);
    for (int i = 0; i < problem->num_pools * problem->slots; i++)
        w->slot_rows[i] = mcp_ilp_row(w->ilp, -(double)INFINITY, 0);
}

/* A pool's nodes are counted in thousandths of what there is. */
static double pool_share(const struct mcp_jobs_pool *pool, int nodes)
{
    return 1000.0 * nodes / pool->most_nodes;
}

static void add_option(struct writer *w, int index, int start)
{
    const struct mcp_jobs_problem *problem = w->problem;
    const struct mcp_jobs_option *option = &problem->options[index];
    double share = pool_share(&problem->pools[option->pool], option->nodes);
    int column = mcp_ilp_column(w->ilp, 0, 1, energy_cost(w, option) / w->unit, true);
    int end = start + mcp_jobs_slots(problem, option);
    w->columns[w->num_columns++] = (struct column){index, start};
    mcp_ilp_set(w->ilp, w->job_rows[option->job], column, 1);
    for (int slot = start; slot < end; slot++)
        mcp_ilp_set(w->ilp, w->slot_rows[option->pool * problem->slots + slot], column, share);
}

static void add_options(struct mcp_arena *arena, struct writer *w)
{
    const struct mcp_jobs_problem *problem = w->problem;
    w->columns = MCP_ARRAY(arena, problem->num_options * problem->slots + 1, struct column);
    for (int i = 0; i < problem->num_options; i++)
        for (int start = 0; start < problem->slots; start++)
            if (mcp_jobs_can_start(problem, &problem->options[i], start))
                add_option(w, i, start);
}

/* N as a share of what there is; follows from z, so it need not be integer. */
static void add_pools(struct writer *w)
{
    const struct mcp_jobs_problem *problem = w->problem;
    bool capped = !isnan(problem->power_watts);
    int power = capped ? mcp_ilp_row(w->ilp, -(double)INFINITY, 1000) : 0;
    w->first_pool = w->num_columns;
    for (int i = 0; i < problem->num_pools; i++) {
        const struct mcp_jobs_pool *pool = &problem->pools[i];
        double cost = node_cost(w, i) * pool->most_nodes / w->unit;
        int column = mcp_ilp_column(w->ilp, 0, 1, cost, false);
        for (int slot = 0; slot < problem->slots; slot++)
            mcp_ilp_set(w->ilp, w->slot_rows[i * problem->slots + slot], column, -1000);
        if (capped && !isnan(pool->watts_per_node))
            mcp_ilp_set(w->ilp, power, column,
                        1000 * pool->watts_per_node * pool->most_nodes / problem->power_watts);
    }
}

static void add_left_out(struct writer *w)
{
    const struct mcp_jobs_problem *problem = w->problem;
    w->first_job = w->first_pool + problem->num_pools;
    for (int i = 0; i < problem->num_jobs; i++) {
        double penalty = penalty_scale * problem->jobs[i].weight;
        mcp_ilp_set(w->ilp, w->job_rows[i], mcp_ilp_column(w->ilp, 0, 1, penalty, true), 1);
    }
}

/* The nodes that a pool needs for what was chosen: the most of any slot. */
static int reserved(const struct mcp_jobs_problem *problem, const struct mcp_jobs_answer *answer,
                    int pool)
{
    int most = 0;
    for (int slot = 0; slot < problem->slots; slot++) {
        int nodes = 0;
        for (int job = 0; job < problem->num_jobs; job++) {
            if (answer->option[job] < 0)
                continue;
            const struct mcp_jobs_option *option = &problem->options[answer->option[job]];
            int end = answer->start[job] + mcp_jobs_slots(problem, option);
            if (option->pool == pool && answer->start[job] <= slot && slot < end)
                nodes += option->nodes;
        }
        most = nodes > most ? nodes : most;
    }
    return most;
}

static void read_answer(const struct writer *w, const struct mcp_ilp_result *result,
                        struct mcp_jobs_answer *out)
{
    const struct mcp_jobs_problem *problem = w->problem;
    bool found = result->status == MCP_ILP_OPTIMAL || result->status == MCP_ILP_FEASIBLE;
    for (int i = 0; found && i < w->num_columns; i++) {
        const struct mcp_jobs_option *option = &problem->options[w->columns[i].option];
        if (result->values[i] > 0.5) {
            out->option[option->job] = w->columns[i].option;
            out->start[option->job] = w->columns[i].start;
        }
    }
    for (int i = 0; i < problem->num_jobs; i++) {
        out->num_left_out += out->option[i] < 0;
        if (out->option[i] >= 0)
            out->cost += energy_cost(w, &problem->options[out->option[i]]);
    }
    for (int i = 0; i < problem->num_pools; i++) {
        out->nodes[i] = reserved(problem, out, i);
        out->cost += out->nodes[i] * node_cost(w, i);
    }
    out->proven = result->status == MCP_ILP_OPTIMAL;
    out->gap = out->proven ? 0 : found ? 1 - result->bound / result->objective : 1;
}

void mcp_jobs_solve(struct mcp_arena *arena, const struct mcp_jobs_problem *problem,
                    struct mcp_jobs_answer *out)
{
    struct writer w = {.problem = problem, .ilp = mcp_ilp_new(arena)};
    struct mcp_ilp_result result;
    *out = (struct mcp_jobs_answer){
        .option = MCP_ARRAY(arena, problem->num_jobs + 1, int),
        .start = MCP_ARRAY(arena, problem->num_jobs + 1, int),
        .nodes = MCP_ARRAY(arena, problem->num_pools + 1, int),
    };
    for (int i = 0; i < problem->num_jobs; i++)
        out->option[i] = -1;
    set_unit(&w);
    add_rows(arena, &w);
    add_options(arena, &w);
    add_pools(&w);
    add_left_out(&w);
    mcp_ilp_solve(w.ilp, MOST_NODES, &result);
    read_answer(&w, &result, out);
    out->priced = w.priced;
    out->columns = w.first_job + problem->num_jobs;
    out->nodes_visited = result.nodes;
}
