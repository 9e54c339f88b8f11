/* step/batch.h: how a step's batch of sequences is shared out among a program's ranks. */
#ifndef MCP_STEP_BATCH_H
#define MCP_STEP_BATCH_H

#include "step/program.h"

/* Sequences of a step, over all ranks and microbatches; tokens of each. */
int64_t mcp_batch_sequences(const struct mcp_program *program);
int64_t mcp_sequence_tokens(const struct mcp_program *program);

/* Of `rank` in one microbatch: how many sequences it works on, and the index of the i-th of them
 * in the batch. Ranks of one tensor, context and pipeline group have the same. */
int64_t mcp_microbatch_sequences(const struct mcp_program *program);
int64_t mcp_microbatch_sequence(const struct mcp_program *program, int rank, int microbatch,
                                int64_t i);
/* Ranks that end up with the loss of the same tokens. */
int mcp_loss_copies(const struct mcp_program *program);

#endif
