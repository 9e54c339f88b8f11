/* tests/cuda/test_doors.c: what the doors of CUDA, cuBLASLt and NCCL make of their libraries'
 * answers: products as matrices lie, and one sentence for what fails. */
#include "core/arena.h"
#include "exec/cuda_blas.h"
#include "exec/cuda_nccl.h"
#include "exec/cuda_runtime.h"
#include "exec/cuda_wait.h"
#include "exec/eight.h"
#include "exec/half.h"
#include "tests/cuda/fake/engine.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

/* --- products --- */

enum { MOST = 64 };

struct case_product {
    char name[40];
    int m, n, k;
    bool a_transposed, b_transposed, accumulate;
};
ParameterizedTestParameters(doors, product)
{
    static struct case_product cases[] = {
        {"forward", 5, 7, 3, false, true, false},
        {"input gradient", 5, 3, 7, false, false, false},
        {"weight gradient", 7, 3, 5, true, false, true},
        {"both transposed", 2, 5, 4, true, true, false},
        {"a column", 6, 1, 2, false, true, true},
        {"nothing to add up", 4, 3, 0, false, true, false},
        {"nothing to add", 4, 3, 0, true, false, true},
        {"no rows", 0, 3, 2, false, true, false},
    };
    return cr_make_param_array(struct case_product, cases, sizeof cases / sizeof *cases);
}

static int at(bool transposed, int row, int column, int rows, int columns)
{
    return transposed ? column * rows + row : row * columns + column;
}

static float want_of(const struct case_product *c, const float *a, const float *b, int i, int j)
{
    float sum = c->accumulate ? 1 : 0;
    for (int l = 0; l < c->k; l++)
        sum += a[at(c->a_transposed, i, l, c->m, c->k)] * b[at(c->b_transposed, l, j, c->k, c->n)];
    return sum;
}

/* On the device, with these values. */
static void *put(struct mcp_arena *arena, const float *values, void *stream)
{
    void *memory;
    cr_assert(mcp_cuda_new_memory(arena, MOST * sizeof *values, &memory, NULL) == MCP_OK);
    cr_assert(mcp_cuda_copy(memory, values, MOST * sizeof *values, stream, NULL) == MCP_OK);
    return memory;
}

