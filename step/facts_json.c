/* step/facts_json.c: the facts of a layer type in a program file. */
#include "step/facts.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

struct entry {
    const char *key;
    size_t offset;
    bool is_int;
};

#define INT(name)                                                                                  \
    {                                                                                              \
#name, offsetof(struct mcp_layer_facts, name), true                                        \
    }
#define REAL(name)                                                                                 \
    {                                                                                              \
#name, offsetof(struct mcp_layer_facts, name), false                                       \
    }
static const struct entry entries[] = {
    INT(microbatch_size),
    INT(sequence_length),
    INT(sequence_local),
    INT(zigzag),
    INT(hidden_size),
    INT(heads),
    INT(kv_heads),
    INT(head_dim),
    INT(value_head_dim),
    INT(sliding_window),
    INT(attention_chunk_size),
    REAL(softmax_scale),
    INT(rotary_dim),
    REAL(rotary_base),
    REAL(rotary_factor),
    REAL(rotary_low_factor),
    REAL(rotary_high_factor),
    REAL(rotary_original_length),
    INT(norm_centers),
    INT(norm_biases),
    REAL(norm_epsilon),
    INT(gated),
    INT(num_experts),
    INT(local_experts),
    INT(experts_per_token),
    INT(raw_top_k),
    INT(vocab_size),
    INT(vocab_local),
    INT(positions_part),
    REAL(init_std),
    REAL(residual_init_std),
};
#undef INT
#undef REAL
enum { NUM_ENTRIES = sizeof entries / sizeof *entries };

void mcp_facts_to_json(const struct mcp_layer_facts *facts, struct mcp_json *type)
{
    struct mcp_json *json = mcp_json_set_object(type, "facts");
    for (size_t i = 0; i < NUM_ENTRIES; i++) {
        const void *at = (const char *)facts + entries[i].offset;
        if (entries[i].is_int)
            mcp_json_set_int(json, entries[i].key, *(const int64_t *)at);
        else
            mcp_json_set_double(json, entries[i].key, *(const double *)at);
    }
    mcp_json_set_string(json, "rotary_scaling", mcp_rotary_scaling_names[facts->rotary_scaling]);
    mcp_json_set_string(json, "activation", mcp_activation_names[facts->activation]);
    mcp_json_set_string(json, "lack", facts->lack);
}

static enum mcp_status read_int(struct mcp_json *json, const char *key, int64_t *out,
                                struct mcp_error *err)
{
    MCP_TRY(mcp_json_int64(json, key, out, err));
    if (*out < 0)
        return mcp_json_fail(json, err, "%s=%lld is negative", key, (long long)*out);
    return MCP_OK;
}

static enum mcp_status read_real(struct mcp_json *json, const char *key, double *out,
                                 struct mcp_error *err)
{
    MCP_TRY(mcp_json_double(json, key, out, err));
    if (!(*out >= 0) || !isfinite(*out))
        return mcp_json_fail(json, err, "%s=%g is no positive number", key, *out);
    return MCP_OK;
}

static enum mcp_status read_lack(struct mcp_json *json, char *out, size_t size,
                                 struct mcp_error *err)
{
    const char *text;
    MCP_TRY(mcp_json_string(json, "lack", &text, err));
    if (strlen(text) >= size)
        return mcp_json_fail(json, err, "lack \"%.20s..\" is longer than %zu bytes", text,
                             size - 1);
    memcpy(out, text, strlen(text) + 1);
    return MCP_OK;
}

enum mcp_status mcp_facts_from_json(struct mcp_json *type, struct mcp_layer_facts *out,
                                    struct mcp_error *err)
{
    struct mcp_json *json;
    int scaling, activation;
    MCP_TRY(mcp_json_object(type, "facts", &json, err));
    for (size_t i = 0; i < NUM_ENTRIES; i++) {
        void *at = (char *)out + entries[i].offset;
        MCP_TRY(entries[i].is_int ? read_int(json, entries[i].key, at, err)
                                  : read_real(json, entries[i].key, at, err));
    }
    MCP_TRY(mcp_json_choice(json, "rotary_scaling", mcp_rotary_scaling_names,
                            MCP_NUM_ROTARY_SCALINGS, &scaling, err));
    MCP_TRY(mcp_json_choice(json, "activation", mcp_activation_names, MCP_NUM_ACTIVATIONS,
                            &activation, err));
    out->rotary_scaling = (enum mcp_rotary_scaling)scaling;
    out->activation = (enum mcp_activation)activation;
    return read_lack(json, out->lack, sizeof out->lack, err);
}
