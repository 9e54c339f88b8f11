/* step/layer_context.c: the attention core: whole, or cut along the tokens by ring,
 * all-gather or all-to-all (context parallelism). */
#include "step/layer_attention.h"

#include <math.h>
#include <string.h>

static void attention_op(struct mcp_builder *b, const struct mcp_attention_call *call)
{
    struct mcp_call op = {.function = call->function,
                          .dims = {call->batch_heads, (int64_t)ceil(call->pairs), b->kind->head_dim,
                                   b->kind->value_head_dim, call->queries, call->keys, call->hops}};
    memcpy(op.reads, call->reads, sizeof op.reads);
    memcpy(op.writes, call->writes, sizeof op.writes);
    mcp_emit(b, op);
}

static void whole_forward(struct mcp_builder *b, struct mcp_attention_values *v,
                          struct mcp_ref query, struct mcp_ref kv, struct mcp_ref output)
{
    struct mcp_attention_call call = {.function = b->fused_attention
                                                      ? MCP_FN_ATTENTION_FORWARD
                                                      : MCP_FN_ATTENTION_UNFUSED_FORWARD,
                                      .batch_heads = v->batch_heads,
                                      .queries = b->sequence_local,
                                      .keys = b->sequence,
                                      .pairs = v->pairs / b->plan->context_parallel,
                                      .reads = {query, kv},
                                      .writes = {output, mcp_at(b, v->statistics)}};
    if (!b->fused_attention)
        call.writes[2] = mcp_at(b, v->probabilities);
    attention_op(b, &call);
}

static void whole_backward(struct mcp_builder *b, struct mcp_attention_values *v,
                           const struct mcp_ref in[4], const struct mcp_ref out[2])
{
    struct mcp_attention_call call = {
        .function =
            b->fused_attention ? MCP_FN_ATTENTION_BACKWARD : MCP_FN_ATTENTION_UNFUSED_BACKWARD,
        .batch_heads = v->batch_heads,
        .queries = b->sequence_local,
        .keys = b->sequence,
        .pairs = v->pairs / b->plan->context_parallel,
        .reads = {in[0], in[1], in[2], in[3], mcp_at(b, v->statistics)},
        .writes = {out[0], out[1]}};
    if (!b->fused_attention)
        call.reads[5] = mcp_at(b, v->probabilities);
    attention_op(b, &call);
}

static void shift(struct mcp_builder *b, int delta, int64_t elements, struct mcp_ref from,
                  struct mcp_ref to)
{
    mcp_emit(b, (struct mcp_call){.function = MCP_FN_SHIFT,
                                  .stream = MCP_STREAM_CONTEXT,
                                  .group = MCP_CONTEXT,
                                  .delta = delta,
                                  .hiding = b->plan->overlap.context ? MCP_HIDE_BULK : MCP_HIDE_NOT,
                                  .reads = {from},
                                  .writes = {to},
                                  .dims = {elements}});
}

/* What the projections were to write to a value goes elsewhere. */
static void redirect(struct mcp_builder *b, struct mcp_ref from, struct mcp_ref to)
{
    for (int i = 0; i < b->num_ops; i++)
        for (int w = 0; w < b->ops[i].num_writes; w++)
            if (memcmp(&b->ops[i].writes[w], &from.operand, sizeof from.operand) == 0)
                b->ops[i].writes[w] = to.operand;
}

/* Zigzag ring (execution order: own part, then c-1 shifts, each hidden under the
 * step before it). Every step of every rank works on pairs / c^2. */
static void ring_forward(struct mcp_builder *b, struct mcp_attention_values *v)
{
    int c = b->plan->context_parallel;
    int64_t tokens = b->tokens, s = b->sequence_local;
    struct mcp_ref ring[2] = {mcp_scratch_activation(b, "kv_ring_a", tokens, v->kv_columns),
                              mcp_scratch_activation(b, "kv_ring_b", tokens, v->kv_columns)};
    struct mcp_ref part = mcp_scratch_activation(b, "attention_part", tokens, v->value_columns);
    int64_t heads = v->batch_heads / b->plan->microbatch_size;
    struct mcp_ref part_statistics =
        mcp_scratch(b, "statistics_part", mcp_bytes_of(tokens, heads, MCP_F32), MCP_F32).block;
    struct mcp_ref query = mcp_at(b, v->query), output = mcp_at(b, v->output);
    struct mcp_ref statistics = mcp_at(b, v->statistics), held = ring[0];
    redirect(b, mcp_at(b, v->kv), held); /* the own part: its place is the last one's */
    for (int i = 0; i < c; i++) {
        struct mcp_attention_call call = {.function = MCP_FN_ATTENTION_STEP_FORWARD,
                                          .batch_heads = v->batch_heads,
                                          .queries = s,
                                          .keys = s,
                                          .hops = i,
                                          .pairs = v->pairs / c / c,
                                          .reads = {query, held}};
        struct mcp_ref next = i == c - 2 ? mcp_at(b, v->kv) : ring[(i + 1) % 2];
        if (i < c - 1)
            shift(b, 1, tokens * v->kv_columns, held, next);
        call.writes[0] = i == 0 ? output : part;
        call.writes[1] = i == 0 ? statistics : part_statistics;
        attention_op(b, &call);
        if (i > 0)
            mcp_emit(b, (struct mcp_call){.function = MCP_FN_MERGE,
                                          .reads = {part, part_statistics, output, statistics},
                                          .writes = {output, statistics},
                                          .dims = {tokens, v->value_columns}});
        held = next;
    }
}

