/* step/pool_parts.h: what the parts of the pool share; private to step/pool*.c. */
#ifndef MCP_STEP_POOL_PARTS_H
#define MCP_STEP_POOL_PARTS_H

#include "step/pool.h"

#include <stdbool.h>

enum { MCP_POOL_COPIES = 256, MCP_POOL_TURNS = 64 };

/* Layer buffers that layers take turns in. */
enum mcp_turn { MCP_TURN_NONE, MCP_TURN_COPY, MCP_TURN_GRADIENT, MCP_NUM_TURNS };

/* Where the scratch of one block lies, from the start of the region all blocks share. */
struct mcp_scratch_layout {
    int64_t bytes;
    int64_t *offsets; /* [block buffers of the type] */
    int *num_waits;   /* [ops] */
    unsigned short (*waits)[MCP_NUM_STREAMS];
};

struct mcp_frame_sizes; /* free places by size */

struct mcp_pool {
    struct mcp_arena *arena;
    const struct mcp_program *program;
    const struct mcp_program_class *slots;
    bool fits; /* no sum has overflowed */
    int64_t bytes, peak_bytes;
    int num_cells;
    /* layers of the class */
    int *row_of; /* [num_layers + 2], -1: not here; the layer above one that is, is */
    int *types;  /* [num_layers + 2], -1: not run here */
    bool *types_used;
    int num_rows;
    /* what lasts */
    struct mcp_place *rank;    /* [num_rank_buffers] */
    struct mcp_place *lasting; /* [num_rows][layer_stride] */
    int layer_stride;
    int64_t lasting_bytes, gathered_bytes;
    int64_t largest[MCP_NUM_TURNS]; /* of a layer */
    /* turns */
    struct mcp_place copies[MCP_POOL_COPIES];
    int num_copies;
    struct mcp_place transient[MCP_POOL_TURNS];
    int num_turns, free_turns[MCP_POOL_TURNS], num_free_turns;
    int *turns; /* [num_rows][num_microbatches] place of the gradient, -1: none */
    /* scratch */
    int64_t scratch_offset;
    struct mcp_scratch_layout *scratch; /* [num_types][roles] */
    /* frames */
    int frame_stride;
    int *frames;              /* [num_rows][num_microbatches][frame_stride] place + 1; 0: none */
    struct mcp_place *places; /* of frames */
    size_t num_places, places_capacity;
    int64_t frame_peak_bytes; /* with scratch */
};

/* False when the sum is beyond 64 bits. */
bool mcp_add_bytes(int64_t *sum, int64_t bytes);
struct mcp_place mcp_pool_append(struct mcp_pool *pool, int64_t bytes);

/* step/pool_scratch.c: false when a sum is beyond 64 bits. */
bool mcp_scratch_lay_out(struct mcp_arena *arena, const struct mcp_layer_type *type,
                         enum mcp_block_role role, struct mcp_scratch_layout *out);

/* step/pool_frames.c */
void mcp_pool_walk_frames(struct mcp_pool *pool);
struct mcp_place mcp_pool_frame(const struct mcp_pool *pool, int layer, int microbatch, int index);

#endif
