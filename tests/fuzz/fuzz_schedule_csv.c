/* tests/fuzz/fuzz_schedule_csv.c: any bytes as a schedule: what is read is written and read
 * again equal. */
#include "step/schedule_csv.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_again(struct mcp_arena *arena, const struct mcp_schedule_file *file)
{
    struct mcp_error err = {""};
    struct mcp_schedule_file again;
    const char *text =
        mcp_schedule_csv_text(arena, file->placement, file->pipeline_parallel, file->rows);
    assert(mcp_schedule_csv_parse(arena, "text", text, strlen(text), &again, &err) == MCP_OK);
    assert(again.pipeline_parallel == file->pipeline_parallel);
    assert(again.virtual_stages == file->virtual_stages && again.placement == file->placement);
    assert(again.num_microbatches == file->num_microbatches);
    assert(strcmp(text, mcp_schedule_csv_text(arena, again.placement, again.pipeline_parallel,
                                              again.rows)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_schedule_file file;
    if (mcp_schedule_csv_parse(arena, "input", (const char *)data, size, &file, &err) == MCP_OK)
        read_again(arena, &file);
    else
        assert(err.text[0] != '\0');
    mcp_arena_free(arena);
    return 0;
}
