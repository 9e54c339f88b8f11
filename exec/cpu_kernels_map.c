/* exec/cpu_kernels_map.c: element by element: residual stream, sums, copies, activations. */
#include "exec/cpu_kernels_math.h"
#include "exec/cpu_kernels_parts.h"

#include <math.h>

/* reads branch, input, bias if any; writes output */
void mcp_cpu_residual_forward(const struct mcp_launch *launch)
{
    const int64_t *d = launch->op->dims;
    struct mcp_view branch = mcp_read_view(launch, 0), input = mcp_read_view(launch, 1);
    struct mcp_view output = mcp_write_view(launch, 0), bias = {0};
    if (launch->op->weight != MCP_NO_WEIGHT)
        bias = mcp_weight_view(launch, 2, 0);
    int64_t pieces = (d[1] + MCP_CHUNK - 1) / MCP_CHUNK;
#pragma omp parallel for schedule(static) if (d[0] * d[1] > MCP_SERIAL)
    for (int64_t i = 0; i < d[0] * pieces; i++) {
        float rooms[4][MCP_CHUNK];
        int64_t column = i % pieces * MCP_CHUNK, at = i / pieces * d[1] + column;
        int count = mcp_chunk(d[1] - column);
        const float *x = mcp_get(branch, at, count, rooms[0]);
        const float *y = mcp_get(input, at, count, rooms[1]);
        float *out = mcp_room(output, at, rooms[2]);
        for (int j = 0; j < count; j++)
            out[j] = x[j] + y[j];
        if (bias.data != NULL) {
            const float *b = mcp_get(bias, column, count, rooms[3]);
            for (int j = 0; j < count; j++)
                out[j] += b[j];
        }
        mcp_put(output, at, count, out);
    }
}

static void copy(struct mcp_view from, struct mcp_view to, int64_t elements)
{
#pragma omp parallel for schedule(static) if (elements > MCP_SERIAL)
    for (int64_t at = 0; at < elements; at += MCP_CHUNK) {
        float room[MCP_CHUNK];
        int count = mcp_chunk(elements - at);
        mcp_put(to, at, count, mcp_get(from, at, count, room));
    }
}

/* reads d_output; writes the branch's gradient, the bias's if any */
void mcp_cpu_residual_backward(const struct mcp_launch *launch)
{
    const int64_t *d = launch->op->dims;
    struct mcp_view from = mcp_read_view(launch, 0);
    copy(from, mcp_write_view(launch, 0), d[0] * d[1]);
    if (launch->op->weight != MCP_NO_WEIGHT)
        mcp_add_column_sums(from, d[0], d[1], d[1], mcp_gradient_view(launch, 1, 0));
}

void mcp_cpu_copy(const struct mcp_launch *launch)
{
    copy(mcp_weight_view(launch, 0, 0), mcp_write_view(launch, 0),
         launch->op->dims[0] * launch->op->dims[1]);
}

void mcp_cpu_add(const struct mcp_launch *launch)
{
    int64_t elements = launch->op->dims[0] * launch->op->dims[1];
    struct mcp_view x = mcp_weight_view(launch, 0, 0), y = mcp_weight_view(launch, 1, 0);
    struct mcp_view sum = mcp_gradient_view(launch, 0, 0);
#pragma omp parallel for schedule(static) if (elements > MCP_SERIAL)
    for (int64_t at = 0; at < elements; at += MCP_CHUNK) {
        float rooms[3][MCP_CHUNK];
        int count = mcp_chunk(elements - at);
        const float *a = mcp_get(x, at, count, rooms[0]), *b = mcp_get(y, at, count, rooms[1]);
        float *out = mcp_room(sum, at, rooms[2]);
        for (int i = 0; i < count; i++)
            out[i] = a[i] + b[i];
        mcp_put(sum, at, count, out);
    }
}

/* --- activations --- */

static const float root_2_over_pi = 0.7978845608028654f, cubic = 0.044715f;

/* out = f(x), slope = f'(x); either may be NULL. */
static void silu(int count, const float *x, float *out, float *slope)
{
    for (int i = 0; i < count; i++) {
        float s = mcp_sigmoidf(x[i]);
        out[i] = x[i] * s;
        slope[i] = s * (1 + x[i] * (1 - s));
    }
}

