/* step/layer_state.c: the half of a layer that keeps a state: gated delta rule,
 * lightning attention, Mamba, Mamba-2.
 *
 * Forward: norm, one projection to all inputs, short convolution, (Mamba: steps, B and
 * C from what was convolved), scan, gate and norm, output projection. Heads are cut
 * over the tensor group, with their groups' queries and keys; a group that several
 * ranks need is held by each, like a key-value head. */
#include "step/builder.h"

#include "core/minmax.h"

#include <string.h>

struct mcp_state_values {
    int64_t heads, groups; /* of one rank */
    int64_t inner;         /* heads x head_dim: values, gates, outputs */
    int64_t conv;          /* columns that are convolved, 0: none */
    int64_t selectors;     /* Mamba: low-rank steps, B and C; 0 elsewhere */
    bool is_mamba;
    int norm_weight, conv_weight, selector_norm_weight, gate_weight;
    struct mcp_linear in, select, steps, out;
    struct mcp_value norm;      /* [Ts, h] */
    struct mcp_value inputs;    /* [T, in.n] */
    struct mcp_value convolved; /* [T, conv] */
    struct mcp_value selected;  /* [T, selectors] */
    struct mcp_value raw_selected;
    struct mcp_value delta;  /* [T, inner] steps */
    struct mcp_value output; /* [T, inner] of the scan */
    struct mcp_value gated;  /* [T, inner] */
    struct mcp_residual residual;
};

static void declare_shapes(struct mcp_builder *b, struct mcp_state_values *v)
{
    const struct mcp_layer_kind *kind = b->kind;
    int t = b->plan->tensor_parallel;
    v->is_mamba = kind->attention == MCP_ATTENTION_MAMBA;
    v->heads = kind->num_attention_heads / t;
    v->groups = mcp_max_int64(1, kind->num_groups / t);
    v->inner = v->heads * kind->head_dim;
    v->conv = mcp_recurrent_conv(kind, v->heads, v->groups);
    v->selectors = v->is_mamba ? kind->time_step_rank + 2 * (int64_t)kind->state_size : 0;
}

static struct mcp_linear linear(struct mcp_builder *b, const char *name, int64_t n, int64_t k)
{
    return mcp_linear_of(mcp_weight_part(b, name, n, k, false), b->tokens, n, k);
}

/* Steps, B and C of Mamba; all channels share them. */
static void declare_selection(struct mcp_builder *b, struct mcp_state_values *v)
{
    v->select = linear(b, "select", v->selectors, v->inner);
    v->steps = linear(b, "steps", v->inner, b->kind->time_step_rank);
    v->selected = mcp_saved_activation(b, "selected", b->tokens, v->selectors, 0);
    v->delta = mcp_saved_activation(b, "delta", b->tokens, v->inner, 0);
    if (!b->kind->qk_norm)
        return;
    v->selector_norm_weight = mcp_weight_part(b, "select_norm", 1, v->selectors, true);
    v->raw_selected = mcp_saved_activation(b, "raw_selected", b->tokens, v->selectors, 0);
}

static void declare_gate(struct mcp_builder *b, struct mcp_state_values *v)
{
    bool delta = b->kind->attention == MCP_ATTENTION_GATED_DELTA;
    v->output = mcp_saved_activation(b, "scan", b->tokens, v->inner, 0);
    v->gated = mcp_saved_input(b, "gated", b->tokens, v->inner, 0);
    if (!v->is_mamba)
        v->gate_weight =
            mcp_weight_part(b, "gate_norm", 1, delta ? b->kind->head_dim : v->inner, delta);
    v->out = linear(b, "out", b->hidden, v->inner);
    if (b->kind->attention_output_bias)
        mcp_weight_part(b, "out_bias", b->hidden, 1, true);
}

