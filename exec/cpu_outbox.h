/* exec/cpu_outbox.h: messages on their way that no longer need the memory they came from.
 *
 * A message between pipeline stages is copied as it is sent. Else a stage that wants to
 * use the memory of what it sent again waits for the receiver, who may wait for it: MPI
 * takes large messages only when their receiver is there. */
#ifndef MCP_EXEC_CPU_OUTBOX_H
#define MCP_EXEC_CPU_OUTBOX_H

#include "exec/cpu_mpi.h"

struct mcp_cpu_letter {
    struct mcp_cpu_channel *channel; /* of its own */
    char *text;
    int64_t capacity;
    int64_t ticket; /* 0: not on its way, may be used again */
};
struct mcp_cpu_outbox {
    struct mcp_cpu_letter *letters;
    size_t count, capacity;
    int on_their_way;
};

/* Sends a copy of `bytes` bytes to member `peer` of the channel. ticket > 0. */
enum mcp_status mcp_cpu_outbox_send(struct mcp_arena *arena, struct mcp_cpu_outbox *box,
                                    const struct mcp_cpu_channel *channel, const void *from,
                                    int64_t bytes, int peer, int64_t ticket, struct mcp_error *err);
/* The ticket of a message that has been taken since the last call, else 0. */
enum mcp_status mcp_cpu_outbox_poll(struct mcp_cpu_outbox *box, int64_t *ticket,
                                    struct mcp_error *err);

#endif
