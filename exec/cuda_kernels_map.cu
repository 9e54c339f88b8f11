/* exec/cuda_kernels_map.cu: element by element: copies, sums, casts, the residual stream,
 * activations; and sums over rows. */
#include "exec/cuda_parts.cuh"

/* --- flat arrays: a thread has a pack, and the last one what is left --- */

struct flat {
    mcp_cuda_array x, y, out; /* data NULL: 0 */
    int64_t elements;
    float factor, value;
};

template <int N> static __device__ __forceinline__ void map_pack(const flat &f, int64_t at)
{
    mcp_words<N> x_words = {}, y_words = {};
    float x[N], y[N];
    mcp_fetch_any(f.x, at, x_words);
    mcp_fetch_any(f.y, at, y_words);
    mcp_decode_or(f.x, x_words, 0, x);
    mcp_decode_or(f.y, y_words, 0, y);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = f.x.data == nullptr ? f.value : f.y.data == nullptr ? x[i] * f.factor : x[i] + y[i];
    mcp_store(f.out, at, x);
}

template <int N> static __global__ void map_flat(flat f)
{
    const int64_t at = mcp_thread() * N;
    if (at + N <= f.elements)
        map_pack<N>(f, at);
    else
        for (int64_t i = at; i < f.elements; i++)
            map_pack<1>(f, i);
}

static void launch_flat(const flat &f, const mcp_cuda_queue *queue)
{
    const int pack = mcp_pack_for(f.x, f.y, f.out);
    if (f.elements > 0)
        MCP_LAUNCH_PACKS(pack, map_flat, mcp_blocks(mcp_ceil(f.elements, pack)), mcp_threads, 0,
                         queue->stream, f);
}

void mcp_cuda_fill(mcp_cuda_array to, int64_t elements, float value, const mcp_cuda_queue *queue)
{
    launch_flat({{}, {}, to, elements, 1, value}, queue);
}

void mcp_cuda_scale(mcp_cuda_array from, mcp_cuda_array to, int64_t elements, float factor,
                    const mcp_cuda_queue *queue)
{
    launch_flat({from, {}, to, elements, factor, 0}, queue);
}

void mcp_cuda_add(mcp_cuda_array x, mcp_cuda_array y, mcp_cuda_array sum, int64_t elements,
                  const mcp_cuda_queue *queue)
{
    launch_flat({x, y, sum, elements, 1, 0}, queue);
}

/* --- rows: a thread has a pack of one row --- */

struct spot {
    int64_t row, column;
};

/* The thread's; false past the last. */
template <int N>
static __device__ __forceinline__ bool find_spot(int64_t rows, int64_t columns, spot *out)
{
    const int64_t packs = columns / N, item = mcp_thread();
    out->row = mcp_divide(item, packs);
    out->column = (item - out->row * packs) * N;
    return out->row < rows;
}

template <int N> static __global__ void copy_rows(mcp_cuda_columns op)
{
    spot s;
    float x[N];
    if (!find_spot<N>(op.rows, op.columns, &s))
        return;
    mcp_load(op.from, s.row * op.from_stride + s.column, x);
    mcp_store(op.to, s.row * op.to_stride + s.column, x);
}

void mcp_cuda_copy_columns(const mcp_cuda_columns *op, const mcp_cuda_queue *queue)
{
    const int pack = mcp_pack_for(op->from, op->to, op->columns, op->from_stride, op->to_stride);
    if (op->rows > 0 && op->columns > 0)
        MCP_LAUNCH_PACKS(pack, copy_rows, mcp_blocks(op->rows * op->columns / pack), mcp_threads, 0,
                         queue->stream, *op);
}

template <int N> static __global__ void residual(struct mcp_cuda_residual op)
{
    spot s;
    mcp_words<N> x_words, y_words;
    float x[N], y[N], bias[N];
    if (!find_spot<N>(op.rows, op.columns, &s))
        return;
    const int64_t at = s.row * op.columns + s.column;
    mcp_fetch(op.branch, at, x_words);
    mcp_fetch(op.input, at, y_words);
    mcp_load_or(op.bias, s.column, 0, bias);
    mcp_decode(op.branch, x_words, x);
    mcp_decode(op.input, y_words, y);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = x[i] + y[i] + bias[i];
    mcp_store(op.output, at, x);
}

void mcp_cuda_residual(const struct mcp_cuda_residual *op, const mcp_cuda_queue *queue)
{
    const int pack = mcp_pack_for(op->branch, op->input, op->bias, op->output, op->columns);
    if (op->rows > 0 && op->columns > 0)
        MCP_LAUNCH_PACKS(pack, residual, mcp_blocks(op->rows * op->columns / pack), mcp_threads, 0,
                         queue->stream, *op);
}

/* --- activations --- */

struct curve_at {
    float value, slope;
};

static __device__ __forceinline__ curve_at silu(float x)
{
    const float s = mcp_sigmoid(x);
    return {x * s, s * (1 + x * (1 - s))};
}

