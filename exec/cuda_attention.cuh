/* exec/cuda_attention.cuh: tiles of attention: where they lie, what they see, and how they are
 * read. Private to exec/cuda_kernels_attention*.cu.
 *
 * Kernels for heads of any size, in fp32: a block of four warps has a tile of queries, of which
 * each warp has four rows, against tiles of as many keys as a warp has lanes. */
#ifndef MCP_EXEC_CUDA_ATTENTION_CUH
#define MCP_EXEC_CUDA_ATTENTION_CUH

#include "exec/cuda_parts.cuh"

constexpr int mcp_tile_warps = 4, mcp_tile_threads = mcp_tile_warps * mcp_warp;
constexpr int mcp_rows = 4; /* of queries, of a warp */
constexpr int mcp_tile_queries = mcp_tile_warps * mcp_rows, mcp_tile_keys = mcp_warp;

/* Consecutive tokens of the first sequence, at most `size` of a tile. */
struct mcp_tile {
    int64_t row, position;
    int count;
};

static __host__ __device__ __forceinline__ int64_t mcp_num_tiles(const mcp_cuda_tokens &t, int size)
{
    return t.num_ranks * (t.zigzag ? 2 : 1) * mcp_ceil(mcp_piece_length(t), size);
}

static __device__ __forceinline__ mcp_tile mcp_tile_at(const mcp_cuda_tokens &t, int size,
                                                       int64_t index)
{
    const int64_t length = mcp_piece_length(t), tiles = mcp_ceil(length, size);
    const int64_t which = mcp_divide(index, tiles), first = (index - which * tiles) * size;
    const int64_t rank = t.zigzag ? which / 2 : which, piece = t.zigzag ? which % 2 : 0;
    const int64_t left = length - first;
    return {rank * t.rank_rows + piece * length + first,
            mcp_piece_position(t, t.first_rank + rank, piece) + first,
            static_cast<int>(left < size ? left : size)};
}

/* First position that the query at `position` sees. */
static __device__ __forceinline__ int64_t mcp_lowest_key(const struct mcp_cuda_attention &op,
                                                         int64_t position)
{
    int64_t lowest = 0;
    if (op.window > 0 && position - op.window + 1 > lowest)
        lowest = position - op.window + 1;
    if (op.chunk > 0)
        lowest = lowest > position / op.chunk * op.chunk ? lowest : position / op.chunk * op.chunk;
    return lowest;
}

static __device__ __forceinline__ bool mcp_sees(const struct mcp_cuda_attention &op, int64_t query,
                                                int64_t key)
{
    return key <= query && key >= mcp_lowest_key(op, query);
}

/* Does any query of one tile see any key of the other? */
static __device__ __forceinline__ bool mcp_tiles_meet(const struct mcp_cuda_attention &op,
                                                      const mcp_tile &queries, const mcp_tile &keys)
{
    return keys.position <= queries.position + queries.count - 1 &&
           keys.position + keys.count - 1 >= mcp_lowest_key(op, queries.position);
}

/* Where a head's columns begin in a row; and the length of a row of keys and values. */
static __device__ __forceinline__ int64_t mcp_kv_columns(const struct mcp_cuda_attention &op)
{
    return op.kv_heads * (op.head_dim + op.value_head_dim);
}
static __device__ __forceinline__ int64_t mcp_query_at(const struct mcp_cuda_attention &op,
                                                       int64_t row, int64_t head)
{
    return (row * op.heads + head) * op.head_dim;
}
static __device__ __forceinline__ int64_t mcp_output_at(const struct mcp_cuda_attention &op,
                                                        int64_t row, int64_t head)
{
    return (row * op.heads + head) * op.value_head_dim;
}
static __device__ __forceinline__ int64_t mcp_key_at(const struct mcp_cuda_attention &op,
                                                     int64_t row, int64_t kv_head)
{
    return row * mcp_kv_columns(op) + kv_head * op.head_dim;
}
static __device__ __forceinline__ int64_t mcp_value_at(const struct mcp_cuda_attention &op,
                                                       int64_t row, int64_t kv_head)
{
    return row * mcp_kv_columns(op) + op.kv_heads * op.head_dim + kv_head * op.value_head_dim;
}

