/* step/pipeline.h: when does the last slot end? The exact recurrence.
 *
 * Rank r runs its slots in order; a slot starts when the one before has ended
 * and its message has come, less the lead (work that needs no message):
 *
 *     start = max(previous_end, arrival - lead)      end = start + lead + body + send
 *     arrival at the consumer = end - after + delay
 *
 * Between virtual stages on one rank there is no message: the slot before has ended.
 * `send` is the part of a transfer that keeps the sender's compute stream busy,
 * `delay` the part that does not. Time is integer nanoseconds, so a period that
 * only shifts the whole state by a constant repeats exactly and is skipped:
 * same result, bit for bit, as playing every slot. */
#ifndef MCP_STEP_PIPELINE_H
#define MCP_STEP_PIPELINE_H

#include "core/arena.h"
#include "core/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct mcp_slot_price {
    int64_t lead_ns;
    int64_t body_ns;
    int64_t send_ns; /* 0 where nothing is sent */
    int64_t delay_ns;
    int64_t after_ns; /* of the body, what follows the send: a reduction of gradients */
};

struct mcp_pipeline {
    enum mcp_schedule schedule;
    int pipeline_parallel, virtual_stages, num_microbatches;
    const struct mcp_slot_price *forward;  /* [pipeline x virtual] by virtual stage */
    const struct mcp_slot_price *backward; /* likewise */
    const int64_t *release_ns;             /* [pipeline] earliest start of a rank; NULL: 0 */
    /* of schedules that split the backward; rows may have whole ones too */
    const struct mcp_slot_price *backward_input, *backward_weight; /* [pipeline x virtual] */
    enum mcp_placement placement;
    const struct mcp_schedule_row *rows; /* [pipeline]; NULL: the schedule's own */
};

/* Per rank r. busy + bubble + exposed = end - release. */
struct mcp_pipeline_rank {
    int64_t start_ns;   /* of its first slot */
    int64_t end_ns;     /* of its last slot */
    int64_t busy_ns;    /* lead, body, send */
    int64_t exposed_ns; /* idle while the awaited message was on its way */
    int64_t bubble_ns;  /* idle while its sender had not yet sent it */
};

#define MCP_MAX_PIPELINE 512 /* stages */

/* ranks: [pipeline_parallel]. chunk_end_ns, NULL or [pipeline x virtual] by
 * virtual stage: end of the last backward of that chunk. Returns the largest
 * end_ns. `scratch` is rewound before returning. */
int64_t mcp_pipeline_play(struct mcp_arena *scratch, const struct mcp_pipeline *pipeline,
                          struct mcp_pipeline_rank *ranks, int64_t *chunk_end_ns);
/* The same without skipping: every slot of every rank (the reference, and what schedules
 * other than the first three are played by). */
int64_t mcp_pipeline_play_all(struct mcp_arena *scratch, const struct mcp_pipeline *pipeline,
                              struct mcp_pipeline_rank *ranks, int64_t *chunk_end_ns);

#endif
