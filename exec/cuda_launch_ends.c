/* exec/cuda_launch_ends.c: embedding, the loss over a vocabulary that ranks share, and which
 * experts a token goes to. */
#include "exec/cuda_launch.h"
#include "exec/shapes.h"

/* --- embedding --- */

static struct mcp_cuda_embedding embedding_of(const struct mcp_launch *launch)
{
    const int64_t *d = launch->op->dims;
    return (struct mcp_cuda_embedding){.tokens = d[0],
                                       .columns = d[1],
                                       .first_id = mcp_first_id(launch),
                                       .vocab_local = launch->type->facts.vocab_local,
                                       .place =
                                           mcp_cuda_tokens_of(launch, launch->rank->at.context)};
}

/* reads ids, table, what else the layer trains if that lies elsewhere; writes rows. Learned
 * positions are added by one rank: the tensor group's outputs are summed. Mixed: the same of
 * tables in fp32, which become what 16 bits would hold. */
void mcp_cuda_launch_embedding(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    struct mcp_cuda_embedding op = embedding_of(launch);
    op.rounding = mcp_rounding_share(launch);
    op.ids = launch->reads[0];
    op.table = mcp_cuda_array_of(mcp_weight_view(launch, 1, 0));
    op.rows = mcp_cuda_written(call, 0);
    if (launch->rank->at.tensor == 0)
        op.positions = mcp_cuda_array_of(
            mcp_positions_view(launch, mcp_read_view(launch, launch->op->num_reads - 1)));
    mcp_cuda_embedding(&op, call->queue);
}

/* reads dy, ids; writes the table's gradients, those of the rest if they lie elsewhere */
void mcp_cuda_launch_embedding_backward(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    struct mcp_cuda_embedding op = embedding_of(launch);
    op.rows = mcp_cuda_read(call, 0);
    op.ids = launch->reads[1];
    op.table = mcp_cuda_array_of(mcp_gradient_view(launch, 0, 0));
    op.positions = mcp_cuda_array_of(
        mcp_positions_view(launch, mcp_write_view(launch, launch->op->num_writes - 1)));
    mcp_cuda_embedding_backward(&op, call->queue);
}

/* --- loss --- */

static struct mcp_cuda_loss loss_of(const struct mcp_cuda_call *call, int64_t stride)
{
    return (struct mcp_cuda_loss){.logits = mcp_cuda_written(call, 1),
                                  .tokens = call->launch->op->dims[0],
                                  .stride = stride,
                                  .columns = mcp_true_columns(call->launch, stride),
                                  .first_id = mcp_first_id(call->launch),
                                  .vocab_local = call->launch->type->facts.vocab_local};
}

/* reads logits, targets, bias if any; writes numbers, logits */
void mcp_cuda_launch_loss_max(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    struct mcp_cuda_loss op = loss_of(call, launch->op->dims[2]);
    op.targets = launch->reads[1];
    op.numbers = launch->writes[0];
    if (launch->op->weight != MCP_NO_WEIGHT)
        op.bias = mcp_cuda_array_of(mcp_weight_view(launch, 2, 0));
    mcp_cuda_loss_max(&op, call->queue);
}

void mcp_cuda_launch_loss_sums(const struct mcp_cuda_call *call)
{
    const struct mcp_cuda_loss op = {.numbers = call->launch->writes[0],
                                     .tokens = call->launch->op->dims[0]};
    mcp_cuda_loss_sums(&op, call->queue);
}

/* reads logits, numbers, targets; writes the loss (adds), logits */
void mcp_cuda_launch_loss_forward(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    struct mcp_cuda_loss op = loss_of(call, launch->op->dims[1]);
    op.numbers = launch->reads[1];
    op.targets = launch->reads[2];
    op.loss = launch->writes[0];
    mcp_cuda_loss_forward(&op, call->queue);
}

/* reads logits (their own gradient by now), targets; writes it scaled to a mean */
void mcp_cuda_launch_loss_backward(const struct mcp_cuda_call *call)
{
    const int64_t *d = call->launch->op->dims;
    const struct mcp_step_inputs *inputs = &call->launch->rank->inputs;
    mcp_cuda_scale(mcp_cuda_read(call, 0), mcp_cuda_written(call, 0), d[0] * d[1],
                   (float)(inputs->loss_scale / (double)inputs->tokens), call->queue);
}

/* --- experts --- */