/* Hendrycks and Gimpel 2016, the approximation by tanh: (1 + tanh u) / 2 is sigmoid(2 u). */
static __device__ __forceinline__ curve_at gelu_tanh(float x)
{
    const float root_2_over_pi = 0.7978845608028654f, cubic = 0.044715f;
    const float u = root_2_over_pi * (x + cubic * x * x * x);
    const float near = mcp_sigmoid(2 * u), away = mcp_sigmoid(-2 * u);
    const float inner = root_2_over_pi * (1 + 3 * cubic * x * x);
    const float product = near * away;
    return {x * near, near + (product > 0 ? 2 * x * product * inner : product)};
}

static __device__ __forceinline__ curve_at gelu(float x)
{
    const float root_half = 0.7071067811865476f, density = 0.3989422804014327f;
    const float share = 0.5f * (1 + erff(x * root_half));
    return {x * share, share + x * density * mcp_exp(-0.5f * x * x)};
}

static __device__ __forceinline__ curve_at relu(float x)
{
    return {x > 0 ? x : x * 0, x > 0 ? 1.0f : 0.0f}; /* NaN stays */
}

template <int N, class Curve>
static __device__ __forceinline__ void activate_by(Curve curve, float (&x)[N], float (&slope)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const curve_at c = curve(x[i]);
        x[i] = c.value;
        slope[i] = c.slope;
    }
}

/* x becomes its curve's values: the curve is chosen once for all. */
template <int N>
static __device__ __forceinline__ void activate(enum mcp_cuda_curve curve, float (&x)[N],
                                                float (&slope)[N])
{
    switch (curve) {
    case MCP_CUDA_SILU:
        activate_by([](float y) { return silu(y); }, x, slope);
        break;
    case MCP_CUDA_GELU_TANH:
        activate_by([](float y) { return gelu_tanh(y); }, x, slope);
        break;
    case MCP_CUDA_GELU:
        activate_by([](float y) { return gelu(y); }, x, slope);
        break;
    default:
        activate_by([](float y) { return relu(y); }, x, slope);
    }
}

/* Of a spot: the matrix that the curve is of, and the other one, on their way. */
template <int N> struct sides {
    mcp_words<N> up, other;
};
template <int N>
static __device__ __forceinline__ sides<N> fetch_sides(const struct mcp_cuda_activation &op, spot s)
{
    sides<N> words = {};
    mcp_fetch(op.up, s.row * op.up_stride + s.column, words.up);
    mcp_fetch_any(op.other, s.row * op.other_stride + s.column, words.other);
    return words;
}

/* Both with their biases; without another, 1. */
template <int N>
static __device__ __forceinline__ void decode_sides(const struct mcp_cuda_activation &op, spot s,
                                                    const sides<N> &words, float (&x)[N],
                                                    float (&y)[N])
{
    float more[N], other_more[N];
    mcp_load_or(op.bias, s.column, 0, more);
    mcp_load_or(op.other_bias, s.column, 0, other_more);
    mcp_decode(op.up, words.up, x);
    mcp_decode_or(op.other, words.other, 1, y);
#pragma unroll
    for (int i = 0; i < N; i++) {
        x[i] += more[i];
        y[i] += other_more[i];
    }
}

template <int N> static __global__ void activation(struct mcp_cuda_activation op)
{
    spot s;
    float x[N], y[N], slope[N];
    if (!find_spot<N>(op.rows, op.width, &s))
        return;
    decode_sides(op, s, fetch_sides<N>(op, s), x, y);
    activate(op.curve, x, slope);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] *= y[i];
    mcp_store(op.active, s.row * op.width + s.column, x);
}

template <int N> static __global__ void activation_backward(struct mcp_cuda_activation op)
{
    spot s;
    mcp_words<N> words;
    float x[N], y[N], d[N], slope[N];
    const bool gated = op.other.data != nullptr;
    if (!find_spot<N>(op.rows, op.width, &s))
        return;
    const int64_t at = s.row * (gated ? 2 : 1) * op.width + s.column;
    mcp_fetch(op.d_active, s.row * op.width + s.column, words);
    decode_sides(op, s, fetch_sides<N>(op, s), x, y);
    mcp_decode(op.d_active, words, d);
    activate(op.curve, x, slope);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float value = x[i];
        x[i] = slope[i] * d[i] * y[i];
        y[i] = value * d[i];
    }
    mcp_store(op.d_up, at, x);
    if (gated)
        mcp_store(op.d_up, at + op.width, y);
}

static int activation_pack(const struct mcp_cuda_activation *op)
{
    return mcp_pack_for(op->up, op->other, op->bias, op->other_bias, op->active, op->d_active,
                        op->d_up, op->width, op->up_stride, op->other_stride);
}

