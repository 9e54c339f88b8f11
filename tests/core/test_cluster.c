/* tests/core/test_cluster.c: machines as files: presets, sizes, and what is refused. */
#include "core/cluster.h"
#include "core/preset.h"
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
TestSuite(cluster, .init = begin, .fini = end);

static enum mcp_status parse(const char *text, struct mcp_cluster *out, struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_json_parse(arena, "c.json", text, strlen(text), &json, err));
    MCP_TRY(mcp_cluster_from_json(arena, json, out, err));
    MCP_TRY(mcp_json_done(json, err));
    return mcp_cluster_check(out, err);
}

Test(cluster, every_preset_loads_and_survives_being_written)
{
    struct mcp_error err = {""};
    cr_assert(mcp_preset_count("topologies") >= 10);
    for (size_t i = 0; i < mcp_preset_count("topologies"); i++) {
        const char *name = mcp_preset_at("topologies", i)->name;
        struct mcp_cluster cluster, again;
        cr_assert(eq(int, (int)mcp_cluster_load(arena, name, &cluster, &err), MCP_OK), "%s",
                  err.text);
        cr_expect(eq(str, (char *)cluster.name, (char *)name));
        cr_expect(cluster.source[0] != '\0', "%s has no source", name);
        struct mcp_json *first = mcp_json_new_object(arena), *second = mcp_json_new_object(arena);
        mcp_cluster_to_json(&cluster, first);
        cr_assert(eq(int, (int)parse(mcp_json_text(arena, first), &again, &err), MCP_OK), "%s",
                  err.text);
        mcp_cluster_to_json(&again, second);
        cr_expect(mcp_same(mcp_json_text(arena, first), mcp_json_text(arena, second)), "%s", name);
    }
}

Test(cluster, every_gpu_preset_loads_and_names_its_sources)
{
    struct mcp_error err = {""};
    for (size_t i = 0; i < mcp_preset_count("gpus"); i++) {
        const char *name = mcp_preset_at("gpus", i)->name;
        struct mcp_gpu gpu;
        cr_assert(eq(int, (int)mcp_gpu_load(arena, name, &gpu, &err), MCP_OK), "%s", err.text);
        cr_expect(eq(str, (char *)gpu.name, (char *)name));
        cr_expect(gpu.source[0] != '\0', "%s has no source", name);
    }
}

Test(cluster, h100_is_as_its_datasheet_says)
{
    struct mcp_error err = {""};
    struct mcp_gpu gpu;
    cr_assert(eq(int, (int)mcp_gpu_load(arena, "h100-sxm-80gb", &gpu, &err), MCP_OK));
    cr_expect(eq(dbl, gpu.peak_flops_per_s[MCP_PRECISION_BF16], 989e12));
    cr_expect(eq(dbl, gpu.peak_flops_per_s[MCP_PRECISION_FP8], 1979e12));
    cr_expect(isnan(gpu.peak_flops_per_s[MCP_PRECISION_NVFP4]));
    cr_expect(eq(i64, gpu.memory_bytes, (int64_t)81559 << 20));
    cr_expect(eq(int, gpu.num_multiprocessors, 132));
    cr_expect(isnan(gpu.price_per_gpu_hour), "a price was invented");
    cr_expect(eq(int, gpu.num_fitted, 3));
    cr_expect(eq(str, (char *)mcp_gpu_preset(arena, "NVIDIA H100 80GB HBM3"), "h100-sxm-80gb"));
    cr_expect(eq(ptr, (void *)mcp_gpu_preset(arena, "NVIDIA H100"), NULL));
}

