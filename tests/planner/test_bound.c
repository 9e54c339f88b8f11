/* tests/planner/test_bound.c: no split is faster than the bound or fits where it says none does. */
#include "core/text.h"
#include "planner/bound.h"
#include "tests/planner/random_split.h"
#include "tests/step/random_plan.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>

struct tally {
    int compared, above, refuted, pipelines, interleaved, zero, context, experts;
    double gap; /* of uniform plans without recompute */
    int gaps;
};

static void compare(struct mcp_arena *arena, const struct mcp_question *question,
                    struct mcp_pricer *pricer, struct mcp_plan plan, uint64_t *dice,
                    struct tally *tally)
{
    struct mcp_floor floor;
    const bool all[MCP_NUM_RECOMPUTES] = {true, true, true};
    struct mcp_prediction *exact = MCP_NEW(arena, struct mcp_prediction);
    int64_t bound = mcp_bound_ns(pricer, &plan);
    for (int i = 0; i < 4; i++) {
        random_split_draw(arena, dice, question->model->num_layers, &plan);
        mcp_estimate(pricer, &plan, exact);
        int64_t time = llround(exact->iteration_s * 1e9);
        mcp_floor_load(pricer, &plan, all, MCP_FLOOR_ALL, &floor);
        mcp_floor_limit(&floor, question, exact->peak_memory_bytes);
        bool refuted = mcp_floor_refute(&floor) != NULL;
        int64_t within = mcp_floor_ns(&floor);
        bool reached = mcp_floor_reaches(&floor, (double)time);
        tally->compared++;
        tally->above += bound > time || within > time || !reached;
        tally->refuted += refuted;
        if (bound > time || within > time || refuted || !reached)
            fprintf(stderr,
                    "bound %lld, within memory %lld, exact %lld, refuted %d: p %d v %d m %lld\n",
                    (long long)bound, (long long)within, (long long)time, refuted,
                    plan.pipeline_parallel, plan.virtual_stages,
                    (long long)mcp_num_microbatches(&plan, question->job));
    }
    mcp_plan_uniform_chunks(arena, &plan, question->model->num_layers, MCP_RECOMPUTE_NONE);
    mcp_estimate(pricer, &plan, exact);
    tally->gap += 1 - (double)bound * 1e-9 / exact->iteration_s;
    tally->gaps++;
    tally->pipelines += plan.pipeline_parallel > 1;
    tally->interleaved += plan.virtual_stages > 1;
    tally->zero += plan.zero_stage > 1;
    tally->context += plan.context_parallel > 1;
    tally->experts += plan.expert_parallel > 1;
}

/* Random questions and plans of every kind: 6,000 of them, four splits each. */
enum { PLANS = 6000, PARTS = 4 };
struct part {
    int first;
};
ParameterizedTestParameters(bound, admissible)
{
    static struct part parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i].first = i * PLANS / PARTS;
    return cr_make_param_array(struct part, parts, PARTS);
}
ParameterizedTest(struct part *part, bound, admissible)
{
    struct tally tally = {0};
    for (int seed = part->first; seed < part->first + PLANS / PARTS; seed++) {
        struct random_plan drawn;
        struct mcp_arena *arena = mcp_arena_new();
        uint64_t dice = (uint64_t)seed * 2654435761u + 88172645463325252u;
        random_plan_draw(arena, (uint64_t)seed, &drawn);
        struct mcp_pricer *pricer = mcp_pricer_new(arena, &drawn.question);
        int before = tally.above + tally.refuted;
        compare(arena, &drawn.question, pricer, drawn.plan, &dice, &tally);
        if (tally.above + tally.refuted > before)
            fprintf(stderr, "seed %d: %s\n", seed, random_plan_describe(arena, &drawn));
        mcp_arena_free(arena);
    }
    cr_expect(eq(int, tally.above, 0));
    cr_expect(eq(int, tally.refuted, 0));
    cr_expect(ge(int, tally.compared, 4 * PLANS / PARTS));
    const int kinds[] = {tally.pipelines, tally.interleaved, tally.zero, tally.context,
                         tally.experts};
    for (int i = 0; i < 5; i++)
        cr_expect(gt(int, kinds[i], 50), "kind %d", i);
    cr_log_info("mean gap to uniform plans %.3f", tally.gap / tally.gaps);
}
