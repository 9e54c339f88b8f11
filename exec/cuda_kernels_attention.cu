/* exec/cuda_kernels_attention.cu: attention, forward, for heads of any size; and the merge of a
 * ring's parts. Softmax tile by tile: Milakov and Gimelshein 2018; Dao et al. 2022. */
#include "exec/cuda_attention.cuh"

/* A block's shared memory. */
struct forward_memory {
    float *query, *weights; /* [tile_queries][head_dim], [tile_queries][tile_keys] */
    mcp_kv_tile kv;
};

static __host__ __device__ __forceinline__ int64_t
forward_floats(const struct mcp_cuda_attention &op)
{
    return mcp_tile_queries * (op.head_dim + mcp_tile_keys) +
           mcp_tile_keys * (op.head_dim + 1 + op.value_head_dim);
}

static __device__ __forceinline__ forward_memory memory_of(const struct mcp_cuda_attention &op,
                                                           float *shared)
{
    const int width = static_cast<int>(op.head_dim);
    float *weights = shared + mcp_tile_queries * width;
    float *key = weights + mcp_tile_queries * mcp_tile_keys;
    return {
        shared,
        weights,
        {key, key + mcp_tile_keys * (width + 1), width + 1, static_cast<int>(op.value_head_dim)}};
}

/* A warp's rows: of each the largest score so far, this lane's sum of exponentials, the output. */
template <int C> struct rows_so_far {
    float largest[mcp_rows], sum[mcp_rows], output[mcp_rows][C];
};

/* Scores of a tile become weights, in shared memory; what there is so far is scaled. */
template <int C>
static __device__ __forceinline__ void
soften(const struct mcp_cuda_attention &op, const mcp_tile &queries, const mcp_tile &keys,
       float (&score)[mcp_rows], float *weights, rows_so_far<C> *rows)
{
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    const int first = static_cast<int>(threadIdx.x) / mcp_warp * mcp_rows;
#pragma unroll
    for (int r = 0; r < mcp_rows; r++) {
        if (first + r >= queries.count)
            continue; /* the whole warp: nobody reads this row */
        const bool sees =
            lane < keys.count && mcp_sees(op, queries.position + first + r, keys.position + lane);
        const float mine = sees ? score[r] * op.scale : -INFINITY;
        const float largest = mcp_larger(rows->largest[r], mcp_warp_largest(mine));
        const float weight = sees ? expf(mine - largest) : 0;
        const float factor = rows->largest[r] == largest ? 1 : expf(rows->largest[r] - largest);
        rows->largest[r] = largest;
        rows->sum[r] = rows->sum[r] * factor + weight;
        weights[r * mcp_tile_keys + lane] = weight;
#pragma unroll
        for (int c = 0; c < C; c++)
            rows->output[r][c] *= factor;
    }
    __syncwarp();
}

/* Rows that saw no key are 0, with a log of -infinity. */
template <int C>
static __device__ __forceinline__ void store_rows(const struct mcp_cuda_attention &op,
                                                  const mcp_tile &queries, int64_t head,
                                                  const rows_so_far<C> &rows)
{
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    const int first = static_cast<int>(threadIdx.x) / mcp_warp * mcp_rows;
#pragma unroll
    for (int r = 0; r < mcp_rows; r++) {
        if (first + r >= queries.count)
            continue; /* the whole warp */
        const float sum = mcp_warp_sum(rows.sum[r]), factor = sum > 0 ? 1 / sum : sum;
        const int64_t row = queries.row + first + r;
#pragma unroll
        for (int c = 0; c < C; c++)
            if (lane + c * mcp_warp < op.value_head_dim)
                mcp_store_one(op.output, mcp_output_at(op, row, head) + lane + c * mcp_warp,
                              rows.output[r][c] * factor);
        if (lane == 0)
            op.statistics[row * op.heads + head] = rows.largest[r] + logf(sum);
    }
}

