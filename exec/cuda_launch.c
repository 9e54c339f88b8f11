/* exec/cuda_launch.c: the table of exec/cuda_launch.h. */
#include "exec/cuda_launch.h"

const struct mcp_cuda_kernel mcp_cuda_kernels[MCP_NUM_FUNCTIONS] = {
    [MCP_FN_MATMUL_NT] = {.multiply = mcp_cuda_matmul_nt, .takes_casts = true},
    [MCP_FN_MATMUL_NT_BIAS] = {.multiply = mcp_cuda_matmul_nt_bias},
    [MCP_FN_MATMUL_NT_GELU] = {.multiply = mcp_cuda_matmul_nt_gelu},
    [MCP_FN_MATMUL_NN] = {.multiply = mcp_cuda_matmul_nn, .takes_casts = true},
    [MCP_FN_MATMUL_TN_ACCUMULATE] = {.multiply = mcp_cuda_matmul_tn, .takes_casts = true},
    [MCP_FN_GROUPED_NT] = {.multiply = mcp_cuda_grouped_nt},
    [MCP_FN_GROUPED_NN] = {.multiply = mcp_cuda_grouped_nn},
    [MCP_FN_GROUPED_TN_ACCUMULATE] = {.multiply = mcp_cuda_grouped_tn},
    [MCP_FN_ATTENTION_FORWARD] = {.run = mcp_cuda_launch_attention},
    [MCP_FN_ATTENTION_BACKWARD] = {.run = mcp_cuda_launch_attention_backward},
    [MCP_FN_ATTENTION_STEP_FORWARD] = {.run = mcp_cuda_launch_attention},
    [MCP_FN_ATTENTION_STEP_BACKWARD] = {.run = mcp_cuda_launch_attention_backward},
    [MCP_FN_MERGE] = {.run = mcp_cuda_launch_merge},
    [MCP_FN_NORM_FORWARD] = {.run = mcp_cuda_launch_norm},
    [MCP_FN_NORM_BACKWARD] = {.run = mcp_cuda_launch_norm_backward},
    [MCP_FN_ROTARY_FORWARD] = {.run = mcp_cuda_launch_rotary},
    [MCP_FN_ROTARY_BACKWARD] = {.run = mcp_cuda_launch_rotary_backward},
    [MCP_FN_BIAS_FORWARD] = {.run = mcp_cuda_launch_bias},
    [MCP_FN_BIAS_BACKWARD] = {.run = mcp_cuda_launch_bias_backward},
    [MCP_FN_PACK_HEADS] = {.run = mcp_cuda_launch_pack_heads},
    [MCP_FN_UNPACK_HEADS] = {.run = mcp_cuda_launch_unpack_heads},
    [MCP_FN_RESIDUAL_FORWARD] = {.run = mcp_cuda_launch_residual},
    [MCP_FN_RESIDUAL_BACKWARD] = {.run = mcp_cuda_launch_residual_backward},
    [MCP_FN_GELU_FORWARD] = {.run = mcp_cuda_launch_activation},
    [MCP_FN_GELU_BACKWARD] = {.run = mcp_cuda_launch_activation_backward},
    [MCP_FN_SWIGLU_FORWARD] = {.run = mcp_cuda_launch_activation},
    [MCP_FN_SWIGLU_BACKWARD] = {.run = mcp_cuda_launch_activation_backward},
    [MCP_FN_ADD] = {.run = mcp_cuda_launch_add},
    [MCP_FN_COPY] = {.run = mcp_cuda_launch_copy},
    [MCP_FN_CAST_ROWS] = {.run = mcp_cuda_launch_cast},
    [MCP_FN_CAST_COLUMNS] = {.run = mcp_cuda_launch_cast},
    [MCP_FN_CAST_BOTH] = {.run = mcp_cuda_launch_cast},
    [MCP_FN_QUANTISE] = {.run = mcp_cuda_launch_quantise},
    [MCP_FN_DEQUANTISE] = {.run = mcp_cuda_launch_dequantise},
    [MCP_FN_ROUTER_TOP_K] = {.run = mcp_cuda_launch_router},
    [MCP_FN_ROUTER_TOP_K_BACKWARD] = {.run = mcp_cuda_launch_router_backward},
    [MCP_FN_EXPERT_COUNTS] = {.run = mcp_cuda_launch_expert_counts},
    [MCP_FN_PERMUTE] = {.run = mcp_cuda_launch_permute},
    [MCP_FN_PERMUTE_BACKWARD] = {.run = mcp_cuda_launch_permute_backward},
    [MCP_FN_UNPERMUTE] = {.run = mcp_cuda_launch_unpermute},
    [MCP_FN_UNPERMUTE_BACKWARD] = {.run = mcp_cuda_launch_unpermute_backward},
    [MCP_FN_EMBEDDING_FORWARD] = {.run = mcp_cuda_launch_embedding},
    [MCP_FN_EMBEDDING_MIXED_FORWARD] = {.run = mcp_cuda_launch_embedding},
    [MCP_FN_EMBEDDING_BACKWARD] = {.run = mcp_cuda_launch_embedding_backward},
    [MCP_FN_LOSS_MAX] = {.run = mcp_cuda_launch_loss_max},
    [MCP_FN_LOSS_SUMS] = {.run = mcp_cuda_launch_loss_sums},
    [MCP_FN_LOSS_FORWARD] = {.run = mcp_cuda_launch_loss_forward},
    [MCP_FN_LOSS_BACKWARD] = {.run = mcp_cuda_launch_loss_backward},
    [MCP_FN_ZERO] = {.run = mcp_cuda_launch_zero},
    [MCP_FN_SUM_SQUARES] = {.run = mcp_cuda_launch_sum_squares},
    [MCP_FN_CLEAR_SCALARS] = {.run = mcp_cuda_launch_clear_scalars},
    [MCP_FN_ADAM] = {.run = mcp_cuda_launch_adam},
    [MCP_FN_ADAM_FROZEN] = {.run = mcp_cuda_launch_adam_frozen},
    [MCP_FN_MOMENTUM] = {.run = mcp_cuda_launch_momentum},
    [MCP_FN_ADD_ERROR] = {.run = mcp_cuda_launch_add_error},
    [MCP_FN_COMPRESS_SIGNS] = {.run = mcp_cuda_launch_compress_signs},
    [MCP_FN_AVERAGE_SIGNS] = {.run = mcp_cuda_launch_average_signs},
    [MCP_FN_DECOMPRESS_SIGNS] = {.run = mcp_cuda_launch_decompress_signs},
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
