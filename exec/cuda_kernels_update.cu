/* exec/cuda_kernels_update.cu: once a step: sums of squares, AdamW, and what monitors ask. */
#include "exec/cuda_parts.cuh"

/* --- sums of whole arrays: by blocks, then by one block --- */

constexpr int most_sums = 1024; /* blocks of a sum */

/* Two sums of each element: in fp32 of a pack, in fp64 from one pack to the next. So fp64, of
 * which some GPUs have a 64th of the rest, is asked for once a pack. */
struct two {
    double first, second;
};
struct pack_sums {
    float first, second;
};

template <int N, class F> static __device__ __forceinline__ two sum_packs(int64_t elements, F of)
{
    two all = {0, 0};
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x * N;
    for (int64_t at = mcp_thread() * N; at < elements; at += step) {
        const pack_sums pack = of(at, at + N <= elements);
        all.first += static_cast<double>(pack.first);
        all.second += static_cast<double>(pack.second);
    }
    return all;
}

static __device__ __forceinline__ void store_two(two mine, double *sums)
{
    double both[2] = {mine.first, mine.second};
    mcp_block_sums(both);
    if (threadIdx.x > 0)
        return;
    sums[2 * blockIdx.x] = both[0];
    sums[2 * blockIdx.x + 1] = both[1];
}

/* What one block makes of the sums of all: out = them, or *squares += factor x the second. */
static __global__ void add_sums(const double *sums, int count, double *out, float *squares,
                                double factor)
{
    double both[2] = {0, 0};
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
        both[0] += sums[2 * i];
        both[1] += sums[2 * i + 1];
    }
    mcp_block_sums(both);
    if (threadIdx.x > 0)
        return;
    if (squares != nullptr) {
        *squares += static_cast<float>(factor * both[1]);
        return;
    }
    out[0] = both[0];
    out[1] = both[1];
}

template <int N>
static __device__ __forceinline__ void add_moments(mcp_cuda_array from, int64_t at, pack_sums *sums)
{
    float x[N];
    mcp_load(from, at, x);
#pragma unroll
    for (int i = 0; i < N; i++) {
        sums->first += x[i];
        sums->second += x[i] * x[i];
    }
}

template <int N> static __global__ void moments(mcp_cuda_array from, int64_t elements, double *sums)
{
    const two mine = sum_packs<N>(elements, [&](int64_t at, bool whole) {
        pack_sums pack = {0, 0};
        if (whole)
            add_moments<N>(from, at, &pack);
        else
            for (int64_t i = at; i < elements; i++)
                add_moments<1>(from, i, &pack);
        return pack;
    });
    store_two(mine, sums);
}

static unsigned sum_blocks(int64_t elements, int width)
{
    const int64_t blocks = mcp_ceil(elements, static_cast<int64_t>(mcp_threads) * width * 4);
    return blocks < 1 ? 1u : blocks < most_sums ? static_cast<unsigned>(blocks) : most_sums;
}

static void launch_moments(mcp_cuda_array from, int64_t elements, double *out, float *squares,
                           double factor, const mcp_cuda_queue *queue)
{
    const int pack = mcp_pack_of(from);
    const unsigned blocks = sum_blocks(elements, pack);
    double *sums = static_cast<double *>(queue->scratch);
    MCP_LAUNCH_PACKS(pack, moments, blocks, mcp_threads, 0, queue->stream, from, elements, sums);
    MCP_LAUNCH(add_sums, 1, mcp_threads, 0, queue->stream, sums, static_cast<int>(blocks), out,
               squares, factor);
}

void mcp_cuda_add_sum_squares(mcp_cuda_array from, int64_t elements, double factor, float *sum,
                              const mcp_cuda_queue *queue)
{
    if (elements > 0)
        launch_moments(from, elements, nullptr, sum, factor, queue);
}

void mcp_cuda_moments(mcp_cuda_array from, int64_t elements, double *out,
                      const mcp_cuda_queue *queue)
{
    launch_moments(from, elements, out, nullptr, 1, queue);
}

