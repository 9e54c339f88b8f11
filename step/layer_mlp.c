/* step/layer_mlp.c: the MLP half of a decoder layer: dense, or routed experts with
 * shared ones. */
#include "step/builder.h"

#include <math.h>
#include <string.h>

struct dense {     /* of one gated or plain MLP, cut over the tensor group */
    int64_t width; /* local */
    struct mcp_linear up, down;
    int up_bias, down_bias;
    struct mcp_value up_out; /* [T, (1 or 2) width] */
    struct mcp_value second; /* [T, width] of the gate when the two products are apart */
    struct mcp_value active; /* [T, width] */
    struct mcp_linear gate;  /* used when apart */
    bool apart;
    bool fused; /* the first product adds the bias and activates */
};

/* cuBLASLt takes what comes before GELU in rows of so many. */
enum { EPILOGUE_COLUMNS = 8 };

struct mcp_mlp_values {
    int norm_weight;
    struct mcp_value norm; /* [Ts, h] */
    struct mcp_residual residual;
    struct dense dense; /* the MLP, or the shared expert */
    bool has_dense;
    /* experts; rows = sharded tokens x experts_per_token */
    int64_t rows, width, local_rows; /* of one local expert */
    double capacity;                 /* of what other ranks send, over rows */
    int groups;
    struct mcp_linear router, up, down;
    int router_bias;
    struct mcp_value routing, sizes, dispatched, up_out, active, combined;
};

static unsigned mlp_module(unsigned also)
{
    return MCP_RECOMPUTE_MLP | also;
}

static int gates(const struct mcp_builder *b)
{
    return b->kind->gated_mlp ? 2 : 1;
}

/* What is activated, and what it is multiplied with, are cut each by itself. */
static void set_bands(struct mcp_builder *b, int part, int64_t width)
{
    for (int i = 0; i < gates(b); i++)
        mcp_part(b, part)->bands[i] = width;
}

/* Only where the two are kept alike: a value that is made again would cost the product. */
static bool fuses(const struct mcp_builder *b, const struct dense *d)
{
    enum mcp_activation activation = b->model->numerics.activation;
    bool by_tanh = activation == MCP_ACTIVATION_GELU_TANH || activation == MCP_ACTIVATION_UNSAID;
    return mcp_fuses_epilogues(b) && !b->kind->gated_mlp && by_tanh &&
           d->up_out.kept == d->active.kept && d->width % EPILOGUE_COLUMNS == 0;
}

static void declare_dense(struct mcp_builder *b, struct dense *d, int64_t width, const char *name)
{
    int64_t tokens = b->tokens, h = b->hidden, up = gates(b) * width;
    d->width = width;
    d->apart = b->kind->gated_mlp && (b->dropped & MCP_RECOMPUTE_ALTERNATE_MATMULS) != 0;
    int part = mcp_weight_part(b, name, up, h, false);
    d->up = mcp_linear_of(part, tokens, d->apart ? width : up, h);
    d->gate = d->up;
    d->gate.first_row = width;
    int down = mcp_weight_part(b, "down", h, width, false);
    d->down = mcp_linear_of(down, tokens, h, width);
    set_bands(b, part, width);
    mcp_part(b, down)->by_columns = true;
    mcp_part(b, down)->init = MCP_INIT_RESIDUAL;
    if (b->kind->mlp_bias) {
        d->up_bias = mcp_bias_part(b, "up_bias", up, false);
        set_bands(b, d->up_bias, width);
        d->down_bias = mcp_bias_part(b, "down_bias", h, true);
    }
    d->up_out = mcp_saved_activation(b, "up", tokens, d->up.n, mlp_module(0));
    if (d->apart)
        d->second = mcp_saved_activation(b, "gate", tokens, width,
                                         mlp_module(MCP_RECOMPUTE_ALTERNATE_MATMULS));
    d->active =
        mcp_saved_input(b, "active", tokens, width,
                        mlp_module(MCP_RECOMPUTE_ACTIVATION | MCP_RECOMPUTE_ALTERNATE_MATMULS));
    d->fused = fuses(b, d);
}

