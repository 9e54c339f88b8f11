/* tests/step/test_state.c: layers with states, with one half, and with further norms:
 * weights, FLOPs, prices and legality. */
#include "step/estimate.h"
#include "step/price.h"
#include "step/price_parts.h"
#include "tests/step/setup.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

/* A question whose model is read from a config.json; quotes are single. */
static void setup_config(struct setup *s, const char *config)
{
    struct mcp_json *json;
    struct mcp_error err = {""};
    setup_load(s, "tiny", "dgx-h100", "megatron-core");
    char *text = mcp_strdup(s->arena, config);
    for (char *c = text; *c != '\0'; c++)
        *c = *c == '\'' ? '"' : *c;
    cr_assert(mcp_json_parse(s->arena, "config.json", text, strlen(text), &json, &err) == MCP_OK);
    cr_assert(mcp_model_from_json(s->arena, json, &s->model, &err) == MCP_OK, "%s", err.text);
}

struct state_case {
    char name[48];
    char config[800];
};

#define GDN                                                                                        \
    "'head_dim':256,'linear_num_key_heads':16,'linear_num_value_heads':32,"                        \
    "'linear_key_head_dim':128,'linear_value_head_dim':128,'linear_conv_kernel_dim':4"
static const struct state_case models[] = {
    {"qwen3-next",
     "{'model_type':'qwen3_next','num_hidden_layers':48,'hidden_size':2048,"
     "'num_attention_heads':16,'num_key_value_heads':2,'intermediate_size':5120,'num_experts':512,"
     "'num_experts_per_tok':10,'moe_intermediate_size':512,"
     "'shared_expert_intermediate_size':512,'vocab_size':151936," GDN "}"},
    {"nemotron-h",
     "{'model_type':'nemotron_h','num_hidden_layers':4,'hidden_size':8192,"
     "'num_attention_heads':64,'num_key_value_heads':8,'attention_head_dim':128,"
     "'intermediate_size':32768,'hybrid_override_pattern':'M-*M','mamba_num_heads':256,"
     "'mamba_head_dim':64,'n_groups':8,'ssm_state_size':256,'conv_kernel':4,'chunk_size':128,"
     "'vocab_size':131072}"},
    {"jamba",
     "{'model_type':'jamba','num_hidden_layers':8,'hidden_size':4096,'num_attention_heads':32,"
     "'num_key_value_heads':8,'intermediate_size':14336,'num_experts':16,'num_experts_per_tok':2,"
     "'attn_layer_period':8,'attn_layer_offset':4,'expert_layer_period':2,"
     "'expert_layer_offset':1,'mamba_d_state':16,'mamba_d_conv':4,'mamba_expand':2,"
     "'mamba_dt_rank':256,'vocab_size':65536}"},
    {"minimax-01",
     "{'model_type':'minimax_text_01','num_hidden_layers':8,'hidden_size':6144,"
     "'num_attention_heads':64,'num_key_value_heads':8,'head_dim':128,'intermediate_size':9216,"
     "'num_local_experts':32,'num_experts_per_tok':2,'attn_type_list':[0,0,0,0,0,0,0,1],"
     "'vocab_size':200064}"},
    {"glm-5: an indexer",
     "{'model_type':'glm_moe_dsa','num_hidden_layers':4,'hidden_size':6144,"
     "'num_attention_heads':64,'q_lora_rank':2048,'kv_lora_rank':512,'qk_nope_head_dim':192,"
     "'qk_rope_head_dim':64,'v_head_dim':256,'index_n_heads':32,'index_head_dim':128,"
     "'index_topk':2048,'intermediate_size':12288,'first_k_dense_replace':3,"
     "'moe_intermediate_size':2048,'n_routed_experts':256,'n_shared_experts':1,"
     "'num_experts_per_tok':8,'vocab_size':154880}"},
    {"gemma 4: seven norms, keys that are values",
     "{'model_type':'gemma4_text','num_hidden_layers':6,'hidden_size':2816,"
     "'num_attention_heads':16,'num_key_value_heads':8,'head_dim':256,'global_head_dim':512,"
     "'num_global_key_value_heads':2,'attention_k_eq_v':true,'enable_moe_block':true,"
     "'hidden_size_per_layer_input':0,'intermediate_size':2112,'moe_intermediate_size':704,"
     "'num_experts':128,'top_k_experts':8,'sliding_window':1024,'vocab_size':262144}"},
    {"olmo-2: whole queries normed",
     "{'model_type':'olmo2','num_hidden_layers':2,'hidden_size':4096,'num_attention_heads':32,"
     "'intermediate_size':11008,'vocab_size':100352}"},
    {"command-r: one norm",
     "{'model_type':'cohere','num_hidden_layers':2,'hidden_size':8192,'num_attention_heads':64,"
     "'intermediate_size':22528,'vocab_size':256000}"},
};