ParameterizedTest(struct case_product *c, doors, product)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cuda_blas *blas;
    float a[MOST], b[MOST], out[MOST];
    void *stream;
    for (int i = 0; i < MOST; i++) {
        a[i] = (float)(i % 11 - 5);
        b[i] = (float)(i % 7 - 2);
        out[i] = 1;
    }
    fake_begin(1, 1 << 26);
    cr_assert(mcp_cuda_new_stream(arena, false, &stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_blas_open(arena, 1 << 20, &blas, &err) == MCP_OK, "%s", err.text);
    const struct mcp_cuda_product product = {
        .m = c->m,
        .n = c->n,
        .k = c->k,
        .a = mcp_cuda_matrix_of(put(arena, a, stream), MCP_F32, c->a_transposed),
        .b = mcp_cuda_matrix_of(put(arena, b, stream), MCP_F32, c->b_transposed),
        .c = mcp_cuda_matrix_of(put(arena, out, stream), MCP_F32, false),
        .accumulate = c->accumulate};
    for (int twice = 0; twice < 2 - c->accumulate; twice++) /* chosen, then found again */
        cr_assert(mcp_cuda_blas_multiply(blas, &product, stream, &err) == MCP_OK, "%s: %s", c->name,
                  err.text);
    cr_assert(mcp_cuda_copy(out, product.c.data, sizeof out, stream, &err) == MCP_OK);
    cr_assert(mcp_cuda_finish_stream(stream, &err) == MCP_OK, "%s", err.text);
    for (int i = 0; i < c->m; i++)
        for (int j = 0; j < c->n; j++)
            cr_expect(eq(flt, out[i * c->n + j], want_of(c, a, b, i, j)), "%s", c->name);
    cr_expect(eq(flt, out[c->m * c->n], 1), "%s: what lies behind", c->name);
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

struct case_epilogue {
    char name[40];
    int m, n, k;
    bool biased, gelu;
    enum mcp_status want;
};
ParameterizedTestParameters(doors, epilogue)
{
    static struct case_epilogue cases[] = {
        {"a bias", 5, 7, 3, true, false, MCP_OK},
        {"GELU", 3, 8, 5, false, true, MCP_OK},
        {"a bias, then GELU", 2, 16, 3, true, true, MCP_OK},
        {"no rows", 0, 8, 3, true, true, MCP_OK},
        {"columns that GELU has not", 3, 12, 3, true, true, MCP_RUN_FAILURE},
        {"nothing to add a bias to", 3, 8, 0, true, false, MCP_RUN_FAILURE},
    };
    return cr_make_param_array(struct case_epilogue, cases, sizeof cases / sizeof *cases);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

struct epilogue_numbers {
    float a[MOST], b[MOST], bias[MOST], before[MOST], out[MOST];
};

static void compare_epilogue(const struct case_epilogue *c, const struct epilogue_numbers *of)
{
    const struct case_product product = {"", c->m, c->n, c->k, false, true, false};
    for (int i = 0; i < c->m * c->n; i++) {
        double sum = (double)want_of(&product, of->a, of->b, i / c->n, i % c->n);
        sum += c->biased ? (double)of->bias[i % c->n] : 0;
        if (c->gelu)
            cr_expect(eq(dbl, (double)of->before[i], sum), "%s", c->name);
        cr_expect(epsilon_eq(dbl, (double)of->out[i], c->gelu ? gelu(sum) : sum, 1e-5), "%s",
                  c->name);
    }
    cr_expect(eq(flt, of->out[c->m * c->n], 1), "%s: what lies behind", c->name);
    cr_expect(eq(flt, of->before[c->gelu ? c->m * c->n : 0], 1), "%s: what lies behind", c->name);
}

/* With another bias first, whose place the algorithm was chosen for. */
ParameterizedTest(struct case_epilogue *c, doors, epilogue)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cuda_blas *blas;
    struct epilogue_numbers of;
    void *stream;
    for (int i = 0; i < MOST; i++) {
        of.a[i] = (float)(i % 5 - 2);
        of.b[i] = (float)(i % 7 - 3) / 4;
        of.bias[i] = (float)(i % 3 - 1) / 2;
        of.out[i] = of.before[i] = 1;
    }
    fake_begin(1, 1 << 26);
    cr_assert(mcp_cuda_new_stream(arena, false, &stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_blas_open(arena, 1 << 20, &blas, &err) == MCP_OK, "%s", err.text);
    struct mcp_cuda_product product = {.m = c->m, .n = c->n, .k = c->k};
    product.a = mcp_cuda_matrix_of(put(arena, of.a, stream), MCP_F32, false);
    product.b = mcp_cuda_matrix_of(put(arena, of.b, stream), MCP_F32, true);
    product.c = mcp_cuda_matrix_of(put(arena, of.out, stream), MCP_F32, false);
    void *biases[2] = {put(arena, of.a, stream), put(arena, of.bias, stream)};
    if (c->gelu)
        product.before_gelu = mcp_cuda_matrix_of(put(arena, of.before, stream), MCP_F32, false);
    for (int i = 0; i < 2; i++) {
        if (c->biased)
            product.bias = mcp_cuda_matrix_of(biases[i], MCP_F32, false);
        cr_expect(eq(int, (int)mcp_cuda_blas_multiply(blas, &product, stream, &err), (int)c->want),
                  "%s: %s", c->name, err.text);
    }
    cr_assert(mcp_cuda_copy(of.out, product.c.data, sizeof of.out, stream, &err) == MCP_OK);
    if (c->gelu)
        cr_assert(mcp_cuda_copy(of.before, product.before_gelu.data, sizeof of.before, stream,
                                &err) == MCP_OK);
    cr_assert(mcp_cuda_finish_stream(stream, &err) == MCP_OK, "%s", err.text);
    if (c->want == MCP_OK)
        compare_epilogue(c, &of);
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

/* --- products in 8 bits --- */

enum { MOST_BYTES = 80 * 80, NUM_CODES = 7 };
/* Numbers that both formats have, and their bytes without a sign: E4M3, E5M2. Sums of their
 * products are exact in fp32, and not in 16 bits. */
static const struct {
    float value;
    uint8_t byte[2];
} codes[NUM_CODES] = {{0, {0, 0}},          {0.5F, {0x30, 0x38}}, {1, {0x38, 0x3c}},
                      {1.5F, {0x3c, 0x3e}}, {2, {0x40, 0x40}},    {3, {0x44, 0x42}},
                      {256, {0x78, 0x5c}}};

struct case_eight {
    char name[48];
    int m, n, k;
    int a_stride, b_stride; /* 0: as many as columns */
    bool a_is_e5m2, b_is_e5m2, accumulate;
    enum mcp_dtype c;
    int shift; /* bytes by which the first operand lies off */
    bool a_transposed, b_is_not;
    enum mcp_status want;
};
ParameterizedTestParameters(doors, eight)
{
    static struct case_eight cases[] = {
        {"forward", 32, 48, 16, .c = MCP_BF16},
        {"forward of some rows of weights", 16, 32, 48, .b_stride = 64, .c = MCP_F32},
        {"input gradient", 16, 32, 48, .a_is_e5m2 = true, .c = MCP_BF16},
        {"input gradient of some columns", 16, 32, 16, .b_stride = 80, .a_is_e5m2 = true,
         .c = MCP_BF16},
        {"weight gradient", 48, 16, 32, .a_is_e5m2 = true, .accumulate = true, .c = MCP_F32},
        {"weight gradient in bf16", 16, 16, 16, .a_stride = 32, .a_is_e5m2 = true,
         .accumulate = true, .c = MCP_BF16},
        {"gradients second", 16, 16, 32, .b_is_e5m2 = true, .c = MCP_F32},
        {"no rows", 0, 32, 16, .c = MCP_BF16},
        {"both E5M2", 16, 16, 16, .a_is_e5m2 = true, .b_is_e5m2 = true, .c = MCP_BF16,
         .want = MCP_RUN_FAILURE},
        {"rows of 24", 16, 16, 24, .c = MCP_BF16, .want = MCP_RUN_FAILURE},
        {"24 rows", 24, 16, 16, .c = MCP_BF16, .want = MCP_RUN_FAILURE},
        {"24 columns", 16, 24, 16, .c = MCP_BF16, .want = MCP_RUN_FAILURE},
        {"rows 40 apart", 16, 16, 16, .a_stride = 40, .c = MCP_BF16, .want = MCP_RUN_FAILURE},
        {"an odd place", 16, 16, 16, .c = MCP_BF16, .shift = 8, .want = MCP_RUN_FAILURE},
        {"transposed", 16, 16, 16, .c = MCP_F32, .a_transposed = true, .want = MCP_RUN_FAILURE},
        {"not transposed", 16, 16, 16, .c = MCP_F32, .b_is_not = true, .want = MCP_RUN_FAILURE},
        {"into fp16", 16, 16, 16, .c = MCP_F16, .want = MCP_RUN_FAILURE},
    };
    return cr_make_param_array(struct case_eight, cases, sizeof cases / sizeof *cases);
}

struct eight_numbers {
    float a[MOST_BYTES], b[MOST_BYTES]; /* what bytes are, as they lie, without scales */
    uint8_t a_bytes[MOST_BYTES], b_bytes[MOST_BYTES];
    float out[MOST_BYTES];
    uint16_t out_bf16[MOST_BYTES];
    float scales[2];
};

static void fill_eight(const struct case_eight *c, struct eight_numbers *of)
{
    *of = (struct eight_numbers){.scales = {0.25F, 8}};
    for (int i = 0; i < MOST_BYTES; i++) {
        const int x = (7 * i + i / 11) % NUM_CODES, y = (5 * i + i / 13) % NUM_CODES;
        const bool minus = i % 3 == 0;
        of->a[i] = minus ? -codes[x].value : codes[x].value;
        of->a_bytes[i] = (uint8_t)(codes[x].byte[c->a_is_e5m2] | (minus ? 0x80 : 0));
        of->b[i] = codes[y].value;
        of->b_bytes[i] = codes[y].byte[c->b_is_e5m2];
        of->out[i] = 1;
        of->out_bf16[i] = mcp_to_bf16(1);
    }
}

static void compare_eight(const struct case_eight *c, const struct eight_numbers *of)
{
    const int a_stride = c->a_stride != 0 ? c->a_stride : c->k;
    const int b_stride = c->b_stride != 0 ? c->b_stride : c->k;
    for (int i = 0; i < c->m; i++)
        for (int j = 0; j < c->n; j++) {
            float sum = 0;
            for (int l = 0; l < c->k; l++)
                sum += of->a[i * a_stride + l] * of->b[j * b_stride + l];
            const float want = (c->accumulate ? 1 : 0) + 0.25F * 8 * sum;
            const int at = i * c->n + j;
            if (c->c == MCP_F32)
                cr_expect(eq(flt, of->out[at], want), "%s", c->name);
            else
                cr_expect(eq(int, of->out_bf16[at], mcp_to_bf16(want)), "%s", c->name);
        }
    cr_expect(eq(flt, of->out[c->c == MCP_F32 ? c->m * c->n : 0], 1), "%s: what lies behind",
              c->name);
    cr_expect(eq(int, of->out_bf16[c->c == MCP_F32 ? 0 : c->m * c->n], mcp_to_bf16(1)),
              "%s: what lies behind", c->name);
}

static void *put_bytes(struct mcp_arena *arena, const void *from, size_t bytes, void *stream)
{
    void *memory;
    cr_assert(mcp_cuda_new_memory(arena, (int64_t)bytes, &memory, NULL) == MCP_OK);
    cr_assert(mcp_cuda_copy(memory, from, (int64_t)bytes, stream, NULL) == MCP_OK);
    return memory;
}

/* With other scales first, whose place the algorithm was chosen with. */
ParameterizedTest(struct case_eight *c, doors, eight)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cuda_blas *blas;
    struct eight_numbers *of = MCP_NEW(arena, struct eight_numbers);
    void *stream;
    fill_eight(c, of);
    fake_begin(1, 1 << 26);
    cr_assert(mcp_cuda_new_stream(arena, false, &stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_blas_open(arena, 1 << 20, &blas, &err) == MCP_OK, "%s", err.text);
    char *a = put_bytes(arena, of->a_bytes, sizeof of->a_bytes, stream);
    char *b = put_bytes(arena, of->b_bytes, sizeof of->b_bytes, stream);
    char *scales = put_bytes(arena, of->scales, sizeof of->scales, stream);
    const bool wide = c->c == MCP_F32;
    const size_t out_bytes = wide ? sizeof of->out : sizeof of->out_bf16;
    void *out = put_bytes(arena, wide ? (void *)of->out : (void *)of->out_bf16, out_bytes, stream);
    struct mcp_cuda_product product = {
        .m = c->m,
        .n = c->n,
        .k = c->k,
        .a = {a + c->shift, MCP_F8, c->a_transposed, c->a_stride, scales, c->a_is_e5m2},
        .b = {b, MCP_F8, !c->b_is_not, c->b_stride, scales, c->b_is_e5m2},
        .c = mcp_cuda_matrix_of(out, c->c, false),
        .accumulate = c->accumulate};
    for (int i = c->accumulate; i < 2; i++) {
        product.b.scale = scales + i * (int)sizeof(float);
        cr_expect(eq(int, (int)mcp_cuda_blas_multiply(blas, &product, stream, &err), (int)c->want),
                  "%s: %s", c->name, err.text);
    }
    cr_assert(mcp_cuda_copy(wide ? (void *)of->out : (void *)of->out_bf16, out, (int64_t)out_bytes,
                            stream, &err) == MCP_OK);
    cr_assert(mcp_cuda_finish_stream(stream, &err) == MCP_OK, "%s", err.text);
    if (c->want == MCP_OK)
        compare_eight(c, of);
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

/* The fake's numbers are those that CPUs cast to: each byte by 1. */
Test(doors, bytes_are_numbers_of_8_bits)
{
    enum { BYTES = 256, SIDE = 16, ONE = 0x38 };
    static uint8_t a[BYTES][SIDE], b[SIDE][SIDE];
    static float out[BYTES][SIDE];
    const float scale = 1;
    for (int i = 0; i < BYTES; i++)
        a[i][i % SIDE] = (uint8_t)i;
    memset(b, ONE, sizeof b);
    for (int is_e5m2 = 0; is_e5m2 < 2; is_e5m2++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct mcp_error err = {""};
        struct mcp_cuda_blas *blas;
        void *stream;
        fake_begin(1, 1 << 26);
        cr_assert(mcp_cuda_new_stream(arena, false, &stream, &err) == MCP_OK, "%s", err.text);
        cr_assert(mcp_cuda_blas_open(arena, 1 << 20, &blas, &err) == MCP_OK, "%s", err.text);
        void *one = put_bytes(arena, &scale, sizeof scale, stream);
        void *to = put_bytes(arena, out, sizeof out, stream);
        const struct mcp_cuda_product product = {
            .m = BYTES,
            .n = SIDE,
            .k = SIDE,
            .a = {put_bytes(arena, a, sizeof a, stream), MCP_F8, false, 0, one, is_e5m2},
            .b = {put_bytes(arena, b, sizeof b, stream), MCP_F8, true, 0, one, false},
            .c = mcp_cuda_matrix_of(to, MCP_F32, false)};
        cr_assert(mcp_cuda_blas_multiply(blas, &product, stream, &err) == MCP_OK, "%s", err.text);
        cr_assert(mcp_cuda_copy(out, to, sizeof out, stream, &err) == MCP_OK);
        cr_assert(mcp_cuda_finish_stream(stream, &err) == MCP_OK, "%s", err.text);
        for (int i = 0; i < BYTES; i++) {
            const float want = mcp_from_eight(is_e5m2, (uint8_t)i);
            cr_expect(isnan(want) ? isnan(out[i][0]) : out[i][0] == want, "byte %d: %g, not %g", i,
                      (double)out[i][0], (double)want);
        }
        mcp_arena_free(arena);
        cr_expect(eq(int, fake_end(), 0));
    }
}

Test(doors, formats_that_no_product_has)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cuda_blas *blas;
    fake_begin(1, 1 << 26);
    cr_assert(mcp_cuda_blas_open(arena, 1 << 20, &blas, &err) == MCP_OK, "%s", err.text);
    const struct mcp_cuda_product product = {
        .m = 1, .n = 1, .k = 1, .a.dtype = MCP_BF16, .b.dtype = MCP_F32, .c.dtype = MCP_F32};
    cr_expect(mcp_cuda_blas_multiply(blas, &product, NULL, &err) == MCP_RUN_FAILURE);
    cr_expect(strstr(err.text, "no product of bf16 and f32 into f32") != NULL, "%s", err.text);
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

Test(doors, an_algorithm_is_asked_for_once)
{
    enum { SIDE = 10, STEP = 16 }; /* sizes are round */
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cuda_blas *blas;
    void *stream, *memory;
    fake_begin(1, 1 << 26);
    cr_assert(mcp_cuda_new_stream(arena, false, &stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_blas_open(arena, 1 << 20, &blas, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_new_memory(arena, 1 << 20, &memory, &err) == MCP_OK, "%s", err.text);
    const struct mcp_cuda_matrix numbers = mcp_cuda_matrix_of(memory, MCP_F32, false);
    const int before = fake_algorithms_chosen();
    for (int i = 0; i < 2 * SIDE * SIDE; i++) {
        const struct mcp_cuda_product product = {.m = STEP * (1 + i % SIDE),
                                                 .n = STEP * (1 + i / SIDE % SIDE),
                                                 .k = 1,
                                                 .a = numbers,
                                                 .b = numbers,
                                                 .c = numbers};
        cr_assert(mcp_cuda_blas_multiply(blas, &product, stream, &err) == MCP_OK, "%s", err.text);
    }
    cr_expect(eq(int, fake_algorithms_chosen() - before, SIDE * SIDE));
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

/* Half of the sum is no number of bf16, and the whole is. */
Test(doors, sums_are_in_fp32)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_cuda_blas *blas;
    const float a[4] = {256, 1, -256, 0}, ones[4] = {1, 1, 1, 1};
    uint16_t bits[3][4] = {{0}};
    void *stream, *memory[3];
    for (int i = 0; i < 4; i++) {
        bits[0][i] = mcp_to_bf16(a[i]);
        bits[1][i] = mcp_to_bf16(ones[i]);
    }
    fake_begin(1, 1 << 26);
    cr_assert(mcp_cuda_new_stream(arena, false, &stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_blas_open(arena, 1 << 20, &blas, &err) == MCP_OK, "%s", err.text);
    for (int i = 0; i < 3; i++) {
        cr_assert(mcp_cuda_new_memory(arena, sizeof bits[i], &memory[i], &err) == MCP_OK);
        cr_assert(mcp_cuda_copy(memory[i], bits[i], sizeof bits[i], stream, &err) == MCP_OK);
    }
    const struct mcp_cuda_product product = {.m = 1,
                                             .n = 1,
                                             .k = 4,
                                             .a = mcp_cuda_matrix_of(memory[0], MCP_BF16, false),
                                             .b = mcp_cuda_matrix_of(memory[1], MCP_BF16, false),
                                             .c = mcp_cuda_matrix_of(memory[2], MCP_BF16, false)};
    cr_assert(mcp_cuda_blas_multiply(blas, &product, stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_copy(bits[2], memory[2], sizeof bits[2], stream, &err) == MCP_OK);
    cr_assert(mcp_cuda_finish_stream(stream, &err) == MCP_OK, "%s", err.text);
    cr_expect(eq(flt, mcp_from_bf16(bits[2][0]), 1));
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

/* --- devices --- */

Test(doors, no_device_and_no_driver_are_alike)
{
    static const int errors[] = {35, 100}; /* insufficient driver, no device */
    for (int i = 0; i < 2; i++) {
        struct mcp_error err = {""};
        int count;
        fake_begin(1, 1 << 20);
        fake_set_device_error(errors[i]);
        cr_expect(mcp_cuda_count(&count, &err) == MCP_RUN_FAILURE);
        cr_expect(strstr(err.text, "no CUDA device: ") == err.text, "%d: %s", errors[i], err.text);
        fake_set_device_error(0);
        cr_expect(mcp_cuda_count(&count, &err) == MCP_OK && count == 1);
        fake_end();
    }
}

Test(doors, memory_that_is_not_there)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    void *memory;
    fake_begin(1, 1 << 20);
    cr_expect(mcp_cuda_new_memory(arena, 1 << 21, &memory, &err) == MCP_RUN_FAILURE);
    cr_expect(strstr(err.text, "1048576 bytes free, and 2097152 more") != NULL, "%s", err.text);
    cr_expect(mcp_cuda_new_memory(arena, 1 << 10, &memory, &err) == MCP_OK, "%s", err.text);
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

Test(doors, what_is_not_ready_is_no_error)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    void *stream, *memory;
    bool empty = true;
    fake_begin(1, 1 << 20);
    cr_assert(mcp_cuda_new_stream(arena, false, &stream, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_new_memory(arena, 1, &memory, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cuda_set_bytes(memory, 0, 1, stream, &err) == MCP_OK, "%s", err.text);
    cr_expect(mcp_cuda_stream_empty(stream, &empty, &err) == MCP_OK && !empty);
    cr_expect(mcp_cuda_check_launch("a kernel", &err) == MCP_OK, "%s", err.text);
    mcp_arena_free(arena);
    cr_expect(eq(int, fake_end(), 0));
}

/* --- transfers --- */

struct member {
    struct mcp_nccl_place place;
    enum mcp_status (*act)(struct mcp_arena *arena, struct member *member);
    enum mcp_status status;
    struct mcp_error err;
    float sum;
};

static enum mcp_status sum_ranks(struct mcp_arena *arena, struct member *member)
{
    struct mcp_nccl_world *world;
    struct mcp_nccl *pair;
    struct mcp_error *err = &member->err;
    void *stream, *memory, *host;
    MCP_TRY(mcp_cuda_choose(member->place.rank, err));
    MCP_TRY(mcp_cuda_new_stream(arena, true, &stream, err));
    MCP_TRY(mcp_cuda_new_memory(arena, sizeof(float), &memory, err));
    MCP_TRY(mcp_cuda_new_host_memory(arena, sizeof(float), &host, err));
    MCP_TRY(mcp_nccl_world_open(arena, &member->place, &world, err));
    MCP_TRY(mcp_nccl_split(world, &(struct mcp_nccl_part){.key = -member->place.rank}, &pair, err));
    *(float *)host = (float)(member->place.rank + 1);
    MCP_TRY(mcp_cuda_copy(memory, host, sizeof(float), stream, err));
    const struct mcp_nccl_data data = {memory, memory, 1, MCP_NCCL_F32};
    MCP_TRY(mcp_nccl_all_reduce(pair, &data, '+', stream, err));
    MCP_TRY(mcp_cuda_copy(host, memory, sizeof(float), stream, err));
    MCP_TRY(mcp_cuda_await(world, stream, "the sum", err));
    member->sum = *(const float *)host;
    return MCP_OK;
}

static pthread_barrier_t both;

/* Calls of two communicators wait for a rank that will not call. */
static enum mcp_status give_up(struct mcp_arena *arena, struct member *member)
{
    struct mcp_nccl_world *world;
    struct mcp_nccl *pair;
    struct mcp_error *err = &member->err;
    void *streams[2], *memory;
    MCP_TRY(mcp_cuda_choose(member->place.rank, err));
    MCP_TRY(mcp_cuda_new_memory(arena, sizeof(float), &memory, err));
    MCP_TRY(mcp_nccl_world_open(arena, &member->place, &world, err));
    MCP_TRY(mcp_nccl_split(world, &(struct mcp_nccl_part){.key = 0}, &pair, err));
    struct mcp_nccl *const comms[2] = {pair, mcp_nccl_everybody(world)};
    const struct mcp_nccl_data data = {memory, memory, 1, MCP_NCCL_F32};
    for (int i = 0; i < 2; i++) {
        MCP_TRY(mcp_cuda_new_stream(arena, true, &streams[i], err));
        if (member->place.rank == 0)
            MCP_TRY(mcp_nccl_all_reduce(comms[i], &data, '+', streams[i], err));
    }
    pthread_barrier_wait(&both);
    mcp_nccl_abort(world);
    for (int i = 0; i < 2; i++)
        MCP_TRY(mcp_cuda_finish_stream(streams[i], err));
    return MCP_OK;
}

static void *live(void *argument)
{
    struct member *member = argument;
    struct mcp_arena *arena = mcp_arena_new();
    member->status = member->act(arena, member);
    mcp_arena_free(arena);
    return NULL;
}

static void run_pair(struct member members[2],
                     enum mcp_status (*act)(struct mcp_arena *, struct member *))
{
    pthread_t threads[2];
    struct mcp_nccl_id id;
    cr_assert(mcp_nccl_make_id(&id, NULL) == MCP_OK);
    for (int i = 0; i < 2; i++) {
        members[i].place = (struct mcp_nccl_place){.id = id, .rank = i, .size = 2, .timeout_s = 30};
        members[i].act = act;
        pthread_create(&threads[i], NULL, live, &members[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

Test(doors, ranks_sum)
{
    static struct member members[2];
    fake_begin(2, 1 << 20);
    run_pair(members, sum_ranks);
    for (int i = 0; i < 2; i++) {
        cr_expect(eq(int, (int)members[i].status, MCP_OK), "%s", members[i].err.text);
        cr_expect(eq(flt, members[i].sum, 3));
    }
    cr_expect(eq(int, fake_end(), 0));
}

Test(doors, all_communicators_are_given_up_together)
{
    static struct member members[2];
    fake_begin(2, 1 << 20);
    pthread_barrier_init(&both, NULL, 2);
    run_pair(members, give_up);
    pthread_barrier_destroy(&both);
    for (int i = 0; i < 2; i++)
        cr_expect(eq(int, (int)members[i].status, MCP_OK), "%s", members[i].err.text);
    cr_expect(eq(int, fake_end(), 0));
}

Test(doors, a_transfer_that_fails_is_everybodys)
{
    static struct member members[2];
    fake_begin(2, 1 << 20);
    fake_fail_collective(1, 0);
    run_pair(members, sum_ranks);
    for (int i = 0; i < 2; i++) {
        char rank[] = "rank 0: ";
        rank[5] += (char)i;
        cr_expect(eq(int, (int)members[i].status, MCP_RUN_FAILURE));
        cr_expect(strstr(members[i].err.text, rank) == members[i].err.text, "%s",
                  members[i].err.text);
        cr_expect(strstr(members[i].err.text, "NCCL says: ") != NULL, "%s", members[i].err.text);
    }
    fake_end();
}
