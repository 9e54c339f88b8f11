/* exec/cuda_kernels_experts.cu: which experts a token goes to, and its rows on their way.
 *
 * Sorted rows are by expert, then by token. Where a token's row of an expert is: tokens of each
 * expert are counted by tiles of tokens; rows before a tile's of an expert are the sum of what
 * comes earlier; within the tile they are counted again. */
#include "exec/cuda_parts.cuh"

/* --- routing: a warp has a token --- */

static __device__ __forceinline__ int lane_of()
{
    return static_cast<int>(threadIdx.x) % mcp_warp;
}

/* The warp's token, or past the last. */
static __device__ __forceinline__ int64_t warp_item()
{
    return mcp_thread() / mcp_warp;
}

/* row[experts] becomes its softmax; each lane has every 32nd. */
static __device__ __forceinline__ void soften(float *row, int64_t experts)
{
    float largest = -INFINITY, sum = 0;
    for (int64_t i = lane_of(); i < experts; i += mcp_warp)
        largest = mcp_larger(largest, row[i]);
    largest = mcp_warp_largest(largest);
    for (int64_t i = lane_of(); i < experts; i += mcp_warp) {
        row[i] = expf(row[i] - largest);
        sum += row[i];
    }
    sum = mcp_warp_sum(sum);
    for (int64_t i = lane_of(); i < experts; i += mcp_warp)
        row[i] /= sum;
}

struct candidate {
    float probability;
    int expert; /* -1: none */
};

/* The larger, ties to the lower number. */
static __device__ __forceinline__ candidate better(candidate x, candidate y)
{
    if (x.expert < 0)
        return y;
    const bool wins = y.expert >= 0 && (y.probability > x.probability ||
                                        (y.probability == x.probability && y.expert < x.expert));
    return wins ? y : x;
}

/* The best that has no share yet, in every lane. */
static __device__ __forceinline__ candidate best_of(const float *probabilities, const float *shares,
                                                    int64_t experts)
{
    candidate best = {-1, -1};
    for (int64_t i = lane_of(); i < experts; i += mcp_warp)
        if (shares[i] < 0) /* what is no number comes last: lanes must agree */
            best =
                better(best, {probabilities[i] >= 0 ? probabilities[i] : -1, static_cast<int>(i)});
#pragma unroll
    for (int other = mcp_warp / 2; other > 0; other /= 2) {
        const candidate there = {__shfl_xor_sync(mcp_all_lanes, best.probability, other),
                                 __shfl_xor_sync(mcp_all_lanes, best.expert, other)};
        best = better(best, there);
    }
    return best;
}

/* The chosen get shares, the others -1; a lane writes and reads its own experts' alone. */
static __device__ __forceinline__ void choose(const mcp_cuda_routing &r, const float *probabilities,
                                              float *shares)
{
    float sum = 0;
    for (int64_t i = lane_of(); i < r.experts; i += mcp_warp)
        shares[i] = -1;
    for (int64_t k = 0; k < r.experts_per_token; k++) {
        const candidate best = best_of(probabilities, shares, r.experts);
        if (best.expert % mcp_warp == lane_of())
            shares[best.expert] = probabilities[best.expert];
        sum += probabilities[best.expert];
    }
    for (int64_t i = lane_of(); i < r.experts && !r.raw_top_k; i += mcp_warp)
        shares[i] = shares[i] >= 0 ? shares[i] / sum : shares[i];
}

static __global__ void router_top_k(mcp_cuda_router op)
{
    const mcp_cuda_routing &r = op.routing;
    const int64_t token = warp_item();
    float *row = r.values + token * r.experts;
    if (token >= r.tokens)
        return;
    for (int64_t i = lane_of(); i < r.experts; i += mcp_warp)
        row[i] = mcp_load_one(op.logits, token * r.experts + i) +
                 (op.bias.data != nullptr ? mcp_load_one(op.bias, i) : 0);
    soften(row, r.experts);
    __syncwarp();
    choose(r, row, row + r.tokens * r.experts);
}

