/* core/model_hf.h: Hugging Face's config.json read as a model.
 *
 * A family (config.json's model_type) is one row of defaults and rules in
 * core/model_family.c. Shapes that a config leaves out and that have no default of
 * the family are refused: no size is guessed. Code named by auto_map is never
 * fetched or run. */
#ifndef MCP_CORE_MODEL_HF_H
#define MCP_CORE_MODEL_HF_H

#include "core/model.h"

/* MCP_FORMAT: not a config of a known family, or a size is missing or no
 * integer. MCP_INVALID: sizes that contradict each other. Not yet checked with
 * mcp_model_check(). out->name is the family. */
enum mcp_status mcp_model_from_config(struct mcp_arena *arena, struct mcp_json *json,
                                      struct mcp_model *out, struct mcp_error *err);

#endif
