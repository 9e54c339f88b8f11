/* core/model_family.c: the families of config.json, as data. */
#include "core/model_family.h"
#include "core/text.h"

#include <ctype.h>
#include <string.h>

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
    {.model_type = "gpt_bigcode",
     .traits = HAS(TIED) | ALL_BIASES | HAS(FIXED_BIAS) | HAS(MLP_BIAS),
     .norm = MCP_LAYERNORM,
     .position = MCP_POSITION_LEARNED,
     .ffn_per_hidden = 4,
     .prepare = mcp_prepare_bigcode},
    {.model_type = "gpt_neo",
     .traits = HAS(TIED) | HAS(OUT_BIAS) | HAS(FIXED_BIAS) | HAS(MLP_BIAS),
     .norm = MCP_LAYERNORM,
     .position = MCP_POSITION_LEARNED,
     .ffn_per_hidden = 4,
     .own_names = {{MCP_KEY_SLIDING_WINDOW, "window_size"}},
     .mark = mcp_mark_gpt_neo},
    {.model_type = "gptj",
     .traits = HAS(FIXED_BIAS) | HAS(MLP_BIAS) | HAS(HEAD_BIAS),
     .norm = MCP_LAYERNORM,
     .norms_per_layer = 1,
     .ffn_per_hidden = 4},
    {.model_type = "codegen",
     .traits = HAS(FIXED_BIAS) | HAS(MLP_BIAS) | HAS(HEAD_BIAS),
     .norm = MCP_LAYERNORM,
     .norms_per_layer = 1,
     .ffn_per_hidden = 4},
    {.model_type = "gpt_neox", .traits = ALL_BIASES | HAS(MLP_BIAS), .norm = MCP_LAYERNORM},
    {.model_type = "opt",
     .traits = HAS(TIED) | ALL_BIASES | HAS(FIXED_BIAS) | HAS(MLP_BIAS),
     .norm = MCP_LAYERNORM,
     .position = MCP_POSITION_LEARNED,
     .own_names = {{MCP_KEY_FFN_SIZE, "ffn_dim"}},
     .prepare = mcp_prepare_opt,
     .finish = mcp_finish_opt},
    {.model_type = "bloom",
     .traits = HAS(TIED) | ALL_BIASES | HAS(FIXED_BIAS) | HAS(MLP_BIAS) | HAS(EMBEDDING_NORM),
     .norm = MCP_LAYERNORM,
     .position = MCP_POSITION_ALIBI,
     .ffn_per_hidden = 4},
    {.model_type = "falcon",
     .traits = HAS(TIED) | HAS(FIXED_BIAS),
     .norm = MCP_LAYERNORM,
     .ffn_per_hidden = 4,
     .prepare = mcp_prepare_falcon,
     .refine = mcp_refine_falcon,
     .finish = mcp_finish_falcon},
    {.model_type = "mpt",
     .traits = HAS(TIED) | HAS(FIXED_BIAS),
     .norm = MCP_LAYERNORM_NO_BIAS,
     .position = MCP_POSITION_ALIBI,
     .ffn_per_hidden = 4,
     .prepare = mcp_prepare_mpt,
     .refine = mcp_refine_mpt,
     .finish = mcp_finish_mpt},
    {.model_type = "llama", .traits = HAS(GATED)},
    {.model_type = "llama4",
     .traits = HAS(GATED) | HAS(EXPERTS) | HAS(FFN_IS_MOE),
     .is_sparse = mcp_rule_every_step,
     .mark = mcp_mark_llama4,
     .refine = mcp_refine_llama4},
    {.model_type = "mllama",
     .traits = HAS(GATED),
     .mark = mcp_mark_mllama,
     .refine = mcp_refine_mllama},
    {.model_type = "mistral",
     .traits = HAS(GATED) | HAS(FIXED_BIAS),
     .is_windowed = mcp_rule_always,
     .defaults = {{MCP_KEY_NUM_KV_HEADS, 8}}},
    {.model_type = "mixtral",
     .traits = HAS(GATED) | HAS(FIXED_BIAS) | HAS(EXPERTS) | HAS(FFN_IS_MOE),
     .is_windowed = mcp_rule_always,
     .defaults = {{MCP_KEY_NUM_KV_HEADS, 8}}},
    {.model_type = "qwen",
     .traits = HAS(GATED) | HAS(FIXED_BIAS) | HAS(QKV_BIAS),
     .prepare = mcp_prepare_qwen},
    {.model_type = "qwen2",
     .traits = HAS(GATED) | HAS(FIXED_BIAS) | HAS(QKV_BIAS),
     .is_windowed = mcp_rule_upper,
     .defaults = {{MCP_KEY_MAX_WINDOW_LAYERS, 28}},
     .class_defaults = {{MCP_KEY_NUM_LAYERS, 32},
                        {MCP_KEY_HIDDEN_SIZE, 4096},
                        {MCP_KEY_NUM_HEADS, 32},
                        {MCP_KEY_NUM_KV_HEADS, 32},
                        {MCP_KEY_FFN_SIZE, 22016},
                        {MCP_KEY_VOCAB_SIZE, 151936}}},
    {.model_type = "qwen2_moe",
     .traits = HAS(GATED) | HAS(FIXED_BIAS) | HAS(QKV_BIAS) | HAS(EXPERTS) | HAS(SHARED_GATE),
     .is_sparse = mcp_rule_every_step,
     .is_windowed = mcp_rule_upper,
     .defaults = {{MCP_KEY_MAX_WINDOW_LAYERS, 28}}},
    {.model_type = "qwen3",
     .traits = HAS(GATED) | HAS(QK_NORM),
     .is_windowed = mcp_rule_upper,
     .defaults = {{MCP_KEY_MAX_WINDOW_LAYERS, 28}}},
    {.model_type = "qwen3_moe",
     .traits = HAS(GATED) | HAS(QK_NORM) | HAS(EXPERTS),
     .is_sparse = mcp_rule_every_step,
     .is_windowed = mcp_rule_upper,
     .defaults = {{MCP_KEY_MAX_WINDOW_LAYERS, 28}}},
    {.model_type = "qwen3_next",
     .traits = HAS(GATED) | HAS(QK_NORM) | HAS(EXPERTS) | HAS(SHARED_GATE) | HAS(GATED_DELTA) |
               HAS(OUTPUT_GATE),
     .is_sparse = mcp_rule_every_step,
     .has_state = mcp_rule_not_nth,
     .defaults = {{MCP_KEY_ATTENTION_PERIOD, 4}}},
    {.model_type = "qwen3_5",
     .traits = HAS(TIED) | HAS(GATED) | HAS(QK_NORM) | HAS(GATED_DELTA) | HAS(OUTPUT_GATE),
     .has_state = mcp_rule_not_nth,
     .defaults = {{MCP_KEY_ATTENTION_PERIOD, 4}}},
    {.model_type = "qwen3_5_moe",
     .traits = HAS(GATED) | HAS(QK_NORM) | HAS(EXPERTS) | HAS(SHARED_GATE) | HAS(GATED_DELTA) |
               HAS(OUTPUT_GATE),
     .has_state = mcp_rule_not_nth,
     .defaults = {{MCP_KEY_ATTENTION_PERIOD, 4}, {MCP_KEY_FFN_SIZE, 5632}}},
    {.model_type = "deepseek",
     .traits = HAS(GATED) | HAS(EXPERTS),
     .is_sparse = mcp_rule_after_dense},
    {.model_type = "deepseek_v2", .traits = DEEPSEEK, .is_sparse = mcp_rule_after_dense},
    {.model_type = "deepseek_v3",
     .traits = DEEPSEEK | HAS(CORRECTION_BIAS),
     .is_sparse = mcp_rule_after_dense},
    {.model_type = "deepseek_v32",
     .traits = DEEPSEEK | HAS(CORRECTION_BIAS),
     .is_sparse = mcp_rule_after_dense},
    {.model_type = "kimi_k2",
     .traits = DEEPSEEK | HAS(CORRECTION_BIAS),
     .is_sparse = mcp_rule_after_dense},
    {.model_type = "glm_moe_dsa",
     .traits = DEEPSEEK | HAS(CORRECTION_BIAS),
     .is_sparse = mcp_rule_after_dense},
    {.model_type = "glm4_moe_lite",
     .traits = DEEPSEEK | HAS(CORRECTION_BIAS),
     .is_sparse = mcp_rule_after_dense},
    {.model_type = "dots1",
     .traits = HAS(GATED) | HAS(QK_NORM) | HAS(EXPERTS) | HAS(CORRECTION_BIAS),
     .is_sparse = mcp_rule_after_dense},
    {.model_type = "phi",
     .traits = ALL_BIASES | HAS(FIXED_BIAS) | HAS(MLP_BIAS) | HAS(HEAD_BIAS),
     .norm = MCP_LAYERNORM,
     .norms_per_layer = 1},
    {.model_type = "phi3", .traits = HAS(GATED) | HAS(FIXED_BIAS), .is_windowed = mcp_rule_always},
    {.model_type = "phimoe",
     .traits = HAS(GATED) | HAS(EXPERTS) | HAS(FFN_IS_MOE),
     .norm = MCP_LAYERNORM,
     .is_windowed = mcp_rule_always},
    {.model_type = "gemma",
     .traits = HAS(TIED) | HAS(GATED),
     .defaults = {{MCP_KEY_HEAD_DIM, 256}}},
    {.model_type = "gemma2",
     .traits = HAS(TIED) | HAS(GATED),
     .norms_per_layer = 4,
     .is_windowed = mcp_rule_even,
     .defaults = {{MCP_KEY_HEAD_DIM, 256}, {MCP_KEY_SLIDING_WINDOW, 4096}}},
    {.model_type = "gemma3",
     .traits = HAS(TIED) | HAS(GATED) | HAS(QK_NORM),
     .norms_per_layer = 4,
     .is_windowed = mcp_rule_all_but_nth,
     .defaults = {{MCP_KEY_HEAD_DIM, 256},
                  {MCP_KEY_SLIDING_WINDOW, 4096},
                  {MCP_KEY_WINDOW_PERIOD, 6}},
     .class_defaults = {{MCP_KEY_NUM_LAYERS, 26},
                        {MCP_KEY_HIDDEN_SIZE, 2304},
                        {MCP_KEY_NUM_HEADS, 8},
                        {MCP_KEY_NUM_KV_HEADS, 4},
                        {MCP_KEY_HEAD_DIM, 256},
                        {MCP_KEY_FFN_SIZE, 9216},
                        {MCP_KEY_VOCAB_SIZE, 262208}}},
    {.model_type = "gemma4",
     .traits = HAS(TIED) | HAS(GATED) | HAS(QK_NORM) | HAS(EXPERTS) | HAS(FIXED_EXPERTS) |
               HAS(ROUTER_BIAS),
     .norms_per_layer = 4,
     .is_windowed = mcp_rule_all_but_nth,
     .defaults = {{MCP_KEY_HEAD_DIM, 256},
                  {MCP_KEY_SLIDING_WINDOW, 512},
                  {MCP_KEY_WINDOW_PERIOD, 6}},
     .prepare = mcp_prepare_gemma4,
     .refine = mcp_refine_gemma4,
     .finish = mcp_finish_gemma4},
    {.model_type = "granite", .traits = HAS(GATED)},
    {.model_type = "granitemoe", .traits = HAS(GATED) | HAS(EXPERTS) | HAS(FFN_IS_MOE)},
    {.model_type = "granitemoehybrid",
     .traits = HAS(GATED) | HAS(EXPERTS) | HAS(FIXED_EXPERTS) | HAS(FFN_IS_MOE) | HAS(MAMBA2),
     .prepare = mcp_prepare_granite_hybrid},
    {.model_type = "chatglm",
     .traits = HAS(GATED) | HAS(QKV_BIAS) | HAS(ANY_BIAS),
     .own_names = {{MCP_KEY_NUM_KV_HEADS, "multi_query_group_num"}}},
    {.model_type = "glm", .traits = HAS(GATED) | HAS(QKV_BIAS) | HAS(ANY_BIAS)},
    {.model_type = "glm4",
     .traits = HAS(GATED) | HAS(QKV_BIAS) | HAS(ANY_BIAS),
     .norms_per_layer = 4},
    {.model_type = "glm4_moe",
     .traits = HAS(GATED) | HAS(EXPERTS) | HAS(CORRECTION_BIAS) | HAS(ANY_BIAS),
     .is_sparse = mcp_rule_after_dense},
    {.model_type = "internlm", .traits = HAS(GATED) | ALL_BIASES},
    {.model_type = "internlm2", .traits = HAS(GATED)},
    {.model_type = "internlm3", .traits = HAS(GATED)},
    {.model_type = "minicpm", .traits = HAS(TIED) | HAS(GATED)},
    {.model_type = "minicpm3",
     .traits = HAS(TIED) | HAS(GATED) | HAS(LATENT),
     .prepare = mcp_prepare_minicpm3},
    {.model_type = "baichuan", .traits = HAS(GATED)},
    {.model_type = "gpt_oss",
     .traits = HAS(GATED) | ALL_BIASES | HAS(SINKS) | HAS(EXPERTS) | HAS(FFN_IS_MOE) |
               HAS(ROUTER_BIAS) | HAS(EXPERT_BIAS),
     .is_windowed = mcp_rule_even,
     .defaults = {{MCP_KEY_NUM_KV_HEADS, 8}, {MCP_KEY_SLIDING_WINDOW, 128}}},
    {.model_type = "dbrx",
     .traits = HAS(GATED) | HAS(FIXED_BIAS) | HAS(EXPERTS) | HAS(FFN_IS_MOE),
     .norm = MCP_LAYERNORM_NO_BIAS},
    {.model_type = "minimax",
     .traits = HAS(GATED) | HAS(EXPERTS) | HAS(FFN_IS_MOE) | HAS(LIGHTNING) | HAS(FIXED_BIAS),
     .mark = mcp_mark_minimax},
    {.model_type = "minimax_m2",
     .traits =
         HAS(GATED) | HAS(QK_NORM_FULL) | HAS(EXPERTS) | HAS(FFN_IS_MOE) | HAS(CORRECTION_BIAS),
     .prepare = mcp_prepare_minimax_m2},
    {.model_type = "hunyuan_v1_dense", .traits = HAS(GATED) | HAS(QK_NORM)},
    {.model_type = "hunyuan_v1_moe",
     .traits = HAS(TIED) | HAS(GATED) | HAS(QK_NORM) | HAS(EXPERTS),
     .own_names = {{MCP_KEY_EXPERTS_PER_TOKEN, "moe_topk"}}},
    {.model_type = "mimo_v2_flash",
     .traits = HAS(GATED) | HAS(EXPERTS) | HAS(CORRECTION_BIAS),
     .mark = mcp_mark_mimo,
     .refine = mcp_refine_mimo},
    {.model_type = "ernie4_5", .traits = HAS(TIED) | HAS(GATED)},
    {.model_type = "ernie4_5_moe",
     .traits = HAS(TIED) | HAS(GATED) | HAS(EXPERTS) | HAS(CORRECTION_BIAS),
     .is_sparse = mcp_rule_after_dense},
    {.model_type = "seed_oss", .traits = HAS(GATED) | HAS(QKV_BIAS) | HAS(ANY_BIAS)},
    {.model_type = "exaone", .traits = HAS(GATED)},
    {.model_type = "exaone4", .traits = HAS(GATED) | HAS(QK_NORM), .mark = mcp_mark_exaone4},
    {.model_type = "smollm3", .traits = HAS(TIED) | HAS(GATED)},
    {.model_type = "stablelm",
     .traits = HAS(GATED) | HAS(ANY_BIAS),
     .norm = MCP_LAYERNORM,
     .finish = mcp_finish_parallel},
    {.model_type = "starcoder2",
     .traits = HAS(TIED) | ALL_BIASES | HAS(MLP_BIAS),
     .norm = MCP_LAYERNORM,
     .is_windowed = mcp_rule_always},
    {.model_type = "olmo", .traits = HAS(GATED), .norm = MCP_NORM_NO_WEIGHT},
    {.model_type = "olmo2", .traits = HAS(GATED) | HAS(QK_NORM_FULL)},
    {.model_type = "olmo3",
     .traits = HAS(GATED) | HAS(QK_NORM_FULL),
     .is_windowed = mcp_rule_all_but_nth,
     .defaults = {{MCP_KEY_WINDOW_PERIOD, 4}, {MCP_KEY_SLIDING_WINDOW, 4096}}},
    {.model_type = "olmoe",
     .traits = HAS(GATED) | HAS(QK_NORM_FULL) | HAS(EXPERTS) | HAS(FFN_IS_MOE)},
    {.model_type = "cohere",
     .traits = HAS(TIED) | HAS(GATED),
     .norm = MCP_LAYERNORM_NO_BIAS,
     .norms_per_layer = 1,
     .refine = mcp_refine_cohere},
    {.model_type = "cohere2",
     .traits = HAS(TIED) | HAS(GATED),
     .norm = MCP_LAYERNORM_NO_BIAS,
     .norms_per_layer = 1,
     .is_windowed = mcp_rule_all_but_nth,
     .defaults = {{MCP_KEY_WINDOW_PERIOD, 4}, {MCP_KEY_SLIDING_WINDOW, 4096}}},
    {.model_type = "nemotron", .traits = 0, .norm = MCP_LAYERNORM},
    {.model_type = "nemotron-nas",
     .traits = HAS(GATED) | HAS(FIXED_EXPERTS),
     .mark = mcp_mark_nemotron_nas,
     .refine = mcp_refine_nemotron_nas,
     .ffn_per_hidden = 4},
    {.model_type = "nemotron_h",
     .traits = HAS(EXPERTS) | HAS(FIXED_EXPERTS) | HAS(MAMBA2) | HAS(CORRECTION_BIAS),
     .position = MCP_POSITION_NONE,
     .own_names = {{MCP_KEY_HEAD_DIM, "attention_head_dim"},
                   {MCP_KEY_HEAD_DIM, "head_dim"},
                   {MCP_KEY_SHARED_FFN_SIZE, "moe_shared_expert_intermediate_size"}},
     .prepare = mcp_prepare_nemotron_h,
     .mark = mcp_mark_nemotron_h,
     .ffn_per_hidden = 4},
    {.model_type = "mamba",
     .traits = HAS(TIED) | HAS(MAMBA) | HAS(NO_ATTENTION),
     .position = MCP_POSITION_NONE,
     .mark = mcp_mark_states,
     .defaults = {{MCP_KEY_STATE_SIZE, 16}, {MCP_KEY_CONV_KERNEL, 4}}},
    {.model_type = "falcon_mamba",
     .traits = HAS(MAMBA) | HAS(NO_ATTENTION),
     .position = MCP_POSITION_NONE,
     .mark = mcp_mark_states,
     .defaults = {{MCP_KEY_STATE_SIZE, 16}, {MCP_KEY_CONV_KERNEL, 4}}},
    {.model_type = "mamba2",
     .traits = HAS(MAMBA2) | HAS(NO_ATTENTION),
     .position = MCP_POSITION_NONE,
     .mark = mcp_mark_states,
     .own_names = {{MCP_KEY_STATE_HEADS, "num_heads"}, {MCP_KEY_STATE_HEAD_DIM, "head_dim"}}},
    {.model_type = "jamba",
     .traits = HAS(GATED) | HAS(FIXED_BIAS) | HAS(EXPERTS) | HAS(FFN_IS_MOE) | HAS(MAMBA) |
               HAS(FIXED_NORMS),
     .position = MCP_POSITION_NONE,
     .is_sparse = mcp_rule_at_offset,
     .has_state = mcp_rule_not_at_offset},
    {.model_type = "bamba", .traits = HAS(GATED) | HAS(MAMBA2), .mark = mcp_mark_bamba},
};
#undef HAS
#undef DEEPSEEK
#undef ALL_BIASES

