/* exec/cuda_kernels_norm.cu: LayerNorm and RMSNorm: exec/cpu_kernels_norm.c has the formulas.
 *
 * A unit is what is normed together: a row, or a head of one. A team of threads has it: a warp
 * where it is short, else a block. Backward, teams take units in turn and add up the gradients
 * of the weights for all of theirs; those sums, parts, are added last. */
#include "exec/cuda_parts.cuh"

constexpr int short_unit = 512;           /* columns that a warp has */
constexpr int64_t most_threads = 1 << 17; /* of the backward pass: a part of sums for each block */
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

template <int N, bool is_short>
static __global__ void __launch_bounds__(mcp_row_most, 3) norm(struct mcp_cuda_norm op)
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

/* How many sums of columns there are. */
static __host__ __device__ __forceinline__ int num_sums(const struct mcp_cuda_norm &op)
{
    return (op.weight.data != nullptr) + (op.bias.data != nullptr);
}

struct means {
    float mean, factor, gradient, product;
};

template <int N, bool is_short>
static __device__ __forceinline__ means means_of(const struct mcp_cuda_norm &op, int64_t at, team t)
{
    const float mean = mean_of<N, is_short>(op, at, t);
    mcp_words<N> x_words, dy_words;
    float x[N], dy[N], w[N], sum[3] = {0, 0, 0};
    for (int64_t c = t.thread * N; c < op.columns; c += t.threads * N) {
        mcp_fetch(op.x, at + c, x_words);
        mcp_fetch(op.dy, at + c, dy_words);
        mcp_load_or(op.weight, c, 1, w);
        mcp_decode(op.x, x_words, x);
        mcp_decode(op.dy, dy_words, dy);
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
    mcp_words<N> x_words, dy_words, more_words = {};
    float x[N], dy[N], w[N], more[N];
    for (int64_t c = t.thread * N; c < op.columns; c += t.threads * N) {
        const int64_t place = c / N * s.step;
        mcp_fetch(op.x, at + c, x_words);
        mcp_fetch(op.dy, at + c, dy_words);
        mcp_fetch_any(op.residual, at + c, more_words);
        mcp_load_or(op.weight, c, 1, w);
        mcp_decode(op.x, x_words, x);
        mcp_decode(op.dy, dy_words, dy);
        mcp_decode_or(op.residual, more_words, 0, more);
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

/* Where a block's sums end: parts [blocks][columns] of the weight's, then of the bias's. */
template <int N>
static __device__ __forceinline__ sums parts_of(const struct mcp_cuda_norm &op, float *parts)
{
    sums s = {nullptr, nullptr, 1, N};
    if (op.weight.data != nullptr)
        s.weight = parts + blockIdx.x * op.columns;
    if (op.bias.data != nullptr)
        s.bias = parts + ((num_sums(op) - 1) * gridDim.x + blockIdx.x) * op.columns;
    return s;
}

/* Where a team's sums are meanwhile: a block's teams one behind the other in shared memory. */
template <int N>
static __device__ __forceinline__ sums shared_of(const struct mcp_cuda_norm &op, int64_t number,
                                                 float *shared)
{
    sums s = {nullptr, nullptr, op.columns / N, 1};
    float *const mine = shared + number * num_sums(op) * op.columns;
    if (op.weight.data != nullptr)
        s.weight = mine;
    if (op.bias.data != nullptr)
        s.bias = mine + (num_sums(op) - 1) * op.columns;
    return s;
}

/* One part of what a block's teams have in shared memory, in their order. */
template <int N>
static __device__ __forceinline__ void add_teams(const struct mcp_cuda_norm &op, int64_t teams,
                                                 float *shared, const sums &parts)
{
    __syncthreads();
    for (int64_t c = threadIdx.x; c < op.columns; c += blockDim.x) {
        float weight = 0, bias = 0;
        for (int64_t i = 0; i < teams; i++) {
            const sums s = shared_of<N>(op, i, shared);
            const int64_t place = c % N * s.apart + c / N;
            weight += s.weight != nullptr ? s.weight[place] : 0;
            bias += s.bias != nullptr ? s.bias[place] : 0;
        }
        if (parts.weight != nullptr)
            parts.weight[c] = weight;
        if (parts.bias != nullptr)
            parts.bias[c] = bias;
    }
}

/* A team reads a unit twice, the second time from a cache; the first time should not have to
 * wait for memory either. */
template <int N>
static __device__ __forceinline__ void prefetch_unit(const struct mcp_cuda_norm &op, int64_t at,
                                                     team t)
{
    for (int64_t c = t.thread * N; c < op.columns; c += t.threads * N) {
        mcp_prefetch(mcp_place(op.x, at + c));
        mcp_prefetch(mcp_place(op.dy, at + c));
        if (op.residual.data != nullptr)
            mcp_prefetch(mcp_place(op.residual, at + c));
    }
}

template <int N, bool is_short>
static __global__ void __launch_bounds__(is_short ? mcp_threads : mcp_row_most, is_short ? 3 : 2)
    norm_backward(struct mcp_cuda_norm op, float *parts, int in_shared)
{
    MCP_SHARED_ARRAY(float, shared);
    const team t = team_of<is_short>();
    const int64_t units = op.rows * op.segments, teams = blockDim.x / t.threads;
    const sums last = parts_of<N>(op, parts);
    const sums s = in_shared ? shared_of<N>(op, threadIdx.x / t.threads, shared) : last;
    clear_sums<N>(op, t, s);
    for (int64_t unit = t.number; unit < units; unit += t.teams) {
        const int64_t at = unit_at(op, unit);
        if (unit + t.teams < units)
            prefetch_unit<N>(op, unit_at(op, unit + t.teams), t);
        back_unit<N>(op, at, t, means_of<N, is_short>(op, at, t), s);
    }
    if (in_shared)
        add_teams<N>(op, teams, shared, last);
}

/* --- launches --- */

static int pack_of(const struct mcp_cuda_norm *op)
{
    return mcp_pack_for(op->x, op->weight, op->bias, op->y, op->dy, op->residual, op->dx,
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

static_assert(2 * short_unit * 4 * (mcp_threads / mcp_warp) <= most_shared, "teams of a block");

#define LAUNCH_TEAMS(kernel, N, is_short, shape, shared_bytes, ...)                                \
    do {                                                                                           \
        if (is_short)                                                                              \
            MCP_LAUNCH((kernel<N, true>), (shape).blocks, (shape).threads, (shared_bytes),         \
                       queue->stream, __VA_ARGS__);                                                \
        else                                                                                       \
            MCP_LAUNCH((kernel<N, false>), (shape).blocks, (shape).threads, (shared_bytes),        \
                       queue->stream, __VA_ARGS__);                                                \
    } while (0)
#define LAUNCH_NORM(kernel, pack, ...)                                                             \
    do {                                                                                           \
        if ((pack) == mcp_pack)                                                                    \
            LAUNCH_TEAMS(kernel, mcp_pack, __VA_ARGS__);                                           \
        else if ((pack) == mcp_pack_f32)                                                           \
            LAUNCH_TEAMS(kernel, mcp_pack_f32, __VA_ARGS__);                                       \
        else                                                                                       \
            LAUNCH_TEAMS(kernel, 1, __VA_ARGS__);                                                  \
    } while (0)

void mcp_cuda_norm(const struct mcp_cuda_norm *op, const mcp_cuda_queue *queue)
{
    const int pack = pack_of(op);
    const norm_shape shape = shape_of(op, pack);
    if (op->rows > 0 && op->columns > 0)
        LAUNCH_NORM(norm, pack, op->columns <= short_unit, shape, 0, *op);
}

/* Blocks of the backward pass, no more than there is room for parts; of short units a block has
 * several teams, whose sums fit into its shared memory. */
static unsigned back_blocks(const struct mcp_cuda_norm *op, const norm_shape &shape)
{
    const int64_t most = most_threads / shape.threads;
    const int64_t fit = mcp_parts_that_fit(num_sums(*op) * op->columns, most);
    return shape.blocks < fit ? shape.blocks : static_cast<unsigned>(fit);
}

void mcp_cuda_norm_backward(const struct mcp_cuda_norm *op, const mcp_cuda_queue *queue)
{
    const int pack = pack_of(op);
    norm_shape shape = shape_of(op, pack);
    const int64_t shared = num_sums(*op) * op->columns * 4 * shape.teams;
    const int in_shared = shared > 0 && shared <= most_shared;
    if (op->rows <= 0 || op->columns <= 0)
        return;
    shape.blocks = back_blocks(op, shape);
    if (in_shared) {
        MCP_ALLOW_SHARED((norm_backward<mcp_pack, false>), most_shared);
        MCP_ALLOW_SHARED((norm_backward<mcp_pack_f32, false>), most_shared);
        MCP_ALLOW_SHARED((norm_backward<1, false>), most_shared);
    }
    LAUNCH_NORM(norm_backward, pack, op->columns <= short_unit, shape,
                static_cast<size_t>(in_shared ? shared : 0), *op, mcp_scratch(queue), in_shared);
    const auto parts = static_cast<int>(shape.blocks);
    if (op->weight.data != nullptr)
        mcp_add_parts(mcp_scratch(queue), parts, op->columns, op->weight_gradient, queue);
    if (op->bias.data != nullptr)
        mcp_add_parts(mcp_scratch(queue) + (num_sums(*op) - 1) * parts * op->columns, parts,
                      op->columns, op->bias_gradient, queue);
}
