/* reports/gantt.h: what runs when, as rows of spans; and which parts of it to show.
 *
 * A plain array, so that a prediction, a simulation and a measured run can all fill it.
 * Where there are more spans than a reader can use, time is folded: the beginning, a
 * part of the middle and the end are kept, and what lies between is left out. */
#ifndef MCP_REPORTS_GANTT_H
#define MCP_REPORTS_GANTT_H

#include "core/arena.h"

#include <stdbool.h>
#include <stdint.h>

struct mcp_gantt_span {
    int row, kind;
    int64_t start_ns, end_ns;
    int microbatch; /* -1: none */
    int chunk;      /* of the row's layers, 0 where there is one */
};

struct mcp_gantt_kind {
    const char *name;
    int ink; /* reports/report.h */
};

struct mcp_gantt {
    const char *title; /* read out where the drawing cannot be seen */
    int num_rows;
    const char *const *rows; /* [num_rows] labels */
    int num_kinds;
    const struct mcp_gantt_kind *kinds;
    int num_chunks; /* of a row; at least 1 */
    int num_spans;
    const struct mcp_gantt_span *spans; /* by row, then by time; those of a row apart */
    int64_t end_ns;
};

/* What a row does in all, folded or not. */
struct mcp_gantt_sum {
    int64_t first_ns, last_ns; /* of its spans */
    int64_t busy_ns;
    int num_spans;
};
struct mcp_gantt_sum mcp_gantt_sum(const struct mcp_gantt *gantt, int row);

/* The parts of time that are shown, in order and apart. */
enum { MCP_MOST_GANTT_WINDOWS = 3 };
struct mcp_gantt_window {
    int64_t from_ns, to_ns;
};
struct mcp_gantt_fold {
    int count;
    struct mcp_gantt_window windows[MCP_MOST_GANTT_WINDOWS];
};

/* All of it where that is at most `most_spans`; else three windows of equal length, as long
 * as they hold no more. */
struct mcp_gantt_fold mcp_gantt_fold(const struct mcp_gantt *gantt, int most_spans);
/* Does some of the span lie in the window? Then *part is that. */
bool mcp_gantt_in_window(const struct mcp_gantt_span *span, const struct mcp_gantt_window *window,
                         struct mcp_gantt_window *part);

#endif