/* Reversed: it starts from the part held last, so the own one comes home with the
 * last hop and its gradient needs c-1 hops only. */
static void ring_backward(struct mcp_builder *b, struct mcp_attention_values *v,
                          const struct mcp_ref in[4], const struct mcp_ref out[2])
{
    int c = b->plan->context_parallel;
    int64_t tokens = b->tokens, s = b->sequence_local, elements = tokens * v->kv_columns;
    struct mcp_ref ring[2] = {mcp_scratch_activation(b, "kv_ring_a", tokens, v->kv_columns),
                              mcp_scratch_activation(b, "kv_ring_b", tokens, v->kv_columns)};
    struct mcp_ref travel[2] = {mcp_scratch_activation(b, "d_kv_ring_a", tokens, v->kv_columns),
                                mcp_scratch_activation(b, "d_kv_ring_b", tokens, v->kv_columns)};
    struct mcp_ref part = mcp_scratch_activation(b, "d_kv_part", tokens, v->kv_columns);
    struct mcp_ref held = in[1], gradient = travel[0];
    for (int i = 0; i < c; i++) {
        struct mcp_ref next = ring[i % 2];
        if (i < c - 1)
            shift(b, -1, elements, held, next);
        struct mcp_attention_call call = {
            .function = MCP_FN_ATTENTION_STEP_BACKWARD,
            .batch_heads = v->batch_heads,
            .queries = s,
            .keys = s,
            .hops = c - 1 - i,
            .pairs = v->pairs / c / c,
            .reads = {in[0], held, in[2], in[3], mcp_at(b, v->statistics)},
            .writes = {out[0]}};
        if (i > 0)
            call.reads[5] = out[0]; /* queries' gradients accumulate */
        call.writes[1] = i == 0 ? gradient : part;
        attention_op(b, &call);
        if (i > 0)
            mcp_map(b, MCP_FN_ADD, tokens, v->kv_columns, (struct mcp_ref[3]){gradient, part},
                    (struct mcp_ref[2]){i == c - 1 ? out[1] : gradient});
        if (i < c - 1) {
            struct mcp_ref arrived = travel[(i + 1) % 2];
            shift(b, -1, elements, gradient, arrived);
            gradient = arrived;
        }
        held = next;
    }
}

static void context_collective(struct mcp_builder *b, enum mcp_function function, int64_t elements,
                               struct mcp_ref from, struct mcp_ref to)
{
    mcp_emit(b, (struct mcp_call){.function = function,
                                  .stream = MCP_STREAM_CONTEXT,
                                  .group = MCP_CONTEXT,
                                  .reads = {from},
                                  .writes = {to},
                                  .dims = {elements}});
}

static struct mcp_ref gather_kv(struct mcp_builder *b, struct mcp_attention_values *v,
                                struct mcp_ref kv)
{
    int64_t rows = b->tokens * b->plan->context_parallel;
    struct mcp_ref whole = mcp_scratch_activation(b, "kv_whole", rows, v->kv_columns);
    context_collective(b, MCP_FN_ALL_GATHER, rows * v->kv_columns, kv, whole);
    return whole;
}

static void gathered_forward(struct mcp_builder *b, struct mcp_attention_values *v)
{
    struct mcp_ref kv = gather_kv(b, v, mcp_at(b, v->kv));
    whole_forward(b, v, mcp_at(b, v->query), kv, mcp_at(b, v->output));
}

static void gathered_backward(struct mcp_builder *b, struct mcp_attention_values *v,
                              const struct mcp_ref in[4], const struct mcp_ref out[2])
{
    int64_t rows = b->tokens * b->plan->context_parallel;
    struct mcp_ref kv = gather_kv(b, v, in[1]);
    struct mcp_ref d_kv = mcp_scratch_activation(b, "d_kv_whole", rows, v->kv_columns);
    whole_backward(b, v, (struct mcp_ref[4]){in[0], kv, in[2], in[3]},
                   (struct mcp_ref[2]){out[0], d_kv});
    context_collective(b, MCP_FN_REDUCE_SCATTER, rows * v->kv_columns, d_kv, out[1]);
}

/* Ulysses (Jacobs et al. 2023): a value of so many columns in bands of heads, keys and
 * values apart, changes hands: all columns of own tokens for a share of every token's. */
struct exchanged {
    const char *name; /* of what is packed */
    int64_t columns;
    int64_t key_columns; /* the first band, 0: one band */
};

