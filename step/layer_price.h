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
    int64_t forward_ns, backward_ns, recompute_ns;
    int64_t input_ns, weight_ns;         /* of a split backward */
    const struct mcp_layer_costs *costs; /* NULL: not asked for */
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

/* What these nanoseconds are spent on. */
struct mcp_layer_costs {
    struct mcp_block_price forward, backward, recompute, input, weight;
};

/* One layer once per step. */
struct mcp_layer_step_price {
    int64_t gather_ns, reduce_ns, update_ns;                 /* update: clear, norm, optimizer */
    const struct mcp_block_price *update;                    /* NULL: not asked for */
    int64_t weights_bytes, gradients_bytes, optimizer_bytes; /* held between steps */
    int64_t gathered_bytes, transient_bytes; /* one layer's whole weights, gradients */
};

/* Integers that tell two layers' prices apart; the rest is the question's. */
enum { MCP_PRICE_FIELDS = 31 };
struct mcp_price_key {
    int fields[MCP_PRICE_FIELDS];
};

struct mcp_price_cache;
struct mcp_price_cache_options {
    bool sums_only; /* costs are not asked for */
    /* Of a question that differs in links alone: layers are built for both. NULL: none */
    const struct mcp_price_cache *beside;
};
struct mcp_price_cache *mcp_price_cache_new(struct mcp_arena *arena,
                                            const struct mcp_question *question,
                                            const struct mcp_price_cache_options *options);
/* Gives back what is kept to price the next layers faster, and nothing else. */
void mcp_price_cache_rest(struct mcp_price_cache *cache);
const struct mcp_layer_price *mcp_layer_price(struct mcp_price_cache *cache,
                                              const struct mcp_plan *plan,
                                              const struct mcp_layer_spec *spec);
const struct mcp_layer_step_price *mcp_layer_step_price(struct mcp_price_cache *cache,
                                                        const struct mcp_plan *plan,
                                                        const struct mcp_layer_spec *spec);

#endif
