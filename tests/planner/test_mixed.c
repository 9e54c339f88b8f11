/* tests/planner/test_mixed.c: which of two kinds of GPUs on which stage. */
#include "planner/halves.h"
#include "step/build.h"
#include "step/verify.h"
#include "tests/planner/brute.h"
#include "tests/planner/question.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* --- the search against every split in both orders of the pools --- */

/* Everything pinned but the placement and the split. */
static struct mcp_plan_space pinned_space(const struct mcp_plan *plan)
{
    struct mcp_plan_space space = mcp_space_default();
    for (int knob = 0; knob < MCP_NUM_KNOBS; knob++)
        if (knob != MCP_KNOB_RECOMPUTE)
            mcp_space_pin(&space, (enum mcp_knob)knob, mcp_knob_value((enum mcp_knob)knob, plan));
    space.pipeline_rule = space.batch_rule = false;
    return space;
}

/* As a search asks its stack to. */
static struct mcp_overlap overlap_of(const struct mcp_stack *stack)
{
    return (struct mcp_overlap){.tensor = stack->tensor_overlap_frac > 0,
                                .data = stack->data_overlap_frac > 0,
                                .pipeline = stack->pipeline_overlap_frac > 0,
                                .expert = stack->expert_overlap_frac > 0,
                                .gather = stack->data_overlap_frac > 0,
                                .context = true};
}

/* The stages of the pool that comes first now go last. */
static const int *turned(struct mcp_arena *arena, const struct mcp_plan *plan)
{
    int p = plan->pipeline_parallel, count = 0, *turned = MCP_ARRAY(arena, p, int);
    while (plan->stage_pool[count] == plan->stage_pool[0])
        count++;
    for (int r = 0; r < p; r++)
        turned[r] = plan->stage_pool[(r + count) % p];
    return turned;
}

/* GPUs that hold what some split needs, but not all of them. */
static void limit_memory(struct problem *problem, uint64_t seed)
{
    const struct brute *brute = &problem->brute;
    const struct tried *tried = &brute->tried[brute->count * (seed % 8) / 8];
    for (int pool = 0; pool < 2; pool++)
        problem->pools[pool]->gpu.memory_bytes =
            (int64_t)((double)tried->pool_bytes[pool] * (pool == (int)(seed / 8 % 2) ? 1.02 : 1) /
                      problem->drawn.job.memory_limit_frac) +
            1;
}

static int64_t best_in_both_orders(struct problem *problem, uint64_t seed)
{
    const struct mcp_split_options anything = {.limit_bytes = INT64_MAX,
                                               .recompute = {true, true, true},
                                               .uneven = true,
                                               .max_recomputed_stages = -1};
    struct brute *brute = &problem->brute;
    brute_try_all(brute);
    limit_memory(problem, seed);
    int64_t best = brute_best(brute, &anything);
    brute->plan.stage_pool = turned(brute->arena, &brute->plan);
    brute->count = 0;
    brute_try_all(brute);
    int64_t other = brute_best(brute, &anything);
    return other < best ? other : best;
}

static void expect_placed(struct problem *problem, uint64_t seed)
{
    struct mcp_plan *plan = &problem->brute.plan;
    const struct mcp_search_options options = {.top = 1, .num_threads = 1};
    struct mcp_answer answer;
    plan->overlap = overlap_of(&problem->drawn.stack);
    int64_t best = best_in_both_orders(problem, seed);
    const struct mcp_plan_space space = pinned_space(plan);
    const char *text = random_plan_describe(problem->brute.arena, &problem->drawn);
    mcp_search(problem->brute.arena, &problem->drawn.question, &space, &options, &answer);
    cr_expect(answer.count == (best < INT64_MAX), "%s: seed %llu: found %d", text,
              (unsigned long long)seed, answer.count);
    if (answer.count == 0 || best == INT64_MAX)
        return;
    int64_t time_ns = llround(answer.found[0].iteration_s * 1e9);
    cr_expect(time_ns == best, "%s: seed %llu: %lld, best %lld", text, (unsigned long long)seed,
              (long long)time_ns, (long long)best);
    cr_expect(answer.record.proven_optimal, "%s: not proven", text);
}

Test(mixed, stages_lie_where_brute_force_puts_them)
{
    const struct brute_kind kind = {.mixed = true, .most_layers = 6, .most_splits = 3000};
    for (uint64_t seed = 1, problems = 0; problems < 120; problems++) {
        struct problem problem;
        seed = brute_draw(&problem, seed, &kind);
        expect_placed(&problem, seed);
        mcp_arena_free(problem.brute.arena);
    }
}

/* --- a real one --- */

static void read_again(struct loaded *l, const struct mcp_plan *plan, struct mcp_plan *out)
{
    struct mcp_error err = {""};
    struct mcp_json *json = mcp_json_new_object(l->arena);
    mcp_plan_to_json(plan, json);
    cr_assert(mcp_plan_from_json(l->arena, json, out, &err) == MCP_OK, "%s", err.text);
}