template <int C>
static __global__ void __launch_bounds__(mcp_tile_threads) attention(struct mcp_cuda_attention op)
{
    MCP_SHARED_ARRAY(float, shared);
    const forward_memory m = memory_of(op, shared);
    const int64_t head = blockIdx.y, sequence = blockIdx.z * op.queries.sequence_local;
    const int64_t kv_head = head / (op.heads / op.kv_heads);
    const int warp = static_cast<int>(threadIdx.x) / mcp_warp;
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    mcp_tile queries = mcp_tile_at(op.queries, mcp_tile_queries, blockIdx.x);
    queries.row += sequence;
    float *weights = m.weights + warp * mcp_rows * mcp_tile_keys;
    rows_so_far<C> rows = {};
#pragma unroll
    for (int r = 0; r < mcp_rows; r++)
        rows.largest[r] = -INFINITY;
    mcp_load_tile({op.query, mcp_query_at(op, queries.row, head), op.heads * op.head_dim, m.query,
                   mcp_tile_queries, static_cast<int>(op.head_dim), static_cast<int>(op.head_dim)},
                  queries.count);
    for (int64_t t = 0; t < mcp_num_tiles(op.keys, mcp_tile_keys); t++) {
        mcp_tile keys = mcp_tile_at(op.keys, mcp_tile_keys, t);
        float score[mcp_rows];
        if (!mcp_tiles_meet(op, queries, keys))
            continue;
        keys.row += sequence;
        __syncthreads(); /* the last tile has been read */
        mcp_load_kv(op, keys, kv_head, m.kv);
        __syncthreads();
        mcp_dot_rows(m.query + warp * mcp_rows * op.head_dim, static_cast<int>(op.head_dim),
                     m.kv.key + lane * m.kv.key_stride, static_cast<int>(op.head_dim), score);
        soften(op, queries, keys, score, weights, &rows);
        mcp_add_weighted(weights, m.kv.value, m.kv.value_stride,
                         static_cast<int>(op.value_head_dim), rows.output);
    }
    store_rows(op, queries, head, rows);
}

#define LAUNCH_FORWARD(C)                                                                          \
    do {                                                                                           \
        MCP_ALLOW_SHARED((attention<C>), bytes);                                                   \
        MCP_LAUNCH((attention<C>), grid, mcp_tile_threads, bytes, queue->stream, *op);             \
    } while (0)

void mcp_cuda_attention(const struct mcp_cuda_attention *op, const mcp_cuda_queue *queue)
{
    if (mcp_flash_attention(op, queue))
        return;
    const int64_t tiles = mcp_num_tiles(op->queries, mcp_tile_queries);
    const auto bytes = static_cast<size_t>(forward_floats(*op)) * sizeof(float);
    const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(op->heads),
                    static_cast<unsigned>(op->batch));
    if (tiles > 0 && op->heads > 0 && op->batch > 0)
        MCP_BY_WIDTH(op, LAUNCH_FORWARD);
}

/* --- merge --- */

/* l'' = log(e^l + e^l'), each output weighted by its share of that; a warp has a head's row. */
template <int N> static __global__ void merge(struct mcp_cuda_merge op)
{
    const int64_t item = mcp_thread() / mcp_warp;
    if (item >= op.rows * op.heads)
        return;
    const float old = op.statistics[item], part = op.part_statistics[item];
    if (part == -INFINITY)
        return;
    const float largest = mcp_larger(old, part);
    const float sum = largest + logf(expf(old - largest) + expf(part - largest));
    const float old_share = expf(old - sum), new_share = expf(part - sum);
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    for (int64_t c = lane * N; c < op.width; c += mcp_warp * N) {
        const int64_t at = item * op.width + c;
        mcp_words<N> x_words, y_words;
        float x[N], y[N];
        mcp_fetch(op.output, at, x_words);
        mcp_fetch(op.part, at, y_words);
        mcp_decode(op.output, x_words, x);
        mcp_decode(op.part, y_words, y);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = x[i] * old_share + y[i] * new_share;
        mcp_store(op.output, at, x);
    }
    __syncwarp(); /* all lanes have read the statistic */
    if (lane == 0)
        op.statistics[item] = sum;
}

void mcp_cuda_attention_merge(const struct mcp_cuda_merge *op, const mcp_cuda_queue *queue)
{
    const int64_t items = op->rows * op->heads;
    const int pack = mcp_pack_for(op->part, op->output, op->width);
    if (items > 0)
        MCP_LAUNCH_PACKS(pack, merge, mcp_blocks(items * mcp_warp), mcp_threads, 0, queue->stream,
                         *op);
}
