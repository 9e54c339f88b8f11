/* exec/cuda_kernels_cast.cu: operands of 8 bit products: step/casts.h.
 *
 * The first kernel leaves the largest magnitudes of its parts in the scratch memory, the second
 * has a scale of them and casts tiles. Magnitudes are compared as bits: infinity is above all
 * numbers, and what is none above that. */
#include "exec/cuda_parts.cuh"

#include "step/casts.h"

/* --- the largest magnitude --- */

constexpr int most_parts = 512; /* blocks: about what an H200 runs at once */
constexpr int ahead = 4;        /* packs on their way */

static __device__ __forceinline__ unsigned larger(unsigned x, unsigned y)
{
    return x > y ? x : y;
}

static __device__ __forceinline__ unsigned warp_largest(unsigned value)
{
#pragma unroll
    for (int other = mcp_warp / 2; other > 0; other /= 2)
        value = larger(value, __shfl_xor_sync(mcp_all_lanes, value, other));
    return value;
}

/* Of all threads, in every thread. */
static __device__ __forceinline__ unsigned block_largest(unsigned value)
{
    constexpr int warps = mcp_threads / mcp_warp;
    MCP_SHARED(unsigned, of_warp, warps);
    value = warp_largest(value);
    if (threadIdx.x % mcp_warp == 0)
        of_warp[threadIdx.x / mcp_warp] = value;
    __syncthreads(); /* warps have theirs */
#pragma unroll
    for (int i = 0; i < warps; i++)
        value = larger(value, of_warp[i]);
    return value;
}

static __device__ __forceinline__ unsigned
pack_largest(mcp_cuda_array from, const mcp_words<mcp_pack> &words, unsigned most)
{
    float x[mcp_pack];
    mcp_decode(from, words, x);
#pragma unroll
    for (int i = 0; i < mcp_pack; i++)
        most = larger(most, __float_as_uint(x[i]) & 0x7fffffffu);
    return most;
}

/* Past the last pack a thread reads its first one again. */
static __global__ void __launch_bounds__(mcp_threads)
    find_largest(mcp_cuda_array from, int64_t packs, unsigned *largest)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * mcp_threads;
    unsigned most = 0;
    for (int64_t first = mcp_thread(); first < packs; first += ahead * step) {
        mcp_words<mcp_pack> words[ahead];
#pragma unroll
        for (int i = 0; i < ahead; i++)
            mcp_fetch(from, (first + i * step < packs ? first + i * step : first) * mcp_pack,
                      words[i]);
#pragma unroll
        for (int i = 0; i < ahead; i++)
            most = pack_largest(from, words[i], most);
    }
    most = block_largest(most);
    if (threadIdx.x == 0)
        largest[blockIdx.x] = most;
}

/* --- the scale --- */

/* Numbers of a format up to 1.75 x 2^fits: exec/eight.h. */
template <bool E5M2> static __device__ __forceinline__ float scale_under(unsigned largest)
{
    constexpr unsigned fits = E5M2 ? 15 : 8;
    if (largest >= 0x7f800000u)
        return __uint_as_float(0x7fc00000u);
    if (largest == 0)
        return 1;
    const unsigned exponent = (largest >> 23) + ((largest & 0x7fffffu) > 0x600000u ? 1 : 0);
    return __uint_as_float((exponent > fits + 1 ? exponent - fits : 1) << 23);
}

template <bool E5M2>
static __device__ __forceinline__ float find_scale(const unsigned *largest, int parts)
{
    unsigned most = 0;
#pragma unroll
    for (int first = 0; first < most_parts; first += mcp_threads) {
        const int part = first + static_cast<int>(threadIdx.x);
        most = larger(most, part < parts ? largest[part] : 0);
    }
    return scale_under<E5M2>(block_largest(most));
}

