/* tests/step/test_casts.c: operands of 8 bit products: who casts them, where they lie, any plan. */
#include "tests/step/setup.h"
#include "tests/step/sound.h"

#include "step/casts.h"
#include "step/extents.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

static void load(struct setup *s, const char *model, const char *stack, int64_t sequence_length)
{
    setup_load(s, model, "dgx-h100", stack);
    s->job.precision = MCP_PRECISION_FP8;
    s->job.sequence_length = sequence_length;
}

static struct mcp_layer_type layer_of(struct setup *s, const char *model, int64_t sequence_length)
{
    load(s, model, "mcpplan-cuda", sequence_length);
    return setup_layer(s, 0, MCP_RECOMPUTE_NONE);
}

static int count_ops(const struct mcp_block *block, enum mcp_function function)
{
    int count = 0;
    for (int i = 0; i < block->num_ops; i++)
        count += block->ops[i].function == function;
    return count;
}

static int count_low(const struct mcp_block *block)
{
    int count = 0;
    for (int i = 0; i < block->num_ops; i++)
        count += mcp_op_reads_casts(&block->ops[i]);
    return count;
}

/* Products of a block in 8 bits; values cast as they lie, transposed, both. */
struct case_block {
    char model[16];
    int64_t sequence_length;
    int role, products, rows, columns, both;
};

