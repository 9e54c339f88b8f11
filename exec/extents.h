/* exec/extents.h: do an op's operands lie within their buffers? A program that was changed by hand
 * may say other sizes than its buffers have. */
#ifndef MCP_EXEC_EXTENTS_H
#define MCP_EXEC_EXTENTS_H

#include "exec/views.h"

/* Of products with one part of the weights (step/function.h: matmul) each operand; of maps of rows
 * (norms, biases, activations, embeddings, updates) that some operand has rows x columns; of all
 * other ops nothing. MCP_INVALID names what is asked for, and what is there. */
enum mcp_status mcp_extents_check(const struct mcp_launch *launch, struct mcp_error *err);

#endif
