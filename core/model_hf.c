/* core/model_hf.c: Hugging Face's config.json read as a model: its layers, one by one.
 *
 * Sizes come from core/model_config.c, families from core/model_family.c. */
#include "core/model_hf.h"
#include "core/model_config.h"
#include "core/text.h"

#include <assert.h>

/* Which layers -------------------------------------------------------------- */

static enum mcp_status list_dense_layers(struct mcp_config *config, struct mcp_error *err)
{
    struct mcp_json *list;
    if (!mcp_json_has(config->json, "mlp_only_layers"))
        return MCP_OK;
    MCP_TRY(mcp_json_array(config->json, "mlp_only_layers", &list, err));
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        int layer;
        MCP_TRY(mcp_config_layer_at(config, list, i, &layer, err));
        config->mlp[layer] = MCP_MLP_DENSE;
    }
    return MCP_OK;
}

static enum mcp_status mark_mlps(struct mcp_config *config, struct mcp_error *err)
{
    struct mcp_json *list;
    if (!mcp_config_is(config, MCP_FAMILY_EXPERTS) || config->value[MCP_KEY_NUM_EXPERTS] == 0)
        return MCP_OK;
    for (int layer = 0; layer < config->value[MCP_KEY_NUM_LAYERS]; layer++)
        if (config->family->is_sparse == NULL || config->family->is_sparse(config, layer))
            config->mlp[layer] = MCP_MLP_EXPERTS;
    MCP_TRY(mcp_config_layer_list(config, "moe_layer_freq", &list, err));
    for (size_t i = 0; list != NULL && i < mcp_json_count(list); i++) {
        int sparse;
        MCP_TRY(mcp_json_as_int(mcp_json_at(list, i), &sparse, err));
        config->mlp[i] = sparse != 0 ? MCP_MLP_EXPERTS : MCP_MLP_DENSE;
    }
    return list_dense_layers(config, err);
}

static const struct {
    const char *name;
    enum mcp_mixer mixer;
} layer_types[] = {
    {"full_attention", MCP_MIX_FULL},     {"sliding_attention", MCP_MIX_WINDOW},
    {"chunked_attention", MCP_MIX_CHUNK}, {"linear_attention", MCP_MIX_STATE},
    {"attention", MCP_MIX_FULL},          {"mamba", MCP_MIX_STATE},
};

static bool has_states(const struct mcp_config *config)
{
    return mcp_config_is(config, MCP_FAMILY_GATED_DELTA | MCP_FAMILY_LIGHTNING | MCP_FAMILY_MAMBA |
                                     MCP_FAMILY_MAMBA2);
}

static enum mcp_status read_layer_types(struct mcp_config *config, struct mcp_json *list,
                                        struct mcp_error *err)
{
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        const char *type;
        size_t k = 0;
        MCP_TRY(mcp_json_as_string(mcp_json_at(list, i), &type, err));
        while (k < MCP_COUNT_OF(layer_types) && !mcp_same(type, layer_types[k].name))
            k++;
        if (k == MCP_COUNT_OF(layer_types) ||
            (layer_types[k].mixer == MCP_MIX_STATE && !has_states(config)))
            return mcp_json_fail(list, err,
                                 "layer %zu is neither \"full_attention\" nor "
                                 "\"sliding_attention\"%s",
                                 i, has_states(config) ? " nor \"linear_attention\"" : "");
        config->mixer[i] = (unsigned char)layer_types[k].mixer;
    }
    return MCP_OK;
}

/* Windows are what they say, but Qwen's are off unless asked for. */
static enum mcp_status read_window(struct mcp_config *config, struct mcp_error *err)
{
    bool use_window = true;
    if (config->value[MCP_KEY_MAX_WINDOW_LAYERS] > 0) {
        use_window = false;
        MCP_TRY(mcp_config_maybe_bool(config, "use_sliding_window", &use_window, err));
    }
    if (!use_window)
        config->value[MCP_KEY_SLIDING_WINDOW] = 0;
    return MCP_OK;
}