static __device__ __forceinline__ void store_scale(const struct mcp_cuda_cast &op, float scale)
{
    if (blockIdx.x != 0 || threadIdx.x != 0)
        return;
    if (op.rows != nullptr)
        *static_cast<float *>(op.rows) = scale;
    if (op.columns != nullptr)
        *static_cast<float *>(op.columns) = scale;
}

static __device__ __forceinline__ unsigned char *bytes_of(void *cast)
{
    return static_cast<unsigned char *>(cast) + MCP_CAST_HEADER_BYTES;
}

/* --- tiles ---
 *
 * As it lies, a tile needs no shared memory: a thread stores the 8 bytes of each pack it loads, 16
 * threads a line of 128 bytes. Transposed, it stores 16 rows of each of 4 columns, 8 threads a
 * line. For that the tile is in shared memory, the words of a row changed about by the row's group:
 * the 8 groups that a warp reads at once have 4 banks each. */

constexpr int tile = 128, tile_words = tile / 4, tile_packs = tile / mcp_pack;
constexpr int group = 16; /* rows of a store of columns */
constexpr int pass_rows = mcp_threads / tile_packs, passes = tile / pass_rows;
static_assert(MCP_CAST_MULTIPLE % group == 0, "groups of rows and packs are whole");

struct part {
    int64_t row, column; /* its first */
    int rows, columns;
};

static __device__ __forceinline__ int at_most_tile(int64_t left)
{
    return left < tile ? static_cast<int>(left) : tile;
}

/* What the first kernel has read last comes first: it is in the L2 still. */
static __device__ __forceinline__ part part_of_block(const struct mcp_cuda_cast &op)
{
    const int64_t index = gridDim.x - 1 - blockIdx.x, across = mcp_ceil(op.num_columns, tile);
    const int64_t down = mcp_divide(index, across);
    const int64_t row = down * tile, column = (index - down * across) * tile;
    return {row, column, at_most_tile(op.num_rows - row), at_most_tile(op.num_columns - column)};
}

static __device__ __forceinline__ int row_of(int pass)
{
    return pass * pass_rows + static_cast<int>(threadIdx.x) / tile_packs;
}
static __device__ __forceinline__ int column_of()
{
    return static_cast<int>(threadIdx.x) % tile_packs * mcp_pack;
}

static __device__ __forceinline__ bool has_pack(const part &p, int pass)
{
    return row_of(pass) < p.rows && column_of() < p.columns;
}
static __device__ __forceinline__ int64_t pack_at(const struct mcp_cuda_cast &op, const part &p,
                                                  int pass)
{
    return (p.row + row_of(pass)) * op.num_columns + p.column + column_of();
}

static __device__ __forceinline__ void fetch(const struct mcp_cuda_cast &op, const part &p,
                                             mcp_words<mcp_pack> (&words)[passes])
{
#pragma unroll
    for (int pass = 0; pass < passes; pass++)
        if (has_pack(p, pass))
            mcp_fetch(op.from, pack_at(op, p, pass), words[pass]);
}

template <bool E5M2>
static __device__ __forceinline__ uint2 narrow(mcp_cuda_array from,
                                               const mcp_words<mcp_pack> &words, float inverse)
{
    float x[mcp_pack];
    mcp_decode(from, words, x);
#pragma unroll
    for (int i = 0; i < mcp_pack; i++)
        x[i] *= inverse;
    return uint2{mcp_pack_eight<E5M2>(x[0], x[1]) | mcp_pack_eight<E5M2>(x[2], x[3]) << 16,
                 mcp_pack_eight<E5M2>(x[4], x[5]) | mcp_pack_eight<E5M2>(x[6], x[7]) << 16};
}

/* Of 4 bytes of a row, in words. */
static __device__ __forceinline__ int place_of(int row, int word)
{
    return row * tile_words + (word ^ row / group * 4);
}

