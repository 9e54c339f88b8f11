/* tests/fuzz/fuzz_topo.c: any bytes as a link matrix, up to a cluster. */
#include "topologies/nvidia_smi.h"
#include "topologies/tiers.h"

#include <assert.h>
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_cluster(struct mcp_arena *arena, const struct mcp_node *node)
{
    struct mcp_error err;
    struct mcp_gpu gpu;
    struct mcp_cluster cluster;
    struct mcp_text notes = mcp_text_new(arena);
    if (mcp_gpu_load(arena, "a100-pcie-80gb", &gpu, &err) != MCP_OK)
        return;
    struct mcp_node_use use = {"c", &gpu, 2, 25e9, "fuzz"};
    if (mcp_node_cluster(arena, node, &use, &cluster, &notes, &err) == MCP_OK)
        assert(mcp_cluster_check(&cluster, &err) == MCP_OK);
}

static void check_node(struct mcp_arena *arena, const struct mcp_node *node)
{
    struct mcp_json *object = mcp_json_new_object(arena);
    for (int a = 0; a < mcp_node_devices(node); a++)
        for (int b = 0; b < mcp_node_devices(node); b++) {
            assert(mcp_node_link(node, a, b)->kind == mcp_node_link(node, b, a)->kind);
            assert(mcp_node_link(node, a, b)->count == mcp_node_link(node, b, a)->count);
        }
    mcp_node_to_json(arena, node, object);
    assert(mcp_json_text(arena, object) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *text = mcp_strndup(arena, (const char *)data, size);
    struct mcp_error err;
    struct mcp_node node = {0};
    if (mcp_nvidia_smi_topo(arena, "input", text, size, &node, &err) == MCP_OK) {
        check_node(arena, &node);
        make_cluster(arena, &node);
    }
    mcp_arena_free(arena);
    return 0;
}
