/* topologies/node.c: one machine's GPUs, NICs and links. */
#include "topologies/node.h"

#include <ctype.h>
#include <string.h>

const char *const mcp_link_kind_names[MCP_NUM_LINK_KINDS] = {
    "unknown", "XGMI", "NVLINK", "PIX", "PXB", "PHB", "NODE", "SYS",
};

struct mcp_node_gpu mcp_node_gpu_unknown(int index)
{
    return (struct mcp_node_gpu){
        .index = index, .numa_node = -1, .memory_numa_node = -1, .package = -1};
}

struct mcp_node_nic mcp_node_nic_unknown(const char *name)
{
    return (struct mcp_node_nic){.name = name, .numa_node = -1, .package = -1};
}

void mcp_node_alloc(struct mcp_arena *arena, struct mcp_node *node, int num_gpus, int num_nics)
{
    size_t devices = (size_t)num_gpus + (size_t)num_nics;
    node->num_gpus = num_gpus;
    node->num_nics = num_nics;
    node->gpus = MCP_ARRAY(arena, num_gpus, struct mcp_node_gpu);
    node->nics = MCP_ARRAY(arena, num_nics, struct mcp_node_nic);
    node->links = MCP_ARRAY(arena, devices * devices, struct mcp_link);
    for (int i = 0; i < num_gpus; i++)
        node->gpus[i] = mcp_node_gpu_unknown(i);
    for (int i = 0; i < num_nics; i++)
        node->nics[i] = mcp_node_nic_unknown("");
}

void mcp_node_note(struct mcp_arena *arena, struct mcp_node *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *note = mcp_vformat(arena, format, args);
    va_end(args);
    node->notes = mcp_format(arena, "%s%s\n", node->notes != NULL ? node->notes : "", note);
}

int mcp_node_devices(const struct mcp_node *node)
{
    return node->num_gpus + node->num_nics;
}

static struct mcp_link *link_at(const struct mcp_node *node, int a, int b)
{
    return &node->links[(size_t)a * (size_t)mcp_node_devices(node) + (size_t)b];
}

const struct mcp_link *mcp_node_link(const struct mcp_node *node, int a, int b)
{
    return link_at(node, a, b);
}

void mcp_node_set_link(struct mcp_node *node, int a, int b, struct mcp_link link)
{
    *link_at(node, a, b) = link;
    *link_at(node, b, a) = link;
}

const char *mcp_node_device_name(struct mcp_arena *arena, const struct mcp_node *node, int device)
{
    if (device < node->num_gpus)
        return mcp_format(arena, "GPU%d", node->gpus[device].index);
    return node->nics[device - node->num_gpus].name;
}

bool mcp_link_is_direct(const struct mcp_link *link)
{
    return link->kind == MCP_LINK_NVLINK || link->kind == MCP_LINK_XGMI;
}

const char *mcp_link_name(struct mcp_arena *arena, const struct mcp_link *link)
{
    if (link->kind == MCP_LINK_NVLINK)
        return mcp_format(arena, "NV%d", link->count);
    return mcp_link_kind_names[link->kind];
}

int mcp_node_unknown_links(const struct mcp_node *node)
{
    int count = 0;
    for (int a = 0; a < mcp_node_devices(node); a++)
        for (int b = a + 1; b < mcp_node_devices(node); b++)
            count += mcp_node_link(node, a, b)->kind == MCP_LINK_UNKNOWN;
    return count;
}

void mcp_node_join_switched(struct mcp_node *node)
{
    for (int a = 0; a < node->num_gpus; a++)
        for (int b = a + 1; b < node->num_gpus; b++) {
            int first = node->gpus[a].switch_links, second = node->gpus[b].switch_links;
            int fewer = first < second ? first : second;
            if (fewer > 0 && mcp_node_link(node, a, b)->kind != MCP_LINK_NVLINK)
                mcp_node_set_link(node, a, b, (struct mcp_link){MCP_LINK_NVLINK, fewer});
        }
}

/* Moves *at over at most `most` hexadecimal digits; false for fewer than `least`. */
static bool hex_digits(const char **at, int least, int most)
{
    int count = 0;
    while (count < most && isxdigit((unsigned char)(*at)[0])) {
        (*at)++;
        count++;
    }
    return count >= least;
}

const char *mcp_bus_id(struct mcp_arena *arena, const char *text)
{
    const char *at = text;
    if (text == NULL || !hex_digits(&at, 1, 8) || *at++ != ':')
        return NULL;
    const char *bus = at;
    if (!hex_digits(&at, 2, 2) || (*at != ':' && *at != '.'))
        return NULL;
    bool has_domain = *at++ == ':'; /* "0c:00.0" has none */
    if (!hex_digits(&at, has_domain ? 2 : 1, 2) || (has_domain && *at++ != '.') ||
        (has_domain && !hex_digits(&at, 1, 2)) || *at != '\0')
        return NULL;
    while (has_domain && *text == '0' && bus - text > 5)
        text++;
    int missing = has_domain ? (int)(5 - (bus - text)) : 0;
    char *id = mcp_format(arena, "%s%.*s%s", has_domain ? "" : "0000:", missing > 0 ? missing : 0,
                          "0000", text);
    for (char *c = id; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    return id;
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

static int count_islands(const struct mcp_node *node, const int *island)
{
    int count = 0;
    for (int i = 0; i < node->num_gpus; i++)
        count += island[i] == i;
    return count;
}

int mcp_node_islands(const struct mcp_node *node, enum mcp_link_kind farthest, int *island)
{
    for (int i = 0; i < node->num_gpus; i++)
        island[i] = i;
    for (int a = 0; a < node->num_gpus; a++)
        for (int b = a + 1; b < node->num_gpus; b++) {
            enum mcp_link_kind kind = mcp_node_link(node, a, b)->kind;
            if (kind != MCP_LINK_UNKNOWN && kind <= farthest && island[a] != island[b])
                join_islands(island, node->num_gpus, a, b);
        }
    return count_islands(node, island);
}

int mcp_node_sockets(const struct mcp_node *node, int *island)
{
    int count = mcp_node_islands(node, MCP_LINK_NODE, island);
    bool all_sys = count == node->num_gpus;
    for (int a = 0; a < node->num_gpus && all_sys; a++)
        for (int b = a + 1; b < node->num_gpus; b++)
            if (node->gpus[a].numa_node >= 0 && node->gpus[a].numa_node == node->gpus[b].numa_node)
                join_islands(island, node->num_gpus, a, b);
    return count_islands(node, island);
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

bool mcp_node_fully_joined(const struct mcp_node *node, const int *gpus, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++)
            if (!mcp_link_is_direct(mcp_node_link(node, gpus[i], gpus[j])))
                return false;
    return true;
}
