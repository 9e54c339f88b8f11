/* tests/exec/test_cast.c: operands of 8 bit products and the products, beside double. */
#include "eights.h"
#include "kit.h"

#include "step/casts.h"
#include "step/weights.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

/* --- casts --- */

#define BOTH MCP_FN_CAST_BOTH
#define ROWS MCP_FN_CAST_ROWS
#define COLUMNS MCP_FN_CAST_COLUMNS

struct case_cast {
    char name[40];
    enum mcp_function function;
    enum mcp_dtype dtype;
    int64_t rows, columns;
    bool of_gradients;
    int exponent; /* of two: how large the numbers are */
};

ParameterizedTestParameters(cast, casts)
{
    static struct case_cast cases[] = {
        {"as it lies", ROWS, MCP_BF16, 16, 48, false, 0},
        {"transposed", COLUMNS, MCP_BF16, 32, 16, false, 0},
        {"both, of gradients", BOTH, MCP_BF16, 48, 80, true, 0},
        {"both, tiles on threads", BOTH, MCP_BF16, 208, 176, false, -9},
        {"fp32, small", BOTH, MCP_F32, 16, 16, true, -40},
        {"fp32, next to nothing", ROWS, MCP_F32, 16, 16, false, -130},
        {"fp32, next to too much", COLUMNS, MCP_F32, 16, 16, true, 126},
        {"fp16, subnormal", BOTH, MCP_F16, 16, 32, false, -16},
    };
    return cr_make_param_array(struct case_cast, cases, sizeof cases / sizeof *cases);
}

static double scale_of(const struct kit *kit, int from, bool of_gradients)
{
    const double most = of_gradients ? MCP_E5M2_LARGEST : MCP_E4M3_LARGEST;
    double largest = 0, scale = 0x1p-126;
    for (int64_t i = 0; i < kit_count(kit, from); i++)
        largest = fmax(largest, fabs(kit_get(kit, from, i)));
    while (largest / scale > most)
        scale *= 2;
    return scale;
}

/* Of a cast's byte (row, column) of as many columns. */
static uint8_t byte_at(const struct kit *kit, int cast, int64_t row, int64_t column,
                       int64_t columns)
{
    const uint8_t *bytes = (const uint8_t *)kit->memory[cast] + MCP_CAST_HEADER_BYTES;
    return bytes[row * columns + column];
}

static double scale_at(const struct kit *kit, int cast)
{
    return (double)*(const float *)kit->memory[cast];
}

static int new_cast(struct kit *kit, int64_t rows, int64_t columns)
{
    return kit_buffer(kit, MCP_F8, mcp_cast_bytes(rows, columns));
}

/* Bytes that are others than a search finds. */
static int wrong_bytes(const struct kit *kit, const struct case_cast *c, int from, int cast,
                       bool transposed)
{
    const double scale = scale_of(kit, from, c->of_gradients);
    int wrong = scale_at(kit, cast) != scale;
    for (int64_t i = 0; i < c->rows * c->columns; i++) {
        int64_t row = i / c->columns, column = i % c->columns;
        uint8_t byte = transposed ? byte_at(kit, cast, column, row, c->rows)
                                  : byte_at(kit, cast, row, column, c->columns);
        wrong += byte != eights_nearest(c->of_gradients, kit_get(kit, from, i) / scale);
    }
    return wrong;
}

ParameterizedTest(struct case_cast *c, cast, casts)
{
    static struct kit kit;
    kit_new(&kit);
    int from = kit_random_buffer(&kit, c->dtype, c->rows * c->columns), casts[2];
    for (int64_t i = 0; i < kit_count(&kit, from); i++) /* small ones too */
        kit_set(&kit, from, i,
                ldexp(kit_get(&kit, from, i), c->exponent - (i % 5 == 0 ? (int)(i % 19) : 0)));
    KIT_OP(&kit, c->function, c->rows, c->columns, c->of_gradients);
    kit_read(&kit, from);
    for (int i = 0; i < (c->function == BOTH ? 2 : 1); i++)
        kit_write(&kit, casts[i] = new_cast(&kit, c->rows, c->columns));
    kit_run(&kit);
    if (c->function != COLUMNS)
        cr_expect(eq(int, wrong_bytes(&kit, c, from, casts[0], false), 0), "%s", c->name);
    if (c->function != ROWS)
        cr_expect(eq(int, wrong_bytes(&kit, c, from, casts[c->function == BOTH], true), 0), "%s",
                  c->name);
    mcp_arena_free(kit.arena);
}

/* --- products --- */

struct case_product {
    char name[40];
    enum mcp_function function;
    int64_t m, n, k, first_row; /* of weights that have 16 rows more behind */
    enum mcp_dtype dtype;       /* of the result */
};

