/* reports/markdown.c: blocks of a report as CommonMark with tables. */
#include "reports/markdown.h"

#include <string.h>

/* What Markdown, or HTML within it, would obey. */
static void put_text(struct mcp_text *out, const char *text)
{
    for (const char *at = mcp_printable(out->arena, text); *at != '\0'; at++) {
        if (*at == '<')
            mcp_text_add(out, "&lt;");
        else if (*at == '&')
            mcp_text_add(out, "&amp;");
        else if (strchr("\\`*_[]#|", *at))
            mcp_text_add(out, "\\%c", *at);
        else
            mcp_text_append(out, at, 1);
    }
}

static void put_line(struct mcp_text *out, const char *before, const char *text, const char *after)
{
    mcp_text_add(out, "%s", before);
    put_text(out, text);
    mcp_text_add(out, "%s", after);
}

static void put_row(struct mcp_text *out, const struct mcp_table *table, size_t row)
{
    bool strong = mcp_table_row_color(table, row) == MCP_BOLD;
    mcp_text_add(out, "|");
    for (int i = 0; i < mcp_table_num_columns(table); i++) {
        const char *cell = mcp_table_text(table, row, i);
        const char *stars = strong && *cell != '\0' ? "**" : "";
        put_line(out, mcp_format(out->arena, " %s", stars), cell,
                 mcp_format(out->arena, "%s |", stars));
    }
    mcp_text_add(out, "\n");
}

static void put_table(struct mcp_text *out, const char *caption, const struct mcp_table *table)
{
    if (*caption != '\0')
        put_line(out, "### ", caption, "\n\n");
    mcp_text_add(out, "|");
    for (int i = 0; i < mcp_table_num_columns(table); i++) {
        const struct mcp_column *column = mcp_table_column(table, i);
        bool has_unit = *column->unit != '\0';
        put_line(out, " ", column->header, "");
        put_line(out, has_unit ? " (" : "", column->unit, has_unit ? ") |" : " |");
    }
    mcp_text_add(out, "\n|");
    for (int i = 0; i < mcp_table_num_columns(table); i++)
        mcp_text_add(out, mcp_table_column(table, i)->align == MCP_RIGHT ? "---:|" : "---|");
    mcp_text_add(out, "\n");
    for (size_t row = 0; row < mcp_table_num_rows(table); row++)
        put_row(out, table, row);
    mcp_text_add(out, "\n");
}

static void put_figure(struct mcp_text *out, const struct mcp_report_figure *figure)
{
    put_line(out, "- ", figure->label, ": **");
    put_line(out, "", figure->value, "**");
    if (*figure->note != '\0')
        put_line(out, ", ", figure->note, "");
    mcp_text_add(out, "\n");
}

static void put_limit(struct mcp_text *out, double limit, const char *text)
{
    if (limit == limit)
        put_line(out, "Limit: ", text, "\n\n");
}

static void put_grid(struct mcp_text *out, const struct mcp_report_grid *grid)
{
    put_line(out, "", grid->title, ":\n\n```\n");
    for (int i = 0; i < grid->num_rows; i++) {
        const struct mcp_report_grid_row *row = &grid->rows[i];
        if (grid->rows_left_out > 0 && i == grid->num_rows - 1)
            mcp_text_add(out, "... %d more rows\n", grid->rows_left_out);
        mcp_text_add(out, "%-16s [", row->label);
        for (int k = 0; k < row->num_cells; k++)
            mcp_text_add(out, "%s%d", k == 0 ? "" : row->begins[k] ? "|" : " ", row->cells[k]);
        mcp_text_add(out, "]  %s\n", mcp_printable(out->arena, row->note));
    }
    mcp_text_add(out, "```\n\n");
}

static void put_chart(struct mcp_text *out, const struct mcp_report_block *block)
{
    struct mcp_arena *arena = out->arena;
    if (block->kind == MCP_REPORT_BARS) {
        put_table(out, block->bars.title, mcp_report_bars_table(arena, &block->bars));
        put_limit(out, block->bars.limit, block->bars.limit_text);
    } else if (block->kind == MCP_REPORT_LINES) {
        put_table(out, block->lines.title, mcp_report_lines_table(arena, &block->lines));
        put_limit(out, block->lines.limit, block->lines.limit_text);
    } else if (block->kind == MCP_REPORT_CURVES) {
        put_table(out, block->curves.title, mcp_report_curves_table(arena, &block->curves));
        put_limit(out, block->curves.limit, block->curves.limit_text);
    } else if (block->kind == MCP_REPORT_GANTT) {
        put_table(out, block->gantt.title, mcp_report_gantt_table(arena, &block->gantt));
    } else {
        put_grid(out, &block->grid);
    }
}

static void put_block(struct mcp_text *out, const struct mcp_report_block *block)
{
    switch (block->kind) {
    case MCP_REPORT_SECTION:
        put_line(out, "## ", block->text, "\n\n");
        break;
    case MCP_REPORT_LEAD:
        put_line(out, "**", block->text, "**\n\n");
        break;
    case MCP_REPORT_PROSE:
    case MCP_REPORT_NOTE:
        put_line(out, "", block->text, "\n\n");
        break;
    case MCP_REPORT_POINT:
        put_line(out, "- ", block->text, "\n");
        break;
    case MCP_REPORT_FIGURE:
        put_figure(out, &block->figure);
        break;
    case MCP_REPORT_TABLE:
    case MCP_REPORT_MORE:
        put_table(out, block->text, block->table);
        break;
    default:
        put_chart(out, block);
    }
}

static bool is_item(const struct mcp_report_block *block)
{
    return block->kind == MCP_REPORT_POINT || block->kind == MCP_REPORT_FIGURE;
}

void mcp_report_markdown(const struct mcp_report *report, struct mcp_text *out)
{
    put_line(out, "# ", report->title, "\n\n");
    if (report->subtitle)
        put_line(out, "", report->subtitle, "\n\n");
    for (size_t i = 0; i < report->num_blocks; i++) {
        const struct mcp_report_block *block = &report->blocks[i];
        bool ends = i + 1 == report->num_blocks || block[1].kind != block->kind;
        put_block(out, block);
        if (is_item(block) && ends)
            mcp_text_add(out, "\n");
    }
    if (report->made_by)
        put_line(out, "---\n\n", report->made_by, "\n");
}
