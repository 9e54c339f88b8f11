/* core/model_megatron.c: Megatron-LM's arguments read as a model. */
#include "core/model_megatron.h"
#include "core/shell_words.h"
#include "core/text.h"

#include <string.h>

enum flag {
    NUM_LAYERS,
    HIDDEN_SIZE,
    FFN_HIDDEN_SIZE,
    NUM_ATTENTION_HEADS,
    NUM_QUERY_GROUPS,
    KV_CHANNELS,
    VOCAB_SIZE,
    MAKE_VOCAB_SIZE_DIVISIBLE_BY,
    MAX_POSITION_EMBEDDINGS,
    NUM_EXPERTS,
    MOE_ROUTER_TOPK,
    MOE_FFN_HIDDEN_SIZE,
    MOE_SHARED_EXPERT_INTERMEDIATE_SIZE,
    Q_LORA_RANK,
    KV_LORA_RANK,
    QK_HEAD_DIM,
    QK_POS_EMB_HEAD_DIM,
    V_HEAD_DIM,
    MTP_NUM_LAYERS,
    NUM_SIZES,
    /* switches */
    GROUP_QUERY_ATTENTION = NUM_SIZES,
    SWIGLU,
    DISABLE_BIAS_LINEAR,
    ADD_QKV_BIAS,
    QK_LAYERNORM,
    UNTIE,
    MULTI_LATENT_ATTENTION,
    USE_ROTARY,
    EXPERT_BIAS,
    SHARED_EXPERT_GATE,
    NUM_SWITCHES,
    /* words */
    NORMALIZATION = NUM_SWITCHES,
    POSITION_EMBEDDING_TYPE,
    TOKENIZER_TYPE,
    TOKENIZER_MODEL,
    MOE_LAYER_FREQ,
    WINDOW_SIZE,
    NUM_FLAGS
};

static const char *const flag_names[NUM_FLAGS] = {
    [NUM_LAYERS] = "num-layers",
    [HIDDEN_SIZE] = "hidden-size",
    [FFN_HIDDEN_SIZE] = "ffn-hidden-size",
    [NUM_ATTENTION_HEADS] = "num-attention-heads",
    [NUM_QUERY_GROUPS] = "num-query-groups",
    [KV_CHANNELS] = "kv-channels",
    [VOCAB_SIZE] = "vocab-size",
    [MAKE_VOCAB_SIZE_DIVISIBLE_BY] = "make-vocab-size-divisible-by",
    [MAX_POSITION_EMBEDDINGS] = "max-position-embeddings",
    [NUM_EXPERTS] = "num-experts",
    [MOE_ROUTER_TOPK] = "moe-router-topk",
    [MOE_FFN_HIDDEN_SIZE] = "moe-ffn-hidden-size",
    [MOE_SHARED_EXPERT_INTERMEDIATE_SIZE] = "moe-shared-expert-intermediate-size",
    [Q_LORA_RANK] = "q-lora-rank",
    [KV_LORA_RANK] = "kv-lora-rank",
    [QK_HEAD_DIM] = "qk-head-dim",
    [QK_POS_EMB_HEAD_DIM] = "qk-pos-emb-head-dim",
    [V_HEAD_DIM] = "v-head-dim",
    [MTP_NUM_LAYERS] = "mtp-num-layers",
    [GROUP_QUERY_ATTENTION] = "group-query-attention",
    [SWIGLU] = "swiglu",
    [DISABLE_BIAS_LINEAR] = "disable-bias-linear",
    [ADD_QKV_BIAS] = "add-qkv-bias",
    [QK_LAYERNORM] = "qk-layernorm",
    [UNTIE] = "untie-embeddings-and-output-weights",
    [MULTI_LATENT_ATTENTION] = "multi-latent-attention",
    [USE_ROTARY] = "use-rotary-position-embeddings",
    [EXPERT_BIAS] = "moe-router-enable-expert-bias",
    [SHARED_EXPERT_GATE] = "moe-shared-expert-gate",
    [NORMALIZATION] = "normalization",
    [POSITION_EMBEDDING_TYPE] = "position-embedding-type",
    [TOKENIZER_TYPE] = "tokenizer-type",
    [TOKENIZER_MODEL] = "tokenizer-model",
    [MOE_LAYER_FREQ] = "moe-layer-freq",
    [WINDOW_SIZE] = "window-size",
};

