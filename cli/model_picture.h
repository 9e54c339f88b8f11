/* cli/model_picture.h: where a model's parameters, FLOPs and bytes are, as bars. */
#ifndef MCP_CLI_MODEL_PICTURE_H
#define MCP_CLI_MODEL_PICTURE_H

#include "cli/output.h"
#include "core/model.h"

/* A stacked bar for each quantity, its parts the kinds of layers and what is outside
 * them; then the shares as a table. */
void mcp_model_picture(struct mcp_context *ctx, const struct mcp_model *model,
                       int64_t sequence_length, struct mcp_text *out);

#endif
