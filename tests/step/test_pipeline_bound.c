/* tests/step/test_pipeline_bound.c: no order of slots beats the bound, and some come near. */
#include "step/pipeline_bound.h"

#include "tests/step/random_plan.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

enum { MAX_STAGES = 64 };

struct game {
    struct mcp_plan plan;
    int m;
    struct mcp_slot_price prices[MCP_NUM_PASSES][MAX_STAGES];
    int64_t release_ns[MAX_STAGES], tail_ns[MAX_STAGES];
};

static int below(uint64_t *state, int limit)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (int)((*state >> 11) % (uint64_t)limit);
}

/* As step/stage.c makes them: whole or in parts a backward has one lead and one message. */
static void draw_prices(uint64_t *dice, struct game *game, bool messages)
{
    for (int k = 0; k < MAX_STAGES; k++) {
        struct mcp_slot_price price = {.lead_ns = messages ? below(dice, 30) : 0,
                                       .send_ns = messages ? below(dice, 20) : 0,
                                       .delay_ns = messages ? below(dice, 40) : 0};
        for (int pass = 0; pass < MCP_NUM_PASSES; pass++)
            game->prices[pass][k] = price;
        game->prices[MCP_PASS_FORWARD][k].body_ns = 50 + below(dice, 60);
        game->prices[MCP_PASS_BACKWARD_INPUT][k].body_ns = 50 + below(dice, 60);
        game->prices[MCP_PASS_BACKWARD_WEIGHT][k] =
            (struct mcp_slot_price){.body_ns = 20 + below(dice, 60)};
        game->prices[MCP_PASS_BACKWARD][k].body_ns = 90 + below(dice, 80);
        game->prices[MCP_PASS_BACKWARD][k].after_ns = messages ? below(dice, 90) : 0;
        game->release_ns[k] = messages ? below(dice, 100) : 0;
        game->tail_ns[k] = messages ? below(dice, 100) : 0;
    }
}

static struct mcp_pipeline pipeline_of(const struct game *game)
{
    return (struct mcp_pipeline){.schedule = game->plan.schedule,
                                 .pipeline_parallel = game->plan.pipeline_parallel,
                                 .virtual_stages = game->plan.virtual_stages,
                                 .num_microbatches = game->m,
                                 .forward = game->prices[MCP_PASS_FORWARD],
                                 .backward = game->prices[MCP_PASS_BACKWARD],
                                 .release_ns = game->release_ns,
                                 .backward_input = game->prices[MCP_PASS_BACKWARD_INPUT],
                                 .backward_weight = game->prices[MCP_PASS_BACKWARD_WEIGHT],
                                 .placement = mcp_plan_placement(&game->plan),
                                 .rows = game->plan.rows};
}

static int64_t play(struct mcp_arena *arena, const struct game *game)
{
    struct mcp_pipeline pipeline = pipeline_of(game);
    struct mcp_pipeline_rank ranks[MAX_STAGES];
    int64_t end = 0;
    mcp_pipeline_play(arena, &pipeline, ranks, NULL);
    for (int r = 0; r < pipeline.pipeline_parallel; r++)
        end = ranks[r].end_ns + game->tail_ns[r] > end ? ranks[r].end_ns + game->tail_ns[r] : end;
    return end;
}

Test(pipeline_bound, no_order_beats_it)
{
    uint64_t dice = 11;
    static struct game game;
    for (int i = 0; i < 3000; i++) {
        struct mcp_arena *arena = mcp_arena_new();
        game.plan = mcp_plan_default();
        game.plan.pipeline_parallel = 1 + below(&dice, 8);
        game.plan.placement = (enum mcp_placement)below(&dice, MCP_NUM_PLACEMENTS);
        game.plan.virtual_stages = game.plan.pipeline_parallel > 1 ? 1 + below(&dice, 3) : 1;
        game.m = 1 + below(&dice, 20);
        draw_prices(&dice, &game, true);
        random_rows_draw(arena, (uint64_t)i, game.m, &game.plan);
        struct mcp_pipeline pipeline = pipeline_of(&game);
        int64_t bound = mcp_pipeline_bound_ns(arena, &pipeline, game.tail_ns);
        cr_assert(le(i64, bound, play(arena, &game)), "case %d: p=%d v=%d m=%d", i,
                  game.plan.pipeline_parallel, game.plan.virtual_stages, game.m);
        mcp_arena_free(arena);
    }
}

struct case_near {
    char name[24];
    enum mcp_schedule schedule;
    double gap; /* of the exact time, at most */
};
ParameterizedTestParameters(pipeline_bound, some_come_near)
{
    static struct case_near cases[] = {
        {"ZB-H1", MCP_ZB_H1, 0.12}, {"ZB-H2", MCP_ZB_H2, 0.09}, {"1F1B", MCP_1F1B, 0.18}};
    return cr_make_param_array(struct case_near, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_near *c, pipeline_bound, some_come_near)
{
    uint64_t dice = 5;
    double gap = 0;
    static struct game game;
    struct mcp_arena *arena = mcp_arena_new();
    for (int i = 0; i < 200; i++) {
        game.plan = mcp_plan_default();
        game.plan.schedule = c->schedule;
        game.plan.pipeline_parallel = 2 + below(&dice, 7);
        game.m = game.plan.pipeline_parallel * (2 + below(&dice, 6));
        draw_prices(&dice, &game, false);
        struct mcp_pipeline pipeline = pipeline_of(&game);
        int64_t bound = mcp_pipeline_bound_ns(arena, &pipeline, NULL), exact = play(arena, &game);
        cr_assert(le(i64, bound, exact), "%s: case %d", c->name, i);
        gap += 1 - (double)bound / (double)exact;
    }
    cr_expect(lt(dbl, gap / 200, c->gap), "%s: mean gap %g", c->name, gap / 200);
    mcp_arena_free(arena);
}
