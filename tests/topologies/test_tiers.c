/* tests/topologies/test_tiers.c: from links to tiers, and processors as devices. */
#include "topologies/cpuinfo.h"
#include "topologies/detect.h"
#include "topologies/nvidia_smi.h"
#include "topologies/process.h"
#include "topologies/tiers.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

static struct mcp_arena *arena;
static void begin(void)
{
    arena = mcp_arena_new();
}
static void end(void)
{
    mcp_arena_free(arena);
}
TestSuite(tiers, .init = begin, .fini = end);
TestSuite(detect, .init = begin, .fini = end);

struct case_tiers {
    char name[48];
    char gpu[24];
    char cells[8][24]; /* rows of the matrix: a code's letter and count, "-" for self */
    int nodes;
    double network_bytes_per_s;
    int num_tiers;
    struct {
        char name[12];
        int ranks;
        double bandwidth_bytes_per_s;
    } tiers[3];
    char note[40];
};

/* The matrix as nvidia-smi prints it: N is NV#, I PIX, O NODE, S SYS. */
static const char *matrix_of(const struct case_tiers *c)
{
    struct mcp_text text = mcp_text_new(arena);
    int count = 0;
    while (count < 8 && c->cells[count][0] != '\0')
        count++;
    for (int i = 0; i < count; i++)
        mcp_text_add(&text, "\tGPU%d", i);
    for (int i = 0; i < count; i++) {
        mcp_text_add(&text, "\nGPU%d", i);
        for (const char *at = c->cells[i]; *at != '\0'; at += *at == 'N' ? 2 : 1) {
            int bonded = *at != 'N' ? 0 : at[1] >= 'a' ? at[1] - 'a' + 10 : at[1] - '0';
            mcp_text_add(&text, "\t%s",
                         *at == '-'   ? "X"
                         : *at == 'I' ? "PIX"
                         : *at == 'O' ? "NODE"
                         : *at == 'S' ? "SYS"
                                      : mcp_format(arena, "NV%d", bonded));
        }
    }
    return text.data;
}