void mcp_cuda_router_top_k(const mcp_cuda_router *op, const mcp_cuda_queue *queue)
{
    if (op->routing.tokens > 0)
        MCP_LAUNCH(router_top_k, mcp_blocks(op->routing.tokens * mcp_warp), mcp_threads, 0,
                   queue->stream, *op);
}

/* Through the division by the sum, then through the softmax. */
static __global__ void router_backward(mcp_cuda_router op)
{
    const mcp_cuda_routing &r = op.routing;
    const int64_t token = warp_item(), at = token * r.experts;
    const float *p = r.values + at, *shares = p + r.tokens * r.experts;
    float sum = 0, inner = 0, product = 0;
    if (token >= r.tokens)
        return;
    for (int64_t i = lane_of(); i < r.experts; i += mcp_warp)
        if (shares[i] >= 0) {
            sum += p[i];
            inner += mcp_load_one(op.d_routing, at + i) * shares[i];
        }
    sum = mcp_warp_sum(sum);
    inner = mcp_warp_sum(inner);
    const float by = r.raw_top_k ? 1 : sum, less = r.raw_top_k ? 0 : inner;
    for (int64_t i = lane_of(); i < r.experts; i += mcp_warp)
        if (shares[i] >= 0)
            product += (mcp_load_one(op.d_routing, at + i) - less) / by * p[i];
    product = mcp_warp_sum(product);
    for (int64_t i = lane_of(); i < r.experts; i += mcp_warp) {
        const float d = shares[i] < 0 ? 0 : (mcp_load_one(op.d_routing, at + i) - less) / by;
        mcp_store_one(op.logits, at + i, p[i] * (d - product));
    }
}

void mcp_cuda_router_top_k_backward(const mcp_cuda_router *op, const mcp_cuda_queue *queue)
{
    if (op->routing.tokens > 0)
        MCP_LAUNCH(router_backward, mcp_blocks(op->routing.tokens * mcp_warp), mcp_threads, 0,
                   queue->stream, *op);
}

/* --- counts --- */

/* Of one op, in scratch memory: counts [experts][tiles], totals [experts], starts [experts]. */
struct rows_of_experts {
    int32_t *counts, *totals, *starts;
    int64_t tiles, tile_tokens;
};

/* Tiles of 32 tokens, or of more where the counts of so many would not fit. */
static rows_of_experts rows_of(const mcp_cuda_routing *r, const mcp_cuda_queue *queue)
{
    rows_of_experts rows;
    rows.tile_tokens = 32;
    rows.tiles = mcp_ceil(r->tokens, rows.tile_tokens);
    while ((rows.tiles + 2) * r->experts * 4 > MCP_CUDA_SCRATCH_BYTES && rows.tiles > 1) {
        rows.tile_tokens *= 2;
        rows.tiles = mcp_ceil(r->tokens, rows.tile_tokens);
    }
    rows.counts = static_cast<int32_t *>(queue->scratch);
    rows.totals = rows.counts + rows.tiles * r->experts;
    rows.starts = rows.totals + r->experts;
    return rows;
}

static __device__ __forceinline__ const float *shares_of(const mcp_cuda_routing &r)
{
    return r.values + r.tokens * r.experts;
}

/* counts[expert][tile]: a thread has both. */
static __global__ void count_tiles(mcp_cuda_routing r, rows_of_experts rows)
{
    const int64_t item = mcp_thread(), tile = mcp_divide(item, r.experts);
    const int64_t expert = item - tile * r.experts, end = (tile + 1) * rows.tile_tokens;
    const int64_t last = end < r.tokens ? end : r.tokens;
    int32_t count = 0;
    if (tile >= rows.tiles)
        return;
    for (int64_t token = tile * rows.tile_tokens; token < last; token++)
        count += shares_of(r)[token * r.experts + expert] >= 0;
    rows.counts[expert * rows.tiles + tile] = count;
}

