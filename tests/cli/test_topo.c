/* tests/cli/test_topo.c: drawings to the byte, SVG as XML, fabrics and comparisons. */
#include "core/text.h"
#include "tests/cli/child.h"
#include "topologies/xml.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN "tests/cli/golden/"

struct drawing_case {
    char words[MAX_WORDS][WORD];
    char golden[48];
    bool ascii;
};
ParameterizedTestParameters(topo, drawings)
{
    static struct drawing_case cases[] = {
        {{"topo", "dgx-h100:64", "~"}, "topo_dgx_h100.txt", false},
        {{"topo", "h100-pcie", "~"}, "topo_h100_pcie.txt", true},
        {{"topo", "gb200-nvl72:4", "~"}, "topo_gb200.txt", false},
        {{"topo", "dgx-h100:512", "--fabric=rail", "--oversubscription=2", "~"},
         "topo_rail.txt",
         false},
        {{"topo", "dgx-h100:2+dgx-a100:4", "~"}, "topo_mixed.txt", false},
        {{"topo", GOLDEN "topo_pairs.dump", "~"}, "topo_pairs.txt", false},
        {{"topo", GOLDEN "topo_switched.dump", "~"}, "topo_switched.txt", false},
        {{"topo", GOLDEN "topo_switched.dump", "--gpu=h100-sxm-80gb", "--nodes=4",
          "--network=400Gbit/s", "--fabric=fat-tree", "~"},
         "topo_switched_x4.txt",
         false},
        {{"topo", GOLDEN "topo_crossing.dump", "~"}, "topo_crossing.txt", true},
        {{"topo", GOLDEN "topo_rails.dump", "--gpu=h100-sxm-80gb", "--nodes=4", "--fabric=rail",
          "~"},
         "topo_rails.txt",
         false},
        {{"topo", GOLDEN "topo_numa.dump", "~"}, "topo_numa.txt", false},
        {{"model", "tiny", "~"}, "model_tiny.txt", true},
    };
    return cr_make_param_array(struct drawing_case, cases, sizeof cases / sizeof *cases);
}
/* The answer begins with the golden text. */
ParameterizedTest(struct drawing_case *c, topo, drawings, .init = child_settle_environment)
{
    struct child run = {.arena = mcp_arena_new()};
    struct mcp_text golden = mcp_text_new(run.arena);
    const char *path = mcp_format(run.arena, GOLDEN "%s", c->golden);
    setenv("COLUMNS", "80", 1);
    setenv("LC_ALL", c->ascii ? "C" : "C.UTF-8", 1);
    child_run(&run, c->words, NULL);
    cr_expect(eq(int, run.status, (int)MCP_OK), "%s", run.err);
    cr_assert(eq(int, (int)mcp_file_read(run.arena, path, 1 << 20, &golden, NULL), (int)MCP_OK),
              "%s", path);
    cr_expect(golden.length > 100, "%s is no drawing", path);
    cr_expect(mcp_starts_with(run.out, golden.data), "%s:\n%s", path, run.out);
    for (const char *at = run.out; c->ascii && *at != '\0'; at++)
        cr_assert(lt(int, (unsigned char)*at, 0x80), "%s: a byte beyond ASCII", path);
    mcp_arena_free(run.arena);
}

