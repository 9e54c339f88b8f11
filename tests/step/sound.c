/* tests/step/sound.c: a drawn plan's program beside its price. */
#include "tests/step/sound.h"

#include "step/build.h"
#include "step/verify.h"
#include "tests/step/play.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

int64_t sound_program(struct mcp_arena *arena, const struct random_plan *drawn,
                      struct mcp_program *out)
{
    struct play_result *played = MCP_NEW(arena, struct play_result);
    struct mcp_prediction *priced = MCP_NEW(arena, struct mcp_prediction);
    const char *says = random_plan_describe(arena, drawn);
    struct mcp_error err = {""};
    mcp_program_build(arena, &drawn->question, &drawn->plan, out);
    cr_expect(eq(int, (int)mcp_program_verify(arena, out, &err), MCP_OK), "%s: %s", says, err.text);
    play_program(arena, &drawn->question, out, played);
    mcp_estimate(mcp_pricer_new(arena, &drawn->question), &drawn->plan, priced);
    cr_expect(eq(i64, (int64_t)llround(priced->iteration_s * 1e9), played->step_ns), "%s", says);
    cr_expect(eq(i64, priced->peak_memory_bytes, played->peak_memory_bytes), "%s", says);
    return priced->peak_memory_bytes;
}