/* Of one expert, by a warp: its counts become those of earlier tiles; totals[expert]. */
static __global__ void add_tiles(int32_t *counts, int64_t tiles, int32_t *totals, int64_t experts)
{
    const int64_t expert = warp_item();
    int32_t before = 0;
    if (expert >= experts)
        return;
    for (int64_t first = 0; first < tiles; first += mcp_warp) {
        const int64_t at = expert * tiles + first + lane_of();
        const bool inside = first + lane_of() < tiles;
        const int32_t count = inside ? counts[at] : 0;
        int32_t sum = count;
#pragma unroll
        for (int by = 1; by < mcp_warp; by *= 2) { /* Hillis and Steele 1986 */
            const int32_t other = __shfl_up_sync(mcp_all_lanes, sum, by);
            sum += lane_of() >= by ? other : 0;
        }
        if (inside)
            counts[at] = before + sum - count;
        before += __shfl_sync(mcp_all_lanes, sum, mcp_warp - 1);
    }
    if (lane_of() == 0)
        totals[expert] = before;
}

/* starts[expert] = rows of earlier experts, by one block. */
static __global__ void start_experts(const int32_t *totals, int64_t experts, int32_t *starts)
{
    MCP_SHARED(int32_t, sums, mcp_threads);
    const int thread = static_cast<int>(threadIdx.x);
    const int64_t share = mcp_ceil(experts, mcp_threads), first = thread * share;
    int32_t sum = 0;
    for (int64_t i = first; i < first + share && i < experts; i++)
        sum += totals[i];
    sums[thread] = sum;
    __syncthreads();
    int32_t before = 0;
    for (int i = 0; i < thread; i++)
        before += sums[i];
    for (int64_t i = first; i < first + share && i < experts; i++) {
        starts[i] = before;
        before += totals[i];
    }
}

/* Totals of each expert, into `totals`; counts become those before each tile. */
static void count_tokens(const mcp_cuda_routing *r, const rows_of_experts &rows, int32_t *totals,
                         const mcp_cuda_queue *queue)
{
    if (rows.tiles > 0)
        MCP_LAUNCH(count_tiles, mcp_blocks(rows.tiles * r->experts), mcp_threads, 0, queue->stream,
                   *r, rows);
    MCP_LAUNCH(add_tiles, mcp_blocks(r->experts * mcp_warp), mcp_threads, 0, queue->stream,
               rows.counts, rows.tiles, totals, r->experts);
}

static rows_of_experts count_rows(const mcp_cuda_routing *r, const mcp_cuda_queue *queue)
{
    const rows_of_experts rows = rows_of(r, queue);
    count_tokens(r, rows, rows.totals, queue);
    MCP_LAUNCH(start_experts, 1, mcp_threads, 0, queue->stream, rows.totals, r->experts,
               rows.starts);
    return rows;
}

void mcp_cuda_expert_counts(const mcp_cuda_routing *routing, int32_t *sizes,
                            const mcp_cuda_queue *queue)
{
    if (routing->experts > 0)
        count_tokens(routing, rows_of(routing, queue), sizes, queue);
}

/* --- rows: a block has a token --- */

/* One of a token's experts. */
struct route {
    int32_t expert, row;
    float share;
};

/* By a warp: a lane looks at a token of the tile before this one. */
static __device__ __forceinline__ int32_t row_of(const mcp_cuda_routing &r,
                                                 const rows_of_experts &rows, int64_t token,
                                                 int64_t expert)
{
    const int64_t tile = mcp_divide(token, rows.tile_tokens);
    int32_t row = rows.starts[expert] + rows.counts[expert * rows.tiles + tile];
    for (int64_t first = tile * rows.tile_tokens; first < token; first += mcp_warp) {
        const int64_t other = first + lane_of();
        const bool chosen = other < token && shares_of(r)[other * r.experts + expert] >= 0;
        row += __popc(__ballot_sync(mcp_all_lanes, chosen));
    }
    return row;
}

