/* core/model_config.c: the sizes of a config.json under all their spellings.
 *
 * A new spelling of a key is a word in `names`; one that means another thing elsewhere
 * is an own name of its family. */
#include "core/model_config.h"
#include "core/text.h"

#include <string.h>

#define MAX_NAMES 6

static const char *const names[MCP_NUM_KEYS][MAX_NAMES] = {
    [MCP_KEY_NUM_LAYERS] = {"num_hidden_layers", "n_layer", "num_layers", "n_layers"},
    [MCP_KEY_HIDDEN_SIZE] = {"hidden_size", "n_embd", "d_model", "n_embed"},
    [MCP_KEY_NUM_HEADS] = {"num_attention_heads", "n_head", "n_heads", "num_heads"},
    [MCP_KEY_NUM_KV_HEADS] = {"num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv",
                              "attn_config.kv_n_heads"},
    [MCP_KEY_HEAD_DIM] = {"head_dim", "kv_channels", "attention_head_dim"},
    [MCP_KEY_FFN_SIZE] = {"intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "d_ff",
                          "ffn_config.ffn_hidden_size"},
    [MCP_KEY_VOCAB_SIZE] = {"vocab_size", "padded_vocab_size"},
    [MCP_KEY_MAX_POSITIONS] = {"max_position_embeddings", "n_positions", "max_seq_len",
                               "seq_length", "n_ctx"},
    [MCP_KEY_SLIDING_WINDOW] = {"sliding_window"},
    [MCP_KEY_MAX_WINDOW_LAYERS] = {"max_window_layers"},
    [MCP_KEY_WINDOW_PERIOD] = {"sliding_window_pattern"},
    [MCP_KEY_ATTENTION_CHUNK] = {"attention_chunk_size"},
    [MCP_KEY_Q_LORA_RANK] = {"q_lora_rank"},
    [MCP_KEY_KV_LORA_RANK] = {"kv_lora_rank"},
    [MCP_KEY_QK_NOPE_HEAD_DIM] = {"qk_nope_head_dim"},
    [MCP_KEY_QK_ROPE_HEAD_DIM] = {"qk_rope_head_dim"},
    [MCP_KEY_V_HEAD_DIM] = {"v_head_dim"},
    [MCP_KEY_INDEX_HEADS] = {"index_n_heads"},
    [MCP_KEY_INDEX_HEAD_DIM] = {"index_head_dim"},
    [MCP_KEY_INDEX_TOPK] = {"index_topk"},
    [MCP_KEY_NUM_EXPERTS] = {"num_experts", "num_local_experts", "n_routed_experts",
                             "moe_num_experts", "ffn_config.moe_num_experts"},
    [MCP_KEY_EXPERTS_PER_TOKEN] = {"num_experts_per_tok", "experts_per_token",
                                   "num_experts_per_token", "moe_k", "ffn_config.moe_top_k",
                                   "top_k_experts"},
    [MCP_KEY_MOE_FFN_SIZE] = {"moe_intermediate_size"},
    [MCP_KEY_NUM_SHARED_EXPERTS] = {"n_shared_experts", "moe_num_shared_experts",
                                    "num_shared_expert", "num_shared_experts"},
    [MCP_KEY_SHARED_FFN_SIZE] = {"shared_expert_intermediate_size", "shared_intermediate_size"},
    [MCP_KEY_DENSE_FFN_SIZE] = {"intermediate_size_mlp"},
    [MCP_KEY_FIRST_DENSE_LAYERS] = {"first_k_dense_replace", "moe_layer_start_index"},
    [MCP_KEY_MOE_LAYER_STEP] = {"moe_layer_freq", "decoder_sparse_step",
                                "interleave_moe_layer_step", "expert_layer_period",
                                "moe_layer_interval"},
    [MCP_KEY_MOE_LAYER_OFFSET] = {"expert_layer_offset"},
    [MCP_KEY_NUM_MTP_LAYERS] = {"num_nextn_predict_layers", "mtp_num_hidden_layers"},
    [MCP_KEY_ATTENTION_PERIOD] = {"full_attention_interval", "attn_layer_period"},
    [MCP_KEY_ATTENTION_OFFSET] = {"attn_layer_offset"},
    [MCP_KEY_STATE_SIZE] = {"state_size", "ssm_state_size", "mamba_d_state", "linear_key_head_dim"},
    [MCP_KEY_STATE_HEADS] = {"mamba_num_heads", "mamba_n_heads", "linear_num_value_heads"},
    [MCP_KEY_STATE_HEAD_DIM] = {"mamba_head_dim", "mamba_d_head", "linear_value_head_dim"},
    [MCP_KEY_STATE_GROUPS] = {"n_groups", "mamba_n_groups", "linear_num_key_heads"},
    [MCP_KEY_CONV_KERNEL] = {"conv_kernel", "mamba_d_conv", "linear_conv_kernel_dim"},
    [MCP_KEY_EXPAND] = {"expand", "mamba_expand"},
    [MCP_KEY_INNER_SIZE] = {"mamba_d_ssm"},
    [MCP_KEY_TIME_STEP_RANK] = {"time_step_rank", "mamba_dt_rank"},
    [MCP_KEY_SCAN_CHUNK] = {"chunk_size", "mamba_chunk_size"},
};