/* layer_types where given, else the family's rules. */
static enum mcp_status mark_mixers(struct mcp_config *config, struct mcp_error *err)
{
    const struct mcp_family *family = config->family;
    struct mcp_json *list;
    MCP_TRY(read_window(config, err));
    for (int layer = 0; layer < config->value[MCP_KEY_NUM_LAYERS]; layer++) {
        enum mcp_mixer mixer = MCP_MIX_FULL;
        if (family->has_state != NULL && family->has_state(config, layer))
            mixer = MCP_MIX_STATE;
        else if (family->is_windowed != NULL && family->is_windowed(config, layer))
            mixer = MCP_MIX_WINDOW;
        config->mixer[layer] = (unsigned char)mixer;
    }
    MCP_TRY(mcp_config_layer_list(config, "layer_types", &list, err));
    if (list == NULL)
        MCP_TRY(mcp_config_layer_list(config, "layers_block_type", &list, err));
    return list != NULL ? read_layer_types(config, list, err) : MCP_OK;
}

static enum mcp_status mark_layers(struct mcp_config *config, struct mcp_error *err)
{
    const int layers = config->value[MCP_KEY_NUM_LAYERS];
    config->mixer = MCP_ARRAY(config->arena, layers, unsigned char);
    config->mlp = MCP_ARRAY(config->arena, layers, unsigned char);
    MCP_TRY(mark_mlps(config, err));
    MCP_TRY(mark_mixers(config, err));
    return config->family->mark != NULL ? config->family->mark(config, err) : MCP_OK;
}

/* Attention ----------------------------------------------------------------- */

static enum mcp_status set_heads(const struct mcp_config *config, struct mcp_layer_kind *kind,
                                 struct mcp_error *err)
{
    const int hidden = config->value[MCP_KEY_HIDDEN_SIZE], heads = config->value[MCP_KEY_NUM_HEADS];
    const bool has_kv =
        config->given[MCP_KEY_NUM_KV_HEADS] || config->value[MCP_KEY_NUM_KV_HEADS] > 0;
    const bool has_dim = config->given[MCP_KEY_HEAD_DIM] || config->value[MCP_KEY_HEAD_DIM] > 0;
    kind->num_attention_heads = heads;
    kind->num_kv_heads = has_kv ? config->value[MCP_KEY_NUM_KV_HEADS] : heads;
    if (!has_dim && hidden % heads != 0)
        return mcp_json_fail(config->json, err,
                             "num_attention_heads %d does not divide hidden_size %d and head_dim "
                             "is not given; the nearest hidden_size are %lld and %lld",
                             heads, hidden, (long long)hidden / heads * heads,
                             ((long long)hidden / heads + 1) * heads);
    kind->head_dim = has_dim ? config->value[MCP_KEY_HEAD_DIM] : hidden / heads;
    kind->value_head_dim = kind->head_dim;
    return MCP_OK;
}

/* num_key_value_heads has no meaning here: every head has its own K and V. */
static enum mcp_status set_latent(const struct mcp_config *config, struct mcp_layer_kind *kind,
                                  struct mcp_error *err)
{
    const int nope = config->value[MCP_KEY_QK_NOPE_HEAD_DIM];
    const int rope = config->value[MCP_KEY_QK_ROPE_HEAD_DIM], limit = 1 << 16;
    if (nope > limit || rope > limit)
        return mcp_json_fail(config->json, err,
                             "qk_nope_head_dim %d and qk_rope_head_dim %d: at most %d is possible",
                             nope, rope, limit);
    kind->attention = MCP_ATTENTION_LATENT;
    kind->num_attention_heads = config->value[MCP_KEY_NUM_HEADS];
    kind->num_kv_heads = config->value[MCP_KEY_NUM_HEADS];
    kind->head_dim = nope + rope;
    kind->value_head_dim = config->value[MCP_KEY_V_HEAD_DIM];
    kind->q_lora_rank = config->value[MCP_KEY_Q_LORA_RANK];
    kind->kv_lora_rank = config->value[MCP_KEY_KV_LORA_RANK];
    kind->qk_rope_head_dim = rope;
    kind->index_num_heads = config->value[MCP_KEY_INDEX_HEADS];
    kind->index_head_dim = config->value[MCP_KEY_INDEX_HEAD_DIM];
    kind->index_topk = config->value[MCP_KEY_INDEX_TOPK];
    return MCP_OK;
}

