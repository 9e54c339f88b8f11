/* tests/step/test_synthesis.c: synthesised rows are whole, fit, and are as short as the best known. */
#include "step/pipeline.h"
#include "step/synthesis.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#define MAX_RANKS 32

struct problem {
    struct mcp_synthesis synthesis;
    struct mcp_synthesis_stage stages[2 * MAX_RANKS];
    int64_t limit[MAX_RANKS], release[MAX_RANKS], tail[MAX_RANKS];
    struct mcp_schedule_row rows[MAX_RANKS];
};

static struct problem *new_problem(struct mcp_arena *arena, int p, int v, int m)
{
    struct problem *problem = MCP_NEW(arena, struct problem);
    problem->synthesis = (struct mcp_synthesis){
        .placement = v > 1 ? MCP_PLACEMENT_V : MCP_PLACEMENT_LOOP,
        .pipeline_parallel = p,
        .virtual_stages = v,
        .num_microbatches = m,
        .stages = problem->stages,
        .limit_bytes = problem->limit,
    };
    return problem;
}

/* --- the public schedulers' figures: idle over total of the longest rank --- */

static const enum mcp_schedule names[] = {MCP_ZB_H1, MCP_ZB_H2, MCP_ZB_V, MCP_V_HALF, MCP_V_MIN};

