/* tests/fuzz/fuzz_smi_csv.c: any bytes as what nvidia-smi --query-gpu prints. */
#include "topologies/nvidia_smi.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct mcp_json *json_of(struct mcp_arena *arena, const struct mcp_node *node)
{
    struct mcp_json *object = mcp_json_new_object(arena);
    mcp_node_to_json(arena, node, object);
    return object;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *text = mcp_strndup(arena, (const char *)data, size);
    struct mcp_error err = {""};
    struct mcp_node node = {0};
    if (mcp_nvidia_smi_csv(arena, "input", text, size, &node, &err) == MCP_OK)
        assert(node.num_gpus > 0 && mcp_json_text(arena, json_of(arena, &node)) != NULL);
    else
        assert(err.text[0] != '\0');
    mcp_arena_free(arena);
    return 0;
}
