/* exec/cuda_kernels_flash_back.cu: attention, backward, by tensor cores: heads of 64 or 128 in
 * bf16.
 *
 * The sums of exec/cuda_kernels_attention_back.cu, of which each has one owner: the first kernel
 * has queries' gradients, and leaves each row's rowsum(dO * O) behind in the scratch memory; the
 * second has keys' and values'. Scores are computed in both, so 7 products are made of the 5 that
 * are counted, and no order is left to chance (Dao 2023, section 3.2, adds dQ up by atomics). */
#include "exec/cuda_flash.cuh"

/* A part of the heads: those of as many heads of keys as the scratch memory has room for. */
struct flash_back {
    struct mcp_cuda_attention op;
    float *delta;                /* [rows][heads of the part] */
    int first_kv_head, kv_heads; /* of the part */
};

static __device__ __forceinline__ int group_of(const struct mcp_cuda_attention &op)
{
    return static_cast<int>(op.heads / op.kv_heads);
}

static __device__ __forceinline__ float *delta_at(const flash_back &b, int64_t row, int head)
{
    const int group = group_of(b.op);
    return b.delta + row * b.kv_heads * group + head - b.first_kv_head * group;
}

/* Powers of 2 from natural ones; rows that saw no key have no score that is not -infinity. */
static __device__ __forceinline__ float base_of(float statistic)
{
    return statistic == -INFINITY ? 0 : statistic * mcp_log2_e;
}

/* --- gradients of queries --- */

/* A warp's rows of queries, and keys of a tile. */
template <int D> constexpr int query_row_tiles = D == 64 ? 2 : 1;
template <int D> constexpr int tile_queries = mcp_flash_warps * 16 * query_row_tiles<D>;
template <int D> constexpr int tile_keys = D == 64 ? 32 : 64;
template <int D> constexpr size_t query_bytes = (2 * tile_queries<D> + 4 * tile_keys<D>)*D * 2;

/* Per row, 8 apart: its log-sum-exp in powers of 2, and rowsum(dO * O). */
template <int M> struct row_numbers {
    float base[2 * M], delta[2 * M];
};

/* Four lanes have a row. */
template <int D>
static __device__ __forceinline__ float delta_of(const unsigned short *output,
                                                 const unsigned short *d_output)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < D; i += 32) {
        const uint4 x = *reinterpret_cast<const uint4 *>(output + i);
        const uint4 y = *reinterpret_cast<const uint4 *>(d_output + i);
        const unsigned x_words[4] = {x.x, x.y, x.z, x.w}, y_words[4] = {y.x, y.y, y.z, y.w};
        float a[8], b[8];
        mcp_unpack(x_words, false, a);
        mcp_unpack(y_words, false, b);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum += a[j] * b[j];
    }
    sum += __shfl_xor_sync(mcp_all_lanes, sum, 1);
    return sum + __shfl_xor_sync(mcp_all_lanes, sum, 2);
}

template <int D, int M>
static __device__ __forceinline__ void
load_numbers(const flash_back &b, const mcp_flash_tile &queries, int head, row_numbers<M> *numbers)
{
    const struct mcp_cuda_attention &op = b.op;
    const int lane = mcp_flash_lane(), first = mcp_flash_warp() * 16 * M + lane / 4;
    const int64_t row_0 = mcp_flash_first_row(op) + queries.row;
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        const bool real = first + 8 * r < queries.count;
        const int64_t row = row_0 + (real ? first + 8 * r : 0); /* one that can be read */
        const int64_t at = mcp_output_at(op, row, head) + lane % 4 * 8;
        const float delta = delta_of<D>(mcp_bits(op.output, at), mcp_bits(op.d_output, at));
        numbers->base[r] = base_of(op.statistics[row * op.heads + head]);
        numbers->delta[r] = delta;
        if (real && lane % 4 == 0)
            *delta_at(b, row, head) = delta;
    }
}

