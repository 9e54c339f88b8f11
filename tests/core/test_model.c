/* tests/core/test_model.c: presets, our own format, and the counts. */
#include "core/model.h"
#include "core/preset.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

/* Published sizes; a name of the presets each. KV cache in bytes at 16 bit. */
struct preset_case {
    char name[24];
    int64_t parameters, active, kv_bytes_per_token;
};
static struct preset_case presets[] = {
    {"tiny", 229952, 229952, 512},
    {"gpt2", 124439808, 124439808, 36864},
    {"gpt3-175b", 174615846912, 174615846912, 4718592},
    {"gpt-22b", 22074273792, 22074273792, 1179648},
    {"gpt-39b", 39096041472, 39096041472, 1572864},
    {"gpt-100b", 101219225600, 101219225600, 3276800},
    {"gpt-530b", 529600819200, 529600819200, 8601600},
    {"gpt-1t", 1008038758400, 1008038758400, 13107200},
    {"article-34b", 33743970304, 33743970304, 196608},
    {"llama-3.1-8b", 8030261248, 8030261248, 131072},
    {"llama-3.1-70b", 70553706496, 70553706496, 327680},
    {"llama-3.1-405b", 405853388800, 405853388800, 516096},
    {"mixtral-8x7b", 46702792704, 12879925248, 131072},
    {"qwen3-32b", 32762123264, 32762123264, 262144},
    {"gemma-3-27b", 27009346304, 27009346304, 507904},
    {"nemotron-h-56b", 56324350464, 56324350464, 40960},
    {"qwen3-next-80b-a3b", 79674391296, 3874929408, 24576},
    {"jamba-1.5-mini", 51570323328, 12110311296, 16384},
    {"mamba-2.8b", 2768345600, 2768345600, 0},
    {"glm-5", 743911199232, 41784709632, 109824},
    {"minimax-01", 456089655296, 48403306496, 40960},
    {"qwen3-30b-a3b", 30532122624, 3353032704, 98304},
    {"qwen3-235b-a22b", 235093634560, 22190763520, 192512},
    {"deepseek-v2", 235741434880, 21375800320, 69120},
    {"moonlight-16b-a3b", 15960108544, 2914774528, 31104},
    {"deepseek-v3", 671026404352, 37552282624, 70272},
    {"gpt-oss-120b", 116829156672, 5711982912, 73728},
};
enum { NUM_PRESETS = (int)(sizeof presets / sizeof *presets) };

static struct mcp_model load(struct mcp_arena *arena, const char *name)
{
    struct mcp_error err = {0};
    struct mcp_model model;
    cr_assert(mcp_model_load(arena, name, &model, &err) == MCP_OK, "%s", err.text);
    return model;
}

ParameterizedTestParameters(model, preset)
{
    return cr_make_param_array(struct preset_case, presets, NUM_PRESETS);
}
ParameterizedTest(struct preset_case *c, model, preset)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_model model = load(arena, c->name);
    const struct mcp_parameters count = mcp_model_parameters(&model);
    cr_expect_str_eq(model.name, c->name);
    cr_expect(model.source[0] != '\0' && model.note[0] != '\0', "%s", c->name);
    cr_expect(eq(i64, mcp_parameters_total(&count), c->parameters), "%s", c->name);
    cr_expect(eq(i64, mcp_model_active_parameters(&model), c->active), "%s", c->name);
    cr_expect(eq(i64, 2 * mcp_model_kv_elements_per_token(&model), c->kv_bytes_per_token), "%s",
              c->name);
    mcp_arena_free(arena);
}

Test(model, every_preset_is_tested)
{
    cr_expect(eq(sz, mcp_preset_count("models"), (size_t)NUM_PRESETS));
}

ParameterizedTestParameters(model, layers_add_up)
{
    return cr_make_param_array(struct preset_case, presets, NUM_PRESETS);
}
ParameterizedTest(struct preset_case *c, model, layers_add_up)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_model model = load(arena, c->name);
    const struct mcp_parameters whole = mcp_model_parameters(&model);
    const int64_t outside = whole.embedding + whole.positions + whole.final_norm + whole.head;
    int64_t sum = outside, active = outside;
    double flops = 2.0 * model.hidden_size * (double)model.vocab_size;
    for (int layer = 0; layer < model.num_layers; layer++) {
        const struct mcp_layer_kind *kind = mcp_model_layer(&model, layer);
        const struct mcp_parameters count = mcp_layer_parameters(&model, kind);
        sum += mcp_parameters_total(&count);
        active += mcp_layer_active_parameters(&model, kind);
        flops += mcp_layer_flops_per_token_forward(&model, kind, 1024);
    }
    cr_expect(eq(i64, sum, mcp_parameters_total(&whole)), "%s", c->name);
    cr_expect(eq(i64, active, mcp_model_active_parameters(&model)), "%s", c->name);
    struct mcp_model no_mtp = model;
    no_mtp.num_mtp_layers = 0;
    cr_expect(fabs(flops / mcp_model_flops_per_token_forward(&no_mtp, 1024) - 1.0) < 1e-12, "%s",
              c->name);
    mcp_arena_free(arena);
}

