/* exec/cuda_kernels_norm.cu: LayerNorm and RMSNorm: exec/cpu_kernels_norm.c has the formulas.
 *
 * A unit is what is normed together: a row, or a head of one. A team of threads has it: a warp
 * where it is short, else a block. Backward, teams take units in turn and add up the gradients
 * of the weights for all of theirs; those sums, parts, are added last. */
#include "exec/cuda_parts.cuh"

constexpr int short_unit = 512;           /* columns that a warp has */
constexpr int64_t most_blocks = 264;      /* of the backward pass */
constexpr int64_t most_shared = 96 << 10; /* bytes of a block */

struct team {
    int thread, threads; /* this one, of so many */
    int64_t number, teams;
};

template <bool is_short> static __device__ __forceinline__ team team_of()
{
    const int x = static_cast<int>(threadIdx.x), size = static_cast<int>(blockDim.x);
    if (!is_short)
        return {x, size, blockIdx.x, gridDim.x};
    const int64_t per_block = size / mcp_warp;
    return {x % mcp_warp, mcp_warp, blockIdx.x * per_block + x / mcp_warp, gridDim.x * per_block};
}

template <bool is_short, int C> static __device__ __forceinline__ void team_sums(float (&value)[C])
{
    if constexpr (is_short) {
#pragma unroll
        for (int c = 0; c < C; c++)
            value[c] = mcp_warp_sum(value[c]);
    } else {
        mcp_block_sums(value);
    }
}

static __device__ __forceinline__ int64_t unit_at(const struct mcp_cuda_norm &op, int64_t unit)
{
    const int64_t row = mcp_divide(unit, op.segments);
    return row * op.stride + (unit - row * op.segments) * op.columns;
}

template <int N, bool is_short>
static __device__ __forceinline__ float mean_of(const struct mcp_cuda_norm &op, int64_t at, team t)
{
    float x[N], sum[1] = {0};
    if (!op.centers)
        return 0;
    for (int64_t c = t.thread * N; c < op.columns; c += t.threads * N) {
        mcp_load(op.x, at + c, x);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[0] += x[i];
    }
    team_sums<is_short>(sum);
    return sum[0] / static_cast<float>(op.columns);
}

static __device__ __forceinline__ float factor_of(const struct mcp_cuda_norm &op, float squares)
{
    return 1 / sqrtf(squares / static_cast<float>(op.columns) + op.epsilon);
}

template <int N, bool is_short> static __global__ void norm(struct mcp_cuda_norm op)
{
    const team t = team_of<is_short>();
    if (t.number >= op.rows * op.segments)
        return;
    const int64_t at = unit_at(op, t.number);
    const float mean = mean_of<N, is_short>(op, at, t);
    float x[N], w[N], b[N], squares[1] = {0};
    for (int64_t c = t.thread * N; c < op.columns; c += t.threads * N) {
        mcp_load(op.x, at + c, x);
#pragma unroll
        for (int i = 0; i < N; i++)
            squares[0] += (x[i] - mean) * (x[i] - mean);
    }
    team_sums<is_short>(squares);
    const float factor = factor_of(op, squares[0]);
    for (int64_t c = t.thread * N; c < op.columns; c += t.threads * N) {
        mcp_load(op.x, at + c, x);
        mcp_load_or(op.weight, c, 1, w);
        mcp_load_or(op.bias, c, 0, b);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = (x[i] - mean) * factor * w[i] + b[i];
        mcp_store(op.y, at + c, x);
    }
}

/* --- backward --- */

/* Sums of a team's units so far, [columns] of the weight's gradient and [columns] of the bias's:
 * in shared memory as [N][packs], so that neighbours are in different banks, or in parts. */
struct sums {
    float *weight, *bias; /* NULL: none */
    int64_t apart, step;  /* from element to element of a pack, from pack to pack */
};

struct means {
    float mean, factor, gradient, product;
};

