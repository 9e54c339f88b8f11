/* exec/cuda_launch_map.c: norms, the residual stream, sums, copies, activations. */
#include "exec/cuda_launch.h"
#include "exec/shapes.h"
#include "step/quantised.h"

/* --- norms --- */

/* What all segments of an op share; `weights` is the operand that has them. */
static struct mcp_cuda_norm norm_of(const struct mcp_launch *launch,
                                    const struct mcp_norm_shape *shape)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    return (struct mcp_cuda_norm){.rows = shape->rows,
                                  .stride = shape->stride,
                                  .epsilon = (float)facts->norm_epsilon,
                                  .centers = facts->norm_centers != 0};
}

static void set_band(const struct mcp_norm_band *band, struct mcp_cuda_norm *op)
{
    op->segments = band->segments;
    op->columns = band->columns;
}

static struct mcp_cuda_array array_at(struct mcp_view view, int64_t element)
{
    return mcp_cuda_array_of(mcp_view_at(view, element));
}

/* What no norm touches goes on as it is. */
static void copy_rest(const struct mcp_cuda_call *call, const struct mcp_norm_shape *shape,
                      struct mcp_view from, struct mcp_view to)
{
    const struct mcp_cuda_columns op = {.from = array_at(from, shape->columns),
                                        .to = array_at(to, shape->columns),
                                        .rows = shape->rows,
                                        .columns = shape->stride - shape->columns,
                                        .from_stride = shape->stride,
                                        .to_stride = shape->stride};
    if (op.columns > 0 && from.data != to.data)
        mcp_cuda_copy_columns(&op, call->queue);
}

/* reads x, weights; writes y */
void mcp_cuda_launch_norm(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    struct mcp_view x = mcp_read_view(launch, 0), y = mcp_write_view(launch, 0);
    const struct mcp_norm_shape shape = mcp_norm_shape_of(launch, x);
    struct mcp_cuda_norm op = norm_of(launch, &shape);
    for (int i = 0; i < shape.num_bands; i++) {
        const struct mcp_norm_band *band = &shape.bands[i];
        set_band(band, &op);
        op.x = array_at(x, band->first);
        op.y = array_at(y, band->first);
        if (launch->op->weight != MCP_NO_WEIGHT)
            op.weight = array_at(mcp_weight_view(launch, 1, 0), band->weight_at);
        if (shape.has_bias)
            op.bias = array_at(mcp_weight_view(launch, 1, 0), band->bias_at);
        mcp_cuda_norm(&op, call->queue);
    }
    copy_rest(call, &shape, x, y);
}

static void set_back_weights(const struct mcp_launch *launch, const struct mcp_norm_shape *shape,
                             const struct mcp_norm_band *band, struct mcp_cuda_norm *op)
{
    if (launch->op->weight == MCP_NO_WEIGHT)
        return;
    struct mcp_view weights = mcp_weight_view(launch, 2, 0);
    struct mcp_view gradient = mcp_gradient_view(launch, 1, 0);
    op->weight = array_at(weights, band->weight_at);
    op->weight_gradient = array_at(gradient, band->weight_at);
    if (!shape->has_bias)
        return;
    op->bias = array_at(weights, band->bias_at);
    op->bias_gradient = array_at(gradient, band->bias_at);
}

/* reads dy, x, weights if any, residual if any; writes dx, gradients */
void mcp_cuda_launch_norm_backward(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    int residual = launch->op->weight != MCP_NO_WEIGHT ? 3 : 2;
    struct mcp_view dy = mcp_read_view(launch, 0), x = mcp_read_view(launch, 1);
    struct mcp_view dx = mcp_write_view(launch, 0);
    const struct mcp_norm_shape shape = mcp_norm_shape_of(launch, x);
    struct mcp_cuda_norm op = norm_of(launch, &shape);
    for (int i = 0; i < shape.num_bands; i++) {
        const struct mcp_norm_band *band = &shape.bands[i];
        set_band(band, &op);
        op.dy = array_at(dy, band->first);
        op.x = array_at(x, band->first);
        op.dx = array_at(dx, band->first);
        if (launch->op->num_reads > residual)
            op.residual = array_at(mcp_read_view(launch, residual), band->first);
        set_back_weights(launch, &shape, band, &op);
        mcp_cuda_norm_backward(&op, call->queue);
    }
    copy_rest(call, &shape, dy, dx);
}

/* --- element by element --- */

/* reads branch, input, bias if any; writes output */
void mcp_cuda_launch_residual(const struct mcp_cuda_call *call)
{
    const int64_t *d = call->launch->op->dims;
    struct mcp_cuda_residual op = {.branch = mcp_cuda_read(call, 0),
                                   .input = mcp_cuda_read(call, 1),
                                   .output = mcp_cuda_written(call, 0),
                                   .rows = d[0],
                                   .columns = d[1]};
    if (call->launch->op->weight != MCP_NO_WEIGHT)
        op.bias = mcp_cuda_array_of(mcp_weight_view(call->launch, 2, 0));
    mcp_cuda_residual(&op, call->queue);
}

static void add_bias_gradient(const struct mcp_cuda_call *call, struct mcp_cuda_array from,
                              int64_t rows, int64_t columns)
{
    const struct mcp_cuda_columns sums = {
        .from = from,
        .to = mcp_cuda_array_of(mcp_gradient_view(call->launch, 1, 0)),
        .rows = rows,
        .columns = columns,
        .from_stride = columns};
    if (call->launch->op->weight != MCP_NO_WEIGHT)
        mcp_cuda_add_sums(call, &sums);
}

