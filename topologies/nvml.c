/* topologies/nvml.c: this machine's NVIDIA GPUs through NVML, opened at run time. */
#include "topologies/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* NVML's interface, as far as we call it: functions give 0 for success. */
#define NVML_TEXT_LENGTH 96
#define NVML_MOST_LINKS 64
#define NVML_MOST_NUMA_WORDS 16
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2 };
enum { NVML_REMOTE_GPU = 0, NVML_REMOTE_SWITCH = 2 };

struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *text, unsigned length);
    int (*count)(unsigned *count);
    int (*handle)(unsigned index, void **device);
    int (*name)(void *device, char *text, unsigned length);
    int (*uuid)(void *device, char *text, unsigned length);
    int (*pci)(void *device, struct nvml_pci *pci);
    int (*memory)(void *device, struct nvml_memory *memory);
    int (*max_clock)(void *device, int kind, unsigned *megahertz);
    int (*power_limit)(void *device, unsigned *milliwatts);
    int (*pcie_generation)(void *device, unsigned *generation);
    int (*pcie_width)(void *device, unsigned *width);
    int (*memory_affinity)(void *device, unsigned words, unsigned long *nodes, int scope);
    int (*common_ancestor)(void *a, void *b, int *level);
    int (*link_state)(void *device, unsigned link, int *active);
    int (*link_pci)(void *device, unsigned link, struct nvml_pci *pci);
    int (*link_type)(void *device, unsigned link, int *type);
    int (*mig_count)(void *device, unsigned *count);
    int (*mig_handle)(void *device, unsigned index, void **mig);
};

struct entry {
    const char *name;
    size_t offset; /* in struct nvml */
    bool required;
};
#define ENTRY(field, name, required)                                                               \
    {                                                                                              \
        name, offsetof(struct nvml, field), required                                               \
    }
