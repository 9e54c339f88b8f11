/* step/outbox.c: how many messages may wait for their receivers at once. */
#include "step/outbox.h"

#include "core/minmax.h"

#include <string.h>

/* Adds the messages that a slot sends, and keeps the longest. */
static void count_slot(const struct mcp_program *program, const struct mcp_slot *slot,
                       struct mcp_outbox out[MCP_NUM_STREAMS])
{
    const struct mcp_entry_list *list = &program->lists[slot->list];
    for (int e = 0; e < list->num_entries; e++) {
        const struct mcp_entry *entry = &list->entries[e];
        const struct mcp_block *block = &program->types[entry->type].blocks[entry->role];
        for (int i = 0; i < block->num_ops; i++) {
            const struct mcp_op *op = &block->ops[i];
            struct mcp_outbox *box = &out[op->stream];
            if (op->function != MCP_FN_SEND)
                continue;
            box->places++;
            box->message_bytes =
                mcp_max_int64(box->message_bytes,
                              op->dims[0] * (int64_t)mcp_dtype_bytes((enum mcp_dtype)op->dtype));
        }
    }
}

void mcp_program_outboxes(const struct mcp_program *program, int class,
                          struct mcp_outbox out[MCP_NUM_STREAMS])
{
    const struct mcp_program_class *of = &program->classes[class];
    int chunks = 1;
    memset(out, 0, MCP_NUM_STREAMS * sizeof *out);
    for (int i = 0; i < of->num_slots; i++) {
        chunks = of->slots[i].chunk >= chunks ? of->slots[i].chunk + 1 : chunks;
        count_slot(program, &of->slots[i], out);
    }
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        out[s].places = mcp_min_int64(out[s].places, (int64_t)program->num_classes * chunks);
}