ParameterizedTestParameters(cast, products)
{
    static struct case_product cases[] = {
        {"forward", MCP_FN_MATMUL_NT, 32, 48, 16, 0, MCP_BF16},
        {"forward, some rows, blocks", MCP_FN_MATMUL_NT, 112, 208, 272, 32, MCP_BF16},
        {"forward, fp32", MCP_FN_MATMUL_NT, 16, 16, 304, 16, MCP_F32},
        {"input gradient", MCP_FN_MATMUL_NN, 16, 32, 48, 0, MCP_BF16},
        {"input gradient, some rows, blocks", MCP_FN_MATMUL_NN, 208, 112, 288, 16, MCP_F32},
        {"weight gradient", MCP_FN_MATMUL_TN_ACCUMULATE, 16, 48, 32, 0, MCP_F32},
        {"weight gradient, blocks", MCP_FN_MATMUL_TN_ACCUMULATE, 112, 128, 272, 0, MCP_F32},
        {"weight gradient, bf16", MCP_FN_MATMUL_TN_ACCUMULATE, 32, 16, 64, 0, MCP_BF16},
    };
    return cr_make_param_array(struct case_product, cases, sizeof cases / sizeof *cases);
}

static int cast_of(struct kit *kit, enum mcp_function function, int from, int64_t rows,
                   int64_t columns, bool of_gradients)
{
    int cast = new_cast(kit, rows, columns);
    KIT_OP(kit, function, rows, columns, of_gradients);
    kit_read(kit, from);
    kit_write(kit, cast);
    kit_run(kit);
    return cast;
}

/* Buffers of layers are those of the kit: so many, that casts of weights have their own. */
static void add_layer(struct kit *kit, struct mcp_weight weights[3])
{
    kit->type.weights = weights;
    kit->type.num_weights = 3;
    int64_t elements = 0;
    for (int i = 0; i < 3; i++)
        elements += weights[i].rows * weights[i].columns;
    kit_random_buffer(kit, MCP_BF16, elements);
    for (int i = 1; i < MCP_MAX_LAYER_BUFFERS; i++)
        kit_buffer(kit, MCP_F8, mcp_cast_weight_offset(&kit->type, 3));
}

static void in_layer(struct mcp_operand *at)
{
    at->space = MCP_SPACE_LAYER;
}

/* Of all weights that have one, as a step begins. */
static void cast_weights(struct kit *kit)
{
    for (int i = 0; i < kit->type.num_weights; i++) {
        const struct mcp_weight *part = &kit->type.weights[i];
        if (!part->cast)
            continue;
        KIT_OP(kit, MCP_FN_CAST_BOTH, part->rows, part->columns);
        kit->op.weight = (unsigned char)i;
        kit_read(kit, MCP_LAYER_WEIGHTS);
        in_layer(&kit->op.reads[0]);
        kit_write(kit, MCP_LAYER_CAST_WEIGHTS);
        kit_write(kit, MCP_LAYER_CAST_COLUMNS);
        in_layer(&kit->op.writes[0]);
        in_layer(&kit->op.writes[1]);
        kit_run(kit);
    }
}

/* Of numbers that are cast, what is left of them. */
static double left(double value, double scale, bool of_gradients)
{
    return scale * eights_value(of_gradients, eights_nearest(of_gradients, value / scale));
}

static double *all_left(const struct kit *kit, int from, bool of_gradients)
{
    const double scale = scale_of(kit, from, of_gradients);
    double *out = MCP_ARRAY(kit->arena, kit_count(kit, from), double);
    for (int64_t i = 0; i < kit_count(kit, from); i++)
        out[i] = left(kit_get(kit, from, i), scale, of_gradients);
    return out;
}

/* The product's own result beside plain sums; a and b: numbers that were cast, b as it lies. */
static void expect_product(struct kit *kit, const struct case_product *c, const double *a,
                           const double *b, int out)
{
    const bool nt = c->function == MCP_FN_MATMUL_NT, tn = !nt && c->function != MCP_FN_MATMUL_NN;
    double *want = MCP_ARRAY(kit->arena, c->m * c->n, double);
    for (int64_t i = 0; i < c->m * c->n; i++) {
        int64_t row = i / c->n, column = i % c->n;
        want[i] = tn ? kit_get(kit, out, i) : 0;
        for (int64_t l = 0; l < c->k; l++)
            want[i] += a[tn ? l * c->m + row : row * c->k + l] *
                       b[nt ? column * c->k + l : l * c->n + column];
    }
    kit_run(kit);
    cr_expect(eq(int, kit_different(kit, out, want, c->dtype == MCP_F32 ? 1e-6 : 4e-3), 0), "%s",
              c->name);
}

