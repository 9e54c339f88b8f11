/* exec/cuda_launch.c: the table of exec/cuda_launch.h. */
#include "exec/cuda_launch.h"

const struct mcp_cuda_kernel mcp_cuda_kernels[MCP_NUM_FUNCTIONS] = {
    [MCP_FN_MATMUL_NT] = {.multiply = mcp_cuda_matmul_nt},
    [MCP_FN_MATMUL_NT_BIAS] = {.multiply = mcp_cuda_matmul_nt_bias},
    [MCP_FN_MATMUL_NT_GELU] = {.multiply = mcp_cuda_matmul_nt_gelu},
    [MCP_FN_MATMUL_NN] = {.multiply = mcp_cuda_matmul_nn},
    [MCP_FN_MATMUL_TN_ACCUMULATE] = {.multiply = mcp_cuda_matmul_tn},
    [MCP_FN_GROUPED_NT] = {.multiply = mcp_cuda_grouped_nt},
    [MCP_FN_GROUPED_NN] = {.multiply = mcp_cuda_grouped_nn},
    [MCP_FN_GROUPED_TN_ACCUMULATE] = {.multiply = mcp_cuda_grouped_tn},
    [MCP_FN_ATTENTION_FORWARD] = {mcp_cuda_launch_attention, NULL},
    [MCP_FN_ATTENTION_BACKWARD] = {mcp_cuda_launch_attention_backward, NULL},
    [MCP_FN_ATTENTION_STEP_FORWARD] = {mcp_cuda_launch_attention, NULL},
    [MCP_FN_ATTENTION_STEP_BACKWARD] = {mcp_cuda_launch_attention_backward, NULL},
    [MCP_FN_MERGE] = {mcp_cuda_launch_merge, NULL},
    [MCP_FN_NORM_FORWARD] = {mcp_cuda_launch_norm, NULL},
    [MCP_FN_NORM_BACKWARD] = {mcp_cuda_launch_norm_backward, NULL},
    [MCP_FN_ROTARY_FORWARD] = {mcp_cuda_launch_rotary, NULL},
    [MCP_FN_ROTARY_BACKWARD] = {mcp_cuda_launch_rotary_backward, NULL},
    [MCP_FN_BIAS_FORWARD] = {mcp_cuda_launch_bias, NULL},
    [MCP_FN_BIAS_BACKWARD] = {mcp_cuda_launch_bias_backward, NULL},
    [MCP_FN_PACK_HEADS] = {mcp_cuda_launch_pack_heads, NULL},
    [MCP_FN_UNPACK_HEADS] = {mcp_cuda_launch_unpack_heads, NULL},
    [MCP_FN_RESIDUAL_FORWARD] = {mcp_cuda_launch_residual, NULL},
    [MCP_FN_RESIDUAL_BACKWARD] = {mcp_cuda_launch_residual_backward, NULL},
    [MCP_FN_GELU_FORWARD] = {mcp_cuda_launch_activation, NULL},
    [MCP_FN_GELU_BACKWARD] = {mcp_cuda_launch_activation_backward, NULL},
    [MCP_FN_SWIGLU_FORWARD] = {mcp_cuda_launch_activation, NULL},
    [MCP_FN_SWIGLU_BACKWARD] = {mcp_cuda_launch_activation_backward, NULL},
    [MCP_FN_ADD] = {mcp_cuda_launch_add, NULL},
    [MCP_FN_COPY] = {mcp_cuda_launch_copy, NULL},
    [MCP_FN_QUANTISE] = {mcp_cuda_launch_quantise, NULL},
    [MCP_FN_DEQUANTISE] = {mcp_cuda_launch_dequantise, NULL},
    [MCP_FN_ROUTER_TOP_K] = {mcp_cuda_launch_router, NULL},
    [MCP_FN_ROUTER_TOP_K_BACKWARD] = {mcp_cuda_launch_router_backward, NULL},
    [MCP_FN_EXPERT_COUNTS] = {mcp_cuda_launch_expert_counts, NULL},
    [MCP_FN_PERMUTE] = {mcp_cuda_launch_permute, NULL},
    [MCP_FN_PERMUTE_BACKWARD] = {mcp_cuda_launch_permute_backward, NULL},
    [MCP_FN_UNPERMUTE] = {mcp_cuda_launch_unpermute, NULL},
    [MCP_FN_UNPERMUTE_BACKWARD] = {mcp_cuda_launch_unpermute_backward, NULL},
    [MCP_FN_EMBEDDING_FORWARD] = {mcp_cuda_launch_embedding, NULL},
    [MCP_FN_EMBEDDING_MIXED_FORWARD] = {mcp_cuda_launch_embedding, NULL},
    [MCP_FN_EMBEDDING_BACKWARD] = {mcp_cuda_launch_embedding_backward, NULL},
    [MCP_FN_LOSS_MAX] = {mcp_cuda_launch_loss_max, NULL},
    [MCP_FN_LOSS_SUMS] = {mcp_cuda_launch_loss_sums, NULL},
    [MCP_FN_LOSS_FORWARD] = {mcp_cuda_launch_loss_forward, NULL},
    [MCP_FN_LOSS_BACKWARD] = {mcp_cuda_launch_loss_backward, NULL},
    [MCP_FN_ZERO] = {mcp_cuda_launch_zero, NULL},
    [MCP_FN_SUM_SQUARES] = {mcp_cuda_launch_sum_squares, NULL},
    [MCP_FN_CLEAR_SCALARS] = {mcp_cuda_launch_clear_scalars, NULL},
    [MCP_FN_ADAM] = {mcp_cuda_launch_adam, NULL},
    [MCP_FN_ADAM_FROZEN] = {mcp_cuda_launch_adam_frozen, NULL},
    [MCP_FN_MOMENTUM] = {mcp_cuda_launch_momentum, NULL},
    [MCP_FN_ADD_ERROR] = {mcp_cuda_launch_add_error, NULL},
    [MCP_FN_COMPRESS_SIGNS] = {mcp_cuda_launch_compress_signs, NULL},
    [MCP_FN_AVERAGE_SIGNS] = {mcp_cuda_launch_average_signs, NULL},
    [MCP_FN_DECOMPRESS_SIGNS] = {mcp_cuda_launch_decompress_signs, NULL},
};

