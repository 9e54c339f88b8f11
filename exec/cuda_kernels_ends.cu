/* exec/cuda_kernels_ends.cu: embedding, and the loss over a vocabulary that ranks share. */
#include "exec/cuda_parts.cuh"

/* Row of this rank's part of the vocabulary that a token has, or -1. */
static __device__ __forceinline__ int64_t local_row(int32_t id, int64_t first, int64_t count)
{
    const int64_t row = id - first;
    return row >= 0 && row < count ? row : -1;
}

/* --- embedding --- */

/* x += rounding (what 16 bits make of them - x) */
template <int N>
static __device__ __forceinline__ void round_towards(const struct mcp_cuda_embedding &op,
                                                     float (&x)[N])
{
    const bool half = op.rows.format == MCP_CUDA_F16;
    if (op.rounding <= 0)
        return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float rounded = half ? __half2float(__float2half_rn(x[i]))
                                   : __bfloat162float(__float2bfloat16_rn(x[i]));
        x[i] += op.rounding * (rounded - x[i]);
    }
}

/* A block has a token. */
template <int N> static __global__ void embedding(struct mcp_cuda_embedding op)
{
    const int64_t token = blockIdx.x, row = local_row(op.ids[token], op.first_id, op.vocab_local);
    const int64_t position = op.positions.data == nullptr ? 0 : mcp_position_of(op.place, token);
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < op.columns; c += blockDim.x * N) {
        float x[N] = {}, more[N];
        if (row >= 0)
            mcp_load(op.table, row * op.columns + c, x);
        mcp_load_or(op.positions, position * op.columns + c, 0, more);
        round_towards(op, x);
        round_towards(op, more); /* apart: their sum rounds otherwise */
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] += more[i];
        mcp_store(op.rows, token * op.columns + c, x);
    }
}

static bool is_wide(const struct mcp_cuda_embedding *op)
{
    return mcp_are_wide(op->table, op->positions, op->rows, op->columns);
}

void mcp_cuda_embedding(const struct mcp_cuda_embedding *op, const mcp_cuda_queue *queue)
{
    const bool wide = is_wide(op);
    if (op->tokens > 0 && op->columns > 0)
        MCP_LAUNCH_PACKS(wide, embedding, static_cast<unsigned>(op->tokens),
                         mcp_row_threads(op->columns / mcp_width(wide)), 0, queue->stream, *op);
}

template <int N>
static __device__ __forceinline__ void add_row(mcp_cuda_array from, int64_t at, float (&sum)[N])
{
    float x[N];
    mcp_load(from, at, x);
#pragma unroll
    for (int i = 0; i < N; i++)
        sum[i] += x[i];
}

/* Which of the tokens [first, first + mcp_threads) have this id: a bit each, in same[]. */
static __device__ __forceinline__ void find_same(const struct mcp_cuda_embedding &op, int64_t first,
                                                 int32_t id, unsigned *same)
{
    const int thread = static_cast<int>(threadIdx.x);
    const int64_t token = first + thread;
    const unsigned votes = __ballot_sync(mcp_all_lanes, token < op.tokens && op.ids[token] == id);
    __syncthreads(); /* the last ones have been read */
    if (thread % mcp_warp == 0)
        same[thread / mcp_warp] = votes;
    __syncthreads();
}

/* The first token of an id adds up the gradients of all that have it, in order; a block has one
 * and a strip of columns. */
template <int N> static __global__ void embedding_backward(struct mcp_cuda_embedding op)
{
    constexpr int words = mcp_threads / mcp_warp;
    MCP_SHARED(unsigned, same, words);
    const int64_t token = blockIdx.x;
    const int64_t c = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
    const int32_t id = op.ids[token];
    const int64_t row = local_row(id, op.first_id, op.vocab_local);
    float sum[N] = {};
    if (row < 0)
        return;
    for (int64_t first = 0; first < op.tokens; first += mcp_threads) {
        find_same(op, first, id, same);
        for (int w = 0; w < words; w++)
            for (unsigned left = same[w]; left != 0; left &= left - 1) {
                const int64_t other = first + w * mcp_warp + __ffs(static_cast<int>(left)) - 1;
                if (other < token)
                    return; /* all threads: it is another block's */
                if (c < op.columns)
                    add_row(op.rows, other * op.columns + c, sum);
            }
    }
    if (c >= op.columns)
        return;
    add_row(op.table, row * op.columns + c, sum);
    mcp_store(op.table, row * op.columns + c, sum);
}

