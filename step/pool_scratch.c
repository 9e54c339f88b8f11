/* step/pool_scratch.c: lays the scratch of one block out by intervals of its ops. */
#include "step/pool_parts.h"

#include <stdlib.h>
#include <string.h>

struct value {
    int index;       /* in block space */
    int first, last; /* op */
    int64_t offset, bytes;
    short latest[MCP_NUM_STREAMS]; /* op + 1 that touches it, per stream */
};

static void mention(struct value *values, struct mcp_operand at, int op, unsigned char stream)
{
    if (at.space != MCP_SPACE_BLOCK)
        return;
    struct value *value = &values[at.index];
    if (value->first < 0)
        value->first = op;
    value->last = op;
    value->latest[stream] = (short)(op + 1);
}

static void collect(const struct mcp_layer_type *type, const struct mcp_block *block,
                    struct value *values)
{
    for (int i = 0; i < type->num_buffers[MCP_SPACE_BLOCK]; i++)
        values[i] = (struct value){
            .index = i, .first = -1, .bytes = type->buffers[MCP_SPACE_BLOCK][i].capacity_bytes};
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_op *op = &block->ops[i];
        for (int r = 0; r < op->num_reads; r++)
            mention(values, op->reads[r], i, op->stream);
        for (int w = 0; w < op->num_writes; w++)
            mention(values, op->writes[w], i, op->stream);
    }
}

static int by_size(const void *a, const void *b)
{
    const struct value *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->index - y->index;
}

static bool share_time(const struct value *a, const struct value *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static bool share_bytes(const struct value *a, const struct value *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* The lowest offset where nothing placed before lives at the same time. */
static bool lower_into_place(struct value *values, int v)
{
    struct value *value = &values[v];
    bool moved = true;
    while (moved) {
        moved = false;
        for (int i = 0; i < v; i++)
            if (share_time(value, &values[i]) && share_bytes(value, &values[i])) {
                value->offset = values[i].offset;
                if (!mcp_add_bytes(&value->offset, values[i].bytes) ||
                    !mcp_add_bytes(&value->offset, MCP_POOL_ALIGNMENT - 1))
                    return false;
                value->offset &= ~(int64_t)(MCP_POOL_ALIGNMENT - 1);
                moved = true;
            }
    }
    return true;
}

static void add_wait(struct mcp_scratch_layout *layout, int op, unsigned short earlier)
{
    for (int i = 0; i < layout->num_waits[op]; i++)
        if (layout->waits[op][i] == earlier)
            return;
    if (layout->num_waits[op] < MCP_NUM_STREAMS)
        layout->waits[op][layout->num_waits[op]++] = earlier;
}

/* What takes over bytes waits for the last op of each other stream that used them. */
static void add_waits(const struct mcp_block *block, const struct value *values, int count,
                      struct mcp_scratch_layout *layout)
{
    for (int later = 0; later < count; later++)
        for (int earlier = 0; earlier < count; earlier++) {
            const struct value *a = &values[earlier], *b = &values[later];
            if (a->last >= b->first || !share_bytes(a, b))
                continue;
            for (int s = 0; s < MCP_NUM_STREAMS; s++)
                if (a->latest[s] > 0 && s != block->ops[b->first].stream)
                    add_wait(layout, b->first, (unsigned short)(a->latest[s] - 1));
        }
}

static int keep_used(struct value *values, int count)
{
    int used = 0;
    for (int i = 0; i < count; i++)
        if (values[i].first >= 0 && values[i].bytes > 0)
            values[used++] = values[i];
    return used;
}

bool mcp_scratch_lay_out(struct mcp_arena *arena, const struct mcp_layer_type *type,
                         enum mcp_block_role role, struct mcp_scratch_layout *out)
{
    const struct mcp_block *block = &type->blocks[role];
    int count = type->num_buffers[MCP_SPACE_BLOCK];
    memset(out, 0, sizeof *out);
    if (count == 0 || block->num_ops == 0)
        return true;
    struct value *values = MCP_ARRAY(arena, count, struct value);
    out->offsets = MCP_ARRAY(arena, count, int64_t);
    out->num_waits = MCP_ARRAY(arena, block->num_ops, int);
    out->waits = mcp_alloc(arena, (size_t)block->num_ops, sizeof *out->waits);
    collect(type, block, values);
    count = keep_used(values, count);
    qsort(values, (size_t)count, sizeof *values, by_size);
    for (int v = 0; v < count; v++) {
        if (!lower_into_place(values, v))
            return false;
        int64_t end = values[v].offset;
        if (!mcp_add_bytes(&end, values[v].bytes))
            return false;
        out->bytes = end > out->bytes ? end : out->bytes;
        out->offsets[values[v].index] = values[v].offset;
    }
    add_waits(block, values, count, out);
    return true;
}
