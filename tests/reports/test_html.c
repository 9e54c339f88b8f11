/* tests/reports/test_html.c: reports as pages and as Markdown; schedules folded. */
#include "reports/html.h"
#include "reports/markdown.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

static const char hostile[] = "</script><script>alert(1)</script>\"'&|*x\x1b[31m";

enum { ROWS = 4, MICROBATCHES = 8 };

/* Forwards, then backwards of each row, a row `step` later than the one before. */
static struct mcp_gantt_span *spans_of(struct mcp_arena *arena, int rows, int microbatches)
{
    struct mcp_gantt_span *spans = MCP_ARRAY(arena, rows * 2 * microbatches, struct mcp_gantt_span);
    for (int i = 0, n = 0; i < rows; i++)
        for (int k = 0; k < 2 * microbatches; k++, n++)
            spans[n] = (struct mcp_gantt_span){
                i, k >= microbatches, 1000 * (i + k), 1000 * (i + k) + 900, k % microbatches, 0};
    return spans;
}

static struct mcp_gantt gantt_of(struct mcp_arena *arena, int rows, int microbatches)
{
    static const struct mcp_gantt_kind kinds[] = {{"forward", 1}, {"backward", 5}};
    const char **names = MCP_ARRAY(arena, rows, const char *);
    for (int i = 0; i < rows; i++)
        names[i] = mcp_format(arena, "stage %d", i);
    return (struct mcp_gantt){
        .title = "what runs when",
        .num_rows = rows,
        .rows = names,
        .num_kinds = 2,
        .kinds = kinds,
        .num_chunks = 1,
        .num_spans = rows * 2 * microbatches,
        .spans = spans_of(arena, rows, microbatches),
        .end_ns = 1000 * (rows + 2 * microbatches),
    };
}

static void add_charts(struct mcp_report *report)
{
    static const struct mcp_report_part parts[] = {{"one", 0}, {"two & <three>", 4}};
    static const char *const rows[] = {"first", "second"};
    static const double values[] = {1, 2, 3, 0};
    static const int cells[] = {0, 1};
    static const bool begins[] = {false, true};
    static const struct mcp_report_grid_row row = {"node 0", "stages 0-1", 2, cells, begins};
    const struct mcp_report_bars bars = {"bars", 2,           2, parts,  rows,
                                         values, MCP_SECONDS, 4, "limit"};
    const struct mcp_report_lines lines = {"lines",   2,   2,   parts,     values,
                                           MCP_BYTES, 1.5, NAN, "no limit"};
    static const struct mcp_report_point points[] = {
        {64, 100, 95, 110, ""}, {128, 52, 50, 56, hostile}, {4096, 0.004, 0.003, 0.2, "knee"}};
    static const struct mcp_report_curve curve[] = {{hostile, 1, 3, points}, {"one", 5, 1, points}};
    const struct mcp_report_curves curves = {"sizes", "GPUs", "days", 2, curve, 60, "deadline"};
    const struct mcp_report_grid grid = {"nodes", "stage of a GPU", 1, 1, &row, 0};
    const struct mcp_gantt gantt = gantt_of(report->arena, ROWS, MICROBATCHES);
    mcp_report_bars(report, &bars);
    mcp_report_lines(report, &lines);
    mcp_report_curves(report, &curves);
    mcp_report_grid(report, &grid);
    mcp_report_gantt(report, &gantt);
}

/* Every kind of block, with hostile words in each. */
static struct mcp_report report_of(struct mcp_arena *arena)
{
    static const struct mcp_column columns[] = {{hostile, hostile, MCP_LEFT}, {"b", "", MCP_RIGHT}};
    struct mcp_report report = mcp_report_new(arena, hostile, hostile);
    struct mcp_table *table = mcp_table_new(arena, columns, 2);
    const struct mcp_report_figure figure = {hostile, hostile, hostile, 0.5};
    report.made_by = hostile;
    mcp_table_cell(table, "%s", hostile);
    mcp_table_cell(table, "%d", 7);
    for (int kind = MCP_REPORT_SECTION; kind <= MCP_REPORT_NOTE; kind++)
        mcp_report_say(&report, (enum mcp_report_kind)kind, MCP_TONE_BAD, hostile);
    mcp_report_figure(&report, MCP_TONE_GOOD, &figure);
    mcp_report_table(&report, MCP_REPORT_TABLE, hostile, table);
    mcp_report_table(&report, MCP_REPORT_MORE, hostile, table);
    add_charts(&report);
    return report;
}

static const char *page_of(struct mcp_arena *arena)
{
    const struct mcp_report report = report_of(arena);
    struct mcp_text out = mcp_text_new(arena);
    mcp_report_html(&report, &out);
    return out.data;
}

static int count(const char *text, const char *part)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        found++;
    return found;
}

Test(html, escapes_what_users_name)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *page = page_of(arena);
    cr_expect(eq(int, count(page, "alert(1)</script>"), 0));
    cr_expect(eq(int, count(page, "<script>alert"), 0));
    cr_expect(eq(int, count(page, "\x1b"), 0));
    cr_expect(gt(int, count(page, "&lt;/script&gt;&lt;script&gt;alert(1)"), 14));
    cr_expect(eq(int, count(page, "</script>"), 2), "the page's own, and the chart's data");
    mcp_arena_free(arena);
}

Test(html, names_no_other_address)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *page = page_of(arena);
    static const char *const never[] = {" src=", " href=", "@import", "url(h", "https:", "<link"};
    for (size_t i = 0; i < MCP_COUNT_OF(never); i++)
        cr_expect(eq(int, count(page, never[i]), 0), "%s", never[i]);
    cr_expect(eq(int, count(page, "http:"), 1), "the name of SVG");
    cr_expect(eq(int, count(page, "default-src 'none'"), 1));
    mcp_arena_free(arena);
}

