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
    char *room; /* of the host, locked in place, that is left */
    int64_t room_bytes;
};

/* Takes room for at least one copy of `bytes` bytes, and for many as a rule: before a step, since
 * to lock memory can wait for the device. Later more is taken only where it was too little. */
enum mcp_status mcp_cuda_counts_reserve(struct mcp_cuda_counts *counts, int64_t bytes,
                                        struct mcp_error *err);

/* The copy of what lies at `device`; NULL: nothing was ever copied from there. */
const int32_t *mcp_cuda_counts_at(const struct mcp_cuda_counts *counts, const void *device);
/* Where to copy it to: `bytes` bytes, locked in place. */
enum mcp_status mcp_cuda_counts_place(struct mcp_cuda_counts *counts, const void *device,
                                      int64_t bytes, int32_t **out, struct mcp_error *err);

#endif
