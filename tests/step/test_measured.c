/* tests/step/test_measured.c: ops priced by what a calibration says of them. */
#include "tests/step/setup.h"

#include "step/build.h"
#include "step/measured.h"
#include "step/price_parts.h"

#include <criterion/new/assert.h>
#include <math.h>
#include <string.h>

/* Two layers of gpt2 over 2 tensor ranks. */
static void load(struct setup *s)
{
    setup_load(s, "gpt2", "dgx-a100", "megatron-core");
    setup_cut(s, 2);
    s->job.sequence_length = 128;
    s->plan.tensor_parallel = 2;
    setup_finish(s, 1, MCP_RECOMPUTE_NONE);
}

/* Every op of a layer, each with a time of its own. */
static void calibrate(struct setup *s, const struct mcp_block *block,
                      struct mcp_calibration *calibration)
{
    calibration->samples = MCP_ARRAY(s->arena, block->num_ops, struct mcp_sample);
    calibration->num_samples = 0;
    for (int i = 0; i < block->num_ops; i++) {
        struct mcp_sample *sample = &calibration->samples[calibration->num_samples];
        if (!mcp_op_sample(&block->ops[i], &s->plan, sample))
            continue;
        double number = 0; /* equal ops, equal times */
        for (int k = 0; k < MCP_SAMPLE_SIZES; k++)
            number += sample->sizes[k] * (k + 1);
        sample->seconds = 1e-6 * number + 1e-9 * (double)strlen(sample->function);
        calibration->num_samples++;
    }
    mcp_calibration_sort(calibration);
}

static void expect_positive(const struct mcp_block *block, const struct mcp_plan *plan)
{
    struct mcp_sample sample;
    for (int i = 0; i < block->num_ops; i++)
        for (int k = 0; mcp_op_sample(&block->ops[i], plan, &sample) && k < MCP_SAMPLE_SIZES; k++)
            cr_expect(sample.sizes[k] >= 1, "%s: size %d is %g", sample.function, k,
                      sample.sizes[k]);
}

/* A calibration file holds no size that is not positive: what an op has no use for is 1. */
Test(measured, sizes_are_positive)
{
    static const char *const models[] = {"gpt2", "mixtral-8x7b", "qwen3-30b-a3b"};
    for (size_t m = 0; m < MCP_COUNT_OF(models); m++) {
        struct setup s;
        struct mcp_program program;
        setup_load(&s, models[m], "dgx-a100", "megatron-core");
        setup_cut(&s, 2);
        s.job.sequence_length = 128;
        s.plan.data_parallel = 2;
        setup_finish(&s, 1, MCP_RECOMPUTE_FULL);
        mcp_program_build(s.arena, &s.question, &s.plan, &program);
        for (int t = 0; t < program.num_types; t++)
            for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
                expect_positive(&program.types[t].blocks[role], &s.plan);
        mcp_arena_free(s.arena);
    }
}

Test(measured, ops_take_what_was_measured)
{
    struct setup s;
    struct mcp_calibration calibration;
    load(&s);
    const struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    const struct mcp_pricing pricing = {&s.question, &s.plan};
    const enum mcp_block_role roles[] = {MCP_FORWARD, MCP_BACKWARD};
    for (size_t r = 0; r < MCP_COUNT_OF(roles); r++) {
        const struct mcp_block *block = &type.blocks[roles[r]];
        int transfers = 0, others = 0;
        calibrate(&s, block, &calibration);
        cr_assert(calibration.num_samples > 5);
        for (int i = 0; i < block->num_ops; i++) {
            const struct mcp_op *op = &block->ops[i];
            struct mcp_sample sample;
            double want, seconds;
            if (!mcp_op_sample(op, &s.plan, &sample))
                continue;
            cr_assert(mcp_calibration_seconds(&calibration, &sample, &want));
            s.stack.calibration = NULL;
            seconds = mcp_op_seconds(&pricing, op);
            cr_expect(fabs(seconds / want - 1) > 1e-6, "op %d is priced so without", i);
            s.stack.calibration = &calibration;
            seconds = mcp_op_seconds(&pricing, op);
            cr_expect(fabs(seconds / want - 1) <= 1e-12, "op %d: %g, not %g", i, seconds, want);
            transfers += mcp_op_is_transfer(op);
            others += !mcp_op_is_transfer(op);
        }
        cr_expect(transfers > 0 && others > 5);
    }
    mcp_arena_free(s.arena);
}

Test(measured, messages_take_what_was_measured)
{
    struct setup s;
    struct mcp_sample sample = mcp_message_sample(1 << 20);
    struct mcp_calibration calibration = {1, &sample};
    load(&s);
    const struct mcp_pricing pricing = {&s.question, &s.plan};
    sample.seconds = 0.25;
    s.stack.calibration = &calibration;
    cr_expect(mcp_send_seconds(&pricing, 0, 1, 1 << 20) == 0.25);
    cr_expect(mcp_send_seconds(&pricing, 0, 1, 1 << 19) == 0.125);
    cr_expect(mcp_send_seconds(&pricing, 0, 1, 0) > 0, "what has no bytes still starts");
    mcp_arena_free(s.arena);
}

/* What no sample is of has the price it had. */
Test(measured, others_are_priced_as_before)
{
    struct setup s;
    struct mcp_calibration none = {0};
    struct mcp_block_price before, after;
    load(&s);
    const struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    const struct mcp_pricing pricing = {&s.question, &s.plan};
    mcp_block_price(&pricing, &type.blocks[MCP_FORWARD], &before);
    s.stack.calibration = &none;
    mcp_block_price(&pricing, &type.blocks[MCP_FORWARD], &after);
    cr_expect(memcmp(&before, &after, sizeof before) == 0);
    mcp_arena_free(s.arena);
}