struct case_load {
    char name[32];
    enum mcp_status want;
    int gpus;
    char says[64];
};
ParameterizedTestParameters(cluster, load)
{
    static struct case_load cases[] = {
        {"dgx-h100", MCP_OK, 8, ""},
        {"dgx-h100:16", MCP_OK, 128, ""},
        {"gb200-nvl72:4", MCP_OK, 288, ""},
        {"dgx-h101", MCP_IO, 0, "'dgx-h100'"},
        {"dgx-h100:0", MCP_INVALID, 0, "1 to 1048576"},
        {"dgx-h100:-1", MCP_INVALID, 0, "1 to 1048576"},
        {"dgx-h100:two", MCP_INVALID, 0, "write dgx-h100:2"},
        {"dgx-h100:131072", MCP_OK, 1 << 20, ""},
        {"dgx-h100:131073", MCP_INVALID, 0, "at most 131072 nodes"},
        {"dgx-h100:2147483648", MCP_INVALID, 0, "1 to 1048576"},
        {"", MCP_IO, 0, "preset"},
    };
    return cr_make_param_array(struct case_load, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_load *c, cluster, load)
{
    struct mcp_error err = {""};
    struct mcp_cluster cluster;
    enum mcp_status got = mcp_cluster_load(arena, c->name, &cluster, &err);
    cr_expect(eq(int, (int)got, (int)c->want), "%s: %s", c->name, err.text);
    cr_expect(ne(ptr, (void *)strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
    if (got == MCP_OK) {
        cr_expect(eq(int, mcp_cluster_gpus(&cluster), c->gpus));
        cr_expect(eq(int, cluster.tiers[cluster.num_tiers - 1].ranks, c->gpus));
    }
}

struct case_take {
    char name[32];
    int gpus;
    enum mcp_status want;
    int nodes, domain; /* ranks of tier 0 */
    char says[48];
};
ParameterizedTestParameters(cluster, take)
{
    static struct case_take cases[] = {
        {"dgx-h100:16", 128, MCP_OK, 16, 8, ""},
        {"dgx-h100:16", 64, MCP_OK, 8, 8, ""},
        {"dgx-h100:16", 4, MCP_OK, 1, 4, ""},
        {"dgx-h100:16", 1, MCP_OK, 1, 1, ""},
        {"dgx-h100:16", 12, MCP_OK, 2, 6, ""},
        {"dgx-h100:16", 11, MCP_INVALID, 0, 0, "nearest are 8 and 16"},
        {"dgx-h100", 9, MCP_INVALID, 0, 0, "which has 8 in 1 node"},
        {"dgx-h100", 0, MCP_INVALID, 0, 0, "0 GPUs"},
        {"gb200-nvl72:4", 256, MCP_OK, 4, 64, ""},
        {"gb200-nvl72:4", 144, MCP_OK, 2, 72, ""},
        {"gb200-nvl72:16", 1024, MCP_OK, 16, 64, ""},
        {"gb200-nvl72", 64, MCP_OK, 1, 64, ""},
    };
    return cr_make_param_array(struct case_take, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_take *c, cluster, take)
{
    struct mcp_error err = {""};
    struct mcp_cluster cluster, again;
    cr_assert(eq(int, (int)mcp_cluster_load(arena, c->name, &cluster, &err), MCP_OK));
    again = cluster;
    enum mcp_status got = mcp_cluster_take(&cluster, c->gpus, &err);
    cr_expect(eq(int, (int)got, (int)c->want), "%s %d: %s", c->name, c->gpus, err.text);
    cr_expect(ne(ptr, (void *)strstr(err.text, c->says), NULL), "%s", err.text);
    if (got == MCP_OK) {
        cr_expect(eq(int, mcp_cluster_gpus(&cluster), c->gpus));
        cr_expect(eq(int, cluster.num_nodes, c->nodes));
        cr_expect(eq(int, cluster.tiers[0].ranks, c->domain));
        cr_expect(eq(int, (int)mcp_cluster_check(&cluster, &err), MCP_OK), "%s", err.text);
    } else {
        cr_expect(eq(int, mcp_cluster_gpus(&cluster), mcp_cluster_gpus(&again)), "it changed");
    }
}

Test(cluster, set_gpus_adds_nodes_and_refuses_without_a_network)
{
    struct mcp_error err = {""};
    struct mcp_cluster cluster;
    cr_assert(eq(int, (int)mcp_cluster_load(arena, "gb300-nvl72", &cluster, &err), MCP_OK));
    cr_expect(eq(int, (int)mcp_cluster_set_gpus(&cluster, 1024, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(int, cluster.num_nodes, 16));
    cr_expect(eq(int, cluster.gpus_per_node, 64));
    cr_assert(eq(int, (int)mcp_cluster_load(arena, "pcie-box", &cluster, &err), MCP_OK));
    cluster.num_tiers = 1; /* no network */
    cr_expect(eq(int, (int)mcp_cluster_set_gpus(&cluster, 8, &err), MCP_INVALID));
    cr_expect(ne(ptr, (void *)strstr(err.text, "no tier joins nodes"), NULL), "%s", err.text);
    cr_expect(eq(int, (int)mcp_cluster_set_gpus(&cluster, 1 << 30, &err), MCP_INVALID));
}

static const char two_level[] =
    "{\"name\":\"c\",\"gpu\":\"h100-sxm-80gb\",\"num_nodes\":12,\"gpus_per_node\":8,\"tiers\":["
    "{\"name\":\"nvlink\",\"ranks\":8,\"bandwidth_bytes_per_s\":\"450GB/"
    "s\",\"efficiency_frac\":0.8,"
    "\"latency_s\":\"1us\"},"
    "{\"name\":\"leaf\",\"ranks\":64,\"bandwidth_bytes_per_s\":\"400Gbit/"
    "s\",\"efficiency_frac\":0.8,"
    "\"latency_s\":\"2us\"},"
    "{\"name\":\"spine\",\"bandwidth_bytes_per_s\":\"200Gbit/s\",\"efficiency_frac\":0.8,"
    "\"latency_s\":\"5us\"}]}";

Test(cluster, domains_fill_evenly_and_grow_back)
{
    struct mcp_error err = {""};
    struct mcp_cluster c;
    cr_assert(eq(int, (int)parse(two_level, &c, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(int, c.tiers[1].ranks, 48), "12 nodes are 2 x 6, not 8 and 4");
    cr_expect(eq(int, (int)mcp_cluster_resize(&c, 4, &err), MCP_OK));
    cr_expect(eq(int, c.tiers[1].ranks, 32));
    cr_expect(eq(int, (int)mcp_cluster_resize(&c, 16, &err), MCP_OK));
    cr_expect(eq(int, c.tiers[1].ranks, 64));
    cr_expect(eq(int, c.tiers[2].ranks, 128));
}

/* One value of a good file is replaced by another. */
struct case_bad {
    char from[48];
    char to[64];
    enum mcp_status want;
    char says[64];
};
ParameterizedTestParameters(cluster, bad_file)
{
    static struct case_bad cases[] = {
        {"\"450GB/s\"", "\"0GB/s\"", MCP_INVALID, "nvlink: bandwidth_bytes_per_s=0"},
        {"\"450GB/s\"", "0", MCP_INVALID, "nvlink: bandwidth_bytes_per_s=0"},
        {"\"450GB/s\"", "-1e9", MCP_INVALID, "nvlink: bandwidth_bytes_per_s=-1e+09"},
        {"\"450GB/s\"", "\"-450GB/s\"", MCP_FORMAT, "negative"},
        {"\"450GB/s\"", "1e30", MCP_INVALID, "nvlink: bandwidth_bytes_per_s=1e+30"},
        {"\"450GB/s\"", "\"1e30GB/s\"", MCP_INVALID, "bandwidth_bytes_per_s=1e+39"},
        {"\"450GB/s\"", "NaN", MCP_FORMAT, "c.json"},
        {"\"450GB/s\"", "\"nanGB/s\"", MCP_FORMAT, "nanGB/s"},
        {"\"450GB/s\"", "\"450\"", MCP_FORMAT, "no unit"},
        {"\"450GB/s\"", "\"450GB\"", MCP_FORMAT, "450GB"},
        {"\"450GB/s\"", "null", MCP_INVALID, "is unknown; state it"},
        {"\"450GB/s\"", "true", MCP_FORMAT, "bandwidth_bytes_per_s"},
        {"\"1us\"", "-1e-6", MCP_INVALID, "latency_s=-1e-06"},
        {"\"1us\"", "\"1h\"", MCP_INVALID, "latency_s=3600"},
        {"\"efficiency_frac\":0.8", "\"efficiency_frac\":1.5", MCP_INVALID, "efficiency_frac=1.5"},
        {"\"ranks\":8", "\"ranks\":6", MCP_INVALID, "ranks=6 does not nest"},
        {"\"ranks\":8,", "", MCP_FORMAT, "ranks is missing"},
        {"\"ranks\":64", "\"ranks\":60", MCP_INVALID, "ranks=60 does not nest"},
        {"\"name\":\"spine\"", "\"name\":\"spine\",\"ranks\":8", MCP_FORMAT, "ranks=8"},
        {"\"num_nodes\":12", "\"num_nodes\":0", MCP_FORMAT, "num_nodes=0"},
        {"\"num_nodes\":12", "\"num_nodes\":2147483647", MCP_FORMAT, "2147483647"},
        {"\"gpus_per_node\":8", "\"gpus_per_nod\":8", MCP_FORMAT, "gpus_per_node"},
        {"\"num_nodes\":12", "\"num_node\":12", MCP_FORMAT, "did you mean 'num_nodes'"},
        {"h100-sxm-80gb", "h100-sxm-80", MCP_IO, "h100-sxm-80gb"},
        {"\"name\":\"c\"", "\"schema\":\"mcpplan.gpu/1\",\"name\":\"c\"", MCP_FORMAT, "schema"},
    };
    return cr_make_param_array(struct case_bad, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_bad *c, cluster, bad_file)
{
    struct mcp_error err = {""};
    struct mcp_cluster cluster;
    const char *at = strstr(two_level, c->from);
    cr_assert(ne(ptr, (void *)at, NULL), "%s", c->from);
    const char *text = mcp_format(arena, "%.*s%s%s", (int)(at - two_level), two_level, c->to,
                                  at + strlen(c->from));
    enum mcp_status got = parse(text, &cluster, &err);
    cr_expect(eq(int, (int)got, (int)c->want), "%s: %s", c->to, err.text);
    cr_expect(ne(ptr, (void *)strstr(err.text, c->says), NULL), "%s: %s", c->to, err.text);
}

Test(cluster, a_single_tier_joins_no_nodes)
{
    static const char text[] =
        "{\"name\":\"c\",\"gpu\":\"h100-sxm-80gb\",\"num_nodes\":2,\"gpus_per_node\":8,\"tiers\":["
        "{\"name\":\"nvlink\",\"bandwidth_bytes_per_s\":\"450GB/s\",\"efficiency_frac\":0.8,"
        "\"latency_s\":\"1us\"}]}";
    struct mcp_error err = {""};
    struct mcp_cluster c;
    cr_expect(eq(int, (int)parse(text, &c, &err), MCP_INVALID));
    cr_expect(ne(ptr, (void *)strstr(err.text, "no tier joins nodes"), NULL), "%s", err.text);
}

struct case_gpu {
    char key[40];
    double value;
    char says[64];
};
ParameterizedTestParameters(cluster, bad_gpu)
{
    static struct case_gpu cases[] = {
        {"memory_bandwidth_bytes_per_s", 0, "memory_bandwidth_bytes_per_s=0"},
        {"memory_bandwidth_bytes_per_s", 1e30, "memory_bandwidth_bytes_per_s=1e+30"},
        {"memory_bandwidth_bytes_per_s", (double)NAN, "memory_bandwidth_bytes_per_s is missing"},
        {"sustained_clock_frac", 1.01, "sustained_clock_frac=1.01"},
        {"power_watts", -1, "power_watts=-1"},
    };
    return cr_make_param_array(struct case_gpu, cases, sizeof cases / sizeof *cases);
}
/* A good GPU with one value changed, written and read back. */
ParameterizedTest(struct case_gpu *c, cluster, bad_gpu)
{
    struct mcp_error err = {""};
    struct mcp_gpu gpu;
    struct mcp_json *object, *json;
    cr_assert(eq(int, (int)mcp_gpu_load(arena, "gb200", &gpu, &err), MCP_OK));
    if (mcp_same(c->key, "memory_bandwidth_bytes_per_s"))
        gpu.memory_bandwidth_bytes_per_s = c->value;
    else if (mcp_same(c->key, "sustained_clock_frac"))
        gpu.sustained_clock_frac = c->value;
    else
        gpu.power_watts = c->value;
    object = mcp_json_new_object(arena);
    mcp_gpu_to_json(&gpu, object);
    const char *text = mcp_json_text(arena, object);
    cr_assert(
        eq(int, (int)mcp_json_parse(arena, "g.json", text, strlen(text), &json, &err), MCP_OK));
    enum mcp_status got = mcp_gpu_from_json(arena, json, &gpu, &err);
    if (got == MCP_OK)
        got = mcp_gpu_check(&gpu, &err);
    cr_expect(ne(int, (int)got, MCP_OK));
    cr_expect(ne(ptr, (void *)strstr(err.text, c->says), NULL), "%s", err.text);
}

/* --- machines of several kinds --- */

Test(cluster, pools_are_joined_by_plus)
{
    struct mcp_error err = {""};
    struct mcp_cluster cluster, again;
    struct mcp_json *json = mcp_json_new_object(arena);
    cr_assert(mcp_cluster_load(arena, "dgx-a100:8+dgx-h100:4", &cluster, &err) == MCP_OK, "%s",
              err.text);
    cr_expect(eq(int, mcp_cluster_num_pools(&cluster), 2));
    cr_expect(eq(int, mcp_cluster_gpus(&cluster), 96));
    cr_expect(eq(int, mcp_pool_gpus(mcp_cluster_pool(&cluster, 1)), 32));
    cr_expect(eq(str, (char *)mcp_cluster_pool(&cluster, 1)->gpu.name, "h100-sxm-80gb"));
    mcp_cluster_to_json(&cluster, json);
    cr_assert(mcp_cluster_from_json(arena, json, &again, &err) == MCP_OK, "%s", err.text);
    cr_expect(eq(int, mcp_cluster_num_pools(&again), 2));
    cr_expect(eq(int, mcp_cluster_gpus(&again), 96));
    cr_expect(mcp_cluster_take(&cluster, 96, &err) == MCP_OK, "%s", err.text);
    cr_expect(mcp_cluster_take(&cluster, 64, &err) == MCP_INVALID);
    cr_expect(ne(ptr, strstr(err.text, "several kinds"), NULL), "%s", err.text);
    cr_expect(mcp_cluster_load(arena, "dgx-a100:8+", &cluster, &err) != MCP_OK);
}
