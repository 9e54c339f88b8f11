/* tests/core/test_fabric.c: networks as tiers, against their formulas. */
#include "core/cluster_fabric.h"
#include "core/text.h"

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
TestSuite(fabric, .init = begin, .fini = end);

#define NIC 50e9 /* of dgx-h100, 400 Gbit/s */

struct built_tier {
    char name[16];
    int ranks;
    double bandwidth_bytes_per_s;
};
struct case_build {
    char name[48];
    char cluster[24];
    int nodes;
    struct mcp_fabric fabric;
    char torus[16];
    int count; /* of tiers above the node */
    struct built_tier above[4];
};
ParameterizedTestParameters(fabric, build)
{
    static struct case_build cases[] = {
        {"flat", "dgx-h100", 16, {.kind = MCP_FABRIC_FLAT}, "", 1, {{"network", 128, NIC}}},
        {"32 ports down hold 4 nodes of 8",
         "dgx-h100",
         64,
         {.kind = MCP_FABRIC_FAT_TREE},
         "",
         2,
         {{"leaf", 32, NIC}, {"spine", 512, NIC}}},
        {"a leaf of 3:1 has 48 ports down and 16 up",
         "dgx-h100",
         48,
         {.kind = MCP_FABRIC_FAT_TREE, .oversubscription = 3},
         "",
         2,
         {{"leaf", 48, NIC}, {"spine", 384, NIC / 3}}},
        {"64 leaves are all that a spine of 64 ports joins",
         "dgx-h100",
         256,
         {.kind = MCP_FABRIC_FAT_TREE},
         "",
         2,
         {{"leaf", 32, NIC}, {"spine", 2048, NIC}}},
        {"more take pods of 32 leaves under cores",
         "dgx-h100",
         512,
         {.kind = MCP_FABRIC_FAT_TREE},
         "",
         3,
         {{"leaf", 32, NIC}, {"spine", 1024, NIC}, {"core", 4096, NIC}}},
        {"leaves of so many nodes",
         "dgx-h100",
         16,
         {.kind = MCP_FABRIC_FAT_TREE, .nodes_per_leaf = 2},
         "",
         2,
         {{"leaf", 16, NIC}, {"spine", 128, NIC}}},
        {"a leaf that a node does not fit into",
         "gb200-nvl72",
         4,
         {.kind = MCP_FABRIC_FAT_TREE},
         "",
         2,
         {{"leaf", 72, NIC}, {"spine", 288, NIC}}},
        {"a SuperPOD's scalable units of 32 nodes",
         "dgx-h100",
         128,
         {.kind = MCP_FABRIC_RAIL},
         "",
         2,
         {{"rail", 256, NIC}, {"spine", 1024, NIC}}},
        {"16 scalable units take a core, as NVIDIA says",
         "dgx-h100",
         512,
         {.kind = MCP_FABRIC_RAIL},
         "",
         3,
         {{"rail", 256, NIC}, {"spine", 1024, NIC}, {"core", 4096, NIC}}},
        {"72 rails have spines of their own",
         "gb200-nvl72",
         500,
         {.kind = MCP_FABRIC_RAIL},
         "",
         2,
         {{"rail", 25 * 72, NIC}, {"spine", 500 * 72, NIC}}},
        {"a dragonfly of groups of 512 NICs",
         "dgx-h100",
         128,
         {.kind = MCP_FABRIC_DRAGONFLY},
         "",
         2,
         {{"group", 512, NIC * 31 / 32}, {"global", 1024, NIC / 2}}},
        {"a dragonfly with half its global links",
         "dgx-h100",
         128,
         {.kind = MCP_FABRIC_DRAGONFLY, .oversubscription = 2},
         "",
         2,
         {{"group", 512, NIC * 31 / 32}, {"global", 1024, NIC / 4}}},
        {"a torus",
         "dgx-h100",
         32,
         {.kind = MCP_FABRIC_TORUS},
         "4x4x2",
         3,
         {{"torus-x", 32, NIC / 3}, {"torus-y", 128, NIC / 3}, {"torus-z", 256, NIC / 3}}},
        {"two sites share 100 Gbit/s each",
         "dgx-h100",
         64,
         {.kind = MCP_FABRIC_RAIL,

          .num_sites = 2,
          .wan_bytes_per_s = 12.5e9,
          .round_trip_s = 0.02},
         "",
         3,
         {{"rail", 256, NIC}, {"spine", 256, NIC}, {"wan", 512, 12.5e9 / 256}}},
        {"leaves divide a site evenly",
         "dgx-h100",
         96,
         {.kind = MCP_FABRIC_RAIL,

          .num_sites = 2,
          .wan_bytes_per_s = 12.5e9,
          .round_trip_s = 0.02},
         "",
         3,
         {{"rail", 192, NIC}, {"spine", 384, NIC}, {"wan", 768, 12.5e9 / 384}}},
        {"a node of one GPU keeps its tier",
         "gh200",
         64,
         {.kind = MCP_FABRIC_FAT_TREE, .nic_bytes_per_s = 25e9},
         "",
         2,
         {{"leaf", 32, 25e9}, {"spine", 64, 25e9}}},
        {"what a fabric built is built anew",
         "tpu-v5p",
         4,
         {.kind = MCP_FABRIC_FLAT, .nic_bytes_per_s = 1e9},
         "",
         1,
         {{"network", 256, 1e9}}},
    };
    return cr_make_param_array(struct case_build, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_build *c, fabric, build)
{
    struct mcp_error err = {""};
    struct mcp_cluster cluster;
    cr_assert(eq(int, (int)mcp_cluster_load(arena, c->cluster, &cluster, &err), MCP_OK));
    if (c->torus[0] != '\0')
        cr_assert(eq(int, (int)mcp_fabric_parse_torus(c->torus, &c->fabric, &err), MCP_OK));
    cr_assert(
        eq(int, (int)mcp_cluster_set_fabric(arena, &cluster, c->nodes, &c->fabric, &err), MCP_OK),
        "%s: %s", c->name, err.text);
    cr_assert(eq(int, (int)mcp_cluster_check(&cluster, &err), MCP_OK), "%s", err.text);
    int node_tiers = cluster.num_tiers - c->count;
    cr_assert(node_tiers >= 1, "%s: %d tiers", c->name, cluster.num_tiers);
    cr_expect(eq(int, cluster.tiers[node_tiers - 1].ranks, cluster.gpus_per_node), "%s", c->name);
    for (int i = 0; i < c->count; i++) {
        const struct mcp_tier *tier = &cluster.tiers[node_tiers + i];
        cr_expect(eq(str, (char *)tier->name, c->above[i].name), "%s", c->name);
        cr_expect(eq(int, tier->ranks, c->above[i].ranks), "%s: %s", c->name, tier->name);
        cr_expect(
            epsilon_eq(dbl, tier->bandwidth_bytes_per_s, c->above[i].bandwidth_bytes_per_s, 1),
            "%s: %s", c->name, tier->name);
        cr_expect(eq(int, i > 0 && tier->latency_s < cluster.tiers[node_tiers].latency_s, 0));
    }
    if (c->fabric.num_sites > 1)
        cr_expect(eq(dbl, cluster.tiers[cluster.num_tiers - 1].round_trip_s, 0.02));
}

struct case_refuse {
    char cluster[32];
    int nodes;
    struct mcp_fabric fabric;
    char says[80];
};
ParameterizedTestParameters(fabric, refuse)
{
    static struct case_refuse cases[] = {
        {"dgx-h100:2+dgx-a100:2", 4, {.kind = MCP_FABRIC_RAIL}, "nodes of one kind"},
        {"dgx-h100", 9000, {.kind = MCP_FABRIC_RAIL}, "at most 8192 nodes"},
        {"dgx-h100", 9000, {.kind = MCP_FABRIC_FAT_TREE}, "at most 8192 nodes"},
        {"dgx-h100", 40000, {.kind = MCP_FABRIC_DRAGONFLY}, "at most 32832 nodes"},
        {"dgx-h100", 0, {.kind = MCP_FABRIC_FLAT}, "0 nodes"},
        {"dgx-h100", 4, {.kind = MCP_FABRIC_RAIL, .oversubscription = 0.5}, "0.5"},
        {"dgx-h100", 4, {.kind = MCP_FABRIC_RAIL, .switch_ports = 2}, "4 to 4096"},
        {"dgx-h100", 64, {.kind = MCP_FABRIC_RAIL, .nodes_per_leaf = 33}, "has 32"},
        {"dgx-h100",
         16,
         {.kind = MCP_FABRIC_FAT_TREE, .nodes_per_leaf = 1000},
         "at most 128 nodes a leaf"},
        {"dgx-h100",
         4,
         {.kind = MCP_FABRIC_TORUS, .num_dimensions = 1, .torus = {3}},
         "product is the 4 nodes"},
        {"dgx-h100", 4, {.kind = MCP_FABRIC_FLAT, .num_sites = 3}, "3 equal sites"},
        {"dgx-h100",
         4,
         {.kind = MCP_FABRIC_FLAT, .num_sites = 2, .round_trip_s = 0.1},
         "bandwidth of a site"},
        {"a100-pcie",
         1024,
         {.kind = MCP_FABRIC_RAIL,

          .num_sites = 2,
          .wan_bytes_per_s = 1e9,
          .round_trip_s = 0.01},
         "more than 6"},
    };
    return cr_make_param_array(struct case_refuse, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_refuse *c, fabric, refuse)
{
    struct mcp_error err = {""};
    struct mcp_cluster cluster;
    cr_assert(eq(int, (int)mcp_cluster_load(arena, c->cluster, &cluster, &err), MCP_OK));
    struct mcp_cluster before = cluster;
    cr_expect(eq(int, (int)mcp_cluster_set_fabric(arena, &cluster, c->nodes, &c->fabric, &err),
                 MCP_INVALID));
    cr_expect(ne(ptr, (void *)strstr(err.text, c->says), NULL), "'%s' does not say '%s'", err.text,
              c->says);
    cr_expect(eq(int, memcmp(&before, &cluster, sizeof cluster), 0), "what failed changed it");
}

struct case_torus {
    char text[24];
    int dimensions; /* 0: refused */
};
ParameterizedTestParameters(fabric, torus)
{
    static struct case_torus cases[] = {
        {"4", 1},
        {"4x4", 2},
        {"16x20x28", 3},
        {"", 0},
        {"x", 0},
        {"4x", 0},
        {"0x4", 0},
        {"4x4x4x4", 0},
        {"4 x 4", 0},
        {"-4x4", 0},
        {"4x4z", 0},
        {"4X4", 0},
        {"99999999999999999999", 0},
    };
    return cr_make_param_array(struct case_torus, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_torus *c, fabric, torus)
{
    struct mcp_error err = {""};
    struct mcp_fabric fabric = {0};
    enum mcp_status got = mcp_fabric_parse_torus(c->text, &fabric, &err);
    cr_expect(eq(int, (int)got, (int)(c->dimensions > 0 ? MCP_OK : MCP_USAGE)), "%s", c->text);
    if (c->dimensions > 0)
        cr_expect(eq(int, fabric.num_dimensions, c->dimensions), "%s", c->text);
}

/* More ports than any cluster has GPUs: domains end with the cluster. */
Test(fabric, domains_are_no_larger_than_a_cluster)
{
    struct mcp_error err = {0};
    struct mcp_cluster cluster;
    const struct mcp_fabric rails = {
        .kind = MCP_FABRIC_RAIL, .nic_bytes_per_s = NIC, .switch_ports = 4096};
    cr_assert(mcp_cluster_load(arena, "dgx-h100", &cluster, &err) == MCP_OK, "%s", err.text);
    cluster.gpus_per_node = MCP_MAX_GPUS;
    cr_assert(mcp_cluster_set_fabric(arena, &cluster, 1, &rails, &err) == MCP_OK, "%s", err.text);
    for (int i = 1; i < cluster.num_tiers; i++)
        cr_expect(eq(int, cluster.tiers[i].ranks, MCP_MAX_GPUS), "tier %d", i);
}
