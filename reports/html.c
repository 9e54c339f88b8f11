/* reports/html.c: the page: its head, words, figures and tables. */
#include "reports/html.h"

#include "core/preset.h"
#include "reports/html_parts.h"

#include <math.h>

static const char *const tones[] = {"plain", "good", "warn", "bad"};

void mcp_html_text(struct mcp_text *out, const char *text)
{
    for (const char *at = mcp_printable(out->arena, text); *at != '\0'; at++) {
        const char *entity = *at == '&'    ? "&amp;"
                             : *at == '<'  ? "&lt;"
                             : *at == '>'  ? "&gt;"
                             : *at == '"'  ? "&quot;"
                             : *at == '\'' ? "&#39;"
                                           : NULL;
        if (entity != NULL)
            mcp_text_add(out, "%s", entity);
        else
            mcp_text_append(out, at, 1);
    }
}

/* <TAG class="CLASS">TEXT</TAG> on a line of its own. */
static void element(struct mcp_text *out, const char *tag, const char *class, const char *text)
{
    mcp_text_add(out, "<%s class=\"%s\">", tag, class);
    mcp_html_text(out, text);
    mcp_text_add(out, "</%s>\n", tag);
}

/* A file of this folder, as it was built in. */
static void add_file(struct mcp_text *out, const char *name)
{
    for (size_t i = 0; i < mcp_preset_count("reports"); i++) {
        const struct mcp_preset *file = mcp_preset_at("reports", i);
        if (mcp_same(file->name, name))
            mcp_text_append(out, file->text, file->length);
    }
}

static void put_head(struct mcp_text *out, const struct mcp_report *report)
{
    mcp_text_add(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    mcp_html_text(out, report->title);
    mcp_text_add(out, "</title>\n<style>\n");
    add_file(out, "page.css");
    mcp_text_add(out, "</style>\n</head>\n<body>\n<main>\n<header>\n");
    element(out, "h1", "title", report->title);
    if (report->subtitle)
        element(out, "p", "subtitle", report->subtitle);
    mcp_text_add(out, "</header>\n");
}

/* Figures */

static void put_figure(struct mcp_text *out, const struct mcp_report_block *block)
{
    const struct mcp_report_figure *figure = &block->figure;
    mcp_text_add(out, "<div class=\"figure %s\"><dt>", tones[block->tone]);
    mcp_html_text(out, figure->label);
    mcp_text_add(out, "</dt><dd class=\"value\">");
    mcp_html_text(out, figure->value);
    mcp_text_add(out, "</dd>");
    if (isfinite(figure->share_frac)) {
        double share = fmin(fmax(figure->share_frac, 0), 1);
        mcp_text_add(out,
                     "<dd class=\"meter\" aria-hidden=\"true\"><i style=\"width:%.1f%%\"></i></dd>",
                     100 * share);
    }
    if (*figure->note != '\0') {
        mcp_text_add(out, "<dd class=\"note\">");
        mcp_html_text(out, figure->note);
        mcp_text_add(out, "</dd>");
    }
    mcp_text_add(out, "</div>\n");
}

/* Tables */

static const char *align_class(const struct mcp_table *table, int column)
{
    return mcp_table_column(table, column)->align == MCP_RIGHT ? " class=\"n\"" : "";
}

static void put_row(struct mcp_text *out, const struct mcp_table *table, size_t row)
{
    mcp_text_add(out,
                 mcp_table_row_color(table, row) == MCP_BOLD ? "<tr class=\"strong\">" : "<tr>");
    for (int i = 0; i < mcp_table_num_columns(table); i++) {
        mcp_text_add(out, i == 0 ? "<th scope=\"row\"%s>" : "<td%s>", align_class(table, i));
        mcp_html_text(out, mcp_table_text(table, row, i));
        mcp_text_add(out, i == 0 ? "</th>" : "</td>");
    }
    mcp_text_add(out, "</tr>\n");
}

static void put_table(struct mcp_text *out, const char *caption, const struct mcp_table *table)
{
    mcp_text_add(out, "<div class=\"wide\"><table>\n");
    if (*caption != '\0')
        element(out, "caption", "caption", caption);
    mcp_text_add(out, "<thead><tr>");
    for (int i = 0; i < mcp_table_num_columns(table); i++) {
        const struct mcp_column *column = mcp_table_column(table, i);
        mcp_text_add(out, "<th scope=\"col\"%s>", align_class(table, i));
        mcp_html_text(out, column->header);
        if (*column->unit != '\0') {
            mcp_text_add(out, " <small>");
            mcp_html_text(out, column->unit);
            mcp_text_add(out, "</small>");
        }
        mcp_text_add(out, "</th>");
    }
    mcp_text_add(out, "</tr></thead>\n<tbody>\n");
    for (size_t row = 0; row < mcp_table_num_rows(table); row++)
        put_row(out, table, row);
    mcp_text_add(out, "</tbody></table></div>\n");
}

static void put_more(struct mcp_text *out, const char *caption, const struct mcp_table *table)
{
    mcp_text_add(out, "<details>\n");
    element(out, "summary", "more", caption);
    put_table(out, "", table);
    mcp_text_add(out, "</details>\n");
}

/* A drawing, and its numbers below. */
static void put_chart(struct mcp_text *out, const struct mcp_report_block *block)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_table *table = NULL;
    mcp_text_add(out, "<figure>\n");
    if (block->kind == MCP_REPORT_BARS) {
        mcp_html_bars(out, &block->bars);
        table = mcp_report_bars_table(arena, &block->bars);
    } else if (block->kind == MCP_REPORT_LINES) {
        mcp_html_lines(out, &block->lines);
        table = mcp_report_lines_table(arena, &block->lines);
    } else if (block->kind == MCP_REPORT_CURVES) {
        mcp_html_curves(out, &block->curves);
        table = mcp_report_curves_table(arena, &block->curves);
    } else if (block->kind == MCP_REPORT_GANTT) {
        mcp_html_gantt(out, &block->gantt);
        table = mcp_report_gantt_table(arena, &block->gantt);
    } else {
        mcp_html_grid(out, &block->grid);
    }
    if (table)
        put_more(out, "The numbers", table);
    mcp_text_add(out, "</figure>\n");
}

