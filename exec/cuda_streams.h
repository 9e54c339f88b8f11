/* exec/cuda_streams.h: the streams of a program on a device: tickets as events, waits between
 * streams, and the times of ops. Private to exec/cuda_backend.c. */
#ifndef MCP_EXEC_CUDA_STREAMS_H
#define MCP_EXEC_CUDA_STREAMS_H

#include "exec/backend.h"
#include "exec/cuda_wait.h"

/* What stands behind a ticket. Events are made once and used again. */
struct mcp_cuda_mark {
    void *reached; /* event */
    void *started; /* event, of timed streams */
    bool at_once;  /* it started when the op before it was over, and `started` is not recorded */
    unsigned char function;
    int layer, microbatch;
    int64_t order; /* of all ops of the rank, as they were queued */
};

struct mcp_cuda_stream {
    void *handle;
    int64_t number;              /* tickets given out */
    int64_t reached;             /* of those, known to be */
    int64_t first;               /* marks of tickets first + 1 .. number are kept */
    struct mcp_cuda_mark *marks; /* a ring of `capacity` */
    int64_t capacity;
    int64_t waits[MCP_NUM_STREAMS];  /* tickets that the next op starts after */
    int64_t waited[MCP_NUM_STREAMS]; /* that the device has been told of */
};

struct mcp_cuda_streams {
    struct mcp_arena *arena;
    struct mcp_nccl_world *world;
    bool timed;
    int64_t ahead;    /* ops of compute that may be queued at once; 0: any number */
    void *step_event; /* of the step's start, and when that was */
    double step_s;
    int64_t queued; /* ops, on all streams */
    struct mcp_cuda_stream each[MCP_NUM_STREAMS];
};

enum mcp_status mcp_cuda_streams_open(struct mcp_arena *arena, struct mcp_nccl_world *world,
                                      bool timed, int ahead, struct mcp_cuda_streams *out,
                                      struct mcp_error *err);
/* Marks of earlier steps are forgotten. All streams are empty. */
enum mcp_status mcp_cuda_streams_start(struct mcp_cuda_streams *streams, struct mcp_error *err);

/* Around an op that is queued on its stream: before it, its waits; behind it, its ticket. */
enum mcp_status mcp_cuda_begin_op(struct mcp_cuda_streams *streams, const struct mcp_launch *launch,
                                  struct mcp_error *err);
enum mcp_status mcp_cuda_end_op(struct mcp_cuda_streams *streams, const struct mcp_launch *launch,
                                struct mcp_ticket *ticket, struct mcp_error *err);

/* Waits until the ticket is reached; gives up as mcp_cuda_empty_stream() does. */
enum mcp_status mcp_cuda_reach(struct mcp_cuda_streams *streams, struct mcp_ticket ticket,
                               struct mcp_error *err);
/* Looks how far streams have come, and lets others run for a moment if no further; gives up where
 * that is so for too long. In a loop of whoever waits. */
enum mcp_status mcp_cuda_wait_on(struct mcp_cuda_streams *streams,
                                 struct mcp_cuda_patience *patience, struct mcp_error *err);
/* Looks how far streams have come; `moved`: further than when last looked. */
enum mcp_status mcp_cuda_look(struct mcp_cuda_streams *streams, bool *moved, struct mcp_error *err);
bool mcp_cuda_all_reached(const struct mcp_cuda_streams *streams);
/* Waits until the stream is empty; gives up, naming what it waits for, when nothing on any
 * stream has moved for the world's limit. */
enum mcp_status mcp_cuda_empty_stream(struct mcp_cuda_streams *streams, enum mcp_stream stream,
                                      struct mcp_error *err);
/* Adds to a failure which op was at work; returns `status`. */
enum mcp_status mcp_cuda_name_op(struct mcp_cuda_streams *streams, enum mcp_status status,
                                 struct mcp_error *err);

bool mcp_cuda_times_of(struct mcp_cuda_streams *streams, struct mcp_ticket ticket,
                       struct mcp_op_times *out);

#endif