/* dP becomes P (dP - D), P being what scores come to. */
template <int M, int N>
static __device__ __forceinline__ void differentiate(float scale, const row_numbers<M> &numbers,
                                                     const mcp_flash_sums<M, N> &scores,
                                                     mcp_flash_sums<M, N> *dp)
{
#pragma unroll
    for (int i = 0; i < 4 * M * N; i++) {
        const int m = i / (4 * N), n = i / 4 % N, r = 2 * m + i % 4 / 2;
        const float p = mcp_power_of_two(scores.at[m][n][i % 4] * scale - numbers.base[r]);
        dp->at[m][n][i % 4] = p * (dp->at[m][n][i % 4] - numbers.delta[r]);
    }
}

/* sums += dS K of one tile; keys and values lie one behind the other. */
template <int D, int M>
static __device__ __forceinline__ void
add_keys(const flash_back &b, const mcp_flash_tile &queries, const mcp_flash_tile &keys,
         const row_numbers<M> &numbers, const unsigned short *query, const unsigned short *key,
         mcp_flash_sums<M, D / 8> *sums)
{
    const unsigned short *d_output = query + tile_queries<D> * D, *value = key + tile_keys<D> * D;
    const int first = mcp_flash_warp() * 16 * M;
    mcp_flash_sums<M, tile_keys<D> / 8> scores = {}, dp = {};
    mcp_flash_dot<D, 2>(query, first, key, &scores);
    mcp_flash_dot<D, 2>(d_output, first, value, &dp);
    if (!mcp_flash_all_seen<tile_keys<D>>(b.op, queries, keys))
        mcp_flash_mask(b.op, queries, first, keys, &scores);
    differentiate(b.op.scale * mcp_log2_e, numbers, scores, &dp);
    mcp_flash_add<D>(dp, key, sums);
}

template <int D>
static __global__ void __launch_bounds__(mcp_flash_threads) flash_queries(struct flash_back b)
{
    MCP_SHARED_ARRAY(unsigned short, query);
    constexpr int M = query_row_tiles<D>;
    const struct mcp_cuda_attention &op = b.op;
    unsigned short *const d_output = query + tile_queries<D> * D;
    unsigned short *const key = d_output + tile_queries<D> * D;
    const int head = b.first_kv_head * group_of(op) + static_cast<int>(blockIdx.y);
    const mcp_flash_sides<D> sides = mcp_flash_sides_of<D>(op, head);
    const mcp_flash_tile queries =
        mcp_flash_tile_at(op.queries, tile_queries<D>, gridDim.x - 1 - blockIdx.x);
    mcp_flash_walk walk = mcp_flash_walk_over(mcp_flash_lowest(op, queries.position),
                                              queries.position + queries.count - 1);
    mcp_flash_sums<M, D / 8> sums = {};
    row_numbers<M> numbers;
    mcp_flash_tile next;
    bool more = mcp_flash_next<tile_keys<D>>(op.keys, &walk, &next);
    if (more) {
        mcp_flash_load<D, tile_queries<D>>(query, sides.query, op.heads, queries);
        mcp_flash_load<D, tile_queries<D>>(d_output, sides.d_output, op.heads, queries);
        mcp_flash_load_keys<D, tile_keys<D>>(key, sides, op.kv_heads, next);
    }
    load_numbers<D>(b, queries, head, &numbers);
    for (int place = 0; more; place ^= 1) {
        const mcp_flash_tile keys = next;
        mcp_wait_for_copies();
        __syncthreads(); /* keys have come; those in the other place have been read */
        more = mcp_flash_next<tile_keys<D>>(op.keys, &walk, &next);
        if (more)
            mcp_flash_load_keys<D, tile_keys<D>>(key + (place ^ 1) * 2 * tile_keys<D> * D, sides,
                                                 op.kv_heads, next);
        add_keys<D>(b, queries, keys, numbers, query, key + place * 2 * tile_keys<D> * D, &sums);
    }
    const int64_t row_0 = mcp_flash_first_row(op) + queries.row;
    mcp_flash_put({mcp_bits(op.d_query, mcp_query_at(op, row_0, head)), op.heads * D,
                   mcp_flash_warp() * 16 * M, queries.count, op.scale, op.adds != 0},
                  sums);
}

/* --- gradients of keys and values --- */

