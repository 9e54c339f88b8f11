/* tests/core/test_model_families.c: a config.json of every family's relatives, written by
 * hand, whose published checkpoints have a known number of parameters. */
#include "core/model.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

/* Totals are those of the checkpoints of the same shape, to the last weight where a
 * checkpoint's count is public, else within its rounding. Router correction biases,
 * which no gradient moves, are in some published counts and not in these. */
struct family_case {
    char name[64];
    char config[1000];
    int64_t parameters, active;
};
ParameterizedTestParameters(model_families, totals)
{
    static struct family_case cases[] = {
        {"bloom 560M: embeddings normed",
         "{'model_type':'bloom','n_layer':24,'n_embed':1024,'n_head':16,'vocab_size':250880}",
         559214592, 559214592},
        {"bloom 176B",
         "{'model_type':'bloom','n_layer':70,'n_embed':14336,'num_attention_heads':112,"
         "'vocab_size':250880}",
         176247271424, 176247271424},
        {"falcon 7B: one norm, one kv head",
         "{'model_type':'falcon','new_decoder_architecture':false,'parallel_attn':true,"
         "'multi_query':true,'bias':false,'num_kv_heads':71,'num_hidden_layers':32,"
         "'hidden_size':4544,'num_attention_heads':71,'vocab_size':65024}",
         6921720704, 6921720704},
        {"falcon 40B: 8 kv heads, two norms",
         "{'model_type':'falcon','new_decoder_architecture':true,'parallel_attn':true,"
         "'multi_query':true,'bias':false,'num_kv_heads':8,'num_hidden_layers':60,"
         "'hidden_size':8192,'num_attention_heads':128,'vocab_size':65024}",
         41303293952, 41303293952},
        {"gpt-j 6B: bias on the head",
         "{'model_type':'gptj','n_layer':28,'n_embd':4096,'n_head':16,'n_positions':2048,"
         "'rotary_dim':64,'vocab_size':50400}",
         6050882784, 6050882784},
        {"gpt-neo 1.3B",
         "{'model_type':'gpt_neo','num_layers':24,'hidden_size':2048,'num_heads':16,"
         "'max_position_embeddings':2048,'intermediate_size':null,'window_size':256,"
         "'vocab_size':50257}",
         1315575808, 1315575808},
        {"gpt-neox 20B",
         "{'model_type':'gpt_neox','num_hidden_layers':44,'hidden_size':6144,"
         "'num_attention_heads':64,'intermediate_size':24576,'vocab_size':50432}",
         20554567680, 20554567680},
        {"pythia 6.9B",
         "{'model_type':'gpt_neox','num_hidden_layers':32,'hidden_size':4096,"
         "'num_attention_heads':32,'intermediate_size':16384,'vocab_size':50432}",
         6857302016, 6857302016},
        {"opt 6.7B: two more positions",
         "{'model_type':'opt','num_hidden_layers':32,'hidden_size':4096,"
         "'num_attention_heads':32,'ffn_dim':16384,'max_position_embeddings':2048,"
         "'vocab_size':50272,'word_embed_proj_dim':4096}",
         6658473984, 6658473984},
        {"phi 1.5",
         "{'model_type':'phi','num_hidden_layers':24,'hidden_size':2048,"
         "'num_attention_heads':32,'intermediate_size':8192,'vocab_size':51200}",
         1418270720, 1418270720},
        {"phi-3 mini",
         "{'model_type':'phi3','sliding_window':2047,'num_hidden_layers':32,'hidden_size':3072"
         ",'num_attention_heads':32,'intermediate_size':8192,'vocab_size':32064,"
         "'num_key_value_heads':32}",
         3821079552, 3821079552},
        {"phi-4",
         "{'model_type':'phi3','sliding_window':null,'num_hidden_layers':40,'hidden_size':5120"
         ",'num_attention_heads':40,'intermediate_size':17920,'vocab_size':100352,"
         "'num_key_value_heads':10}",
         14659507200, 14659507200},
        {"phi-3.5 MoE",
         "{'model_type':'phimoe','attention_bias':true,'lm_head_bias':true,"
         "'num_local_experts':16,'num_experts_per_tok':2,'num_hidden_layers':32,"
         "'hidden_size':4096,'num_attention_heads':32,'intermediate_size':6400,"
         "'vocab_size':32064,'num_key_value_heads':8}",
         41873153344, 6640999744},
        {"gemma 2B",
         "{'model_type':'gemma','head_dim':256,'num_hidden_layers':18,'hidden_size':2048,"
         "'num_attention_heads':8,'intermediate_size':16384,'vocab_size':256000,"
         "'num_key_value_heads':1}",
         2506172416, 2506172416},
        {"gemma 7B",
         "{'model_type':'gemma','head_dim':256,'num_hidden_layers':28,'hidden_size':3072,"
         "'num_attention_heads':16,'intermediate_size':24576,'vocab_size':256000,"
         "'num_key_value_heads':16}",
         8537680896, 8537680896},
        {"gemma-2 9B: norms after branches",
         "{'model_type':'gemma2','head_dim':256,'sliding_window':4096,'num_hidden_layers':42,"
         "'hidden_size':3584,'num_attention_heads':16,'intermediate_size':14336,"
         "'vocab_size':256000,'num_key_value_heads':8}",
         9241705984, 9241705984},
        {"gemma-3 270M",
         "{'model_type':'gemma3_text','head_dim':256,'sliding_window':512,"
         "'num_hidden_layers':18,'hidden_size':640,'num_attention_heads':4,"
         "'intermediate_size':2048,'vocab_size':262144,'num_key_value_heads':1}",
         268098176, 268098176},
        {"gemma-3 1B",
         "{'model_type':'gemma3_text','head_dim':256,'sliding_window':512,"
         "'num_hidden_layers':26,'hidden_size':1152,'num_attention_heads':4,"
         "'intermediate_size':6912,'vocab_size':262144,'num_key_value_heads':1}",
         999885952, 999885952},
        {"mistral nemo",
         "{'model_type':'mistral','head_dim':128,'sliding_window':null,'num_hidden_layers':40,"
         "'hidden_size':5120,'num_attention_heads':32,'intermediate_size':14336,"
         "'vocab_size':131072,'num_key_value_heads':8}",
         12247782400, 12247782400},
        {"mixtral 8x22B",
         "{'model_type':'mixtral','num_local_experts':8,'num_experts_per_tok':2,"
         "'num_hidden_layers':56,'hidden_size':6144,'num_attention_heads':48,"
         "'intermediate_size':16384,'vocab_size':32768,'num_key_value_heads':8}",
         140630071296, 39161468928},
        {"qwen1.5 MoE A2.7B: gated shared expert",
         "{'model_type':'qwen2_moe','num_experts':60,'num_experts_per_tok':4,"
         "'moe_intermediate_size':1408,'shared_expert_intermediate_size':5632,"
         "'decoder_sparse_step':1,'num_hidden_layers':24,'hidden_size':2048,"
         "'num_attention_heads':16,'intermediate_size':5632,'vocab_size':151936,"
         "'num_key_value_heads':16}",
         14315784192, 2689173504},
        {"olmo 1B: norms without weights",
         "{'model_type':'olmo','tie_word_embeddings':true,'num_hidden_layers':16,"
         "'hidden_size':2048,'num_attention_heads':16,'intermediate_size':8192,"
         "'vocab_size':50304,'num_key_value_heads':16}",
         1176764416, 1176764416},
        {"olmo 7B",
         "{'model_type':'olmo','num_hidden_layers':32,'hidden_size':4096,"
         "'num_attention_heads':32,'intermediate_size':11008,'vocab_size':50304,"
         "'num_key_value_heads':32}",
         6888095744, 6888095744},
        {"olmo-2 7B: whole queries normed",
         "{'model_type':'olmo2','num_hidden_layers':32,'hidden_size':4096,"
         "'num_attention_heads':32,'intermediate_size':11008,'vocab_size':100352,"
         "'num_key_value_heads':32}",
         7298617344, 7298617344},
        {"olmoe 1B-7B",
         "{'model_type':'olmoe','num_experts':64,'num_experts_per_tok':8,"
         "'num_hidden_layers':16,'hidden_size':2048,'num_attention_heads':16,"
         "'intermediate_size':1024,'vocab_size':50304,'num_key_value_heads':16}",
         6919161856, 1282017280},
        {"stablelm 3B",
         "{'model_type':'stablelm','use_qkv_bias':false,'use_parallel_residual':false,"
         "'num_hidden_layers':32,'hidden_size':2560,'num_attention_heads':32,"
         "'intermediate_size':6912,'vocab_size':50304,'num_key_value_heads':32}",
         2795443200, 2795443200},
        {"stablelm-2 1.6B: Q, K, V biases",
         "{'model_type':'stablelm','use_qkv_bias':true,'num_hidden_layers':24,"
         "'hidden_size':2048,'num_attention_heads':32,'intermediate_size':5632,"
         "'vocab_size':100352,'num_key_value_heads':32}",
         1644515328, 1644515328},
        {"command-r: one norm, tied",
         "{'model_type':'cohere','use_qk_norm':false,'num_hidden_layers':40,'hidden_size':8192"
         ",'num_attention_heads':64,'intermediate_size':22528,'vocab_size':256000,"
         "'num_key_value_heads':64}",
         34980831232, 34980831232},
        {"command-r plus: normed queries",
         "{'model_type':'cohere','use_qk_norm':true,'num_hidden_layers':64,'hidden_size':12288"
         ",'num_attention_heads':96,'intermediate_size':33792,'vocab_size':256000,"
         "'num_key_value_heads':8}",
         103810674688, 103810674688},
        {"command-r7b: windows",
         "{'model_type':'cohere2','sliding_window':4096,'sliding_window_pattern':4,"
         "'num_hidden_layers':32,'hidden_size':4096,'num_attention_heads':32,"
         "'intermediate_size':14336,'vocab_size':256000,'num_key_value_heads':8}",
         8028033024, 8028033024},
        {"deepseek MoE 16B: no latent attention",
         "{'model_type':'deepseek','first_k_dense_replace':1,'moe_layer_freq':1,"
         "'n_routed_experts':64,'n_shared_experts':2,'num_experts_per_tok':6,"
         "'moe_intermediate_size':1408,'num_hidden_layers':28,'hidden_size':2048,"
         "'num_attention_heads':16,'intermediate_size':10944,'vocab_size':102400,"
         "'num_key_value_heads':16}",
         16375728128, 2828650496},
        {"glm-4 9B",
         "{'model_type':'glm','head_dim':128,'attention_bias':true,'num_hidden_layers':40,"
         "'hidden_size':4096,'num_attention_heads':32,'intermediate_size':13696,"
         "'vocab_size':151552,'num_key_value_heads':2}",
         9399951360, 9399951360},
        {"glm-4 32B: four norms",
         "{'model_type':'glm4','head_dim':128,'attention_bias':false,'num_hidden_layers':61,"
         "'hidden_size':6144,'num_attention_heads':48,'intermediate_size':23040,"
         "'vocab_size':151552,'num_key_value_heads':2}",
         32566081536, 32566081536},
        {"glm-4.5",
         "{'model_type':'glm4_moe','head_dim':128,'attention_bias':true,'use_qk_norm':true,"
         "'first_k_dense_replace':3,'n_routed_experts':160,'n_shared_experts':1,"
         "'num_experts_per_tok':8,'moe_intermediate_size':1536,'num_nextn_predict_layers':1,"
         "'num_hidden_layers':92,'hidden_size':5120,'num_attention_heads':96,"
         "'intermediate_size':12288,'vocab_size':151552,'num_key_value_heads':8}",
         352797814784, 33632251904},
        {"glm-4.5 air",
         "{'model_type':'glm4_moe','head_dim':128,'attention_bias':true,'use_qk_norm':false,"
         "'first_k_dense_replace':1,'n_routed_experts':128,'n_shared_experts':1,"
         "'num_experts_per_tok':8,'moe_intermediate_size':1408,'num_nextn_predict_layers':1,"
         "'num_hidden_layers':46,'hidden_size':4096,'num_attention_heads':96,"
         "'intermediate_size':10944,'vocab_size':151552,'num_key_value_heads':8}",
         106852245504, 13424123904},
        {"internlm2 7B",
         "{'model_type':'internlm2','bias':false,'num_hidden_layers':32,'hidden_size':4096,"
         "'num_attention_heads':32,'intermediate_size':14336,'vocab_size':92544,"
         "'num_key_value_heads':8}",
         7737708544, 7737708544},
        {"internlm 7B: biases",
         "{'model_type':'internlm','bias':true,'num_hidden_layers':32,'hidden_size':4096,"
         "'num_attention_heads':32,'intermediate_size':11008,'vocab_size':103168}",
         7321948160, 7321948160},
        {"exaone 3 7.8B",
         "{'model_type':'exaone','num_layers':32,'hidden_size':4096,'num_attention_heads':32,"
         "'num_key_value_heads':8,'intermediate_size':14336,'vocab_size':102400}",
         7818448896, 7818448896},
        {"exaone 4 32B: LLLG",
         "{'model_type':'exaone4','head_dim':128,'sliding_window':4096,"
         "'sliding_window_pattern':'LLLG','num_hidden_layers':64,'hidden_size':5120,"
         "'num_attention_heads':40,'intermediate_size':27392,'vocab_size':102400,"
         "'num_key_value_heads':8}",
         32003216384, 32003216384},
        {"seed-oss 36B",
         "{'model_type':'seed_oss','head_dim':128,'attention_bias':true,"
         "'attention_out_bias':false,'mlp_bias':false,'num_hidden_layers':64,"
         "'hidden_size':5120,'num_attention_heads':80,'intermediate_size':27648,"
         "'vocab_size':155136,'num_key_value_heads':8}",
         36151104512, 36151104512},
        {"smollm3",
         "{'model_type':'smollm3','num_hidden_layers':36,'hidden_size':2048,"
         "'num_attention_heads':16,'intermediate_size':11008,'vocab_size':128256,"
         "'num_key_value_heads':4}",
         3075098624, 3075098624},
        {"minitron 4B",
         "{'model_type':'nemotron','num_hidden_layers':32,'hidden_size':3072,"
         "'num_attention_heads':24,'intermediate_size':9216,'vocab_size':256000,"
         "'num_key_value_heads':8}",
         4190509056, 4190509056},
        {"ernie 4.5 0.3B",
         "{'model_type':'ernie4_5','head_dim':128,'use_bias':false,'num_hidden_layers':18,"
         "'hidden_size':1024,'num_attention_heads':16,'intermediate_size':3072,"
         "'vocab_size':103424,'num_key_value_heads':2}",
         360748032, 360748032},
        {"ernie 4.5 21B A3B",
         "{'model_type':'ernie4_5_moe','use_bias':false,'moe_num_experts':64,'moe_k':6,"
         "'moe_num_shared_experts':2,'moe_intermediate_size':1536,'moe_layer_start_index':1,"
         "'moe_layer_interval':1,'num_hidden_layers':28,'hidden_size':2560,"
         "'num_attention_heads':20,'intermediate_size':12288,'vocab_size':103424,"
         "'num_key_value_heads':4}",
         21825436160, 3352148480},
        {"hunyuan A13B: lists of layers",
         "{'model_type':'hunyuan_v1_moe','use_qk_norm':true,'tie_word_embeddings':true,"
         "'num_experts':64,'moe_topk':[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8"
         ",8,8,8,8],'moe_intermediate_size':[3072,3072,3072,3072,3072,3072,3072,3072,3072,3072"
         ",3072,3072,3072,3072,3072,3072,3072,3072,3072,3072,3072,3072,3072,3072,3072,3072,"
         "3072,3072,3072,3072,3072,3072],'num_shared_expert':[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
         "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],'num_hidden_layers':32,'hidden_size':4096,"
         "'num_attention_heads':32,'intermediate_size':3072,'vocab_size':128167,"
         "'num_key_value_heads':8}",
         80393183232, 12747448320},
        {"minimax 01: lightning in 7 of 8",
         "{'model_type':'minimax_text_01','head_dim':128,'num_local_experts':32,"
         "'num_experts_per_tok':2,'attn_type_list':[0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,"
         "0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,"
         "1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1],'num_hidden_layers':80,'hidden_size':6144,"
         "'num_attention_heads':64,'intermediate_size':9216,'vocab_size':200064,"
         "'num_key_value_heads':8}",
         456089655296, 48403306496},
        {"falcon mamba 7B",
         "{'model_type':'falcon_mamba','num_hidden_layers':64,'hidden_size':4096,"
         "'intermediate_size':8192,'state_size':16,'time_step_rank':256,'conv_kernel':4,"
         "'vocab_size':65024}",
         7272665088, 7272665088},
        {"mamba-2 2.7B",
         "{'model_type':'mamba2','num_hidden_layers':64,'hidden_size':2560,'num_heads':80,"
         "'head_dim':64,'n_groups':1,'state_size':128,'conv_kernel':4,'chunk_size':256,"
         "'tie_word_embeddings':true,'vocab_size':50288}",
         2702599680, 2702599680},
        {"bamba 9B",
         "{'model_type':'bamba','attn_layer_indices':[9,18,27],'mamba_n_heads':128,"
         "'mamba_d_head':64,'mamba_n_groups':1,'mamba_d_state':128,'mamba_d_conv':4,"
         "'mamba_chunk_size':256,'mamba_conv_bias':true,'mamba_proj_bias':false,"
         "'mamba_expand':2,'num_hidden_layers':32,'hidden_size':4096,'num_attention_heads':32,"
         "'intermediate_size':14336,'vocab_size':128256,'num_key_value_heads':8}",
         9780235392, 9780235392},
        {"granite 3.0 1B A400M",
         "{'model_type':'granitemoe','tie_word_embeddings':true,'num_local_experts':32,"
         "'num_experts_per_tok':8,'num_hidden_layers':24,'hidden_size':1024,"
         "'num_attention_heads':16,'intermediate_size':512,'vocab_size':49155,"
         "'num_key_value_heads':8}",
         1334628352, 428658688},
        {"granite 4 h tiny",
         "{'model_type':'granitemoehybrid','tie_word_embeddings':true,'num_local_experts':64,"
         "'num_experts_per_tok':6,'shared_intermediate_size':1024,'mamba_n_heads':48,"
         "'mamba_d_head':64,'mamba_n_groups':1,'mamba_d_state':128,'mamba_d_conv':4,"
         "'mamba_expand':2,'layer_types':['mamba','mamba','mamba','mamba','mamba','attention',"
         "'mamba','mamba','mamba','mamba','mamba','mamba','mamba','mamba','mamba','attention',"
         "'mamba','mamba','mamba','mamba','mamba','mamba','mamba','mamba','mamba','attention',"
         "'mamba','mamba','mamba','mamba','mamba','mamba','mamba','mamba','mamba','attention',"
         "'mamba','mamba','mamba','mamba'],'num_hidden_layers':40,'hidden_size':1536,"
         "'num_attention_heads':12,'intermediate_size':512,'vocab_size':100352,"
         "'num_key_value_heads':4}",
         6939037248, 1465470528},
        {"llama 4 maverick: experts in every second",
         "{'model_type':'llama4_text','head_dim':128,'intermediate_size_mlp':16384,"
         "'interleave_moe_layer_step':2,'num_local_experts':128,'num_experts_per_tok':1,"
         "'attention_chunk_size':8192,'use_qk_norm':false,'num_hidden_layers':48,"
         "'hidden_size':5120,'num_attention_heads':40,'intermediate_size':8192,"
         "'vocab_size':202048,'num_key_value_heads':8}",
         400711848960, 17184691200},
        {"codegen 350M",
         "{'model_type':'codegen','n_layer':20,'n_embd':1024,'n_head':16,'n_positions':2048,"
         "'n_ctx':2048,'rotary_dim':32,'vocab_size':51200}",
         356712448, 356712448},
        {"starcoder2 15B",
         "{'model_type':'starcoder2','use_bias':true,'tie_word_embeddings':false,"
         "'num_hidden_layers':40,'hidden_size':6144,'num_attention_heads':48,"
         "'intermediate_size':24576,'vocab_size':49152,'num_key_value_heads':4}",
         15957889024, 15957889024},
        {"dots.llm1",
         "{'model_type':'dots1','first_k_dense_replace':1,'n_routed_experts':128,"
         "'n_shared_experts':2,'num_experts_per_tok':6,'moe_intermediate_size':1408,"
         "'num_hidden_layers':62,'hidden_size':4096,'num_attention_heads':32,"
         "'intermediate_size':10944,'vocab_size':152064,'num_key_value_heads':32}",
         142774373888, 14016581120},
        {"nemotron 3 nano 30B: E for experts",
         "{'model_type':'nemotron_h',"
         "'hybrid_override_pattern':'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME',"
         "'mamba_num_heads':64,'mamba_head_dim':64,'n_groups':8,'ssm_state_size':128,"
         "'conv_kernel':4,'chunk_size':128,'head_dim':128,'n_routed_experts':128,"
         "'n_shared_experts':1,'num_experts_per_tok':6,'moe_intermediate_size':1856,"
         "'moe_shared_expert_intermediate_size':3712,'use_conv_bias':true,"
         "'num_hidden_layers':52,'hidden_size':2688,'num_attention_heads':32,"
         "'intermediate_size':1856,'vocab_size':131072,'num_key_value_heads':2}",
         31577937344, 3580073408},
        {"yi 34B",
         "{'model_type':'Yi','num_hidden_layers':60,'hidden_size':7168,"
         "'num_attention_heads':56,'intermediate_size':20480,'vocab_size':64000,"
         "'num_key_value_heads':8}",
         34388917248, 34388917248},
        {"baichuan2 13B",
         "{'model_type':'baichuan','num_hidden_layers':40,'hidden_size':5120,"
         "'num_attention_heads':40,'intermediate_size':13696,'vocab_size':125696}",
         13896668160, 13896668160},
        {"deepseek V2 lite",
         "{'model_type':'deepseek_v2','kv_lora_rank':512,'q_lora_rank':null,"
         "'qk_nope_head_dim':128,'qk_rope_head_dim':64,'v_head_dim':128,"
         "'first_k_dense_replace':1,'n_routed_experts':64,'n_shared_experts':2,"
         "'num_experts_per_tok':6,'moe_intermediate_size':1408,'num_hidden_layers':27,"
         "'hidden_size':2048,'num_attention_heads':16,'intermediate_size':10944,"
         "'vocab_size':102400,'num_key_value_heads':16}",
         15706484224, 2661150208},
        {"glm 4.7 flash",
         "{'model_type':'glm4_moe_lite','q_lora_rank':768,'kv_lora_rank':512,"
         "'qk_nope_head_dim':192,'qk_rope_head_dim':64,'v_head_dim':256,"
         "'first_k_dense_replace':1,'n_routed_experts':64,'n_shared_experts':1,"
         "'num_experts_per_tok':4,'moe_intermediate_size':1536,'num_hidden_layers':47,"
         "'hidden_size':2048,'num_attention_heads':20,'intermediate_size':10240,"
         "'vocab_size':154880,'num_key_value_heads':20}",
         29943390976, 3896763136},
        {"granite 3.1 2B",
         "{'model_type':'granite','tie_word_embeddings':true,'num_hidden_layers':40,"
         "'hidden_size':2048,'num_attention_heads':32,'intermediate_size':8192,"
         "'vocab_size':49155,'num_key_value_heads':8}",
         2533531648, 2533531648},
        {"minicpm 2B",
         "{'model_type':'minicpm','num_hidden_layers':40,'hidden_size':2304,"
         "'num_attention_heads':36,'intermediate_size':5760,'vocab_size':122753,"
         "'num_key_value_heads':36}",
         2724880896, 2724880896},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (char *c = cases[i].config; *c != '\0'; c++)
            *c = *c == '\'' ? '"' : *c;
    return cr_make_param_array(struct family_case, cases, sizeof cases / sizeof *cases);
}

static enum mcp_status read_text(struct mcp_arena *arena, const char *text, struct mcp_model *model,
                                 struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_json_parse(arena, "config.json", text, strlen(text), &json, err));
    return mcp_model_from_json(arena, json, model, err);
}

