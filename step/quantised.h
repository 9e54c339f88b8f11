/* step/quantised.h: how saved activations of 8 bits lie in their frames.
 *
 * Of [rows][columns] numbers: fp32 scales [rows][blocks], then signed bytes [rows][columns],
 * where a row has ceil(columns / MCP_QUANTISED_BLOCK) blocks. A number is its byte times its
 * block's scale; the scale is the block's largest magnitude over 127, so that a number is at
 * most half a scale, 1/254 of that magnitude, away. No block holds numbers of two rows. */
#ifndef MCP_STEP_QUANTISED_H
#define MCP_STEP_QUANTISED_H

#include <stdint.h>

#define MCP_QUANTISED_BLOCK 64

static inline int64_t mcp_quantised_blocks(int64_t columns)
{
    return (columns + MCP_QUANTISED_BLOCK - 1) / MCP_QUANTISED_BLOCK;
}

static inline int64_t mcp_quantised_bytes(int64_t rows, int64_t columns)
{
    return rows * (columns + 4 * mcp_quantised_blocks(columns));
}

#endif