ParameterizedTestParameters(model, round_trip)
{
    return cr_make_param_array(struct preset_case, presets, NUM_PRESETS);
}
ParameterizedTest(struct preset_case *c, model, round_trip)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_json *json, *first = mcp_json_new_object(arena),
                           *second = mcp_json_new_object(arena);
    struct mcp_model again;
    const struct mcp_model model = load(arena, c->name);
    mcp_model_to_json(&model, first);
    const char *text = mcp_json_text(arena, first);
    cr_assert(mcp_json_parse(arena, "text", text, strlen(text), &json, &err) == MCP_OK);
    cr_assert(mcp_model_from_json(arena, json, &again, &err) == MCP_OK, "%s", err.text);
    mcp_model_to_json(&again, second);
    cr_expect_str_eq(text, mcp_json_text(arena, second));
    for (int layer = 0; layer < model.num_layers; layer++)
        cr_expect(
            mcp_layer_kind_equal(mcp_model_layer(&model, layer), mcp_model_layer(&again, layer)),
            "%s, layer %d", c->name, layer);
    mcp_arena_free(arena);
}

/* Layers 0 0 1 2 1 2 1 2 0: runs are found again whatever their period. */
Test(model, uneven_patterns_survive_a_round_trip)
{
    static unsigned char pattern[9] = {0, 0, 1, 2, 1, 2, 1, 2, 0};
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_json *json = mcp_json_new_object(arena), *parsed;
    struct mcp_model model = load(arena, "tiny"), again;
    model.num_layers = 9;
    model.num_kinds = 3;
    model.kinds[1] = model.kinds[2] = model.kinds[0];
    model.kinds[1].sliding_window = 32;
    model.kinds[2].ffn_hidden_size = 64;
    model.layer_kind = pattern;
    mcp_model_to_json(&model, json);
    const char *text = mcp_json_text(arena, json);
    cr_assert(mcp_json_parse(arena, "text", text, strlen(text), &parsed, &err) == MCP_OK);
    cr_assert(mcp_model_from_json(arena, parsed, &again, &err) == MCP_OK, "%s", err.text);
    cr_expect(memcmp(again.layer_kind, pattern, sizeof pattern) == 0, "%s", text);
    mcp_arena_free(arena);
}

