/* tests/exec/test_quantise.c: activations to 8 bits by blocks and back. */
#include "kit.h"

#include "step/quantised.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>

struct case_round {
    char name[40];
    enum mcp_dtype dtype;
    int64_t rows, columns;
};

ParameterizedTestParameters(quantise, there_and_back)
{
    static struct case_round cases[] = {
        {"whole blocks", MCP_F32, 5, 128},    {"a rest", MCP_F32, 7, 67},
        {"less than a block", MCP_F32, 9, 3}, {"one number a row", MCP_F32, 4, 1},
        {"many rows", MCP_F32, 300, 100},     {"bf16", MCP_BF16, 6, 130},
    };
    return cr_make_param_array(struct case_round, cases, sizeof cases / sizeof *cases);
}

static void there_and_back(struct kit *kit, const struct case_round *c, int from, int to)
{
    int kept = kit_buffer(kit, MCP_U8, mcp_quantised_bytes(c->rows, c->columns));
    KIT_OP(kit, MCP_FN_QUANTISE, c->rows, c->columns);
    kit_read(kit, from);
    kit_write(kit, kept);
    kit_run(kit);
    KIT_OP(kit, MCP_FN_DEQUANTISE, c->rows, c->columns);
    kit_read(kit, kept);
    kit_write(kit, to);
    kit_run(kit);
}

/* Half a 127th of the block's largest, and bf16's own rounding. */
ParameterizedTest(struct case_round *c, quantise, there_and_back)
{
    static struct kit kit;
    kit_new(&kit);
    int from = kit_random_buffer(&kit, c->dtype, c->rows * c->columns);
    int to = kit_buffer(&kit, c->dtype, c->rows * c->columns);
    double rounding = c->dtype == MCP_F32 ? 1e-6 : 1.0 / 256;
    int wrong = 0;
    there_and_back(&kit, c, from, to);
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t first = 0; first < c->columns; first += MCP_QUANTISED_BLOCK) {
            double largest = 0;
            int64_t end =
                first + MCP_QUANTISED_BLOCK < c->columns ? first + MCP_QUANTISED_BLOCK : c->columns;
            for (int64_t i = first; i < end; i++)
                largest = fmax(largest, fabs(kit_get(&kit, from, row * c->columns + i)));
            for (int64_t i = row * c->columns + first; i < row * c->columns + end; i++) {
                double apart = fabs(kit_get(&kit, to, i) - kit_get(&kit, from, i));
                wrong += !(apart <= largest * (0.5 / 127 + rounding));
            }
        }
    cr_expect(eq(int, wrong, 0), "%s", c->name);
    mcp_arena_free(kit.arena);
}

/* Zeros stay; what is no number stays none, and leaves other rows alone. */
Test(quantise, zeros_and_what_is_no_number)
{
    static struct kit kit;
    const struct case_round c = {"", MCP_F32, 4, 70};
    kit_new(&kit);
    int from = kit_random_buffer(&kit, MCP_F32, 4 * 70), to = kit_buffer(&kit, MCP_F32, 4 * 70);
    for (int64_t i = 0; i < 70; i++)
        kit_set(&kit, from, i, 0);
    kit_set(&kit, from, 70 + 3, NAN);
    kit_set(&kit, from, 140 + 69, INFINITY);
    there_and_back(&kit, &c, from, to);
    for (int64_t i = 0; i < 70; i++) {
        cr_expect(kit_get(&kit, to, i) == 0);
        cr_expect(isnan(kit_get(&kit, to, 70 + i)) == (i < 64));
        cr_expect(isnan(kit_get(&kit, to, 140 + i)) == (i >= 64));
        cr_expect(isfinite(kit_get(&kit, to, 210 + i)));
    }
    mcp_arena_free(kit.arena);
}
