/* exec/cuda_kernels_quantise.cu: activations to 8 bits by blocks and back: step/quantised.h. */
#include "exec/cuda_parts.cuh"

constexpr int block_columns = 64, lane_columns = block_columns / mcp_warp;

/* A warp has a block of a row. */
struct place {
    int64_t row, block, blocks;
};

static __device__ __forceinline__ bool find_place(const mcp_cuda_quantised &op, place *out)
{
    const int64_t item = mcp_thread() / mcp_warp;
    out->blocks = mcp_ceil(op.columns, block_columns);
    out->row = mcp_divide(item, out->blocks);
    out->block = item - out->row * out->blocks;
    return out->row < op.rows;
}

/* The largest magnitude over 127; no number if one of them is none. */
static __device__ __forceinline__ float scale_of(const float (&x)[lane_columns])
{
    float largest = 0, poison = 0;
#pragma unroll
    for (int i = 0; i < lane_columns; i++) {
        largest = mcp_larger(largest, fabsf(x[i]));
        poison += x[i] * 0;
    }
    return mcp_warp_largest(largest) / 127 + mcp_warp_sum(poison);
}

static __global__ void quantise(mcp_cuda_quantised op)
{
    place p;
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    float x[lane_columns];
    if (!find_place(op, &p))
        return;
    const int64_t first = p.block * block_columns + lane;
#pragma unroll
    for (int i = 0; i < lane_columns; i++)
        x[i] = first + i * mcp_warp < op.columns
                   ? mcp_load_one(op.whole, p.row * op.columns + first + i * mcp_warp)
                   : 0;
    const float scale = scale_of(x), inverse = scale > 0 ? 1 / scale : 0;
    if (lane == 0)
        op.scales[p.row * p.blocks + p.block] = scale;
#pragma unroll
    for (int i = 0; i < lane_columns; i++) {
        float y = rintf(x[i] * inverse);
        y = y <= 127 ? y : 127; /* no number too: its scale tells */
        y = y >= -127 ? y : -127;
        if (first + i * mcp_warp < op.columns)
            op.bytes[p.row * op.columns + first + i * mcp_warp] = static_cast<signed char>(y);
    }
}

static __global__ void dequantise(mcp_cuda_quantised op)
{
    place p;
    if (!find_place(op, &p))
        return;
    const int64_t first = p.block * block_columns + threadIdx.x % mcp_warp;
    const float scale = op.scales[p.row * p.blocks + p.block];
#pragma unroll
    for (int i = 0; i < lane_columns; i++) {
        const int64_t at = p.row * op.columns + first + i * mcp_warp;
        if (first + i * mcp_warp < op.columns)
            mcp_store_one(op.whole, at, scale * static_cast<float>(op.bytes[at]));
    }
}

static int64_t threads_of(const mcp_cuda_quantised *op)
{
    return op->rows * mcp_ceil(op->columns, block_columns) * mcp_warp;
}

void mcp_cuda_quantise(const mcp_cuda_quantised *op, const mcp_cuda_queue *queue)
{
    if (op->rows > 0 && op->columns > 0)
        MCP_LAUNCH(quantise, mcp_blocks(threads_of(op)), mcp_threads, 0, queue->stream, *op);
}

void mcp_cuda_dequantise(const mcp_cuda_quantised *op, const mcp_cuda_queue *queue)
{
    if (op->rows > 0 && op->columns > 0)
        MCP_LAUNCH(dequantise, mcp_blocks(threads_of(op)), mcp_threads, 0, queue->stream, *op);
}
