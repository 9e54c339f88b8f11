/* step/dump.h: a program as a file, and back (docs/FORMATS.md "program").
 *
 * JSON lines of one object: schema "mcpplan.program/1". dump -> load -> dump is
 * byte-identical. Loading checks types and ranges; mcp_program_verify() judges
 * the meaning. */
#ifndef MCP_STEP_DUMP_H
#define MCP_STEP_DUMP_H

#include "core/arena.h"
#include "core/json.h"
#include "step/program.h"

struct mcp_json *mcp_program_to_json(struct mcp_arena *arena, const struct mcp_program *program);
enum mcp_status mcp_program_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                      struct mcp_program *out, struct mcp_error *err);

#endif
