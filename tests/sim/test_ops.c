/* tests/sim/test_ops.c: op by op, a step takes what it does entry by entry; links that
 * are shared only cost. */
#include "sim/network.h"
#include "sim/ops.h"
#include "tests/step/random_plan.h"
#include "tests/step/setup.h"

#include "step/build.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

enum { NUM_PLANS = 300 };

struct drawn {
    struct random_plan random;
    struct mcp_program program;
    struct mcp_sim_result entries, ops;
    const char *says;
};

static void draw(struct mcp_arena *arena, int seed, struct drawn *d)
{
    const struct mcp_sim_options options = mcp_sim_options_default();
    random_plan_draw_any(arena, (uint64_t)seed, &d->random);
    mcp_program_build(arena, &d->random.question, &d->random.plan, &d->program);
    mcp_sim_play(arena, &d->random.question, &d->program, &options, &d->entries);
    d->says = mcp_format(arena, "seed %d: %s", seed, random_plan_describe(arena, &d->random));
}

/* Accounts sum to the step on every stage. */
static void expect_whole(const struct drawn *d, const struct mcp_sim_result *result)
{
    for (int s = 0; s < result->num_stages; s++) {
        double sum = 0;
        for (int i = 0; i < MCP_NUM_COSTS; i++)
            sum += result->stages[s].cost_s[i];
        cr_expect(epsilon_eq(dbl, sum / ((double)result->step_ns * 1e-9), 1, 1e-9), "%s", d->says);
    }
}

static void expect_same(const struct drawn *d)
{
    const struct mcp_sim_result *a = &d->entries, *b = &d->ops;
    cr_expect(eq(i64, a->step_ns, b->step_ns), "%s", d->says);
    for (int s = 0; s < a->num_stages; s++) {
        cr_expect(eq(i64, a->stages[s].latest_end_ns, b->stages[s].latest_end_ns), "%s", d->says);
        for (int i = 0; i < MCP_NUM_COSTS; i++)
            cr_expect(epsilon_eq(dbl, a->stages[s].cost_s[i], b->stages[s].cost_s[i], 1e-9),
                      "%s: stage %d %s", d->says, s, mcp_cost_names[i]);
        for (int i = 0; i < a->stages[s].num_slots; i++)
            cr_assert(eq(i64, a->stages[s].times[i].end_ns, b->stages[s].times[i].end_ns), "%s",
                      d->says);
    }
}

/* Whoever takes spans has every op played. */
static void take_no_notice(void *context, const struct mcp_sim_span *span)
{
    (void)context;
    cr_assert(gt(i64, span->end_ns, span->start_ns));
}

Test(sim_ops, alone_they_take_what_entries_do)
{
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        const struct mcp_sim_ops_options alone = {.shared_links = false, .span = take_no_notice};
        draw(arena, seed, d);
        mcp_sim_play_ops(arena, &d->random.question, &d->program, &alone, &d->ops);
        expect_same(d);
        expect_whole(d, &d->ops);
        mcp_arena_free(arena);
    }
}

/* Blocks that are one event until somebody contends for their links, against all ops. */
Test(sim_ops, folded_blocks_change_nothing)
{
    int64_t folded = 0, unfolded = 0;
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        struct mcp_sim_ops_options options = {.shared_links = true};
        draw(arena, seed, d);
        mcp_sim_play_ops(arena, &d->random.question, &d->program, &options, &d->entries);
        options.span = take_no_notice;
        mcp_sim_play_ops(arena, &d->random.question, &d->program, &options, &d->ops);
        expect_same(d);
        folded += d->entries.events;
        unfolded += d->ops.events;
        mcp_arena_free(arena);
    }
    cr_expect(lt(i64, folded, unfolded / 2));
}

/* What is shared can only be slower, but where a slower message lets another pass. */
Test(sim_ops, sharing_costs)
{
    int dearer = 0;
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        const struct mcp_sim_ops_options shared = {.shared_links = true};
        draw(arena, seed, d);
        mcp_sim_play_ops(arena, &d->random.question, &d->program, &shared, &d->ops);
        expect_whole(d, &d->ops);
        double cost = (double)d->ops.step_ns / (double)d->entries.step_ns - 1;
        cr_expect(ge(dbl, cost, -1e-6), "%s: %g", d->says, cost);
        if (mcp_plan_world(&d->random.plan) <= 64)
            cr_expect(lt(dbl, cost, 0.02), "%s: %g", d->says, cost);
        dearer += cost > 1e-6;
        mcp_arena_free(arena);
    }
    cr_expect(gt(int, dearer, 0));
}

/* --- unequal ranks --- */

static void play_unequal(struct mcp_arena *arena, struct drawn *d, bool shared,
                         const struct mcp_sim_options *ranks)
{
    const struct mcp_sim_ops_options options = {.shared_links = shared, .ranks = ranks};
    mcp_sim_play(arena, &d->random.question, &d->program, ranks, &d->entries);
    mcp_sim_play_ops(arena, &d->random.question, &d->program, &options, &d->ops);
    cr_expect(eq(int, d->entries.num_cells, d->ops.num_cells), "%s", d->says);
}

/* By op, stretched compute hides more of a context ring, and a slot is never shorter than
 * its launches: the two are not the same. */
Test(sim_ops, jitter_costs_what_it_does_entry_by_entry)
{
    for (int seed = 0; seed < NUM_PLANS; seed += 3) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        struct mcp_sim_options ranks = mcp_sim_options_default();
        draw(arena, seed, d);
        ranks.noise = 0.02;
        play_unequal(arena, d, false, &ranks);
        double apart = (double)d->ops.step_ns / (double)d->entries.step_ns - 1;
        cr_expect(lt(dbl, fabs(apart), 0.02), "%s: %g", d->says, apart);
        expect_whole(d, &d->ops);
        mcp_arena_free(arena);
    }
}

