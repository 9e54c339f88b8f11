/* tests/exec/test_one_bit_ops.c: ops of 1-bit Adam in a step that is skipped: nothing moves. */
#include "kit.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

enum { N = 24 };

struct case_skipped {
    char name[24];
    enum mcp_function function;
    int reads[3]; /* elements of those before the scalars; 0: no more */
    int same_as;  /* which of them is written; unless */
    bool weights; /* ... weights are, and then the first of them */
};

ParameterizedTestParameters(one_bit_ops, skipped)
{
    static struct case_skipped cases[] = {
        {"momentum", MCP_FN_MOMENTUM, {N, 2 * N}, 1, false},
        {"add_error", MCP_FN_ADD_ERROR, {N, N}, 1, false},
        {"decompress_signs", MCP_FN_DECOMPRESS_SIGNS, {N / 32 + 1, 1, 2 * N}, 2, false},
        {"adam_frozen", MCP_FN_ADAM_FROZEN, {2 * N}, 0, true},
    };
    return cr_make_param_array(struct case_skipped, cases, sizeof cases / sizeof *cases);
}

static void set_scalars(struct kit *kit, int scalars, bool skipped)
{
    for (int i = 0; i < 8; i++)
        kit_set(kit, scalars, i, 0);
    kit_set(kit, scalars, 0, !skipped);
    kit_set(kit, scalars, 1, skipped);
}

/* Runs it; returns whether what it writes is other than before. */
static bool moves(const struct case_skipped *c, bool skipped)
{
    static struct kit kit;
    static struct mcp_weight weight = {
        .name = "matrix", .rows = 4, .columns = 6, .copies = 1, .init = MCP_INIT_NORMAL};
    int buffers[3], scalars;
    kit_new(&kit);
    kit.type.weights = &weight;
    kit.type.num_weights = 1;
    kit.rank.inputs.learning_rate = 0.1;
    kit.rank.inputs.beta1 = 0.9;
    kit.rank.inputs.beta2 = 0.99;
    kit.rank.inputs.epsilon = 1e-8;
    kit.rank.inputs.variance_updates = 3;
    KIT_OP(&kit, c->function, N, 1, c->function == MCP_FN_MOMENTUM || c->weights ? N : 0);
    if (c->function == MCP_FN_ADD_ERROR)
        kit.op.dims[4] = N;
    for (int i = 0; i < 3 && c->reads[i] > 0; i++) {
        buffers[i] = kit_random_buffer(&kit, MCP_F32, c->reads[i]);
        for (int x = 0; x < c->reads[i]; x++) /* variances are above 0 */
            kit_set(&kit, buffers[i], x, 0.5 + 0.25 * kit_random(&kit));
        kit_read(&kit, buffers[i]);
    }
    scalars = kit_buffer(&kit, MCP_F32, 8);
    set_scalars(&kit, scalars, skipped);
    kit_read(&kit, scalars);
    int out = c->weights ? kit_random_buffer(&kit, MCP_F32, N) : buffers[c->same_as];
    kit_write(&kit, out);
    if (c->weights)
        kit_write(&kit, buffers[0]);
    char *before = MCP_ARRAY(kit.arena, kit_bytes(&kit, out), char);
    memcpy(before, kit.memory[out], (size_t)kit_bytes(&kit, out));
    kit_run(&kit);
    bool moved = memcmp(before, kit.memory[out], (size_t)kit_bytes(&kit, out)) != 0;
    mcp_arena_free(kit.arena);
    return moved;
}

ParameterizedTest(struct case_skipped *c, one_bit_ops, skipped)
{
    cr_expect(not(moves(c, true)), "%s moves in a step that is skipped", c->name);
    cr_expect(moves(c, false), "%s does nothing in one that is not", c->name);
}

/* What is sent of a skipped step is nothing, and errors stay. */
Test(one_bit_ops, skipped_signs)
{
    static struct kit kit;
    kit_new(&kit);
    int errors = kit_random_buffer(&kit, MCP_F32, N), state = kit_buffer(&kit, MCP_F32, 2 * N);
    int signs = kit_buffer(&kit, MCP_U8, N / 8), scale = kit_buffer(&kit, MCP_F32, 1);
    int scalars = kit_buffer(&kit, MCP_F32, 8);
    float before[N];
    set_scalars(&kit, scalars, true);
    memcpy(before, kit.memory[errors], sizeof before);
    KIT_OP(&kit, MCP_FN_COMPRESS_SIGNS, N, 1, 0, N, N, 1);
    kit_read(&kit, errors);
    kit_read(&kit, state);
    kit_read(&kit, scalars);
    kit_write(&kit, signs);
    kit_write(&kit, scale);
    kit_write(&kit, errors);
    kit_run(&kit);
    cr_expect(eq(int, memcmp(before, kit.memory[errors], sizeof before), 0));
    cr_expect(kit_get(&kit, scale, 0) == 0);
    for (int i = 0; i < N / 8; i++)
        cr_expect(eq(int, ((const unsigned char *)kit.memory[signs])[i], 0));
    mcp_arena_free(kit.arena);
}