/* --- AdamW (Loshchilov and Hutter 2019, algorithm 2) --- */

constexpr int most_ranges = 64; /* of one launch */
constexpr int64_t chunk = 8192; /* elements of a block */

/* Blocks [first_block[i], first_block[i + 1]) have range i. */
struct ranges {
    int count;
    unsigned first_block[most_ranges + 1];
    mcp_cuda_range range[most_ranges];
};

struct adam_element {
    float w, m, v;
};

static __device__ __forceinline__ void adam_step(const struct mcp_cuda_adam &op, float gradient,
                                                 float decay, adam_element *e)
{
    e->m = op.beta1 * e->m + (1 - op.beta1) * gradient;
    e->v = op.beta2 * e->v + (1 - op.beta2) * gradient * gradient;
    const float step = e->m * op.correction1 / (sqrtf(e->v * op.correction2) + op.epsilon);
    e->w -= op.rate * (step + decay * e->w);
}

static __device__ __forceinline__ void frozen_step(const struct mcp_cuda_adam &op, float decay,
                                                   adam_element *e)
{
    const float step = e->m * op.correction1 / (sqrtf(e->v * op.correction2) + op.epsilon);
    e->w -= e->v > 0 ? op.rate * (step + decay * e->w) : 0;
}

/* fp32, as arrays. */
static __device__ __forceinline__ mcp_cuda_array of(float *data)
{
    return {data, MCP_CUDA_F32};
}

template <int N, bool frozen>
static __device__ __forceinline__ void adam_pack(const struct mcp_cuda_adam &op, int64_t at,
                                                 float factor, float decay)
{
    const mcp_cuda_array truth = op.master != nullptr ? of(op.master) : op.weights;
    mcp_words<N> g_words = {}, w_words;
    float g[N], w[N], m[N], v[N];
    if constexpr (!frozen)
        mcp_fetch(op.gradients, at, g_words);
    mcp_fetch(truth, at, w_words);
    mcp_load(of(op.first), at, m); /* of a format that is known */
    mcp_load(of(op.second), at, v);
    mcp_decode(truth, w_words, w);
    if constexpr (!frozen)
        mcp_decode(op.gradients, g_words, g);
#pragma unroll
    for (int i = 0; i < N; i++) {
        adam_element e = {w[i], m[i], v[i]};
        if constexpr (frozen)
            frozen_step(op, decay, &e);
        else
            adam_step(op, g[i] * factor, decay, &e);
        w[i] = e.w, m[i] = e.m, v[i] = e.v;
    }
    if constexpr (!frozen) {
        mcp_store(of(op.first), at, m);
        mcp_store(of(op.second), at, v);
    }
    if (op.master != nullptr)
        mcp_store(truth, at, w);
    mcp_store(op.weights, at, w);
}

/* Packs of 4, since most is fp32, begin where the operands are aligned: a range's first and last
 * elements are moved one by one. */
template <int N, bool frozen> static __global__ void adam(struct mcp_cuda_adam op, ranges all)
{
    int index = 0;
    while (blockIdx.x >= all.first_block[index + 1])
        index++;
    const mcp_cuda_range range = all.range[index];
    const int64_t part = (blockIdx.x - all.first_block[index]) * chunk;
    const int64_t end = range.first + range.count;
    const int64_t first = part == 0 ? range.first : (range.first / N * N) + part;
    const int64_t next = (range.first / N * N) + part + chunk, last = next < end ? next : end;
    const float factor = op.scalars[0];
    if (op.scalars[1] > 0)
        return;
    for (int64_t at = first / N * N + threadIdx.x * N; at < last; at += blockDim.x * N)
        if (at >= first && at + N <= last)
            adam_pack<N, frozen>(op, at, factor, range.decay);
        else
            for (int64_t i = at < first ? first : at; i < at + N && i < last; i++)
                adam_pack<1, frozen>(op, i, factor, range.decay);
}