struct bad_case {
    char name[48];
    char more[200]; /* after schema and name */
    char kinds[200];
    enum mcp_status want;
    char says[64];
};
#define SIZES "\"num_layers\":4,\"hidden_size\":64,\"vocab_size\":100"
#define KIND "{\"num_attention_heads\":4,\"ffn_hidden_size\":128}"
ParameterizedTestParameters(model, file)
{
    static struct bad_case cases[] = {
        {"the least that is needed", SIZES, "[" KIND "]", MCP_OK, ""},
        {"two kinds", SIZES ",\"layers\":[{\"kinds\":[0,1],\"repeat\":2}]", "[" KIND "," KIND "]",
         MCP_OK, ""},
        {"derived facts are computed anew", SIZES ",\"parameters\":1,\"derived\":{\"a\":[1]}",
         "[" KIND "]", MCP_OK, ""},
        {"a misspelt key", SIZES ",\"norms_per_layr\":2", "[" KIND "]", MCP_FORMAT,
         "norms_per_layer"},
        {"a misspelt key of a kind", SIZES,
         "[{\"num_attention_heads\":4,\"ffn_hidden_size\":128,\"gated_mpl\":true}]", MCP_FORMAT,
         "gated_mlp"},
        {"no layers", "\"num_layers\":0,\"hidden_size\":64,\"vocab_size\":100", "[" KIND "]",
         MCP_INVALID, "num_layers=0 must lie in 1..65536"},
        {"no kinds", SIZES, "[]", MCP_FORMAT, "0 kinds"},
        {"a kind that is a number", SIZES, "[3]", MCP_FORMAT, "kinds"},
        {"kinds without layers", SIZES, "[" KIND "," KIND "]", MCP_FORMAT, "no \"layers\""},
        {"too few layers", SIZES ",\"layers\":[{\"kinds\":[0],\"repeat\":3}]", "[" KIND "]",
         MCP_FORMAT, "3 layers, but num_layers=4"},
        {"too many layers", SIZES ",\"layers\":[{\"kinds\":[0],\"repeat\":5}]", "[" KIND "]",
         MCP_FORMAT, "num_layers=4"},
        {"repeat beyond int", SIZES ",\"layers\":[{\"kinds\":[0,0,0],\"repeat\":2147483647}]",
         "[" KIND "]", MCP_FORMAT, "num_layers=4"},
        {"a kind that is not there", SIZES ",\"layers\":[{\"kinds\":[1],\"repeat\":4}]",
         "[" KIND "]", MCP_FORMAT, "kind 1, but there are 1"},
        {"MTP of a kind that is not there", SIZES ",\"num_mtp_layers\":1,\"mtp_kind\":1",
         "[" KIND "]", MCP_INVALID, "mtp_kind=1"},
        {"learned positions without a number", SIZES ",\"position\":\"learned\"", "[" KIND "]",
         MCP_INVALID, "max_sequence_length=0"},
        {"an unknown norm", SIZES ",\"norm\":\"rms\"", "[" KIND "]", MCP_FORMAT, "rmsnorm"},
        {"heads do not divide", SIZES, "[{\"num_attention_heads\":5,\"ffn_hidden_size\":128}]",
         MCP_FORMAT, "num_attention_heads=5 does not divide hidden_size=64"},
        {"kv heads do not divide", SIZES,
         "[{\"num_attention_heads\":4,\"num_kv_heads\":3,\"ffn_hidden_size\":128}]", MCP_INVALID,
         "num_kv_heads=3 does not divide num_attention_heads=4"},
        {"a dense layer without width", SIZES, "[{\"num_attention_heads\":4}]", MCP_INVALID,
         "ffn_hidden_size=0"},
        {"experts in a dense layer", SIZES,
         "[{\"num_attention_heads\":4,\"ffn_hidden_size\":128,\"num_experts\":4}]", MCP_INVALID,
         "num_experts=4"},
        {"experts without width", SIZES,
         "[{\"mlp\":\"experts\",\"num_attention_heads\":4,\"num_experts\":4}]", MCP_INVALID,
         "moe_ffn_hidden_size=0"},
        {"a rank in grouped attention", SIZES,
         "[{\"num_attention_heads\":4,\"ffn_hidden_size\":128,\"kv_lora_rank\":8}]", MCP_INVALID,
         "kv_lora_rank"},
        {"latent attention without rank", SIZES,
         "[{\"attention\":\"latent\",\"num_attention_heads\":4,\"ffn_hidden_size\":128}]",
         MCP_INVALID, "kv_lora_rank=0"},
        {"a rotary part larger than the head", SIZES,
         "[{\"attention\":\"latent\",\"num_attention_heads\":4,\"ffn_hidden_size\":128,"
         "\"kv_lora_rank\":8,\"qk_rope_head_dim\":17}]",
         MCP_INVALID, "qk_rope_head_dim=17"},
        {"too large in all", "\"num_layers\":65536,\"hidden_size\":4194304,\"vocab_size\":100",
         "[{\"num_attention_heads\":4096,\"ffn_hidden_size\":4194304,\"gated_mlp\":true}]",
         MCP_INVALID, "too large"},
    };
    return cr_make_param_array(struct bad_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct bad_case *c, model, file)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_json *json;
    struct mcp_model model;
    const char *text =
        mcp_format(arena, "{\"schema\":\"mcpplan.model/1\",\"name\":\"x\",%s,\"kinds\":%s}",
                   c->more, c->kinds);
    cr_assert(mcp_json_parse(arena, "x.json", text, strlen(text), &json, &err) == MCP_OK, "%s: %s",
              c->name, err.text);
    const enum mcp_status got = mcp_model_from_json(arena, json, &model, &err);
    cr_expect(eq(int, (int)got, (int)c->want), "%s: %s", c->name, err.text);
    cr_expect(strstr(err.text, c->says) != NULL, "%s: %s", c->name, err.text);
    mcp_arena_free(arena);
}

