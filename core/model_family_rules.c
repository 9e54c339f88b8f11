/* core/model_family_rules.c: what no row of core/model_family.c can say. */
#include "core/model_config.h"
#include "core/text.h"

#include <string.h>

/* Which layers, by number --------------------------------------------------- */

bool mcp_rule_always(const struct mcp_config *config, int layer)
{
    (void)config, (void)layer;
    return true;
}

bool mcp_rule_even(const struct mcp_config *config, int layer)
{
    (void)config;
    return layer % 2 == 0;
}

bool mcp_rule_upper(const struct mcp_config *config, int layer)
{
    return layer >= config->value[MCP_KEY_MAX_WINDOW_LAYERS];
}

static bool is_nth(int layer, int period)
{
    return period < 2 || (layer + 1) % period == 0;
}

bool mcp_rule_all_but_nth(const struct mcp_config *config, int layer)
{
    return !is_nth(layer, config->value[MCP_KEY_WINDOW_PERIOD]);
}

bool mcp_rule_after_dense(const struct mcp_config *config, int layer)
{
    const int step = config->value[MCP_KEY_MOE_LAYER_STEP];
    return layer >= config->value[MCP_KEY_FIRST_DENSE_LAYERS] && (step < 2 || layer % step == 0);
}

bool mcp_rule_every_step(const struct mcp_config *config, int layer)
{
    return is_nth(layer, config->value[MCP_KEY_MOE_LAYER_STEP]);
}

bool mcp_rule_at_offset(const struct mcp_config *config, int layer)
{
    const int step = config->value[MCP_KEY_MOE_LAYER_STEP];
    return step < 2 || layer % step == config->value[MCP_KEY_MOE_LAYER_OFFSET];
}

bool mcp_rule_not_nth(const struct mcp_config *config, int layer)
{
    return !is_nth(layer, config->value[MCP_KEY_ATTENTION_PERIOD]);
}

bool mcp_rule_not_at_offset(const struct mcp_config *config, int layer)
{
    const int period = config->value[MCP_KEY_ATTENTION_PERIOD];
    return period > 1 && layer % period != config->value[MCP_KEY_ATTENTION_OFFSET];
}

/* What a family means by its sizes ------------------------------------------ */

/* Qwen 1 counts both matrices of its gated MLP. */
enum mcp_status mcp_prepare_qwen(struct mcp_config *config, struct mcp_error *err)
{
    (void)err;
    config->value[MCP_KEY_FFN_SIZE] /= 2;
    return MCP_OK;
}

enum mcp_status mcp_prepare_bigcode(struct mcp_config *config, struct mcp_error *err)
{
    bool multi_query = true;
    MCP_TRY(mcp_config_maybe_bool(config, "multi_query", &multi_query, err));
    config->value[MCP_KEY_NUM_KV_HEADS] = multi_query ? 1 : config->value[MCP_KEY_NUM_HEADS];
    return MCP_OK;
}

/* The number of KV heads counts in the new architecture only. */
enum mcp_status mcp_prepare_falcon(struct mcp_config *config, struct mcp_error *err)
{
    bool is_new = false, multi_query = true;
    MCP_TRY(mcp_config_maybe_bool(config, "new_decoder_architecture", &is_new, err));
    MCP_TRY(mcp_config_maybe_bool(config, "multi_query", &multi_query, err));
    if (!is_new)
        config->value[MCP_KEY_NUM_KV_HEADS] = multi_query ? 1 : config->value[MCP_KEY_NUM_HEADS];
    return MCP_OK;
}

enum mcp_status mcp_refine_falcon(const struct mcp_config *config, int layer,
                                  struct mcp_layer_kind *kind, struct mcp_error *err)
{
    bool bias = false;
    (void)layer;
    MCP_TRY(mcp_config_maybe_bool(config, "bias", &bias, err));
    kind->attention_bias = kind->attention_output_bias = kind->mlp_bias = bias;
    return MCP_OK;
}

enum mcp_status mcp_finish_falcon(const struct mcp_config *config, struct mcp_model *model,
                                  struct mcp_error *err)
{
    bool is_new = false, parallel = true, alibi = false;
    int norms = 2;
    MCP_TRY(mcp_config_maybe_bool(config, "new_decoder_architecture", &is_new, err));
    MCP_TRY(mcp_config_maybe_bool(config, "parallel_attn", &parallel, err));
    MCP_TRY(mcp_config_maybe_bool(config, "alibi", &alibi, err));
    MCP_TRY(mcp_config_maybe_int(config, "num_ln_in_parallel_attn", &norms, err));
    model->norms_per_layer = !is_new && parallel ? 1 : norms;
    model->position = alibi ? MCP_POSITION_ALIBI : MCP_POSITION_ROTARY;
    return MCP_OK;
}

