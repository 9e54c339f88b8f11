/* exec/cpu_kernels_parts.h: what the CPU's kernels share: values of either format, and loops over
 * rows. Private to exec/cpu_kernels*.c.
 *
 * Arithmetic is fp32 whatever the storage: a bf16 value is widened when read and rounded
 * when written. Kernels are written once, over chunks of a row: get() hands out fp32 memory
 * itself, or a widened copy in the caller's room. */
#ifndef MCP_EXEC_CPU_KERNELS_PARTS_H
#define MCP_EXEC_CPU_KERNELS_PARTS_H

#include "exec/bf16.h"
#include "exec/cpu_kernels.h"
#include "step/weights.h"

#include <stdbool.h>

/* Elements of a chunk; smaller ops than MCP_SERIAL stay on one thread. */
enum { MCP_CHUNK = 512, MCP_SERIAL = 16384 };

struct mcp_view {
    char *data;
    enum mcp_dtype dtype; /* MCP_F32 or MCP_BF16 */
    int64_t elements;     /* of the buffer, from data on */
};

/* Operands of a launch, with the dtype that their buffer has. */
struct mcp_view mcp_read_view(const struct mcp_launch *launch, int index);
struct mcp_view mcp_write_view(const struct mcp_launch *launch, int index);
/* The op's weight part in reads[index], or its gradient in writes[index]; of local expert
 * `copy`. Without a part: the buffer from its start. */
struct mcp_view mcp_weight_view(const struct mcp_launch *launch, int index, int copy);
struct mcp_view mcp_gradient_view(const struct mcp_launch *launch, int index, int copy);
const struct mcp_weight *mcp_launch_weight(const struct mcp_launch *launch); /* NULL: none */
struct mcp_view mcp_view_at(struct mcp_view view, int64_t element);

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

/* Rows by expert, as all_to_all_v left them; NULL: the op is no expert's. */
const int32_t *mcp_launch_sizes(const struct mcp_launch *launch);
/* Rows that arrived for local expert `expert`, and for all of them. */
int64_t mcp_expert_rows(const struct mcp_launch *launch, const int32_t *sizes, int64_t expert);
int64_t mcp_all_expert_rows(const struct mcp_launch *launch, const int32_t *sizes);

/* Where a rank's tokens lie in a sequence: runs of consecutive positions. Rows are those of
 * the first sequence of a microbatch; those of the others follow sequence_local apart. */
struct mcp_run {
    int64_t row, position, count;
};
enum { MCP_MAX_RUNS = 2 * MCP_MAX_RING };
/* Runs of the tokens of one context rank whose rows begin at `row`; returns how many. */
int mcp_runs_of(const struct mcp_launch *launch, int context, int64_t row, struct mcp_run *runs);
/* Position of local token `row` of [microbatch_size][sequence_local]. */
int64_t mcp_position_of(const struct mcp_launch *launch, int64_t row);

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
/* cpu_kernels_one_bit.c */
void mcp_cpu_add_error(const struct mcp_launch *launch);
void mcp_cpu_compress_signs(const struct mcp_launch *launch);
void mcp_cpu_average_signs(const struct mcp_launch *launch);
void mcp_cpu_decompress_signs(const struct mcp_launch *launch);

#endif
