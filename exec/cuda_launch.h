/* exec/cuda_launch.h: what a GPU computes for each function of a program: from a launch to the
 * launchers of exec/cuda_kernels.h and products of exec/cuda_blas.h.
 *
 * Nothing runs here: kernels and products are queued. What a kernel could not be queued for
 * shows in mcp_cuda_check_launch(). */
#ifndef MCP_EXEC_CUDA_LAUNCH_H
#define MCP_EXEC_CUDA_LAUNCH_H

#include "exec/backend.h"
#include "exec/cuda_blas.h"
#include "exec/cuda_kernels.h"
#include "exec/views.h"

/* A launch on its way. */
struct mcp_cuda_call {
    const struct mcp_launch *launch;
    const struct mcp_cuda_queue *queue;
    struct mcp_cuda_blas *blas;
    const int32_t *sizes; /* rows by expert, on the host; NULL: the op is no expert's */
};

struct mcp_cuda_kernel {
    void (*run)(const struct mcp_cuda_call *call); /* kernels; or products: */
    enum mcp_status (*multiply)(const struct mcp_cuda_call *call, struct mcp_error *err);
    bool takes_casts; /* products: of 8 bits too */
};
/* By enum mcp_function; both NULL: none, a transfer or the backend's own host function. */
extern const struct mcp_cuda_kernel mcp_cuda_kernels[MCP_NUM_FUNCTIONS];

/* --- what the files of launches share --- */

struct mcp_cuda_array mcp_cuda_array_of(struct mcp_view view);
struct mcp_cuda_array mcp_cuda_read(const struct mcp_cuda_call *call, int index);
struct mcp_cuda_array mcp_cuda_written(const struct mcp_cuda_call *call, int index);
/* gradient[columns] += column sums of from[rows][stride]. */
void mcp_cuda_add_sums(const struct mcp_cuda_call *call, const struct mcp_cuda_columns *op);
/* Tokens of one context rank; and of all of them, one rank's after the other's. */
struct mcp_cuda_tokens mcp_cuda_tokens_of(const struct mcp_launch *launch, int context);
struct mcp_cuda_tokens mcp_cuda_all_tokens(const struct mcp_launch *launch);

/* --- launches, by file --- */

/* cuda_launch_products.c */
enum mcp_status mcp_cuda_matmul_nt(const struct mcp_cuda_call *call, struct mcp_error *err);
enum mcp_status mcp_cuda_matmul_nt_bias(const struct mcp_cuda_call *call, struct mcp_error *err);
enum mcp_status mcp_cuda_matmul_nt_gelu(const struct mcp_cuda_call *call, struct mcp_error *err);
enum mcp_status mcp_cuda_matmul_nn(const struct mcp_cuda_call *call, struct mcp_error *err);
enum mcp_status mcp_cuda_matmul_tn(const struct mcp_cuda_call *call, struct mcp_error *err);
enum mcp_status mcp_cuda_grouped_nt(const struct mcp_cuda_call *call, struct mcp_error *err);
enum mcp_status mcp_cuda_grouped_nn(const struct mcp_cuda_call *call, struct mcp_error *err);
enum mcp_status mcp_cuda_grouped_tn(const struct mcp_cuda_call *call, struct mcp_error *err);
/* cuda_launch_map.c */
void mcp_cuda_launch_norm(const struct mcp_cuda_call *call);
void mcp_cuda_launch_norm_backward(const struct mcp_cuda_call *call);
void mcp_cuda_launch_residual(const struct mcp_cuda_call *call);
void mcp_cuda_launch_residual_backward(const struct mcp_cuda_call *call);
void mcp_cuda_launch_add(const struct mcp_cuda_call *call);
void mcp_cuda_launch_copy(const struct mcp_cuda_call *call);
void mcp_cuda_launch_activation(const struct mcp_cuda_call *call);
void mcp_cuda_launch_activation_backward(const struct mcp_cuda_call *call);
void mcp_cuda_launch_quantise(const struct mcp_cuda_call *call);
void mcp_cuda_launch_dequantise(const struct mcp_cuda_call *call);
void mcp_cuda_launch_cast(const struct mcp_cuda_call *call);
/* cuda_launch_heads.c */
void mcp_cuda_launch_rotary(const struct mcp_cuda_call *call);
void mcp_cuda_launch_rotary_backward(const struct mcp_cuda_call *call);
void mcp_cuda_launch_bias(const struct mcp_cuda_call *call);
void mcp_cuda_launch_bias_backward(const struct mcp_cuda_call *call);
void mcp_cuda_launch_pack_heads(const struct mcp_cuda_call *call);
void mcp_cuda_launch_unpack_heads(const struct mcp_cuda_call *call);
void mcp_cuda_launch_attention(const struct mcp_cuda_call *call);
void mcp_cuda_launch_attention_backward(const struct mcp_cuda_call *call);
void mcp_cuda_launch_merge(const struct mcp_cuda_call *call);
/* cuda_launch_ends.c */
void mcp_cuda_launch_embedding(const struct mcp_cuda_call *call);
void mcp_cuda_launch_embedding_backward(const struct mcp_cuda_call *call);
void mcp_cuda_launch_loss_max(const struct mcp_cuda_call *call);
void mcp_cuda_launch_loss_sums(const struct mcp_cuda_call *call);
void mcp_cuda_launch_loss_forward(const struct mcp_cuda_call *call);
void mcp_cuda_launch_loss_backward(const struct mcp_cuda_call *call);
void mcp_cuda_launch_router(const struct mcp_cuda_call *call);
void mcp_cuda_launch_router_backward(const struct mcp_cuda_call *call);
void mcp_cuda_launch_expert_counts(const struct mcp_cuda_call *call);
void mcp_cuda_launch_permute(const struct mcp_cuda_call *call);
void mcp_cuda_launch_permute_backward(const struct mcp_cuda_call *call);
void mcp_cuda_launch_unpermute(const struct mcp_cuda_call *call);
void mcp_cuda_launch_unpermute_backward(const struct mcp_cuda_call *call);
/* cuda_launch_update.c */
void mcp_cuda_launch_zero(const struct mcp_cuda_call *call);
void mcp_cuda_launch_sum_squares(const struct mcp_cuda_call *call);
void mcp_cuda_launch_clear_scalars(const struct mcp_cuda_call *call);
void mcp_cuda_launch_adam(const struct mcp_cuda_call *call);
void mcp_cuda_launch_adam_frozen(const struct mcp_cuda_call *call);
void mcp_cuda_launch_momentum(const struct mcp_cuda_call *call);
void mcp_cuda_launch_add_error(const struct mcp_cuda_call *call);
void mcp_cuda_launch_compress_signs(const struct mcp_cuda_call *call);
void mcp_cuda_launch_average_signs(const struct mcp_cuda_call *call);
void mcp_cuda_launch_decompress_signs(const struct mcp_cuda_call *call);

#endif
