/* topologies/detect.c: the machine that runs us, as a node and as a cluster. */
#include "topologies/detect.h"

#include "core/preset.h"
#include "core/units.h"
#include "topologies/cpuinfo.h"
#include "topologies/dump.h"
#include "topologies/nvml.h"
#include "topologies/process.h"
#include "topologies/tiers.h"

#include <math.h>
#include <string.h>

#define NVIDIA_SMI_LIMIT_S 60 /* it may first have to wake the driver */
#define MAX_SYSTEM_FILE_BYTES ((size_t)16 << 20)
/* Memory channels do not grow with cores for ever: a package is assumed to have
 * the bandwidth of so many of the preset's cores at most. */
#define MOST_CORES_THAT_ADD_BANDWIDTH 16

static enum mcp_status run_smi(struct mcp_arena *arena, const char *const *argv,
                               struct mcp_process *out, const char **note, struct mcp_error *err)
{
    MCP_TRY(mcp_process_run(arena, argv, NVIDIA_SMI_LIMIT_S, out, err));
    if (!out->found || out->exit_code == 0)
        return MCP_OK;
    size_t length = strcspn(out->output.data, "\n");
    const char *first = mcp_strndup(arena, out->output.data, length < 200 ? length : 200);
    *note = mcp_format(arena, "nvidia-smi fails with exit code %d: %s", out->exit_code,
                       mcp_printable(arena, first));
    return MCP_OK;
}

/* GPUs as the driver's library tells, else nvidia-smi. */
static enum mcp_status list_gpus(struct mcp_arena *arena, struct mcp_machine *machine,
                                 struct mcp_dump *dump, bool *found, struct mcp_error *err)
{
    static const char *const query[] = {
        "nvidia-smi", "--query-gpu=index,name,uuid,pci.bus_id,memory.total", "--format=csv", NULL};
    struct mcp_process run;
    *dump = (struct mcp_dump){.name = "NVML", .kind = MCP_DUMP_NVML};
    MCP_TRY(mcp_nvml_read(arena, MCP_NVML_LIBRARY, &dump->node, found, &machine->note, err));
    if (*found)
        return MCP_OK;
    MCP_TRY(run_smi(arena, query, &run, &machine->note, err));
    *found = run.found && run.exit_code == 0;
    if (!*found)
        return MCP_OK;
    return mcp_dump_parse(arena, "nvidia-smi --query-gpu", run.output.data, run.output.length, dump,
                          err);
}

/* GPUs, and what only nvidia-smi tells: links to NICs. */
static enum mcp_status detect_gpus(struct mcp_arena *arena, struct mcp_machine *machine,
                                   struct mcp_error *err)
{
    static const char *const topo[] = {"nvidia-smi", "topo", "-m", NULL};
    struct mcp_process run;
    struct mcp_dump dumps[2];
    int count = 1;
    bool found;
    MCP_TRY(list_gpus(arena, machine, &dumps[0], &found, err));
    if (!found)
        return MCP_OK;
    MCP_TRY(run_smi(arena, topo, &run, &machine->note, err));
    if (run.found && run.exit_code == 0)
        MCP_TRY(mcp_dump_parse(arena, "nvidia-smi topo -m", run.output.data, run.output.length,
                               &dumps[count++], err));
    return mcp_dumps_merge(arena, dumps, count, &machine->node, err);
}

/* Without nvidia-smi the NICs are hwloc's, and links are unknown. */
static void take_host_nics(struct mcp_arena *arena, struct mcp_machine *machine)
{
    const struct mcp_host *host = &machine->host;
    int num_nics = 0, nic = 0;
    if (mcp_node_devices(&machine->node) > 0)
        return;
    for (int i = 0; i < host->num_devices; i++)
        num_nics += host->devices[i].kind == MCP_HOST_NIC;
    mcp_node_alloc(arena, &machine->node, 0, num_nics);
    for (int i = 0; i < host->num_devices; i++) {
        if (host->devices[i].kind != MCP_HOST_NIC)
            continue;
        machine->node.nics[nic] = mcp_node_nic_unknown(host->devices[i].name);
        machine->node.nics[nic++].numa_node = host->devices[i].numa_node;
    }
}

enum mcp_status mcp_machine_detect(struct mcp_arena *arena, struct mcp_machine *out,
                                   struct mcp_error *err)
{
    struct mcp_machine machine = {.note = ""};
    MCP_TRY(mcp_host_read(arena, &machine.host, err));
    MCP_TRY(detect_gpus(arena, &machine, err));
    take_host_nics(arena, &machine);
    *out = machine;
    return MCP_OK;
}

