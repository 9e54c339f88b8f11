/* topologies/hwloc_xml.c: hwloc's XML, formats 1, 2 and 3. */
#include "topologies/hwloc_xml.h"

#include "topologies/hwloc_xml_parts.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

#define MAX_NUMA_NODES 1024
#define MAX_SET_LENGTH 4096 /* of a set of NUMA nodes */

/* Sets of processors and NUMA nodes -------------------------------------------- */

/* Value of a hexadecimal digit. */
static unsigned digit_value(char c)
{
    return (unsigned)(isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10);
}

/* Bit `bit` of a set "0x00000001,,0x0000ff": words of 32 bits, the highest first; an
 * empty word is zero. */
static bool set_has(const char *set, int bit)
{
    const char *end = set + strlen(set);
    for (int word = bit / 32; word > 0; word--) {
        while (end > set && end[-1] != ',')
            end--;
        if (end == set)
            return false;
        end--;
    }
    for (int digit = bit % 32 / 4; digit > 0 && end > set && isxdigit((unsigned char)end[-1]);
         digit--)
        end--;
    return end > set && isxdigit((unsigned char)end[-1]) &&
           (digit_value(end[-1]) >> (bit % 4) & 1) != 0;
}

static bool set_is_empty(const char *set)
{
    for (const char *at = set; at != NULL && *at != '\0'; at++)
        if (*at != '0' && *at != 'x' && *at != ',')
            return false;
    return true;
}

/* Objects ------------------------------------------------------------------------ */

const char *mcp_hwloc_attribute(const struct mcp_xml *object, const char *name)
{
    const char *value = mcp_xml_attribute(object, name);
    return value == NULL ? "" : value;
}

bool mcp_hwloc_is(const struct mcp_xml *element, const char *type)
{
    return mcp_same(element->name, "object") &&
           mcp_same(mcp_hwloc_attribute(element, "type"), type);
}

const char *mcp_hwloc_info(const struct mcp_xml *object, const char *name)
{
    const struct mcp_xml *info = mcp_xml_child(object, "info");
    for (; info != NULL; info = mcp_xml_named(info->next, "info"))
        if (mcp_same(mcp_xml_attribute(info, "name"), name))
            return mcp_xml_attribute(info, "value");
    return NULL;
}

static bool is_package(const struct mcp_xml *object)
{
    return mcp_hwloc_is(object, "Package") || mcp_hwloc_is(object, "Socket"); /* before 1.11 */
}

static bool is_io(const struct mcp_xml *object)
{
    return mcp_hwloc_is(object, "Bridge") || mcp_hwloc_is(object, "PCIDev") ||
           mcp_hwloc_is(object, "OSDev") || mcp_hwloc_is(object, "Misc");
}

/* Processors and memory ------------------------------------------------------------ */

static int number_of(const struct mcp_xml *object, const char *name, int unknown)
{
    int64_t number;
    if (!mcp_parse_int64(mcp_hwloc_attribute(object, name), &number) || number < 0 ||
        number > 1000000)
        return unknown;
    return (int)number;
}

/* The package that holds the object, or that it holds (in format 1). */
static int package_of(const struct mcp_hwloc_reader *r, const struct mcp_xml *object)
{
    const struct mcp_xml *up = object;
    assert(object != NULL);
    while (up != NULL && !is_package(up))
        up = up->parent;
    if (up == NULL && mcp_hwloc_is(object, "NUMANode"))
        up = object->first_child;
    while (up != NULL && !is_package(up))
        up = up->next;
    for (int i = 0; up != NULL && i < r->num_packages; i++)
        if (r->packages[i] == up)
            return i;
    return -1;
}

static void add_package(struct mcp_hwloc_reader *r, const struct mcp_xml *package)
{
    r->packages =
        (const struct mcp_xml **)mcp_grow(r->arena, (void *)r->packages, (size_t)r->num_packages,
                                          &r->package_capacity, sizeof(const struct mcp_xml *));
    r->packages[r->num_packages++] = package;
    if (r->node->cpu == NULL)
        r->node->cpu = mcp_hwloc_info(package, "CPUModel");
}

static void add_numa(struct mcp_hwloc_reader *r, const struct mcp_xml *object)
{
    struct mcp_node *node = r->node;
    struct mcp_node_numa numa = {.id = number_of(object, "os_index", -1), .package = -1};
    const char *set = mcp_hwloc_attribute(object, "cpuset");
    if (node->num_numa_nodes == MAX_NUMA_NODES) {
        r->num_numas_left_out++;
        return;
    }
    (void)mcp_parse_int64(mcp_hwloc_attribute(object, "local_memory"), &numa.memory_bytes);
    numa.memory_bytes = numa.memory_bytes < 0 ? 0 : numa.memory_bytes;
    numa.kind = mcp_xml_attribute(object, "subtype");
    numa.cpu_set = set_is_empty(set) ? -1 : node->num_numa_nodes;
    for (int i = 0; i < node->num_numa_nodes && numa.cpu_set >= 0; i++)
        if (mcp_same(mcp_hwloc_attribute(r->numas[i], "cpuset"), set)) {
            numa.cpu_set = node->numa_nodes[i].cpu_set;
            break;
        }
    node->numa_nodes =
        (struct mcp_node_numa *)mcp_grow(r->arena, node->numa_nodes, (size_t)node->num_numa_nodes,
                                         &r->numa_capacity, sizeof *node->numa_nodes);
    r->numas[node->num_numa_nodes] = object;
    node->numa_nodes[node->num_numa_nodes++] = numa;
}