/* Every token of the group may choose as many of this rank's experts as it chooses at all. */
static double capacity_of(const struct mcp_builder *b, int groups)
{
    double chosen = b->kind->experts_per_token;
    double most = b->plan->expert_parallel * fmin(chosen, groups) / chosen;
    return fmax(1, fmin(b->question->stack->expert_capacity_factor, most));
}

/* A value of rows that other ranks send has room for more than the expected. */
static void widen(struct mcp_builder *b, const struct mcp_mlp_values *v, struct mcp_ref ref)
{
    if (!ref.set)
        return;
    struct mcp_buffer *buffer = &b->buffers[ref.operand.space][ref.operand.index];
    buffer->capacity_bytes = (int64_t)ceil((double)buffer->bytes * v->capacity);
}

static struct mcp_value widened(struct mcp_builder *b, const struct mcp_mlp_values *v,
                                struct mcp_value value)
{
    widen(b, v, value.frame);
    widen(b, v, value.block);
    return value;
}

static struct mcp_ref received_scratch(struct mcp_builder *b, const struct mcp_mlp_values *v,
                                       const char *name, int64_t columns)
{
    struct mcp_ref ref = mcp_scratch_activation(b, name, v->rows, columns);
    widen(b, v, ref);
    return ref;
}

static void declare_experts(struct mcp_builder *b, struct mcp_mlp_values *v)
{
    const struct mcp_layer_kind *kind = b->kind;
    int64_t h = b->hidden, experts = kind->num_experts;
    v->groups = (int)(experts / b->plan->expert_parallel);
    v->rows = b->sharded_tokens * kind->experts_per_token;
    v->local_rows = (v->rows + v->groups - 1) / v->groups; /* a token is not cut */
    v->width = kind->moe_ffn_hidden_size;
    int64_t up = gates(b) * v->width;
    v->router = mcp_linear_of(mcp_weight_part(b, "router", experts, h, true), b->sharded_tokens,
                              experts, h);
    v->router.full_precision = true;
    if (kind->router_bias)
        v->router_bias = mcp_bias_part(b, "router_bias", experts, true);
    int first = mcp_expert_weight_part(b, "expert_up", up, h, v->groups);
    int second = mcp_expert_weight_part(b, "expert_down", h, v->width, v->groups);
    if (kind->expert_bias)
        mcp_part(b, mcp_expert_weight_part(b, "expert_bias", up + h, 1, v->groups))->init =
            MCP_INIT_ZERO;
    mcp_part(b, second)->init = MCP_INIT_RESIDUAL;
    v->up = mcp_linear_of(first, v->local_rows, up, h);
    v->down = mcp_linear_of(second, v->local_rows, h, v->width);
    v->up.groups = v->down.groups = v->groups;
    double routing = 8.0 * (double)b->sharded_tokens * (double)experts;
    v->routing = mcp_saved(b, "routing", routing, MCP_F32, 0);
    v->sizes = mcp_saved(b, "sizes", 8.0 * (double)experts, MCP_I32, 0);
    v->capacity = capacity_of(b, v->groups);
    v->dispatched = widened(b, v, mcp_saved_input(b, "dispatched", v->rows, h, 0));
    v->up_out = widened(b, v, mcp_saved_activation(b, "expert_up", v->rows, up, 0));
    v->active = widened(
        b, v, mcp_saved_input(b, "expert_active", v->rows, v->width, MCP_RECOMPUTE_ACTIVATION));
    v->combined = mcp_saved_activation(b, "combined", v->rows, h, 0);
    if (kind->shared_expert_gate)
        mcp_weight_part(b, "shared_gate", 1, h, true);
}

struct mcp_mlp_values *mcp_mlp_declare(struct mcp_builder *b)
{
    struct mcp_mlp_values *v = MCP_NEW(b->arena, struct mcp_mlp_values);
    const struct mcp_layer_kind *kind = b->kind;
    bool experts = kind->mlp == MCP_MLP_EXPERTS;
    int norms = mcp_mlp_norms(b->model, kind);
    /* a parallel block has one norm: its second reading stands for the MLP's */
    v->norm_weight = norms > 0 ? mcp_norm_part(b, "mlp_norm", 1, b->hidden) : b->first_norm;
    v->norm = mcp_saved_input(b, "mlp_norm", b->sharded_tokens, b->hidden,
                              MCP_RECOMPUTE_NORM | MCP_RECOMPUTE_ALTERNATE_MATMULS);
    int width = experts ? kind->shared_expert_ffn_hidden_size : kind->ffn_hidden_size;
    v->has_dense = width > 0;
    if (v->has_dense)
        declare_dense(b, &v->dense, width / b->plan->tensor_parallel, experts ? "shared_up" : "up");
    if (experts)
        declare_experts(b, v);
    mcp_residual_declare(b, &v->residual, "mlp_mask", norms > 1 ? norms - 1 : 0);
    v->residual.bias = v->dense.down_bias;
    return v;
}

