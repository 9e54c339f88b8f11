/* tests/fuzz/fuzz_timeline.c: any bytes as a timeline: what is read is written in both forms and
 * read again equal. */
#include "step/timeline.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_again(struct mcp_arena *arena, const struct mcp_timeline *timeline, bool lines)
{
    struct mcp_text text = mcp_text_new(arena), same = mcp_text_new(arena);
    struct mcp_timeline again;
    struct mcp_error err;
    mcp_timeline_write(timeline, lines, &text);
    assert(mcp_timeline_parse(arena, "text", text.data, text.length, &again, &err) == MCP_OK);
    mcp_timeline_write(&again, lines, &same);
    assert(strcmp(text.data, same.data) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_timeline timeline;
    struct mcp_error err;
    if (mcp_timeline_parse(arena, "input", (const char *)data, size, &timeline, &err) == MCP_OK) {
        read_again(arena, &timeline, false);
        read_again(arena, &timeline, true);
    }
    mcp_arena_free(arena);
    return 0;
}
