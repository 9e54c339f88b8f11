/* exec/cuda_kernels_attention_back.cu: attention, backward, for heads of any size.
 *
 * With P = softmax(S), S = scale Q K^T and D = rowsum(dO * O):
 *     dV = P^T dO,  dP = dO V^T,  dS = scale P (dP - D),  dQ = dS K,  dK = dS^T Q
 * (Dao et al. 2022, appendix B.4). Scores are computed twice: by tiles of queries for dQ, by
 * tiles of keys for dK and dV, so that each sum has one owner and one order. */
#include "exec/cuda_attention.cuh"

constexpr int key_rows = mcp_tile_keys / mcp_tile_warps; /* of keys, of a warp */

/* A block's shared memory: a tile of each side, and what their scores come to, P or dS. All of it
 * is 98.25 KiB for heads of 256: some GPUs have 99. */
struct back_memory {
    float *query, *d_output; /* [tile_queries][head_dim], [tile_queries][value_head_dim] */
    float *weights;          /* [tile_queries][tile_keys] */
    mcp_kv_tile kv;
};

static __host__ __device__ __forceinline__ int64_t back_floats(const struct mcp_cuda_attention &op)
{
    const int64_t columns = op.head_dim + op.value_head_dim;
    return mcp_tile_queries * (columns + mcp_tile_keys) + mcp_tile_keys * (columns + 2);
}

static __device__ __forceinline__ back_memory memory_of(const struct mcp_cuda_attention &op,
                                                        float *shared)
{
    const int width = static_cast<int>(op.head_dim);
    const int value_width = static_cast<int>(op.value_head_dim);
    back_memory m;
    m.query = shared;
    m.d_output = m.query + mcp_tile_queries * width;
    m.weights = m.d_output + mcp_tile_queries * value_width;
    m.kv.key = m.weights + mcp_tile_queries * mcp_tile_keys;
    m.kv.value = m.kv.key + mcp_tile_keys * (width + 1);
    m.kv.key_stride = width + 1;
    m.kv.value_stride = value_width + 1;
    return m;
}

/* Of each row of a warp: its log-sum-exp, and D. */
struct row_numbers {
    float statistic[mcp_rows], delta[mcp_rows];
};

/* A tile of queries and of their outputs' gradients; all threads of the block call it. */
static __device__ __forceinline__ void load_queries(const struct mcp_cuda_attention &op,
                                                    const mcp_tile &tile, int64_t head,
                                                    const back_memory &m, row_numbers *numbers)
{
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    const int first = static_cast<int>(threadIdx.x) / mcp_warp * mcp_rows;
    mcp_load_tile({op.query, mcp_query_at(op, tile.row, head), op.heads * op.head_dim, m.query,
                   mcp_tile_queries, static_cast<int>(op.head_dim), static_cast<int>(op.head_dim)},
                  tile.count);
    mcp_load_tile({op.d_output, mcp_output_at(op, tile.row, head), op.heads * op.value_head_dim,
                   m.d_output, mcp_tile_queries, static_cast<int>(op.value_head_dim),
                   static_cast<int>(op.value_head_dim)},
                  tile.count);
#pragma unroll
    for (int r = 0; r < mcp_rows; r++) {
        const int64_t row = tile.row + first + r, at = mcp_output_at(op, row, head);
        float delta = 0;
        numbers->delta[r] = numbers->statistic[r] = 0;
        if (first + r >= tile.count)
            continue; /* the whole warp */
        for (int64_t c = lane; c < op.value_head_dim; c += mcp_warp)
            delta += mcp_load_one(op.output, at + c) * mcp_load_one(op.d_output, at + c);
        numbers->delta[r] = mcp_warp_sum(delta);
        numbers->statistic[r] = op.statistics[row * op.heads + head];
    }
}

/* P and dS of a warp's rows and the lane's key; 0 where a query does not see it. */
struct scores {
    float p[mcp_rows], ds[mcp_rows];
};

