/* tests/core/test_csv.c: tables as RFC 4180 has them, and what is refused. */
#include "core/csv.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

struct case_parse {
    char name[32];
    char text[64];
    size_t length; /* 0: up to the NUL */
    enum mcp_status want;
    char says[64];
};
ParameterizedTestParameters(csv, parse)
{
    static struct case_parse cases[] = {
        {"header alone", "a,b", 0, MCP_OK, ""},
        {"quote within a cell", "a,b\n5\" disk,2\n", 0, MCP_OK, ""},
        {"empty", "", 0, MCP_FORMAT, "f.csv: empty, expected a header row"},
        {"BOM alone", "\xef\xbb\xbf\n\n", 0, MCP_FORMAT, "f.csv: empty"},
        {"short row", "a,b\n1,2\n\n3\n", 0, MCP_FORMAT,
         "f.csv: line 4: 1 cells, expected 2 as in the header"},
        {"long row", "a,b\n1,2,3\n", 0, MCP_FORMAT, "line 2: 3 cells, expected 2"},
        {"open quote", "a,b\n1,\"2\n3,4\n", 0, MCP_FORMAT, "line 2: quote without an end"},
        {"text after a quote", "a\n\"1\"2\n", 0, MCP_FORMAT, "line 2: text after a closing quote"},
        {"NUL byte", "a\n1\0\n", 5, MCP_FORMAT, "f.csv: line 2: NUL byte"},
        {"column twice", "a,b,a\n", 0, MCP_FORMAT, "line 1: column 'a' appears twice"},
    };
    return cr_make_param_array(struct case_parse, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_parse *c, csv, parse)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_csv csv;
    size_t length = c->length > 0 ? c->length : strlen(c->text);
    enum mcp_status got = mcp_csv_parse(arena, "f.csv", c->text, length, &csv, &err);
    cr_expect(eq(int, (int)got, (int)c->want), "%s: %s", c->name, err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
    mcp_arena_free(arena);
}

Test(csv, cells_lines_and_numbers)
{
    const char *text =
        "\xef\xbb\xbfid,gpus,note\r\n1,8,\"a, \"\"b\"\"\nc\"\r\n\r\n2,1e3,\r\n-3,x,y";
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_csv csv;
    double number = -7;
    cr_assert(eq(int, (int)mcp_csv_parse(arena, "f.csv", text, strlen(text), &csv, &err), MCP_OK));
    cr_assert(eq(sz, csv.num_rows, 3));
    cr_expect(eq(str, (char *)csv.header[0], (char *)"id"));
    cr_expect(eq(str, (char *)mcp_csv_cell(&csv, 0, "note"), (char *)"a, \"b\"\nc"));
    cr_expect(eq(str, (char *)mcp_csv_cell(&csv, 1, "note"), (char *)""));
    cr_expect(eq(str, (char *)mcp_csv_cell(&csv, 0, "none"), (char *)""));
    cr_expect(eq(int, csv.lines[0], 2));
    cr_expect(eq(int, csv.lines[1], 5));
    cr_expect(mcp_csv_has_column(&csv, "gpus") && !mcp_csv_has_column(&csv, "Gpus"));
    cr_expect(mcp_csv_double(&csv, 1, "gpus", &number));
    cr_expect(eq(dbl, number, 1000));
    cr_expect(eq(int, mcp_csv_double(&csv, 2, "gpus", &number), false));
    cr_expect(eq(int, mcp_csv_double(&csv, 1, "note", &number), false));
    mcp_arena_free(arena);
}