struct arguments {
    struct mcp_arena *arena;
    const char *file;
    const char *text[NUM_FLAGS]; /* NULL: absent */
    int size[NUM_SIZES];         /* 0: absent or open */
};

/* Flags --------------------------------------------------------------------- */

/* "--num-layers", "--num-layers:" or, in a YAML of keys, "num_layers:". */
static int flag_of(const char *word, size_t length)
{
    const bool dashes = length > 2 && strncmp(word, "--", 2) == 0;
    const bool colon = length > 0 && word[length - 1] == ':';
    if (!dashes && !colon)
        return -1;
    word += dashes ? 2 : 0;
    length -= (dashes ? 2u : 0u) + (colon ? 1u : 0u);
    for (int i = 0; i < NUM_FLAGS; i++) {
        size_t k = 0;
        while (k < length && flag_names[i][k] != '\0' &&
               (word[k] == flag_names[i][k] || (word[k] == '_' && flag_names[i][k] == '-')))
            k++;
        if (k == length && flag_names[i][k] == '\0')
            return i;
    }
    return -1;
}

static bool is_flag(const char *word)
{
    return mcp_starts_with(word, "--") || mcp_ends_with(word, ":");
}

/* A value without the quotes, commas and brackets of a list around it. */
static const char *plain_value(struct mcp_arena *arena, const char *word)
{
    while (*word == '"' || *word == '\'' || (*word == '[' && word[1] == '-'))
        word++;
    size_t length = strlen(word);
    const char *ends = strchr(word, '[') != NULL ? "\"'," : "\"',]"; /* a list's own bracket */
    while (length > 0 && strchr(ends, word[length - 1]) != NULL)
        length--;
    return mcp_strndup(arena, word, length);
}

static void read_flags(struct arguments *a, const struct mcp_words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        const char *word = plain_value(a->arena, words->items[i]);
        const char *equals = mcp_starts_with(word, "--") ? strchr(word, '=') : NULL;
        const size_t length = equals != NULL ? (size_t)(equals - word) : strlen(word);
        const int flag = flag_of(word, length);
        if (flag < 0)
            continue;
        const bool has_value = i + 1 < words->count && !is_flag(words->items[i + 1]);
        a->text[flag] = "true";
        if (equals != NULL)
            a->text[flag] = equals + 1;
        else if (has_value)
            a->text[flag] = plain_value(a->arena, words->items[i + 1]);
    }
}

static enum mcp_status fail(const struct arguments *a, struct mcp_error *err, enum flag flag,
                            const char *problem)
{
    return mcp_fail(err, MCP_FORMAT, "%s: --%s%s%s: %s", a->file, flag_names[flag],
                    a->text[flag] == NULL ? "" : " ",
                    a->text[flag] == NULL
                        ? ""
                        : mcp_printable(a->arena, mcp_format(a->arena, "%.80s", a->text[flag])),
                    problem);
}

static const char open_size[] = "nothing in the file says what that is";

static enum mcp_status read_size(struct arguments *a, enum flag flag, struct mcp_error *err)
{
    int64_t value;
    const char *text = a->text[flag];
    if (text == NULL || mcp_same(text, "null") || mcp_same(text, "None"))
        return MCP_OK;
    if (strchr(text, '$') != NULL) /* set_model() asks for positions where it needs them */
        return flag == MAX_POSITION_EMBEDDINGS ? MCP_OK : fail(a, err, flag, open_size);
    if (!mcp_parse_int64(text, &value) || value < 0 || value > INT32_MAX)
        return fail(a, err, flag, "not a number of 0 or more");
    a->size[flag] = (int)value;
    return MCP_OK;
}

