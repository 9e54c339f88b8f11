/* tests/sim/test_sim.c: random plans play to what the planner says, and every
 * difference has a name. */
#include "sim/memory.h"
#include "sim/sim.h"
#include "tests/step/random_plan.h"
#include "tests/step/setup.h"

#include "core/mesh.h"
#include "step/build.h"
#include "step/stage.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>

enum { NUM_PLANS = 500 };

struct drawn {
    struct random_plan random;
    struct mcp_program program;
    struct mcp_pricer *pricer;
    struct mcp_prediction predicted;
    struct mcp_sim_result result;
    const char *says;
};

static void play(struct mcp_arena *arena, int seed, struct drawn *d)
{
    const struct mcp_sim_options options = mcp_sim_options_default();
    random_plan_draw_any(arena, (uint64_t)seed, &d->random);
    mcp_program_build(arena, &d->random.question, &d->random.plan, &d->program);
    d->pricer = mcp_pricer_new(arena, &d->random.question);
    mcp_estimate(d->pricer, &d->random.plan, &d->predicted);
    mcp_sim_play(arena, &d->random.question, &d->program, &options, &d->result);
    d->says = mcp_format(arena, "seed %d: %s", seed, random_plan_describe(arena, &d->random));
}

/* Accounts of every stage sum to the step. */
static void expect_whole(const struct drawn *d)
{
    for (int s = 0; s < d->result.num_stages; s++) {
        double sum = 0;
        for (int i = 0; i < MCP_NUM_COSTS; i++)
            sum += d->result.stages[s].cost_s[i];
        cr_expect(epsilon_eq(dbl, sum / ((double)d->result.step_ns * 1e-9), 1, 1e-9), "%s",
                  d->says);
    }
}

/* Sums over data and context ranks; of tied ends and of what tensor ranks hold alike, where rows
 * in any order leave little to hide them beside. */
static bool has_transfers(const struct drawn *d)
{
    const struct mcp_plan *plan = &d->random.plan;
    return plan->zero_stage != 0 || mcp_group_size(plan, MCP_DATA | MCP_CONTEXT) > 1 ||
           (plan->schedule == MCP_CUSTOM && d->predicted.comm_s[MCP_COST_DATA] > 0);
}

/* What differs is data-parallel transfers: where they wait, and what waits for them. */
static void expect_named(const struct drawn *d, double difference)
{
    for (int i = 0; i < MCP_COST_BUBBLE; i++) {
        double change = d->result.cost_s[i] - d->predicted.cost_s[i];
        if (i != MCP_COST_DATA && i != MCP_COST_PIPELINE)
            cr_expect(lt(dbl, fabs(change), 1e-6 * d->predicted.iteration_s + 1e-8), "%s: %s %g",
                      d->says, mcp_cost_names[i], change);
    }
    if (!has_transfers(d))
        cr_expect(lt(dbl, fabs(difference), 1e-9), "%s: nothing to differ in", d->says);
}

static void expect_memory(struct mcp_arena *arena, const struct drawn *d)
{
    for (int s = 0; s < d->result.num_stages; s++) {
        struct mcp_sim_curve curve;
        const struct mcp_stage_prediction *stage = &d->predicted.stages[s];
        const struct mcp_sim_played played = {d->pricer, &d->random.plan, &d->predicted,
                                              &d->result};
        mcp_sim_memory(arena, &played, s, &curve);
        cr_expect(le(i64, llabs(curve.peak_bytes - mcp_memory_total(&stage->memory)), 1), "%s",
                  d->says);
        cr_expect(ge(i64, curve.peak_bytes, stage->static_bytes), "%s", d->says);
        cr_expect(eq(i64, curve.moments[curve.count - 1].bytes, curve.static_bytes), "%s", d->says);
        for (int i = 1; i < curve.count; i++)
            cr_assert(ge(i64, curve.moments[i].time_ns, curve.moments[i - 1].time_ns));
    }
}

Test(sim, plays_to_the_planners_price)
{
    int over_1_percent = 0;
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        play(arena, seed, d);
        double difference = (double)d->result.step_ns * 1e-9 / d->predicted.iteration_s - 1;
        over_1_percent += fabs(difference) > 0.01;
        cr_expect(lt(dbl, fabs(difference), 0.05), "%s: %g", d->says, difference);
        expect_whole(d);
        expect_named(d, difference);
        expect_memory(arena, d);
        mcp_arena_free(arena);
    }
    cr_expect(le(int, over_1_percent, NUM_PLANS / 20), "%d plans differ by more than 1 %%",
              over_1_percent);
}

