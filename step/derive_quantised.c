/* step/derive_quantised.c: saved activations in 8 bits with a scale for each block of a row.
 *
 * A rewrite of finished blocks: what forward computes with is exact; it keeps a quantised copy,
 * which other blocks widen again. Frames that one of them writes as well stay as they are, and
 * so do the residual stream between layers, statistics, ids and routes. */
#include "step/builder.h"
#include "step/quantised.h"

#include <string.h>

static const enum mcp_block_role roles[] = {MCP_FORWARD, MCP_RECOMPUTE, MCP_BACKWARD,
                                            MCP_BACKWARD_INPUT, MCP_BACKWARD_WEIGHT};
enum { NUM_ROLES = sizeof roles / sizeof *roles };

static int frame_of(const struct mcp_operand *at)
{
    bool own = at->space == MCP_SPACE_FRAME && at->layer_offset == 0;
    return own && at->index > MCP_FRAME_DX ? at->index : -1;
}

struct use {
    bool reads, writes;
};

static struct use use_of(const struct mcp_op *op, int frame)
{
    struct use use = {false, false};
    for (int i = 0; i < op->num_reads; i++)
        use.reads = use.reads || frame_of(&op->reads[i]) == frame;
    for (int i = 0; i < op->num_writes; i++)
        use.writes = use.writes || frame_of(&op->writes[i]) == frame;
    return use;
}

static bool block_writes(const struct mcp_block *block, int frame)
{
    for (int i = 0; i < block->num_ops; i++)
        if (use_of(&block->ops[i], frame).writes)
            return true;
    return false;
}

/* Written by forward alone. */
static bool is_quantised(const struct mcp_builder *b, int frame)
{
    bool good = b->columns[frame] > 0 && block_writes(&b->type->blocks[MCP_FORWARD], frame);
    for (int i = 1; i < NUM_ROLES; i++)
        good = good && !block_writes(&b->type->blocks[roles[i]], frame);
    return good;
}

static void emit_change(struct mcp_builder *b, enum mcp_function function, int frame)
{
    const struct mcp_buffer *whole = &b->buffers[MCP_SPACE_BLOCK][b->twin[frame]];
    const struct mcp_ref kept = {true, {.space = MCP_SPACE_FRAME, .index = (unsigned short)frame}};
    const struct mcp_ref twin = {true, {.space = MCP_SPACE_BLOCK, .index = b->twin[frame]}};
    bool forth = function == MCP_FN_QUANTISE;
    int64_t columns = b->columns[frame];
    int64_t elements = whole->bytes / (int64_t)mcp_dtype_bytes((enum mcp_dtype)whole->dtype);
    mcp_map(b, function, elements / columns, columns, (struct mcp_ref[3]){forth ? twin : kept},
            (struct mcp_ref[2]){forth ? kept : twin});
}

static void replace(const struct mcp_builder *b, const bool *quantised, struct mcp_operand *places,
                    int count)
{
    for (int i = 0; i < count; i++) {
        int frame = frame_of(&places[i]);
        if (frame >= 0 && quantised[frame])
            places[i] = (struct mcp_operand){.space = MCP_SPACE_BLOCK, .index = b->twin[frame]};
    }
}

/* First and last op of a block that mentions each frame, -1: none. */
struct mentions {
    int first[MCP_MAX_TYPE_BUFFERS], last[MCP_MAX_TYPE_BUFFERS];
};

static void find_mentions(const struct mcp_builder *b, const struct mcp_block *block,
                          const bool *quantised, struct mentions *out)
{
    for (int f = 0; f < b->type->num_buffers[MCP_SPACE_FRAME]; f++) {
        out->first[f] = out->last[f] = -1;
        for (int i = 0; quantised[f] && i < block->num_ops; i++) {
            struct use use = use_of(&block->ops[i], f);
            if (!use.reads && !use.writes)
                continue;
            out->first[f] = out->first[f] < 0 ? i : out->first[f];
            out->last[f] = i;
        }
    }
}

static void rewrite(struct mcp_builder *b, enum mcp_block_role role, const bool *quantised)
{
    const struct mcp_block old = b->type->blocks[role];
    int frames = b->type->num_buffers[MCP_SPACE_FRAME];
    struct mentions *at = MCP_NEW(b->arena, struct mentions);
    find_mentions(b, &old, quantised, at);
    mcp_begin_block(b, role == MCP_FORWARD);
    for (int i = 0; i < old.num_ops; i++) {
        for (int f = 0; role != MCP_FORWARD && f < frames; f++)
            if (at->first[f] == i)
                emit_change(b, MCP_FN_DEQUANTISE, f);
        struct mcp_op *op = &b->ops[b->num_ops++];
        *op = old.ops[i];
        replace(b, quantised, op->reads, op->num_reads);
        replace(b, quantised, op->writes, op->num_writes);
        for (int f = 0; role == MCP_FORWARD && f < frames; f++)
            if (at->last[f] == i)
                emit_change(b, MCP_FN_QUANTISE, f);
    }
    mcp_end_block(b, role);
}

static int64_t quantised_bytes(int64_t bytes, enum mcp_dtype dtype, int64_t columns)
{
    return mcp_quantised_bytes(bytes / (int64_t)mcp_dtype_bytes(dtype) / columns, columns);
}

void mcp_derive_quantised(struct mcp_builder *b)
{
    bool quantised[MCP_MAX_TYPE_BUFFERS] = {false};
    for (int f = MCP_FRAME_DX + 1; f < b->type->num_buffers[MCP_SPACE_FRAME]; f++)
        quantised[f] = is_quantised(b, f);
    for (int i = 0; i < NUM_ROLES; i++)
        if (b->type->blocks[roles[i]].num_ops > 0)
            rewrite(b, roles[i], quantised);
    for (int f = MCP_FRAME_DX + 1; f < b->type->num_buffers[MCP_SPACE_FRAME]; f++) {
        struct mcp_buffer *frame = &b->buffers[MCP_SPACE_FRAME][f];
        enum mcp_dtype dtype = (enum mcp_dtype)frame->dtype;
        if (!quantised[f])
            continue;
        frame->bytes = quantised_bytes(frame->bytes, dtype, b->columns[f]);
        frame->capacity_bytes = quantised_bytes(frame->capacity_bytes, dtype, b->columns[f]);
        frame->dtype = MCP_U8;
    }
}
