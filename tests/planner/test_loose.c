/* tests/planner/test_loose.c: nothing beats a family's bounds: no split, rank order or placement. */
#include "core/text.h"
#include "planner/search_parts.h"
#include "tests/planner/random_split.h"
#include "tests/step/random_plan.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>

struct tally {
    int compared, loose, near, refuted, orders, mixed, kinds, interleaved, pipelines;
};

struct bounds {
    struct mcp_search search;
    struct mcp_family family;
    struct mcp_near *near;
    int64_t loose_bytes;
};

static void open_bounds(struct mcp_arena *arena, const struct mcp_question *question,
                        const struct mcp_plan *plan, struct bounds *out)
{
    const struct mcp_layout layout = {plan->tensor_parallel, plan->context_parallel,
                                      plan->pipeline_parallel, plan->data_parallel,
                                      plan->expert_parallel};
    *out = (struct bounds){.search = {.arena = arena, .question = question}};
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++)
        out->search.recompute[r] = true;
    struct mcp_family lightest = {0};
    struct mcp_loose *loose = mcp_loose_new(&out->search);
    mcp_loose_turn(loose, &layout);
    out->search.objective = MCP_OBJECTIVE_MEMORY;
    mcp_loose_bound(loose, plan, &lightest);
    out->loose_bytes = (int64_t)lightest.bound;
    out->search.objective = MCP_OBJECTIVE_TIME;
    mcp_loose_bound(loose, plan, &out->family);
    mcp_loose_free(loose);
    out->near = mcp_near_new(arena, mcp_pricer_new(arena, question), plan->tensor_parallel);
}

/* The cluster with a pool of other GPUs and links behind it; stages in the one or the other. */
static void mix(struct mcp_arena *arena, uint64_t *dice, struct mcp_cluster *cluster,
                struct mcp_plan *plan)
{
    struct mcp_cluster *other = MCP_NEW(arena, struct mcp_cluster);
    *other = *cluster;
    double factors[4];
    for (int i = 0; i < 4; i++)
        factors[i] = 0.5 + (double)(random_next(dice) % 100) / 40;
    for (int i = 0; i < MCP_NUM_PRECISIONS; i++)
        other->gpu.peak_flops_per_s[i] *= factors[0];
    other->gpu.memory_bandwidth_bytes_per_s *= factors[1];
    other->gpu.memory_bytes = (int64_t)((double)other->gpu.memory_bytes * factors[2]);
    other->gpu.num_multiprocessors += (int)(random_next(dice) % 40);
    for (int i = 0; i < other->num_tiers; i++)
        other->tiers[i].bandwidth_bytes_per_s *= factors[3];
    cluster->next = other;
    int *pools = MCP_ARRAY(arena, plan->pipeline_parallel, int);
    for (int s = 0; s < plan->pipeline_parallel; s++)
        pools[s] = (int)(random_next(dice) % 2);
    plan->stage_pool = pools;
}

static void compare(struct mcp_arena *arena, const struct mcp_question *question,
                    const struct bounds *bounds, struct mcp_pricer *pricer,
                    const struct mcp_plan *plan, struct tally *tally)
{
    const bool all[MCP_NUM_RECOMPUTES] = {true, true, true};
    struct mcp_prediction *exact = MCP_NEW(arena, struct mcp_prediction);
    struct mcp_floor floor;
    mcp_estimate(pricer, plan, exact);
    int64_t ns = llround(exact->iteration_s * 1e9);
    mcp_floor_load(pricer, plan, all, MCP_FLOOR_ALL, &floor);
    bool fits = exact->fits;
    bool refuted =
        fits && (mcp_loose_refute(&bounds->family, &bounds->search, plan) != NULL ||
                 mcp_floor_refute(&floor) != NULL || !mcp_floor_reaches(&floor, (double)ns));
    bool loose = bounds->family.bound > (double)ns ||
                 bounds->loose_bytes > exact->peak_memory_bytes ||
                 (fits && !mcp_loose_reaches(&bounds->family, &bounds->search, plan, ns));
    bool near = !mcp_near_reaches(bounds->near, plan, all, ns);
    tally->compared++;
    tally->refuted += refuted;
    tally->loose += loose;
    tally->near += near;
    if (refuted || loose || near)
        fprintf(stderr,
                "exact %lld ns, %lld bytes; loose %.0f ns, %lld bytes; wrong: %s%s%s; "
                "p %d v %d m %lld, order %s\n",
                (long long)ns, (long long)exact->peak_memory_bytes, bounds->family.bound,
                (long long)bounds->loose_bytes, refuted ? "refuted " : "", loose ? "loose " : "",
                near ? "near" : "", plan->pipeline_parallel, plan->virtual_stages,
                (long long)mcp_num_microbatches(plan, question->job),
                mcp_rank_order_names[mcp_rank_order_index(plan->rank_order)]);
}

