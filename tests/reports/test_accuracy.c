/* tests/reports/test_accuracy.c: statistics of errors, by hand. */
#include "reports/accuracy.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>

struct case_stats {
    char name[40];
    int count;
    double errors[5], widths[5];
    double mean, median, p90, max, bias, coverage;
};

ParameterizedTestParameters(accuracy, stats)
{
    static struct case_stats cases[] = {
        {"one row", 1, {-0.2}, {0.1}, 0.2, 0.2, 0.2, 0.2, -0.2, 0},
        {"signs matter to the bias alone",
         3,
         {0.1, -0.1, 0.4},
         {0.2, 0.2, 0.2},
         0.2,
         0.1,
         0.34,
         0.4,
         0.1,
         2.0 / 3},
        {"quantiles lie between rows",
         4,
         {0.1, 0.2, 0.3, 0.4},
         {1, 1, 1, 0},
         0.25,
         0.25,
         0.37,
         0.4,
         0.25,
         0.75},
        {"the edge of an interval is inside",
         2,
         {0.5, -0.5},
         {0.5, 0.25},
         0.5,
         0.5,
         0.5,
         0.5,
         0,
         0.5},
    };
    return cr_make_param_array(struct case_stats, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_stats *c, accuracy, stats)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_accuracy_stats s = mcp_error_stats(arena, c->errors, c->widths, c->count);
    cr_expect(eq(int, s.rows, c->count), "%s", c->name);
    cr_expect(epsilon_eq(dbl, s.mean, c->mean, 1e-12), "%s", c->name);
    cr_expect(epsilon_eq(dbl, s.median, c->median, 1e-12), "%s", c->name);
    cr_expect(epsilon_eq(dbl, s.p90, c->p90, 1e-12), "%s", c->name);
    cr_expect(epsilon_eq(dbl, s.max, c->max, 1e-12), "%s", c->name);
    cr_expect(epsilon_eq(dbl, s.bias, c->bias, 1e-12), "%s", c->name);
    cr_expect(epsilon_eq(dbl, s.coverage_frac, c->coverage, 1e-12), "%s", c->name);
    mcp_arena_free(arena);
}

Test(accuracy, of_nothing_is_not_a_number)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_accuracy_stats s = mcp_error_stats(arena, NULL, NULL, 0);
    cr_expect(eq(int, s.rows, 0));
    cr_expect(isnan(s.mean) && isnan(s.median));
    mcp_arena_free(arena);
}

struct case_tau {
    char name[32];
    double a[4], b[4];
    double tau;
};

ParameterizedTestParameters(accuracy, kendall_tau)
{
    static struct case_tau cases[] = {
        {"the same order", {1, 2, 3, 4}, {10, 20, 30, 40}, 1},
        {"the opposite order", {1, 2, 3, 4}, {4, 3, 2, 1}, -1},
        {"one pair swapped", {1, 2, 3, 4}, {1, 3, 2, 4}, 4.0 / 6},
        {"ties count for neither", {1, 2, 3, 4}, {1, 1, 1, 1}, 0},
    };
    return cr_make_param_array(struct case_tau, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_tau *c, accuracy, kendall_tau)
{
    cr_expect(epsilon_eq(dbl, mcp_kendall_tau(c->a, c->b, 4), c->tau, 1e-12), "%s", c->name);
}