ParameterizedTestParameters(tiers, found)
{
    static struct case_tiers cases[] = {
        {"switch",
         "h100-sxm-80gb",
         {"-NiNiNi", "Ni-NiNi", "NiNi-Ni", "NiNiNi-"},
         1,
         (double)NAN,
         1,
         {{"nvlink", 4, 450e9}},
         ""},
        {"direct links add up",
         "a100-sxm4-40gb",
         {"-N4N4N4", "N4-N4N4", "N4N4-N4", "N4N4N4-"},
         1,
         (double)NAN,
         1,
         {{"nvlink", 4, 300e9}},
         ""},
        {"bridged pairs",
         "a100-pcie-80gb",
         {"-NcSS", "Nc-SS", "SS-Nc", "SSNc-"},
         1,
         (double)NAN,
         2,
         {{"nvlink", 2, 300e9}, {"smp", 4, 31.5e9}},
         "59 %"},
        {"pairs apart",
         "a100-pcie-80gb",
         {"-SNcS", "S-SNc", "NcS-S", "SNcS-"},
         1,
         (double)NAN,
         2,
         {{"nvlink", 2, 300e9}, {"smp", 4, 31.5e9}},
         "CUDA_VISIBLE_DEVICES=0,2,1,3"},
        {"PCIe alone",
         "a100-pcie-80gb",
         {"-IOO", "I-OO", "OO-I", "OOI-"},
         1,
         (double)NAN,
         2,
         {{"switch", 2, 31.5e9}, {"pcie", 4, 31.5e9}},
         "59 %"},
        {"one PCIe switch",
         "a100-pcie-80gb",
         {"-II", "I-I", "II-"},
         1,
         (double)NAN,
         1,
         {{"pcie", 3, 31.5e9}},
         "59 %"},
        {"bridged pairs, of which two sit on each socket",
         "a100-pcie-80gb",
         {"-NcOOSSSS", "Nc-OOSSSS", "OO-NcSSSS", "OONc-SSSS", "SSSS-NcOO", "SSSSNc-OO", "SSSSOO-Nc",
          "SSSSOONc-"},
         1,
         (double)NAN,
         3,
         {{"nvlink", 2, 300e9}, {"pcie", 4, 31.5e9}, {"smp", 8, 31.5e9}},
         "59 %"},
        {"a ring of NVLinks is not fully joined",
         "v100-sxm3-32gb",
         {"-N2SN2", "N2-N2S", "SN2-N2", "N2SN2-"},
         1,
         (double)NAN,
         1,
         {{"nvlink", 4, 100e9}},
         "not every pair"},
        {"two sockets",
         "a100-pcie-80gb",
         {"-OSS", "O-SS", "SS-O", "SSO-"},
         1,
         (double)NAN,
         2,
         {{"pcie", 2, 31.5e9}, {"smp", 4, 31.5e9}},
         ""},
        {"unequal islands",
         "a100-pcie-80gb",
         {"-NcS", "Nc-S", "SS-"},
         1,
         (double)NAN,
         1,
         {{"smp", 3, 31.5e9}},
         "unequal"},
        {"with a network",
         "h100-sxm-80gb",
         {"-Ni", "Ni-"},
         16,
         50e9,
         2,
         {{"nvlink", 2, 450e9}, {"network", 32, 50e9}},
         ""},
        {"one GPU", "h100-sxm-80gb", {"-"}, 1, (double)NAN, 1, {{"local", 1, 3.35e12}}, ""},
        {"one GPU a node",
         "h100-sxm-80gb",
         {"-"},
         4,
         50e9,
         2,
         {{"local", 1, 3.35e12}, {"network", 4, 50e9}},
         ""},
    };
    return cr_make_param_array(struct case_tiers, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_tiers *c, tiers, found)
{
    struct mcp_error err = {""};
    struct mcp_node node;
    struct mcp_gpu gpu;
    struct mcp_cluster cluster;
    struct mcp_text notes = mcp_text_new(arena);
    const char *text = matrix_of(c);
    cr_assert(eq(int, (int)mcp_gpu_load(arena, c->gpu, &gpu, &err), MCP_OK), "%s", err.text);
    cr_assert(
        eq(int, (int)mcp_nvidia_smi_topo(arena, c->name, text, strlen(text), &node, &err), MCP_OK),
        "%s", err.text);
    struct mcp_node_use use = {"c", &gpu, c->nodes, c->network_bytes_per_s, "test"};
    cr_assert(eq(int, (int)mcp_node_cluster(arena, &node, &use, &cluster, &notes, &err), MCP_OK),
              "%s: %s", c->name, err.text);
    cr_expect(eq(int, (int)mcp_cluster_check(&cluster, &err), MCP_OK), "%s: %s", c->name, err.text);
    cr_assert(eq(int, cluster.num_tiers, c->num_tiers), "%s", c->name);
    for (int k = 0; k < c->num_tiers; k++) {
        cr_expect(eq(str, (char *)cluster.tiers[k].name, c->tiers[k].name), "%s", c->name);
        cr_expect(eq(int, cluster.tiers[k].ranks, c->tiers[k].ranks), "%s", c->name);
        cr_expect(
            eq(dbl, cluster.tiers[k].bandwidth_bytes_per_s, c->tiers[k].bandwidth_bytes_per_s),
            "%s", c->name);
    }
    cr_expect(strstr(notes.data != NULL ? notes.data : "", c->note) != NULL, "%s: %s", c->name,
              notes.data);
}

Test(tiers, what_is_missing_is_said)
{
    static const char cut[] = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPIX\tPIX\n";
    struct mcp_error err = {""};
    struct mcp_node node, none = {0};
    struct mcp_gpu gpu;
    struct mcp_cluster cluster;
    struct mcp_text notes = mcp_text_new(arena);
    cr_assert(eq(int, (int)mcp_gpu_load(arena, "h100-sxm-80gb", &gpu, &err), MCP_OK));
    struct mcp_node_use use = {"c", &gpu, 1, (double)NAN, "test"};
    cr_assert(eq(int, (int)mcp_nvidia_smi_topo(arena, "t", cut, strlen(cut), &node, &err), MCP_OK));
    cr_expect(
        eq(int, (int)mcp_node_cluster(arena, &node, &use, &cluster, &notes, &err), MCP_INVALID));
    cr_expect(strstr(err.text, "1 of 3 pairs") != NULL, "%s", err.text);
    cr_expect(
        eq(int, (int)mcp_node_cluster(arena, &none, &use, &cluster, &notes, &err), MCP_INVALID));
    cr_expect(strstr(err.text, "no GPUs") != NULL, "%s", err.text);
    node.num_gpus = 1;
    node.num_nics = 0;
    use.num_nodes = 2;
    cr_expect(
        eq(int, (int)mcp_node_cluster(arena, &node, &use, &cluster, &notes, &err), MCP_INVALID));
    cr_expect(strstr(err.text, "bandwidth of the network") != NULL, "%s", err.text);
    use.network_bytes_per_s = 0;
    cr_expect(ne(int, (int)mcp_node_cluster(arena, &node, &use, &cluster, &notes, &err), MCP_OK));
    use.network_bytes_per_s = 1e30;
    cr_expect(ne(int, (int)mcp_node_cluster(arena, &node, &use, &cluster, &notes, &err), MCP_OK));
    cr_expect(strstr(err.text, "1e+30 bytes/s") != NULL, "%s", err.text);
    use.num_nodes = 1;
    use.network_bytes_per_s = (double)NAN;
    cr_assert(eq(int, (int)mcp_node_cluster(arena, &node, &use, &cluster, &notes, &err), MCP_OK));
    cr_expect(eq(int, (int)mcp_cluster_resize(&cluster, 2, &err), MCP_INVALID),
              "a GPU alone has nothing to reach another node");
}

struct case_cpu {
    char text[160];
    int flops_per_cycle;
    double clock_hz;
    char model[16];
};
ParameterizedTestParameters(detect, cpuinfo)
{
    static struct case_cpu cases[] = {
        {"model name\t: CPU A\ncpu MHz\t\t: 2445.4\nflags\t\t: fpu sse2 avx fma avx2\n", 32,
         2445.4e6, "CPU A"},
        {"model name\t: CPU B\ncpu MHz\t\t: 1000\n\nmodel name\t: X\ncpu MHz\t\t: 2000\n"
         "flags\t\t: avx2 fma avx512f\n",
         64, 2e9, "CPU B"},
        {"flags\t\t: sse2 avx avx2\n", 16, 0, ""}, /* AVX2 without FMA counts as AVX */
        {"flags : sse2 avx512fp16 xavx\n", 8, 0, ""},
        {"Features\t: fp asimd sve\n", 16, 0, ""},
        {"cpu MHz : fast\nflags\nnothing", 0, 0, ""},
        {"", 0, 0, ""},
    };
    return cr_make_param_array(struct case_cpu, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_cpu *c, detect, cpuinfo)
{
    struct mcp_cpuinfo cpu = mcp_cpuinfo_parse(arena, c->text);
    cr_expect(eq(int, cpu.flops_per_cycle, c->flops_per_cycle), "%s", c->text);
    cr_expect(epsilon_eq(dbl, cpu.clock_hz, c->clock_hz, 1));
    cr_expect(eq(str, (char *)(cpu.model != NULL ? cpu.model : ""), c->model));
}

Test(detect, a_package_is_a_device)
{
    struct mcp_host_package packages[2] = {{24, 1, (int64_t)64 << 30}, {24, 1, (int64_t)64 << 30}};
    struct mcp_host host = {.num_packages = 2, .packages = packages};
    struct mcp_error err = {""};
    struct mcp_gpu gpu;
    host.memory_bytes = (int64_t)128 << 30;
    cr_assert(
        eq(int, (int)mcp_cpu_device(arena, &host, "flags : avx2 fma\n", 3e9, &gpu, &err), MCP_OK),
        "%s", err.text);
    cr_expect(eq(dbl, gpu.peak_flops_per_s[MCP_PRECISION_FP32], 24 * 3e9 * 32));
    cr_expect(isnan(gpu.peak_flops_per_s[MCP_PRECISION_BF16]));
    cr_expect(eq(i64, gpu.memory_bytes, (int64_t)64 << 30));
    cr_expect(eq(int, gpu.num_multiprocessors, 24));
    cr_expect(epsilon_eq(dbl, gpu.memory_bandwidth_bytes_per_s, 16 * 15e9, 1));
    cr_expect(strstr(gpu.source, "assumed") != NULL, "%s", gpu.source);
}

Test(detect, this_machine_is_a_cluster_that_can_be_planned_for)
{
    struct mcp_error err = {""};
    struct mcp_cluster cluster;
    cr_assert(eq(int, (int)mcp_cluster_detect(arena, &cluster, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(int, (int)mcp_cluster_check(&cluster, &err), MCP_OK), "%s", err.text);
    cr_expect(mcp_cluster_gpus(&cluster) >= 1);
}

static enum mcp_status run(const char *const *argv, double limit_s, struct mcp_process *out,
                           struct mcp_error *err)
{
    return mcp_process_run(arena, argv, limit_s, out, err);
}

Test(detect, programs_are_run_without_a_shell)
{
    static const char *const echo[] = {"printf", "%s", "$HOME;`id`", NULL};
    static const char *const fails[] = {"false", NULL};
    static const char *const missing[] = {"mcpplan-no-such-program", NULL};
    struct mcp_error err = {""};
    struct mcp_process out;
    cr_assert(eq(int, (int)run(echo, 60, &out, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(str, out.output.data, "$HOME;`id`"));
    cr_expect(eq(int, out.exit_code, 0));
    cr_assert(eq(int, (int)run(fails, 60, &out, &err), MCP_OK));
    cr_expect(out.found && out.exit_code == 1);
    cr_assert(eq(int, (int)run(missing, 60, &out, &err), MCP_OK));
    cr_expect(not(out.found));
}

Test(detect, a_program_that_hangs_is_ended)
{
    static const char *const hangs[] = {"sleep", "600", NULL};
    struct mcp_error err = {""};
    struct mcp_process out;
    cr_expect(eq(int, (int)run(hangs, 0.05, &out, &err), MCP_RUN_FAILURE));
    cr_expect(strstr(err.text, "sleep: gave no complete answer within 0.05 s") != NULL, "%s",
              err.text);
}
