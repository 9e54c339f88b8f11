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
    /* of a backward in two parts, likewise */
    int64_t input_bytes, weight_bytes;
    int64_t weight_kept_bytes; /* frames from the end of the first to the start of the second */
    /* left for the next, or the previous, virtual stage on the same rank; else 0 */
    int64_t passed_forward_bytes, passed_backward_bytes;
};

/* One slot of a rank on which `live_bytes` are kept when it starts. A value handed over is
 * live from the slot that leaves it to the one that takes it. */
struct mcp_slot_memory {
    int64_t others_bytes;  /* of other slots, and handed over */
    int64_t running_bytes; /* beside them at the slot's fullest moment */
    int64_t own_bytes;     /* of it, what this slot was left or will leave */
    int64_t left_bytes;    /* beside the others when it has ended */
};
struct mcp_slot_memory mcp_slot_memory(const struct mcp_chunk_memory *chunks, int virtual_stages,
                                       const struct mcp_action *action, int64_t live_bytes);

/* The largest sum of live activations of rank `rank` over the step, exact: walks
 * the schedule's slots, skipping whole periods. *kept_bytes is the part of it that
 * saved frames hold; the rest is the working set. chunks[virtual_stages]. */
int64_t mcp_stage_peak(const struct mcp_plan *plan, int num_microbatches, int rank,
                       const struct mcp_chunk_memory *chunks, int64_t *kept_bytes);

#endif