struct case_405b {
    int context, pipeline, data, virtual_stages;
};

ParameterizedTestParameters(sim, llama_405b)
{
    static struct case_405b cases[] = {
        {8, 16, 16, 1}, {8, 16, 16, 4}, {2, 16, 64, 1}, {2, 16, 64, 4}, {1, 8, 256, 8},
    };
    return cr_make_param_array(struct case_405b, cases, sizeof cases / sizeof *cases);
}

/* 16,384 H100, batch 2048: with virtual stages the last reductions and first gathers hide
 * beside many microbatches, for the planner as when played. */
ParameterizedTest(struct case_405b *c, sim, llama_405b)
{
    struct setup s;
    struct mcp_program program;
    struct mcp_prediction predicted;
    struct mcp_sim_result result;
    const struct mcp_sim_options options = mcp_sim_options_default();
    setup_load(&s, "llama-3.1-405b", "dgx-h100", "megatron-core");
    s.job.sequence_length = 8192;
    s.plan.tensor_parallel = 8;
    s.plan.sequence_parallel = true;
    s.plan.context_parallel = c->context;
    s.plan.pipeline_parallel = c->pipeline;
    s.plan.data_parallel = c->data;
    s.plan.virtual_stages = c->virtual_stages;
    s.plan.schedule = c->virtual_stages > 1 ? MCP_INTERLEAVED : MCP_1F1B;
    s.plan.zero_stage = 1;
    s.plan.overlap = mcp_stack_overlap(&s.stack);
    setup_finish(&s, 2048 / c->data, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    mcp_estimate(mcp_pricer_new(s.arena, &s.question), &s.plan, &predicted);
    mcp_sim_play(s.arena, &s.question, &program, &options, &result);
    double difference = (double)result.step_ns * 1e-9 / predicted.iteration_s - 1;
    cr_expect(lt(dbl, fabs(difference), 0.007), "v %d: %g", c->virtual_stages, difference);
    mcp_arena_free(s.arena);
}

/* The same question on faster links. */
static int64_t step_ns_with_links(struct mcp_arena *arena, const struct drawn *d, double factor)
{
    struct mcp_cluster cluster = d->random.cluster;
    struct mcp_question question = d->random.question;
    const struct mcp_sim_options options = mcp_sim_options_default();
    struct mcp_sim_result result;
    for (int i = 0; i < cluster.num_tiers; i++)
        cluster.tiers[i].bandwidth_bytes_per_s *= factor;
    question.cluster = &cluster;
    mcp_sim_play(arena, &question, &d->program, &options, &result);
    return result.step_ns;
}

Test(sim, faster_links_never_slow_a_plan)
{
    for (int seed = 0; seed < NUM_PLANS / 5; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        play(arena, seed, d);
        if (mcp_cluster_num_pools(d->random.question.cluster) == 1) {
            int64_t before = d->result.step_ns;
            for (double factor = 1.5; factor < 20; factor *= 3) {
                int64_t after = step_ns_with_links(arena, d, factor);
                cr_expect(le(i64, after, before + d->result.events), "%s x %g", d->says, factor);
                before = after;
            }
        }
        mcp_arena_free(arena);
    }
}

Test(sim, a_slow_rank_never_helps)
{
    for (int seed = 0; seed < NUM_PLANS / 5; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        struct mcp_sim_options options = mcp_sim_options_default();
        struct mcp_sim_result result;
        play(arena, seed, d);
        options.slow_rank = seed % mcp_plan_world(&d->random.plan);
        mcp_sim_play(arena, &d->random.question, &d->program, &options, &result);
        cr_expect(eq(i64, result.step_ns, d->result.step_ns), "%s: no slower than others", d->says);
        options.slow_factor = 1.3;
        mcp_sim_play(arena, &d->random.question, &d->program, &options, &result);
        cr_expect(ge(i64, result.step_ns, d->result.step_ns), "%s", d->says);
        mcp_arena_free(arena);
    }
}

/* Replicas are alike: whose rank is slow changes nothing. */
Test(sim, equal_nodes_can_be_exchanged)
{
    int looked_at = 0;
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        struct mcp_sim_options options = mcp_sim_options_default();
        struct mcp_sim_result a, b;
        random_plan_draw_any(arena, (uint64_t)seed, &d->random);
        const struct mcp_plan *plan = &d->random.plan;
        if (plan->data_parallel > 1 && plan->expert_parallel == 1 && looked_at < 40) {
            struct mcp_coordinate at = {0};
            mcp_program_build(arena, &d->random.question, plan, &d->program);
            options.slow_factor = 1.4;
            options.slow_rank = mcp_mesh_rank(plan, at);
            mcp_sim_play(arena, &d->random.question, &d->program, &options, &a);
            at.data = plan->data_parallel - 1;
            options.slow_rank = mcp_mesh_rank(plan, at);
            mcp_sim_play(arena, &d->random.question, &d->program, &options, &b);
            cr_expect(eq(i64, a.step_ns, b.step_ns), "seed %d", seed);
            looked_at++;
        }
        mcp_arena_free(arena);
    }
    cr_expect(eq(int, looked_at, 40));
}

