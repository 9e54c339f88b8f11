/* exec/cuda_launch_products.c: products of activations with weights, of experts' rows with
 * theirs, and their gradients. */
#include "exec/cuda_launch.h"

#include "step/casts.h"

static struct mcp_cuda_matrix matrix_of(struct mcp_view view, bool transposed)
{
    return mcp_cuda_matrix_of(view.data, view.dtype, transposed);
}

/* Of one local expert, or of a dense layer (expert 0): its weights from the first row that
 * the op uses. */
static struct mcp_view weights_of(const struct mcp_launch *launch, int expert, int64_t columns)
{
    return mcp_view_at(mcp_weight_view(launch, 1, expert), launch->op->dims[4] * columns);
}

static struct mcp_view gradients_of(const struct mcp_launch *launch, int expert, int64_t columns)
{
    return mcp_view_at(mcp_gradient_view(launch, 0, expert), launch->op->dims[4] * columns);
}

/* Rows of an expert, or all of a dense layer. */
struct rows {
    int expert;
    int64_t first, count;
};

/* dims M, N, K: y[M, N] = x[M, K] w[N, K]^T */
static struct mcp_cuda_product forward_of(const struct mcp_launch *launch, struct rows rows)
{
    const int64_t *d = launch->op->dims;
    struct mcp_view x = mcp_view_at(mcp_read_view(launch, 0), rows.first * d[2]);
    struct mcp_view y = mcp_view_at(mcp_write_view(launch, 0), rows.first * d[1]);
    return (struct mcp_cuda_product){.m = rows.count,
                                     .n = d[1],
                                     .k = d[2],
                                     .a = matrix_of(x, false),
                                     .b = matrix_of(weights_of(launch, rows.expert, d[2]), true),
                                     .c = matrix_of(y, false)};
}

static enum mcp_status forward(const struct mcp_cuda_call *call, struct rows rows,
                               struct mcp_error *err)
{
    const struct mcp_cuda_product product = forward_of(call->launch, rows);
    return mcp_cuda_blas_multiply(call->blas, &product, call->queue->stream, err);
}

/* dims M, N, K: dx[M, N] = dy[M, K] w[K, N] */
static enum mcp_status input_gradient(const struct mcp_cuda_call *call, struct rows rows,
                                      struct mcp_error *err)
{
    const struct mcp_launch *launch = call->launch;
    const int64_t *d = launch->op->dims;
    struct mcp_view dy = mcp_view_at(mcp_read_view(launch, 0), rows.first * d[2]);
    struct mcp_view dx = mcp_view_at(mcp_write_view(launch, 0), rows.first * d[1]);
    const struct mcp_cuda_product product = {
        .m = rows.count,
        .n = d[1],
        .k = d[2],
        .a = matrix_of(dy, false),
        .b = matrix_of(weights_of(launch, rows.expert, d[1]), false),
        .c = matrix_of(dx, false)};
    return mcp_cuda_blas_multiply(call->blas, &product, call->queue->stream, err);
}

/* dims M, N, K: dw[M, N] += dy[K, M]^T x[K, N] */
static enum mcp_status weight_gradient(const struct mcp_cuda_call *call, struct rows rows,
                                       struct mcp_error *err)
{
    const struct mcp_launch *launch = call->launch;
    const int64_t *d = launch->op->dims;
    struct mcp_view dy = mcp_view_at(mcp_read_view(launch, 0), rows.first * d[0]);
    struct mcp_view x = mcp_view_at(mcp_read_view(launch, 1), rows.first * d[1]);
    const struct mcp_cuda_product product = {
        .m = d[0],
        .n = d[1],
        .k = rows.count,
        .a = matrix_of(dy, true),
        .b = matrix_of(x, false),
        .c = matrix_of(gradients_of(launch, rows.expert, d[1]), false),
        .accumulate = true};
    return mcp_cuda_blas_multiply(call->blas, &product, call->queue->stream, err);
}

/* --- operands in 8 bits: step/casts.h --- */

static struct mcp_cuda_matrix cast_of(const struct mcp_launch *launch, int index)
{
    const struct mcp_cast_view view = mcp_cast_view(launch, index);
    return (struct mcp_cuda_matrix){.data = view.bytes,
                                    .dtype = MCP_F8,
                                    .transposed = index == 1,
                                    .stride = view.stride,
                                    .scale = view.scale,
                                    .is_e5m2 = view.is_e5m2};
}

