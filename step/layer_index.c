/* step/layer_index.c: the indexer of sparse attention (DeepSeek-V3.2, section 2.1):
 * it scores every earlier token for each query, and the best are attended to.
 *
 * All tensor ranks hold and do the whole of it. The scores are one product in place of
 * a fused kernel: T queries with s / 2 keys each, under the causal mask. */
#include "step/builder.h"

struct mcp_index_values {
    int64_t columns; /* index_num_heads x index_head_dim */
    int norm_weight;
    struct mcp_linear query, key, weights;
    struct mcp_value queries; /* [T, columns] */
    struct mcp_value raw_key; /* [T, index_head_dim] before its norm */
    struct mcp_value keys;    /* [T, index_head_dim] */
    struct mcp_value shares;  /* [T, index_num_heads] */
};

static struct mcp_linear replicated(struct mcp_builder *b, const char *name, int64_t n, int64_t k)
{
    return mcp_linear_of(mcp_weight_part(b, name, n, k, true), b->tokens, n, k);
}

struct mcp_index_values *mcp_index_declare(struct mcp_builder *b)
{
    struct mcp_index_values *v = MCP_NEW(b->arena, struct mcp_index_values);
    const struct mcp_layer_kind *kind = b->kind;
    int64_t heads = kind->index_num_heads, dim = kind->index_head_dim;
    v->columns = heads * dim;
    v->query = replicated(b, "index_query", v->columns,
                          kind->q_lora_rank > 0 ? kind->q_lora_rank : b->hidden);
    v->key = replicated(b, "index_key", dim, b->hidden);
    v->norm_weight = mcp_weight_part(b, "index_norm", 2, dim, true);
    v->weights = replicated(b, "index_weights", heads, b->hidden);
    v->queries = mcp_saved_activation(b, "index_queries", b->tokens, v->columns, 0);
    v->raw_key = mcp_saved_activation(b, "index_raw_keys", b->tokens, dim, 0);
    v->keys = mcp_saved_activation(b, "index_keys", b->tokens, dim, 0);
    v->shares = mcp_saved_activation(b, "index_shares", b->tokens, heads, 0);
    return v;
}

static void score(struct mcp_builder *b, const struct mcp_index_values *v,
                  enum mcp_function function, struct mcp_ref out)
{
    int64_t keys = (b->sequence + 1) / 2;
    bool forward = function == MCP_FN_MATMUL_NT;
    mcp_emit(b,
             (struct mcp_call){
                 .function = function,
                 .reads = {mcp_at(b, v->queries), mcp_at(b, v->keys), mcp_at(b, v->shares)},
                 .writes = {out},
                 .dims = {b->tokens, forward ? keys : v->columns, forward ? v->columns : keys, 1}});
}

void mcp_index_forward(struct mcp_builder *b, struct mcp_index_values *v, struct mcp_ref x,
                       struct mcp_ref q)
{
    struct mcp_ref raw = mcp_at(b, v->raw_key);
    double bytes = mcp_bytes_of(b->tokens, b->kind->index_topk, MCP_I32);
    struct mcp_ref chosen = mcp_scratch(b, "index_chosen", bytes, MCP_I32).block;
    mcp_linear_forward(b, &v->query, q, mcp_at(b, v->queries));
    mcp_linear_forward(b, &v->key, x, raw);
    mcp_norm_forward(b, v->norm_weight, b->tokens, b->kind->index_head_dim, raw,
                     mcp_at(b, v->keys));
    mcp_linear_forward(b, &v->weights, x, mcp_at(b, v->shares));
    score(b, v, MCP_FN_MATMUL_NT, chosen);
}

/* One linear layer's weight gradient, and what it adds to its input's. */
static void linear_backward(struct mcp_builder *b, const struct mcp_linear *linear,
                            struct mcp_ref x, struct mcp_ref dy, struct mcp_ref dx)
{
    struct mcp_ref more = mcp_scratch_activation(b, "d_indexed", b->tokens, linear->k);
    mcp_linear_input_gradient(b, linear, dy, more);
    mcp_linear_weight_gradient(b, linear, x, dy);
    mcp_map(b, MCP_FN_ADD, b->tokens, linear->k, (struct mcp_ref[3]){dx, more},
            (struct mcp_ref[2]){dx});
}

void mcp_index_backward(struct mcp_builder *b, struct mcp_index_values *v,
                        const struct mcp_ref in[2], const struct mcp_ref out[2])
{
    int64_t tokens = b->tokens, dim = b->kind->index_head_dim;
    struct mcp_ref d_queries = mcp_scratch_activation(b, "d_index_queries", tokens, v->columns);
    struct mcp_ref d_keys = mcp_scratch_activation(b, "d_index_keys", tokens, dim);
    struct mcp_ref d_shares = mcp_scratch_activation(b, "d_index_shares", tokens, v->weights.n);
    score(b, v, MCP_FN_MATMUL_NN, d_queries);
    score(b, v, MCP_FN_MATMUL_NN, d_keys);
    mcp_map(b, MCP_FN_COPY, tokens, v->weights.n, (struct mcp_ref[3]){mcp_at(b, v->shares), d_keys},
            (struct mcp_ref[2]){d_shares});
    mcp_norm_backward(b, &(struct mcp_norm_gradient){.part = v->norm_weight,
                                                     .rows = tokens,
                                                     .columns = dim,
                                                     .dy = d_keys,
                                                     .x = mcp_at(b, v->raw_key),
                                                     .dx = d_keys});
    linear_backward(b, &v->key, in[0], d_keys, out[0]);
    linear_backward(b, &v->weights, in[0], d_shares, out[0]);
    linear_backward(b, &v->query, in[1], d_queries, out[1]);
}
