/* tests/topologies/test_nvidia_smi.c: texts of nvidia-smi, whole, odd, cut and wrong. */
#include "topologies/nvidia_smi.h"

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
TestSuite(nvidia_smi, .init = begin, .fini = end);

static enum mcp_status parse(const char *text, struct mcp_node *node, struct mcp_error *err)
{
    return mcp_nvidia_smi_topo(arena, "topo.txt", text, strlen(text), node, err);
}

static const struct mcp_link *link_of(const struct mcp_node *node, const char *a, const char *b)
{
    int first = -1, second = -1;
    for (int i = 0; i < mcp_node_devices(node); i++) {
        const char *name = mcp_node_device_name(arena, node, i);
        first = mcp_same(name, a) ? i : first;
        second = mcp_same(name, b) ? i : second;
    }
    cr_assert(first >= 0 && second >= 0, "no %s or %s", a, b);
    return mcp_node_link(node, first, second);
}

struct case_good {
    char name[40];
    char text[700];
    int gpus, nics;
    char a[12], b[12];
    enum mcp_link_kind kind;
    int count;
    int numa_of_last_gpu;
    int unknown;
};
ParameterizedTestParameters(nvidia_smi, good)
{
    static struct case_good cases[] = {
        {"tabs, NICs by name",
         "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity\n"
         "GPU0\t X \tNV12\tPXB\t0-15\t0\nGPU1\tNV12\t X \tSYS\t16-31\t1\nmlx5_0\tPXB\tSYS\t X \n",
         2, 1, "GPU0", "GPU1", MCP_LINK_NVLINK, 12, 1, 0},
        {"NICs by number and legend",
         "\tGPU0\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
         "GPU0\t X \tPIX\tNODE\t0-15\t3\t\tN/A\nNIC0\tPIX\t X \tPHB\t\t\t\t\n"
         "NIC1\tNODE\tPHB\t X \t\t\t\t\n\nLegend:\n\n  X    = Self\n  NV#  = bonded\n\n"
         "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: bnxt_re1\n",
         1, 2, "mlx5_0", "bnxt_re1", MCP_LINK_PHB, 1, 3, 0},
        {"carriage returns and escapes",
         "\t\033[4mGPU0\tGPU1\tCPU Affinity\033[0m\r\nGPU0\t X \tNODE\t0-3\r\nGPU1\tNODE\t X "
         "\t0-3\r\n",
         2, 0, "GPU1", "GPU0", MCP_LINK_NODE, 1, -1, 0},
        {"blanks, no affinity, text around",
         "$ nvidia-smi topo -m\n      GPU0  GPU1\nGPU0   X    PHB\nGPU1  PHB    X\n$ exit\n", 2, 0,
         "GPU0", "GPU1", MCP_LINK_PHB, 1, -1, 0},
        {"prose that looks like a header", "GPU0\nGPU0 GPU1\n\tGPU0\tGPU1\nGPU0\t X \tPXB\n", 2, 0,
         "GPU0", "GPU1", MCP_LINK_PXB, 1, -1, 0},
        {"SOC is SYS", "\tGPU0\tGPU1\nGPU0\t X \tSOC\nGPU1\tSOC\t X \n", 2, 0, "GPU0", "GPU1",
         MCP_LINK_SYS, 1, -1, 0},
        {"an empty CPU list",
         "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
         "GPU0\t X \tNV18\t0-3\t0\t\tN/A\nGPU1\tNV18\t X \t\t1\t\tN/A\n",
         2, 0, "GPU0", "GPU1", MCP_LINK_NVLINK, 18, 1, 0},
        {"a list of NUMA nodes",
         "   GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\n"
         "GPU0 X NV18 0-71 0,3-9 2\nGPU1 NV18 X 72-143 1,19-25 10\n",
         2, 0, "GPU0", "GPU1", MCP_LINK_NVLINK, 18, 1, 0},
        {"NUMA is N/A",
         "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV2\t0-23\tN/A\n"
         "GPU1\tNV2\t X \t0-23\tN/A\n",
         2, 0, "GPU0", "GPU1", MCP_LINK_NVLINK, 2, -1, 0},
        {"one GPU", "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\t0\n", 1, 0, "GPU0",
         "GPU0", MCP_LINK_UNKNOWN, 0, 0, 0},
        {"the last row is missing",
         "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPIX\tSYS\nGPU1\tPIX\t X \tSYS\n", 3, 0, "GPU2", "GPU1",
         MCP_LINK_SYS, 1, -1, 0},
        {"cut within a cell", "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPIX\tSYS\nGPU1\tPIX\t X \tSY", 3, 0,
         "GPU0", "GPU2", MCP_LINK_SYS, 1, -1, 1},
        {"numbers with a hole", "\tGPU0\tGPU2\nGPU0\t X \tPIX\nGPU2\tPIX\t X \n", 2, 0, "GPU0",
         "GPU2", MCP_LINK_PIX, 1, -1, 0},
    };
    return cr_make_param_array(struct case_good, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_good *c, nvidia_smi, good)
{
    struct mcp_error err = {""};
    struct mcp_node node;
    cr_assert(eq(int, (int)parse(c->text, &node, &err), MCP_OK), "%s: %s", c->name, err.text);
    cr_expect(eq(int, node.num_gpus, c->gpus), "%s", c->name);
    cr_expect(eq(int, node.num_nics, c->nics), "%s", c->name);
    for (int a = 0; a < mcp_node_devices(&node); a++)
        for (int b = 0; b < mcp_node_devices(&node); b++)
            cr_expect(eq(int, mcp_node_link(&node, a, b)->count, mcp_node_link(&node, b, a)->count),
                      "%s: %d-%d", c->name, a, b);
    const struct mcp_link *link = link_of(&node, c->a, c->b);
    cr_expect(eq(int, (int)link->kind, (int)c->kind), "%s", c->name);
    cr_expect(eq(int, link->count, c->count), "%s", c->name);
    cr_expect(eq(int, node.gpus[node.num_gpus - 1].numa_node, c->numa_of_last_gpu), "%s", c->name);
    cr_expect(eq(int, mcp_node_unknown_links(&node), c->unknown), "%s", c->name);
}

struct case_bad {
    char name[40];
    char text[400];
    enum mcp_status want;
    char says[80];
};
ParameterizedTestParameters(nvidia_smi, bad)
{
    static struct case_bad cases[] = {
        {"empty", "", MCP_FORMAT, "no matrix"},
        {"an error of nvidia-smi", "ERROR: Option -m is missing its value.\n", MCP_FORMAT,
         "begins 'ERROR: Option"},
        {"a list of GPUs", "GPU 0: NVIDIA H100 (UUID: GPU-0)\n", MCP_FORMAT, "no matrix"},
        {"header only", "\tGPU0\tGPU1\n", MCP_FORMAT, "no rows"},
        {"peer-to-peer status", " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n", MCP_FORMAT,
         "line 2: a peer-to-peer status matrix"},
        {"numbers of rocm-smi", "  GPU0 GPU1\nGPU0 0 15\nGPU1 15 0\n", MCP_FORMAT,
         "line 2: a matrix of numbers"},
        {"unknown code", "\tGPU0\tGPU1\nGPU0\t X \tFOO\nGPU1\tFOO\t X \n", MCP_FORMAT,
         "line 2: GPU0-GPU1: 'FOO' is no link code"},
        {"NVLink without a number", "\tGPU0\tGPU1\nGPU0\t X \tNV\nGPU1\tNV\t X \n", MCP_FORMAT,
         "'NV' is no link code"},
        {"no NVLinks", "\tGPU0\tGPU1\nGPU0\t X \tNV0\nGPU1\tNV0\t X \n", MCP_FORMAT,
         "'NV0' is no link code"},
        {"self elsewhere", "\tGPU0\tGPU1\nGPU0\t X \tX\nGPU1\tX\tX\n", MCP_FORMAT,
         "GPU0-GPU1 is 'X'"},
        {"no self", "\tGPU0\tGPU1\nGPU0\tNV1\tNV1\n", MCP_FORMAT, "GPU0-GPU0 is 'NV1'"},
        {"asymmetric", "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPXB\t X \n", MCP_INVALID,
         "1 pair: GPU0-GPU1 is PIX in line 2 but PXB in line 3"},
        {"asymmetric NVLinks", "\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU1\tNV2\t X \n", MCP_INVALID,
         "NV1 in line 2 but NV2 in line 3"},
        {"named twice", "\tGPU0\tGPU0\nGPU0\t X \tPIX\n", MCP_FORMAT, "device named twice: 'GPU0'"},
    };
    return cr_make_param_array(struct case_bad, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_bad *c, nvidia_smi, bad)
{
    struct mcp_error err = {""};
    struct mcp_node node;
    cr_expect(eq(int, (int)parse(c->text, &node, &err), (int)c->want), "%s: %s", c->name, err.text);
    cr_expect(ne(ptr, (void *)strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
}

static const char whole[] =
    "\t\033[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\r\n"
    "GPU0\t X \tNV12\tSYS\tPXB\t0-15,32-47\t0\t\tN/A\r\n"
    "GPU1\tNV12\t X \tSYS\tNODE\t0-15,32-47\t0\t\tN/A\r\n"
    "GPU2\tSYS\tSYS\t X \tSYS\t16-31\t1\t\tN/A\r\n"
    "NIC0\tPXB\tNODE\tSYS\t X \t\t\t\t\r\n\r\nLegend:\r\n\r\n  X    = Self\r\n\r\n"
    "NIC Legend:\r\n\r\n  NIC0: mlx5_0\r\n";

/* What is known of a cut text is what the whole one says. */
Test(nvidia_smi, cut_at_any_byte_it_never_lies)
{
    struct mcp_error err = {""};
    struct mcp_node all;
    int parsed = 0;
    cr_assert(eq(int, (int)parse(whole, &all, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(int, all.nics[0].numa_node, 0));
    for (size_t length = 0; length < sizeof whole; length++) {
        struct mcp_node node;
        const char *text = mcp_strndup(arena, whole, length);
        if (mcp_nvidia_smi_topo(arena, "cut", text, length, &node, &err) != MCP_OK)
            continue;
        parsed++;
        for (int a = 0; a < mcp_node_devices(&node); a++)
            for (int b = 0; b < mcp_node_devices(&node); b++) {
                const struct mcp_link *link = mcp_node_link(&node, a, b);
                cr_expect(link->kind == MCP_LINK_UNKNOWN ||
                              (link->kind == mcp_node_link(&all, a, b)->kind &&
                               link->count == mcp_node_link(&all, a, b)->count),
                          "%zu bytes: link %d-%d", length, a, b);
            }
    }
    cr_expect(parsed > 100, "%d", parsed);
}

struct case_list {
    char text[120];
    char says[80];
};
ParameterizedTestParameters(nvidia_smi, bad_list)
{
    static struct case_list cases[] = {
        {"name, memory.total [MiB]\nA, 1 MiB\nB\n",
         "line 3: 1 cells, expected 2 as in the header (row 2)"},
        {"0, NVIDIA H100 80GB HBM3, 81559 MiB\n", "no header that names the fields"},
        {"index, name\nx, A\n", "line 2: index 'x'"},
        {"index, name\n-1, A\n", "line 2: index '-1'"},
        {"name, memory.total [MiB]\nA, lots\n", "line 2: 'lots'"},
        {"name, memory.total [MiB]\n", "0 GPUs"},
    };
    return cr_make_param_array(struct case_list, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_list *c, nvidia_smi, bad_list)
{
    struct mcp_error err = {""};
    struct mcp_node list;
    cr_expect(eq(int,
                 (int)mcp_nvidia_smi_csv(arena, "l.csv", c->text, strlen(c->text), &list, &err),
                 MCP_FORMAT));
    cr_expect(ne(ptr, (void *)strstr(err.text, c->says), NULL), "%s", err.text);
}
