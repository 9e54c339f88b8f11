/* exec/cuda_parts.cuh: what kernels share: numbers of any format, by packs; sums of threads;
 * launches over packs. Private to exec/cuda_kernels*.cu.
 *
 * A kernel is written over packs of N numbers: N = 8 moves 16 bytes of 2-byte numbers at a time,
 * and needs aligned operands; N = 1 does what is left. */
#ifndef MCP_EXEC_CUDA_PARTS_CUH
#define MCP_EXEC_CUDA_PARTS_CUH

#include "exec/cuda_device.cuh"
#include "exec/cuda_kernels.h"

#include <cmath>
#include <cstdint>

constexpr int mcp_pack = 8, mcp_threads = 256, mcp_warp = 32;
constexpr unsigned mcp_all_lanes = 0xffffffffu;

/* --- packs --- */

template <int N>
static __device__ __forceinline__ void mcp_unpack(const unsigned *words, bool half, float (&out)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const unsigned word = words[i / 2], high = i % 2 != 0 ? word & 0xffff0000u : word << 16;
        out[i] = half ? __half2float(__ushort_as_half(static_cast<unsigned short>(high >> 16)))
                      : __uint_as_float(high);
    }
}

static __device__ __forceinline__ unsigned mcp_narrow(float value, bool half)
{
    return half ? __half_as_ushort(__float2half_rn(value))
                : __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

/* Elements [at, at + N). */
template <int N>
static __device__ __forceinline__ void mcp_load(mcp_cuda_array from, int64_t at, float (&out)[N])
{
    if constexpr (N == 1) {
        if (from.format == MCP_CUDA_F32) {
            out[0] = static_cast<const float *>(from.data)[at];
            return;
        }
        const unsigned word = static_cast<const unsigned short *>(from.data)[at];
        mcp_unpack(&word, from.format == MCP_CUDA_F16, out);
    } else if (from.format == MCP_CUDA_F32) {
        const float4 *x =
            reinterpret_cast<const float4 *>(static_cast<const float *>(from.data) + at);
        const float4 low = x[0], high = x[1];
        out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
        out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
    } else {
        const uint4 x =
            *reinterpret_cast<const uint4 *>(static_cast<const unsigned short *>(from.data) + at);
        const unsigned words[4] = {x.x, x.y, x.z, x.w};
        mcp_unpack(words, from.format == MCP_CUDA_F16, out);
    }
}

template <int N>
static __device__ __forceinline__ void mcp_store(mcp_cuda_array to, int64_t at,
                                                 const float (&value)[N])
{
    const bool half = to.format == MCP_CUDA_F16;
    if constexpr (N == 1) {
        if (to.format == MCP_CUDA_F32)
            static_cast<float *>(to.data)[at] = value[0];
        else
            static_cast<unsigned short *>(to.data)[at] =
                static_cast<unsigned short>(mcp_narrow(value[0], half));
    } else if (to.format == MCP_CUDA_F32) {
        float4 *x = reinterpret_cast<float4 *>(static_cast<float *>(to.data) + at);
        x[0] = float4{value[0], value[1], value[2], value[3]};
        x[1] = float4{value[4], value[5], value[6], value[7]};
    } else {
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            words[i] = mcp_narrow(value[2 * i], half) | mcp_narrow(value[2 * i + 1], half) << 16;
        *reinterpret_cast<uint4 *>(static_cast<unsigned short *>(to.data) + at) =
            uint4{words[0], words[1], words[2], words[3]};
    }
}

/* Those of an operand that may be none. */
template <int N>
static __device__ __forceinline__ void mcp_load_or(mcp_cuda_array from, int64_t at, float none,
                                                   float (&out)[N])
{
    if (from.data != nullptr) {
        mcp_load(from, at, out);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        out[i] = none;
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
    return y > x ? y : x;
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

/* --- may packs of 8 be moved? --- */

static inline bool mcp_is_wide(mcp_cuda_array array)
{
    return reinterpret_cast<uintptr_t>(array.data) % 16 == 0;
}
static inline bool mcp_is_wide(const float *data)
{
    return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}
static inline bool mcp_is_wide(int64_t elements)
{
    return elements % mcp_pack == 0;
}
template <class... T> static inline bool mcp_are_wide(T... what)
{
    return (... && mcp_is_wide(what));
}
#define MCP_LAUNCH_PACKS(wide, kernel, grid, block, shared_bytes, stream, ...)                     \
    do {                                                                                           \
        if (wide)                                                                                  \
            MCP_LAUNCH(kernel<mcp_pack>, (grid), (block), (shared_bytes), (stream), __VA_ARGS__);  \
        else                                                                                       \
            MCP_LAUNCH(kernel<1>, (grid), (block), (shared_bytes), (stream), __VA_ARGS__);         \
    } while (0)
/* Threads for a row of so many packs: whole warps, 512 at most. */
static inline unsigned mcp_row_threads(int64_t packs)
{
    return packs >= 512
               ? 512
               : static_cast<unsigned>(mcp_ceil(packs > 0 ? packs : 1, mcp_warp)) * mcp_warp;
}
static inline int mcp_width(bool wide)
{
    return wide ? mcp_pack : 1;
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