/* A tile's numbers, from memory into shared memory. */
struct mcp_tile_load {
    mcp_cuda_array from;
    int64_t at, row_length;  /* of its first row, from row to row */
    float *to;               /* [size][stride] */
    int size, stride, width; /* rows, room of a row, columns */
};

/* By all threads of the block; rows past `count` are 0. */
static __device__ __forceinline__ void mcp_load_tile(const mcp_tile_load &load, int count)
{
    const int items = load.size * load.width;
    for (int i = static_cast<int>(threadIdx.x); i < items; i += mcp_tile_threads) {
        const int row = i / load.width, column = i - row * load.width;
        load.to[row * load.stride + column] =
            row < count ? mcp_load_one(load.from, load.at + row * load.row_length + column) : 0;
    }
}

/* Keys and values of a tile; a lane reads its own key's row, so rows are in different banks. */
struct mcp_kv_tile {
    float *key, *value;
    int key_stride, value_stride;
};
static __device__ __forceinline__ void mcp_load_kv(const struct mcp_cuda_attention &op,
                                                   const mcp_tile &tile, int64_t kv_head,
                                                   const mcp_kv_tile &to)
{
    const int64_t length = mcp_kv_columns(op);
    mcp_load_tile({op.kv, mcp_key_at(op, tile.row, kv_head), length, to.key, mcp_tile_keys,
                   to.key_stride, static_cast<int>(op.head_dim)},
                  tile.count);
    mcp_load_tile({op.kv, mcp_value_at(op, tile.row, kv_head), length, to.value, mcp_tile_keys,
                   to.value_stride, static_cast<int>(op.value_head_dim)},
                  tile.count);
}

/* Products of a warp's rows with the lane's row of the other side. */
static __device__ __forceinline__ void
mcp_dot_rows(const float *rows, int stride, const float *other, int width, float (&out)[mcp_rows])
{
#pragma unroll
    for (int r = 0; r < mcp_rows; r++)
        out[r] = 0;
    for (int d = 0; d < width; d++) {
        const float y = other[d];
#pragma unroll
        for (int r = 0; r < mcp_rows; r++)
            out[r] += rows[r * stride + d] * y;
    }
}

/* sums[r][c] += weights[r] of each key x that key's column lane + 32 c. */
template <int C>
static __device__ __forceinline__ void mcp_add_weighted(const float *weights, const float *rows,
                                                        int stride, int width,
                                                        float (&sums)[mcp_rows][C])
{
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    for (int j = 0; j < mcp_tile_keys; j++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            const int column = lane + c * mcp_warp;
            const float y = column < width ? rows[j * stride + column] : 0;
#pragma unroll
            for (int r = 0; r < mcp_rows; r++)
                sums[r][c] += weights[r * mcp_tile_keys + j] * y;
        }
}

/* --- by tensor cores, where they can: cuda_kernels_flash*.cu --- */

/* False: this op is none of theirs, and nothing has been queued. The backward keeps 4 bytes of a
 * row and head in the scratch memory, and works by parts of the heads where not all have room. */
bool mcp_flash_attention(const struct mcp_cuda_attention *op, const mcp_cuda_queue *queue);
bool mcp_flash_attention_backward(const struct mcp_cuda_attention *op, int64_t scratch_bytes,
                                  const mcp_cuda_queue *queue);

/* Runs LAUNCH(C) with as many strips of 32 columns as the wider head has, rounded up to 2, 4 or
 * 8. */
#define MCP_BY_WIDTH(op, LAUNCH)                                                                   \
    do {                                                                                           \
        const int64_t wider =                                                                      \
            (op)->head_dim > (op)->value_head_dim ? (op)->head_dim : (op)->value_head_dim;         \
        if (wider <= 64)                                                                           \
            LAUNCH(2);                                                                             \
        else if (wider <= 128)                                                                     \
            LAUNCH(4);                                                                             \
        else                                                                                       \
            LAUNCH(8);                                                                             \
    } while (0)

#endif
