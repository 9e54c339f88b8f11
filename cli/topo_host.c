/* cli/topo_host.c: processors as boxes: packages, cores, NUMA nodes, memory, NICs. */
#include "cli/topo_picture.h"
#include "core/text.h"
#include "core/units.h"

enum { MOST_CORES = 8, CORES_OF_MANY = 2 };

static const char *core_title(struct mcp_arena *arena, const struct mcp_host *host)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add(&text, "core");
    for (int i = 0; i < 2; i++)
        if (host->cache_bytes[i] > 0)
            mcp_text_add(&text, " L%d %s", i + 1,
                         mcp_show(arena, (double)host->cache_bytes[i], MCP_BYTES));
    return text.data;
}

static struct mcp_part *picture_package(struct mcp_arena *arena, const struct mcp_host *host,
                                        int index)
{
    const struct mcp_host_package *package = &host->packages[index];
    int drawn = package->num_cores <= MOST_CORES ? package->num_cores : CORES_OF_MANY;
    struct mcp_part *part =
        mcp_part_new(arena, MCP_PART_BOX,
                     mcp_format(arena, "package %d: %d core%s, memory %s", index,
                                package->num_cores, package->num_cores == 1 ? "" : "s",
                                mcp_show(arena, (double)package->memory_bytes, MCP_BYTES)));
    if (host->cache_bytes[2] > 0)
        part->bus =
            mcp_format(arena, "L3 %s", mcp_show(arena, (double)host->cache_bytes[2], MCP_BYTES));
    for (int i = 0; i < drawn; i++)
        mcp_part_add(part, mcp_part_new(arena, MCP_PART_CORE, core_title(arena, host)));
    if (package->num_cores > drawn)
        mcp_part_add(part,
                     mcp_part_new(arena, MCP_PART_MORE,
                                  mcp_format(arena, "+ %d equal", package->num_cores - drawn)));
    if (package->num_numa_nodes > 1)
        part->detail = mcp_format(arena, "%d NUMA nodes", package->num_numa_nodes);
    return part;
}

struct mcp_part *mcp_picture_host(struct mcp_arena *arena, const struct mcp_host *host,
                                  const struct mcp_node *node)
{
    struct mcp_part *part = mcp_part_new(
        arena, MCP_PART_BOX,
        mcp_format(arena, "%s, %s",
                   host->cpu != NULL ? mcp_part_name(arena, host->cpu) : "processor unknown",
                   mcp_show(arena, (double)host->memory_bytes, MCP_BYTES)));
    for (int i = 0; i < host->num_packages; i++)
        mcp_part_add(part, picture_package(arena, host, i));
    for (int i = 0; node->num_gpus == 0 && i < node->num_nics; i++)
        mcp_part_add(part,
                     mcp_part_new(arena, MCP_PART_NIC, mcp_part_name(arena, node->nics[i].name)));
    if (host->num_numa_nodes > host->num_packages)
        part->detail = mcp_format(arena, "%d NUMA nodes in all", host->num_numa_nodes);
    return part;
}

/* Of a dump ------------------------------------------------------------------- */

/* The package of a NIC, told by its NUMA node where the file does not; -1: unknown. */
static int package_of(const struct mcp_node *node, const struct mcp_node_nic *nic)
{
    for (int i = 0; nic->package < 0 && i < node->num_numa_nodes; i++)
        if (nic->numa_node >= 0 && node->numa_nodes[i].id == nic->numa_node)
            return node->numa_nodes[i].package;
    return nic->package;
}

static void add_nics(struct mcp_arena *arena, const struct mcp_node *node, int package,
                     struct mcp_part *part)
{
    for (int i = 0; i < node->num_nics; i++) {
        if (package_of(node, &node->nics[i]) != package)
            continue;
        struct mcp_part *chip =
            mcp_part_new(arena, MCP_PART_NIC, mcp_part_name(arena, node->nics[i].name));
        chip->is_apart = true;
        mcp_part_add(part, chip);
    }
}

static struct mcp_part *picture_numa_package(struct mcp_arena *arena, const struct mcp_node *node,
                                             int package)
{
    struct mcp_part *part =
        mcp_part_new(arena, MCP_PART_BOX,
                     package >= 0 ? mcp_format(arena, "package %d", package) : "package unknown");
    for (int i = 0; i < node->num_numa_nodes; i++) {
        const struct mcp_node_numa *numa = &node->numa_nodes[i];
        if (numa->package != package)
            continue;
        mcp_part_add(
            part, mcp_part_new(
                      arena, MCP_PART_CORE,
                      mcp_format(arena, "NUMA %d%s%s %s", numa->id, numa->kind != NULL ? " " : "",
                                 numa->kind != NULL ? mcp_part_name(arena, numa->kind) : "",
                                 mcp_show(arena, (double)numa->memory_bytes, MCP_BYTES))));
    }
    if (package >= 0)
        add_nics(arena, node, package, part);
    return part;
}

struct mcp_part *mcp_picture_processors(struct mcp_arena *arena, const struct mcp_node *node)
{
    struct mcp_part *part = mcp_part_new(
        arena, MCP_PART_BOX,
        mcp_format(arena, "%s, %d package%s, %d cores",
                   node->cpu != NULL ? mcp_part_name(arena, node->cpu) : "processors",
                   node->num_packages, node->num_packages == 1 ? "" : "s", node->num_cores));
    for (int i = 0; i < node->num_numa_nodes; i++) {
        bool is_first = true;
        for (int j = 0; j < i; j++)
            is_first = is_first && node->numa_nodes[j].package != node->numa_nodes[i].package;
        if (is_first)
            mcp_part_add(part, picture_numa_package(arena, node, node->numa_nodes[i].package));
    }
    add_nics(arena, node, -1, part);
    return part;
}