static void place_numas(struct mcp_hwloc_reader *r)
{
    for (int i = 0; i < r->node->num_numa_nodes; i++)
        r->node->numa_nodes[i].package = package_of(r, r->numas[i]);
}

/* The NUMA node next to what hangs on `host`: the only one of its nodeset, or the
 * first of those that have the same processors. */
int mcp_hwloc_numa(const struct mcp_hwloc_reader *r, const struct mcp_xml *host)
{
    const struct mcp_node *node = r->node;
    const char *set = mcp_hwloc_attribute(host, "nodeset");
    int found = -1;
    if (strlen(set) > MAX_SET_LENGTH)
        return -1;
    if (node->num_numa_nodes == 1)
        return node->numa_nodes[0].id;
    for (int i = 0; i < node->num_numa_nodes; i++) {
        const struct mcp_node_numa *numa = &node->numa_nodes[i];
        if (numa->id < 0 || numa->id >= MAX_NUMA_NODES || !set_has(set, numa->id))
            continue;
        if (found >= 0 && node->numa_nodes[found].cpu_set != numa->cpu_set)
            return -1;
        found = found < 0 ? i : found;
    }
    return found < 0 ? -1 : node->numa_nodes[found].id;
}

/* The part of the machine that a device hangs on. */
const struct mcp_xml *mcp_hwloc_host(const struct mcp_xml *device)
{
    const struct mcp_xml *up = device;
    while (up->parent != NULL && is_io(up))
        up = up->parent;
    return up;
}

static void count_object(struct mcp_hwloc_reader *r, const struct mcp_xml *object)
{
    if (is_package(object))
        add_package(r, object);
    else if (mcp_hwloc_is(object, "NUMANode"))
        add_numa(r, object);
    else if (mcp_hwloc_is(object, "Core"))
        r->node->num_cores++;
    else if (mcp_hwloc_is(object, "PU"))
        r->node->num_hardware_threads++;
}

static void read_host(struct mcp_hwloc_reader *r, const struct mcp_xml *root)
{
    for (const struct mcp_xml *at = root; at != NULL; at = mcp_xml_next(at, root))
        count_object(r, at);
    place_numas(r);
    r->node->num_packages = r->num_packages;
    if (r->node->cpu == NULL)
        r->node->cpu = mcp_hwloc_info(mcp_xml_child(root, "object"), "CPUModel");
}

static void note_what_is_missing(struct mcp_hwloc_reader *r)
{
    struct mcp_node *node = r->node;
    if (r->num_numas_left_out > 0)
        mcp_node_note(r->arena, node, "%s: %d NUMA nodes beyond the first %d are left out", r->file,
                      r->num_numas_left_out, MAX_NUMA_NODES);
    if (node->num_gpus > 0 && !node->nvlinks_unknown)
        return;
    if (node->num_gpus > 0)
        mcp_node_note(r->arena, node,
                      "%s: hwloc's file tells the PCI paths of the GPUs, but not whether NVLinks "
                      "join them; add `nvidia-smi topo -m`",
                      r->file);
    else if (r->num_pci_devices == 0)
        mcp_node_note(r->arena, node,
                      "%s: the file has no PCI devices (lstopo left I/O out), so GPUs and NICs of "
                      "the machine are unknown; write it with `lstopo --of xml --whole-io`",
                      r->file);
    else
        mcp_node_note(r->arena, node, "%s: none of the %d PCI devices is a GPU", r->file,
                      r->num_pci_devices);
}

enum mcp_status mcp_hwloc_xml(struct mcp_arena *arena, const char *name, const struct mcp_xml *root,
                              struct mcp_node *out, struct mcp_error *err)
{
    struct mcp_node node = {0};
    struct mcp_hwloc_reader r = {.arena = arena, .err = err, .file = name, .node = &node};
    const struct mcp_xml *machine = mcp_xml_child(root, "object");
    if (machine == NULL)
        return mcp_fail(err, MCP_FORMAT, "%s: <topology> holds no <object>, expected a machine",
                        name);
    r.kinds_add_up = mcp_starts_with(mcp_hwloc_attribute(root, "version"), "3");
    r.numas = MCP_ARRAY(arena, MAX_NUMA_NODES, const struct mcp_xml *);
    read_host(&r, root);
    MCP_TRY(mcp_hwloc_devices(&r, machine));
    MCP_TRY(mcp_hwloc_nvlinks(&r, root));
    mcp_hwloc_paths(&r);
    for (int i = 0; i < node.num_gpus; i++)
        node.gpus[i].package = package_of(&r, mcp_hwloc_host(r.gpus[i]));
    for (int i = 0; i < node.num_nics; i++)
        node.nics[i].package = package_of(&r, mcp_hwloc_host(r.nics[i]));
    note_what_is_missing(&r);
    *out = node;
    return MCP_OK;
}
