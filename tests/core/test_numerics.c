/* tests/core/test_numerics.c: a model's arithmetic, from config.json and our own files. */
#include "core/model.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

#define LLAMA                                                                                      \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":8,"                         \
    "\"num_attention_heads\":2,\"intermediate_size\":8,\"vocab_size\":9"

struct case_config {
    char name[40];
    char keys[400]; /* after a Llama's shapes */
    enum mcp_status status;
    char says[40];
    struct mcp_numerics want;
};

ParameterizedTestParameters(numerics, config)
{
    static struct case_config cases[] = {
        {"nothing said", "", MCP_OK, "", {.norm_epsilon = 0}},
        {"norm, base, activation",
         ",\"rms_norm_eps\":1e-06,\"rope_theta\":500000.0,\"hidden_act\":\"silu\","
         "\"initializer_range\":0.01",
         MCP_OK,
         "",
         {.norm_epsilon = 1e-6,
          .rotary_base = 500000,
          .activation = MCP_ACTIVATION_SILU,
          .init_std = 0.01}},
        {"other spellings",
         ",\"layer_norm_epsilon\":0.001,\"activation_function\":\"gelu_new\",\"rotary_pct\":0.25",
         MCP_OK,
         "",
         {.norm_epsilon = 1e-3, .rotary_frac = 0.25, .activation = MCP_ACTIVATION_GELU_TANH}},
        {"Llama 3's scaling",
         ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
         "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}",
         MCP_OK,
         "",
         {.rotary_scaling = MCP_ROTARY_LLAMA3,
          .rotary_factor = 8,
          .rotary_low_factor = 1,
          .rotary_high_factor = 4,
          .rotary_original_length = 8192}},
        {"a scaling of another kind",
         ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}",
         MCP_OK,
         "",
         {.rotary_scaling = MCP_ROTARY_OTHER}},
        {"an activation of another kind",
         ",\"hidden_act\":\"xielu\"",
         MCP_OK,
         "",
         {.activation = MCP_ACTIVATION_OTHER}},
        {"raw shares", ",\"norm_topk_prob\":false", MCP_OK, "", {.raw_top_k = true}},
        {"null is unsaid",
         ",\"rope_scaling\":null,\"rope_theta\":null",
         MCP_OK,
         "",
         {.norm_epsilon = 0}},
        {"a negative base", ",\"rope_theta\":-1", MCP_FORMAT, "rope_theta=-1", {.norm_epsilon = 0}},
        {"text for a number",
         ",\"rms_norm_eps\":\"small\"",
         MCP_FORMAT,
         "rms_norm_eps",
         {.norm_epsilon = 0}},
    };
    return cr_make_param_array(struct case_config, cases, sizeof cases / sizeof *cases);
}

static enum mcp_status parse(struct mcp_arena *arena, const char *text, struct mcp_model *out,
                             struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_json_parse(arena, "config.json", text, strlen(text), &json, err));
    return mcp_model_from_json(arena, json, out, err);
}

static bool same(const struct mcp_numerics *a, const struct mcp_numerics *b)
{
    return a->norm_epsilon == b->norm_epsilon && a->rotary_base == b->rotary_base &&
           a->rotary_frac == b->rotary_frac && a->rotary_factor == b->rotary_factor &&
           a->rotary_low_factor == b->rotary_low_factor &&
           a->rotary_high_factor == b->rotary_high_factor &&
           a->rotary_original_length == b->rotary_original_length && a->init_std == b->init_std &&
           a->raw_top_k == b->raw_top_k && a->activation == b->activation &&
           a->rotary_scaling == b->rotary_scaling;
}

/* Read, and written into our own format and read again. */
ParameterizedTest(struct case_config *c, numerics, config)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_model model, back;
    struct mcp_error err = {""};
    enum mcp_status status = parse(arena, mcp_format(arena, LLAMA "%s}", c->keys), &model, &err);
    cr_assert(eq(int, (int)status, (int)c->status), "%s: %s", c->name, err.text);
    cr_expect(strstr(err.text, c->says) != NULL, "%s: %s", c->name, err.text);
    if (status == MCP_OK) {
        cr_expect(same(&model.numerics, &c->want), "%s", c->name);
        struct mcp_json *own = mcp_json_new_object(arena);
        mcp_model_to_json(&model, own);
        cr_assert(parse(arena, mcp_json_text(arena, own), &back, &err) == MCP_OK, "%s: %s", c->name,
                  err.text);
        cr_expect(same(&back.numerics, &c->want), "%s, written and read", c->name);
    }
    mcp_arena_free(arena);
}