ParameterizedTestParameters(casts, blocks)
{
    static struct case_block cases[] = {
        /* queries, output, up, down: four inputs, of each weight gradient again; two gradients
         * of them are read both ways */
        {"gpt2", 64, MCP_FORWARD, 4, 4, 0, 0},
        {"gpt2", 64, MCP_BACKWARD, 8, 0, 4, 4},
        {"gpt2", 64, MCP_RECOMPUTE, 0, 0, 0, 0},
        {"gpt2", 40, MCP_FORWARD, 0, 0, 0, 0}, /* tokens are no multiple of 16 */
        /* Mixtral's attention: its experts and router stay in 16 bits */
        {"mixtral-8x7b", 64, MCP_FORWARD, 2, 2, 0, 0},
        {"mixtral-8x7b", 64, MCP_BACKWARD, 4, 0, 2, 2},
    };
    return cr_make_param_array(struct case_block, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_block *c, casts, blocks)
{
    struct setup s;
    const struct mcp_layer_type type = layer_of(&s, c->model, c->sequence_length);
    const struct mcp_block *block = &type.blocks[c->role];
    cr_expect(eq(int, count_low(block), c->products), "%s", c->model);
    cr_expect(eq(int, count_ops(block, MCP_FN_CAST_ROWS), c->rows), "%s", c->model);
    cr_expect(eq(int, count_ops(block, MCP_FN_CAST_COLUMNS), c->columns), "%s", c->model);
    cr_expect(eq(int, count_ops(block, MCP_FN_CAST_BOTH), c->both), "%s", c->model);
    cr_expect(eq(int, count_ops(block, MCP_FN_CAST), 0), "%s", c->model);
    mcp_arena_free(s.arena);
}

/* The cast of `at` that product `index` reads; NULL: none. */
static const struct mcp_op *cast_of(const struct mcp_block *block, int index, struct mcp_operand at)
{
    for (int i = index - 1; i >= 0; i--)
        for (int w = 0; w < block->ops[i].num_writes; w++)
            if (memcmp(&block->ops[i].writes[w], &at, sizeof at) == 0)
                return &block->ops[i];
    return NULL;
}

/* Which of a cast's results an operand must be: what is summed over is contiguous. */
static void check_operand(const struct mcp_block *block, int index, int read)
{
    const struct mcp_op *op = &block->ops[index], *cast = cast_of(block, index, op->reads[read]);
    const bool transposed = op->function == MCP_FN_MATMUL_TN_ACCUMULATE;
    cr_assert(ne(ptr, (void *)cast, NULL));
    const bool second =
        cast->num_writes == 2 && memcmp(&cast->writes[1], &op->reads[read], sizeof *op->reads) == 0;
    cr_expect(eq(int, cast->function == MCP_FN_CAST_COLUMNS || second, transposed));
    cr_expect(eq(i64, cast->dims[0], transposed ? op->dims[2] : op->dims[0]));
    cr_expect(eq(i64, cast->dims[1], op->dims[transposed ? read : 2]));
    cr_expect(eq(i64, cast->dims[2], mcp_op_reads_gradients(op, read)));
}

Test(casts, products_read_what_is_contiguous_where_they_sum)
{
    struct setup s;
    const struct mcp_layer_type type = layer_of(&s, "gpt2", 64);
    int products = 0;
    for (int role = MCP_FORWARD; role <= MCP_BACKWARD; role++) {
        const struct mcp_block *block = &type.blocks[role];
        for (int i = 0; i < block->num_ops; i++) {
            const struct mcp_op *op = &block->ops[i];
            if (!mcp_op_reads_casts(op))
                continue;
            const bool learns = op->function == MCP_FN_MATMUL_TN_ACCUMULATE;
            for (int read = 0; read < (learns ? 2 : 1); read++)
                check_operand(block, i, read);
            if (!learns)
                cr_expect(eq(int, op->reads[1].index,
                             op->function == MCP_FN_MATMUL_NN ? MCP_LAYER_CAST_COLUMNS
                                                              : MCP_LAYER_CAST_WEIGHTS));
            products++;
        }
    }
    cr_expect(eq(int, products, 12));
    mcp_arena_free(s.arena);
}

/* Where weights are gathered their casts follow on the same stream; elsewhere they come first of
 * all. */
struct case_place {
    int zero_stage, data_parallel;
    bool gathered;
};

ParameterizedTestParameters(casts, weights)
{
    static struct case_place cases[] = {
        {0, 1, false}, {0, 2, false}, {1, 1, false}, {1, 2, true},
        {2, 1, false}, {2, 2, true},  {3, 1, true},  {3, 2, true},
    };
    return cr_make_param_array(struct case_place, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_place *c, casts, weights)
{
    struct setup s;
    struct mcp_program program;
    struct mcp_error err = {""};
    load(&s, "gpt2", "mcpplan-cuda", 64);
    s.plan.data_parallel = c->data_parallel;
    s.plan.zero_stage = c->zero_stage;
    s.plan.reshard_after_forward = c->zero_stage == 3;
    setup_finish(&s, 2, MCP_RECOMPUTE_NONE);
    setup_program(&s, &program);
    const ptrdiff_t index = mcp_program_layer_type(&program, 1) - program.types;
    struct mcp_layer_type *layer = &program.types[index];
    struct mcp_block *gather = &layer->blocks[MCP_GATHER];
    struct mcp_block *prologue = &layer->blocks[MCP_PROLOGUE];
    cr_expect(eq(int, count_ops(prologue, MCP_FN_CAST_BOTH), c->gathered ? 0 : 4));
    cr_expect(eq(int, count_ops(gather, MCP_FN_CAST_BOTH), c->gathered ? 4 : 0));
    for (int i = 0; i < gather->num_ops; i++)
        cr_expect(eq(int, gather->ops[i].stream, MCP_STREAM_DATA));
    /* 12 h^2 of both ways, and four headers each */
    const int64_t each = 12 * INT64_C(768) * 768 + 4 * MCP_CAST_HEADER_BYTES;
    for (int i = MCP_LAYER_CAST_WEIGHTS; i <= MCP_LAYER_CAST_COLUMNS; i++)
        cr_expect(eq(i64, layer->buffers[MCP_SPACE_LAYER][i].bytes, each));
    /* none of them, as the last step left them */
    struct mcp_block *casts = c->gathered ? gather : prologue;
    casts->num_ops -= 4;
    cr_expect(eq(int, (int)mcp_program_verify(s.arena, &program, &err), MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, "reads layer 'cast_weights' of layer 1 before it is"), NULL),
              "%s", err.text);
    mcp_arena_free(s.arena);
}

/* A change of an op, and what the check says of it. */
struct case_edit {
    int function, dim;
    int64_t value;
    char says[64];
};

ParameterizedTestParameters(casts, edits)
{
    static struct case_edit cases[] = {
        {MCP_FN_MATMUL_NT, 1, 4096, "4096 x 768 numbers of 'qkv', which has 2304 x 768"},
        {MCP_FN_MATMUL_NN, 4, 16, "2320 x 768 numbers of 'qkv', which has 2304 x 768"},
        {MCP_FN_MATMUL_NT, 0, 80, "a cast of 80 x 768 numbers in 'cast'"},
        {MCP_FN_MATMUL_TN_ACCUMULATE, 2, 72, "multiples of 16"},
        {MCP_FN_CAST_ROWS, 0, 128, "128 x 768 numbers of 'attention_norm'"},
        {MCP_FN_CAST_BOTH, 1, 3088, "x 3088 numbers"},
    };
    return cr_make_param_array(struct case_edit, cases, sizeof cases / sizeof *cases);
}

static struct mcp_op *first_low_op(const struct mcp_program *program, int function)
{
    const struct mcp_layer_type *layer = mcp_program_layer_type(program, 1);
    static const enum mcp_block_role roles[] = {MCP_FORWARD, MCP_BACKWARD};
    struct mcp_op *found = NULL;
    for (size_t r = 0; r < sizeof roles / sizeof *roles; r++)
        for (int i = 0; i < layer->blocks[roles[r]].num_ops; i++) {
            struct mcp_op *op = &layer->blocks[roles[r]].ops[i];
            bool first = found == NULL || function == MCP_FN_MATMUL_NN; /* backward's last */
            if (op->function == function && first)
                found = op;
        }
    return found;
}

ParameterizedTest(struct case_edit *c, casts, edits)
{
    struct setup s;
    struct mcp_program program;
    struct mcp_error err = {""};
    load(&s, "gpt2", "mcpplan-cuda", 64);
    setup_finish(&s, 1, MCP_RECOMPUTE_NONE);
    setup_program(&s, &program);
    cr_assert(eq(int, (int)mcp_program_check_extents(&program, &err), MCP_OK), "%s", err.text);
    struct mcp_op *op = first_low_op(&program, c->function);
    cr_assert(ne(ptr, op, NULL));
    op->dims[c->dim] = c->value;
    cr_expect(eq(int, (int)mcp_program_check_extents(&program, &err), MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s", err.text);
    mcp_arena_free(s.arena);
}

/* A stack that casts where it makes its inputs has no operands that a backend could read. */
Test(casts, a_product_of_what_nobody_cast_is_refused)
{
    struct setup s;
    struct mcp_program program;
    struct mcp_error err = {""};
    load(&s, "gpt2", "megatron-core", 64);
    s.stack.fused_casts = true;
    setup_finish(&s, 1, MCP_RECOMPUTE_NONE);
    setup_program(&s, &program);
    cr_expect(eq(int, (int)mcp_program_check_extents(&program, &err), MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, "plan for a stack with casts_operands"), NULL), "%s",
              err.text);
    mcp_arena_free(s.arena);
}

/* Of 12 layers of 12 h^2 and a head of the padded vocabulary; of nothing, where tokens are no
 * multiple of 16. */
Test(casts, share_of_what_is_multiplied)
{
    const double layers = 12.0 * 12 * 768 * 768, head = 50304.0 * 768;
    for (int sequence_length = 40; sequence_length <= 64; sequence_length += 24) {
        struct setup s;
        load(&s, "gpt2", "mcpplan-cuda", sequence_length);
        setup_finish(&s, 1, MCP_RECOMPUTE_NONE);
        const double frac = mcp_cast_flops_frac(&s.question, &s.plan);
        const double want = sequence_length == 64 ? layers / (layers + head) : 0;
        cr_expect(fabs(frac - want) < 1e-12, "%g, not %g", frac, want);
        mcp_arena_free(s.arena);
    }
}

enum { NUM_PLANS = 80 };

static void draw(struct mcp_arena *arena, int seed, struct random_plan *drawn)
{
    random_plan_draw(arena, (uint64_t)seed, drawn);
    drawn->stack.casts_operands = true;
    drawn->job.precision = MCP_PRECISION_FP8;
    drawn->job.saved_activation_bits = seed % 4 == 3 ? 8 : 0;
    double *rates = drawn->cluster.gpu.peak_flops_per_s;
    if (!isfinite(rates[MCP_PRECISION_FP8]))
        rates[MCP_PRECISION_FP8] = rates[MCP_PRECISION_BF16];
}

Test(casts, any_plan_is_sound_and_plays_as_priced)
{
    int legal = 0, low = 0;
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan *drawn = MCP_NEW(arena, struct random_plan);
        struct mcp_refusals refusals;
        struct mcp_program program;
        struct mcp_error err = {""};
        draw(arena, seed, drawn);
        if (mcp_legal(arena, &drawn->question, &drawn->plan, &refusals)) {
            sound_program(arena, drawn, &program);
            if (mcp_program_check_trained(&program, &err) == MCP_OK)
                cr_expect(eq(int, (int)mcp_program_check_extents(&program, &err), MCP_OK), "%s: %s",
                          random_plan_describe(arena, drawn), err.text);
            legal++;
            for (int t = 0; t < program.num_types; t++)
                low += count_low(&program.types[t].blocks[MCP_BACKWARD]) > 0;
        }
        mcp_arena_free(arena);
    }
    cr_expect(ge(int, legal, NUM_PLANS / 2));
    cr_expect(ge(int, low, legal / 4), "%d types of %d plans", low, legal);
}
