/* tests/topologies/test_traps.c: mistakes that other tools made with such descriptions,
 * each with the answer that is right. */
#include "topologies/dump.h"
#include "topologies/tiers.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
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
TestSuite(traps, .init = begin, .fini = end);

static struct mcp_node read_node(const char *text)
{
    struct mcp_error err = {""};
    struct mcp_dump dump;
    cr_assert(eq(int, (int)mcp_dump_parse(arena, "dump", text, strlen(text), &dump, &err), MCP_OK),
              "%s", err.text);
    return dump.node;
}

static bool noted(const struct mcp_node *node, const char *what)
{
    return node->notes != NULL && strstr(node->notes, what) != NULL;
}

/* NCCL stopped at a <cpu> without arch, of a socket that no GPU uses. */
Test(traps, a_cpu_without_arch_is_read)
{
    struct mcp_node node =
        read_node("<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\">"
                  "<pci busid=\"0000:01:00.0\" class=\"0x030200\"/></cpu><cpu numaid=\"1\"/>"
                  "<cpu numaid=\"2\"/></system>");
    cr_expect(eq(int, node.num_gpus, 1));
    cr_expect(eq(int, node.num_numa_nodes, 3));
    cr_expect(noted(&node, "a <cpu> has no arch"), "%s", node.notes);
    cr_expect(eq(ptr, (void *)strstr(strstr(node.notes, "no arch") + 1, "no arch"), NULL));
}

/* "Unknown NUMA node", written -1, was taken for a node of another machine. */
Test(traps, an_unknown_numa_node_is_of_this_machine)
{
    static const char *const unknown[] = {"-1", "65535"};
    for (size_t i = 0; i < MCP_COUNT_OF(unknown); i++) {
        struct mcp_node node = read_node(mcp_format(
            arena,
            "<system version=\"1\"><cpu numaid=\"%s\"><pci busid=\"0000:01:00.0\" "
            "class=\"0x030200\"><gpu dev=\"0\" sm=\"89\" rank=\"0\"/></pci>"
            "<pci busid=\"0000:02:00.0\" class=\"0x030200\"><gpu dev=\"1\" sm=\"89\"/></pci></cpu>"
            "<cpu numaid=\"0\"><pci busid=\"0000:03:00.0\" class=\"0x020000\"><nic>"
            "<net name=\"mlx5_0\" dev=\"0\" speed=\"100000\"/></nic></pci></cpu></system>",
            unknown[i]));
        cr_assert(node.num_gpus == 2 && node.num_nics == 1);
        cr_expect(eq(int, node.gpus[0].numa_node, -1));
        cr_expect(eq(int, node.nics[0].numa_node, 0));
        cr_expect(eq(int, mcp_node_unknown_links(&node), 3));
        cr_expect(noted(&node, "of this machine all the same"), "%s", node.notes);
    }
}

/* In a virtual machine the switch has no name, and the PCIe rate is a claim. */
Test(traps, a_virtual_machine_hides_its_switch)
{
    static const char gpu[] =
        "<pci busid=\"0000:%02d:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
        "link_width=\"16\"><gpu dev=\"%d\" sm=\"90\" rank=\"%d\" gdr=\"1\"><nvlink "
        "target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>";
    struct mcp_text text = mcp_text_new(arena);
    struct mcp_error err = {""};
    struct mcp_dump dump;
    mcp_text_add(&text, "<system version=\"1\">\n<cpu numaid=\"-1\" arch=\"x86_64\">\n");
    for (int i = 0; i < 3; i++)
        mcp_text_add(&text, gpu, i + 1, i, i);
    const char *cut = mcp_strdup(arena, text.data);
    mcp_text_add(&text, "</cpu></system>");
    struct mcp_node node = read_node(text.data);
    cr_expect(noted(&node, "unnamed switch (18 links of GPU0)"), "%s", node.notes);
    cr_expect(noted(&node, "what that machine claims: PCIe 4"), "%s", node.notes);
    cr_expect(eq(int, mcp_node_link(&node, 0, 2)->count, 18));
    cr_expect(
        eq(int, (int)mcp_dump_parse(arena, "vm.xml", cut, strlen(cut), &dump, &err), MCP_FORMAT));
    cr_expect(strstr(err.text, "vm.xml: line 3, column ") != NULL &&
                  strstr(err.text, "3 GPUs, 0 NICs, 18 NVLinks a GPU to a switch") != NULL &&
                  strstr(err.text, "the NUMA node of a <cpu> is unknown") != NULL &&
                  strstr(err.text, "an unnamed switch (18 links of GPU0)") != NULL,
              "%s", err.text);
}

/* Custom all-reduce ran on bridged pairs, as only the state of a link was asked. */
Test(traps, bridged_pairs_are_not_fully_joined)
{
    struct mcp_node node = read_node("\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\t X \tNV12\tSYS\tSYS\n"
                                     "GPU1\tNV12\t X \tSYS\tSYS\nGPU2\tSYS\tSYS\t X \tNV12\n"
                                     "GPU3\tSYS\tSYS\tNV12\t X \n");
    int island[4];
    cr_expect(not(mcp_node_fully_joined(&node, (int[]){0, 1, 2, 3}, 4)));
    cr_expect(mcp_node_fully_joined(&node, (int[]){0, 1}, 2));
    cr_expect(eq(int, mcp_node_islands(&node, MCP_LINK_NVLINK, island), 2));
}