/* Hendrycks and Gimpel 2016, the approximation by tanh. */
static void gelu_tanh(int count, const float *x, float *out, float *slope)
{
    for (int i = 0; i < count; i++) {
        float cube = x[i] * x[i] * x[i];
        float e = mcp_expf(2 * root_2_over_pi * (x[i] + cubic * cube));
        float away = 1 / (e + 1), near = e * away; /* tanh is near - away, near + away 1 */
        float inner = root_2_over_pi * (1 + 3 * cubic * x[i] * x[i]);
        out[i] = x[i] * near;
        slope[i] = near + 2 * x[i] * away * near * inner;
    }
}

static void gelu_erf(int count, const float *x, float *out, float *slope)
{
    const float root_half = 0.7071067811865476f, density = 0.3989422804014327f;
    for (int i = 0; i < count; i++) {
        float share = 0.5f * (1 + erff(x[i] * root_half));
        out[i] = x[i] * share;
        slope[i] = share + x[i] * density * mcp_expf(-0.5f * x[i] * x[i]);
    }
}

static void relu(int count, const float *x, float *out, float *slope)
{
    for (int i = 0; i < count; i++) {
        out[i] = x[i] > 0 ? x[i] : x[i] * 0; /* NaN stays */
        slope[i] = x[i] > 0 ? 1 : 0;
    }
}

static void activate(enum mcp_activation kind, int count, const float *x, float *out, float *slope)
{
    switch (kind) {
    case MCP_ACTIVATION_SILU:
        silu(count, x, out, slope);
        return;
    case MCP_ACTIVATION_GELU_TANH:
        gelu_tanh(count, x, out, slope);
        return;
    case MCP_ACTIVATION_GELU:
        gelu_erf(count, x, out, slope);
        return;
    default:
        relu(count, x, out, slope);
    }
}

/* `count` values of a view from `at` on, plus their bias if there is any, in out. */
static void load(struct mcp_view view, int64_t at, struct mcp_view bias, int64_t bias_at, int count,
                 float *out)
{
    float room[MCP_CHUNK];
    memcpy(out, mcp_get(view, at, count, room), (size_t)count * sizeof *out);
    const float *more = bias.data == NULL ? NULL : mcp_get(bias, bias_at, count, room);
    for (int i = 0; more != NULL && i < count; i++)
        out[i] += more[i];
}

static void load_up(const struct mcp_mlp_inputs *in, int64_t row, int64_t column, int count,
                    float *out)
{
    load(in->up, row * in->up_stride + column, in->bias, column, count, out);
}

static void load_other(const struct mcp_mlp_inputs *in, int64_t row, int64_t column, int count,
                       float *out)
{
    load(in->other, row * in->other_stride + column, in->other_bias, column, count, out);
}

/* reads up, the other if apart, sizes if an expert's, biases if any; writes active */
void mcp_cpu_activation_forward(const struct mcp_launch *launch)
{
    const struct mcp_mlp_inputs in = mcp_mlp_inputs_of(launch, 0, mcp_launch_sizes(launch));
    struct mcp_view active = mcp_write_view(launch, 0);
    int64_t pieces = (in.width + MCP_CHUNK - 1) / MCP_CHUNK;
#pragma omp parallel for schedule(static) if (in.rows * in.width > MCP_SERIAL)
    for (int64_t i = 0; i < in.rows * pieces; i++) {
        float x[MCP_CHUNK], y[MCP_CHUNK], slope[MCP_CHUNK], room[MCP_CHUNK];
        int64_t row = i / pieces, column = i % pieces * MCP_CHUNK;
        int count = mcp_chunk(in.width - column);
        float *out = mcp_room(active, row * in.width + column, room);
        load_up(&in, row, column, count, x);
        activate(launch->type->facts.activation, count, x, out, slope);
        if (in.other.data != NULL) {
            load_other(&in, row, column, count, y);
            for (int j = 0; j < count; j++)
                out[j] *= y[j];
        }
        mcp_put(active, row * in.width + column, count, out);
    }
}