/* Model types that are one of these under another name, or their text part. */
static const char *const read_as[][2] = {
    {"Yi", "llama"},
    {"RefinedWeb", "falcon"},
    {"RefinedWebModel", "falcon"},
    {"ministral", "mistral"},
    {"ministral3", "mistral"},
    {"llama4_text", "llama4"},
    {"mllama_text_model", "mllama"},
    {"qwen2_vl", "qwen2"},
    {"qwen2_vl_text", "qwen2"},
    {"qwen2_5_vl", "qwen2"},
    {"qwen2_5_vl_text", "qwen2"},
    {"qwen2_audio", "qwen2"},
    {"qwen3_vl", "qwen3"},
    {"qwen3_vl_text", "qwen3"},
    {"qwen3_vl_moe", "qwen3_moe"},
    {"qwen3_vl_moe_text", "qwen3_moe"},
    {"qwen3_5_text", "qwen3_5"},
    {"qwen3_5_moe_text", "qwen3_5_moe"},
    {"gemma3_text", "gemma3"},
    {"gemma4_text", "gemma4"},
    {"minimax_text_01", "minimax"},
    {"minimax_m1", "minimax"},
    {"hunyuan", "hunyuan_v1_moe"},
};

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
    for (size_t i = 0; i < MCP_COUNT_OF(read_as); i++)
        if (mcp_same(read_as[i][0], model_type))
            model_type = read_as[i][1];
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