struct svg_case {
    char name[WORD];
    int gpus, lines; /* at least so many boxes of GPUs, lines of buses */
};
ParameterizedTestParameters(topo, svg)
{
    static struct svg_case cases[] = {
        {"dgx-h100:16", 8, 10},
        {"tpu-v5p:4", 4, 6},
        {"dgx-h100+dgx-a100", 16, 16},
        {GOLDEN "topo_pairs.dump", 4, 2},
        {GOLDEN "topo_switched.dump", 8, 3},
    };
    return cr_make_param_array(struct svg_case, cases, sizeof cases / sizeof *cases);
}
/* Well-formed, self-contained, in both colour schemes, the same bytes twice. */
ParameterizedTest(struct svg_case *c, topo, svg, .init = child_settle_environment)
{
    struct child run = {.arena = mcp_arena_new()}, again = {.arena = run.arena};
    char words[][WORD] = {"topo", "", "--svg", "-", "~"};
    struct mcp_xml *root;
    struct mcp_error err = {""};
    int gpus = 0, lines = 0, texts = 0;
    snprintf(words[1], WORD, "%s", c->name);
    child_run(&run, words, NULL);
    child_run(&again, words, NULL);
    cr_assert(eq(int, run.status, (int)MCP_OK), "%s", run.err);
    cr_assert(eq(int,
                 (int)mcp_xml_parse(run.arena, "drawing", run.out, strlen(run.out), &root, &err),
                 (int)MCP_OK),
              "%s", err.text);
    cr_expect(mcp_same(run.out, again.out), "not the same twice");
    cr_expect(eq(str, (char *)root->name, "svg"));
    for (const struct mcp_xml *at = root; at != NULL; at = mcp_xml_next(at, root)) {
        bool is_foreign = mcp_same(at->name, "script") || mcp_same(at->name, "image");
        cr_expect(not(is_foreign));
        gpus += mcp_same(at->name, "rect") && mcp_same(mcp_xml_attribute(at, "class"), "gpu");
        lines += mcp_same(at->name, "line");
        texts += mcp_same(at->name, "text");
    }
    cr_expect(ge(int, gpus, c->gpus));
    cr_expect(ge(int, lines, c->lines));
    cr_expect(gt(int, texts, gpus), "GPUs are labelled, and boxes have titles");
    cr_expect(ne(ptr, strstr(run.out, "prefers-color-scheme: dark"), NULL));
    cr_expect(eq(ptr, strstr(run.out, "href"), NULL));
    mcp_arena_free(run.arena);
}

/* Names that XML and terminals cannot hold do not spoil the drawing. */
Test(topo, svg_survives_any_name, .init = child_settle_environment)
{
    static const char file[] =
        "{\"name\": \"<a>&\\u0001\\uffff \\\"\\u4e16\\u754c\", \"gpu\": \"l40s\", "
        "\"gpus_per_node\": 2, \"tiers\": [{\"name\": \"]]>\", \"bandwidth_bytes_per_s\": 1e9, "
        "\"efficiency_frac\": 0.5, \"latency_s\": 0}]}";
    char path[TEMPORARY_PATH], words[][WORD] = {"topo", "@", "--svg", "-", "~"};
    struct child run = {.arena = mcp_arena_new()};
    struct mcp_xml *root;
    struct mcp_error err = {""};
    child_write_file(path, file, sizeof file - 1);
    child_run(&run, words, path);
    cr_assert(eq(int, run.status, (int)MCP_OK), "%s", run.err);
    cr_expect(eq(int,
                 (int)mcp_xml_parse(run.arena, "drawing", run.out, strlen(run.out), &root, &err),
                 (int)MCP_OK),
              "%s", err.text);
    cr_expect(ne(ptr, strstr(run.out, "&lt;a&gt;&amp;"), NULL));
    unlink(path);
    mcp_arena_free(run.arena);
}

/* A name of a megabyte makes no drawing of a megabyte's width. */
Test(topo, long_names_are_cut, .init = child_settle_environment)
{
    char path[TEMPORARY_PATH], words[][WORD] = {"topo", "@", "--svg", "-", "~"};
    struct child run = {.arena = mcp_arena_new()};
    struct mcp_text file = mcp_text_new(run.arena);
    mcp_text_add(&file,
                 "{\"gpu\": \"l40s\", \"gpus_per_node\": 2, \"tiers\": [{\"name\": \"pcie\", "
                 "\"bandwidth_bytes_per_s\": 1e9, \"efficiency_frac\": 0.5, "
                 "\"latency_s\": 0}], \"name\": \"");
    for (int i = 0; i < 1 << 19; i++)
        mcp_text_append(&file, "\xc3\xa4", 2);
    mcp_text_add(&file, "\"}");
    child_write_file(path, file.data, file.length);
    child_run(&run, words, path);
    cr_expect(eq(int, run.status, (int)MCP_OK), "%s", run.err);
    cr_expect(lt(sz, strlen(run.out), (size_t)8192));
    cr_expect(ne(ptr, strstr(run.out, "\xc3\xa4..."), NULL));
    unlink(path);
    mcp_arena_free(run.arena);
}