/* A block has a position of this rank: the same token of each sequence. */
template <int N> static __global__ void positions_backward(struct mcp_cuda_embedding op)
{
    const int64_t position = mcp_position_of(op.place, blockIdx.x);
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < op.columns; c += blockDim.x * N) {
        float sum[N] = {};
        for (int64_t token = blockIdx.x; token < op.tokens; token += gridDim.x)
            add_row(op.rows, token * op.columns + c, sum);
        add_row(op.positions, position * op.columns + c, sum);
        mcp_store(op.positions, position * op.columns + c, sum);
    }
}

void mcp_cuda_embedding_backward(const struct mcp_cuda_embedding *op, const mcp_cuda_queue *queue)
{
    const bool wide = is_wide(op);
    const int64_t packs = op->columns / mcp_width(wide);
    const dim3 grid(static_cast<unsigned>(op->tokens), mcp_blocks(packs));
    if (op->tokens <= 0 || op->columns <= 0)
        return;
    MCP_LAUNCH_PACKS(wide, embedding_backward, grid, mcp_threads, 0, queue->stream, *op);
    const int64_t local = op->place.sequence_local;
    if (op->positions.data != nullptr)
        MCP_LAUNCH_PACKS(wide, positions_backward,
                         static_cast<unsigned>(local < op->tokens ? local : op->tokens),
                         mcp_row_threads(packs), 0, queue->stream, *op);
}

/* --- loss --- */

struct extent { /* of logits: the largest, and the sum of exponentials beside it */
    float largest, sum;
};

static __device__ __forceinline__ extent both(extent x, extent y)
{
    const float largest = mcp_larger(x.largest, y.largest);
    const float of_x = x.largest == largest ? x.sum : x.sum * expf(x.largest - largest);
    const float of_y = y.largest == largest ? y.sum : y.sum * expf(y.largest - largest);
    return {largest, of_x + of_y};
}

/* Of all threads of the block, in every thread. */
static __device__ __forceinline__ extent block_extent(extent e)
{
    MCP_SHARED(float, largest, mcp_warp);
    MCP_SHARED(float, sum, mcp_warp);
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    const int warp = static_cast<int>(threadIdx.x) / mcp_warp;
#pragma unroll
    for (int other = mcp_warp / 2; other > 0; other /= 2) {
        const extent there = {__shfl_xor_sync(mcp_all_lanes, e.largest, other),
                              __shfl_xor_sync(mcp_all_lanes, e.sum, other)};
        e = both(e, there);
    }
    if (lane == 0) {
        largest[warp] = e.largest;
        sum[warp] = e.sum;
    }
    __syncthreads();
    e = {-INFINITY, 0};
    for (int i = 0; i < static_cast<int>(blockDim.x) / mcp_warp; i++)
        e = both(e, {largest[i], sum[i]});
    return e;
}

/* Logits with their bias, which is stored. */
template <int N>
static __device__ __forceinline__ void load_whole(const struct mcp_cuda_loss &op, int64_t at,
                                                  int64_t c, float (&x)[N])
{
    mcp_load(op.logits, at + c, x);
    if (op.bias.data == nullptr)
        return;
    add_row(op.bias, c, x);
    mcp_store(op.logits, at + c, x);
    mcp_load(op.logits, at + c, x); /* as they are stored */
}

