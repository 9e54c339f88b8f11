/* step/layer_attention.c: the attention half of a decoder layer: norm, projections, core. */
#include "step/layer_attention.h"

#include "core/minmax.h"

#include <math.h>
#include <string.h>

static void declare_shapes(struct mcp_builder *b, struct mcp_attention_values *v)
{
    const struct mcp_layer_kind *kind = b->kind;
    int t = b->plan->tensor_parallel;
    int64_t heads = kind->num_attention_heads / t;
    int64_t kv_heads =
        kind->attention == MCP_ATTENTION_LATENT ? heads : mcp_max_int64(1, kind->num_kv_heads / t);
    v->batch_heads = b->plan->microbatch_size * heads;
    v->query_columns = heads * kind->head_dim;
    v->value_columns = heads * kind->value_head_dim;
    v->kv_columns = kv_heads * (kind->head_dim + kind->value_head_dim);
    v->key_columns = kv_heads * kind->head_dim;
    v->gate_columns = kind->attention_output_gate ? v->value_columns : 0;
    v->pairs = mcp_attention_pairs(kind, b->sequence);
}

static bool norms_queries(const struct mcp_layer_kind *kind)
{
    return kind->qk_norm || kind->qk_layernorm_full;
}

/* One norm over all queries and one over all keys: each rank holds its columns'. */
static int full_norm_part(struct mcp_builder *b, const struct mcp_attention_values *v)
{
    int rows = mcp_model_norm_rows(b->model);
    int64_t columns = v->query_columns + v->key_columns;
    if (rows == 0)
        return 0;
    int part = mcp_weight_part(b, "qk_norm", rows, columns, false);
    mcp_part(b, part)->by_columns = true;
    mcp_part(b, part)->init = MCP_INIT_NORM;
    return part;
}

/* Rows of queries, gates, keys and values are cut over the tensor group each by itself. */
static void set_bands(struct mcp_builder *b, const struct mcp_attention_values *v, int part)
{
    const int64_t rows[MCP_MAX_BANDS] = {v->query_columns, v->gate_columns, v->key_columns,
                                         b->kind->keys_are_values ? 0
                                                                  : v->kv_columns - v->key_columns};
    int64_t *bands = mcp_part(b, part)->bands;
    for (int i = 0; i < MCP_MAX_BANDS; i++)
        if (rows[i] > 0)
            *bands++ = rows[i];
}

static void declare_projections(struct mcp_builder *b, struct mcp_attention_values *v)
{
    const struct mcp_layer_kind *kind = b->kind;
    int64_t tokens = b->tokens, h = b->hidden;
    int64_t columns = v->query_columns + v->gate_columns +
                      (kind->keys_are_values ? v->key_columns : v->kv_columns);
    v->qkv = mcp_linear_of(mcp_weight_part(b, "qkv", columns, h, false), tokens, columns, h);
    if (kind->attention_bias)
        v->qkv_bias = mcp_bias_part(b, "qkv_bias", columns, false);
    set_bands(b, v, v->qkv.weight);
    if (v->qkv_bias > 0)
        set_bands(b, v, v->qkv_bias);
    if (norms_queries(kind)) {
        v->qk_norm_weight =
            kind->qk_norm ? mcp_norm_part(b, "qk_norm", 2, kind->head_dim) : full_norm_part(b, v);
        v->raw = mcp_saved_activation(b, "raw_qkv", tokens, columns, 0);
    }
}

/* DeepSeek-V2 section 2.1: low-rank queries and keys/values; the down-projections
 * are replicated over the tensor group. */