static enum mcp_status require(const struct arguments *a, enum flag flag, struct mcp_error *err)
{
    if (a->size[flag] > 0)
        return MCP_OK;
    if (a->text[flag] == NULL)
        return fail(a, err, flag, "missing");
    return fail(a, err, flag,
                strchr(a->text[flag], '$') != NULL ? open_size : "at least 1 is needed");
}

static bool is_on(const struct arguments *a, enum flag flag)
{
    return a->text[flag] != NULL && !mcp_same(a->text[flag], "false") &&
           !mcp_same(a->text[flag], "False");
}

static int size_or(const struct arguments *a, enum flag flag, int otherwise)
{
    return a->size[flag] > 0 ? a->size[flag] : otherwise;
}

/* Which layers have experts: N, or lists that + joins and * repeats ----------- */

struct pattern {
    const char *at;
    unsigned char *layers; /* [count], at most MCP_MAX_LAYERS */
    size_t count;
    int depth;
    bool bad;
};

static int64_t read_number(struct pattern *p)
{
    int64_t value = 0;
    if (*p->at < '0' || *p->at > '9')
        p->bad = true;
    for (; *p->at >= '0' && *p->at <= '9'; p->at++)
        value = value > MCP_MAX_LAYERS ? value : value * 10 + (*p->at - '0');
    return value;
}

static void add_layer(struct pattern *p, unsigned char sparse)
{
    if (p->count == MCP_MAX_LAYERS)
        p->bad = true;
    else
        p->layers[p->count++] = sparse;
}

static void read_sum(struct pattern *p);

static void read_list(struct pattern *p)
{
    while (*p->at == '[' || *p->at == ',') {
        p->at++;
        add_layer(p, read_number(p) != 0);
    }
    p->bad = p->bad || *p->at != ']';
    p->at += *p->at == ']';
}

static void read_term(struct pattern *p)
{
    const size_t start = p->count;
    if (*p->at == '(' && p->depth < 8) {
        p->at++;
        p->depth++;
        read_sum(p);
        p->depth--;
        p->bad = p->bad || *p->at != ')';
        p->at += *p->at == ')';
    } else if (*p->at == '[') {
        read_list(p);
    } else {
        p->bad = true;
    }
    if (p->bad || *p->at != '*')
        return;
    p->at++;
    const int64_t times = read_number(p);
    const size_t length = p->count - start;
    p->count = times == 0 ? start : p->count;
    for (int64_t k = 1; k < times && !p->bad; k++)
        for (size_t i = 0; i < length; i++)
            add_layer(p, p->layers[start + i]);
}

static void read_sum(struct pattern *p)
{
    read_term(p);
    while (!p->bad && *p->at == '+') {
        p->at++;
        read_term(p);
    }
}

static const char *without_blanks(struct mcp_arena *arena, const char *text)
{
    struct mcp_text plain = mcp_text_new(arena);
    for (; *text != '\0'; text++)
        if (strchr(" \t'\"", *text) == NULL)
            mcp_text_append(&plain, text, 1);
    return plain.data;
}

static enum mcp_status read_pattern(const struct arguments *a, unsigned char *layers,
                                    struct mcp_error *err)
{
    const char *text = a->text[MOE_LAYER_FREQ];
    const int count = a->size[NUM_LAYERS];
    int64_t step = 1;
    if (text == NULL || mcp_parse_int64(text, &step)) {
        if (step < 1)
            return fail(a, err, MOE_LAYER_FREQ, "at least 1 is needed");
        for (int i = 0; i < count; i++)
            layers[i] = i % step == 0;
        return MCP_OK;
    }
    struct pattern p = {.at = without_blanks(a->arena, text),
                        .layers = MCP_ARRAY(a->arena, MCP_MAX_LAYERS, unsigned char)};
    read_sum(&p);
    if (p.bad || *p.at != '\0')
        return fail(a, err, MOE_LAYER_FREQ, "neither a number nor lists like ([0]*3+[1]*58)");
    if (p.count != (size_t)count)
        return fail(a, err, MOE_LAYER_FREQ,
                    mcp_format(a->arena, "%zu layers, but --num-layers is %d", p.count, count));
    memcpy(layers, p.layers, (size_t)count);
    return MCP_OK;
}

