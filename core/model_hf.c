/* core/model_hf.c: Hugging Face's config.json read as a model.
 *
 * A new spelling of a key is a word in `aliases`; a new family is a row of
 * core/model_family.c. */
#include "core/model_hf.h"
#include "core/model_family.h"
#include "core/text.h"

#include <assert.h>

#define MAX_CONFIG_LAYERS 65536

/* Keys ---------------------------------------------------------------------- */

enum key {
    NUM_LAYERS,
    HIDDEN_SIZE,
    NUM_HEADS,
    NUM_KV_HEADS,
    HEAD_DIM,
    FFN_SIZE,
    VOCAB_SIZE,
    MAX_POSITIONS,
    SLIDING_WINDOW,
    MAX_WINDOW_LAYERS,
    Q_LORA_RANK,
    KV_LORA_RANK,
    QK_NOPE_HEAD_DIM,
    QK_ROPE_HEAD_DIM,
    V_HEAD_DIM,
    NUM_EXPERTS,
    EXPERTS_PER_TOKEN,
    MOE_FFN_SIZE,
    NUM_SHARED_EXPERTS,
    SHARED_FFN_SIZE,
    FIRST_DENSE_LAYERS,
    MOE_LAYER_STEP,
    NUM_MTP_LAYERS,
    NUM_KEYS
};

