/* tests/sim/test_metamorphic.c: what must not change a step does not, and what must not
 * slow it does not. */
#include "sim/ops.h"
#include "tests/step/random_plan.h"
#include "tests/step/setup.h"

#include "core/mesh.h"
#include "step/build.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

enum { NUM_PLANS = 120 };

struct drawn {
    struct random_plan random;
    struct mcp_cluster pools[MCP_MAX_POOLS]; /* the random plan's, to be changed */
    struct mcp_question question;
    const char *says;
};

/* Half of the stages on machines of another kind, where that can be. */
static bool mix(struct mcp_arena *arena, const char *preset, struct drawn *d)
{
    struct mcp_error err = {""};
    struct mcp_refusals refusals = {0};
    struct mcp_plan *plan = &d->random.plan;
    int p = plan->pipeline_parallel, half = mcp_plan_world(plan) / 2;
    struct mcp_cluster pools[2] = {d->pools[0]};
    if (p % 2 != 0 || mcp_cluster_set_gpus(&pools[0], half, &err) != MCP_OK ||
        mcp_cluster_load(arena, preset, &pools[1], &err) != MCP_OK ||
        mcp_cluster_set_gpus(&pools[1], half, &err) != MCP_OK)
        return false;
    int *stage_pool = MCP_ARRAY(arena, p, int);
    for (int stage = 0; stage < p; stage++)
        stage_pool[stage] = stage >= p / 2;
    d->pools[0] = pools[0];
    d->pools[1] = pools[1];
    d->pools[0].next = &d->pools[1];
    plan->stage_pool = stage_pool;
    if (mcp_legal(arena, &d->question, plan, &refusals))
        return true;
    d->pools[0] = *d->random.question.cluster;
    plan->stage_pool = NULL;
    return false;
}

/* Every second plan that can be is mixed. */
static void draw(struct mcp_arena *arena, int seed, struct drawn *d)
{
    static const char *const presets[3] = {"dgx-b200", "dgx-h100", "dgx-v100"};
    random_plan_draw(arena, (uint64_t)seed, &d->random);
    d->question = d->random.question;
    d->pools[0] = *d->random.question.cluster;
    d->question.cluster = d->pools;
    bool mixed = seed % 2 != 0 && mix(arena, presets[seed / 2 % 3], d);
    d->says = mcp_format(arena, "seed %d%s: %s", seed, mixed ? ", mixed" : "",
                         random_plan_describe(arena, &d->random));
}

static int64_t slots_ns(struct mcp_arena *arena, const struct mcp_question *question,
                        const struct mcp_plan *plan, const struct mcp_sim_options *ranks)
{
    struct mcp_program program;
    struct mcp_sim_result result;
    const struct mcp_sim_options equal = mcp_sim_options_default();
    mcp_program_build(arena, question, plan, &program);
    mcp_sim_play(arena, question, &program, ranks != NULL ? ranks : &equal, &result);
    return result.step_ns;
}

static int64_t ops_ns(struct mcp_arena *arena, const struct mcp_question *question,
                      const struct mcp_plan *plan, const struct mcp_sim_options *ranks)
{
    struct mcp_program program;
    struct mcp_sim_result result;
    const struct mcp_sim_ops_options options = {.shared_links = true, .ranks = ranks};
    mcp_program_build(arena, question, plan, &program);
    mcp_sim_play_ops(arena, question, &program, &options, &result);
    return result.step_ns;
}

/* An op's nanoseconds are rounded. */
static int64_t with_rounding(int64_t ns)
{
    return ns + ns / 100000 + 100;
}

/* On shared links one that comes later may meet others, or none. */
static int64_t with_meetings(int64_t ns)
{
    return ns + ns / 10000 + 100;
}

Test(sim_metamorphic, faster_links_never_slow_a_plan_on_shared_links)
{
    int mixed = 0;
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        draw(arena, seed, d);
        mixed += mcp_cluster_num_pools(d->question.cluster) > 1;
        int64_t before_ns = ops_ns(arena, &d->question, &d->random.plan, NULL);
        for (int times = 0; times < 2; times++) {
            for (struct mcp_cluster *pool = d->pools; pool != NULL;
                 pool = pool->next != NULL ? pool + 1 : NULL)
                for (int k = 0; k < pool->num_tiers; k++)
                    pool->tiers[k].bandwidth_bytes_per_s *= 2;
            int64_t after_ns = ops_ns(arena, &d->question, &d->random.plan, NULL);
            cr_expect(le(i64, after_ns, with_rounding(before_ns)), "%s", d->says);
            before_ns = after_ns;
        }
        mcp_arena_free(arena);
    }
    cr_expect(gt(int, mixed, 3), "clusters of several kinds of machine are among them");
}

