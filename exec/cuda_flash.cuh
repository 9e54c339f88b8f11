/* exec/cuda_flash.cuh: attention by tensor cores: tiles of bf16 in shared memory, and a warp's
 * products with them. Private to exec/cuda_kernels_flash*.cu.
 *
 * A block of four warps holds a tile of one side, queries or keys; each warp has M times 16 of its
 * rows. Tiles of the other side come past, copied while the one before is worked on. What a warp's
 * product comes to is, as it lies in registers, the first operand of the next one, so weights are
 * never in shared memory (Dao 2023, sections 3.1 and 3.3). */
#ifndef MCP_EXEC_CUDA_FLASH_CUH
#define MCP_EXEC_CUDA_FLASH_CUH

#include "exec/cuda_attention.cuh"
#include "exec/cuda_ptx.cuh"

constexpr int mcp_flash_warps = 4, mcp_flash_threads = mcp_flash_warps * mcp_warp;

/* Positions and rows are 32 bits wide here. */
constexpr int64_t mcp_flash_positions = INT64_C(1) << 30;

/* Sums of M x N products of 16 x 8: [][][i] is row lane / 4 + 8 (i / 2), column 2 (lane % 4) +
 * i % 2 of its product. */
template <int M, int N> struct mcp_flash_sums {
    float at[M][N][4];
};

static __device__ __forceinline__ int mcp_flash_lane()
{
    return static_cast<int>(threadIdx.x) % mcp_warp;
}
static __device__ __forceinline__ int mcp_flash_warp()
{
    return static_cast<int>(threadIdx.x) / mcp_warp;
}

static __device__ __forceinline__ unsigned short *mcp_bits(mcp_cuda_array array, int64_t at)
{
    return static_cast<unsigned short *>(array.data) + at;
}

/* --- tiles, in memory and in shared memory --- */

/* A tile as struct mcp_tile has it, in 32 bits. */
struct mcp_flash_tile {
    int row, position, count;
};
static __device__ __forceinline__ mcp_flash_tile mcp_flash_tile_at(const mcp_cuda_tokens &t,
                                                                   int size, int64_t index)
{
    const mcp_tile tile = mcp_tile_at(t, size, index);
    return {static_cast<int>(tile.row), static_cast<int>(tile.position), tile.count};
}

/* Of a block's sequence, its first row; and of its head the first number of each operand. */
static __device__ __forceinline__ int64_t mcp_flash_first_row(const struct mcp_cuda_attention &op)
{
    return blockIdx.z * op.queries.sequence_local;
}
template <int D> struct mcp_flash_sides {
    const unsigned short *query, *d_output; /* rows are `heads` x D */
    const unsigned short *key, *value;      /* rows are 2 x kv_heads x D */
};
template <int D>
static __device__ __forceinline__ mcp_flash_sides<D>
mcp_flash_sides_of(const struct mcp_cuda_attention &op, int head)
{
    const int64_t row = mcp_flash_first_row(op);
    const int kv_head = head / static_cast<int>(op.heads / op.kv_heads);
    const unsigned short *key = mcp_bits(op.kv, (2 * row * op.kv_heads + kv_head) * D);
    return {mcp_bits(op.query, (row * op.heads + head) * D),
            mcp_bits(op.d_output, (row * op.heads + head) * D), key, key + op.kv_heads * D};
}

/* Where 8 numbers of row `first` + `row` are in a tile of rows of D; `first` is a multiple of 8.
 * The order of a row's eights turns from row to row: the same eight of 8 rows, which is what
 * ldmatrix reads, lies in all banks. By parts, so that what a compiler knows stays apart from
 * what a lane does: eights are `even`, which is known, and 0 or 1 `more`. */
template <int D>
static __device__ __forceinline__ int mcp_flash_place(int first, int row, int even, int more)
{
    const int turned = (more ^ (row & 7)) ^ (even & 7);
    return first * D + even / 8 * 64 + row * D + turned * 8;
}

/* Starts copying R rows of a tile; those from its count on become 0. `from` is the block's first
 * row, which is followed by others `heads` x D numbers apart. */
template <int D, int R>
static __device__ __forceinline__ void mcp_flash_load(unsigned short *to,
                                                      const unsigned short *from, int64_t heads,
                                                      const mcp_flash_tile &tile)
{
    constexpr int eights = D / 8, rows = mcp_flash_threads / eights;
    const int eight = static_cast<int>(threadIdx.x) % eights;
    const int row = static_cast<int>(threadIdx.x) / eights;
    from += (tile.row + row) * heads * D + eight * 8;
#pragma unroll
    for (int i = 0; i < R; i += rows, from += rows * heads * D)
        mcp_copy_async<16>(to + mcp_flash_place<D>(i, row, 0, eight), from, i + row < tile.count);
}

