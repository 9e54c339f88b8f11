/* tests/planner/test_bound.c: no split is faster than the bound or fits where it says none does. */
#include "core/text.h"
#include "planner/bound.h"
#include "tests/planner/question.h"
#include "tests/step/random_plan.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static void draw_cut(uint64_t *dice, int num_layers, struct mcp_plan *plan)
{
    int count = plan->pipeline_parallel;
    for (int i = 0; i < num_layers; i++) {
        int a = (int)(next(dice) % (uint64_t)count), b = (int)(next(dice) % (uint64_t)count);
        bool moves = plan->chunks[a].num_layers > (a == 0 || a == count - 1 ? 0 : 1);
        plan->chunks[a].num_layers -= moves;
        plan->chunks[b].num_layers += moves;
    }
}

/* Any recompute of any layer. */
static void draw_recompute(struct mcp_arena *arena, uint64_t *dice, struct mcp_chunk *chunk)
{
    chunk->num_runs = chunk->num_layers;
    chunk->runs = MCP_ARRAY(arena, chunk->num_layers, struct mcp_recompute_run);
    for (int i = 0; i < chunk->num_layers; i++)
        chunk->runs[i] =
            (struct mcp_recompute_run){(enum mcp_recompute)(next(dice) % MCP_NUM_RECOMPUTES), 1};
}

static int part(int count, int v, int c)
{
    return count / v + (c < count % v);
}

/* So many layers of the rank do full, so many selective, spread over its chunks. */
static void draw_share(struct mcp_arena *arena, uint64_t *dice, int rank, struct mcp_plan *plan)
{
    int p = plan->pipeline_parallel, v = plan->virtual_stages, layers = 0;
    for (int c = 0; c < v; c++)
        layers += plan->chunks[c * p + rank].num_layers;
    int some = (int)(next(dice) % (uint64_t)(layers + 1));
    int full = (int)(next(dice) % (uint64_t)(some + 1));
    for (int c = 0; c < v; c++) {
        struct mcp_chunk *chunk = &plan->chunks[c * p + rank];
        int n = chunk->num_layers, f = part(full, v, c), all = part(some, v, c);
        f = f < n ? f : n;
        all = all < f ? f : all < n ? all : n;
        const struct mcp_recompute_run runs[3] = {{MCP_RECOMPUTE_FULL, f},
                                                  {MCP_RECOMPUTE_SELECTIVE, all - f},
                                                  {MCP_RECOMPUTE_NONE, n - all}};
        chunk->num_runs = 0;
        chunk->runs = MCP_ARRAY(arena, 3, struct mcp_recompute_run);
        for (int i = 0; i < 3; i++)
            if (runs[i].num_layers > 0)
                chunk->runs[chunk->num_runs++] = runs[i];
    }
}

/* A split of the plan's own space (planner/split.h). */
static void draw_split(struct mcp_arena *arena, uint64_t *dice, int num_layers,
                       struct mcp_plan *plan)
{
    int count = plan->pipeline_parallel * plan->virtual_stages, mode = (int)(next(dice) % 4);
    mcp_plan_uniform_chunks(arena, plan, num_layers,
                            (enum mcp_recompute)(next(dice) % MCP_NUM_RECOMPUTES));
    if (plan->virtual_stages == 1 && mode > 0)
        draw_cut(dice, num_layers, plan);
    for (int k = 0, first = 0; k < count; k++) {
        plan->chunks[k].first_layer = first;
        plan->chunks[k].runs[0].num_layers = plan->chunks[k].num_layers;
        plan->chunks[k].num_runs = plan->chunks[k].num_layers > 0;
        first += plan->chunks[k].num_layers;
    }
    for (int k = 0; plan->virtual_stages == 1 && mode < 3 && k < count; k++)
        draw_recompute(arena, dice, &plan->chunks[k]);
    for (int r = 0; plan->virtual_stages > 1 && mode < 3 && r < plan->pipeline_parallel; r++)
        draw_share(arena, dice, r, plan);
}

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
        draw_split(arena, dice, question->model->num_layers, &plan);
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