struct mcp_state_values *mcp_state_declare(struct mcp_builder *b)
{
    struct mcp_state_values *v = MCP_NEW(b->arena, struct mcp_state_values);
    const struct mcp_layer_kind *kind = b->kind;
    declare_shapes(b, v);
    int64_t columns = mcp_recurrent_inputs(kind, v->heads, v->groups);
    int64_t scalars = mcp_recurrent_scalars(kind, v->heads);
    v->norm_weight = b->first_norm = mcp_norm_part(b, "state_norm", 1, b->hidden);
    v->norm = mcp_saved_input(b, "state_norm", b->sharded_tokens, b->hidden,
                              MCP_RECOMPUTE_NORM | MCP_RECOMPUTE_ALTERNATE_MATMULS);
    v->in = linear(b, "in", columns, b->hidden);
    if (kind->attention_bias)
        mcp_weight_part(b, "in_bias", columns, 1, false);
    v->inputs = mcp_saved_activation(b, "inputs", b->tokens, columns, 0);
    if (v->conv > 0) {
        v->conv_weight =
            mcp_weight_part(b, "conv", v->conv, kind->conv_kernel + kind->conv_bias, false);
        v->convolved = mcp_saved_activation(b, "convolved", b->tokens, v->conv, 0);
    }
    if (v->is_mamba)
        declare_selection(b, v);
    if (scalars > 0)
        mcp_weight_part(b, "scalars", scalars, 1, false);
    declare_gate(b, v);
    mcp_residual_declare(b, &v->residual, "state_mask", mcp_attention_norms(b->model, kind) - 1);
    return v;
}

/* The scan --------------------------------------------------------------- */

static enum mcp_function scan_function(const struct mcp_builder *b, bool backward)
{
    switch (b->kind->attention) {
    case MCP_ATTENTION_GATED_DELTA:
        return backward ? MCP_FN_DELTA_BACKWARD : MCP_FN_DELTA_FORWARD;
    case MCP_ATTENTION_MAMBA:
        return backward ? MCP_FN_SELECTIVE_BACKWARD : MCP_FN_SELECTIVE_FORWARD;
    default:
        return backward ? MCP_FN_SCAN_BACKWARD : MCP_FN_SCAN_FORWARD;
    }
}

/* Chunks' states in fp32; Mamba's kernel keeps them to itself. */
static struct mcp_ref chunk_states(struct mcp_builder *b, const struct mcp_state_values *v)
{
    int64_t chunk = mcp_scan_chunk(b->kind, b->sequence);
    int64_t chunks = b->plan->microbatch_size * ((b->sequence + chunk - 1) / chunk);
    int64_t each = v->is_mamba ? 0 : v->inner * b->kind->state_size;
    return mcp_scratch(b, "chunk_states", mcp_bytes_of(chunks, each, MCP_F32), MCP_F32).block;
}

static void emit_scan(struct mcp_builder *b, const struct mcp_state_values *v, bool backward,
                      const struct mcp_ref reads[5], const struct mcp_ref writes[3])
{
    int64_t batch = b->plan->microbatch_size;
    struct mcp_call call = {.function = scan_function(b, backward),
                            .dims = {batch * v->heads, b->sequence, b->kind->state_size,
                                     b->kind->head_dim, batch * v->groups,
                                     mcp_scan_chunk(b->kind, b->sequence)}};
    for (int i = 0, to = 0; i < 5; i++)
        if (reads[i].set)
            call.reads[to++] = reads[i];
    for (int i = 0, to = 0; i < 3; i++)
        if (writes[i].set)
            call.writes[to++] = writes[i];
    mcp_emit(b, call);
}

/* What the scan reads its queries, keys and values from. */
static struct mcp_ref scanned(const struct mcp_builder *b, const struct mcp_state_values *v)
{
    return mcp_at(b, v->conv > 0 ? v->convolved : v->inputs);
}

/* Forward ---------------------------------------------------------------- */

static void convolve(struct mcp_builder *b, const struct mcp_state_values *v)
{
    if (v->conv > 0)
        mcp_emit(b, (struct mcp_call){
                        .function = MCP_FN_CONV_FORWARD,
                        .weight = v->conv_weight,
                        .reads = {mcp_at(b, v->inputs), mcp_layer_buffer(MCP_LAYER_WEIGHTS)},
                        .writes = {mcp_at(b, v->convolved)},
                        .dims = {b->tokens, v->conv}});
}

/* Every rank's channels add to what all channels share. */
static void sum_selectors(struct mcp_builder *b, const struct mcp_state_values *v,
                          struct mcp_ref selected)
{
    if (b->plan->tensor_parallel > 1)
        mcp_emit(b, (struct mcp_call){.function = MCP_FN_ALL_REDUCE,
                                      .stream = MCP_STREAM_TENSOR,
                                      .group = MCP_TENSOR,
                                      .reads = {selected},
                                      .writes = {selected},
                                      .dims = {b->tokens * v->selectors}});
}

