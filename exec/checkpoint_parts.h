/* exec/checkpoint_parts.h: names that writing and reading checkpoints share; private to
 * exec/checkpoint*.c. */
#ifndef MCP_EXEC_CHECKPOINT_PARTS_H
#define MCP_EXEC_CHECKPOINT_PARTS_H

#include "exec/checkpoint.h"

#define MCP_CHECKPOINT_SCHEMA "mcpplan.checkpoint/1"

const char *mcp_checkpoint_path(struct mcp_arena *arena, const char *folder, int64_t step);
const char *mcp_checkpoint_shard_name(struct mcp_arena *arena, int rank);
const char *mcp_checkpoint_manifest(struct mcp_arena *arena, const char *folder, int64_t step);

/* Steps that have a folder, finished or not, the newest first. */
enum mcp_status mcp_checkpoint_steps(struct mcp_arena *arena, const char *folder, int64_t **steps,
                                     int *count, struct mcp_error *err);

/* A checksum of what a manifest says: of the state, then file by file. */
uint32_t mcp_checkpoint_seal(const struct mcp_checkpoint_state *state);
uint32_t mcp_checkpoint_seal_file(uint32_t seal, const struct mcp_file_digest *digest);

#endif
