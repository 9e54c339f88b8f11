/* tests/reports/test_table.c: what tables look like, and how wide text is. */
#include "reports/table.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

static const struct mcp_style plain = {false, true, 100};
static const struct mcp_column columns[] = {
    {"stage", "", MCP_LEFT}, {"peak", "GiB", MCP_RIGHT}, {"note", "", MCP_LEFT}};

static struct mcp_table *sample(struct mcp_arena *arena)
{
    struct mcp_table *table = mcp_table_new(arena, columns, 3);
    mcp_table_cell(table, "first");
    mcp_table_cell(table, "%.1f", 61.04);
    mcp_table_cell(table, "a|b");
    mcp_table_paint_row(table, MCP_BOLD);
    mcp_table_cell(table, "été");
    mcp_table_cell(table, "%.1f", 7.0);
    mcp_table_end_row(table);
    mcp_table_rule(table);
    mcp_table_cell(table, "Σ");
    mcp_table_cell(table, "68.0");
    mcp_table_end_row(table);
    return table;
}

Test(table, lines_columns_up_on_a_terminal)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    struct mcp_table *table = sample(arena);
    mcp_table_write(table, MCP_SKIN_TERMINAL, &plain, &out);
    cr_expect(eq(str, out.data,
                 (char *)"  stage  peak  note\n"
                         "          GiB\n"
                         "  ─────────────────\n"
                         "  first  61.0  a|b\n"
                         "  été     7.0\n"
                         "  ─────────────────\n"
                         "  Σ      68.0\n"));
    cr_expect(eq(sz, mcp_table_num_rows(table), 3));
    mcp_arena_free(arena);
}

Test(table, writes_markdown_that_bars_in_cells_cannot_break)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    mcp_table_write(sample(arena), MCP_SKIN_MARKDOWN, &plain, &out);
    cr_expect(eq(str, out.data,
                 (char *)"| stage | peak (GiB) | note |\n"
                         "|---|---:|---|\n"
                         "| **first** | **61.0** | **a\\|b** |\n"
                         "| été | 7.0 |  |\n"
                         "| Σ | 68.0 |  |\n"));
    mcp_arena_free(arena);
}

Test(table, paints_a_row_and_ascii_rules)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    const struct mcp_style style = {true, false, 100};
    const struct mcp_column column = {"n", "", MCP_RIGHT};
    struct mcp_table *table = mcp_table_new(arena, &column, 1);
    mcp_table_cell(table, "12");
    mcp_table_paint_row(table, MCP_GREEN);
    mcp_table_write(table, MCP_SKIN_TERMINAL, &style, &out);
    cr_expect(eq(str, out.data,
                 (char *)"   \033[1mn\033[0m\n"
                         "  \033[2m--\033[0m\n"
                         "  \033[32m12\033[0m\n"));
    mcp_arena_free(arena);
}

Test(table, without_rows_is_its_header)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    mcp_table_write(mcp_table_new(arena, columns, 1), MCP_SKIN_TERMINAL, &plain, &out);
    cr_expect(eq(str, out.data, (char *)"  stage\n  ─────\n"));
    mcp_arena_free(arena);
}

static void expect_tidy_lines(char *text, int width)
{
    for (char *end; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        *end = '\0';
        cr_expect(le(int, mcp_display_width(text), width), "%s", text);
        cr_expect(ne(chr, end[-1], ' '), "'%s'", text);
    }
}

/* Every line of a wide table fits, ends without spaces, and no word is lost. */
Test(table, wraps_its_widest_text_column_into_the_terminal)
{
    for (int width = 40; width <= 120; width++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct mcp_text out = mcp_text_new(arena);
        const struct mcp_style style = {false, true, width};
        struct mcp_table *table = mcp_table_new(arena, columns, 3);
        mcp_table_cell(table, "first");
        mcp_table_cell(table, "61.0");
        mcp_table_cell(table, "refused: needs 96 GiB of the 79 GiB that this GPU offers to a job");
        mcp_table_write(table, MCP_SKIN_TERMINAL, &style, &out);
        cr_expect(ne(ptr, strstr(out.data, "job"), NULL));
        expect_tidy_lines(out.data, width);
        mcp_arena_free(arena);
    }
}

