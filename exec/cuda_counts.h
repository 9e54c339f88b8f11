/* exec/cuda_counts.h: rows by expert, on the host: copies of what expert_counts left on the
 * device, for products and transfers whose sizes they are. Private to exec/cuda_backend.c. */
#ifndef MCP_EXEC_CUDA_COUNTS_H
#define MCP_EXEC_CUDA_COUNTS_H

#include "core/arena.h"
#include "core/error.h"

#include <stdint.h>

/* A table by the place on the device. */
struct mcp_cuda_counts {
    struct mcp_arena *arena;
    struct mcp_cuda_count {
        const void *device; /* NULL: empty */
        int32_t *host;
        int64_t bytes; /* that host has room for */
    } * entries;
    size_t used, capacity;
};

/* The copy of what lies at `device`; NULL: nothing was ever copied from there. */
const int32_t *mcp_cuda_counts_at(const struct mcp_cuda_counts *counts, const void *device);
/* Where to copy it to: `bytes` bytes, locked in place. */
enum mcp_status mcp_cuda_counts_place(struct mcp_cuda_counts *counts, const void *device,
                                      int64_t bytes, int32_t **out, struct mcp_error *err);

#endif
