/* tests/topologies/test_nvml.c: NVML's answers, from a stand-in that stands beside the
 * tests. */
#include "topologies/nvml.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct mcp_arena *arena;
static void begin(void)
{
    arena = mcp_arena_new();
}
static void end(void)
{
    mcp_arena_free(arena);
}
TestSuite(nvml, .init = begin, .fini = end);

struct answer {
    enum mcp_status status;
    bool found;
    const char *note;
    struct mcp_node node;
    struct mcp_error err;
};

/* The stand-in in a mood, "" for a good one. */
static struct answer ask(const char *mood)
{
    struct answer answer = {.note = ""};
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    cr_assert(length > 0);
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
    const char *library = mcp_format(arena, "%s/fake_nvml.so", path);
    cr_assert(eq(int, access(library, R_OK), 0), "no %s", library);
    setenv("FAKE_NVML", mood, 1);
    answer.status =
        mcp_nvml_read(arena, library, &answer.node, &answer.found, &answer.note, &answer.err);
    return answer;
}

Test(nvml, tells_all_of_each_gpu)
{
    struct answer a = ask("");
    cr_assert(a.status == MCP_OK && a.found, "%s", a.err.text);
    cr_assert(eq(int, a.node.num_gpus, 4));
    const struct mcp_node_gpu *gpu = &a.node.gpus[3];
    cr_expect(eq(str, (char *)gpu->name, "NVIDIA A100-SXM4-40GB"));
    cr_expect(eq(str, (char *)gpu->uuid, "GPU-4"));
    cr_expect(eq(str, (char *)gpu->bus_id, "0000:04:00.0"));
    cr_expect(eq(i64, gpu->memory_bytes, (int64_t)40960 << 20));
    cr_expect(eq(dbl, gpu->clock_hz, 1410e6));
    cr_expect(eq(dbl, gpu->memory_clock_hz, 1215e6));
    cr_expect(eq(dbl, gpu->power_limit_watts, 400));
    cr_expect(eq(int, gpu->pcie_generation, 4));
    cr_expect(eq(int, gpu->pcie_width, 0)); /* a function that the library lacks */
    cr_expect(eq(int, gpu->numa_node, 1));
    cr_assert(eq(int, gpu->num_migs, 1));
    cr_expect(eq(str, (char *)gpu->migs[0].profile, "1g.5gb"));
    cr_expect(eq(str, (char *)gpu->migs[0].uuid, "MIG-7"));
    cr_expect(eq(str, (char *)a.node.driver, "535.104.05"));
}

Test(nvml, tells_links)
{
    struct answer a = ask("");
    cr_assert(a.found);
    cr_expect(eq(str, (char *)mcp_link_name(arena, mcp_node_link(&a.node, 0, 1)), "NV4"));
    cr_expect(eq(str, (char *)mcp_link_name(arena, mcp_node_link(&a.node, 3, 2)), "NV4"));
    cr_expect(eq(str, (char *)mcp_link_name(arena, mcp_node_link(&a.node, 1, 2)), "SYS"));
    a = ask("switch");
    cr_expect(eq(str, (char *)mcp_link_name(arena, mcp_node_link(&a.node, 1, 2)), "NV4"));
    cr_expect(eq(int, a.node.gpus[2].switch_links, 4));
}

Test(nvml, says_which_links_lead_nowhere)
{
    struct answer a = ask("vague");
    cr_assert(a.found);
    cr_expect(eq(str, (char *)mcp_link_name(arena, mcp_node_link(&a.node, 0, 1)), "NV3"));
    cr_assert(a.node.notes != NULL);
    cr_expect(strstr(a.node.notes, "where NVLink 3 of GPU 2 leads: left out") != NULL, "%s",
              a.node.notes);
}

Test(nvml, says_why_it_tells_nothing)
{
    struct answer a = ask("dead");
    cr_expect(a.status == MCP_OK && !a.found);
    cr_expect(eq(str, (char *)a.note, "NVML does not start (code 9)"));
    a = ask("none");
    cr_expect(a.status == MCP_OK && !a.found && a.note[0] == '\0');
    a = ask("lost");
    cr_expect(eq(int, (int)a.status, MCP_RUN_FAILURE));
    cr_expect(strstr(a.err.text, "NVML does not open GPU2 (code 2)") != NULL, "%s", a.err.text);
    struct answer none = {.note = ""};
    none.status = mcp_nvml_read(arena, "libno-such-library.so.1", &none.node, &none.found,
                                &none.note, &none.err);
    cr_expect(none.status == MCP_OK && !none.found && none.note[0] == '\0');
}
