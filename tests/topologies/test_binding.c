/* tests/topologies/test_binding.c: cores shared out among ranks. */
#include "core/text.h"
#include "topologies/binding.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct case_binding {
    char name[48];
    int cores, ranks, threads, index;
    int first, count; /* wanted */
};
ParameterizedTestParameters(binding, of)
{
    static struct case_binding cases[] = {
        {"one core each", 2, 2, 1, 1, 1, 1},
        {"threads of their own", 8, 2, 4, 1, 4, 4},
        {"shares are equal, what is left is nobody's", 7, 3, 2, 2, 4, 2},
        {"fewer threads lie at the share's start", 8, 2, 1, 1, 4, 1},
        {"a rank alone", 4, 1, 4, 0, 0, 4},
        {"more ranks than cores", 2, 4, 1, 3, 0, 0},
        {"more threads than cores", 4, 2, 3, 1, 0, 0},
    };
    return cr_make_param_array(struct case_binding, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_binding *c, binding, of)
{
    const struct mcp_binding got = mcp_binding_of(c->cores, c->ranks, c->threads, c->index);
    cr_expect(eq(int, got.first, c->first), "%s", c->name);
    cr_expect(eq(int, got.count, c->count), "%s", c->name);
}

Test(binding, threads_are_the_cores_of_each_rank)
{
    cr_expect(eq(int, mcp_binding_threads(8, 2), 4));
    cr_expect(eq(int, mcp_binding_threads(7, 2), 3));
    cr_expect(eq(int, mcp_binding_threads(2, 4), 1));
}

Test(binding, says_why_ranks_take_turns)
{
    struct mcp_arena *arena = mcp_arena_new();
    int numbers[] = {0, 1, 2, 5, 7, 8};
    const struct mcp_host_cores six = {6, numbers, NULL}, one = {1, numbers + 3, NULL};
    cr_expect(eq(str, (char *)mcp_host_cores_text(arena, &six, 0, 6), "0-2,5,7-8"));
    cr_expect(eq(str, (char *)mcp_host_cores_text(arena, &six, 2, 2), "2,5"));
    cr_expect(mcp_binding_lack(arena, &six, 3, 2) == NULL);
    const char *text = mcp_binding_lack(arena, &six, 3, 3);
    cr_expect(strstr(text, "3 ranks of 3 threads share cores 0-2,5,7-8, all") == text, "%s", text);
    text = mcp_binding_lack(arena, &one, 2, 1);
    cr_expect(strstr(text, "2 ranks of 1 thread share core 5, all") == text, "%s", text);
    mcp_arena_free(arena);
}

/* What is bound to some cores may use those alone; numbers are those of the whole machine. */
Test(binding, binds_this_process)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_host_cores all, last;
    struct mcp_error err = {""};
    cr_assert(mcp_host_cores(arena, &all, &err) == MCP_OK, "%s", err.text);
    cr_assert(ge(int, all.count, 1));
    cr_assert(mcp_host_bind(&all, all.count - 1, 1, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_host_cores(arena, &last, &err) == MCP_OK, "%s", err.text);
    cr_expect(eq(int, last.count, 1));
    cr_expect(eq(int, last.numbers[0], all.numbers[all.count - 1]));
    mcp_arena_free(arena);
}

/* Two NUMA nodes of a processor each; a network card hangs on the second. */
static const char two_nodes[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
    "<topology version=\"2.0\">\n"
    "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" "
    "allowed_cpuset=\"0x3\" nodeset=\"0x3\" complete_nodeset=\"0x3\" allowed_nodeset=\"0x3\" "
    "gp_index=\"1\">\n"
    "<object type=\"Package\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
    "nodeset=\"0x1\" "
    "complete_nodeset=\"0x1\" gp_index=\"2\">\n"
    "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
    "nodeset=\"0x1\" "
    "complete_nodeset=\"0x1\" gp_index=\"3\" local_memory=\"1048576\"/>\n"
    "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
    "complete_nodeset=\"0x1\" gp_index=\"4\"/>\n"
    "</object>\n"
    "<object type=\"Package\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" "
    "nodeset=\"0x2\" "
    "complete_nodeset=\"0x2\" gp_index=\"5\">\n"
    "<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" "
    "nodeset=\"0x2\" "
    "complete_nodeset=\"0x2\" gp_index=\"6\" local_memory=\"1048576\"/>\n"
    "<object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x2\" "
    "complete_nodeset=\"0x2\" gp_index=\"7\"/>\n"
    "<object type=\"Bridge\" gp_index=\"8\" bridge_type=\"0-1\" depth=\"0\" "
    "bridge_pci=\"0000:[3a-3b]\">\n"
    "<object type=\"PCIDev\" gp_index=\"9\" pci_busid=\"0000:3b:00.0\" pci_type=\"0200 "
    "[15b3:1017] [15b3:0020] 00\" pci_link_speed=\"7.876923\"/>\n"
    "</object>\n"
    "</object>\n"
    "</object>\n"
    "</topology>\n";

Test(binding, goes_beside_a_device)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_host_cores all, own;
    struct mcp_error err = {""};
    char path[] = "/tmp/mcpplan-nodes-XXXXXX";
    cr_assert(mcp_host_bind_beside(arena, "ffff:ff:1f.0", &err) == MCP_IO);
    cr_expect(strstr(err.text, "no PCI device ffff:ff:1f.0") != NULL, "%s", err.text);
    cr_assert(mcp_host_cores(arena, &all, &err) == MCP_OK, "%s", err.text);
    if (all.count < 2 || all.numbers[1] != 1)
        cr_skip_test("this process may not use processors 0 and 1");
    cr_assert(ge(int, mkstemp(path), 0));
    cr_assert(mcp_file_replace(path, two_nodes, sizeof two_nodes - 1, &err) == MCP_OK);
    setenv("HWLOC_XMLFILE", path, 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    cr_expect(mcp_host_bind_beside(arena, "0000:3b:00.0", &err) == MCP_OK, "%s", err.text);
    unsetenv("HWLOC_XMLFILE");
    unlink(path);
    cr_assert(mcp_host_cores(arena, &own, &err) == MCP_OK, "%s", err.text);
    cr_expect(eq(int, own.count, 1));
    cr_expect(eq(int, own.numbers[0], 1));
    mcp_arena_free(arena);
}