/* GPUs behind switches seemed unconnected, as the far end of each link is a switch. */
Test(traps, a_switch_joins_all_of_its_gpus)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add(&text, "<system version=\"1\"><cpu numaid=\"0\">");
    for (int i = 0; i < 8; i++)
        mcp_text_add(
            &text,
            "<pci busid=\"0000:%02d:00.0\" class=\"0x030200\"><gpu dev=\"%d\" sm=\"90\">"
            "<nvlink target=\"0000:a0:00.0\" count=\"10\" tclass=\"0x068000\"/>"
            "<nvlink target=\"0000:a1:00.0\" count=\"8\" tclass=\"0x068000\"/></gpu></pci>",
            i + 1, i);
    mcp_text_add(&text, "</cpu></system>");
    struct mcp_node node = read_node(text.data);
    int pairs = 0, island[8];
    for (int a = 0; a < 8; a++)
        for (int b = a + 1; b < 8; b++)
            pairs += mcp_node_link(&node, a, b)->kind == MCP_LINK_NVLINK &&
                     mcp_node_link(&node, a, b)->count == 18;
    cr_expect(eq(int, pairs, 28));
    cr_expect(eq(int, node.num_nvlink_switches, 2));
    cr_expect(eq(int, mcp_node_islands(&node, MCP_LINK_NVLINK, island), 1));
}

/* Every pair read SYS, so an allocator saw no difference between the sockets. */
Test(traps, affinity_tells_sockets_where_links_do_not)
{
    struct mcp_text text = mcp_text_new(arena);
    struct mcp_error err = {""};
    struct mcp_gpu gpu;
    struct mcp_cluster cluster;
    struct mcp_text notes = mcp_text_new(arena);
    int island[8];
    for (int i = 0; i < 8; i++)
        mcp_text_add(&text, "\tGPU%d", i);
    mcp_text_add(&text, "\tCPU Affinity\tNUMA Affinity");
    for (int i = 0; i < 8; i++) {
        mcp_text_add(&text, "\nGPU%d", i);
        for (int j = 0; j < 8; j++)
            mcp_text_add(&text, "\t%s", i == j ? " X " : "SYS");
        mcp_text_add(&text, "\t%s\t%d", i < 4 ? "0-31" : "32-63", i / 4);
    }
    struct mcp_node node = read_node(text.data);
    cr_expect(eq(int, mcp_node_sockets(&node, island), 2));
    cr_expect(eq(int, island[3], 0));
    cr_expect(eq(int, island[4], 4));
    cr_assert(eq(int, (int)mcp_gpu_load(arena, "a100-pcie-80gb", &gpu, &err), MCP_OK));
    struct mcp_node_use use = {"c", &gpu, 1, (double)NAN, "test"};
    cr_assert(eq(int, (int)mcp_node_cluster(arena, &node, &use, &cluster, &notes, &err), MCP_OK),
              "%s", err.text);
    cr_assert(eq(int, cluster.num_tiers, 2));
    cr_expect(eq(int, cluster.tiers[0].ranks, 4));
    cr_expect(strstr(notes.data, "sockets are told by the GPUs' NUMA nodes") != NULL, "%s",
              notes.data);
}

/* Kinds of memory were counted as sockets. */
Test(traps, kinds_of_memory_are_not_sockets)
{
    struct mcp_node node = read_node(
        "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x3\" nodeset=\"0xf\">"
        "<object type=\"Package\" os_index=\"0\" cpuset=\"0x3\" nodeset=\"0xf\">"
        "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" nodeset=\"0x1\" "
        "subtype=\"DRAM\" local_memory=\"1024\"/><object type=\"NUMANode\" os_index=\"2\" "
        "cpuset=\"0x1\" nodeset=\"0x4\" subtype=\"HBM\" local_memory=\"2048\"/>"
        "<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x2\" nodeset=\"0x2\"/>"
        "<object type=\"NUMANode\" os_index=\"3\" cpuset=\"0x0\" nodeset=\"0x8\"/>"
        "<object type=\"Core\" cpuset=\"0x1\" nodeset=\"0x5\"><object type=\"PU\" cpuset=\"0x1\"/>"
        "<object type=\"Bridge\" bridge_type=\"0-1\"><object type=\"PCIDev\" "
        "pci_busid=\"0000:01:00.0\" pci_type=\"0302 [10de:2330] [0:0] a1\"/></object></object>"
        "</object></object></topology>");
    cr_expect(eq(int, node.num_packages, 1));
    cr_assert(eq(int, node.num_numa_nodes, 4));
    cr_expect(eq(int, node.numa_nodes[1].cpu_set, node.numa_nodes[0].cpu_set));
    cr_expect(ne(int, node.numa_nodes[2].cpu_set, node.numa_nodes[0].cpu_set));
    cr_expect(eq(int, node.numa_nodes[3].cpu_set, -1));
    cr_expect(eq(int, node.gpus[0].numa_node, 0)); /* DRAM and HBM of the same processors */
    cr_expect(eq(int, node.gpus[0].package, 0));
}