static void declare_latent_projections(struct mcp_builder *b, struct mcp_attention_values *v)
{
    const struct mcp_layer_kind *kind = b->kind;
    int64_t tokens = b->tokens, h = b->hidden;
    int64_t q_rank = kind->q_lora_rank, kv_rank = kind->kv_lora_rank, rope = kind->qk_rope_head_dim;
    int64_t heads = kind->num_attention_heads / b->plan->tensor_parallel;
    int64_t up = heads * (kind->head_dim - rope + kind->value_head_dim);
    if (q_rank > 0) {
        v->q_down = mcp_linear_of(mcp_weight_part(b, "q_down", q_rank, h, true), tokens, q_rank, h);
        v->q_latent = mcp_saved_activation(b, "q_latent", tokens, 2 * q_rank, 0);
        mcp_norm_part(b, "q_norm", 1, q_rank);
    }
    int64_t q_in = q_rank > 0 ? q_rank : h;
    v->q_up = mcp_linear_of(mcp_weight_part(b, "q_up", v->query_columns, q_in, false), tokens,
                            v->query_columns, q_in);
    v->kv_down = mcp_linear_of(mcp_weight_part(b, "kv_down", kv_rank + rope, h, true), tokens,
                               kv_rank + rope, h);
    v->kv_latent = mcp_saved_activation(b, "kv_latent", tokens, 2 * (kv_rank + rope), 0);
    mcp_norm_part(b, "kv_norm", 1, kv_rank);
    v->kv_up = mcp_linear_of(mcp_weight_part(b, "kv_up", up, kv_rank, false), tokens, up, kv_rank);
}

static void declare_core(struct mcp_builder *b, struct mcp_attention_values *v)
{
    bool latent = b->kind->attention == MCP_ATTENTION_LATENT;
    unsigned up = latent ? MCP_RECOMPUTE_MLA_UP : 0;
    v->query = mcp_saved_activation(b, "query", b->tokens, v->query_columns, up);
    v->kv = mcp_saved_activation(b, "kv", b->tokens, v->kv_columns, up);
    if (!b->fused_attention) {
        /* softmax output; under dropout its mask and result too (Korthikanti et al. 2022, 4.1) */
        double each = b->question->job->dropout ? 5 : 2;
        double scores = (double)v->batch_heads * (double)b->sequence * (double)b->sequence_local;
        v->probabilities = mcp_saved(b, "probabilities", scores * each, b->activation,
                                     MCP_RECOMPUTE_ATTENTION_CORE);
    }
    v->output = mcp_saved_activation(b, "attention", b->tokens, v->value_columns, 0);
    if (b->plan->context_parallel > 1 && b->plan->context_parallel_kind == MCP_CONTEXT_ALL_TO_ALL)
        v->head_output = mcp_saved_activation(b, "attention_heads", b->tokens, v->value_columns, 0);
    int64_t heads = v->batch_heads / b->plan->microbatch_size;
    v->statistics = mcp_saved(b, "statistics", mcp_bytes_of(b->tokens, heads, MCP_F32), MCP_F32,
                              MCP_RECOMPUTE_ATTENTION_CORE);
}

struct mcp_attention_values *mcp_attention_declare(struct mcp_builder *b)
{
    struct mcp_attention_values *v = MCP_NEW(b->arena, struct mcp_attention_values);
    declare_shapes(b, v);
    v->norm_weight = b->first_norm = mcp_norm_part(b, "attention_norm", 1, b->hidden);
    v->norm = mcp_saved_input(b, "attention_norm", b->sharded_tokens, b->hidden,
                              MCP_RECOMPUTE_NORM | MCP_RECOMPUTE_ALTERNATE_MATMULS);
    if (b->kind->attention == MCP_ATTENTION_LATENT)
        declare_latent_projections(b, v);
    else
        declare_projections(b, v);
    declare_core(b, v);
    if (v->gate_columns > 0) {
        v->gate = mcp_saved_activation(b, "gate", b->tokens, v->gate_columns, 0);
        v->gated = mcp_saved_input(b, "gated", b->tokens, v->value_columns, 0);
    }
    v->index = b->kind->index_num_heads > 0 ? mcp_index_declare(b) : NULL;
    v->out = mcp_linear_of(mcp_weight_part(b, "out", b->hidden, v->value_columns, false), b->tokens,
                           b->hidden, v->value_columns);
    mcp_part(b, v->out.weight)->by_columns = true;
    mcp_part(b, v->out.weight)->init = MCP_INIT_RESIDUAL;
    int bias = b->kind->attention_output_bias ? mcp_bias_part(b, "out_bias", b->hidden, true) : 0;
    if (b->kind->attention_sinks)
        mcp_bias_part(b, "sinks", v->batch_heads / b->plan->microbatch_size, false);
    mcp_residual_declare(b, &v->residual, "attention_mask",
                         mcp_attention_norms(b->model, b->kind) - 1);
    v->residual.bias = bias;
    return v;
}

