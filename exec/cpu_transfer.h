/* exec/cpu_transfer.h: collectives and messages as steps of one transfer, on top of
 * exec/cpu_mpi.h; what each means: exec/backend.h.
 *
 * Reductions are direct: each member sends every other its share of the buffer, and sums
 * its own share in the order of the members, in fp32, piece by piece; all_reduce then
 * gathers the shares. Bytes sent are those of a ring: (k-1)/k n, and twice that. */
#ifndef MCP_EXEC_CPU_TRANSFER_H
#define MCP_EXEC_CPU_TRANSFER_H

#include "exec/backend.h"
#include "exec/cpu_mpi.h"
#include "exec/transfer.h"

#include <stdbool.h>

/* One transfer in flight on a channel. */
struct mcp_cpu_transfer {
    struct mcp_cpu_channel *channel; /* NULL: a group of this rank alone */
    struct mcp_transfer what;
    const int32_t *sizes; /* all_to_all_v */
    int64_t num_experts;
    /* while it runs */
    int phase;
    int64_t piece; /* first element of the shards' next piece */
    char *room;    /* for the members' pieces; kept for the next transfer */
    int64_t room_bytes;
};

/* What `launch` asks for; `channel` of its stream and group. room, room_bytes are kept. */
void mcp_cpu_transfer_set(const struct mcp_launch *launch, struct mcp_cpu_channel *channel,
                          struct mcp_cpu_transfer *transfer);

/* Where a message comes from, and who gets it: of MCP_FN_SEND. */
const void *mcp_cpu_transfer_text(const struct mcp_cpu_transfer *transfer, int64_t *bytes,
                                  int *peer);

/* Posts its first messages, or does all of it where there are none. `arena` owns room. */
enum mcp_status mcp_cpu_transfer_start(struct mcp_arena *arena, struct mcp_cpu_transfer *transfer,
                                       bool *done, struct mcp_error *err);
/* Takes it as far as it can go now. */
enum mcp_status mcp_cpu_transfer_advance(struct mcp_cpu_transfer *transfer, bool *done,
                                         struct mcp_error *err);

#endif
