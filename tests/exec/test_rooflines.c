/* tests/exec/test_rooflines.c: shares of rooflines from times and sizes. */
#include "exec/rooflines.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

/* A device of 1 TB/s, 100 TFLOP/s in bf16 and 10 in fp32. */
static struct mcp_rooflines device(void)
{
    struct mcp_rooflines r = {.device = "GPU", .copy_bytes_per_s = 1e12, .repeats = 3};
    r.peak_flops_per_s[MCP_BF16] = 1e14;
    r.peak_flops_per_s[MCP_F32] = 1e13;
    return r;
}

/* A program of one rank; its ops' bytes are those of step/, tests/step/test_kernel_bytes.c. */
static const struct mcp_program one_rank = {.plan = {.tensor_parallel = 1,
                                                     .context_parallel = 1,
                                                     .pipeline_parallel = 1,
                                                     .data_parallel = 1,
                                                     .expert_parallel = 1}};

struct share_case {
    char name[48];
    struct mcp_op op;
    double least_s;
};

ParameterizedTestParameters(rooflines, least)
{
    static struct share_case cases[] = {
        {"a product by its operations",
         {.function = MCP_FN_MATMUL_NT, .dtype = MCP_BF16, .dims = {8192, 4096, 4096, 1}},
         2.0 * 8192 * 4096 * 4096 / 1e14},
        {"a product in fp32 by that format's rate",
         {.function = MCP_FN_MATMUL_NT, .dtype = MCP_F32, .dims = {8192, 4096, 4096, 1}},
         2.0 * 8192 * 4096 * 4096 / 1e13},
        {"a flat product by its bytes",
         {.function = MCP_FN_MATMUL_NN, .dtype = MCP_BF16, .dims = {8192, 4096, 8, 1}},
         2.0 * (8192.0 * 8 + 8 * 4096.0 + 8192.0 * 4096) / 1e12},
        {"a weight gradient reads and writes fp32",
         {.function = MCP_FN_MATMUL_TN_ACCUMULATE, .dtype = MCP_BF16, .dims = {4096, 4096, 8, 1}},
         (2.0 * (4096.0 * 8 + 8 * 4096.0) + 8.0 * 4096 * 4096) / 1e12},
        {"attention's forward by two products",
         {.function = MCP_FN_ATTENTION_FORWARD, .dtype = MCP_BF16, .dims = {8, 1000, 64, 64, 40}},
         2.0 * 2 * 8 * 1000 * 64 / 1e14},
        {"attention's backward by five",
         {.function = MCP_FN_ATTENTION_BACKWARD, .dtype = MCP_BF16, .dims = {8, 1000, 64, 64, 40}},
         5.0 * 2 * 8 * 1000 * 64 / 1e14},
        {"a residual by three times its elements",
         {.function = MCP_FN_RESIDUAL_FORWARD, .dtype = MCP_BF16, .dims = {100, 50}},
         100.0 * 50 * 3 * 2 / 1e12},
        {"an unmeasured format by its bytes",
         {.function = MCP_FN_MATMUL_NT, .dtype = MCP_F16, .dims = {64, 64, 64, 1}},
         6.0 * 64 * 64 / 1e12},
    };
    return cr_make_param_array(struct share_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct share_case *c, rooflines, least)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_rooflines r = device();
    const struct mcp_layer_type type = {.facts = {.heads = 1}};
    const struct mcp_roofline_op *op = mcp_rooflines_find(arena, &r, &one_rank, &type, &c->op);
    cr_assert(ne(ptr, (void *)(uintptr_t)op, NULL), "%s", c->name);
    cr_expect(epsilon_eq(dbl, mcp_roofline_least_s(&r, op), c->least_s, 1e-12 * c->least_s), "%s",
              c->name);
    mcp_arena_free(arena);
}

Test(rooflines, ops_of_one_size_are_one)
{
    static const struct mcp_op ops[] = {
        {.function = MCP_FN_ZERO, .dtype = MCP_F32, .dims = {1000, 1, 5000, 0}},
        {.function = MCP_FN_ZERO, .dtype = MCP_F32, .dims = {1000, 1, 5000, 1000}},
        {.function = MCP_FN_ZERO, .dtype = MCP_F32, .dims = {2000, 1, 5000, 0}},
        {.function = MCP_FN_MATMUL_NT, .dtype = MCP_F32, .dims = {8, 8, 8, 1}},
        {.function = MCP_FN_MATMUL_NT, .dtype = MCP_BF16, .dims = {8, 8, 8, 1}},
        {.function = MCP_FN_ALL_REDUCE, .dtype = MCP_F32, .dims = {1000}},
        {.function = MCP_FN_STEP_SCALARS, .dtype = MCP_F32},
    };
    static const size_t known[] = {1, 1, 2, 3, 4, 4, 4};
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_rooflines r = device();
    const struct mcp_layer_type type = {.facts = {.heads = 1}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const struct mcp_roofline_op *op = mcp_rooflines_find(arena, &r, &one_rank, &type, &ops[i]);
        cr_expect(eq(int, op != NULL, i < 5), "%zu", i);
        cr_expect(eq(sz, r.num_ops, known[i]), "%zu", i);
    }
    mcp_arena_free(arena);
}

/* --- of a whole step --- */

static void add(struct mcp_arena *arena, struct mcp_rooflines *r, const struct mcp_op *op,
                int launches, double share)
{
    const struct mcp_layer_type type = {.facts = {.heads = 1}};
    struct mcp_roofline_op *found = mcp_rooflines_find(arena, r, &one_rank, &type, op);
    found->launches = launches;
    found->median_s = mcp_roofline_least_s(r, found) / share;
    found->min_s = found->median_s / 2;
}

