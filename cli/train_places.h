/* cli/train_places.h: where a plan's ranks would run on this machine: train --dry-run. */
#ifndef MCP_CLI_TRAIN_PLACES_H
#define MCP_CLI_TRAIN_PLACES_H

#include "cli/output.h"
#include "core/plan.h"

/* A table of ranks, their places in the mesh and their cores; threads 0: nobody says how many. */
enum mcp_status mcp_train_places(struct mcp_context *ctx, const struct mcp_plan *plan, int threads);

#endif
