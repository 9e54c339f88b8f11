/* tests/cli/test_schedule.c: --schedule: names, files, what cannot be, and what is said of it. */
#include "tests/cli/child.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PLAN "plan", "--model=tiny", "--cluster=dgx-h100", "--gpus=4", "--global-batch-size=16"

/* PyTorch's 1F1B of two stages and eight microbatches, with messages. */
static const char two_stages[] =
    "0F0,0SEND_F0,0F1,0B0,0F2,0B1,0F3,0B2,0F4,0B3,0F5,0B4,0F6,0B5,0F7,0B6,0B7\r\n"
    "1RECV_F0,1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4,1F5,1B5,1F6,1B6,1F7,1B7\r\n";

static void write_csv(char path[TEMPORARY_PATH], char csv[TEMPORARY_PATH + 4], const char *text)
{
    child_write_file(path, text, strlen(text));
    snprintf(csv, TEMPORARY_PATH + 4, "%s.csv", path);
    cr_assert(rename(path, csv) == 0);
}

ParameterizedTestParameters(cli, schedule)
{
    static struct child_case cases[] = {
        {"one name",
         {PLAN, "--schedule=zb-v", "--pipeline-parallel=2", "~"},
         MCP_OK,
         "zb-v with 2 virtual stages",
         "does not run zb-v"},
        {"what it gains",
         {PLAN, "--schedule=zb-h1", "--pipeline-parallel=2", "~"},
         MCP_OK,
         "zb-h1 instead of 1f1b",
         ""},
        {"rows in the plan",
         {PLAN, "--schedule=v-min", "--pipeline-parallel=2", "--json", "~"},
         MCP_OK,
         "\"0F0 ",
         ""},
        {"several",
         {PLAN, "--schedule=1f1b,zb-h2", "--json", "~"},
         MCP_OK,
         "\"zb-h2\"",
         "does not run zb-h2"},
        {"what the stack runs",
         {PLAN, "--schedule=auto", "--json", "~"},
         MCP_OK,
         "\"interleaved\"",
         ""},
        {"a stack that runs more",
         {PLAN, "--stack=torchtitan", "--json", "~"},
         MCP_OK,
         "\"zb-v\"",
         ""},
        {"a file",
         {PLAN, "--schedule", "@", "--json", "~"},
         MCP_OK,
         "\"custom\"",
         "left out 1 SEND_F, 1 RECV_F"},
        {"no such name", {PLAN, "--schedule=zbv", "~"}, MCP_USAGE, "", "did you mean zb-v"},
        {"an empty name", {PLAN, "--schedule=1f1b,", "~"}, MCP_USAGE, "", "unknown schedule \"\""},
        {"DeepSeek's",
         {PLAN, "--schedule=dualpipe-v", "--pipeline-parallel=2", "--json", "~"},
         MCP_OK,
         "\"dualpipe-v\"",
         ""},
        {"DualPipe with two copies is that",
         {PLAN, "--schedule=dualpipe", "~"},
         MCP_USAGE,
         "",
         "can be simulated only, by mcpplan sim PLAN --schedule dualpipe"},
        {"other degrees than the file's",
         {PLAN, "--schedule", "@", "--pipeline-parallel=4", "~"},
         MCP_INVALID,
         "",
         "pipeline_parallel=2, which the bounds leave out"},
        {"no file", {PLAN, "--schedule=nowhere.csv", "~"}, MCP_IO, "", "nowhere.csv"},
        {"what is required chooses among them",
         {PLAN, "--schedule=zb-h1", "--require=peak_memory_frac<=0.9", "~"},
         MCP_OK,
         "zb-h1",
         "planned as if it did"},
    };
    return cr_make_param_array(struct child_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct child_case *c, cli, schedule)
{
    char path[TEMPORARY_PATH], csv[TEMPORARY_PATH + 4];
    write_csv(path, csv, two_stages);
    child_check(c, csv);
    unlink(csv);
}

/* A plan that was found is played as it is, and under other schedules. */
ParameterizedTestParameters(cli, schedule_played)
{
    static struct child_case cases[] = {
        {"as it is", {"sim", "@", "--json", "~"}, MCP_OK, "\"zb-v\"", ""},
        {"in half the memory",
         {"sim", "@", "--schedule=v-half", "--json", "~"},
         MCP_OK,
         "\"v-half\"",
         ""},
        {"one chunk a rank",
         {"sim", "@", "--schedule=zb-h2", "--json", "~"},
         MCP_OK,
         "\"zb-h2\"",
         "spread evenly over virtual_stages=1"},
        {"op by op", {"sim", "@", "--level=op", "--json", "~"}, MCP_OK, "\"zb-v\"", ""},
        {"too few stages for two copies",
         {"sim", "@", "--schedule=dualpipe", "~"},
         MCP_INVALID,
         "",
         "pipeline_parallel of 4 or more (here 2)"},
        {"no rows of it",
         {"sim", "@", "--schedule=custom", "~"},
         MCP_USAGE,
         "",
         "'custom' is not gpipe"},
    };
    return cr_make_param_array(struct child_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct child_case *c, cli, schedule_played)
{
    char words[][WORD] = {PLAN, "--schedule=zb-v", "--pipeline-parallel=2", "-o", "@", "~"};
    char path[TEMPORARY_PATH];
    struct child child = {.arena = mcp_arena_new()};
    child_write_file(path, "", 0);
    child_run(&child, words, path);
    cr_assert(eq(int, child.status, 0), "%s", child.err);
    mcp_arena_free(child.arena);
    child_check(c, path);
    unlink(path);
}

/* 1F1B on four stages, as DualPipe. */
Test(cli, dualpipe_is_played_as_its_half)
{
    static char words[][WORD] = {
        PLAN, "--schedule=1f1b", "--pipeline-parallel=4", "--microbatch-size=1", "-o", "@", "~"};
    static struct child_case played = {"two copies",
                                       {"sim", "@", "--schedule=dualpipe", "--json", "~"},
                                       MCP_OK,
                                       "\"dualpipe-v\"",
                                       "pipeline_parallel=2, data_parallel=2"};
    char path[TEMPORARY_PATH];
    struct child child = {.arena = mcp_arena_new()};
    child_write_file(path, "", 0);
    child_run(&child, words, path);
    cr_assert(eq(int, child.status, 0), "%s", child.err);
    mcp_arena_free(child.arena);
    child_check(&played, path);
    unlink(path);
}
