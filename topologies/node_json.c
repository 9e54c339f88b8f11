/* topologies/node_json.c: one machine as the keys of mcpplan.topo/1. */
#include "topologies/node.h"

#include <math.h>
#include <string.h>

static void set_known(struct mcp_json *object, const char *key, int64_t value, int64_t unknown)
{
    if (value == unknown)
        mcp_json_set_null(object, key);
    else
        mcp_json_set_int(object, key, value);
}

static void set_positive(struct mcp_json *object, const char *key, double value)
{
    mcp_json_set_double(object, key, value > 0 ? value : (double)NAN);
}

static void write_migs(const struct mcp_node_gpu *gpu, struct mcp_json *item)
{
    struct mcp_json *migs = mcp_json_set_array(item, "mig_devices");
    for (int i = 0; i < gpu->num_migs; i++) {
        struct mcp_json *mig = mcp_json_add_object(migs);
        mcp_json_set_string(mig, "profile", gpu->migs[i].profile);
        mcp_json_set_int(mig, "index", gpu->migs[i].index);
        mcp_json_set_string(mig, "uuid", gpu->migs[i].uuid);
    }
}

static void write_gpu(const struct mcp_node_gpu *gpu, struct mcp_json *item)
{
    mcp_json_set_string(item, "name", gpu->name);
    mcp_json_set_int(item, "index", gpu->index);
    set_known(item, "numa_node", gpu->numa_node, -1);
    set_known(item, "memory_bytes", gpu->memory_bytes, 0);
    mcp_json_set_string(item, "bus_id", gpu->bus_id);
    mcp_json_set_string(item, "uuid", gpu->uuid);
    mcp_json_set_string(item, "cpu_affinity", gpu->cpu_affinity);
    mcp_json_set_string(item, "numa_affinity", gpu->numa_affinity);
    set_known(item, "memory_numa_node", gpu->memory_numa_node, -1);
    set_known(item, "package", gpu->package, -1);
    set_known(item, "pcie_generation", gpu->pcie_generation, 0);
    set_known(item, "pcie_width", gpu->pcie_width, 0);
    set_positive(item, "clock_hz", gpu->clock_hz);
    set_positive(item, "memory_clock_hz", gpu->memory_clock_hz);
    set_positive(item, "power_limit_watts", gpu->power_limit_watts);
    set_known(item, "switch_links", gpu->switch_links, 0);
    mcp_json_set_string(item, "mig_mode", gpu->mig_mode);
    write_migs(gpu, item);
}

static void write_devices(const struct mcp_node *node, struct mcp_json *object)
{
    struct mcp_json *gpus = mcp_json_set_array(object, "gpus");
    for (int i = 0; i < node->num_gpus; i++)
        write_gpu(&node->gpus[i], mcp_json_add_object(gpus));
    struct mcp_json *nics = mcp_json_set_array(object, "nics");
    for (int i = 0; i < node->num_nics; i++) {
        struct mcp_json *item = mcp_json_add_object(nics);
        mcp_json_set_string(item, "name", node->nics[i].name);
        set_known(item, "numa_node", node->nics[i].numa_node, -1);
        mcp_json_set_string(item, "interfaces", node->nics[i].interfaces);
        mcp_json_set_string(item, "bus_id", node->nics[i].bus_id);
        set_known(item, "package", node->nics[i].package, -1);
        set_positive(item, "bytes_per_s", node->nics[i].bytes_per_s);
    }
}

static void write_processors(const struct mcp_node *node, struct mcp_json *object)
{
    set_known(object, "num_nvlink_switches", node->num_nvlink_switches, 0);
    set_known(object, "num_pcie_switches", node->num_pcie_switches, 0);
    set_known(object, "num_packages", node->num_packages, 0);
    struct mcp_json *list = mcp_json_set_array(object, "numa_nodes");
    for (int i = 0; i < node->num_numa_nodes; i++) {
        const struct mcp_node_numa *numa = &node->numa_nodes[i];
        struct mcp_json *item = mcp_json_add_object(list);
        set_known(item, "id", numa->id, -1);
        set_known(item, "memory_bytes", numa->memory_bytes, 0);
        mcp_json_set_string(item, "kind", numa->kind);
        set_known(item, "package", numa->package, -1);
        set_known(item, "cpu_set", numa->cpu_set, -1);
    }
}

static void write_notes(struct mcp_arena *arena, const struct mcp_node *node,
                        struct mcp_json *object)
{
    struct mcp_json *list = mcp_json_set_array(object, "notes");
    const char *at = node->notes != NULL ? node->notes : "";
    while (*at != '\0') {
        size_t length = strcspn(at, "\n");
        mcp_json_add_string(list, mcp_strndup(arena, at, length));
        at += length + (at[length] == '\n');
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
    write_processors(node, object);
    write_notes(arena, node, object);
}
