/* step/facts.c: the facts of a layer type, from the model, the job and the plan. */
#include "step/builder.h"

#include "core/minmax.h"

#include <math.h>
#include <stdio.h>

static double given_or(double value, double otherwise)
{
    return value > 0 ? value : otherwise;
}

static void set_tokens(const struct mcp_builder *b, struct mcp_layer_facts *facts)
{
    int64_t pieces = 2 * (int64_t)b->plan->context_parallel;
    facts->microbatch_size = b->plan->microbatch_size;
    facts->sequence_length = b->sequence;
    facts->sequence_local = b->sequence_local;
    facts->zigzag = b->plan->context_parallel > 1 && b->sequence % pieces == 0;
    facts->hidden_size = b->hidden;
}

static void set_rotary(const struct mcp_builder *b, struct mcp_layer_facts *facts)
{
    const struct mcp_numerics *numerics = &b->model->numerics;
    if (b->model->position != MCP_POSITION_ROTARY)
        return;
    double columns = given_or(numerics->rotary_frac, 1) * (double)b->kind->head_dim;
    facts->rotary_dim = (int64_t)columns / 2 * 2;
    facts->rotary_base = given_or(numerics->rotary_base, 10000);
    facts->rotary_scaling = numerics->rotary_scaling;
    facts->rotary_factor = numerics->rotary_factor;
    facts->rotary_low_factor = numerics->rotary_low_factor;
    facts->rotary_high_factor = numerics->rotary_high_factor;
    facts->rotary_original_length = numerics->rotary_original_length;
}

static void set_attention(const struct mcp_builder *b, struct mcp_layer_facts *facts)
{
    const struct mcp_layer_kind *kind = b->kind;
    int t = b->plan->tensor_parallel;
    facts->heads = kind->num_attention_heads / t;
    facts->kv_heads = mcp_max_int64(1, kind->num_kv_heads / t);
    facts->head_dim = kind->head_dim;
    facts->value_head_dim = kind->value_head_dim;
    facts->sliding_window = kind->sliding_window;
    facts->attention_chunk_size = kind->attention_chunk_size;
    facts->softmax_scale = 1 / sqrt((double)kind->head_dim);
    set_rotary(b, facts);
}

static void set_mlp(const struct mcp_builder *b, struct mcp_layer_facts *facts)
{
    const struct mcp_layer_kind *kind = b->kind;
    facts->gated = kind->gated_mlp;
    facts->activation = b->model->numerics.activation;
    if (facts->activation == MCP_ACTIVATION_UNSAID)
        facts->activation = kind->gated_mlp ? MCP_ACTIVATION_SILU : MCP_ACTIVATION_GELU_TANH;
    if (kind->mlp != MCP_MLP_EXPERTS)
        return;
    facts->num_experts = kind->num_experts;
    facts->local_experts = kind->num_experts / b->plan->expert_parallel;
    facts->experts_per_token = kind->experts_per_token;
    facts->raw_top_k = b->model->numerics.raw_top_k;
}

/* Projections into the residual stream begin smaller, by the square root of their number
 * (GPT-2, Radford et al. 2019, section 2.3). */
static void set_beginnings(const struct mcp_builder *b, struct mcp_layer_facts *facts)
{
    facts->init_std = given_or(b->model->numerics.init_std, 0.02);
    facts->residual_init_std = facts->init_std / sqrt(2.0 * (double)b->model->num_layers);
}

static const char *attention_lack(const struct mcp_builder *b)
{
    const struct mcp_layer_kind *kind = b->kind;
    int t = b->plan->tensor_parallel;
    bool all_to_all = b->plan->context_parallel_kind == MCP_CONTEXT_ALL_TO_ALL;
    int c = all_to_all ? b->plan->context_parallel : 1; /* who share the heads of a tensor rank */
    bool replicated = mcp_has_softmax(kind) && kind->num_kv_heads % t != 0;
    bool split = mcp_has_softmax(kind) && kind->num_kv_heads % ((int64_t)t * c) != 0;
    const struct {
        bool is;
        const char *what;
    } lacks[] = {
        {kind->attention != MCP_ATTENTION_GROUPED && kind->attention != MCP_ATTENTION_NONE,
         "latent or recurrent attention"},
        {replicated, "key-value heads that tensor ranks share"},
        {split, "key-value heads that context ranks share"},
        {kind->head_dim > MCP_MAX_HEAD_DIM || kind->value_head_dim > MCP_MAX_HEAD_DIM,
         "heads wider than 256"},
        {kind->attention_sinks, "attention sinks"},
        {kind->attention_output_gate, "gated attention"},
        {kind->keys_are_values, "keys that are values"},
        {kind->qk_layernorm_full && t > 1, "a norm over the heads of several ranks"},
        {kind->qk_norm && t > 1 && !b->plan->sequence_parallel,
         "a norm of heads without sequence parallelism"},
        {(kind->qk_norm || kind->qk_layernorm_full) && kind->attention_bias,
         "biases before a norm of heads"},
        {b->model->position == MCP_POSITION_ALIBI, "ALiBi positions"},
        {b->model->numerics.rotary_scaling == MCP_ROTARY_OTHER, "its rotary scaling"},
        {mcp_attention_norms(b->model, kind) > 1, "norms of a branch"},
        {kind->index_topk > 0, "keys that an indexer chooses"},
    };
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
        if (lacks[i].is)
            return lacks[i].what;
    return "";
}

static const char *mlp_lack(const struct mcp_builder *b)
{
    const struct mcp_layer_kind *kind = b->kind;
    const struct {
        bool is;
        const char *what;
    } lacks[] = {
        {b->model->numerics.activation == MCP_ACTIVATION_OTHER, "its activation"},
        {kind->expert_bias, "biases of experts"},
        {kind->num_experts > MCP_MAX_ROUTED, "more than 4096 experts"},
        {kind->shared_expert_gate, "a gated shared expert"},
        {kind->router_correction_bias, "a router with correction biases"},
        {mcp_mlp_norms(b->model, kind) > 1, "norms of a branch"},
    };
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
        if (lacks[i].is)
            return lacks[i].what;
    return "";
}

static const char *lack_of(const struct mcp_builder *b)
{
    if (b->kind == NULL)
        return b->spec->kind == MCP_KIND_EMBEDDING && b->model->embedding_norm
                   ? "a norm over the embeddings"
                   : "";
    if (b->spec->mtp)
        return "multi-token prediction";
    const char *what = attention_lack(b);
    return what[0] != '\0' ? what : mlp_lack(b);
}

void mcp_facts_fill(const struct mcp_builder *b)
{
    struct mcp_layer_facts *facts = &b->type->facts;
    if (b->spec->kind == MCP_KIND_STEP)
        return;
    set_tokens(b, facts);
    facts->norm_centers = b->model->norm != MCP_RMSNORM;
    facts->norm_biases = mcp_model_norm_rows(b->model) == 2;
    facts->norm_epsilon = given_or(b->model->numerics.norm_epsilon, 1e-5);
    if (b->kind != NULL && mcp_has_softmax(b->kind))
        set_attention(b, facts);
    if (b->kind != NULL && b->kind->mlp != MCP_MLP_NONE)
        set_mlp(b, facts);
    facts->vocab_size = b->model->vocab_size;
    facts->vocab_local = mcp_local_vocabulary(b->model, b->plan);
    set_beginnings(b, facts);
    snprintf(facts->lack, sizeof facts->lack, "%s", lack_of(b));
}