ParameterizedTestParameters(state, sizes)
{
    return cr_make_param_array(struct state_case, (struct state_case *)models,
                               sizeof models / sizeof *models);
}

static double block_flops(const struct mcp_block *block)
{
    double flops = 0;
    for (int i = 0; i < block->num_ops; i++)
        flops += mcp_op_flops(&block->ops[i]);
    return flops;
}

/* A layer's weights and FLOPs are those that core/model.h counts by formula. Router
 * biases, one number an expert, and the gate of one column are no products here. */
ParameterizedTest(struct state_case *c, state, sizes)
{
    struct setup s;
    setup_config(&s, c->config);
    s.job.sequence_length = 2560;
    for (int k = 0; k < s.model.num_kinds; k++) {
        const struct mcp_layer_kind *kind = &s.model.kinds[k];
        struct mcp_layer_type type = setup_layer(&s, k, MCP_RECOMPUTE_NONE);
        struct mcp_parameters parameters = mcp_layer_parameters(&s.model, kind);
        cr_expect(
            eq(i64,
               mcp_layer_type_parameters(&type, false) + mcp_layer_type_parameters(&type, true),
               mcp_parameters_total(&parameters)),
            "%s kind %d", c->name, k);
        double gate = kind->shared_expert_gate ? 2.0 * s.model.hidden_size : 0;
        double flops = 2560 * (mcp_layer_flops_per_token_forward(&s.model, kind, 2560) - gate);
        cr_expect(epsilon_eq(dbl, block_flops(&type.blocks[MCP_FORWARD]) / flops, 1, 1e-9),
                  "%s kind %d", c->name, k);
        cr_expect(epsilon_eq(dbl, block_flops(&type.blocks[MCP_BACKWARD]) / flops, 2, 1e-9),
                  "%s kind %d", c->name, k);
    }
    mcp_arena_free(s.arena);
}

/* --- tensor ranks --- */

/* Heads and their groups are cut; four ranks do a fourth each of all but norms. */
Test(state, tensor_ranks_share_heads)
{
    struct setup s;
    setup_config(&s, models[1].config);
    struct mcp_layer_type whole = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    s.plan.tensor_parallel = 4;
    s.plan.sequence_parallel = true;
    struct mcp_layer_type quarter = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    cr_expect(eq(i64, mcp_layer_type_parameters(&whole, false) - 8192,
                 4 * (mcp_layer_type_parameters(&quarter, false) - 8192)));
    cr_expect(epsilon_eq(dbl,
                         4 * block_flops(&quarter.blocks[MCP_FORWARD]) /
                             block_flops(&whole.blocks[MCP_FORWARD]),
                         1, 1e-12));
    mcp_arena_free(s.arena);
}

static int count_ops(const struct mcp_block *block, enum mcp_function function)
{
    int count = 0;
    for (int i = 0; i < block->num_ops; i++)
        count += block->ops[i].function == function;
    return count;
}

/* Mamba's channels share steps, B and C: their sums go over the tensor group, T (rank +
 * 2 n) each way, besides the layer's own two transfers. */
Test(state, mamba_sums_selectors_over_tensor_ranks)
{
    struct setup s;
    setup_config(&s, models[2].config);
    s.plan.tensor_parallel = 4;
    s.plan.sequence_parallel = true;
    struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    const struct mcp_block *forward = &type.blocks[MCP_FORWARD];
    cr_assert(eq(int, count_ops(forward, MCP_FN_ALL_REDUCE), 1));
    cr_expect(eq(int, count_ops(&type.blocks[MCP_BACKWARD], MCP_FN_ALL_REDUCE), 1));
    for (int i = 0; i < forward->num_ops; i++)
        if (forward->ops[i].function == MCP_FN_ALL_REDUCE)
            cr_expect(eq(i64, forward->ops[i].dims[0], s.job.sequence_length * (256 + 2 * 16)));
    mcp_arena_free(s.arena);
}

/* --- legality --- */

