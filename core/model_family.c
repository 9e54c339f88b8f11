/* core/model_family.c: the families of config.json, as data. */
#include "core/model_family.h"
#include "core/text.h"

#include <ctype.h>
#include <string.h>

/* Which layers -------------------------------------------------------------- */

static bool always(const struct mcp_layer_rules *rules, int layer)
{
    (void)rules, (void)layer;
    return true;
}

static bool even_layers(const struct mcp_layer_rules *rules, int layer)
{
    (void)rules;
    return layer % 2 == 0;
}

static bool upper_layers(const struct mcp_layer_rules *rules, int layer)
{
    return layer >= rules->max_window_layers;
}

static bool after_dense_layers(const struct mcp_layer_rules *rules, int layer)
{
    const int step = rules->moe_layer_step;
    return layer >= rules->first_dense_layers && (step < 2 || layer % step == 0);
}

static bool every_sparse_step(const struct mcp_layer_rules *rules, int layer)
{
    const int step = rules->moe_layer_step;
    return !rules->is_listed_dense[layer] && (step < 2 || (layer + 1) % step == 0);
}

/* Families ------------------------------------------------------------------ */

#define HAS(trait) (unsigned)MCP_FAMILY_##trait
#define DEEPSEEK HAS(GATED) | HAS(LATENT) | HAS(EXPERTS)
#define ALL_BIASES HAS(QKV_BIAS) | HAS(OUT_BIAS)
static const struct mcp_family families[] = {
    {.model_type = "gpt2",
     .traits = HAS(TIED) | ALL_BIASES | HAS(FIXED_BIAS) | HAS(MLP_BIAS),
     .norm = MCP_LAYERNORM,
     .position = MCP_POSITION_LEARNED,
     .ffn_per_hidden = 4},
    {.model_type = "llama", .traits = HAS(GATED)},
    {.model_type = "mistral",
     .traits = HAS(GATED) | HAS(FIXED_BIAS),
     .is_windowed = always,
     .kv_heads = 8},
    {.model_type = "mixtral",
     .traits = HAS(GATED) | HAS(FIXED_BIAS) | HAS(EXPERTS) | HAS(FFN_IS_MOE),
     .is_sparse = always,
     .is_windowed = always,
     .kv_heads = 8},
    {.model_type = "qwen2",
     .traits = HAS(GATED) | HAS(FIXED_BIAS) | HAS(QKV_BIAS),
     .is_windowed = upper_layers,
     .max_window_layers = 28},
    {.model_type = "qwen2_moe",
     .traits = HAS(GATED) | HAS(FIXED_BIAS) | HAS(QKV_BIAS) | HAS(EXPERTS) | HAS(SHARED_GATE),
     .is_sparse = every_sparse_step,
     .is_windowed = upper_layers,
     .max_window_layers = 28},
    {.model_type = "qwen3",
     .traits = HAS(GATED) | HAS(QK_NORM),
     .is_windowed = upper_layers,
     .max_window_layers = 28},
    {.model_type = "qwen3_moe",
     .traits = HAS(GATED) | HAS(QK_NORM) | HAS(EXPERTS),
     .is_sparse = every_sparse_step,
     .is_windowed = upper_layers,
     .max_window_layers = 28},
    {.model_type = "deepseek_v2", .traits = DEEPSEEK, .is_sparse = after_dense_layers},
    {.model_type = "deepseek_v3",
     .traits = DEEPSEEK | HAS(CORRECTION_BIAS),
     .is_sparse = after_dense_layers},
    {.model_type = "kimi_k2",
     .traits = DEEPSEEK | HAS(CORRECTION_BIAS),
     .is_sparse = after_dense_layers},
    {.model_type = "gpt_oss",
     .traits = HAS(GATED) | ALL_BIASES | HAS(SINKS) | HAS(EXPERTS) | HAS(FFN_IS_MOE) |
               HAS(ROUTER_BIAS) | HAS(EXPERT_BIAS),
     .is_sparse = always,
     .is_windowed = even_layers,
     .window = 128,
     .kv_heads = 8},
};
#undef HAS
#undef DEEPSEEK
#undef ALL_BIASES

/* Model types, and beginnings of classes, of models that are no decoders. */
static const char *const encoders[] = {
    "bert",  "roberta", "albert",    "electra",    "deberta", "distilbert", "xlm",
    "mpnet", "ernie",   "camembert", "modernbert", "t5",      "mt5",        "umt5",
    "bart",  "mbart",   "pegasus",   "marian",     "whisper", "wav2vec2",   "hubert",
    "vit",   "deit",    "swin",      "clip",       "siglip",  "convnext",   "segformer",
};

