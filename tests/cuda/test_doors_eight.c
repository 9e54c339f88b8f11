/* tests/cuda/test_doors_eight.c: products in 8 bits by cuBLASLt's door: as operands lie, by their
 * scales, and refused where the library has none. */
#include "core/arena.h"
#include "exec/cuda_blas.h"
#include "exec/cuda_runtime.h"
#include "exec/eight.h"
#include "tests/cuda/fake/engine.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

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
ParameterizedTestParameters(doors_eight, product)
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
ParameterizedTest(struct case_eight *c, doors_eight, product)
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
Test(doors_eight, bytes_are_numbers_of_8_bits)
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