static __device__ __forceinline__ void score(const struct mcp_cuda_attention &op,
                                             const mcp_tile &queries, const mcp_tile &keys,
                                             const row_numbers &numbers, const back_memory &m,
                                             scores *out)
{
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    const int first = static_cast<int>(threadIdx.x) / mcp_warp * mcp_rows;
    const int width = static_cast<int>(op.head_dim);
    const int value_width = static_cast<int>(op.value_head_dim);
    float s[mcp_rows], dp[mcp_rows];
    mcp_dot_rows(m.query + first * width, width, m.kv.key + lane * m.kv.key_stride, width, s);
    mcp_dot_rows(m.d_output + first * value_width, value_width,
                 m.kv.value + lane * m.kv.value_stride, value_width, dp);
#pragma unroll
    for (int r = 0; r < mcp_rows; r++) {
        const bool sees = first + r < queries.count && lane < keys.count &&
                          mcp_sees(op, queries.position + first + r, keys.position + lane);
        out->p[r] = sees ? expf(s[r] * op.scale - numbers.statistic[r]) : 0;
        out->ds[r] = sees ? out->p[r] * (dp[r] - numbers.delta[r]) * op.scale : 0;
    }
}

/* Of a warp's rows and the lane's key, to where others read them. */
static __device__ __forceinline__ void share(const float (&rows)[mcp_rows], float *weights)
{
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    const int first = static_cast<int>(threadIdx.x) / mcp_warp * mcp_rows;
#pragma unroll
    for (int r = 0; r < mcp_rows; r++)
        weights[(first + r) * mcp_tile_keys + lane] = rows[r];
}

/* --- by tiles of queries --- */

template <int C>
static __device__ __forceinline__ void store_queries(const struct mcp_cuda_attention &op,
                                                     const mcp_tile &queries, int64_t head,
                                                     const float (&sums)[mcp_rows][C])
{
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    const int first = static_cast<int>(threadIdx.x) / mcp_warp * mcp_rows;
#pragma unroll
    for (int r = 0; r < mcp_rows; r++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            const int column = lane + c * mcp_warp;
            const int64_t at = mcp_query_at(op, queries.row + first + r, head) + column;
            if (first + r < queries.count && column < op.head_dim)
                mcp_store_one(op.d_query, at,
                              sums[r][c] + (op.adds ? mcp_load_one(op.d_query, at) : 0));
        }
}

template <int C>
static __global__ void __launch_bounds__(mcp_tile_threads, C > 4   ? 2
                                                           : C > 2 ? 3
                                                                   : 4)
    query_gradients(struct mcp_cuda_attention op)
{
    MCP_SHARED_ARRAY(float, shared);
    const back_memory m = memory_of(op, shared);
    const int64_t head = blockIdx.y, sequence = blockIdx.z * op.queries.sequence_local;
    const int64_t kv_head = head / (op.heads / op.kv_heads);
    const int warp = static_cast<int>(threadIdx.x) / mcp_warp;
    mcp_tile queries = mcp_tile_at(op.queries, mcp_tile_queries, blockIdx.x);
    row_numbers numbers;
    scores found;
    float sums[mcp_rows][C] = {};
    queries.row += sequence;
    load_queries(op, queries, head, m, &numbers);
    for (int64_t t = 0; t < mcp_num_tiles(op.keys, mcp_tile_keys); t++) {
        mcp_tile keys = mcp_tile_at(op.keys, mcp_tile_keys, t);
        if (!mcp_tiles_meet(op, queries, keys))
            continue;
        keys.row += sequence;
        __syncthreads(); /* the last tile has been read */
        mcp_load_kv(op, keys, kv_head, m.kv);
        __syncthreads();
        score(op, queries, keys, numbers, m, &found);
        share(found.ds, m.weights);
        __syncwarp();
        mcp_add_weighted(m.weights + warp * mcp_rows * mcp_tile_keys, m.kv.key, m.kv.key_stride,
                         static_cast<int>(op.head_dim), sums);
    }
    store_queries(op, queries, head, sums);
}

/* --- by tiles of keys --- */

/* Gradients of a warp's keys: column lane + 32 c of each. */
template <int C> struct key_sums {
    float key[key_rows][C], value[key_rows][C];
};

/* sums[j][c] += weights[query][first + j] x rows[query][lane + 32 c]. */
template <int C>
static __device__ __forceinline__ void add_across(const float *weights, const float *rows,
                                                  int width, float (&sums)[key_rows][C])
{
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    const int first = static_cast<int>(threadIdx.x) / mcp_warp * key_rows;
    for (int i = 0; i < mcp_tile_queries; i++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            const int column = lane + c * mcp_warp;
            const float y = column < width ? rows[i * width + column] : 0;
#pragma unroll
            for (int j = 0; j < key_rows; j++)
                sums[j][c] += weights[i * mcp_tile_keys + first + j] * y;
        }
}

