/* exec/cpu_kernels_tiles.h: tiles of attention. Private to exec/cpu_kernels_attention*.c.
 *
 * A query at position p sees keys at positions p and before, within the layer's window or
 * chunk. Which rows those are follows from where tokens lie (runs): a whole sequence, the
 * two zigzag pieces of a rank, the part of another rank of the ring, all ranks' tokens one
 * rank after the other; one kernel serves all of them. Softmax is taken tile by tile
 * (Milakov and Gimelshein 2018; Dao et al. 2022), in fp32. */
#ifndef MCP_EXEC_CPU_KERNELS_TILES_H
#define MCP_EXEC_CPU_KERNELS_TILES_H

#include "exec/cpu_kernels_parts.h"

enum { MCP_TILE_QUERIES = 64, MCP_TILE_KEYS = 64, MCP_TILE_WIDTH = MCP_MAX_HEAD_DIM };

/* Which heads and tokens an attention op works on. */
struct mcp_attention {
    const struct mcp_launch *launch;
    int64_t batch;              /* sequences */
    int64_t heads, kv_heads;    /* of this rank, in this op */
    int64_t width, value_width; /* of a head */
    int stride, value_stride;   /* of a tile's rows: the same, padded for products */
    int64_t batch_stride;       /* rows from one sequence to the next */
    int num_query_runs, num_key_runs;
    struct mcp_run query_runs[MCP_MAX_RUNS], key_runs[MCP_MAX_RUNS];
    float scale;
    int64_t window, chunk; /* 0: none */
};
void mcp_attention_read(const struct mcp_launch *launch, struct mcp_attention *out);

/* Consecutive queries, or keys, of one sequence: at most a tile of them. */
struct mcp_tile {
    int64_t row, position;
    int count;
};
/* Tile `index` of all tiles of `size` in the runs; false past the last. */
bool mcp_tile_at(const struct mcp_run *runs, int num_runs, int size, int index,
                 struct mcp_tile *out);
int mcp_tile_count(const struct mcp_run *runs, int num_runs, int size);

/* Keys [*first, *last) of the tile that the query at `position` sees. */
void mcp_visible(const struct mcp_attention *a, const struct mcp_tile *keys, int64_t position,
                 int *first, int *last);
/* Does any query of one tile see any key of the other? */
bool mcp_tiles_meet(const struct mcp_attention *a, const struct mcp_tile *queries,
                    const struct mcp_tile *keys);

/* Columns of a head in a row of queries [heads][width], outputs [heads][value_width], keys
 * and values [kv_heads][width] then [kv_heads][value_width]. */
int64_t mcp_query_at(const struct mcp_attention *a, int64_t row, int64_t head);
int64_t mcp_output_at(const struct mcp_attention *a, int64_t row, int64_t head);
int64_t mcp_key_at(const struct mcp_attention *a, int64_t row, int64_t kv_head);
int64_t mcp_value_at(const struct mcp_attention *a, int64_t row, int64_t kv_head);

/* Row `row` of a tile. */
static inline float *mcp_row(float *tile, int row, int stride)
{
    return tile + (ptrdiff_t)row * stride;
}
static inline const float *mcp_row_of(const float *tile, int row, int stride)
{
    return tile + (ptrdiff_t)row * stride;
}

/* c[m][n] += a[m][k] b[k][n] on the stack's tiles; m a multiple of 8, n of 16. */
struct mcp_tile_product {
    int m, n, k;
    const float *a, *b;
    float *c;
    int lda, ldb, ldc; /* from row to row */
};
void mcp_tile_multiply(const struct mcp_tile_product *product);

#endif