ParameterizedTestParameters(topo, answers)
{
    static struct child_case cases[] = {
        {"a cluster is equal to itself",
         {"topo", "--diff", "l40s:2", "l40s:2", "~"},
         MCP_OK,
         "",
         ""},
        {"two clusters",
         {"topo", "--diff", "dgx-a100", "dgx-h100", "~"},
         MCP_CHECK_FAILED,
         "cluster.tiers[nvlink].bandwidth_bytes_per_s",
         "dgx-a100 and dgx-h100 differ in 32 values"},
        {"two dumps",
         {"topo", "--diff", GOLDEN "topo_pairs.dump", GOLDEN "topo_crossing.dump", "~"},
         MCP_CHECK_FAILED,
         "links[GPU0-GPU1].kind",
         "differ in"},
        {"two clusters as JSON",
         {"topo", "--json", "--diff", "dgx-a100", "dgx-h100", "~"},
         MCP_CHECK_FAILED,
         "\"schema\": \"mcpplan.diff/1\"",
         ""},
        {"one alone", {"topo", "--diff", "dgx-a100", "~"}, MCP_USAGE, "", "not 1"},
        {"a model is equal to itself", {"model", "--diff", "tiny", "tiny", "~"}, MCP_OK, "", ""},
        {"two models",
         {"model", "--diff", "llama-3.1-8b", "llama-3.1-70b", "~"},
         MCP_CHECK_FAILED,
         "hidden_size",
         "differ in"},
        {"two models without --diff", {"model", "tiny", "tiny", "~"}, MCP_USAGE, "", "--diff"},
        {"one model with --diff", {"model", "--diff", "tiny", "~"}, MCP_USAGE, "", "not 1"},
        {"a misspelt preset", {"topo", "dgxh100", "~"}, MCP_IO, "", "did you mean 'dgx-h100'"},
        {"no nodes of a preset", {"topo", "dgx-h100:0", "~"}, MCP_INVALID, "", "0 nodes"},
        {"a GPU beside a cluster",
         {"topo", "l40s", "--gpu=l40s", "~"},
         MCP_USAGE,
         "",
         "its own GPU"},
        {"an unknown fabric",
         {"topo", "l40s:4", "--fabric=fattree", "~"},
         MCP_USAGE,
         "",
         "fat-tree"},
        {"ports of no switch",
         {"topo", "l40s:4", "--switch-ports=8", "~"},
         MCP_USAGE,
         "",
         "--switch-ports needs --fabric fat-tree, rail or dragonfly, not flat"},
        {"a torus without dimensions",
         {"topo", "l40s:4", "--fabric=torus", "~"},
         MCP_USAGE,
         "",
         "needs --torus"},
        {"a torus of another size",
         {"topo", "l40s:4", "--torus=2x3", "~"},
         MCP_INVALID,
         "",
         "product is the 4 nodes"},
        {"a word that is no torus",
         {"topo", "l40s:4", "--torus=ring", "~"},
         MCP_USAGE,
         "",
         "'ring'"},
        {"sites without a network",
         {"topo", "l40s:4", "--sites=2", "~"},
         MCP_USAGE,
         "",
         "--sites needs --wan"},
        {"sites that are unequal",
         {"topo", "l40s:4", "--sites=3", "--wan=1Gbit/s", "--round-trip=1ms", "~"},
         MCP_INVALID,
         "",
         "3 equal sites"},
        {"a round trip of nothing",
         {"topo", "l40s:4", "--round-trip=1ms", "~"},
         MCP_USAGE,
         "",
         "need --sites"},
        {"sites far from each other",
         {"topo", "l40s:4", "--sites=2", "--wan=100Gbit/s", "--round-trip=20ms", "~"},
         MCP_OK,
         "round trip 20.0 ms",
         ""},
        {"rates of NICs are the network's",
         {"topo", GOLDEN "topo_rails.dump", "--gpu=h100-sxm-80gb", "--nodes=4", "~"},
         MCP_OK,
         "network",
         "2 NICs of this file give each GPU 25.0 GB/s"},
        {"nothing tells the network",
         {"topo", GOLDEN "topo_pairs.dump", "--gpu=h100-sxm-80gb", "--nodes=4", "~"},
         MCP_INVALID,
         "",
         "need the bandwidth"},
        {"a network in a preset's place",
         {"topo", "dgx-h100:4", "--network=100Gbit/s", "~"},
         MCP_OK,
         "12.5 GB/s a GPU",
         ""},
    };
    return cr_make_param_array(struct child_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct child_case *c, topo, answers, .init = child_settle_environment)
{
    child_check(c, NULL);
}

/* Every kind of machine that people have runs a model that people train. */
#define PLANS(cluster)                                                                             \
    {                                                                                              \
        cluster,                                                                                   \
            {"plan",                                                                               \
             "--model=llama-3.1-8b",                                                               \
             "--cluster=" cluster,                                                                 \
             "--global-batch-size=64",                                                             \
             "--sequence-length=2048",                                                             \
             "--top=1",                                                                            \
             "~"},                                                                                 \
            MCP_OK, "an iteration", ""                                                             \
    }
ParameterizedTestParameters(topo, presets_plan)
{
    static struct child_case cases[] = {
        PLANS("a100-pcie:2"), PLANS("h100-pcie:2"), PLANS("l40s:2"),    PLANS("rtx-4090:2"),
        PLANS("mi300x:1"),    PLANS("gh200:8"),     PLANS("tpu-v5p:1"),
    };
    return cr_make_param_array(struct child_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct child_case *c, topo, presets_plan, .init = child_settle_environment)
{
    child_check(c, NULL);
}

/* Equal things are answered with nothing. */
Test(topo, no_difference_is_silence, .init = child_settle_environment)
{
    struct child run = {.arena = mcp_arena_new()};
    char words[][WORD] = {"topo", "--diff", "dgx-h100:4", "dgx-h100:4", "~"};
    child_run(&run, words, NULL);
    cr_expect(eq(int, run.status, 0));
    cr_expect(eq(str, run.out, (char *)""));
    cr_expect(eq(str, run.err, (char *)""));
    mcp_arena_free(run.arena);
}

/* What a fabric makes is a cluster file that plans, and that topo reads again. */
Test(topo, a_fabric_is_written_and_read, .init = child_settle_environment)
{
    struct mcp_arena *arena = mcp_arena_new();
    char path[TEMPORARY_PATH];
    char make[][WORD] = {"topo",
                         "dgx-h100:8",
                         "--fabric=fat-tree",
                         "--nodes-per-leaf=2",
                         "--oversubscription=2",
                         "-o",
                         "@",
                         "~"};
    char plan[][WORD] = {"plan", "--model=tiny", "--cluster", "@", "--global-batch-size=64", "~"};
    char again[][WORD] = {"topo", "@", "~"};
    struct child made = {.arena = arena}, planned = {.arena = arena}, read = {.arena = arena};
    child_write_file(path, "old", 3);
    child_run(&made, make, path);
    child_run(&planned, plan, path);
    child_run(&read, again, path);
    cr_expect(eq(int, made.status, (int)MCP_OK), "%s", made.err);
    cr_expect(eq(int, planned.status, (int)MCP_OK), "%s", planned.err);
    cr_expect(ne(ptr, strstr(planned.out, "64 x h100-sxm-80gb, 8 nodes of 8"), NULL));
    cr_expect(eq(str, read.out, made.out));
    unlink(path);
    mcp_arena_free(arena);
}