/* A few families that everybody knows, and how many more there are. */
static const char *some_families(struct mcp_arena *arena)
{
    static const char *const some[] = {"gpt2",   "llama",       "mixtral", "qwen3_moe",
                                       "gemma3", "deepseek_v3", "mamba2"};
    struct mcp_text text = mcp_text_new(arena);
    for (size_t i = 0; i < MCP_COUNT_OF(some); i++)
        mcp_text_add(&text, "%s%s", i == 0 ? "" : ", ", some[i]);
    mcp_text_add(&text, " and %zu more", MCP_COUNT_OF(families) - MCP_COUNT_OF(some));
    return text.data;
}

static enum mcp_status fail_unknown(struct mcp_arena *arena, struct mcp_json *config,
                                    const char *model_type, struct mcp_error *err)
{
    const char *names[MCP_COUNT_OF(families)];
    for (size_t i = 0; i < MCP_COUNT_OF(families); i++)
        names[i] = families[i].model_type;
    if (model_type[0] == '\0')
        return mcp_json_fail(config, err,
                             "no schema of ours, and no model_type or architecture of a known "
                             "family (%s): is this a config.json?",
                             some_families(arena));
    const char *nearest = mcp_nearest(model_type, names, MCP_COUNT_OF(names));
    if (nearest == NULL)
        return mcp_json_fail(config, err, "model_type \"%.60s\" is not a known family (%s)",
                             model_type, some_families(arena));
    return mcp_json_fail(config, err,
                         "model_type \"%.60s\" is not a known family; the nearest is \"%s\" "
                         "(of %s)",
                         model_type, nearest, some_families(arena));
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
    if (mcp_json_has(config, "hidden_dim") && mcp_json_has(config, "ffn_embed_dim"))
        return mcp_json_fail(config, err,
                             "hidden_dim and ffn_embed_dim are another tool's keys (llm-analysis); "
                             "a config.json of Hugging Face has hidden_size and intermediate_size");
    return *out != NULL ? MCP_OK : fail_unknown(arena, config, model_type, err);
}

const char *mcp_family_foreign_class(struct mcp_arena *arena, struct mcp_json *config,
                                     const struct mcp_family *family)
{
    const char *class_name = class_of(config);
    return class_name[0] == '\0' || is_class_of(arena, class_name, family) ? NULL : class_name;
}
