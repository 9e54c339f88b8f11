/* tests/planner/test_ilp.c: small integer programmes against every assignment. */
#include "planner/ilp.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>

enum { COLUMNS = 6, ROWS = 4, VALUES = 4 /* 0 .. 3 */ };

struct programme {
    int cost[COLUMNS];
    int rows[ROWS][COLUMNS];
    int low[ROWS], high[ROWS];
};

static int roll(uint64_t *state, int low, int high)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return low + (int)((*state >> 33) % (uint64_t)(high - low + 1));
}

static struct programme draw(uint64_t seed)
{
    struct programme programme;
    uint64_t state = seed;
    for (int j = 0; j < COLUMNS; j++)
        programme.cost[j] = roll(&state, -9, 9);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLUMNS; j++)
            programme.rows[i][j] = roll(&state, -5, 5);
        programme.low[i] = roll(&state, -12, 6);
        programme.high[i] = programme.low[i] + roll(&state, 0, 9);
    }
    return programme;
}

static bool holds(const struct programme *programme, const int *values)
{
    for (int i = 0; i < ROWS; i++) {
        int sum = 0;
        for (int j = 0; j < COLUMNS; j++)
            sum += programme->rows[i][j] * values[j];
        if (sum < programme->low[i] || sum > programme->high[i])
            return false;
    }
    return true;
}

/* INT32_MAX when nothing holds. */
static int least_cost(const struct programme *programme)
{
    int best = INT32_MAX, values[COLUMNS];
    for (int code = 0; code < 1 << (2 * COLUMNS); code++) {
        int cost = 0;
        for (int j = 0; j < COLUMNS; j++) {
            values[j] = code >> (2 * j) & (VALUES - 1);
            cost += programme->cost[j] * values[j];
        }
        if (cost < best && holds(programme, values))
            best = cost;
    }
    return best;
}

static struct mcp_ilp *write(struct mcp_arena *arena, const struct programme *programme)
{
    struct mcp_ilp *ilp = mcp_ilp_new(arena);
    for (int j = 0; j < COLUMNS; j++)
        cr_assert(mcp_ilp_column(ilp, 0, VALUES - 1, programme->cost[j], true) == j);
    for (int i = 0; i < ROWS; i++) {
        cr_assert(mcp_ilp_row(ilp, programme->low[i], programme->high[i]) == i);
        for (int j = 0; j < COLUMNS; j++)
            mcp_ilp_set(ilp, i, j, programme->rows[i][j]);
    }
    return ilp;
}

Test(ilp, equals_every_assignment)
{
    int feasible = 0;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct programme programme = draw(seed);
        struct mcp_ilp_result result;
        int best = least_cost(&programme), values[COLUMNS];
        mcp_ilp_solve(write(arena, &programme), 100000, &result);
        if (best == INT32_MAX) {
            cr_expect(result.status == MCP_ILP_INFEASIBLE, "seed %d: %d", (int)seed, result.status);
        } else {
            cr_assert(result.status == MCP_ILP_OPTIMAL, "seed %d: %d", (int)seed, result.status);
            cr_expect(fabs(result.objective - best) < 1e-6, "seed %d: %g, best %d", (int)seed,
                      result.objective, best);
            cr_expect(result.bound <= result.objective, "seed %d", (int)seed);
            for (int j = 0; j < COLUMNS; j++)
                values[j] = (int)lround(result.values[j]);
            cr_expect(holds(&programme, values), "seed %d: rows are broken", (int)seed);
            feasible++;
        }
        mcp_arena_free(arena);
    }
    cr_expect(feasible > 20 && feasible < 130, "%d are feasible", feasible);
}

/* n odd weights cannot add up to an even half of an odd sum: only enumeration shows it. */
static struct mcp_ilp *stubborn(struct mcp_arena *arena)
{
    struct mcp_ilp *ilp = mcp_ilp_new(arena);
    int row = mcp_ilp_row(ilp, 25, 25);
    int slack = mcp_ilp_column(ilp, 0, 1000, 1, false);
    mcp_ilp_set(ilp, row, slack, 1);
    for (int j = 0; j < 24; j++)
        mcp_ilp_set(ilp, row, mcp_ilp_column(ilp, 0, 1, 0, true), 2);
    return ilp;
}

Test(ilp, limits_nodes)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_ilp_result whole, part, again;
    struct mcp_ilp *ilp = stubborn(arena);
    mcp_ilp_solve(ilp, 1000000, &whole);
    mcp_ilp_solve(ilp, 1, &part);
    mcp_ilp_solve(ilp, 1000000, &again);
    cr_expect(whole.status == MCP_ILP_OPTIMAL && fabs(whole.objective - 1) < 1e-6, "%g",
              whole.objective);
    cr_expect(part.bound <= whole.objective + 1e-9, "bound %g", part.bound);
    cr_expect(part.nodes <= whole.nodes, "%d nodes", part.nodes);
    cr_expect(again.objective == whole.objective && again.nodes == whole.nodes, "%d nodes, then %d",
              whole.nodes, again.nodes);
    mcp_arena_free(arena);
}

Test(ilp, grows_between_solves)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_ilp *ilp = mcp_ilp_new(arena);
    struct mcp_ilp_result result;
    int x = mcp_ilp_column(ilp, 0, 10, -2, true), y = mcp_ilp_column(ilp, 0, 10, -3, true);
    int row = mcp_ilp_row(ilp, -INFINITY, 7.5);
    mcp_ilp_set(ilp, row, x, 1);
    mcp_ilp_set(ilp, row, y, 2);
    mcp_ilp_solve(ilp, 1000, &result);
    cr_expect(fabs(result.objective + 14) < 1e-9, "%g", result.objective);
    row = mcp_ilp_row(ilp, -INFINITY, 3);
    mcp_ilp_set(ilp, row, x, 1);
    mcp_ilp_solve(ilp, 1000, &result);
    cr_expect(fabs(result.objective + 12) < 1e-9, "%g", result.objective);
    row = mcp_ilp_row(ilp, 9, INFINITY);
    mcp_ilp_set(ilp, row, x, 1);
    mcp_ilp_solve(ilp, 1000, &result);
    cr_expect(result.status == MCP_ILP_INFEASIBLE, "%d", result.status);
    mcp_arena_free(arena);
}

Test(ilp, survives_misuse)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_ilp *ilp = mcp_ilp_new(arena);
    struct mcp_ilp_result result;
    int x = mcp_ilp_column(ilp, 1, 5, 1, true), row = mcp_ilp_row(ilp, 0, 9);
    mcp_ilp_set(ilp, row, x, 1);
    mcp_ilp_set(ilp, row, x, 1); /* twice: GLPK calls this a fatal error */
    mcp_ilp_solve(ilp, 1000, &result);
    cr_expect(result.status == MCP_ILP_UNKNOWN, "%d", result.status);
    ilp = mcp_ilp_new(arena);
    mcp_ilp_column(ilp, 1.5, 5, 1, true);
    mcp_ilp_solve(ilp, 1000, &result);
    cr_expect(result.status == MCP_ILP_OPTIMAL && fabs(result.objective - 2) < 1e-9, "%g",
              result.objective);
    mcp_arena_free(arena);
}