/* The fastest of all collectives is no slower than rings, in a whole step. */
Test(sim_metamorphic, the_fastest_collectives_never_lose)
{
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        draw(arena, seed, d);
        struct mcp_stack stack = *d->question.stack;
        d->question.stack = &stack;
        stack.collective_algorithm = MCP_RING;
        int64_t ring_ns = slots_ns(arena, &d->question, &d->random.plan, NULL);
        stack.collective_algorithm = MCP_FASTEST;
        for (int k = 0; k < d->pools[0].num_tiers; k++)
            d->pools[0].tiers[k].in_switch_reduction = true;
        int64_t fastest_ns = slots_ns(arena, &d->question, &d->random.plan, NULL);
        cr_expect(le(i64, fastest_ns, with_rounding(ring_ns)), "%s", d->says);
        mcp_arena_free(arena);
    }
}

/* Every overlap that a plan can ask for, asked for and not. */
static void expect_overlap(struct mcp_arena *arena, const struct drawn *d, size_t flag)
{
    struct mcp_plan with = d->random.plan, without = d->random.plan;
    *((bool *)&with.overlap + flag) = true;
    *((bool *)&without.overlap + flag) = false;
    int64_t with_ns = slots_ns(arena, &d->question, &with, NULL);
    int64_t without_ns = slots_ns(arena, &d->question, &without, NULL);
    cr_expect(le(i64, with_ns, with_rounding(without_ns)), "%s: flag %zu", d->says, flag);
}

Test(sim_metamorphic, overlap_never_loses)
{
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        draw(arena, seed, d);
        for (size_t flag = 0; flag < sizeof(struct mcp_overlap) / sizeof(bool); flag++)
            expect_overlap(arena, d, flag);
        mcp_arena_free(arena);
    }
}

/* The slower the straggler the slower the step, on machines of several kinds too. */
Test(sim_metamorphic, a_straggler_never_gains)
{
    for (int seed = 0; seed < NUM_PLANS; seed += 2) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        struct mcp_sim_options ranks = mcp_sim_options_default();
        draw(arena, seed, d);
        int64_t entries_ns = slots_ns(arena, &d->question, &d->random.plan, NULL);
        int64_t ops_before_ns = ops_ns(arena, &d->question, &d->random.plan, NULL);
        ranks.slow_rank = seed % mcp_plan_world(&d->random.plan);
        for (ranks.slow_factor = 1.1; ranks.slow_factor < 3; ranks.slow_factor *= 1.5) {
            int64_t ns = slots_ns(arena, &d->question, &d->random.plan, &ranks);
            int64_t by_op_ns = ops_ns(arena, &d->question, &d->random.plan, &ranks);
            cr_expect(ge(i64, with_rounding(ns), entries_ns), "%s", d->says);
            cr_expect(ge(i64, with_meetings(by_op_ns), ops_before_ns), "%s", d->says);
            entries_ns = ns;
            ops_before_ns = by_op_ns;
        }
        mcp_arena_free(arena);
    }
}

/* Replicas are alike, by op too: whose rank is slow changes nothing. */
Test(sim_metamorphic, equal_nodes_can_be_exchanged)
{
    int looked_at = 0;
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        struct mcp_sim_options ranks = mcp_sim_options_default();
        draw(arena, seed, d);
        const struct mcp_plan *plan = &d->random.plan;
        if (plan->data_parallel > 1 && plan->expert_parallel == 1) {
            struct mcp_coordinate at = {0};
            ranks.slow_factor = 1.4;
            ranks.slow_rank = mcp_mesh_rank(plan, at);
            int64_t first_ns = ops_ns(arena, &d->question, plan, &ranks);
            at.data = plan->data_parallel - 1;
            ranks.slow_rank = mcp_mesh_rank(plan, at);
            cr_expect(eq(i64, ops_ns(arena, &d->question, plan, &ranks), first_ns), "%s", d->says);
            looked_at++;
        }
        mcp_arena_free(arena);
    }
    cr_expect(gt(int, looked_at, 20));
}

/* --- machines of several kinds --- */