/* attention_bias is of all projections, unless another key speaks of the output's. */
static enum mcp_status set_biases(const struct mcp_config *config, struct mcp_layer_kind *kind,
                                  struct mcp_error *err)
{
    static const char *const keys[] = {"attention_bias", "use_bias", "add_qkv_bias",
                                       "bias",           "qkv_bias", "use_qkv_bias"};
    kind->attention_bias = mcp_config_is(config, MCP_FAMILY_QKV_BIAS);
    kind->attention_output_bias = mcp_config_is(config, MCP_FAMILY_OUT_BIAS);
    if (mcp_config_is(config, MCP_FAMILY_FIXED_BIAS))
        return MCP_OK;
    for (size_t i = 0; i < MCP_COUNT_OF(keys); i++) {
        if (!mcp_json_has(config->json, keys[i]))
            continue;
        MCP_TRY(mcp_json_bool(config->json, keys[i], &kind->attention_bias, err));
        if (!mcp_config_is(config, MCP_FAMILY_ANY_BIAS))
            kind->attention_output_bias = kind->attention_bias;
    }
    return mcp_config_maybe_bool(config, "attention_out_bias", &kind->attention_output_bias, err);
}

static enum mcp_status set_attention(const struct mcp_config *config, struct mcp_layer_kind *kind,
                                     struct mcp_error *err)
{
    const bool full = mcp_config_is(config, MCP_FAMILY_QK_NORM_FULL);
    bool qk_norm = full || mcp_config_is(config, MCP_FAMILY_QK_NORM);
    MCP_TRY(mcp_config_is(config, MCP_FAMILY_LATENT) ? set_latent(config, kind, err)
                                                     : set_heads(config, kind, err));
    MCP_TRY(mcp_config_maybe_bool(config, "use_qk_norm", &qk_norm, err));
    kind->qk_norm = qk_norm && !full;
    kind->qk_layernorm_full = qk_norm && full;
    kind->attention_sinks = mcp_config_is(config, MCP_FAMILY_SINKS);
    kind->attention_output_gate = mcp_config_is(config, MCP_FAMILY_OUTPUT_GATE);
    MCP_TRY(mcp_config_maybe_bool(config, "attn_output_gate", &kind->attention_output_gate, err));
    return set_biases(config, kind, err);
}

/* States -------------------------------------------------------------------- */

/* Tokens of a chunk where no key says so: the kernels' own (fla, lightning, mamba). */
enum { DELTA_CHUNK = 64, LIGHTNING_CHUNK = 256, MAMBA2_CHUNK = 256 };

static int chunk_of(const struct mcp_config *config, int usual)
{
    const int given = config->value[MCP_KEY_SCAN_CHUNK];
    return given > 0 ? given : usual;
}

static void set_mamba(const struct mcp_config *config, struct mcp_layer_kind *kind)
{
    const int64_t hidden = config->value[MCP_KEY_HIDDEN_SIZE];
    const int64_t expand = config->value[MCP_KEY_EXPAND] > 0 ? config->value[MCP_KEY_EXPAND] : 2;
    const int rank = config->value[MCP_KEY_TIME_STEP_RANK];
    const int64_t inner = hidden * expand;
    kind->attention = MCP_ATTENTION_MAMBA;
    kind->num_attention_heads = inner > (1 << 20) ? 1 << 20 : (int)inner; /* checked later */
    kind->head_dim = kind->num_groups = kind->chunk_size = 1;
    kind->time_step_rank = rank > 0 ? rank : (int)((hidden + 15) / 16);
    kind->qk_norm = mcp_config_is(config, MCP_FAMILY_FIXED_NORMS);
}

static void set_state_heads(const struct mcp_config *config, struct mcp_layer_kind *kind)
{
    const bool delta = mcp_config_is(config, MCP_FAMILY_GATED_DELTA);
    kind->attention = delta ? MCP_ATTENTION_GATED_DELTA : MCP_ATTENTION_MAMBA2;
    kind->num_attention_heads = config->value[MCP_KEY_STATE_HEADS];
    kind->head_dim = config->value[MCP_KEY_STATE_HEAD_DIM];
    kind->num_groups = config->value[MCP_KEY_STATE_GROUPS];
    kind->chunk_size = chunk_of(config, delta ? DELTA_CHUNK : MAMBA2_CHUNK);
}