void mcp_cuda_activation(const struct mcp_cuda_activation *op, const mcp_cuda_queue *queue)
{
    const int pack = activation_pack(op);
    if (op->rows > 0 && op->width > 0)
        MCP_LAUNCH_PACKS(pack, activation, mcp_blocks(op->rows * op->width / pack), mcp_threads, 0,
                         queue->stream, *op);
}

void mcp_cuda_activation_backward(const struct mcp_cuda_activation *op, const mcp_cuda_queue *queue)
{
    const int pack = activation_pack(op);
    if (op->rows > 0 && op->width > 0)
        MCP_LAUNCH_PACKS(pack, activation_backward, mcp_blocks(op->rows * op->width / pack),
                         mcp_threads, 0, queue->stream, *op);
}

/* --- sums over rows --- */

constexpr int strip = 32; /* packs of a block's columns */
/* Rows, or parts, of a block at a time. */
constexpr int slices = 8, part_slices = mcp_block_most / strip;

/* value[N] of each slice of the block, added in their order: true in the threads that have it. */
template <int Slices, int N> static __device__ __forceinline__ bool sum_slices(float (&value)[N])
{
    MCP_SHARED(float, sums, Slices *strip *N);
    const int column = static_cast<int>(threadIdx.x), slice = static_cast<int>(threadIdx.y);
#pragma unroll
    for (int i = 0; i < N; i++)
        sums[(slice * N + i) * strip + column] = value[i];
    __syncthreads();
    if (slice > 0)
        return false;
#pragma unroll
    for (int i = 0; i < N; i++) {
        value[i] = 0;
        for (int s = 0; s < Slices; s++)
            value[i] += sums[(s * N + i) * strip + column];
    }
    return true;
}

/* Of rows [blockIdx.y x rows, + rows): into parts, or to the gradient where there is one part. */
template <int N>
static __global__ void sum_rows(mcp_cuda_columns op, int64_t rows_of_part, float *parts)
{
    const int64_t column = (static_cast<int64_t>(blockIdx.x) * strip + threadIdx.x) * N;
    const int64_t first = blockIdx.y * rows_of_part;
    const int64_t end = first + rows_of_part < op.rows ? first + rows_of_part : op.rows;
    const bool inside = column + N <= op.columns;
    const int64_t last = inside ? end : first;
    float sum[N] = {}, x[N];
#pragma unroll 4
    for (int64_t row = first + threadIdx.y; row < last; row += slices) {
        mcp_load(op.from, row * op.from_stride + column, x);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] += x[i];
    }
    if (!sum_slices<slices>(sum) || !inside)
        return;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (gridDim.y == 1)
            mcp_store_one(op.to, column + i, mcp_load_one(op.to, column + i) + sum[i]);
        else
            parts[blockIdx.y * op.columns + column + i] = sum[i];
}

static __global__ void __launch_bounds__(mcp_block_most)
    add_parts(const float *parts, int num_parts, int64_t columns, mcp_cuda_array gradient)
{
    const int64_t column = static_cast<int64_t>(blockIdx.x) * strip + threadIdx.x;
    const int last = column < columns ? num_parts : 0;
    float sum[1] = {0};
#pragma unroll 8
    for (int part = static_cast<int>(threadIdx.y); part < last; part += part_slices)
        sum[0] += parts[part * columns + column];
    if (sum_slices<part_slices>(sum) && column < columns)
        mcp_store_one(gradient, column, mcp_load_one(gradient, column) + sum[0]);
}

void mcp_add_parts(const float *parts, int num_parts, int64_t columns, mcp_cuda_array gradient,
                   const mcp_cuda_queue *queue)
{
    const auto blocks = static_cast<unsigned>(mcp_ceil(columns, strip));
    MCP_LAUNCH(add_parts, blocks, dim3(strip, part_slices), 0, queue->stream, parts, num_parts,
               columns, gradient);
}

void mcp_cuda_add_column_sums(const mcp_cuda_columns *op, const mcp_cuda_queue *queue)
{
    constexpr int64_t least_rows = 64, most_parts = 128;
    const int pack = mcp_pack_for(op->from, op->columns, op->from_stride);
    const int64_t wanted = mcp_ceil(op->rows, least_rows);
    const int fit = mcp_parts_that_fit(op->columns, wanted < most_parts ? wanted : most_parts);
    const int64_t rows_of_part = mcp_ceil(op->rows, fit);
    if (op->rows <= 0 || op->columns <= 0)
        return;
    const int parts = static_cast<int>(mcp_ceil(op->rows, rows_of_part));
    const auto strips = static_cast<unsigned>(mcp_ceil(op->columns, strip * pack));
    MCP_LAUNCH_PACKS(pack, sum_rows, dim3(strips, static_cast<unsigned>(parts)),
                     dim3(strip, slices), 0, queue->stream, *op, rows_of_part, mcp_scratch(queue));
    if (parts > 1)
        mcp_add_parts(mcp_scratch(queue), parts, op->columns, op->to, queue);
}
