/* step/casts.c: which ops read casts, how much that is, and where those of weights lie. */
#include "step/casts.h"

#include "step/layer.h"
#include "step/price.h"

bool mcp_op_reads_casts(const struct mcp_op *op)
{
    return mcp_functions[op->function].code == MCP_MATMUL &&
           mcp_dtype_is_low((enum mcp_dtype)op->dtype);
}

bool mcp_casts_operands(const struct mcp_question *question)
{
    return question->stack->casts_operands &&
           mcp_dtype_is_low(mcp_matmul_dtype(question->job->precision));
}

bool mcp_op_reads_gradients(const struct mcp_op *op, int read)
{
    return read == 0 &&
           (op->function == MCP_FN_MATMUL_NN || op->function == MCP_FN_MATMUL_TN_ACCUMULATE);
}

struct share {
    double low, all;
};

static void add_products(const struct mcp_block *block, struct share *share)
{
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_op *op = &block->ops[i];
        if (mcp_functions[op->function].code != MCP_MATMUL)
            continue;
        share->all += mcp_op_flops(op);
        share->low += mcp_op_reads_casts(op) ? mcp_op_flops(op) : 0;
    }
}

double mcp_cast_flops_frac(const struct mcp_question *question, const struct mcp_plan *plan)
{
    struct mcp_arena *scratch = mcp_arena_new();
    struct share share = {0};
    for (int layer = 0; layer < mcp_extended_layers(question->model); layer++) {
        const struct mcp_mark mark = mcp_arena_mark(scratch);
        const struct mcp_layer_spec spec = mcp_layer_spec_at(question, plan, layer);
        struct mcp_layer_type type = {0};
        mcp_layer_build(scratch, question, plan, &spec, &type);
        add_products(&type.blocks[MCP_FORWARD], &share);
        mcp_arena_rewind(scratch, mark);
    }
    mcp_arena_free(scratch);
    return share.all > 0 ? share.low / share.all : 0;
}

int64_t mcp_cast_weight_offset(const struct mcp_layer_type *type, int part)
{
    int64_t bytes = 0;
    for (int i = 0; i < part; i++)
        if (type->weights[i].cast)
            bytes += mcp_cast_bytes(type->weights[i].rows, type->weights[i].columns);
    return bytes;
}