/* The object that holds the last part of "a.b", and that part; NULL: none does. */
static struct mcp_json *holder(struct mcp_arena *arena, struct mcp_json *json, const char *path,
                               const char **last)
{
    const char *dot = strchr(path, '.');
    struct mcp_json *inner;
    *last = dot == NULL ? path : dot + 1;
    if (dot == NULL)
        return json;
    const char *first = mcp_strndup(arena, path, (size_t)(dot - path));
    return mcp_json_has(json, first) && mcp_json_object(json, first, &inner, NULL) == MCP_OK ? inner
                                                                                             : NULL;
}

/* Spelling `i` of a key: the family's own first, and then no other. */
static const char *name_of(const struct mcp_config *config, enum mcp_key key, int i)
{
    const struct mcp_key_name *own = config->family->own_names;
    bool has_own = false;
    for (int k = 0; k < MCP_MAX_OWN_NAMES && own[k].name != NULL; k++) {
        if (own[k].key != key)
            continue;
        if (i-- == 0)
            return own[k].name;
        has_own = true;
    }
    return has_own || i >= MAX_NAMES ? NULL : names[key][i];
}

/* Lists of layers and words ("auto", "LLLG") are no sizes; others read those. */
static bool is_size(struct mcp_json *json, enum mcp_key key, const char *name)
{
    const char *text;
    struct mcp_json *list;
    if (key == MCP_KEY_TIME_STEP_RANK || key == MCP_KEY_WINDOW_PERIOD)
        return mcp_json_string(json, name, &text, NULL) != MCP_OK;
    return key != MCP_KEY_MOE_LAYER_STEP || mcp_json_array(json, name, &list, NULL) != MCP_OK;
}

/* A number; of experts also a list that says the same of every layer (Hunyuan). */
static enum mcp_status read_size(struct mcp_json *json, enum mcp_key key, const char *name,
                                 int *out, struct mcp_error *err)
{
    struct mcp_json *list;
    const bool may_be_list = key == MCP_KEY_EXPERTS_PER_TOKEN || key == MCP_KEY_MOE_FFN_SIZE ||
                             key == MCP_KEY_NUM_SHARED_EXPERTS;
    if (!may_be_list || mcp_json_array(json, name, &list, NULL) != MCP_OK ||
        mcp_json_count(list) == 0)
        return mcp_json_int(json, name, out, err);
    MCP_TRY(mcp_json_as_int(mcp_json_at(list, 0), out, err));
    for (size_t i = 1; i < mcp_json_count(list); i++) {
        int other;
        MCP_TRY(mcp_json_as_int(mcp_json_at(list, i), &other, err));
        if (other != *out)
            return mcp_json_fail(list, err,
                                 "layer %zu has %d, layer 0 has %d: only equal layers "
                                 "are understood here",
                                 i, other, *out);
    }
    return MCP_OK;
}

/* All spellings of a key that are present must agree, but for the length of
 * sequences, of which Qwen has two. */
