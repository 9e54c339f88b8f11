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

/* A warp's rows of keys, and queries of a tile. */
template <int D> constexpr int key_row_tiles = D == 64 ? 2 : 1;
template <int D> constexpr int block_keys = mcp_flash_warps * 16 * key_row_tiles<D>;
constexpr int tile_rows = 32;
/* One place of two: queries, gradients of outputs, statistics, deltas; in numbers of 2 bytes. */
template <int D> constexpr int place_size = tile_rows *(2 * D + 4);
template <int D> constexpr size_t key_bytes = (2 * block_keys<D> * D + 2 * place_size<D>)*2;

/* The group's heads of queries, one after the other; of each its tiles. */
struct head_walk {
    mcp_flash_walk walk;
    int head, last;
};

static __device__ __forceinline__ bool next_queries(const struct mcp_cuda_attention &op,
                                                    head_walk *heads, mcp_flash_tile *tile)
{
    while (!mcp_flash_next<tile_rows>(op.queries, &heads->walk, tile)) {
        if (heads->head == heads->last)
            return false;
        heads->head++;
        heads->walk = mcp_flash_walk_over(heads->walk.low, heads->walk.high);
    }
    return true;
}

template <int D>
static __device__ __forceinline__ void load_queries(const flash_back &b, int head,
                                                    const mcp_flash_tile &tile, unsigned short *to)
{
    const struct mcp_cuda_attention &op = b.op;
    const mcp_flash_sides<D> sides = mcp_flash_sides_of<D>(op, head);
    mcp_flash_load<D, tile_rows>(to, sides.query, op.heads, tile);
    mcp_flash_load<D, tile_rows>(to + tile_rows * D, sides.d_output, op.heads, tile);
    auto *numbers = reinterpret_cast<float *>(to + 2 * tile_rows * D);
    const int row = static_cast<int>(threadIdx.x) % tile_rows;
    const int64_t at = mcp_flash_first_row(op) + tile.row + row;
    if (mcp_flash_warp() == 0)
        mcp_copy_async<4>(numbers + row, op.statistics + at * op.heads + head, row < tile.count);
    if (mcp_flash_warp() == 1)
        mcp_copy_async<4>(numbers + tile_rows + row, delta_at(b, at, head), row < tile.count);
}

/* Scores become P, and dP becomes P (dP - D); columns are queries. */
template <int M, int N>
static __device__ __forceinline__ void differentiate_columns(float scale, const float *numbers,
                                                             mcp_flash_sums<M, N> *scores,
                                                             mcp_flash_sums<M, N> *dp)
{
    const int lane = mcp_flash_lane();
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        const int column = i / 2 * 8 + lane % 4 * 2 + i % 2;
        const float base = base_of(numbers[column]), delta = numbers[8 * N + column];
#pragma unroll
        for (int row = 0; row < 2 * M; row++) {
            float &p = scores->at[row / 2][i / 2][row % 2 * 2 + i % 2];
            float &d = dp->at[row / 2][i / 2][row % 2 * 2 + i % 2];
            p = mcp_power_of_two(p * scale - base);
            d = p * (d - delta);
        }
    }
}

template <int D> struct key_sums {
    mcp_flash_sums<key_row_tiles<D>, D / 8> key, value;
};

/* dK += dS^T Q and dV += P^T dO of one tile. */
template <int D>
static __device__ __forceinline__ void
add_queries(const struct mcp_cuda_attention &op, const mcp_flash_tile &queries,
            const mcp_flash_tile &keys, const unsigned short *key, const unsigned short *query,
            key_sums<D> *sums)
{
    constexpr int M = key_row_tiles<D>;
    const unsigned short *d_output = query + tile_rows * D, *value = key + block_keys<D> * D;
    const auto *numbers = reinterpret_cast<const float *>(query + 2 * tile_rows * D);
    const int first = mcp_flash_warp() * 16 * M;
    mcp_flash_sums<M, tile_rows / 8> scores = {}, dp = {};
    mcp_flash_dot<D, 2>(key, first, query, &scores);
    mcp_flash_dot<D, 2>(value, first, d_output, &dp);
    if (!mcp_flash_all_seen<block_keys<D>>(op, queries, keys))
        mcp_flash_mask_columns(op, queries, first, keys, &scores);
    differentiate_columns(op.scale * mcp_log2_e, numbers, &scores, &dp);
    mcp_flash_add<D>(scores, d_output, &sums->value);
    mcp_flash_add<D>(dp, query, &sums->key);
}

