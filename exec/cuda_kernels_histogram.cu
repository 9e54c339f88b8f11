/* exec/cuda_kernels_histogram.cu: how many numbers lie where, by magnitude: for monitoring. */
#include "exec/cuda_parts.cuh"

/* A tile's buckets lie in shared memory, two in a word; each thread counts those that are its own
 * bucket, the first also the last one of all: no atomics. */
constexpr int tile = 4 * mcp_threads, most_blocks = 1024, middle = MCP_CUDA_BUCKETS / 2;
constexpr int lowest_half_octave = -96; /* 2^(-96 / 2): nearer to 0 is the middle bucket */
constexpr unsigned no_bucket = 0xffff, half_octave = 0x3504f4; /* 1.41421366: first over root 2 */
static_assert(MCP_CUDA_BUCKETS == mcp_threads + 1, "a bucket for each thread, and one");

/* What a block leaves of its numbers. */
struct block_numbers {
    double smallest, largest, sum, squares;
};
static_assert(most_blocks * (MCP_CUDA_BUCKETS * sizeof(unsigned) + sizeof(block_numbers)) <=
                  MCP_CUDA_SCRATCH_BYTES,
              "the scratch memory holds what blocks leave");

/* Of a finite number (exec/events.h). */
static __device__ __forceinline__ int bucket_of(float x)
{
    const unsigned bits = __float_as_uint(x) & 0x7fffffffu, fraction = bits & 0x7fffffu;
    const int exponent = static_cast<int>(bits >> 23) - 127; /* of what is not normal far below */
    int side = 2 * exponent + (fraction >= half_octave ? 1 : 0) - lowest_half_octave;
    side = side < 0 ? -1 : side < middle ? side : middle - 1;
    return x < 0 ? middle - 1 - side : middle + 1 + side;
}

static __device__ __forceinline__ float smaller(float x, float y)
{
    return x < y ? x : y;
}

/* Numbers of one thread. */
struct mine {
    float smallest, largest;
    double sum, squares;
};

/* Its bucket, after it has been counted in what is the thread's; no_bucket: there is none, or it
 * is not finite. */
static __device__ __forceinline__ unsigned take(mcp_cuda_array from, int64_t at, int64_t elements,
                                                mine *m)
{
    if (at >= elements)
        return no_bucket;
    const float x = mcp_load_one(from, at);
    if ((__float_as_uint(x) & 0x7f800000u) == 0x7f800000u)
        return no_bucket;
    m->smallest = smaller(m->smallest, x);
    m->largest = mcp_larger(m->largest, x);
    m->sum += static_cast<double>(x);
    m->squares += static_cast<double>(x) * static_cast<double>(x);
    return static_cast<unsigned>(bucket_of(x));
}

/* Of all threads of the block, in every thread. */
static __device__ __forceinline__ float block_largest(float value)
{
    MCP_SHARED(float, largest, mcp_threads / mcp_warp);
    const int thread = static_cast<int>(threadIdx.x);
    value = mcp_warp_largest(value);
    __syncthreads(); /* what an earlier call left has been read */
    if (thread % mcp_warp == 0)
        largest[thread / mcp_warp] = value;
    __syncthreads();
    for (int i = 0; i < mcp_threads / mcp_warp; i++)
        value = mcp_larger(value, largest[i]);
    return value;
}

/* Of a tile: how many are in the thread's bucket, and in the last one. */
static __device__ __forceinline__ void count_tile(const unsigned *buckets, unsigned *count,
                                                  unsigned *last)
{
    for (int i = 0; i < tile / 2; i++) {
        const unsigned two = buckets[i], low = two & 0xffffu, high = two >> 16;
        *count += (low == threadIdx.x ? 1u : 0u) + (high == threadIdx.x ? 1u : 0u);
        *last += (low == mcp_threads ? 1u : 0u) + (high == mcp_threads ? 1u : 0u);
    }
}

static __global__ void histogram(mcp_cuda_array from, int64_t elements, unsigned *counts,
                                 block_numbers *numbers)
{
    MCP_SHARED(unsigned, buckets, tile / 2);
    const int thread = static_cast<int>(threadIdx.x);
    const int64_t stride = static_cast<int64_t>(gridDim.x) * tile;
    mine m = {INFINITY, -INFINITY, 0, 0};
    unsigned count = 0, last = 0;
    for (int64_t first = static_cast<int64_t>(blockIdx.x) * tile; first < elements;
         first += stride) {
        for (int i = thread; i < tile / 2; i += mcp_threads) {
            const unsigned low = take(from, first + i, elements, &m);
            buckets[i] = low | take(from, first + tile / 2 + i, elements, &m) << 16;
        }
        __syncthreads(); /* the tile has come */
        count_tile(buckets, &count, &last);
        __syncthreads(); /* and has been counted */
    }
    unsigned *own = counts + static_cast<int64_t>(blockIdx.x) * MCP_CUDA_BUCKETS;
    own[thread] = count;
    if (thread == 0)
        own[mcp_threads] = last;
    const double sum = mcp_block_sum(m.sum), squares = mcp_block_sum(m.squares);
    const float largest = block_largest(m.largest), smallest = -block_largest(-m.smallest);
    if (thread == 0)
        numbers[blockIdx.x] = {smallest, largest, sum, squares};
}

/* Blocks in their order; one block. */
static __global__ void add_blocks(const unsigned *counts, const block_numbers *numbers, int blocks,
                                  double *out)
{
    const int thread = static_cast<int>(threadIdx.x);
    double all = 0;
    for (int bucket = thread; bucket < MCP_CUDA_BUCKETS; bucket += mcp_threads) {
        double count = 0;
        for (int b = 0; b < blocks; b++)
            count += counts[static_cast<int64_t>(b) * MCP_CUDA_BUCKETS + bucket];
        out[MCP_CUDA_HISTOGRAM - MCP_CUDA_BUCKETS + bucket] = count;
        all += count;
    }
    all = mcp_block_sum(all);
    if (thread > 0)
        return;
    block_numbers total = numbers[0];
    for (int b = 1; b < blocks; b++) {
        total.smallest =
            numbers[b].smallest < total.smallest ? numbers[b].smallest : total.smallest;
        total.largest = numbers[b].largest > total.largest ? numbers[b].largest : total.largest;
        total.sum += numbers[b].sum;
        total.squares += numbers[b].squares;
    }
    out[0] = total.smallest;
    out[1] = total.largest;
    out[2] = all;
    out[3] = total.sum;
    out[4] = total.squares;
}

void mcp_cuda_histogram(mcp_cuda_array from, int64_t elements, double *out,
                        const mcp_cuda_queue *queue)
{
    const int64_t parts = mcp_ceil(elements, 4 * tile);
    const int blocks = parts < 1 ? 1 : parts < most_blocks ? static_cast<int>(parts) : most_blocks;
    auto *counts = static_cast<unsigned *>(queue->scratch);
    auto *numbers = reinterpret_cast<block_numbers *>(counts + static_cast<int64_t>(most_blocks) *
                                                                   MCP_CUDA_BUCKETS);
    MCP_LAUNCH(histogram, static_cast<unsigned>(blocks), mcp_threads, 0, queue->stream, from,
               elements, counts, numbers);
    MCP_LAUNCH(add_blocks, 1, mcp_threads, 0, queue->stream, counts, numbers, blocks, out);
}