/* Registers hold gradients of 32 keys by 64 columns. So a warp has all of a head of 64; of one
 * of 128 two warps share the keys, of which each has half the columns, and half the tile's
 * scores: those they exchange through shared memory. A warp scores S queries: 32, or 16 where a
 * block has no more than 99 KiB (compute capability 8.6, 8.9, 12.0). */
constexpr int key_row_tiles = 2;
template <int D> constexpr int strips = D / 64;
template <int D> constexpr int block_keys = mcp_flash_warps / strips<D> * 16 * key_row_tiles;
template <int D, int S> constexpr int tile_rows = S *strips<D>; /* queries of a tile */
/* One place of two: queries, gradients of outputs, statistics, deltas; in numbers of 2 bytes. */
template <int D, int S> constexpr int place_size = tile_rows<D, S> *(2 * D + 4);
/* P and dS in rows of 64, if they are exchanged; in the same. */
template <int D> constexpr int shared_size = D == 64 ? 0 : block_keys<D> * 64;
template <int D, int S>
constexpr size_t key_bytes = (2 * block_keys<D> * D + 2 * place_size<D, S> + 2 * shared_size<D>)*2;

/* The group's heads of queries, one after the other; of each its tiles. */
struct head_walk {
    mcp_flash_walk walk;
    int head, last;
};

template <int D, int S>
static __device__ __forceinline__ bool next_queries(const struct mcp_cuda_attention &op,
                                                    head_walk *heads, mcp_flash_tile *tile)
{
    while (!mcp_flash_next<tile_rows<D, S>>(op.queries, &heads->walk, tile)) {
        if (heads->head == heads->last)
            return false;
        heads->head++;
        heads->walk = mcp_flash_walk_over(heads->walk.low, heads->walk.high);
    }
    return true;
}

template <int D, int S>
static __device__ __forceinline__ void load_queries(const flash_back &b, int head,
                                                    const mcp_flash_tile &tile, unsigned short *to)
{
    const struct mcp_cuda_attention &op = b.op;
    const mcp_flash_sides<D> sides = mcp_flash_sides_of<D>(op, head);
    mcp_flash_load<D, tile_rows<D, S>>(to, sides.query, op.heads, tile);
    mcp_flash_load<D, tile_rows<D, S>>(to + tile_rows<D, S> * D, sides.d_output, op.heads, tile);
    auto *numbers = reinterpret_cast<float *>(to + 2 * tile_rows<D, S> * D) + threadIdx.x;
    const int row = static_cast<int>(threadIdx.x) % tile_rows<D, S>;
    const int64_t at = mcp_flash_first_row(op) + tile.row + row;
    if (threadIdx.x < tile_rows<D, S>)
        mcp_copy_async<4>(numbers, op.statistics + at * op.heads + head, row < tile.count);
    else if (threadIdx.x < 2 * tile_rows<D, S>)
        mcp_copy_async<4>(numbers, delta_at(b, at, head), row < tile.count);
}

/* Scores become P; columns are queries. */
template <int M, int N>
static __device__ __forceinline__ void weigh_columns(float scale, const float *statistics,
                                                     mcp_flash_sums<M, N> *scores)
{
    const int lane = mcp_flash_lane();
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        const float base = base_of(statistics[i / 2 * 8 + lane % 4 * 2 + i % 2]);
#pragma unroll
        for (int row = 0; row < 2 * M; row++) {
            float &p = scores->at[row / 2][i / 2][row % 2 * 2 + i % 2];
            p = mcp_power_of_two(p * scale - base);
        }
    }
}

/* dP becomes P (dP - D), P as it is rounded; columns are queries. */
template <int M, int N>
static __device__ __forceinline__ void differentiate_columns(const float *deltas,
                                                             const mcp_flash_weights<M, N> &p,
                                                             mcp_flash_sums<M, N> *dp)
{
    const int lane = mcp_flash_lane();
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float delta[2] = {deltas[n * 8 + lane % 4 * 2], deltas[n * 8 + lane % 4 * 2 + 1]};
#pragma unroll
        for (int row = 0; row < 2 * M; row++) {
            float pair[2], *const d = &dp->at[row / 2][n][row % 2 * 2];
            mcp_unpack(&p.at[row / 2][n][row % 2], false, pair);
            d[0] = pair[0] * (d[0] - delta[0]);
            d[1] = pair[1] * (d[1] - delta[1]);
        }
    }
}

