/* core/model.h: what is trained: layers, heads, experts, vocabulary.
 *
 * A model is a list of layers; equal layers share a `struct mcp_layer_kind`.
 * Shapes only: nothing here knows about time, ranks or memory. Reads Hugging
 * Face config.json (core/model_hf.h) and our own model file (docs/FORMATS.md), told
 * apart by the "schema" key; and Megatron's arguments (core/model_megatron.h), which
 * are no JSON. */
#ifndef MCP_CORE_MODEL_H
#define MCP_CORE_MODEL_H

#include "core/arena.h"
#include "core/error.h"
#include "core/json.h"
#include "core/numerics.h"

#include <stdbool.h>
#include <stdint.h>

/* How a layer mixes tokens. The recurrent kinds keep a state instead of keys and
 * values: each of num_attention_heads heads a matrix [state_size, head_dim]. Their
 * queries and keys (Mamba: C and B) are state_size wide, num_groups of them; their
 * values are head_dim wide (state space duality, arXiv 2405.21060 section 4). */
enum mcp_attention_kind {
    MCP_ATTENTION_GROUPED,     /* multi-head, multi-query, grouped-query */
    MCP_ATTENTION_LATENT,      /* MLA, DeepSeek-V2 (arXiv 2405.04434) section 2.1 */
    MCP_ATTENTION_GATED_DELTA, /* Gated DeltaNet (arXiv 2412.06464): Qwen3-Next */
    MCP_ATTENTION_LIGHTNING,   /* MiniMax-01 (arXiv 2501.08313) section 2.2 */
    MCP_ATTENTION_MAMBA,       /* arXiv 2312.00752; every channel is a head of 1 */
    MCP_ATTENTION_MAMBA2,      /* arXiv 2405.21060 */
    MCP_ATTENTION_NONE,        /* the layer has an MLP only */
    MCP_NUM_ATTENTIONS
};
enum mcp_norm_kind {
    MCP_RMSNORM,
    MCP_LAYERNORM,
    MCP_LAYERNORM_NO_BIAS,
    MCP_NORM_NO_WEIGHT, /* OLMo: LayerNorm that trains nothing */
    MCP_NUM_NORMS
};
enum mcp_position_kind {
    MCP_POSITION_ROTARY,
    MCP_POSITION_LEARNED,
    MCP_POSITION_ALIBI,
    MCP_POSITION_NONE
};
enum mcp_mlp_kind { MCP_MLP_DENSE, MCP_MLP_EXPERTS, MCP_MLP_NONE, MCP_NUM_MLPS };

struct mcp_layer_kind {
    enum mcp_attention_kind attention;
    int num_attention_heads;
    int num_kv_heads;   /* equals num_attention_heads for multi-head attention; recurrent: 0 */
    int head_dim;       /* of queries and keys; MLA: nope + rope; recurrent: of values */
    int value_head_dim; /* of values; equals head_dim except in MLA */
    int q_lora_rank;    /* MLA; 0: queries are projected directly */
    int kv_lora_rank;
    int qk_rope_head_dim;
    int sliding_window;       /* tokens; 0: full causal attention */
    int attention_chunk_size; /* Llama 4: tokens that attend to one another; 0: all */
    int index_num_heads;      /* DeepSeek-V3.2's indexer, which chooses index_topk keys */
    int index_head_dim;       /* for each query; 0: none */
    int index_topk;
    int state_size;     /* recurrent kinds: rows of a head's state */
    int num_groups;     /* ... heads of queries and keys */
    int conv_kernel;    /* ... tokens of the short convolution; 0: none */
    int chunk_size;     /* ... tokens of one chunk of the scan; 1: token by token */
    int time_step_rank; /* Mamba: the step's low rank */
    bool conv_bias;
    bool attention_output_gate; /* Qwen3-Next: as many gates as queries */
    bool keys_are_values;       /* Gemma 4: no projection of values */
    bool attention_sinks;
    bool attention_bias; /* on the Q, K, V projections */
    bool attention_output_bias;
    bool qk_norm;           /* a norm over head_dim on queries and keys; Mamba: on dt, B, C */
    bool qk_layernorm_full; /* ... over all heads together, hidden-wide */
    enum mcp_mlp_kind mlp;
    bool gated_mlp; /* SwiGLU, GEGLU: two input matrices */
    bool mlp_bias;
    int ffn_hidden_size; /* dense MLP */
    int num_experts;
    int experts_per_token;
    int moe_ffn_hidden_size;           /* of one routed expert */
    int shared_expert_ffn_hidden_size; /* of all shared experts together; 0: none */
    bool shared_expert_gate;           /* Qwen2-MoE: a gate of hidden_size weights */
    bool router_bias;                  /* GPT-OSS: one trained number an expert */
    bool router_correction_bias;       /* DeepSeek-V3: the same, moved without a gradient */
    bool expert_bias;                  /* GPT-OSS: biases inside experts */
};

