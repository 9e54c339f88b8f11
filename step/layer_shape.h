/* step/layer_shape.h: layers as they are wherever ranks lie: built once, priced often.
 * Private to step/.
 *
 * Where the ranks of groups lie on the links decides what transfers take and nothing else. So
 * the layers built last are kept whole, with what their other ops take, until they are asked
 * for on other links. */
#ifndef MCP_STEP_LAYER_SHAPE_H
#define MCP_STEP_LAYER_SHAPE_H

#include "step/layer_price.h"
#include "step/price_parts.h"

enum { MCP_PRICED_BLOCKS = 5 };
extern const enum mcp_block_role mcp_priced_blocks[MCP_PRICED_BLOCKS];

struct mcp_layer_shape {
    struct mcp_layer_type type;
    struct mcp_local_op *local[MCP_PRICED_BLOCKS];
    const struct mcp_layer_price *price; /* on some links; NULL: none yet */
};

struct mcp_shapes *mcp_shapes_new(struct mcp_arena *arena);
/* What the key stands for, built now unless it is kept. Lasts until the next is asked for. */
struct mcp_layer_shape *mcp_shape_of(struct mcp_shapes *shapes, const struct mcp_pricing *pricing,
                                     const struct mcp_layer_spec *spec,
                                     const struct mcp_price_key *key);
/* Keeps none any more. */
void mcp_shapes_forget(struct mcp_shapes *shapes);

#endif
