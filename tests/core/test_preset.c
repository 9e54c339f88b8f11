/* tests/core/test_preset.c: the data files inside the program. */
#include "core/preset.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static const char *const folders[] = {"gpus", "models", "stacks", "topologies"};

Test(preset, every_file_is_json_and_in_order)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    size_t total = 0;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        size_t count = mcp_preset_count(folders[f]);
        cr_expect(count > 0, "%s/ is empty", folders[f]);
        for (size_t i = 0; i < count; i++) {
            const struct mcp_preset *preset = mcp_preset_at(folders[f], i);
            struct mcp_json *json;
            cr_expect(
                eq(int, (int)mcp_preset_read(arena, folders[f], preset->name, &json, &err), MCP_OK),
                "%s", err.text);
            cr_expect(i == 0 || strcmp(mcp_preset_at(folders[f], i - 1)->name, preset->name) < 0);
        }
        cr_expect(eq(ptr, (void *)mcp_preset_at(folders[f], count), NULL));
        total += count;
    }
    total += mcp_preset_count("reports"); /* the style and script of a page */
    cr_expect(eq(sz, total, mcp_num_presets));
    mcp_arena_free(arena);
}

Test(preset, an_unknown_name_meets_the_closest_one)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_json *json;
    cr_expect(eq(int, (int)mcp_preset_read(arena, "models", "lama-3.1-8b", &json, &err), MCP_IO));
    cr_expect(eq(str, err.text,
                 (char *)"lama-3.1-8b: neither a file nor a preset of models/ (did you "
                         "mean 'llama-3.1-8b'?)"));
    cr_expect(eq(int, (int)mcp_preset_read(arena, "models", "x\x1b[31m", &json, &err), MCP_IO));
    cr_expect(ne(ptr, strstr(err.text, "x?[31m: neither a file nor one of the "), NULL));
    cr_expect(eq(int, (int)mcp_preset_read(arena, "models", "", &json, &err), MCP_IO));
    cr_expect(ne(ptr, strstr(err.text, "an empty name: neither a file nor one of the "), NULL));
    cr_expect(eq(int, (int)mcp_preset_read(arena, "models", "core", &json, &err), MCP_IO));
    cr_expect(eq(str, err.text, (char *)"core: Is a directory"));
    mcp_arena_free(arena);
}