static void try_plan(uint64_t seed, struct tally *tally)
{
    struct random_plan drawn;
    struct bounds bounds;
    struct mcp_arena *arena = mcp_arena_new();
    uint64_t dice = seed * 2654435761u + 88172645463325252u;
    random_plan_draw(arena, seed, &drawn);
    struct mcp_plan *plan = &drawn.plan;
    if (seed % 3 == 0)
        mix(arena, &dice, &drawn.cluster, plan);
    struct mcp_pricer *pricer = mcp_pricer_new(arena, &drawn.question);
    int before = tally->loose + tally->near + tally->refuted;
    open_bounds(arena, &drawn.question, plan, &bounds);
    for (int i = 0; i < 4; i++) {
        random_split_draw(arena, &dice, drawn.model.num_layers, plan);
        if (plan->stage_pool == NULL && i > 0)
            mcp_rank_order((int)(random_next(&dice) % MCP_NUM_RANK_ORDERS), plan->rank_order);
        compare(arena, &drawn.question, &bounds, pricer, plan, tally);
        tally->orders += mcp_rank_order_index(plan->rank_order) != 0;
    }
    if (tally->loose + tally->near + tally->refuted > before)
        fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed,
                random_plan_describe(arena, &drawn));
    tally->mixed += plan->stage_pool != NULL;
    tally->interleaved += plan->virtual_stages > 1;
    tally->pipelines += plan->pipeline_parallel > 1;
    tally->kinds += mcp_model_layers_of_kind(&drawn.model, 1) % drawn.model.num_layers != 0;
    mcp_arena_free(arena);
}

/* 3,000 random questions and plans, four splits each. */
enum { PLANS = 3000, PARTS = 2 };
struct part {
    uint64_t first;
};
ParameterizedTestParameters(loose, admissible)
{
    static struct part parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i].first = 10000 + (uint64_t)(i * PLANS / PARTS);
    return cr_make_param_array(struct part, parts, PARTS);
}
ParameterizedTest(struct part *part, loose, admissible)
{
    struct tally tally = {0};
    for (uint64_t seed = part->first; seed < part->first + PLANS / PARTS; seed++)
        try_plan(seed, &tally);
    cr_expect(eq(int, tally.loose, 0));
    cr_expect(eq(int, tally.near, 0));
    cr_expect(eq(int, tally.refuted, 0));
    cr_expect(eq(int, tally.compared, 4 * PLANS / PARTS));
    const int drawn[] = {tally.orders, tally.mixed, tally.kinds, tally.interleaved,
                         tally.pipelines};
    for (int i = 0; i < 5; i++)
        cr_expect(gt(int, drawn[i], 50), "kind %d", i);
}

/* The largest cluster times the largest tensor degree is more than an int. */
Test(loose, domains_of_the_largest_cluster)
{
    struct mcp_cluster cluster = {.num_nodes = MCP_MAX_GPUS, .gpus_per_node = 1, .num_tiers = 1};
    struct mcp_cluster near;
    struct mcp_question question = {.cluster = &cluster}, kinder;
    cluster.tiers[0].ranks = MCP_MAX_GPUS;
    mcp_kinder_question(&question, 2048, &near, &kinder);
    cr_expect(kinder.cluster->tiers[0].ranks >= MCP_MAX_GPUS, "%d", kinder.cluster->tiers[0].ranks);
}
