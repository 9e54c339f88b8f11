/* exec/cpu_kernels_cast.c: operands of 8 bit products: step/casts.h. */
#include "core/minmax.h"
#include "exec/cpu_kernels_parts.h"
#include "exec/eight.h"
#include "step/casts.h"

/* [rows][columns] numbers, and where their casts begin; NULL: none of that way. */
struct cast {
    struct mcp_view from;
    int64_t rows, columns;
    bool is_e5m2;
    float scale;
    char *as_it_lies, *transposed;
};

/* A square of the matrix at a time: what is read row by row is written column by column. */
enum { TILE = 64 };
struct tile {
    int64_t row, column;
    int rows, columns;
    uint8_t bytes[TILE][TILE];
};

/* Magnitudes order as their bits do, and what is no number is beyond all. */
static float largest_of(const struct cast *c)
{
    const int64_t elements = c->rows * c->columns;
    uint32_t largest = 0;
#pragma omp parallel for schedule(static) reduction(max : largest) if (elements > MCP_SERIAL)
    for (int64_t at = 0; at < elements; at += MCP_CHUNK) {
        float room[MCP_CHUNK];
        const int count = mcp_chunk(elements - at);
        const float *x = mcp_get(c->from, at, count, room);
        for (int i = 0; i < count; i++) {
            uint32_t bits = mcp_bits_of(x[i]) & 0x7fffffffu;
            largest = bits > largest ? bits : largest;
        }
    }
    return mcp_float_of(largest);
}

static void write_rows(const struct cast *c, const struct tile *t)
{
    uint8_t *to = (uint8_t *)c->as_it_lies + MCP_CAST_HEADER_BYTES;
    for (int i = 0; i < t->rows; i++)
        memcpy(to + (t->row + i) * c->columns + t->column, t->bytes[i], (size_t)t->columns);
}

static void write_columns(const struct cast *c, const struct tile *t)
{
    uint8_t *to = (uint8_t *)c->transposed + MCP_CAST_HEADER_BYTES;
    for (int k = 0; k < t->columns; k++)
        for (int i = 0; i < t->rows; i++)
            to[(t->column + k) * c->rows + t->row + i] = t->bytes[i][k];
}

static void cast_tile(const struct cast *c, int64_t row, int64_t column)
{
    struct tile t = {.row = row,
                     .column = column,
                     .rows = (int)mcp_min_int64(c->rows - row, TILE),
                     .columns = (int)mcp_min_int64(c->columns - column, TILE)};
    for (int i = 0; i < t.rows; i++) {
        float room[TILE];
        const float *x = mcp_get(c->from, (row + i) * c->columns + column, t.columns, room);
        mcp_narrow_eight(c->is_e5m2, x, t.columns, c->scale, t.bytes[i]);
    }
    if (c->as_it_lies != NULL)
        write_rows(c, &t);
    if (c->transposed != NULL)
        write_columns(c, &t);
}

static void cast(const struct mcp_launch *launch, void *as_it_lies, void *transposed)
{
    const int64_t *d = launch->op->dims;
    struct cast c = {.from = mcp_weight_view(launch, 0, 0),
                     .rows = d[0],
                     .columns = d[1],
                     .is_e5m2 = d[2] != 0,
                     .as_it_lies = as_it_lies,
                     .transposed = transposed};
    c.scale = mcp_eight_scale(c.is_e5m2, largest_of(&c));
    if (as_it_lies != NULL)
        *(float *)as_it_lies = c.scale;
    if (transposed != NULL)
        *(float *)transposed = c.scale;
#pragma omp parallel for schedule(static) if (c.rows * c.columns > MCP_SERIAL)
    for (int64_t row = 0; row < c.rows; row += TILE)
        for (int64_t column = 0; column < c.columns; column += TILE)
            cast_tile(&c, row, column);
}

/* reads a matrix; writes its cast as it lies */
void mcp_cpu_cast_rows(const struct mcp_launch *launch)
{
    cast(launch, mcp_cast_target(launch, 0), NULL);
}

/* reads a matrix; writes its cast transposed */
void mcp_cpu_cast_columns(const struct mcp_launch *launch)
{
    cast(launch, NULL, mcp_cast_target(launch, 0));
}

/* reads a matrix; writes its cast as it lies, and transposed */
void mcp_cpu_cast_both(const struct mcp_launch *launch)
{
    cast(launch, mcp_cast_target(launch, 0), mcp_cast_target(launch, 1));
}
