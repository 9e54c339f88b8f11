/* reports/html_chart.c: stacked bars, curves and machines as inline SVG. */
#include "core/units.h"
#include "reports/html_parts.h"

#include <math.h>
#include <string.h>

enum {
    LEFT = 118,
    RIGHT = MCP_HTML_WIDTH - 92,
    LETTER = 7, /* pixels that a letter takes at most, on the mean */
    MOST_LABELS = 20
};

void mcp_html_svg_begin(struct mcp_text *out, double height, const char *title)
{
    mcp_text_add(out, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\"><title>", MCP_HTML_WIDTH, height);
    mcp_html_text(out, title);
    mcp_text_add(out, "</title>\n");
}

void mcp_html_svg_end(struct mcp_text *out)
{
    mcp_text_add(out, "</svg>\n");
}

void mcp_html_label(struct mcp_text *out, const char *anchor, double x, double y, const char *text)
{
    mcp_text_add(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", anchor, x, y);
    mcp_html_text(out, text);
    mcp_text_add(out, "</text>");
}

void mcp_html_legend(struct mcp_text *out, const struct mcp_report_part *parts, int count)
{
    mcp_text_add(out, "<ul class=\"legend\">");
    for (int i = 0; i < count; i++) {
        mcp_text_add(out, "<li><i class=\"k%d\"></i>", parts[i].ink);
        mcp_html_text(out, parts[i].name);
        mcp_text_add(out, "</li>");
    }
    mcp_text_add(out, "</ul>\n");
}

double mcp_html_round_step(double most, int parts, enum mcp_dimension dimension)
{
    const double day_s = 86400;
    double unit = dimension == MCP_BYTES                         ? (double)(1 << 30)
                  : dimension == MCP_SECONDS && most > 2 * day_s ? day_s
                                                                 : 1;
    double rough = most / unit / parts;
    if (!(rough > 0) || !isfinite(rough))
        return unit;
    double ten = pow(10, floor(log10(rough)));
    double step = rough / ten >= 5 ? 5 : rough / ten >= 2 ? 2 : 1;
    return step * ten * unit;
}

const char *mcp_html_round_text(struct mcp_arena *arena, double value, enum mcp_dimension dimension)
{
    const char *text = mcp_show(arena, value, dimension);
    size_t length = strcspn(text, " "), kept = length;
    if (value == 0)
        return "0";
    if (memchr(text, '.', length) == NULL)
        return text;
    while (text[kept - 1] == '0')
        kept--;
    if (text[kept - 1] == '.')
        kept--;
    return mcp_format(arena, "%.*s%s", (int)kept, text, text + length);
}

void mcp_html_axis(struct mcp_text *out, const struct mcp_html_axis *axis)
{
    double step = mcp_html_round_step(axis->most, 5, axis->dimension);
    int count = (int)floor(axis->most / step + 1e-9);
    for (int i = 0; i <= count; i++) {
        double x = axis->left + (axis->right - axis->left) * i * step / axis->most;
        mcp_text_add(out, "<path class=\"tick\" d=\"M%.1f %.1fV%.1f\"/>", x, axis->top,
                     axis->bottom);
        mcp_html_label(out, "m small", x, axis->bottom + 15,
                       mcp_html_round_text(out->arena, i * step, axis->dimension));
    }
    mcp_text_add(out, "\n");
}

/* Stacked bars */

struct bar_plot {
    const struct mcp_report_bars *bars;
    double pitch, height, most;
};

static double row_sum(const struct mcp_report_bars *bars, int row)
{
    double sum = 0;
    for (int i = 0; i < bars->num_parts; i++)
        sum += bars->values[row * bars->num_parts + i];
    return sum;
}

static struct bar_plot bar_plot_of(const struct mcp_report_bars *bars)
{
    struct bar_plot plot = {bars, 0, 0, isfinite(bars->limit) ? bars->limit * 1.02 : 0};
    plot.pitch = bars->num_rows == 1    ? 40
                 : bars->num_rows <= 10 ? 28
                 : bars->num_rows <= 32 ? 18
                                        : fmax(3, 600.0 / bars->num_rows);
    plot.height = plot.pitch * (bars->num_rows <= 32 ? 0.78 : 0.9);
    for (int row = 0; row < bars->num_rows; row++)
        plot.most = fmax(plot.most, row_sum(bars, row));
    if (!(plot.most > 0))
        plot.most = 1;
    return plot;
}

static double bar_x(const struct bar_plot *plot, double value)
{
    return LEFT + (RIGHT - LEFT) * value / plot->most;
}

/* Name and share, or share alone, where it fits; of a single bar alone. */
static void label_part(struct mcp_text *out, const struct bar_plot *plot, int part, double from,
                       double value)
{
    double width = bar_x(plot, value) - LEFT;
    const char *name = mcp_format(out->arena, "%s %.0f %%", plot->bars->parts[part].name,
                                  100 * value / row_sum(plot->bars, 0));
    if ((int)strlen(name) * LETTER + 8 > (int)width)
        name = mcp_format(out->arena, "%.0f %%", 100 * value / row_sum(plot->bars, 0));
    if ((int)strlen(name) * LETTER + 6 <= (int)width)
        mcp_html_label(out, mcp_format(out->arena, "m in%d", plot->bars->parts[part].ink),
                       bar_x(plot, from) + width / 2, plot->height / 2 + 4.5, name);
}

static void put_bar(struct mcp_text *out, const struct bar_plot *plot, int row)
{
    const struct mcp_report_bars *bars = plot->bars;
    double at = 0, y = row * plot->pitch;
    for (int i = 0; i < bars->num_parts; i++) {
        double value = bars->values[row * bars->num_parts + i];
        double width = bar_x(plot, value) - LEFT;
        if (!(value > 0))
            continue;
        mcp_text_add(out,
                     "<rect class=\"k%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">"
                     "<title>",
                     bars->parts[i].ink, bar_x(plot, at), y, fmax(width - (width > 3), 0.3),
                     plot->height);
        mcp_html_text(out,
                      mcp_format(out->arena, "%s: %s %s, %.1f %%", bars->rows[row],
                                 bars->parts[i].name, mcp_show(out->arena, value, bars->dimension),
                                 100 * value / row_sum(bars, row)));
        mcp_text_add(out, "</title></rect>");
        if (bars->num_rows == 1)
            label_part(out, plot, i, at, value);
        at += value;
    }
    int every = 1 + (bars->num_rows - 1) / 32;
    if (row % every == 0 || every == 1) {
        double base = y + plot->height / 2 + 4.5;
        mcp_html_label(out, "e", LEFT - 10, base, bars->rows[row]);
        mcp_html_label(out, "e dim", MCP_HTML_WIDTH - 6, base,
                       mcp_show(out->arena, at, bars->dimension));
    }
    mcp_text_add(out, "\n");
}

static void put_limit(struct mcp_text *out, double x1, double y1, double x2, double y2)
{
    mcp_text_add(out, "<path class=\"limit\" d=\"M%.1f %.1fL%.1f %.1f\"/>", x1, y1, x2, y2);
}

static int parts_used(const struct mcp_report_bars *bars, struct mcp_report_part *used)
{
    int count = 0;
    for (int i = 0; i < bars->num_parts; i++)
        for (int row = 0; row < bars->num_rows; row++)
            if (bars->values[row * bars->num_parts + i] > 0) {
                used[count++] = bars->parts[i];
                break;
            }
    return count;
}

void mcp_html_bars(struct mcp_text *out, const struct mcp_report_bars *bars)
{
    struct bar_plot plot = bar_plot_of(bars);
    double bottom = bars->num_rows * plot.pitch, top = isfinite(bars->limit) ? 20 : 4;
    struct mcp_report_part *used = MCP_ARRAY(out->arena, bars->num_parts, struct mcp_report_part);
    mcp_html_svg_begin(out, top + bottom + 24, bars->title);
    mcp_text_add(out, "<g transform=\"translate(0 %.0f)\">\n", top);
    const struct mcp_html_axis axis = {LEFT, RIGHT, -2, bottom, plot.most, bars->dimension};
    mcp_html_axis(out, &axis);
    for (int row = 0; row < bars->num_rows; row++)
        put_bar(out, &plot, row);
    if (isfinite(bars->limit)) {
        put_limit(out, bar_x(&plot, bars->limit), -4, bar_x(&plot, bars->limit), bottom);
        mcp_html_label(out, "e small", bar_x(&plot, bars->limit) + 4, -8, bars->limit_text);
    }
    mcp_text_add(out, "</g>\n");
    mcp_html_svg_end(out);
    mcp_html_legend(out, used, parts_used(bars, used));
}

/* Curves */

struct line_plot {
    const struct mcp_report_lines *lines;
    double height, most;
};

static double line_y(const struct line_plot *plot, double value)
{
    return plot->height * (1 - value / plot->most);
}

static void put_line(struct mcp_text *out, const struct line_plot *plot, int line)
{
    const struct mcp_report_lines *lines = plot->lines;
    const double *values = lines->values + (size_t)line * (size_t)lines->num_points;
    double step = (double)(RIGHT - LEFT) / lines->num_points;
    mcp_text_add(out, "<path class=\"curve l%d\" d=\"M%d %.1f", lines->lines[line].ink, LEFT,
                 line_y(plot, values[0]));
    for (int i = 1; i < lines->num_points; i++)
        if (values[i] != values[i - 1])
            mcp_text_add(out, "H%.1fV%.1f", LEFT + i * step, line_y(plot, values[i]));
    mcp_text_add(out, "H%d\"><title>", RIGHT);
    mcp_html_text(out, lines->lines[line].name);
    mcp_text_add(out, "</title></path>\n");
}

static void put_levels(struct mcp_text *out, const struct line_plot *plot)
{
    double step = mcp_html_round_step(plot->most, 4, plot->lines->dimension);
    for (int i = 0; i * step <= plot->most * 1.0001; i++) {
        double y = line_y(plot, i * step);
        mcp_text_add(out, "<path class=\"tick\" d=\"M%d %.1fH%d\"/>", LEFT, y, RIGHT);
        mcp_html_label(out, "e small", LEFT - 10, y + 4,
                       mcp_html_round_text(out->arena, i * step, plot->lines->dimension));
    }
}

void mcp_html_lines(struct mcp_text *out, const struct mcp_report_lines *lines)
{
    struct line_plot plot = {lines, 190, isfinite(lines->limit) ? lines->limit * 1.05 : 0};
    for (int i = 0; i < lines->num_lines * lines->num_points; i++)
        plot.most = fmax(plot.most, lines->values[i]);
    if (!(plot.most > 0))
        plot.most = 1;
    mcp_html_svg_begin(out, plot.height + 34, lines->title);
    mcp_text_add(out, "<g transform=\"translate(0 8)\">\n");
    put_levels(out, &plot);
    const struct mcp_html_axis axis = {LEFT,        RIGHT,          plot.height,
                                       plot.height, lines->seconds, MCP_SECONDS};
    mcp_html_axis(out, &axis);
    if (isfinite(lines->limit)) {
        put_limit(out, LEFT, line_y(&plot, lines->limit), RIGHT, line_y(&plot, lines->limit));
        mcp_html_label(out, "s small", RIGHT + 6, line_y(&plot, lines->limit) + 4,
                       lines->limit_text);
    }
    for (int line = 0; line < lines->num_lines; line++)
        put_line(out, &plot, line);
    mcp_text_add(out, "</g>\n");
    mcp_html_svg_end(out);
    mcp_html_legend(out, lines->lines, lines->num_lines);
}

/* Machines */

enum { CELL_HEIGHT = 22, CELL_PITCH = 28, MOST_CELL = 30, CELLS_WIDTH = 560 };

static void put_cells(struct mcp_text *out, const struct mcp_report_grid *grid,
                      const struct mcp_report_grid_row *row, double y)
{
    double width = fmin(MOST_CELL, (double)CELLS_WIDTH / row->num_cells), x = LEFT;
    bool numbers = width >= 10 + 6 * (grid->most > 9) + 6 * (grid->most > 99);
    for (int i = 0; i < row->num_cells; i++) {
        double share = grid->most > 0 ? (double)row->cells[i] / grid->most : 0;
        double gap = row->begins[i] && i > 0 ? 4 : 0;
        x += gap;
        mcp_text_add(out,
                     "<rect class=\"cell\" fill-opacity=\"%.2f\" x=\"%.1f\" y=\"%.1f\" "
                     "width=\"%.1f\" height=\"%d\"/>",
                     0.14 + 0.86 * share, x, y, width - (width > 4), CELL_HEIGHT);
        if (numbers)
            mcp_html_label(out, share > 0.5 ? "m on" : "m off", x + width / 2, y + 15.5,
                           mcp_format(out->arena, "%d", row->cells[i]));
        x += width;
    }
    mcp_html_label(out, "s dim", x + 14, y + 15.5, row->note);
}

void mcp_html_grid(struct mcp_text *out, const struct mcp_report_grid *grid)
{
    int lines = grid->num_rows + (grid->rows_left_out > 0);
    double y = 4;
    mcp_html_svg_begin(out, lines * CELL_PITCH + 8.0, grid->title);
    for (int i = 0; i < grid->num_rows; i++) {
        if (grid->rows_left_out > 0 && i == grid->num_rows - 1) {
            mcp_html_label(out, "s dim", LEFT, y + 15.5,
                           mcp_format(out->arena, "%d more rows", grid->rows_left_out));
            y += CELL_PITCH;
        }
        mcp_html_label(out, "e", LEFT - 10, y + 15.5, grid->rows[i].label);
        put_cells(out, grid, &grid->rows[i], y);
        mcp_text_add(out, "\n");
        y += CELL_PITCH;
    }
    mcp_html_svg_end(out);
    mcp_text_add(out, "<p class=\"remark\">each number is the ");
    mcp_html_text(out, grid->cells_are);
    mcp_text_add(out, "; gaps stand between groups</p>\n");
}