/* A tile of keys, and their values behind it. */
template <int D, int R>
static __device__ __forceinline__ void
mcp_flash_load_keys(unsigned short *to, const mcp_flash_sides<D> &sides, int64_t kv_heads,
                    const mcp_flash_tile &tile)
{
    mcp_flash_load<D, R>(to, sides.key, 2 * kv_heads, tile);
    mcp_flash_load<D, R>(to + R * D, sides.value, 2 * kv_heads, tile);
}

/* --- products --- */

/* sums[16 M rows][8 N] += rows[16 M][D] x (tile[8 N][D])^T; of D, 16 x Unroll at a time in one
 * piece of code, which registers bound. */
template <int D, int Unroll, int M, int N>
static __device__ __forceinline__ void mcp_flash_dot(const unsigned short *rows, int first,
                                                     const unsigned short *tile,
                                                     mcp_flash_sums<M, N> *sums)
{
    const int lane = mcp_flash_lane();
    const int row = lane / 16 * 8 + lane % 8, eight = lane / 8 % 2;
#pragma unroll Unroll
    for (int k = 0; k < D / 16; k++) {
        unsigned a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++)
            mcp_load_matrices(
                rows + mcp_flash_place<D>(first + 16 * m, lane % 16, 2 * k, lane / 16), a[m]);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            mcp_load_matrices(tile + mcp_flash_place<D>(8 * n, row, 2 * k, eight), b);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mcp_multiply_bf16(a[m], b[0], b[1], sums->at[m][n]);
                mcp_multiply_bf16(a[m], b[2], b[3], sums->at[m][n + 1]);
            }
        }
    }
}

/* Sums rounded to bf16: [][][i] has columns 2 (lane % 4) and the next of row lane / 4 + 8 i. */
template <int M, int N> struct mcp_flash_weights {
    unsigned at[M][N][2];
};
template <int M, int N>
static __device__ __forceinline__ mcp_flash_weights<M, N>
mcp_flash_round(const mcp_flash_sums<M, N> &sums)
{
    mcp_flash_weights<M, N> weights;
#pragma unroll
    for (int i = 0; i < 2 * M * N; i++) {
        const float *pair = &sums.at[i / (2 * N)][i / 2 % N][i % 2 * 2];
        weights.at[i / (2 * N)][i / 2 % N][i % 2] = mcp_pack_bf16(pair[0], pair[1]);
    }
    return weights;
}

/* Rows 16 m to 16 m + 15, columns 16 k to 16 k + 15, as an operand; rounded here, or before. */
template <int M, int N>
static __device__ __forceinline__ void mcp_flash_operand(const mcp_flash_weights<M, N> &weights,
                                                         int m, int k, unsigned (&a)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = weights.at[m][2 * k + i / 2][i % 2];
}
template <int M, int N>
static __device__ __forceinline__ void mcp_flash_operand(const mcp_flash_sums<M, N> &weights, int m,
                                                         int k, unsigned (&a)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float *pair = &weights.at[m][2 * k + i / 2][i % 2 * 2];
        a[i] = mcp_pack_bf16(pair[0], pair[1]);
    }
}

/* sums[16 M rows][D] += weights[16 M][8 N], in bf16, x tile[8 N][D]. */
template <int D, template <int, int> class Weights, int M, int N>
static __device__ __forceinline__ void mcp_flash_add(const Weights<M, N> &weights,
                                                     const unsigned short *tile,
                                                     mcp_flash_sums<M, D / 8> *sums)
{
    const int lane = mcp_flash_lane();
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        unsigned a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++)
            mcp_flash_operand(weights, m, k, a[m]);
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            mcp_load_transposed(tile + mcp_flash_place<D>(16 * k, lane % 16, n, lane / 16), b);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mcp_multiply_bf16(a[m], b[0], b[1], sums->at[m][n]);
                mcp_multiply_bf16(a[m], b[2], b[3], sums->at[m][n + 1]);
            }
        }
    }
}

/* sums[16 M rows][64] += weights[16 M][R] x tile[R][D], its columns from 64 x `strip` on; weights
 * are in shared memory, in rows of 64 of which R are there. */