Test(model, another_schema_is_refused)
{
    static const char text[] = "{\"schema\":\"mcpplan.plan/1\"}";
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_json *json;
    struct mcp_model model;
    cr_assert(mcp_json_parse(arena, "x.json", text, strlen(text), &json, &err) == MCP_OK);
    cr_expect(mcp_model_from_json(arena, json, &model, &err) == MCP_FORMAT);
    cr_expect(strstr(err.text, "mcpplan.model/1") != NULL, "%s", err.text);
    mcp_arena_free(arena);
}

Test(model, an_unknown_preset_names_the_nearest)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_model model;
    cr_expect(mcp_model_load(arena, "lama-3.1-8b", &model, &err) == MCP_IO);
    cr_expect(strstr(err.text, "llama-3.1-8b") != NULL, "%s", err.text);
    mcp_arena_free(arena);
}

/* --- FLOPs --- */

/* Narayanan et al. (SC 2021), formula 2, forward part, with causal attention
 * counted half: 24 l h^2 (1 + s / 12h + V / 12lh) a token. */
struct gpt_case {
    char name[16];
};
ParameterizedTestParameters(model, gpt_flops)
{
    static struct gpt_case cases[] = {{"gpt-22b"},   {"gpt-39b"},  {"gpt-100b"},
                                      {"gpt3-175b"}, {"gpt-530b"}, {"gpt-1t"}};
    return cr_make_param_array(struct gpt_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct gpt_case *c, model, gpt_flops)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_model model = load(arena, c->name);
    const double l = model.num_layers, h = model.hidden_size, v = model.vocab_size, s = 2048.0;
    const double want = 24.0 * l * h * h * (1.0 + s / (12.0 * h) + v / (12.0 * l * h));
    const double got = mcp_model_flops_per_token_forward(&model, 2048);
    cr_expect(fabs(got / want - 1.0) < 1e-12, "%s: %g, want %g", c->name, got, want);
    mcp_arena_free(arena);
}

/* Megatron-Bridge's counter at 4096 tokens: 249.6 GFLOP a token in training, about
 * 260 with the MTP module. */
Test(model, deepseek_v3_costs_what_megatron_counts)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_model model = load(arena, "deepseek-v3");
    const double with_mtp = 3.0 * mcp_model_flops_per_token_forward(&model, 4096);
    model.num_mtp_layers = 0;
    const double without = 3.0 * mcp_model_flops_per_token_forward(&model, 4096);
    cr_expect(fabs(with_mtp / 260e9 - 1.0) < 0.01, "%g", with_mtp);
    cr_expect(fabs(without / 249.6e9 - 1.0) < 0.005, "%g", without);
    mcp_arena_free(arena);
}

/* Qwen3-30B-A3B: 8 experts of 3 x 2048 x 768, not the unused width 6144. */
Test(model, experts_cost_their_own_width)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_model model = load(arena, "qwen3-30b-a3b");
    const double h = 2048.0, attention = h * (32 + 4 + 4 + 32) * 128.0, scores = 4096 * 32 * 256.0;
    const double want = 2.0 * (attention + h * 128.0 + 37748736.0) + scores;
    const double got = mcp_layer_flops_per_token_forward(&model, &model.kinds[0], 4096);
    cr_expect(fabs(got / want - 1.0) < 1e-12, "%g, want %g", got, want);
    mcp_arena_free(arena);
}

/* The closed form against counting; it leaves out half the diagonal. */
struct pairs_case {
    int window, sequence_length;
};
ParameterizedTestParameters(model, pairs)
{
    static struct pairs_case cases[] = {{0, 1},      {0, 1000},    {1, 1000},   {128, 1000},
                                        {999, 1000}, {1000, 1000}, {5000, 1000}};
    return cr_make_param_array(struct pairs_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct pairs_case *c, model, pairs)
{
    const struct mcp_layer_kind kind = {.sliding_window = c->window};
    double counted = 0.0, diagonal = 0.0;
    for (int query = 0; query < c->sequence_length; query++) {
        const bool cut = c->window > 0 && query >= c->window;
        counted += cut ? c->window : query + 1;
        diagonal += cut ? 0.0 : 0.5;
    }
    const double got = mcp_attention_pairs(&kind, c->sequence_length);
    cr_expect(fabs(got - (counted - diagonal)) < 1e-6, "window %d of %d: %g, counted %g", c->window,
              c->sequence_length, got, counted);
}
