/* tests/step/test_dualpipe.c: DualPipeV's order has the bubble and the memory that are published. */
#include "step/pipeline.h"
#include "step/schedule.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

enum { MAX_RANKS = 16, SLOT_NS = 1000 }; /* a forward, a backward's inputs, its weights: each */

struct game {
    struct mcp_arena *arena;
    struct mcp_plan plan;
    int p, m;
    struct mcp_schedule_row rows[MAX_RANKS];
    int next[MAX_RANKS];
    int64_t start_ns[MAX_RANKS], now_ns[MAX_RANKS], busy_ns[MAX_RANKS];
    int64_t *ends[2]; /* forward, backward: [2 p][m]; 0: not yet */
};

static void load(struct game *game, int p, int m)
{
    *game = (struct game){.arena = mcp_arena_new(), .p = p, .m = m};
    game->plan = mcp_plan_default();
    game->plan.pipeline_parallel = p;
    game->plan.virtual_stages = 2;
    game->plan.schedule = MCP_DUALPIPE_V;
    for (int r = 0; r < p; r++)
        game->rows[r] = mcp_dualpipe_v_row(game->arena, p, m, r);
    game->plan.rows = game->rows;
    for (int i = 0; i < 2; i++)
        game->ends[i] = MCP_ARRAY(game->arena, 2 * p * m, int64_t);
}

/* --- as the paper counts: a forward beside a backward is one piece of work --- */

static int64_t *end_of(const struct game *game, int r, const struct mcp_action *a, int towards)
{
    int stage = mcp_plan_virtual_stage(&game->plan, r, a->chunk) + towards;
    return &game->ends[a->pass != MCP_PASS_FORWARD][stage * game->m + a->microbatch];
}

/* When what the action awaits has come; 0: nothing, or it has; -1: not yet. */
static int64_t awaited_ns(const struct game *game, int r, const struct mcp_action *a)
{
    int stage = mcp_plan_virtual_stage(&game->plan, r, a->chunk);
    int sender = a->pass == MCP_PASS_FORWARD ? stage - 1 : stage + 1;
    if (a->pass == MCP_PASS_BACKWARD_WEIGHT || sender < 0 || sender == 2 * game->p)
        return 0;
    int64_t end_ns = *end_of(game, r, a, sender - stage);
    return end_ns == 0 ? -1 : end_ns;
}

/* The last rank runs its first pair one by one: the forward's own backward is in it. */
static int pair_length(const struct game *game, int r)
{
    const struct mcp_action *a = &game->rows[r].actions[game->next[r]];
    bool last = game->next[r] + 1 == game->rows[r].num_actions;
    bool pair = !last && a[0].pass == MCP_PASS_FORWARD && a[1].pass == MCP_PASS_BACKWARD &&
                a[0].chunk != a[1].chunk;
    return pair && (r < game->p - 1 || a->microbatch != game->p) ? 2 : 1;
}

static bool advance(struct game *game, int r)
{
    const struct mcp_action *a = &game->rows[r].actions[game->next[r]];
    int count = pair_length(game, r);
    int64_t start_ns = game->now_ns[r], time_ns = 0;
    for (int i = 0; i < count; i++) {
        int64_t at_ns = awaited_ns(game, r, &a[i]);
        if (at_ns < 0)
            return false;
        start_ns = at_ns > start_ns ? at_ns : start_ns;
        time_ns += a[i].pass == MCP_PASS_BACKWARD ? 2 * SLOT_NS : SLOT_NS;
    }
    game->start_ns[r] = game->next[r] == 0 ? start_ns : game->start_ns[r];
    game->now_ns[r] = start_ns + time_ns;
    game->busy_ns[r] += time_ns;
    for (int i = 0; i < count; i++)
        if (a[i].pass != MCP_PASS_BACKWARD_WEIGHT)
            *end_of(game, r, &a[i], 0) = game->now_ns[r];
    game->next[r] += count;
    return true;
}

