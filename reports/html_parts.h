/* reports/html_parts.h: what the writers of HTML share. Private to reports/. */
#ifndef MCP_REPORTS_HTML_PARTS_H
#define MCP_REPORTS_HTML_PARTS_H

#include "reports/html.h"

/* Text between tags or in a quoted attribute. Control characters become '?'. */
void mcp_html_text(struct mcp_text *out, const char *text);

/* <svg> with role and title; `height` of a drawing that is MCP_HTML_WIDTH wide. */
enum { MCP_HTML_WIDTH = 1040 };
void mcp_html_svg_begin(struct mcp_text *out, double height, const char *title);
void mcp_html_svg_end(struct mcp_text *out);
/* `anchor`: "s", "m", "e": (x, y) is its start, middle, end. */
void mcp_html_label(struct mcp_text *out, const char *anchor, double x, double y, const char *text);
/* What each ink means, as a list. */
void mcp_html_legend(struct mcp_text *out, const struct mcp_report_part *parts, int count);
/* Lines across at round values of 0 .. most, with their text below. */
struct mcp_html_axis {
    double left, right, top, bottom; /* of the plot */
    double most;                     /* value at `right` */
    enum mcp_dimension dimension;
};
void mcp_html_axis(struct mcp_text *out, const struct mcp_html_axis *axis);
/* Without zeros at the end: "5 s", "2.5 s". */
const char *mcp_html_round_text(struct mcp_arena *arena, double value,
                                enum mcp_dimension dimension);
/* The largest of 1, 2, 5 x 10^n (of GiB for bytes, of days for more than two) that cuts `most` into
 * `parts` or more. */
double mcp_html_round_step(double most, int parts, enum mcp_dimension dimension);

void mcp_html_bars(struct mcp_text *out, const struct mcp_report_bars *bars);
void mcp_html_lines(struct mcp_text *out, const struct mcp_report_lines *lines);
void mcp_html_curves(struct mcp_text *out, const struct mcp_report_curves *curves);
void mcp_html_grid(struct mcp_text *out, const struct mcp_report_grid *grid);
void mcp_html_gantt(struct mcp_text *out, const struct mcp_gantt *gantt);

#endif
