/* tests/core/test_model_traps.c: what counting tools got wrong, as public threads tell. */
#include "core/model.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

static void read_model(struct mcp_arena *arena, const char *config, struct mcp_model *model)
{
    struct mcp_json *json;
    struct mcp_error err = {0};
    char *text = mcp_strdup(arena, config);
    for (char *c = text; *c != '\0'; c++)
        *c = *c == '\'' ? '"' : *c;
    cr_assert(mcp_json_parse(arena, "config.json", text, strlen(text), &json, &err) == MCP_OK);
    cr_assert(mcp_model_from_json(arena, json, model, &err) == MCP_OK, "%s", err.text);
}

/* head_dim of the config counts, not hidden over heads; bytes a token in 16 bit. */
struct kv_case {
    char name[32];
    char config[400];
    int64_t kv_bytes;
};
ParameterizedTestParameters(model_traps, kv)
{
    static struct kv_case cases[] = {
        {"Qwen3-32B",
         "{'model_type':'qwen3','num_hidden_layers':64,'hidden_size':5120,'num_attention_heads':64,"
         "'num_key_value_heads':8,'head_dim':128,'intermediate_size':25600,'vocab_size':151936}",
         262144},
        {"gpt-oss-20b",
         "{'model_type':'gpt_oss','num_hidden_layers':24,'hidden_size':2880,"
         "'num_attention_heads':64,'num_key_value_heads':8,'head_dim':64,"
         "'intermediate_size':2880,'num_local_experts':32,'num_experts_per_tok':4,"
         "'vocab_size':201088}",
         49152},
        {"Gemma-3-270m",
         "{'model_type':'gemma3_text','num_hidden_layers':18,'hidden_size':640,"
         "'num_attention_heads':4,'num_key_value_heads':1,'head_dim':256,"
         "'intermediate_size':2048,'vocab_size':262144}",
         18 * 2 * 256 * 2},
        {"DeepSeek-V3: 576 a layer",
         "{'model_type':'deepseek_v3','num_hidden_layers':61,'hidden_size':7168,"
         "'num_attention_heads':128,'num_key_value_heads':128,'q_lora_rank':1536,"
         "'kv_lora_rank':512,'qk_nope_head_dim':128,'qk_rope_head_dim':64,'v_head_dim':128,"
         "'intermediate_size':18432,'moe_intermediate_size':2048,'n_routed_experts':256,"
         "'num_experts_per_tok':8,'vocab_size':129280}",
         61 * 576 * 2},
        {"Mamba keeps a state, no keys",
         "{'model_type':'mamba','num_hidden_layers':64,'hidden_size':2560,'state_size':16,"
         "'conv_kernel':4,'vocab_size':50280}",
         0},
    };
    return cr_make_param_array(struct kv_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct kv_case *c, model_traps, kv)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_model model;
    read_model(arena, c->config, &model);
    cr_expect(eq(i64, 2 * mcp_model_kv_elements_per_token(&model), c->kv_bytes), "%s", c->name);
    mcp_arena_free(arena);
}

/* States do not grow with the sequence: 5120 channels of 16, and 3 tokens of the
 * convolution, in each of 64 layers. */
Test(model_traps, states_are_constant)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_model model;
    read_model(arena,
               "{'model_type':'mamba','num_hidden_layers':64,'hidden_size':2560,'state_size':16,"
               "'conv_kernel':4,'vocab_size':50280}",
               &model);
    cr_expect(eq(i64, mcp_model_state_elements(&model), 64 * (5120 * 16 + 3 * 5120)));
    mcp_arena_free(arena);
}

/* Weights are all experts', what a token meets is not; the widths lie one level down. */
Test(model_traps, total_parameters_weigh_and_text_config_is_found)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_model model;
    read_model(arena,
               "{'model_type':'qwen3_5_moe','tie_word_embeddings':false,'text_config':{"
               "'model_type':'qwen3_5_moe_text','num_hidden_layers':48,'hidden_size':3072,"
               "'num_attention_heads':32,'num_key_value_heads':2,'head_dim':256,"
               "'linear_num_key_heads':16,'linear_num_value_heads':64,'linear_key_head_dim':128,"
               "'linear_value_head_dim':128,'linear_conv_kernel_dim':4,'num_experts':256,"
               "'num_experts_per_tok':8,'moe_intermediate_size':1024,"
               "'shared_expert_intermediate_size':1024,'vocab_size':248320}}",
               &model);
    const struct mcp_parameters count = mcp_model_parameters(&model);
    const double gigabytes = 0.58 * (double)mcp_parameters_total(&count) / 1e9;
    cr_expect(eq(int, model.hidden_size, 3072));
    cr_expect(gigabytes > 70 && gigabytes < 75, "%.1f GB", gigabytes);
    cr_expect(mcp_model_active_parameters(&model) < mcp_parameters_total(&count) / 10);
    mcp_arena_free(arena);
}

