/* topologies/node.c: one machine's GPUs, NICs and links. */
#include "topologies/node.h"

const char *const mcp_link_kind_names[MCP_NUM_LINK_KINDS] = {
    "unknown", "NVLINK", "PIX", "PXB", "PHB", "NODE", "SYS",
};

int mcp_node_devices(const struct mcp_node *node)
{
    return node->num_gpus + node->num_nics;
}

const struct mcp_link *mcp_node_link(const struct mcp_node *node, int a, int b)
{
    return &node->links[(size_t)a * (size_t)mcp_node_devices(node) + (size_t)b];
}

const char *mcp_node_device_name(struct mcp_arena *arena, const struct mcp_node *node, int device)
{
    if (device < node->num_gpus)
        return mcp_format(arena, "GPU%d", node->gpus[device].index);
    return node->nics[device - node->num_gpus].name;
}

int mcp_node_unknown_links(const struct mcp_node *node)
{
    int count = 0;
    for (int a = 0; a < mcp_node_devices(node); a++)
        for (int b = a + 1; b < mcp_node_devices(node); b++)
            count += mcp_node_link(node, a, b)->kind == MCP_LINK_UNKNOWN;
    return count;
}

static void set_known(struct mcp_json *object, const char *key, int64_t value, int64_t unknown)
{
    if (value == unknown)
        mcp_json_set_null(object, key);
    else
        mcp_json_set_int(object, key, value);
}

static void write_devices(const struct mcp_node *node, struct mcp_json *object)
{
    struct mcp_json *gpus = mcp_json_set_array(object, "gpus");
    for (int i = 0; i < node->num_gpus; i++) {
        struct mcp_json *item = mcp_json_add_object(gpus);
        mcp_json_set_string(item, "name", node->gpus[i].name);
        mcp_json_set_int(item, "index", node->gpus[i].index);
        set_known(item, "numa_node", node->gpus[i].numa_node, -1);
        set_known(item, "memory_bytes", node->gpus[i].memory_bytes, 0);
    }
    struct mcp_json *nics = mcp_json_set_array(object, "nics");
    for (int i = 0; i < node->num_nics; i++) {
        struct mcp_json *item = mcp_json_add_object(nics);
        mcp_json_set_string(item, "name", node->nics[i].name);
        set_known(item, "numa_node", node->nics[i].numa_node, -1);
    }
}

void mcp_node_to_json(struct mcp_arena *arena, const struct mcp_node *node, struct mcp_json *object)
{
    write_devices(node, object);
    struct mcp_json *links = mcp_json_set_array(object, "links");
    for (int a = 0; a < mcp_node_devices(node); a++)
        for (int b = a + 1; b < mcp_node_devices(node); b++) {
            const struct mcp_link *link = mcp_node_link(node, a, b);
            if (link->kind == MCP_LINK_UNKNOWN)
                continue;
            struct mcp_json *item = mcp_json_add_object(links);
            mcp_json_set_string(item, "a", mcp_node_device_name(arena, node, a));
            mcp_json_set_string(item, "b", mcp_node_device_name(arena, node, b));
            mcp_json_set_string(item, "kind", mcp_link_kind_names[link->kind]);
            mcp_json_set_int(item, "count", link->count);
        }
}

/* Everyone in b's island moves to a's, or the other way: the lower name stays. */
static void join_islands(int *island, int num_gpus, int a, int b)
{
    int low = island[a] < island[b] ? island[a] : island[b];
    int high = island[a] < island[b] ? island[b] : island[a];
    for (int i = 0; i < num_gpus; i++)
        if (island[i] == high)
            island[i] = low;
}

int mcp_node_islands(const struct mcp_node *node, enum mcp_link_kind farthest, int *island)
{
    int count = 0;
    for (int i = 0; i < node->num_gpus; i++)
        island[i] = i;
    for (int a = 0; a < node->num_gpus; a++)
        for (int b = a + 1; b < node->num_gpus; b++) {
            enum mcp_link_kind kind = mcp_node_link(node, a, b)->kind;
            if (kind != MCP_LINK_UNKNOWN && kind <= farthest && island[a] != island[b])
                join_islands(island, node->num_gpus, a, b);
        }
    for (int i = 0; i < node->num_gpus; i++)
        count += island[i] == i;
    return count;
}

int mcp_node_island_size(const struct mcp_node *node, const int *island)
{
    int first = 0;
    for (int i = 0; i < node->num_gpus; i++) {
        int size = 0;
        for (int j = 0; j < node->num_gpus; j++)
            size += island[j] == island[i];
        if (i > 0 && size != first)
            return 0;
        first = size;
    }
    return first;
}