/* reads d_output; writes the branch's gradient, the bias's if any */
void mcp_cuda_launch_residual_backward(const struct mcp_cuda_call *call)
{
    const int64_t *d = call->launch->op->dims;
    struct mcp_cuda_array from = mcp_cuda_read(call, 0);
    mcp_cuda_scale(from, mcp_cuda_written(call, 0), d[0] * d[1], 1, call->queue);
    add_bias_gradient(call, from, d[0], d[1]);
}

void mcp_cuda_launch_copy(const struct mcp_cuda_call *call)
{
    const int64_t *d = call->launch->op->dims;
    mcp_cuda_scale(mcp_cuda_read(call, 0), mcp_cuda_written(call, 0), d[0] * d[1], 1, call->queue);
}

void mcp_cuda_launch_add(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    mcp_cuda_add(mcp_cuda_array_of(mcp_weight_view(launch, 0, 0)),
                 mcp_cuda_array_of(mcp_weight_view(launch, 1, 0)),
                 mcp_cuda_array_of(mcp_gradient_view(launch, 0, 0)),
                 launch->op->dims[0] * launch->op->dims[1], call->queue);
}

/* --- activations --- */

static enum mcp_cuda_curve curve_of(enum mcp_activation activation)
{
    switch (activation) {
    case MCP_ACTIVATION_SILU:
        return MCP_CUDA_SILU;
    case MCP_ACTIVATION_GELU_TANH:
        return MCP_CUDA_GELU_TANH;
    case MCP_ACTIVATION_GELU:
        return MCP_CUDA_GELU;
    default:
        return MCP_CUDA_RELU;
    }
}

static struct mcp_cuda_activation activation_of(const struct mcp_cuda_call *call, int first)
{
    const struct mcp_mlp_inputs in = mcp_mlp_inputs_of(call->launch, first, call->sizes);
    return (struct mcp_cuda_activation){.up = mcp_cuda_array_of(in.up),
                                        .other = mcp_cuda_array_of(in.other),
                                        .bias = mcp_cuda_array_of(in.bias),
                                        .other_bias = mcp_cuda_array_of(in.other_bias),
                                        .curve = curve_of(call->launch->type->facts.activation),
                                        .rows = in.rows,
                                        .width = in.width,
                                        .up_stride = in.up_stride,
                                        .other_stride = in.other_stride};
}

/* reads up, the other if apart, sizes if an expert's, biases if any; writes active */
void mcp_cuda_launch_activation(const struct mcp_cuda_call *call)
{
    struct mcp_cuda_activation op = activation_of(call, 0);
    op.active = mcp_cuda_written(call, 0);
    if (op.rows > 0)
        mcp_cuda_activation(&op, call->queue);
}

/* reads d_active, then as forward; writes d_up (both halves side by side), gradients of
 * biases if any */
void mcp_cuda_launch_activation_backward(const struct mcp_cuda_call *call)
{
    struct mcp_cuda_activation op = activation_of(call, 1);
    op.d_active = mcp_cuda_read(call, 0);
    op.d_up = mcp_cuda_written(call, 0);
    if (op.rows == 0)
        return;
    mcp_cuda_activation_backward(&op, call->queue);
    add_bias_gradient(call, op.d_up, op.rows, op.other.data != NULL ? 2 * op.width : op.width);
}

/* --- activations in 8 bits --- */

/* Rows are those there is room for: experts may have got more than are expected. */
static struct mcp_cuda_quantised quantised_of(const struct mcp_cuda_call *call,
                                              struct mcp_view whole, void *kept)
{
    int64_t columns = call->launch->op->dims[1], rows = whole.elements / columns;
    float *scales = kept;
    return (struct mcp_cuda_quantised){
        .whole = mcp_cuda_array_of(whole),
        .scales = scales,
        .bytes = (signed char *)(scales + rows * mcp_quantised_blocks(columns)),
        .rows = rows,
        .columns = columns};
}

void mcp_cuda_launch_quantise(const struct mcp_cuda_call *call)
{
    const struct mcp_cuda_quantised op =
        quantised_of(call, mcp_read_view(call->launch, 0), call->launch->writes[0]);
    mcp_cuda_quantise(&op, call->queue);
}

void mcp_cuda_launch_dequantise(const struct mcp_cuda_call *call)
{
    const struct mcp_cuda_quantised op =
        quantised_of(call, mcp_write_view(call->launch, 0), call->launch->reads[0]);
    mcp_cuda_dequantise(&op, call->queue);
}

/* --- operands of 8 bit products: of a part's weights, or of all that is read --- */

void mcp_cuda_launch_cast(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    const struct mcp_op *op = launch->op;
    const bool by_columns = op->function == MCP_FN_CAST_COLUMNS;
    const bool both = op->function == MCP_FN_CAST_BOTH;
    const struct mcp_cuda_cast cast = {
        .from = mcp_cuda_array_of(mcp_weight_view(launch, 0, 0)),
        .rows = by_columns ? NULL : mcp_cast_target(launch, 0),
        .columns = by_columns || both ? mcp_cast_target(launch, both ? 1 : 0) : NULL,
        .num_rows = op->dims[0],
        .num_columns = op->dims[1],
        .of_gradients = op->dims[2] != 0};
    mcp_cuda_cast(&cast, call->queue);
}
