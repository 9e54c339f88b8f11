/* topologies/nvidia_smi_xml.c: GPUs of `nvidia-smi -q -x`, of all versions of its DTD. */
#include "topologies/nvidia_smi.h"
#include "topologies/nvidia_smi_parts.h"

struct reader {
    struct mcp_arena *arena;
    struct mcp_error *err;
    const char *file;
    const struct mcp_xml *gpu;
};

/* The first of the paths whose text tells something; NULL: none. */
static const char *known_text(const struct reader *r, const char *const *paths, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *text = mcp_smi_known(mcp_xml_text(r->arena, r->gpu, paths[i]));
        if (text != NULL)
            return text;
    }
    return NULL;
}

static enum mcp_status read_quantity(const struct reader *r, const char *path, const char *unit,
                                     enum mcp_dimension dimension, double *out)
{
    const char *text = mcp_xml_text(r->arena, r->gpu, path);
    enum mcp_status status = mcp_smi_quantity(r->arena, text, unit, dimension, out, r->err);
    if (status != MCP_OK)
        mcp_error_prefix(
            r->err, mcp_format(r->arena, "%s: <gpu> of line %d: %s", r->file, r->gpu->line, path));
    return status;
}

static enum mcp_status read_rates(const struct reader *r, struct mcp_node_gpu *gpu)
{
    static const char *const limits[] = {
        "gpu_power_readings/current_power_limit", /* from driver 525 on */
        "gpu_power_readings/power_limit",
        "power_readings/power_limit",
        "power_readings/enforced_power_limit",
    };
    double memory_bytes = 0;
    MCP_TRY(read_quantity(r, "fb_memory_usage/total", "MiB", MCP_BYTES, &memory_bytes));
    gpu->memory_bytes = (int64_t)memory_bytes;
    MCP_TRY(read_quantity(r, "max_clocks/sm_clock", "MHz", MCP_HERTZ, &gpu->clock_hz));
    MCP_TRY(read_quantity(r, "max_clocks/mem_clock", "MHz", MCP_HERTZ, &gpu->memory_clock_hz));
    for (size_t i = 0; i < MCP_COUNT_OF(limits) && gpu->power_limit_watts <= 0; i++)
        MCP_TRY(read_quantity(r, limits[i], "W", MCP_WATTS, &gpu->power_limit_watts));
    return MCP_OK;
}

static void read_migs(const struct reader *r, struct mcp_node_gpu *gpu)
{
    const struct mcp_xml *list = mcp_xml_child(r->gpu, "mig_devices");
    const struct mcp_xml *mig = mcp_xml_child(list, "mig_device");
    size_t capacity = 0;
    for (; mig != NULL; mig = mcp_xml_named(mig->next, "mig_device")) {
        const char *memory = mcp_xml_text(r->arena, mig, "fb_memory_usage/total");
        gpu->migs = (struct mcp_node_mig *)mcp_grow(r->arena, gpu->migs, (size_t)gpu->num_migs,
                                                    &capacity, sizeof *gpu->migs);
        gpu->migs[gpu->num_migs++] = (struct mcp_node_mig){
            .profile = mcp_smi_known(memory), /* the XML does not name the profile */
            .index = mcp_smi_small_number(mcp_xml_text(r->arena, mig, "index")),
            .uuid = mcp_smi_known(mcp_xml_text(r->arena, mig, "uuid")),
        };
    }
}

static enum mcp_status read_gpu(const struct reader *r, struct mcp_node_gpu *gpu)
{
    static const char *const uuids[] = {"uuid"};
    static const char *const names[] = {"product_name"};
    const char *bus = mcp_xml_attribute(r->gpu, "id");
    if (mcp_bus_id(r->arena, bus) == NULL)
        bus = mcp_xml_text(r->arena, r->gpu, "pci/pci_bus_id");
    gpu->bus_id = mcp_bus_id(r->arena, bus);
    gpu->name = known_text(r, names, 1);
    gpu->uuid = known_text(r, uuids, 1);
    gpu->pcie_generation = mcp_smi_small_number(
        mcp_xml_text(r->arena, r->gpu, "pci/pci_gpu_link_info/pcie_gen/max_link_gen"));
    gpu->pcie_width = mcp_smi_small_number(
        mcp_xml_text(r->arena, r->gpu, "pci/pci_gpu_link_info/link_widths/max_link_width"));
    gpu->mig_mode = mcp_smi_known(mcp_xml_text(r->arena, r->gpu, "mig_mode/current_mig"));
    read_migs(r, gpu);
    return read_rates(r, gpu);
}

/* Some GPUs of a machine, as -i asks for: then the driver's number of the device file
 * tells which. */
static void read_attached(const struct reader *r, const struct mcp_xml *root, struct mcp_node *node)
{
    int attached = mcp_smi_small_number(mcp_xml_text(r->arena, root, "attached_gpus"));
    if (attached <= node->num_gpus)
        return;
    node->num_gpus_attached = attached;
    mcp_node_note(r->arena, node, "%s: describes %d of the machine's %d GPUs", r->file,
                  node->num_gpus, attached);
}

static int count_gpus(const struct mcp_xml *root)
{
    int count = 0;
    const struct mcp_xml *gpu = mcp_xml_child(root, "gpu");
    for (; gpu != NULL; gpu = mcp_xml_named(gpu->next, "gpu"))
        count++;
    return count;
}

enum mcp_status mcp_nvidia_smi_xml(struct mcp_arena *arena, const char *name,
                                   const struct mcp_xml *root, struct mcp_node *out,
                                   struct mcp_error *err)
{
    struct reader r = {arena, err, name, mcp_xml_child(root, "gpu")};
    struct mcp_node node = {0};
    int count = count_gpus(root);
    if (count == 0 || count > MCP_NODE_MAX_DEVICES)
        return mcp_fail(err, MCP_FORMAT, "%s: %d <gpu> in <%s>; 1 to %d are understood", name,
                        count, root->name, MCP_NODE_MAX_DEVICES);
    mcp_node_alloc(arena, &node, count, 0);
    node.driver = mcp_smi_known(mcp_xml_text(arena, root, "driver_version"));
    read_attached(&r, root, &node);
    for (int i = 0; i < count; i++) {
        if (node.num_gpus_attached > 0)
            node.gpus[i].index = mcp_smi_small_number(mcp_xml_text(arena, r.gpu, "minor_number"));
        MCP_TRY(read_gpu(&r, &node.gpus[i]));
        r.gpu = mcp_xml_named(r.gpu->next, "gpu");
    }
    *out = node;
    return MCP_OK;
}
