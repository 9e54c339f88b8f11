/* exec/cpu_kernels_attention_back.c: attention, backward.
 *
 * With P = softmax(S), S = scale Q K^T and D = rowsum(dO * O):
 *     dV = P^T dO,  dP = dO V^T,  dS = scale P (dP - D),  dQ = dS K,  dK = dS^T Q
 * (Dao et al. 2022, appendix B.4). Scores are computed twice: once by tiles of queries for
 * dQ, once by tiles of keys for dK and dV, so that each sum has one owner, a fixed order
 * and fp32 throughout. */
#include "exec/cpu_kernels_math.h"
#include "exec/cpu_kernels_tiles.h"

enum { Q = MCP_TILE_QUERIES, K = MCP_TILE_KEYS, W = MCP_TILE_WIDTH };

struct queries { /* of one head */
    float query[Q * W], d_output[Q * W];
    float statistic[Q], delta[Q];
};

struct keys { /* and values */
    float key[K * W], value[K * W];
    float key_across[W * K], value_across[W * K]; /* transposed */
};

struct scores {
    float p[Q * K], ds[Q * K];
};

/* Products work on padded tiles: what pads must be a number. */
static bool has_padding(const struct mcp_attention *a)
{
    return a->stride != a->width || a->value_stride != a->value_width;
}

static void load_row(struct mcp_view view, int64_t at, int64_t width, float *out)
{
    float room[W];
    const float *from = mcp_get(view, at, (int)width, room);
    memcpy(out, from, (size_t)width * sizeof *out);
}

/* reads query, kv, output, d_output, statistics */
static void load_queries(const struct mcp_attention *a, const struct mcp_tile *tile, int64_t head,
                         struct queries *out)
{
    struct mcp_view output = mcp_read_view(a->launch, 2), d_output = mcp_read_view(a->launch, 3);
    const float *statistics = a->launch->reads[4];
    float row[W];
    if (tile->count < Q || has_padding(a))
        memset(out, 0, sizeof *out);
    for (int i = 0; i < tile->count; i++) {
        int64_t at = mcp_output_at(a, tile->row + i, head);
        load_row(mcp_read_view(a->launch, 0), mcp_query_at(a, tile->row + i, head), a->width,
                 mcp_row(out->query, i, a->stride));
        load_row(d_output, at, a->value_width, mcp_row(out->d_output, i, a->value_stride));
        load_row(output, at, a->value_width, row);
        float sum = 0;
        const float *d_row = mcp_row(out->d_output, i, a->value_stride);
        for (int64_t d = 0; d < a->value_width; d++)
            sum += row[d] * d_row[d];
        out->delta[i] = sum;
        out->statistic[i] = statistics[(tile->row + i) * a->heads + head];
    }
}

static void load_keys(const struct mcp_attention *a, const struct mcp_tile *tile, int64_t kv_head,
                      struct keys *out)
{
    struct mcp_view kv = mcp_read_view(a->launch, 1);
    if (tile->count < K || has_padding(a))
        memset(out, 0, sizeof *out);
    for (int j = 0; j < tile->count; j++) {
        load_row(kv, mcp_key_at(a, tile->row + j, kv_head), a->width,
                 mcp_row(out->key, j, a->stride));
        load_row(kv, mcp_value_at(a, tile->row + j, kv_head), a->value_width,
                 mcp_row(out->value, j, a->value_stride));
        const float *key = mcp_row(out->key, j, a->stride);
        const float *value = mcp_row(out->value, j, a->value_stride);
        for (int64_t d = 0; d < a->width; d++)
            out->key_across[d * K + j] = key[d];
        for (int64_t d = 0; d < a->value_width; d++)
            out->value_across[d * K + j] = value[d];
    }
}

/* P and dS of two tiles, 0 where a query does not see a key. */
static void score(const struct mcp_attention *a, const struct mcp_tile *query_tile,
                  const struct mcp_tile *key_tile, const struct queries *queries,
                  const struct keys *keys, struct scores *out)
{
    memset(out, 0, sizeof *out);
    mcp_tile_multiply(&(struct mcp_tile_product){Q, K, (int)a->width, queries->query,
                                                 keys->key_across, out->p, a->stride, K, K});
    mcp_tile_multiply(&(struct mcp_tile_product){Q, K, (int)a->value_width, queries->d_output,
                                                 keys->value_across, out->ds, a->value_stride, K,
                                                 K});
    for (int i = 0; i < Q; i++) {
        int first = 0, last = 0;
        float *p = mcp_row(out->p, i, K), *ds = mcp_row(out->ds, i, K);
        float statistic = queries->statistic[i], delta = queries->delta[i];
        if (i < query_tile->count)
            mcp_visible(a, key_tile, query_tile->position + i, &first, &last);
        for (int j = 0; j < K; j++) {
            float value = mcp_expf(p[j] * a->scale - statistic);
            p[j] = j >= first && j < last ? value : 0;
            ds[j] = j >= first && j < last ? value * (ds[j] - delta) * a->scale : 0;
        }
    }
}

