/* tests/topologies/test_dump.c: files known by their content, and several about one
 * machine. */
#include "topologies/dump.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
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
TestSuite(dump, .init = begin, .fini = end);
TestSuite(merge, .init = begin, .fini = end);

static enum mcp_status parse(const char *name, const char *text, struct mcp_dump *dump,
                             struct mcp_error *err)
{
    return mcp_dump_parse(arena, name, text, strlen(text), dump, err);
}

/* One line of each thing that the tools print. ------------------------------------- */

struct case_known {
    char name[40];
    char text[900];
    enum mcp_dump_kind kind;
    int gpus, nics;
    char gpu[40]; /* the last one's name; "": unknown */
    char bus_id[16];
    char link[12]; /* of the first two devices; "": one device */
};
ParameterizedTestParameters(dump, known)
{
    static struct case_known cases[] = {
        {"a matrix", "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n", MCP_DUMP_SMI_TOPO, 2, 0, "",
         "", "NV4"},
        {"a matrix below prose", "name of the host: a\n GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X\n",
         MCP_DUMP_SMI_TOPO, 2, 0, "", "", "SYS"},
        {"a matrix as a table of Markdown",
         "|      | GPU0 | GPU1 | CPU Affinity | NUMA Affinity |\n|---|:-:|:-:|---|---|\n"
         "| GPU0 |  X   | PHB  | 0-3 | 0 |\n| GPU1 | PHB  |  X   |  | 1 |\n",
         MCP_DUMP_SMI_TOPO, 2, 0, "", "", "PHB"},
        {"a matrix in a fence and a quote",
         "Here it is:\n> ```\n>       GPU0  NIC0\n> GPU0   X    PIX\n> NIC0  PIX    X\n> ```\n",
         MCP_DUMP_SMI_TOPO, 1, 1, "", "", "PIX"},
        {"rows on one line",
         "GPU0 GPU1 CPU Affinity NUMA Affinity GPU0 X NV12 0-15 0 GPU1 NV12 X 16-31 1 Legend: X "
         "= Self",
         MCP_DUMP_SMI_TOPO, 2, 0, "", "", "NV12"},
        {"cells without blanks",
         "\tGPU0\tGPU1\tGPU2\nGPU0 XNV12SYS\nGPU1 NV12X SYS\nGPU2 SYSSYS X\n", MCP_DUMP_SMI_TOPO, 3,
         0, "", "", "NV12"},
        {"a list", "GPU 0: Tesla T4 (UUID: GPU-1)\r\nGPU 1: Tesla T4 (UUID: GPU-2)\r\n",
         MCP_DUMP_SMI_LIST, 2, 0, "Tesla T4", "", "unknown"},
        {"a list with MIG devices",
         "GPU 0: NVIDIA A30 (UUID: GPU-1)\n  MIG 2g.12gb     Device  0: (UUID: MIG-1)\n"
         "  MIG 2g.12gb     Device  1: (UUID: MIG-2)\n",
         MCP_DUMP_SMI_LIST, 1, 0, "NVIDIA A30", "", ""},
        {"a query", "name, pci.bus_id\nNVIDIA L4, 00000000:3B:00.0\n", MCP_DUMP_SMI_CSV, 1, 0,
         "NVIDIA L4", "0000:3b:00.0", ""},
        {"one column, no units", "memory.total [MiB]\n23034\n", MCP_DUMP_SMI_CSV, 1, 0, "", "", ""},
        {"a query in XML",
         "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n"
         "<nvidia_smi_log>\n<driver_version>535.1</driver_version>\n<attached_gpus>1"
         "</attached_gpus>\n<gpu id=\"00000000:3B:00.0\"><product_name>NVIDIA L4</product_name>\n"
         "<pci><pci_gpu_link_info><pcie_gen><max_link_gen>4</max_link_gen></pcie_gen><link_widths>"
         "<max_link_width>16x</max_link_width></link_widths></pci_gpu_link_info></pci>\n"
         "<fb_memory_usage><total>23034 MiB</total></fb_memory_usage><gpu_power_readings>"
         "<current_power_limit>72.00 W</current_power_limit></gpu_power_readings></gpu>\n"
         "</nvidia_smi_log>\n",
         MCP_DUMP_SMI_XML, 1, 0, "NVIDIA L4", "0000:3b:00.0", ""},
        {"link types of rocm-smi",
         "===== Link Type between two GPUs =====\n       GPU0   GPU1\nGPU0   0      XGMI\n"
         "GPU1   XGMI   0\n===== Numa Nodes =====\nGPU[0]\t: (Topology) Numa Node: 0\n"
         "GPU[1]\t: (Topology) Numa Node: 1\n",
         MCP_DUMP_ROCM, 2, 0, "", "", "XGMI"},
        {"PCIe in rocm-smi, told by hops",
         "===== Hops between two GPUs =====\n       GPU0   GPU1\nGPU0   0      3\nGPU1   3      0\n"
         "===== Link Type between two GPUs =====\n       GPU0   GPU1\nGPU0   0      PCIE\n"
         "GPU1   PCIE   0\n",
         MCP_DUMP_ROCM, 2, 0, "", "", "SYS"},
        {"PCIe in rocm-smi, told by NUMA nodes",
         "===== Link Type between two GPUs =====\n GPU0 GPU1\nGPU0 0 PCIE\nGPU1 PCIE 0\n"
         "===== Numa Nodes =====\nGPU[0] : (Topology) Numa Node: 1\nGPU[1] : (Topology) Numa "
         "Node: 1\n",
         MCP_DUMP_ROCM, 2, 0, "", "", "NODE"},
        {"NCCL's GPUs under one switch",
         "<!-- by hand --><system version=\"1\"><cpu numaid=\"0\"><pci busid=\"ffff:ff:01.0\" "
         "class=\"0x060400\"><pci busid=\"0001:00:00.0\" class=\"0x030200\"/>"
         "<pci busid=\"0002:00:00.0\" class=\"0x030200\"/></pci></cpu></system>",
         MCP_DUMP_NCCL, 2, 0, "", "0002:00:00.0", "PIX"},
        {"NCCL's NVLinks and a NIC",
         "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0001:00:00.0\" class=\"0x030200\">"
         "<gpu dev=\"0\" sm=\"80\"><nvlink target=\"0002:00:00.0\" count=\"4\" "
         "tclass=\"0x030200\"/></gpu></pci><pci busid=\"0002:00:00.0\" class=\"0x030200\">"
         "<gpu dev=\"1\" sm=\"80\"/></pci><nic><net name=\"eth0\" speed=\"100000\"/></nic></cpu>"
         "</system>",
         MCP_DUMP_NCCL, 2, 1, "", "0002:00:00.0", "NV4"},
    };
    return cr_make_param_array(struct case_known, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_known *c, dump, known)
{
    struct mcp_error err = {""};
    struct mcp_dump dump;
    cr_assert(eq(int, (int)parse("f", c->text, &dump, &err), MCP_OK), "%s: %s", c->name, err.text);
    const struct mcp_node *node = &dump.node;
    cr_expect(eq(int, (int)dump.kind, (int)c->kind), "%s", c->name);
    cr_expect(eq(int, node->num_nics, c->nics), "%s", c->name);
    cr_assert(eq(int, node->num_gpus, c->gpus), "%s", c->name);
    const struct mcp_node_gpu *gpu = &node->gpus[c->gpus - 1];
    cr_expect(mcp_same(gpu->name == NULL ? "" : gpu->name, c->gpu), "%s: %s", c->name, gpu->name);
    cr_expect(mcp_same(gpu->bus_id == NULL ? "" : gpu->bus_id, c->bus_id), "%s: %s", c->name,
              gpu->bus_id);
    if (c->link[0] != '\0')
        cr_expect(mcp_same(mcp_link_name(arena, mcp_node_link(node, 0, 1)), c->link), "%s: %s",
                  c->name, mcp_link_name(arena, mcp_node_link(node, 0, 1)));
}

Test(dump, all_that_a_query_tells_of_a_gpu)
{
    struct mcp_error err = {""};
    struct mcp_dump dump;
    static const char text[] =
        "<nvidia_smi_log><attached_gpus>4</attached_gpus><gpu id=\"00000000:3B:00.0\">"
        "<uuid>GPU-12</uuid><minor_number>2</minor_number><mig_mode>"
        "<current_mig>Enabled</current_mig></mig_mode><mig_devices><mig_device><index>0</index>"
        "<fb_memory_usage><total>4864 MiB</total></fb_memory_usage></mig_device></mig_devices>"
        "<fb_memory_usage><total>N/A</total></fb_memory_usage><power_readings><power_limit>70.00 W"
        "</power_limit></power_readings><max_clocks><sm_clock>1590 MHz</sm_clock><mem_clock>"
        "Requested functionality has been deprecated</mem_clock></max_clocks></gpu>"
        "</nvidia_smi_log>";
    cr_assert(eq(int, (int)parse("q.xml", text, &dump, &err), MCP_OK), "%s", err.text);
    const struct mcp_node_gpu *gpu = &dump.node.gpus[0];
    cr_expect(eq(int, gpu->index, 2));
    cr_expect(eq(int, dump.node.num_gpus_attached, 4));
    cr_expect(eq(int, gpu->num_migs, 1));
    cr_expect(eq(str, (char *)gpu->mig_mode, "Enabled"));
    cr_expect(eq(i64, gpu->memory_bytes, 0));
    cr_expect(eq(dbl, gpu->clock_hz, 1590e6));
    cr_expect(eq(dbl, gpu->memory_clock_hz, 0));
    cr_expect(eq(dbl, gpu->power_limit_watts, 70));
    cr_expect(strstr(dump.node.notes, "1 of the machine's 4 GPUs") != NULL);
}

/* PowerShell's > writes UTF-16, editors of Windows a mark before UTF-8. */
Test(dump, files_of_windows)
{
    static const char list[] = "GPU 0: NVIDIA L4 \xc2\xae (UUID: GPU-1)\r\n";
    static const char *const marks[] = {"\xff\xfe", "\xfe\xff", "\xef\xbb\xbf"};
    for (int form = 0; form < 3; form++) {
        struct mcp_text text = mcp_text_new(arena);
        struct mcp_error err = {""};
        struct mcp_dump dump;
        mcp_text_append(&text, marks[form], strlen(marks[form]));
        for (const char *at = list; *at != '\0'; at++) {
            bool two_bytes = form < 2 && *at == '\xc2'; /* in UTF-16 one unit, 0x00ae */
            at += two_bytes;
            if (form == 1)
                mcp_text_append(&text, "", 1);
            mcp_text_append(&text, at, 1);
            if (form == 0)
                mcp_text_append(&text, "", 1);
        }
        cr_assert(
            eq(int, (int)mcp_dump_parse(arena, "w", text.data, text.length, &dump, &err), MCP_OK),
            "%d: %s", form, err.text);
        cr_expect(eq(str, (char *)dump.node.gpus[0].name, "NVIDIA L4 \xc2\xae"));
    }
}

struct case_unknown {
    char text[400];
    enum mcp_status want;
    char says[80];
};
ParameterizedTestParameters(dump, refused)
{
    static struct case_unknown cases[] = {
        {"", MCP_FORMAT, "f: empty"},
        {" \r\n\n", MCP_FORMAT, "f: empty"},
        {"NVIDIA-SMI has failed because it couldn't communicate\n", MCP_FORMAT, "an error message"},
        {"No devices were found\n", MCP_FORMAT, "found no GPU"},
        {"\n{\"a\": 1}\n", MCP_FORMAT, "JSON; a cluster file goes to --cluster"},
        {"==============NVSMI LOG==============\n", MCP_FORMAT, "`nvidia-smi -q -x`"},
        {"Machine (2016GB total)\n  Package L#0\n", MCP_FORMAT, "`lstopo --of xml`"},
        {"<html><body/></html>", MCP_FORMAT, "line 1: <html> is none of <topology> (hwloc)"},
        {"<graphs version=\"1\"/>", MCP_FORMAT, "<graphs>: rings and trees"},
        {"<topology/>", MCP_FORMAT, "holds no <object>"},
        {"<system/>", MCP_FORMAT, "holds no <cpu>"},
        {"<system><cpu><gpu dev=\"0\"/></cpu></system>", MCP_FORMAT, "<gpu> lies in <cpu>"},
        {"<nvidia_smi_log/>", MCP_FORMAT, "0 <gpu> in <nvidia_smi_log>"},
        {"<nvidia_smi_log><gpu id=\"0\"><fb_memory_usage><total>much</total></fb_memory_usage>"
         "</gpu></nvidia_smi_log>",
         MCP_FORMAT, "fb_memory_usage/total: 'much'"},
        {"===== Weight between two GPUs =====\n GPU0 GPU1\nGPU0 0 15\nGPU1 15 0\n", MCP_FORMAT,
         "do not tell what joins the GPUs"},
        {"===== Link Type between two GPUs =====\n GPU0 GPU1\nGPU0 0 UFO\n", MCP_FORMAT,
         "line 3: no link type (XGMI, PCIE): 'UFO'"},
        {"===== Link Type between two GPUs =====\n GPU0 GPU1\nGPU0 0 XGMI\nGPU1 PCIE 0\n",
         MCP_INVALID, "GPU0-GPU1 is XGMI one way and PCIE the other"},
        {"GPU 0: A (UUID: GPU-1)\nGPU 0: A (UUID: GPU-2)\n", MCP_INVALID,
         "line 2: GPU 0 is listed twice"},
        {"index, name\n0, A\n0, A\n", MCP_INVALID, "line 3: GPU 0 is listed twice"},
        {"<system><cpu><pci busid=\"01:00.0\" class=\"0x0302\"/>\n<pci busid=\"0000:01:00.0\" "
         "class=\"0x0302\"/></cpu></system>",
         MCP_INVALID, "lines 1 and 2: two GPUs have the bus id"},
        {"<system><cpu><pci busid=\"01:00.0\" class=\"0x0302\"><gpu sm=\"1\"><nvlink "
         "target=\"02:00.0\" count=\"2\"/></gpu></pci><pci busid=\"02:00.0\" class=\"0x0302\">"
         "<gpu sm=\"1\"><nvlink target=\"01:00.0\" count=\"3\"/></gpu></pci></cpu></system>",
         MCP_INVALID, "GPU0 has 2 links to GPU1 (line 1), which has 3"},
    };
    return cr_make_param_array(struct case_unknown, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_unknown *c, dump, refused)
{
    struct mcp_error err = {""};
    struct mcp_dump dump;
    cr_expect(eq(int, (int)parse("f", c->text, &dump, &err), (int)c->want), "%s: %s", c->text,
              err.text);
    cr_expect(ne(ptr, (void *)strstr(err.text, c->says), NULL), "%s: %s", c->text, err.text);
}

/* hwloc ------------------------------------------------------------------------------ */

#define GPU_OBJECT(bus, gp, more)                                                                  \
    "<object type=\"PCIDev\" gp_index=\"" gp "\" pci_busid=\"" bus                                 \
    "\" pci_type=\"0302 [10de:20b0] [0:0] a1\">" more "</object>"

/* Format 1 has NUMA nodes around packages, and numbers kinds of OSDevs. */
Test(dump, format_1_of_hwloc)
{
    struct mcp_error err = {""};
    struct mcp_dump dump;
    static const char text[] =
        "<topology><object type=\"Machine\" cpuset=\"0x3\" nodeset=\"0x3\">"
        "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" nodeset=\"0x1\" "
        "local_memory=\"1024\"><object type=\"Socket\" cpuset=\"0x1\" nodeset=\"0x1\">"
        "<object type=\"PU\" cpuset=\"0x1\"/></object></object><object type=\"NUMANode\" "
        "os_index=\"1\" cpuset=\"0x2\" nodeset=\"0x2\"><object type=\"Socket\" cpuset=\"0x2\" "
        "nodeset=\"0x2\"/><object type=\"Bridge\" bridge_type=\"0-1\"><object type=\"Bridge\" "
        "bridge_type=\"1-1\"><object type=\"PCIDev\" pci_busid=\"0000:05:00.0\" "
        "pci_type=\"0200 [15b3:1]\"><object type=\"OSDev\" name=\"ib0\" osdev_type=\"2\"/>"
        "<object type=\"OSDev\" name=\"mlx4_0\" osdev_type=\"3\"/></object>" GPU_OBJECT(
            "0000:04:00.0", "9", "") "</object></object></object></object></topology>";
    cr_assert(eq(int, (int)parse("h.xml", text, &dump, &err), MCP_OK), "%s", err.text);
    const struct mcp_node *node = &dump.node;
    cr_expect(eq(int, node->num_packages, 2));
    cr_expect(eq(int, node->numa_nodes[1].package, 1));
    cr_assert(node->num_gpus == 1 && node->num_nics == 1);
    cr_expect(eq(str, (char *)node->nics[0].name, "mlx4_0"));
    cr_expect(eq(str, (char *)node->nics[0].interfaces, "ib0"));
    cr_expect(eq(int, node->gpus[0].numa_node, 1));
    cr_expect(eq(int, (int)mcp_node_link(node, 0, 1)->kind, MCP_LINK_PIX));
}

/* Distances of other names and kinds stand around the one that counts. */
Test(dump, nvlinks_of_hwloc)
{
    struct mcp_error err = {""};
    struct mcp_dump dump;
    static const char text[] =
        "<topology version=\"3.0\"><object type=\"Machine\" cpuset=\"0x1\" nodeset=\"0x1\">"
        "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" nodeset=\"0x1\"/>" GPU_OBJECT(
            "0000:02:00.0", "7",
            "<object type=\"OSDev\" gp_index=\"8\" name=\"nvml1\" "
            "osdev_type=\"12\"/>")
            GPU_OBJECT(
                "0000:01:00.0", "5",
                "<object type=\"OSDev\" gp_index=\"6\" "
                "name=\"nvml0\" osdev_type=\"12\"/>") "</object>"
                                                      "<distances2 type=\"NUMANode\" nbobjs=\"1\" "
                                                      "name=\"NUMALatency\" indexing=\"os\">"
                                                      "<indexes>0 </indexes><u64values>10 "
                                                      "</u64values></distances2>"
                                                      "<distances2 type=\"OSDev\" nbobjs=\"2\" "
                                                      "name=\"NVLinkBandwidth\" indexing=\"gp\">"
                                                      "<indexes>6 8 </indexes><u64values>1000000 "
                                                      "75000 </u64values><u64values>75000 1000000 "
                                                      "</u64values></distances2></topology>";
    cr_assert(eq(int, (int)parse("h.xml", text, &dump, &err), MCP_OK), "%s", err.text);
    cr_assert(eq(int, dump.node.num_gpus, 2));
    cr_expect(eq(str, (char *)dump.node.gpus[0].bus_id, "0000:01:00.0"));
    cr_expect(eq(str, (char *)mcp_link_name(arena, mcp_node_link(&dump.node, 0, 1)), "NV3"));
    cr_expect(not(dump.node.nvlinks_unknown));
    const char *missing = strstr(text, "6 8 </indexes>");
    char *wrong = mcp_strdup(arena, text);
    wrong[missing - text] = '4';
    cr_expect(eq(int, (int)parse("h.xml", wrong, &dump, &err), MCP_INVALID));
    cr_expect(strstr(err.text, "the distances name OSDev '4', which is not in the file") != NULL,
              "%s", err.text);
}

/* Bus ids ------------------------------------------------------------------------------ */

Test(dump, bus_ids_have_one_form)
{
    static const char *const pairs[][2] = {
        {"00000000:0C:00.0", "0000:0c:00.0"},
        {"0:0c:00.0", "0000:0c:00.0"},
        {"0c:00.0", "0000:0c:00.0"},
        {"ABCD:EF:01.2", "abcd:ef:01.2"},
        {"fffffff:ff:ff.0", "fffffff:ff:ff.0"},
        {"00010000:00:00.0", "10000:00:00.0"},
        {"0000:0c:00", NULL},
        {"0000:0c", NULL},
        {"", NULL},
        {"0000:0c:00.0 ", NULL},
        {"123456789:00:00.0", NULL},
    };
    for (size_t i = 0; i < MCP_COUNT_OF(pairs); i++)
        cr_expect(mcp_same(mcp_bus_id(arena, pairs[i][0]), pairs[i][1]), "%s: %s", pairs[i][0],
                  mcp_bus_id(arena, pairs[i][0]));
}

/* Merging -------------------------------------------------------------------------------- */

static const char matrix[] = "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity\n"
                             "GPU0\t X \tNV12\tPXB\t0-15\t0\nGPU1\tNV12\t X \tSYS\t16-31\t1\n"
                             "mlx5_0\tPXB\tSYS\t X \n";
static const char query[] = "index, uuid, pci.bus_id, name, memory.total [MiB]\n"
                            "0, GPU-1, 00000000:01:00.0, NVIDIA A100-PCIE-40GB, 40960 MiB\n"
                            "1, GPU-2, 00000000:81:00.0, NVIDIA A100-PCIE-40GB, 40960 MiB\n";

static enum mcp_status merge(const char *const *texts, int count, struct mcp_node *node,
                             struct mcp_error *err)
{
    struct mcp_dump dumps[4];
    for (int i = 0; i < count; i++)
        cr_assert(eq(int, (int)parse(mcp_format(arena, "file%d", i + 1), texts[i], &dumps[i], err),
                     MCP_OK),
                  "%s", err->text);
    return mcp_dumps_merge(arena, dumps, count, node, err);
}

/* Links from the matrix, memory from the query, MIG devices from the list, whichever
 * order they come in. */
Test(merge, each_file_tells_its_part)
{
    static const char list[] = "GPU 1: NVIDIA A100-PCIE-40GB (UUID: GPU-2)\n"
                               "  MIG 1g.5gb     Device  0: (UUID: MIG-7)\n"
                               "GPU 0: NVIDIA A100-PCIE-40GB (UUID: GPU-1)\n";
    static const char *const orders[][3] = {
        {matrix, query, list}, {list, matrix, query}, {query, list, matrix}};
    for (size_t i = 0; i < MCP_COUNT_OF(orders); i++) {
        struct mcp_error err = {""};
        struct mcp_node node;
        cr_assert(eq(int, (int)merge(orders[i], 3, &node, &err), MCP_OK), "%s", err.text);
        cr_expect(eq(int, node.gpus[0].index, 0));
        cr_expect(eq(i64, node.gpus[1].memory_bytes, (int64_t)40960 << 20));
        cr_expect(eq(int, node.gpus[1].num_migs, 1));
        cr_expect(eq(int, node.gpus[1].numa_node, 1));
        cr_expect(eq(int, mcp_node_link(&node, 0, 1)->count, 12));
        cr_expect(eq(str, (char *)node.nics[0].name, "mlx5_0"));
        cr_expect(eq(int, mcp_node_unknown_links(&node), 0));
    }
}

/* The tree of PCI devices yields to nvidia-smi's words, and tells NUMA nodes. */
Test(merge, what_is_stated_wins_over_what_is_derived)
{
    static const char tree[] =
        "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\" class=\"0x030200\"/>"
        "<pci busid=\"0000:02:00.0\" class=\"0x020000\"><nic><net name=\"mlx5_0\" "
        "speed=\"200000\"/></nic></pci></cpu><cpu numaid=\"1\"><pci busid=\"0000:81:00.0\" "
        "class=\"0x030200\"/><pci busid=\"0000:82:00.0\" class=\"0x020000\"><nic>"
        "<net name=\"mlx5_1\"/></nic></pci></cpu></system>";
    static const char *const texts[] = {matrix, tree, query};
    struct mcp_error err = {""};
    struct mcp_node node;
    cr_assert(eq(int, (int)merge(texts, 3, &node, &err), MCP_OK), "%s", err.text);
    cr_expect(not(node.nvlinks_unknown));
    cr_expect(eq(str, (char *)mcp_link_name(arena, mcp_node_link(&node, 0, 1)), "NV12"));
    cr_assert(eq(int, node.num_nics, 2));
    int first = mcp_same(node.nics[0].name, "mlx5_0") ? 0 : 1;
    cr_expect(eq(dbl, node.nics[first].bytes_per_s, 25e9));
    cr_expect(eq(int, (int)mcp_node_link(&node, 0, 2 + first)->kind, MCP_LINK_PXB));
    cr_expect(eq(int, (int)mcp_node_link(&node, 1, 3 - first)->kind, MCP_LINK_NODE));
}

/* A hole in the matrix is not filled by a path that NVLinks may go beside. */
Test(merge, a_cut_matrix_stays_cut)
{
    static const char cut[] = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\tNV4\nGPU1\tNV4\t X \tN";
    static const char tree[] =
        "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\" class=\"0x030200\"/>"
        "<pci busid=\"0000:02:00.0\" class=\"0x030200\"/><pci busid=\"0000:03:00.0\" "
        "class=\"0x030200\"/></cpu></system>";
    static const char *const orders[][2] = {{cut, tree}, {tree, cut}};
    for (size_t i = 0; i < MCP_COUNT_OF(orders); i++) {
        struct mcp_error err = {""};
        struct mcp_node node;
        cr_assert(eq(int, (int)merge(orders[i], 2, &node, &err), MCP_OK), "%s", err.text);
        cr_expect(eq(int, (int)mcp_node_link(&node, 1, 2)->kind, MCP_LINK_UNKNOWN));
        cr_expect(eq(int, mcp_node_link(&node, 0, 2)->count, 4));
    }
}

/* Some GPUs of a machine, as -i asks for, find their places. */
Test(merge, a_query_of_some_gpus)
{
    static const char some[] =
        "count, index, name, memory.total [MiB]\n2, 1, NVIDIA L4, 23034 MiB\n";
    static const char *const texts[] = {matrix, some};
    struct mcp_error err = {""};
    struct mcp_node node;
    cr_assert(eq(int, (int)merge(texts, 2, &node, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(i64, node.gpus[0].memory_bytes, 0));
    cr_expect(eq(i64, node.gpus[1].memory_bytes, (int64_t)23034 << 20));
}

struct case_conflict {
    char name[40];
    char first[500], second[500];
    char says[120];
};
ParameterizedTestParameters(merge, contradictions)
{
    static struct case_conflict cases[] = {
        {"numbers of GPUs", "GPU 0: A (UUID: GPU-1)\n",
         "GPU 0: A (UUID: GPU-1)\nGPU 1: A (UUID: GPU-2)\n",
         "file1 has 1 GPUs, file2 has 2: are they the same machine?"},
        {"links", "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n",
         "\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n",
         "the link GPU0-GPU1 is NV4 in file1 but SYS in file2"},
        {"names", "GPU 0: Tesla T4 (UUID: GPU-1)\n", "index, name\n0, NVIDIA L4\n",
         "the name of GPU0 is Tesla T4 in file1 but NVIDIA L4 in file2"},
        {"memory", "index, memory.total [MiB]\n0, 1024 MiB\n",
         "index, memory.total [MiB]\n0, 2048 MiB\n",
         "the memory of GPU0 is 1024 MiB in file1 but 2048 MiB in file2"},
        {"NUMA nodes", "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-3\t0\n",
         "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-3\t1\n",
         "the NUMA node of GPU0 is 0 in file1 but 1 in file2"},
        {"another GPU", "name, pci.bus_id\nA, 00000000:01:00.0\n",
         "name, pci.bus_id\nA, 00000000:02:00.0\n",
         "GPU0 at 0000:02:00.0 of file2 is none of the GPUs of file1"},
        {"UUIDs", "index, uuid, pci.bus_id\n0, GPU-1, 00000000:01:00.0\n",
         "index, uuid, pci.bus_id\n0, GPU-2, 00000000:01:00.0\n",
         "the UUID of GPU0 is GPU-1 in file1 but GPU-2 in file2"},
    };
    return cr_make_param_array(struct case_conflict, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_conflict *c, merge, contradictions)
{
    const char *const texts[] = {c->first, c->second};
    struct mcp_error err = {""};
    struct mcp_node node;
    cr_expect(eq(int, (int)merge(texts, 2, &node, &err), MCP_INVALID), "%s", c->name);
    cr_expect(ne(ptr, (void *)strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
}

/* UUIDs that were masked with zeros tell nothing apart. */
Test(merge, masked_uuids_match_by_number)
{
    static const char list[] = "GPU 0: A (UUID: GPU-0000-0000)\nGPU 1: A (UUID: GPU-0000-0000)\n";
    static const char *const texts[] = {matrix, list};
    struct mcp_error err = {""};
    struct mcp_node node;
    cr_expect(eq(int, (int)merge(texts, 2, &node, &err), MCP_OK), "%s", err.text);
}