struct case_published {
    int p, m;
    double forward, backward, weight, delay; /* microseconds, of each chunk */
    double idle_percent[5];                  /* by names */
};
ParameterizedTestParameters(synthesis, published)
{
    static struct case_published cases[] = {
        {8, 24, 10, 10, 10, 0, {8.86, 0, 0, 10.56, 15.79}},
        {8, 64, 10, 10, 10, 0, {3.52, 0, 0, 4.24, 6.57}},
        {16, 64, 10, 10, 10, 0, {7.25, 0, 0, 9.65, 13.32}},
        {8, 24, 18.522, 18.086, 9.337, 0.601, {15.85, 10.15, 7.03, 17.02, 33.53}},
        {8, 32, 29.718, 29.444, 19.927, 0.527, {10.26, 4.62, 3.05, 11.26, 24.27}},
        {16, 48, 11.347, 11.248, 8.132, 0.377, {13.97, 5.75, 4.98, 16.82, 29.27}},
        {32, 96, 10.419, 10.204, 7.685, 0.408, {14.25, 5.47, 5.35, 17.82, 30.34}},
    };
    return cr_make_param_array(struct case_published, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_published *c, synthesis, published)
{
    struct mcp_arena *arena = mcp_arena_new();
    for (int i = 0; i < 5; i++) {
        int v = i < 2 ? 1 : 2;
        struct problem *problem = new_problem(arena, c->p, v, c->m);
        struct mcp_synthesis_stage stage = {
            .forward_ns = (int64_t)(c->forward * 1000 + 0.5),
            .backward_input_ns = (int64_t)(c->backward * 1000 + 0.5),
            .backward_weight_ns = (int64_t)(c->weight * 1000 + 0.5),
            .forward_delay_ns = (int64_t)(c->delay * 1000 + 0.5),
            .backward_delay_ns = (int64_t)(c->delay * 1000 + 0.5),
            .kept_bytes = 34,
            .kept_for_weight_bytes = 32,
        };
        for (int k = 0; k < c->p * v; k++)
            problem->stages[k] = stage;
        problem->synthesis.no_barrier = true;
        mcp_synthesis_limit(names[i], &problem->synthesis, problem->limit);
        struct mcp_error err = {0};
        int64_t time = 0;
        cr_assert(mcp_synthesize(arena, &problem->synthesis, problem->rows, &time, &err) == MCP_OK,
                  "%s", err.text);
        double work =
            (double)(stage.forward_ns + stage.backward_input_ns + stage.backward_weight_ns) * c->m *
            v;
        double idle = 100 * (1 - work / (double)time);
        cr_expect(idle <= c->idle_percent[i] + 0.005, "p=%d m=%d %s: %.3f %% idle, %.2f published",
                  c->p, c->m, mcp_schedule_names[names[i]], idle, c->idle_percent[i]);
        cr_expect(mcp_synthesis_time_ns(arena, &problem->synthesis, problem->rows) == time);
    }
    mcp_arena_free(arena);
}

/* --- random problems, judged by a player of our own --- */

static uint64_t state;
static int64_t below(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

static struct problem *random_problem(struct mcp_arena *arena)
{
    int v = 1 + (int)below(2), p = 1 + (int)below(9), m = 1 + (int)below(20);
    struct problem *problem = new_problem(arena, p, v, m);
    int64_t pair = 0;
    bool leads = below(2);
    for (int k = 0; k < p * v; k++) {
        int64_t kept = 1 + below(100);
        struct mcp_synthesis_stage *stage = &problem->stages[k];
        *stage = (struct mcp_synthesis_stage){.forward_ns = 1 + below(1000),
                                              .backward_input_ns = 1 + below(1000),
                                              .backward_weight_ns = below(1000),
                                              .forward_delay_ns = below(200),
                                              .backward_delay_ns = below(200),
                                              .kept_bytes = kept,
                                              .kept_for_weight_bytes = below(kept + kept / 4 + 1)};
        if (leads) {
            stage->forward_lead_ns = below(stage->forward_ns);
            stage->backward_lead_ns = below(stage->backward_input_ns);
        }
        pair += kept + kept / 4;
    }
    pair = v * 125 + pair / p * below(2 * p);
    for (int r = 0; r < p; r++) {
        problem->limit[r] = pair + below(50);
        problem->release[r] = below(500);
        problem->tail[r] = below(500);
    }
    problem->synthesis.release_ns = below(2) ? problem->release : NULL;
    problem->synthesis.tail_ns = below(2) ? problem->tail : NULL;
    problem->synthesis.no_barrier = below(2);
    problem->synthesis.max_work = 100000;
    return problem;
}

struct player {
    const struct problem *problem;
    int64_t end[3][2 * MAX_RANKS][32]; /* pass, stage, microbatch; 0: has not run */
    int64_t free[MAX_RANKS], first[MAX_RANKS], kept[MAX_RANKS];
    int next[MAX_RANKS];
};

static int pass_of(struct mcp_action action)
{
    cr_assert(action.pass != MCP_PASS_BACKWARD);
    return action.pass == MCP_PASS_FORWARD ? 0 : action.pass == MCP_PASS_BACKWARD_INPUT ? 1 : 2;
}

/* When what the slot needs has come; -1: not known yet. */
static int64_t arrival(const struct player *player, int k, int pass, int microbatch)
{
    const struct mcp_synthesis *q = &player->problem->synthesis;
    int stages = q->pipeline_parallel * q->virtual_stages;
    if (pass > 0 && player->end[pass - 1][k][microbatch] == 0)
        return -1;
    int from = pass == 0 ? k - 1 : pass == 1 && k + 1 < stages ? k + 1 : -1;
    if (from < 0)
        return 0;
    if (player->end[pass][from][microbatch] == 0)
        return -1;
    bool here = mcp_placed_rank(q->placement, q->pipeline_parallel, from) ==
                mcp_placed_rank(q->placement, q->pipeline_parallel, k);
    int64_t delay = pass == 0 ? q->stages[from].forward_delay_ns - q->stages[k].forward_lead_ns
                              : q->stages[from].backward_delay_ns - q->stages[k].backward_lead_ns;
    int64_t came = player->end[pass][from][microbatch] + (here ? 0 : delay);
    return came > 0 ? came : 0;
}

static bool advance(struct player *player, int r)
{
    const struct mcp_synthesis *q = &player->problem->synthesis;
    struct mcp_action action = player->problem->rows[r].actions[player->next[r]];
    int k = mcp_placed_stage(q->placement, q->pipeline_parallel, r, action.chunk);
    int pass = pass_of(action), b = action.microbatch;
    const struct mcp_synthesis_stage *stage = &q->stages[k];
    int64_t came = arrival(player, k, pass, b);
    if (came < 0)
        return false;
    cr_assert(player->end[pass][k][b] == 0, "once each");
    cr_assert(b == 0 || player->end[pass][k][b - 1] > 0, "in order");
    int64_t cost[] = {stage->forward_ns, stage->backward_input_ns, stage->backward_weight_ns};
    int64_t change[] = {stage->kept_bytes, stage->kept_for_weight_bytes - stage->kept_bytes,
                        -stage->kept_for_weight_bytes};
    int64_t start = came > player->free[r] ? came : player->free[r];
    if (player->next[r]++ == 0)
        player->first[r] = start;
    player->free[r] = player->end[pass][k][b] = start + cost[pass];
    player->kept[r] += change[pass];
    cr_assert(player->kept[r] <= q->limit_bytes[r], "rank %d keeps %lld of %lld", r,
              (long long)player->kept[r], (long long)q->limit_bytes[r]);
    return true;
}

static int64_t play(const struct problem *problem)
{
    static struct player player;
    const struct mcp_synthesis *q = &problem->synthesis;
    player = (struct player){.problem = problem};
    int64_t longest = 0;
    for (int r = 0; r < q->pipeline_parallel; r++)
        player.free[r] = q->release_ns ? q->release_ns[r] : 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < q->pipeline_parallel; r++)
            while (player.next[r] < problem->rows[r].num_actions && advance(&player, r))
                moved = true;
    }
    for (int r = 0; r < q->pipeline_parallel; r++) {
        cr_assert(player.next[r] == 3 * q->virtual_stages * q->num_microbatches, "rank %d waits",
                  r);
        cr_assert(player.kept[r] == 0);
        int64_t end = player.free[r] + (q->tail_ns ? q->tail_ns[r] : 0);
        end -= q->no_barrier ? player.first[r] : 0;
        longest = end > longest ? end : longest;
    }
    return longest;
}

