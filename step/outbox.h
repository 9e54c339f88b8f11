/* step/outbox.h: copies that messages between stages leave from, where the stack makes such:
 * exec/cuda_transfer.h says why. */
#ifndef MCP_STEP_OUTBOX_H
#define MCP_STEP_OUTBOX_H

#include "step/program.h"

/* Of the messages of one stream: as many places as stages lie in the pipeline, or as the step has
 * messages if those are fewer, each as long as the longest message. */
struct mcp_outbox {
    int64_t places, message_bytes;
};
/* Of the ranks of a program class. */
void mcp_program_outboxes(const struct mcp_program *program, int class,
                          struct mcp_outbox out[MCP_NUM_STREAMS]);

#endif