static void select_forward(struct mcp_builder *b, const struct mcp_state_values *v)
{
    struct mcp_ref selected = mcp_at(b, v->selected);
    struct mcp_ref raw = b->kind->qk_norm ? mcp_at(b, v->raw_selected) : selected;
    mcp_linear_forward(b, &v->select, mcp_at(b, v->convolved), raw);
    sum_selectors(b, v, raw);
    if (b->kind->qk_norm)
        mcp_norm_forward(b, v->selector_norm_weight, b->tokens, v->selectors, raw, selected);
    mcp_linear_forward(b, &v->steps, selected, mcp_at(b, v->delta));
}

void mcp_state_forward(struct mcp_builder *b, struct mcp_state_values *v,
                       const struct mcp_half *half)
{
    struct mcp_ref norm = mcp_at(b, v->norm), inputs = mcp_at(b, v->inputs);
    struct mcp_ref none = {0}, output = mcp_at(b, v->output);
    mcp_norm_forward(b, v->norm_weight, b->sharded_tokens, b->hidden, half->input, norm);
    struct mcp_ref x = mcp_tensor_gather(b, "norm_whole", norm, MCP_HIDE_CHUNKED);
    mcp_linear_forward(b, &v->in, x, inputs);
    convolve(b, v);
    if (v->is_mamba)
        select_forward(b, v);
    emit_scan(b, v, false,
              (struct mcp_ref[5]){
                  scanned(b, v), inputs, v->is_mamba ? mcp_at(b, v->selected) : none,
                  v->is_mamba ? mcp_at(b, v->delta) : none, mcp_layer_buffer(MCP_LAYER_WEIGHTS)},
              (struct mcp_ref[3]){output, chunk_states(b, v)});
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_GATE_FORWARD,
                                  .weight = v->gate_weight,
                                  .reads = {output, inputs, mcp_layer_buffer(MCP_LAYER_WEIGHTS)},
                                  .writes = {mcp_at(b, v->gated)},
                                  .dims = {b->tokens, v->inner}});
    struct mcp_ref y = mcp_scratch_activation(b, "state_out", b->tokens, b->hidden);
    mcp_linear_forward(b, &v->out, mcp_at(b, v->gated), y);
    y = mcp_tensor_reduce(b, "state_out_shard", y, MCP_HIDE_CHUNKED);
    mcp_residual_forward(b, &v->residual, y, half->input, half->output);
}

/* Backward --------------------------------------------------------------- */

/* Gradients that run from one op to the next. */
struct gradients {
    struct mcp_ref inputs, scanned, selected, delta;
};

static void gate_backward(struct mcp_builder *b, const struct mcp_state_values *v,
                          struct mcp_ref d_gated, struct mcp_ref d_output, struct mcp_ref d_inputs)
{
    mcp_emit(
        b, (struct mcp_call){.function = MCP_FN_GATE_BACKWARD,
                             .weight = v->gate_weight,
                             .reads = {d_gated, mcp_at(b, v->output), mcp_at(b, v->inputs),
                                       mcp_layer_buffer(MCP_LAYER_WEIGHTS)},
                             .writes = {d_output, d_inputs, mcp_layer_buffer(MCP_LAYER_GRADIENTS)},
                             .dims = {b->tokens, v->inner}});
}

/* Steps' and selectors' gradients join those of what was convolved. */
static void select_backward(struct mcp_builder *b, const struct mcp_state_values *v,
                            const struct gradients *d)
{
    int64_t tokens = b->tokens;
    struct mcp_ref d_low = mcp_scratch_activation(b, "d_selected_steps", tokens, v->selectors);
    struct mcp_ref more = mcp_scratch_activation(b, "d_convolved_more", tokens, v->conv);
    mcp_linear_input_gradient(b, &v->steps, d->delta, d_low);
    mcp_linear_weight_gradient(b, &v->steps, mcp_at(b, v->selected), d->delta);
    mcp_map(b, MCP_FN_ADD, tokens, v->selectors, (struct mcp_ref[3]){d->selected, d_low},
            (struct mcp_ref[2]){d->selected});
    sum_selectors(b, v, d->selected);
    if (b->kind->qk_norm)
        mcp_norm_backward(b, &(struct mcp_norm_gradient){.part = v->selector_norm_weight,
                                                         .rows = tokens,
                                                         .columns = v->selectors,
                                                         .dy = d->selected,
                                                         .x = mcp_at(b, v->raw_selected),
                                                         .dx = d->selected});
    mcp_linear_input_gradient(b, &v->select, d->selected, more);
    mcp_linear_weight_gradient(b, &v->select, mcp_at(b, v->convolved), d->selected);
    mcp_map(b, MCP_FN_ADD, tokens, v->conv, (struct mcp_ref[3]){d->scanned, more},
            (struct mcp_ref[2]){d->scanned});
}

