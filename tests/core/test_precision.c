/* tests/core/test_precision.c: what elements weigh, and which recipe multiplies in what. */
#include "core/precision.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

struct recipe_case {
    char name[8];
    enum mcp_precision precision;
    enum mcp_dtype activation, matmul;
    double matmul_bytes;
};
ParameterizedTestParameters(precision, recipe)
{
    static struct recipe_case cases[] = {
        {"bf16", MCP_PRECISION_BF16, MCP_BF16, MCP_BF16, 2.0},
        {"fp16", MCP_PRECISION_FP16, MCP_F16, MCP_F16, 2.0},
        {"fp32", MCP_PRECISION_FP32, MCP_F32, MCP_F32, 4.0},
        {"fp8", MCP_PRECISION_FP8, MCP_BF16, MCP_F8, 1.0},
        {"mxfp8", MCP_PRECISION_MXFP8, MCP_BF16, MCP_F8, 1.0},
        {"nvfp4", MCP_PRECISION_NVFP4, MCP_BF16, MCP_F4, 0.5625},
    };
    return cr_make_param_array(struct recipe_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct recipe_case *c, precision, recipe)
{
    cr_expect_str_eq(mcp_precision_names[c->precision], c->name);
    cr_expect(mcp_activation_dtype(c->precision) == c->activation, "%s", c->name);
    cr_expect(mcp_matmul_dtype(c->precision) == c->matmul, "%s", c->name);
    cr_expect(mcp_dtype_bytes(mcp_matmul_dtype(c->precision)) == c->matmul_bytes, "%s", c->name);
}

Test(precision, every_dtype_has_a_name_and_a_weight)
{
    for (int i = 0; i < MCP_NUM_DTYPES; i++) {
        cr_expect(mcp_dtype_names[i] != NULL && mcp_dtype_names[i][0] != '\0');
        cr_expect(mcp_dtype_bytes((enum mcp_dtype)i) > 0.0);
    }
    cr_expect(mcp_dtype_bytes(MCP_I32) == 4.0 && mcp_dtype_bytes(MCP_U8) == 1.0);
}