template <int D, int R, int M>
static __device__ __forceinline__ void mcp_flash_add_shared(const unsigned short *weights,
                                                            const unsigned short *tile, int strip,
                                                            mcp_flash_sums<M, 8> *sums)
{
    const int lane = mcp_flash_lane();
    tile += 64 * strip;
#pragma unroll
    for (int k = 0; k < R / 16; k++) {
        unsigned a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++)
            mcp_load_matrices(weights + mcp_flash_place<64>(16 * m, lane % 16, 2 * k, lane / 16),
                              a[m]);
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            mcp_load_transposed(tile + mcp_flash_place<D>(16 * k, lane % 16, n, lane / 16), b);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mcp_multiply_bf16(a[m], b[0], b[1], sums->at[m][n]);
                mcp_multiply_bf16(a[m], b[2], b[3], sums->at[m][n + 1]);
            }
        }
    }
}

/* Writes weights[16 M][8 N] to shared memory, in rows of 64 from 8 N x `strip` on. */
template <int M, int N>
static __device__ __forceinline__ void mcp_flash_share(const mcp_flash_weights<M, N> &weights,
                                                       int strip, unsigned short *to)
{
    const int lane = mcp_flash_lane();
#pragma unroll
    for (int row = 0; row < 2 * M; row++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int at = mcp_flash_place<64>(8 * row, lane / 4, 0, N * strip + n);
            *reinterpret_cast<unsigned *>(to + at + lane % 4 * 2) = weights.at[row / 2][n][row % 2];
        }
}

/* --- which tiles, and what of them is seen --- */

/* Position of the first token of a piece, counted from the first rank's. */
static __device__ __forceinline__ int mcp_flash_position(const mcp_cuda_tokens &t, int piece)
{
    const int halves = t.zigzag ? 2 : 1;
    return static_cast<int>(mcp_piece_position(t, t.first_rank + piece / halves, piece % halves));
}

/* First position that the query at `position` sees: mcp_lowest_key(), in 32 bits. */
static __device__ __forceinline__ int mcp_flash_lowest(const struct mcp_cuda_attention &op,
                                                       int position)
{
    const int window = static_cast<int>(op.window), chunk = static_cast<int>(op.chunk);
    const int by_window = window > 0 ? position - window + 1 : 0;
    const int by_chunk = chunk > 0 ? position / chunk * chunk : 0;
    return by_window > by_chunk ? by_window : by_chunk;
}

/* Last position that sees the key at `position`. */
static __device__ __forceinline__ int mcp_flash_highest(const struct mcp_cuda_attention &op,
                                                        int position)
{
    const int window = static_cast<int>(op.window), chunk = static_cast<int>(op.chunk);
    const int last = static_cast<int>(mcp_flash_positions);
    const int by_window = window > 0 ? position + window - 1 : last;
    const int by_chunk = chunk > 0 ? (position / chunk + 1) * chunk - 1 : last;
    return by_window < by_chunk ? by_window : by_chunk;
}

/* A walk over tiles of R tokens that have any of the positions low to high. Tokens of a piece are
 * consecutive, so of each piece only its first and last tile need be found. */
struct mcp_flash_walk {
    int low, high;
    int piece, next, end; /* of `piece`, tiles from next to end are to come */
};

static __device__ __forceinline__ mcp_flash_walk mcp_flash_walk_over(int low, int high)
{
    return {low, high, -1, 0, 0};
}

template <int R>
static __device__ __forceinline__ bool mcp_flash_next(const mcp_cuda_tokens &t,
                                                      mcp_flash_walk *walk, mcp_flash_tile *tile)
{
    const auto length = static_cast<int>(mcp_piece_length(t));
    const int halves = t.zigzag ? 2 : 1;
    while (walk->next >= walk->end) {
        if (++walk->piece >= t.num_ranks * halves)
            return false;
        const int at = mcp_flash_position(t, walk->piece);
        const int first = walk->low > at ? walk->low - at : 0;
        const int last = walk->high - at < length ? walk->high - at : length - 1;
        walk->next = first / R;
        walk->end = last < first ? walk->next : last / R + 1;
    }
    const int first = walk->next++ * R, half = walk->piece % halves;
    *tile = {static_cast<int>(walk->piece / halves * t.rank_rows) + half * length + first,
             mcp_flash_position(t, walk->piece) + first, length - first < R ? length - first : R};
    return true;
}

/* Do all queries of one tile see all R keys of the other? */
template <int R>
static __device__ __forceinline__ bool mcp_flash_all_seen(const struct mcp_cuda_attention &op,
                                                          const mcp_flash_tile &queries,
                                                          const mcp_flash_tile &keys)
{
    const int last = queries.position + queries.count - 1;
    return keys.count == R && keys.position + R - 1 <= queries.position &&
           keys.position >= mcp_flash_lowest(op, last);
}

