/* tests/planner/test_split.c: the inner problem against every split there is. */
#include "planner/split.h"

#include "tests/planner/brute.h"

#include <criterion/criterion.h>
#include <stdlib.h>

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

static const char *describe(struct mcp_arena *arena, struct problem *problem,
                            const struct mcp_split_options *options)
{
    return mcp_format(arena, "%s, limit %lld, below %lld, %d%d%d uneven%d most%d",
                      random_plan_describe(arena, &problem->drawn), (long long)options->limit_bytes,
                      (long long)options->better_than_ns, options->recompute[0],
                      options->recompute[1], options->recompute[2], options->uneven,
                      options->max_recomputed_stages);
}

/* Virtual stages of layers that are not alike, other than dense ones before experts,
 * may be spread uniformly alone: then it is said that nothing is proven. */
static bool expect_partial(struct problem *problem, const struct mcp_split_options *options,
                           const struct mcp_split *split)
{
    struct mcp_split_options uniform = *options;
    uniform.uneven = false;
    int64_t most = brute_best(&problem->brute, &uniform);
    int64_t least = brute_best(&problem->brute, options);
    if (split->proven || problem->drawn.plan.virtual_stages == 1 ||
        problem->drawn.model.kinds[1].num_experts > 0)
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
    struct mcp_arena *arena = mcp_arena_new(); /* prices stay in the other */
    int64_t best = brute_best(brute, options);
    bool found = best < options->better_than_ns;
    const char *text = describe(arena, problem, options);
    mcp_split_best(arena, brute->pricer, &problem->drawn.plan, options, &split);
    if (expect_partial(problem, options, &split)) {
        mcp_arena_free(arena);
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
        cr_expect(brute_fits(brute, &tried, options), "%s: needs %lld", text,
                  (long long)tried.bytes);
    }
    mcp_arena_free(arena);
}

/* GPUs of each pool that hold as much as some split needs there, to the byte or so. */
static void expect_pools(struct problem *problem)
{
    struct brute *brute = &problem->brute;
    const struct mcp_split_options options = all_options();
    for (int i = 1; i < 6 && problem->mixed; i++) {
        const struct tried *tried = &brute->tried[brute->count * (size_t)i / 16];
        for (int pool = 0; pool < 2; pool++)
            problem->pools[pool]->gpu.memory_bytes =
                (int64_t)((double)tried->pool_bytes[pool] / problem->drawn.job.memory_limit_frac) +
                1;
        expect_best(problem, &options);
        problem->pools[i % 2]->gpu.memory_bytes *= 2;
        expect_best(problem, &options);
    }
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
    expect_pools(problem);
}

static void expect_random(int problems, struct brute_kind kind)
{
    uint64_t seed = 1;
    for (int i = 0; i < problems; i++) {
        struct problem problem;
        seed = brute_draw(&problem, seed, &kind);
        expect_answers(&problem);
        mcp_arena_free(problem.brute.arena);
    }
}

Test(split, equals_brute_force)
{
    expect_random(200, (struct brute_kind){.most_layers = 6, .most_splits = 6000});
}

Test(split, equals_brute_force_interleaved)
{
    expect_random(100,
                  (struct brute_kind){.interleaved = true, .most_layers = 12, .most_splits = 6000});
}

Test(split, equals_brute_force_in_two_pools)
{
    expect_random(150, (struct brute_kind){.mixed = true, .most_layers = 6, .most_splits = 3000});
}

Test(split, equals_brute_force_interleaved_in_two_pools)
{
    expect_random(60,
                  (struct brute_kind){
                      .mixed = true, .interleaved = true, .most_layers = 12, .most_splits = 3000});
}
