/* tests/step/test_quantised.c: saved activations of 8 bits: bytes, places, any plan. */
#include "tests/step/setup.h"
#include "tests/step/sound.h"

#include "step/build.h"
#include "step/estimate.h"
#include "step/quantised.h"
#include "step/verify.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

struct case_bytes {
    int64_t rows, columns, bytes;
};

ParameterizedTestParameters(quantised, bytes)
{
    static struct case_bytes cases[] = {
        {1, 1, 5}, {3, 64, 3 * 68}, {3, 65, 3 * 73}, {2, 128, 2 * 136}, {0, 64, 0},
    };
    return cr_make_param_array(struct case_bytes, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_bytes *c, quantised, bytes)
{
    cr_expect(eq(i64, mcp_quantised_bytes(c->rows, c->columns), c->bytes));
}

static struct mcp_layer_type layer_of(struct setup *s, int bits, enum mcp_recompute recompute)
{
    setup_load(s, "gpt2", "dgx-h100", "megatron-core");
    s->job.sequence_length = 64;
    s->job.saved_activation_bits = bits;
    return setup_layer(s, 0, recompute);
}

/* Ops of a block that read, or write, frame `index` of their own layer. */
static int mentions(const struct mcp_block *block, int index, bool write)
{
    int count = 0;
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_op *op = &block->ops[i];
        const struct mcp_operand *at = write ? op->writes : op->reads;
        for (int k = 0; k < (write ? op->num_writes : op->num_reads); k++)
            count +=
                at[k].space == MCP_SPACE_FRAME && at[k].layer_offset == 0 && at[k].index == index;
    }
    return count;
}

/* Written once, by its quantisation, and read once a block. */
static void check_kept(const struct mcp_layer_type *type, int f, int64_t whole_bytes)
{
    const struct mcp_buffer *frame = &type->buffers[MCP_SPACE_FRAME][f];
    cr_expect(eq(int, frame->dtype, MCP_U8), "%s", frame->name);
    /* 768 and more columns are whole blocks: 68 bytes for 64 of 2 */
    cr_expect(eq(i64, frame->bytes * 128, whole_bytes * 68), "%s", frame->name);
    cr_expect(eq(int, mentions(&type->blocks[MCP_FORWARD], f, true), 1), "%s", frame->name);
    cr_expect(eq(int, mentions(&type->blocks[MCP_FORWARD], f, false), 0), "%s", frame->name);
    cr_expect(eq(int, mentions(&type->blocks[MCP_BACKWARD], f, false), 1), "%s", frame->name);
}

/* The input is kept by a frame of its own, the last; X itself is exact, and forward's alone. */
static void check_input(const struct mcp_layer_type *before, const struct mcp_layer_type *after)
{
    const int input = before->num_buffers[MCP_SPACE_FRAME];
    const int64_t bytes = before->buffers[MCP_SPACE_FRAME][MCP_FRAME_X].bytes;
    cr_assert(eq(int, after->num_buffers[MCP_SPACE_FRAME], input + 1));
    cr_expect(eq(i64, after->buffers[MCP_SPACE_FRAME][MCP_FRAME_X].bytes, bytes));
    cr_expect(eq(int, mcp_input_ends_with_forward(before), 0));
    cr_expect(eq(int, mcp_input_ends_with_forward(after), 1));
    check_kept(after, input, bytes);
}

/* All kept frames of 16 bits. */
Test(quantised, frames_are_written_and_read_in_8_bits)
{
    struct setup whole, small;
    struct mcp_layer_type before = layer_of(&whole, 0, MCP_RECOMPUTE_NONE);
    struct mcp_layer_type after = layer_of(&small, 8, MCP_RECOMPUTE_NONE);
    int changed = 0;
    for (int f = MCP_FRAME_DX + 1; f < before.num_buffers[MCP_SPACE_FRAME]; f++) {
        const struct mcp_buffer *frame = &before.buffers[MCP_SPACE_FRAME][f];
        const int dtype = after.buffers[MCP_SPACE_FRAME][f].dtype;
        cr_expect(eq(int, dtype == MCP_U8, frame->dtype == MCP_BF16), "%s", frame->name);
        if (dtype == MCP_U8)
            check_kept(&after, f, frame->bytes);
        changed += dtype == MCP_U8;
    }
    cr_expect(ge(int, changed, 7)); /* two norms, queries, keys and values, attention, middle .. */
    check_input(&before, &after);
    mcp_arena_free(whole.arena);
    mcp_arena_free(small.arena);
}

/* Which keeps nothing else: forward quantises it, recompute and backward widen it. */
Test(quantised, full_recompute_keeps_its_input_in_8_bits)
{
    static const enum mcp_block_role roles[] = {MCP_FORWARD, MCP_RECOMPUTE, MCP_BACKWARD};
    struct setup whole, small;
    struct mcp_layer_type before = layer_of(&whole, 0, MCP_RECOMPUTE_FULL);
    struct mcp_layer_type after = layer_of(&small, 8, MCP_RECOMPUTE_FULL);
    check_input(&before, &after);
    for (size_t i = 0; i < MCP_COUNT_OF(roles); i++)
        cr_expect(eq(int, before.blocks[roles[i]].num_ops + 1, after.blocks[roles[i]].num_ops));
    mcp_arena_free(whole.arena);
    mcp_arena_free(small.arena);
}

/* A message that would take the input along once forward is done with it. */
Test(quantised, what_reads_the_input_later_is_refused)
{
    struct setup s;
    struct mcp_program program;
    struct mcp_error err = {""};
    int changed = 0;
    setup_load(&s, "gpt2", "dgx-h100", "megatron-core");
    s.job.sequence_length = 64;
    s.job.saved_activation_bits = 8;
    s.plan.pipeline_parallel = 2;
    setup_finish(&s, 4, MCP_RECOMPUTE_FULL);
    setup_program(&s, &program);
    for (int t = 0; t < program.num_types; t++) {
        const struct mcp_block *send = &program.types[t].blocks[MCP_SEND_FORWARD];
        if (program.types[t].facts.heads == 0 || send->num_ops == 0)
            continue;
        send->ops[0].reads[0].layer_offset = 0;
        changed++;
    }
    cr_expect(ge(int, changed, 1));
    cr_expect(eq(int, (int)mcp_program_verify(s.arena, &program, &err), MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, "after its life"), NULL), "%s", err.text);
    mcp_arena_free(s.arena);
}

enum { NUM_PLANS = 80 };

Test(quantised, any_plan_is_sound_and_plays_as_priced)
{
    int legal = 0, smaller = 0;
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan *drawn = MCP_NEW(arena, struct random_plan);
        struct mcp_refusals refusals;
        struct mcp_program program;
        struct mcp_prediction *whole = MCP_NEW(arena, struct mcp_prediction);
        random_plan_draw(arena, (uint64_t)seed, drawn);
        if (mcp_legal(arena, &drawn->question, &drawn->plan, &refusals)) {
            mcp_estimate(mcp_pricer_new(arena, &drawn->question), &drawn->plan, whole);
            drawn->job.saved_activation_bits = 8;
            smaller += sound_program(arena, drawn, &program) < whole->peak_memory_bytes;
            legal++;
        }
        mcp_arena_free(arena);
    }
    cr_expect(ge(int, legal, NUM_PLANS / 2));
    cr_expect(ge(int, smaller, legal / 4), "%d of %d are smaller", smaller, legal);
}
