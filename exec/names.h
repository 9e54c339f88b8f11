/* exec/names.h: what the numbers of a flat buffer are of the whole model's tensors.
 *
 * A whole tensor is [rows][columns] as step/weights.h says; its name does not depend on
 * the layout: "layers.L.PART", and "layers.L.PART.E" for expert E of all, with L the
 * extended layer (0 the embedding, then decoder layers, MTP modules, the head). A table
 * that two layers share is named after layer 0's "embedding" where it is tied to that.
 * Rows that pad the vocabulary belong to no tensor: how many there are is the layout's. */
#ifndef MCP_EXEC_NAMES_H
#define MCP_EXEC_NAMES_H

#include "core/arena.h"
#include "core/mesh.h"
#include "step/weights.h"

enum { MCP_TENSOR_NAME = 64 };

/* A rectangle of a whole tensor that lies in a flat buffer, row after row. */
struct mcp_piece {
    char name[MCP_TENSOR_NAME];
    int part, expert;                    /* of the layer type; expert of all, 0 for dense parts */
    int64_t tensor_rows, tensor_columns; /* of the whole */
    int64_t first_row, rows;
    int64_t first_column, columns;
    int64_t offset; /* its first element's, from the start of the flat buffer */
    bool owned;     /* of the ranks that hold it beside sharding, this one writes it */
};

/* One flat buffer of a layer of a rank. */
struct mcp_flat_key {
    const struct mcp_plan *plan;
    int rank, layer; /* the extended layer */
    const struct mcp_layer_type *type;
    enum mcp_flat flat;
};
/* Its pieces, by offset. Returns how many. */
int mcp_flat_pieces(struct mcp_arena *arena, const struct mcp_flat_key *key,
                    struct mcp_piece **out);

/* The elements of a piece, row-major, that lie in [first, first + count) of its flat
 * buffer: how many, from *begin on. */
int64_t mcp_piece_within(const struct mcp_piece *piece, int64_t first, int64_t count,
                         int64_t *begin);

/* Elements of a part of a layer, over all ranks; padding left out. */
int64_t mcp_part_parameters(const struct mcp_plan *plan, const struct mcp_layer_type *type,
                            int part);

#endif
