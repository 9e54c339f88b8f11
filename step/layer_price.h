/* step/layer_price.h: prices of layer types, cached. Private to step/.
 *
 * Two caches, because two things vary apart: what a microbatch costs (per tensor,
 * context, expert degree, microbatch, recompute) and what a step costs once (per
 * data degree and ZeRO stage). */
#ifndef MCP_STEP_LAYER_PRICE_H
#define MCP_STEP_LAYER_PRICE_H

#include "core/arena.h"
#include "step/layer.h"
#include "step/price.h"

/* One layer for one microbatch. */
struct mcp_layer_price {
    const struct mcp_layer_type *type; /* weights and messages only */
    struct mcp_block_price forward, backward, recompute;
    struct mcp_block_price input, weight; /* of a split backward */
    bool has_input;
    int64_t dense_parameters;  /* of a decoder layer on this rank; 0 for the ends */
    int64_t x_bytes;           /* residual stream between layers */
    int64_t kept_bytes;        /* frames kept from forward to backward, X too if read again */
    int64_t forward_bytes;     /* above earlier frames while forward runs, X left out */
    int64_t backward_bytes;    /* above all frames but its own, from its own down */
    int64_t input_bytes;       /* the same of a split backward's first part .. */
    int64_t weight_kept_bytes; /* .. what that leaves .. */
    int64_t weight_bytes;      /* .. and the same of its second */
};

/* One layer once per step. */
struct mcp_layer_step_price {
    struct mcp_block_price gather, reduce, update;           /* update: clear, norm, optimizer */
    int64_t weights_bytes, gradients_bytes, optimizer_bytes; /* held between steps */
    int64_t gathered_bytes, transient_bytes; /* one layer's whole weights, gradients */
};

struct mcp_price_cache;
struct mcp_price_cache *mcp_price_cache_new(struct mcp_arena *arena,
                                            const struct mcp_question *question);
const struct mcp_layer_price *mcp_layer_price(struct mcp_price_cache *cache,
                                              const struct mcp_plan *plan,
                                              const struct mcp_layer_spec *spec);
const struct mcp_layer_step_price *mcp_layer_step_price(struct mcp_price_cache *cache,
                                                        const struct mcp_plan *plan,
                                                        const struct mcp_layer_spec *spec);

#endif
