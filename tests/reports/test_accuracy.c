/* tests/reports/test_accuracy.c: statistics of errors, by hand. */
#include "core/text.h"
#include "reports/accuracy.h"
#include "reports/accuracy_memory.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* The published runs this model is judged by; the limits are what users rely on. */
struct case_limit {
    char name[48];
    char file[24], set[24];
    double mean, median, least_inside;
};

ParameterizedTestParameters(accuracy, published_runs)
{
    static struct case_limit cases[] = {
        {"dense runs with full layout and time", "runs.csv", "dense_trust_a", 0.045, 0.023, 0.8},
        {"all complete dense runs", "runs.csv", "dense", 0.052, 0.032, 0.8},
        {"runs with experts", "runs.csv", "experts", 0.12, 0.085, 0.8},
        {"small runs of one node", "runs-small.csv", "dense", 0.075, 0.06, 0.8},
    };
    return cr_make_param_array(struct case_limit, cases, sizeof cases / sizeof *cases);
}

static const char *shared_file(struct mcp_arena *arena, const char *name)
{
    const char *shared = getenv("MCP_SHARED");
    const char *path = mcp_format(arena, "%s/measured/%s", shared ? shared : "../shared", name);
    if (access(path, R_OK) == 0)
        return path;
    fprintf(stderr, "%s is not here: not tested\n", path);
    return NULL;
}

static const struct mcp_accuracy_set *find_set(const char *key)
{
    for (int i = 0; i < mcp_num_accuracy_sets; i++)
        if (strcmp(mcp_accuracy_sets[i].key, key) == 0)
            return &mcp_accuracy_sets[i];
    return NULL;
}

ParameterizedTest(struct case_limit *c, accuracy, published_runs)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_accuracy_options options = {.path = shared_file(arena, c->file)};
    struct mcp_accuracy accuracy;
    struct mcp_error err = {{0}};
    if (options.path != NULL) {
        cr_assert(eq(int, (int)mcp_accuracy_measure(arena, &options, &accuracy, &err), MCP_OK),
                  "%s", err.text);
        const struct mcp_accuracy_stats s =
            mcp_accuracy_stats(arena, &accuracy, find_set(c->set)->has, NULL, NULL);
        cr_expect(s.rows > 0 && s.mean <= c->mean, "%s: mean %.4f", c->name, s.mean);
        cr_expect(s.median <= c->median, "%s: median %.4f", c->name, s.median);
        cr_expect(s.coverage_frac >= c->least_inside, "%s: inside %.2f", c->name, s.coverage_frac);
        cr_expect(s.half_width <= 2.5 * s.median, "%s: +-%.3f", c->name, s.half_width);
        cr_expect(accuracy.num_fitted <= 64, "%d fitted numbers", accuracy.num_fitted);
    }
    mcp_arena_free(arena);
}

Test(accuracy, published_memory_is_met_to_a_few_percent)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_accuracy_options options = {.path = shared_file(arena, "memory.csv")};
    struct mcp_memory_accuracy memory;
    struct mcp_error err = {{0}};
    if (options.path != NULL) {
        cr_assert(eq(int, (int)mcp_memory_measure(arena, &options, &memory, &err), MCP_OK), "%s",
                  err.text);
        const struct mcp_accuracy_stats s = mcp_memory_stats(arena, &memory, "max_allocated", NULL);
        cr_expect(s.rows > 0 && s.mean <= 0.02, "mean %.4f of %d", s.mean, s.rows);
        for (int i = 0; i < memory.num_rows; i++)
            if (memory.rows[i].reason == NULL && mcp_same(memory.rows[i].quantity, "max_allocated"))
                cr_expect(memory.rows[i].error_frac >= -0.1, "%s", memory.rows[i].id);
    }
    mcp_arena_free(arena);
}
