/* core/model_count.c: parameters, FLOPs and key-value cache of a model, from its shapes.
 *
 * A layer's weight matrices are counted once, below; parameters add biases and
 * norms to them, FLOPs are 2 for each of their elements that a token meets. */
#include "core/model.h"

#include <assert.h>

/* Matrices of the MLA projections, DeepSeek-V2 (arXiv 2405.04434) appendix C. */
static int64_t latent_weights(int64_t hidden, const struct mcp_layer_kind *kind)
{
    const int64_t heads = kind->num_attention_heads;
    const int64_t query = heads * kind->head_dim;
    const int64_t nope = kind->head_dim - kind->qk_rope_head_dim;
    const int64_t query_in = kind->q_lora_rank > 0 ? kind->q_lora_rank : hidden;
    const int64_t query_down = kind->q_lora_rank > 0 ? hidden * kind->q_lora_rank : 0;
    const int64_t kv_down = hidden * (kind->kv_lora_rank + kind->qk_rope_head_dim);
    const int64_t kv_up = kind->kv_lora_rank * heads * (nope + kind->value_head_dim);
    return query_down + query_in * query + kv_down + kv_up + heads * kind->value_head_dim * hidden;
}

static int64_t attention_weights(int64_t hidden, const struct mcp_layer_kind *kind)
{
    if (kind->attention == MCP_ATTENTION_LATENT)
        return latent_weights(hidden, kind);
    const int64_t heads = kind->num_attention_heads;
    const int64_t key_value = kind->head_dim + kind->value_head_dim;
    return hidden *
           (heads * kind->head_dim + kind->num_kv_heads * key_value + heads * kind->value_head_dim);
}

/* Under MLA only the projections of the hidden state have biases. */
static int64_t attention_biases(int64_t hidden, const struct mcp_layer_kind *kind)
{
    int64_t inputs;
    if (kind->attention == MCP_ATTENTION_LATENT)
        inputs = (int64_t)kind->q_lora_rank + kind->kv_lora_rank + kind->qk_rope_head_dim;
    else
        inputs = (int64_t)kind->num_attention_heads * kind->head_dim +
                 (int64_t)kind->num_kv_heads * (kind->head_dim + kind->value_head_dim);
    return (kind->attention_bias ? inputs : 0) + (kind->attention_output_bias ? hidden : 0) +
           (kind->attention_sinks ? kind->num_attention_heads : 0);
}

/* Matrices of one MLP of width `ffn`. */
static int64_t mlp_weights(int64_t hidden, int64_t ffn, bool gated)
{
    return (gated ? 3 : 2) * hidden * ffn;
}

static int64_t mlp_biases(int64_t hidden, int64_t ffn, bool gated)
{
    return (gated ? 2 : 1) * ffn + hidden;
}

static int64_t expert_parameters(int64_t hidden, const struct mcp_layer_kind *kind)
{
    const int64_t ffn = kind->moe_ffn_hidden_size;
    return mlp_weights(hidden, ffn, kind->gated_mlp) +
           (kind->expert_bias ? mlp_biases(hidden, ffn, kind->gated_mlp) : 0);
}

/* One norm over `width` numbers. */
static int64_t norm_parameters(const struct mcp_model *model, int64_t width)
{
    return model->norm == MCP_LAYERNORM ? 2 * width : width;
}

static int64_t layer_norms(const struct mcp_model *model, const struct mcp_layer_kind *kind)
{
    int64_t width = (int64_t)model->norms_per_layer * model->hidden_size;
    if (kind->attention == MCP_ATTENTION_LATENT)
        width += kind->q_lora_rank + kind->kv_lora_rank;
    if (kind->qk_norm)
        width += 2 * (int64_t)kind->head_dim;
    if (kind->qk_layernorm_full)
        width += (int64_t)kind->head_dim * (kind->num_attention_heads + kind->num_kv_heads);
    return norm_parameters(model, width);
}

struct mcp_parameters mcp_layer_parameters(const struct mcp_model *model,
                                           const struct mcp_layer_kind *kind)
{
    const int64_t hidden = model->hidden_size;
    struct mcp_parameters count = {
        .attention = attention_weights(hidden, kind) + attention_biases(hidden, kind),
        .norms = layer_norms(model, kind),
    };
    if (kind->mlp == MCP_MLP_DENSE) {
        const int64_t ffn = kind->ffn_hidden_size;
        count.mlp = mlp_weights(hidden, ffn, kind->gated_mlp) +
                    (kind->mlp_bias ? mlp_biases(hidden, ffn, kind->gated_mlp) : 0);
        return count;
    }
    count.experts = kind->num_experts * expert_parameters(hidden, kind);
    count.shared_experts =
        mlp_weights(hidden, kind->shared_expert_ffn_hidden_size, kind->gated_mlp) +
        (kind->shared_expert_gate ? hidden : 0);
    count.router = kind->num_experts * (hidden + (kind->router_bias ? 1 : 0));
    return count;
}

static void parameters_add(struct mcp_parameters *sum, const struct mcp_parameters *layer,
                           int64_t times)
{
    sum->attention += times * layer->attention;
    sum->mlp += times * layer->mlp;
    sum->experts += times * layer->experts;
    sum->shared_experts += times * layer->shared_experts;
    sum->router += times * layer->router;
    sum->norms += times * layer->norms;
}

int mcp_model_layers_of_kind(const struct mcp_model *model, int kind)
{
    int count = 0;
    for (int layer = 0; layer < model->num_layers; layer++)
        count += model->layer_kind[layer] == kind;
    return count;
}

/* One MTP module: two norms, their joint projection, a layer, a last norm;
 * embedding and head are the model's own (DeepSeek-V3, arXiv 2412.19437, 2.2). */
