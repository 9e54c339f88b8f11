/* tests/step/test_batch.c: every sequence of a batch has ranks that work on it, and as many. */
#include "step/batch.h"
#include "step/build.h"
#include "tests/step/setup.h"

#include <criterion/new/assert.h>

Test(batch, each_sequence_once_in_a_replica)
{
    struct setup s;
    struct mcp_program program;
    int seen[64] = {0};
    setup_load(&s, "tiny", "dgx-a100", "megatron-core");
    s.job.sequence_length = 32;
    s.plan.tensor_parallel = 2;
    s.plan.data_parallel = 3;
    s.plan.microbatch_size = 2;
    setup_finish(&s, 4, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    const int64_t batch = mcp_batch_sequences(&program), each = mcp_microbatch_sequences(&program);
    cr_assert(eq(i64, batch, 24));
    cr_expect(eq(i64, mcp_sequence_tokens(&program), 32));
    for (int rank = 0; rank < mcp_plan_world(&program.plan); rank++)
        for (int m = 0; m < program.num_microbatches; m++)
            for (int64_t i = 0; i < each; i++) {
                const int64_t at = mcp_microbatch_sequence(&program, rank, m, i);
                cr_assert(at >= 0 && at < batch);
                seen[at]++;
            }
    for (int64_t at = 0; at < batch; at++)
        cr_expect(eq(int, seen[at], mcp_loss_copies(&program)), "sequence %d", (int)at);
    mcp_arena_free(s.arena);
}
