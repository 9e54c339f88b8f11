/* exec/cpu_kernels_attention.c: attention, forward; and the merge of a ring's parts. */
#include "exec/cpu_kernels_math.h"
#include "exec/cpu_kernels_tiles.h"

#include <math.h>

enum { Q = MCP_TILE_QUERIES, K = MCP_TILE_KEYS, W = MCP_TILE_WIDTH };

/* One tile of queries of one head: scores, and the output so far with its maximum and sum
 * of exponentials. */
struct work {
    float query[Q * W];
    float key[W * K]; /* transposed: [width][keys] */
    float value[K * W];
    float score[Q * K];
    float output[Q * W];
    float largest[Q], sum[Q];
};

static void load_queries(const struct mcp_attention *a, struct mcp_view view,
                         const struct mcp_tile *tile, int64_t head, struct work *work)
{
    float room[W];
    if (tile->count < Q)
        memset(work->query, 0, sizeof work->query);
    for (int i = 0; i < tile->count; i++) {
        const float *from =
            mcp_get(view, mcp_query_at(a, tile->row + i, head), (int)a->width, room);
        float *to = mcp_row(work->query, i, a->stride);
        for (int64_t d = 0; d < a->width; d++)
            to[d] = from[d] * a->scale;
    }
}

static void load_keys(const struct mcp_attention *a, struct mcp_view view,
                      const struct mcp_tile *tile, int64_t kv_head, struct work *work)
{
    float room[W];
    if (tile->count < K || a->value_stride != a->value_width) {
        memset(work->key, 0, sizeof work->key);
        memset(work->value, 0, sizeof work->value);
    }
    for (int j = 0; j < tile->count; j++) {
        const float *key =
            mcp_get(view, mcp_key_at(a, tile->row + j, kv_head), (int)a->width, room);
        for (int64_t d = 0; d < a->width; d++)
            work->key[d * K + j] = key[d];
        const float *value =
            mcp_get(view, mcp_value_at(a, tile->row + j, kv_head), (int)a->value_width, room);
        memcpy(mcp_row(work->value, j, a->value_stride), value,
               (size_t)a->value_width * sizeof *value);
    }
}

/* One query's scores become exponentials; what it has so far is scaled to the new largest. */
static void soften(struct work *work, int query, int first, int last, int stride)
{
    float *score = mcp_row(work->score, query, K), *output = mcp_row(work->output, query, stride);
    float largest = work->largest[query], sum = 0;
#pragma omp simd reduction(max : largest)
    for (int j = first; j < last; j++)
        largest = score[j] > largest ? score[j] : largest;
    for (int j = 0; j < first; j++)
        score[j] = 0;
    for (int j = first; j < last; j++)
        score[j] = mcp_expf(score[j] - largest);
    for (int j = last; j < K; j++)
        score[j] = 0;
#pragma omp simd reduction(+ : sum)
    for (int j = first; j < last; j++)
        sum += score[j];
    float factor = work->largest[query] == largest ? 1 : mcp_expf(work->largest[query] - largest);
    for (int d = 0; d < stride; d++)
        output[d] *= factor;
    work->sum[query] = work->sum[query] * factor + sum;
    work->largest[query] = largest;
}

static void add_keys(const struct mcp_attention *a, const struct mcp_tile *queries,
                     const struct mcp_tile *keys, struct work *work)
{
    memset(work->score, 0, sizeof work->score);
    mcp_tile_multiply(&(struct mcp_tile_product){Q, K, (int)a->width, work->query, work->key,
                                                 work->score, a->stride, K, K});
    for (int i = 0; i < queries->count; i++) {
        int first, last;
        mcp_visible(a, keys, queries->position + i, &first, &last);
        if (first < last)
            soften(work, i, first, last, a->value_stride);
        else
            memset(mcp_row(work->score, i, K), 0, K * sizeof *work->score);
    }
    mcp_tile_multiply(&(struct mcp_tile_product){Q, a->value_stride, K, work->score, work->value,
                                                 work->output, K, a->value_stride,
                                                 a->value_stride});
}

