/* step/extents.h: do operands lie within their buffers? A program that was changed by hand may say
 * other sizes than its buffers have. Asked of a program that was verified, before it runs. */
#ifndef MCP_STEP_EXTENTS_H
#define MCP_STEP_EXTENTS_H

#include "core/error.h"
#include "step/program.h"

/* Of every op that an executor has a kernel for, each operand beside what the kernel reads or writes
 * of it by the op's dimensions, the layer type's facts (step/facts.h) and its weights. Before that,
 * whether those are possible at all: heads in whole groups, no more of anything than kernels have
 * room for, tokens and experts as the plan cuts them, each update's flat buffer whole. A program
 * that passes may compute nonsense, but touches nothing outside its buffers, and ends. MCP_INVALID
 * names the layer type, the op, what it asks for, and what is there. */
enum mcp_status mcp_program_check_extents(const struct mcp_program *program, struct mcp_error *err);

#endif
