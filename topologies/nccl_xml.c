/* topologies/nccl_xml.c: NCCL's topology XML: processors, GPUs, NICs. */
#include "topologies/nccl_xml.h"

#include "topologies/nccl_xml_parts.h"
#include "topologies/nvidia_smi_parts.h"

#include <string.h>

static const char *attribute(const struct mcp_xml *element, const char *name)
{
    const char *value = mcp_xml_attribute(element, name);
    return value == NULL ? "" : value;
}

const struct mcp_xml *mcp_nccl_cpu(const struct mcp_xml *element)
{
    while (element != NULL && !mcp_same(element->name, "cpu"))
        element = element->parent;
    return element;
}

int mcp_nccl_numa(const struct mcp_xml *cpu)
{
    int64_t id;
    if (cpu == NULL || !mcp_parse_int64(attribute(cpu, "numaid"), &id) || id < 0 || id >= 0xffff)
        return -1;
    return (int)id;
}

static bool has_class(const struct mcp_xml *pci, const char *class)
{
    return mcp_starts_with(attribute(pci, "class"), class);
}

bool mcp_nccl_is_bridge(const struct mcp_xml *pci)
{
    return has_class(pci, "0x0604") || mcp_xml_child(pci, "pci") != NULL;
}

/* Shape ------------------------------------------------------------------------------ */

/* Who holds whom; "/" ends a list. */
struct nesting {
    const char *tag;
    const char *parents;
};
static const struct nesting nestings[] = {
    {"cpu", "/system/"},  {"pci", "/cpu/pci/"}, {"gpu", "/pci/"},
    {"nic", "/cpu/pci/"}, {"net", "/nic/"},     {"nvlink", "/gpu/"},
    {"xgmi", "/gpu/"},    {"c2c", "/gpu/"},     {"pcilink", "/pci/"},
};

static enum mcp_status check_nesting(const struct mcp_nccl_reader *r, const struct mcp_xml *element)
{
    for (size_t i = 0; i < MCP_COUNT_OF(nestings); i++) {
        if (!mcp_same(element->name, nestings[i].tag))
            continue;
        if (strstr(nestings[i].parents, mcp_format(r->arena, "/%.40s/", element->parent->name)))
            return MCP_OK;
        return mcp_fail(r->err, MCP_FORMAT,
                        "%s: line %d: <%s> lies in <%.40s>; NCCL's topology nests system, cpu, "
                        "pci, gpu or nic",
                        r->file, element->line, element->name,
                        mcp_printable(r->arena, element->parent->name));
    }
    return MCP_OK;
}

/* What NCCL writes; "/" around each name. */
static const struct nesting attributes[] = {
    {"system", "/version/"},
    {"cpu", "/numaid/affinity/arch/vendor/familyid/modelid/host_hash/"},
    {"pci", "/busid/class/vendor/device/subsystem_vendor/subsystem_device/link_speed/link_width/"},
    {"gpu", "/dev/sm/rank/gdr/gcn/arch/"},
    {"nvlink", "/target/count/tclass/"},
    {"xgmi", "/target/count/tclass/"},
    {"nic", "/"},
    {"net", "/name/dev/speed/port/latency/guid/maxconn/gdr/coll/keep/"},
};

/* Appends "tag/@name" of each attribute that NCCL does not write, once. */
static void list_unknown(const struct mcp_nccl_reader *r, const struct mcp_xml *element,
                         struct mcp_text *unknown)
{
    size_t tag = 0;
    while (tag < MCP_COUNT_OF(attributes) && !mcp_same(element->name, attributes[tag].tag))
        tag++;
    for (int i = 0; i < element->num_attributes && tag < MCP_COUNT_OF(attributes); i++) {
        const char *name = element->attributes[i].name;
        if (strstr(attributes[tag].parents, mcp_format(r->arena, "/%.40s/", name)) != NULL)
            continue;
        const char *path = mcp_format(r->arena, "%s/@%.40s", element->name, name);
        if (unknown->length < 200 && strstr(unknown->data, path) == NULL)
            mcp_text_add(unknown, "%s%s", unknown->length > 0 ? ", " : "", path);
    }
}

static enum mcp_status check_shape(struct mcp_nccl_reader *r, const struct mcp_xml *root)
{
    struct mcp_text unknown = mcp_text_new(r->arena);
    list_unknown(r, root, &unknown);
    for (const struct mcp_xml *at = root->first_child; at != NULL; at = mcp_xml_next(at, root)) {
        MCP_TRY(check_nesting(r, at));
        list_unknown(r, at, &unknown);
    }
    if (unknown.length > 0)
        mcp_node_note(r->arena, r->node, "%s: attributes that NCCL does not know: %s", r->file,
                      unknown.data);
    return MCP_OK;
}

/* Finding devices ---------------------------------------------------------------------- */

/* The <pci> that the element is, not the bridge that it lies in. */
static const struct mcp_xml *own_pci(const struct mcp_xml *element)
{
    const struct mcp_xml *parent = element->parent;
    return mcp_same(parent->name, "pci") && !mcp_nccl_is_bridge(parent) ? parent : NULL;
}