Test(table, wraps_two_columns_alike)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    const struct mcp_style style = {false, false, 44};
    const struct mcp_column two[] = {{"a", "", MCP_LEFT}, {"b", "", MCP_LEFT}};
    struct mcp_table *table = mcp_table_new(arena, two, 2);
    mcp_table_cell(table, "one two three four five six");
    mcp_table_cell(table, "seven eight nine ten eleven");
    mcp_table_write(table, MCP_SKIN_TERMINAL, &style, &out);
    cr_expect(eq(str, out.data,
                 (char *)"  a                     b\n"
                         "  ------------------------------------------\n"
                         "  one two three four    seven eight nine ten\n"
                         "  five six              eleven\n"));
    mcp_arena_free(arena);
}

/* Where words alone do not do, names are broken behind their dashes. */
Test(table, breaks_names_where_nothing_else_helps)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    const struct mcp_style style = {false, false, 40};
    const struct mcp_column two[] = {{"run", "", MCP_LEFT}, {"b", "", MCP_LEFT}};
    struct mcp_table *table = mcp_table_new(arena, two, 2);
    mcp_table_cell(table, "a-name-of-thirty-letters-here!");
    mcp_table_cell(table, "words that may well be wrapped");
    mcp_table_write(table, MCP_SKIN_TERMINAL, &style, &out);
    cr_expect(eq(str, out.data,
                 (char *)"  run                   b\n"
                         "  --------------------------------------\n"
                         "  a-name-of-thirty-     words that may\n"
                         "  letters-here!         well be wrapped\n"),
              "%s", out.data);
    mcp_arena_free(arena);
}

Test(table, never_breaks_a_piece_of_a_word)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    const struct mcp_style style = {false, false, 16};
    const struct mcp_column one[] = {{"run", "", MCP_LEFT}};
    struct mcp_table *table = mcp_table_new(arena, one, 1);
    mcp_table_cell(table, "a/path-of-unbreakablenames/x end");
    mcp_table_write(table, MCP_SKIN_TERMINAL, &style, &out);
    cr_expect(eq(str, out.data,
                 (char *)"  run\n"
                         "  -----------------\n"
                         "  a/path-of-\n"
                         "  unbreakablenames/\n"
                         "  x end\n"),
              "%s", out.data);
    mcp_arena_free(arena);
}

struct width_case {
    char name[40];
    char text[40];
    int want;
};
ParameterizedTestParameters(table, display_width)
{
    static struct width_case cases[] = {
        {"empty", "", 0},
        {"ascii", "GiB", 3},
        {"two bytes", "µs", 2},
        {"three bytes", "─█", 2},
        {"wide", "日本", 4},
        {"emoji", "\xF0\x9F\x9A\x80", 2},
        {"combining accent", "e\xCC\x81", 1},
        {"colour escape", "\033[1;32mok\033[0m", 2},
        {"unfinished escape", "\033[1", 3},
        {"bytes that are no UTF-8", "\xFF\xC3", 2},
        {"overlong", "\xC0\xAF", 2},
        {"cut character", "\xE2\x94", 2},
    };
    return cr_make_param_array(struct width_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct width_case *c, table, display_width)
{
    cr_expect(eq(int, mcp_display_width(c->text), c->want), "%s", c->name);
}

struct wrap_case {
    char name[40];
    char text[48];
    int width, indent;
    char want[64];
};
ParameterizedTestParameters(table, wrap)
{
    static struct wrap_case cases[] = {
        {"fits", "one two", 10, 2, "one two"},
        {"breaks between words", "one two three", 7, 2, "one two\n  three"},
        {"runs of spaces are one", "one   two", 10, 0, "one two"},
        {"a word longer than the line stays whole", "a abcdefgh b", 4, 1, "a\n abcdefgh\n b"},
        {"newlines are kept", "one\ntwo", 10, 3, "one\n   two"},
        {"paragraphs stay apart", "one\n\ntwo", 10, 0, "one\n\ntwo"},
        {"a unit stays with its number", "it takes 26.7 s now", 14, 0, "it takes\n26.7 s now"},
        {"a percent sign too", "loses by 3.5 %", 12, 0, "loses by\n3.5 %"},
        {"width counts characters", "été été", 7, 0, "été été"},
    };
    return cr_make_param_array(struct wrap_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct wrap_case *c, table, wrap)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    mcp_wrap(&out, c->text, c->width, c->indent);
    cr_expect(eq(str, out.data, c->want), "%s", c->name);
    mcp_arena_free(arena);
}

Test(table, headings_stand_apart_from_what_precedes)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text out = mcp_text_new(arena);
    mcp_heading(&out, &plain, "Memory");
    mcp_heading(&out, &plain, "Time");
    cr_expect(eq(str, out.data, (char *)"Memory\n\nTime\n"));
    mcp_arena_free(arena);
}
