/* tests/planner/test_jobs.c: jobs on pools against every way to place them. */
#include "planner/jobs.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>

enum { JOBS = 3, POOLS = 2, SIZES = 2, OPTIONS = JOBS * POOLS * SIZES };

struct drawn {
    struct mcp_jobs_pool pools[POOLS];
    struct mcp_jobs_job jobs[JOBS];
    struct mcp_jobs_option options[OPTIONS];
    struct mcp_jobs_problem problem;
};

static int roll(uint64_t *state, int low, int high)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return low + (int)((*state >> 33) % (uint64_t)(high - low + 1));
}

/* Larger sizes are faster, but not by as much; hours and nodes are small. */
static void draw(struct drawn *d, uint64_t seed)
{
    uint64_t state = seed * 77;
    for (int i = 0; i < POOLS; i++)
        d->pools[i] = (struct mcp_jobs_pool){"pool", roll(&state, 2, 9), 8,
                                             seed % 5 == 0 ? (double)NAN : roll(&state, 1, 9),
                                             1000.0 * roll(&state, 1, 9)};
    for (int i = 0; i < JOBS; i++)
        d->jobs[i] = (struct mcp_jobs_job){
            "job", roll(&state, 0, 2) ? (double)NAN : 3600.0 * roll(&state, 6, 24),
            roll(&state, 1, 3)};
    for (int i = 0; i < OPTIONS; i++) {
        int nodes = roll(&state, 1, 6);
        d->options[i] = (struct mcp_jobs_option){i / (POOLS * SIZES), i / SIZES % POOLS, nodes,
                                                 3600.0 * roll(&state, 20, 60) / (nodes + 1),
                                                 3.6e6 * roll(&state, 0, 20)};
    }
    d->problem = (struct mcp_jobs_problem){POOLS,       JOBS,       OPTIONS,     d->pools,
                                           d->jobs,     d->options, 24 * 3600.0, roll(&state, 1, 3),
                                           (double)NAN, 0.5};
    if (seed % 3 == 0)
        d->problem.power_watts = 1000.0 * roll(&state, 5, 40);
    if (seed % 7 == 0)
        d->pools[1].watts_per_node = (double)NAN;
}

/* A placement: for each job an option or -1, and a start. */
struct placement {
    int option[JOBS], start[JOBS];
};

/* Penalty first, then cost; INFINITY: not possible. */
static double judge(const struct mcp_jobs_problem *p, const struct placement *at, double *cost)
{
    double left_out = 0, watts = 0;
    bool priced =
        !isnan(p->pools[0].price_per_node_hour) && !isnan(p->pools[1].price_per_node_hour);
    *cost = 0;
    for (int j = 0; j < JOBS; j++) {
        if (at->option[j] < 0)
            left_out += p->jobs[j].weight;
        else if (!mcp_jobs_can_start(p, &p->options[at->option[j]], at->start[j]))
            return (double)INFINITY;
        else if (priced)
            *cost += p->options[at->option[j]].energy_joules / 3.6e6 * p->energy_price_per_kwh;
    }
    for (int i = 0; i < POOLS; i++) {
        int most = 0;
        for (int slot = 0; slot < p->slots; slot++) {
            int nodes = 0;
            for (int j = 0; j < JOBS; j++) {
                const struct mcp_jobs_option *o =
                    at->option[j] < 0 ? NULL : &p->options[at->option[j]];
                if (o && o->pool == i && at->start[j] <= slot &&
                    slot < at->start[j] + mcp_jobs_slots(p, o))
                    nodes += o->nodes;
            }
            most = nodes > most ? nodes : most;
        }
        if (most > p->pools[i].most_nodes)
            return (double)INFINITY;
        watts += most > 0 ? most * p->pools[i].watts_per_node : 0;
        *cost += most * (priced ? p->pools[i].price_per_node_hour : p->pools[i].gpus_per_node) *
                 p->horizon_s / 3600;
    }
    return !isnan(p->power_watts) && !(watts <= p->power_watts) ? (double)INFINITY : left_out;
}

static void best_of_all(const struct mcp_jobs_problem *p, double *left_out, double *cost)
{
    enum { CHOICES = 1 + POOLS * SIZES * 3 };
    *left_out = *cost = (double)INFINITY;
    for (int code = 0; code < CHOICES * CHOICES * CHOICES; code++) {
        struct placement at;
        double this_cost;
        for (int j = 0, rest = code; j < JOBS; j++, rest /= CHOICES) {
            int choice = rest % CHOICES - 1;
            at.option[j] = choice < 0 ? -1 : j * POOLS * SIZES + choice % (POOLS * SIZES);
            at.start[j] = choice < 0 ? 0 : choice / (POOLS * SIZES);
        }
        double this_left = judge(p, &at, &this_cost);
        if (this_left < *left_out || (this_left == *left_out && this_cost < *cost)) {
            *left_out = this_left;
            *cost = this_cost;
        }
    }
}

Test(jobs, equals_every_placement)
{
    int complete = 0;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn d;
        struct mcp_jobs_answer answer;
        struct placement at;
        double left_out, cost, got_cost;
        draw(&d, seed);
        mcp_jobs_solve(arena, &d.problem, &answer);
        best_of_all(&d.problem, &left_out, &cost);
        for (int j = 0; j < JOBS; j++) {
            at.option[j] = answer.option[j];
            at.start[j] = answer.start[j];
        }
        double got = judge(&d.problem, &at, &got_cost);
        cr_expect(answer.proven && got == left_out, "seed %d: left out %g, not %g", (int)seed, got,
                  left_out);
        cr_expect(fabs(got_cost - cost) <= 1e-6 * cost && fabs(answer.cost - cost) <= 1e-6 * cost,
                  "seed %d: %g and %g, not %g", (int)seed, got_cost, answer.cost, cost);
        complete += answer.num_left_out == 0;
        mcp_arena_free(arena);
    }
    cr_expect(complete > 20 && complete < 100, "%d of 120 leave nothing out", complete);
}

/* One after the other on the same machines costs half of side by side. */
Test(jobs, slots_let_jobs_follow_each_other)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_jobs_pool pool = {"pool", 8, 8, 10, 1000};
    const struct mcp_jobs_job jobs[2] = {{"a", (double)NAN, 1}, {"b", (double)NAN, 1}};
    const struct mcp_jobs_option options[2] = {{0, 0, 4, 40000, 0}, {1, 0, 4, 40000, 0}};
    struct mcp_jobs_problem problem = {1, 2, 2, &pool, jobs, options, 86400, 1, (double)NAN, 0};
    struct mcp_jobs_answer beside, after;
    mcp_jobs_solve(arena, &problem, &beside);
    problem.slots = 2;
    mcp_jobs_solve(arena, &problem, &after);
    cr_expect(beside.nodes[0] == 8 && after.nodes[0] == 4 && beside.cost == 2 * after.cost);
    cr_expect(after.start[0] != after.start[1]);
    mcp_arena_free(arena);
}

Test(jobs, nothing_to_place)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_jobs_pool pool = {"pool", 8, 8, 10, 1000};
    const struct mcp_jobs_job job = {"a", 100, 1};
    const struct mcp_jobs_option late = {0, 0, 4, 40000, 0};
    struct mcp_jobs_problem problem = {1, 1, 1, &pool, &job, &late, 86400, 1, (double)NAN, 0};
    struct mcp_jobs_answer answer;
    mcp_jobs_solve(arena, &problem, &answer);
    cr_expect(answer.option[0] == -1 && answer.num_left_out == 1 && answer.cost == 0);
    mcp_arena_free(arena);
}
