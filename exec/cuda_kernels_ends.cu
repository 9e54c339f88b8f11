/* exec/cuda_kernels_ends.cu: embedding, and the loss over a vocabulary that ranks share. */
#include "exec/cuda_parts.cuh"

/* Row of this rank's part of the vocabulary that a token has, or -1. */
static __device__ __forceinline__ int64_t local_row(int32_t id, int64_t first, int64_t count)
{
    const int64_t row = id - first;
    return row >= 0 && row < count ? row : -1;
}

/* --- embedding --- */

/* A block has a token. */
template <int N>
static __global__ void __launch_bounds__(mcp_row_most) embedding(struct mcp_cuda_embedding op)
{
    const int64_t token = blockIdx.x, row = local_row(op.ids[token], op.first_id, op.vocab_local);
    const int64_t position = op.positions.data == nullptr ? 0 : mcp_position_of(op.place, token);
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < op.columns; c += blockDim.x * N) {
        float x[N] = {}, more[N];
        if (row >= 0)
            mcp_load(op.table, row * op.columns + c, x);
        mcp_load_or(op.positions, position * op.columns + c, 0, more);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] += more[i];
        mcp_store(op.rows, token * op.columns + c, x);
    }
}

static int pack_of(const struct mcp_cuda_embedding *op)
{
    return mcp_pack_for(op->table, op->positions, op->rows, op->columns);
}

void mcp_cuda_embedding(const struct mcp_cuda_embedding *op, const mcp_cuda_queue *queue)
{
    const int pack = pack_of(op);
    if (op->tokens > 0 && op->columns > 0)
        MCP_LAUNCH_PACKS(pack, embedding, static_cast<unsigned>(op->tokens),
                         mcp_row_threads(op->columns / pack), 0, queue->stream, *op);
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

/* Which of the tokens [first, first + mcp_threads) have this id: a bit each, in same[]. Blocks
 * have two of these in turn, so that one is still read while the other is written. */
static __device__ __forceinline__ void find_same(const struct mcp_cuda_embedding &op, int64_t first,
                                                 int32_t id, unsigned *same)
{
    const int thread = static_cast<int>(threadIdx.x);
    const int64_t token = first + thread;
    const unsigned votes = __ballot_sync(mcp_all_lanes, token < op.tokens && op.ids[token] == id);
    if (thread % mcp_warp == 0)
        same[thread / mcp_warp] = votes;
    __syncthreads(); /* all votes are there, and what two strips ago left has been read */
}

constexpr int rows_at_once = 4; /* that are on their way to a thread */

/* sum += those of the rows [first, first + 32) whose bits are set, in order. One after the other
 * they would take a memory's latency each, and the most frequent token has many. */
template <int N>
static __device__ __forceinline__ void add_rows(const struct mcp_cuda_embedding &op, int64_t first,
                                                unsigned bits, int64_t column, float (&sum)[N])
{
    while (bits != 0) {
        mcp_words<N> words[rows_at_once] = {};
        const int count = __popc(bits);
#pragma unroll
        for (int k = 0; k < rows_at_once; k++) {
            if (k < count)
                mcp_fetch(op.rows,
                          (first + __ffs(static_cast<int>(bits)) - 1) * op.columns + column,
                          words[k]);
            bits &= bits - 1;
        }
#pragma unroll
        for (int k = 0; k < rows_at_once; k++) {
            float x[N];
            mcp_decode(op.rows, words[k], x);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[i] += k < count ? x[i] : 0;
        }
    }
}

/* The first token of an id adds up the gradients of all that have it, in order; a block has one
 * and a strip of columns. */
template <int N> static __global__ void embedding_backward(struct mcp_cuda_embedding op)
{
    constexpr int words = mcp_threads / mcp_warp;
    MCP_SHARED(unsigned, same, 2 * words);
    const int64_t token = blockIdx.x;
    const int64_t c = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
    const int32_t id = op.ids[token];
    const int64_t row = local_row(id, op.first_id, op.vocab_local);
    float sum[N] = {};
    if (row < 0)
        return;
    for (int64_t first = 0; first < op.tokens; first += mcp_threads) {
        unsigned *const here = same + first / mcp_threads % 2 * words;
        find_same(op, first, id, here);
        for (int w = 0; w < words; w++) {
            const int64_t begin = first + w * mcp_warp;
            if (here[w] != 0 && begin + __ffs(static_cast<int>(here[w])) - 1 < token)
                return; /* all threads: it is another block's */
            if (c < op.columns)
                add_rows(op, begin, here[w], c, sum);
        }
    }
    if (c >= op.columns)
        return;
    add_row(op.table, row * op.columns + c, sum);
    mcp_store(op.table, row * op.columns + c, sum);
}

/* A block has a position of this rank: the same token of each sequence. */
template <int N>
static __global__ void __launch_bounds__(mcp_row_most)
    positions_backward(struct mcp_cuda_embedding op)
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
    const int pack = pack_of(op);
    const int64_t packs = op->columns / pack;
    const dim3 grid(static_cast<unsigned>(op->tokens), mcp_blocks(packs));
    if (op->tokens <= 0 || op->columns <= 0)
        return;
    MCP_LAUNCH_PACKS(pack, embedding_backward, grid, mcp_threads, 0, queue->stream, *op);
    const int64_t local = op->place.sequence_local;
    if (op->positions.data != nullptr)
        MCP_LAUNCH_PACKS(pack, positions_backward,
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
    const float of_x = x.largest == largest ? x.sum : x.sum * mcp_exp(x.largest - largest);
    const float of_y = y.largest == largest ? y.sum : y.sum * mcp_exp(y.largest - largest);
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

/* The bias is added to logits, and they are stored. */
template <int N>
static __device__ __forceinline__ void add_bias(const struct mcp_cuda_loss &op, int64_t at,
                                                int64_t c, float (&x)[N])
{
    if (op.bias.data == nullptr)
        return;
    add_row(op.bias, c, x);
    mcp_store(op.logits, at + c, x);
    mcp_load(op.logits, at + c, x); /* as they are stored */
}

/* The last pack reaches into the padding, where no logit is. */
template <int N>
static __device__ __forceinline__ void load_last(const struct mcp_cuda_loss &op, int64_t at,
                                                 int64_t c, float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        float one[1] = {-INFINITY};
        if (c + i < op.columns) {
            mcp_load(op.logits, at + c + i, one);
            add_bias(op, at, c + i, one);
        }
        x[i] = one[0];
    }
}

/* A block has a token; a pack is on its way while the one before is worked on. */
template <int N>
static __global__ void __launch_bounds__(mcp_row_most, 2) loss_max(struct mcp_cuda_loss op)
{
    const int64_t token = blockIdx.x, at = token * op.stride;
    const int64_t row = local_row(op.targets[token], op.first_id, op.vocab_local);
    const int64_t step = static_cast<int64_t>(blockDim.x) * N, begin = threadIdx.x * N;
    mcp_words<N> next = {}, words;
    extent e = {-INFINITY, 0};
    if (begin + N <= op.columns)
        mcp_fetch(op.logits, at + begin, next);
    for (int64_t c = begin; c < op.columns; c += step) {
        float x[N];
        extent mine = {-INFINITY, 0};
        words = next;
        if (c + step + N <= op.columns)
            mcp_fetch(op.logits, at + c + step, next);
        mcp_decode(op.logits, words, x);
        if (c + N <= op.columns)
            add_bias(op, at, c, x);
        else
            load_last(op, at, c, x);
#pragma unroll
        for (int i = 0; i < N; i++)
            mine.largest = mcp_larger(mine.largest, x[i]);
#pragma unroll
        for (int i = 0; i < N; i++)
            mine.sum += mcp_exp(x[i] - mine.largest);
        e = both(e, mine);
    }
    e = block_extent(e); /* after which the bias is in all logits */
    if (threadIdx.x > 0)
        return;
    op.numbers[token] = e.largest;
    op.numbers[op.tokens + token] = e.largest + logf(e.sum);
    op.numbers[2 * op.tokens + token] = row < 0 ? 0 : mcp_load_one(op.logits, at + row);
}

static int pack_of(const struct mcp_cuda_loss *op)
{
    return mcp_pack_for(op->logits, op->bias, op->stride);
}

void mcp_cuda_loss_max(const struct mcp_cuda_loss *op, const mcp_cuda_queue *queue)
{
    const int pack = pack_of(op);
    if (op->tokens > 0)
        MCP_LAUNCH_PACKS(pack, loss_max, static_cast<unsigned>(op->tokens),
                         mcp_row_threads(op->columns / pack), 0, queue->stream, *op);
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
static __global__ void __launch_bounds__(mcp_block_most) add_losses(struct mcp_cuda_loss op)
{
    double loss = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < op.tokens; i += blockDim.x)
        loss += static_cast<double>(logf(op.numbers[op.tokens + i]) +
                                    (op.numbers[i] - op.numbers[2 * op.tokens + i]));
    loss = mcp_block_sum(loss);
    if (threadIdx.x == 0)
        *op.loss += static_cast<float>(loss);
}

/* x becomes softmax less 1 at the target, and 0 in padding, of which a pack may have some: it has
 * `real` columns, and the target at `target`, or not. */
template <int N>
static __device__ __forceinline__ void differentiate(float sum_log, int64_t real, int64_t target,
                                                     float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = mcp_exp(x[i] - sum_log);
    if (target >= 0 && target < N)
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] -= i == static_cast<int>(target) ? 1.0f : 0.0f;
    if (real < N)
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = i < static_cast<int>(real > 0 ? real : 0) ? x[i] : 0;
}