/* Keys, counted in their tile, that the query at `position` sees: low to high. */
struct mcp_flash_seen {
    int low, high;
};
static __device__ __forceinline__ mcp_flash_seen
mcp_flash_seen_by(const struct mcp_cuda_attention &op, int position, const mcp_flash_tile &keys)
{
    const int first = keys.position;
    const int high = position - first;
    return {mcp_flash_lowest(op, position) - first, high < keys.count ? high : keys.count - 1};
}

/* Scores that are not seen become -infinity. Rows, from `first` of the tile on, are queries. */
template <int M, int N>
static __device__ __forceinline__ void
mcp_flash_mask(const struct mcp_cuda_attention &op, const mcp_flash_tile &queries, int first,
               const mcp_flash_tile &keys, mcp_flash_sums<M, N> *scores)
{
    const int lane = mcp_flash_lane();
#pragma unroll
    for (int row = 0; row < 2 * M; row++) {
        const int query = first + 8 * row + lane / 4;
        const mcp_flash_seen seen = mcp_flash_seen_by(op, queries.position + query, keys);
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            const int key = i / 2 * 8 + lane % 4 * 2 + i % 2;
            if (key < seen.low || key > seen.high)
                scores->at[row / 2][i / 2][row % 2 * 2 + i % 2] = -INFINITY;
        }
    }
}

/* The same where rows are keys, and columns queries, the first at `position`. */
template <int M, int N>
static __device__ __forceinline__ void
mcp_flash_mask_columns(const struct mcp_cuda_attention &op, int position, int first,
                       const mcp_flash_tile &keys, mcp_flash_sums<M, N> *scores)
{
    const int lane = mcp_flash_lane();
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        const int query = i / 2 * 8 + lane % 4 * 2 + i % 2;
        const mcp_flash_seen seen = mcp_flash_seen_by(op, position + query, keys);
#pragma unroll
        for (int row = 0; row < 2 * M; row++) {
            const int key = first + 8 * row + lane / 4;
            if (key < seen.low || key > seen.high)
                scores->at[row / 2][i / 2][row % 2 * 2 + i % 2] = -INFINITY;
        }
    }
}

/* --- results --- */

/* Where a warp's sums go: its rows from `first` of the tile on. */
struct mcp_flash_store {
    unsigned short *to; /* the tile's first row */
    int64_t stride;
    int first, count; /* rows of the tile */
    float factor;     /* of the sums */
    bool adds;
};

/* to = sums, in bf16, or added to what is there. */
template <int M, int N>
static __device__ __forceinline__ void mcp_flash_put(const mcp_flash_store &store,
                                                     const mcp_flash_sums<M, N> &sums)
{
    const int lane = mcp_flash_lane();
#pragma unroll
    for (int row = 0; row < 2 * M; row++) {
        const int at = store.first + 8 * row + lane / 4;
        if (at >= store.count)
            continue;
        auto *to = reinterpret_cast<unsigned *>(store.to + at * store.stride + lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float *pair = &sums.at[row / 2][n][row % 2 * 2];
            float old[2] = {0, 0};
            if (store.adds)
                mcp_unpack(to + 4 * n, false, old);
            to[4 * n] =
                mcp_pack_bf16(old[0] + store.factor * pair[0], old[1] + store.factor * pair[1]);
        }
    }
}

/* --- launches --- */

static inline bool mcp_flash_is_short(const mcp_cuda_tokens &t)
{
    return t.all_ranks * t.sequence_local < mcp_flash_positions &&
           t.num_ranks * t.rank_rows < mcp_flash_positions;
}

/* bf16, heads of 64 or 128 in keys and values alike, all in rows of whole 16 bytes. */
template <class... T>
static inline bool mcp_flash_fits(const struct mcp_cuda_attention *op, T... arrays)
{
    return (op->head_dim == 64 || op->head_dim == 128) && op->value_head_dim == op->head_dim &&
           op->scale > 0 && mcp_flash_is_short(op->queries) && mcp_flash_is_short(op->keys) &&
           (... && (arrays.format == MCP_CUDA_BF16 && mcp_is_aligned(arrays.data)));
}

/* The op with limits of 32 bits; one of more positions than there are is none. */
static inline struct mcp_cuda_attention mcp_flash_op(const struct mcp_cuda_attention *op)
{
    struct mcp_cuda_attention made = *op;
    made.window = op->window < mcp_flash_positions ? op->window : 0;
    made.chunk = op->chunk < mcp_flash_positions ? op->chunk : 0;
    return made;
}

#endif
