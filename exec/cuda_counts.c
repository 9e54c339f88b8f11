/* exec/cuda_counts.c: an open hash table by address. */
#include "exec/cuda_counts.h"

#include "exec/cuda_runtime.h"

/* Of 256 experts of 60 layers and 8 microbatches at a time. */
enum { ROOM_BYTES = 1 << 20 };

/* The entry of `device`, or the empty one where it belongs. */
static struct mcp_cuda_count *find(struct mcp_cuda_count *entries, size_t capacity,
                                   const void *device)
{
    size_t at = (size_t)(((uintptr_t)device >> 6) * 0x9e3779b97f4a7c15u >> 20);
    while (entries[at % capacity].device != NULL && entries[at % capacity].device != device)
        at++;
    return &entries[at % capacity];
}

const int32_t *mcp_cuda_counts_at(const struct mcp_cuda_counts *counts, const void *device)
{
    return counts->used == 0 ? NULL : find(counts->entries, counts->capacity, device)->host;
}

static void grow(struct mcp_cuda_counts *counts)
{
    size_t larger = counts->capacity == 0 ? 64 : 2 * counts->capacity;
    struct mcp_cuda_count *entries = MCP_ARRAY(counts->arena, larger, struct mcp_cuda_count);
    for (size_t i = 0; i < counts->capacity; i++)
        if (counts->entries[i].device != NULL)
            *find(entries, larger, counts->entries[i].device) = counts->entries[i];
    counts->entries = entries;
    counts->capacity = larger;
}

enum mcp_status mcp_cuda_counts_reserve(struct mcp_cuda_counts *counts, int64_t bytes,
                                        struct mcp_error *err)
{
    void *room;
    counts->room_bytes = bytes > ROOM_BYTES ? bytes : ROOM_BYTES;
    MCP_TRY(mcp_cuda_new_host_memory(counts->arena, counts->room_bytes, &room, err));
    counts->room = room;
    return MCP_OK;
}

enum mcp_status mcp_cuda_counts_place(struct mcp_cuda_counts *counts, const void *device,
                                      int64_t bytes, int32_t **out, struct mcp_error *err)
{
    if (2 * counts->used >= counts->capacity)
        grow(counts);
    struct mcp_cuda_count *entry = find(counts->entries, counts->capacity, device);
    *out = entry->host;
    if (entry->bytes >= bytes)
        return MCP_OK;
    if (counts->room_bytes < bytes)
        MCP_TRY(mcp_cuda_counts_reserve(counts, bytes, err));
    counts->used += entry->device == NULL;
    *entry = (struct mcp_cuda_count){device, (int32_t *)(void *)counts->room, bytes};
    *out = entry->host;
    counts->room += bytes;
    counts->room_bytes -= bytes;
    return MCP_OK;
}