/* The token's experts in their order, by a warp; returns their number. */
static __device__ __forceinline__ int find_experts(const mcp_cuda_routing &r, int64_t token,
                                                   route *routes)
{
    int found = 0;
    for (int64_t first = 0; first < r.experts; first += mcp_warp) {
        const int64_t expert = first + lane_of();
        const float share = expert < r.experts ? shares_of(r)[token * r.experts + expert] : -1;
        const unsigned chosen = __ballot_sync(mcp_all_lanes, share >= 0);
        const int place = found + __popc(chosen & ((1u << lane_of()) - 1));
        if (share >= 0)
            routes[place] = {static_cast<int32_t>(expert), 0, share};
        found += __popc(chosen);
    }
    return found;
}

/* A token's row will be read when its routes are known. */
template <int N>
static __device__ __forceinline__ void prefetch_token(const struct mcp_cuda_permute &op,
                                                      int64_t token)
{
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < op.columns; c += blockDim.x * N)
        mcp_prefetch(mcp_place(op.tokens, token * op.columns + c));
}

/* The token's routes by expert, in shared memory, and their number, which is less than
 * experts_per_token where probabilities are no numbers; all threads of the block call it. */
static __device__ __forceinline__ int
find_routes(const mcp_cuda_routing &r, const rows_of_experts &rows, int64_t token, route *routes)
{
    MCP_SHARED(int, count, 1);
    const int warp = static_cast<int>(threadIdx.x) / mcp_warp;
    if (warp == 0) {
        const int found = find_experts(r, token, routes);
        if (lane_of() == 0)
            *count = found;
    }
    __syncthreads();
    for (int k = warp; k < *count; k += static_cast<int>(blockDim.x) / mcp_warp) {
        const int32_t row = row_of(r, rows, token, routes[k].expert);
        if (lane_of() == 0)
            routes[k].row = row;
    }
    __syncthreads(); /* rows are there */
    return *count;
}

template <int N>
static __global__ void __launch_bounds__(mcp_row_most, 2)
    permute(struct mcp_cuda_permute op, rows_of_experts rows)
{
    MCP_SHARED_ARRAY(route, routes);
    const int64_t token = blockIdx.x;
    prefetch_token<N>(op, token);
    const int count = find_routes(op.routing, rows, token, routes);
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < op.columns; c += blockDim.x * N) {
        float x[N];
        mcp_load(op.tokens, token * op.columns + c, x);
#pragma unroll 1
        for (int k = 0; k < count; k++)
            mcp_store(op.sorted, routes[k].row * op.columns + c, x);
    }
}

constexpr int rows_at_once = 4; /* that are on their way to a thread */

/* sum += weight x columns from c on of the sorted rows of these routes, in order. */
template <int N>
static __device__ __forceinline__ void add_routes(const struct mcp_cuda_permute &op,
                                                  const route *routes, int count, int64_t c,
                                                  float (&sum)[N], bool weighs)
{
    mcp_words<N> words[rows_at_once] = {};
#pragma unroll
    for (int k = 0; k < rows_at_once; k++)
        if (k < count)
            mcp_fetch(op.sorted, routes[k].row * op.columns + c, words[k]);
#pragma unroll
    for (int k = 0; k < rows_at_once; k++) {
        const float share = k >= count ? 0 : weighs ? routes[k].share : 1;
        float x[N];
        mcp_decode(op.sorted, words[k], x);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] += share * x[i];
    }
}

