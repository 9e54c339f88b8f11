/* topologies/hwloc.c: this machine through hwloc, the only door to it. */
#include "topologies/hwloc.h"

#include "core/text.h"

#include <hwloc.h>

static void destroy(void *topology)
{
    hwloc_topology_destroy(topology);
}

static int count_of(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_by_type(topology, type);
    return count > 0 ? count : 0;
}

static int64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
    return cache == NULL ? 0 : (int64_t)cache->attr->cache.size;
}

/* Processors and memory within a package. NUMA nodes without processors are kinds
 * of memory of another one. */
static struct mcp_host_package read_package(hwloc_topology_t topology, hwloc_obj_t package)
{
    struct mcp_host_package out = {0};
    hwloc_obj_t node = NULL;
    out.num_cores =
        hwloc_get_nbobjs_inside_cpuset_by_type(topology, package->cpuset, HWLOC_OBJ_CORE);
    if (out.num_cores <= 0)
        out.num_cores =
            hwloc_get_nbobjs_inside_cpuset_by_type(topology, package->cpuset, HWLOC_OBJ_PU);
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (!hwloc_bitmap_intersects(node->cpuset, package->cpuset))
            continue;
        out.num_numa_nodes++;
        out.memory_bytes += (int64_t)node->attr->numanode.local_memory;
    }
    return out;
}

static void read_packages(struct mcp_arena *arena, hwloc_topology_t topology, struct mcp_host *host)
{
    int count = count_of(topology, HWLOC_OBJ_PACKAGE);
    host->num_packages = count > 0 ? count : 1;
    host->packages = MCP_ARRAY(arena, host->num_packages, struct mcp_host_package);
    for (int i = 0; i < count; i++)
        host->packages[i] =
            read_package(topology, hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, (unsigned)i));
    if (count == 0) /* some virtual machines hide packages */
        host->packages[0] = read_package(topology, hwloc_get_root_obj(topology));
}

/* The NUMA node whose processors are next to the device, if it is one. */
static int numa_of(hwloc_topology_t topology, hwloc_obj_t device)
{
    hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, device);
    hwloc_obj_t node = NULL;
    int found = -1;
    while (place != NULL &&
           (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (!hwloc_bitmap_intersects(node->cpuset, place->cpuset))
            continue;
        if (found >= 0)
            return -1;
        found = (int)node->os_index;
    }
    return found;
}

static bool has_verbs(hwloc_obj_t pci_device)
{
    if (pci_device == NULL)
        return false;
    for (hwloc_obj_t child = pci_device->io_first_child; child != NULL; child = child->next_sibling)
        if (child->type == HWLOC_OBJ_OS_DEVICE &&
            child->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
            return true;
    return false;
}

/* 3D controllers, accelerators, and displays of makers of GPUs (servers have small
 * display chips of other makers). */
static bool is_gpu(hwloc_obj_t device)
{
    unsigned vendor = device->attr->pcidev.vendor_id;
    switch (device->attr->pcidev.class_id) {
    case 0x0302:
    case 0x1200:
        return true;
    case 0x0300:
        return vendor == 0x10de || vendor == 0x1002;
    default:
        return false;
    }
}

/* A NIC goes by its verbs name (mlx5_0) where it has one. */
static bool device_kind(hwloc_obj_t device, enum mcp_host_device_kind *kind)
{
    if (device->type == HWLOC_OBJ_OS_DEVICE) {
        *kind = MCP_HOST_NIC;
        return device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS ||
               (device->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK && !has_verbs(device->parent));
    }
    *kind = MCP_HOST_GPU;
    return device->type == HWLOC_OBJ_PCI_DEVICE && is_gpu(device);
}

static void add_device(struct mcp_arena *arena, hwloc_topology_t topology, hwloc_obj_t object,
                       struct mcp_host *host, size_t *capacity)
{
    enum mcp_host_device_kind kind;
    const char *model = hwloc_obj_get_info_by_name(object, "PCIDevice");
    if (!device_kind(object, &kind))
        return;
    host->devices = (struct mcp_host_device *)mcp_grow(
        arena, host->devices, (size_t)host->num_devices, capacity, sizeof *host->devices);
    const char *name = object->name != NULL ? object->name : "unknown";
    host->devices[host->num_devices++] = (struct mcp_host_device){
        kind,
        mcp_strdup(arena, kind == MCP_HOST_GPU && model != NULL ? model : name),
        numa_of(topology, object),
    };
}

static void read_devices(struct mcp_arena *arena, hwloc_topology_t topology, struct mcp_host *host)
{
    size_t capacity = 0;
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_pcidev(topology, object)) != NULL)
        add_device(arena, topology, object, host, &capacity);
    while ((object = hwloc_get_next_osdev(topology, object)) != NULL)
        add_device(arena, topology, object, host, &capacity);
}