/* Finding one --------------------------------------------------------------- */

/* Lower case without '_': "Qwen3MoeForCausalLM" begins like "qwen3_moe". */
static const char *plain_name(struct mcp_arena *arena, const char *name)
{
    char *plain = mcp_strdup(arena, name);
    char *to = plain;
    for (const char *from = plain; *from != '\0'; from++)
        if (*from != '_')
            *to++ = (char)tolower((unsigned char)*from);
    *to = '\0';
    return plain;
}

/* What follows `name` in the class, NULL when it does not begin so. */
static const char *class_tail(const char *plain_class, const char *plain)
{
    return mcp_starts_with(plain_class, plain) ? plain_class + strlen(plain) : NULL;
}

/* architectures[0], "" when there is none. */
static const char *class_of(struct mcp_json *config)
{
    const char *name = "";
    struct mcp_json *list;
    if (mcp_json_has(config, "architectures") &&
        mcp_json_array(config, "architectures", &list, NULL) == MCP_OK && mcp_json_count(list) > 0)
        (void)mcp_json_as_string(mcp_json_at(list, 0), &name, NULL);
    return name;
}

static bool is_class_of(struct mcp_arena *arena, const char *class_name,
                        const struct mcp_family *family)
{
    const char *tail =
        class_tail(plain_name(arena, class_name), plain_name(arena, family->model_type));
    return mcp_same(tail, "forcausallm") || mcp_same(tail, "lmheadmodel");
}

static const struct mcp_family *family_of(struct mcp_arena *arena, const char *model_type,
                                          const char *class_name)
{
    for (size_t i = 0; i < MCP_COUNT_OF(families); i++)
        if (model_type[0] != '\0' ? mcp_same(families[i].model_type, model_type)
                                  : is_class_of(arena, class_name, &families[i]))
            return &families[i];
    return NULL;
}

static bool is_encoder(struct mcp_arena *arena, const char *model_type, const char *class_name)
{
    const char *type = plain_name(arena, model_type);
    const char *plain = plain_name(arena, class_name);
    for (size_t i = 0; i < MCP_COUNT_OF(encoders); i++) {
        const char *tail = class_tail(plain, encoders[i]);
        if (mcp_same(type, encoders[i]) ||
            (tail != NULL && (mcp_starts_with(tail, "for") || mcp_starts_with(tail, "model"))))
            return true;
    }
    return false;
}

static enum mcp_status fail_unknown(struct mcp_arena *arena, struct mcp_json *config,
                                    const char *model_type, struct mcp_error *err)
{
    const char *names[MCP_COUNT_OF(families)];
    struct mcp_text known = mcp_text_new(arena);
    for (size_t i = 0; i < MCP_COUNT_OF(families); i++) {
        names[i] = families[i].model_type;
        mcp_text_add(&known, "%s%s", i == 0 ? "" : ", ", names[i]);
    }
    if (model_type[0] == '\0')
        return mcp_json_fail(config, err,
                             "no schema of ours, and no model_type or architecture of a known "
                             "family (%s): is this a config.json?",
                             known.data);
    const char *nearest = mcp_nearest(model_type, names, MCP_COUNT_OF(names));
    if (nearest == NULL)
        return mcp_json_fail(config, err, "model_type \"%.60s\" is not a known family (%s)",
                             model_type, known.data);
    return mcp_json_fail(config, err,
                         "model_type \"%.60s\" is not a known family; the nearest is \"%s\" "
                         "(of %s)",
                         model_type, nearest, known.data);
}

enum mcp_status mcp_family_find(struct mcp_arena *arena, struct mcp_json *config,
                                const struct mcp_family **out, struct mcp_error *err)
{
    const char *model_type = "", *class_name = class_of(config);
    bool encoder_decoder = false;
    MCP_TRY(mcp_json_maybe_string(config, "model_type", &model_type, err));
    MCP_TRY(mcp_json_maybe_bool(config, "is_encoder_decoder", &encoder_decoder, err));
    if (encoder_decoder || is_encoder(arena, model_type, class_name))
        return mcp_json_fail(config, err,
                             "\"%.60s\" is an encoder or an encoder-decoder; only decoder-only "
                             "models can be planned",
                             model_type[0] != '\0' ? model_type : class_name);
    *out = family_of(arena, model_type, class_name);
    return *out != NULL ? MCP_OK : fail_unknown(arena, config, model_type, err);
}

const char *mcp_family_foreign_class(struct mcp_arena *arena, struct mcp_json *config,
                                     const struct mcp_family *family)
{
    const char *class_name = class_of(config);
    return class_name[0] == '\0' || is_class_of(arena, class_name, family) ? NULL : class_name;
}
