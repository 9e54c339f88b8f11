/* core/model_count.c: parameters, FLOPs and key-value cache of a model, from its shapes.
 *
 * A layer's weight matrices are counted once, below; parameters add biases and
 * norms to them, FLOPs are 2 for each of their elements that a token meets. */
#include "core/model.h"

#include <assert.h>

/* Recurrent layers ---------------------------------------------------------- */

bool mcp_is_recurrent(const struct mcp_layer_kind *kind)
{
    return kind->attention == MCP_ATTENTION_GATED_DELTA ||
           kind->attention == MCP_ATTENTION_LIGHTNING || kind->attention == MCP_ATTENTION_MAMBA ||
           kind->attention == MCP_ATTENTION_MAMBA2;
}

bool mcp_has_softmax(const struct mcp_layer_kind *kind)
{
    return kind->attention == MCP_ATTENTION_GROUPED || kind->attention == MCP_ATTENTION_LATENT;
}

/* Values and gates are as wide as the heads; queries and keys as their groups, but
 * Mamba makes them from the convolved values; the others may have steps (and the
 * delta rule strengths) of each head. */
int64_t mcp_recurrent_inputs(const struct mcp_layer_kind *kind, int64_t heads, int64_t groups)
{
    const int64_t values = 2 * heads * kind->head_dim;
    const int64_t pairs = 2 * groups * kind->state_size;
    switch (kind->attention) {
    case MCP_ATTENTION_GATED_DELTA:
        return values + pairs + 2 * heads;
    case MCP_ATTENTION_MAMBA2:
        return values + pairs + heads;
    case MCP_ATTENTION_LIGHTNING:
        return values + pairs;
    default:
        return values;
    }
}

int64_t mcp_recurrent_conv(const struct mcp_layer_kind *kind, int64_t heads, int64_t groups)
{
    const int64_t values = heads * kind->head_dim;
    if (kind->conv_kernel == 0)
        return 0;
    return kind->attention == MCP_ATTENTION_MAMBA ? values : values + 2 * groups * kind->state_size;
}

/* Mamba: step biases, skips and a decay for each state; Mamba-2: one of each a head;
 * delta rule: step biases and decays. */
int64_t mcp_recurrent_scalars(const struct mcp_layer_kind *kind, int64_t heads)
{
    switch (kind->attention) {
    case MCP_ATTENTION_MAMBA:
        return heads * (kind->state_size + 2);
    case MCP_ATTENTION_MAMBA2:
        return 3 * heads;
    case MCP_ATTENTION_GATED_DELTA:
        return 2 * heads;
    default:
        return 0;
    }
}

/* Steps, B and C of a token in Mamba. */
static int64_t mamba_selectors(const struct mcp_layer_kind *kind)
{
    return (int64_t)kind->time_step_rank + 2 * (int64_t)kind->state_size;
}

static int64_t recurrent_weights(int64_t hidden, const struct mcp_layer_kind *kind)
{
    const int64_t heads = kind->num_attention_heads, inner = heads * kind->head_dim;
    int64_t weights = hidden * (mcp_recurrent_inputs(kind, heads, kind->num_groups) + inner);
    if (kind->attention == MCP_ATTENTION_MAMBA)
        weights += inner * (mamba_selectors(kind) + kind->time_step_rank);
    return weights;
}

static int64_t recurrent_biases(int64_t hidden, const struct mcp_layer_kind *kind)
{
    const int64_t heads = kind->num_attention_heads, groups = kind->num_groups;
    const int64_t inputs = mcp_recurrent_inputs(kind, heads, groups);
    return mcp_recurrent_conv(kind, heads, groups) * (kind->conv_kernel + kind->conv_bias) +
           mcp_recurrent_scalars(kind, heads) + (kind->attention_bias ? inputs : 0) +
           (kind->attention_output_bias ? hidden : 0);
}

/* The norm of the output before its projection, and Mamba's inner ones. */
static int64_t recurrent_norm_width(const struct mcp_layer_kind *kind)
{
    switch (kind->attention) {
    case MCP_ATTENTION_GATED_DELTA:
        return kind->head_dim;
    case MCP_ATTENTION_MAMBA:
        return kind->qk_norm ? mamba_selectors(kind) : 0;
    default:
        return (int64_t)kind->num_attention_heads * kind->head_dim;
    }
}

/* Dao & Gu 2024 (arXiv 2405.21060) section 6: in chunks of Q tokens, the scores of
 * each group (Q n) and each head's products with them (Q p), what a chunk adds to the
 * state and what it reads from it (n p each). The delta rule (Yang et al. 2024, arXiv
 * 2406.06484, section 3.2) multiplies keys with keys besides (Q n a group), applies
 * the inverse to keys and values (Q n, Q p) and takes the state's part off (n p). */
