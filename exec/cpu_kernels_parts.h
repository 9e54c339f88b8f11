/* exec/cpu_kernels_parts.h: what the CPU's kernels share: values of either format, and loops over
 * rows. Private to exec/cpu_kernels*.c.
 *
 * Arithmetic is fp32 whatever the storage: bf16 and fp16 values are widened when read and
 * rounded when written. Kernels are written once, over chunks of a row: get() hands out fp32
 * memory itself, or a widened copy in the caller's room. */
#ifndef MCP_EXEC_CPU_KERNELS_PARTS_H
#define MCP_EXEC_CPU_KERNELS_PARTS_H

#include "exec/cpu_kernels.h"
#include "exec/flats.h"
#include "exec/half.h"
#include "exec/shapes.h"
#include "exec/views.h"

#include <stdbool.h>

/* Elements of a chunk; smaller ops than MCP_SERIAL stay on one thread. */
enum { MCP_CHUNK = 512, MCP_SERIAL = 16384 };

static inline int mcp_chunk(int64_t left)
{
    return left < MCP_CHUNK ? (int)left : MCP_CHUNK;
}

/* `count` elements from `at` on, as fp32: in place, or widened into room[count]. */
const float *mcp_get(struct mcp_view view, int64_t at, int count, float *room);
/* Where to write `count` elements: in place, or in room[count]; put() ends the writing. */
static inline float *mcp_room(struct mcp_view view, int64_t at, float *room)
{
    return view.dtype == MCP_F32 ? (float *)(void *)view.data + at : room;
}
void mcp_put(struct mcp_view view, int64_t at, int count, const float *values);
/* Adds values[count] to what is there. */
void mcp_add_to(struct mcp_view view, int64_t at, int count, const float *values);

/* gradient[columns] += column sums of x[rows][stride]. */
void mcp_add_column_sums(struct mcp_view x, int64_t rows, int64_t columns, int64_t stride,
                         struct mcp_view gradient);

/* --- kernels, by file --- */

/* cpu_kernels_matmul.c */
void mcp_cpu_matmul_nt(const struct mcp_launch *launch);
void mcp_cpu_matmul_nn(const struct mcp_launch *launch);
void mcp_cpu_matmul_tn(const struct mcp_launch *launch);
void mcp_cpu_grouped_nt(const struct mcp_launch *launch);
void mcp_cpu_grouped_nn(const struct mcp_launch *launch);
void mcp_cpu_grouped_tn(const struct mcp_launch *launch);
/* cpu_kernels_attention.c, cpu_kernels_attention_back.c */
void mcp_cpu_attention_forward(const struct mcp_launch *launch);
void mcp_cpu_attention_backward(const struct mcp_launch *launch);
void mcp_cpu_attention_merge(const struct mcp_launch *launch);
/* cpu_kernels_layout.c */
void mcp_cpu_rotary_forward(const struct mcp_launch *launch);
void mcp_cpu_rotary_backward(const struct mcp_launch *launch);
void mcp_cpu_bias_forward(const struct mcp_launch *launch);
void mcp_cpu_bias_backward(const struct mcp_launch *launch);
void mcp_cpu_pack_heads(const struct mcp_launch *launch);
void mcp_cpu_unpack_heads(const struct mcp_launch *launch);
/* cpu_kernels_norm.c */
void mcp_cpu_norm_forward(const struct mcp_launch *launch);
void mcp_cpu_norm_backward(const struct mcp_launch *launch);
/* cpu_kernels_map.c */
void mcp_cpu_residual_forward(const struct mcp_launch *launch);
void mcp_cpu_residual_backward(const struct mcp_launch *launch);
void mcp_cpu_add(const struct mcp_launch *launch);
void mcp_cpu_copy(const struct mcp_launch *launch);
void mcp_cpu_activation_forward(const struct mcp_launch *launch);
void mcp_cpu_activation_backward(const struct mcp_launch *launch);
void mcp_cpu_matmul_nt_bias(const struct mcp_launch *launch);
void mcp_cpu_matmul_nt_gelu(const struct mcp_launch *launch);
/* cpu_kernels_experts.c */
void mcp_cpu_router_top_k(const struct mcp_launch *launch);
void mcp_cpu_router_top_k_backward(const struct mcp_launch *launch);
void mcp_cpu_expert_counts(const struct mcp_launch *launch);
void mcp_cpu_permute(const struct mcp_launch *launch);
void mcp_cpu_permute_backward(const struct mcp_launch *launch);
void mcp_cpu_unpermute(const struct mcp_launch *launch);
void mcp_cpu_unpermute_backward(const struct mcp_launch *launch);
/* cpu_kernels_ends.c */
void mcp_cpu_load_microbatch(const struct mcp_launch *launch);
void mcp_cpu_embedding_forward(const struct mcp_launch *launch);
void mcp_cpu_embedding_backward(const struct mcp_launch *launch);
void mcp_cpu_loss_max(const struct mcp_launch *launch);
void mcp_cpu_loss_sums(const struct mcp_launch *launch);
void mcp_cpu_loss_forward(const struct mcp_launch *launch);
void mcp_cpu_loss_backward(const struct mcp_launch *launch);
/* cpu_kernels_update.c */
void mcp_cpu_zero(const struct mcp_launch *launch);
void mcp_cpu_sum_squares(const struct mcp_launch *launch);
void mcp_cpu_clear_scalars(const struct mcp_launch *launch);
void mcp_cpu_step_scalars(const struct mcp_launch *launch);
void mcp_cpu_adam(const struct mcp_launch *launch);
void mcp_cpu_momentum(const struct mcp_launch *launch);
void mcp_cpu_adam_frozen(const struct mcp_launch *launch);
/* cpu_kernels_quantise.c */
void mcp_cpu_quantise(const struct mcp_launch *launch);
void mcp_cpu_dequantise(const struct mcp_launch *launch);
/* cpu_kernels_cast.c */
void mcp_cpu_cast_rows(const struct mcp_launch *launch);
void mcp_cpu_cast_columns(const struct mcp_launch *launch);
void mcp_cpu_cast_both(const struct mcp_launch *launch);
/* cpu_kernels_one_bit.c */
void mcp_cpu_add_error(const struct mcp_launch *launch);
void mcp_cpu_compress_signs(const struct mcp_launch *launch);
void mcp_cpu_average_signs(const struct mcp_launch *launch);
void mcp_cpu_decompress_signs(const struct mcp_launch *launch);

#endif
