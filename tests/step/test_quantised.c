/* tests/step/test_quantised.c: saved activations of 8 bits: bytes, places, any plan. */
#include "tests/step/play.h"
#include "tests/step/random_plan.h"
#include "tests/step/setup.h"

#include "step/build.h"
#include "step/quantised.h"
#include "step/verify.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
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

/* Each kept frame of 16 bits is written once, by its quantisation, and read once a block. */
Test(quantised, frames_are_written_and_read_in_8_bits)
{
    struct setup whole, small;
    struct mcp_layer_type before = layer_of(&whole, 0, MCP_RECOMPUTE_NONE);
    struct mcp_layer_type after = layer_of(&small, 8, MCP_RECOMPUTE_NONE);
    int changed = 0;
    for (int f = MCP_FRAME_DX + 1; f < after.num_buffers[MCP_SPACE_FRAME]; f++) {
        const struct mcp_buffer *a = &before.buffers[MCP_SPACE_FRAME][f];
        const struct mcp_buffer *b = &after.buffers[MCP_SPACE_FRAME][f];
        cr_expect(eq(int, b->dtype == MCP_U8, a->dtype == MCP_BF16), "%s", a->name);
        if (b->dtype != MCP_U8)
            continue;
        changed++; /* 768 and more columns are whole blocks: 68 bytes for 64 of 2 */
        cr_expect(eq(i64, b->bytes * 128, a->bytes * 68), "%s", a->name);
        cr_expect(eq(int, mentions(&after.blocks[MCP_FORWARD], f, true), 1), "%s", a->name);
        cr_expect(eq(int, mentions(&after.blocks[MCP_FORWARD], f, false), 0), "%s", a->name);
        cr_expect(eq(int, mentions(&after.blocks[MCP_BACKWARD], f, false), 1), "%s", a->name);
    }
    cr_expect(ge(int, changed, 7)); /* two norms, queries, keys and values, attention, middle .. */
    cr_expect(eq(i64, before.buffers[MCP_SPACE_FRAME][MCP_FRAME_X].bytes,
                 after.buffers[MCP_SPACE_FRAME][MCP_FRAME_X].bytes));
    mcp_arena_free(whole.arena);
    mcp_arena_free(small.arena);
}

/* Full recompute keeps the residual stream alone: nothing is left to quantise. */
Test(quantised, full_recompute_is_as_it_was)
{
    struct setup whole, small;
    struct mcp_layer_type before = layer_of(&whole, 0, MCP_RECOMPUTE_FULL);
    struct mcp_layer_type after = layer_of(&small, 8, MCP_RECOMPUTE_FULL);
    for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
        cr_expect(eq(int, before.blocks[role].num_ops, after.blocks[role].num_ops));
    mcp_arena_free(whole.arena);
    mcp_arena_free(small.arena);
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
        struct mcp_error err = {""};
        struct play_result *played = MCP_NEW(arena, struct play_result);
        struct mcp_prediction *whole = MCP_NEW(arena, struct mcp_prediction);
        struct mcp_prediction *small = MCP_NEW(arena, struct mcp_prediction);
        random_plan_draw(arena, (uint64_t)seed, drawn);
        if (mcp_legal(arena, &drawn->question, &drawn->plan, &refusals)) {
            const char *says = random_plan_describe(arena, drawn);
            mcp_estimate(mcp_pricer_new(arena, &drawn->question), &drawn->plan, whole);
            drawn->job.saved_activation_bits = 8;
            mcp_program_build(arena, &drawn->question, &drawn->plan, &program);
            cr_expect(eq(int, (int)mcp_program_verify(arena, &program, &err), 0), "%s: %s", says,
                      err.text);
            play_program(arena, &drawn->question, &program, played);
            mcp_estimate(mcp_pricer_new(arena, &drawn->question), &drawn->plan, small);
            cr_expect(eq(i64, (int64_t)llround(small->iteration_s * 1e9), played->step_ns), "%s",
                      says);
            cr_expect(eq(i64, small->peak_memory_bytes, played->peak_memory_bytes), "%s", says);
            legal++;
            smaller += small->peak_memory_bytes < whole->peak_memory_bytes;
        }
        mcp_arena_free(arena);
    }
    cr_expect(ge(int, legal, NUM_PLANS / 2));
    cr_expect(ge(int, smaller, legal / 4), "%d of %d are smaller", smaller, legal);
}
