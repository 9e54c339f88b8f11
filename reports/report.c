/* reports/report.c: blocks put one after the other, and charts as tables. */
#include "reports/report.h"

#include <math.h>

struct mcp_report mcp_report_new(struct mcp_arena *arena, const char *title, const char *subtitle)
{
    return (struct mcp_report){.arena = arena, .title = title, .subtitle = subtitle};
}

static struct mcp_report_block *add(struct mcp_report *report, enum mcp_report_kind kind)
{
    report->blocks = mcp_grow(report->arena, report->blocks, report->num_blocks, &report->capacity,
                              sizeof *report->blocks);
    struct mcp_report_block *block = &report->blocks[report->num_blocks++];
    block->kind = kind;
    return block;
}

void mcp_report_say(struct mcp_report *report, enum mcp_report_kind kind, enum mcp_tone tone,
                    const char *text)
{
    struct mcp_report_block *block = add(report, kind);
    block->tone = tone;
    block->text = text;
}

void mcp_report_figure(struct mcp_report *report, enum mcp_tone tone,
                       const struct mcp_report_figure *figure)
{
    struct mcp_report_block *block = add(report, MCP_REPORT_FIGURE);
    block->tone = tone;
    block->figure = *figure;
}

void mcp_report_table(struct mcp_report *report, enum mcp_report_kind kind, const char *caption,
                      const struct mcp_table *table)
{
    struct mcp_report_block *block = add(report, kind);
    block->text = caption;
    block->table = table;
}

void mcp_report_bars(struct mcp_report *report, const struct mcp_report_bars *bars)
{
    add(report, MCP_REPORT_BARS)->bars = *bars;
}

void mcp_report_lines(struct mcp_report *report, const struct mcp_report_lines *lines)
{
    add(report, MCP_REPORT_LINES)->lines = *lines;
}

void mcp_report_curves(struct mcp_report *report, const struct mcp_report_curves *curves)
{
    add(report, MCP_REPORT_CURVES)->curves = *curves;
}

void mcp_report_grid(struct mcp_report *report, const struct mcp_report_grid *grid)
{
    add(report, MCP_REPORT_GRID)->grid = *grid;
}

void mcp_report_gantt(struct mcp_report *report, const struct mcp_gantt *gantt)
{
    add(report, MCP_REPORT_GANTT)->gantt = *gantt;
}

/* Charts as tables */

static struct mcp_table *parts_table(struct mcp_arena *arena, int num_parts,
                                     const struct mcp_report_part *parts, const char *last)
{
    int count = num_parts + 2;
    struct mcp_column *columns = MCP_ARRAY(arena, count, struct mcp_column);
    columns[0] = (struct mcp_column){"", "", MCP_LEFT};
    for (int i = 0; i < num_parts; i++)
        columns[i + 1] = (struct mcp_column){parts[i].name, "", MCP_RIGHT};
    columns[count - 1] = (struct mcp_column){last, "", MCP_RIGHT};
    return mcp_table_new(arena, columns, count);
}

const struct mcp_table *mcp_report_bars_table(struct mcp_arena *arena,
                                              const struct mcp_report_bars *bars)
{
    struct mcp_table *table = parts_table(arena, bars->num_parts, bars->parts, "in all");
    for (int row = 0; row < bars->num_rows; row++) {
        double sum = 0;
        mcp_table_cell(table, "%s", bars->rows[row]);
        for (int i = 0; i < bars->num_parts; i++) {
            double value = bars->values[row * bars->num_parts + i];
            mcp_table_cell(table, "%s", value > 0 ? mcp_show(arena, value, bars->dimension) : "-");
            sum += value;
        }
        mcp_table_cell(table, "%s", mcp_show(arena, sum, bars->dimension));
    }
    return table;
}

const struct mcp_table *mcp_report_lines_table(struct mcp_arena *arena,
                                               const struct mcp_report_lines *lines)
{
    static const struct mcp_column columns[] = {{"", "", MCP_LEFT},
                                                {"lowest", "", MCP_RIGHT},
                                                {"mean", "", MCP_RIGHT},
                                                {"highest", "", MCP_RIGHT},
                                                {"highest at", "", MCP_RIGHT}};
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int line = 0; line < lines->num_lines; line++) {
        const double *values = lines->values + (size_t)line * (size_t)lines->num_points;
        double low = values[0], high = values[0], sum = 0;
        int at = 0;
        for (int i = 0; i < lines->num_points; i++) {
            low = fmin(low, values[i]);
            at = values[i] > high ? i : at;
            high = fmax(high, values[i]);
            sum += values[i];
        }
        mcp_table_cell(table, "%s", lines->lines[line].name);
        mcp_table_cell(table, "%s", mcp_show(arena, low, lines->dimension));
        mcp_table_cell(table, "%s", mcp_show(arena, sum / lines->num_points, lines->dimension));
        mcp_table_cell(table, "%s", mcp_show(arena, high, lines->dimension));
        mcp_table_cell(table, "%s",
                       mcp_show(arena, lines->seconds * at / lines->num_points, MCP_SECONDS));
    }
    return table;
}

const struct mcp_table *mcp_report_curves_table(struct mcp_arena *arena,
                                                const struct mcp_report_curves *curves)
{
    const struct mcp_column columns[] = {
        {"", "", MCP_LEFT},      {curves->x_name, "", MCP_RIGHT}, {curves->y_name, "", MCP_RIGHT},
        {"from", "", MCP_RIGHT}, {"to", "", MCP_RIGHT},           {"", "", MCP_LEFT}};
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int c = 0; c < curves->num_curves; c++)
        for (int i = 0; i < curves->curves[c].num_points; i++) {
            const struct mcp_report_point *point = &curves->curves[c].points[i];
            mcp_table_cell(table, "%s", curves->curves[c].name);
            mcp_table_cell(table, "%s", mcp_show_integer(arena, (int64_t)point->x));
            mcp_table_cell(table, "%.4g", point->y);
            mcp_table_cell(table, "%.4g", point->low);
            mcp_table_cell(table, "%.4g", point->high);
            mcp_table_cell(table, "%s", point->mark);
        }
    return table;
}

const struct mcp_table *mcp_report_gantt_table(struct mcp_arena *arena,
                                               const struct mcp_gantt *gantt)
{
    static const struct mcp_column columns[] = {{"", "", MCP_LEFT},      {"begins", "", MCP_RIGHT},
                                                {"ends", "", MCP_RIGHT}, {"slots", "", MCP_RIGHT},
                                                {"busy", "", MCP_RIGHT}, {"idle", "", MCP_RIGHT}};
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int row = 0; row < gantt->num_rows; row++) {
        const struct mcp_gantt_sum sum = mcp_gantt_sum(gantt, row);
        mcp_table_cell(table, "%s", gantt->rows[row]);
        mcp_table_cell(table, "%s", mcp_show(arena, 1e-9 * (double)sum.first_ns, MCP_SECONDS));
        mcp_table_cell(table, "%s", mcp_show(arena, 1e-9 * (double)sum.last_ns, MCP_SECONDS));
        mcp_table_cell(table, "%d", sum.num_spans);
        mcp_table_cell(table, "%s", mcp_show(arena, 1e-9 * (double)sum.busy_ns, MCP_SECONDS));
        mcp_table_cell(table, "%.1f %%",
                       100 * (1 - (double)sum.busy_ns / (double)(gantt->end_ns + !gantt->end_ns)));
    }
    return table;
}
