/* cli/train_ranks.h: runs the command that starts a training run's ranks, and says in one
 * sentence how it ended. */
#ifndef MCP_CLI_TRAIN_RANKS_H
#define MCP_CLI_TRAIN_RANKS_H

#include "core/error.h"
#include "core/rank_map.h"

#include <stdbool.h>

/* argv ends with NULL. With `is_mpirun` what it and the ranks say on stderr goes to ours,
 * but why the run failed is kept for *err: of what ranks say the first, or which of them a
 * signal ended. Without, *err is empty where the rank has said it itself. `map`: mpirun's rank n is
 * the plan's on GPU n; NULL: they have the same numbers. */
enum mcp_status mcp_train_ranks(const char *const *argv, bool is_mpirun,
                                const struct mcp_rank_map *map, struct mcp_error *err);

#endif