/* The vocabulary ------------------------------------------------------------ */

/* Tokens of published tokenizers, from the vocab_size of their models' config.json. */
static const struct {
    const char *part; /* of --tokenizer-model, or of --tokenizer-type */
    int vocab_size;
} tokenizers[] = {
    {"DeepSeek-V2", 102400}, {"DeepSeek-V3", 129280},    {"DeepSeek-R1", 129280},
    {"Kimi-K2", 163840},     {"Qwen3", 151936},          {"Qwen2", 151936},
    {"Mixtral", 32000},      {"Mistral-7B", 32000},      {"Llama-2", 32000},
    {"Llama-3", 128256},     {"Llama2Tokenizer", 32000}, {"GPT2BPETokenizer", 50257},
};

static int known_vocabulary(const char *name)
{
    for (size_t i = 0; name != NULL && i < MCP_COUNT_OF(tokenizers); i++)
        if (mcp_contains_ignoring_case(name, tokenizers[i].part))
            return tokenizers[i].vocab_size;
    return 0;
}

static enum mcp_status read_vocabulary(const struct arguments *a, int *out, struct mcp_error *err)
{
    const int64_t unit = size_or(a, MAKE_VOCAB_SIZE_DIVISIBLE_BY, 128);
    int64_t size = a->size[VOCAB_SIZE];
    if (size == 0)
        size = known_vocabulary(a->text[TOKENIZER_MODEL]);
    if (size == 0)
        size = known_vocabulary(a->text[TOKENIZER_TYPE]);
    if (size == 0)
        return fail(
            a, err, VOCAB_SIZE,
            mcp_format(a->arena,
                       "missing, and --tokenizer-model %.80s is not known: add "
                       "--vocab-size",
                       a->text[TOKENIZER_MODEL] == NULL ? "is missing" : a->text[TOKENIZER_MODEL]));
    size = (size + unit - 1) / unit * unit;
    if (size > 1 << 30)
        return fail(a, err, VOCAB_SIZE, "at most 2^30 are possible");
    *out = (int)size;
    return MCP_OK;
}

/* The model ----------------------------------------------------------------- */

static enum mcp_status set_attention(const struct arguments *a, struct mcp_layer_kind *kind,
                                     struct mcp_error *err)
{
    const int heads = a->size[NUM_ATTENTION_HEADS], hidden = a->size[HIDDEN_SIZE];
    const bool biases = !is_on(a, DISABLE_BIAS_LINEAR);
    kind->num_attention_heads = kind->num_kv_heads = heads;
    kind->attention_bias = biases || is_on(a, ADD_QKV_BIAS);
    kind->attention_output_bias = biases;
    if (is_on(a, MULTI_LATENT_ATTENTION)) {
        const int64_t dim =
            (int64_t)size_or(a, QK_HEAD_DIM, 128) + size_or(a, QK_POS_EMB_HEAD_DIM, 64);
        if (dim > 65536)
            return fail(a, err, QK_HEAD_DIM, "at most 65536 are possible");
        kind->attention = MCP_ATTENTION_LATENT;
        kind->head_dim = (int)dim;
        kind->qk_rope_head_dim = size_or(a, QK_POS_EMB_HEAD_DIM, 64);
        kind->value_head_dim = size_or(a, V_HEAD_DIM, 128);
        kind->q_lora_rank = a->size[Q_LORA_RANK];
        kind->kv_lora_rank = size_or(a, KV_LORA_RANK, 32);
        return MCP_OK;
    }
    if (a->size[KV_CHANNELS] == 0 && hidden % heads != 0)
        return fail(a, err, NUM_ATTENTION_HEADS,
                    mcp_format(a->arena,
                               "does not divide --hidden-size %d, and --kv-channels is "
                               "missing",
                               hidden));
    kind->head_dim = kind->value_head_dim = size_or(a, KV_CHANNELS, hidden / heads);
    kind->qk_norm = is_on(a, QK_LAYERNORM);
    if (is_on(a, GROUP_QUERY_ATTENTION))
        kind->num_kv_heads = size_or(a, NUM_QUERY_GROUPS, 1);
    return MCP_OK;
}

