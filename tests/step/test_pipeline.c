/* tests/step/test_pipeline.c: skipping periods changes no nanosecond; closed forms and
 * admissible bounds of the literature hold. */
#include "step/pipeline.h"

#include "step/schedule.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

enum { MAX_STAGES = 128 };

struct random {
    uint64_t state;
};

static int below(struct random *random, int limit)
{
    random->state ^= random->state << 13;
    random->state ^= random->state >> 7;
    random->state ^= random->state << 17;
    return (int)((random->state >> 11) % (uint64_t)limit);
}

/* Small numbers meet ties, large ones the noise of real prices. */
static struct mcp_slot_price random_price(struct random *random, int kind)
{
    if (kind == 0)
        return (struct mcp_slot_price){.body_ns = 1000};
    if (kind == 1)
        return (struct mcp_slot_price){below(random, 4), 1 + below(random, 8), below(random, 2),
                                       below(random, 6), below(random, 2)};
    return (struct mcp_slot_price){below(random, 2) * below(random, 40000),
                                   70000 + below(random, 60000), below(random, 9000),
                                   below(random, 30000), below(random, 2) * below(random, 70000)};
}

struct game {
    struct mcp_pipeline pipeline;
    struct mcp_slot_price forward[MAX_STAGES], backward[MAX_STAGES];
    int64_t release_ns[MAX_STAGES];
};

static void random_game(struct random *random, enum mcp_schedule schedule, struct game *game)
{
    int p = 1 + below(random, 16), v = 1, m = 1 + below(random, below(random, 3) ? 40 : 160);
    if (schedule == MCP_INTERLEAVED) {
        p = 2 + below(random, 8);
        v = 2 + below(random, 4);
        m = p * (1 + below(random, below(random, 3) ? 4 : 16));
    }
    int kind = below(random, 3);
    bool equal = below(random, 3) == 0;
    for (int k = 0; k < p * v; k++) {
        game->forward[k] = equal && k > 1 ? game->forward[1] : random_price(random, kind);
        game->backward[k] = equal && k > 1 ? game->backward[1] : random_price(random, kind);
    }
    for (int r = 0; r < p; r++)
        game->release_ns[r] = below(random, 200000);
    game->pipeline =
        (struct mcp_pipeline){.schedule = schedule,
                              .pipeline_parallel = p,
                              .virtual_stages = v,
                              .num_microbatches = m,
                              .forward = game->forward,
                              .backward = game->backward,
                              .release_ns = below(random, 2) ? game->release_ns : NULL};
}

static void expect_same(struct mcp_arena *arena, const struct game *game, int number)
{
    const struct mcp_pipeline *pipeline = &game->pipeline;
    int p = pipeline->pipeline_parallel, v = pipeline->virtual_stages;
    struct mcp_pipeline_rank fast[MAX_STAGES], full[MAX_STAGES];
    int64_t fast_ends[MAX_STAGES], full_ends[MAX_STAGES];
    int64_t end = mcp_pipeline_play(arena, pipeline, fast, fast_ends);
    int64_t full_end = mcp_pipeline_play_all(arena, pipeline, full, full_ends);
    cr_assert(eq(i64, end, full_end), "case %d: p=%d v=%d m=%d", number, p, v,
              pipeline->num_microbatches);
    for (int r = 0; r < p; r++) {
        int64_t release = pipeline->release_ns ? pipeline->release_ns[r] : 0;
        cr_assert(eq(i64, fast[r].start_ns, full[r].start_ns), "case %d rank %d", number, r);
        cr_assert(eq(i64, fast[r].end_ns, full[r].end_ns), "case %d rank %d", number, r);
        cr_assert(eq(i64, fast[r].busy_ns, full[r].busy_ns), "case %d rank %d", number, r);
        cr_assert(eq(i64, fast[r].exposed_ns, full[r].exposed_ns), "case %d rank %d", number, r);
        cr_assert(eq(i64, fast[r].bubble_ns, full[r].bubble_ns), "case %d rank %d", number, r);
        cr_assert(eq(i64, full[r].busy_ns + full[r].exposed_ns + full[r].bubble_ns,
                     full[r].end_ns - release));
    }
    cr_assert(memcmp(fast_ends, full_ends, (size_t)(p * v) * sizeof *fast_ends) == 0, "case %d",
              number);
}