#define MAX_ALIASES 5
static const char *const aliases[NUM_KEYS][MAX_ALIASES] = {
    [NUM_LAYERS] = {"num_hidden_layers", "n_layer", "num_layers", "n_layers"},
    [HIDDEN_SIZE] = {"hidden_size", "n_embd", "d_model"},
    [NUM_HEADS] = {"num_attention_heads", "n_head", "n_heads", "num_heads"},
    [NUM_KV_HEADS] = {"num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv"},
    [HEAD_DIM] = {"head_dim", "kv_channels"},
    [FFN_SIZE] = {"intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "d_ff"},
    [VOCAB_SIZE] = {"vocab_size", "padded_vocab_size"},
    [MAX_POSITIONS] = {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"},
    [SLIDING_WINDOW] = {"sliding_window"},
    [MAX_WINDOW_LAYERS] = {"max_window_layers"},
    [Q_LORA_RANK] = {"q_lora_rank"},
    [KV_LORA_RANK] = {"kv_lora_rank"},
    [QK_NOPE_HEAD_DIM] = {"qk_nope_head_dim"},
    [QK_ROPE_HEAD_DIM] = {"qk_rope_head_dim"},
    [V_HEAD_DIM] = {"v_head_dim"},
    [NUM_EXPERTS] = {"num_experts", "num_local_experts", "n_routed_experts"},
    [EXPERTS_PER_TOKEN] = {"num_experts_per_tok", "experts_per_token", "num_experts_per_token"},
    [MOE_FFN_SIZE] = {"moe_intermediate_size"},
    [NUM_SHARED_EXPERTS] = {"n_shared_experts"},
    [SHARED_FFN_SIZE] = {"shared_expert_intermediate_size"},
    [FIRST_DENSE_LAYERS] = {"first_k_dense_replace"},
    [MOE_LAYER_STEP] = {"moe_layer_freq", "decoder_sparse_step"},
    [NUM_MTP_LAYERS] = {"num_nextn_predict_layers"},
};

struct config {
    struct mcp_json *json;
    const struct mcp_family *family;
    int value[NUM_KEYS]; /* 0: absent */
    struct mcp_layer_rules rules;
    unsigned char *is_listed;   /* [num_layers] in mlp_only_layers */
    unsigned char *is_windowed; /* [num_layers] */
};

static bool has_trait(const struct config *config, unsigned trait)
{
    return (config->family->traits & trait) != 0;
}

/* Sizes --------------------------------------------------------------------- */

/* All spellings of a key that are present must agree. */
static enum mcp_status read_key(struct config *config, enum key key, struct mcp_error *err)
{
    const char *first = NULL;
    for (int i = 0; i < MAX_ALIASES && aliases[key][i] != NULL; i++) {
        const char *name = aliases[key][i];
        int value;
        if (!mcp_json_has(config->json, name))
            continue;
        MCP_TRY(mcp_json_int(config->json, name, &value, err));
        if (first != NULL && value != config->value[key])
            return mcp_json_fail(config->json, err, "%s is %d but %s is %d", first,
                                 config->value[key], name, value);
        first = name;
        config->value[key] = value;
    }
    return MCP_OK;
}

static bool is_present(const struct config *config, enum key key)
{
    for (int i = 0; i < MAX_ALIASES && aliases[key][i] != NULL; i++)
        if (mcp_json_has(config->json, aliases[key][i]))
            return true;
    return false;
}

/* The key of the file that most resembles `name`, or NULL. */
static const char *nearest_key(struct mcp_arena *arena, struct mcp_json *json, const char *name)
{
    const size_t count = mcp_json_count(json);
    const char **keys = MCP_ARRAY(arena, count + 1, const char *);
    for (size_t i = 0; i < count; i++)
        (void)mcp_json_member(json, i, &keys[i]);
    return mcp_nearest(name, keys, count);
}

/* Sizes for which nothing may be assumed. */
static enum mcp_status require_key(struct mcp_arena *arena, const struct config *config,
                                   enum key key, struct mcp_error *err)
{
    if (is_present(config, key))
        return config->value[key] > 0
                   ? MCP_OK
                   : mcp_json_fail(config->json, err, "%s is 0; at least 1 is needed",
                                   aliases[key][0]);
    struct mcp_text others = mcp_text_new(arena);
    for (int i = 1; i < MAX_ALIASES && aliases[key][i] != NULL; i++)
        mcp_text_add(&others, "%s%s", i == 1 ? ", also called " : ", ", aliases[key][i]);
    const char *nearest = nearest_key(arena, config->json, aliases[key][0]);
    return mcp_json_fail(config->json, err, "%s%s is missing or null%s%s%s", aliases[key][0],
                         others.data, nearest == NULL ? "" : "; did \"",
                         nearest == NULL ? "" : mcp_printable(arena, nearest),
                         nearest == NULL ? "" : "\" mean it?");
}

static enum mcp_status require_keys(struct mcp_arena *arena, const struct config *config,
                                    struct mcp_error *err)
{
    static const enum key always_needed[] = {HIDDEN_SIZE, NUM_LAYERS, NUM_HEADS, VOCAB_SIZE};
    static const enum key latent[] = {KV_LORA_RANK, QK_NOPE_HEAD_DIM, QK_ROPE_HEAD_DIM, V_HEAD_DIM};
    static const enum key experts[] = {NUM_EXPERTS, EXPERTS_PER_TOKEN};
    for (size_t i = 0; i < MCP_COUNT_OF(always_needed); i++)
        MCP_TRY(require_key(arena, config, always_needed[i], err));
    for (size_t i = 0; has_trait(config, MCP_FAMILY_LATENT) && i < MCP_COUNT_OF(latent); i++)
        MCP_TRY(require_key(arena, config, latent[i], err));
    for (size_t i = 0; has_trait(config, MCP_FAMILY_EXPERTS) && i < MCP_COUNT_OF(experts); i++)
        MCP_TRY(require_key(arena, config, experts[i], err));
    if (has_trait(config, MCP_FAMILY_EXPERTS) && !has_trait(config, MCP_FAMILY_FFN_IS_MOE))
        MCP_TRY(require_key(arena, config, MOE_FFN_SIZE, err));
    if (config->family->position == MCP_POSITION_LEARNED)
        MCP_TRY(require_key(arena, config, MAX_POSITIONS, err));
    if (config->family->ffn_per_hidden == 0)
        MCP_TRY(require_key(arena, config, FFN_SIZE, err));
    return MCP_OK;
}

static enum mcp_status read_sizes(struct mcp_arena *arena, struct config *config,
                                  struct mcp_error *err)
{
    config->value[MAX_WINDOW_LAYERS] = config->family->max_window_layers;
    for (int key = 0; key < NUM_KEYS; key++)
        MCP_TRY(read_key(config, (enum key)key, err));
    MCP_TRY(require_keys(arena, config, err));
    if (config->value[NUM_LAYERS] > MAX_CONFIG_LAYERS)
        return mcp_json_fail(config->json, err, "%s is %d; at most %d are possible",
                             aliases[NUM_LAYERS][0], config->value[NUM_LAYERS], MAX_CONFIG_LAYERS);
    return MCP_OK;
}

/* Which layers -------------------------------------------------------------- */

static void make_rules(struct mcp_arena *arena, struct config *config)
{
    config->is_listed = MCP_ARRAY(arena, config->value[NUM_LAYERS], unsigned char);
    config->is_windowed = MCP_ARRAY(arena, config->value[NUM_LAYERS], unsigned char);
    config->rules = (struct mcp_layer_rules){
        .first_dense_layers = config->value[FIRST_DENSE_LAYERS],
        .moe_layer_step = config->value[MOE_LAYER_STEP],
        .max_window_layers = config->value[MAX_WINDOW_LAYERS],
        .is_listed_dense = config->is_listed,
    };
}

static enum mcp_status read_dense_layers(struct config *config, struct mcp_error *err)
{
    struct mcp_json *list;
    if (!mcp_json_has(config->json, "mlp_only_layers"))
        return MCP_OK;
    MCP_TRY(mcp_json_array(config->json, "mlp_only_layers", &list, err));
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        int layer;
        MCP_TRY(mcp_json_as_int(mcp_json_at(list, i), &layer, err));
        if (layer < 0 || layer >= config->value[NUM_LAYERS])
            return mcp_json_fail(list, err, "layer %d is not one of the %d layers", layer,
                                 config->value[NUM_LAYERS]);
        config->is_listed[layer] = 1;
    }
    return MCP_OK;
}

static enum mcp_status read_layer_types(struct config *config, struct mcp_error *err)
{
    struct mcp_json *list;
    MCP_TRY(mcp_json_array(config->json, "layer_types", &list, err));
    if (mcp_json_count(list) != (size_t)config->value[NUM_LAYERS])
        return mcp_json_fail(list, err, "%zu entries, but there are %d layers",
                             mcp_json_count(list), config->value[NUM_LAYERS]);
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        const char *type;
        MCP_TRY(mcp_json_as_string(mcp_json_at(list, i), &type, err));
        config->is_windowed[i] = mcp_same(type, "sliding_attention");
        if (!config->is_windowed[i] && !mcp_same(type, "full_attention"))
            return mcp_json_fail(list, err,
                                 "layer %zu is neither \"full_attention\" nor "
                                 "\"sliding_attention\"",
                                 i);
    }
    return MCP_OK;
}

