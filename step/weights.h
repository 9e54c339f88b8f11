/* step/weights.h: where the parts of a layer's weights lie: the one layout that weights,
 * gradients, optimizer state, shards and files share.
 *
 * Flat buffers. A layer has up to three, each with its own gradients and optimizer state:
 *   dense   MCP_LAYER_WEIGHTS: replicated parts first, in the order of their declaration,
 *           then the others in theirs; a table that another stage holds too, or that lives
 *           in rank space, is none of them
 *   expert  MCP_LAYER_EXPERT_WEIGHTS: by local expert; inside one, parts by declaration
 *   table   the vocabulary table of an end, where its gradients meet those of a twin on
 *           another stage (behind the dense parts of MCP_LAYER_WEIGHTS), or where it lives
 *           in rank space (all of MCP_RANK_TIED_WEIGHTS)
 * A part is [rows][columns], row-major.
 *
 * Shards (ZeRO): with q = ceil(n / k) of a flat buffer's n elements, member i of its k
 * ranks (mcp_group_members()) owns [i q, min(n, (i + 1) q)): the last may be short, or
 * empty. Buffers of shards are q elements long.
 *
 * Optimizer state of q elements, fp32: master weights unless the weights are fp32
 * themselves, then first moments, then second moments. The table's follow the dense ones.
 *
 * Whole tensors. A part is cut over the tensor group by columns (products whose results
 * are summed), by rows, or not at all (replicated). Rows of a part with bands are cut band
 * by band: the whole tensor has the same bands, each t times as tall. Local expert i of
 * the member r of MCP_EXPERT is expert r x copies + i. New weights are functions of (seed,
 * layer, part, index in the whole tensor): mcp_weight_global_index(). */
#ifndef MCP_STEP_WEIGHTS_H
#define MCP_STEP_WEIGHTS_H

#include "step/program.h"

enum mcp_flat {
    MCP_FLAT_DENSE,
    MCP_FLAT_EXPERT,
    MCP_FLAT_TABLE, /* shared, or of an end with a twin */
    MCP_NUM_FLATS
};

/* The group over which gradients are reduced and states are sharded: of dense weights data x
 * context, of experts' their complement. */
unsigned mcp_reduce_axes(bool expert);

/* Which flat buffer a part belongs to, how many elements that has, and how many of them
 * are replicated over the tensor group (they come first). */
enum mcp_flat mcp_weight_flat(const struct mcp_weight *weight);
int64_t mcp_flat_elements(const struct mcp_layer_type *type, enum mcp_flat flat);
int64_t mcp_flat_replicated(const struct mcp_layer_type *type, enum mcp_flat flat);
/* Does the table live in rank space? */
bool mcp_has_shared_table(const struct mcp_layer_type *type);
/* First element of the flat buffer in the buffer that holds its weights or gradients. */
int64_t mcp_flat_first(const struct mcp_layer_type *type, enum mcp_flat flat);

/* The flat buffer from element `first` of a buffer of weights or gradients on, of shards where the
 * whole's `first` is that: the table where it lies behind dense parts, or nothing else is there. */
enum mcp_flat mcp_flat_at(const struct mcp_layer_type *type, struct mcp_operand at, int64_t first);

/* Elements of one copy of a part. */
int64_t mcp_weight_elements(const struct mcp_weight *weight);
/* Does AdamW's decay shrink it? Matrices and tables, not biases and norms. */
bool mcp_weight_decays(const struct mcp_weight *weight);
/* First element of a part (of local expert `copy`) in the buffer that holds it: layer
 * buffer MCP_LAYER_WEIGHTS or MCP_LAYER_EXPERT_WEIGHTS, or the rank's table. */
int64_t mcp_weight_offset(const struct mcp_layer_type *type, int part, int copy);
/* From one local expert to the next; 0 for dense parts. */
int64_t mcp_expert_stride(const struct mcp_layer_type *type);

/* Where element (row, column) of a part, as tensor rank `tensor` of `tensor_parallel`
 * holds it, lies in the whole tensor of one expert or of the layer, [rows][columns]. Rows
 * of the vocabulary keep their token's number. */
int64_t mcp_weight_global_index(const struct mcp_weight *weight, int tensor, int tensor_parallel,
                                int64_t row, int64_t column);
/* Rows and columns of the whole tensor. */
int64_t mcp_weight_global_rows(const struct mcp_weight *weight, int tensor_parallel);
int64_t mcp_weight_global_columns(const struct mcp_weight *weight, int tensor_parallel);

#endif
