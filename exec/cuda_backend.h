/* exec/cuda_backend.h: one GPU a rank as a backend: kernels, cuBLASLt and NCCL on a CUDA stream
 * for each stream of the program.
 *
 * Nothing runs when launch() returns but host functions: ops and waits are queued on the
 * device, which starts an op when its stream has come to it and all its waits are reached. A
 * ticket is an event, recorded behind its op. Two host functions wait for the device: the
 * counts of tokens for experts, whose number sizes what follows, and the step's scalars. No
 * memory of the device is taken in a step.
 *
 * The calling thread is the rank: open, every call and the end of the arena belong to it. */
#ifndef MCP_EXEC_CUDA_BACKEND_H
#define MCP_EXEC_CUDA_BACKEND_H

#include "core/arena.h"
#include "exec/backend.h"
#include "exec/cuda_nccl.h"
#include "exec/interpret.h"

struct mcp_cuda_queue; /* exec/cuda_kernels.h */

extern const struct mcp_backend_calls mcp_cuda_backend;

struct mcp_cuda_options {
    bool timed; /* keep the times of ops: mcp_backend_calls.times */
    int ahead;  /* ops of compute that the host may be ahead of the device; 0: any number */
    /* further programs that the rank may turn to: mcp_interpreter_turn() */
    const struct mcp_program *others[MCP_INTERPRET_OTHERS];
};

/* The backend of this rank, on the device that the calling thread has chosen; makes the groups
 * of ranks that the programs need: all ranks call it together. Its memory is the arena's. */
enum mcp_status mcp_cuda_backend_open(struct mcp_arena *arena, struct mcp_nccl_world *world,
                                      const struct mcp_program *program,
                                      const struct mcp_cuda_options *options,
                                      struct mcp_backend **out, struct mcp_error *err);

/* Where it queues ops of a program's stream; scratch NULL: none of them has a kernel. */
const struct mcp_cuda_queue *mcp_cuda_backend_queue(const struct mcp_backend *backend,
                                                    enum mcp_stream stream);

#endif
