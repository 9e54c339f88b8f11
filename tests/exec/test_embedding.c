/* tests/exec/test_embedding.c: tables in fp32 that are mixed, by degrees, with what 16 bits hold. */
#include "kit.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

struct case_mixed {
    char name[40];
    int64_t step;
    double want;
};

/* A row of 1 + 7 / 2048, a position of 3 / 2048; next to 1 bf16 has 1 + 16 / 2048. Exact, their
 * sum is nearer to that; rounded first, the row is 1 and the sum too. */
ParameterizedTestParameters(embedding, mixed)
{
    static struct case_mixed cases[] = {
        {"the first step is exact", 0, 1.0078125},
        {"so is the last one", 3, 1.0078125},
        {"a fifth is mixed in", 4, 1.0078125},
        {"two fifths", 5, 1},
        {"four fifths", 7, 1},
        {"all of it", 8, 1},
        {"and ever after", 1000, 1},
    };
    return cr_make_param_array(struct case_mixed, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_mixed *c, embedding, mixed)
{
    static struct kit kit;
    static struct mcp_weight weights[2] = {
        {.name = "embedding", .rows = 2, .columns = 3, .copies = 1},
        {.name = "positions", .rows = 1, .columns = 3, .copies = 1}};
    kit_new(&kit);
    kit.type.weights = weights;
    kit.type.num_weights = 2;
    kit.type.facts.sequence_local = kit.type.facts.microbatch_size = 1;
    kit.type.facts.vocab_local = 2;
    kit.type.facts.positions_part = 2;
    kit.rank.inputs.step = c->step;
    int ids = kit_buffer(&kit, MCP_I32, 1), out = kit_buffer(&kit, MCP_BF16, 3);
    int tables = kit_buffer(&kit, MCP_F32, 9);
    *(int32_t *)kit.memory[ids] = 1;
    for (int i = 0; i < 9; i++)
        kit_set(&kit, tables, i, i < 6 ? 1 + 7.0 / 2048 : 3.0 / 2048);
    KIT_OP(&kit, MCP_FN_EMBEDDING_MIXED_FORWARD, 1, 3, 4, 8);
    kit_read(&kit, ids);
    kit_read(&kit, tables);
    kit_write(&kit, out);
    kit_run(&kit);
    for (int i = 0; i < 3; i++)
        cr_expect(kit_get(&kit, out, i) == c->want, "%s: %.9g", c->name, kit_get(&kit, out, i));
    mcp_arena_free(kit.arena);
}