struct case_random {
    enum mcp_schedule schedule;
    int count;
};
ParameterizedTestParameters(pipeline, skips_exactly)
{
    static struct case_random cases[] = {
        {MCP_GPIPE, 1500}, {MCP_1F1B, 3000}, {MCP_INTERLEAVED, 2000}};
    return cr_make_param_array(struct case_random, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_random *c, pipeline, skips_exactly)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct random random = {0x9e3779b97f4a7c15u + (unsigned)c->schedule};
    static struct game game;
    for (int i = 0; i < c->count; i++) {
        random_game(&random, c->schedule, &game);
        expect_same(arena, &game, i);
    }
    mcp_arena_free(arena);
}

/* Long runs, where nearly all is skipped. */
Test(pipeline, skips_thousands_of_rows)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct random random = {42};
    static struct game game;
    for (int i = 0; i < 30; i++) {
        random_game(&random, (enum mcp_schedule)(i % (MCP_INTERLEAVED + 1)), &game);
        game.pipeline.num_microbatches = game.pipeline.pipeline_parallel * 600;
        expect_same(arena, &game, i);
    }
    mcp_arena_free(arena);
}

static int64_t play_equal(enum mcp_schedule schedule, int p, int v, int m,
                          struct mcp_slot_price forward, struct mcp_slot_price backward,
                          struct mcp_pipeline_rank *ranks)
{
    static struct mcp_slot_price forwards[MAX_STAGES], backwards[MAX_STAGES];
    struct mcp_arena *arena = mcp_arena_new();
    for (int k = 0; k < p * v; k++) {
        forwards[k] = forward;
        backwards[k] = backward;
    }
    struct mcp_pipeline pipeline = {.schedule = schedule,
                                    .pipeline_parallel = p,
                                    .virtual_stages = v,
                                    .num_microbatches = m,
                                    .forward = forwards,
                                    .backward = backwards};
    int64_t end = mcp_pipeline_play(arena, &pipeline, ranks, NULL);
    mcp_arena_free(arena);
    return end;
}

struct case_bubble {
    enum mcp_schedule schedule;
    int p, v, m;
};
ParameterizedTestParameters(pipeline, bubble)
{
    static struct case_bubble cases[] = {
        {MCP_GPIPE, 1, 1, 1},        {MCP_GPIPE, 4, 1, 1},          {MCP_GPIPE, 8, 1, 5},
        {MCP_GPIPE, 8, 1, 64},       {MCP_1F1B, 1, 1, 8},           {MCP_1F1B, 4, 1, 1},
        {MCP_1F1B, 8, 1, 5},         {MCP_1F1B, 8, 1, 8},           {MCP_1F1B, 16, 1, 192},
        {MCP_INTERLEAVED, 2, 2, 2},  {MCP_INTERLEAVED, 4, 2, 4},    {MCP_INTERLEAVED, 8, 2, 96},
        {MCP_INTERLEAVED, 8, 6, 24}, {MCP_INTERLEAVED, 16, 6, 192},
    };
    return cr_make_param_array(struct case_bubble, cases, sizeof cases / sizeof *cases);
}
/* Ideal time m v (F + B) of a rank; each rank idles (p - 1) (F + B): over the step
 * (p-1)/(m+p-1) for v = 1, over the ideal (p-1)/(v m). */
ParameterizedTest(struct case_bubble *c, pipeline, bubble)
{
    struct mcp_pipeline_rank ranks[MAX_STAGES];
    const int64_t f = 1000, b = 2000, ideal = (int64_t)c->m * c->v * (f + b);
    int64_t end = play_equal(c->schedule, c->p, c->v, c->m, (struct mcp_slot_price){0, f, 0, 0, 0},
                             (struct mcp_slot_price){0, b, 0, 0, 0}, ranks);
    cr_expect(eq(i64, end, ideal + (c->p - 1) * (f + b)));
    for (int r = 0; r < c->p; r++) {
        cr_expect(eq(i64, ranks[r].busy_ns, ideal));
        cr_expect(eq(i64, ranks[r].exposed_ns, (int64_t)0));
        cr_expect(
            eq(i64, ranks[r].bubble_ns + end - ranks[r].end_ns, (int64_t)(c->p - 1) * (f + b)));
    }
}

