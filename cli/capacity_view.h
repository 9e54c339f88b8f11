/* cli/capacity_view.h: what the answer of mcpplan capacity is made of. */
#ifndef MCP_CLI_CAPACITY_VIEW_H
#define MCP_CLI_CAPACITY_VIEW_H

#include "cli/output.h"
#include "planner/capacity.h"
#include "reports/table.h"

struct mcp_capacity_view {
    const struct mcp_capacity_ask *ask;
    const struct mcp_plan_space *space; /* of every plan */
    int num_machines;
    const struct mcp_capacity_machine *machines;
    const struct mcp_capacity *capacity;
};

void mcp_capacity_text(struct mcp_text *out, const struct mcp_style *style,
                       const struct mcp_capacity_view *view);
struct mcp_json *mcp_capacity_json(struct mcp_arena *arena, const struct mcp_capacity_view *view);
/* Parts of it: what a size is planned and loses to failures; what is asked of failures. */
void mcp_capacity_row_json(struct mcp_json *object, const struct mcp_capacity_row *row);
void mcp_capacity_run_json(struct mcp_json *object, const struct mcp_capacity_ask *ask);
/* cli/capacity_words.c: sentences, and tables without colours of their own. */
struct mcp_capacity_lines {
    struct mcp_arena *arena;
    size_t count, capacity;
    const char **items;
};
/* "unknown" for NaN, else 4 digits. */
const char *mcp_capacity_known(struct mcp_arena *arena, double value);
void mcp_capacity_line(struct mcp_capacity_lines *lines, const char *text);
const char *mcp_capacity_days(struct mcp_arena *arena, double s);
/* "4x1x2x8": tensor, context, pipeline, data. */
const char *mcp_capacity_plan_text(struct mcp_arena *arena, const struct mcp_capacity_row *row);
const char *mcp_capacity_money(struct mcp_arena *arena, double price); /* "unknown" for NaN */
/* How many of what, and how long: "512 GPUs: 64 nodes of dgx-h100; 30 days (28 to 33)". */
const char *mcp_capacity_answer_text(struct mcp_arena *arena, const struct mcp_capacity_view *view,
                                     const struct mcp_capacity_row *row);
/* Its time, what fails and is saved, power and price. */
struct mcp_capacity_lines mcp_capacity_facts(struct mcp_arena *arena,
                                             const struct mcp_capacity_view *view,
                                             const struct mcp_capacity_row *row);
/* "costs least": by what the first of several answers was chosen. */
const char *mcp_capacity_order_text(enum mcp_capacity_order order);
struct mcp_table *mcp_capacity_table(struct mcp_arena *arena, const struct mcp_capacity *capacity,
                                     int machine);
struct mcp_capacity_lines mcp_capacity_refused(struct mcp_arena *arena,
                                               const struct mcp_capacity *capacity, int machine);
/* Why there is no knee; NULL: there is one, or one size. */
const char *mcp_capacity_knee_text(struct mcp_arena *arena, const struct mcp_capacity *capacity,
                                   int machine);
struct mcp_capacity_lines mcp_capacity_assumptions(struct mcp_arena *arena,
                                                   const struct mcp_capacity_view *view);
/* Of batches, failures and checkpoints, whatever the machines. */
void mcp_capacity_run_assumptions(struct mcp_capacity_lines *lines,
                                  const struct mcp_capacity_ask *ask);

/* cli/capacity_report.c: --report FILE.html or FILE.md. */
enum mcp_status mcp_capacity_report_write(struct mcp_context *ctx, const char *path,
                                          const struct mcp_capacity_view *view);

/* "within 90 days, at a price of at most 5.00M"; "" without limits. */
const char *mcp_capacity_limits_text(struct mcp_arena *arena, const struct mcp_capacity_ask *ask);
/* Why nothing meets the limits, and the size that comes nearest, in one sentence. */
enum mcp_status mcp_capacity_fail(struct mcp_arena *arena, const struct mcp_capacity_view *view,
                                  struct mcp_error *err);

/* cli/capacity_options.c: words of the command line. MCP_USAGE when they are none;
 * `option` is named in the sentence. */
enum mcp_status mcp_capacity_parse_tokens(struct mcp_arena *arena, const char *text, int64_t *out,
                                          struct mcp_error *err);

/* cli/capacity_jobs.c: --jobs FILE. */
struct mcp_plan_args;
struct mcp_jobs_ask {
    const char *path, *report; /* report: NULL, or the file to write */
    const struct mcp_capacity_ask *ask;
    const struct mcp_plan_args *given; /* of every job, where the file says nothing else */
};
enum mcp_status mcp_capacity_jobs(struct mcp_context *ctx, const struct mcp_jobs_ask *asked);

#endif