static void transpose(const float *from, float *to)
{
    for (int i = 0; i < Q; i++)
        for (int j = 0; j < K; j++)
            to[j * Q + i] = from[i * K + j];
}

/* A ring's later steps add to what earlier ones left. */
static void query_gradients(const struct mcp_attention *a, int64_t sequence, int64_t head,
                            int index)
{
    struct queries queries;
    struct keys keys;
    struct scores scores;
    struct mcp_tile query_tile, key_tile;
    float dq[Q * W];
    struct mcp_view out = mcp_write_view(a->launch, 0);
    int64_t kv_head = head / (a->heads / a->kv_heads);
    mcp_tile_at(a->query_runs, a->num_query_runs, Q, index, &query_tile);
    query_tile.row += sequence * a->batch_stride;
    load_queries(a, &query_tile, head, &queries);
    memset(dq, 0, (size_t)a->stride * Q * sizeof *dq);
    for (int t = 0; mcp_tile_at(a->key_runs, a->num_key_runs, K, t, &key_tile); t++) {
        if (!mcp_tiles_meet(a, &query_tile, &key_tile))
            continue;
        key_tile.row += sequence * a->batch_stride;
        load_keys(a, &key_tile, kv_head, &keys);
        score(a, &query_tile, &key_tile, &queries, &keys, &scores);
        mcp_tile_multiply(&(struct mcp_tile_product){Q, a->stride, K, scores.ds, keys.key, dq, K,
                                                     a->stride, a->stride});
    }
    for (int i = 0; i < query_tile.count; i++) {
        int64_t at = mcp_query_at(a, query_tile.row + i, head);
        if (a->launch->op->num_reads > 5)
            mcp_add_to(out, at, (int)a->width, mcp_row(dq, i, a->stride));
        else
            mcp_put(out, at, (int)a->width, mcp_row(dq, i, a->stride));
    }
}

struct sums {
    float key[K * W], value[K * W];
};

static void add_queries(const struct mcp_attention *a, int64_t head, int64_t sequence,
                        const struct mcp_tile *key_tile, const struct keys *keys, struct sums *sums)
{
    struct queries queries;
    struct scores scores;
    struct mcp_tile tile;
    float across[K * Q];
    for (int t = 0; mcp_tile_at(a->query_runs, a->num_query_runs, Q, t, &tile); t++) {
        if (!mcp_tiles_meet(a, &tile, key_tile))
            continue;
        struct mcp_tile placed = tile;
        placed.row += sequence * a->batch_stride;
        load_queries(a, &placed, head, &queries);
        score(a, &placed, key_tile, &queries, keys, &scores);
        transpose(scores.p, across);
        mcp_tile_multiply(&(struct mcp_tile_product){K, a->value_stride, Q, across,
                                                     queries.d_output, sums->value, Q,
                                                     a->value_stride, a->value_stride});
        transpose(scores.ds, across);
        mcp_tile_multiply(&(struct mcp_tile_product){K, a->stride, Q, across, queries.query,
                                                     sums->key, Q, a->stride, a->stride});
    }
}

static void key_gradients(const struct mcp_attention *a, int64_t sequence, int64_t kv_head,
                          int index)
{
    struct keys keys;
    struct sums sums;
    struct mcp_tile tile;
    struct mcp_view out = mcp_write_view(a->launch, 1);
    int64_t group = a->heads / a->kv_heads;
    mcp_tile_at(a->key_runs, a->num_key_runs, K, index, &tile);
    tile.row += sequence * a->batch_stride;
    memset(sums.key, 0, (size_t)a->stride * K * sizeof *sums.key);
    memset(sums.value, 0, (size_t)a->value_stride * K * sizeof *sums.value);
    load_keys(a, &tile, kv_head, &keys);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        add_queries(a, head, sequence, &tile, &keys, &sums);
    for (int j = 0; j < tile.count; j++) {
        mcp_put(out, mcp_key_at(a, tile.row + j, kv_head), (int)a->width,
                mcp_row(sums.key, j, a->stride));
        mcp_put(out, mcp_value_at(a, tile.row + j, kv_head), (int)a->value_width,
                mcp_row(sums.value, j, a->value_stride));
    }
}

void mcp_cpu_attention_backward(const struct mcp_launch *launch)
{
    struct mcp_attention a;
    mcp_attention_read(launch, &a);
    int query_tiles = mcp_tile_count(a.query_runs, a.num_query_runs, Q);
    int key_tiles = mcp_tile_count(a.key_runs, a.num_key_runs, K);
    int64_t num_queries = a.batch * a.heads * query_tiles;
    int64_t num_keys = a.batch * a.kv_heads * key_tiles;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < num_queries; i++)
        query_gradients(&a, i / query_tiles / a.heads, i / query_tiles % a.heads,
                        (int)(i % query_tiles));
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < num_keys; i++)
        key_gradients(&a, i / key_tiles / a.kv_heads, i / key_tiles % a.kv_heads,
                      (int)(i % key_tiles));
}