/* layer_types where given, else the family's rule. */
static enum mcp_status read_windows(struct config *config, struct mcp_error *err)
{
    bool use_window = true;
    if (!is_present(config, SLIDING_WINDOW))
        config->value[SLIDING_WINDOW] = config->family->window;
    if (config->family->max_window_layers > 0) { /* Qwen: off unless asked for */
        use_window = false;
        MCP_TRY(mcp_json_maybe_bool(config->json, "use_sliding_window", &use_window, err));
    }
    if (!use_window || config->family->is_windowed == NULL)
        config->value[SLIDING_WINDOW] = 0;
    if (mcp_json_has(config->json, "layer_types"))
        return read_layer_types(config, err);
    for (int layer = 0; config->value[SLIDING_WINDOW] > 0 && layer < config->value[NUM_LAYERS];
         layer++)
        config->is_windowed[layer] = config->family->is_windowed(&config->rules, layer);
    return MCP_OK;
}

/* Layer kinds --------------------------------------------------------------- */

static enum mcp_status set_heads(const struct config *config, struct mcp_layer_kind *kind,
                                 struct mcp_error *err)
{
    const int hidden = config->value[HIDDEN_SIZE], heads = config->value[NUM_HEADS];
    const int default_kv = config->family->kv_heads;
    kind->num_attention_heads = heads;
    kind->num_kv_heads = default_kv > 0 ? default_kv : heads;
    if (is_present(config, NUM_KV_HEADS))
        kind->num_kv_heads = config->value[NUM_KV_HEADS];
    if (!is_present(config, HEAD_DIM) && hidden % heads != 0)
        return mcp_json_fail(config->json, err,
                             "num_attention_heads %d does not divide hidden_size %d and head_dim "
                             "is not given; the nearest hidden_size are %lld and %lld",
                             heads, hidden, (long long)hidden / heads * heads,
                             ((long long)hidden / heads + 1) * heads);
    kind->head_dim = is_present(config, HEAD_DIM) ? config->value[HEAD_DIM] : hidden / heads;
    kind->value_head_dim = kind->head_dim;
    return MCP_OK;
}