static enum mcp_status set_state(const struct mcp_config *config, struct mcp_layer_kind *kind,
                                 struct mcp_error *err)
{
    kind->state_size = config->value[MCP_KEY_STATE_SIZE];
    kind->conv_kernel = config->value[MCP_KEY_CONV_KERNEL];
    if (mcp_config_is(config, MCP_FAMILY_LIGHTNING)) {
        MCP_TRY(set_heads(config, kind, err));
        kind->attention = MCP_ATTENTION_LIGHTNING;
        kind->num_groups = kind->num_attention_heads;
        kind->state_size = kind->head_dim;
        kind->num_kv_heads = kind->conv_kernel = 0;
        kind->chunk_size = LIGHTNING_CHUNK;
        return MCP_OK;
    }
    if (mcp_config_is(config, MCP_FAMILY_MAMBA))
        set_mamba(config, kind);
    else
        set_state_heads(config, kind);
    kind->value_head_dim = kind->head_dim;
    kind->conv_bias = !mcp_config_is(config, MCP_FAMILY_GATED_DELTA);
    MCP_TRY(mcp_config_maybe_bool(config, "use_conv_bias", &kind->conv_bias, err));
    MCP_TRY(mcp_config_maybe_bool(config, "mamba_conv_bias", &kind->conv_bias, err));
    MCP_TRY(mcp_config_maybe_bool(config, "use_bias", &kind->attention_bias, err));
    MCP_TRY(mcp_config_maybe_bool(config, "mamba_proj_bias", &kind->attention_bias, err));
    kind->attention_output_bias = kind->attention_bias;
    return MCP_OK;
}

/* MLPs ---------------------------------------------------------------------- */

static enum mcp_status set_dense_mlp(const struct mcp_config *config, struct mcp_layer_kind *kind,
                                     struct mcp_error *err)
{
    static const char *const keys[] = {"mlp_bias", "use_bias", "bias"};
    const bool fixed = mcp_config_is(config, MCP_FAMILY_FIXED_BIAS);
    kind->ffn_hidden_size = config->value[MCP_KEY_FFN_SIZE];
    if (config->value[MCP_KEY_DENSE_FFN_SIZE] > 0)
        kind->ffn_hidden_size = config->value[MCP_KEY_DENSE_FFN_SIZE];
    if (!config->given[MCP_KEY_FFN_SIZE] && kind->ffn_hidden_size == 0) {
        const int64_t width =
            (int64_t)config->family->ffn_per_hidden * config->value[MCP_KEY_HIDDEN_SIZE];
        if (width > INT32_MAX)
            return mcp_json_fail(config->json, err, "hidden_size %d is too large",
                                 config->value[MCP_KEY_HIDDEN_SIZE]);
        kind->ffn_hidden_size = (int)width;
    }
    kind->gated_mlp = mcp_config_is(config, MCP_FAMILY_GATED);
    kind->mlp_bias = mcp_config_is(config, MCP_FAMILY_MLP_BIAS);
    if (kind->mlp_bias && !fixed)
        for (size_t i = 1; i < MCP_COUNT_OF(keys); i++)
            MCP_TRY(mcp_config_maybe_bool(config, keys[i], &kind->mlp_bias, err));
    return mcp_config_maybe_bool(config, keys[0], &kind->mlp_bias, err);
}