static enum mcp_status add_device(const struct mcp_nccl_reader *r, struct mcp_nccl_device *list,
                                  int *count, const struct mcp_xml *element,
                                  const struct mcp_xml *pci)
{
    const char *bus = pci != NULL ? attribute(pci, "busid") : attribute(element, "pci");
    if (r->num_gpus + r->num_nics == MCP_NODE_MAX_DEVICES)
        return mcp_fail(r->err, MCP_FORMAT, "%s: more than %d GPUs and NICs", r->file,
                        MCP_NODE_MAX_DEVICES);
    list[(*count)++] = (struct mcp_nccl_device){element, pci, mcp_bus_id(r->arena, bus)};
    return MCP_OK;
}

static enum mcp_status find_pci(struct mcp_nccl_reader *r, const struct mcp_xml *pci)
{
    r->node->num_pcie_switches += mcp_xml_child(pci, "pci") != NULL;
    if (mcp_nccl_is_bridge(pci) || mcp_xml_child(pci, "gpu") != NULL ||
        mcp_xml_child(pci, "nic") != NULL)
        return MCP_OK;
    if (has_class(pci, "0x0302") || has_class(pci, "0x0300") || has_class(pci, "0x1200") ||
        has_class(pci, "0x0380"))
        return add_device(r, r->gpus, &r->num_gpus, pci, pci);
    if (has_class(pci, "0x02"))
        return add_device(r, r->nics, &r->num_nics, pci, pci);
    r->node->num_untyped++;
    return MCP_OK;
}

static enum mcp_status find_nic(struct mcp_nccl_reader *r, const struct mcp_xml *nic)
{
    const struct mcp_xml *net = mcp_xml_child(nic, "net");
    if (net == NULL && nic->num_attributes == 0)
        return MCP_OK; /* NCCL found no port of it */
    if (net == NULL)
        return add_device(r, r->nics, &r->num_nics, nic, own_pci(nic));
    for (; net != NULL; net = mcp_xml_named(net->next, "net"))
        MCP_TRY(add_device(r, r->nics, &r->num_nics, net, own_pci(nic)));
    return MCP_OK;
}

static enum mcp_status find_devices(struct mcp_nccl_reader *r, const struct mcp_xml *root)
{
    for (const struct mcp_xml *at = root; at != NULL; at = mcp_xml_next(at, root)) {
        if (mcp_same(at->name, "pci"))
            MCP_TRY(find_pci(r, at));
        else if (mcp_same(at->name, "gpu"))
            MCP_TRY(add_device(r, r->gpus, &r->num_gpus, at, own_pci(at)));
        else if (mcp_same(at->name, "nic"))
            MCP_TRY(find_nic(r, at));
        r->num_cpus += mcp_same(at->name, "cpu");
    }
    if (r->num_cpus > 0)
        return MCP_OK;
    return mcp_fail(r->err, MCP_FORMAT, "%s: <system> holds no <cpu>, and NCCL needs one", r->file);
}

/* nvidia-smi numbers GPUs in the order of their bus ids. */
static void sort_gpus(struct mcp_nccl_reader *r)
{
    for (int i = 1; i < r->num_gpus; i++) {
        struct mcp_nccl_device gpu = r->gpus[i];
        int at = i;
        for (; at > 0 && gpu.bus_id != NULL && r->gpus[at - 1].bus_id != NULL &&
               strcmp(r->gpus[at - 1].bus_id, gpu.bus_id) > 0;
             at--)
            r->gpus[at] = r->gpus[at - 1];
        r->gpus[at] = gpu;
    }
}

static enum mcp_status check_bus_ids(const struct mcp_nccl_reader *r)
{
    for (int i = 1; i < r->num_gpus; i++)
        if (r->gpus[i].bus_id != NULL && mcp_same(r->gpus[i].bus_id, r->gpus[i - 1].bus_id))
            return mcp_fail(r->err, MCP_INVALID, "%s: lines %d and %d: two GPUs have the bus id %s",
                            r->file, r->gpus[i - 1].element->line, r->gpus[i].element->line,
                            r->gpus[i].bus_id);
    return MCP_OK;
}

/* Filling the node ---------------------------------------------------------------------- */

/* "16 GT/s", "32.0 GT/s PCIe" */
static int pcie_generation(struct mcp_arena *arena, const char *speed)
{
    static const double rates[] = {2.5, 5, 8, 16, 32, 64};
    double rate;
    if (!mcp_parse_double(mcp_strndup(arena, speed, strcspn(speed, " ")), &rate))
        return 0;
    for (size_t i = 0; i < MCP_COUNT_OF(rates); i++)
        if (rate > rates[i] - 0.1 && rate < rates[i] + 0.1)
            return (int)i + 1;
    return 0;
}

