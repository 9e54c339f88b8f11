/* tests/planner/test_split_ilp.c: what the integer programme says of its answers. */
#include "planner/split_parts.h"
#include "tests/planner/brute.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static const struct mcp_split_options anything = {.limit_bytes = INT64_MAX,
                                                  .better_than_ns = INT64_MAX,
                                                  .recompute = {true, true, true},
                                                  .uneven = true,
                                                  .max_recomputed_stages = -1};

/* By mcp_estimate(), which knows nothing of columns. */
static int64_t exact_ns(struct brute *brute, const struct mcp_column *const *chain)
{
    int p = brute->plan.pipeline_parallel, count = p * brute->plan.virtual_stages, first = 0;
    struct mcp_chunk *chunks = MCP_ARRAY(brute->arena, count, struct mcp_chunk);
    for (int k = 0; k < count; k++) {
        chunks[k] = chain[k % p]->chunks[k / p];
        chunks[k].first_layer = first;
        first += chunks[k].num_layers;
    }
    int64_t time_ns = brute_price(brute, chunks).time_ns;
    mcp_pricer_turn(brute->pricer);
    return time_ns;
}

/* Solves, learns the answer's longest path, and solves again. */
static int expect_below_exact(struct problem *problem, struct mcp_splitter *s)
{
    int p = s->grid.p, solved = 0;
    struct mcp_master master = {0};
    struct mcp_master_result result;
    const struct mcp_column **chains[2] = {MCP_ARRAY(s->arena, p, const struct mcp_column *),
                                           MCP_ARRAY(s->arena, p, const struct mcp_column *)};
    const char *text = random_plan_describe(problem->brute.arena, &problem->drawn);
    if (!mcp_master_bound(s, &master, chains))
        return 0;
    for (int i = 0; i < 4; i++) {
        mcp_master_solve(s, &master, chains[0], &result);
        if (!result.solved)
            break;
        solved++;
        int64_t exact = exact_ns(&problem->brute, chains[0]);
        cr_expect(result.objective_ns <= exact, "%s: GLPK says %lld of %lld", text,
                  (long long)result.objective_ns, (long long)exact);
        cr_expect(mcp_master_ns(s, &master, chains[0]) <= exact, "%s: rows say more", text);
        mcp_master_cut(s, &master, mcp_path_longest(s->arena, s->plan, s->grid.m, chains[0]));
        cr_expect(mcp_master_ns(s, &master, chains[0]) == exact, "%s: the longest path is not",
                  text);
    }
    return solved;
}

static int solve(struct problem *problem)
{
    const struct mcp_plan *plan = &problem->drawn.plan;
    struct mcp_splitter s = {.arena = mcp_arena_new(),
                             .pricer = problem->brute.pricer,
                             .question = &problem->drawn.question,
                             .plan = plan,
                             .options = &anything,
                             .cutoff_ns = INT64_MAX};
    mcp_pricer_turn(s.pricer);
    s.fixed_ns = mcp_step_fixed_ns(s.pricer, plan);
    mcp_layer_times(&s);
    if (plan->virtual_stages > 1)
        mcp_fill_chunk_columns(&s, mcp_chunk_filler_new(&s, -1), false);
    else
        mcp_fill_columns(&s, mcp_filler_new(&s), false);
    int solved = expect_below_exact(problem, &s);
    mcp_arena_free(s.arena);
    return solved;
}

struct case_of {
    struct brute_kind kind;
    int problems;
};

Test(split_ilp, objective_is_never_above_exact)
{
    static const struct case_of cases[] = {
        {{false, false, 16, 1e12}, 120},
        {{false, true, 16, 1e12}, 120},
        {{true, false, 16, 1e12}, 60},
        {{true, true, 16, 1e12}, 60},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int problems = 0;
        for (uint64_t seed = 1; problems < cases[i].problems;) {
            struct problem problem;
            seed = brute_draw(&problem, seed, &cases[i].kind);
            problems += solve(&problem) > 0;
            mcp_arena_free(problem.brute.arena);
        }
    }
}
