/* core/numerics.c: reading and writing a model's arithmetic. */
#include "core/numerics.h"

#include "core/text.h"

#include <stddef.h>

const char *const mcp_activation_names[MCP_NUM_ACTIVATIONS] = {"",     "silu", "gelu_tanh",
                                                               "gelu", "relu", "other"};
const char *const mcp_rotary_scaling_names[MCP_NUM_ROTARY_SCALINGS] = {"", "linear", "llama3",
                                                                       "other"};

struct number {
    const char *key;
    size_t offset;
    double low, high;
};

#define NUMBER(name, low, high)                                                                    \
    {                                                                                              \
#name, offsetof(struct mcp_numerics, name), low, high                                      \
    }
static const struct number numbers[] = {
    NUMBER(norm_epsilon, 0, 1),        NUMBER(rotary_base, 0, 1e12),
    NUMBER(rotary_frac, 0, 1),         NUMBER(rotary_factor, 0, 1e6),
    NUMBER(rotary_low_factor, 0, 1e6), NUMBER(rotary_high_factor, 0, 1e6),
    NUMBER(init_std, 0, 1e3),          NUMBER(rotary_original_length, 0, 1 << 30),
};
#undef NUMBER
enum { NUM_NUMBERS = sizeof numbers / sizeof *numbers };

static double *field(struct mcp_numerics *numerics, const struct number *number)
{
    return (double *)(void *)((char *)numerics + number->offset);
}

static enum mcp_status read_number(struct mcp_json *json, const char *key,
                                   const struct number *number, struct mcp_numerics *out,
                                   struct mcp_error *err)
{
    double value = *field(out, number);
    MCP_TRY(mcp_json_maybe_double(json, key, &value, err));
    if (!(value >= number->low && value <= number->high))
        return mcp_json_fail(json, err, "%s=%g must lie in %g..%g", key, value, number->low,
                             number->high);
    *field(out, number) = value;
    return MCP_OK;
}

/* Our own files ------------------------------------------------------------- */

enum mcp_status mcp_numerics_from_json(struct mcp_json *model, struct mcp_numerics *out,
                                       struct mcp_error *err)
{
    struct mcp_json *json;
    int activation = MCP_ACTIVATION_UNSAID, scaling = MCP_ROTARY_PLAIN;
    if (!mcp_json_has(model, "numerics"))
        return MCP_OK;
    MCP_TRY(mcp_json_object(model, "numerics", &json, err));
    for (size_t i = 0; i < NUM_NUMBERS; i++)
        MCP_TRY(read_number(json, numbers[i].key, &numbers[i], out, err));
    MCP_TRY(mcp_json_maybe_bool(json, "raw_top_k", &out->raw_top_k, err));
    if (mcp_json_has(json, "activation"))
        MCP_TRY(mcp_json_choice(json, "activation", mcp_activation_names, MCP_NUM_ACTIVATIONS,
                                &activation, err));
    if (mcp_json_has(json, "rotary_scaling"))
        MCP_TRY(mcp_json_choice(json, "rotary_scaling", mcp_rotary_scaling_names,
                                MCP_NUM_ROTARY_SCALINGS, &scaling, err));
    out->activation = (enum mcp_activation)activation;
    out->rotary_scaling = (enum mcp_rotary_scaling)scaling;
    return MCP_OK;
}

static bool is_plain(const struct mcp_numerics *numerics)
{
    struct mcp_numerics copy = *numerics;
    for (size_t i = 0; i < NUM_NUMBERS; i++)
        if (*field(&copy, &numbers[i]) > 0)
            return false;
    return !numerics->raw_top_k && numerics->activation == MCP_ACTIVATION_UNSAID &&
           numerics->rotary_scaling == MCP_ROTARY_PLAIN;
}

void mcp_numerics_to_json(const struct mcp_numerics *numerics, struct mcp_json *model)
{
    struct mcp_numerics copy = *numerics;
    if (is_plain(numerics))
        return;
    struct mcp_json *json = mcp_json_set_object(model, "numerics");
    for (size_t i = 0; i < NUM_NUMBERS; i++)
        if (*field(&copy, &numbers[i]) > 0)
            mcp_json_set_double(json, numbers[i].key, *field(&copy, &numbers[i]));
    if (numerics->raw_top_k)
        mcp_json_set_bool(json, "raw_top_k", true);
    if (numerics->activation != MCP_ACTIVATION_UNSAID)
        mcp_json_set_string(json, "activation", mcp_activation_names[numerics->activation]);
    if (numerics->rotary_scaling != MCP_ROTARY_PLAIN)
        mcp_json_set_string(json, "rotary_scaling",
                            mcp_rotary_scaling_names[numerics->rotary_scaling]);
}