struct mcp_cuda_array mcp_cuda_array_of(struct mcp_view view)
{
    enum mcp_cuda_format format = view.dtype == MCP_BF16  ? MCP_CUDA_BF16
                                  : view.dtype == MCP_F16 ? MCP_CUDA_F16
                                                          : MCP_CUDA_F32;
    return (struct mcp_cuda_array){view.data, format};
}

struct mcp_cuda_array mcp_cuda_read(const struct mcp_cuda_call *call, int index)
{
    return mcp_cuda_array_of(mcp_read_view(call->launch, index));
}

struct mcp_cuda_array mcp_cuda_written(const struct mcp_cuda_call *call, int index)
{
    return mcp_cuda_array_of(mcp_write_view(call->launch, index));
}

void mcp_cuda_add_sums(const struct mcp_cuda_call *call, const struct mcp_cuda_columns *op)
{
    if (op->rows > 0)
        mcp_cuda_add_column_sums(op, call->queue);
}

static struct mcp_cuda_tokens tokens_of(const struct mcp_launch *launch, int first, int ranks)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    return (struct mcp_cuda_tokens){.first_rank = first,
                                    .num_ranks = ranks,
                                    .all_ranks = launch->rank->program->plan.context_parallel,
                                    .zigzag = facts->zigzag != 0,
                                    .sequence_local = facts->sequence_local,
                                    .rank_rows = facts->microbatch_size * facts->sequence_local};
}

struct mcp_cuda_tokens mcp_cuda_tokens_of(const struct mcp_launch *launch, int context)
{
    return tokens_of(launch, context, 1);
}

struct mcp_cuda_tokens mcp_cuda_all_tokens(const struct mcp_launch *launch)
{
    return tokens_of(launch, 0, launch->rank->program->plan.context_parallel);
}
