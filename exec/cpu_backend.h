/* exec/cpu_backend.h: CPUs as a backend: kernels on the calling thread and OpenMP, streams
 * of transfers over MPI.
 *
 * Compute runs at once. A communication stream is a queue: its first transfer is posted
 * when what it waits for is over, and moves on between ops of compute and while something
 * waits for it. One thread does all of it. */
#ifndef MCP_EXEC_CPU_BACKEND_H
#define MCP_EXEC_CPU_BACKEND_H

#include "exec/backend.h"
#include "exec/cpu_mpi.h"
#include "exec/interpret.h"

extern const struct mcp_backend_calls mcp_cpu_backend;

struct mcp_cpu_options {
    double timeout_s; /* a transfer that has not moved for so long has failed; 0: never */
    double delay_s;   /* transfers start so much later than they could: for tests of waits */
    const struct mcp_program *others[MCP_INTERPRET_OTHERS]; /* that run too; NULL: none */
};

/* The backend of this rank for `program`; makes the groups of ranks it needs: all ranks
 * call it together. Its memory is the arena's. */
enum mcp_status mcp_cpu_backend_open(struct mcp_arena *arena, struct mcp_cpu_world *world,
                                     const struct mcp_program *program,
                                     const struct mcp_cpu_options *options,
                                     struct mcp_backend **out, struct mcp_error *err);

#endif