static struct mcp_cuda_routing routing_of(const struct mcp_launch *launch, float *values,
                                          int64_t tokens)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    return (struct mcp_cuda_routing){.values = values,
                                     .tokens = tokens,
                                     .experts = facts->num_experts,
                                     .experts_per_token = facts->experts_per_token,
                                     .raw_top_k = facts->raw_top_k != 0};
}

static struct mcp_cuda_routing read_routing(const struct mcp_launch *launch, int read)
{
    const struct mcp_routing routing = mcp_routing_of(launch, read);
    return routing_of(launch, routing.probabilities, routing.tokens);
}

/* reads logits, bias if any; writes routing */
void mcp_cuda_launch_router(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    struct mcp_cuda_router op = {.routing =
                                     routing_of(launch, launch->writes[0], launch->op->dims[0]),
                                 .logits = mcp_cuda_read(call, 0)};
    if (launch->op->weight != MCP_NO_WEIGHT)
        op.bias = mcp_cuda_array_of(mcp_weight_view(launch, 1, 0));
    mcp_cuda_router_top_k(&op, call->queue);
}

/* reads d_routing [tokens][experts], routing; writes d_logits, the bias's gradient if any */
void mcp_cuda_launch_router_backward(const struct mcp_cuda_call *call)
{
    const struct mcp_launch *launch = call->launch;
    const struct mcp_cuda_router op = {.routing = read_routing(launch, 1),
                                       .logits = mcp_cuda_written(call, 0),
                                       .d_routing = mcp_cuda_read(call, 0)};
    mcp_cuda_router_top_k_backward(&op, call->queue);
    if (launch->op->weight == MCP_NO_WEIGHT)
        return;
    const struct mcp_cuda_columns sums = {.from = op.logits,
                                          .to = mcp_cuda_array_of(mcp_gradient_view(launch, 1, 0)),
                                          .rows = op.routing.tokens,
                                          .columns = op.routing.experts,
                                          .from_stride = op.routing.experts};
    mcp_cuda_add_sums(call, &sums);
}

/* reads routing; writes sizes, their first half: what others have is exchanged later */
void mcp_cuda_launch_expert_counts(const struct mcp_cuda_call *call)
{
    const struct mcp_cuda_routing routing = read_routing(call->launch, 0);
    mcp_cuda_expert_counts(&routing, call->launch->writes[0], call->queue);
}

static struct mcp_cuda_permute permute_of(const struct mcp_cuda_call *call)
{
    return (struct mcp_cuda_permute){.routing = read_routing(call->launch, 1),
                                     .columns = call->launch->op->dims[1]};
}

/* reads tokens, routing; writes sorted rows */
void mcp_cuda_launch_permute(const struct mcp_cuda_call *call)
{
    struct mcp_cuda_permute op = permute_of(call);
    op.tokens = mcp_cuda_read(call, 0);
    op.sorted = mcp_cuda_written(call, 0);
    mcp_cuda_permute(&op, call->queue);
}

/* reads gradients of sorted rows, routing, d_norm; adds the first to the last, in place */
void mcp_cuda_launch_permute_backward(const struct mcp_cuda_call *call)
{
    struct mcp_cuda_permute op = permute_of(call);
    op.sorted = mcp_cuda_read(call, 0);
    op.tokens = mcp_cuda_written(call, 0);
    mcp_cuda_permute_backward(&op, call->queue);
}

/* reads combined, routing; writes the weighted sums of what tokens' experts made of them */
void mcp_cuda_launch_unpermute(const struct mcp_cuda_call *call)
{
    struct mcp_cuda_permute op = permute_of(call);
    op.sorted = mcp_cuda_read(call, 0);
    op.tokens = mcp_cuda_written(call, 0);
    mcp_cuda_unpermute(&op, call->queue);
}

/* reads d_branch [tokens][columns], routing, combined [rows][columns]; writes d_combined,
 * d_routing [tokens][experts] */
void mcp_cuda_launch_unpermute_backward(const struct mcp_cuda_call *call)
{
    struct mcp_cuda_permute op = permute_of(call);
    op.tokens = mcp_cuda_read(call, 0);
    op.sorted = mcp_cuda_read(call, 2);
    op.d_sorted = mcp_cuda_written(call, 0);
    op.d_routing = mcp_cuda_written(call, 1);
    mcp_cuda_unpermute_backward(&op, call->queue);
}