/* Rows that saw no key are 0, with a log of -infinity. */
static void store(const struct mcp_attention *a, const struct mcp_tile *queries, int64_t head,
                  struct work *work)
{
    struct mcp_view output = mcp_write_view(a->launch, 0);
    float *statistics = a->launch->writes[1];
    for (int i = 0; i < queries->count; i++) {
        float sum = work->sum[i];
        float factor = sum > 0 ? 1 / sum : sum; /* NaN stays */
        float *row = mcp_row(work->output, i, a->value_stride);
        for (int64_t d = 0; d < a->value_width; d++)
            row[d] *= factor;
        mcp_put(output, mcp_output_at(a, queries->row + i, head), (int)a->value_width, row);
        statistics[(queries->row + i) * a->heads + head] = work->largest[i] + logf(sum);
    }
}

static void forward_tile(const struct mcp_attention *a, int64_t sequence, int64_t head, int index)
{
    struct work work;
    struct mcp_tile queries, keys;
    struct mcp_view kv = mcp_read_view(a->launch, 1);
    int64_t kv_head = head / (a->heads / a->kv_heads);
    mcp_tile_at(a->query_runs, a->num_query_runs, Q, index, &queries);
    queries.row += sequence * a->batch_stride;
    load_queries(a, mcp_read_view(a->launch, 0), &queries, head, &work);
    memset(work.output, 0, (size_t)a->value_stride * Q * sizeof *work.output);
    for (int i = 0; i < Q; i++) {
        work.largest[i] = -INFINITY;
        work.sum[i] = 0;
    }
    for (int t = 0; mcp_tile_at(a->key_runs, a->num_key_runs, K, t, &keys); t++) {
        if (!mcp_tiles_meet(a, &queries, &keys))
            continue;
        keys.row += sequence * a->batch_stride;
        load_keys(a, kv, &keys, kv_head, &work);
        add_keys(a, &queries, &keys, &work);
    }
    store(a, &queries, head, &work);
}

void mcp_cpu_attention_forward(const struct mcp_launch *launch)
{
    struct mcp_attention a;
    mcp_attention_read(launch, &a);
    int tiles = mcp_tile_count(a.query_runs, a.num_query_runs, Q);
    int64_t all = a.batch * a.heads * tiles;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < all; i++)
        forward_tile(&a, i / tiles / a.heads, i / tiles % a.heads, (int)(i % tiles));
}

/* (o, l) of all keys so far and (o', l') of new ones: l'' = log(e^l + e^l'), each output
 * weighted by its share of that. */
static void merge_head(float *output, float *statistic, const float *part, float part_statistic,
                       int width)
{
    float largest = fmaxf(*statistic, part_statistic);
    if (part_statistic == -INFINITY)
        return;
    float sum = largest + logf(expf(*statistic - largest) + expf(part_statistic - largest));
    float old_share = expf(*statistic - sum), new_share = expf(part_statistic - sum);
    for (int d = 0; d < width; d++)
        output[d] = output[d] * old_share + part[d] * new_share;
    *statistic = sum;
}

/* reads part, its statistics, output, statistics; writes the last two */
void mcp_cpu_attention_merge(const struct mcp_launch *launch)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    struct mcp_view part = mcp_read_view(launch, 0), output = mcp_write_view(launch, 0);
    const float *part_statistics = launch->reads[1];
    float *statistics = launch->writes[1];
    int width = (int)facts->value_head_dim;
    int64_t count = launch->op->dims[0] * facts->heads;
#pragma omp parallel for schedule(static) if (count * width > MCP_SERIAL)
    for (int64_t i = 0; i < count; i++) {
        float room[W], part_room[W];
        float *values = mcp_room(output, i * width, room);
        const float *old = mcp_get(output, i * width, width, room);
        if (old != values)
            memcpy(values, old, (size_t)width * sizeof *values);
        merge_head(values, &statistics[i], mcp_get(part, i * width, width, part_room),
                   part_statistics[i], width);
        mcp_put(output, i * width, width, values);
    }
}
