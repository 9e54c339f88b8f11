/* exec/cuda_wait.h: waiting on the host for what a device does, as long as something moves. */
#ifndef MCP_EXEC_CUDA_WAIT_H
#define MCP_EXEC_CUDA_WAIT_H

#include "exec/cuda_nccl.h"

#include <stdbool.h>

/* Seconds of a steady clock. */
double mcp_cuda_clock(void);

struct mcp_cuda_patience {
    struct mcp_nccl_world *world; /* whose limit it is, and whose failures end it */
    double since_s;               /* nothing has moved since */
    int tries;
};
struct mcp_cuda_patience mcp_cuda_patience_of(struct mcp_nccl_world *world);
/* Something has moved. */
void mcp_cuda_take_heart(struct mcp_cuda_patience *patience);
/* Lets others run for a moment, the longer the more often it is called. *over: the limit has
 * passed. Fails when a communicator has. */
enum mcp_status mcp_cuda_breathe(struct mcp_cuda_patience *patience, bool *over,
                                 struct mcp_error *err);

/* Waits until the stream is empty; when that takes longer than the limit, gives up all
 * communicators and says that this rank has waited for `what`. */
enum mcp_status mcp_cuda_await(struct mcp_nccl_world *world, void *stream, const char *what,
                               struct mcp_error *err);

#endif