static int64_t mtp_parameters(const struct mcp_model *model)
{
    const int64_t hidden = model->hidden_size;
    const struct mcp_parameters layer = mcp_layer_parameters(model, &model->kinds[model->mtp_kind]);
    return mcp_parameters_total(&layer) + 2 * hidden * hidden + 3 * norm_parameters(model, hidden);
}

struct mcp_parameters mcp_model_parameters(const struct mcp_model *model)
{
    const int64_t hidden = model->hidden_size;
    struct mcp_parameters sum = {
        .embedding = model->vocab_size * hidden,
        .head = model->tied_embeddings ? 0 : model->vocab_size * hidden,
        .positions =
            model->position == MCP_POSITION_LEARNED ? model->max_sequence_length * hidden : 0,
        .final_norm = norm_parameters(model, hidden),
        .mtp = model->num_mtp_layers > 0 ? model->num_mtp_layers * mtp_parameters(model) : 0,
    };
    for (int kind = 0; kind < model->num_kinds; kind++) {
        const struct mcp_parameters layer = mcp_layer_parameters(model, &model->kinds[kind]);
        parameters_add(&sum, &layer, mcp_model_layers_of_kind(model, kind));
    }
    return sum;
}

int64_t mcp_parameters_total(const struct mcp_parameters *p)
{
    return p->attention + p->mlp + p->experts + p->shared_experts + p->router + p->norms +
           p->embedding + p->head + p->positions + p->final_norm;
}

/* Parameters of the experts that a token does not choose. */
static int64_t idle_expert_parameters(const struct mcp_model *model,
                                      const struct mcp_layer_kind *kind)
{
    if (kind->mlp == MCP_MLP_DENSE)
        return 0;
    const int64_t idle = kind->num_experts - kind->experts_per_token;
    return idle * expert_parameters(model->hidden_size, kind);
}

int64_t mcp_layer_active_parameters(const struct mcp_model *model,
                                    const struct mcp_layer_kind *kind)
{
    const struct mcp_parameters count = mcp_layer_parameters(model, kind);
    return mcp_parameters_total(&count) - idle_expert_parameters(model, kind);
}

int64_t mcp_model_active_parameters(const struct mcp_model *model)
{
    const struct mcp_parameters count = mcp_model_parameters(model);
    int64_t active = mcp_parameters_total(&count);
    for (int kind = 0; kind < model->num_kinds; kind++)
        active -= mcp_model_layers_of_kind(model, kind) *
                  idle_expert_parameters(model, &model->kinds[kind]);
    return active;
}

int64_t mcp_layer_kv_elements_per_token(const struct mcp_layer_kind *kind)
{
    if (kind->attention == MCP_ATTENTION_LATENT)
        return (int64_t)kind->kv_lora_rank + kind->qk_rope_head_dim;
    return (int64_t)kind->num_kv_heads * (kind->head_dim + kind->value_head_dim);
}

int64_t mcp_model_kv_elements_per_token(const struct mcp_model *model)
{
    int64_t elements = 0;
    for (int kind = 0; kind < model->num_kinds; kind++)
        elements += mcp_model_layers_of_kind(model, kind) *
                    mcp_layer_kv_elements_per_token(&model->kinds[kind]);
    return elements;
}

double mcp_attention_pairs(const struct mcp_layer_kind *kind, int64_t sequence_length)
{
    const double s = (double)sequence_length;
    const double w = (double)kind->sliding_window;
    if (w > 0.0 && w < s)
        return s * w - w * w / 2.0;
    return s * s / 2.0;
}

/* Elements of weight matrices that one token is multiplied by. */
static int64_t matmul_weights_per_token(const struct mcp_model *model,
                                        const struct mcp_layer_kind *kind)
{
    const int64_t hidden = model->hidden_size;
    const int64_t attention = attention_weights(hidden, kind);
    if (kind->mlp == MCP_MLP_DENSE)
        return attention + mlp_weights(hidden, kind->ffn_hidden_size, kind->gated_mlp);
    return attention + kind->num_experts * hidden +
           kind->experts_per_token *
               mlp_weights(hidden, kind->moe_ffn_hidden_size, kind->gated_mlp) +
           mlp_weights(hidden, kind->shared_expert_ffn_hidden_size, kind->gated_mlp) +
           (kind->shared_expert_gate ? hidden : 0);
}

double mcp_layer_flops_per_token_forward(const struct mcp_model *model,
                                         const struct mcp_layer_kind *kind, int64_t sequence_length)
{
    assert(sequence_length > 0);
    const double pairs_per_token =
        mcp_attention_pairs(kind, sequence_length) / (double)sequence_length;
    const double widths =
        (double)kind->num_attention_heads * ((double)kind->head_dim + (double)kind->value_head_dim);
    return 2.0 * (double)matmul_weights_per_token(model, kind) + 2.0 * pairs_per_token * widths;
}

double mcp_model_flops_per_token_forward(const struct mcp_model *model, int64_t sequence_length)
{
    const double hidden = (double)model->hidden_size;
    const double head = 2.0 * hidden * (double)model->vocab_size;
    double flops = head;
    for (int kind = 0; kind < model->num_kinds; kind++)
        flops += (double)mcp_model_layers_of_kind(model, kind) *
                 mcp_layer_flops_per_token_forward(model, &model->kinds[kind], sequence_length);
    if (model->num_mtp_layers > 0)
        flops += (double)model->num_mtp_layers *
                 (head + 4.0 * hidden * hidden +
                  mcp_layer_flops_per_token_forward(model, &model->kinds[model->mtp_kind],
                                                    sequence_length));
    return flops;
}
