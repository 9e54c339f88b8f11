/* exec/cuda_rooflines.h: times each distinct op of one rank's program alone on its GPU, and what
 * the GPU reaches in a large copy and a large product.
 *
 * The program trains one step on random tokens. Behind the first op of each size everything waits
 * while that op is launched again and again as it stands, by the backend that trains: no shape
 * and no kernel is named here. Before each launch a kernel reads `flush_bytes` of other memory:
 * the L2 then holds nothing of the op's operands, and nothing that is still to be written back,
 * and the host has queued the op before the device comes to it. Times are between two events
 * around the op. What is launched again adds up, or moves weights, again: the step learns nothing
 * of use. */
#ifndef MCP_EXEC_CUDA_ROOFLINES_H
#define MCP_EXEC_CUDA_ROOFLINES_H

#include "exec/backend.h"
#include "exec/rooflines.h"

struct mcp_cuda_rooflines_options {
    int64_t product_size; /* rows, columns and depth of the large product */
    int64_t copy_bytes;   /* of the large copy */
    int64_t flush_bytes;  /* read before each op: more than the L2 */
    int repeats, warmups; /* launches that are timed, and before those */
};
/* 8192, 512 MiB, 256 MiB, 20 and 3. */
struct mcp_cuda_rooflines_options mcp_cuda_rooflines_default(void);

/* Of mcp_cuda_backend_open()'s backend, the only rank; nothing of the program has run on it.
 * Takes memory of the device beside the program's: room for the copy's both ends, or the
 * product's operands. */
enum mcp_status mcp_cuda_rooflines_measure(struct mcp_arena *arena, struct mcp_backend *backend,
                                           const struct mcp_program *program,
                                           const struct mcp_cuda_rooflines_options *options,
                                           struct mcp_rooflines *out, struct mcp_error *err);

#endif
