/* exec/cuda_kernels_layout.cu: from the projection to queries, keys and values and back, with
 * biases and rotary positions; and the exchange of tokens for heads. */
#include "exec/cuda_parts.cuh"

/* Of the columns of a row of the projection, one pack of one head. */
struct column {
    mcp_cuda_array part;    /* query or kv */
    int64_t at, row_length; /* in a row of it, and how long that is */
    int64_t in_head;
    bool turns;
};

static __device__ __forceinline__ column column_of(const mcp_cuda_heads &op, int64_t c)
{
    const int64_t query = op.heads * op.head_dim, key = op.kv_heads * op.head_dim;
    const int64_t kv = key + op.kv_heads * op.value_head_dim;
    if (c < query)
        return {op.query, c, query, c - mcp_divide(c, op.head_dim) * op.head_dim, true};
    if (c < query + key) {
        const int64_t at = c - query;
        return {op.kv, at, kv, at - mcp_divide(at, op.head_dim) * op.head_dim, true};
    }
    return {op.kv, c - query, kv, 0, false};
}

/* Where a turn's numbers are: neighbours, which read N turns one by one, in different banks. */
template <int N> static __device__ __forceinline__ int turn_at(int turn)
{
    return turn % N * (MCP_CUDA_MAX_TURNS / N) + turn / N;
}

/* Angles of a row, by all threads of its block. */
template <int N>
static __device__ __forceinline__ void set_turns(const mcp_cuda_heads &op, float position,
                                                 float sign, float *cosine, float *sine)
{
    for (int i = static_cast<int>(threadIdx.x); i < op.turns.count;
         i += static_cast<int>(blockDim.x)) {
        float s;
        sincosf(position * op.turns.frequency[i], &s, &cosine[turn_at<N>(i)]);
        sine[turn_at<N>(i)] = sign * s;
    }
    __syncthreads();
}

/* Numbers that have been fetched, with their bias. */
template <int N>
static __device__ __forceinline__ void decode_biased(const mcp_cuda_array &from,
                                                     const mcp_words<N> &words, mcp_cuda_array bias,
                                                     int64_t bias_at, float (&out)[N])
{
    float more[N];
    mcp_load_or(bias, bias_at, 0, more);
    mcp_decode(from, words, out);
#pragma unroll
    for (int i = 0; i < N; i++)
        out[i] += more[i];
}

/* One block a row: column i of a head turns with column i + count (Hugging Face's rotate_half). */
template <int N>
static __global__ void __launch_bounds__(mcp_row_most) move_heads(mcp_cuda_heads op, int splits)
{
    MCP_SHARED(float, cosine, MCP_CUDA_MAX_TURNS);
    MCP_SHARED(float, sine, MCP_CUDA_MAX_TURNS);
    const int64_t row = blockIdx.x, count = op.turns.count;
    const int64_t columns =
        (op.heads + op.kv_heads) * op.head_dim + op.kv_heads * op.value_head_dim;
    if (count > 0)
        set_turns<N>(op, static_cast<float>(mcp_position_of(op.tokens, row)), splits ? 1.0f : -1.0f,
                     cosine, sine);
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < columns; c += blockDim.x * N) {
        const column here = column_of(op, c);
        const int64_t part_at = row * here.row_length + here.at, whole_at = row * columns + c;
        const mcp_cuda_array &from = splits ? op.whole : here.part;
        const int64_t at = splits ? whole_at : part_at;
        const bool low = here.in_head < count, turns = here.turns && here.in_head < 2 * count;
        const int64_t other = low ? count : -count;
        mcp_words<N> x_words, y_words = {};
        float x[N], y[N];
        mcp_fetch(from, at, x_words);
        if (turns)
            mcp_fetch(from, at + other, y_words);
        decode_biased(from, x_words, op.bias, c, x);
        if (turns) {
            const int turn = static_cast<int>(low ? here.in_head : here.in_head - count);
            decode_biased(from, y_words, op.bias, c + other, y);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const int at_turn = turn_at<N>(turn) + turn_at<N>(i);
                x[i] = x[i] * cosine[at_turn] + (low ? -y[i] : y[i]) * sine[at_turn];
            }
        }
        mcp_store(splits ? here.part : op.whole, splits ? part_at : whole_at, x);
    }
}

static void launch_heads(const mcp_cuda_heads *op, int splits, const mcp_cuda_queue *queue)
{
    const int64_t columns =
        (op->heads + op->kv_heads) * op->head_dim + op->kv_heads * op->value_head_dim;
    const int pack = mcp_pack_for(op->whole, op->query, op->kv, op->bias, op->head_dim,
                                  op->value_head_dim, static_cast<int64_t>(op->turns.count));
    if (op->rows > 0)
        MCP_LAUNCH_PACKS(pack, move_heads, static_cast<unsigned>(op->rows),
                         mcp_row_threads(columns / pack), 0, queue->stream, *op, splits);
}

void mcp_cuda_split_heads(const mcp_cuda_heads *op, const mcp_cuda_queue *queue)
{
    launch_heads(op, 1, queue);
}

void mcp_cuda_join_heads(const mcp_cuda_heads *op, const mcp_cuda_queue *queue)
{
    mcp_cuda_heads back = *op;
    back.bias.data = nullptr;
    launch_heads(&back, 0, queue);
}

/* --- tokens for heads --- */

/* Column c of a token's row: where it is in [ranks][tokens][bands][share]. */
template <int N> static __global__ void exchange(mcp_cuda_exchange op)
{
    const int64_t packs = op.columns / N, item = mcp_thread(), token = mcp_divide(item, packs);
    const int64_t c = (item - token * packs) * N;
    if (token >= op.tokens)
        return;
    const bool second = c >= op.first_band;
    const int64_t share = (second ? op.columns - op.first_band : op.first_band) / op.ranks;
    const int64_t in_band = second ? c - op.first_band : c, rank = mcp_divide(in_band, share);
    const int64_t before = second ? op.first_band / op.ranks : 0;
    const int64_t apart =
        (rank * op.tokens + token) * (op.columns / op.ranks) + before + in_band - rank * share;
    const int64_t whole = token * op.columns + c;
    float x[N];
    mcp_load(op.from, op.packs ? whole : apart, x);
    mcp_store(op.to, op.packs ? apart : whole, x);
}

void mcp_cuda_exchange_heads(const mcp_cuda_exchange *op, const mcp_cuda_queue *queue)
{
    const int pack =
        mcp_pack_for(op->from, op->to, op->first_band, op->first_band / op->ranks,
                     op->columns - op->first_band, (op->columns - op->first_band) / op->ranks);
    if (op->tokens > 0 && op->columns > 0)
        MCP_LAUNCH_PACKS(pack, exchange, mcp_blocks(op->tokens * op->columns / pack), mcp_threads,
                         0, queue->stream, *op);
}