/* rotary, or the layout and bias pass of models without it */
static enum mcp_function layout_function(const struct mcp_builder *b, bool backward)
{
    bool rotary = b->model->position == MCP_POSITION_ROTARY;
    if (backward)
        return rotary ? MCP_FN_ROTARY_BACKWARD : MCP_FN_BIAS_BACKWARD;
    return rotary ? MCP_FN_ROTARY_FORWARD : MCP_FN_BIAS_FORWARD;
}

/* columns that rotary or the layout pass touches: queries and keys */
static int64_t layout_columns(const struct mcp_attention_values *v)
{
    return v->query_columns + v->key_columns;
}

static int64_t latent_columns(const struct mcp_builder *b, const struct mcp_attention_values *v)
{
    return b->kind->q_lora_rank + b->kind->kv_lora_rank + 4 * v->query_columns;
}

/* Are there only biases between the product and queries, keys and values? Two products write
 * those at once then. */
static bool projects_apart(const struct mcp_builder *b, const struct mcp_attention_values *v)
{
    return mcp_fuses_epilogues(b) && v->qkv_bias > 0 && b->model->position != MCP_POSITION_ROTARY &&
           !norms_queries(b->kind) && v->gate_columns == 0 && !b->kind->keys_are_values;
}

static void project_apart(struct mcp_builder *b, const struct mcp_attention_values *v,
                          struct mcp_ref x)
{
    struct mcp_linear queries = v->qkv, others = v->qkv;
    queries.n = v->query_columns;
    others.n = v->kv_columns;
    others.first_row = v->query_columns;
    mcp_linear_epilogue(b, &queries, v->qkv_bias, x, (struct mcp_ref[2]){mcp_at(b, v->query)});
    mcp_linear_epilogue(b, &others, v->qkv_bias, x, (struct mcp_ref[2]){mcp_at(b, v->kv)});
}

static void project_forward(struct mcp_builder *b, struct mcp_attention_values *v, struct mcp_ref x)
{
    int64_t tokens = b->tokens;
    if (projects_apart(b, v)) {
        project_apart(b, v, x);
        return;
    }
    struct mcp_ref raw = norms_queries(b->kind)
                             ? mcp_at(b, v->raw)
                             : mcp_scratch_activation(b, "qkv", tokens, v->qkv.n);
    mcp_linear_forward(b, &v->qkv, x, raw);
    if (norms_queries(b->kind)) {
        struct mcp_ref normed = mcp_scratch_activation(b, "normed_qk", tokens, v->qkv.n);
        mcp_norm_forward(b, v->qk_norm_weight, tokens, layout_columns(v), raw, normed);
        raw = normed;
    }
    if (v->gate_columns > 0)
        mcp_map(b, MCP_FN_COPY, tokens, v->gate_columns, (struct mcp_ref[3]){raw},
                (struct mcp_ref[2]){mcp_at(b, v->gate)});
    mcp_emit(b, (struct mcp_call){.function = layout_function(b, false),
                                  .weight = v->qkv_bias,
                                  .reads = {raw, mcp_weights_of(b, v->qkv_bias)},
                                  .writes = {mcp_at(b, v->query), mcp_at(b, v->kv)},
                                  .dims = {tokens, layout_columns(v)}});
}

static void project_latent_forward(struct mcp_builder *b, struct mcp_attention_values *v,
                                   struct mcp_ref x)
{
    int64_t tokens = b->tokens;
    struct mcp_ref q = x, kv_latent = mcp_at(b, v->kv_latent);
    if (b->kind->q_lora_rank > 0) {
        q = mcp_at(b, v->q_latent);
        mcp_linear_forward(b, &v->q_down, x, q);
    }
    struct mcp_ref raw_q = mcp_scratch_activation(b, "raw_query", tokens, v->query_columns);
    struct mcp_ref raw_kv = mcp_scratch_activation(b, "raw_kv", tokens, v->kv_up.n);
    mcp_linear_forward(b, &v->q_up, q, raw_q);
    mcp_linear_forward(b, &v->kv_down, x, kv_latent);
    mcp_linear_forward(b, &v->kv_up, kv_latent, raw_kv);
    if (v->index != NULL)
        mcp_index_forward(b, v->index, x, q);
    mcp_map(b, MCP_FN_LATENT_FORWARD, tokens, latent_columns(b, v),
            (struct mcp_ref[3]){raw_q, raw_kv, kv_latent},
            (struct mcp_ref[2]){mcp_at(b, v->query), mcp_at(b, v->kv)});
}