/* Two products of equal work, one at half of its roofline and launched thrice. */
static void fill(struct mcp_arena *arena, struct mcp_rooflines *r)
{
    static const struct mcp_op ops[] = {
        {.function = MCP_FN_MATMUL_NT, .dtype = MCP_BF16, .dims = {8192, 4096, 4096, 1}},
        {.function = MCP_FN_MATMUL_NT, .dtype = MCP_BF16, .dims = {4096, 8192, 4096, 1}},
        {.function = MCP_FN_RESIDUAL_FORWARD, .dtype = MCP_BF16, .dims = {100, 50}},
        {.function = MCP_FN_ATTENTION_FORWARD, .dtype = MCP_BF16, .dims = {8, 9000, 64, 64, 40}},
    };
    add(arena, r, &ops[0], 3, 0.5);
    add(arena, r, &ops[1], 1, 1);
    add(arena, r, &ops[2], 7, 0.9);
    add(arena, r, &ops[3], 1, 0.44);
    mcp_rooflines_sort(r);
}

Test(rooflines, a_kind_is_weighed_by_the_time_of_its_ops)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_rooflines r = device();
    fill(arena, &r);
    cr_expect(epsilon_eq(dbl, mcp_roofline_frac(&r, MCP_ROOFLINE_PRODUCT), 4.0 / 7, 1e-12));
    cr_expect(epsilon_eq(dbl, mcp_roofline_frac(&r, MCP_ROOFLINE_MEMORY), 0.9, 1e-12));
    cr_expect(epsilon_eq(dbl, mcp_roofline_frac(&r, MCP_ROOFLINE_ATTENTION_FORWARD), 0.44, 1e-12));
    cr_expect(isnan(mcp_roofline_frac(&r, MCP_ROOFLINE_ATTENTION_BACKWARD)));
    for (size_t i = 1; i < r.num_ops; i++)
        cr_expect(ge(dbl, r.ops[i - 1].launches * r.ops[i - 1].median_s,
                     r.ops[i].launches * r.ops[i].median_s));
    mcp_arena_free(arena);
}

/* Whoever came first. */
Test(rooflines, ops_of_equal_times_have_one_order)
{
    static const struct mcp_op ops[] = {
        {.function = MCP_FN_ZERO, .dtype = MCP_F32, .dims = {1000, 1, 5000}},
        {.function = MCP_FN_ZERO, .dtype = MCP_BF16, .dims = {1000, 1, 5000}},
        {.function = MCP_FN_ZERO, .dtype = MCP_F32, .dims = {2000, 1, 5000}},
        {.function = MCP_FN_RESIDUAL_FORWARD, .dtype = MCP_F32, .dims = {100, 50}},
    };
    enum { OPS = sizeof ops / sizeof *ops };
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_rooflines turns[2] = {device(), device()};
    const struct mcp_layer_type type = {.facts = {.heads = 1}};
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < OPS; i++)
            mcp_rooflines_find(arena, &turns[t], &one_rank, &type, &ops[t == 0 ? i : OPS - 1 - i])
                ->launches = 1;
        cr_assert(eq(sz, turns[t].num_ops, OPS));
        mcp_rooflines_sort(&turns[t]);
    }
    for (int i = 0; i < OPS; i++)
        cr_expect(turns[0].ops[i].op == turns[1].ops[i].op, "place %d", i);
    mcp_arena_free(arena);
}

Test(rooflines, the_table_says_which_aims_are_met)
{
    static const char *const lines[] = {
        "GPU reaches\n",
        "1000 GB/s ",
        "100.0 TFLOP/s  in a product of 0 x 0 x 0 in bf16\n",
        "matmul_nt               bf16        8192 x 4096 x 4096        3 ",
        "   50.0  products\n",
        "residual_forward        bf16                  100 x 50        7 ",
        "   90.0  memory\n",
        "attention_forward       bf16               8 x 40 x 64        1 ",
        "  matrix products                                 57.1 %     85 %  not met\n",
        "  memory-bound kernels                            90.0 %     85 %  met\n",
        "  attention, forward                              44.0 %     45 %  not met\n",
        "  attention, backward                                - %     38 %  not there\n",
    };
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_rooflines r = device();
    struct mcp_text text = mcp_text_new(arena);
    fill(arena, &r);
    mcp_rooflines_text(&r, &text);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_expect(strstr(text.data, lines[i]) != NULL, "no '%s' in\n%s", lines[i], text.data);
    mcp_arena_free(arena);
}

/* Times of nothing, and a device that was not measured, are unknown: null, no infinity. */
Test(rooflines, what_is_unknown_is_null)
{
    static const struct mcp_op op = {
        .function = MCP_FN_RESIDUAL_FORWARD, .dtype = MCP_BF16, .dims = {100, 50}};
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_rooflines r = {.device = "GPU"};
    const struct mcp_layer_type type = {.facts = {.heads = 1}};
    mcp_rooflines_find(arena, &r, &one_rank, &type, &op)->launches = 1;
    const char *json = mcp_json_text(arena, mcp_rooflines_json(arena, &r));
    static const char *const parts[] = {"\"bytes\": 30000", "\"bytes_per_s\": null",
                                        "\"roofline_frac\": null", "\"met\": false"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        cr_expect(strstr(json, parts[i]) != NULL, "no '%s' in\n%s", parts[i], json);
    mcp_arena_free(arena);
}