static void convolve_backward(struct mcp_builder *b, const struct mcp_state_values *v,
                              const struct gradients *d)
{
    if (v->conv > 0)
        mcp_emit(b, (struct mcp_call){.function = MCP_FN_CONV_BACKWARD,
                                      .weight = v->conv_weight,
                                      .reads = {d->scanned, mcp_at(b, v->inputs), d->inputs,
                                                mcp_layer_buffer(MCP_LAYER_WEIGHTS)},
                                      .writes = {d->inputs, mcp_layer_buffer(MCP_LAYER_GRADIENTS)},
                                      .dims = {b->tokens, v->conv}});
}

/* The scan's own: what it read, and the steps among the inputs; chunks' states are made
 * again. Gradients of decays and skips are with the gate's. */
static void scan_backward(struct mcp_builder *b, const struct mcp_state_values *v,
                          struct mcp_ref d_output, struct gradients *d)
{
    struct mcp_ref none = {0};
    bool mamba = v->is_mamba;
    d->scanned = v->conv > 0 ? mcp_scratch_activation(b, "d_convolved", b->tokens, v->conv) : none;
    d->selected = mamba ? mcp_scratch_activation(b, "d_selected", b->tokens, v->selectors) : none;
    d->delta = mamba ? mcp_scratch_activation(b, "d_delta", b->tokens, v->inner) : none;
    emit_scan(b, v, true,
              (struct mcp_ref[5]){scanned(b, v), mamba ? mcp_at(b, v->selected) : d->inputs,
                                  mamba ? mcp_at(b, v->delta) : none, d_output,
                                  mcp_layer_buffer(MCP_LAYER_WEIGHTS)},
              (struct mcp_ref[3]){d->scanned, mamba ? d->selected : d->inputs,
                                  mamba ? d->delta : chunk_states(b, v)});
    if (mamba)
        select_backward(b, v, d);
}

void mcp_state_backward(struct mcp_builder *b, struct mcp_state_values *v,
                        const struct mcp_half *half)
{
    int64_t tokens = b->tokens;
    struct gradients d = {.inputs = mcp_scratch_activation(b, "d_inputs", tokens, v->in.n)};
    struct mcp_ref d_branch = mcp_residual_backward(b, &v->residual, half->d_output);
    struct mcp_ref dy = mcp_tensor_gather(b, "d_state_out", d_branch, MCP_HIDE_CHUNKED);
    struct mcp_ref d_gated = mcp_scratch_activation(b, "d_gated", tokens, v->inner);
    struct mcp_ref d_output = mcp_scratch_activation(b, "d_scan", tokens, v->inner);
    mcp_linear_input_gradient(b, &v->out, dy, d_gated);
    mcp_linear_weight_gradient(b, &v->out, mcp_at(b, v->gated), dy);
    gate_backward(b, v, d_gated, d_output, d.inputs);
    scan_backward(b, v, d_output, &d);
    convolve_backward(b, v, &d);
    struct mcp_ref x = mcp_tensor_gather(b, "norm_again", mcp_at(b, v->norm), MCP_HIDE_BULK);
    struct mcp_ref dx = mcp_scratch_activation(b, "d_norm", tokens, b->hidden);
    mcp_linear_input_gradient(b, &v->in, d.inputs, dx);
    struct mcp_ref reduced = mcp_tensor_reduce(b, "d_norm_shard", dx, MCP_HIDE_BULK);
    mcp_linear_weight_gradient(b, &v->in, x, d.inputs);
    mcp_half_norm_backward(b, half, v->norm_weight, reduced);
}
