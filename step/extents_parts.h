/* step/extents_parts.h: what checks of extents share. Private to step/. */
#ifndef MCP_STEP_EXTENTS_PARTS_H
#define MCP_STEP_EXTENTS_PARTS_H

#include "step/extents.h"

struct mcp_judged {
    const struct mcp_program *program;
    const struct mcp_layer_type *type;
    const struct mcp_op *op;
    struct mcp_error *err;
};

/* MCP_INVALID: "layer type 'T': FUNCTION: what `format` says: ..." */
enum mcp_status mcp_extents_fail(const struct mcp_judged *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A transfer's elements, of the op's dtype, beside its buffers: exec/backend.h. */
enum mcp_status mcp_check_transfer(const struct mcp_judged *at);

#endif
