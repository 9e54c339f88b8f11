/* step/stage_memory.h: the heaviest moment of a pipeline rank. */
#ifndef MCP_STEP_STAGE_MEMORY_H
#define MCP_STEP_STAGE_MEMORY_H

#include "core/plan.h"

#include <stdint.h>

/* Activation bytes of one chunk of a rank for one microbatch. */
struct mcp_chunk_memory {
    int64_t kept_bytes;     /* frames from the end of its forward to the start of its backward */
    int64_t forward_bytes;  /* largest sum above all earlier frames while it runs forward */
    int64_t backward_bytes; /* ... above all frames but its own while it runs backward */
};

/* The largest sum of live activations of rank `rank` over the step, exact: walks
 * the schedule's slots, skipping whole periods. *kept_bytes is the part of it that
 * saved frames hold; the rest is the working set. chunks[virtual_stages]. */
int64_t mcp_stage_peak(const struct mcp_plan *plan, int num_microbatches, int rank,
                       const struct mcp_chunk_memory *chunks, int64_t *kept_bytes);

#endif