enum mcp_status mcp_finish_parallel(const struct mcp_config *config, struct mcp_model *model,
                                    struct mcp_error *err)
{
    bool parallel = false;
    MCP_TRY(mcp_config_maybe_bool(config, "use_parallel_residual", &parallel, err));
    model->norms_per_layer = parallel ? 1 : 2;
    return MCP_OK;
}

enum mcp_status mcp_prepare_mpt(struct mcp_config *config, struct mcp_error *err)
{
    int ratio = 4;
    MCP_TRY(mcp_config_maybe_int(config, "expansion_ratio", &ratio, err));
    if (ratio < 1 || config->value[MCP_KEY_HIDDEN_SIZE] > INT32_MAX / ratio)
        return mcp_json_fail(config->json, err, "expansion_ratio %d of d_model %d is no width",
                             ratio, config->value[MCP_KEY_HIDDEN_SIZE]);
    config->value[MCP_KEY_FFN_SIZE] = ratio * config->value[MCP_KEY_HIDDEN_SIZE];
    config->given[MCP_KEY_FFN_SIZE] = true;
    return MCP_OK;
}

static enum mcp_status has_biases(const struct mcp_config *config, bool *out, struct mcp_error *err)
{
    bool no_bias = false;
    MCP_TRY(mcp_config_maybe_bool(config, "no_bias", &no_bias, err));
    *out = !no_bias;
    return MCP_OK;
}

enum mcp_status mcp_refine_mpt(const struct mcp_config *config, int layer,
                               struct mcp_layer_kind *kind, struct mcp_error *err)
{
    (void)layer;
    MCP_TRY(has_biases(config, &kind->attention_bias, err));
    kind->attention_output_bias = kind->mlp_bias = kind->attention_bias;
    return mcp_config_maybe_bool(config, "attn_config.qk_ln", &kind->qk_layernorm_full, err);
}

enum mcp_status mcp_finish_mpt(const struct mcp_config *config, struct mcp_model *model,
                               struct mcp_error *err)
{
    bool biases, alibi = true;
    MCP_TRY(has_biases(config, &biases, err));
    MCP_TRY(mcp_config_maybe_bool(config, "attn_config.alibi", &alibi, err));
    model->norm = biases ? MCP_LAYERNORM : MCP_LAYERNORM_NO_BIAS;
    model->position = alibi ? MCP_POSITION_ALIBI : MCP_POSITION_LEARNED;
    return MCP_OK;
}

enum mcp_status mcp_prepare_opt(struct mcp_config *config, struct mcp_error *err)
{
    int width = config->value[MCP_KEY_HIDDEN_SIZE];
    MCP_TRY(mcp_config_maybe_int(config, "word_embed_proj_dim", &width, err));
    if (width != config->value[MCP_KEY_HIDDEN_SIZE])
        return mcp_json_fail(config->json, err,
                             "word_embed_proj_dim %d differs from hidden_size %d: projected "
                             "embeddings are not understood",
                             width, config->value[MCP_KEY_HIDDEN_SIZE]);
    return MCP_OK;
}

/* Its table of positions has two rows for padding. */
enum mcp_status mcp_finish_opt(const struct mcp_config *config, struct mcp_model *model,
                               struct mcp_error *err)
{
    (void)config, (void)err;
    model->extra_positions = 2;
    return MCP_OK;
}

enum mcp_status mcp_prepare_minicpm3(struct mcp_config *config, struct mcp_error *err)
{
    const int heads = config->value[MCP_KEY_NUM_HEADS];
    (void)err;
    if (config->value[MCP_KEY_V_HEAD_DIM] == 0 && heads > 0)
        config->value[MCP_KEY_V_HEAD_DIM] = config->value[MCP_KEY_HIDDEN_SIZE] / heads;
    return MCP_OK;
}

enum mcp_status mcp_prepare_minimax_m2(struct mcp_config *config, struct mcp_error *err)
{
    bool use_mtp = false;
    MCP_TRY(mcp_config_maybe_bool(config, "use_mtp", &use_mtp, err));
    return use_mtp ? mcp_config_maybe_int(config, "num_mtp_modules",
                                          &config->value[MCP_KEY_NUM_MTP_LAYERS], err)
                   : MCP_OK;
}

