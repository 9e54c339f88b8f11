/* core/preset.c: the data files that travel inside the program. */
#include "core/preset.h"

#include "core/text.h"

#include <unistd.h>

size_t mcp_preset_count(const char *folder)
{
    size_t count = 0;
    for (size_t i = 0; i < mcp_num_presets; i++)
        count += mcp_same(mcp_presets[i].folder, folder);
    return count;
}

const struct mcp_preset *mcp_preset_at(const char *folder, size_t index)
{
    for (size_t i = 0; i < mcp_num_presets; i++)
        if (mcp_same(mcp_presets[i].folder, folder) && index-- == 0)
            return &mcp_presets[i];
    return NULL;
}

static const struct mcp_preset *find_preset(const char *folder, const char *name)
{
    for (size_t i = 0; i < mcp_num_presets; i++)
        if (mcp_same(mcp_presets[i].folder, folder) && mcp_same(mcp_presets[i].name, name))
            return &mcp_presets[i];
    return NULL;
}

static enum mcp_status fail_unknown(struct mcp_arena *arena, const char *folder, const char *name,
                                    struct mcp_error *err)
{
    size_t count = mcp_preset_count(folder);
    const char **names = MCP_ARRAY(arena, count, const char *);
    for (size_t i = 0; i < count; i++)
        names[i] = mcp_preset_at(folder, i)->name;
    const char *nearest = mcp_nearest(name, names, count);
    const char *shown = *name != '\0' ? mcp_printable(arena, name) : "an empty name";
    if (nearest == NULL)
        return mcp_fail(err, MCP_IO, "%.200s: neither a file nor one of the %zu presets of %s/",
                        shown, count, folder);
    return mcp_fail(err, MCP_IO, "%.200s: neither a file nor a preset of %s/ (did you mean '%s'?)",
                    shown, folder, nearest);
}

enum mcp_status mcp_preset_read(struct mcp_arena *arena, const char *folder,
                                const char *name_or_path, struct mcp_json **out,
                                struct mcp_error *err)
{
    const struct mcp_preset *preset = find_preset(folder, name_or_path);
    if (preset != NULL)
        return mcp_json_parse(arena, mcp_format(arena, "%s/%s", folder, preset->name), preset->text,
                              preset->length, out, err);
    if (!mcp_same(name_or_path, "-") && access(name_or_path, F_OK) != 0)
        return fail_unknown(arena, folder, name_or_path, err);
    return mcp_json_read(arena, name_or_path, out, err);
}
