/* tests/core/test_model_hf.c: config.json of each family, good and bad. */
#include "core/model.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum mcp_status read_text(struct mcp_arena *arena, const char *text, size_t length,
                                 struct mcp_model *model, struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_json_parse(arena, "config.json", text, length, &json, err));
    return mcp_model_from_json(arena, json, model, err);
}

/* One config a family. Totals are those of the published checkpoints of the same
 * shape, except where a note says that the sum was made by hand. */
struct family_case {
    char name[64];
    char config[900];
    int64_t parameters, active;
};
ParameterizedTestParameters(model_hf, family)
{
    static struct family_case cases[] = {
        {"gpt2 124M: old names, tied, 4 h",
         "{'model_type':'gpt2','n_layer':12,'n_embd':768,'n_head':12,'n_positions':1024,"
         "'n_inner':null,'vocab_size':50257}",
         124439808, 124439808},
        {"llama 3.1 8B",
         "{'model_type':'llama','num_hidden_layers':32,'hidden_size':4096,'num_attention_heads':32,"
         "'num_key_value_heads':8,'intermediate_size':14336,'vocab_size':128256,"
         "'attention_bias':false,'mlp_bias':false,'tie_word_embeddings':false}",
         8030261248, 8030261248},
        /* 2 (4 h^2 + 4 h + 3 h f + 2 f + h + 2 h) + v h + h; h 64, f 128, v 100 */
        {"llama with every bias, tied, multi-head",
         "{'model_type':'llama','num_hidden_layers':2,'hidden_size':64,'num_attention_heads':4,"
         "'intermediate_size':128,'vocab_size':100,'attention_bias':true,'mlp_bias':true,"
         "'tie_word_embeddings':true}",
         89792, 89792},
        {"mistral 7B: 8 key-value heads by default",
         "{'model_type':'mistral','num_hidden_layers':32,'hidden_size':4096,"
         "'num_attention_heads':32,'intermediate_size':14336,'vocab_size':32000}",
         7241732096, 7241732096},
        {"mixtral 8x7B: intermediate_size is an expert's",
         "{'model_type':'mixtral','num_hidden_layers':32,'hidden_size':4096,"
         "'num_attention_heads':32,'num_key_value_heads':8,'intermediate_size':14336,"
         "'num_local_experts':8,'num_experts_per_tok':2,'vocab_size':32000}",
         46702792704, 12879925248},
        {"qwen2 7B: Q, K, V biases",
         "{'model_type':'qwen2','num_hidden_layers':28,'hidden_size':3584,'num_attention_heads':28,"
         "'num_key_value_heads':4,'intermediate_size':18944,'vocab_size':152064}",
         7615616512, 7615616512},
        {"qwen2_moe A2.7B: gated shared expert",
         "{'model_type':'qwen2_moe','num_hidden_layers':24,'hidden_size':2048,"
         "'num_attention_heads':16,'num_key_value_heads':16,'intermediate_size':5632,"
         "'moe_intermediate_size':1408,'shared_expert_intermediate_size':5632,'num_experts':60,"
         "'num_experts_per_tok':4,'decoder_sparse_step':1,'vocab_size':151936}",
         14315784192, 2689173504},
        {"qwen3 32B: head_dim is not hidden / heads",
         "{'model_type':'qwen3','num_hidden_layers':64,'hidden_size':5120,'num_attention_heads':64,"
         "'num_key_value_heads':8,'head_dim':128,'intermediate_size':25600,'vocab_size':151936}",
         32762123264, 32762123264},
        {"qwen3_moe 30B-A3B: unused intermediate_size",
         "{'model_type':'qwen3_moe','num_hidden_layers':48,'hidden_size':2048,"
         "'num_attention_heads':32,'num_key_value_heads':4,'head_dim':128,'intermediate_size':6144,"
         "'moe_intermediate_size':768,'num_experts':128,'num_experts_per_tok':8,"
         "'decoder_sparse_step':1,'mlp_only_layers':[],'vocab_size':151936}",
         30532122624, 3353032704},
        {"deepseek_v2 cut to 2 layers: shared experts",
         "{'model_type':'deepseek_v2','num_hidden_layers':2,'hidden_size':2560,"
         "'num_attention_heads':128,'q_lora_rank':1536,'kv_lora_rank':512,'qk_nope_head_dim':128,"
         "'qk_rope_head_dim':64,'v_head_dim':128,'intermediate_size':12288,"
         "'moe_intermediate_size':1536,'n_routed_experts':16,'n_shared_experts':2,"
         "'num_experts_per_tok':6,'first_k_dense_replace':1,'vocab_size':102400}",
         1034805760, 916840960},
        {"deepseek_v3: the MTP module is no part of 671 B",
         "{'model_type':'deepseek_v3','num_hidden_layers':61,'hidden_size':7168,"
         "'num_attention_heads':128,'num_key_value_heads':128,'q_lora_rank':1536,"
         "'kv_lora_rank':512,'qk_nope_head_dim':128,'qk_rope_head_dim':64,'v_head_dim':128,"
         "'intermediate_size':18432,'moe_intermediate_size':2048,'n_routed_experts':256,"
         "'n_shared_experts':1,'num_experts_per_tok':8,'first_k_dense_replace':3,"
         "'moe_layer_freq':1,'num_nextn_predict_layers':1,'vocab_size':129280}",
         671026404352, 37552282624},
        {"kimi_k2 is laid out like deepseek_v3",
         "{'model_type':'kimi_k2','num_hidden_layers':61,'hidden_size':7168,"
         "'num_attention_heads':64,'q_lora_rank':1536,'kv_lora_rank':512,'qk_nope_head_dim':128,"
         "'qk_rope_head_dim':64,'v_head_dim':128,'intermediate_size':18432,"
         "'moe_intermediate_size':2048,'n_routed_experts':384,'n_shared_experts':1,"
         "'num_experts_per_tok':8,'first_k_dense_replace':1,'vocab_size':163840}",
         1026408209408, 32861477888},
        {"gpt_oss 120B: sinks, biases, windows by rule",
         "{'model_type':'gpt_oss','num_hidden_layers':36,'hidden_size':2880,"
         "'num_attention_heads':64,'num_key_value_heads':8,'head_dim':64,'intermediate_size':2880,"
         "'num_local_experts':128,'num_experts_per_tok':4,'experts_per_token':4,"
         "'sliding_window':128,'vocab_size':201088}",
         116829156672, 5711982912},
        {"without model_type the class tells the family",
         "{'architectures':['Qwen3MoeForCausalLM'],'num_hidden_layers':48,'hidden_size':2048,"
         "'num_attention_heads':32,'num_key_value_heads':4,'head_dim':128,"
         "'moe_intermediate_size':768,'num_experts':128,'num_experts_per_tok':8,"
         "'intermediate_size':6144,'vocab_size':151936}",
         30532122624, 3353032704},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (char *c = cases[i].config; *c != '\0'; c++)
            *c = *c == '\'' ? '"' : *c;
    return cr_make_param_array(struct family_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct family_case *c, model_hf, family)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_model model;
    cr_assert(read_text(arena, c->config, strlen(c->config), &model, &err) == MCP_OK, "%s: %s",
              c->name, err.text);
    const struct mcp_parameters count = mcp_model_parameters(&model);
    cr_expect(eq(i64, mcp_parameters_total(&count), c->parameters), "%s", c->name);
    cr_expect(eq(i64, mcp_model_active_parameters(&model), c->active), "%s", c->name);
    mcp_arena_free(arena);
}

/* What stands between a llama config of 2 layers and each mistake. */
#define LLAMA(more)                                                                                \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_attention_heads\":4,"                 \
    "\"intermediate_size\":128,\"vocab_size\":100" more "}"
#define WITH_HIDDEN(more) LLAMA(",\"hidden_size\":64" more)
#define DENSE_LLAMA(more)                                                                          \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128" more "}"

struct bad_case {
    char name[48];
    char config[420];
    enum mcp_status want;
    char says[72];
};
ParameterizedTestParameters(model_hf, bad)
{
    static struct bad_case cases[] = {
        {"empty", "", MCP_FORMAT, "empty"},
        {"white space", " \n\t ", MCP_FORMAT, "empty"},
        {"an array", "[1]", MCP_FORMAT, "an object"},
        {"a number", "12", MCP_FORMAT, "an object"},
        {"text after the end", WITH_HIDDEN("") " x", MCP_FORMAT, "line 1"},
        {"negative", LLAMA(",\"hidden_size\":-4096"), MCP_FORMAT, "hidden_size: got -4096"},
        {"zero", LLAMA(",\"hidden_size\":0"), MCP_FORMAT, "hidden_size is 0"},
        {"fractional", LLAMA(",\"hidden_size\":4096.5"), MCP_FORMAT, "hidden_size: got 4096.5"},
        {"an integer as a fraction", LLAMA(",\"hidden_size\":64.0"), MCP_FORMAT, "an integer"},
        {"a string", LLAMA(",\"hidden_size\":\"4096\""), MCP_FORMAT, "hidden_size: got \"4096\""},
        {"true", LLAMA(",\"hidden_size\":true"), MCP_FORMAT, "hidden_size: got true"},
        {"null", LLAMA(",\"hidden_size\":null"), MCP_FORMAT, "missing or null"},
        {"a list", LLAMA(",\"hidden_size\":[64]"), MCP_FORMAT, "hidden_size: got an array"},
        {"1e999", LLAMA(",\"hidden_size\":1e999"), MCP_FORMAT, "line 1"},
        {"minus zero", LLAMA(",\"hidden_size\":-0"), MCP_FORMAT, "hidden_size is 0"},
        {"NaN", LLAMA(",\"hidden_size\":NaN"), MCP_FORMAT, "NaN"},
        {"Infinity", LLAMA(",\"hidden_size\":Infinity"), MCP_FORMAT, "Infinity"},
        {"20 digits", LLAMA(",\"hidden_size\":99999999999999999999"), MCP_FORMAT, "line 1"},
        {"leading zero", LLAMA(",\"hidden_size\":064"), MCP_FORMAT, "line 1"},
        {"hexadecimal", LLAMA(",\"hidden_size\":0x40"), MCP_FORMAT, "line 1"},
        {"2^40", LLAMA(",\"hidden_size\":1099511627776"), MCP_FORMAT, "from 0 to 2147483647"},
        {"2^31 - 1", LLAMA(",\"hidden_size\":2147483644"), MCP_INVALID, "hidden_size=2147483644"},
        {"a key twice", WITH_HIDDEN(",\"hidden_size\":128"), MCP_FORMAT, "duplicate"},
        {"two names disagree", WITH_HIDDEN(",\"n_embd\":128"), MCP_FORMAT,
         "hidden_size is 64 but n_embd is 128"},
        {"a misspelt key", LLAMA(",\"hiden_size\":64"), MCP_FORMAT, "did \"hiden_size\" mean it?"},
        {"another tool's names", LLAMA(",\"hidden_dim\":64"), MCP_FORMAT, "hidden_dim"},
        {"heads do not divide", LLAMA(",\"hidden_size\":66"), MCP_FORMAT, "64 and 68"},
        {"kv heads do not divide", WITH_HIDDEN(",\"num_key_value_heads\":3"), MCP_INVALID,
         "the nearest that does is 2"},
        {"no kv heads", WITH_HIDDEN(",\"num_key_value_heads\":0"), MCP_INVALID, "num_kv_heads=0"},
        {"head_dim 0", WITH_HIDDEN(",\"head_dim\":0"), MCP_INVALID, "head_dim=0"},
        {"a bias that is a number", WITH_HIDDEN(",\"attention_bias\":1"), MCP_FORMAT,
         "attention_bias"},
        {"a billion layers",
         DENSE_LLAMA(",\"num_hidden_layers\":1000000000,\"num_attention_heads\":4,"
                     "\"vocab_size\":100"),
         MCP_FORMAT, "at most 65536"},
        {"products beyond 2^63",
         "{\"model_type\":\"llama\",\"hidden_size\":4194304,\"intermediate_size\":4194304,"
         "\"num_hidden_layers\":65536,\"num_attention_heads\":65536,\"vocab_size\":1073741824}",
         MCP_INVALID, "too large"},
        {"widths whose product is beyond 2^63",
         "{\"model_type\":\"mixtral\",\"hidden_size\":2147483647,\"intermediate_size\":2147483647,"
         "\"num_hidden_layers\":2,\"num_attention_heads\":2147483647,\"vocab_size\":2147483647,"
         "\"num_local_experts\":2147483647,\"num_experts_per_tok\":1}",
         MCP_INVALID, "must lie in"},
        {"shared experts beyond int",
         "{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":2,\"hidden_size\":64,"
         "\"num_attention_heads\":4,\"kv_lora_rank\":8,\"qk_nope_head_dim\":8,"
         "\"qk_rope_head_dim\":8,\"v_head_dim\":8,\"intermediate_size\":128,"
         "\"moe_intermediate_size\":2147483647,\"n_routed_experts\":4,"
         "\"n_shared_experts\":2147483647,\"num_experts_per_tok\":1,\"vocab_size\":100}",
         MCP_FORMAT, "n_shared_experts"},
        {"more experts a token than there are",
         "{\"model_type\":\"mixtral\",\"num_hidden_layers\":2,\"hidden_size\":64,"
         "\"num_attention_heads\":8,\"intermediate_size\":128,\"num_local_experts\":4,"
         "\"num_experts_per_tok\":5,\"vocab_size\":100}",
         MCP_INVALID, "experts_per_token=5"},
        {"a dense layer that does not exist",
         "{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":2,\"hidden_size\":64,"
         "\"num_attention_heads\":4,\"intermediate_size\":128,\"moe_intermediate_size\":32,"
         "\"num_experts\":4,\"num_experts_per_tok\":1,\"mlp_only_layers\":[7],\"vocab_size\":100}",
         MCP_FORMAT, "layer 7"},
        {"layer_types of another length", WITH_HIDDEN(",\"layer_types\":[\"full_attention\"]"),
         MCP_FORMAT, "there are 2 layers"},
        {"layer_types of another kind",
         WITH_HIDDEN(",\"layer_types\":[\"full_attention\",\"linear_attention\"]"), MCP_FORMAT,
         "layer 1 is neither"},
        {"a family nobody knows", "{\"model_type\":\"transmogrifier\"}", MCP_FORMAT,
         "not a known family (gpt2, llama"},
        {"a misspelt family", "{\"model_type\":\"mixtrall\"}", MCP_FORMAT,
         "nearest is \"mixtral\""},
        {"a family that is a number", "{\"model_type\":7}", MCP_FORMAT, "model_type: got 7"},
        {"no family", "{\"hidden_size\":64}", MCP_FORMAT, "is this a config.json?"},
        {"an encoder", "{\"model_type\":\"bert\"}", MCP_FORMAT, "only decoder-only models"},
        {"an encoder by its class", "{\"architectures\":[\"RobertaForMaskedLM\"]}", MCP_FORMAT,
         "only decoder-only models"},
        {"an encoder-decoder", "{\"model_type\":\"llama\",\"is_encoder_decoder\":true}", MCP_FORMAT,
         "only decoder-only models"},
        {"terminal escapes in a name", "{\"model_type\":\"\\u001b[31m\"}", MCP_FORMAT, "?[31m"},
        {"invalid UTF-8", "{\"model_type\":\"\xff\"}", MCP_FORMAT, "decode"},
    };
    return cr_make_param_array(struct bad_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct bad_case *c, model_hf, bad)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_model model;
    const enum mcp_status got = read_text(arena, c->config, strlen(c->config), &model, &err);
    cr_expect(eq(int, (int)got, (int)c->want), "%s: %s", c->name, err.text);
    cr_expect(strstr(err.text, c->says) != NULL, "%s: %s", c->name, err.text);
    mcp_arena_free(arena);
}

Test(model_hf, no_prefix_of_a_config_is_a_config)
{
    static const char text[] = WITH_HIDDEN(",\"num_key_value_heads\":2");
    struct mcp_model model;
    for (size_t length = 0; length <= strlen(text); length++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct mcp_error err = {0};
        const enum mcp_status got = read_text(arena, text, length, &model, &err);
        cr_expect(eq(int, got == MCP_OK, length == strlen(text)), "%zu bytes: %s", length,
                  err.text);
        mcp_arena_free(arena);
    }
}

/* A config.json is called like its folder, where the path names one. */
Test(model_hf, name_is_that_of_the_folder)
{
    static const char text[] = WITH_HIDDEN("");
    static const char *const names[][2] = {{"/config.json", NULL},
                                           {"/./config.json", "config"},
                                           {"//config.json", "config"},
                                           {"/x/../config.json", "config"},
                                           {"/x/config.json", "x"}};
    struct mcp_arena *arena = mcp_arena_new();
    char folder[] = "/tmp/mcpplan-XXXXXX";
    cr_assert(mkdtemp(folder) != NULL);
    const char *inner = mcp_format(arena, "%s/x", folder);
    const char *files[2] = {mcp_format(arena, "%s/config.json", folder),
                            mcp_format(arena, "%s/config.json", inner)};
    cr_assert(mkdir(inner, 0700) == 0);
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(files[i], "w");
        cr_assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mcp_model model;
        struct mcp_error err = {0};
        const char *path = mcp_format(arena, "%s%s", folder, names[i][0]);
        cr_assert(mcp_model_load(arena, path, &model, &err) == MCP_OK, "%s", err.text);
        const char *want = names[i][1] != NULL ? names[i][1] : strrchr(folder, '/') + 1;
        cr_expect(mcp_same(model.name, want), "%s: %s", path, model.name);
    }
    for (int i = 0; i < 2; i++)
        unlink(files[i]);
    rmdir(inner);
    rmdir(folder);
    mcp_arena_free(arena);
}