/* The same by the recurrence that plans are priced with. */
static int64_t price(struct mcp_arena *arena, const struct problem *problem)
{
    const struct mcp_synthesis *q = &problem->synthesis;
    struct mcp_slot_price slots[3][2 * MAX_RANKS] = {{{0}}};
    struct mcp_pipeline_rank ranks[MAX_RANKS];
    int64_t longest = 0;
    for (int k = 0; k < q->pipeline_parallel * q->virtual_stages; k++) {
        const struct mcp_synthesis_stage *stage = &q->stages[k];
        slots[0][k] = (struct mcp_slot_price){.lead_ns = stage->forward_lead_ns,
                                              .body_ns = stage->forward_ns - stage->forward_lead_ns,
                                              .delay_ns = stage->forward_delay_ns};
        slots[1][k] =
            (struct mcp_slot_price){.lead_ns = stage->backward_lead_ns,
                                    .body_ns = stage->backward_input_ns - stage->backward_lead_ns,
                                    .delay_ns = stage->backward_delay_ns};
        slots[2][k] = (struct mcp_slot_price){.body_ns = stage->backward_weight_ns};
    }
    const struct mcp_pipeline pipeline = {.schedule = MCP_CUSTOM,
                                          .pipeline_parallel = q->pipeline_parallel,
                                          .virtual_stages = q->virtual_stages,
                                          .num_microbatches = q->num_microbatches,
                                          .forward = slots[0],
                                          .backward = slots[1],
                                          .backward_input = slots[1],
                                          .backward_weight = slots[2],
                                          .release_ns = q->release_ns,
                                          .placement = q->placement,
                                          .rows = problem->rows};
    mcp_pipeline_play_all(arena, &pipeline, ranks, NULL);
    for (int r = 0; r < q->pipeline_parallel; r++) {
        int64_t end = ranks[r].end_ns + (q->tail_ns ? q->tail_ns[r] : 0);
        end -= q->no_barrier ? ranks[r].start_ns : 0;
        longest = end > longest ? end : longest;
    }
    return longest;
}

Test(synthesis, random_problems)
{
    for (int seed = 0; seed < 200; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        state = (uint64_t)seed;
        struct problem *problem = random_problem(arena);
        struct mcp_error err = {0};
        int64_t time = 0;
        enum mcp_status status =
            mcp_synthesize(arena, &problem->synthesis, problem->rows, &time, &err);
        cr_assert(status == MCP_OK, "seed %d: %s", seed, err.text);
        cr_assert(play(problem) == time, "seed %d", seed);
        cr_assert(price(arena, problem) == time, "seed %d", seed);
        cr_assert(mcp_synthesis_time_ns(arena, &problem->synthesis, problem->rows) == time);
        cr_assert(mcp_synthesis_bound_ns(&problem->synthesis) <= time, "seed %d", seed);
        mcp_arena_free(arena);
    }
}

Test(synthesis, the_same_again)
{
    struct mcp_arena *arena = mcp_arena_new();
    state = 7;
    struct problem *a = random_problem(arena);
    state = 7;
    struct problem *b = random_problem(arena);
    struct mcp_error err = {0};
    cr_assert(mcp_synthesize(arena, &a->synthesis, a->rows, NULL, &err) == MCP_OK);
    cr_assert(mcp_synthesize(arena, &b->synthesis, b->rows, NULL, &err) == MCP_OK);
    for (int r = 0; r < a->synthesis.pipeline_parallel; r++) {
        size_t bytes = (size_t)a->rows[r].num_actions * sizeof(struct mcp_action);
        cr_expect(memcmp(a->rows[r].actions, b->rows[r].actions, bytes) == 0, "rank %d", r);
    }
    mcp_arena_free(arena);
}

Test(synthesis, one_microbatch_must_fit)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct problem *problem = new_problem(arena, 3, 2, 5);
    for (int k = 0; k < 6; k++)
        problem->stages[k] = (struct mcp_synthesis_stage){1, 1, 1, 0, 0, 0, 0, 10, 10};
    for (int r = 0; r < 3; r++)
        problem->limit[r] = r == 1 ? 19 : 20;
    struct mcp_error err = {0};
    cr_expect(mcp_synthesize(arena, &problem->synthesis, problem->rows, NULL, &err) ==
              MCP_INFEASIBLE);
    cr_expect(
        eq(str, err.text, "rank 1 may keep 19 bytes of activations, one microbatch needs 20"));
    problem->limit[1] = 20;
    cr_expect(mcp_synthesize(arena, &problem->synthesis, problem->rows, NULL, &err) == MCP_OK);
    mcp_arena_free(arena);
}
