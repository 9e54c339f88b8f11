/* tests/fuzz/fuzz_dump.c: any bytes, cut in two at the first NUL, as two files about one
 * machine. */
#include "topologies/dump.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_node(struct mcp_arena *arena, const struct mcp_node *node)
{
    struct mcp_json *object = mcp_json_new_object(arena);
    for (int a = 0; a < mcp_node_devices(node); a++)
        for (int b = 0; b < mcp_node_devices(node); b++)
            assert(mcp_node_link(node, a, b)->kind == mcp_node_link(node, b, a)->kind);
    mcp_node_to_json(arena, node, object);
    assert(mcp_json_text(arena, object) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *text = mcp_strndup(arena, (const char *)data, size);
    size_t first = strlen(text), second = first < size ? size - first - 1 : 0;
    struct mcp_error err;
    struct mcp_dump dumps[2];
    struct mcp_node node;
    if (mcp_dump_parse(arena, "one", text, first, &dumps[0], &err) == MCP_OK &&
        mcp_dump_parse(arena, "two", text + size - second, second, &dumps[1], &err) == MCP_OK &&
        mcp_dumps_merge(arena, dumps, 2, &node, &err) == MCP_OK)
        check_node(arena, &node);
    mcp_arena_free(arena);
    return 0;
}
