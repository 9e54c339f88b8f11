/* exec/extents.h: do a product's operands lie within their buffers? A program that was changed by
 * hand may say other sizes than its buffers have. */
#ifndef MCP_EXEC_EXTENTS_H
#define MCP_EXEC_EXTENTS_H

#include "exec/views.h"

/* Of products of one matrix with one part of the weights (step/function.h: matmul); all other ops
 * are MCP_OK. MCP_INVALID names the operand, what is asked of it, and what is there. */
enum mcp_status mcp_extents_check(const struct mcp_launch *launch, struct mcp_error *err);

#endif
