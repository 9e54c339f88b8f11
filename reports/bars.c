/* reports/bars.c: values as rows of cells. */
#include "reports/bars.h"

#include <math.h>
#include <stdint.h>

enum { NUM_COLORS = 8, NUM_FILLS = 12, INDENT = 2, GAP = 2, MAX_BAR_CELLS = 40, MIN_BAR_CELLS = 8 };

static const char *const eighths[8] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
static const char *const heights[8] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char ascii_heights[8] = {'_', '.', ':', '-', '=', '+', '*', '#'};

/* How part i of a stacked bar is drawn: colour where there are colours, else fill. Colours that
 * come again come with another fill. */
static const enum mcp_color palette[NUM_COLORS] = {
    MCP_BLUE, MCP_CYAN, MCP_GREEN, MCP_YELLOW, MCP_MAGENTA, MCP_RED, MCP_PLAIN, MCP_DIM,
};
static const char *const fills[NUM_FILLS] = {"█", "▒", "▚", "░", "▓", "╳",
                                             "▤", "╱", "●", "○", "◆", "▥"};
static const char *const ascii_fills[NUM_FILLS] = {"#", "=", "%", "-", "+", "x",
                                                   "o", "/", "*", "@", "$", ":"};

static double drawn(double value)
{
    return isfinite(value) && value > 0 ? value : 0;
}

static double sum_of(const struct mcp_bar *bars, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += drawn(bars[i].value);
    return sum;
}

static double largest_of(const struct mcp_bar *bars, int count)
{
    double largest = 0;
    for (int i = 0; i < count; i++)
        largest = fmax(largest, drawn(bars[i].value));
    return largest;
}

static void repeat(struct mcp_text *out, const char *cell, int count)
{
    for (int i = 0; i < count; i++)
        mcp_text_add(out, "%s", cell);
}

/* `value` / `full` in steps of 1 / `steps`; what is above zero shows. */
static int steps_of(double value, double full, int steps)
{
    if (drawn(value) <= 0 || drawn(full) <= 0)
        return 0;
    return (int)fmax(1, round(fmin(value / full, 1) * steps));
}

void mcp_bar_line(struct mcp_text *out, const struct mcp_style *style, double value, double full,
                  int cells)
{
    if (!style->unicode) {
        int filled = steps_of(value, full, cells);
        repeat(out, "#", filled);
        repeat(out, " ", cells - filled);
        return;
    }
    int filled = steps_of(value, full, 8 * cells);
    repeat(out, "█", filled / 8);
    mcp_text_add(out, "%s", eighths[filled % 8]);
    repeat(out, " ", cells - (filled + 7) / 8);
}

static void put_padded(struct mcp_text *out, const char *text, int width)
{
    mcp_text_add(out, "%s%*s", text, width - mcp_display_width(text), "");
}

static int widest_label(const struct mcp_bar *bars, int count)
{
    int width = 0;
    for (int i = 0; i < count; i++) {
        int label = mcp_display_width(bars[i].label);
        width = label > width ? label : width;
    }
    return width;
}