static enum mcp_function activation(const struct mcp_builder *b, bool backward)
{
    if (b->kind->gated_mlp)
        return backward ? MCP_FN_SWIGLU_BACKWARD : MCP_FN_SWIGLU_FORWARD;
    return backward ? MCP_FN_GELU_BACKWARD : MCP_FN_GELU_FORWARD;
}

/* From x to what the second product reads. */
static void dense_activate(struct mcp_builder *b, const struct dense *d, struct mcp_ref x)
{
    struct mcp_ref up = mcp_at(b, d->up_out), active = mcp_at(b, d->active), gate = {0};
    if (d->fused) {
        mcp_linear_epilogue(b, &d->up, d->up_bias, x, (struct mcp_ref[2]){up, active});
        return;
    }
    mcp_linear_forward(b, &d->up, x, up);
    if (d->apart) {
        gate = mcp_at(b, d->second);
        mcp_linear_forward(b, &d->gate, x, gate);
    }
    mcp_emit(b, (struct mcp_call){.function = activation(b, false),
                                  .weight = d->up_bias,
                                  .reads = {up, gate, mcp_weights_of(b, d->up_bias)},
                                  .writes = {active},
                                  .dims = {b->tokens, d->width}});
}

static struct mcp_ref dense_forward(struct mcp_builder *b, struct dense *d, struct mcp_ref norm)
{
    struct mcp_ref x = mcp_tensor_gather(b, "norm_whole", norm, MCP_HIDE_CHUNKED);
    dense_activate(b, d, x);
    struct mcp_ref y = mcp_scratch_activation(b, "mlp_out", b->tokens, b->hidden);
    mcp_linear_forward(b, &d->down, mcp_at(b, d->active), y);
    return mcp_tensor_reduce(b, "mlp_out_shard", y, MCP_HIDE_CHUNKED);
}

/* From the branch's gradient to that of the norm's output (reduced). */
static struct mcp_ref dense_backward(struct mcp_builder *b, struct dense *d, struct mcp_ref norm,
                                     struct mcp_ref d_branch)
{
    int64_t tokens = b->tokens;
    struct mcp_ref dy = mcp_tensor_gather(b, "d_mlp_out", d_branch, MCP_HIDE_CHUNKED);
    struct mcp_ref d_active = mcp_scratch_activation(b, "d_active", tokens, d->width);
    mcp_linear_input_gradient(b, &d->down, dy, d_active);
    mcp_linear_weight_gradient(b, &d->down, mcp_at(b, d->active), dy);
    struct mcp_ref d_up = mcp_scratch_activation(b, "d_up", tokens, gates(b) * d->width);
    struct mcp_ref gate = d->apart ? mcp_at(b, d->second) : (struct mcp_ref){0};
    struct mcp_ref bias = mcp_weights_of(b, d->fused ? 0 : d->up_bias); /* fused: it is in there */
    mcp_emit(b, (struct mcp_call){.function = activation(b, true),
                                  .weight = d->up_bias,
                                  .reads = {d_active, mcp_at(b, d->up_out), gate, bias},
                                  .writes = {d_up, mcp_gradients_of(b, d->up_bias)},
                                  .dims = {tokens, d->width}});
    struct mcp_linear up = d->up;
    up.n = gates(b) * d->width;
    struct mcp_ref x = mcp_tensor_gather(b, "norm_again", norm, MCP_HIDE_BULK);
    struct mcp_ref dx = mcp_scratch_activation(b, "d_norm", tokens, b->hidden);
    mcp_linear_input_gradient(b, &up, d_up, dx);
    struct mcp_ref reduced = mcp_tensor_reduce(b, "d_norm_shard", dx, MCP_HIDE_BULK);
    mcp_linear_weight_gradient(b, &up, x, d_up);
    return reduced;
}

