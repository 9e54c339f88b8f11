/* topologies/hwloc_xml_devices.c: GPUs, NICs, their paths and NVLinks in hwloc's XML. */
#include "topologies/hwloc_xml_parts.h"
#include "topologies/place.h"

#include <ctype.h>
#include <string.h>

#define VENDOR_NVIDIA 0x10de
#define VENDOR_AMD 0x1002
#define MAX_DISTANCES 2048 /* objects in a matrix */

/* PCI -------------------------------------------------------------------------------- */

/* "0302 [10de:1db8] ..." */
static unsigned hex_at(const char *text)
{
    unsigned value = 0;
    for (int i = 0; i < 4 && isxdigit((unsigned char)text[i]); i++)
        value = value * 16 + (unsigned)(isdigit((unsigned char)text[i])
                                            ? text[i] - '0'
                                            : tolower((unsigned char)text[i]) - 'a' + 10);
    return value;
}

static unsigned class_of(const struct mcp_xml *device)
{
    return hex_at(mcp_hwloc_attribute(device, "pci_type"));
}

static unsigned vendor_of(const struct mcp_xml *device)
{
    const char *bracket = strchr(mcp_hwloc_attribute(device, "pci_type"), '[');
    return bracket == NULL ? 0 : hex_at(bracket + 1);
}

/* 3D controllers, accelerators, and displays of makers of GPUs (servers have small
 * display chips of other makers, and old ones of AMD). */
static bool is_gpu(const struct mcp_xml *device)
{
    unsigned class = class_of(device), vendor = vendor_of(device);
    if (!mcp_hwloc_is(device, "PCIDev"))
        return false;
    if (class == 0x0302 || class == 0x1200)
        return true;
    return (class == 0x0300 && vendor == VENDOR_NVIDIA) ||
           (class == 0x0380 && vendor == VENDOR_AMD);
}

/* OSDevs ------------------------------------------------------------------------------ */

/* Formats 1 and 2 number the kinds, format 3 adds them up. */
static bool is_kind(const struct mcp_hwloc_reader *r, const struct mcp_xml *device, int numbered,
                    int added)
{
    int64_t value;
    if (!mcp_hwloc_is(device, "OSDev") ||
        !mcp_parse_int64(mcp_hwloc_attribute(device, "osdev_type"), &value))
        return false;
    return r->kinds_add_up ? (value & added) != 0 : value == numbered;
}

static bool is_verbs(const struct mcp_hwloc_reader *r, const struct mcp_xml *device)
{
    return is_kind(r, device, 3, 32);
}

static bool is_network(const struct mcp_hwloc_reader *r, const struct mcp_xml *device)
{
    return is_kind(r, device, 2, 16) && !is_verbs(r, device);
}

static bool has_verbs(const struct mcp_hwloc_reader *r, const struct mcp_xml *pci_device)
{
    const struct mcp_xml *child = pci_device == NULL ? NULL : pci_device->first_child;
    for (; child != NULL; child = child->next)
        if (is_verbs(r, child))
            return true;
    return false;
}

/* A NIC goes by its verbs name (mlx5_0) where it has one. */
static bool is_nic(const struct mcp_hwloc_reader *r, const struct mcp_xml *device)
{
    return is_verbs(r, device) || (is_network(r, device) && !has_verbs(r, device->parent));
}

/* Devices ----------------------------------------------------------------------------- */

/* What one of the GPU's OSDevs says. */
static const char *os_info(const struct mcp_xml *gpu, const char *name)
{
    for (const struct mcp_xml *child = gpu->first_child; child != NULL; child = child->next) {
        const char *value = mcp_hwloc_is(child, "OSDev") ? mcp_hwloc_info(child, name) : NULL;
        if (value != NULL)
            return value;
    }
    return NULL;
}