#define MCP_MAX_LAYERS 65536
#define MCP_MAX_LAYER_KINDS 16

struct mcp_model {
    const char *name;
    const char *family; /* config.json's model_type, "" for our own files */
    int num_layers;     /* decoder layers without MTP modules */
    int hidden_size;
    int vocab_size;
    int max_sequence_length; /* 0: unknown. Also the rows of learned positions */
    enum mcp_norm_kind norm;
    enum mcp_position_kind position;
    bool tied_embeddings;
    bool head_bias;
    bool embedding_norm; /* BLOOM: a norm over the embeddings */
    int extra_positions; /* OPT: rows of learned positions beyond max_sequence_length */
    int norms_per_layer; /* 2; 4 where outputs are normed too; 1 in parallel blocks */
    int num_kinds;
    struct mcp_layer_kind kinds[MCP_MAX_LAYER_KINDS];
    unsigned char *layer_kind; /* [num_layers] index into kinds */
    int num_mtp_layers;        /* multi-token prediction modules, DeepSeek-V3 section 2.2 */
    int mtp_kind;              /* their layer kind */
    struct mcp_numerics numerics;
    const char *source;  /* where the shapes come from, "" when unsaid */
    const char *note;    /* "" when none */
    const char *ignored; /* keys of config.json nobody needed, "" when none */
};

/* `name_or_path`: a preset of models/, our model file, or a config.json. */
enum mcp_status mcp_model_load(struct mcp_arena *arena, const char *name_or_path,
                               struct mcp_model *out, struct mcp_error *err);
enum mcp_status mcp_model_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                    struct mcp_model *out, struct mcp_error *err);
/* Our own format, complete: from_json reads it back equal. */
void mcp_model_to_json(const struct mcp_model *model, struct mcp_json *object);

/* The index of the kind that equals `kind`, added when none does; -1 when all
 * MCP_MAX_LAYER_KINDS are taken. */
int mcp_model_add_kind(struct mcp_model *model, const struct mcp_layer_kind *kind);
bool mcp_layer_kind_equal(const struct mcp_layer_kind *a, const struct mcp_layer_kind *b);
extern const char *const mcp_attention_names[MCP_NUM_ATTENTIONS]; /* "grouped", "latent" ... */
extern const char *const mcp_mlp_names[MCP_NUM_MLPS];             /* "dense", "experts", "none" */

/* Keeps a state: gated delta rule, lightning, Mamba. Its columns: see below. */
bool mcp_is_recurrent(const struct mcp_layer_kind *kind);
/* Has a softmax over keys: grouped or latent. */
bool mcp_has_softmax(const struct mcp_layer_kind *kind);
/* Trained numbers for each of the columns of a norm: 0, 1, or 2 with biases. */
int mcp_model_norm_rows(const struct mcp_model *model);
/* Norms over the hidden size that the layer has before and after its parts. */
int mcp_attention_norms(const struct mcp_model *model, const struct mcp_layer_kind *kind);
int mcp_mlp_norms(const struct mcp_model *model, const struct mcp_layer_kind *kind);

/* Columns of a recurrent layer's projections, of `heads` heads in `groups` groups:
 * all that the input projection makes, and those the convolution passes. */