/* c[M, N] = a[M, K] b[N, K]^T, whichever of the three products it is. */
static enum mcp_status multiply_casts(const struct mcp_cuda_call *call, struct mcp_view c,
                                      bool accumulate, struct mcp_error *err)
{
    const int64_t *d = call->launch->op->dims;
    const struct mcp_cuda_product product = {.m = d[0],
                                             .n = d[1],
                                             .k = d[2],
                                             .a = cast_of(call->launch, 0),
                                             .b = cast_of(call->launch, 1),
                                             .c = matrix_of(c, false),
                                             .accumulate = accumulate};
    return mcp_cuda_blas_multiply(call->blas, &product, call->queue->stream, err);
}

/* --- dense layers --- */

enum mcp_status mcp_cuda_matmul_nt(const struct mcp_cuda_call *call, struct mcp_error *err)
{
    if (mcp_op_reads_casts(call->launch->op))
        return multiply_casts(call, mcp_write_view(call->launch, 0), false, err);
    return forward(call, (struct rows){0, 0, call->launch->op->dims[0]}, err);
}

/* reads x, weights and bias; writes y */
enum mcp_status mcp_cuda_matmul_nt_bias(const struct mcp_cuda_call *call, struct mcp_error *err)
{
    const struct mcp_launch *launch = call->launch;
    struct mcp_cuda_product product = forward_of(launch, (struct rows){0, 0, launch->op->dims[0]});
    product.bias = matrix_of(mcp_epilogue_bias(launch), false);
    return mcp_cuda_blas_multiply(call->blas, &product, call->queue->stream, err);
}

/* The same; writes y, GELU of y */
enum mcp_status mcp_cuda_matmul_nt_gelu(const struct mcp_cuda_call *call, struct mcp_error *err)
{
    const struct mcp_launch *launch = call->launch;
    struct mcp_cuda_product product = forward_of(launch, (struct rows){0, 0, launch->op->dims[0]});
    product.bias = matrix_of(mcp_epilogue_bias(launch), false);
    product.before_gelu = product.c;
    product.c = matrix_of(mcp_write_view(launch, 1), false);
    return mcp_cuda_blas_multiply(call->blas, &product, call->queue->stream, err);
}

enum mcp_status mcp_cuda_matmul_nn(const struct mcp_cuda_call *call, struct mcp_error *err)
{
    if (mcp_op_reads_casts(call->launch->op))
        return multiply_casts(call, mcp_write_view(call->launch, 0), false, err);
    return input_gradient(call, (struct rows){0, 0, call->launch->op->dims[0]}, err);
}

enum mcp_status mcp_cuda_matmul_tn(const struct mcp_cuda_call *call, struct mcp_error *err)
{
    if (mcp_op_reads_casts(call->launch->op))
        return multiply_casts(call, gradients_of(call->launch, 0, call->launch->op->dims[1]), true,
                              err);
    return weight_gradient(call, (struct rows){0, 0, call->launch->op->dims[2]}, err);
}

/* --- experts: rows lie by expert --- */

static enum mcp_status each_expert(const struct mcp_cuda_call *call,
                                   enum mcp_status (*product)(const struct mcp_cuda_call *,
                                                              struct rows, struct mcp_error *),
                                   struct mcp_error *err)
{
    struct rows rows = {0, 0, 0};
    if (call->sizes == NULL)
        return mcp_fail(err, MCP_RUN_FAILURE, "nobody has counted tokens for experts before it");
    for (; rows.expert < (int)call->launch->op->dims[3]; rows.expert++) {
        rows.count = mcp_expert_rows(call->launch, call->sizes, rows.expert);
        MCP_TRY(product(call, rows, err));
        rows.first += rows.count;
    }
    return MCP_OK;
}

enum mcp_status mcp_cuda_grouped_nt(const struct mcp_cuda_call *call, struct mcp_error *err)
{
    return each_expert(call, forward, err);
}

enum mcp_status mcp_cuda_grouped_nn(const struct mcp_cuda_call *call, struct mcp_error *err)
{
    return each_expert(call, input_gradient, err);
}

enum mcp_status mcp_cuda_grouped_tn(const struct mcp_cuda_call *call, struct mcp_error *err)
{
    return each_expert(call, weight_gradient, err);
}