double mcp_scan_products(const struct mcp_scan *scan)
{
    const double n = scan->state_size, p = scan->head_dim, chunk = scan->chunk_size;
    if (scan->is_delta_rule)
        return scan->groups * 2 * chunk * n + scan->heads * (chunk * (n + 2 * p) + 3 * n * p);
    return scan->groups * chunk * n + scan->heads * (chunk * p + 2 * n * p);
}

/* Attention ----------------------------------------------------------------- */

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

/* Queries from the latent, one key, a weight of each head (DeepSeek-V3.2, section 2.1). */
static int64_t indexer_weights(int64_t hidden, const struct mcp_layer_kind *kind)
{
    const int64_t heads = kind->index_num_heads, dim = kind->index_head_dim;
    const int64_t query_in = kind->q_lora_rank > 0 ? kind->q_lora_rank : hidden;
    return query_in * heads * dim + hidden * dim + hidden * heads;
}

/* Numbers of keys and values that a token's projections make. */
static int64_t key_value_columns(const struct mcp_layer_kind *kind)
{
    const int64_t each =
        kind->keys_are_values ? kind->head_dim : (int64_t)kind->head_dim + kind->value_head_dim;
    return kind->num_kv_heads * each;
}

static int64_t query_columns(const struct mcp_layer_kind *kind)
{
    const int64_t gate = kind->attention_output_gate ? kind->value_head_dim : 0;
    return (int64_t)kind->num_attention_heads * (kind->head_dim + gate);
}

static int64_t attention_weights(int64_t hidden, const struct mcp_layer_kind *kind)
{
    if (kind->attention == MCP_ATTENTION_NONE)
        return 0;
    if (mcp_is_recurrent(kind))
        return recurrent_weights(hidden, kind);
    if (kind->attention == MCP_ATTENTION_LATENT)
        return latent_weights(hidden, kind) + indexer_weights(hidden, kind);
    return hidden * (query_columns(kind) + key_value_columns(kind) +
                     (int64_t)kind->num_attention_heads * kind->value_head_dim);
}

/* Under MLA only the projections of the hidden state have biases. */
static int64_t attention_biases(int64_t hidden, const struct mcp_layer_kind *kind)
{
    if (kind->attention == MCP_ATTENTION_NONE)
        return 0;
    if (mcp_is_recurrent(kind))
        return recurrent_biases(hidden, kind);
    const int64_t inputs =
        kind->attention == MCP_ATTENTION_LATENT
            ? (int64_t)kind->q_lora_rank + kind->kv_lora_rank + kind->qk_rope_head_dim
            : query_columns(kind) + key_value_columns(kind);
    return (kind->attention_bias ? inputs : 0) + (kind->attention_output_bias ? hidden : 0) +
           (kind->attention_sinks ? kind->num_attention_heads : 0);
}

/* MLPs ---------------------------------------------------------------------- */

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

/* Norms --------------------------------------------------------------------- */

int mcp_model_norm_rows(const struct mcp_model *model)
{
    static const int rows[MCP_NUM_NORMS] = {
        [MCP_RMSNORM] = 1, [MCP_LAYERNORM] = 2, [MCP_LAYERNORM_NO_BIAS] = 1};
    return rows[model->norm];
}

/* One norm over `width` numbers. */
static int64_t norm_parameters(const struct mcp_model *model, int64_t width)
{
    return mcp_model_norm_rows(model) * width;
}

/* Of an odd number the MLP has the more; a part that is alone has its half. */
int mcp_attention_norms(const struct mcp_model *model, const struct mcp_layer_kind *kind)
{
    if (kind->attention == MCP_ATTENTION_NONE)
        return 0;
    return model->norms_per_layer < 4 ? 1 : 2;
}

int mcp_mlp_norms(const struct mcp_model *model, const struct mcp_layer_kind *kind)
{
    if (kind->mlp == MCP_MLP_NONE)
        return 0;
    const int others = model->norms_per_layer - (model->norms_per_layer < 4 ? 1 : 2);
    return kind->attention == MCP_ATTENTION_NONE && others == 0 ? 1 : others;
}

/* The indexer's key has a LayerNorm whatever the model's norms are. */
static int64_t layer_norms(const struct mcp_model *model, const struct mcp_layer_kind *kind)
{
    int64_t norms = mcp_attention_norms(model, kind) + mcp_mlp_norms(model, kind);
    int64_t width = norms * model->hidden_size;
    if (mcp_is_recurrent(kind))
        return norm_parameters(model, width) + recurrent_norm_width(kind);
    if (kind->attention == MCP_ATTENTION_LATENT)
        width += kind->q_lora_rank + kind->kv_lora_rank;
    if (kind->qk_norm)
        width += 2 * (int64_t)kind->head_dim;
    if (kind->qk_layernorm_full)
        width += (int64_t)kind->head_dim * (kind->num_attention_heads + kind->num_kv_heads);
    return norm_parameters(model, width) + 2 * (int64_t)kind->index_head_dim;
}

/* Parameters ---------------------------------------------------------------- */

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
    }
    if (kind->mlp != MCP_MLP_EXPERTS)
        return count;
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

