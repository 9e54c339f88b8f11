/* core/model_megatron.h: Megatron-LM's arguments read as a model.
 *
 * Shell scripts (`--num-layers 32 \`), lists of arguments, and YAML of flags
 * (`--num-layers: 32`). Assignments of the same file fill in $NAME and ${NAME}; what
 * stays open is named. Nothing is run. Defaults are those of megatron/training/
 * arguments.py; the vocabulary comes from --vocab-size, or a tokenizer that is known. */
#ifndef MCP_CORE_MODEL_MEGATRON_H
#define MCP_CORE_MODEL_MEGATRON_H

#include "core/model.h"

#include <stddef.h>

/* Names layers and a width as Megatron's flags do, and is no JSON. */
bool mcp_is_megatron(const char *text);
/* `file` stands for the text in messages. MCP_FORMAT: a size is missing, open or no
 * number. Not yet checked with mcp_model_check(). */
enum mcp_status mcp_model_from_megatron(struct mcp_arena *arena, const char *file, const char *text,
                                        struct mcp_model *out, struct mcp_error *err);

#endif