static const char *cpu_model(hwloc_topology_t topology)
{
    hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    const char *name = package == NULL ? NULL : hwloc_obj_get_info_by_name(package, "CPUModel");
    return name != NULL ? name
                        : hwloc_obj_get_info_by_name(hwloc_get_root_obj(topology), "CPUModel");
}

/* The kernel's files tell all we want; these would load drivers and libraries. */
static void keep_to_kernel(hwloc_topology_t topology)
{
    static const char *const unwanted[] = {"pci",  "opencl", "gl",       "cuda",
                                           "nvml", "rsmi",   "levelzero"};
    for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
        hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      unwanted[i]);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
}

static void read_totals(hwloc_topology_t topology, struct mcp_host *host)
{
    static const hwloc_obj_type_t caches[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE,
                                              HWLOC_OBJ_L3CACHE};
    host->num_numa_nodes = count_of(topology, HWLOC_OBJ_NUMANODE);
    host->num_hardware_threads = count_of(topology, HWLOC_OBJ_PU);
    host->num_cores = count_of(topology, HWLOC_OBJ_CORE);
    if (host->num_cores == 0)
        host->num_cores = host->num_hardware_threads;
    host->memory_bytes = (int64_t)hwloc_get_root_obj(topology)->total_memory;
    for (int i = 0; i < 3; i++)
        host->cache_bytes[i] = cache_bytes(topology, caches[i]);
}

static enum mcp_status open_topology(struct mcp_arena *arena, bool devices, hwloc_topology_t *out,
                                     struct mcp_error *err)
{
    if (hwloc_topology_init(out) != 0)
        return mcp_fail(err, MCP_IO, "hwloc cannot start on this machine");
    mcp_defer(arena, destroy, *out);
    keep_to_kernel(*out);
    if (!devices)
        hwloc_topology_set_io_types_filter(*out, HWLOC_TYPE_FILTER_KEEP_NONE);
    return hwloc_topology_load(*out) == 0 ? MCP_OK
                                          : mcp_fail(err, MCP_IO, "hwloc cannot read this machine");
}

enum mcp_status mcp_host_read(struct mcp_arena *arena, struct mcp_host *out, struct mcp_error *err)
{
    hwloc_topology_t topology;
    struct mcp_host host = {0};
    MCP_TRY(open_topology(arena, true, &topology, err));
    const char *model = cpu_model(topology);
    host.cpu = model == NULL ? NULL : mcp_strdup(arena, model);
    read_totals(topology, &host);
    read_packages(arena, topology, &host);
    read_devices(arena, topology, &host);
    if (host.num_cores < 1 || host.memory_bytes < 1)
        return mcp_fail(err, MCP_IO, "hwloc finds no processors or no memory on this machine");
    *out = host;
    return MCP_OK;
}

/* --- cores --- */

