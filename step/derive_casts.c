/* step/derive_casts.c: casts of what 8 bit products read: step/casts.h.
 *
 * A rewrite of finished blocks: a product's operands become casts, made just before the first of
 * the products that read the same value; weights become those that are cast once a step
 * (step/layer_data.c). */
#include "step/builder.h"
#include "step/casts.h"

#include <assert.h>

static const enum mcp_block_role roles[] = {MCP_FORWARD, MCP_RECOMPUTE, MCP_BACKWARD,
                                            MCP_BACKWARD_INPUT, MCP_BACKWARD_WEIGHT};

enum way { AS_IT_LIES, TRANSPOSED, NUM_WAYS };

/* An operand of a product, [rows][columns] in 16 bits. */
struct source {
    struct mcp_operand at;
    int writer; /* op of the block that wrote it last; -1: it comes from elsewhere */
    bool is_gradient;
    int64_t rows, columns;
    enum way way; /* that the product reads it */
};

/* What products of one block read of one value. */
struct cast {
    struct source source;
    bool wanted[NUM_WAYS];
    struct mcp_ref to[NUM_WAYS]; /* set once it is emitted */
};

enum { MAX_CASTS = 2 * MCP_MAX_TYPE_WEIGHTS };
struct casts {
    struct mcp_builder *b;
    int count;
    struct cast items[MAX_CASTS];
};

static int last_writer(const struct mcp_block *block, int before, struct mcp_operand at)
{
    for (int i = before - 1; i >= 0; i--)
        if (mcp_op_writes(&block->ops[i], at))
            return i;
    return -1;
}

/* Operands of a product but weights; returns how many: 0, 1 or 2. */
static int sources_of(const struct mcp_block *block, int index, struct source out[2])
{
    const struct mcp_op *op = &block->ops[index];
    const int64_t m = op->dims[0], n = op->dims[1], k = op->dims[2];
    int count = 1;
    if (!mcp_op_reads_casts(op))
        return 0;
    if (op->function == MCP_FN_MATMUL_TN_ACCUMULATE) {
        out[0] = (struct source){.rows = k, .columns = m, .way = TRANSPOSED};
        out[1] = (struct source){.rows = k, .columns = n, .way = TRANSPOSED};
        count = 2;
    } else {
        out[0] = (struct source){.rows = m, .columns = k, .way = AS_IT_LIES};
    }
    for (int i = 0; i < count; i++) {
        out[i].at = op->reads[i];
        out[i].writer = last_writer(block, index, op->reads[i]);
        out[i].is_gradient = mcp_op_reads_gradients(op, i);
    }
    return count;
}

static bool is_same_value(const struct source *a, const struct source *b)
{
    return mcp_same_operand(a->at, b->at) && a->writer == b->writer &&
           a->is_gradient == b->is_gradient && a->rows == b->rows && a->columns == b->columns;
}

static struct cast *find(struct casts *casts, const struct source *source)
{
    for (int i = 0; i < casts->count; i++)
        if (is_same_value(&casts->items[i].source, source))
            return &casts->items[i];
    assert(casts->count < MAX_CASTS);
    struct cast *cast = &casts->items[casts->count++];
    *cast = (struct cast){.source = *source};
    return cast;
}

static void collect(struct casts *casts, const struct mcp_block *block)
{
    struct source sources[2];
    casts->count = 0;
    for (int i = 0; i < block->num_ops; i++) {
        int count = sources_of(block, i, sources);
        for (int s = 0; s < count; s++)
            find(casts, &sources[s])->wanted[sources[s].way] = true;
    }
}

static void emit_cast(struct mcp_builder *b, struct cast *cast)
{
    const struct source *from = &cast->source;
    const double bytes = (double)mcp_cast_bytes(from->rows, from->columns);
    struct mcp_call call = {.function =
                                cast->wanted[TRANSPOSED] ? MCP_FN_CAST_COLUMNS : MCP_FN_CAST_ROWS,
                            .reads = {{true, from->at}},
                            .dims = {from->rows, from->columns, from->is_gradient}};
    if (cast->wanted[AS_IT_LIES] && cast->wanted[TRANSPOSED])
        call.function = MCP_FN_CAST_BOTH;
    for (int way = 0, write = 0; way < NUM_WAYS; way++)
        if (cast->wanted[way])
            call.writes[write++] = cast->to[way] =
                mcp_scratch(b, way == TRANSPOSED ? "cast_columns" : "cast", bytes, b->matmul).block;
    mcp_emit(b, call);
}

static void rewrite_op(struct casts *casts, const struct mcp_block *old, int index)
{
    struct mcp_builder *b = casts->b;
    struct mcp_op op = old->ops[index];
    struct source sources[2];
    int count = sources_of(old, index, sources);
    for (int s = 0; s < count; s++) {
        struct cast *cast = find(casts, &sources[s]);
        if (!cast->to[sources[s].way].set)
            emit_cast(b, cast);
        op.reads[s] = cast->to[sources[s].way].operand;
    }
    if (count == 1)
        op.reads[1] = mcp_layer_buffer(op.function == MCP_FN_MATMUL_NN ? MCP_LAYER_CAST_COLUMNS
                                                                       : MCP_LAYER_CAST_WEIGHTS)
                          .operand;
    assert(b->num_ops < b->max_ops);
    b->ops[b->num_ops++] = op;
}

void mcp_derive_casts(struct mcp_builder *b)
{
    struct casts *casts = MCP_NEW(b->arena, struct casts);
    casts->b = b;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const struct mcp_block old = b->type->blocks[roles[i]];
        collect(casts, &old);
        if (casts->count == 0)
            continue;
        mcp_begin_block(b, roles[i] == MCP_FORWARD);
        for (int op = 0; op < old.num_ops; op++)
            rewrite_op(casts, &old, op);
        mcp_end_block(b, roles[i]);
    }
}