static enum mcp_status set_experts(const struct mcp_config *config, struct mcp_layer_kind *kind,
                                   struct mcp_error *err)
{
    const enum mcp_key own =
        mcp_config_is(config, MCP_FAMILY_FFN_IS_MOE) ? MCP_KEY_FFN_SIZE : MCP_KEY_MOE_FFN_SIZE;
    kind->gated_mlp = mcp_config_is(config, MCP_FAMILY_GATED);
    kind->num_experts = config->value[MCP_KEY_NUM_EXPERTS];
    kind->experts_per_token = config->value[MCP_KEY_EXPERTS_PER_TOKEN];
    kind->moe_ffn_hidden_size = config->value[own];
    const int64_t shared =
        config->value[MCP_KEY_SHARED_FFN_SIZE] +
        (int64_t)config->value[MCP_KEY_NUM_SHARED_EXPERTS] * kind->moe_ffn_hidden_size;
    if (shared > INT32_MAX)
        return mcp_json_fail(config->json, err, "n_shared_experts %d is too large",
                             config->value[MCP_KEY_NUM_SHARED_EXPERTS]);
    kind->shared_expert_ffn_hidden_size = (int)shared;
    kind->shared_expert_gate = mcp_config_is(config, MCP_FAMILY_SHARED_GATE) && shared > 0;
    kind->router_bias = mcp_config_is(config, MCP_FAMILY_ROUTER_BIAS);
    kind->router_correction_bias = mcp_config_is(config, MCP_FAMILY_CORRECTION_BIAS);
    kind->expert_bias = mcp_config_is(config, MCP_FAMILY_EXPERT_BIAS);
    return MCP_OK;
}

/* Layers -------------------------------------------------------------------- */

static enum mcp_status make_kind(const struct mcp_config *config, int layer,
                                 struct mcp_layer_kind *kind, struct mcp_error *err)
{
    const enum mcp_mixer mixer = (enum mcp_mixer)config->mixer[layer];
    *kind = (struct mcp_layer_kind){.mlp = (enum mcp_mlp_kind)config->mlp[layer],
                                    .attention = MCP_ATTENTION_NONE};
    if (mixer == MCP_MIX_STATE)
        MCP_TRY(set_state(config, kind, err));
    if (mixer != MCP_MIX_STATE && mixer != MCP_MIX_NONE) {
        kind->attention = MCP_ATTENTION_GROUPED;
        MCP_TRY(set_attention(config, kind, err));
    }
    if (mixer == MCP_MIX_WINDOW)
        kind->sliding_window = config->value[MCP_KEY_SLIDING_WINDOW];
    if (mixer == MCP_MIX_CHUNK)
        kind->attention_chunk_size = config->value[MCP_KEY_ATTENTION_CHUNK];
    if (kind->mlp == MCP_MLP_DENSE)
        MCP_TRY(set_dense_mlp(config, kind, err));
    if (kind->mlp == MCP_MLP_EXPERTS)
        MCP_TRY(set_experts(config, kind, err));
    return config->family->refine != NULL ? config->family->refine(config, layer, kind, err)
                                          : MCP_OK;
}