struct inputs_back {
    struct mcp_mlp_inputs in;
    enum mcp_activation kind;
    struct mcp_view d_active, d_up;
    int64_t stride; /* of d_up */
};

/* Columns [column, column + count) of one row. */
static void back_chunk(const struct inputs_back *b, int64_t row, int64_t column, int count)
{
    const struct mcp_mlp_inputs *in = &b->in;
    float x[MCP_CHUNK], y[MCP_CHUNK], value[MCP_CHUNK], slope[MCP_CHUNK], room[MCP_CHUNK];
    const float *d = mcp_get(b->d_active, row * in->width + column, count, room);
    load_up(in, row, column, count, x);
    activate(b->kind, count, x, value, slope);
    for (int j = 0; j < count; j++)
        slope[j] *= d[j];
    if (in->other.data != NULL) {
        load_other(in, row, column, count, y);
        for (int j = 0; j < count; j++) {
            value[j] *= d[j];
            slope[j] *= y[j];
        }
        mcp_put(b->d_up, row * b->stride + in->width + column, count, value);
    }
    mcp_put(b->d_up, row * b->stride + column, count, slope);
}

/* reads d_active, then as forward; writes d_up (both halves side by side), gradients of
 * biases if any */
void mcp_cpu_activation_backward(const struct mcp_launch *launch)
{
    const struct inputs_back b = {.in = mcp_mlp_inputs_of(launch, 1, mcp_launch_sizes(launch)),
                                  .kind = launch->type->facts.activation,
                                  .d_active = mcp_read_view(launch, 0),
                                  .d_up = mcp_write_view(launch, 0),
                                  .stride =
                                      launch->op->dims[1] * (launch->type->facts.gated ? 2 : 1)};
    int64_t width = b.in.width, pieces = (width + MCP_CHUNK - 1) / MCP_CHUNK;
#pragma omp parallel for schedule(static) if (b.in.rows * width > MCP_SERIAL)
    for (int64_t i = 0; i < b.in.rows * pieces; i++) {
        int64_t column = i % pieces * MCP_CHUNK;
        back_chunk(&b, i / pieces, column, mcp_chunk(width - column));
    }
    if (launch->op->weight != MCP_NO_WEIGHT)
        mcp_add_column_sums(b.d_up, b.in.rows, b.stride, b.stride, mcp_gradient_view(launch, 1, 0));
}

/* --- epilogues of products --- */

/* Of one row: y += bias; and GELU of the sum before it is rounded, as of a product that has not
 * been stored yet. */
static void end_row(const struct mcp_launch *launch, struct mcp_view bias, bool gelu, int64_t row)
{
    const int64_t columns = launch->op->dims[1];
    const struct mcp_view y = mcp_write_view(launch, 0);
    for (int64_t c = 0; c < columns; c += MCP_CHUNK) {
        float sum[MCP_CHUNK], active[MCP_CHUNK], slope[MCP_CHUNK];
        int count = mcp_chunk(columns - c);
        load(y, row * columns + c, bias, c, count, sum);
        mcp_put(y, row * columns + c, count, sum);
        if (!gelu)
            continue;
        gelu_tanh(count, sum, active, slope);
        mcp_put(mcp_write_view(launch, 1), row * columns + c, count, active);
    }
}

static void multiply_and_end(const struct mcp_launch *launch, bool gelu)
{
    const int64_t *d = launch->op->dims;
    const struct mcp_view bias = mcp_epilogue_bias(launch);
    mcp_cpu_matmul_nt(launch);
#pragma omp parallel for schedule(static) if (d[0] * d[1] > MCP_SERIAL)
    for (int64_t row = 0; row < d[0]; row++)
        end_row(launch, bias, gelu, row);
}

/* reads x, weights and bias; writes y */
void mcp_cpu_matmul_nt_bias(const struct mcp_launch *launch)
{
    multiply_and_end(launch, false);
}

/* The same; writes y, GELU of y */
void mcp_cpu_matmul_nt_gelu(const struct mcp_launch *launch)
{
    multiply_and_end(launch, true);
}
