/* tests/reports/test_bars.c: bars have their length whatever the values. */
#include "reports/bars.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

static const struct mcp_style blocks = {false, true, 60};
static const struct mcp_style ascii = {false, false, 60};

struct line_case {
    char name[32];
    double value, full;
    char blocks[32], ascii[16];
};
ParameterizedTestParameters(bars, line)
{
    static struct line_case cases[] = {
        {"half", 1, 2, "██  ", "##  "},
        {"an eighth of a cell", 1, 32, "▏   ", "#   "},
        {"all but an eighth", 31, 32, "███▉", "####"},
        {"nothing", 0, 2, "    ", "    "},
        {"little is not nothing", 1e-9, 1, "▏   ", "#   "},
        {"more than full is full", 5, 2, "████", "####"},
        {"negative", -1, 2, "    ", "    "},
        {"unknown", NAN, 2, "    ", "    "},
        {"infinite", INFINITY, 2, "    ", "    "},
        {"of nothing", 1, 0, "    ", "    "},
    };
    return cr_make_param_array(struct line_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct line_case *c, bars, line)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    mcp_bar_line(&out, &blocks, c->value, c->full, 4);
    cr_expect(eq(str, out.data, c->blocks), "%s", c->name);
    out = mcp_text_new(arena);
    mcp_bar_line(&out, &ascii, c->value, c->full, 4);
    cr_expect(eq(str, out.data, c->ascii), "%s", c->name);
    mcp_arena_free(arena);
}

Test(bars, labels_and_texts_line_up)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    const struct mcp_style narrow = {false, true, 30};
    const struct mcp_bar bars[] = {{"compute", 8, "8 ms", MCP_PLAIN},
                                   {"up", 4, "11 ms", MCP_PLAIN}};
    mcp_bars_write(&out, &narrow, bars, 2, 0);
    cr_expect(eq(str, out.data,
                 (char *)"  compute  ████████████   8 ms\n"
                         "  up       ██████        11 ms\n"));
    mcp_arena_free(arena);
}

struct stack_case {
    char name[40];
    double values[4];
    double full;
    char want[16];
};
ParameterizedTestParameters(bars, stacked)
{
    static struct stack_case cases[] = {
        {"shares of their sum", {5, 3, 2, 0}, 0, "#####===%%"},
        {"what is left is dotted", {4, 2, 0, 0}, 10, "####==...."},
        {"half a cell is seen", {9.4, 0.6, 0, 0}, 0, "#########="},
        {"so is a sliver", {9.99, 0.01, 0, 0}, 0, "#########="},
        {"slivers have a cell each", {0.01, 0.01, 8, 2}, 0, "#=%%%%%%%-"},
        {"the largest where cells are few", {0.3, 1, 0.2, 0}, 15, "=........."},
        {"too much ends in an arrow", {8, 4, 0, 0}, 10, "######===>"},
        {"equal parts add up", {1, 1, 1, 0}, 0, "####===%%%"},
        {"unknown parts are skipped", {NAN, 5, -3, 5}, 0, "=====-----"},
        {"nothing at all", {0, 0, 0, 0}, 0, ".........."},
    };
    return cr_make_param_array(struct stack_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct stack_case *c, bars, stacked)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    struct mcp_bar parts[4];
    for (int i = 0; i < 4; i++)
        parts[i] = (struct mcp_bar){"", c->values[i], "", MCP_PLAIN};
    mcp_stacked_line(&out, &ascii, parts, 4, c->full, 10);
    cr_expect(eq(str, out.data, c->want), "%s", c->name);
    mcp_arena_free(arena);
}

Test(bars, fills_differ_without_colour_and_colours_with_it)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text plain = mcp_text_new(arena), painted = mcp_text_new(arena);
    const struct mcp_style colour = {true, true, 60};
    const struct mcp_bar parts[] = {{"", 1, "", MCP_PLAIN}, {"", 1, "", MCP_PLAIN}};
    mcp_stacked_line(&plain, &blocks, parts, 2, 0, 2);
    mcp_stacked_line(&painted, &colour, parts, 2, 0, 2);
    cr_expect(eq(str, plain.data, (char *)"█▒"));
    cr_expect(eq(str, painted.data, (char *)"\033[34m█\033[0m\033[36m█\033[0m"));
    mcp_arena_free(arena);
}

/* As many as there are kinds of time, and no two alike. */
Test(bars, twelve_parts_are_told_apart)
{
    static const struct mcp_style styles[] = {
        {false, true, 60}, {false, false, 60}, {true, true, 60}};
    struct mcp_arena *arena = mcp_arena_new();
    for (size_t s = 0; s < sizeof styles / sizeof *styles; s++)
        for (int i = 0; i < 12; i++)
            for (int j = 0; j < i; j++)
                cr_expect(strcmp(mcp_stacked_fill(arena, &styles[s], i),
                                 mcp_stacked_fill(arena, &styles[s], j)) != 0,
                          "parts %d and %d", i, j);
    mcp_arena_free(arena);
}

Test(bars, legend_names_each_part_and_its_share)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    const struct mcp_bar parts[] = {{"weights", 3, "3 GiB", MCP_PLAIN},
                                    {"none", 0, "0 GiB", MCP_PLAIN},
                                    {"ü", 1, "1 GiB", MCP_PLAIN}};
    mcp_stacked_legend(&out, &blocks, parts, 3, 8);
    cr_expect(eq(str, out.data,
                 (char *)"  █ weights  3 GiB   37.5 %\n"
                         "  ▚ ü        1 GiB   12.5 %\n"));
    mcp_arena_free(arena);
}

Test(bars, sparkline_spans_the_values_and_leaves_gaps)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    const double values[] = {0, 3.5, 7, NAN, 7, 0};
    mcp_sparkline(&out, &blocks, values, 6);
    mcp_text_append(&out, "|", 1);
    mcp_sparkline(&out, &ascii, values, 6);
    cr_expect(eq(str, out.data, (char *)"▁▅█ █▁|_=# #_"));
    const double flat[] = {2, 2};
    out = mcp_text_new(arena);
    mcp_sparkline(&out, &blocks, flat, 2);
    cr_expect(eq(str, out.data, (char *)"▄▄"));
    mcp_arena_free(arena);
}