static const struct entry entries[] = {
    ENTRY(init, "nvmlInit_v2", true),
    ENTRY(shutdown, "nvmlShutdown", true),
    ENTRY(driver_version, "nvmlSystemGetDriverVersion", false),
    ENTRY(count, "nvmlDeviceGetCount_v2", true),
    ENTRY(handle, "nvmlDeviceGetHandleByIndex_v2", true),
    ENTRY(name, "nvmlDeviceGetName", false),
    ENTRY(uuid, "nvmlDeviceGetUUID", false),
    ENTRY(pci, "nvmlDeviceGetPciInfo_v3", false),
    ENTRY(memory, "nvmlDeviceGetMemoryInfo", false),
    ENTRY(max_clock, "nvmlDeviceGetMaxClockInfo", false),
    ENTRY(power_limit, "nvmlDeviceGetPowerManagementLimit", false),
    ENTRY(pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration", false),
    ENTRY(pcie_width, "nvmlDeviceGetMaxPcieLinkWidth", false),
    ENTRY(memory_affinity, "nvmlDeviceGetMemoryAffinity", false),
    ENTRY(common_ancestor, "nvmlDeviceGetTopologyCommonAncestor", false),
    ENTRY(link_state, "nvmlDeviceGetNvLinkState", false),
    ENTRY(link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2", false),
    ENTRY(link_type, "nvmlDeviceGetNvLinkRemoteDeviceType", false),
    ENTRY(mig_count, "nvmlDeviceGetMaxMigDeviceCount", false),
    ENTRY(mig_handle, "nvmlDeviceGetMigDeviceHandleByIndex", false),
};

/* Finds the functions; the name of a required one that is missing, NULL: none. */
static const char *find_functions(void *library, struct nvml *nvml)
{
    for (size_t i = 0; i < MCP_COUNT_OF(entries); i++) {
        void *function = dlsym(library, entries[i].name);
        if (function == NULL && entries[i].required)
            return entries[i].name;
        /* C has no conversion from dlsym's pointer to a function's; POSIX copies it. */
        memcpy((char *)nvml + entries[i].offset, &function, sizeof function);
    }
    return NULL;
}

struct reader {
    struct mcp_arena *arena;
    struct nvml nvml;
    struct mcp_node *node;
    void **devices; /* [num_gpus] */
};

/* GPUs ---------------------------------------------------------------------------- */

static const char *read_text(const struct reader *r,
                             int (*function)(void *device, char *text, unsigned length),
                             void *device)
{
    char text[NVML_TEXT_LENGTH] = "";
    if (function == NULL || function(device, text, sizeof text) != 0 || text[0] == '\0')
        return NULL;
    text[sizeof text - 1] = '\0';
    return mcp_strdup(r->arena, text);
}

static int read_number(int (*function)(void *device, unsigned *value), void *device)
{
    unsigned value = 0;
    if (function == NULL || function(device, &value) != 0 || value > 1000000000)
        return 0;
    return (int)value;
}

static double read_clock(const struct reader *r, int kind, void *device)
{
    unsigned megahertz = 0;
    if (r->nvml.max_clock == NULL || r->nvml.max_clock(device, kind, &megahertz) != 0)
        return 0;
    return 1e6 * megahertz;
}

/* The lowest NUMA node next to the GPU. */
static int read_numa(const struct reader *r, void *device)
{
    unsigned long nodes[NVML_MOST_NUMA_WORDS] = {0};
    int bits = (int)(8 * sizeof nodes[0]);
    if (r->nvml.memory_affinity == NULL ||
        r->nvml.memory_affinity(device, NVML_MOST_NUMA_WORDS, nodes, 0) != 0)
        return -1;
    for (int i = 0; i < NVML_MOST_NUMA_WORDS * bits; i++)
        if ((nodes[i / bits] >> (i % bits) & 1) != 0)
            return i;
    return -1;
}

static const char *read_bus_id(const struct reader *r, void *device)
{
    struct nvml_pci pci = {{0}, 0, 0, 0, 0, 0, {0}};
    if (r->nvml.pci == NULL || r->nvml.pci(device, &pci) != 0)
        return NULL;
    pci.bus_id[sizeof pci.bus_id - 1] = '\0';
    return mcp_bus_id(r->arena, pci.bus_id);
}

/* "NVIDIA H100 80GB HBM3 MIG 1g.10gb" ends with the profile. */
static void read_migs(const struct reader *r, void *device, struct mcp_node_gpu *gpu)
{
    unsigned most = 0;
    if (r->nvml.mig_count == NULL || r->nvml.mig_handle == NULL ||
        r->nvml.mig_count(device, &most) != 0 || most == 0 || most > 64)
        return;
    gpu->migs = MCP_ARRAY(r->arena, most, struct mcp_node_mig);
    for (unsigned i = 0; i < most; i++) {
        void *mig = NULL;
        if (r->nvml.mig_handle(device, i, &mig) != 0)
            continue;
        const char *name = read_text(r, r->nvml.name, mig);
        const char *profile = name == NULL ? NULL : strstr(name, "MIG ");
        gpu->migs[gpu->num_migs++] = (struct mcp_node_mig){
            .profile = profile == NULL ? name : profile + strlen("MIG "),
            .index = (int)i,
            .uuid = read_text(r, r->nvml.uuid, mig),
        };
    }
}

static void read_gpu(const struct reader *r, int index)
{
    void *device = r->devices[index];
    struct mcp_node_gpu *gpu = &r->node->gpus[index];
    struct nvml_memory memory = {0, 0, 0};
    gpu->name = read_text(r, r->nvml.name, device);
    gpu->uuid = read_text(r, r->nvml.uuid, device);
    gpu->bus_id = read_bus_id(r, device);
    if (r->nvml.memory != NULL && r->nvml.memory(device, &memory) == 0 && memory.total < 1ULL << 60)
        gpu->memory_bytes = (int64_t)(memory.total >> 20 << 20); /* whole MiB, as nvidia-smi */
    gpu->clock_hz = read_clock(r, NVML_CLOCK_SM, device);
    gpu->memory_clock_hz = read_clock(r, NVML_CLOCK_MEMORY, device);
    gpu->power_limit_watts = read_number(r->nvml.power_limit, device) / 1e3;
    gpu->pcie_generation = read_number(r->nvml.pcie_generation, device);
    gpu->pcie_width = read_number(r->nvml.pcie_width, device);
    gpu->numa_node = read_numa(r, device);
    read_migs(r, device, gpu);
}

/* Links ---------------------------------------------------------------------------- */

static int find_gpu(const struct mcp_node *node, const char *bus_id)
{
    for (int i = 0; i < node->num_gpus; i++)
        if (bus_id != NULL && mcp_same(node->gpus[i].bus_id, bus_id))
            return i;
    return -1;
}

static void read_nvlink(const struct reader *r, int gpu, unsigned link)
{
    struct nvml_pci pci = {{0}, 0, 0, 0, 0, 0, {0}};
    int type = NVML_REMOTE_GPU;
    void *device = r->devices[gpu];
    if (r->nvml.link_type != NULL)
        (void)r->nvml.link_type(device, link, &type);
    if (type == NVML_REMOTE_SWITCH) {
        r->node->gpus[gpu].switch_links++;
        return;
    }
    if (r->nvml.link_pci == NULL || r->nvml.link_pci(device, link, &pci) != 0) {
        mcp_node_note(r->arena, r->node,
                      "NVML does not say where NVLink %u of GPU %d leads: left out", link, gpu);
        return;
    }
    pci.bus_id[sizeof pci.bus_id - 1] = '\0';
    int peer = find_gpu(r->node, mcp_bus_id(r->arena, pci.bus_id));
    if (peer <= gpu) /* the lower of the two tells */
        return;
    struct mcp_link known = *mcp_node_link(r->node, gpu, peer);
    int count = known.kind == MCP_LINK_NVLINK ? known.count + 1 : 1;
    mcp_node_set_link(r->node, gpu, peer, (struct mcp_link){MCP_LINK_NVLINK, count});
}

static void read_nvlinks(const struct reader *r, int gpu)
{
    for (unsigned link = 0; link < NVML_MOST_LINKS && r->nvml.link_state != NULL; link++) {
        int active = 0;
        if (r->nvml.link_state(r->devices[gpu], link, &active) != 0)
            return;
        if (active != 0)
            read_nvlink(r, gpu, link);
    }
}

/* NVML counts levels by tens, from one board to another socket. */
static enum mcp_link_kind path_kind(int level)
{
    if (level < 0 || level > 50)
        return MCP_LINK_UNKNOWN;
    if (level <= 10)
        return MCP_LINK_PIX;
    return level <= 20   ? MCP_LINK_PXB
           : level <= 30 ? MCP_LINK_PHB
           : level <= 40 ? MCP_LINK_NODE
                         : MCP_LINK_SYS;
}

static void read_paths(const struct reader *r)
{
    struct mcp_node *node = r->node;
    for (int a = 0; a < node->num_gpus && r->nvml.common_ancestor != NULL; a++)
        for (int b = a + 1; b < node->num_gpus; b++) {
            int level = -1;
            if (mcp_node_link(node, a, b)->kind != MCP_LINK_UNKNOWN ||
                r->nvml.common_ancestor(r->devices[a], r->devices[b], &level) != 0)
                continue;
            enum mcp_link_kind kind = path_kind(level);
            mcp_node_set_link(node, a, b,
                              (struct mcp_link){kind, kind == MCP_LINK_UNKNOWN ? 0 : 1});
        }
}

/* The whole ------------------------------------------------------------------------- */

static enum mcp_status read_gpus(struct reader *r, unsigned count, struct mcp_error *err)
{
    mcp_node_alloc(r->arena, r->node, (int)count, 0);
    r->devices = MCP_ARRAY(r->arena, count, void *);
    for (unsigned i = 0; i < count; i++) {
        int code = r->nvml.handle(i, &r->devices[i]);
        if (code != 0)
            return mcp_fail(err, MCP_RUN_FAILURE, "NVML does not open GPU%u (code %d)", i, code);
        read_gpu(r, (int)i);
    }
    for (unsigned i = 0; i < count; i++)
        read_nvlinks(r, (int)i);
    mcp_node_join_switched(r->node);
    read_paths(r);
    r->node->nvlinks_unknown = r->nvml.link_state == NULL && count > 1;
    char version[NVML_TEXT_LENGTH] = "";
    if (r->nvml.driver_version != NULL && r->nvml.driver_version(version, sizeof version) == 0)
        r->node->driver = mcp_strndup(r->arena, version, strnlen(version, sizeof version));
    return MCP_OK;
}

static enum mcp_status read_library(struct reader *r, bool *found, const char **note,
                                    struct mcp_error *err)
{
    unsigned count = 0;
    int code = r->nvml.init();
    if (code != 0) {
        *note = mcp_format(r->arena, "NVML does not start (code %d)", code);
        return MCP_OK;
    }
    enum mcp_status status = MCP_OK;
    if (r->nvml.count(&count) == 0 && count > 0 && count <= MCP_NODE_MAX_DEVICES) {
        status = read_gpus(r, count, err);
        *found = true;
    }
    (void)r->nvml.shutdown();
    return status;
}

enum mcp_status mcp_nvml_read(struct mcp_arena *arena, const char *library, struct mcp_node *out,
                              bool *found, const char **note, struct mcp_error *err)
{
    struct mcp_node node = {0};
    struct reader r = {.arena = arena, .node = &node};
    enum mcp_status status = MCP_OK;
    *found = false;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return MCP_OK;
    const char *missing = find_functions(handle, &r.nvml);
    if (missing != NULL)
        *note = mcp_format(arena, "%s lacks %s: the driver is too old", library, missing);
    else
        status = read_library(&r, found, note, err);
    dlclose(handle);
    if (*found && status == MCP_OK)
        *out = node;
    return status;
}
