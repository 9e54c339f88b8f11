/* step/derive_quantised.c: saved activations in 8 bits with a scale for each block of a row.
 *
 * A rewrite of finished blocks: what forward computes with is exact; it keeps a quantised copy,
 * which other blocks widen again. So it does of its input, the residual stream, whose own frame
 * then ends with forward: all that full recompute keeps. Frames that another block writes as
 * well stay as they are, and so do statistics, ids and routes. */
#include "step/builder.h"
#include "step/quantised.h"

#include <string.h>

static const enum mcp_block_role roles[] = {MCP_FORWARD, MCP_RECOMPUTE, MCP_BACKWARD,
                                            MCP_BACKWARD_INPUT, MCP_BACKWARD_WEIGHT};
enum { NUM_ROLES = sizeof roles / sizeof *roles };

/* Which frames of a layer type change. */
struct change {
    struct mcp_builder *b;
    bool quantised[MCP_MAX_TYPE_BUFFERS];
    int input; /* the frame that keeps X; -1: nobody but forward reads it */
};

static int frame_of(const struct change *c, const struct mcp_operand *at)
{
    if (at->space != MCP_SPACE_FRAME || at->layer_offset != 0)
        return -1;
    if (at->index == MCP_FRAME_X)
        return c->input;
    return at->index > MCP_FRAME_DX ? at->index : -1;
}

struct use {
    bool reads, writes;
};

static struct use use_of(const struct change *c, const struct mcp_op *op, int frame)
{
    struct use use = {false, false};
    for (int i = 0; i < op->num_reads; i++)
        use.reads = use.reads || frame_of(c, &op->reads[i]) == frame;
    for (int i = 0; i < op->num_writes; i++)
        use.writes = use.writes || frame_of(c, &op->writes[i]) == frame;
    return use;
}

static bool block_writes(const struct change *c, enum mcp_block_role role, int frame)
{
    const struct mcp_block *block = &c->b->type->blocks[role];
    for (int i = 0; i < block->num_ops; i++)
        if (use_of(c, &block->ops[i], frame).writes)
            return true;
    return false;
}

/* Written by forward alone. */
static bool is_quantised(const struct change *c, int frame)
{
    bool good = c->b->columns[frame] > 0 && block_writes(c, MCP_FORWARD, frame);
    for (int i = 1; i < NUM_ROLES; i++)
        good = good && !block_writes(c, roles[i], frame);
    return good;
}

/* From what forward has, or what others want whole, to what is kept, or back. */
static void emit_change(const struct change *c, enum mcp_function function, int frame)
{
    struct mcp_builder *b = c->b;
    const struct mcp_buffer *whole = &b->buffers[MCP_SPACE_BLOCK][b->twin[frame]];
    const struct mcp_ref kept = {true, {.space = MCP_SPACE_FRAME, .index = (unsigned short)frame}};
    const struct mcp_ref twin = {true, {.space = MCP_SPACE_BLOCK, .index = b->twin[frame]}};
    bool forth = function == MCP_FN_QUANTISE;
    int64_t columns = b->columns[frame];
    int64_t elements = whole->bytes / (int64_t)mcp_dtype_bytes((enum mcp_dtype)whole->dtype);
    struct mcp_ref exact = frame == c->input ? mcp_x(0) : twin;
    mcp_map(b, function, elements / columns, columns, (struct mcp_ref[3]){forth ? exact : kept},
            (struct mcp_ref[2]){forth ? kept : twin});
}

/* Forward reads its input where it is. */
static void replace(const struct change *c, enum mcp_block_role role, struct mcp_operand *places,
                    int count)
{
    for (int i = 0; i < count; i++) {
        int frame = frame_of(c, &places[i]);
        bool stays = role == MCP_FORWARD && frame == c->input;
        if (frame >= 0 && c->quantised[frame] && !stays)
            places[i] = (struct mcp_operand){.space = MCP_SPACE_BLOCK, .index = c->b->twin[frame]};
    }
}

/* First and last op of a block that mentions each frame, -1: none. */
struct mentions {
    int first[MCP_MAX_TYPE_BUFFERS], last[MCP_MAX_TYPE_BUFFERS];
};

static void find_mentions(const struct change *c, const struct mcp_block *block,
                          struct mentions *out)
{
    for (int f = 0; f < c->b->type->num_buffers[MCP_SPACE_FRAME]; f++) {
        out->first[f] = out->last[f] = -1;
        for (int i = 0; c->quantised[f] && i < block->num_ops; i++) {
            struct use use = use_of(c, &block->ops[i], f);
            if (!use.reads && !use.writes)
                continue;
            out->first[f] = out->first[f] < 0 ? i : out->first[f];
            out->last[f] = i;
        }
    }
}

static void rewrite(const struct change *c, enum mcp_block_role role)
{
    struct mcp_builder *b = c->b;
    const struct mcp_block old = b->type->blocks[role];
    int frames = b->type->num_buffers[MCP_SPACE_FRAME];
    struct mentions *at = MCP_NEW(b->arena, struct mentions);
    find_mentions(c, &old, at);
    mcp_begin_block(b, role == MCP_FORWARD);
    for (int i = 0; i < old.num_ops; i++) {
        for (int f = 0; role != MCP_FORWARD && f < frames; f++)
            if (at->first[f] == i)
                emit_change(c, MCP_FN_DEQUANTISE, f);
        struct mcp_op *op = &b->ops[b->num_ops++];
        *op = old.ops[i];
        replace(c, role, op->reads, op->num_reads);
        replace(c, role, op->writes, op->num_writes);
        for (int f = 0; role == MCP_FORWARD && f < frames; f++)
            if (at->last[f] == i)
                emit_change(c, MCP_FN_QUANTISE, f);
    }
    mcp_end_block(b, role);
}

/* Frames that keep fewer bytes from now on; of the layer's input a new one. */
static void choose(struct change *c)
{
    struct mcp_builder *b = c->b;
    for (int f = MCP_FRAME_DX + 1; f < b->type->num_buffers[MCP_SPACE_FRAME]; f++)
        c->quantised[f] = is_quantised(c, f);
    if (mcp_input_ends_with_forward(b->type))
        return;
    struct mcp_value kept = mcp_saved_activation(b, "input", b->sharded_tokens, b->hidden, 0);
    c->input = kept.frame.operand.index;
    c->quantised[c->input] = true;
}

static int64_t quantised_bytes(int64_t bytes, enum mcp_dtype dtype, int64_t columns)
{
    return mcp_quantised_bytes(bytes / (int64_t)mcp_dtype_bytes(dtype) / columns, columns);
}

void mcp_derive_quantised(struct mcp_builder *b)
{
    struct change *c = MCP_NEW(b->arena, struct change);
    c->b = b;
    c->input = -1;
    choose(c);
    for (int i = 0; i < NUM_ROLES; i++)
        if (b->type->blocks[roles[i]].num_ops > 0)
            rewrite(c, roles[i]);
    for (int f = MCP_FRAME_DX + 1; f < b->type->num_buffers[MCP_SPACE_FRAME]; f++) {
        struct mcp_buffer *frame = &b->buffers[MCP_SPACE_FRAME][f];
        enum mcp_dtype dtype = (enum mcp_dtype)frame->dtype;
        if (!c->quantised[f])
            continue;
        frame->bytes = quantised_bytes(frame->bytes, dtype, b->columns[f]);
        frame->capacity_bytes = quantised_bytes(frame->capacity_bytes, dtype, b->columns[f]);
        frame->dtype = MCP_U8;
    }
}
