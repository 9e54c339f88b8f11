/* exec/cpu_kernels_quantise.c: activations to 8 bits by blocks and back: step/quantised.h. */
#include "exec/cpu_kernels_parts.h"
#include "step/quantised.h"

#include <math.h>

/* Where [rows][columns] numbers are, whole and in 8 bits. Rows are those there is room for:
 * experts may have got more than are expected. */
struct pair {
    struct mcp_view whole;
    float *scales;
    signed char *bytes;
    int64_t rows, columns, blocks;
};

static struct pair pair_of(const struct mcp_launch *launch, struct mcp_view whole, void *kept)
{
    struct pair p = {.whole = whole, .columns = launch->op->dims[1]};
    p.rows = whole.elements / p.columns;
    p.blocks = mcp_quantised_blocks(p.columns);
    p.scales = kept;
    p.bytes = (signed char *)(p.scales + p.rows * p.blocks);
    return p;
}

static int block_length(const struct pair *p, int64_t block)
{
    int64_t left = p->columns - block * MCP_QUANTISED_BLOCK;
    return left < MCP_QUANTISED_BLOCK ? (int)left : MCP_QUANTISED_BLOCK;
}

/* The largest magnitude over 127; no number if one of them is none. */
static float scale_of(const float *x, int count)
{
    float largest = 0, poison = 0;
    for (int i = 0; i < count; i++) {
        float magnitude = fabsf(x[i]);
        largest = magnitude > largest ? magnitude : largest;
        poison += x[i] * 0;
    }
    return largest / 127 + poison;
}

static void quantise_block(const struct pair *p, int64_t row, int64_t block)
{
    float room[MCP_QUANTISED_BLOCK];
    int count = block_length(p, block);
    int64_t at = row * p->columns + block * MCP_QUANTISED_BLOCK;
    const float *x = mcp_get(p->whole, at, count, room);
    float scale = scale_of(x, count), inverse = scale > 0 ? 1 / scale : 0;
    p->scales[row * p->blocks + block] = scale;
    for (int i = 0; i < count; i++) {
        float y = rintf(x[i] * inverse);
        y = y <= 127 ? y : 127; /* no number too: its scale tells */
        p->bytes[at + i] = (signed char)(y >= -127 ? y : -127);
    }
}

static void dequantise_block(const struct pair *p, int64_t row, int64_t block)
{
    float room[MCP_QUANTISED_BLOCK];
    int count = block_length(p, block);
    int64_t at = row * p->columns + block * MCP_QUANTISED_BLOCK;
    float scale = p->scales[row * p->blocks + block], *x = mcp_room(p->whole, at, room);
    for (int i = 0; i < count; i++)
        x[i] = scale * (float)p->bytes[at + i];
    mcp_put(p->whole, at, count, x);
}

/* reads activations; writes them in 8 bits */
void mcp_cpu_quantise(const struct mcp_launch *launch)
{
    const struct pair p = pair_of(launch, mcp_read_view(launch, 0), launch->writes[0]);
#pragma omp parallel for schedule(static) if (p.rows * p.columns > MCP_SERIAL)
    for (int64_t row = 0; row < p.rows; row++)
        for (int64_t block = 0; block < p.blocks; block++)
            quantise_block(&p, row, block);
}

/* reads activations in 8 bits; writes them */
void mcp_cpu_dequantise(const struct mcp_launch *launch)
{
    const struct pair p = pair_of(launch, mcp_write_view(launch, 0), launch->reads[0]);
#pragma omp parallel for schedule(static) if (p.rows * p.columns > MCP_SERIAL)
    for (int64_t row = 0; row < p.rows; row++)
        for (int64_t block = 0; block < p.blocks; block++)
            dequantise_block(&p, row, block);
}