struct legal_case {
    char name[48];
    int model; /* of `models` */
    int t, c;
    char rule[48], says[96];
};
ParameterizedTestParameters(state, legal)
{
    static struct legal_case cases[] = {
        {"states pass from token to token", 1, 1, 2, "context_parallel_keeps_states",
         "the states of mamba2 layers pass from token to token; nearest legal context_parallel=1"},
        {"so do those of the delta rule", 0, 1, 4, "context_parallel_keeps_states", "gated_delta"},
        {"an indexer looks at all", 4, 1, 2, "context_parallel_keeps_states", "index_topk=2048"},
        {"attention alone may be cut", 6, 1, 2, "", ""},
        {"groups of heads", 1, 3, 1, "tensor_parallel_shares_kv_heads", "num_groups=8"},
        {"more ranks than groups hold copies", 1, 32, 1, "", ""},
    };
    return cr_make_param_array(struct legal_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct legal_case *c, state, legal)
{
    struct setup s;
    struct mcp_error err = {""};
    struct mcp_refusals refusals;
    bool found = false, any = false;
    setup_config(&s, models[c->model].config);
    s.plan.tensor_parallel = c->t;
    s.plan.context_parallel = c->c;
    s.plan.sequence_parallel = c->t > 1;
    s.job.sequence_length = 4096 * 3;
    s.job.global_batch_size = 1;
    cr_assert(mcp_cluster_set_gpus(&s.cluster, mcp_plan_world(&s.plan), &err) == MCP_OK);
    mcp_plan_uniform_chunks(s.arena, &s.plan, s.model.num_layers, MCP_RECOMPUTE_NONE);
    (void)mcp_legal(s.arena, &s.question, &s.plan, &refusals);
    for (int i = 0; i < refusals.count; i++) {
        any = true;
        found = found || (strcmp(refusals.items[i].rule, c->rule) == 0 &&
                          strstr(refusals.items[i].text, c->says) != NULL);
    }
    cr_expect(c->rule[0] != '\0' ? found : !any, "%s: %s", c->name,
              any ? refusals.items[0].text : "legal");
    mcp_arena_free(s.arena);
}

/* --- prices --- */

static double seconds_of(struct setup *s, enum mcp_function function,
                         const int64_t dims[MCP_MAX_DIMS])
{
    struct mcp_op op = {.function = (unsigned char)function, .dtype = MCP_BF16};
    const struct mcp_pricing pricing = {&s->question, &s->plan};
    memcpy(op.dims, dims, sizeof op.dims);
    return mcp_compute_seconds(&pricing, &op);
}

/* A scan takes as long as its batched products and its states' traffic. */
Test(state, scan_is_its_products)
{
    struct setup s;
    setup_config(&s, models[1].config);
    const int64_t heads = 256, groups = 8, tokens = 4096, n = 256, p = 64, q = 128;
    const int64_t chunks = tokens / q;
    const struct {
        enum mcp_function function;
        int64_t dims[MCP_MAX_DIMS];
    } products[] = {
        {MCP_FN_MATMUL_NT, {q, q, n, groups * chunks}},
        {MCP_FN_MATMUL_NT, {q, p, q, heads * chunks}},
        {MCP_FN_MATMUL_NT, {q, p, n, heads * chunks}},
        {MCP_FN_MATMUL_NT, {n, p, q, heads * chunks}},
    };
    double seconds[4], sum = 0;
    for (int i = 0; i < 4; i++)
        sum += seconds[i] = seconds_of(&s, products[i].function, products[i].dims);
    double states =
        (double)(heads * chunks * n * p) * 12 / (0.8 * s.cluster.gpu.memory_bandwidth_bytes_per_s);
    const int64_t dims[MCP_MAX_DIMS] = {heads, tokens, n, p, groups, q};
    double forward = seconds_of(&s, MCP_FN_SCAN_FORWARD, dims);
    double backward = seconds_of(&s, MCP_FN_SCAN_BACKWARD, dims);
    cr_expect(epsilon_eq(dbl, forward / (sum + states), 1, 1e-12));
    cr_expect(
        epsilon_eq(dbl, backward / (2 * forward + seconds[0] + seconds[3] + states), 1, 1e-12));
    cr_expect(seconds_of(&s, MCP_FN_DELTA_FORWARD, dims) > forward);
    mcp_arena_free(s.arena);
}

/* Mamba's scan streams: 4 elements a channel and token, B and C; twice the tokens, twice
 * the time. */
Test(state, selective_scan_streams)
{
    struct setup s;
    setup_config(&s, models[2].config);
    const int64_t dims[MCP_MAX_DIMS] = {8192, 4096, 16, 1, 1, 1},
                  twice[MCP_MAX_DIMS] = {8192, 8192, 16, 1, 1, 1};
    double bytes = 4096.0 * 2 * (4 * 8192 + 2 * 16);
    double want =
        bytes * s.stack.elementwise_factor / (0.8 * s.cluster.gpu.memory_bandwidth_bytes_per_s);
    double got = seconds_of(&s, MCP_FN_SELECTIVE_FORWARD, dims);
    cr_expect(epsilon_eq(dbl, got / want, 1, 1e-12));
    cr_expect(epsilon_eq(dbl, seconds_of(&s, MCP_FN_SELECTIVE_FORWARD, twice) / got, 2, 1e-12));
    cr_expect(seconds_of(&s, MCP_FN_SELECTIVE_BACKWARD, dims) > got);
    mcp_arena_free(s.arena);
}

/* No published run has scans or indexers: a prediction says so by its half-width. */
Test(state, what_nobody_measured_is_uncertain)
{
    for (int i = 0; i < 7; i++) {
        struct setup s;
        setup_config(&s, models[i].config);
        cr_expect(eq(int, mcp_uncertainty_frac(&s.question) >= 0.5, i < 5), "%s", models[i].name);
        mcp_arena_free(s.arena);
    }
}

/* --- memory that tools got wrong --- */

struct bytes_case {
    char name[48];
    char stack[16];
    int precision;
    double bytes; /* weights, gradients, optimizer of a parameter */
};
ParameterizedTestParameters(state, bytes)
{
    static struct bytes_case cases[] = {
        {"16 bit weights and gradients, fp32 master", "deepspeed", MCP_PRECISION_BF16, 16},
        {"fp32 gradients besides", "megatron-core", MCP_PRECISION_BF16, 18},
        {"all in fp32: no second master", "deepspeed", MCP_PRECISION_FP32, 16},
        {"all in fp32, fp32 gradients", "megatron-core", MCP_PRECISION_FP32, 16},
    };
    return cr_make_param_array(struct bytes_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct bytes_case *c, state, bytes)
{
    static const int kept[] = {MCP_LAYER_WEIGHTS, MCP_LAYER_GRADIENTS, MCP_LAYER_OPTIMIZER};
    struct setup s;
    setup_load(&s, "llama-3.1-8b", "dgx-h100", c->stack);
    s.job.precision = (enum mcp_precision)c->precision;
    s.plan.zero_stage = 0;
    struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    double bytes = 0, parameters = (double)mcp_layer_type_parameters(&type, false);
    for (int i = 0; i < 3; i++)
        bytes += (double)type.buffers[MCP_SPACE_LAYER][kept[i]].bytes;
    cr_expect(epsilon_eq(dbl, bytes / parameters, c->bytes, 1e-9), "%s", c->name);
    mcp_arena_free(s.arena);
}

/* Experts are spread over their group alone: 1,014,686,023,680 over 8 in Kimi K2. */
Test(state, experts_are_spread)
{
    struct setup s;
    setup_config(&s, "{'model_type':'kimi_k2','num_hidden_layers':61,'hidden_size':7168,"
                     "'num_attention_heads':64,'q_lora_rank':1536,'kv_lora_rank':512,"
                     "'qk_nope_head_dim':128,'qk_rope_head_dim':64,'v_head_dim':128,"
                     "'intermediate_size':18432,'first_k_dense_replace':1,"
                     "'moe_intermediate_size':2048,'n_routed_experts':384,'n_shared_experts':1,"
                     "'num_experts_per_tok':8,'vocab_size':163840}");
    s.plan.data_parallel = 8;
    s.plan.expert_parallel = 8;
    struct mcp_layer_type type = setup_layer(&s, 1, MCP_RECOMPUTE_NONE);
    const struct mcp_parameters count = mcp_model_parameters(&s.model);
    cr_expect(eq(i64, count.experts, 1014686023680));
    cr_expect(eq(i64, 60 * mcp_layer_type_parameters(&type, true), 126835752960));
    cr_expect(mcp_parameters_total(&count) - count.experts < 12000000000);
    mcp_arena_free(s.arena);
}