/* FFN widths and KV heads as given, not 4 h and h. */
Test(model_traps, llama_2_70b_by_part)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_model model;
    read_model(arena,
               "{'model_type':'llama','num_hidden_layers':80,'hidden_size':8192,"
               "'num_attention_heads':64,'num_key_value_heads':8,'intermediate_size':28672,"
               "'vocab_size':32000}",
               &model);
    const struct mcp_parameters layer = mcp_layer_parameters(&model, &model.kinds[0]);
    cr_expect(eq(i64, layer.mlp, 704643072));
    cr_expect(eq(i64, layer.attention, 150994944));
    mcp_arena_free(arena);
}

/* Eight experts of 768, not an MLP of 6144; causal attention half. FLOPs of one layer
 * and token: 2 (attention + router + experts) + 2 (s / 2) heads (d + d). */
Test(model_traps, qwen3_30b_a3b_flops)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_model model;
    read_model(arena,
               "{'model_type':'qwen3_moe','num_hidden_layers':48,'hidden_size':2048,"
               "'num_attention_heads':32,'num_key_value_heads':4,'head_dim':128,"
               "'intermediate_size':6144,'moe_intermediate_size':768,'num_experts':128,"
               "'num_experts_per_tok':8,'vocab_size':151936}",
               &model);
    const double experts = 37748736, router = 128.0 * 2048;
    const double attention = 2048.0 * (32 * 128 * 2 + 4 * 128 * 2);
    const double scores = 2.0 * 2048 * 32 * 256;
    const double got = mcp_layer_flops_per_token_forward(&model, &model.kinds[0], 4096);
    cr_expect(epsilon_eq(dbl, got, 2 * (attention + router + experts) + scores, 1e-3));
    mcp_arena_free(arena);
}

/* --- scans: multiply-adds per token by hand --- */

struct scan_case {
    char name[48];
    struct mcp_scan scan;
    double products;
};
ParameterizedTestParameters(model_traps, scans)
{
    static struct scan_case cases[] = {
        /* token by token: B with C once, and 5120 channels: x, and 2 x 16 states */
        {"Mamba", {false, 5120, 1, 16, 1, 1}, 16 + 5120 * (1 + 2 * 16)},
        /* arXiv 2405.21060 section 6: Q n a group; Q p + 2 n p a head */
        {"Mamba-2 of Nemotron-H 56B",
         {false, 256, 8, 256, 64, 128},
         8 * 128 * 256 + 256 * (128 * 64 + 2 * 256 * 64)},
        /* two products of keys a group; W and two of values, three of states a head */
        {"gated delta rule of Qwen3-Next",
         {true, 32, 16, 128, 128, 64},
         16 * 2 * 64 * 128 + 32 * (64 * 128 + 2 * 64 * 128 + 3 * 128 * 128)},
    };
    return cr_make_param_array(struct scan_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct scan_case *c, model_traps, scans)
{
    cr_expect(epsilon_eq(dbl, mcp_scan_products(&c->scan), c->products, 1e-6), "%s", c->name);
}

Test(model_traps, chunks_are_no_longer_than_sequences)
{
    const struct mcp_layer_kind kind = {.attention = MCP_ATTENTION_MAMBA2, .chunk_size = 256};
    cr_expect(eq(int, mcp_scan_chunk(&kind, 100), 100));
    cr_expect(eq(int, mcp_scan_chunk(&kind, 4096), 256));
}

/* --- pairs --- */

Test(model_traps, chosen_and_chunked_pairs)
{
    const struct mcp_layer_kind chosen = {.index_topk = 10}, chunked = {.attention_chunk_size = 10};
    cr_expect(eq(dbl, mcp_attention_pairs(&chosen, 100), 100 * 10 - 50));
    cr_expect(eq(dbl, mcp_attention_pairs(&chosen, 8), 32));
    cr_expect(eq(dbl, mcp_attention_pairs(&chunked, 100), 10 * 50));
    cr_expect(eq(dbl, mcp_attention_pairs(&chunked, 8), 32));
}