/* Where a value is written that will be exchanged into `to`: there at once when
 * this rank holds all experts. */
static struct mcp_ref before_exchange(struct mcp_builder *b, struct mcp_mlp_values *v,
                                      const char *name, struct mcp_ref to)
{
    if (b->plan->expert_parallel == 1)
        return to;
    return received_scratch(b, v, name, b->hidden);
}

/* Tokens to the ranks of their experts and back; the counts are run-time values. */
static void exchange(struct mcp_builder *b, struct mcp_mlp_values *v, int delta,
                     struct mcp_ref from, struct mcp_ref to)
{
    if (b->plan->expert_parallel == 1)
        return;
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_ALL_TO_ALL_V,
                                  .stream = MCP_STREAM_EXPERT,
                                  .group = MCP_EXPERT,
                                  .delta = delta,
                                  .reads = {from, mcp_at(b, v->sizes)},
                                  .writes = {to},
                                  .dims = {v->rows * b->hidden, 0, b->hidden}});
}

static void route(struct mcp_builder *b, struct mcp_mlp_values *v, struct mcp_ref norm)
{
    int64_t experts = b->kind->num_experts, shard = b->sharded_tokens;
    struct mcp_ref logits = mcp_scratch_activation(b, "router_logits", shard, experts);
    struct mcp_ref routing = mcp_at(b, v->routing);
    mcp_linear_forward(b, &v->router, norm, logits);
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_ROUTER_TOP_K,
                                  .weight = v->router_bias,
                                  .reads = {logits, mcp_weights_of(b, v->router_bias)},
                                  .writes = {routing},
                                  .dims = {shard, experts}});
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_EXPERT_COUNTS,
                                  .reads = {routing},
                                  .writes = {mcp_at(b, v->sizes)}});
}

static struct mcp_ref experts_forward(struct mcp_builder *b, struct mcp_mlp_values *v,
                                      struct mcp_ref norm)
{
    int64_t h = b->hidden, moved = v->rows + b->sharded_tokens;
    route(b, v, norm);
    struct mcp_ref routing = mcp_at(b, v->routing), sizes = mcp_at(b, v->sizes);
    v->up.sizes = v->down.sizes = sizes;
    struct mcp_ref x = mcp_at(b, v->dispatched), back = mcp_at(b, v->combined);
    struct mcp_ref sorted = before_exchange(b, v, "sorted", x);
    mcp_map(b, MCP_FN_PERMUTE, moved, h, (struct mcp_ref[3]){norm, routing},
            (struct mcp_ref[2]){sorted});
    exchange(b, v, 1, sorted, x);
    mcp_linear_forward(b, &v->up, x, mcp_at(b, v->up_out));
    mcp_map(b, activation(b, false), v->rows, v->width,
            (struct mcp_ref[3]){mcp_at(b, v->up_out), sizes},
            (struct mcp_ref[2]){mcp_at(b, v->active)});
    struct mcp_ref y = before_exchange(b, v, "expert_out", back);
    mcp_linear_forward(b, &v->down, mcp_at(b, v->active), y);
    exchange(b, v, -1, y, back);
    struct mcp_ref out = mcp_scratch_activation(b, "routed_out", b->sharded_tokens, h);
    mcp_map(b, MCP_FN_UNPERMUTE, moved, h, (struct mcp_ref[3]){back, routing},
            (struct mcp_ref[2]){out});
    return out;
}

static struct mcp_ref route_backward(struct mcp_builder *b, struct mcp_mlp_values *v,
                                     struct mcp_ref norm, struct mcp_ref d_routing)
{
    int64_t experts = b->kind->num_experts, shard = b->sharded_tokens;
    struct mcp_ref d_norm = mcp_scratch_activation(b, "d_norm_routed", shard, b->hidden);
    struct mcp_ref d_logits = mcp_scratch_activation(b, "d_router_logits", shard, experts);
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_ROUTER_TOP_K_BACKWARD,
                                  .weight = v->router_bias,
                                  .reads = {d_routing, mcp_at(b, v->routing)},
                                  .writes = {d_logits, mcp_gradients_of(b, v->router_bias)},
                                  .dims = {shard, experts}});
    mcp_linear_input_gradient(b, &v->router, d_logits, d_norm);
    mcp_linear_weight_gradient(b, &v->router, norm, d_logits);
    return d_norm;
}