static void expect_runs(struct loaded *l, const struct mcp_found *found)
{
    struct mcp_error err = {""};
    struct mcp_plan again;
    struct mcp_program program;
    struct mcp_refusals refusals;
    struct mcp_pricer *pricer = mcp_pricer_new(l->arena, &l->question);
    struct mcp_prediction *p = MCP_NEW(l->arena, struct mcp_prediction);
    read_again(l, &found->plan, &again);
    cr_expect(mcp_legal(l->arena, &l->question, &again, &refusals));
    mcp_estimate(pricer, &again, p);
    cr_expect(p->fits);
    cr_expect(p->iteration_s == found->iteration_s, "%.9f, again %.9f", found->iteration_s,
              p->iteration_s);
    for (int r = 0; r < again.pipeline_parallel; r++)
        cr_expect(mcp_memory_total(&p->stages[r].memory) <=
                  mcp_stage_limit_bytes(pricer, &again, r));
    mcp_program_build(l->arena, &l->question, &again, &program);
    cr_expect(mcp_program_verify(l->arena, &program, &err) == MCP_OK, "%s", err.text);
}

static int layers_on(const struct mcp_plan *plan, int pool)
{
    int layers = 0;
    for (int k = 0; k < plan->pipeline_parallel * plan->virtual_stages; k++)
        if (plan->stage_pool[k % plan->pipeline_parallel] == pool)
            layers += plan->chunks[k].num_layers;
    return layers;
}

struct expected {
    const char cluster[40];
    int fast; /* pool with the faster GPUs */
};

/* 8 nodes of A100 and 8 of H100: better than either, in either order. */
Test(mixed, both_halves_beat_each)
{
    static const struct expected cases[] = {{"dgx-a100:8+dgx-h100:8", 1},
                                            {"dgx-h100:8+dgx-a100:8", 0}};
    int64_t times[2];
    for (int i = 0; i < 2; i++) {
        struct loaded l;
        struct mcp_answer answer;
        struct mcp_halves halves;
        struct mcp_plan_space space = mcp_space_default();
        const struct mcp_search_options options = {.top = 1};
        load_question(&l, "llama-3.1-70b", cases[i].cluster, 512, 4096);
        mcp_space_pin(&space, MCP_KNOB_CONTEXT, 1);
        mcp_space_pin(&space, MCP_KNOB_ZERO_STAGE, 1);
        mcp_search(l.arena, &l.question, &space, &options, &answer);
        mcp_halves(l.arena, &l.question, &space, &options, &halves);
        cr_assert(answer.count == 1 && answer.record.proven_optimal);
        times[i] = llround(answer.found[0].iteration_s * 1e9);
        for (int half = 0; half < 2; half++)
            cr_expect(halves.items[half].found &&
                      halves.items[half].best.iteration_s > 1.2 * answer.found[0].iteration_s);
        cr_expect(halves.fastest == cases[i].fast);
        cr_expect(layers_on(&answer.found[0].plan, cases[i].fast) >
                  2 * layers_on(&answer.found[0].plan, !cases[i].fast));
        expect_runs(&l, &answer.found[0]);
        mcp_arena_free(l.arena);
    }
    cr_expect(times[0] == times[1], "%lld, the other way round %lld", (long long)times[0],
              (long long)times[1]);
}

/* --- halves --- */

Test(mixed, halves_are_of_mixed_clusters_and_of_time)
{
    struct loaded l;
    struct mcp_halves halves;
    struct mcp_plan_space space = mcp_space_default();
    struct mcp_search_options options = {.top = 1};
    load_question(&l, "llama-3.1-8b", "dgx-h100:1", 64, 4096);
    mcp_halves(l.arena, &l.question, &space, &options, &halves);
    cr_expect(halves.count == 0 && mcp_halves_text(l.arena, &halves, NULL) == NULL);
    mcp_arena_free(l.arena);
    load_question(&l, "llama-3.1-8b", "dgx-a100:1+dgx-h100:1", 64, 4096);
    options.objective = MCP_OBJECTIVE_MEMORY;
    mcp_halves(l.arena, &l.question, &space, &options, &halves);
    cr_expect(halves.count == 0);
    mcp_arena_free(l.arena);
}

struct said {
    double alone_s[2]; /* 0: no plan */
    double together_s; /* 0: no plan */
    const char text[160];
};

Test(mixed, halves_are_said_plainly)
{
    static const struct said cases[] = {
        {{4, 2},
         1,
         "better than any part: 3 nodes of slow alone take 4.00 s (+300.0 %), 1 node of "
         "fast alone takes 2.00 s (+100.0 %)"},
        {{4, 0}, 1, "1 node of fast alone has no plan that fits"},
        {{4, 2},
         3,
         "1 node of fast alone takes 2.00 s: the other nodes do not pay, all together "
         "take 3.00 s, of which"},
        {{4, 0}, 0, "3 nodes of slow alone take 4.00 s: the other nodes do not pay, as no plan"},
    };
    struct mcp_arena *arena = mcp_arena_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mcp_halves halves = {.count = 2, .fastest = cases[i].alone_s[1] > 0};
        struct mcp_prediction *together = MCP_NEW(arena, struct mcp_prediction);
        together->iteration_s = cases[i].together_s;
        for (int half = 0; half < 2; half++) {
            halves.items[half].found = cases[i].alone_s[half] > 0;
            halves.items[half].best.iteration_s = cases[i].alone_s[half];
            halves.items[half].cluster.name = half == 0 ? "slow" : "fast";
            halves.items[half].cluster.num_nodes = half == 0 ? 3 : 1;
        }
        const char *text =
            mcp_halves_text(arena, &halves, cases[i].together_s > 0 ? together : NULL);
        cr_expect(text != NULL && strstr(text, cases[i].text) != NULL, "%s", text);
    }
    mcp_arena_free(arena);
}
