/* exec/cuda_kernels_flash.cu: attention, forward, by tensor cores: heads of 64 or 128 in bf16.
 * Dao 2023, algorithm 1: one block has a tile of queries, against which keys and values come
 * past; a tile of them is copied while the one before is worked on. */
#include "exec/cuda_flash.cuh"

/* A warp has 32 rows: each number that it reads of keys and values it uses twice as often as with
 * 16, and shared memory is what bounds products of registers with it. */
constexpr int row_tiles = 2, tile_queries = mcp_flash_warps * 16 * row_tiles;
/* What registers hold: with outputs of 128 columns, scores with 32 keys. */
template <int D> constexpr int tile_keys = D == 64 ? 64 : 32;
template <int D> constexpr size_t shared_bytes = (tile_queries + 4 * tile_keys<D>)*D * 2;
template <int D> using tile_scores = mcp_flash_sums<row_tiles, tile_keys<D> / 8>;

/* Per row, 8 apart: the largest score so far, in powers of 2, and this lane's sum. */
template <int D> struct rows_so_far {
    mcp_flash_sums<row_tiles, D / 8> output;
    float largest[2 * row_tiles], sum[2 * row_tiles];
};

/* Of the four lanes that have a row. */
static __device__ __forceinline__ float largest_of_row(float value)
{
    value = mcp_larger(value, __shfl_xor_sync(mcp_all_lanes, value, 1));
    return mcp_larger(value, __shfl_xor_sync(mcp_all_lanes, value, 2));
}
static __device__ __forceinline__ float sum_of_row(float value)
{
    value += __shfl_xor_sync(mcp_all_lanes, value, 1);
    return value + __shfl_xor_sync(mcp_all_lanes, value, 2);
}

/* Scores become weights; what there is so far is scaled. */
template <int D, int N>
static __device__ __forceinline__ void soften(float scale, mcp_flash_sums<row_tiles, N> *scores,
                                              rows_so_far<D> *rows)
{
#pragma unroll
    for (int row = 0; row < 2 * row_tiles; row++) {
        const int m = row / 2, half = row % 2 * 2;
        float largest = -INFINITY, sum = 0;
#pragma unroll
        for (int i = 0; i < 2 * N; i++)
            largest = mcp_larger(largest, scores->at[m][i / 2][half + i % 2]);
        largest = mcp_larger(rows->largest[row], largest_of_row(largest) * scale);
        const float base = largest == -INFINITY ? 0 : largest; /* no key is seen yet */
        const float factor = mcp_power_of_two(rows->largest[row] - base);
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            float &score = scores->at[m][i / 2][half + i % 2];
            score = mcp_power_of_two(score * scale - base);
            sum += score;
        }
        rows->largest[row] = largest;
        rows->sum[row] = rows->sum[row] * factor + sum;
#pragma unroll
        for (int i = 0; i < D / 4; i++)
            rows->output.at[m][i / 2][half + i % 2] *= factor;
    }
}

/* Rows that saw no key are 0, with a log of -infinity. */
template <int D>
static __device__ __forceinline__ void store_rows(const struct mcp_cuda_attention &op,
                                                  const mcp_flash_tile &queries, int head,
                                                  rows_so_far<D> *rows)
{
    const int first = mcp_flash_warp() * 16 * row_tiles, lane = mcp_flash_lane();
    const int64_t row_0 = mcp_flash_first_row(op) + queries.row;
#pragma unroll
    for (int row = 0; row < 2 * row_tiles; row++) {
        const float sum = sum_of_row(rows->sum[row]), factor = sum > 0 ? 1 / sum : sum;
        const int at = first + 8 * row + lane / 4;
        if (at < queries.count && lane % 4 == 0)
            op.statistics[(row_0 + at) * op.heads + head] =
                rows->largest[row] * mcp_log_2 + logf(sum);
#pragma unroll
        for (int i = 0; i < D / 4; i++)
            rows->output.at[row / 2][i / 2][row % 2 * 2 + i % 2] *= factor;
    }
    mcp_flash_put({mcp_bits(op.output, mcp_output_at(op, row_0, head)), op.heads * D, first,
                   queries.count, 1, false},
                  rows->output);
}