/* Bytes of 4 rows become those of 4 columns. */
static __device__ __forceinline__ void transpose(unsigned (&word)[4])
{
    const unsigned left_top = __byte_perm(word[0], word[1], 0x5140);
    const unsigned right_top = __byte_perm(word[0], word[1], 0x7362);
    const unsigned left_bottom = __byte_perm(word[2], word[3], 0x5140);
    const unsigned right_bottom = __byte_perm(word[2], word[3], 0x7362);
    word[0] = __byte_perm(left_top, left_bottom, 0x5410);
    word[1] = __byte_perm(left_top, left_bottom, 0x7632);
    word[2] = __byte_perm(right_top, right_bottom, 0x5410);
    word[3] = __byte_perm(right_top, right_bottom, 0x7632);
}

static __device__ __forceinline__ void store_columns(const struct mcp_cuda_cast &op, const part &p,
                                                     const unsigned *bytes)
{
    const int row = static_cast<int>(threadIdx.x) % (tile / group) * group;
    const int word = static_cast<int>(threadIdx.x) / (tile / group);
    unsigned block[group / 4][4];
    if (row >= p.rows || 4 * word >= p.columns)
        return;
#pragma unroll
    for (int i = 0; i < group; i++) /* rows of a group are changed about alike */
        block[i / 4][i % 4] = bytes[place_of(row, word) + i * tile_words];
#pragma unroll
    for (int i = 0; i < group / 4; i++)
        transpose(block[i]);
    unsigned char *const to =
        bytes_of(op.columns) + (p.column + 4 * word) * op.num_rows + p.row + row;
#pragma unroll
    for (int c = 0; c < 4; c++)
        *reinterpret_cast<uint4 *>(to + c * op.num_rows) =
            uint4{block[0][c], block[1][c], block[2][c], block[3][c]};
}

template <bool E5M2>
static __global__ void __launch_bounds__(mcp_threads)
    cast_tiles(struct mcp_cuda_cast op, const unsigned *largest, int parts)
{
    MCP_SHARED(uint2, bytes, tile * tile / 8);
    mcp_words<mcp_pack> words[passes];
    const part p = part_of_block(op);
    fetch(op, p, words);
    const float scale = find_scale<E5M2>(largest, parts), inverse = 1 / scale;
    store_scale(op, scale);
#pragma unroll
    for (int pass = 0; pass < passes; pass++) {
        if (!has_pack(p, pass))
            continue;
        const uint2 eight = narrow<E5M2>(op.from, words[pass], inverse);
        if (op.rows != nullptr)
            *reinterpret_cast<uint2 *>(bytes_of(op.rows) + pack_at(op, p, pass)) = eight;
        bytes[place_of(row_of(pass), column_of() / 4) / 2] = eight;
    }
    if (op.columns == nullptr)
        return;
    __syncthreads(); /* the tile is there */
    store_columns(op, p, reinterpret_cast<const unsigned *>(bytes));
}

void mcp_cuda_cast(const struct mcp_cuda_cast *op, const mcp_cuda_queue *queue)
{
    const int64_t packs = op->num_rows * op->num_columns / mcp_pack;
    const int64_t tiles = mcp_ceil(op->num_rows, tile) * mcp_ceil(op->num_columns, tile);
    const int64_t wanted = mcp_ceil(packs, ahead * mcp_threads);
    const auto parts = static_cast<unsigned>(wanted < most_parts ? wanted : most_parts);
    const auto blocks = static_cast<unsigned>(tiles);
    auto *const largest = static_cast<unsigned *>(queue->scratch);
    if (packs == 0)
        return;
    MCP_LAUNCH(find_largest, parts, mcp_threads, 0, queue->stream, op->from, packs, largest);
    if (op->of_gradients)
        MCP_LAUNCH(cast_tiles<true>, blocks, mcp_threads, 0, queue->stream, *op, largest, parts);
    else
        MCP_LAUNCH(cast_tiles<false>, blocks, mcp_threads, 0, queue->stream, *op, largest, parts);
}