/* num_key_value_heads has no meaning here: every head has its own K and V. */
static enum mcp_status set_latent(const struct config *config, struct mcp_layer_kind *kind,
                                  struct mcp_error *err)
{
    const int nope = config->value[QK_NOPE_HEAD_DIM], rope = config->value[QK_ROPE_HEAD_DIM];
    const int limit = 1 << 16;
    if (nope > limit || rope > limit)
        return mcp_json_fail(config->json, err,
                             "qk_nope_head_dim %d and qk_rope_head_dim %d: at most %d is possible",
                             nope, rope, limit);
    kind->attention = MCP_ATTENTION_LATENT;
    kind->num_attention_heads = config->value[NUM_HEADS];
    kind->num_kv_heads = config->value[NUM_HEADS];
    kind->head_dim = nope + rope;
    kind->value_head_dim = config->value[V_HEAD_DIM];
    kind->q_lora_rank = config->value[Q_LORA_RANK];
    kind->kv_lora_rank = config->value[KV_LORA_RANK];
    kind->qk_rope_head_dim = rope;
    return MCP_OK;
}

static enum mcp_status set_attention(const struct config *config, struct mcp_layer_kind *kind,
                                     struct mcp_error *err)
{
    MCP_TRY(has_trait(config, MCP_FAMILY_LATENT) ? set_latent(config, kind, err)
                                                 : set_heads(config, kind, err));
    kind->qk_norm = has_trait(config, MCP_FAMILY_QK_NORM);
    kind->attention_sinks = has_trait(config, MCP_FAMILY_SINKS);
    kind->attention_bias = has_trait(config, MCP_FAMILY_QKV_BIAS);
    kind->attention_output_bias = has_trait(config, MCP_FAMILY_OUT_BIAS);
    if (has_trait(config, MCP_FAMILY_FIXED_BIAS) || !mcp_json_has(config->json, "attention_bias"))
        return MCP_OK;
    MCP_TRY(mcp_json_bool(config->json, "attention_bias", &kind->attention_bias, err));
    kind->attention_output_bias = kind->attention_bias;
    return MCP_OK;
}

static enum mcp_status set_dense_mlp(const struct config *config, struct mcp_layer_kind *kind,
                                     struct mcp_error *err)
{
    const int per_hidden = config->family->ffn_per_hidden;
    kind->mlp = MCP_MLP_DENSE;
    kind->ffn_hidden_size = config->value[FFN_SIZE];
    if (!is_present(config, FFN_SIZE)) {
        const int64_t width = (int64_t)per_hidden * config->value[HIDDEN_SIZE];
        if (width > INT32_MAX)
            return mcp_json_fail(config->json, err, "hidden_size %d is too large",
                                 config->value[HIDDEN_SIZE]);
        kind->ffn_hidden_size = (int)width;
    }
    kind->gated_mlp = has_trait(config, MCP_FAMILY_GATED);
    kind->mlp_bias = has_trait(config, MCP_FAMILY_MLP_BIAS);
    return mcp_json_maybe_bool(config->json, "mlp_bias", &kind->mlp_bias, err);
}

static enum mcp_status set_experts(const struct config *config, struct mcp_layer_kind *kind,
                                   struct mcp_error *err)
{
    kind->mlp = MCP_MLP_EXPERTS;
    kind->gated_mlp = has_trait(config, MCP_FAMILY_GATED);
    kind->num_experts = config->value[NUM_EXPERTS];
    kind->experts_per_token = config->value[EXPERTS_PER_TOKEN];
    kind->moe_ffn_hidden_size =
        config->value[has_trait(config, MCP_FAMILY_FFN_IS_MOE) ? FFN_SIZE : MOE_FFN_SIZE];
    const int64_t shared = config->value[SHARED_FFN_SIZE] +
                           (int64_t)config->value[NUM_SHARED_EXPERTS] * kind->moe_ffn_hidden_size;
    if (shared > INT32_MAX)
        return mcp_json_fail(config->json, err, "n_shared_experts %d is too large",
                             config->value[NUM_SHARED_EXPERTS]);
    kind->shared_expert_ffn_hidden_size = (int)shared;
    kind->shared_expert_gate = has_trait(config, MCP_FAMILY_SHARED_GATE) && shared > 0;
    kind->router_bias = has_trait(config, MCP_FAMILY_ROUTER_BIAS);
    kind->router_correction_bias = has_trait(config, MCP_FAMILY_CORRECTION_BIAS);
    kind->expert_bias = has_trait(config, MCP_FAMILY_EXPERT_BIAS);
    return MCP_OK;
}

