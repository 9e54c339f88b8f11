/* core/precision.c: number formats: what a tensor's element weighs. */
#include "core/precision.h"

#include <assert.h>

const char *const mcp_precision_names[MCP_NUM_PRECISIONS] = {
    [MCP_PRECISION_BF16] = "bf16", [MCP_PRECISION_FP16] = "fp16",   [MCP_PRECISION_FP32] = "fp32",
    [MCP_PRECISION_FP8] = "fp8",   [MCP_PRECISION_MXFP8] = "mxfp8", [MCP_PRECISION_NVFP4] = "nvfp4",
};

const char *const mcp_dtype_names[MCP_NUM_DTYPES] = {
    [MCP_F32] = "f32", [MCP_BF16] = "bf16", [MCP_F16] = "f16", [MCP_F8] = "f8",
    [MCP_F4] = "f4",   [MCP_I32] = "i32",   [MCP_U8] = "u8",
};

double mcp_dtype_bytes(enum mcp_dtype dtype)
{
    static const double bytes[MCP_NUM_DTYPES] = {
        [MCP_F32] = 4.0,
        [MCP_BF16] = 2.0,
        [MCP_F16] = 2.0,
        [MCP_F8] = 1.0,
        [MCP_F4] = 0.5 + 1.0 / 16.0, /* one 8-bit scale for 16 elements */
        [MCP_I32] = 4.0,
        [MCP_U8] = 1.0,
    };
    assert((unsigned)dtype < MCP_NUM_DTYPES);
    return bytes[dtype];
}

enum mcp_dtype mcp_activation_dtype(enum mcp_precision precision)
{
    if (precision == MCP_PRECISION_FP32)
        return MCP_F32;
    return precision == MCP_PRECISION_FP16 ? MCP_F16 : MCP_BF16;
}

enum mcp_dtype mcp_matmul_dtype(enum mcp_precision precision)
{
    static const enum mcp_dtype operand[MCP_NUM_PRECISIONS] = {
        [MCP_PRECISION_BF16] = MCP_BF16, [MCP_PRECISION_FP16] = MCP_F16,
        [MCP_PRECISION_FP32] = MCP_F32,  [MCP_PRECISION_FP8] = MCP_F8,
        [MCP_PRECISION_MXFP8] = MCP_F8,  [MCP_PRECISION_NVFP4] = MCP_F4,
    };
    assert((unsigned)precision < MCP_NUM_PRECISIONS);
    return operand[precision];
}
