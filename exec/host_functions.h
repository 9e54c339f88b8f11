/* exec/host_functions.h: what host functions compute, for backends whose memory the host can
 * write to and for others: results go to the host's memory. */
#ifndef MCP_EXEC_HOST_FUNCTIONS_H
#define MCP_EXEC_HOST_FUNCTIONS_H

#include "exec/views.h"

/* Ids of load_microbatch: out[microbatch_size][sequence_local]. Sequence b of microbatch m of
 * data rank r is number (m d + r) microbatch_size + b of the step's global batch. */
void mcp_batch_ids(const struct mcp_launch *launch, int32_t *out);

/* What step_scalars reads, by operand; -1: there is none. */
struct mcp_step_reads {
    int squares, loss;
};
struct mcp_step_reads mcp_step_reads_of(const struct mcp_launch *launch);
/* From the sum of the gradients' squares over all ranks and this rank's loss: the step's
 * outcome, this rank's share of the loss's mean, into launch->rank->outputs, and
 * scalars[write_bytes[0] / 4]. */
void mcp_set_step_scalars(const struct mcp_launch *launch, float squares, float loss,
                          float *scalars);

#endif
