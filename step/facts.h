/* step/facts.h: what kernels must know of a layer beside the shapes that ops carry: heads,
 * norms, positions, routing, as one rank of a plan holds them. Builders fill it from the
 * model; executors read it and never see a model.
 *
 * Tokens. A rank's tokens are [microbatch_size][sequence_local]. Under context parallelism
 * a sequence is cut in 2 c pieces where that divides it (zigzag): rank r holds pieces r and
 * 2 c - 1 - r, in this order; else in c: rank r holds piece r. What an all-gather or an
 * all-to-all over the context group makes of them is [c][microbatch_size][sequence_local].
 *
 * Columns. Of a query: [heads][head_dim]. Of keys and values: [kv_heads][head_dim], then
 * [kv_heads][value_head_dim]. Of the projection qkv: queries, gates if any, keys, values.
 * Of a gated MLP's first product: what is activated, then what it is multiplied with.
 *
 * Routing values, fp32: [tokens][experts] probabilities, then [tokens][experts] shares of
 * the chosen experts, below 0 for all others. */
#ifndef MCP_STEP_FACTS_H
#define MCP_STEP_FACTS_H

#include "core/error.h"
#include "core/json.h"
#include "core/numerics.h"

#include <stdint.h>

/* What kernels keep of a token at hand: columns of a head, experts. */
enum { MCP_MAX_HEAD_DIM = 256, MCP_MAX_ROUTED = 4096 };

struct mcp_layer_facts {
    int64_t microbatch_size;
    int64_t sequence_length;
    int64_t sequence_local; /* sequence_length / context_parallel */
    int64_t zigzag;         /* 1: how a sequence is cut, see above */
    int64_t hidden_size;
    /* attention: heads of this rank */
    int64_t heads, kv_heads;
    int64_t head_dim, value_head_dim;
    int64_t sliding_window;       /* keys that a query sees, itself included; 0: all before it */
    int64_t attention_chunk_size; /* ... only within chunks of so many tokens; 0: no chunks */
    double softmax_scale;
    int64_t rotary_dim; /* columns of a head that turn; 0: no rotary positions */
    double rotary_base;
    double rotary_factor, rotary_low_factor, rotary_high_factor, rotary_original_length;
    /* norms and MLP */
    int64_t norm_centers; /* 1: LayerNorm; 0: RMSNorm */
    int64_t norm_biases;  /* 1: a norm's row of weights is followed by one of biases */
    double norm_epsilon;
    int64_t gated;
    /* routing */
    int64_t num_experts; /* of all ranks */
    int64_t local_experts;
    int64_t experts_per_token;
    int64_t raw_top_k; /* 0: shares of a token's experts sum to 1 */
    /* ends */
    int64_t vocab_size;     /* without padding */
    int64_t vocab_local;    /* rows of this rank, with padding */
    int64_t positions_part; /* weight part of learned positions plus 1; 0: none */
    /* new weights */
    double init_std, residual_init_std;
    enum mcp_rotary_scaling rotary_scaling;
    enum mcp_activation activation; /* never unsaid where there is an MLP */
    char lack[48];                  /* what of the layer no kernel does; "": nothing */
};

void mcp_facts_to_json(const struct mcp_layer_facts *facts, struct mcp_json *type);
/* The object "facts" of a layer type; every number must be there. */
enum mcp_status mcp_facts_from_json(struct mcp_json *type, struct mcp_layer_facts *out,
                                    struct mcp_error *err);

#endif
