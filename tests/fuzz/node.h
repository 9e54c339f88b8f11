/* tests/fuzz/node.h: what must hold of a machine that any bytes described. */
#ifndef MCP_TESTS_FUZZ_NODE_H
#define MCP_TESTS_FUZZ_NODE_H

#include "topologies/node.h"
#include "topologies/xml.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Readers of text: a machine with GPUs that can be written, or a sentence. */
static inline void fuzz_text(const uint8_t *data, size_t size,
                             enum mcp_status (*read)(struct mcp_arena *, const char *, const char *,
                                                     size_t, struct mcp_node *, struct mcp_error *))
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *text = mcp_strndup(arena, (const char *)data, size);
    struct mcp_error err = {""};
    struct mcp_node node = {0};
    struct mcp_json *object = mcp_json_new_object(arena);
    if (read(arena, "input", text, size, &node, &err) == MCP_OK) {
        mcp_node_to_json(arena, &node, object);
        assert(node.num_gpus > 0 && mcp_json_text(arena, object) != NULL);
    } else {
        assert(err.text[0] != '\0');
    }
    mcp_arena_free(arena);
}

/* Readers of XML, also of what was read before it broke. */
static inline void fuzz_xml(const uint8_t *data, size_t size,
                            enum mcp_status (*read)(struct mcp_arena *, const char *,
                                                    const struct mcp_xml *, struct mcp_node *,
                                                    struct mcp_error *))
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_xml *root;
    struct mcp_node node = {0};
    struct mcp_json *object = mcp_json_new_object(arena);
    if (mcp_xml_parse(arena, "input", (const char *)data, size, &root, &err) != MCP_OK)
        assert(err.text[0] != '\0');
    if (root != NULL && read(arena, "input", root, &node, &err) == MCP_OK) {
        mcp_node_to_json(arena, &node, object);
        for (int i = 0; i < node.num_gpus; i++)
            assert(node.gpus[i].index >= 0 && mcp_node_link(&node, i, i)->count == 0);
    }
    mcp_arena_free(arena);
}

#endif
