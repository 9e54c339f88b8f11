/* core/calibration_file.h: calibration.json: a machine as ranks, and the stack with what its
 * ops take there. */
#ifndef MCP_CORE_CALIBRATION_FILE_H
#define MCP_CORE_CALIBRATION_FILE_H

#include "core/cluster.h"
#include "core/stack.h"

struct mcp_json *mcp_calibration_file_json(struct mcp_arena *arena,
                                           const struct mcp_cluster *cluster,
                                           const struct mcp_stack *stack);
/* MCP_FORMAT: no such file. The cluster is checked. */
enum mcp_status mcp_calibration_file_load(struct mcp_arena *arena, const char *path,
                                          struct mcp_cluster *cluster, struct mcp_stack *stack,
                                          struct mcp_error *err);

#endif