static int widest_text(const struct mcp_bar *bars, int count)
{
    int width = 0;
    for (int i = 0; i < count; i++) {
        int text = mcp_display_width(bars[i].text);
        width = text > width ? text : width;
    }
    return width;
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

void mcp_bars_write(struct mcp_text *out, const struct mcp_style *style, const struct mcp_bar *bars,
                    int count, double full)
{
    int labels = widest_label(bars, count);
    int texts = widest_text(bars, count);
    int cells =
        clamp(style->width - INDENT - labels - texts - 2 * GAP, MIN_BAR_CELLS, MAX_BAR_CELLS);
    if (full <= 0)
        full = largest_of(bars, count);
    for (int i = 0; i < count; i++) {
        struct mcp_text bar = mcp_text_new(out->arena);
        mcp_bar_line(&bar, style, bars[i].value, full, cells);
        mcp_text_add(out, "%*s", INDENT, "");
        put_padded(out, bars[i].label, labels);
        mcp_text_add(out, "%*s%s%*s%s\n", GAP, "",
                     mcp_paint(out->arena, style, bars[i].color, bar.data),
                     GAP + texts - mcp_display_width(bars[i].text), "", bars[i].text);
    }
}

const char *mcp_stacked_fill(struct mcp_arena *arena, const struct mcp_style *style, int part)
{
    const int fill = style->color ? part / NUM_COLORS : part;
    const char *cell = style->unicode ? fills[fill % NUM_FILLS] : ascii_fills[part % NUM_FILLS];
    return mcp_paint(arena, style, palette[part % NUM_COLORS], cell);
}

/* Part with the largest claim on one more cell: its value less what it has. */
static int most_short(const struct mcp_bar *parts, int count, const int *cells, double per_cell)
{
    int best = 0;
    double most = -INFINITY;
    for (int i = 0; i < count; i++) {
        double claim = drawn(parts[i].value) / per_cell - cells[i];
        if (cells[i] == 0 && claim > 0)
            claim += 1e9; /* however small, it is seen */
        if (claim > most) {
            most = claim;
            best = i;
        }
    }
    return best;
}

/* Hands out the cells one by one, so that they add up. */
static int *share_cells(struct mcp_arena *arena, const struct mcp_bar *parts, int count,
                        double per_cell, int filled)
{
    int *cells = MCP_ARRAY(arena, count > 0 ? count : 1, int);
    for (int given = 0; given < filled && count > 0; given++)
        cells[most_short(parts, count, cells, per_cell)]++;
    return cells;
}

void mcp_stacked_line(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_bar *parts, int count, double full, int cells)
{
    double sum = sum_of(parts, count);
    bool over = full > 0 && sum > full;
    double scale = full > 0 && !over ? full : sum;
    int filled = steps_of(sum, scale, over ? cells - 1 : cells);
    int *shares = share_cells(out->arena, parts, count, scale / cells, filled);
    for (int i = 0; i < count; i++)
        repeat(out, mcp_stacked_fill(out->arena, style, i), shares[i]);
    const char *dot = mcp_paint(out->arena, style, MCP_DIM, style->unicode ? "·" : ".");
    if (over)
        mcp_text_add(out, "%s", mcp_paint(out->arena, style, MCP_RED, ">"));
    else
        repeat(out, dot, cells - filled);
}

void mcp_stacked_legend(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_bar *parts, int count, double full)
{
    int labels = widest_label(parts, count);
    int texts = widest_text(parts, count);
    double whole = full > 0 ? full : sum_of(parts, count);
    for (int i = 0; i < count; i++) {
        if (drawn(parts[i].value) <= 0)
            continue;
        mcp_text_add(out, "%*s%s ", INDENT, "", mcp_stacked_fill(out->arena, style, i));
        put_padded(out, parts[i].label, labels);
        mcp_text_add(out, "%*s%s  %5.1f %%\n", GAP + texts - mcp_display_width(parts[i].text), "",
                     parts[i].text, 100 * parts[i].value / whole);
    }
}

/* Where `value` lies between the extremes, 0..7; the middle when they are equal. */
static int height_of(double value, double low, double high)
{
    if (high <= low)
        return 3;
    return (int)fmin(7, floor((value - low) / (high - low) * 8));
}

void mcp_sparkline(struct mcp_text *out, const struct mcp_style *style, const double *values,
                   int count)
{
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < count; i++) {
        if (isfinite(values[i])) {
            low = fmin(low, values[i]);
            high = fmax(high, values[i]);
        }
    }
    for (int i = 0; i < count; i++) {
        int height = isfinite(values[i]) ? height_of(values[i], low, high) : -1;
        if (height < 0)
            mcp_text_append(out, " ", 1);
        else if (style->unicode)
            mcp_text_add(out, "%s", heights[height]);
        else
            mcp_text_append(out, &ascii_heights[height], 1);
    }
}
