/* core/model_family.h: the families of config.json, as data.
 *
 * A family is what its configuration and modelling classes in
 * huggingface/transformers fix: traits, defaults, and which layers have experts, a
 * sliding window or a state. To add one add a row to core/model_family.c; what no row
 * can say is a small function of core/model_family_rules.c. */
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
    MCP_FAMILY_SHARED_GATE = 16384,
    MCP_FAMILY_HEAD_BIAS = 32768,
    MCP_FAMILY_EMBEDDING_NORM = 65536,
    MCP_FAMILY_OUTPUT_GATE = 131072, /* attention_output_gate */
    MCP_FAMILY_QK_NORM_FULL = 262144,
    MCP_FAMILY_GATED_DELTA = 524288, /* what layers with a state are */
    MCP_FAMILY_LIGHTNING = 1048576,
    MCP_FAMILY_MAMBA = 2097152,
    MCP_FAMILY_MAMBA2 = 4194304,
    MCP_FAMILY_ANY_BIAS = 8388608,      /* attention_bias says nothing of the output's */
    MCP_FAMILY_FIXED_EXPERTS = 1 << 24, /* experts need no key: none makes the model dense */
    MCP_FAMILY_NO_ATTENTION = 1 << 25,  /* no layer needs the keys of attention */
    MCP_FAMILY_FIXED_NORMS = 1 << 26    /* Mamba: norms on dt, B and C */
};

/* Sizes of a config.json; their spellings are in core/model_config.c. */
enum mcp_key {
    MCP_KEY_NUM_LAYERS,
    MCP_KEY_HIDDEN_SIZE,
    MCP_KEY_NUM_HEADS,
    MCP_KEY_NUM_KV_HEADS,
    MCP_KEY_HEAD_DIM,
    MCP_KEY_FFN_SIZE,
    MCP_KEY_VOCAB_SIZE,
    MCP_KEY_MAX_POSITIONS,
    MCP_KEY_SLIDING_WINDOW,
    MCP_KEY_MAX_WINDOW_LAYERS,
    MCP_KEY_WINDOW_PERIOD,
    MCP_KEY_ATTENTION_CHUNK,
    MCP_KEY_Q_LORA_RANK,
    MCP_KEY_KV_LORA_RANK,
    MCP_KEY_QK_NOPE_HEAD_DIM,
    MCP_KEY_QK_ROPE_HEAD_DIM,
    MCP_KEY_V_HEAD_DIM,
    MCP_KEY_INDEX_HEADS,
    MCP_KEY_INDEX_HEAD_DIM,
    MCP_KEY_INDEX_TOPK,
    MCP_KEY_NUM_EXPERTS,
    MCP_KEY_EXPERTS_PER_TOKEN,
    MCP_KEY_MOE_FFN_SIZE,
    MCP_KEY_NUM_SHARED_EXPERTS,
    MCP_KEY_SHARED_FFN_SIZE,
    MCP_KEY_DENSE_FFN_SIZE, /* of the dense layers of a family with experts */
    MCP_KEY_FIRST_DENSE_LAYERS,
    MCP_KEY_MOE_LAYER_STEP,
    MCP_KEY_MOE_LAYER_OFFSET,
    MCP_KEY_NUM_MTP_LAYERS,
    MCP_KEY_ATTENTION_PERIOD, /* one layer of so many has attention, others a state */
    MCP_KEY_ATTENTION_OFFSET,
    MCP_KEY_STATE_SIZE,
    MCP_KEY_STATE_HEADS,
    MCP_KEY_STATE_HEAD_DIM,
    MCP_KEY_STATE_GROUPS,
    MCP_KEY_CONV_KERNEL,
    MCP_KEY_EXPAND,
    MCP_KEY_INNER_SIZE,
    MCP_KEY_TIME_STEP_RANK,
    MCP_KEY_SCAN_CHUNK,
    MCP_NUM_KEYS
};

/* How a layer mixes tokens, as far as the family's rules say; which recurrent kind is
 * a trait. */
enum mcp_mixer { MCP_MIX_FULL, MCP_MIX_WINDOW, MCP_MIX_CHUNK, MCP_MIX_STATE, MCP_MIX_NONE };

struct mcp_config;
/* A rule says yes or no for one layer. */
typedef bool mcp_layer_rule(const struct mcp_config *config, int layer);
typedef enum mcp_status mcp_config_step(struct mcp_config *config, struct mcp_error *err);
typedef enum mcp_status mcp_layer_refine(const struct mcp_config *config, int layer,
                                         struct mcp_layer_kind *kind, struct mcp_error *err);
