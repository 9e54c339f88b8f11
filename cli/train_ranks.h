/* cli/train_ranks.h: runs the command that starts a training run's ranks, and says in one
 * sentence how it ended. */
#ifndef MCP_CLI_TRAIN_RANKS_H
#define MCP_CLI_TRAIN_RANKS_H

#include "core/error.h"

#include <stdbool.h>

/* argv ends with NULL. With `is_mpirun` what it and the ranks say on stderr goes to ours,
 * but why the run failed is kept for *err: of what ranks say the first, or which of them a
 * signal ended. Without, *err is empty where the rank has said it itself. */
enum mcp_status mcp_train_ranks(const char *const *argv, bool is_mpirun, struct mcp_error *err);

#endif
