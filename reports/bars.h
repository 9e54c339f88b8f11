/* reports/bars.h: bars, stacked bars and sparklines made of characters.
 *
 * Block elements in eighths of a cell where UTF-8 is shown, ASCII elsewhere.
 * Values that are not finite, or negative, draw nothing. Needs no colour to be
 * read: without it the parts of a stacked bar differ by their fill. */
#ifndef MCP_REPORTS_BARS_H
#define MCP_REPORTS_BARS_H

#include "core/text.h"
#include "reports/style.h"

/* One labelled value. `text` is what people read beside it, e.g. "13.1 GiB". */
struct mcp_bar {
    const char *label;
    double value;
    const char *text;
    enum mcp_color color;
};

/* value / full of `cells` cells, padded with spaces to exactly `cells`. */
void mcp_bar_line(struct mcp_text *out, const struct mcp_style *style, double value, double full,
                  int cells);

/* One line a bar: label, bar, text. `full` is the value of a full bar; 0: the
 * largest value. */
void mcp_bars_write(struct mcp_text *out, const struct mcp_style *style, const struct mcp_bar *bars,
                    int count, double full);

/* One bar of `cells` cells, each part in its own colour or fill; what the parts
 * leave of `full` (0: their sum) is dotted. Cells are shared by largest
 * remainder, and every part above zero has one while there are enough. A bar
 * that holds more than `full` ends in '>'. The colours are those of the
 * palette, not of `parts`. */
void mcp_stacked_line(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_bar *parts, int count, double full, int cells);
/* What the parts of a stacked bar mean: fill, label, text, share of `full`. One
 * line each. Parts of value 0 are left out. */
void mcp_stacked_legend(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_bar *parts, int count, double full);

/* One cell of part `part` of a stacked bar, for tables that explain it. */
const char *mcp_stacked_fill(struct mcp_arena *arena, const struct mcp_style *style, int part);

/* Lowest to highest value on one line of `count` characters. */
void mcp_sparkline(struct mcp_text *out, const struct mcp_style *style, const double *values,
                   int count);

#endif
