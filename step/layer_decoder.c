/* step/layer_decoder.c: a decoder layer of one half or two, and the MTP module. */
#include "step/builder.h"
#include "step/casts.h"

/* One decoder layer, or an MTP module (DeepSeek-V3 section 2.2): the input joined
 * with the next token's embedding, projected, a decoder layer, and the shared head;
 * the residual stream passes by unchanged. */
struct decoder {
    struct mcp_attention_values *attention; /* one of these two, or neither */
    struct mcp_state_values *state;
    struct mcp_mlp_values *mlp; /* NULL: none */
    struct mcp_value middle;    /* [Ts, h] residual stream between the halves, if two */
    struct mcp_value ids, joined, start, end; /* MTP only */
    struct mcp_linear projection;
    struct mcp_head_values *head; /* NULL without MTP */
};

static bool mixes(const struct decoder *d)
{
    return d->attention != NULL || d->state != NULL;
}

static void declare_decoder(struct mcp_builder *b, struct decoder *d)
{
    int64_t shard = b->sharded_tokens, h = b->hidden;
    if (b->spec->mtp) {
        mcp_weight_part(b, "mtp_norms", 2, h, true);
        d->projection =
            mcp_linear_of(mcp_weight_part(b, "mtp_projection", h, 2 * h, true), shard, h, 2 * h);
        d->ids = mcp_saved_ids(b, "next_token_ids");
        d->joined = mcp_saved_activation(b, "mtp_joined", shard, 2 * h, 0);
        d->start = mcp_saved_activation(b, "mtp_start", shard, h, 0);
    }
    if (mcp_has_softmax(b->kind))
        d->attention = mcp_attention_declare(b);
    if (mcp_is_recurrent(b->kind))
        d->state = mcp_state_declare(b);
    if (b->kind->mlp != MCP_MLP_NONE && mixes(d))
        d->middle = mcp_saved_activation(b, "middle", shard, h, MCP_RECOMPUTE_ALTERNATE_MATMULS);
    if (b->kind->mlp != MCP_MLP_NONE)
        d->mlp = mcp_mlp_declare(b);
    if (b->spec->mtp) {
        d->end = mcp_saved_activation(b, "mtp_end", shard, h, 0);
        d->head = mcp_head_declare(b, false);
    }
}

static void mixer_forward(struct mcp_builder *b, struct decoder *d, const struct mcp_half *half)
{
    if (d->attention != NULL)
        mcp_attention_forward(b, d->attention, half);
    else
        mcp_state_forward(b, d->state, half);
}

static void mixer_backward(struct mcp_builder *b, struct decoder *d, const struct mcp_half *half)
{
    if (d->attention != NULL)
        mcp_attention_backward(b, d->attention, half);
    else
        mcp_state_backward(b, d->state, half);
}

static void halves_forward(struct mcp_builder *b, struct decoder *d, struct mcp_ref start,
                           struct mcp_ref end)
{
    struct mcp_ref middle = d->mlp == NULL ? end : mixes(d) ? mcp_at(b, d->middle) : start;
    if (mixes(d))
        mixer_forward(b, d, &(struct mcp_half){.input = start, .output = middle});
    if (d->mlp != NULL)
        mcp_mlp_forward(b, d->mlp, &(struct mcp_half){.input = middle, .output = end});
}

/* `start` is the input of the first half, d_start its gradient. */
static void halves_backward(struct mcp_builder *b, struct decoder *d, struct mcp_ref start,
                            struct mcp_ref d_start, struct mcp_ref d_end)
{
    bool both = d->mlp != NULL && mixes(d);
    struct mcp_ref middle = both ? mcp_at(b, d->middle) : start;
    struct mcp_ref d_middle = d->mlp == NULL ? d_end : d_start;
    if (both)
        d_middle = mcp_scratch_activation(b, "d_middle", b->sharded_tokens, b->hidden);
    if (d->mlp != NULL)
        mcp_mlp_backward(
            b, d->mlp, &(struct mcp_half){.input = middle, .d_output = d_end, .d_input = d_middle});
    if (mixes(d))
        mixer_backward(
            b, d, &(struct mcp_half){.input = start, .d_output = d_middle, .d_input = d_start});
}

static void decoder_forward(struct mcp_builder *b, struct decoder *d)
{
    struct mcp_ref start = mcp_x(0), end = mcp_x(1);
    if (b->spec->mtp) {
        int64_t h = b->hidden;
        start = mcp_at(b, d->start);
        end = mcp_at(b, d->end);
        mcp_map(b, MCP_FN_COPY, b->sharded_tokens, h, (struct mcp_ref[3]){mcp_x(0)},
                (struct mcp_ref[2]){mcp_x(1)});
        struct mcp_ref joined = mcp_at(b, d->joined);
        mcp_load_ids(b, d->ids, 1);
        mcp_map(b, MCP_FN_CONCATENATE, b->sharded_tokens, 2 * h,
                (struct mcp_ref[3]){mcp_x(0), mcp_at(b, d->ids)}, (struct mcp_ref[2]){joined});
        mcp_linear_forward(b, &d->projection, joined, start);
    }
    halves_forward(b, d, start, end);
    if (d->head != NULL)
        mcp_head_forward(b, d->head, end);
}

static void decoder_backward(struct mcp_builder *b, struct decoder *d)
{
    int64_t shard = b->sharded_tokens, h = b->hidden;
    struct mcp_ref start = mcp_x(0), d_start = mcp_dx(0), d_end = mcp_dx(1);
    if (b->spec->mtp) {
        start = mcp_at(b, d->start);
        d_start = mcp_scratch_activation(b, "d_mtp_start", shard, h);
        d_end = mcp_scratch_activation(b, "d_mtp_end", shard, h);
    }
    if (d->head != NULL)
        mcp_head_backward(b, d->head, mcp_at(b, d->end), d_end);
    halves_backward(b, d, start, d_start, d_end);
    if (b->spec->mtp) {
        struct mcp_ref d_joined = mcp_scratch_activation(b, "d_mtp_joined", shard, 2 * h);
        mcp_linear_input_gradient(b, &d->projection, d_start, d_joined);
        mcp_linear_weight_gradient(b, &d->projection, mcp_at(b, d->joined), d_start);
        mcp_map(b, MCP_FN_ADD, shard, h, (struct mcp_ref[3]){mcp_dx(1), d_joined},
                (struct mcp_ref[2]){mcp_dx(0)});
    }
}

/* What forward's blocks are not enough for. */
static void learn(struct mcp_builder *b, struct decoder *d)
{
    mcp_begin_block(b, false);
    decoder_backward(b, d);
    mcp_end_block(b, MCP_BACKWARD);
    if (b->drop_all || b->dropped != 0)
        mcp_derive_recompute(b);
    if (b->spec->split_backward)
        mcp_derive_split(b);
    if (b->question->job->saved_activation_bits != 0)
        mcp_derive_quantised(b);
}

void mcp_build_decoder(struct mcp_builder *b)
{
    struct decoder d = {0};
    declare_decoder(b, &d);
    mcp_begin_block(b, true);
    decoder_forward(b, &d);
    mcp_end_block(b, MCP_FORWARD);
    if (!b->spec->forward_only)
        learn(b, &d);
    if (mcp_casts_operands(b->question))
        mcp_derive_casts(b);
}