static int64_t position_rows(const struct mcp_model *model)
{
    return model->position == MCP_POSITION_LEARNED
               ? (int64_t)model->max_sequence_length + model->extra_positions
               : 0;
}

struct mcp_parameters mcp_model_parameters(const struct mcp_model *model)
{
    const int64_t hidden = model->hidden_size, vocabulary = model->vocab_size;
    struct mcp_parameters sum = {
        .embedding = vocabulary * hidden,
        .head = (model->tied_embeddings ? 0 : vocabulary * hidden) +
                (model->head_bias ? vocabulary : 0),
        .positions = position_rows(model) * hidden,
        .final_norm = norm_parameters(model, hidden * (model->embedding_norm ? 2 : 1)),
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
    if (kind->mlp != MCP_MLP_EXPERTS)
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

/* What a sequence leaves behind --------------------------------------------- */

int64_t mcp_layer_kv_elements_per_token(const struct mcp_layer_kind *kind)
{
    if (!mcp_has_softmax(kind))
        return 0;
    if (kind->attention == MCP_ATTENTION_LATENT)
        return (int64_t)kind->kv_lora_rank + kind->qk_rope_head_dim + kind->index_head_dim;
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

int64_t mcp_layer_state_elements(const struct mcp_layer_kind *kind)
{
    if (!mcp_is_recurrent(kind))
        return 0;
    const int64_t heads = kind->num_attention_heads;
    const int64_t kept = kind->conv_kernel > 1 ? kind->conv_kernel - 1 : 0;
    return heads * kind->head_dim * kind->state_size +
           kept * mcp_recurrent_conv(kind, heads, kind->num_groups);
}

int64_t mcp_model_state_elements(const struct mcp_model *model)
{
    int64_t elements = 0;
    for (int kind = 0; kind < model->num_kinds; kind++)
        elements +=
            mcp_model_layers_of_kind(model, kind) * mcp_layer_state_elements(&model->kinds[kind]);
    return elements;
}

/* FLOPs --------------------------------------------------------------------- */

double mcp_attention_pairs(const struct mcp_layer_kind *kind, int64_t sequence_length)
{
    const double s = (double)sequence_length;
    const double c = (double)kind->attention_chunk_size;
    const double w = (double)(kind->index_topk > 0 ? kind->index_topk : kind->sliding_window);
    if (w > 0.0 && w < s)
        return s * w - w * w / 2.0;
    return c > 0.0 && c < s ? s * c / 2.0 : s * s / 2.0;
}

int mcp_scan_chunk(const struct mcp_layer_kind *kind, int64_t sequence_length)
{
    return kind->chunk_size < sequence_length ? kind->chunk_size : (int)sequence_length;
}

/* Elements of weight matrices that one token is multiplied by. */
static int64_t matmul_weights_per_token(const struct mcp_model *model,
                                        const struct mcp_layer_kind *kind)
{
    const int64_t hidden = model->hidden_size;
    const int64_t attention = attention_weights(hidden, kind);
    if (kind->mlp == MCP_MLP_NONE)
        return attention;
    if (kind->mlp == MCP_MLP_DENSE)
        return attention + mlp_weights(hidden, kind->ffn_hidden_size, kind->gated_mlp);
    return attention + kind->num_experts * hidden +
           kind->experts_per_token *
               mlp_weights(hidden, kind->moe_ffn_hidden_size, kind->gated_mlp) +
           mlp_weights(hidden, kind->shared_expert_ffn_hidden_size, kind->gated_mlp) +
           (kind->shared_expert_gate ? hidden : 0);
}

/* Multiply-adds of scores and their sums, or of the scan, per token. The indexer
 * scores every pair. */
static double mixing_products(const struct mcp_layer_kind *kind, int64_t sequence_length)
{
    if (mcp_is_recurrent(kind))
        return mcp_scan_products(&(struct mcp_scan){
            .is_delta_rule = kind->attention == MCP_ATTENTION_GATED_DELTA,
            .heads = kind->num_attention_heads,
            .groups = kind->num_groups,
            .state_size = kind->state_size,
            .head_dim = kind->head_dim,
            .chunk_size = mcp_scan_chunk(kind, sequence_length),
        });
    const double widths =
        (double)kind->num_attention_heads * ((double)kind->head_dim + (double)kind->value_head_dim);
    const double indexed = (double)kind->index_num_heads * (double)kind->index_head_dim;
    const double s = (double)sequence_length;
    return mcp_attention_pairs(kind, sequence_length) / s * widths + s / 2.0 * indexed;
}

double mcp_layer_flops_per_token_forward(const struct mcp_model *model,
                                         const struct mcp_layer_kind *kind, int64_t sequence_length)
{
    assert(sequence_length > 0);
    return 2.0 * (double)matmul_weights_per_token(model, kind) +
           2.0 * mixing_products(kind, sequence_length);
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