template <int C>
static __device__ __forceinline__ void add_head(const struct mcp_cuda_attention &op, int64_t head,
                                                int64_t sequence, const mcp_tile &keys,
                                                const back_memory &m, key_sums<C> *sums)
{
    for (int64_t t = 0; t < mcp_num_tiles(op.queries, mcp_tile_queries); t++) {
        mcp_tile queries = mcp_tile_at(op.queries, mcp_tile_queries, t);
        row_numbers numbers;
        scores found;
        if (!mcp_tiles_meet(op, queries, keys))
            continue;
        queries.row += sequence;
        __syncthreads(); /* the last tile has been read */
        load_queries(op, queries, head, m, &numbers);
        __syncthreads();
        score(op, queries, keys, numbers, m, &found);
        share(found.p, m.weights);
        __syncthreads();
        add_across(m.weights, m.d_output, static_cast<int>(op.value_head_dim), sums->value);
        __syncthreads(); /* P has been read */
        share(found.ds, m.weights);
        __syncthreads();
        add_across(m.weights, m.query, static_cast<int>(op.head_dim), sums->key);
    }
}

template <int C>
static __device__ __forceinline__ void store_keys(const struct mcp_cuda_attention &op,
                                                  const mcp_tile &keys, int64_t kv_head,
                                                  const key_sums<C> &sums)
{
    const int lane = static_cast<int>(threadIdx.x) % mcp_warp;
    const int first = static_cast<int>(threadIdx.x) / mcp_warp * key_rows;
#pragma unroll
    for (int j = 0; j < key_rows; j++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            const int column = lane + c * mcp_warp;
            const int64_t row = keys.row + first + j;
            if (first + j >= keys.count)
                continue;
            if (column < op.head_dim)
                mcp_store_one(op.d_kv, mcp_key_at(op, row, kv_head) + column, sums.key[j][c]);
            if (column < op.value_head_dim)
                mcp_store_one(op.d_kv, mcp_value_at(op, row, kv_head) + column, sums.value[j][c]);
        }
}

template <int C>
static __global__ void __launch_bounds__(mcp_tile_threads, C > 4   ? 2
                                                           : C > 2 ? 3
                                                                   : 4)
    key_gradients(struct mcp_cuda_attention op)
{
    MCP_SHARED_ARRAY(float, shared);
    const back_memory m = memory_of(op, shared);
    const int64_t kv_head = blockIdx.y, sequence = blockIdx.z * op.queries.sequence_local;
    const int64_t group = op.heads / op.kv_heads;
    mcp_tile keys = mcp_tile_at(op.keys, mcp_tile_keys, blockIdx.x);
    key_sums<C> sums = {};
    mcp_tile placed = keys;
    placed.row += sequence;
    mcp_load_kv(op, placed, kv_head, m.kv);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        add_head(op, head, sequence, keys, m, &sums);
    store_keys(op, placed, kv_head, sums);
}

/* --- launches --- */

static size_t back_bytes(const struct mcp_cuda_attention *op)
{
    return static_cast<size_t>(back_floats(*op)) * sizeof(float);
}

static dim3 grid_of(const struct mcp_cuda_attention *op, int64_t tiles, int64_t heads)
{
    return dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(heads),
                static_cast<unsigned>(op->batch));
}

#define LAUNCH_BACK(C)                                                                             \
    do {                                                                                           \
        MCP_ALLOW_SHARED((query_gradients<C>), bytes);                                             \
        MCP_ALLOW_SHARED((key_gradients<C>), bytes);                                               \
        MCP_LAUNCH((query_gradients<C>), grid_of(op, query_tiles, op->heads), mcp_tile_threads,    \
                   bytes, queue->stream, *op);                                                     \
        MCP_LAUNCH((key_gradients<C>), grid_of(op, key_tiles, op->kv_heads), mcp_tile_threads,     \
                   bytes, queue->stream, *op);                                                     \
    } while (0)

void mcp_cuda_attention_backward(const struct mcp_cuda_attention *op, const mcp_cuda_queue *queue)
{
    if (mcp_flash_attention_backward(op, MCP_CUDA_SCRATCH_BYTES, queue))
        return;
    const int64_t query_tiles = mcp_num_tiles(op->queries, mcp_tile_queries);
    const int64_t key_tiles = mcp_num_tiles(op->keys, mcp_tile_keys);
    const size_t bytes = back_bytes(op);
    if (query_tiles > 0 && key_tiles > 0 && op->kv_heads > 0 && op->batch > 0)
        MCP_BY_WIDTH(op, LAUNCH_BACK);
}
