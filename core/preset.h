/* core/preset.h: the data files that travel inside the program.
 *
 * Everything in models/, topologies/ and stacks/ (*.json), and reports/page.*, is
 * built into the binary, so that an installed mcpplan needs no folder. A name is the
 * file's name without ".json". */
#ifndef MCP_CORE_PRESET_H
#define MCP_CORE_PRESET_H

#include "core/arena.h"
#include "core/error.h"
#include "core/json.h"

#include <stddef.h>

struct mcp_preset {
    const char *folder; /* "models", "topologies", "gpus", "stacks" */
    const char *name;
    const char *text;
    size_t length;
};

/* The table that the build makes from the files, sorted by folder and name. */
extern const struct mcp_preset mcp_presets[];
extern const size_t mcp_num_presets;

/* All presets of a folder, sorted by name. */
size_t mcp_preset_count(const char *folder);
const struct mcp_preset *mcp_preset_at(const char *folder, size_t index);

/* A preset's name or else a file: parsed JSON. When neither exists the message
 * (MCP_IO) names the closest preset. */
enum mcp_status mcp_preset_read(struct mcp_arena *arena, const char *folder,
                                const char *name_or_path, struct mcp_json **out,
                                struct mcp_error *err);

#endif