static void fill_gpu(struct mcp_hwloc_reader *r, int index)
{
    const struct mcp_xml *device = r->gpus[index];
    struct mcp_node_gpu *gpu = &r->node->gpus[index];
    const char *model = os_info(device, "GPUModel");
    gpu->name = model != NULL ? model : mcp_hwloc_info(device, "PCIDevice");
    if (gpu->name == NULL)
        gpu->name = mcp_xml_attribute(device, "name");
    gpu->uuid = os_info(device, "NVIDIAUUID");
    gpu->bus_id = mcp_bus_id(r->arena, mcp_hwloc_attribute(device, "pci_busid"));
    gpu->numa_node = mcp_hwloc_numa(r, mcp_hwloc_host(device));
}

static void fill_nic(struct mcp_hwloc_reader *r, int index)
{
    const struct mcp_xml *device = r->nics[index], *parent = device->parent;
    struct mcp_node_nic *nic = &r->node->nics[index];
    struct mcp_text interfaces = mcp_text_new(r->arena);
    *nic = mcp_node_nic_unknown(mcp_hwloc_attribute(device, "name"));
    nic->bus_id = mcp_bus_id(r->arena, mcp_hwloc_attribute(parent, "pci_busid"));
    nic->numa_node = mcp_hwloc_numa(r, mcp_hwloc_host(device));
    for (const struct mcp_xml *child = parent->first_child; child != NULL; child = child->next)
        if (child != device && is_network(r, child) && is_verbs(r, device))
            mcp_text_add(&interfaces, "%s%s", interfaces.length > 0 ? " " : "",
                         mcp_hwloc_attribute(child, "name"));
    nic->interfaces = interfaces.length > 0 ? interfaces.data : NULL;
}

/* nvidia-smi numbers GPUs in the order of their bus ids. */
static void sort_gpus(struct mcp_hwloc_reader *r, int count)
{
    for (int i = 1; i < count; i++) {
        const struct mcp_xml *gpu = r->gpus[i];
        const char *bus = mcp_bus_id(r->arena, mcp_hwloc_attribute(gpu, "pci_busid"));
        int at = i;
        for (; at > 0 && bus != NULL; at--) {
            const char *before =
                mcp_bus_id(r->arena, mcp_hwloc_attribute(r->gpus[at - 1], "pci_busid"));
            if (before == NULL || strcmp(before, bus) <= 0)
                break;
            r->gpus[at] = r->gpus[at - 1];
        }
        r->gpus[at] = gpu;
    }
}

static enum mcp_status check_bus_ids(const struct mcp_hwloc_reader *r)
{
    const struct mcp_node *node = r->node;
    for (int i = 1; i < node->num_gpus; i++)
        if (node->gpus[i].bus_id != NULL &&
            mcp_same(node->gpus[i].bus_id, node->gpus[i - 1].bus_id))
            return mcp_fail(r->err, MCP_INVALID, "%s: lines %d and %d: two GPUs have the bus id %s",
                            r->file, r->gpus[i - 1]->line, r->gpus[i]->line, node->gpus[i].bus_id);
    return MCP_OK;
}

static enum mcp_status fail_many(const struct mcp_hwloc_reader *r)
{
    return mcp_fail(r->err, MCP_FORMAT, "%s: more than %d GPUs and NICs", r->file,
                    MCP_NODE_MAX_DEVICES);
}

enum mcp_status mcp_hwloc_devices(struct mcp_hwloc_reader *r, const struct mcp_xml *machine)
{
    int num_gpus = 0, num_nics = 0;
    r->gpus = MCP_ARRAY(r->arena, MCP_NODE_MAX_DEVICES, const struct mcp_xml *);
    r->nics = MCP_ARRAY(r->arena, MCP_NODE_MAX_DEVICES, const struct mcp_xml *);
    for (const struct mcp_xml *at = machine; at != NULL; at = mcp_xml_next(at, machine)) {
        bool gpu = is_gpu(at), nic = at->parent != NULL && is_nic(r, at);
        if ((gpu || nic) && num_gpus + num_nics == MCP_NODE_MAX_DEVICES)
            return fail_many(r);
        if (gpu)
            r->gpus[num_gpus++] = at;
        else if (nic)
            r->nics[num_nics++] = at;
        r->num_pci_devices += mcp_hwloc_is(at, "PCIDev");
    }
    sort_gpus(r, num_gpus);
    mcp_node_alloc(r->arena, r->node, num_gpus, num_nics);
    for (int i = 0; i < num_gpus; i++)
        fill_gpu(r, i);
    for (int i = 0; i < num_nics; i++)
        fill_nic(r, i);
    return check_bus_ids(r);
}

