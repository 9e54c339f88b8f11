/* step/attention.h: which attention kernel a job runs. */
#ifndef MCP_STEP_ATTENTION_H
#define MCP_STEP_ATTENTION_H

#include "step/legal.h"

/* The fused kernel that the job, else the stack, names; where the GPU lacks it, the
 * GPU's first. NULL: the job or the stack asks for "unfused", or the GPU has none. */
const struct mcp_attention_kernel *mcp_fused_attention_kernel(const struct mcp_question *question);

/* Does attention of `kind` run in it? Not with sinks that the stack cannot fuse. */
bool mcp_attention_is_fused(const struct mcp_question *question, const struct mcp_layer_kind *kind);

#endif