/* The planner's price, entries and ops say the same of a pipeline over two kinds. */
Test(sim_metamorphic, mixed_plans_play_to_the_planners_price)
{
    int mixed = 0;
    for (int seed = 1; seed < 4 * NUM_PLANS; seed += 2) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        draw(arena, seed, d);
        if (d->random.plan.stage_pool != NULL) {
            struct mcp_program program;
            struct mcp_prediction predicted;
            struct mcp_sim_result entries, ops;
            const struct mcp_sim_options equal = mcp_sim_options_default();
            const struct mcp_sim_ops_options alone = {.shared_links = false};
            mcp_estimate(mcp_pricer_new(arena, &d->question), &d->random.plan, &predicted);
            mcp_program_build(arena, &d->question, &d->random.plan, &program);
            mcp_sim_play(arena, &d->question, &program, &equal, &entries);
            mcp_sim_play_ops(arena, &d->question, &program, &alone, &ops);
            double apart = (double)entries.step_ns * 1e-9 / predicted.iteration_s - 1;
            cr_expect(lt(dbl, fabs(apart), 0.05), "%s: %g", d->says, apart);
            cr_expect(eq(i64, entries.step_ns, ops.step_ns), "%s", d->says);
            mixed++;
        }
        mcp_arena_free(arena);
    }
    cr_expect(gt(int, mixed, 15));
}

/* A pipeline over two nodes of `first` and two of `second`, half of the stages on each. */
struct two_kinds {
    struct setup s;
    struct mcp_cluster second;
    int stage_pool[4];
};

static void place(struct two_kinds *t, const char *second)
{
    struct mcp_error err = {""};
    setup_load(&t->s, "llama-3.1-8b", "dgx-a100", "megatron-core");
    setup_cut(&t->s, 8);
    t->s.plan.tensor_parallel = 8;
    t->s.plan.pipeline_parallel = 4;
    setup_finish(&t->s, 8, MCP_RECOMPUTE_NONE);
    if (second == NULL)
        return;
    cr_assert(eq(int, (int)mcp_cluster_load(t->s.arena, second, &t->second, &err), MCP_OK));
    cr_assert(eq(int, (int)mcp_cluster_resize(&t->second, 2, &err), MCP_OK));
    cr_assert(eq(int, (int)mcp_cluster_resize(&t->s.cluster, 2, &err), MCP_OK));
    t->s.cluster.next = &t->second;
    for (int stage = 0; stage < 4; stage++)
        t->stage_pool[stage] = stage / 2;
    t->s.plan.stage_pool = t->stage_pool;
}

static void play_two(const char *second, int64_t step_ns[2], double matmul_s[4])
{
    struct two_kinds t;
    struct mcp_program program;
    struct mcp_sim_result result;
    const struct mcp_sim_options options = mcp_sim_options_default();
    place(&t, second);
    mcp_program_build(t.s.arena, &t.s.question, &t.s.plan, &program);
    mcp_sim_play(t.s.arena, &t.s.question, &program, &options, &result);
    for (int stage = 0; stage < 4; stage++)
        matmul_s[stage] = result.stages[stage].cost_s[MCP_COST_MATMUL];
    step_ns[0] = result.step_ns;
    step_ns[1] = ops_ns(t.s.arena, &t.s.question, &t.s.plan, NULL);
    mcp_arena_free(t.s.arena);
}

/* Two pools of one kind are one cluster; of a faster kind they are faster, on the stages
 * that lie there. */
Test(sim_metamorphic, pools_of_one_kind_are_one_cluster)
{
    int64_t one_ns[2], two_ns[2], fast_ns[2];
    double one_s[4], two_s[4], fast_s[4];
    play_two(NULL, one_ns, one_s);
    play_two("dgx-a100", two_ns, two_s);
    play_two("dgx-h100", fast_ns, fast_s);
    for (int level = 0; level < 2; level++) {
        cr_expect(eq(i64, two_ns[level], one_ns[level]));
        cr_expect(lt(i64, fast_ns[level], one_ns[level]));
    }
    for (int stage = 0; stage < 4; stage++) {
        cr_expect(eq(dbl, two_s[stage], one_s[stage]));
        if (stage < 2)
            cr_expect(eq(dbl, fast_s[stage], one_s[stage]));
        else
            cr_expect(lt(dbl, fast_s[stage], 0.7 * one_s[stage]));
    }
}