/* Paths ------------------------------------------------------------------------------- */

static enum mcp_place_kind kind_of(const struct mcp_xml *element)
{
    if (!mcp_hwloc_is(element, "Bridge"))
        return MCP_PLACE_HOST;
    return mcp_starts_with(mcp_hwloc_attribute(element, "bridge_type"), "0-")
               ? MCP_PLACE_HOST_BRIDGE
               : MCP_PLACE_BRIDGE;
}

void mcp_hwloc_paths(struct mcp_hwloc_reader *r)
{
    int devices = mcp_node_devices(r->node);
    const struct mcp_xml **holders = MCP_ARRAY(r->arena, (size_t)devices, const struct mcp_xml *);
    for (int i = 0; i < devices; i++) {
        bool gpu = i < r->node->num_gpus;
        const struct mcp_xml *device = gpu ? r->gpus[i] : r->nics[i - r->node->num_gpus];
        holders[i] = device->parent;
        while (mcp_hwloc_is(holders[i], "PCIDev")) /* of a NIC's OSDev */
            holders[i] = holders[i]->parent;
    }
    mcp_node_link_places(r->node, holders, kind_of);
}

/* NVLinks ------------------------------------------------------------------------------ */

struct matrix {
    int count;
    int devices[MAX_DISTANCES]; /* GPU, or one of the two below */
    int64_t *values;            /* [count, count] */
};
enum { END_SWITCH = -1, END_HOST = -2 };

/* Values of all children of that name, blanks between them. */
static const char *join_texts(struct mcp_arena *arena, const struct mcp_xml *matrix,
                              const char *name)
{
    struct mcp_text text = mcp_text_new(arena);
    const struct mcp_xml *at = mcp_xml_child(matrix, name);
    for (; at != NULL; at = mcp_xml_named(at->next, name))
        mcp_text_add(&text, "%s ", at->text);
    return text.data;
}

/* Number of the GPU whose PCI device, or one of its OSDevs, this is. */
static int gpu_of(const struct mcp_hwloc_reader *r, const struct mcp_xml *object)
{
    for (int i = 0; i < r->node->num_gpus; i++)
        if (object == r->gpus[i] || object->parent == r->gpus[i])
            return i;
    return mcp_hwloc_is(object, "PCIDev") ? END_SWITCH : END_HOST;
}

/* The object that "OSDev:802", or "802" of a matrix of one type, means. */
static const struct mcp_xml *find_object(const struct mcp_xml *root, const char *type,
                                         const char *key, const char *index)
{
    for (const struct mcp_xml *at = root; at != NULL; at = mcp_xml_next(at, root))
        if (mcp_hwloc_is(at, type) && mcp_same(mcp_hwloc_attribute(at, key), index))
            return at;
    return NULL;
}

static enum mcp_status read_ends(const struct mcp_hwloc_reader *r, const struct mcp_xml *root,
                                 const struct mcp_xml *element, struct matrix *m)
{
    const char *rest = join_texts(r->arena, element, "indexes");
    const char *one_type = mcp_xml_attribute(element, "type");
    const char *key =
        mcp_same(mcp_xml_attribute(element, "indexing"), "os") ? "os_index" : "gp_index";
    while (rest[strspn(rest, " ")] != '\0') {
        rest += strspn(rest, " ");
        char *word = mcp_strndup(r->arena, rest, strcspn(rest, " "));
        rest += strlen(word);
        char *colon = strchr(word, ':');
        const char *type = colon == NULL ? one_type : word;
        if (colon != NULL)
            *colon++ = '\0';
        const struct mcp_xml *object =
            type == NULL ? NULL : find_object(root, type, key, colon != NULL ? colon : word);
        if (m->count == MAX_DISTANCES)
            return mcp_fail(r->err, MCP_FORMAT, "%s: line %d: distances of more than %d objects",
                            r->file, element->line, MAX_DISTANCES);
        if (object == NULL)
            return mcp_fail(r->err, MCP_INVALID,
                            "%s: line %d: the distances name %s '%.40s', which is not in the file",
                            r->file, element->line, type != NULL ? type : "an object",
                            mcp_printable(r->arena, colon != NULL ? colon : word));
        m->devices[m->count++] = gpu_of(r, object);
    }
    return MCP_OK;
}