/* Scores of a warp's queries with a tile of keys. */
template <int D>
static __device__ __forceinline__ void score(const unsigned short *query, const unsigned short *key,
                                             tile_scores<D> *scores)
{
    *scores = {};
    mcp_flash_dot<D, D / 16>(query, mcp_flash_warp() * 16 * row_tiles, key, scores);
}

template <int D>
static __global__ void __launch_bounds__(mcp_flash_threads) flash(struct mcp_cuda_attention op)
{
    MCP_SHARED_ARRAY(unsigned short, query);
    unsigned short *const pairs = query + tile_queries * D; /* of keys and values: two places */
    constexpr int pair = 2 * tile_keys<D> * D;
    const int head = static_cast<int>(blockIdx.y);
    const mcp_flash_sides<D> sides = mcp_flash_sides_of<D>(op, head);
    /* from the last tile, which sees most keys, to the first */
    const mcp_flash_tile queries =
        mcp_flash_tile_at(op.queries, tile_queries, gridDim.x - 1 - blockIdx.x);
    mcp_flash_walk walk = mcp_flash_walk_over(mcp_flash_lowest(op, queries.position),
                                              queries.position + queries.count - 1);
    tile_scores<D> scores;
    rows_so_far<D> rows = {};
    mcp_flash_tile next;
#pragma unroll
    for (float &largest : rows.largest)
        largest = -INFINITY;
    bool more = mcp_flash_next<tile_keys<D>>(op.keys, &walk, &next);
    if (more) {
        mcp_flash_load<D, tile_queries>(query, sides.query, op.heads, queries);
        mcp_flash_load_keys<D, tile_keys<D>>(pairs, sides, op.kv_heads, next);
    }
    for (int place = 0; more; place ^= 1) {
        const mcp_flash_tile keys = next;
        const unsigned short *const key = pairs + place * pair;
        mcp_wait_for_copies();
        __syncthreads(); /* keys have come; those in the other place have been read */
        more = mcp_flash_next<tile_keys<D>>(op.keys, &walk, &next);
        if (more)
            mcp_flash_load_keys<D, tile_keys<D>>(pairs + (place ^ 1) * pair, sides, op.kv_heads,
                                                 next);
        score<D>(query, key, &scores);
        if (!mcp_flash_all_seen<tile_keys<D>>(op, queries, keys))
            mcp_flash_mask(op, queries, mcp_flash_warp() * 16 * row_tiles, keys, &scores);
        soften(op.scale * mcp_log2_e, &scores, &rows);
        mcp_flash_add<D>(scores, key + tile_keys<D> * D, &rows.output);
    }
    store_rows(op, queries, head, &rows);
}

template <int D> static void launch(const struct mcp_cuda_attention *op, void *stream)
{
    const dim3 grid(static_cast<unsigned>(mcp_num_tiles(op->queries, tile_queries)),
                    static_cast<unsigned>(op->heads), static_cast<unsigned>(op->batch));
    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return;
    MCP_ALLOW_SHARED(flash<D>, shared_bytes<D>);
    MCP_LAUNCH(flash<D>, grid, mcp_flash_threads, shared_bytes<D>, stream, *op);
}

bool mcp_flash_attention(const struct mcp_cuda_attention *op, const mcp_cuda_queue *queue)
{
    if (!mcp_flash_fits(op, op->query, op->kv, op->output))
        return false;
    const struct mcp_cuda_attention limited = mcp_flash_op(op);
    if (op->head_dim == 64)
        launch<64>(&limited, queue->stream);
    else
        launch<128>(&limited, queue->stream);
    return true;
}