enum mcp_status mcp_cpu_device(struct mcp_arena *arena, const struct mcp_host *host,
                               const char *cpuinfo, double max_clock_hz, struct mcp_gpu *out,
                               struct mcp_error *err)
{
    const struct mcp_host_package *package = &host->packages[0];
    struct mcp_cpuinfo cpu = mcp_cpuinfo_parse(arena, cpuinfo);
    struct mcp_gpu gpu;
    MCP_TRY(mcp_gpu_load(arena, "cpu", &gpu, err));
    double per_core = 1.0 / gpu.num_multiprocessors, cores = package->num_cores;
    double clock_hz = max_clock_hz > 0 ? max_clock_hz : cpu.clock_hz;
    double *peak = &gpu.peak_flops_per_s[MCP_PRECISION_FP32];
    const char *rate = "assumed";
    *peak *= per_core * cores;
    if (clock_hz > 0 && cpu.flops_per_cycle > 0) {
        *peak = cores * clock_hz * cpu.flops_per_cycle;
        rate = mcp_format(arena, "%.2f GHz x %d operations a cycle (%s)", clock_hz / 1e9,
                          cpu.flops_per_cycle, cpu.vectors);
    }
    gpu.memory_bandwidth_bytes_per_s *= per_core * fmin(cores, MOST_CORES_THAT_ADD_BANDWIDTH);
    gpu.num_multiprocessors = package->num_cores;
    gpu.memory_bytes =
        package->memory_bytes > 0 ? package->memory_bytes : host->memory_bytes / host->num_packages;
    gpu.name = "cpu";
    gpu.source = mcp_format(arena,
                            "%s, %d cores: rate %s; memory bandwidth and efficiencies are "
                            "assumed as for the preset cpu, not measured",
                            cpu.model != NULL ? mcp_printable(arena, cpu.model) : "this machine",
                            package->num_cores, rate);
    *out = gpu;
    return mcp_gpu_check(out, err);
}

/* A number in a file of the system, 0 where there is none. */
static double system_number(struct mcp_arena *arena, const char *path)
{
    struct mcp_text text;
    double value;
    if (mcp_file_read(arena, path, MAX_SYSTEM_FILE_BYTES, &text, NULL) != MCP_OK)
        return 0;
    text.data[strcspn(text.data, "\n")] = '\0';
    return mcp_parse_double(text.data, &value) ? value : 0;
}

static enum mcp_status cpu_cluster(struct mcp_arena *arena, const struct mcp_host *host,
                                   struct mcp_cluster *out, struct mcp_text *notes,
                                   struct mcp_error *err)
{
    struct mcp_text cpuinfo;
    struct mcp_cluster cluster = {.name = "this", .num_nodes = 1, .num_tiers = 1};
    (void)mcp_file_read(arena, "/proc/cpuinfo", MAX_SYSTEM_FILE_BYTES, &cpuinfo, NULL);
    double max_clock_hz =
        1e3 * system_number(arena, "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
    MCP_TRY(mcp_cpu_device(arena, host, cpuinfo.data, max_clock_hz, &cluster.gpu, err));
    cluster.gpus_per_node = host->num_packages;
    cluster.source = "detected on the machine that ran mcpplan";
    /* A message is a copy: it is read once and written once. */
    cluster.tiers[0] = (struct mcp_tier){
        .name = "memory",
        .full_ranks = host->num_packages,
        .bandwidth_bytes_per_s = cluster.gpu.memory_bandwidth_bytes_per_s / 2,
        .efficiency_frac = 1,
        .latency_s = 1e-6,
    };
    mcp_text_add(notes, "no GPU: the device is %s\n", cluster.gpu.source);
    MCP_TRY(mcp_cluster_resize(&cluster, 1, err));
    *out = cluster;
    return mcp_cluster_check(out, err);
}

/* The one preset of all GPUs of the machine. */
static enum mcp_status find_preset(struct mcp_arena *arena, const struct mcp_node *node,
                                   const char **preset, struct mcp_error *err)
{
    const char *product = node->gpus[0].name;
    for (int i = 1; i < node->num_gpus; i++)
        if (!mcp_same(node->gpus[i].name, product))
            return mcp_fail(err, MCP_INVALID,
                            "GPU%d is '%s' and GPU%d is '%s': one kind of GPU per cluster",
                            node->gpus[0].index, product, node->gpus[i].index, node->gpus[i].name);
    *preset = mcp_gpu_preset(arena, product);
    if (*preset == NULL)
        return mcp_fail(err, MCP_INVALID,
                        "no preset for GPU '%s'; write its data into a file and name it with "
                        "`mcpplan topo --gpu FILE -o cluster.json`",
                        mcp_printable(arena, product));
    return MCP_OK;
}

enum mcp_status mcp_machine_cluster(struct mcp_arena *arena, const struct mcp_machine *machine,
                                    struct mcp_cluster *out, struct mcp_text *notes,
                                    struct mcp_error *err)
{
    const struct mcp_node *node = &machine->node;
    const char *preset = NULL;
    struct mcp_gpu gpu;
    if (machine->note[0] != '\0')
        mcp_text_add(notes, "%s\n", machine->note);
    if (node->num_gpus == 0)
        return cpu_cluster(arena, &machine->host, out, notes, err);
    MCP_TRY(find_preset(arena, node, &preset, err));
    MCP_TRY(mcp_gpu_load(arena, preset, &gpu, err));
    if (node->gpus[0].memory_bytes > 0)
        gpu.memory_bytes = node->gpus[0].memory_bytes;
    struct mcp_node_use use = {"this", &gpu, 1, (double)NAN,
                               "detected on the machine that ran mcpplan"};
    MCP_TRY(mcp_node_cluster(arena, node, &use, out, notes, err));
    return mcp_cluster_check(out, err);
}

enum mcp_status mcp_cluster_detect(struct mcp_arena *arena, struct mcp_cluster *out,
                                   struct mcp_error *err)
{
    struct mcp_machine machine;
    struct mcp_text notes = mcp_text_new(arena);
    MCP_TRY(mcp_machine_detect(arena, &machine, err));
    return mcp_machine_cluster(arena, &machine, out, &notes, err);
}
