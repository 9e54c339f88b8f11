/* tests/cuda/attention.h: attention in double precision, by the words of exec/cuda_kernels.h. */
#ifndef MCP_TESTS_CUDA_ATTENTION_H
#define MCP_TESTS_CUDA_ATTENTION_H

#include "kit.h"

#include <algorithm>

struct attention_case {
    int64_t batch, heads, kv_heads, width, value_width, window, chunk;
    mcp_cuda_tokens queries, keys; /* rank_rows is filled in */
    int adds;
};

/* Position of a row of the first sequence, by the words of struct mcp_cuda_tokens. */
inline int64_t position_of(const mcp_cuda_tokens &t, int64_t rank, int64_t local)
{
    const int64_t half = t.sequence_local / 2;
    if (!t.zigzag)
        return rank * t.sequence_local + local;
    return local < half ? rank * half + local : (2 * t.all_ranks - 1 - rank) * half + local - half;
}

struct attention_token {
    int64_t row, position;
};
inline std::vector<attention_token> tokens_of(const mcp_cuda_tokens &t, int64_t sequence)
{
    std::vector<attention_token> all;
    for (int64_t r = 0; r < t.num_ranks; r++)
        for (int64_t i = 0; i < t.sequence_local; i++)
            all.push_back({r * t.rank_rows + sequence * t.sequence_local + i,
                           position_of(t, t.first_rank + r, i)});
    return all;
}

inline bool sees(const attention_case &c, int64_t query, int64_t key)
{
    return key <= query && (c.window == 0 || key > query - c.window) &&
           (c.chunk == 0 || key / c.chunk == query / c.chunk);
}

/* Operands, and what is wanted of them. */
struct attention_arrays {
    attention_case c;
    int64_t query_rows, key_rows, kv_columns;
    kit_array query, kv, output, d_output, d_query, d_kv;
    kit_memory<float> statistics;
    std::vector<double> want_output, want_statistics, want_query, want_kv;
    struct mcp_cuda_attention op;

    attention_arrays(const attention_case &given, mcp_cuda_format f)
        : c(given), query_rows(c.queries.num_ranks * c.batch * c.queries.sequence_local),
          key_rows(c.keys.num_ranks * c.batch * c.keys.sequence_local),
          kv_columns(c.kv_heads * (c.width + c.value_width)),
          query(f, query_rows * c.heads * c.width), kv(f, key_rows * kv_columns),
          output(f, query_rows * c.heads * c.value_width),
          d_output(f, query_rows * c.heads * c.value_width),
          d_query(f, query_rows * c.heads * c.width), d_kv(f, key_rows * kv_columns),
          statistics(query_rows * c.heads), op()
    {
        query.fill(0, 2, 1);
        kv.fill(0, 1, 2);
        d_output.fill(0, 1, 3);
        if (c.adds)
            d_query.fill(0, 1, 4);
        c.queries.rank_rows = c.batch * c.queries.sequence_local;
        c.keys.rank_rows = c.batch * c.keys.sequence_local;
        op.query = query, op.kv = kv, op.output = output, op.d_output = d_output;
        op.d_query = d_query, op.d_kv = d_kv, op.statistics = statistics;
        op.batch = c.batch, op.heads = c.heads, op.kv_heads = c.kv_heads;
        op.head_dim = c.width, op.value_head_dim = c.value_width;
        op.window = c.window, op.chunk = c.chunk, op.adds = c.adds;
        op.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.width)));
        op.queries = c.queries, op.keys = c.keys;
        want_output.resize(static_cast<size_t>(output.elements));
        want_statistics.resize(static_cast<size_t>(statistics.count));
        want_query = d_query.values();
        if (!c.adds)
            std::fill(want_query.begin(), want_query.end(), 0);
        want_kv.resize(static_cast<size_t>(kv.elements));
    }
    int64_t query_at(int64_t row, int64_t head) const
    {
        return (row * c.heads + head) * c.width;
    }
    int64_t output_at(int64_t row, int64_t head) const
    {
        return (row * c.heads + head) * c.value_width;
    }
    int64_t key_at(int64_t row, int64_t head) const
    {
        return row * kv_columns + head / (c.heads / c.kv_heads) * c.width;
    }
    int64_t value_at(int64_t row, int64_t head) const
    {
        return row * kv_columns + c.kv_heads * c.width +
               head / (c.heads / c.kv_heads) * c.value_width;
    }
    double score(int64_t query_row, int64_t key_row, int64_t head) const
    {
        double sum = 0;
        for (int64_t d = 0; d < c.width; d++)
            sum += query.get(query_at(query_row, head) + d) * kv.get(key_at(key_row, head) + d);
        return sum * static_cast<double>(op.scale);
    }
};

/* The keys that a query sees. */
inline std::vector<int64_t> seen(const attention_arrays &a, const attention_token &query,
                                 int64_t sequence)
{
    std::vector<int64_t> rows;
    for (const attention_token &key : tokens_of(a.c.keys, sequence))
        if (sees(a.c, query.position, key.position))
            rows.push_back(key.row);
    return rows;
}

inline void want_forward(attention_arrays *a, int64_t row, int64_t head,
                         const std::vector<int64_t> &keys)
{
    double largest = -INFINITY, sum = 0;
    std::vector<double> scores;
    for (int64_t key : keys) {
        scores.push_back(a->score(row, key, head));
        largest = std::fmax(largest, scores.back());
    }
    for (double s : scores)
        sum += std::exp(s - largest);
    a->want_statistics[static_cast<size_t>(row * a->c.heads + head)] =
        keys.empty() ? -INFINITY : largest + std::log(sum);
    for (size_t k = 0; k < keys.size(); k++)
        for (int64_t d = 0; d < a->c.value_width; d++)
            a->want_output[static_cast<size_t>(a->output_at(row, head) + d)] +=
                std::exp(scores[k] - largest) / sum * a->kv.get(a->value_at(keys[k], head) + d);
}

/* From the output and the statistics as they are stored. */
inline void want_backward(attention_arrays *a, int64_t row, int64_t head,
                          const std::vector<int64_t> &keys)
{
    const int64_t out = a->output_at(row, head), query = a->query_at(row, head);
    double delta = 0;
    for (int64_t d = 0; d < a->c.value_width; d++)
        delta += a->output.get(out + d) * a->d_output.get(out + d);
    for (int64_t key : keys) {
        const double p = std::exp(a->score(row, key, head) -
                                  static_cast<double>(a->statistics[row * a->c.heads + head]));
        const int64_t value_at = a->value_at(key, head), key_at = a->key_at(key, head);
        double dp = 0;
        for (int64_t d = 0; d < a->c.value_width; d++) {
            dp += a->d_output.get(out + d) * a->kv.get(value_at + d);
            a->want_kv[static_cast<size_t>(value_at + d)] += p * a->d_output.get(out + d);
        }
        const double ds = p * (dp - delta) * static_cast<double>(a->op.scale);
        for (int64_t d = 0; d < a->c.width; d++) {
            a->want_query[static_cast<size_t>(query + d)] += ds * a->kv.get(key_at + d);
            a->want_kv[static_cast<size_t>(key_at + d)] += ds * a->query.get(query + d);
        }
    }
}

inline void for_all(attention_arrays *a, void (*what)(attention_arrays *, int64_t, int64_t,
                                                      const std::vector<int64_t> &))
{
    for (int64_t s = 0; s < a->c.batch; s++)
        for (const attention_token &query : tokens_of(a->c.queries, s))
            for (int64_t head = 0; head < a->c.heads; head++)
                what(a, query.row, head, seen(*a, query, s));
}

#endif