/* What the output projection reads. */
static struct mcp_ref projected(const struct mcp_builder *b, const struct mcp_attention_values *v)
{
    return mcp_at(b, v->gate_columns > 0 ? v->gated : v->output);
}

void mcp_attention_forward(struct mcp_builder *b, struct mcp_attention_values *v,
                           const struct mcp_half *half)
{
    struct mcp_ref norm = mcp_at(b, v->norm);
    mcp_norm_forward(b, v->norm_weight, b->sharded_tokens, b->hidden, half->input, norm);
    struct mcp_ref x = mcp_tensor_gather(b, "norm_whole", norm, MCP_HIDE_CHUNKED);
    if (b->kind->attention == MCP_ATTENTION_LATENT)
        project_latent_forward(b, v, x);
    else
        project_forward(b, v, x);
    mcp_core_forward(b, v);
    struct mcp_ref y = mcp_scratch_activation(b, "attention_out", b->tokens, b->hidden);
    if (v->gate_columns > 0)
        mcp_map(b, MCP_FN_GATE_FORWARD, b->tokens, v->gate_columns,
                (struct mcp_ref[3]){mcp_at(b, v->output), mcp_at(b, v->gate)},
                (struct mcp_ref[2]){mcp_at(b, v->gated)});
    mcp_linear_forward(b, &v->out, projected(b, v), y);
    y = mcp_tensor_reduce(b, "attention_out_shard", y, MCP_HIDE_CHUNKED);
    mcp_residual_forward(b, &v->residual, y, half->input, half->output);
}

/* Of queries, keys and values, and gates if any. */
static struct mcp_ref project_backward(struct mcp_builder *b, struct mcp_attention_values *v,
                                       const struct mcp_ref gradients[3])
{
    int64_t tokens = b->tokens;
    struct mcp_ref d = mcp_scratch_activation(b, "d_qkv", tokens, v->qkv.n);
    struct mcp_call call = {.function = layout_function(b, true),
                            .weight = v->qkv_bias,
                            .writes = {d, mcp_gradients_of(b, v->qkv_bias)},
                            .dims = {tokens, layout_columns(v)}};
    memcpy(call.reads, gradients, 3 * sizeof *gradients);
    mcp_emit(b, call);
    if (norms_queries(b->kind))
        mcp_norm_backward(b, &(struct mcp_norm_gradient){.part = v->qk_norm_weight,
                                                         .rows = tokens,
                                                         .columns = layout_columns(v),
                                                         .dy = d,
                                                         .x = mcp_at(b, v->raw),
                                                         .dx = d});
    struct mcp_ref x = mcp_tensor_gather(b, "norm_again", mcp_at(b, v->norm), MCP_HIDE_BULK);
    struct mcp_ref dx = mcp_scratch_activation(b, "d_norm", tokens, b->hidden);
    mcp_linear_input_gradient(b, &v->qkv, d, dx);
    struct mcp_ref reduced = mcp_tensor_reduce(b, "d_norm_shard", dx, MCP_HIDE_BULK);
    mcp_linear_weight_gradient(b, &v->qkv, x, d);
    return reduced;
}

static void index_backward(struct mcp_builder *b, const struct mcp_attention_values *v,
                           const struct mcp_ref in[2], const struct mcp_ref out[2])
{
    if (v->index != NULL)
        mcp_index_backward(b, v->index, in, out);
}

