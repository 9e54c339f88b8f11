/* cli/train_places.h: where a plan's ranks would run: train --dry-run. */
#ifndef MCP_CLI_TRAIN_PLACES_H
#define MCP_CLI_TRAIN_PLACES_H

#include "cli/output.h"
#include "core/cluster.h"
#include "core/plan.h"

/* Tables of ranks and their places in the mesh; with them, of ranks on this machine's CPUs, their
 * cores (threads 0: nobody says how many); of those on GPUs, the number that a launcher gives
 * each, its node and its device, as the plan's cluster has them. */
enum mcp_status mcp_train_places(struct mcp_context *ctx, const struct mcp_plan *plan, int threads);
enum mcp_status mcp_train_devices(struct mcp_context *ctx, const struct mcp_plan *plan,
                                  const struct mcp_cluster *cluster);

#endif
