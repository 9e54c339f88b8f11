/* tests/cli/test_sim.c: mcpplan sim from the outside. */
#include "tests/cli/child.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>
#include <unistd.h>

/* A plan that plan wrote. */
static void write_plan(char path[TEMPORARY_PATH])
{
    char words[MAX_WORDS][WORD] = {"plan",
                                   "--model",
                                   "tiny",
                                   "--cluster=dgx-h100",
                                   "--global-batch-size=64",
                                   "--pipeline-parallel=2",
                                   "--virtual-stages=1",
                                   "--json",
                                   "~"};
    struct child child = {.arena = mcp_arena_new()};
    child_run(&child, words, NULL);
    cr_assert(eq(int, child.status, MCP_OK), "%s", child.err);
    child_write_file(path, child.out, strlen(child.out));
    mcp_arena_free(child.arena);
}

ParameterizedTestParameters(cli, sim)
{
    static struct child_case cases[] = {
        {"a plan is played", {"sim", "@", "~"}, MCP_OK, "a step in virtual time", ""},
        {"facts for machines", {"sim", "@", "--json", "~"}, MCP_OK, "\"mcpplan.sim/1\"", ""},
        {"links are shared", {"sim", "@", "--json", "~"}, MCP_OK, "\"shared_links_s\"", ""},
        {"entries alone", {"sim", "@", "--level=slot", "--json", "~"}, MCP_OK, "\"slot\"", ""},
        {"ops as spans", {"sim", "@", "--timeline", "-", "~"}, MCP_OK, "mcpplan.timeline/1", ""},
        {"a trace", {"sim", "@", "--trace", "-", "~"}, MCP_OK, "\"traceEvents\":[", ""},
        {"no ops of unequal ranks",
         {"sim", "@", "--noise=0.1", "--trace=-", "~"},
         MCP_USAGE,
         "",
         "leave out --noise"},
        {"no ops under noise", {"sim", "@", "--noise=0.1", "--level=op", "~"}, MCP_USAGE, "", "op"},
        {"noise has a cost", {"sim", "@", "--noise", "0.2", "~"}, MCP_OK, "jitter", ""},
        {"a slow rank", {"sim", "@", "--slow-rank", "1:2", "~"}, MCP_OK, "the slow rank", ""},
        {"a slow link", {"sim", "@", "--slow-link=nvlink:4", "~"}, MCP_OK, "the slow link", ""},
        {"of one rank", {"sim", "@", "--slow-link=nvlink:4@3", "~"}, MCP_OK, "the slow link", ""},
        {"of no rank", {"sim", "@", "--slow-link=nvlink:4@9", "~"}, MCP_USAGE, "", "0 to 7"},
        {"another schedule",
         {"sim", "@", "--schedule=gpipe", "--json", "~"},
         MCP_OK,
         "\"gpipe\"",
         ""},
        {"a schedule that does not go",
         {"sim", "@", "--schedule=interleaved", "~"},
         MCP_INVALID,
         "",
         "virtual_stages"},
        {"a rank beyond", {"sim", "@", "--slow-rank", "8:2", "~"}, MCP_USAGE, "", "0 to 7"},
        {"a fast rank", {"sim", "@", "--slow-rank=1:0.5", "~"}, MCP_USAGE, "", "NAME:FACTOR"},
        {"no such tier", {"sim", "@", "--slow-link=ib:2", "~"}, MCP_USAGE, "", "nvlink"},
        {"no plan", {"sim", "models/tiny.json", "~"}, MCP_FORMAT, "", "mcpplan.plan/1"},
        {"no file", {"sim", "nowhere.json", "~"}, MCP_IO, "", "nowhere.json"},
    };
    return cr_make_param_array(struct child_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct child_case *c, cli, sim)
{
    char path[TEMPORARY_PATH];
    write_plan(path);
    child_check(c, path);
    unlink(path);
}