template <int N, bool is_short>
static __device__ __forceinline__ means means_of(const struct mcp_cuda_norm &op, int64_t at, team t)
{
    const float mean = mean_of<N, is_short>(op, at, t);
    float x[N], dy[N], w[N], sum[3] = {0, 0, 0};
    for (int64_t c = t.thread * N; c < op.columns; c += t.threads * N) {
        mcp_load(op.x, at + c, x);
        mcp_load(op.dy, at + c, dy);
        mcp_load_or(op.weight, c, 1, w);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float z = x[i] - mean, g = dy[i] * w[i];
            sum[0] += z * z;
            sum[1] += g;
            sum[2] += g * z;
        }
    }
    team_sums<is_short>(sum);
    const float factor = factor_of(op, sum[0]), count = static_cast<float>(op.columns);
    return {mean, factor, op.centers ? sum[1] / count : 0, sum[2] * factor / count};
}

template <int N>
static __device__ __forceinline__ void back_unit(const struct mcp_cuda_norm &op, int64_t at, team t,
                                                 means m, const sums &s)
{
    float x[N], dy[N], w[N], more[N];
    for (int64_t c = t.thread * N; c < op.columns; c += t.threads * N) {
        const int64_t place = c / N * s.step;
        mcp_load(op.x, at + c, x);
        mcp_load(op.dy, at + c, dy);
        mcp_load_or(op.weight, c, 1, w);
        mcp_load_or(op.residual, at + c, 0, more);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float z = (x[i] - m.mean) * m.factor;
            if (s.weight != nullptr)
                s.weight[place + i * s.apart] += dy[i] * z;
            if (s.bias != nullptr)
                s.bias[place + i * s.apart] += dy[i];
            x[i] = m.factor * (dy[i] * w[i] - m.gradient - z * m.product) + more[i];
        }
        mcp_store(op.dx, at + c, x);
    }
}

/* Of one thread: no other touches its columns. */
template <int N>
static __device__ __forceinline__ void clear_sums(const struct mcp_cuda_norm &op, team t,
                                                  const sums &s)
{
    for (int64_t c = t.thread * N; c < op.columns; c += t.threads * N)
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (s.weight != nullptr)
                s.weight[c / N * s.step + i * s.apart] = 0;
            if (s.bias != nullptr)
                s.bias[c / N * s.step + i * s.apart] = 0;
        }
}

template <int N>
static __device__ __forceinline__ void store_sums(const struct mcp_cuda_norm &op, team t,
                                                  const sums &s, const sums &parts)
{
    for (int64_t c = t.thread * N; c < op.columns; c += t.threads * N)
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (s.weight != nullptr)
                parts.weight[c + i] = s.weight[c / N * s.step + i * s.apart];
            if (s.bias != nullptr)
                parts.bias[c + i] = s.bias[c / N * s.step + i * s.apart];
        }
}

/* Where a team's sums end: parts [teams][columns] of the weight's, then of the bias's. */
static __device__ __forceinline__ sums parts_of(const struct mcp_cuda_norm &op, team t,
                                                float *parts, int width)
{
    sums s = {nullptr, nullptr, 1, width};
    if (op.weight.data != nullptr)
        s.weight = parts + t.number * op.columns;
    if (op.bias.data != nullptr)
        s.bias = parts + (t.teams + t.number) * op.columns;
    return s;
}

template <int N, bool is_short>
static __global__ void norm_backward(struct mcp_cuda_norm op, float *parts, int in_shared)
{
    MCP_SHARED_ARRAY(float, shared);
    const team t = team_of<is_short>();
    const sums last = parts_of(op, t, parts, N);
    sums s = last;
    if (in_shared) {
        const int in_block = static_cast<int>(threadIdx.x) / t.threads;
        s.apart = op.columns / N;
        s.step = 1;
        s.weight = s.weight == nullptr ? nullptr : shared + in_block * 2 * op.columns;
        s.bias = s.bias == nullptr ? nullptr : shared + (in_block * 2 + 1) * op.columns;
    }
    clear_sums<N>(op, t, s);
    for (int64_t unit = t.number; unit < op.rows * op.segments; unit += t.teams) {
        const int64_t at = unit_at(op, unit);
        back_unit<N>(op, at, t, means_of<N, is_short>(op, at, t), s);
    }
    if (in_shared)
        store_sums<N>(op, t, s, last);
}

