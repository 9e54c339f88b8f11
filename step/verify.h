/* step/verify.h: does a program mean what it says? Asked before every run.
 *
 * Per block: every hazard (read after write, write after read, write after
 * write) between streams is covered by stream order and waits; waits point
 * backwards; operands exist; block scratch is written before it is read; frames
 * and layer values obey the writing rule. Over slots, per class: sends match
 * receives channel by channel and in order, nothing blocks, groups that span
 * classes see one sequence, every read sees the write of its own instance and
 * within its life, each (microbatch, layer, pass) once, copies are not
 * overwritten while needed. MCP_INVALID with one sentence. */
#ifndef MCP_STEP_VERIFY_H
#define MCP_STEP_VERIFY_H

#include "core/arena.h"
#include "step/program.h"

enum mcp_status mcp_program_verify(struct mcp_arena *scratch, const struct mcp_program *program,
                                   struct mcp_error *err);

#endif