/* Megatron's own widths: 4 h, or two thirds of it in steps of 64 for SwiGLU. */
static int ffn_of(const struct arguments *a)
{
    const int64_t wide = 4 * (int64_t)a->size[HIDDEN_SIZE];
    const int64_t usual = is_on(a, SWIGLU) ? wide * 2 / 3 / 64 * 64 : wide;
    return size_or(a, FFN_HIDDEN_SIZE, usual > INT32_MAX ? INT32_MAX : (int)usual);
}

static void set_dense(const struct arguments *a, struct mcp_layer_kind *kind)
{
    kind->mlp = MCP_MLP_DENSE;
    kind->gated_mlp = is_on(a, SWIGLU);
    kind->mlp_bias = !is_on(a, DISABLE_BIAS_LINEAR);
    kind->ffn_hidden_size = ffn_of(a);
}

static void set_experts(const struct arguments *a, struct mcp_layer_kind *kind)
{
    kind->mlp = MCP_MLP_EXPERTS;
    kind->gated_mlp = is_on(a, SWIGLU);
    kind->expert_bias = !is_on(a, DISABLE_BIAS_LINEAR);
    kind->num_experts = a->size[NUM_EXPERTS];
    kind->experts_per_token = size_or(a, MOE_ROUTER_TOPK, 2);
    kind->moe_ffn_hidden_size = size_or(a, MOE_FFN_HIDDEN_SIZE, ffn_of(a));
    kind->shared_expert_ffn_hidden_size = a->size[MOE_SHARED_EXPERT_INTERMEDIATE_SIZE];
    kind->shared_expert_gate = is_on(a, SHARED_EXPERT_GATE);
    kind->router_correction_bias = is_on(a, EXPERT_BIAS);
}

static enum mcp_status set_layers(const struct arguments *a, struct mcp_model *model,
                                  struct mcp_error *err)
{
    struct mcp_layer_kind dense = {0};
    unsigned char *sparse = MCP_ARRAY(a->arena, model->num_layers, unsigned char);
    MCP_TRY(set_attention(a, &dense, err));
    struct mcp_layer_kind experts = dense;
    set_dense(a, &dense);
    set_experts(a, &experts);
    if (a->size[NUM_EXPERTS] > 0)
        MCP_TRY(read_pattern(a, sparse, err));
    model->layer_kind = MCP_ARRAY(a->arena, model->num_layers, unsigned char);
    for (int layer = 0; layer < model->num_layers; layer++)
        model->layer_kind[layer] =
            (unsigned char)mcp_model_add_kind(model, sparse[layer] ? &experts : &dense);
    model->num_mtp_layers = a->size[MTP_NUM_LAYERS];
    model->mtp_kind = model->num_mtp_layers > 0 ? model->layer_kind[model->num_layers - 1] : 0;
    return MCP_OK;
}

static enum mcp_status set_norm(const struct arguments *a, struct mcp_model *model,
                                struct mcp_error *err)
{
    const char *norm = a->text[NORMALIZATION];
    model->norm = mcp_same(norm, "RMSNorm") ? MCP_RMSNORM : MCP_LAYERNORM;
    if (norm != NULL && model->norm != MCP_RMSNORM && !mcp_same(norm, "LayerNorm"))
        return fail(a, err, NORMALIZATION, "neither LayerNorm nor RMSNorm");
    return MCP_OK;
}

