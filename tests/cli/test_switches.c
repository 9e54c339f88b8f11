/* tests/cli/test_switches.c: switches of communication as options of plan and sim. */
#include "tests/cli/child.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>
#include <unistd.h>

#define QUESTION "plan", "--model=tiny", "--cluster=dgx-h100:2", "--global-batch-size=64"

ParameterizedTestParameters(cli, plan_switches)
{
    static struct child_case cases[] = {
        {"1-bit Adam has two phases",
         {QUESTION, "--optimizer=one_bit_adam", "~"},
         MCP_OK,
         "on average over a run",
         ""},
        {"a run says how long it is warm",
         {QUESTION, "--optimizer=one_bit_adam", "--freeze-step=15", "--num-steps=100", "~"},
         MCP_OK,
         "15 % is warm",
         ""},
        {"ZeRO shards what it needs whole",
         {QUESTION, "--optimizer=one_bit_adam", "--zero-stage=1", "~"},
         MCP_INVALID,
         "",
         "nearest legal 0, or optimizer adam"},
        {"no norm to clip by",
         {QUESTION, "--optimizer=one_bit_adam", "--clip-global-norm=on", "~"},
         MCP_INVALID,
         "",
         "nearest legal clip_global_norm=false, or phase warm"},
        {"Adam has one phase", {QUESTION, "--phase=frozen", "~"}, MCP_INVALID, "", "one_bit_adam"},
        {"a run ends after it is frozen",
         {QUESTION, "--optimizer=one_bit_adam", "--freeze-step=9", "--num-steps=8", "~"},
         MCP_INVALID,
         "",
         "freeze_step=9 is after the last of num_steps=8"},
        {"what each saves", {QUESTION, "--savings", "~"}, MCP_OK, "gradient buckets", ""},
        {"... for machines", {QUESTION, "--savings", "--json", "~"}, MCP_OK, "\"topology\"", ""},
        {"nodes in any order",
         {QUESTION, "--placement=scrambled:3", "--json", "~"},
         MCP_OK,
         "\"gpu_of_rank\"",
         ""},
        {"unknown placement", {QUESTION, "--placement=any", "~"}, MCP_USAGE, "", "scrambled:SEED"},
        {"a seed is a number", {QUESTION, "--placement=scrambled:x", "~"}, MCP_USAGE, "", "SEED"},
        {"pools stay whole",
         {"plan", "--model=llama-3.1-8b", "--cluster=dgx-h100+dgx-a100", "--global-batch-size=64",
          "--placement=scrambled", "~"},
         MCP_INVALID,
         "",
         "several kinds"},
    };
    return cr_make_param_array(struct child_case, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct child_case *c, cli, plan_switches)
{
    child_check(c, NULL);
}

static void write_plan(char path[TEMPORARY_PATH])
{
    char words[MAX_WORDS][WORD] = {QUESTION, "--data-parallel=8", "--zero-stage=0", "--json", "~"};
    struct child child = {.arena = mcp_arena_new()};
    child_run(&child, words, NULL);
    cr_assert(eq(int, child.status, MCP_OK), "%s", child.err);
    child_write_file(path, child.out, strlen(child.out));
    mcp_arena_free(child.arena);
}

ParameterizedTestParameters(cli, sim_switches)
{
    static struct child_case cases[] = {
        {"nothing hidden", {"sim", "@", "--overlap=none", "~"}, MCP_OK, "virtual time", ""},
        {"some hidden", {"sim", "@", "--overlap=data,tensor", "~"}, MCP_OK, "virtual time", ""},
        {"all hidden", {"sim", "@", "--overlap=all", "~"}, MCP_OK, "virtual time", ""},
        {"half a name", {"sim", "@", "--overlap=dat", "~"}, MCP_USAGE, "", "joined by commas"},
        {"half a list", {"sim", "@", "--overlap=data,", "~"}, MCP_USAGE, "", "joined by commas"},
        {"an empty list", {"sim", "@", "--overlap=", "~"}, MCP_USAGE, "", "is empty"},
        {"all and one more", {"sim", "@", "--overlap=data,all", "~"}, MCP_USAGE, "", "joined by"},
        {"nodes in any order", {"sim", "@", "--placement=scrambled", "~"}, MCP_OK, "virtual", ""},
        {"signs travel", {"sim", "@", "--optimizer=one_bit_adam", "~"}, MCP_OK, "virtual", ""},
        {"... but not yet",
         {"sim", "@", "--optimizer=one_bit_adam", "--phase=warm", "~"},
         MCP_OK,
         "virtual time",
         ""},
        {"Adam has one phase", {"sim", "@", "--phase=frozen", "~"}, MCP_INVALID, "", "one_bit"},
    };
    return cr_make_param_array(struct child_case, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct child_case *c, cli, sim_switches)
{
    char path[TEMPORARY_PATH];
    write_plan(path);
    child_check(c, path);
    unlink(path);
}