typedef enum mcp_status mcp_model_finish(const struct mcp_config *config, struct mcp_model *model,
                                         struct mcp_error *err);

struct mcp_key_value {
    enum mcp_key key;
    int value;
};
struct mcp_key_name {
    enum mcp_key key;
    const char *name;
};

enum { MCP_MAX_DEFAULTS = 8, MCP_MAX_OWN_NAMES = 6 };
struct mcp_family {
    const char *model_type;
    unsigned traits; /* of enum mcp_family_trait */
    enum mcp_norm_kind norm;
    enum mcp_position_kind position;
    int norms_per_layer;         /* 0: 2 */
    int ffn_per_hidden;          /* intermediate_size over hidden_size; 0: no default */
    mcp_layer_rule *is_sparse;   /* NULL: all are where the family has experts */
    mcp_layer_rule *is_windowed; /* NULL: none is */
    mcp_layer_rule *has_state;   /* NULL: none has */
    /* Absent keys. `class_defaults` hold only in a nested text_config, which lists no
     * more than what differs from them. */
    struct mcp_key_value defaults[MCP_MAX_DEFAULTS];
    struct mcp_key_value class_defaults[MCP_MAX_DEFAULTS];
    struct mcp_key_name own_names[MCP_MAX_OWN_NAMES]; /* spellings of this family alone */
    /* After the sizes are read: what this family means by them. */
    mcp_config_step *prepare;
    /* After the rules: layers one by one. */
    mcp_config_step *mark;
    /* Of one layer, when its kind is made. */
    mcp_layer_refine *refine;
    /* Of the whole model, when its traits are set. */
    mcp_model_finish *finish;
};

/* A config.json while it is read. */
struct mcp_config {
    struct mcp_arena *arena;
    struct mcp_json *json;  /* the text model: text_config, llm_config, or all */
    struct mcp_json *outer; /* all */
    const struct mcp_family *family;
    int value[MCP_NUM_KEYS]; /* the family's default, or 0, when absent */
    bool given[MCP_NUM_KEYS];
    unsigned char *mixer; /* [num_layers] enum mcp_mixer */
    unsigned char *mlp;   /* [num_layers] enum mcp_mlp_kind */
    const char *note;     /* what the reader must know, "" when nothing */
};

/* By model_type or, without one, by architectures. MCP_FORMAT, naming the
 * nearest family, for others; encoders are told apart. */
enum mcp_status mcp_family_find(struct mcp_arena *arena, struct mcp_json *config,
                                const struct mcp_family **out, struct mcp_error *err);

/* The first of architectures when it names no class of `family`, else NULL. */
const char *mcp_family_foreign_class(struct mcp_arena *arena, struct mcp_json *config,
                                     const struct mcp_family *family);

/* The functions of core/model_family_rules.c. */
mcp_layer_rule mcp_rule_always, mcp_rule_even, mcp_rule_upper, mcp_rule_all_but_nth;
mcp_layer_rule mcp_rule_after_dense, mcp_rule_every_step, mcp_rule_at_offset;
mcp_layer_rule mcp_rule_not_nth, mcp_rule_not_at_offset;
mcp_config_step mcp_prepare_qwen, mcp_prepare_falcon, mcp_prepare_bigcode, mcp_prepare_mpt;
mcp_config_step mcp_prepare_minicpm3, mcp_prepare_gemma4, mcp_prepare_minimax_m2;
mcp_config_step mcp_prepare_nemotron_h, mcp_prepare_granite_hybrid, mcp_prepare_opt;
mcp_config_step mcp_mark_states, mcp_mark_nemotron_h, mcp_mark_nemotron_nas, mcp_mark_mimo;
mcp_config_step mcp_mark_minimax, mcp_mark_llama4, mcp_mark_mllama, mcp_mark_bamba;
mcp_config_step mcp_mark_exaone4, mcp_mark_gpt_neo;
mcp_layer_refine mcp_refine_nemotron_nas, mcp_refine_mimo, mcp_refine_gemma4, mcp_refine_llama4;
mcp_layer_refine mcp_refine_mllama, mcp_refine_mpt, mcp_refine_cohere, mcp_refine_falcon;
mcp_model_finish mcp_finish_opt, mcp_finish_falcon, mcp_finish_mpt, mcp_finish_gemma4;
mcp_model_finish mcp_finish_parallel;

#endif