static void pack(struct mcp_builder *b, enum mcp_function function, const struct exchanged *value,
                 struct mcp_ref from, struct mcp_ref to)
{
    mcp_emit(b, (struct mcp_call){.function = function,
                                  .reads = {from},
                                  .writes = {to},
                                  .dims = {b->tokens, value->columns, b->plan->context_parallel,
                                           value->key_columns}});
}

static void tokens_for_heads(struct mcp_builder *b, const struct exchanged *value,
                             struct mcp_ref from, struct mcp_ref to)
{
    struct mcp_ref packed = mcp_scratch_activation(b, value->name, b->tokens, value->columns);
    pack(b, MCP_FN_PACK_HEADS, value, from, packed);
    context_collective(b, MCP_FN_ALL_TO_ALL, b->tokens * value->columns, packed, to);
}

static void heads_for_tokens(struct mcp_builder *b, const struct exchanged *value,
                             struct mcp_ref from, struct mcp_ref to)
{
    struct mcp_ref packed = mcp_scratch_activation(b, value->name, b->tokens, value->columns);
    context_collective(b, MCP_FN_ALL_TO_ALL, b->tokens * value->columns, from, packed);
    pack(b, MCP_FN_UNPACK_HEADS, value, packed, to);
}

/* The exchanged queries, keys and values are what is saved. */
static void exchanged_forward(struct mcp_builder *b, struct mcp_attention_values *v)
{
    struct mcp_ref q = mcp_scratch_activation(b, "query_tokens", b->tokens, v->query_columns);
    struct mcp_ref kv = mcp_scratch_activation(b, "kv_tokens", b->tokens, v->kv_columns);
    redirect(b, mcp_at(b, v->query), q);
    redirect(b, mcp_at(b, v->kv), kv);
    tokens_for_heads(b, &(struct exchanged){"query_packed", v->query_columns, 0}, q,
                     mcp_at(b, v->query));
    tokens_for_heads(b, &(struct exchanged){"kv_packed", v->kv_columns, v->key_columns}, kv,
                     mcp_at(b, v->kv));
    whole_forward(b, v, mcp_at(b, v->query), mcp_at(b, v->kv), mcp_at(b, v->head_output));
    heads_for_tokens(b, &(struct exchanged){"attention_packed", v->value_columns, 0},
                     mcp_at(b, v->head_output), mcp_at(b, v->output));
}

static void exchanged_backward(struct mcp_builder *b, struct mcp_attention_values *v,
                               const struct mcp_ref in[4], const struct mcp_ref out[2])
{
    struct mcp_ref d = mcp_scratch_activation(b, "d_heads", b->tokens, v->value_columns);
    struct mcp_ref dq = mcp_scratch_activation(b, "d_query_heads", b->tokens, v->query_columns);
    struct mcp_ref dkv = mcp_scratch_activation(b, "d_kv_heads", b->tokens, v->kv_columns);
    tokens_for_heads(b, &(struct exchanged){"d_packed", v->value_columns, 0}, in[3], d);
    whole_backward(b, v, (struct mcp_ref[4]){in[0], in[1], mcp_at(b, v->head_output), d},
                   (struct mcp_ref[2]){dq, dkv});
    heads_for_tokens(b, &(struct exchanged){"d_query_packed", v->query_columns, 0}, dq, out[0]);
    heads_for_tokens(b, &(struct exchanged){"d_kv_packed", v->kv_columns, v->key_columns}, dkv,
                     out[1]);
}

void mcp_core_forward(struct mcp_builder *b, struct mcp_attention_values *v)
{
    bool cut = b->plan->context_parallel > 1;
    if (cut && b->plan->context_parallel_kind == MCP_CONTEXT_RING && b->fused_attention)
        ring_forward(b, v);
    else if (cut && b->plan->context_parallel_kind == MCP_CONTEXT_ALL_TO_ALL)
        exchanged_forward(b, v);
    else if (cut)
        gathered_forward(b, v);
    else
        whole_forward(b, v, mcp_at(b, v->query), mcp_at(b, v->kv), mcp_at(b, v->output));
}

void mcp_core_backward(struct mcp_builder *b, struct mcp_attention_values *v,
                       struct mcp_ref d_output, struct mcp_ref d_query, struct mcp_ref d_kv)
{
    const struct mcp_ref in[4] = {mcp_at(b, v->query), mcp_at(b, v->kv), mcp_at(b, v->output),
                                  d_output};
    const struct mcp_ref out[2] = {d_query, d_kv};
    bool cut = b->plan->context_parallel > 1;
    if (cut && b->plan->context_parallel_kind == MCP_CONTEXT_RING && b->fused_attention)
        ring_backward(b, v, in, out);
    else if (cut && b->plan->context_parallel_kind == MCP_CONTEXT_ALL_TO_ALL)
        exchanged_backward(b, v, in, out);
    else if (cut)
        gathered_backward(b, v, in, out);
    else
        whole_backward(b, v, in, out);
}