/* y = x w^T or dx = dy w, of rows of the second of two parts that are cast. */
static void multiply_by_weights(struct kit *kit, const struct case_product *c)
{
    const bool is_input = c->function == MCP_FN_MATMUL_NN;
    const int64_t used = is_input ? c->k : c->n, columns = is_input ? c->n : c->k;
    struct mcp_weight weights[3] = {
        {.name = "first", .rows = 32, .columns = 16, .copies = 1, .cast = true},
        {.name = "norm", .rows = 1, .columns = 24, .copies = 1},
        {.name = "second",
         .rows = c->first_row + used + 16,
         .columns = columns,
         .copies = 1,
         .cast = true}};
    add_layer(kit, weights);
    int second = kit_buffer(kit, MCP_BF16, weights[2].rows * columns);
    for (int64_t i = 0; i < kit_count(kit, second); i++)
        kit_set(kit, second, i,
                kit_get(kit, MCP_LAYER_WEIGHTS, mcp_weight_offset(&kit->type, 2, 0) + i));
    int from = kit_random_buffer(kit, MCP_BF16, c->m * c->k);
    int out = kit_buffer(kit, c->dtype, c->m * c->n);
    cast_weights(kit);
    int cast = cast_of(kit, MCP_FN_CAST_ROWS, from, c->m, c->k, is_input);
    KIT_OP(kit, c->function, c->m, c->n, c->k, 1, c->first_row);
    kit->op.dtype = MCP_F8;
    kit->op.weight = 2;
    kit_read(kit, cast);
    kit_read(kit, is_input ? MCP_LAYER_CAST_COLUMNS : MCP_LAYER_CAST_WEIGHTS);
    in_layer(&kit->op.reads[1]);
    kit_write(kit, out);
    expect_product(kit, c, all_left(kit, from, is_input),
                   all_left(kit, second, false) + c->first_row * columns, out);
}

/* dw += dy^T x */
static void multiply_gradients(struct kit *kit, const struct case_product *c)
{
    int dy = kit_random_buffer(kit, MCP_BF16, c->k * c->m);
    int x = kit_random_buffer(kit, MCP_BF16, c->k * c->n);
    int out = kit_random_buffer(kit, c->dtype, c->m * c->n);
    int casts[2] = {cast_of(kit, MCP_FN_CAST_COLUMNS, dy, c->k, c->m, true),
                    cast_of(kit, MCP_FN_CAST_COLUMNS, x, c->k, c->n, false)};
    KIT_OP(kit, c->function, c->m, c->n, c->k, 1);
    kit->op.dtype = MCP_F8;
    kit_read(kit, casts[0]);
    kit_read(kit, casts[1]);
    kit_write(kit, out);
    expect_product(kit, c, all_left(kit, dy, true), all_left(kit, x, false), out);
}

ParameterizedTest(struct case_product *c, cast, products)
{
    static struct kit kit;
    kit_new(&kit);
    if (c->function == MCP_FN_MATMUL_TN_ACCUMULATE)
        multiply_gradients(&kit, c);
    else
        multiply_by_weights(&kit, c);
    mcp_arena_free(kit.arena);
}

/* Zeros stay; one number that is none leaves none, of the product neither. */
Test(cast, zeros_and_what_is_no_number)
{
    static struct kit kit;
    const double values[] = {0, (double)NAN, (double)-INFINITY};
    for (int i = 0; i < 3; i++) {
        kit_new(&kit);
        int x = kit_buffer(&kit, MCP_BF16, 256), w = kit_random_buffer(&kit, MCP_BF16, 256);
        int y = kit_buffer(&kit, MCP_BF16, 256);
        for (int64_t k = 0; k < 256; k++)
            kit_set(&kit, x, k, k == 77 ? values[i] : 0);
        int casts[2] = {cast_of(&kit, MCP_FN_CAST_ROWS, x, 16, 16, false),
                        cast_of(&kit, MCP_FN_CAST_ROWS, w, 16, 16, false)};
        KIT_OP(&kit, MCP_FN_MATMUL_NT, 16, 16, 16, 1);
        kit.op.dtype = MCP_F8;
        kit_read(&kit, casts[0]);
        kit_read(&kit, casts[1]);
        kit_write(&kit, y);
        kit_run(&kit);
        cr_expect(i == 0 ? scale_at(&kit, casts[0]) == 1 : isnan(scale_at(&kit, casts[0])));
        for (int64_t k = 0; k < 256; k++)
            cr_expect(i == 0 ? kit_get(&kit, y, k) == 0 : isnan(kit_get(&kit, y, k)));
        mcp_arena_free(kit.arena);
    }
}
