/* step/casts.c: which ops read casts, and where those of weights lie. */
#include "step/casts.h"

bool mcp_op_reads_casts(const struct mcp_op *op)
{
    return mcp_functions[op->function].code == MCP_MATMUL &&
           (op->dtype == MCP_F8 || op->dtype == MCP_F4);
}

bool mcp_op_reads_gradients(const struct mcp_op *op, int read)
{
    return read == 0 &&
           (op->function == MCP_FN_MATMUL_NN || op->function == MCP_FN_MATMUL_TN_ACCUMULATE);
}

int64_t mcp_cast_weight_offset(const struct mcp_layer_type *type, int part)
{
    int64_t bytes = 0;
    for (int i = 0; i < part; i++)
        if (type->weights[i].cast)
            bytes += mcp_cast_bytes(type->weights[i].rows, type->weights[i].columns);
    return bytes;
}
