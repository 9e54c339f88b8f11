/* tests/step/test_pool_split.c: what an executor lays out at once is what a plan says, for any
 * schedule, placement and order. */
#include "tests/step/play.h"
#include "tests/step/random_plan.h"

#include "step/build.h"
#include "step/pool.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

/* The stack's own factors are left out: a pool has the bytes of buffers alone. */
Test(pool, peaks_are_those_played)
{
    for (uint64_t seed = 0; seed < 250; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan drawn;
        struct mcp_program program;
        struct play_result *played = MCP_NEW(arena, struct play_result);
        random_plan_draw_any(arena, seed, &drawn);
        drawn.stack.activation_memory_factor = 1;
        drawn.stack.dummy_gradient_bytes = 0;
        mcp_program_build(arena, &drawn.question, &drawn.plan, &program);
        play_program(arena, &drawn.question, &program, played);
        for (int class = 0; class < program.num_classes; class ++) {
            struct mcp_pool *pool;
            struct mcp_error err = {""};
            cr_assert(eq(int, (int)mcp_pool_new(arena, &program, class, &pool, &err), MCP_OK), "%s",
                      err.text);
            cr_expect(
                eq(i64, mcp_pool_peak_bytes(pool), mcp_memory_allocated(&played->memory[class])),
                "seed %d: %s: rank %d", (int)seed, random_plan_describe(arena, &drawn), class);
        }
        mcp_arena_free(arena);
    }
}
