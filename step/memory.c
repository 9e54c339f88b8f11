/* step/memory.c: lives of values inside one block. */
#include "step/price.h"

#include <string.h>

enum { LIMIT = 2 * MCP_MAX_TYPE_BUFFERS }; /* block space, then frame space */

struct life {
    int first, last; /* op of first and last mention; -1: none */
    bool written_first;
};

static int slot_of(struct mcp_operand at)
{
    if (at.space == MCP_SPACE_BLOCK)
        return at.index;
    return at.space == MCP_SPACE_FRAME && at.layer_offset == 0 ? MCP_MAX_TYPE_BUFFERS + at.index
                                                               : -1;
}

static void mention(struct life *lives, struct mcp_operand at, int op, bool write)
{
    int slot = slot_of(at);
    if (slot < 0)
        return;
    if (lives[slot].first < 0) {
        lives[slot].first = op;
        lives[slot].written_first = write;
    }
    lives[slot].last = op;
}

static void collect(const struct mcp_block *block, struct life *lives)
{
    for (int i = 0; i < LIMIT; i++)
        lives[i] = (struct life){-1, -1, false};
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_op *op = &block->ops[i];
        for (int r = 0; r < op->num_reads; r++)
            mention(lives, op->reads[r], i, false);
        for (int w = 0; w < op->num_writes; w++)
            mention(lives, op->writes[w], i, true);
    }
}

/* Bytes that begin and end to live at each op. */
struct changes {
    int64_t born[MCP_MAX_BLOCK_OPS], dead[MCP_MAX_BLOCK_OPS];
};

static void note_changes(const struct mcp_layer_type *type, const struct life *lives,
                         const struct life *later, struct changes *changes)
{
    for (int slot = 0; slot < LIMIT; slot++) {
        const struct life *life = &lives[slot];
        bool frame = slot >= MCP_MAX_TYPE_BUFFERS;
        int index = frame ? slot - MCP_MAX_TYPE_BUFFERS : slot;
        if (life->first < 0)
            continue;
        enum mcp_space space = frame ? MCP_SPACE_FRAME : MCP_SPACE_BLOCK;
        int64_t bytes = type->buffers[space][index].capacity_bytes;
        if (!frame || life->written_first)
            changes->born[life->first] += bytes;
        if (!frame || (later && later[slot].first < 0 && index != MCP_FRAME_DX))
            changes->dead[life->last] += bytes;
    }
}

void mcp_block_memory(const struct mcp_layer_type *type, enum mcp_block_role role, bool last_reader,
                      struct mcp_block_memory *out)
{
    const struct mcp_block *block = &type->blocks[role];
    static const struct mcp_block nothing;
    struct life lives[LIMIT], later[LIMIT];
    struct changes changes;
    size_t bytes = (size_t)block->num_ops * sizeof(int64_t);
    memset(out, 0, sizeof *out);
    memset(changes.born, 0, bytes);
    memset(changes.dead, 0, bytes);
    collect(block, lives);
    collect(role == MCP_BACKWARD_INPUT ? &type->blocks[MCP_BACKWARD_WEIGHT] : &nothing, later);
    note_changes(type, lives, last_reader ? later : NULL, &changes);
    for (int i = 0; i < block->num_ops; i++) {
        out->end_bytes += changes.born[i];
        out->peak_bytes = out->end_bytes > out->peak_bytes ? out->end_bytes : out->peak_bytes;
        out->end_bytes -= changes.dead[i];
    }
}