/* A virtual machine without distances stopped a tool. */
Test(traps, missing_distances_are_no_error)
{
    struct mcp_node node = read_node(
        "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x3\" nodeset=\"0x3\">"
        "<object type=\"Package\" cpuset=\"0x1\" nodeset=\"0x1\"><object type=\"NUMANode\" "
        "os_index=\"0\" cpuset=\"0x1\" nodeset=\"0x1\"/><object type=\"PCIDev\" "
        "pci_busid=\"0000:01:00.0\" pci_type=\"0302 [10de:2330]\"/></object>"
        "<object type=\"Package\" cpuset=\"0x2\" nodeset=\"0x2\"><object type=\"NUMANode\" "
        "os_index=\"1\" cpuset=\"0x2\" nodeset=\"0x2\"/><object type=\"PCIDev\" "
        "pci_busid=\"0000:02:00.0\" pci_type=\"0302 [10de:2330]\"/></object></object></topology>");
    struct mcp_error err = {""};
    struct mcp_gpu gpu;
    struct mcp_cluster cluster;
    struct mcp_text notes = mcp_text_new(arena);
    cr_expect(eq(int, node.num_packages, 2));
    cr_expect(eq(int, (int)mcp_node_link(&node, 0, 1)->kind, MCP_LINK_SYS));
    cr_expect(node.nvlinks_unknown && noted(&node, "not whether NVLinks join them"), "%s",
              node.notes);
    cr_assert(eq(int, (int)mcp_gpu_load(arena, "h100-sxm-80gb", &gpu, &err), MCP_OK));
    struct mcp_node_use use = {"c", &gpu, 1, (double)NAN, "test"};
    cr_expect(
        eq(int, (int)mcp_node_cluster(arena, &node, &use, &cluster, &notes, &err), MCP_INVALID));
    cr_expect(strstr(err.text, "not the NVLinks that GPU h100-sxm-80gb has") != NULL, "%s",
              err.text);
}

/* A cut row was skipped, and the GPUs behind it were numbered anew. */
Test(traps, a_cut_row_of_a_query_is_named)
{
    static const char text[] = "index, name, memory.total [MiB]\n0, NVIDIA L4, 23034 MiB\n"
                               "1, NVIDIA L4\n2, NVIDIA L4, 23034 MiB\n";
    struct mcp_error err = {""};
    struct mcp_dump dump;
    cr_expect(
        eq(int, (int)mcp_dump_parse(arena, "q.csv", text, strlen(text), &dump, &err), MCP_FORMAT));
    cr_expect(strstr(err.text, "line 3: 2 cells, expected 3") != NULL &&
                  strstr(err.text, "(row 2)") != NULL,
              "%s", err.text);
}

/* Columns moved between versions of the driver. */
Test(traps, columns_are_found_by_name)
{
    static const char bare[] = "0, NVIDIA L4, 23034 MiB\n";
    struct mcp_error err = {""};
    struct mcp_dump dump;
    struct mcp_node one = read_node("name, index, memory.total [MiB]\nNVIDIA L4, 0, 23034 MiB\n");
    struct mcp_node two =
        read_node("timestamp, utilization.jpeg [%], memory.total [MiB], power.limit [W], "
                  "clocks.max.sm [MHz], name, pcie.link.gen.max\n"
                  "2026/01/01 00:00:00.000, 0 %, 23034 MiB, 72.00 W, 2040 MHz, NVIDIA L4, 4\n");
    cr_expect(eq(i64, one.gpus[0].memory_bytes, two.gpus[0].memory_bytes));
    cr_expect(eq(str, (char *)one.gpus[0].name, (char *)two.gpus[0].name));
    cr_expect(eq(dbl, two.gpus[0].clock_hz, 2040e6));
    cr_expect(eq(dbl, two.gpus[0].power_limit_watts, 72));
    cr_expect(eq(int, two.gpus[0].pcie_generation, 4));
    cr_expect(
        eq(int, (int)mcp_dump_parse(arena, "q.csv", bare, strlen(bare), &dump, &err), MCP_FORMAT));
    cr_expect(strstr(err.text, "no header that names the fields") != NULL, "%s", err.text);
}

/* Nodes beyond a limit of ours were dropped in silence. */
Test(traps, numa_nodes_left_out_are_told)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add(&text, "<topology version=\"2.0\"><object type=\"Machine\">");
    for (int i = 0; i < 1027; i++)
        mcp_text_add(&text, "<object type=\"NUMANode\" os_index=\"%d\"/>", i);
    mcp_text_add(&text, "</object></topology>");
    struct mcp_node node = read_node(text.data);
    cr_expect(eq(int, node.num_numa_nodes, 1024));
    cr_expect(noted(&node, "3 NUMA nodes beyond the first 1024 are left out"), "%s", node.notes);
}