/* --- launches --- */

static bool is_wide(const struct mcp_cuda_norm *op)
{
    return mcp_are_wide(op->x, op->weight, op->bias, op->y, op->dy, op->residual, op->dx,
                        op->columns, op->stride);
}

struct norm_shape {
    unsigned blocks, threads;
    int teams; /* of a block */
};

static norm_shape shape_of(const struct mcp_cuda_norm *op, int width)
{
    const int64_t units = op->rows * op->segments;
    if (op->columns > short_unit)
        return {static_cast<unsigned>(units), mcp_row_threads(op->columns / width), 1};
    const int teams = mcp_threads / mcp_warp;
    return {static_cast<unsigned>(mcp_ceil(units, teams)), mcp_threads, teams};
}

#define LAUNCH_NORM(kernel, wide, is_short, shape, shared_bytes, ...)                              \
    do {                                                                                           \
        if ((wide) && (is_short))                                                                  \
            MCP_LAUNCH((kernel<mcp_pack, true>), (shape).blocks, (shape).threads, (shared_bytes),  \
                       queue->stream, __VA_ARGS__);                                                \
        else if (wide)                                                                             \
            MCP_LAUNCH((kernel<mcp_pack, false>), (shape).blocks, (shape).threads, (shared_bytes), \
                       queue->stream, __VA_ARGS__);                                                \
        else if (is_short)                                                                         \
            MCP_LAUNCH((kernel<1, true>), (shape).blocks, (shape).threads, (shared_bytes),         \
                       queue->stream, __VA_ARGS__);                                                \
        else                                                                                       \
            MCP_LAUNCH((kernel<1, false>), (shape).blocks, (shape).threads, (shared_bytes),        \
                       queue->stream, __VA_ARGS__);                                                \
    } while (0)

void mcp_cuda_norm(const struct mcp_cuda_norm *op, const mcp_cuda_queue *queue)
{
    const bool wide = is_wide(op);
    const norm_shape shape = shape_of(op, mcp_width(wide));
    if (op->rows > 0 && op->columns > 0)
        LAUNCH_NORM(norm, wide, op->columns <= short_unit, shape, 0, *op);
}

void mcp_cuda_norm_backward(const struct mcp_cuda_norm *op, const mcp_cuda_queue *queue)
{
    const bool wide = is_wide(op), weighted = op->weight.data != nullptr;
    norm_shape shape = shape_of(op, mcp_width(wide));
    const int64_t fit =
        mcp_parts_that_fit(2 * op->columns, most_blocks * shape.teams) / shape.teams;
    const int64_t shared = 2 * op->columns * 4 * shape.teams;
    const int in_shared = weighted && shared <= most_shared;
    if (op->rows <= 0 || op->columns <= 0)
        return;
    shape.blocks = shape.blocks < fit ? shape.blocks : fit > 0 ? static_cast<unsigned>(fit) : 1u;
    if (in_shared) {
        MCP_ALLOW_SHARED((norm_backward<mcp_pack, false>), most_shared);
        MCP_ALLOW_SHARED((norm_backward<1, false>), most_shared);
    }
    LAUNCH_NORM(norm_backward, wide, op->columns <= short_unit, shape,
                static_cast<size_t>(in_shared ? shared : 0), *op, mcp_scratch(queue), in_shared);
    const int parts = static_cast<int>(shape.blocks) * shape.teams;
    if (weighted)
        mcp_add_parts(mcp_scratch(queue), parts, op->columns, op->weight_gradient, queue);
    if (op->bias.data != nullptr)
        mcp_add_parts(mcp_scratch(queue) + parts * op->columns, parts, op->columns,
                      op->bias_gradient, queue);
}
