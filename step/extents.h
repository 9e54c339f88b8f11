/* step/extents.h: do operands lie within their buffers? A program that was changed by hand may say
 * other sizes than its buffers have. Asked of a program that was verified, before it runs. */
#ifndef MCP_STEP_EXTENTS_H
#define MCP_STEP_EXTENTS_H

#include "core/error.h"
#include "step/program.h"

/* Of products with one part of the weights (step/function.h: matmul) each operand; of maps of rows
 * (norms, biases, activations, embeddings, updates) that some operand has rows x columns; of all
 * other ops nothing. MCP_INVALID names the layer type, the op, what it asks for, and what is
 * there. */
enum mcp_status mcp_program_check_extents(const struct mcp_program *program, struct mcp_error *err);

#endif
