/* core/model_family.h: the families of config.json, as data.
 *
 * A family is what its configuration and modelling classes in
 * huggingface/transformers fix: traits, defaults, and which layers have experts
 * or a sliding window. To add one add a row to core/model_family.c. */
#ifndef MCP_CORE_MODEL_FAMILY_H
#define MCP_CORE_MODEL_FAMILY_H

#include "core/model.h"

enum mcp_family_trait {
    MCP_FAMILY_TIED = 1,        /* tie_word_embeddings unless the config says otherwise */
    MCP_FAMILY_GATED = 2,       /* SwiGLU */
    MCP_FAMILY_QKV_BIAS = 4,    /* the default of attention_bias */
    MCP_FAMILY_OUT_BIAS = 8,    /* ... on the output projection */
    MCP_FAMILY_FIXED_BIAS = 16, /* attention_bias is no key of this family */
    MCP_FAMILY_MLP_BIAS = 32,
    MCP_FAMILY_QK_NORM = 64,
    MCP_FAMILY_SINKS = 128,
    MCP_FAMILY_LATENT = 256,      /* MLA */
    MCP_FAMILY_EXPERTS = 512,     /* layers have experts where is_sparse says so */
    MCP_FAMILY_FFN_IS_MOE = 1024, /* intermediate_size is the width of one expert */
    MCP_FAMILY_ROUTER_BIAS = 2048,
    MCP_FAMILY_CORRECTION_BIAS = 4096,
    MCP_FAMILY_EXPERT_BIAS = 8192,
    MCP_FAMILY_SHARED_GATE = 16384
};

/* Numbers of one config.json that say which layers are of which kind. */
struct mcp_layer_rules {
    int first_dense_layers;
    int moe_layer_step; /* 0 and 1: every layer */
    int max_window_layers;
    const unsigned char *is_listed_dense; /* [num_layers] */
};

struct mcp_family {
    const char *model_type;
    unsigned traits; /* of enum mcp_family_trait */
    enum mcp_norm_kind norm;
    enum mcp_position_kind position;
    bool (*is_sparse)(const struct mcp_layer_rules *rules, int layer);   /* NULL: none is */
    bool (*is_windowed)(const struct mcp_layer_rules *rules, int layer); /* NULL: none is */
    /* Defaults of absent keys; 0: none, a size must be given. */
    int window;
    int max_window_layers; /* > 0: windows are off unless use_sliding_window */
    int ffn_per_hidden;    /* intermediate_size over hidden_size */
    int kv_heads;          /* 0: as many as attention heads */
};

/* By model_type or, without one, by architectures. MCP_FORMAT, naming the
 * nearest family, for others; encoders are told apart. */
enum mcp_status mcp_family_find(struct mcp_arena *arena, struct mcp_json *config,
                                const struct mcp_family **out, struct mcp_error *err);

/* The first of architectures when it names no class of `family`, else NULL. */
const char *mcp_family_foreign_class(struct mcp_arena *arena, struct mcp_json *config,
                                     const struct mcp_family *family);

#endif