Test(model_hf, what_is_left_aside_is_listed_with_reasons)
{
    static const char text[] = WITH_HIDDEN(
        ",\"auto_map\":{\"AutoModel\":\"evil.Code\"},\"quantization_config\":"
        "{\"quant_method\":\"fp8\"},\"use_cache\":true,\"architectures\":[\"Grok1Model\"]");
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_model model;
    cr_assert(read_text(arena, text, strlen(text), &model, &err) == MCP_OK, "%s", err.text);
    cr_expect(strstr(model.ignored, "auto_map (remote code is never fetched or run)") != NULL);
    cr_expect(strstr(model.ignored, "quantization_config (") != NULL);
    cr_expect(strstr(model.ignored, "use_cache") != NULL);
    cr_expect(strstr(model.ignored, "Grok1Model is read as llama") != NULL);
    cr_expect(strstr(model.ignored, "hidden_size") == NULL, "%s", model.ignored);
    mcp_arena_free(arena);
}

/* Which layers have experts (E) or not (d), a window (w) or not (-). */
struct pattern_case {
    char name[48];
    char more[160];
    char mlps[8], windows[8];
};
ParameterizedTestParameters(model_hf, pattern)
{
    static struct pattern_case cases[] = {
        {"every second layer sparse", "'model_type':'qwen3_moe','decoder_sparse_step':2", "dEdEdE",
         "------"},
        {"listed layers dense", "'model_type':'qwen3_moe','mlp_only_layers':[0,4]", "dEEEdE",
         "------"},
        {"a window only if used", "'model_type':'qwen3_moe','sliding_window':8", "EEEEEE",
         "------"},
        {"a window in upper layers",
         "'model_type':'qwen3_moe','sliding_window':8,'use_sliding_window':true,"
         "'max_window_layers':4",
         "EEEEEE", "----ww"},
        {"a window everywhere", "'model_type':'mistral','sliding_window':8", "dddddd", "wwwwww"},
        {"no window", "'model_type':'mistral','sliding_window':null", "dddddd", "------"},
        {"alternating windows", "'model_type':'gpt_oss'", "EEEEEE", "w-w-w-"},
        {"windows by list",
         "'model_type':'gpt_oss','layer_types':['full_attention','full_attention',"
         "'full_attention','full_attention','full_attention','sliding_attention']",
         "EEEEEE", "-----w"},
        {"leading dense layers",
         "'model_type':'deepseek_v3','first_k_dense_replace':2,'kv_lora_rank':8,"
         "'qk_nope_head_dim':8,'qk_rope_head_dim':4,'v_head_dim':8",
         "ddEEEE", "------"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (char *c = cases[i].more; *c != '\0'; c++)
            *c = *c == '\'' ? '"' : *c;
    return cr_make_param_array(struct pattern_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct pattern_case *c, model_hf, pattern)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_model model;
    const char *text =
        mcp_format(arena,
                   "{\"num_hidden_layers\":6,\"hidden_size\":64,\"num_attention_heads\":8,"
                   "\"intermediate_size\":128,\"moe_intermediate_size\":32,\"num_experts\":4,"
                   "\"num_experts_per_tok\":2,\"vocab_size\":100,%s}",
                   c->more);
    cr_assert(read_text(arena, text, strlen(text), &model, &err) == MCP_OK, "%s: %s", c->name,
              err.text);
    for (int layer = 0; layer < 6; layer++) {
        const struct mcp_layer_kind *kind = mcp_model_layer(&model, layer);
        cr_expect(eq(int, kind->mlp == MCP_MLP_EXPERTS, c->mlps[layer] == 'E'), "%s, layer %d",
                  c->name, layer);
        cr_expect(eq(int, kind->sliding_window > 0, c->windows[layer] == 'w'), "%s, layer %d",
                  c->name, layer);
    }
    mcp_arena_free(arena);
}
