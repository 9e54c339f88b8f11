/* exec/cpu_outbox.c: copies of messages until they are taken. */
#include "exec/cpu_outbox.h"

#include <string.h>

static struct mcp_cpu_letter *free_letter(struct mcp_arena *arena, struct mcp_cpu_outbox *box,
                                          const struct mcp_cpu_channel *channel)
{
    for (size_t i = 0; i < box->count; i++)
        if (box->letters[i].ticket == 0 && mcp_cpu_channel_same(box->letters[i].channel, channel))
            return &box->letters[i];
    box->letters = mcp_grow(arena, box->letters, box->count, &box->capacity, sizeof *box->letters);
    struct mcp_cpu_letter *letter = &box->letters[box->count++];
    letter->channel = mcp_cpu_channel_twin(arena, channel);
    return letter;
}

enum mcp_status mcp_cpu_outbox_send(struct mcp_arena *arena, struct mcp_cpu_outbox *box,
                                    const struct mcp_cpu_channel *channel, const void *from,
                                    int64_t bytes, int peer, int64_t ticket, struct mcp_error *err)
{
    struct mcp_cpu_letter *letter = free_letter(arena, box, channel);
    if (bytes > letter->capacity) {
        letter->text = MCP_ARRAY(arena, bytes, char);
        letter->capacity = bytes;
    }
    memcpy(letter->text, from, (size_t)bytes);
    letter->ticket = ticket;
    box->on_their_way++;
    return mcp_cpu_send(letter->channel, letter->text, bytes, peer, err);
}

enum mcp_status mcp_cpu_outbox_poll(struct mcp_cpu_outbox *box, int64_t *ticket,
                                    struct mcp_error *err)
{
    *ticket = 0;
    for (size_t i = 0; box->on_their_way > 0 && i < box->count; i++) {
        struct mcp_cpu_letter *letter = &box->letters[i];
        bool done = false;
        if (letter->ticket == 0)
            continue;
        MCP_TRY(mcp_cpu_test(letter->channel, &done, err));
        if (!done)
            continue;
        *ticket = letter->ticket;
        letter->ticket = 0;
        box->on_their_way--;
        return MCP_OK;
    }
    return MCP_OK;
}