/* Whether, and with which kind, each layer is dense or sparse, windowed or not. */
static enum mcp_status set_layers(const struct config *config, struct mcp_model *model,
                                  struct mcp_error *err)
{
    struct mcp_layer_kind dense = {0};
    MCP_TRY(set_attention(config, &dense, err));
    struct mcp_layer_kind sparse = dense;
    if (!has_trait(config, MCP_FAMILY_FFN_IS_MOE))
        MCP_TRY(set_dense_mlp(config, &dense, err));
    if (has_trait(config, MCP_FAMILY_EXPERTS))
        MCP_TRY(set_experts(config, &sparse, err));
    for (int layer = 0; layer < model->num_layers; layer++) {
        const bool is_sparse =
            config->family->is_sparse != NULL && config->family->is_sparse(&config->rules, layer);
        struct mcp_layer_kind kind = is_sparse ? sparse : dense;
        kind.sliding_window = config->is_windowed[layer] ? config->value[SLIDING_WINDOW] : 0;
        const int index = mcp_model_add_kind(model, &kind);
        assert(index >= 0); /* two MLPs x two windows */
        model->layer_kind[layer] = (unsigned char)index;
    }
    return MCP_OK;
}

/* What was left aside ------------------------------------------------------- */

/* Keys that people ask about, with the reason why they change nothing here. */
static const char *const explained[][2] = {
    {"auto_map", "remote code is never fetched or run"},
    {"quantization_config", "training holds weights in the job's precision"},
    {"quantization", "training holds weights in the job's precision"},
    {"rope_scaling", "costs nothing that is counted"},
};

static const char *left_aside(struct mcp_arena *arena, struct mcp_json *json,
                              const struct mcp_family *family)
{
    struct mcp_text text = mcp_text_new(arena);
    const char *other = mcp_family_foreign_class(arena, json, family);
    if (other != NULL)
        mcp_text_add(&text, "architectures (%s is read as %s)", mcp_printable(arena, other),
                     family->model_type);
    for (size_t i = 0; i < MCP_COUNT_OF(explained); i++)
        if (mcp_json_has(json, explained[i][0]))
            mcp_text_add(&text, "%s%s (%s)", text.length > 0 ? ", " : "", explained[i][0],
                         explained[i][1]);
    const char *rest = mcp_json_ignored(arena, json);
    if (rest[0] != '\0')
        mcp_text_add(&text, "%s%s", text.length > 0 ? ", " : "", mcp_printable(arena, rest));
    return text.data;
}

/* The whole ----------------------------------------------------------------- */

static enum mcp_status set_model(const struct config *config, struct mcp_model *model,
                                 struct mcp_error *err)
{
    model->name = config->family->model_type;
    model->family = config->family->model_type;
    model->num_layers = config->value[NUM_LAYERS];
    model->hidden_size = config->value[HIDDEN_SIZE];
    model->vocab_size = config->value[VOCAB_SIZE];
    model->max_sequence_length = config->value[MAX_POSITIONS];
    model->norm = config->family->norm;
    model->position = config->family->position;
    model->norms_per_layer = 2;
    model->tied_embeddings = has_trait(config, MCP_FAMILY_TIED);
    return mcp_json_maybe_bool(config->json, "tie_word_embeddings", &model->tied_embeddings, err);
}

/* MTP modules are like the last decoder layer (DeepSeek-V3, section 2.2). */
static void set_mtp(const struct config *config, struct mcp_model *model)
{
    model->num_mtp_layers = config->value[NUM_MTP_LAYERS];
    if (model->num_mtp_layers > 0)
        model->mtp_kind = model->layer_kind[model->num_layers - 1];
}

enum mcp_status mcp_model_from_config(struct mcp_arena *arena, struct mcp_json *json,
                                      struct mcp_model *out, struct mcp_error *err)
{
    struct config config = {.json = json};
    MCP_TRY(mcp_family_find(arena, json, &config.family, err));
    MCP_TRY(read_sizes(arena, &config, err));
    make_rules(arena, &config);
    MCP_TRY(read_dense_layers(&config, err));
    MCP_TRY(read_windows(&config, err));
    MCP_TRY(set_model(&config, out, err));
    out->layer_kind = MCP_ARRAY(arena, out->num_layers, unsigned char);
    MCP_TRY(set_layers(&config, out, err));
    set_mtp(&config, out);
    out->ignored = left_aside(arena, json, config.family);
    return MCP_OK;
}
