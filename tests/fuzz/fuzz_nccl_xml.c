/* tests/fuzz/fuzz_nccl_xml.c: any bytes as NCCL's topology XML. */
#include "topologies/nccl_xml.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_xml *root;
    struct mcp_node node = {0};
    struct mcp_json *object = mcp_json_new_object(arena);
    if (mcp_xml_parse(arena, "input", (const char *)data, size, &root, &err) != MCP_OK)
        assert(err.text[0] != '\0');
    if (root != NULL && mcp_nccl_xml(arena, "input", root, &node, &err) == MCP_OK) {
        mcp_node_to_json(arena, &node, object);
        for (int i = 0; i < node.num_gpus; i++)
            assert(node.gpus[i].index >= 0 && mcp_node_link(&node, i, i)->count == 0);
    }
    mcp_arena_free(arena);
    return 0;
}