/* Hugging Face's ------------------------------------------------------------ */

static const struct {
    const char *key;
    const char *number;
} spellings[] = {
    {"rms_norm_eps", "norm_epsilon"},
    {"layer_norm_epsilon", "norm_epsilon"},
    {"layer_norm_eps", "norm_epsilon"},
    {"norm_epsilon", "norm_epsilon"},
    {"rope_theta", "rotary_base"},
    {"rotary_emb_base", "rotary_base"},
    {"partial_rotary_factor", "rotary_frac"},
    {"rotary_pct", "rotary_frac"},
    {"initializer_range", "init_std"},
};

static const struct {
    const char *name;
    enum mcp_activation activation;
} activations[] = {
    {"silu", MCP_ACTIVATION_SILU},           {"swish", MCP_ACTIVATION_SILU},
    {"gelu", MCP_ACTIVATION_GELU},           {"gelu_new", MCP_ACTIVATION_GELU_TANH},
    {"gelu_fast", MCP_ACTIVATION_GELU_TANH}, {"gelu_pytorch_tanh", MCP_ACTIVATION_GELU_TANH},
    {"relu", MCP_ACTIVATION_RELU},
};

static const struct number *number_named(const char *name)
{
    size_t i = 0;
    while (!mcp_same(numbers[i].key, name))
        i++;
    return &numbers[i];
}

static enum mcp_status read_activation(struct mcp_json *config, struct mcp_numerics *out,
                                       struct mcp_error *err)
{
    static const char *const keys[] = {"hidden_act", "activation_function", "hidden_activation"};
    const char *name = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        MCP_TRY(mcp_json_maybe_string(config, keys[i], &name, err));
    if (name == NULL)
        return MCP_OK;
    out->activation = MCP_ACTIVATION_OTHER;
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (mcp_same(activations[i].name, name))
            out->activation = activations[i].activation;
    return MCP_OK;
}

static enum mcp_status read_scaling(struct mcp_json *config, struct mcp_numerics *out,
                                    struct mcp_error *err)
{
    static const struct {
        const char *key, *number;
    } keys[] = {{"factor", "rotary_factor"},
                {"low_freq_factor", "rotary_low_factor"},
                {"high_freq_factor", "rotary_high_factor"},
                {"original_max_position_embeddings", "rotary_original_length"}};
    struct mcp_json *scaling;
    const char *type = "default";
    if (!mcp_json_has(config, "rope_scaling"))
        return MCP_OK;
    MCP_TRY(mcp_json_object(config, "rope_scaling", &scaling, err));
    MCP_TRY(mcp_json_maybe_string(scaling, "type", &type, err));
    MCP_TRY(mcp_json_maybe_string(scaling, "rope_type", &type, err));
    out->rotary_scaling = mcp_same(type, "default")  ? MCP_ROTARY_PLAIN
                          : mcp_same(type, "linear") ? MCP_ROTARY_LINEAR
                          : mcp_same(type, "llama3") ? MCP_ROTARY_LLAMA3
                                                     : MCP_ROTARY_OTHER;
    if (out->rotary_scaling == MCP_ROTARY_LINEAR || out->rotary_scaling == MCP_ROTARY_LLAMA3)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            MCP_TRY(read_number(scaling, keys[i].key, number_named(keys[i].number), out, err));
    return MCP_OK;
}

enum mcp_status mcp_numerics_from_config(struct mcp_json *config, struct mcp_numerics *out,
                                         struct mcp_error *err)
{
    bool sums_to_one = !out->raw_top_k;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        MCP_TRY(read_number(config, spellings[i].key, number_named(spellings[i].number), out, err));
    MCP_TRY(mcp_json_maybe_bool(config, "norm_topk_prob", &sums_to_one, err));
    out->raw_top_k = !sums_to_one;
    MCP_TRY(read_activation(config, out, err));
    return read_scaling(config, out, err);
}