/* Transfers beside compute against the same transfers alone. */
Test(sim, overlap_never_loses)
{
    for (int seed = 0; seed < NUM_PLANS / 2; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        const struct mcp_sim_options options = mcp_sim_options_default();
        struct mcp_sim_result with, without;
        random_plan_draw_any(arena, (uint64_t)seed, &d->random);
        mcp_program_build(arena, &d->random.question, &d->random.plan, &d->program);
        d->program.plan.overlap.data = true;
        mcp_sim_play(arena, &d->random.question, &d->program, &options, &with);
        d->program.plan.overlap.data = false;
        mcp_sim_play(arena, &d->random.question, &d->program, &options, &without);
        cr_expect(le(i64, with.step_ns, without.step_ns + 2 * with.events), "seed %d: %lld %lld",
                  seed, (long long)with.step_ns, (long long)without.step_ns);
        mcp_arena_free(arena);
    }
}

/* 8 GPUs of one NVLink domain, ZeRO-0: the only data transfer of a layer is one ring
 * all-reduce, 2 (n - 1) / n of its bytes, and latencies. */
Test(sim, a_ring_all_reduce_alone_takes_what_the_formula_says)
{
    struct setup s;
    setup_load(&s, "tiny", "dgx-h100", "megatron-core");
    s.plan.data_parallel = 8;
    s.plan.overlap.data = false;
    setup_finish(&s, 2, MCP_RECOMPUTE_NONE);
    const struct mcp_pricing pricing = {&s.question, &s.plan};
    double bytes = 1 << 30, n = 8;
    const struct mcp_tier *tier = &s.cluster.tiers[0];
    double ring = 2 * (n - 1) / n * bytes / (tier->bandwidth_bytes_per_s * tier->efficiency_frac);
    double small = mcp_collective_seconds(&pricing, MCP_FN_ALL_REDUCE, MCP_DATA, 1);
    double large = mcp_collective_seconds(&pricing, MCP_FN_ALL_REDUCE, MCP_DATA, bytes);
    cr_expect(ge(dbl, large, ring + small));
    cr_expect(lt(dbl, large, ring + small + 20e-6), "the ramp of pipelined chunks at most");
    mcp_arena_free(s.arena);
}

/* One rank's links cost something between none and all of them. */
Test(sim, one_slow_port_costs_no_more_than_all)
{
    int costly = 0;
    for (int seed = 0; seed < NUM_PLANS / 2; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        struct mcp_sim_options options = mcp_sim_options_default();
        struct mcp_sim_result one, all;
        play(arena, seed, d);
        struct mcp_cluster cluster = d->random.cluster;
        struct mcp_question question = d->random.question;
        question.cluster = &cluster;
        for (int i = 0; i < cluster.num_tiers; i++)
            cluster.tiers[i].bandwidth_bytes_per_s /= 3;
        mcp_sim_play(arena, &question, &d->program, &options, &all);
        options.slow_port = seed % mcp_plan_world(&d->random.plan);
        options.slow_links = &question;
        mcp_sim_play(arena, &d->random.question, &d->program, &options, &one);
        int64_t rounding = d->result.events;
        cr_expect(ge(i64, one.step_ns, d->result.step_ns - rounding), "%s", d->says);
        cr_expect(le(i64, one.step_ns, all.step_ns + rounding), "%s", d->says);
        costly += one.step_ns > d->result.step_ns + rounding;
        mcp_arena_free(arena);
    }
    cr_expect(gt(int, costly, NUM_PLANS / 10));
}
