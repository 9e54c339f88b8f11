/* step/legal_optimizer.c: what the job's optimizer asks of a plan. */
#include "step/legal_parts.h"

#include "core/text.h"

bool mcp_hold_whole_state(const struct ask *ask, int stage)
{
    return ask->job->optimizer != MCP_OPTIMIZER_ONE_BIT_ADAM || stage == 0;
}

const char *mcp_say_whole_state(struct mcp_arena *arena, const struct ask *ask, int stage)
{
    (void)ask;
    return mcp_format(arena,
                      "zero_stage=%d shards moments that every rank of one_bit_adam keeps whole; "
                      "nearest legal 0, or optimizer adam",
                      stage);
}