/* Gemma 4 ------------------------------------------------------------------- */

enum mcp_status mcp_prepare_gemma4(struct mcp_config *config, struct mcp_error *err)
{
    bool experts = false, wide = false;
    int per_layer = 256; /* the class's default */
    int shared = 0;
    MCP_TRY(mcp_config_maybe_bool(config, "enable_moe_block", &experts, err));
    MCP_TRY(mcp_config_maybe_bool(config, "use_double_wide_mlp", &wide, err));
    MCP_TRY(mcp_config_maybe_int(config, "hidden_size_per_layer_input", &per_layer, err));
    MCP_TRY(mcp_config_maybe_int(config, "num_kv_shared_layers", &shared, err));
    if (per_layer != 0 || wide || shared > 0)
        return mcp_json_fail(config->json, err,
                             "hidden_size_per_layer_input %d, num_kv_shared_layers %d: embeddings "
                             "of each layer, shared keys and double-wide MLPs are not understood",
                             per_layer, shared);
    if (!experts)
        config->value[MCP_KEY_NUM_EXPERTS] = 0;
    return MCP_OK;
}

/* Layers without a window have heads of their own; experts stand beside the MLP. */
enum mcp_status mcp_refine_gemma4(const struct mcp_config *config, int layer,
                                  struct mcp_layer_kind *kind, struct mcp_error *err)
{
    if (kind->mlp == MCP_MLP_EXPERTS)
        kind->shared_expert_ffn_hidden_size = config->value[MCP_KEY_FFN_SIZE];
    if (config->mixer[layer] != MCP_MIX_FULL)
        return MCP_OK;
    kind->head_dim = 512; /* the class's default */
    MCP_TRY(mcp_config_maybe_bool(config, "attention_k_eq_v", &kind->keys_are_values, err));
    MCP_TRY(mcp_config_maybe_int(config, "global_head_dim", &kind->head_dim, err));
    kind->value_head_dim = kind->head_dim;
    return kind->keys_are_values ? mcp_config_maybe_int(config, "num_global_key_value_heads",
                                                        &kind->num_kv_heads, err)
                                 : MCP_OK;
}

/* Around the experts and after the MLP beside them there is a norm each. */
enum mcp_status mcp_finish_gemma4(const struct mcp_config *config, struct mcp_model *model,
                                  struct mcp_error *err)
{
    (void)err;
    model->norms_per_layer = config->value[MCP_KEY_NUM_EXPERTS] > 0 ? 7 : 4;
    return MCP_OK;
}

/* Llama 4, Llama 3.2 Vision, Cohere ----------------------------------------- */

/* Every fourth layer has no positions, and attends to all. */
enum mcp_status mcp_mark_llama4(struct mcp_config *config, struct mcp_error *err)
{
    (void)err;
    if (mcp_json_has(config->json, "layer_types"))
        return MCP_OK;
    for (int layer = 0; layer < config->value[MCP_KEY_NUM_LAYERS]; layer++)
        config->mixer[layer] = is_nth(layer, 4) ? MCP_MIX_FULL : MCP_MIX_CHUNK;
    return MCP_OK;
}

/* One shared expert like the others; its norm on queries and keys trains nothing. */
enum mcp_status mcp_refine_llama4(const struct mcp_config *config, int layer,
                                  struct mcp_layer_kind *kind, struct mcp_error *err)
{
    (void)layer, (void)err;
    kind->qk_norm = false;
    if (kind->mlp == MCP_MLP_EXPERTS)
        kind->shared_expert_ffn_hidden_size = config->value[MCP_KEY_FFN_SIZE];
    return MCP_OK;
}

enum mcp_status mcp_mark_mllama(struct mcp_config *config, struct mcp_error *err)
{
    struct mcp_json *list;
    if (!mcp_json_has(config->json, "cross_attention_layers"))
        return MCP_OK;
    MCP_TRY(mcp_json_array(config->json, "cross_attention_layers", &list, err));
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        int layer;
        MCP_TRY(mcp_config_layer_at(config, list, i, &layer, err));
        config->mixer[layer] = MCP_MIX_WINDOW;
    }
    mcp_config_note(config, "cross_attention_layers (read as attention of the same shapes: as "
                            "many image tokens as text tokens)");
    return MCP_OK;
}

