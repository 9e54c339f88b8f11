/* core/precision.h: number formats: what a tensor's element weighs. */
#ifndef MCP_CORE_PRECISION_H
#define MCP_CORE_PRECISION_H

#include <stdbool.h>
#include <stddef.h>

/* The recipe of a run: in which format the linear layers multiply. Attention,
 * router, embedding and LM head stay 16 bit under the 8 and 4 bit recipes. */
enum mcp_precision {
    MCP_PRECISION_BF16,
    MCP_PRECISION_FP16,
    MCP_PRECISION_FP32,
    MCP_PRECISION_FP8,   /* per-tensor scaling */
    MCP_PRECISION_MXFP8, /* block scaling, 32 elements */
    MCP_PRECISION_NVFP4, /* block scaling, 16 elements */
    MCP_NUM_PRECISIONS
};
extern const char *const mcp_precision_names[MCP_NUM_PRECISIONS]; /* "bf16" ... */

/* One tensor's element. */
enum mcp_dtype {
    MCP_F32,
    MCP_BF16,
    MCP_F16,
    MCP_F8,
    MCP_F4, /* with its block scale: 0.5625 bytes */
    MCP_I32,
    MCP_U8,
    MCP_NUM_DTYPES
};
extern const char *const mcp_dtype_names[MCP_NUM_DTYPES];
double mcp_dtype_bytes(enum mcp_dtype dtype);
/* 8 or 4 bits. */
static inline bool mcp_dtype_is_low(enum mcp_dtype dtype)
{
    return dtype == MCP_F8 || dtype == MCP_F4;
}

/* Activations and weights between linear layers; the linear products' operands. */
enum mcp_dtype mcp_activation_dtype(enum mcp_precision precision); /* BF16, F16 or F32 */
enum mcp_dtype mcp_matmul_dtype(enum mcp_precision precision);     /* BF16 .. F4 */

#endif