Test(html, has_the_same_bytes_for_the_same_report)
{
    struct mcp_arena *arena = mcp_arena_new();
    cr_expect(eq(str, (char *)page_of(arena), (char *)page_of(arena)));
    mcp_arena_free(arena);
}

Test(html, gives_each_drawing_a_role_and_a_title)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *page = page_of(arena);
    cr_expect(eq(int, count(page, "<svg "), 5));
    cr_expect(eq(int, count(page, "role=\"img\"><title>"), 5));
    cr_expect(ne(ptr, strstr(page, "prefers-color-scheme: dark"), NULL));
    cr_expect(ne(ptr, strstr(page, "@media print"), NULL));
    mcp_arena_free(arena);
}

/* Tags */

static bool is_void(const char *name)
{
    return strcmp(name, "meta") == 0 || strcmp(name, "!DOCTYPE") == 0;
}

/* Elements that are open, innermost last. */
struct open {
    int depth;
    char names[64][16];
};

static const char *take_tag(struct open *open, const char *at)
{
    const char *end = strchr(at, '>');
    bool closes = at[1] == '/', empty = end[-1] == '/';
    char name[16] = "";
    size_t length = strcspn(at + 1 + closes, " >/");
    cr_assert(lt(sz, length, sizeof name));
    memcpy(name, at + 1 + closes, length);
    if (closes) {
        cr_assert(gt(int, open->depth, 0), "%s closes nothing", name);
        cr_assert(eq(str, open->names[--open->depth], name));
    } else if (!empty && !is_void(name)) {
        cr_assert(lt(int, open->depth, 64));
        memcpy(open->names[open->depth++], name, sizeof name);
        const char *raw = strcmp(name, "script") == 0  ? "</script>"
                          : strcmp(name, "style") == 0 ? "</style>"
                                                       : NULL;
        return raw ? strstr(end, raw) : end + 1;
    }
    return end + 1;
}

Test(html, closes_every_tag_it_opens)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct open open = {0};
    const char *at = page_of(arena);
    while ((at = strchr(at, '<')) != NULL)
        at = take_tag(&open, at);
    cr_expect(eq(int, open.depth, 0));
    mcp_arena_free(arena);
}

/* Markdown */

Test(markdown, says_what_the_page_says)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_report report = report_of(arena);
    struct mcp_text out = mcp_text_new(arena);
    mcp_report_markdown(&report, &out);
    cr_expect(eq(int, count(out.data, "<script"), 0));
    cr_expect(ne(ptr, strstr(out.data, "| first | 1.00 s | 2.00 s | 3.00 s |"), NULL));
    cr_expect(ne(ptr, strstr(out.data, "| stage 3 | 3.00 us | 18.9 us | 16 |"), NULL), "%s",
              out.data);
    cr_expect(ne(ptr, strstr(out.data, "node 0           [0|1]  stages 0-1"), NULL));
    cr_expect(ne(ptr, strstr(out.data, "\\|\\*x"), NULL), "a table's sign is escaped");
    mcp_arena_free(arena);
}

/* Folds */

struct case_fold {
    char name[40];
    int rows, microbatches, most, windows;
};
ParameterizedTestParameters(gantt, folds)
{
    static struct case_fold cases[] = {
        {"what fits is shown whole", 4, 8, 64, 1},
        {"one span too many", 4, 8, 63, 3},
        {"thousands of microbatches", 4, 4096, 6000, 3},
        {"hundreds of stages", 256, 64, 6000, 3},
        {"nothing runs", 1, 0, 6000, 1},
    };
    return cr_make_param_array(struct case_fold, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_fold *c, gantt, folds)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_gantt gantt = gantt_of(arena, c->rows, c->microbatches);
    const struct mcp_gantt_fold fold = mcp_gantt_fold(&gantt, c->most);
    struct mcp_gantt_window part;
    int shown = 0;
    cr_assert(eq(int, fold.count, c->windows), "%s", c->name);
    cr_expect(eq(i64, fold.windows[0].from_ns, 0));
    cr_expect(eq(i64, fold.windows[fold.count - 1].to_ns, gantt.end_ns));
    for (int w = 0; w < fold.count; w++) {
        for (int i = 0; i < gantt.num_spans; i++)
            shown += mcp_gantt_in_window(&gantt.spans[i], &fold.windows[w], &part);
        if (w > 0)
            cr_expect(le(i64, fold.windows[w - 1].to_ns, fold.windows[w].from_ns));
    }
    cr_expect(le(int, shown, c->most), "%s: %d", c->name, shown);
    cr_expect(ge(int, shown, c->windows == 1 ? gantt.num_spans : c->most * 3 / 4), "%s: %d",
              c->name, shown);
    mcp_arena_free(arena);
}

Test(gantt, sums_rows_and_bounds_the_page)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_gantt gantt = gantt_of(arena, 64, 4096);
    const struct mcp_gantt_sum sum = mcp_gantt_sum(&gantt, 3);
    struct mcp_report report = mcp_report_new(arena, "long", NULL);
    struct mcp_text out = mcp_text_new(arena);
    cr_expect(eq(i64, sum.busy_ns, 2 * 4096 * 900));
    cr_expect(eq(i64, sum.first_ns, 3000));
    cr_expect(eq(int, sum.num_spans, 2 * 4096));
    mcp_report_gantt(&report, &gantt);
    mcp_report_html(&report, &out);
    cr_expect(lt(sz, out.length, 1000000));
    cr_expect(ne(ptr, strstr(out.data, "too long to draw whole"), NULL));
    mcp_arena_free(arena);
}