static struct mcp_ref experts_backward(struct mcp_builder *b, struct mcp_mlp_values *v,
                                       struct mcp_ref norm, struct mcp_ref d_branch)
{
    int64_t h = b->hidden, moved = v->rows + b->sharded_tokens, experts = b->kind->num_experts;
    struct mcp_ref routing = mcp_at(b, v->routing), sizes = mcp_at(b, v->sizes);
    v->up.sizes = v->down.sizes = sizes;
    struct mcp_ref dy = received_scratch(b, v, "d_expert_out", h);
    struct mcp_ref d_combined = before_exchange(b, v, "d_combined", dy);
    struct mcp_ref d_routing = mcp_scratch_activation(b, "d_routing", b->sharded_tokens, experts);
    mcp_map(b, MCP_FN_UNPERMUTE_BACKWARD, moved, h,
            (struct mcp_ref[3]){d_branch, routing, mcp_at(b, v->combined)},
            (struct mcp_ref[2]){d_combined, d_routing});
    exchange(b, v, 1, d_combined, dy);
    struct mcp_ref d_active = received_scratch(b, v, "d_expert_active", v->width);
    mcp_linear_input_gradient(b, &v->down, dy, d_active);
    mcp_linear_weight_gradient(b, &v->down, mcp_at(b, v->active), dy);
    struct mcp_ref d_up = received_scratch(b, v, "d_expert_up", gates(b) * v->width);
    mcp_map(b, activation(b, true), v->rows, v->width,
            (struct mcp_ref[3]){d_active, mcp_at(b, v->up_out), sizes}, (struct mcp_ref[2]){d_up});
    struct mcp_ref back = mcp_scratch_activation(b, "d_sorted", v->rows, h);
    struct mcp_ref dx = before_exchange(b, v, "d_dispatched", back);
    mcp_linear_input_gradient(b, &v->up, d_up, dx);
    mcp_linear_weight_gradient(b, &v->up, mcp_at(b, v->dispatched), d_up);
    exchange(b, v, -1, dx, back);
    struct mcp_ref d_norm = route_backward(b, v, norm, d_routing);
    mcp_map(b, MCP_FN_PERMUTE_BACKWARD, moved, h, (struct mcp_ref[3]){back, routing, d_norm},
            (struct mcp_ref[2]){d_norm});
    return d_norm;
}

static struct mcp_ref sum(struct mcp_builder *b, struct mcp_ref x, struct mcp_ref y)
{
    mcp_map(b, MCP_FN_ADD, b->sharded_tokens, b->hidden, (struct mcp_ref[3]){x, y},
            (struct mcp_ref[2]){x});
    return x;
}

void mcp_mlp_forward(struct mcp_builder *b, struct mcp_mlp_values *v, const struct mcp_half *half)
{
    struct mcp_ref norm = mcp_at(b, v->norm), branch = {0};
    mcp_norm_forward(b, v->norm_weight, b->sharded_tokens, b->hidden, half->input, norm);
    if (v->has_dense)
        branch = dense_forward(b, &v->dense, norm);
    if (v->groups > 0) {
        struct mcp_ref routed = experts_forward(b, v, norm);
        branch = v->has_dense ? sum(b, branch, routed) : routed;
    }
    mcp_residual_forward(b, &v->residual, branch, half->input, half->output);
}

void mcp_mlp_backward(struct mcp_builder *b, struct mcp_mlp_values *v, const struct mcp_half *half)
{
    struct mcp_ref norm = mcp_at(b, v->norm), d_norm = {0};
    struct mcp_ref d_branch = mcp_residual_backward(b, &v->residual, half->d_output);
    if (v->has_dense)
        d_norm = dense_backward(b, &v->dense, norm, d_branch);
    if (v->groups > 0) {
        struct mcp_ref routed = experts_backward(b, v, norm, d_branch);
        d_norm = v->has_dense ? sum(b, d_norm, routed) : routed;
    }
    mcp_half_norm_backward(b, half, v->norm_weight, d_norm);
}