static int64_t bubble_of_pairs_ns(struct game *game)
{
    int64_t bubble_ns = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < game->p; r++)
            while (game->next[r] < game->rows[r].num_actions && advance(game, r))
                moved = true;
    }
    for (int r = 0; r < game->p; r++) {
        int64_t idle_ns = game->now_ns[r] - game->start_ns[r] - game->busy_ns[r];
        cr_assert(eq(int, game->next[r], game->rows[r].num_actions));
        bubble_ns = idle_ns > bubble_ns ? idle_ns : bubble_ns;
    }
    return bubble_ns;
}

/* --- as we play: a message leaves when its own slot has ended --- */

static int64_t bubble_of_slots_ns(const struct game *game)
{
    struct mcp_slot_price prices[MCP_NUM_PASSES][2 * MAX_RANKS];
    struct mcp_pipeline_rank ranks[MAX_RANKS];
    int64_t bubble_ns = 0;
    for (int pass = 0; pass < MCP_NUM_PASSES; pass++)
        for (int k = 0; k < 2 * game->p; k++)
            prices[pass][k] = (struct mcp_slot_price){
                .body_ns = pass == MCP_PASS_BACKWARD ? 2 * SLOT_NS : SLOT_NS};
    const struct mcp_pipeline pipeline = {.schedule = MCP_DUALPIPE_V,
                                          .pipeline_parallel = game->p,
                                          .virtual_stages = 2,
                                          .num_microbatches = game->m,
                                          .forward = prices[MCP_PASS_FORWARD],
                                          .backward = prices[MCP_PASS_BACKWARD],
                                          .backward_input = prices[MCP_PASS_BACKWARD_INPUT],
                                          .backward_weight = prices[MCP_PASS_BACKWARD_WEIGHT],
                                          .placement = MCP_PLACEMENT_V,
                                          .rows = game->rows};
    mcp_pipeline_play(game->arena, &pipeline, ranks, NULL);
    for (int r = 0; r < game->p; r++) {
        int64_t idle_ns = ranks[r].end_ns - ranks[r].start_ns - ranks[r].busy_ns;
        bubble_ns = idle_ns > bubble_ns ? idle_ns : bubble_ns;
    }
    return bubble_ns;
}

/* Microbatches of a chunk between their forward and their backward, at most. */
static int most_kept(const struct mcp_schedule_row *row)
{
    int kept = 0, most = 0;
    for (int i = 0; i < row->num_actions; i++) {
        enum mcp_pass pass = row->actions[i].pass;
        kept += pass == MCP_PASS_FORWARD;
        most = kept > most ? kept : most;
        kept -= pass == MCP_PASS_BACKWARD || pass == MCP_PASS_BACKWARD_INPUT;
    }
    return most;
}

/* DualPipe's table (DeepSeek-AI 2024, table 2; its PP is 2 p): a bubble of
 * (PP/2 - 1)(F&B + B - 3W) and PP + 1 microbatches kept, at F = B / 2 = W, F&B = F + B.
 * There both messages of a pair leave at its end; ours leave in the middle too. */
struct case_size {
    int p, m;
};

ParameterizedTestParameters(dualpipe, published)
{
    static struct case_size cases[] = {{2, 4},  {2, 9},  {4, 8},   {4, 20},
                                       {8, 16}, {8, 17}, {16, 32}, {16, 64}};
    return cr_make_param_array(struct case_size, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_size *c, dualpipe, published)
{
    struct game game;
    int p = c->p, m = c->m, most = 0;
    load(&game, p, m);
    const char *fault = mcp_rows_fault(game.arena, &game.plan, m);
    cr_assert(eq(ptr, (void *)fault, NULL), "%s", fault);
    const int64_t f = SLOT_NS, b = 2 * SLOT_NS, w = SLOT_NS;
    cr_expect(eq(i64, bubble_of_pairs_ns(&game), (p - 1) * (f + b + b - 3 * w)));
    cr_expect(eq(i64, bubble_of_slots_ns(&game), (int64_t)(p - 1) * f));
    for (int r = 0; r < p; r++)
        most = most_kept(&game.rows[r]) > most ? most_kept(&game.rows[r]) : most;
    cr_expect(eq(int, most, 2 * p + 1));
    mcp_arena_free(game.arena);
}
