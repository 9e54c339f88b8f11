/* exec/cpu_kernels_tiles.c: where tiles lie, what they see, and their products. */
#include "exec/cpu_kernels_tiles.h"

/* All tokens, one rank's after the other's. */
static int runs_of_all(const struct mcp_launch *launch, struct mcp_run *runs)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    int count = 0, ranks = launch->rank->program->plan.context_parallel;
    int64_t rows = facts->microbatch_size * facts->sequence_local;
    for (int i = 0; i < ranks; i++)
        count += mcp_runs_of(launch, i, i * rows, runs + count);
    return count;
}

/* A ring step has the keys of the rank some hops back; else a rank sees all keys, and
 * after an exchange of tokens for heads all queries too. */
static void find_runs(const struct mcp_launch *launch, bool exchanged, struct mcp_attention *out)
{
    int own = launch->rank->at.context;
    if (mcp_is_ring_step(launch->op)) {
        out->num_query_runs = mcp_runs_of(launch, own, 0, out->query_runs);
        out->num_key_runs = mcp_runs_of(launch, mcp_key_owner(launch), 0, out->key_runs);
        return;
    }
    out->num_key_runs = runs_of_all(launch, out->key_runs);
    out->num_query_runs = exchanged ? runs_of_all(launch, out->query_runs)
                                    : mcp_runs_of(launch, own, 0, out->query_runs);
}

void mcp_attention_read(const struct mcp_launch *launch, struct mcp_attention *out)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    bool exchanged = mcp_heads_exchanged(launch);
    int shares = exchanged ? launch->rank->program->plan.context_parallel : 1;
    out->launch = launch;
    out->batch = facts->microbatch_size;
    out->heads = facts->heads / shares;
    out->kv_heads = facts->kv_heads / shares;
    out->width = facts->head_dim;
    out->value_width = facts->value_head_dim;
    out->stride = (int)((out->width + 15) / 16 * 16);
    out->value_stride = (int)((out->value_width + 15) / 16 * 16);
    out->batch_stride = facts->sequence_local;
    out->scale = (float)facts->softmax_scale;
    out->window = facts->sliding_window;
    out->chunk = facts->attention_chunk_size;
    find_runs(launch, exchanged, out);
}

int mcp_tile_count(const struct mcp_run *runs, int num_runs, int size)
{
    int64_t count = 0;
    for (int i = 0; i < num_runs; i++)
        count += (runs[i].count + size - 1) / size;
    return (int)count;
}

bool mcp_tile_at(const struct mcp_run *runs, int num_runs, int size, int index,
                 struct mcp_tile *out)
{
    int64_t left = index;
    for (int i = 0; i < num_runs; i++) {
        int64_t tiles = (runs[i].count + size - 1) / size, skipped = left * size;
        if (left < tiles) {
            int64_t count = runs[i].count - skipped;
            *out = (struct mcp_tile){runs[i].row + skipped, runs[i].position + skipped,
                                     count < size ? (int)count : size};
            return true;
        }
        left -= tiles;
    }
    return false;
}

/* First position that the query at `position` sees. */
static int64_t lowest_key(const struct mcp_attention *a, int64_t position)
{
    int64_t lowest = 0;
    if (a->window > 0 && position - a->window + 1 > lowest)
        lowest = position - a->window + 1;
    if (a->chunk > 0 && position / a->chunk * a->chunk > lowest)
        lowest = position / a->chunk * a->chunk;
    return lowest;
}

static int clamp(int64_t value, int limit)
{
    return value < 0 ? 0 : value > limit ? limit : (int)value;
}

void mcp_visible(const struct mcp_attention *a, const struct mcp_tile *keys, int64_t position,
                 int *first, int *last)
{
    *first = clamp(lowest_key(a, position) - keys->position, keys->count);
    *last = clamp(position + 1 - keys->position, keys->count);
}

bool mcp_tiles_meet(const struct mcp_attention *a, const struct mcp_tile *queries,
                    const struct mcp_tile *keys)
{
    int64_t last_query = queries->position + queries->count - 1;
    int64_t last_key = keys->position + keys->count - 1;
    return keys->position <= last_query && last_key >= lowest_key(a, queries->position);
}

int64_t mcp_query_at(const struct mcp_attention *a, int64_t row, int64_t head)
{
    return (row * a->heads + head) * a->width;
}

int64_t mcp_output_at(const struct mcp_attention *a, int64_t row, int64_t head)
{
    return (row * a->heads + head) * a->value_width;
}

int64_t mcp_key_at(const struct mcp_attention *a, int64_t row, int64_t kv_head)
{
    return row * a->kv_heads * (a->width + a->value_width) + kv_head * a->width;
}

int64_t mcp_value_at(const struct mcp_attention *a, int64_t row, int64_t kv_head)
{
    return row * a->kv_heads * (a->width + a->value_width) + a->kv_heads * a->width +
           kv_head * a->value_width;
}

enum { TALL = 8, WIDE = 16 }; /* of the result: what stays in registers */

static inline void load_sums(const float *c, int ldc, float sum[TALL][WIDE])
{
    for (int i = 0; i < TALL; i++)
        memcpy(sum[i], mcp_row_of(c, i, ldc), sizeof sum[i]);
}

static inline void store_sums(float sum[TALL][WIDE], float *c, int ldc)
{
    for (int i = 0; i < TALL; i++)
        memcpy(mcp_row(c, i, ldc), sum[i], sizeof sum[i]);
}

/* Sanitizers look at every access, here millions a step: they are shown the ends of all rows
 * instead. */
#ifdef __SANITIZE_ADDRESS__
#define MCP_UNWATCHED __attribute__((no_sanitize("address", "undefined")))
static void show_rows(const float *rows, int count, int width, int stride)
{
    for (int i = 0; i < count; i++) {
        const volatile float *row = mcp_row_of(rows, i, stride);
        (void)row[0];
        (void)row[width - 1];
    }
}
static void show_ends(const struct mcp_tile_product *p)
{
    show_rows(p->a, p->m, p->k, p->lda);
    show_rows(p->b, p->k, p->n, p->ldb);
    show_rows(p->c, p->m, p->n, p->ldc);
}
#else
#define MCP_UNWATCHED
static void show_ends(const struct mcp_tile_product *p)
{
    (void)p;
}
#endif

static inline MCP_UNWATCHED void multiply_block(const struct mcp_tile_product *p, int row,
                                                int column)
{
    const float *restrict a = mcp_row_of(p->a, row, p->lda), *restrict b = p->b + column;
    const int k = p->k, lda = p->lda, ldb = p->ldb;
    float sum[TALL][WIDE];
    load_sums(mcp_row(p->c, row, p->ldc) + column, p->ldc, sum);
    for (int l = 0; l < k; l++)
        for (int i = 0; i < TALL; i++)
#pragma omp simd
            for (int j = 0; j < WIDE; j++)
                sum[i][j] += a[i * lda + l] * b[l * ldb + j];
    store_sums(sum, mcp_row(p->c, row, p->ldc) + column, p->ldc);
}

void mcp_tile_multiply(const struct mcp_tile_product *product)
{
    show_ends(product);
    for (int row = 0; row < product->m; row += TALL)
        for (int column = 0; column < product->n; column += WIDE)
            multiply_block(product, row, column);
}
