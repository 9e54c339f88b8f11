/* tests/planner/test_split.c: the inner problem against every split there is. */
#include "planner/split.h"

#include "tests/planner/brute.h"
#include "tests/step/random_plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>

/* --- random problems --- */

struct problem {
    struct random_plan drawn;
    struct brute brute;
};

/* Splits that brute force would look at. */
static double size_of(const struct random_plan *drawn)
{
    const struct mcp_plan *plan = &drawn->plan;
    int p = plan->pipeline_parallel, layers = drawn->model.num_layers;
    double size = 1;
    if (plan->virtual_stages > 1) {
        int rank = (layers + p - 1) / p;
        for (int r = 0; r < p; r++)
            size *= (rank + 1) * (rank + 2) / 2.0;
        return size * (1 + layers % (p * plan->virtual_stages));
    }
    for (int i = 0; i < layers; i++)
        size *= 3;
    for (int i = 1; i < p; i++)
        size *= (double)(layers + 2 - i) / i;
    return size;
}

/* Draws until the plan has chunks as wanted and is small. Returns the next seed. */
static uint64_t draw(struct problem *problem, uint64_t seed, bool interleaved, int most_layers,
                     double most_splits)
{
    struct random_plan *drawn = &problem->drawn;
    struct mcp_refusals refusals;
    for (;; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        random_plan_draw(arena, seed, drawn);
        struct mcp_plan *plan = &drawn->plan;
        int fewest = plan->pipeline_parallel * plan->virtual_stages;
        if (drawn->model.num_layers > most_layers)
            drawn->model.num_layers = most_layers;
        if ((plan->virtual_stages > 1) == interleaved && drawn->model.num_layers >= fewest &&
            size_of(drawn) <= most_splits) {
            mcp_plan_uniform_chunks(arena, plan, drawn->model.num_layers, MCP_RECOMPUTE_NONE);
            if (mcp_legal(arena, &drawn->question, plan, &refusals)) {
                problem->brute =
                    (struct brute){.arena = arena,
                                   .pricer = mcp_pricer_new(arena, &drawn->question),
                                   .plan = *plan,
                                   .num_layers = drawn->model.num_layers,
                                   .prediction = MCP_NEW(arena, struct mcp_prediction)};
                return seed + 1;
            }
        }
        mcp_arena_free(arena);
    }
}

static struct mcp_split_options all_options(void)
{
    return (struct mcp_split_options){.limit_bytes = INT64_MAX,
                                      .better_than_ns = INT64_MAX,
                                      .recompute = {true, true, true},
                                      .uneven = true,
                                      .max_recomputed_stages = -1};
}

static int by_bytes(const void *a, const void *b)
{
    const struct tried *x = a, *y = b;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static const char *describe(struct problem *problem, const struct mcp_split_options *options)
{
    return mcp_format(problem->brute.arena, "%s, limit %lld, below %lld, %d%d%d uneven%d most%d",
                      random_plan_describe(problem->brute.arena, &problem->drawn),
                      (long long)options->limit_bytes, (long long)options->better_than_ns,
                      options->recompute[0], options->recompute[1], options->recompute[2],
                      options->uneven, options->max_recomputed_stages);
}

/* Virtual stages of layers that are not alike may be spread uniformly alone: then it
 * is said that nothing is proven. */
static bool expect_partial(struct problem *problem, const struct mcp_split_options *options,
                           const struct mcp_split *split)
{
    struct mcp_split_options uniform = *options;
    uniform.uneven = false;
    int64_t most = brute_best(&problem->brute, &uniform);
    int64_t least = brute_best(&problem->brute, options);
    if (split->proven || problem->drawn.plan.virtual_stages == 1 ||
        problem->drawn.model.num_kinds == 1)
        return false;
    cr_expect(split->found || most >= options->better_than_ns, "uniform is better");
    cr_expect(!split->found || (split->time_ns <= most && split->time_ns >= least), "%lld",
              (long long)split->time_ns);
    cr_expect(split->bound_ns <= least, "bound");
    return true;
}

/* The answer is brute force's; what is said of it is true. */
static void expect_best(struct problem *problem, const struct mcp_split_options *options)
{
    struct brute *brute = &problem->brute;
    struct mcp_split split;
    struct mcp_mark mark = mcp_arena_mark(brute->arena);
    int64_t best = brute_best(brute, options);
    bool found = best < options->better_than_ns;
    const char *text = describe(problem, options);
    mcp_split_best(brute->arena, brute->pricer, &problem->drawn.plan, options, &split);
    if (expect_partial(problem, options, &split)) {
        mcp_arena_rewind(brute->arena, mark);
        return;
    }
    cr_expect(split.found == found, "%s: found %d", text, split.found);
    cr_expect(split.proven, "%s: not proven", text);
    cr_expect(best == INT64_MAX || split.bound_ns <= best, "%s: bound %lld above %lld", text,
              (long long)split.bound_ns, (long long)best);
    if (best == INT64_MAX && options->better_than_ns == INT64_MAX)
        cr_expect(split.bound_ns == INT64_MAX, "%s: bound %lld of nothing", text,
                  (long long)split.bound_ns);
    if (split.found && found) {
        struct tried tried = brute_price(brute, split.chunks);
        cr_expect(split.time_ns == best, "%s: %lld, best %lld", text, (long long)split.time_ns,
                  (long long)best);
        cr_expect(tried.time_ns == split.time_ns, "%s: says %lld, takes %lld", text,
                  (long long)split.time_ns, (long long)tried.time_ns);
        cr_expect(tried.bytes <= options->limit_bytes, "%s: needs %lld", text,
                  (long long)tried.bytes);
    }
    mcp_arena_rewind(brute->arena, mark);
}

/* One enumeration serves several questions. */
static void expect_answers(struct problem *problem)
{
    struct brute *brute = &problem->brute;
    struct mcp_split_options options = all_options();
    brute_try_all(brute);
    qsort(brute->tried, brute->count, sizeof *brute->tried, by_bytes);
    expect_best(problem, &options);
    for (int i = 1; i < 4; i++) { /* as much as some split needs, to the byte */
        options.limit_bytes = brute->tried[brute->count * (size_t)i / 8].bytes;
        expect_best(problem, &options);
    }
    options.uneven = false;
    expect_best(problem, &options);
    options.uneven = true;
    options.max_recomputed_stages = 1;
    expect_best(problem, &options);
    options.max_recomputed_stages = -1;
    options.recompute[MCP_RECOMPUTE_SELECTIVE] = false;
    expect_best(problem, &options);
    options.better_than_ns = brute_best(brute, &options);
    expect_best(problem, &options);
    if (options.better_than_ns < INT64_MAX) {
        options.better_than_ns++;
        expect_best(problem, &options);
    }
    options = all_options();
    options.limit_bytes = brute->tried[0].bytes;
    expect_best(problem, &options);
    options.limit_bytes--;
    expect_best(problem, &options);
}

static void expect_random(bool interleaved, int problems, int most_layers, double most_splits)
{
    uint64_t seed = 1;
    for (int i = 0; i < problems; i++) {
        struct problem problem;
        seed = draw(&problem, seed, interleaved, most_layers, most_splits);
        expect_answers(&problem);
        mcp_arena_free(problem.brute.arena);
    }
}

Test(split, equals_brute_force)
{
    expect_random(false, 200, 6, 6000);
}

Test(split, equals_brute_force_interleaved)
{
    expect_random(true, 100, 12, 6000);
}