struct key_sums {
    mcp_flash_sums<key_row_tiles, 8> key, value;
};

/* A block's shared memory: `query` is the place of the tile. */
struct key_memory {
    const unsigned short *key, *query;
    unsigned short *exchange;
};

/* Where a warp works: its first key of the block's, and its strip. */
template <int D> static __device__ __forceinline__ int first_key()
{
    return mcp_flash_warp() / strips<D> * 16 * key_row_tiles;
}
template <int D> static __device__ __forceinline__ int strip_of()
{
    return mcp_flash_warp() % strips<D>;
}

/* dK += dS^T Q and dV += P^T dO of one tile. */
template <int D, int S>
static __device__ __forceinline__ void
add_queries(const struct mcp_cuda_attention &op, const mcp_flash_tile &queries,
            const mcp_flash_tile &keys, const key_memory &m, key_sums *sums)
{
    const int first = first_key<D>(), strip = strip_of<D>(), half = strip * S;
    const unsigned short *d_output = m.query + tile_rows<D, S> * D;
    const unsigned short *value = m.key + block_keys<D> * D;
    const auto *numbers = reinterpret_cast<const float *>(m.query + 2 * tile_rows<D, S> * D) + half;
    mcp_flash_sums<key_row_tiles, S / 8> scores = {}, dp = {};
    mcp_flash_dot<D, 2>(m.key, first, m.query + half * D, &scores);
    if (!mcp_flash_all_seen<block_keys<D>>(op, queries, keys))
        mcp_flash_mask_columns(op, queries.position + half, first, keys, &scores);
    weigh_columns(op.scale * mcp_log2_e, numbers, &scores);
    const auto p = mcp_flash_round(scores);
    mcp_flash_dot<D, 2>(value, first, d_output + half * D, &dp);
    differentiate_columns(numbers + tile_rows<D, S>, p, &dp);
    const auto ds = mcp_flash_round(dp);
    if constexpr (strips<D> == 1) {
        mcp_flash_add<D>(p, d_output, &sums->value);
        mcp_flash_add<D>(ds, m.query, &sums->key);
    } else {
        constexpr int rows = tile_rows<D, S>;
        unsigned short *const shared = m.exchange + first * 64;
        mcp_flash_share(p, strip, shared);
        mcp_flash_share(ds, strip, shared + shared_size<D>);
        __syncthreads(); /* both halves are there */
        mcp_flash_add_shared<D, rows>(shared, d_output, strip, &sums->value);
        mcp_flash_add_shared<D, rows>(shared + shared_size<D>, m.query, strip, &sums->key);
    }
}

template <int D>
static __device__ __forceinline__ void store_keys(const struct mcp_cuda_attention &op,
                                                  const mcp_flash_tile &keys, int kv_head,
                                                  const key_sums &sums)
{
    const int64_t row_0 = mcp_flash_first_row(op) + keys.row, stride = 2 * op.kv_heads * D;
    const int64_t key_at = mcp_key_at(op, row_0, kv_head) + 64 * strip_of<D>();
    const int64_t value_at = mcp_value_at(op, row_0, kv_head) + 64 * strip_of<D>();
    mcp_flash_put({mcp_bits(op.d_kv, key_at), stride, first_key<D>(), keys.count, op.scale, false},
                  sums.key);
    mcp_flash_put({mcp_bits(op.d_kv, value_at), stride, first_key<D>(), keys.count, 1, false},
                  sums.value);
}