/* The last pack may reach into the padding, where no logit is. */
template <int N>
static __device__ __forceinline__ void load_logits(const struct mcp_cuda_loss &op, int64_t at,
                                                   int64_t c, float (&x)[N])
{
    if (c + N <= op.columns) {
        load_whole(op, at, c, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        float one[1] = {-INFINITY};
        if (c + i < op.columns)
            load_whole(op, at, c + i, one);
        x[i] = one[0];
    }
}

template <int N> static __global__ void loss_max(struct mcp_cuda_loss op)
{
    const int64_t token = blockIdx.x, at = token * op.stride;
    const int64_t row = local_row(op.targets[token], op.first_id, op.vocab_local);
    extent e = {-INFINITY, 0};
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < op.columns; c += blockDim.x * N) {
        float x[N];
        extent mine = {-INFINITY, 0};
        load_logits(op, at, c, x);
#pragma unroll
        for (int i = 0; i < N; i++)
            mine.largest = mcp_larger(mine.largest, x[i]);
#pragma unroll
        for (int i = 0; i < N; i++)
            mine.sum += expf(x[i] - mine.largest);
        e = both(e, mine);
    }
    e = block_extent(e); /* after which the bias is in all logits */
    if (threadIdx.x > 0)
        return;
    op.numbers[token] = e.largest;
    op.numbers[op.tokens + token] = e.largest + logf(e.sum);
    op.numbers[2 * op.tokens + token] = row < 0 ? 0 : mcp_load_one(op.logits, at + row);
}

static bool is_wide(const struct mcp_cuda_loss *op)
{
    return mcp_are_wide(op->logits, op->bias, op->stride);
}

void mcp_cuda_loss_max(const struct mcp_cuda_loss *op, const mcp_cuda_queue *queue)
{
    const bool wide = is_wide(op);
    if (op->tokens > 0)
        MCP_LAUNCH_PACKS(wide, loss_max, static_cast<unsigned>(op->tokens),
                         mcp_row_threads(op->columns / mcp_width(wide)), 0, queue->stream, *op);
}

static __global__ void loss_sums(struct mcp_cuda_loss op)
{
    const int64_t token = mcp_thread();
    if (token < op.tokens)
        op.numbers[op.tokens + token] = expf(op.numbers[op.tokens + token] - op.numbers[token]);
}

void mcp_cuda_loss_sums(const struct mcp_cuda_loss *op, const mcp_cuda_queue *queue)
{
    if (op->tokens > 0)
        MCP_LAUNCH(loss_sums, mcp_blocks(op->tokens), mcp_threads, 0, queue->stream, *op);
}

/* One block adds up the losses of all tokens. */
static __global__ void add_losses(struct mcp_cuda_loss op)
{
    double loss = 0;
    for (int64_t i = threadIdx.x; i < op.tokens; i += blockDim.x)
        loss += log(static_cast<double>(op.numbers[op.tokens + i])) +
                static_cast<double>(op.numbers[i] - op.numbers[2 * op.tokens + i]);
    loss = mcp_block_sum(loss);
    if (threadIdx.x == 0)
        *op.loss += static_cast<float>(loss);
}

template <int N> static __global__ void loss_forward(struct mcp_cuda_loss op)
{
    const int64_t token = blockIdx.x, at = token * op.stride;
    const int64_t row = local_row(op.targets[token], op.first_id, op.vocab_local);
    const float sum_log = op.numbers[token] + logf(op.numbers[op.tokens + token]);
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < op.stride; c += blockDim.x * N) {
        float x[N];
        mcp_load(op.logits, at + c, x);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = c + i < op.columns ? expf(x[i] - sum_log) - (c + i == row ? 1 : 0) : 0;
        mcp_store(op.logits, at + c, x);
    }
}

void mcp_cuda_loss_forward(const struct mcp_cuda_loss *op, const mcp_cuda_queue *queue)
{
    const bool wide = mcp_are_wide(op->logits, op->stride);
    if (op->tokens <= 0)
        return;
    MCP_LAUNCH(add_losses, 1, 1024, 0, queue->stream, *op);
    MCP_LAUNCH_PACKS(wide, loss_forward, static_cast<unsigned>(op->tokens),
                     mcp_row_threads(op->stride / mcp_width(wide)), 0, queue->stream, *op);
}
