/* exec/cuda_launch_heads.c: from the projection to queries, keys and values, and attention. */
#include "exec/cuda_launch.h"
#include "exec/shapes.h"

_Static_assert(MCP_CUDA_MAX_TURNS >= MCP_MAX_HEAD_DIM / 2, "every pair of columns can turn");

/* Between a projected row, operand `whole`, and queries and keys with values, beside it. */
static struct mcp_cuda_heads heads_of(const struct mcp_launch *launch, bool rotary)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    struct mcp_cuda_heads op = {.rows = launch->op->dims[0],
                                .heads = facts->heads,
                                .kv_heads = facts->kv_heads,
                                .head_dim = facts->head_dim,
                                .value_head_dim = facts->value_head_dim,
                                .tokens = mcp_cuda_tokens_of(launch, launch->rank->at.context)};
    if (rotary)
        op.turns.count = mcp_rotary_frequencies(facts, op.turns.frequency);
    return op;
}

static void split(const struct mcp_cuda_call *call, bool rotary)
{
    struct mcp_cuda_heads op = heads_of(call->launch, rotary);
    op.whole = mcp_cuda_read(call, 0);
    op.query = mcp_cuda_written(call, 0);
    op.kv = mcp_cuda_written(call, 1);
    if (call->launch->op->weight != MCP_NO_WEIGHT)
        op.bias = mcp_cuda_array_of(mcp_weight_view(call->launch, 1, 0));
    mcp_cuda_split_heads(&op, call->queue);
}

static void join(const struct mcp_cuda_call *call, bool rotary)
{
    const struct mcp_launch *launch = call->launch;
    struct mcp_cuda_heads op = heads_of(launch, rotary);
    int64_t columns = op.heads * op.head_dim + op.kv_heads * (op.head_dim + op.value_head_dim);
    op.query = mcp_cuda_read(call, 0);
    op.kv = mcp_cuda_read(call, 1);
    op.whole = mcp_cuda_written(call, 0);
    mcp_cuda_join_heads(&op, call->queue);
    if (launch->op->weight == MCP_NO_WEIGHT)
        return;
    const struct mcp_cuda_columns sums = {.from = op.whole,
                                          .to = mcp_cuda_array_of(mcp_gradient_view(launch, 1, 0)),
                                          .rows = op.rows,
                                          .columns = columns,
                                          .from_stride = columns};
    mcp_cuda_add_sums(call, &sums);
}

void mcp_cuda_launch_rotary(const struct mcp_cuda_call *call)
{
    split(call, true);
}

void mcp_cuda_launch_rotary_backward(const struct mcp_cuda_call *call)
{
    join(call, true);
}

void mcp_cuda_launch_bias(const struct mcp_cuda_call *call)
{
    split(call, false);
}

/* Of queries, keys and values; with one operand of that alone. */
void mcp_cuda_launch_bias_backward(const struct mcp_cuda_call *call)
{
    const int64_t *d = call->launch->op->dims;
    if (call->launch->op->num_reads > 1) {
        join(call, false);
        return;
    }
    const struct mcp_cuda_columns sums = {
        .from = mcp_cuda_read(call, 0),
        .to = mcp_cuda_array_of(mcp_gradient_view(call->launch, 0, 0)),
        .rows = d[0],
        .columns = d[1],
        .from_stride = d[1]};
    mcp_cuda_add_sums(call, &sums);
}

static void exchange(const struct mcp_cuda_call *call, bool packs)
{
    const int64_t *d = call->launch->op->dims;
    const struct mcp_cuda_exchange op = {.from = mcp_cuda_read(call, 0),
                                         .to = mcp_cuda_written(call, 0),
                                         .tokens = d[0],
                                         .columns = d[1],
                                         .ranks = d[2],
                                         .first_band = d[3],
                                         .packs = packs};
    mcp_cuda_exchange_heads(&op, call->queue);
}

void mcp_cuda_launch_pack_heads(const struct mcp_cuda_call *call)
{
    exchange(call, true);
}

void mcp_cuda_launch_unpack_heads(const struct mcp_cuda_call *call)
{
    exchange(call, false);
}

/* --- attention --- */

/* A ring step has the keys of the rank some hops back; else a rank sees all keys, and after
 * an exchange of tokens for heads all queries too. */
static struct mcp_cuda_attention attention_of(const struct mcp_launch *launch)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    bool exchanged = mcp_heads_exchanged(launch);
    int shares = exchanged ? launch->rank->program->plan.context_parallel : 1;
    struct mcp_cuda_tokens own = mcp_cuda_tokens_of(launch, launch->rank->at.context);
    struct mcp_cuda_tokens all = mcp_cuda_all_tokens(launch);
    struct mcp_cuda_attention op = {.batch = facts->microbatch_size,
                                    .heads = facts->heads / shares,
                                    .kv_heads = facts->kv_heads / shares,
                                    .head_dim = facts->head_dim,
                                    .value_head_dim = facts->value_head_dim,
                                    .window = facts->sliding_window,
                                    .chunk = facts->attention_chunk_size,
                                    .scale = (float)facts->softmax_scale,
                                    .queries = exchanged ? all : own,
                                    .keys = all};
    if (mcp_is_ring_step(launch->op)) {
        op.queries = own;
        op.keys = mcp_cuda_tokens_of(launch, mcp_key_owner(launch));
    }
    return op;
}

/* reads query, kv; writes output, statistics */
void mcp_cuda_launch_attention(const struct mcp_cuda_call *call)
{
    struct mcp_cuda_attention op = attention_of(call->launch);
    op.query = mcp_cuda_read(call, 0);
    op.kv = mcp_cuda_read(call, 1);
    op.output = mcp_cuda_written(call, 0);
    op.statistics = call->launch->writes[1];
    mcp_cuda_attention(&op, call->queue);
}

/* reads query, kv, output, d_output, statistics, gradients of queries if they are added to;
 * writes d_query, d_kv */
void mcp_cuda_launch_attention_backward(const struct mcp_cuda_call *call)
{
    struct mcp_cuda_attention op = attention_of(call->launch);
    op.query = mcp_cuda_read(call, 0);
    op.kv = mcp_cuda_read(call, 1);
    op.output = mcp_cuda_read(call, 2);
    op.d_output = mcp_cuda_read(call, 3);
    op.statistics = call->launch->reads[4];
    op.adds = call->launch->op->num_reads > 5;
    op.d_query = mcp_cuda_written(call, 0);
    op.d_kv = mcp_cuda_written(call, 1);
    mcp_cuda_attention_backward(&op, call->queue);
}

/* reads part, its statistics, output, statistics; writes the last two */
void mcp_cuda_launch_merge(const struct mcp_cuda_call *call)
{
    const struct mcp_layer_facts *facts = &call->launch->type->facts;
    const struct mcp_cuda_merge op = {.part = mcp_cuda_read(call, 0),
                                      .output = mcp_cuda_written(call, 0),
                                      .part_statistics = call->launch->reads[1],
                                      .statistics = call->launch->writes[1],
                                      .rows = call->launch->op->dims[0],
                                      .heads = facts->heads,
                                      .width = facts->value_head_dim};
    mcp_cuda_attention_merge(&op, call->queue);
}
