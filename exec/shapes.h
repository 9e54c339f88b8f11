/* exec/shapes.h: what kernels of any backend make of a launch's operands and its layer's facts:
 * segments of norms, inputs of an MLP's activation, heads, frequencies, vocabularies. */
#ifndef MCP_EXEC_SHAPES_H
#define MCP_EXEC_SHAPES_H

#include "exec/views.h"

/* --- norms --- */

/* Segments of a row that are normed with one set of weights, one beside the other: the row
 * itself, all heads of queries or of keys together, or each head of either. */
struct mcp_norm_band {
    int64_t first, segments, columns; /* in the row; of one segment */
    int64_t weight_at, bias_at;       /* in the part */
};
struct mcp_norm_shape {
    int64_t rows, stride; /* elements from row to row */
    int64_t columns;      /* of a row that are normed; what follows goes on as it is */
    bool has_bias;
    int num_bands;
    struct mcp_norm_band bands[2];
};
/* `x`: what is normed, a view of all rows. */
struct mcp_norm_shape mcp_norm_shape_of(const struct mcp_launch *launch, struct mcp_view x);

/* --- an MLP's activation --- */

/* What is activated, and what it is multiplied with, beside each other or apart; biases of
 * both. */
struct mcp_mlp_inputs {
    struct mcp_view up, other, bias, other_bias; /* data NULL: none */
    int64_t rows, width;
    int64_t up_stride, other_stride;
};
/* reads[first] is the one, then the other if apart. `sizes`, where the host can read them:
 * rows by expert, NULL where the op is no expert's. */
struct mcp_mlp_inputs mcp_mlp_inputs_of(const struct mcp_launch *launch, int first,
                                        const int32_t *sizes);

/* --- heads --- */

/* Frequencies of rotary positions (Su et al. 2021, equation 15) under the layer's scaling of
 * positions: frequency[MCP_MAX_HEAD_DIM / 2]; returns how many pairs of columns turn. */
int mcp_rotary_frequencies(const struct mcp_layer_facts *facts, float *frequency);

/* Is attention over all ranks' tokens and a share of the heads? */
bool mcp_heads_exchanged(const struct mcp_launch *launch);
/* The context rank whose keys a ring's step has. */
int mcp_key_owner(const struct mcp_launch *launch);
bool mcp_is_ring_step(const struct mcp_op *op);

/* --- routing --- */

/* [tokens][experts] each; shares below 0: not chosen. In the backend's memory. */
struct mcp_routing {
    int64_t tokens, experts;
    float *probabilities, *shares;
};
struct mcp_routing mcp_routing_of(const struct mcp_launch *launch, int read);

/* --- the vocabulary --- */

/* Id of the first row of the vocabulary that this rank has. */
int64_t mcp_first_id(const struct mcp_launch *launch);
/* Logits of this rank, of `columns`, that stand for tokens: the rest is padding. */
int64_t mcp_true_columns(const struct mcp_launch *launch, int64_t columns);
/* Learned positions in the buffer that has them; data NULL: there are none. */
struct mcp_view mcp_positions_view(const struct mcp_launch *launch, struct mcp_view buffer);
/* Of an embedding: how much of what rounding does to fp32 tables is done in this step: 0 nothing,
 * 1 all of it. */
float mcp_rounding_share(const struct mcp_launch *launch);

#endif