/* Cross attention norms queries and keys; it has no window. */
enum mcp_status mcp_refine_mllama(const struct mcp_config *config, int layer,
                                  struct mcp_layer_kind *kind, struct mcp_error *err)
{
    (void)err;
    kind->qk_norm = config->mixer[layer] == MCP_MIX_WINDOW;
    kind->sliding_window = 0;
    return MCP_OK;
}

/* Cohere's norm on queries and keys has weights for each head. */
enum mcp_status mcp_refine_cohere(const struct mcp_config *config, int layer,
                                  struct mcp_layer_kind *kind, struct mcp_error *err)
{
    (void)config, (void)layer, (void)err;
    kind->qk_layernorm_full = kind->qk_norm;
    kind->qk_norm = false;
    return MCP_OK;
}

/* Layers of several kinds, listed ------------------------------------------- */

enum mcp_status mcp_mark_states(struct mcp_config *config, struct mcp_error *err)
{
    (void)err;
    for (int layer = 0; layer < config->value[MCP_KEY_NUM_LAYERS]; layer++) {
        config->mixer[layer] = MCP_MIX_STATE;
        config->mlp[layer] = MCP_MLP_NONE;
    }
    return MCP_OK;
}

/* A layer is attention where the list says so, else a state. */
static enum mcp_status mark_by_list(struct mcp_config *config, const char *key, int attention,
                                    struct mcp_error *err)
{
    struct mcp_json *list;
    MCP_TRY(mcp_config_layer_list(config, key, &list, err));
    for (size_t i = 0; list != NULL && i < mcp_json_count(list); i++) {
        int type;
        MCP_TRY(mcp_json_as_int(mcp_json_at(list, i), &type, err));
        config->mixer[i] = type == attention ? MCP_MIX_FULL : MCP_MIX_STATE;
    }
    return MCP_OK;
}

enum mcp_status mcp_mark_minimax(struct mcp_config *config, struct mcp_error *err)
{
    if (!mcp_json_has(config->json, "layer_types") && !mcp_json_has(config->json, "attn_type_list"))
        return mcp_json_fail(config->json, err,
                             "attn_type_list is missing or null: which layers are lightning "
                             "attention?");
    return mark_by_list(config, "attn_type_list", 1, err);
}

enum mcp_status mcp_mark_bamba(struct mcp_config *config, struct mcp_error *err)
{
    struct mcp_json *list;
    for (int layer = 0; layer < config->value[MCP_KEY_NUM_LAYERS]; layer++)
        config->mixer[layer] = MCP_MIX_STATE;
    MCP_TRY(mcp_json_array(config->json, "attn_layer_indices", &list, err));
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        int layer;
        MCP_TRY(mcp_config_layer_at(config, list, i, &layer, err));
        config->mixer[layer] = MCP_MIX_FULL;
    }
    return MCP_OK;
}

/* "LLLG": local layers with a window and global ones, over and over. */
enum mcp_status mcp_mark_exaone4(struct mcp_config *config, struct mcp_error *err)
{
    const char *pattern = "G";
    if (mcp_json_has(config->json, "layer_types"))
        return MCP_OK;
    (void)mcp_json_maybe_string(config->json, "sliding_window_pattern", &pattern, NULL);
    if (pattern[0] == '\0')
        return mcp_json_fail(config->json, err, "sliding_window_pattern is empty");
    const size_t period = strlen(pattern);
    for (int layer = 0; layer < config->value[MCP_KEY_NUM_LAYERS]; layer++)
        if (pattern[(size_t)layer % period] == 'L')
            config->mixer[layer] = MCP_MIX_WINDOW;
    return MCP_OK;
}

/* Global and local attention alternate unless listed. */
enum mcp_status mcp_mark_gpt_neo(struct mcp_config *config, struct mcp_error *err)
{
    struct mcp_json *list;
    MCP_TRY(mcp_config_layer_list(config, "attention_layers", &list, err));
    for (int layer = 0; layer < config->value[MCP_KEY_NUM_LAYERS]; layer++) {
        const char *type = layer % 2 == 0 ? "global" : "local";
        if (list != NULL)
            MCP_TRY(mcp_json_as_string(mcp_json_at(list, (size_t)layer), &type, err));
        config->mixer[layer] = mcp_same(type, "local") ? MCP_MIX_WINDOW : MCP_MIX_FULL;
    }
    return MCP_OK;
}

