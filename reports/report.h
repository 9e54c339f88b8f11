/* reports/report.h: a report before it is HTML or Markdown: facts in reading order.
 *
 * A command adds facts once; both writers (reports/html.h, reports/markdown.h) say all of
 * them, so neither knows less than the other. Strings are not copied. Text from
 * outside needs no care: writers escape every string. */
#ifndef MCP_REPORTS_REPORT_H
#define MCP_REPORTS_REPORT_H

#include "core/arena.h"
#include "core/units.h"
#include "reports/gantt.h"
#include "reports/table.h"

#include <stdbool.h>

enum mcp_tone { MCP_TONE_PLAIN, MCP_TONE_GOOD, MCP_TONE_WARN, MCP_TONE_BAD };

/* Inks: colours that keep their meaning through a report. 0-3 blue: work; 4-8 warm:
 * communication; 9 green: the optimizer; 10 grey: overheads; 11 pale: nothing happens. */
enum { MCP_NUM_INKS = 12 };

/* One of the numbers on top. */
struct mcp_report_figure {
    const char *label, *value;
    const char *note;  /* smaller, below; "" for none */
    double share_frac; /* drawn as a meter; NaN: none */
};

struct mcp_report_part {
    const char *name;
    int ink;
};

/* Stacked bars. */
struct mcp_report_bars {
    const char *title;
    int num_parts, num_rows;
    const struct mcp_report_part *parts;
    const char *const *rows; /* labels */
    const double *values;    /* [num_rows][num_parts], from 0 on */
    enum mcp_dimension dimension;
    double limit; /* a line across; NaN: none */
    const char *limit_text;
};

/* Values over seconds, each held until the next point. */
struct mcp_report_lines {
    const char *title;
    int num_lines, num_points;
    const struct mcp_report_part *lines;
    const double *values; /* [num_lines][num_points] */
    enum mcp_dimension dimension;
    double seconds; /* from the first point to the end of the last */
    double limit;
    const char *limit_text;
};

/* What more of x brings of y, both on scales of powers. Every x and y is above 0; low and high
 * bound y. */
struct mcp_report_point {
    double x, y, low, high;
    const char *mark; /* beside it; "" for none */
};
struct mcp_report_curve {
    const char *name;
    int ink; /* 0, 1 or 4 to 10: lines in others are too pale */
    int num_points;
    const struct mcp_report_point *points; /* ascending in x */
};
struct mcp_report_curves {
    const char *title, *x_name, *y_name; /* "GPUs", "days" */
    int num_curves;
    const struct mcp_report_curve *curves;
    double limit; /* of y, a line across; NaN: none */
    const char *limit_text;
};

/* Machines in rows, each cell a device with a number out of 0 .. most. */
struct mcp_report_grid_row {
    const char *label, *note;
    int num_cells;
    const int *cells;
    const bool *begins; /* [num_cells] a group begins here */
};
struct mcp_report_grid {
    const char *title;
    const char *cells_are; /* "stage" */
    int most, num_rows;
    const struct mcp_report_grid_row *rows;
    int rows_left_out; /* before the last */
};

enum mcp_report_kind {
    MCP_REPORT_SECTION,
    MCP_REPORT_LEAD, /* the strongest words after the title */
    MCP_REPORT_PROSE,
    MCP_REPORT_POINT,  /* of a list */
    MCP_REPORT_NOTE,   /* a remark in small print */
    MCP_REPORT_FIGURE, /* consecutive ones stand side by side */
    MCP_REPORT_TABLE,
    MCP_REPORT_MORE, /* a table that is closed until asked for */
    MCP_REPORT_BARS,
    MCP_REPORT_LINES,
    MCP_REPORT_CURVES,
    MCP_REPORT_GRID,
    MCP_REPORT_GANTT
};

struct mcp_report_block {
    enum mcp_report_kind kind;
    enum mcp_tone tone;
    const char *text; /* or the table's caption */
    union {
        struct mcp_report_figure figure;
        const struct mcp_table *table;
        struct mcp_report_bars bars;
        struct mcp_report_lines lines;
        struct mcp_report_curves curves;
        struct mcp_report_grid grid;
        struct mcp_gantt gantt;
    };
};

struct mcp_report {
    struct mcp_arena *arena;
    const char *title, *subtitle;
    const char *made_by; /* a line at the end */
    size_t num_blocks, capacity;
    struct mcp_report_block *blocks;
};

struct mcp_report mcp_report_new(struct mcp_arena *arena, const char *title, const char *subtitle);

/* SECTION, LEAD, PROSE, POINT, NOTE. */
void mcp_report_say(struct mcp_report *report, enum mcp_report_kind kind, enum mcp_tone tone,
                    const char *text);
void mcp_report_figure(struct mcp_report *report, enum mcp_tone tone,
                       const struct mcp_report_figure *figure);
/* TABLE, MORE. */
void mcp_report_table(struct mcp_report *report, enum mcp_report_kind kind, const char *caption,
                      const struct mcp_table *table);
void mcp_report_bars(struct mcp_report *report, const struct mcp_report_bars *bars);
void mcp_report_lines(struct mcp_report *report, const struct mcp_report_lines *lines);
void mcp_report_curves(struct mcp_report *report, const struct mcp_report_curves *curves);
void mcp_report_grid(struct mcp_report *report, const struct mcp_report_grid *grid);
void mcp_report_gantt(struct mcp_report *report, const struct mcp_gantt *gantt);

/* Charts in numbers, for writers: a row each. */
const struct mcp_table *mcp_report_bars_table(struct mcp_arena *arena,
                                              const struct mcp_report_bars *bars);
const struct mcp_table *mcp_report_lines_table(struct mcp_arena *arena,
                                               const struct mcp_report_lines *lines);
const struct mcp_table *mcp_report_curves_table(struct mcp_arena *arena,
                                                const struct mcp_report_curves *curves);
const struct mcp_table *mcp_report_gantt_table(struct mcp_arena *arena,
                                               const struct mcp_gantt *gantt);

#endif
