/* exec/cuda_parts.cuh: what kernels share: numbers of any format, by packs; sums of threads;
 * launches over packs. Private to exec/cuda_kernels*.cu.
 *
 * A kernel is written over packs of N numbers: N = 8 moves 16 bytes at a time where all operands
 * have 2-byte numbers, N = 4 where some are fp32: so what a warp moves at once is one piece. Both
 * need aligned operands; N = 1 does what is left. */
#ifndef MCP_EXEC_CUDA_PARTS_CUH
#define MCP_EXEC_CUDA_PARTS_CUH

#include "exec/cuda_device.cuh"
#include "exec/cuda_kernels.h"
#include "exec/cuda_ptx.cuh"

#include <cmath>
#include <cstdint>

constexpr int mcp_pack = 8, mcp_pack_f32 = 4, mcp_threads = 256, mcp_warp = 32;
constexpr unsigned mcp_all_lanes = 0xffffffffu;

/* --- packs --- */

static __device__ __forceinline__ float mcp_widen(unsigned short bits, bool half)
{
    return half ? __half2float(__ushort_as_half(bits))
                : __uint_as_float(static_cast<unsigned>(bits) << 16);
}

/* One format or the other: not both, and a choice for each number. */
template <int N>
static __device__ __forceinline__ void mcp_unpack(const unsigned *words, bool half, float (&out)[N])
{
    if (half) {
#pragma unroll
        for (int i = 0; i < N; i++)
            out[i] = mcp_widen(static_cast<unsigned short>(words[i / 2] >> 16 * (i % 2)), true);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            out[i] = __uint_as_float(i % 2 != 0 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
    }
}

static __device__ __forceinline__ unsigned mcp_narrow(float value, bool half)
{
    return half ? __half_as_ushort(__float2half_rn(value))
                : __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

template <int N>
static __device__ __forceinline__ void mcp_narrow_all(const float (&value)[N], bool half,
                                                      unsigned (&words)[N / 2])
{
    if (half) {
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            words[i] = mcp_pack_f16(value[2 * i], value[2 * i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            words[i] = mcp_pack_bf16(value[2 * i], value[2 * i + 1]);
    }
}

/* Numbers of a pack as they are in memory, 2-byte ones two in a word. */
template <int N> struct mcp_words {
    unsigned at[N == mcp_pack ? N / 2 : N];
};

static __device__ __forceinline__ const void *mcp_place(mcp_cuda_array array, int64_t at)
{
    return static_cast<const char *>(array.data) + at * (array.format == MCP_CUDA_F32 ? 4 : 2);
}

/* Elements [at, at + N), on their way: who looks at them waits for memory. So all that a thread
 * needs is fetched before any of it is decoded: in between formats are told apart. */
template <int N>
static __device__ __forceinline__ void mcp_fetch(mcp_cuda_array from, int64_t at,
                                                 mcp_words<N> &words)
{
    const float *const singles = static_cast<const float *>(from.data) + at;
    const unsigned short *const shorts = static_cast<const unsigned short *>(from.data) + at;
    if constexpr (N == 1) {
        words.at[0] = from.format == MCP_CUDA_F32 ? __float_as_uint(*singles) : *shorts;
    } else if constexpr (N == mcp_pack) {
        const uint4 x = *reinterpret_cast<const uint4 *>(shorts);
        words.at[0] = x.x, words.at[1] = x.y, words.at[2] = x.z, words.at[3] = x.w;
    } else if (from.format == MCP_CUDA_F32) {
        const float4 x = *reinterpret_cast<const float4 *>(singles);
        words.at[0] = __float_as_uint(x.x), words.at[1] = __float_as_uint(x.y);
        words.at[2] = __float_as_uint(x.z), words.at[3] = __float_as_uint(x.w);
    } else {
        const uint2 x = *reinterpret_cast<const uint2 *>(shorts);
        words.at[0] = x.x, words.at[1] = x.y;
    }
}

template <int N>
static __device__ __forceinline__ void mcp_decode(mcp_cuda_array from, const mcp_words<N> &words,
                                                  float (&out)[N])
{
    if (N == mcp_pack || from.format != MCP_CUDA_F32) {
        mcp_unpack(words.at, from.format == MCP_CUDA_F16, out);
    } else if constexpr (N != mcp_pack) {
#pragma unroll
        for (int i = 0; i < N; i++)
            out[i] = __uint_as_float(words.at[i]);
    }
}

template <int N>
static __device__ __forceinline__ void mcp_load(mcp_cuda_array from, int64_t at, float (&out)[N])
{
    mcp_words<N> words;
    mcp_fetch(from, at, words);
    mcp_decode(from, words, out);
}

template <int N>
static __device__ __forceinline__ void mcp_store(mcp_cuda_array to, int64_t at,
                                                 const float (&value)[N])
{
    const bool half = to.format == MCP_CUDA_F16;
    float *const singles = static_cast<float *>(to.data) + at;
    unsigned short *const shorts = static_cast<unsigned short *>(to.data) + at;
    if constexpr (N == 1) {
        if (to.format == MCP_CUDA_F32)
            *singles = value[0];
        else
            *shorts = static_cast<unsigned short>(mcp_narrow(value[0], half));
    } else if constexpr (N == mcp_pack) {
        unsigned words[4];
        mcp_narrow_all(value, half, words);
        *reinterpret_cast<uint4 *>(shorts) = uint4{words[0], words[1], words[2], words[3]};
    } else if (to.format == MCP_CUDA_F32) {
        *reinterpret_cast<float4 *>(singles) = float4{value[0], value[1], value[2], value[3]};
    } else {
        unsigned words[2];
        mcp_narrow_all(value, half, words);
        *reinterpret_cast<uint2 *>(shorts) = uint2{words[0], words[1]};
    }
}

/* Those of an operand that may be none. */
template <int N>
static __device__ __forceinline__ void mcp_fetch_any(mcp_cuda_array from, int64_t at,
                                                     mcp_words<N> &words)
{
    if (from.data != nullptr)
        mcp_fetch(from, at, words);
}
template <int N>
static __device__ __forceinline__ void mcp_decode_or(mcp_cuda_array from, const mcp_words<N> &words,
                                                     float none, float (&out)[N])
{
    if (from.data != nullptr) {
        mcp_decode(from, words, out);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        out[i] = none;
}
template <int N>
static __device__ __forceinline__ void mcp_load_or(mcp_cuda_array from, int64_t at, float none,
                                                   float (&out)[N])
{
    mcp_words<N> words = {};
    mcp_fetch_any(from, at, words);
    mcp_decode_or(from, words, none, out);
}

static __device__ __forceinline__ float mcp_load_one(mcp_cuda_array from, int64_t at)
{
    float value[1];
    mcp_load(from, at, value);
    return value[0];
}

static __device__ __forceinline__ void mcp_store_one(mcp_cuda_array to, int64_t at, float value)
{
    const float values[1] = {value};
    mcp_store(to, at, values);
}

/* --- sums --- */

template <class T> static __device__ __forceinline__ T mcp_warp_sum(T value)
{
#pragma unroll
    for (int other = mcp_warp / 2; other > 0; other /= 2)
        value += __shfl_xor_sync(mcp_all_lanes, value, other);
    return value;
}

/* The larger; a NaN is none. */
static __device__ __forceinline__ float mcp_larger(float x, float y)
{
    return fmaxf(x, y);
}

static __device__ __forceinline__ float mcp_warp_largest(float value)
{
#pragma unroll
    for (int other = mcp_warp / 2; other > 0; other /= 2)
        value = mcp_larger(value, __shfl_xor_sync(mcp_all_lanes, value, other));
    return value;
}

/* Of all threads of a block that is whole warps along x, in every thread; all of them call it. */
template <class T, int C> static __device__ __forceinline__ void mcp_block_sums(T (&value)[C])
{
    MCP_SHARED(T, sums, C * mcp_warp);
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    const int warp = static_cast<int>(threadIdx.x) / mcp_warp;
    const int warps = static_cast<int>(blockDim.x) / mcp_warp;
    __syncthreads(); /* what an earlier sum left has been read */
#pragma unroll
    for (int c = 0; c < C; c++) {
        value[c] = mcp_warp_sum(value[c]);
        if (lane == 0)
            sums[c * mcp_warp + warp] = value[c];
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < C; c++)
        value[c] = mcp_warp_sum(lane < warps ? sums[c * mcp_warp + lane] : T(0));
}

template <class T> static __device__ __forceinline__ T mcp_block_sum(T value)
{
    T values[1] = {value};
    mcp_block_sums(values);
    return values[0];
}

/* --- functions --- */

constexpr float mcp_log2_e = 1.44269504f, mcp_log_2 = 0.693147181f;

/* e^x, to 2 + 1.2 |x| units in the last place; below 1e-38 it is 0. */
static __device__ __forceinline__ float mcp_exp(float x)
{
    return mcp_power_of_two(x * mcp_log2_e);
}

static __device__ __forceinline__ float mcp_sigmoid(float x)
{
    return mcp_reciprocal(1 + mcp_exp(-x));
}

/* --- indices --- */

/* 64-bit division is slow, and mostly 32 bits are enough. */
static __device__ __forceinline__ int64_t mcp_divide(int64_t x, int64_t by)
{
    if (static_cast<uint64_t>(x | by) >> 32 == 0)
        return static_cast<uint32_t>(x) / static_cast<uint32_t>(by);
    return x / by;
}

static __device__ __forceinline__ int64_t mcp_thread()
{
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

static __host__ __device__ __forceinline__ int64_t mcp_ceil(int64_t x, int64_t by)
{
    return (x + by - 1) / by;
}

static inline unsigned mcp_blocks(int64_t threads)
{
    return static_cast<unsigned>(mcp_ceil(threads, mcp_threads));
}

/* --- where tokens lie: struct mcp_cuda_tokens --- */

/* Tokens of a piece, of which a rank's part of a sequence has 1 or 2. */
static __host__ __device__ __forceinline__ int64_t mcp_piece_length(const mcp_cuda_tokens &t)
{
    return t.zigzag ? t.sequence_local / 2 : t.sequence_local;
}

/* Position of the first token of piece `piece` of context rank `rank`. */
static __host__ __device__ __forceinline__ int64_t mcp_piece_position(const mcp_cuda_tokens &t,
                                                                      int64_t rank, int64_t piece)
{
    return (piece == 0 ? rank : 2 * t.all_ranks - 1 - rank) * mcp_piece_length(t);
}

/* Position of a row, of one rank's. */
static __device__ __forceinline__ int64_t mcp_position_of(const mcp_cuda_tokens &t, int64_t row)
{
    const int64_t local = row - mcp_divide(row, t.sequence_local) * t.sequence_local;
    const int64_t length = mcp_piece_length(t), piece = local >= length;
    return mcp_piece_position(t, t.first_rank, piece) + local - piece * length;
}

/* --- how many numbers may be moved at once? --- */

static inline bool mcp_is_aligned(const void *data)
{
    return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}
/* Of an operand, or with so many elements in a row. */
static inline int mcp_pack_of(mcp_cuda_array array)
{
    return !mcp_is_aligned(array.data)                             ? 1
           : array.data != nullptr && array.format == MCP_CUDA_F32 ? mcp_pack_f32
                                                                   : mcp_pack;
}
static inline int mcp_pack_of(const float *data)
{
    return mcp_is_aligned(data) ? mcp_pack_f32 : 1;
}
static inline int mcp_pack_of(int64_t elements)
{
    return elements % mcp_pack == 0 ? mcp_pack : elements % mcp_pack_f32 == 0 ? mcp_pack_f32 : 1;
}
/* Of all of them together: 8, 4 or 1. */
template <class... T> static inline int mcp_pack_for(T... what)
{
    int least = mcp_pack;
    ((least = mcp_pack_of(what) < least ? mcp_pack_of(what) : least), ...);
    return least;
}
#define MCP_LAUNCH_PACKS(pack, kernel, grid, block, shared_bytes, stream, ...)                     \
    do {                                                                                           \
        if ((pack) == mcp_pack)                                                                    \
            MCP_LAUNCH(kernel<mcp_pack>, (grid), (block), (shared_bytes), (stream), __VA_ARGS__);  \
        else if ((pack) == mcp_pack_f32)                                                           \
            MCP_LAUNCH(kernel<mcp_pack_f32>, (grid), (block), (shared_bytes), (stream),            \
                       __VA_ARGS__);                                                               \
        else                                                                                       \
            MCP_LAUNCH(kernel<1>, (grid), (block), (shared_bytes), (stream), __VA_ARGS__);         \
    } while (0)
/* Threads for a row of so many packs: whole warps, 512 at most. Kernels of that many or more are
 * told so, or they might have more registers than a block's threads can have. */
constexpr int mcp_row_most = 512, mcp_block_most = 1024;
static inline unsigned mcp_row_threads(int64_t packs)
{
    return packs >= mcp_row_most
               ? mcp_row_most
               : static_cast<unsigned>(mcp_ceil(packs > 0 ? packs : 1, mcp_warp)) * mcp_warp;
}

/* --- sums over rows, in parts: cuda_kernels_map.cu --- */

/* gradient[columns] += parts[0][columns] + parts[1][columns] + ..., each `stride` apart. */
void mcp_add_parts(const float *parts, int num_parts, int64_t columns, mcp_cuda_array gradient,
                   const mcp_cuda_queue *queue);
static inline float *mcp_scratch(const mcp_cuda_queue *queue)
{
    return static_cast<float *>(queue->scratch);
}
/* Parts of columns floats that fit, at most `wanted`; 1 at least. */
static inline int mcp_parts_that_fit(int64_t columns, int64_t wanted)
{
    const int64_t room = MCP_CUDA_SCRATCH_BYTES / 4 / (columns > 0 ? columns : 1);
    const int64_t parts = wanted < room ? wanted : room;
    return parts < 1 ? 1 : static_cast<int>(parts);
}

#endif