template <int N>
static __global__ void __launch_bounds__(mcp_row_most, 3) loss_forward(struct mcp_cuda_loss op)
{
    const int64_t token = blockIdx.x, at = token * op.stride;
    const int64_t row = local_row(op.targets[token], op.first_id, op.vocab_local);
    const int64_t step = static_cast<int64_t>(blockDim.x) * N, begin = threadIdx.x * N;
    const float sum_log = op.numbers[token] + logf(op.numbers[op.tokens + token]);
    mcp_words<N> next = {}, words;
    if (begin < op.stride)
        mcp_fetch(op.logits, at + begin, next);
    for (int64_t c = begin; c < op.stride; c += step) {
        float x[N];
        words = next;
        if (c + step < op.stride)
            mcp_fetch(op.logits, at + c + step, next);
        mcp_decode(op.logits, words, x);
        differentiate(sum_log, op.columns - c, row - c, x);
        mcp_store(op.logits, at + c, x);
    }
}

void mcp_cuda_loss_forward(const struct mcp_cuda_loss *op, const mcp_cuda_queue *queue)
{
    const int pack = mcp_pack_for(op->logits, op->stride);
    if (op->tokens <= 0)
        return;
    MCP_LAUNCH(add_losses, 1, mcp_block_most, 0, queue->stream, *op);
    MCP_LAUNCH_PACKS(pack, loss_forward, static_cast<unsigned>(op->tokens),
                     mcp_row_threads(op->stride / pack), 0, queue->stream, *op);
}
