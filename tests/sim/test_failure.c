/* tests/sim/test_failure.c: who waits from when on, when a rank dies within a step. */
#include "sim/failure.h"
#include "tests/step/random_plan.h"
#include "tests/step/setup.h"

#include "core/mesh.h"
#include "step/build.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

enum { NUM_PLANS = 60, NUM_TIMES = 8 };

struct drawn {
    struct random_plan random;
    struct mcp_program program;
    struct mcp_sim_result alive;
};

static bool draw(struct mcp_arena *arena, int seed, struct drawn *d)
{
    const struct mcp_sim_options options = mcp_sim_options_default();
    random_plan_draw_any(arena, (uint64_t)seed, &d->random);
    if (d->random.plan.pipeline_parallel == 1)
        return false;
    mcp_program_build(arena, &d->random.question, &d->random.plan, &d->program);
    mcp_sim_play(arena, &d->random.question, &d->program, &options, &d->alive);
    return true;
}

static void expect_between(const struct drawn *d, const struct mcp_sim_stop *before, int dead,
                           const struct mcp_sim_stop *stops)
{
    for (int s = 0; s < d->alive.num_stages; s++) {
        cr_expect(ge(int, stops[s].slot, before[s].slot), "who lives longer does no less");
        cr_expect(le(int, stops[s].slot, stops[s].num_slots));
        if (s != dead)
            cr_expect(le(i64, stops[s].waits_ns, d->alive.stages[s].latest_end_ns));
    }
}

/* From the begin on: nobody gets a message of its. Later: as far as before, or farther. After
 * the end: all is done. */
Test(sim_failure, stages_come_as_far_as_their_messages)
{
    int looked_at = 0;
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = MCP_NEW(arena, struct drawn);
        if (draw(arena, seed, d)) {
            int p = d->alive.num_stages, rank = seed % mcp_plan_world(&d->random.plan);
            struct mcp_sim_stop *stops = MCP_ARRAY(arena, p * (NUM_TIMES + 1), struct mcp_sim_stop);
            for (int i = 0; i < NUM_TIMES; i++) {
                struct mcp_sim_failure failure = {rank, d->alive.end_ns * i / (NUM_TIMES - 1)};
                struct mcp_sim_stop *now = &stops[(i + 1) * p];
                int dead =
                    mcp_sim_play_failure(arena, &d->random.question, &d->program, &failure, now);
                cr_assert(eq(int, dead, mcp_mesh_coordinate(&d->random.plan, rank).pipeline));
                cr_expect(eq(i64, now[dead].waits_ns, failure.at_ns));
                expect_between(d, &stops[i * p], dead, now);
            }
            for (int s = 0; s < p; s++)
                cr_expect(eq(int, stops[NUM_TIMES * p + s].slot, d->alive.stages[s].num_slots));
            looked_at++;
        }
        mcp_arena_free(arena);
    }
    cr_expect(gt(int, looked_at, NUM_PLANS / 3));
}

/* 1F1B on four stages, the last dead from the begin: stage s runs the 4 - 1 - s forwards of its
 * warm-up and one more, then awaits a backward. */
Test(sim_failure, the_warm_up_is_all_that_runs_without_the_last_stage)
{
    struct setup s;
    struct mcp_program program;
    struct mcp_sim_stop stops[4];
    const struct mcp_sim_failure failure = {.rank = 3};
    setup_load(&s, "llama-3.1-8b", "dgx-h100", "megatron-core");
    s.plan.pipeline_parallel = 4;
    setup_finish(&s, 8, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    cr_assert(eq(int, mcp_sim_play_failure(s.arena, &s.question, &program, &failure, stops), 3));
    for (int stage = 0; stage < 3; stage++) {
        const struct mcp_slot *slot = &program.classes[stage].slots[stops[stage].slot];
        cr_expect(eq(int, stops[stage].slot, 1 + 4 - stage), "the prologue first");
        cr_expect(eq(int, slot->pass, MCP_BACKWARD));
        cr_expect(eq(int, slot->microbatch, 0));
    }
    mcp_arena_free(s.arena);
}
