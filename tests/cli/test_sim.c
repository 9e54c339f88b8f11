/* tests/cli/test_sim.c: mcpplan sim from the outside. */
#include "tests/cli/child.h"

#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>
#include <unistd.h>

ParameterizedTestParameters(cli, sim)
{
    static struct child_case cases[] = {
        {"a plan is played", {"sim", "@", "~"}, MCP_OK, "a step in virtual time", ""},
        {"facts for machines", {"sim", "@", "--json", "~"}, MCP_OK, "\"mcpplan.sim/1\"", ""},
        {"links are shared", {"sim", "@", "--json", "~"}, MCP_OK, "\"shared_links_s\"", ""},
        {"entries alone", {"sim", "@", "--level=slot", "--json", "~"}, MCP_OK, "\"slot\"", ""},
        {"ops as spans", {"sim", "@", "--timeline", "-", "~"}, MCP_OK, "mcpplan.timeline/1", ""},
        {"a trace", {"sim", "@", "--trace", "-", "~"}, MCP_OK, "\"traceEvents\":[", ""},
        {"ops of unequal ranks",
         {"sim", "@", "--noise=0.1", "--trace=-", "~"},
         MCP_OK,
         "\"traceEvents\":[",
         ""},
        {"ops under noise", {"sim", "@", "--noise=0.1", "--level=op", "~"}, MCP_OK, "jitter", ""},
        {"no ops by slot",
         {"sim", "@", "--trace=-", "--level=slot", "~"},
         MCP_USAGE,
         "",
         "leave out --level slot"},
        {"of some ranks", {"sim", "@", "--ranks=5,1..2", "--trace=-", "~"}, MCP_OK, "rank 5", ""},
        {"of all ranks", {"sim", "@", "--ranks=all", "--trace=-", "~"}, MCP_OK, "rank 7", ""},
        {"of no ranks", {"sim", "@", "--ranks=2..8", "--trace=-", "~"}, MCP_USAGE, "", "0 to 7"},
        {"ranks backwards",
         {"sim", "@", "--ranks=3..2", "--trace=-", "~"},
         MCP_USAGE,
         "",
         "2 comes before 3"},
        {"ranks of no file", {"sim", "@", "--ranks=all", "~"}, MCP_USAGE, "", "--trace"},
        {"a short trace",
         {"sim", "@", "--max-spans=64", "--trace=-", "~"},
         MCP_OK,
         "\"traceEvents\":[",
         "are left out"},
        {"a short timeline",
         {"sim", "@", "--max-spans=64", "--timeline=-", "~"},
         MCP_OK,
         "mcpplan.timeline/1",
         "are left out"},
        {"collectives in switches",
         {"sim", "@", "--collective-algorithm=in-switch", "~"},
         MCP_OK,
         "collectives by in-switch, where the plan has ring",
         ""},
        {"the fastest collectives",
         {"sim", "@", "--collective-algorithm=fastest", "--json", "~"},
         MCP_OK,
         "\"collective_algorithm_s\"",
         ""},
        {"dead NVLink", {"sim", "@", "--dead-link=nvlink", "~"}, MCP_OK, "takes infiniband", ""},
        {"of one GPU", {"sim", "@", "--dead-link=nvlink@3", "~"}, MCP_OK, "takes infiniband", ""},
        {"a network of one node",
         {"sim", "@", "--dead-link=infiniband", "~"},
         MCP_OK,
         "nobody needs",
         ""},
        {"no tier to die", {"sim", "@", "--dead-link=ib", "~"}, MCP_USAGE, "", "--dead-link ib"},
        {"two ranks' links",
         {"sim", "@", "--slow-link=nvlink:2@1", "--dead-link=nvlink@2", "~"},
         MCP_USAGE,
         "",
         "ranks 1 and 2"},
        {"a rank dies",
         {"sim", "@", "--fail-rank=1@1ms", "~"},
         MCP_OK,
         "gives up, after a timeout of 10.0 min",
         ""},
        {"... soon noticed",
         {"sim", "@", "--fail-rank=1@1ms", "--failure-timeout=2s", "--json", "~"},
         MCP_OK,
         "\"timeout_s\": 2",
         ""},
        {"... after the step",
         {"sim", "@", "--fail-rank=1@1h", "~"},
         MCP_INVALID,
         "",
         "the step ends after"},
        {"... at no time", {"sim", "@", "--fail-rank=1", "~"}, MCP_USAGE, "", "RANK@TIME"},
        {"... that is none", {"sim", "@", "--fail-rank=9@1s", "~"}, MCP_USAGE, "", "0 to 7"},
        {"noise has a cost", {"sim", "@", "--noise", "0.2", "~"}, MCP_OK, "jitter", ""},
        {"a slow rank", {"sim", "@", "--slow-rank", "1:2", "~"}, MCP_OK, "the slow rank", ""},
        {"a slow link", {"sim", "@", "--slow-link=nvlink:4", "~"}, MCP_OK, "the slow link", ""},
        {"of one rank", {"sim", "@", "--slow-link=nvlink:4@3", "~"}, MCP_OK, "the slow link", ""},
        {"of no rank", {"sim", "@", "--slow-link=nvlink:4@9", "~"}, MCP_USAGE, "", "0 to 7"},
        {"a link of no speed",
         {"sim", "@", "--slow-link=nvlink:1e300", "~"},
         MCP_INVALID,
         "",
         "centuries"},
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
    child_write_plan(path);
    child_check(c, path);
    unlink(path);
}

/* Files of what no step is: more microbatches than anybody plays, links that carry nothing. */
ParameterizedTestParameters(cli, sim_refuses)
{
    static struct child_case cases[] = {
        {"a billion sequences",
         {"\"global_batch_size\": 64,", "\"global_batch_size\": 999999360,"},
         MCP_INVALID,
         "",
         "slots"},
        {"a key that no plan has",
         {"\"microbatch_size\": ", "\"microbatch\": 1, \"microbatch_size\": "},
         MCP_FORMAT,
         "",
         "unknown key 'microbatch'"},
        {"a model beyond measure",
         {"\"hidden_size\": ", "\"hidden_size\": 99999"},
         MCP_INVALID,
         "",
         "mcpplan: /tmp/mcpplan-test-"},
        {"no link",
         {"\"bandwidth_bytes_per_s\": 450000000000,", "\"bandwidth_bytes_per_s\": 0,"},
         MCP_INVALID,
         "",
         "bandwidth"},
    };
    return cr_make_param_array(struct child_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct child_case *c, cli, sim_refuses)
{
    char path[TEMPORARY_PATH];
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text plan;
    struct mcp_error err;
    struct child_case run = {"", {"sim", "@", "~"}, c->want, "", ""};
    child_write_plan(path);
    cr_assert(eq(int, (int)mcp_file_read(arena, path, 1 << 20, &plan, &err), MCP_OK));
    unlink(path);
    const char *at = strstr(plan.data, c->words[0]);
    cr_assert(ne(ptr, (void *)at, NULL), "%s", c->words[0]);
    struct mcp_text edited = mcp_text_new(arena);
    mcp_text_append(&edited, plan.data, (size_t)(at - plan.data));
    mcp_text_add(&edited, "%s%s", c->words[1], at + strlen(c->words[0]));
    child_write_file(path, edited.data, edited.length);
    memcpy(run.err, c->err, sizeof run.err);
    memcpy(run.name, c->name, sizeof run.name);
    child_check(&run, path);
    unlink(path);
    mcp_arena_free(arena);
}

Test(cli, sim_names_machines_of_every_kind)
{
    char path[TEMPORARY_PATH];
    char words[MAX_WORDS][WORD] = {"plan",
                                   "--model",
                                   "tiny",
                                   "--cluster=dgx-a100+dgx-h100",
                                   "--global-batch-size=64",
                                   "--pipeline-parallel=2",
                                   "--json",
                                   "~"};
    struct child child = {.arena = mcp_arena_new()};
    struct child_case run = {
        "mixed", {"sim", "@", "~"}, MCP_OK, "8 x a100-sxm4-80gb and 8 x h100-sxm-80gb: ", ""};
    child_run(&child, words, NULL);
    cr_assert(eq(int, child.status, MCP_OK), "%s", child.err);
    child_write_file(path, child.out, strlen(child.out));
    child_check(&run, path);
    unlink(path);
    mcp_arena_free(child.arena);
}

/* Two machines of one tier between them. */
ParameterizedTestParameters(cli, sim_on_two_nodes)
{
    static struct child_case cases[] = {
        {"no network", {"sim", "@", "--dead-link=infiniband", "~"}, MCP_INFEASIBLE, "", "2 parts"},
        {"a card of one GPU",
         {"sim", "@", "--dead-link=infiniband@3", "~"},
         MCP_OK,
         "goes by a neighbour's, over nvlink",
         ""},
        {"no switches that add up",
         {"sim", "@", "--collective-algorithm=in-switch", "~"},
         MCP_USAGE,
         "",
         "nvlink or infiniband"},
    };
    return cr_make_param_array(struct child_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct child_case *c, cli, sim_on_two_nodes)
{
    char path[TEMPORARY_PATH];
    char words[MAX_WORDS][WORD] = {"plan",
                                   "--model",
                                   "tiny",
                                   "--cluster=dgx-a100:2",
                                   "--global-batch-size=64",
                                   "--pipeline-parallel=2",
                                   "--json",
                                   "~"};
    struct child child = {.arena = mcp_arena_new()};
    child_run(&child, words, NULL);
    cr_assert(eq(int, child.status, MCP_OK), "%s", child.err);
    child_write_file(path, child.out, strlen(child.out));
    child_check(c, path);
    unlink(path);
    mcp_arena_free(child.arena);
}
