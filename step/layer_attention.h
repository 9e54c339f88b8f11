/* step/layer_attention.h: the values of an attention half. Private to step/. */
#ifndef MCP_STEP_LAYER_ATTENTION_H
#define MCP_STEP_LAYER_ATTENTION_H

#include "step/builder.h"

struct mcp_attention_values {
    /* shapes of one rank */
    int64_t batch_heads;   /* microbatch x local query heads */
    int64_t query_columns; /* local query heads x head_dim */
    int64_t kv_columns;    /* local KV heads x (head_dim + value_head_dim) */
    int64_t key_columns;   /* ... x head_dim */
    int64_t gate_columns;  /* as many as the output's, where it is gated */
    int64_t value_columns; /* local query heads x value_head_dim: the attention output */
    double pairs;          /* (query, key) pairs of one head of one sequence, whole */
    /* saved values, in forward order */
    struct mcp_value norm;                /* [Ts, h] */
    struct mcp_value raw;                 /* [T, ...] before a norm on queries and keys */
    struct mcp_value gate;                /* [T, gate_columns] */
    struct mcp_value gated;               /* [T, value_columns] */
    struct mcp_value q_latent, kv_latent; /* MLA: [T, 2 q_lora], [T, 2 (kv_lora + rope)] */
    struct mcp_value query;               /* [T, query_columns] */
    struct mcp_value kv;                  /* [T, kv_columns]; ring: the part held last */
    struct mcp_value probabilities;       /* unfused: [batch_heads, s / c, s] */
    struct mcp_value output;              /* [T, value_columns] */
    struct mcp_value head_output;         /* all-to-all: output before it is exchanged back */
    struct mcp_value statistics;          /* [T, heads] log-sum-exp, fp32 */
    struct mcp_residual residual;
    /* weight parts */
    int norm_weight, qk_norm_weight, qkv_bias;
    struct mcp_linear qkv;                          /* grouped attention */
    struct mcp_linear q_down, q_up, kv_down, kv_up; /* MLA; q_up alone when q_lora_rank is 0 */
    struct mcp_linear out;
    struct mcp_index_values *index; /* NULL: none */
};

/* The core: from query and kv to output, and back. step/layer_context.c has the
 * context-parallel kinds. */
void mcp_core_forward(struct mcp_builder *b, struct mcp_attention_values *v);
/* d_output [T, value_columns] -> d_query, d_kv. */
void mcp_core_backward(struct mcp_builder *b, struct mcp_attention_values *v,
                       struct mcp_ref d_output, struct mcp_ref d_query, struct mcp_ref d_kv);

/* One attention op over a share of the pairs. */
struct mcp_attention_call {
    enum mcp_function function;
    int64_t batch_heads, queries, keys;
    int hops; /* ranks back along the context ring to the owner of the keys */
    double pairs;
    struct mcp_ref reads[MCP_MAX_READS], writes[MCP_MAX_WRITES];
};
#endif