int64_t mcp_recurrent_inputs(const struct mcp_layer_kind *kind, int64_t heads, int64_t groups);
int64_t mcp_recurrent_conv(const struct mcp_layer_kind *kind, int64_t heads, int64_t groups);
/* Trained numbers of so many heads beside matrices: steps, decays, skips. */
int64_t mcp_recurrent_scalars(const struct mcp_layer_kind *kind, int64_t heads);
/* Multiply-adds of a scan per token (docs/COST_MODEL.md 2.4), the chunks no longer
 * than the sequence: of `heads` states [state_size, head_dim] in `groups` groups. */
struct mcp_scan {
    bool is_delta_rule;
    double heads, groups, state_size, head_dim, chunk_size;
};
double mcp_scan_products(const struct mcp_scan *scan);
int mcp_scan_chunk(const struct mcp_layer_kind *kind, int64_t sequence_length);

/* The kind of decoder layer `layer`, 0 .. num_layers - 1. */
const struct mcp_layer_kind *mcp_model_layer(const struct mcp_model *model, int layer);
/* Has a kind of layer that routes tokens to experts. */
bool mcp_model_has_experts(const struct mcp_model *model);
/* How many decoder layers are of kind `kind`; MTP modules are not among them. */
int mcp_model_layers_of_kind(const struct mcp_model *model, int kind);

/* Parameters. Every trained weight once: tied embeddings once, each expert,
 * norms, biases; router correction biases (not trained by gradient) left out. */
struct mcp_parameters {
    int64_t attention, mlp, experts, shared_experts, router, norms; /* decoder layers */
    int64_t embedding, head, positions, final_norm, mtp;
};
/* One decoder layer; embedding .. mtp are 0. */
struct mcp_parameters mcp_layer_parameters(const struct mcp_model *model,
                                           const struct mcp_layer_kind *kind);
struct mcp_parameters mcp_model_parameters(const struct mcp_model *model);
/* The sum of all fields but mtp: a layer's, or the published size of a model. */
int64_t mcp_parameters_total(const struct mcp_parameters *parameters);
/* Weights one token meets: experts_per_token of num_experts; MTP modules out,
 * embedding and head in. */
int64_t mcp_layer_active_parameters(const struct mcp_model *model,
                                    const struct mcp_layer_kind *kind);
int64_t mcp_model_active_parameters(const struct mcp_model *model);

/* Numbers one token leaves in the key-value cache of one layer: 2 kv d, or the
 * latent and the rotary key in MLA, and the indexer's key; 0 in recurrent layers. */
int64_t mcp_layer_kv_elements_per_token(const struct mcp_layer_kind *kind);
int64_t mcp_model_kv_elements_per_token(const struct mcp_model *model);
/* Numbers that one sequence leaves in a layer whatever its length: states and the
 * convolution's last tokens; 0 where there are keys and values. */
int64_t mcp_layer_state_elements(const struct mcp_layer_kind *kind);
int64_t mcp_model_state_elements(const struct mcp_model *model);

/* Forward FLOPs per token at `sequence_length`: 2 per multiply-add, causal
 * attention counted half, windows respected, LM head in, look-up out (DESIGN 4).
 * MTP modules in. Training is 3 x this. */
double mcp_layer_flops_per_token_forward(const struct mcp_model *model,
                                         const struct mcp_layer_kind *kind,
                                         int64_t sequence_length);
double mcp_model_flops_per_token_forward(const struct mcp_model *model, int64_t sequence_length);

/* (query, key) pairs one head computes in one sequence under a causal mask:
 * s^2 / 2; s w - w^2 / 2 for a window w < s, or for w keys that an indexer chooses;
 * s c / 2 within chunks of c < s tokens. */
double mcp_attention_pairs(const struct mcp_layer_kind *kind, int64_t sequence_length);

/* Range and consistency of every field, in one sentence (MCP_INVALID). */
enum mcp_status mcp_model_check(const struct mcp_model *model, struct mcp_error *err);

#endif