static enum mcp_status read_key(struct mcp_config *config, enum mcp_key key, struct mcp_error *err)
{
    const char *first = NULL, *name, *last;
    for (int i = 0; (name = name_of(config, key, i)) != NULL; i++) {
        int value;
        struct mcp_json *json = holder(config->arena, config->json, name, &last);
        if (json == NULL || !mcp_json_has(json, last) || !is_size(json, key, last) ||
            (first != NULL && key == MCP_KEY_MAX_POSITIONS))
            continue;
        MCP_TRY(read_size(json, key, last, &value, err));
        if (first != NULL && value != config->value[key])
            return mcp_json_fail(config->json, err, "%s is %d but %s is %d", first,
                                 config->value[key], name, value);
        first = name;
        config->value[key] = value;
        config->given[key] = true;
    }
    return MCP_OK;
}

static void apply_defaults(struct mcp_config *config, const struct mcp_key_value *defaults)
{
    for (int i = 0; i < MCP_MAX_DEFAULTS && defaults[i].value != 0; i++)
        config->value[defaults[i].key] = defaults[i].value;
}

/* Class defaults that stand in for what a nested config leaves out, in words. */
static void note_defaults(struct mcp_config *config)
{
    const struct mcp_key_value *defaults = config->family->class_defaults;
    struct mcp_text text = mcp_text_new(config->arena);
    for (int i = 0; i < MCP_MAX_DEFAULTS && defaults[i].value != 0; i++)
        if (!config->given[defaults[i].key])
            mcp_text_add(&text, "%s%s=%d", text.length > 0 ? ", " : "", names[defaults[i].key][0],
                         defaults[i].value);
    if (text.length > 0)
        mcp_config_note(config,
                        mcp_format(config->arena, "defaults of the class %s stand in for %s",
                                   config->family->model_type, text.data));
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
static enum mcp_status require_key(const struct mcp_config *config, enum mcp_key key,
                                   struct mcp_error *err)
{
    struct mcp_arena *arena = config->arena;
    const char *main_name = name_of(config, key, 0), *name;
    if (config->value[key] > 0)
        return MCP_OK;
    if (config->given[key])
        return mcp_json_fail(config->json, err, "%s is 0; at least 1 is needed", main_name);
    struct mcp_text others = mcp_text_new(arena);
    for (int i = 1; (name = name_of(config, key, i)) != NULL; i++)
        mcp_text_add(&others, "%s%s", i == 1 ? ", also called " : ", ", name);
    const char *nearest = nearest_key(arena, config->json, main_name);
    return mcp_json_fail(config->json, err, "%s%s is missing or null%s%s%s", main_name, others.data,
                         nearest == NULL ? "" : "; did \"",
                         nearest == NULL ? "" : mcp_printable(arena, nearest),
                         nearest == NULL ? "" : "\" mean it?");
}

static enum mcp_status require_keys(const struct mcp_config *config, const enum mcp_key *keys,
                                    size_t count, bool needed, struct mcp_error *err)
{
    for (size_t i = 0; needed && i < count; i++)
        MCP_TRY(require_key(config, keys[i], err));
    return MCP_OK;
}

#define REQUIRE(needed, ...)                                                                       \
    MCP_TRY(require_keys(config, (const enum mcp_key[]){__VA_ARGS__},                              \
                         sizeof((const enum mcp_key[]){__VA_ARGS__}) / sizeof(enum mcp_key),       \
                         needed, err))

static enum mcp_status require_all(const struct mcp_config *config, struct mcp_error *err)
{
    const bool latent = mcp_config_is(config, MCP_FAMILY_LATENT);
    const bool attends = !mcp_config_is(config, MCP_FAMILY_NO_ATTENTION);
    const bool experts = mcp_config_is(config, MCP_FAMILY_EXPERTS) &&
                         !mcp_config_is(config, MCP_FAMILY_FIXED_EXPERTS);
    const unsigned heads = MCP_FAMILY_GATED_DELTA | MCP_FAMILY_MAMBA2;
    const unsigned states = heads | MCP_FAMILY_MAMBA;
    REQUIRE(true, MCP_KEY_HIDDEN_SIZE, MCP_KEY_NUM_LAYERS);
    REQUIRE(attends, MCP_KEY_NUM_HEADS);
    REQUIRE(true, MCP_KEY_VOCAB_SIZE);
    REQUIRE(latent, MCP_KEY_KV_LORA_RANK, MCP_KEY_QK_NOPE_HEAD_DIM, MCP_KEY_QK_ROPE_HEAD_DIM,
            MCP_KEY_V_HEAD_DIM);
    REQUIRE(experts, MCP_KEY_NUM_EXPERTS, MCP_KEY_EXPERTS_PER_TOKEN);
    REQUIRE(experts && !mcp_config_is(config, MCP_FAMILY_FFN_IS_MOE), MCP_KEY_MOE_FFN_SIZE);
    REQUIRE(mcp_config_is(config, states), MCP_KEY_STATE_SIZE, MCP_KEY_CONV_KERNEL);
    REQUIRE(mcp_config_is(config, heads), MCP_KEY_STATE_HEADS, MCP_KEY_STATE_HEAD_DIM,
            MCP_KEY_STATE_GROUPS);
    REQUIRE(config->family->position == MCP_POSITION_LEARNED, MCP_KEY_MAX_POSITIONS);
    REQUIRE(attends && config->family->ffn_per_hidden == 0, MCP_KEY_FFN_SIZE);
    return MCP_OK;
}
#undef REQUIRE

enum mcp_status mcp_config_read_sizes(struct mcp_config *config, struct mcp_error *err)
{
    apply_defaults(config, config->family->defaults);
    if (config->json != config->outer)
        apply_defaults(config, config->family->class_defaults);
    for (int key = 0; key < MCP_NUM_KEYS; key++)
        MCP_TRY(read_key(config, (enum mcp_key)key, err));
    if (config->json != config->outer)
        note_defaults(config);
    if (config->family->prepare != NULL)
        MCP_TRY(config->family->prepare(config, err));
    MCP_TRY(require_all(config, err));
    if (config->value[MCP_KEY_NUM_LAYERS] > MCP_MAX_LAYERS)
        return mcp_json_fail(config->json, err, "%s is %d; at most %d are possible",
                             names[MCP_KEY_NUM_LAYERS][0], config->value[MCP_KEY_NUM_LAYERS],
                             MCP_MAX_LAYERS);
    return MCP_OK;
}

/* Other keys ---------------------------------------------------------------- */

static struct mcp_json *find(const struct mcp_config *config, const char *path, const char **last)
{
    struct mcp_json *json = holder(config->arena, config->json, path, last);
    if (json != NULL && mcp_json_has(json, *last))
        return json;
    json = holder(config->arena, config->outer, path, last);
    return json != NULL && mcp_json_has(json, *last) ? json : NULL;
}

enum mcp_status mcp_config_maybe_bool(const struct mcp_config *config, const char *key, bool *out,
                                      struct mcp_error *err)
{
    const char *last;
    struct mcp_json *json = find(config, key, &last);
    return json == NULL ? MCP_OK : mcp_json_bool(json, last, out, err);
}

enum mcp_status mcp_config_maybe_int(const struct mcp_config *config, const char *key, int *out,
                                     struct mcp_error *err)
{
    const char *last;
    struct mcp_json *json = find(config, key, &last);
    return json == NULL ? MCP_OK : mcp_json_int(json, last, out, err);
}

enum mcp_status mcp_config_layer_list(const struct mcp_config *config, const char *key,
                                      struct mcp_json **out, struct mcp_error *err)
{
    *out = NULL;
    if (!mcp_json_has(config->json, key) || mcp_json_array(config->json, key, out, NULL) != MCP_OK)
        return MCP_OK;
    if (mcp_json_count(*out) != (size_t)config->value[MCP_KEY_NUM_LAYERS])
        return mcp_json_fail(*out, err, "%zu entries, but there are %d layers",
                             mcp_json_count(*out), config->value[MCP_KEY_NUM_LAYERS]);
    return MCP_OK;
}

enum mcp_status mcp_config_layer_at(const struct mcp_config *config, struct mcp_json *list,
                                    size_t i, int *layer, struct mcp_error *err)
{
    MCP_TRY(mcp_json_as_int(mcp_json_at(list, i), layer, err));
    if (*layer >= 0 && *layer < config->value[MCP_KEY_NUM_LAYERS])
        return MCP_OK;
    return mcp_json_fail(list, err, "layer %d is not one of the %d layers", *layer,
                         config->value[MCP_KEY_NUM_LAYERS]);
}

void mcp_config_note(struct mcp_config *config, const char *sentence)
{
    config->note = config->note[0] == '\0'
                       ? sentence
                       : mcp_format(config->arena, "%s; %s", config->note, sentence);
}