static struct mcp_ref project_latent_backward(struct mcp_builder *b, struct mcp_attention_values *v,
                                              struct mcp_ref dq, struct mcp_ref dkv)
{
    int64_t tokens = b->tokens;
    struct mcp_ref d_kv_latent = mcp_scratch_activation(b, "d_kv_latent", tokens, v->kv_down.n);
    struct mcp_ref raw_dq = mcp_scratch_activation(b, "d_raw_query", tokens, v->query_columns);
    struct mcp_ref raw_dkv = mcp_scratch_activation(b, "d_raw_kv", tokens, v->kv_up.n);
    mcp_map(b, MCP_FN_LATENT_BACKWARD, tokens, latent_columns(b, v), (struct mcp_ref[3]){dq, dkv},
            (struct mcp_ref[2]){raw_dq, raw_dkv});
    mcp_linear_input_gradient(b, &v->kv_up, raw_dkv, d_kv_latent);
    mcp_linear_weight_gradient(b, &v->kv_up, mcp_at(b, v->kv_latent), raw_dkv);
    struct mcp_ref x = mcp_tensor_gather(b, "norm_again", mcp_at(b, v->norm), MCP_HIDE_BULK);
    struct mcp_ref dx = mcp_scratch_activation(b, "d_norm", tokens, b->hidden);
    struct mcp_ref dx_kv = mcp_scratch_activation(b, "d_norm_kv", tokens, b->hidden);
    mcp_linear_input_gradient(b, &v->kv_down, d_kv_latent, dx_kv);
    mcp_linear_weight_gradient(b, &v->kv_down, x, d_kv_latent);
    if (b->kind->q_lora_rank > 0) {
        struct mcp_ref d_q_latent = mcp_scratch_activation(b, "d_q_latent", tokens, v->q_down.n);
        mcp_linear_input_gradient(b, &v->q_up, raw_dq, d_q_latent);
        mcp_linear_weight_gradient(b, &v->q_up, mcp_at(b, v->q_latent), raw_dq);
        index_backward(b, v, (struct mcp_ref[2]){x, mcp_at(b, v->q_latent)},
                       (struct mcp_ref[2]){dx_kv, d_q_latent});
        mcp_linear_input_gradient(b, &v->q_down, d_q_latent, dx);
        mcp_linear_weight_gradient(b, &v->q_down, x, d_q_latent);
    } else {
        mcp_linear_input_gradient(b, &v->q_up, raw_dq, dx);
        mcp_linear_weight_gradient(b, &v->q_up, x, raw_dq);
        index_backward(b, v, (struct mcp_ref[2]){x, x}, (struct mcp_ref[2]){dx_kv, dx});
    }
    mcp_map(b, MCP_FN_ADD, tokens, b->hidden, (struct mcp_ref[3]){dx, dx_kv},
            (struct mcp_ref[2]){dx});
    return mcp_tensor_reduce(b, "d_norm_shard", dx, MCP_HIDE_BULK);
}

/* d_output becomes the gradient of what was gated; returns the gates'. */
static struct mcp_ref gate_backward(struct mcp_builder *b, struct mcp_attention_values *v,
                                    struct mcp_ref d_output)
{
    if (v->gate_columns == 0)
        return (struct mcp_ref){0};
    struct mcp_ref d_gate = mcp_scratch_activation(b, "d_gate", b->tokens, v->gate_columns);
    mcp_map(b, MCP_FN_GATE_BACKWARD, b->tokens, v->gate_columns,
            (struct mcp_ref[3]){d_output, mcp_at(b, v->output), mcp_at(b, v->gate)},
            (struct mcp_ref[2]){d_output, d_gate});
    return d_gate;
}

void mcp_attention_backward(struct mcp_builder *b, struct mcp_attention_values *v,
                            const struct mcp_half *half)
{
    int64_t tokens = b->tokens;
    struct mcp_ref d_branch = mcp_residual_backward(b, &v->residual, half->d_output);
    struct mcp_ref dy = mcp_tensor_gather(b, "d_attention_out", d_branch, MCP_HIDE_CHUNKED);
    struct mcp_ref d_output = mcp_scratch_activation(b, "d_attention", tokens, v->value_columns);
    mcp_linear_input_gradient(b, &v->out, dy, d_output);
    mcp_linear_weight_gradient(b, &v->out, projected(b, v), dy);
    struct mcp_ref d_gate = gate_backward(b, v, d_output);
    struct mcp_ref dq = mcp_scratch_activation(b, "d_query", tokens, v->query_columns);
    struct mcp_ref dkv = mcp_scratch_activation(b, "d_kv", tokens, v->kv_columns);
    mcp_core_backward(b, v, d_output, dq, dkv);
    struct mcp_ref d_norm = b->kind->attention == MCP_ATTENTION_LATENT
                                ? project_latent_backward(b, v, dq, dkv)
                                : project_backward(b, v, (struct mcp_ref[3]){dq, dkv, d_gate});
    mcp_half_norm_backward(b, half, v->norm_weight, d_norm);
}
