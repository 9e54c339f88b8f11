/* reports/accuracy_memory.h: predicted beside measured bytes of published runs.
 *
 * A table of memory readings has the columns of a table of runs and quantity,
 * value, unit, rank_or_stage. What each quantity means here:
 *
 *     max_allocated            weights, gradients, optimizer, activations, buffers
 *     allocated_between_steps  weights, gradients, optimizer
 *     max_reserved             1.05 max_allocated + 0.5 GiB: torch's caching allocator
 *     nvidia_smi               1.06 max_allocated + 6 GiB: context, NCCL, fragmentation
 *     peak, log_max_memory     max_allocated, whatever tool the source used */
#ifndef MCP_REPORTS_ACCURACY_MEMORY_H
#define MCP_REPORTS_ACCURACY_MEMORY_H

#include "reports/accuracy.h"

struct mcp_memory_row {
    const char *id, *source, *family, *quantity, *place;
    const char *reason; /* why nothing was predicted, or NULL */
    const char *note;
    double measured_bytes, predicted_bytes, error_frac;
};

struct mcp_memory_accuracy {
    int num_rows;
    struct mcp_memory_row *rows;
};

/* The table's columns say that it is one of memory readings. */
bool mcp_is_memory_table(struct mcp_arena *arena, const char *path);

enum mcp_status mcp_memory_measure(struct mcp_arena *arena,
                                   const struct mcp_accuracy_options *options,
                                   struct mcp_memory_accuracy *out, struct mcp_error *err);
/* Of one quantity and family, either NULL for all. */
struct mcp_accuracy_stats mcp_memory_stats(struct mcp_arena *arena,
                                           const struct mcp_memory_accuracy *memory,
                                           const char *quantity, const char *family);
void mcp_memory_accuracy_to_json(struct mcp_arena *arena, const struct mcp_memory_accuracy *memory,
                                 struct mcp_json *object);
void mcp_memory_accuracy_to_text(struct mcp_arena *arena, const struct mcp_memory_accuracy *memory,
                                 const struct mcp_accuracy_options *options,
                                 const struct mcp_style *style, struct mcp_text *out);

#endif