enum mcp_status mcp_mark_mimo(struct mcp_config *config, struct mcp_error *err)
{
    MCP_TRY(mark_by_list(config, "hybrid_layer_pattern", 0, err));
    for (int layer = 0; layer < config->value[MCP_KEY_NUM_LAYERS]; layer++)
        if (config->mixer[layer] == MCP_MIX_STATE)
            config->mixer[layer] = MCP_MIX_WINDOW;
    return MCP_OK;
}

/* Layers with a window have heads, and sinks, of their own. */
enum mcp_status mcp_refine_mimo(const struct mcp_config *config, int layer,
                                struct mcp_layer_kind *kind, struct mcp_error *err)
{
    const bool window = config->mixer[layer] == MCP_MIX_WINDOW;
    if (config->value[MCP_KEY_V_HEAD_DIM] > 0)
        kind->value_head_dim = config->value[MCP_KEY_V_HEAD_DIM];
    MCP_TRY(mcp_config_maybe_bool(
        config, window ? "add_swa_attention_sink_bias" : "add_full_attention_sink_bias",
        &kind->attention_sinks, err));
    if (!window)
        return MCP_OK;
    MCP_TRY(
        mcp_config_maybe_int(config, "swa_num_attention_heads", &kind->num_attention_heads, err));
    MCP_TRY(mcp_config_maybe_int(config, "swa_num_key_value_heads", &kind->num_kv_heads, err));
    MCP_TRY(mcp_config_maybe_int(config, "swa_head_dim", &kind->head_dim, err));
    return mcp_config_maybe_int(config, "swa_v_head_dim", &kind->value_head_dim, err);
}

/* Nemotron ------------------------------------------------------------------ */

/* All shared experts have one width, given for each. */
enum mcp_status mcp_prepare_nemotron_h(struct mcp_config *config, struct mcp_error *err)
{
    const int64_t count = config->value[MCP_KEY_NUM_SHARED_EXPERTS];
    const int64_t width = config->value[MCP_KEY_SHARED_FFN_SIZE];
    if (width == 0)
        return MCP_OK;
    if (count > 1 && count * width > INT32_MAX)
        return mcp_json_fail(config->json, err, "n_shared_experts %lld is too large",
                             (long long)count);
    config->value[MCP_KEY_SHARED_FFN_SIZE] = (int)(count > 1 ? count * width : width);
    config->value[MCP_KEY_NUM_SHARED_EXPERTS] = 0;
    return MCP_OK;
}

/* A letter for each layer: one mixer or one MLP, never both. */
enum mcp_status mcp_mark_nemotron_h(struct mcp_config *config, struct mcp_error *err)
{
    static const struct {
        char letter;
        enum mcp_mixer mixer;
        enum mcp_mlp_kind mlp;
    } letters[] = {{'M', MCP_MIX_STATE, MCP_MLP_NONE},
                   {'*', MCP_MIX_FULL, MCP_MLP_NONE},
                   {'-', MCP_MIX_NONE, MCP_MLP_DENSE},
                   {'E', MCP_MIX_NONE, MCP_MLP_EXPERTS}};
    const int layers = config->value[MCP_KEY_NUM_LAYERS];
    const char *pattern;
    MCP_TRY(mcp_json_string(config->json, "hybrid_override_pattern", &pattern, err));
    if (strlen(pattern) != (size_t)layers)
        return mcp_json_fail(config->json, err,
                             "hybrid_override_pattern has %zu letters, but there are %d layers",
                             strlen(pattern), layers);
    for (int layer = 0; layer < layers; layer++) {
        size_t k = 0;
        while (k < MCP_COUNT_OF(letters) && letters[k].letter != pattern[layer])
            k++;
        if (k == MCP_COUNT_OF(letters) ||
            (letters[k].mlp == MCP_MLP_EXPERTS && config->value[MCP_KEY_NUM_EXPERTS] == 0))
            return mcp_json_fail(
                config->json, err,
                "hybrid_override_pattern: letter %d is '%c', not one of M (Mamba-2), "
                "* (attention), - (MLP)%s",
                layer, pattern[layer], k == MCP_COUNT_OF(letters) ? ", E (experts)" : "");
        config->mixer[layer] = (unsigned char)letters[k].mixer;
        config->mlp[layer] = (unsigned char)letters[k].mlp;
    }
    return MCP_OK;
}

