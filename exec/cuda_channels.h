/* exec/cuda_channels.h: groups of ranks and copies of messages, as transfers use them. Private to
 * exec/cuda_channels.c and exec/cuda_transfer.c. */
#ifndef MCP_EXEC_CUDA_CHANNELS_H
#define MCP_EXEC_CUDA_CHANNELS_H

#include "exec/cuda_transfer.h"

/* Which members send to each other: none, those beside each other, all. */
enum mcp_cuda_connected { MCP_CUDA_NONE, MCP_CUDA_RING, MCP_CUDA_ALL };

/* Ranks that one stream's transfers over one set of axes join. */
struct mcp_cuda_group {
    bool opened;
    enum mcp_cuda_connected connected;
    int size, index;       /* of this rank; -1: it is in none */
    int64_t longest_bytes; /* of its transfers */
    struct mcp_nccl *all;  /* of collectives */
    struct mcp_nccl *out;  /* to the rank that this one's messages go to: 0 sends, 1 receives */
    struct mcp_nccl *in;
};

/* Copies of messages on their way, taken in turn. */
struct mcp_cuda_outbox {
    char *room;
    int64_t slot_bytes, sent;
    int slots;
    void *stream; /* that they leave on */
    void *copied; /* event: the last copy is made */
    void **left;  /* [slots] events */
};

struct mcp_cuda_channels {
    struct mcp_arena *arena;
    struct mcp_nccl_world *world;
    int rank;
    struct mcp_cuda_group groups[MCP_NUM_STREAMS][MCP_NUM_AXIS_SETS];
    struct mcp_cuda_outbox outboxes[MCP_NUM_STREAMS];
    void *room[MCP_NUM_STREAMS]; /* for the sums of reduce_scatters that add */
    int64_t room_bytes[MCP_NUM_STREAMS];
    void *first_stream; /* of the messages that make connections */
    void *first_message;
};

/* The group of a stream's transfers over `axes`. */
struct mcp_cuda_group *mcp_cuda_group_of(struct mcp_cuda_channels *channels, enum mcp_stream stream,
                                         unsigned axes);

#endif