/* Forward across all stages and back, one microbatch: nothing can hide. */
Test(pipeline, one_microbatch)
{
    struct mcp_pipeline_rank ranks[MAX_STAGES];
    int64_t end = play_equal(MCP_1F1B, 8, 1, 1, (struct mcp_slot_price){0, 100, 7, 10, 0},
                             (struct mcp_slot_price){0, 200, 3, 20, 0}, ranks);
    cr_expect(eq(i64, end, (int64_t)(8 * 107 + 8 * 203 + 7 * 10 + 7 * 20)));
    cr_expect(eq(i64, ranks[0].exposed_ns, (int64_t)20));
    cr_expect(eq(i64, ranks[7].exposed_ns, (int64_t)10));
}

/* Two stages, one microbatch: the backward of stage 0 does 60 of its 200 ns while it
 * waits, of which 50 are the message's and the rest the sender's. */
Test(pipeline, lead_hides_in_the_wait)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_slot_price forward[2] = {{0, 100, 0, 50, 0}, {0, 100, 0, 0, 0}};
    struct mcp_slot_price backward[2] = {{60, 140, 0, 0, 0}, {60, 140, 0, 50, 0}};
    struct mcp_pipeline pipeline = {.schedule = MCP_1F1B,
                                    .pipeline_parallel = 2,
                                    .virtual_stages = 1,
                                    .num_microbatches = 1,
                                    .forward = forward,
                                    .backward = backward};
    struct mcp_pipeline_rank ranks[2];
    cr_expect(eq(i64, mcp_pipeline_play(arena, &pipeline, ranks, NULL),
                 (int64_t)(100 + 50 + 100 + 200 + 50 + 140)));
    cr_expect(eq(i64, ranks[0].exposed_ns, (int64_t)50));
    cr_expect(eq(i64, ranks[0].bubble_ns, (int64_t)(50 + 100 + 200 - 60)));
    mcp_arena_free(arena);
}

struct case_zero_bubble {
    char name[32];
    enum mcp_schedule schedule;
    int64_t f, b, w; /* of the papers' formulas: W <= B, and W <= F where it counts twice */
};
ParameterizedTestParameters(pipeline, zero_bubble)
{
    static struct case_zero_bubble cases[] = {
        {"H1, equal", MCP_ZB_H1, 100, 100, 100},  {"H1, measured", MCP_ZB_H1, 1856, 1930, 1705},
        {"H1, light W", MCP_ZB_H1, 100, 130, 40}, {"H2, equal", MCP_ZB_H2, 100, 100, 100},
        {"H2, light W", MCP_ZB_H2, 100, 100, 70}, {"H2, W half", MCP_ZB_H2, 100, 120, 50},
    };
    return cr_make_param_array(struct case_zero_bubble, cases, sizeof cases / sizeof *cases);
}
/* Qi et al. 2023, table 1: (p-1)(F+B-W) idle with the memory of 1F1B, (p-1)(F+B-2W) with
 * twice that, on the rank that is longest at work: steps follow each other unhindered. */
ParameterizedTest(struct case_zero_bubble *c, pipeline, zero_bubble)
{
    struct mcp_arena *arena = mcp_arena_new();
    static struct mcp_slot_price prices[MCP_NUM_PASSES][MAX_STAGES];
    struct mcp_pipeline_rank ranks[MAX_STAGES];
    for (int k = 0; k < MAX_STAGES; k++) {
        prices[MCP_PASS_FORWARD][k].body_ns = c->f;
        prices[MCP_PASS_BACKWARD_INPUT][k].body_ns = c->b;
        prices[MCP_PASS_BACKWARD_WEIGHT][k].body_ns = c->w;
    }
    for (int p = 2; p <= 32; p++)
        for (int m = 2 * p; m <= 4 * p; m += p + 1) {
            struct mcp_pipeline pipeline = {.schedule = c->schedule,
                                            .pipeline_parallel = p,
                                            .virtual_stages = 1,
                                            .num_microbatches = m,
                                            .forward = prices[MCP_PASS_FORWARD],
                                            .backward = prices[MCP_PASS_BACKWARD],
                                            .backward_input = prices[MCP_PASS_BACKWARD_INPUT],
                                            .backward_weight = prices[MCP_PASS_BACKWARD_WEIGHT]};
            int64_t longest = 0, twice = c->schedule == MCP_ZB_H2 ? 2 : 1;
            mcp_pipeline_play(arena, &pipeline, ranks, NULL);
            for (int r = 0; r < p; r++) {
                int64_t span = ranks[r].end_ns - ranks[r].start_ns;
                longest = span > longest ? span : longest;
            }
            cr_expect(
                eq(i64, longest - m * (c->f + c->b + c->w), (p - 1) * (c->f + c->b - twice * c->w)),
                "%s: p=%d m=%d", c->name, p, m);
        }
    mcp_arena_free(arena);
}

