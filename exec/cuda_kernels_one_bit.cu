/* exec/cuda_kernels_one_bit.cu: signs and scales of 1-bit Adam: step/layer_data.h has the
 * arithmetic. Bit i % 8 of byte i / 8 is 1 where element i is below 0. */
#include "exec/cuda_parts.cuh"

static __global__ void momentum(struct mcp_cuda_momentum op)
{
    const int64_t i = mcp_thread();
    if (i < op.elements && !(op.scalars[1] > 0))
        op.moment[i] =
            op.beta * op.moment[i] + (1 - op.beta) * (op.factor * mcp_load_one(op.gradients, i));
}

void mcp_cuda_momentum(const struct mcp_cuda_momentum *op, const mcp_cuda_queue *queue)
{
    if (op->elements > 0)
        MCP_LAUNCH(momentum, mcp_blocks(op->elements), mcp_threads, 0, queue->stream, *op);
}

static __global__ void add_error(mcp_cuda_signs op)
{
    const int64_t i = mcp_thread();
    if (i < op.real && !(op.scalars[1] > 0))
        op.error[i] += op.value[i];
}

void mcp_cuda_add_error(const mcp_cuda_signs *op, const mcp_cuda_queue *queue)
{
    if (op->real > 0)
        MCP_LAUNCH(add_error, mcp_blocks(op->real), mcp_threads, 0, queue->stream, *op);
}

/* --- signs --- */

constexpr unsigned most_sums = 1024; /* blocks of a sum */

constexpr int strides = 8; /* whose squares a thread adds up in fp32: fp64 may be slow */

/* Squares and number of what is not masked, of each block. */
static __global__ void sum_unmasked(mcp_cuda_signs op, double *sums)
{
    double both[2] = {0, 0};
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t first = mcp_thread(); first < op.real; first += strides * step) {
        float squares = 0;
        int count = 0;
#pragma unroll
        for (int k = 0; k < strides; k++) {
            const int64_t i = first + k * step;
            const bool counts = i < op.real && op.variance[i] > 0;
            const float u = counts ? op.error[i] : 0;
            squares += u * u;
            count += counts ? 1 : 0;
        }
        both[0] += static_cast<double>(squares);
        both[1] += count;
    }
    mcp_block_sums(both);
    if (threadIdx.x > 0)
        return;
    sums[2 * blockIdx.x] = both[0];
    sums[2 * blockIdx.x + 1] = both[1];
}

/* ||u|| / sqrt(n), by one block. */
static __global__ void set_scale(const double *sums, int count, const float *scalars, float *scale)
{
    double both[2] = {0, 0};
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
        both[0] += sums[2 * i];
        both[1] += sums[2 * i + 1];
    }
    mcp_block_sums(both);
    if (threadIdx.x == 0)
        *scale = both[1] > 0 && !(scalars[1] > 0) ? static_cast<float>(sqrt(both[0] / both[1])) : 0;
}

/* A thread has a byte: eight elements' signs, and their errors in place of themselves. A step
 * that is skipped says 0, and errors stay. */
static __global__ void compress(mcp_cuda_signs op)
{
    const int64_t byte = mcp_thread();
    const float scale = *op.scale;
    const bool skipped = op.scalars[1] > 0;
    unsigned bits = 0;
    if (byte >= op.elements / 8)
        return;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int64_t at = 8 * byte + i;
        if (at >= op.real || skipped)
            break;
        const float u = op.error[at];
        bits |= (u < 0 ? 1u : 0u) << i;
        op.error[at] = op.variance[at] > 0 ? u - (u < 0 ? -scale : scale) : 0;
    }
    op.signs[byte] = static_cast<unsigned char>(bits);
}

void mcp_cuda_compress_signs(const mcp_cuda_signs *op, const mcp_cuda_queue *queue)
{
    const unsigned wanted = mcp_blocks(mcp_ceil(op->real > 0 ? op->real : 1, 8));
    const unsigned blocks = wanted < most_sums ? wanted : most_sums;
    double *sums = static_cast<double *>(queue->scratch);
    MCP_LAUNCH(sum_unmasked, blocks, mcp_threads, 0, queue->stream, *op, sums);
    MCP_LAUNCH(set_scale, 1, mcp_threads, 0, queue->stream, sums, static_cast<int>(blocks),
               op->scalars, op->scale);
    if (op->elements >= 8)
        MCP_LAUNCH(compress, mcp_blocks(op->elements / 8), mcp_threads, 0, queue->stream, *op);
}

static __device__ __forceinline__ float signed_scale(const unsigned char *signs, int64_t i,
                                                     float scale)
{
    return (signs[i / 8] >> (i % 8) & 1) != 0 ? -scale : scale;
}

static __global__ void average(mcp_cuda_votes op)
{
    const int64_t i = mcp_thread();
    float sum = 0;
    if (i >= op.own)
        return;
    for (int64_t r = 0; r < op.ranks; r++)
        sum += signed_scale(op.signs + r * (op.own / 8), i, op.scales[r]);
    op.out[i] = sum / static_cast<float>(op.ranks);
}

void mcp_cuda_average_signs(const mcp_cuda_votes *op, const mcp_cuda_queue *queue)
{
    if (op->own > 0)
        MCP_LAUNCH(average, mcp_blocks(op->own), mcp_threads, 0, queue->stream, *op);
}

static __global__ void decompress(mcp_cuda_votes op)
{
    const int64_t i = mcp_thread();
    if (i < op.elements && !(op.scalars[1] > 0))
        op.out[i] = signed_scale(op.signs, i, op.scales[mcp_divide(i, op.own)]);
}

void mcp_cuda_decompress_signs(const mcp_cuda_votes *op, const mcp_cuda_queue *queue)
{
    if (op->elements > 0)
        MCP_LAUNCH(decompress, mcp_blocks(op->elements), mcp_threads, 0, queue->stream, *op);
}
