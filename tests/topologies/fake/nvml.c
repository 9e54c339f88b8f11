/* tests/topologies/fake/nvml.c: a stand-in for NVML: four GPUs, two pairs of them joined
 * by four NVLinks each, or all by a switch where FAKE_NVML says so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define NUM_GPUS 4
#define NUM_LINKS 4
enum { INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9 };

struct pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};
struct memory {
    unsigned long long total, free, used;
};

static int gpus[NUM_GPUS], mig;

static int is(const char *word)
{
    const char *mode = getenv("FAKE_NVML");
    return mode != NULL && strcmp(mode, word) == 0;
}

static int number_of(const void *device)
{
    return (int)((const int *)device - gpus);
}

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned length);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
EXPORT int nvmlDeviceGetName(void *device, char *text, unsigned length);
EXPORT int nvmlDeviceGetUUID(void *device, char *text, unsigned length);
EXPORT int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
EXPORT int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *megahertz);
EXPORT int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *milliwatts);
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *generation);
EXPORT int nvmlDeviceGetMemoryAffinity(void *device, unsigned words, unsigned long *nodes,
                                       int scope);
EXPORT int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level);
EXPORT int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active);
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *pci);
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type);
EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count);
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **out);

int nvmlInit_v2(void)
{
    return is("dead") ? DRIVER_NOT_LOADED : 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned length)
{
    snprintf(text, length, "535.104.05");
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = is("none") ? 0 : NUM_GPUS;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    if (index >= NUM_GPUS || (is("lost") && index == 2))
        return INVALID_ARGUMENT;
    *device = &gpus[index];
    return 0;
}

int nvmlDeviceGetName(void *device, char *text, unsigned length)
{
    snprintf(text, length, "NVIDIA A100-SXM4-40GB%s", device == &mig ? " MIG 1g.5gb" : "");
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned length)
{
    snprintf(text, length, device == &mig ? "MIG-7" : "GPU-%d", number_of(device) + 1);
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci)
{
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:0%d:00.0", number_of(device) + 1);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    (void)device;
    memory->total = (40960ULL << 20) + 1000;
    return 0;
}

int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *megahertz)
{
    (void)device;
    *megahertz = kind == 1 ? 1410 : 1215;
    return 0;
}

int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 400000;
    return 0;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *generation)
{
    (void)device;
    *generation = 4;
    return 0;
}

int nvmlDeviceGetMemoryAffinity(void *device, unsigned words, unsigned long *nodes, int scope)
{
    (void)scope;
    memset(nodes, 0, words * sizeof *nodes);
    nodes[0] = 1UL << (number_of(device) / 2);
    return 0;
}

int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level)
{
    *level = number_of(a) / 2 == number_of(b) / 2 ? 40 : 50;
    return 0;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active)
{
    (void)device;
    *active = 1;
    return link < NUM_LINKS ? 0 : INVALID_ARGUMENT;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *pci)
{
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:0%d:00.0", (number_of(device) ^ 1) + 1);
    return is("vague") && link == 3 ? NOT_SUPPORTED : 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type)
{
    (void)device;
    (void)link;
    *type = is("switch") ? 2 : 0;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count)
{
    *count = device == &gpus[3] ? 7 : 0;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **out)
{
    (void)device;
    *out = &mig;
    return index == 2 ? 0 : NOT_SUPPORTED;
}