static enum mcp_status set_layers(const struct mcp_config *config, struct mcp_model *model,
                                  struct mcp_error *err)
{
    for (int layer = 0; layer < model->num_layers; layer++) {
        struct mcp_layer_kind kind;
        MCP_TRY(make_kind(config, layer, &kind, err));
        const int index = mcp_model_add_kind(model, &kind);
        if (index < 0)
            return mcp_json_fail(config->json, err,
                                 "layer %d is the %dth kind of layer; at most %d are possible",
                                 layer, MCP_MAX_LAYER_KINDS + 1, MCP_MAX_LAYER_KINDS);
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
    {"vision_config", "the text model alone is read: no image encoder"},
    {"audio_config", "the text model alone is read: no audio encoder"},
};

static void add_reason(struct mcp_text *text, const char *sentence)
{
    mcp_text_add(text, "%s%s", text->length > 0 ? ", " : "", sentence);
}

static const char *left_aside(struct mcp_config *config)
{
    struct mcp_arena *arena = config->arena;
    struct mcp_text text = mcp_text_new(arena);
    const char *other = mcp_family_foreign_class(arena, config->json, config->family);
    if (other != NULL)
        add_reason(&text, mcp_format(arena, "architectures (%s is read as %s)",
                                     mcp_printable(arena, other), config->family->model_type));
    if (config->note[0] != '\0')
        add_reason(&text, config->note);
    for (size_t i = 0; i < MCP_COUNT_OF(explained); i++)
        if (mcp_json_has(config->outer, explained[i][0]))
            add_reason(&text, mcp_format(arena, "%s (%s)", explained[i][0], explained[i][1]));
    const char *rest = mcp_json_ignored(arena, config->outer);
    if (rest[0] != '\0')
        add_reason(&text, mcp_printable(arena, rest));
    return text.data;
}

/* The whole ----------------------------------------------------------------- */

static enum mcp_status set_model(const struct mcp_config *config, struct mcp_model *model,
                                 struct mcp_error *err)
{
    const struct mcp_family *family = config->family;
    model->name = family->model_type;
    model->family = family->model_type;
    model->num_layers = config->value[MCP_KEY_NUM_LAYERS];
    model->hidden_size = config->value[MCP_KEY_HIDDEN_SIZE];
    model->vocab_size = config->value[MCP_KEY_VOCAB_SIZE];
    model->max_sequence_length = config->value[MCP_KEY_MAX_POSITIONS];
    model->norm = family->norm;
    model->position = family->position;
    model->norms_per_layer = family->norms_per_layer > 0 ? family->norms_per_layer : 2;
    model->tied_embeddings = mcp_config_is(config, MCP_FAMILY_TIED);
    model->head_bias = mcp_config_is(config, MCP_FAMILY_HEAD_BIAS);
    model->embedding_norm = mcp_config_is(config, MCP_FAMILY_EMBEDDING_NORM);
    MCP_TRY(mcp_config_maybe_bool(config, "lm_head_bias", &model->head_bias, err));
    MCP_TRY(mcp_config_maybe_bool(config, "tie_word_embeddings", &model->tied_embeddings, err));
    return config->family->finish != NULL ? config->family->finish(config, model, err) : MCP_OK;
}

/* MTP modules are like the last decoder layer (DeepSeek-V3, section 2.2). */
static void set_mtp(const struct mcp_config *config, struct mcp_model *model)
{
    model->num_mtp_layers = config->value[MCP_KEY_NUM_MTP_LAYERS];
    if (model->num_mtp_layers > 0)
        model->mtp_kind = model->layer_kind[model->num_layers - 1];
}

/* Where a model of several parts keeps the one that writes text. */
static enum mcp_status find_text(struct mcp_json *json, struct mcp_json **out,
                                 struct mcp_error *err)
{
    static const char *const keys[] = {"text_config", "llm_config", "language_config"};
    *out = json;
    for (size_t i = 0; i < MCP_COUNT_OF(keys); i++)
        if (mcp_json_has(json, keys[i]))
            return mcp_json_object(json, keys[i], out, err);
    if (mcp_json_has(json, "thinker_config")) { /* Qwen-Omni: one level more */
        MCP_TRY(mcp_json_object(json, "thinker_config", out, err));
        if (mcp_json_has(*out, "text_config"))
            return mcp_json_object(*out, "text_config", out, err);
    }
    return MCP_OK;
}

/* A nested model is of the family that it names, else of that of the whole. */
static enum mcp_status find_family(struct mcp_config *config, struct mcp_error *err)
{
    const char *inner = "";
    if (config->json != config->outer)
        MCP_TRY(mcp_json_maybe_string(config->json, "model_type", &inner, err));
    const bool outside = config->json != config->outer && inner[0] == '\0';
    return mcp_family_find(config->arena, outside ? config->outer : config->json, &config->family,
                           err);
}

enum mcp_status mcp_model_from_config(struct mcp_arena *arena, struct mcp_json *json,
                                      struct mcp_model *out, struct mcp_error *err)
{
    struct mcp_config config = {.arena = arena, .outer = json, .note = ""};
    MCP_TRY(find_text(json, &config.json, err));
    MCP_TRY(find_family(&config, err));
    MCP_TRY(mcp_config_read_sizes(&config, err));
    MCP_TRY(mark_layers(&config, err));
    MCP_TRY(set_model(&config, out, err));
    out->layer_kind = MCP_ARRAY(arena, out->num_layers, unsigned char);
    MCP_TRY(set_layers(&config, out, err));
    set_mtp(&config, out);
    MCP_TRY(mcp_numerics_from_config(config.json, &out->numerics, err));
    out->ignored = left_aside(&config);
    return MCP_OK;
}
