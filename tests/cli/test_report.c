/* tests/cli/test_report.c: mcpplan plan --report from the outside. */
#include "tests/cli/child.h"

#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ParameterizedTestParameters(cli, report)
{
    static struct child_case cases[] = {
        {"a name that says nothing",
         {"plan", "--model=tiny", "--cluster=dgx-h100", "--global-batch-size=8", "--report=out",
          "~"},
         MCP_USAGE,
         "",
         "end it in .html or .md"},
        {"standard output is the plan's",
         {"plan", "--model=tiny", "--cluster=dgx-h100", "--global-batch-size=8", "--report=-", "~"},
         MCP_USAGE,
         "",
         "end it in .html or .md"},
        {"a folder that is not there",
         {"plan", "--model=tiny", "--cluster=dgx-h100", "--global-batch-size=8",
          "--report=/no/such/folder/a.html", "~"},
         MCP_IO,
         "",
         "/no/such/folder"},
    };
    return cr_make_param_array(struct child_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct child_case *c, cli, report)
{
    child_settle_environment();
    child_check(c, NULL);
}

/* What `plan` wrote into a file named `name`; NULL when it wrote none. The folder goes. */
static const char *written(struct mcp_arena *arena, const char *name, char words[][WORD])
{
    char folder[] = "/tmp/mcpplan-report-XXXXXX";
    struct child child = {.arena = arena};
    struct mcp_text text;
    struct mcp_error err;
    cr_assert(ne(ptr, mkdtemp(folder), NULL));
    char *path = mcp_format(arena, "%s/%s", folder, name);
    child_settle_environment();
    child_run(&child, words, path);
    enum mcp_status status = mcp_file_read(arena, path, MCP_MAX_FILE_BYTES, &text, &err);
    unlink(path);
    cr_expect(eq(int, rmdir(folder), 0), "nothing else is left behind");
    return status == MCP_OK ? text.data : NULL;
}

Test(cli, report_holds_the_answer_on_a_page_and_in_markdown)
{
    char words[MAX_WORDS][WORD] = {"plan",
                                   "--model=tiny",
                                   "--cluster=dgx-h100",
                                   "--global-batch-size=64",
                                   "--pipeline-parallel=2",
                                   "--sensitivity",
                                   "--memory-waterfall",
                                   "--report",
                                   "@",
                                   "~"};
    static const char *const facts[] = {
        "pipeline 2",   "proven best",
        "Peak memory",  "Where the time goes",
        "microbatches", "stages 0–1",
        "bubble",       "What would change it",
        "1f1b",         "ZeRO 3",
        "fitted",       "sustained_clock_frac",
        "Not modelled", "activations",
        "limit",        "memory_bandwidth_bytes_per_s",
        "Links",        "port over the step: nvlink",
    };
    struct mcp_arena *arena = mcp_arena_new();
    const char *page = written(arena, "a.html", words), *again = written(arena, "b.html", words);
    const char *markdown = written(arena, "a.md", words);
    cr_assert(page && again && markdown);
    cr_expect(eq(str, (char *)page, (char *)again));
    for (size_t i = 0; i < MCP_COUNT_OF(facts); i++) {
        cr_expect(ne(ptr, strstr(page, facts[i]), NULL), "the page: %s", facts[i]);
        struct mcp_text escaped = mcp_text_new(arena);
        for (const char *at = facts[i]; *at; at++)
            mcp_text_add(&escaped, "%s%c", *at == '_' ? "\\" : "", *at);
        cr_expect(ne(ptr, strstr(markdown, escaped.data), NULL), "Markdown: %s", facts[i]);
    }
    mcp_arena_free(arena);
}

Test(cli, report_of_a_played_step)
{
    char plan[MAX_WORDS][WORD] = {"plan",
                                  "--model=tiny",
                                  "--cluster=dgx-h100",
                                  "--global-batch-size=64",
                                  "--pipeline-parallel=2",
                                  "-o",
                                  "@",
                                  "~"};
    char sim[MAX_WORDS][WORD] = {"sim", "", "--noise=0.1", "--report", "@", "~"};
    struct mcp_arena *arena = mcp_arena_new();
    const char *json = written(arena, "plan.json", plan);
    char path[TEMPORARY_PATH];
    cr_assert(ne(ptr, (void *)json, NULL));
    child_write_file(path, json, strlen(json));
    memcpy(sim[1], path, sizeof path);
    const char *page = written(arena, "sim.html", sim), *markdown = written(arena, "sim.md", sim);
    unlink(path);
    cr_assert(page && markdown);
    static const char *const facts[] = {"Step in virtual time", "Jitter of 10 % on the compute",
                                        "jitter: every group", "priced", "The step over time"};
    for (size_t i = 0; i < MCP_COUNT_OF(facts); i++) {
        cr_expect(ne(ptr, strstr(page, facts[i]), NULL), "the page: %s", facts[i]);
        cr_expect(ne(ptr, strstr(markdown, facts[i]), NULL), "Markdown: %s", facts[i]);
    }
    mcp_arena_free(arena);
}

Test(cli, report_is_left_out_where_there_is_no_plan)
{
    char words[MAX_WORDS][WORD] = {"plan",
                                   "--model=gpt3-175b",
                                   "--cluster=dgx-h100",
                                   "--global-batch-size=8",
                                   "--sequence-length=2048",
                                   "--report",
                                   "@",
                                   "~"};
    struct mcp_arena *arena = mcp_arena_new();
    cr_expect(eq(ptr, (void *)written(arena, "a.html", words), NULL));
    mcp_arena_free(arena);
}

/* On a page and in Markdown alike. */
static void expect_facts(struct mcp_arena *arena, char words[][WORD], const char *const *facts,
                         size_t count)
{
    const char *page = written(arena, "a.html", words), *again = written(arena, "b.html", words);
    const char *markdown = written(arena, "a.md", words);
    cr_assert(page && again && markdown);
    cr_expect(eq(str, (char *)page, (char *)again));
    for (size_t i = 0; i < count; i++) {
        cr_expect(ne(ptr, strstr(page, facts[i]), NULL), "the page: %s", facts[i]);
        cr_expect(ne(ptr, strstr(markdown, facts[i]), NULL), "Markdown: %s", facts[i]);
    }
}

Test(cli, report_of_how_many_machines)
{
    char words[MAX_WORDS][WORD] = {"capacity",
                                   "--model=tiny",
                                   "--cluster=dgx-h100,dgx-a100",
                                   "--tokens=1T",
                                   "--gpus=8,16",
                                   "--global-batch-size=64",
                                   "--deadline=100",
                                   "--report",
                                   "@",
                                   "~"};
    static const char *const facts[] = {"How many, how long", "Days by number of GPUs", "deadline",
                                        "dgx-a100",           "What failures take",     "training",
                                        "What it rests on",   "Llama 3 405B",           "unknown"};
    struct mcp_arena *arena = mcp_arena_new();
    expect_facts(arena, words, facts, MCP_COUNT_OF(facts));
    mcp_arena_free(arena);
}

Test(cli, report_of_two_timelines)
{
    char plan[MAX_WORDS][WORD] = {"plan",
                                  "--model=tiny",
                                  "--cluster=dgx-h100",
                                  "--global-batch-size=64",
                                  "--pipeline-parallel=2",
                                  "-o",
                                  "@",
                                  "~"};
    char words[MAX_WORDS][WORD] = {"compare", "", "", "--threshold=0.1", "--report", "@", "~"};
    static const char *const facts[] = {"step takes as long as",
                                        "The step over time",
                                        "rank 0",
                                        "Kinds of op",
                                        "in all",
                                        "threshold",
                                        "forward",
                                        "compute"};
    struct mcp_arena *arena = mcp_arena_new();
    const char *json = written(arena, "plan.json", plan);
    char path[TEMPORARY_PATH];
    cr_assert(ne(ptr, (void *)json, NULL));
    child_write_file(path, json, strlen(json));
    memcpy(words[1], path, sizeof path);
    memcpy(words[2], path, sizeof path);
    expect_facts(arena, words, facts, MCP_COUNT_OF(facts));
    unlink(path);
    mcp_arena_free(arena);
}

/* ZeRO-1 reduces 4 bytes of gradient and gathers 2 of weight, each (d - 1)/d of what there is. */
Test(cli, report_counts_bytes_on_links)
{
    char words[MAX_WORDS][WORD] = {"plan",
                                   "--model=gpt2",
                                   "--cluster=dgx-h100",
                                   "--global-batch-size=64",
                                   "--data-parallel=8",
                                   "--zero-stage=1",
                                   "--sequence-length=1024",
                                   "--report",
                                   "@",
                                   "~"};
    const double parameters = 124439808, mib = 1 << 20;
    struct mcp_arena *arena = mcp_arena_new();
    const char *markdown = written(arena, "a.md", words);
    cr_assert(ne(ptr, (void *)markdown, NULL));
    const char *row = NULL, *links = strstr(markdown, "sent by a rank");
    cr_assert(links != NULL && (row = strstr(links, "\n| data | ")) != NULL, "%s", markdown);
    double sent = strtod(row + strlen("\n| data | "), NULL) * mib;
    cr_expect(gt(dbl, sent, 0.995 * 7 / 8 * 6 * parameters), "%s", row);
    cr_expect(lt(dbl, sent, 1.005 * 7 / 8 * 6 * parameters), "%s", row);
    mcp_arena_free(arena);
}