template <bool frozen>
static void launch_adam(const struct mcp_cuda_adam *op, const ranges &all, int pack,
                        const mcp_cuda_queue *queue)
{
    const unsigned blocks = all.first_block[all.count];
    if (blocks > 0 && pack > 1)
        MCP_LAUNCH((adam<mcp_pack_f32, frozen>), blocks, mcp_threads, 0, queue->stream, *op, all);
    else if (blocks > 0)
        MCP_LAUNCH((adam<1, frozen>), blocks, mcp_threads, 0, queue->stream, *op, all);
}

template <bool frozen>
static void launch_ranges(const struct mcp_cuda_adam *op, const mcp_cuda_queue *queue)
{
    const int pack = mcp_pack_for(frozen ? mcp_cuda_array{} : op->gradients, op->weights,
                                  op->master, op->first, op->second);
    ranges all = {};
    for (int i = 0; i < op->num_ranges; i++) {
        const mcp_cuda_range &range = op->ranges[i];
        const int64_t begun = range.first % pack;
        all.range[all.count] = range;
        all.first_block[all.count + 1] =
            all.first_block[all.count] +
            (range.count > 0 ? static_cast<unsigned>(mcp_ceil(begun + range.count, chunk)) : 0);
        all.count++;
        if (all.count < most_ranges && i + 1 < op->num_ranges)
            continue;
        launch_adam<frozen>(op, all, pack, queue);
        all.count = 0;
    }
}

void mcp_cuda_adam(const struct mcp_cuda_adam *op, const mcp_cuda_queue *queue)
{
    launch_ranges<false>(op, queue);
}

void mcp_cuda_adam_frozen(const struct mcp_cuda_adam *op, const mcp_cuda_queue *queue)
{
    launch_ranges<true>(op, queue);
}

/* --- what the last step moved --- */

/* w' = w - rate (step + decay w), so w' - w = -rate (step + decay w') / (1 - rate decay). */
template <int N>
static __device__ __forceinline__ void add_norms(const struct mcp_cuda_update_norms &op, int64_t at,
                                                 pack_sums *sums)
{
    const float rate = static_cast<float>(op.rate / (1 - op.rate * op.decay));
    const float decay = static_cast<float>(op.decay), epsilon = static_cast<float>(op.epsilon);
    const float correction1 = static_cast<float>(op.correction1);
    const float correction2 = static_cast<float>(op.correction2);
    float w[N], m[N], v[N];
    mcp_load(of(const_cast<float *>(op.truth)), at, w);
    mcp_load(of(const_cast<float *>(op.first)), at, m);
    mcp_load(of(const_cast<float *>(op.second)), at, v);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float step = m[i] * correction1 / (sqrtf(v[i] * correction2) + epsilon);
        const float update = rate * (step + decay * w[i]);
        sums->first += w[i] * w[i];
        sums->second += op.frozen && !(v[i] > 0) ? 0 : update * update;
    }
}

template <int N> static __global__ void update_norms(struct mcp_cuda_update_norms op, double *sums)
{
    const two mine = sum_packs<N>(op.elements, [&](int64_t at, bool whole) {
        pack_sums pack = {0, 0};
        if (whole)
            add_norms<N>(op, at, &pack);
        else
            for (int64_t i = at; i < op.elements; i++)
                add_norms<1>(op, i, &pack);
        return pack;
    });
    store_two(mine, sums);
}

void mcp_cuda_update_norms(const struct mcp_cuda_update_norms *op, const mcp_cuda_queue *queue)
{
    const int pack = mcp_pack_for(op->truth, op->first, op->second);
    const unsigned blocks = sum_blocks(op->elements, pack);
    double *sums = static_cast<double *>(queue->scratch);
    if (pack > 1)
        MCP_LAUNCH(update_norms<mcp_pack_f32>, blocks, mcp_threads, 0, queue->stream, *op, sums);
    else
        MCP_LAUNCH(update_norms<1>, blocks, mcp_threads, 0, queue->stream, *op, sums);
    MCP_LAUNCH(add_sums, 1, mcp_threads, 0, queue->stream, sums, static_cast<int>(blocks), op->sums,
               nullptr, 1.0);
}