Test(sim_ops, a_slow_port_costs_what_it_does_entry_by_entry)
{
    int costly = 0;
    for (int seed = 0; seed < NUM_PLANS; seed += 3) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        struct mcp_sim_options ranks = mcp_sim_options_default();
        draw(arena, seed, d);
        struct mcp_cluster cluster = d->random.cluster;
        struct mcp_question slow = d->random.question;
        slow.cluster = &cluster;
        for (int i = 0; i < cluster.num_tiers; i++)
            cluster.tiers[i].bandwidth_bytes_per_s /= 3;
        int64_t healthy_ns = d->entries.step_ns;
        ranks.slow_port = seed % mcp_plan_world(&d->random.plan);
        ranks.slow_links = &slow;
        play_unequal(arena, d, false, &ranks);
        expect_same(d);
        expect_whole(d, &d->ops);
        costly += d->ops.step_ns > healthy_ns;
        mcp_arena_free(arena);
    }
    cr_expect(gt(int, costly, NUM_PLANS / 10));
}

Test(sim_ops, a_slow_rank_never_helps_on_shared_links)
{
    for (int seed = 0; seed < NUM_PLANS; seed += 6) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        struct mcp_sim_options ranks = mcp_sim_options_default();
        draw(arena, seed, d);
        ranks.slow_rank = seed % mcp_plan_world(&d->random.plan);
        play_unequal(arena, d, true, &ranks); /* as fast as the others */
        int64_t before_ns = d->ops.step_ns;
        ranks.slow_factor = 1.3;
        play_unequal(arena, d, true, &ranks);
        cr_expect(ge(dbl, (double)d->ops.step_ns, (double)before_ns * (1 - 1e-6)), "%s", d->says);
        mcp_arena_free(arena);
    }
}

/* --- spans --- */

struct spans {
    int64_t ends[MCP_MAX_PIPELINE][MCP_NUM_STREAMS];
    int64_t last_ns;
    int ops, overlaps;
};

static void take_span(void *context, const struct mcp_sim_span *span)
{
    struct spans *spans = context;
    int64_t *end_ns = &spans->ends[span->stage][span->stream];
    if (span->op < 0)
        return;
    spans->ops++;
    spans->overlaps += span->start_ns < *end_ns && span->stream <= MCP_STREAM_DATA;
    *end_ns = span->end_ns;
    spans->last_ns = span->end_ns > spans->last_ns ? span->end_ns : spans->last_ns;
}

Test(sim_ops, streams_are_queues)
{
    for (int seed = 0; seed < NUM_PLANS; seed += 10) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        struct spans *spans = MCP_NEW(arena, struct spans);
        const struct mcp_sim_ops_options options = {
            .shared_links = true, .span = take_span, .context = spans};
        draw(arena, seed, d);
        mcp_sim_play_ops(arena, &d->random.question, &d->program, &options, &d->ops);
        cr_expect(gt(int, spans->ops, 0));
        cr_expect(eq(int, spans->overlaps, 0), "%s", d->says);
        cr_expect(le(i64, spans->last_ns, d->ops.step_ns - d->ops.overhead_ns), "%s", d->says);
        mcp_arena_free(arena);
    }
}

/* --- links --- */

static void share(struct mcp_sim_flow *flows, int count)
{
    struct mcp_sim_flow *list[8];
    double room[4], demand[4];
    for (int i = 0; i < count; i++)
        list[i] = &flows[i];
    mcp_sim_share(list, count, 4, room, demand);
}

Test(sim_network, two_equal_flows_get_half_each)
{
    struct mcp_sim_flow flows[2] = {{1, {0}, {1}, 0}, {1, {0}, {1}, 0}};
    share(flows, 2);
    cr_expect(epsilon_eq(dbl, flows[0].rate, 0.5, 1e-9));
    cr_expect(epsilon_eq(dbl, flows[1].rate, 0.5, 1e-9));
}

Test(sim_network, one_alone_has_all)
{
    struct mcp_sim_flow flows[1] = {{2, {0, 1}, {1, 0.2}, 0}};
    share(flows, 1);
    cr_expect(epsilon_eq(dbl, flows[0].rate, 1, 1e-9));
}

/* A long flow over two links, each with another: the classic example. Link 0 is shared
 * by three, link 1 by two. */
Test(sim_network, what_one_cannot_use_others_get)
{
    struct mcp_sim_flow flows[4] = {
        {2, {0, 1}, {1, 1}, 0}, {1, {0}, {1}, 0}, {1, {0}, {1}, 0}, {1, {1}, {1}, 0}};
    share(flows, 4);
    cr_expect(epsilon_eq(dbl, flows[0].rate, 1.0 / 3, 1e-9));
    cr_expect(epsilon_eq(dbl, flows[1].rate, 1.0 / 3, 1e-9));
    cr_expect(epsilon_eq(dbl, flows[2].rate, 1.0 / 3, 1e-9));
    cr_expect(epsilon_eq(dbl, flows[3].rate, 2.0 / 3, 1e-9));
}

/* Flows that together leave room are not slowed. */
Test(sim_network, small_flows_do_not_meet)
{
    struct mcp_sim_flow flows[2] = {{1, {0}, {0.6}, 0}, {1, {0}, {0.4}, 0}};
    share(flows, 2);
    cr_expect(epsilon_eq(dbl, flows[0].rate, 1, 1e-9));
    cr_expect(epsilon_eq(dbl, flows[1].rate, 1, 1e-9));
}