static enum mcp_status set_positions(const struct arguments *a, struct mcp_model *model,
                                     struct mcp_error *err)
{
    static const struct {
        const char *name;
        enum mcp_position_kind kind;
    } types[] = {
        {"learned_absolute", MCP_POSITION_LEARNED},
        {"rope", MCP_POSITION_ROTARY},
        {"mrope", MCP_POSITION_ROTARY},
        {"yarn", MCP_POSITION_ROTARY},
        {"none", MCP_POSITION_NONE},
    };
    const char *type = a->text[POSITION_EMBEDDING_TYPE];
    size_t k = 0;
    while (type != NULL && k < MCP_COUNT_OF(types) && !mcp_same(type, types[k].name))
        k++;
    if (k == MCP_COUNT_OF(types))
        return fail(a, err, POSITION_EMBEDDING_TYPE,
                    "none of learned_absolute, rope, mrope, yarn, none");
    model->position = types[k].kind;
    if (is_on(a, USE_ROTARY) && model->position == MCP_POSITION_LEARNED)
        model->position = MCP_POSITION_ROTARY;
    return model->position == MCP_POSITION_LEARNED ? require(a, MAX_POSITION_EMBEDDINGS, err)
                                                   : MCP_OK;
}

static enum mcp_status set_model(const struct arguments *a, struct mcp_model *model,
                                 struct mcp_error *err)
{
    model->name = model->family = "megatron";
    model->num_layers = a->size[NUM_LAYERS];
    model->hidden_size = a->size[HIDDEN_SIZE];
    model->max_sequence_length = a->size[MAX_POSITION_EMBEDDINGS];
    MCP_TRY(set_norm(a, model, err));
    MCP_TRY(set_positions(a, model, err));
    model->tied_embeddings = !is_on(a, UNTIE);
    model->norms_per_layer = 2;
    return read_vocabulary(a, &model->vocab_size, err);
}

/* `open`: names that nothing sets. */
static const char *left_aside(const struct arguments *a, const char *open)
{
    struct mcp_text text = mcp_text_new(a->arena);
    if (a->text[WINDOW_SIZE] != NULL)
        mcp_text_add(&text, "--window-size (read as full attention)");
    if (open[0] != '\0')
        mcp_text_add(&text, "%svariables that nothing sets (%s)", text.length > 0 ? ", " : "",
                     mcp_printable(a->arena, open));
    return text.data;
}

enum mcp_status mcp_model_from_megatron(struct mcp_arena *arena, const char *file, const char *text,
                                        struct mcp_model *out, struct mcp_error *err)
{
    static const enum flag needed[] = {NUM_LAYERS, HIDDEN_SIZE, NUM_ATTENTION_HEADS};
    struct arguments a = {.arena = arena, .file = mcp_printable(arena, file)};
    const struct mcp_words words = mcp_shell_words(arena, text);
    if (words.count == MCP_MAX_WORDS)
        return mcp_fail(err, MCP_FORMAT, "%s: more than %d words", a.file, MCP_MAX_WORDS);
    read_flags(&a, &words);
    for (int flag = 0; flag < NUM_SIZES; flag++)
        MCP_TRY(read_size(&a, (enum flag)flag, err));
    for (size_t i = 0; i < MCP_COUNT_OF(needed); i++)
        MCP_TRY(require(&a, needed[i], err));
    if (a.size[NUM_LAYERS] > MCP_MAX_LAYERS)
        return fail(&a, err, NUM_LAYERS,
                    mcp_format(arena, "at most %d are possible", MCP_MAX_LAYERS));
    *out = (struct mcp_model){.name = "", .family = "", .source = "", .note = "", .ignored = ""};
    MCP_TRY(set_model(&a, out, err));
    MCP_TRY(set_layers(&a, out, err));
    out->ignored = left_aside(&a, words.open);
    return MCP_OK;
}

bool mcp_is_megatron(const char *text)
{
    static const char *const signs[] = {"--num-layers",
                                        "num-layers:", "num_layers:", "--hidden-size"};
    text += strspn(text, " \t\r\n");
    if (*text == '{')
        return false;
    for (size_t i = 0; i < MCP_COUNT_OF(signs); i++)
        if (strstr(text, signs[i]) != NULL)
            return true;
    return false;
}