/* Equal stages with a message time c: the steady state takes t + 2c(p-1)/p a microbatch. */
Test(pipeline, messages_slow_the_steady_state)
{
    struct mcp_pipeline_rank ranks[MAX_STAGES];
    struct mcp_slot_price forward = {0, 1000, 0, 400, 0}, backward = {0, 2000, 0, 400, 0};
    int64_t shorter = play_equal(MCP_1F1B, 16, 1, 160, forward, backward, ranks);
    int64_t longer = play_equal(MCP_1F1B, 16, 1, 320, forward, backward, ranks);
    cr_expect(eq(i64, longer - shorter, (int64_t)160 * 3750));
}

struct bound {
    int p, m;
    int64_t c, total;
    const int64_t *t;        /* [p] forward + backward */
    const int64_t *backward; /* [p] */
};

static int64_t window_bound(const struct bound *b, int lo, int hi)
{
    int n = hi - lo + 1, q = (b->m - 2 - (b->p - 1 - lo)) / n + 1;
    int64_t sum = 0;
    for (int s = lo; s <= hi; s++)
        sum += b->t[s];
    if (b->m - 2 - (b->p - 1 - lo) < 0)
        q = 0;
    while (q * n > b->m - 1)
        q--;
    return b->total + 2 * (b->p - 1) * b->c + q * (sum + 2 * (n - 1) * b->c) +
           (b->m - 1 - (int64_t)q * n) * b->backward[lo];
}

static int64_t best_bound(const struct bound *b)
{
    int64_t best = 0, before = 0;
    for (int s = 0; s < b->p; s++) {
        int64_t stage = before + 2 * s * b->c + b->m * b->t[s];
        best = stage > best ? stage : best;
        before += b->t[s];
        for (int hi = s; hi < b->p; hi++) {
            int64_t window = window_bound(b, s, hi);
            best = window > best ? window : best;
        }
    }
    return best;
}

/* The bounds of a search must never exceed what is played, and be worth having. */
Test(pipeline, lower_bounds_are_admissible)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct random random = {7};
    double gap = 0;
    const int count = 2000;
    for (int i = 0; i < count; i++) {
        struct mcp_slot_price forward[16], backward[16];
        struct mcp_pipeline_rank ranks[16];
        int64_t t[16], b[16], total = 0;
        int p = 1 + below(&random, 16), m = 1 + below(&random, 100), c = below(&random, 4) * 100;
        for (int s = 0; s < p; s++) {
            forward[s] = (struct mcp_slot_price){0, 700 + below(&random, 600), 0, c, 0};
            backward[s] = (struct mcp_slot_price){0, 1400 + below(&random, 1200), 0, c, 0};
            b[s] = backward[s].body_ns;
            total += t[s] = forward[s].body_ns + b[s];
        }
        struct mcp_pipeline pipeline = {.schedule = MCP_1F1B,
                                        .pipeline_parallel = p,
                                        .virtual_stages = 1,
                                        .num_microbatches = m,
                                        .forward = forward,
                                        .backward = backward};
        int64_t exact = mcp_pipeline_play(arena, &pipeline, ranks, NULL);
        int64_t bound = best_bound(&(struct bound){p, m, c, total, t, b});
        cr_assert(bound <= exact, "case %d: p=%d m=%d c=%d: %lld > %lld", i, p, m, c,
                  (long long)bound, (long long)exact);
        gap += 1.0 - (double)bound / (double)exact;
    }
    cr_expect(gap / count < 0.02, "mean gap %g", gap / count);
    mcp_arena_free(arena);
}