template <int D>
static __device__ __forceinline__ void store_keys(const struct mcp_cuda_attention &op,
                                                  const mcp_flash_tile &keys, int kv_head,
                                                  const key_sums<D> &sums)
{
    const int64_t row_0 = mcp_flash_first_row(op) + keys.row, stride = 2 * op.kv_heads * D;
    const int first = mcp_flash_warp() * 16 * key_row_tiles<D>;
    mcp_flash_put({mcp_bits(op.d_kv, mcp_key_at(op, row_0, kv_head)), stride, first, keys.count,
                   op.scale, false},
                  sums.key);
    mcp_flash_put(
        {mcp_bits(op.d_kv, mcp_value_at(op, row_0, kv_head)), stride, first, keys.count, 1, false},
        sums.value);
}

template <int D>
static __global__ void __launch_bounds__(mcp_flash_threads) flash_keys(struct flash_back b)
{
    MCP_SHARED_ARRAY(unsigned short, key);
    const struct mcp_cuda_attention &op = b.op;
    unsigned short *const query = key + 2 * block_keys<D> * D;
    const int kv_head = b.first_kv_head + static_cast<int>(blockIdx.y), group = group_of(op);
    const mcp_flash_tile keys = mcp_flash_tile_at(op.keys, block_keys<D>, blockIdx.x);
    const int last = mcp_flash_highest(op, keys.position + keys.count - 1);
    head_walk heads = {mcp_flash_walk_over(keys.position, last), kv_head * group,
                       kv_head * group + group - 1};
    key_sums<D> sums = {};
    mcp_flash_tile next;
    bool more = next_queries(op, &heads, &next);
    if (more) {
        const mcp_flash_sides<D> sides = mcp_flash_sides_of<D>(op, heads.head);
        mcp_flash_load<D, block_keys<D>>(key, sides.key, 2 * op.kv_heads, keys);
        mcp_flash_load<D, block_keys<D>>(key + block_keys<D> * D, sides.value, 2 * op.kv_heads,
                                         keys);
        load_queries<D>(b, heads.head, next, query);
    }
    for (int place = 0; more; place ^= 1) {
        const mcp_flash_tile queries = next;
        mcp_wait_for_copies();
        __syncthreads(); /* queries have come; those in the other place have been read */
        more = next_queries(op, &heads, &next);
        if (more)
            load_queries<D>(b, heads.head, next, query + (place ^ 1) * place_size<D>);
        add_queries(op, queries, keys, key, query + place * place_size<D>, &sums);
    }
    store_keys(op, keys, kv_head, sums);
}

/* --- launches --- */

template <int D> static void launch(const flash_back &b, void *stream)
{
    const struct mcp_cuda_attention &op = b.op;
    const auto heads = static_cast<unsigned>(b.kv_heads), batch = static_cast<unsigned>(op.batch);
    const auto group = static_cast<unsigned>(op.heads / op.kv_heads);
    const dim3 queries(static_cast<unsigned>(mcp_num_tiles(op.queries, tile_queries<D>)),
                       heads * group, batch);
    const dim3 keys(static_cast<unsigned>(mcp_num_tiles(op.keys, block_keys<D>)), heads, batch);
    MCP_ALLOW_SHARED(flash_queries<D>, query_bytes<D>);
    MCP_ALLOW_SHARED(flash_keys<D>, key_bytes<D>);
    MCP_LAUNCH(flash_queries<D>, queries, mcp_flash_threads, query_bytes<D>, stream, b);
    MCP_LAUNCH(flash_keys<D>, keys, mcp_flash_threads, key_bytes<D>, stream, b);
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