/* Some virtual machines hide cores behind hardware threads. */
static hwloc_obj_type_t core_type(hwloc_topology_t topology)
{
    return count_of(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

enum mcp_status mcp_host_cores(struct mcp_arena *arena, struct mcp_host_cores *out,
                               struct mcp_error *err)
{
    hwloc_topology_t topology;
    MCP_TRY(open_topology(arena, false, &topology, err));
    const hwloc_obj_type_t type = core_type(topology);
    const int all = count_of(topology, type);
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    const bool bound = hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0;
    *out = (struct mcp_host_cores){0, MCP_ARRAY(arena, all, int), topology};
    for (int i = 0; i < all; i++)
        if (!bound || hwloc_bitmap_intersects(
                          hwloc_get_obj_by_type(topology, type, (unsigned)i)->cpuset, allowed))
            out->numbers[out->count++] = i;
    hwloc_bitmap_free(allowed);
    return out->count > 0 ? MCP_OK
                          : mcp_fail(err, MCP_IO, "hwloc finds no core that this process may use");
}

enum mcp_status mcp_host_bind(const struct mcp_host_cores *cores, int first, int count,
                              struct mcp_error *err)
{
    hwloc_topology_t topology = (hwloc_topology_t)cores->topology;
    hwloc_bitmap_t set = hwloc_bitmap_alloc(), allowed = hwloc_bitmap_alloc();
    for (int i = first; i < first + count; i++) {
        const unsigned number = (unsigned)cores->numbers[i];
        hwloc_bitmap_or(set, set,
                        hwloc_get_obj_by_type(topology, core_type(topology), number)->cpuset);
    }
    if (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0)
        hwloc_bitmap_and(set, set, allowed);
    const bool done = hwloc_set_cpubind(topology, set, HWLOC_CPUBIND_PROCESS) == 0;
    hwloc_bitmap_free(set);
    hwloc_bitmap_free(allowed);
    return done ? MCP_OK
                : mcp_fail(err, MCP_IO, "the operating system lets no process be bound to cores");
}

/* The processors of `near` that this process may use; false: none, or all that it may use. */
static bool is_part(hwloc_topology_t topology, hwloc_bitmap_t near)
{
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    bool smaller = true;
    if (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0) {
        hwloc_bitmap_and(near, near, allowed);
        smaller = !hwloc_bitmap_isequal(near, allowed);
    }
    hwloc_bitmap_free(allowed);
    return smaller && !hwloc_bitmap_iszero(near);
}

enum mcp_status mcp_host_bind_beside(struct mcp_arena *arena, const char *pci_address,
                                     struct mcp_error *err)
{
    hwloc_topology_t topology;
    MCP_TRY(open_topology(arena, true, &topology, err));
    hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology, pci_address);
    if (device == NULL)
        return mcp_fail(err, MCP_IO, "hwloc finds no PCI device %s on this machine", pci_address);
    hwloc_bitmap_t near = hwloc_bitmap_dup(hwloc_get_non_io_ancestor_obj(topology, device)->cpuset);
    const bool part = is_part(topology, near);
    const bool done = part && hwloc_set_cpubind(topology, near, HWLOC_CPUBIND_PROCESS) == 0;
    hwloc_bitmap_free(near);
    if (done)
        return MCP_OK;
    if (part)
        return mcp_fail(err, MCP_IO, "the operating system lets no process be bound to cores");
    return mcp_fail(err, MCP_IO, "PCI device %s is as near to all cores that this process may use",
                    pci_address);
}

const char *mcp_host_cores_text(struct mcp_arena *arena, const struct mcp_host_cores *cores,
                                int first, int count)
{
    struct mcp_text text = mcp_text_new(arena);
    const int *at = cores->numbers + first, *end = at + count;
    while (at < end) {
        const int *last = at;
        while (last + 1 < end && last[1] == last[0] + 1)
            last++;
        mcp_text_add(&text, "%s%d", text.length > 0 ? "," : "", *at);
        if (last > at)
            mcp_text_add(&text, "-%d", *last);
        at = last + 1;
    }
    return text.data;
}

void mcp_host_to_json(const struct mcp_host *host, struct mcp_json *object)
{
    static const char *const cache_names[] = {"l1_bytes", "l2_bytes", "l3_bytes"};
    mcp_json_set_string(object, "cpu", host->cpu);
    mcp_json_set_int(object, "num_packages", host->num_packages);
    mcp_json_set_int(object, "num_numa_nodes", host->num_numa_nodes);
    mcp_json_set_int(object, "num_cores", host->num_cores);
    mcp_json_set_int(object, "num_hardware_threads", host->num_hardware_threads);
    mcp_json_set_int(object, "memory_bytes", host->memory_bytes);
    for (int i = 0; i < 3; i++) {
        if (host->cache_bytes[i] > 0)
            mcp_json_set_int(object, cache_names[i], host->cache_bytes[i]);
        else
            mcp_json_set_null(object, cache_names[i]);
    }
}