/* tokens = sums of share x sorted, or tokens += sums of sorted. */
template <int N>
static __global__ void __launch_bounds__(mcp_row_most, 2)
    gather(struct mcp_cuda_permute op, rows_of_experts rows, int adds)
{
    MCP_SHARED_ARRAY(route, routes);
    const int64_t token = blockIdx.x;
    const int count = find_routes(op.routing, rows, token, routes);
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < op.columns; c += blockDim.x * N) {
        float sum[N] = {}, x[N];
#pragma unroll 1
        for (int k = 0; k < count; k += rows_at_once)
            add_routes(op, routes + k, count - k, c, sum, adds == 0);
        if (adds) {
            mcp_load(op.tokens, token * op.columns + c, x);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[i] += x[i];
        }
        mcp_store(op.tokens, token * op.columns + c, sum);
    }
}

/* d_sorted = share x tokens; returns this thread's part of tokens . sorted. */
template <int N>
static __device__ __forceinline__ float share_row(const struct mcp_cuda_permute &op, int64_t token,
                                                  const route &to)
{
    float dot = 0;
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < op.columns; c += blockDim.x * N) {
        const int64_t at = to.row * op.columns + c;
        mcp_words<N> x_words, y_words;
        float x[N], y[N];
        mcp_fetch(op.tokens, token * op.columns + c, x_words);
        mcp_fetch(op.sorted, at, y_words);
        mcp_decode(op.tokens, x_words, x);
        mcp_decode(op.sorted, y_words, y);
#pragma unroll
        for (int i = 0; i < N; i++) {
            dot += x[i] * y[i];
            x[i] *= to.share;
        }
        mcp_store(op.d_sorted, at, x);
    }
    return dot;
}

template <int N>
static __global__ void __launch_bounds__(mcp_row_most, 3)
    share_back(struct mcp_cuda_permute op, rows_of_experts rows)
{
    MCP_SHARED_ARRAY(route, routes);
    const mcp_cuda_routing &r = op.routing;
    const int64_t token = blockIdx.x;
    prefetch_token<N>(op, token);
    const int count = find_routes(r, rows, token, routes);
    for (int64_t i = threadIdx.x; i < r.experts; i += blockDim.x)
        if (shares_of(r)[token * r.experts + i] < 0)
            mcp_store_one(op.d_routing, token * r.experts + i, 0);
    for (int k = 0; k < count; k++) {
        const float dot = mcp_block_sum(share_row<N>(op, token, routes[k]));
        if (threadIdx.x == 0)
            mcp_store_one(op.d_routing, token * r.experts + routes[k].expert, dot);
    }
}

static int pack_of(const struct mcp_cuda_permute *op)
{
    return mcp_pack_for(op->tokens, op->sorted, op->d_sorted, op->columns);
}

#define LAUNCH_ROWS(kernel, ...)                                                                   \
    do {                                                                                           \
        const int pack = pack_of(op);                                                              \
        const auto bytes = static_cast<size_t>(op->routing.experts_per_token) * sizeof(route);     \
        if (op->routing.tokens <= 0 || op->columns <= 0)                                           \
            return;                                                                                \
        const rows_of_experts rows = count_rows(&op->routing, queue);                              \
        MCP_LAUNCH_PACKS(pack, kernel, static_cast<unsigned>(op->routing.tokens),                  \
                         mcp_row_threads(op->columns / pack), bytes, queue->stream, *op, rows,     \
                         ##__VA_ARGS__);                                                           \
    } while (0)

void mcp_cuda_permute(const struct mcp_cuda_permute *op, const mcp_cuda_queue *queue)
{
    LAUNCH_ROWS(permute);
}

void mcp_cuda_permute_backward(const struct mcp_cuda_permute *op, const mcp_cuda_queue *queue)
{
    LAUNCH_ROWS(gather, 1);
}

void mcp_cuda_unpermute(const struct mcp_cuda_permute *op, const mcp_cuda_queue *queue)
{
    LAUNCH_ROWS(gather, 0);
}

void mcp_cuda_unpermute_backward(const struct mcp_cuda_permute *op, const mcp_cuda_queue *queue)
{
    LAUNCH_ROWS(share_back);
}
