/* tests/cli/test_compare.c: mcpplan compare from the outside. */
#include "tests/cli/child.h"

#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ParameterizedTestParameters(cli, compare)
{
    static struct child_case cases[] = {
        {"a plan with itself", {"compare", "@", "@", "~"}, MCP_OK, "takes as long as A's", ""},
        {"facts for machines",
         {"compare", "@", "@", "--json", "~"},
         MCP_OK,
         "mcpplan.compare/1",
         ""},
        {"within a threshold", {"compare", "@", "@", "--threshold=0", "~"}, MCP_OK, "in both", ""},
        {"of kinds", {"compare", "@", "@", "--kind-threshold=0.1", "~"}, MCP_OK, "in both", ""},
        {"one file", {"compare", "@", "~"}, MCP_USAGE, "", "compare"},
        {"no file", {"compare", "@", "nowhere.json", "~"}, MCP_IO, "", "nowhere.json"},
        {"no timeline", {"compare", "@", "models/tiny.json", "~"}, MCP_FORMAT, "", "tiny.json: "},
        {"a report of no kind",
         {"compare", "@", "@", "--report=x.txt", "~"},
         MCP_USAGE,
         "",
         ".html"},
        {"a threshold beyond all", {"compare", "@", "@", "--threshold=2", "~"}, MCP_USAGE, "", "0"},
    };
    return cr_make_param_array(struct child_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct child_case *c, cli, compare)
{
    char path[TEMPORARY_PATH];
    child_write_plan(path);
    child_check(c, path);
    unlink(path);
}

struct slower {
    char plan[TEMPORARY_PATH], fast[TEMPORARY_PATH], slow[TEMPORARY_PATH];
};

/* The same plan on links as they are, and on links a tenth as fast. */
static void write_timelines(struct slower *s)
{
    char fast[MAX_WORDS][WORD] = {"sim", "@", "--timeline=-", "~"};
    char slow[MAX_WORDS][WORD] = {"sim", "@", "--timeline=-", "--slow-link=nvlink:10", "~"};
    child_write_plan(s->plan);
    child_keep_output(s->fast, fast, s->plan);
    child_keep_output(s->slow, slow, s->plan);
}

/* sim writes its answer behind the timeline: what is a timeline ends at its last bracket. */
static void cut(char *path)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text text;
    struct mcp_error err;
    cr_assert(eq(int, mcp_file_read(arena, path, MCP_MAX_FILE_BYTES, &text, &err), 0));
    char *end = strstr(text.data, "\n]}\n");
    cr_assert(ne(ptr, end, NULL));
    cr_assert(eq(int, mcp_file_replace(path, text.data, (size_t)(end - text.data) + 4, &err), 0));
    mcp_arena_free(arena);
}

static void run(struct child *child, const struct slower *s, const char *option, const char *more)
{
    char words[MAX_WORDS][WORD] = {"compare"};
    snprintf(words[1], WORD, "%s", s->fast);
    snprintf(words[2], WORD, "%s", s->slow);
    snprintf(words[3], WORD, "%s", option);
    snprintf(words[4], WORD, "%s", more);
    snprintf(words[5], WORD, "~");
    *child = (struct child){.arena = child->arena};
    child_run(child, words, NULL);
}

Test(compare_cli, slower_links_are_found_and_named)
{
    struct slower s;
    struct child child = {.arena = mcp_arena_new()};
    write_timelines(&s);
    cut(s.fast);
    cut(s.slow);
    run(&child, &s, "~", "");
    cr_expect(eq(int, child.status, MCP_OK), "%s", child.err);
    cr_expect(strstr(child.out, "longer than A's") != NULL, "%s", child.out);
    const char *kinds = strstr(child.out, "Kinds of op"), *op = strstr(child.out, "matmul_nt");
    cr_assert(kinds != NULL && op != NULL);
    const char *message = strstr(kinds, "receive");
    cr_expect(message != NULL && message < op, "%s", child.out); /* what differs stands first */
    run(&child, &s, "--threshold=0.9", "~");
    cr_expect(eq(int, child.status, MCP_OK), "%s", child.err);
    run(&child, &s, "--threshold=0.00001", "~");
    cr_expect(eq(int, child.status, MCP_CHECK_FAILED));
    cr_expect(strstr(child.err, "the step is +") != NULL, "%s", child.err);
    cr_expect(strstr(child.err, "beyond the threshold of 0.001 %") != NULL, "%s", child.err);
    run(&child, &s, "--threshold=0.00001", "--json");
    cr_expect(eq(int, child.status, MCP_CHECK_FAILED));
    cr_expect(strstr(child.out, "\"holds\": false") != NULL);
    unlink(s.plan);
    unlink(s.fast);
    unlink(s.slow);
    mcp_arena_free(child.arena);
}
