/* exec/cuda_kernels_quantise.cu: activations to 8 bits by blocks and back: step/quantised.h. */
#include "exec/cuda_parts.cuh"

constexpr int block_columns = 64;

/* A block of a row has as many lanes as it takes: with packs of 8 or 4 columns, or with 2. */
template <int N> constexpr int lanes = block_columns / N;
constexpr int narrow = block_columns / mcp_warp;

struct place {
    int64_t row, block, blocks;
    int64_t first; /* column of this lane */
};

/* False past the last: other lanes of the warp may have work. */
template <int N>
static __device__ __forceinline__ bool find_place(const mcp_cuda_quantised &op, place *out)
{
    const int64_t item = mcp_thread() / lanes<N>;
    out->blocks = mcp_ceil(op.columns, block_columns);
    out->row = mcp_divide(item, out->blocks);
    out->block = item - out->row * out->blocks;
    out->first = out->block * block_columns + threadIdx.x % lanes<N> * N;
    return out->row < op.rows;
}

/* What is past the last column is 0; a whole pack is there or not. */
template <int N>
static __device__ __forceinline__ void load_columns(const mcp_cuda_quantised &op, const place &p,
                                                    float (&x)[N])
{
    const int64_t at = p.row * op.columns + p.first;
    if constexpr (N > narrow) {
        if (p.first < op.columns)
            mcp_load(op.whole, at, x);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (p.first + i < op.columns)
                x[i] = mcp_load_one(op.whole, at + i);
    }
}

/* The largest magnitude of a block over 127; no number if one of them is none. */
template <int N> static __device__ __forceinline__ float scale_of(const float (&x)[N])
{
    float largest = 0, poison = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        largest = mcp_larger(largest, fabsf(x[i]));
        poison += x[i] * 0;
    }
#pragma unroll
    for (int other = lanes<N> / 2; other > 0; other /= 2) {
        largest = mcp_larger(largest, __shfl_xor_sync(mcp_all_lanes, largest, other));
        poison += __shfl_xor_sync(mcp_all_lanes, poison, other);
    }
    return largest / 127 + poison;
}

static __device__ __forceinline__ int byte_of(float x, float inverse)
{
    float y = rintf(x * inverse);
    y = y <= 127 ? y : 127; /* no number too: its scale tells */
    return static_cast<int>(y >= -127 ? y : -127);
}

template <int N> static __global__ void quantise(mcp_cuda_quantised op)
{
    place p;
    float x[N] = {};
    const bool inside = find_place<N>(op, &p);
    if (inside)
        load_columns<N>(op, p, x);
    const float scale = scale_of(x), inverse = scale > 0 ? 1 / scale : 0;
    signed char *const to = op.bytes + p.row * op.columns + p.first;
    if (!inside)
        return;
    if (threadIdx.x % lanes<N> == 0)
        op.scales[p.row * p.blocks + p.block] = scale;
    if constexpr (N > narrow) {
        unsigned words[N / 4] = {};
#pragma unroll
        for (int i = 0; i < N; i++)
            words[i / 4] |= (byte_of(x[i], inverse) & 0xffu) << 8 * (i % 4);
#pragma unroll
        for (int i = 0; i < N / 4; i++)
            if (p.first < op.columns)
                reinterpret_cast<unsigned *>(to)[i] = words[i];
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (p.first + i < op.columns)
                to[i] = static_cast<signed char>(byte_of(x[i], inverse));
    }
}

template <int N> static __global__ void dequantise(mcp_cuda_quantised op)
{
    place p;
    if (!find_place<N>(op, &p))
        return;
    const int64_t at = p.row * op.columns + p.first;
    const float scale = op.scales[p.row * p.blocks + p.block];
    if constexpr (N > narrow) {
        if (p.first >= op.columns)
            return;
        const auto *words = reinterpret_cast<const unsigned *>(op.bytes + at);
        float x[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = scale * static_cast<float>(
                               static_cast<signed char>(words[i / 4] >> 8 * (i % 4) & 0xffu));
        mcp_store(op.whole, at, x);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (p.first + i < op.columns)
                mcp_store_one(op.whole, at + i, scale * static_cast<float>(op.bytes[at + i]));
    }
}

static int pack_of(const mcp_cuda_quantised *op)
{
    const bool whole_words = reinterpret_cast<uintptr_t>(op->bytes) % 4 == 0;
    return whole_words ? mcp_pack_for(op->whole, op->columns) : 1;
}

#define LAUNCH_BLOCKS(kernel, N)                                                                   \
    MCP_LAUNCH(kernel<N>, mcp_blocks(blocks *lanes<N>), mcp_threads, 0, queue->stream, *op)
#define LAUNCH_PACKS(kernel)                                                                       \
    do {                                                                                           \
        const int64_t blocks = op->rows * mcp_ceil(op->columns, block_columns);                    \
        const int pack = pack_of(op);                                                              \
        if (blocks > 0 && pack == mcp_pack)                                                        \
            LAUNCH_BLOCKS(kernel, mcp_pack);                                                       \
        else if (blocks > 0 && pack == mcp_pack_f32)                                               \
            LAUNCH_BLOCKS(kernel, mcp_pack_f32);                                                   \
        else if (blocks > 0)                                                                       \
            LAUNCH_BLOCKS(kernel, narrow);                                                         \
    } while (0)

void mcp_cuda_quantise(const struct mcp_cuda_quantised *op, const mcp_cuda_queue *queue)
{
    LAUNCH_PACKS(quantise);
}

void mcp_cuda_dequantise(const struct mcp_cuda_quantised *op, const mcp_cuda_queue *queue)
{
    LAUNCH_PACKS(dequantise);
}
