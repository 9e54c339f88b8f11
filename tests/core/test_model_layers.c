/* tests/core/test_model_layers.c: config.json of models whose layers differ, of models
 * inside models, and what is refused. */
#include "core/model.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

static enum mcp_status read_text(struct mcp_arena *arena, const char *text, struct mcp_model *model,
                                 struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_json_parse(arena, "config.json", text, strlen(text), &json, err));
    return mcp_model_from_json(arena, json, model, err);
}

/* --- layers of several kinds, one letter each --- */

/* F full attention, w window, c chunk, S state, - none; d dense, E experts, - none. */
static char letter_of(const struct mcp_layer_kind *kind)
{
    if (mcp_is_recurrent(kind))
        return 'S';
    if (kind->attention == MCP_ATTENTION_NONE)
        return '-';
    return kind->sliding_window > 0 ? 'w' : kind->attention_chunk_size > 0 ? 'c' : 'F';
}

struct layers_case {
    char name[64];
    char more[700];
    char mixers[10], mlps[10];
};
ParameterizedTestParameters(model_layers, layers)
{
    static struct layers_case cases[] = {
        {"qwen3.5: full attention every fourth",
         "'model_type':'qwen3_5','head_dim':8,'linear_num_key_heads':4,'linear_num_value_heads':8,"
         "'linear_key_head_dim':8,'linear_value_head_dim':8,'linear_conv_kernel_dim':4",
         "SSSFSSSF", "dddddddd"},
        {"qwen3.5: by list",
         "'model_type':'qwen3_5','head_dim':8,'linear_num_key_heads':4,'linear_num_value_heads':8,"
         "'linear_key_head_dim':8,'linear_value_head_dim':8,'linear_conv_kernel_dim':4,"
         "'layer_types':['full_attention','linear_attention','linear_attention',"
         "'linear_attention','linear_attention','linear_attention','linear_attention',"
         "'full_attention']",
         "FSSSSSSF", "dddddddd"},
        {"jamba: one attention of eight, experts in odd layers",
         "'model_type':'jamba','attn_layer_period':8,'attn_layer_offset':4,"
         "'expert_layer_period':2,'expert_layer_offset':1,'mamba_d_state':16,'mamba_d_conv':4,"
         "'mamba_expand':2,'mamba_dt_rank':'auto'",
         "SSSSFSSS", "dEdEdEdE"},
        {"nemotron-h: a letter each",
         "'model_type':'nemotron_h','hybrid_override_pattern':'M-M*-ME-','mamba_num_heads':8,"
         "'mamba_head_dim':8,'n_groups':2,'ssm_state_size':16,'conv_kernel':4,'chunk_size':16,"
         "'n_routed_experts':4",
         "S-SF-S--", "-d--d-Ed"},
        {"minimax: by list", "'model_type':'minimax_text_01','attn_type_list':[0,0,0,1,0,0,0,1]",
         "SSSFSSSF", "EEEEEEEE"},
        {"mimo: windows and dense layers by list",
         "'model_type':'mimo_v2_flash','hybrid_layer_pattern':[0,1,1,1,0,1,1,0],"
         "'moe_layer_freq':[0,1,1,1,1,1,1,1],'sliding_window':64",
         "FwwwFwwF", "dEEEEEEE"},
        {"llama 4: chunks, experts in every second",
         "'model_type':'llama4_text','interleave_moe_layer_step':2,'attention_chunk_size':64",
         "cccFcccF", "dEdEdEdE"},
        {"gemma 3: one of six without a window", "'model_type':'gemma3_text','sliding_window':64",
         "wwwwwFww", "dddddddd"},
        {"gemma 2: even layers", "'model_type':'gemma2'", "wFwFwFwF", "dddddddd"},
        {"exaone 4: local and global by letters",
         "'model_type':'exaone4','sliding_window':64,'sliding_window_pattern':'LLG'", "wwFwwFww",
         "dddddddd"},
        {"gpt-neo: alternating",
         "'model_type':'gpt_neo','max_position_embeddings':64,'window_size':16", "FwFwFwFw",
         "dddddddd"},
        {"bamba: attention by index",
         "'model_type':'bamba','attn_layer_indices':[2,5],'mamba_n_heads':8,'mamba_d_head':8,"
         "'mamba_n_groups':1,'mamba_d_state':16,'mamba_d_conv':4",
         "SSFSSFSS", "dddddddd"},
        {"nemotron-nas: blocks",
         "'model_type':'nemotron-nas','block_configs':["
         "{'attention':{'n_heads_in_group':4},'ffn':{'ffn_mult':2.625}},"
         "{'attention':{'no_op':true},'ffn':{'ffn_mult':1.0}},"
         "{'attention':{'n_heads_in_group':4},'ffn':{'no_op':true}},"
         "{'attention':{'n_heads_in_group':4},'ffn':{'ffn_mult':2.625}},"
         "{'attention':{'n_heads_in_group':4},'ffn':{'ffn_mult':2.625}},"
         "{'attention':{'n_heads_in_group':4},'ffn':{'ffn_mult':2.625}},"
         "{'attention':{'n_heads_in_group':4},'ffn':{'ffn_mult':2.625}},"
         "{'attention':{'n_heads_in_group':2},'ffn':{'ffn_mult':2.625}}]",
         "F-FFFFFF", "dd-ddddd"},
        {"mamba: states alone", "'model_type':'mamba'", "SSSSSSSS", "--------"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (char *c = cases[i].more; *c != '\0'; c++)
            *c = *c == '\'' ? '"' : *c;
    return cr_make_param_array(struct layers_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct layers_case *c, model_layers, layers)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_model model;
    const char *experts = strpbrk(c->mlps, "E") != NULL && strstr(c->more, "n_routed") == NULL
                              ? "\"num_local_experts\":4,"
                              : "";
    const char *text =
        mcp_format(arena,
                   "{\"num_hidden_layers\":8,\"hidden_size\":64,\"num_attention_heads\":8,%s"
                   "\"intermediate_size\":128,\"moe_intermediate_size\":32,"
                   "\"num_experts_per_tok\":2,\"vocab_size\":100,%s}",
                   experts, c->more);
    cr_assert(read_text(arena, text, &model, &err) == MCP_OK, "%s: %s", c->name, err.text);
    for (int layer = 0; layer < 8; layer++) {
        const struct mcp_layer_kind *kind = mcp_model_layer(&model, layer);
        char mlp = kind->mlp == MCP_MLP_EXPERTS ? 'E' : kind->mlp == MCP_MLP_DENSE ? 'd' : '-';
        cr_expect(eq(int, letter_of(kind), c->mixers[layer]), "%s, layer %d", c->name, layer);
        cr_expect(eq(int, mlp, c->mlps[layer]), "%s, layer %d", c->name, layer);
    }
    mcp_arena_free(arena);
}

/* --- configs that hold a text model inside, and refusals --- */

struct odd_case {
    char name[64];
    char config[700];
    int want;           /* enum mcp_status */
    int64_t parameters; /* when read */
    char says[80];      /* in the note, or in the error */
};
ParameterizedTestParameters(model_layers, odd)
{
    static struct odd_case cases[] = {
        {"a text_config lists differences only: class defaults",
         "{'model_type':'gemma3','text_config':{'model_type':'gemma3_text','hidden_size':2560,"
         "'intermediate_size':10240,'num_hidden_layers':34,'sliding_window':1024},"
         "'vision_config':{'hidden_size':1152}}",
         MCP_OK, 3880263168, "num_attention_heads=8"},
        {"the part that sees is left out",
         "{'model_type':'llava','text_config':{'model_type':'llama','hidden_size':64,"
         "'num_hidden_layers':2,'num_attention_heads':4,'intermediate_size':128,"
         "'vocab_size':100},'vision_config':{'hidden_size':1152}}",
         MCP_OK, 95040, "no image encoder"},
        {"the class of the outer file is another's",
         "{'architectures':['Grok1ModelForCausalLM'],'model_type':'mixtral','vocab_size':100,"
         "'hidden_size':64,'intermediate_size':128,'num_experts_per_tok':2,"
         "'num_local_experts':8,'num_attention_heads':8,'num_hidden_layers':2}",
         MCP_OK, 0, "Grok1ModelForCausalLM is read as mixtral"},
        {"cross attention reads as attention",
         "{'model_type':'mllama','text_config':{'model_type':'mllama_text_model','vocab_size':100,"
         "'hidden_size':64,'intermediate_size':128,'num_attention_heads':8,'num_hidden_layers':4,"
         "'num_key_value_heads':2,'cross_attention_layers':[1,3]}}",
         MCP_OK, 0, "cross_attention_layers (read as attention"},
        {"a cross attention layer that is not there",
         "{'model_type':'mllama','vocab_size':100,'hidden_size':64,'intermediate_size':128,"
         "'num_attention_heads':8,'num_hidden_layers':4,'cross_attention_layers':[4]}",
         MCP_FORMAT, 0, "layer 4 is not one of the 4 layers"},
        {"embeddings of each layer",
         "{'model_type':'gemma4_text','vocab_size':100,'hidden_size':64,'intermediate_size':128,"
         "'num_attention_heads':8,'num_hidden_layers':4,'hidden_size_per_layer_input':256}",
         MCP_FORMAT, 0, "embeddings of each layer"},
        {"projected embeddings",
         "{'model_type':'opt','vocab_size':100,'hidden_size':64,'ffn_dim':128,"
         "'num_attention_heads':8,'num_hidden_layers':4,'max_position_embeddings':64,"
         "'word_embed_proj_dim':32}",
         MCP_FORMAT, 0, "projected embeddings"},
        {"a pattern of another length",
         "{'model_type':'nemotron_h','vocab_size':100,'hidden_size':64,'intermediate_size':128,"
         "'num_attention_heads':8,'num_hidden_layers':4,'hybrid_override_pattern':'M-M',"
         "'mamba_num_heads':8,'mamba_head_dim':8,'n_groups':2,'ssm_state_size':16,"
         "'conv_kernel':4}",
         MCP_FORMAT, 0, "3 letters, but there are 4 layers"},
        {"a letter that means nothing",
         "{'model_type':'nemotron_h','vocab_size':100,'hidden_size':64,'intermediate_size':128,"
         "'num_attention_heads':8,'num_hidden_layers':4,'hybrid_override_pattern':'M-MX',"
         "'mamba_num_heads':8,'mamba_head_dim':8,'n_groups':2,'ssm_state_size':16,"
         "'conv_kernel':4}",
         MCP_FORMAT, 0, "letter 3 is 'X'"},
        {"a state without its size",
         "{'model_type':'jamba','vocab_size':100,'hidden_size':64,'intermediate_size':128,"
         "'num_attention_heads':8,'num_hidden_layers':4,'num_experts':4,"
         "'num_experts_per_tok':2,'mamba_d_conv':4}",
         MCP_FORMAT, 0, "state_size, also called"},
        {"groups that do not divide heads",
         "{'model_type':'mamba2','vocab_size':100,'hidden_size':64,'num_hidden_layers':4,"
         "'num_heads':8,'head_dim':16,'n_groups':3,'state_size':16,'conv_kernel':4}",
         MCP_INVALID, 0, "num_groups=3 does not divide num_attention_heads=8"},
        {"experts that differ from layer to layer",
         "{'model_type':'hunyuan_v1_moe','vocab_size':100,'hidden_size':64,"
         "'intermediate_size':128,'num_attention_heads':8,'num_hidden_layers':2,'num_experts':4,"
         "'moe_topk':[1,2],'moe_intermediate_size':32}",
         MCP_FORMAT, 0, "layer 1 has 2, layer 0 has 1"},
        {"linear layers in place of attention",
         "{'model_type':'nemotron-nas','vocab_size':100,'hidden_size':64,"
         "'num_attention_heads':8,'num_hidden_layers':1,'block_configs':[{'attention':"
         "{'replace_with_linear':true},'ffn':{'ffn_mult':1}}]}",
         MCP_FORMAT, 0, "replace_with_linear"},
        {"another tool's keys",
         "{'name':'gpt2','num_layers':12,'n_head':12,'hidden_dim':768,'vocab_size':50257,"
         "'ffn_embed_dim':3072,'model_type':'gpt2'}",
         MCP_FORMAT, 0, "another tool's keys"},
        {"8196 over 64 heads",
         "{'model_type':'gpt_neox','vocab_size':69,'hidden_size':8196,'intermediate_size':8000,"
         "'num_attention_heads':64,'num_hidden_layers':64}",
         MCP_FORMAT, 0, "num_attention_heads 64 does not divide hidden_size 8196"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (char *c = cases[i].config; *c != '\0'; c++)
            *c = *c == '\'' ? '"' : *c;
    return cr_make_param_array(struct odd_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct odd_case *c, model_layers, odd)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_model model;
    const enum mcp_status got = read_text(arena, c->config, &model, &err);
    cr_expect(eq(int, (int)got, c->want), "%s: %s", c->name, err.text);
    const char *text = got == MCP_OK ? model.ignored : err.text;
    cr_expect(strstr(text, c->says) != NULL, "%s: %s", c->name, text);
    if (got == MCP_OK && c->parameters > 0) {
        const struct mcp_parameters count = mcp_model_parameters(&model);
        cr_expect(eq(i64, mcp_parameters_total(&count), c->parameters), "%s", c->name);
    }
    mcp_arena_free(arena);
}