static void fill_gpus(struct mcp_nccl_reader *r)
{
    bool numbered = true;
    int64_t number;
    for (int i = 0; i < r->num_gpus; i++)
        numbered = numbered && mcp_parse_int64(attribute(r->gpus[i].element, "dev"), &number) &&
                   number >= 0 && number < 10000;
    for (int i = 0; i < r->num_gpus; i++) {
        const struct mcp_nccl_device *device = &r->gpus[i];
        struct mcp_node_gpu *gpu = &r->node->gpus[i];
        (void)mcp_parse_int64(attribute(device->element, "dev"), &number);
        *gpu = mcp_node_gpu_unknown(numbered ? (int)number : i);
        gpu->bus_id = device->bus_id;
        gpu->numa_node = mcp_nccl_numa(mcp_nccl_cpu(device->element));
        if (device->pci == NULL)
            continue;
        gpu->pcie_generation = pcie_generation(r->arena, attribute(device->pci, "link_speed"));
        gpu->pcie_width = mcp_smi_small_number(attribute(device->pci, "link_width"));
    }
}

static void fill_nics(struct mcp_nccl_reader *r)
{
    for (int i = 0; i < r->num_nics; i++) {
        const struct mcp_nccl_device *device = &r->nics[i];
        struct mcp_node_nic *nic = &r->node->nics[i];
        double megabits_per_s;
        const char *name = attribute(device->element, "name");
        if (name[0] == '\0')
            name = attribute(device->element, "net");
        if (name[0] == '\0' && device->bus_id != NULL)
            name = device->bus_id;
        *nic = mcp_node_nic_unknown(name[0] != '\0' ? name : mcp_format(r->arena, "NIC%d", i));
        nic->bus_id = device->bus_id;
        nic->numa_node = mcp_nccl_numa(mcp_nccl_cpu(device->element));
        if (mcp_parse_double(attribute(device->element, "speed"), &megabits_per_s) &&
            megabits_per_s > 0 && megabits_per_s < 1e9)
            nic->bytes_per_s = megabits_per_s * 1e6 / 8;
    }
}

static void fill_numas(struct mcp_nccl_reader *r, const struct mcp_xml *root)
{
    struct mcp_node *node = r->node;
    const struct mcp_xml *cpu = mcp_xml_child(root, "cpu");
    bool unknown = false, some_arch = false, no_arch = false;
    node->numa_nodes = MCP_ARRAY(r->arena, r->num_cpus, struct mcp_node_numa);
    for (; cpu != NULL; cpu = mcp_xml_named(cpu->next, "cpu")) {
        int id = mcp_nccl_numa(cpu);
        bool has_arch = mcp_xml_attribute(cpu, "arch") != NULL;
        some_arch = some_arch || has_arch;
        no_arch = no_arch || !has_arch;
        unknown = unknown || id < 0;
        node->numa_nodes[node->num_numa_nodes] =
            (struct mcp_node_numa){.id = id, .package = -1, .cpu_set = node->num_numa_nodes};
        node->num_numa_nodes++;
    }
    if (unknown)
        mcp_node_note(r->arena, node,
                      "%s: the NUMA node of a <cpu> is unknown (numaid -1, 0xffff or none): "
                      "distances to its devices are unknown, they are of this machine all the same",
                      r->file);
    if (some_arch && no_arch)
        mcp_node_note(r->arena, node, "%s: a <cpu> has no arch: taken as the others'", r->file);
}

static void note_what_is_missing(struct mcp_nccl_reader *r)
{
    struct mcp_node *node = r->node;
    if (node->num_gpus == 0)
        mcp_node_note(r->arena, node, "%s: the file names no GPU%s", r->file,
                      node->num_untyped > 0
                          ? mcp_format(r->arena,
                                       "; of %d PCI devices it does not tell what they are",
                                       node->num_untyped)
                          : "");
    else if (node->nvlinks_unknown)
        mcp_node_note(r->arena, node,
                      "%s: the file does not tell whether NVLinks join the GPUs; add `nvidia-smi "
                      "topo -m`",
                      r->file);
}

enum mcp_status mcp_nccl_xml(struct mcp_arena *arena, const char *name, const struct mcp_xml *root,
                             struct mcp_node *out, struct mcp_error *err)
{
    struct mcp_node node = {0};
    struct mcp_nccl_reader *r = MCP_NEW(arena, struct mcp_nccl_reader);
    *r = (struct mcp_nccl_reader){.arena = arena, .err = err, .file = name, .node = &node};
    if (!mcp_same(root->name, "system"))
        return mcp_fail(err, MCP_FORMAT, "%s: the root is <%.40s>, expected <system>", name,
                        mcp_printable(arena, root->name));
    MCP_TRY(check_shape(r, root));
    MCP_TRY(find_devices(r, root));
    sort_gpus(r);
    MCP_TRY(check_bus_ids(r));
    mcp_node_alloc(arena, &node, r->num_gpus, r->num_nics);
    fill_gpus(r);
    fill_nics(r);
    fill_numas(r, root);
    MCP_TRY(mcp_nccl_nvlinks(r));
    mcp_nccl_paths(r);
    note_what_is_missing(r);
    *out = node;
    return MCP_OK;
}