/* Blocks */

static bool same_list(enum mcp_report_kind a, enum mcp_report_kind b)
{
    return a == b && (a == MCP_REPORT_POINT || a == MCP_REPORT_FIGURE);
}

static const char *list_tag(enum mcp_report_kind kind)
{
    return kind == MCP_REPORT_POINT ? "ul" : kind == MCP_REPORT_FIGURE ? "dl" : NULL;
}

static void put_block(struct mcp_text *out, const struct mcp_report_block *block)
{
    switch (block->kind) {
    case MCP_REPORT_SECTION:
        mcp_text_add(out, "</section>\n<section>\n");
        element(out, "h2", "heading", block->text);
        break;
    case MCP_REPORT_LEAD:
        element(out, "p", mcp_format(out->arena, "lead %s", tones[block->tone]), block->text);
        break;
    case MCP_REPORT_PROSE:
    case MCP_REPORT_NOTE:
        element(out, "p", block->kind == MCP_REPORT_NOTE ? "remark" : tones[block->tone],
                block->text);
        break;
    case MCP_REPORT_POINT:
        element(out, "li", tones[block->tone], block->text);
        break;
    case MCP_REPORT_FIGURE:
        put_figure(out, block);
        break;
    case MCP_REPORT_TABLE:
        put_table(out, block->text, block->table);
        break;
    case MCP_REPORT_MORE:
        put_more(out, block->text, block->table);
        break;
    default:
        put_chart(out, block);
    }
}

static void put_blocks(struct mcp_text *out, const struct mcp_report *report)
{
    for (size_t i = 0; i < report->num_blocks; i++) {
        const struct mcp_report_block *block = &report->blocks[i];
        const char *list = list_tag(block->kind);
        bool begins = i == 0 || !same_list(block->kind, report->blocks[i - 1].kind);
        bool ends = i + 1 == report->num_blocks || !same_list(block->kind, block[1].kind);
        if (list && begins)
            mcp_text_add(out, "<%s class=\"%s\">\n", list,
                         block->kind == MCP_REPORT_FIGURE ? "figures" : "points");
        put_block(out, block);
        if (list && ends)
            mcp_text_add(out, "</%s>\n", list);
    }
}

void mcp_report_html(const struct mcp_report *report, struct mcp_text *out)
{
    put_head(out, report);
    mcp_text_add(out, "<section class=\"answer\">\n");
    put_blocks(out, report);
    mcp_text_add(out, "</section>\n</main>\n");
    if (report->made_by)
        element(out, "footer", "made-by", report->made_by);
    mcp_text_add(out, "<script>\n");
    add_file(out, "page.js");
    mcp_text_add(out, "</script>\n</body>\n</html>\n");
}