/* Our own file of a model says all that its config.json did. */
static void expect_own_file_equal(struct mcp_arena *arena, const struct mcp_model *model,
                                  const char *name)
{
    struct mcp_json *object = mcp_json_new_object(arena);
    struct mcp_model again;
    struct mcp_error err = {0};
    mcp_model_to_json(model, object);
    const char *text = mcp_json_text(arena, object);
    cr_assert(read_text(arena, text, &again, &err) == MCP_OK, "%s: %s", name, err.text);
    const struct mcp_parameters a = mcp_model_parameters(model), b = mcp_model_parameters(&again);
    cr_expect(memcmp(&a, &b, sizeof a) == 0, "%s: %s", name, text);
    cr_expect(eq(i64, mcp_model_state_elements(model), mcp_model_state_elements(&again)));
    cr_expect(eq(dbl, mcp_model_flops_per_token_forward(model, 4096),
                 mcp_model_flops_per_token_forward(&again, 4096)),
              "%s", name);
}

ParameterizedTest(struct family_case *c, model_families, totals)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_model model;
    cr_assert(read_text(arena, c->config, &model, &err) == MCP_OK, "%s: %s", c->name, err.text);
    const struct mcp_parameters count = mcp_model_parameters(&model);
    cr_expect(eq(i64, mcp_parameters_total(&count), c->parameters), "%s", c->name);
    cr_expect(eq(i64, mcp_model_active_parameters(&model), c->active), "%s", c->name);
    expect_own_file_equal(arena, &model, c->name);
    mcp_arena_free(arena);
}