static enum mcp_status read_values(const struct mcp_hwloc_reader *r, const struct mcp_xml *element,
                                   struct matrix *m)
{
    const char *rest = join_texts(r->arena, element, "u64values");
    int want = m->count * m->count, found = 0;
    m->values = MCP_ARRAY(r->arena, want, int64_t);
    for (rest += strspn(rest, " "); *rest != '\0'; rest += strspn(rest, " ")) {
        size_t length = strcspn(rest, " ");
        int64_t value;
        if (found == want || length > 20 ||
            !mcp_parse_int64(mcp_strndup(r->arena, rest, length), &value))
            break;
        m->values[found++] = value;
        rest += length;
    }
    if (found == want && *rest == '\0')
        return MCP_OK;
    return mcp_fail(r->err, MCP_FORMAT, "%s: line %d: %d of %d distances of %d objects are numbers",
                    r->file, element->line, found, want, m->count);
}

/* One link is 25 GB/s from NVLink 2 on, 20 GB/s in NVLink 1, in the file's MB/s. */
static int count_links(int64_t megabytes_per_s)
{
    int64_t links =
        megabytes_per_s % 25000 == 0 ? megabytes_per_s / 25000 : megabytes_per_s / 20000;
    return links < 1 ? 1 : links > 999 ? 999 : (int)links;
}

static bool seen_before(const struct matrix *m, int end)
{
    for (int i = 0; i < end; i++)
        if (m->devices[i] == m->devices[end])
            return true;
    return false;
}

static void take_links(struct mcp_hwloc_reader *r, const struct matrix *m)
{
    for (int i = 0; i < m->count; i++) {
        int gpu = m->devices[i], links_to_switches = 0;
        for (int j = 0; j < m->count && gpu >= 0; j++) {
            int64_t value = m->values[i * m->count + j];
            if (i == j || value <= 0)
                continue;
            if (m->devices[j] == END_SWITCH)
                links_to_switches += count_links(value);
            else if (m->devices[j] >= 0 && m->devices[j] != gpu)
                mcp_node_set_link(r->node, gpu, m->devices[j],
                                  (struct mcp_link){MCP_LINK_NVLINK, count_links(value)});
        }
        if (gpu >= 0 && !seen_before(m, i))
            r->node->gpus[gpu].switch_links = links_to_switches;
        r->node->num_nvlink_switches += m->devices[i] == END_SWITCH;
    }
}

enum mcp_status mcp_hwloc_nvlinks(struct mcp_hwloc_reader *r, const struct mcp_xml *root)
{
    bool found = false;
    for (const struct mcp_xml *at = root->first_child; at != NULL; at = at->next) {
        struct matrix *m;
        if (!mcp_same(mcp_xml_attribute(at, "name"), "NVLinkBandwidth") || found)
            continue;
        found = true;
        m = MCP_NEW(r->arena, struct matrix);
        MCP_TRY(read_ends(r, root, at, m));
        MCP_TRY(read_values(r, at, m));
        take_links(r, m);
        mcp_node_join_switched(r->node);
        if (r->node->num_nvlink_switches > 0)
            mcp_node_note(r->arena, r->node,
                          "%s: the file does not tell how the %d NVSwitches are joined: they are "
                          "taken for one fabric",
                          r->file, r->node->num_nvlink_switches);
    }
    r->node->nvlinks_unknown = !found && r->node->num_gpus > 1;
    return MCP_OK;
}
