/* step/layer_shape.c: the layers built last, first in first out. */
#include "step/layer_shape.h"

#include <string.h>

/* What a search looks at together: kinds of layers and both ends, each under every recompute. */
enum { MOST_SHAPES = 16 };

const enum mcp_block_role mcp_priced_blocks[MCP_PRICED_BLOCKS] = {
    MCP_FORWARD, MCP_BACKWARD, MCP_RECOMPUTE, MCP_BACKWARD_INPUT, MCP_BACKWARD_WEIGHT};

struct kept {
    struct mcp_arena *arena; /* NULL: nothing */
    struct mcp_mark empty;
    struct mcp_price_key key;
    struct mcp_layer_shape shape;
};

struct mcp_shapes {
    struct mcp_arena *workshop; /* NULL: none yet */
    struct kept items[MOST_SHAPES];
    int next;
};

static void forget(void *shapes)
{
    mcp_shapes_forget((struct mcp_shapes *)shapes);
}

struct mcp_shapes *mcp_shapes_new(struct mcp_arena *arena)
{
    struct mcp_shapes *shapes = MCP_NEW(arena, struct mcp_shapes);
    mcp_defer(arena, forget, shapes);
    return shapes;
}

void mcp_shapes_forget(struct mcp_shapes *shapes)
{
    for (int i = 0; i < MOST_SHAPES; i++) {
        mcp_arena_free(shapes->items[i].arena);
        shapes->items[i].arena = NULL;
    }
    mcp_arena_free(shapes->workshop);
    shapes->workshop = NULL;
}

static void build(struct mcp_shapes *shapes, struct kept *kept, const struct mcp_pricing *pricing,
                  const struct mcp_layer_spec *spec)
{
    struct mcp_layer_shape *shape = &kept->shape;
    if (shapes->workshop == NULL)
        shapes->workshop = mcp_arena_new();
    if (kept->arena == NULL) {
        kept->arena = mcp_arena_new();
        kept->empty = mcp_arena_mark(kept->arena);
    }
    mcp_arena_rewind(kept->arena, kept->empty);
    mcp_layer_build_in(shapes->workshop, kept->arena, pricing->question, pricing->plan, spec,
                       &shape->type);
    for (int i = 0; i < MCP_PRICED_BLOCKS; i++) {
        const struct mcp_block *block = &shape->type.blocks[mcp_priced_blocks[i]];
        shape->local[i] = MCP_ARRAY(kept->arena, block->num_ops, struct mcp_local_op);
        mcp_block_local(pricing, block, shape->local[i]);
    }
    shape->price = NULL;
}

struct mcp_layer_shape *mcp_shape_of(struct mcp_shapes *shapes, const struct mcp_pricing *pricing,
                                     const struct mcp_layer_spec *spec,
                                     const struct mcp_price_key *key)
{
    for (int i = 0; i < MOST_SHAPES; i++) {
        struct kept *kept = &shapes->items[i];
        if (kept->arena != NULL && memcmp(&kept->key, key, sizeof *key) == 0)
            return &kept->shape;
    }
    struct kept *kept = &shapes->items[shapes->next];
    shapes->next = (shapes->next + 1) % MOST_SHAPES;
    build(shapes, kept, pricing, spec);
    kept->key = *key;
    return &kept->shape;
}