static enum mcp_status part_of_block(const struct mcp_config *config, int layer, const char *part,
                                     struct mcp_json **out, struct mcp_error *err)
{
    struct mcp_json *blocks;
    bool linear = false;
    MCP_TRY(mcp_json_array(config->json, "block_configs", &blocks, err));
    if (mcp_json_count(blocks) != (size_t)config->value[MCP_KEY_NUM_LAYERS])
        return mcp_json_fail(blocks, err, "%zu entries, but there are %d layers",
                             mcp_json_count(blocks), config->value[MCP_KEY_NUM_LAYERS]);
    MCP_TRY(mcp_json_object(mcp_json_at(blocks, (size_t)layer), part, out, err));
    MCP_TRY(mcp_json_maybe_bool(*out, "replace_with_linear", &linear, err));
    return linear ? mcp_json_fail(*out, err, "replace_with_linear is not understood") : MCP_OK;
}

enum mcp_status mcp_mark_nemotron_nas(struct mcp_config *config, struct mcp_error *err)
{
    for (int layer = 0; layer < config->value[MCP_KEY_NUM_LAYERS]; layer++) {
        struct mcp_json *attention, *ffn;
        bool no_attention = false, no_ffn = false;
        MCP_TRY(part_of_block(config, layer, "attention", &attention, err));
        MCP_TRY(part_of_block(config, layer, "ffn", &ffn, err));
        MCP_TRY(mcp_json_maybe_bool(attention, "no_op", &no_attention, err));
        MCP_TRY(mcp_json_maybe_bool(ffn, "no_op", &no_ffn, err));
        config->mixer[layer] = no_attention ? MCP_MIX_NONE : MCP_MIX_FULL;
        config->mlp[layer] = no_ffn ? MCP_MLP_NONE : MCP_MLP_DENSE;
    }
    return MCP_OK;
}

/* Two thirds of ffn_mult hidden sizes, up to a multiple of 256. */
static enum mcp_status set_nas_width(const struct mcp_config *config, struct mcp_json *ffn,
                                     struct mcp_layer_kind *kind, struct mcp_error *err)
{
    double mult = 0;
    if (!mcp_json_has(ffn, "ffn_mult"))
        return mcp_json_maybe_int(ffn, "intermediate_size", &kind->ffn_hidden_size, err);
    MCP_TRY(mcp_json_maybe_double(ffn, "ffn_mult", &mult, err));
    const double width = 2.0 * mult * (double)config->value[MCP_KEY_HIDDEN_SIZE] / 3.0;
    if (!(width >= 1.0 && width < (double)(1 << 30)))
        return mcp_json_fail(ffn, err, "ffn_mult %g of hidden_size %d is no width", mult,
                             config->value[MCP_KEY_HIDDEN_SIZE]);
    kind->ffn_hidden_size = ((int)width + 255) / 256 * 256;
    return MCP_OK;
}

enum mcp_status mcp_refine_nemotron_nas(const struct mcp_config *config, int layer,
                                        struct mcp_layer_kind *kind, struct mcp_error *err)
{
    struct mcp_json *attention, *ffn;
    int group = 1;
    MCP_TRY(part_of_block(config, layer, "attention", &attention, err));
    MCP_TRY(part_of_block(config, layer, "ffn", &ffn, err));
    if (kind->mlp == MCP_MLP_DENSE)
        MCP_TRY(set_nas_width(config, ffn, kind, err));
    if (kind->attention == MCP_ATTENTION_NONE)
        return MCP_OK;
    MCP_TRY(mcp_json_int(attention, "n_heads_in_group", &group, err));
    if (group < 1 || kind->num_attention_heads % group != 0)
        return mcp_json_fail(attention, err,
                             "n_heads_in_group %d does not divide num_attention_heads %d", group,
                             kind->num_attention_heads);
    kind->num_kv_heads = kind->num_attention_heads / group;
    return MCP_OK;
}

/* Granite 4: without experts the shared MLP is the MLP. */
enum mcp_status mcp_prepare_granite_hybrid(struct mcp_config *config, struct mcp_error *err)
{
    (void)err;
    if (config->value[MCP_KEY_NUM_EXPERTS] > 0)
        return MCP_OK;
    config->value[MCP_KEY_FFN_SIZE] = config->value[MCP_KEY_SHARED_FFN_SIZE];
    config->given[MCP_KEY_FFN_SIZE] = config->given[MCP_KEY_SHARED_FFN_SIZE];
    return MCP_OK;
}