template <int D, int S>
static __global__ void __launch_bounds__(mcp_flash_threads) flash_keys(struct flash_back b)
{
    MCP_SHARED_ARRAY(unsigned short, key);
    const struct mcp_cuda_attention &op = b.op;
    unsigned short *const places = key + 2 * block_keys<D> * D;
    const int kv_head = b.first_kv_head + static_cast<int>(blockIdx.y), group = group_of(op);
    const mcp_flash_tile keys = mcp_flash_tile_at(op.keys, block_keys<D>, blockIdx.x);
    const int last = mcp_flash_highest(op, keys.position + keys.count - 1);
    head_walk heads = {mcp_flash_walk_over(keys.position, last), kv_head * group,
                       kv_head * group + group - 1};
    key_sums sums = {};
    mcp_flash_tile next;
    bool more = next_queries<D, S>(op, &heads, &next);
    if (more) {
        mcp_flash_load_keys<D, block_keys<D>>(key, mcp_flash_sides_of<D>(op, heads.head),
                                              op.kv_heads, keys);
        load_queries<D, S>(b, heads.head, next, places);
    }
    for (int place = 0; more; place ^= 1) {
        const mcp_flash_tile queries = next;
        const key_memory m = {key, places + place * place_size<D, S>,
                              places + 2 * place_size<D, S>};
        mcp_wait_for_copies();
        __syncthreads(); /* queries have come; what was before has been read */
        more = next_queries<D, S>(op, &heads, &next);
        if (more)
            load_queries<D, S>(b, heads.head, next, places + (place ^ 1) * place_size<D, S>);
        add_queries<D, S>(op, queries, keys, m, &sums);
    }
    store_keys<D>(op, keys, kv_head, sums);
}

/* --- launches --- */

template <int D, int S> static void launch_keys(const flash_back &b, const dim3 &grid, void *stream)
{
    MCP_ALLOW_SHARED((flash_keys<D, S>), (key_bytes<D, S>));
    MCP_LAUNCH((flash_keys<D, S>), grid, mcp_flash_threads, (key_bytes<D, S>), stream, b);
}

template <int D> static void launch(const flash_back &b, void *stream)
{
    const struct mcp_cuda_attention &op = b.op;
    const auto heads = static_cast<unsigned>(b.kv_heads), batch = static_cast<unsigned>(op.batch);
    const auto group = static_cast<unsigned>(op.heads / op.kv_heads);
    const dim3 queries(static_cast<unsigned>(mcp_num_tiles(op.queries, tile_queries<D>)),
                       heads * group, batch);
    const dim3 keys(static_cast<unsigned>(mcp_num_tiles(op.keys, block_keys<D>)), heads, batch);
    MCP_ALLOW_SHARED(flash_queries<D>, query_bytes<D>);
    MCP_LAUNCH(flash_queries<D>, queries, mcp_flash_threads, query_bytes<D>, stream, b);
    if (D == 64 || key_bytes<D, 32> <= mcp_shared_limit())
        launch_keys<D, 32>(b, keys, stream);
    else if constexpr (D > 64)
        launch_keys<D, 16>(b, keys, stream);
}

/* Heads of keys whose queries' numbers fit into the scratch memory; may be 0. */
static int64_t kv_heads_that_fit(const struct mcp_cuda_attention *op, int64_t scratch_bytes)
{
    const int64_t rows = op->queries.num_ranks * op->queries.rank_rows;
    const int64_t room = scratch_bytes / 4 / (rows * (op->heads / op->kv_heads));
    return room < op->kv_heads ? room : op->kv_heads;
}

bool mcp_flash_attention_backward(const struct mcp_cuda_attention *op, int64_t scratch_bytes,
                                  const mcp_cuda_queue *queue)
{
    const bool some = op->queries.rank_rows > 0 && op->keys.rank_rows > 0 && op->kv_heads > 0;
    if (!some ||
        !mcp_flash_fits(op, op->query, op->kv, op->output, op->d_output, op->d_query, op->d_kv))
        return false;
    const int64_t heads = kv_heads_that_fit(op, scratch_bytes);
    for (int64_t head = 0; heads > 0 && head < op->kv_heads; head += heads) {
        const int64_t left = op->kv_heads - head;
        const flash_back b = {mcp_flash_op(op), mcp_scratch(queue), static_cast<int>(head),
                              static_cast<int>(heads < left ? heads : left)};
        if (op->head_dim == 64)
            launch<64>(b, queue->stream);
        else
            launch<128>(b, queue->stream);
    }
    return heads > 0;
}
