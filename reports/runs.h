/* reports/runs.h: a published training run: one row of a table, turned into the
 * question and the plan that predict it.
 *
 * Columns: docs/FORMATS.md. Model, layout, batch, precision and links come from
 * the row. What a row does not state takes its software's default, and the note
 * says so; shapes that tables leave out (MLA ranks, windows, shared experts) are
 * those of the preset that bears the model's name. Nothing is keyed on a row. */
#ifndef MCP_REPORTS_RUNS_H
#define MCP_REPORTS_RUNS_H

#include "core/arena.h"
#include "core/cluster.h"
#include "core/csv.h"
#include "core/error.h"
#include "core/job.h"
#include "core/model.h"
#include "core/plan.h"
#include "core/stack.h"

#include <stdbool.h>
#include <stddef.h>

struct mcp_run {
    const char *id, *source;
    const char *gpu, *model_name, *precision, *sequence; /* the cells, for grouping */
    const char *gpus, *global_batch;
    double measured_s;  /* NaN: not stated */
    bool complete;      /* the table says that nothing is missing */
    char trust;         /* 'A' best; 0: not stated */
    const char *reason; /* why it cannot be predicted; NULL: it can */
    const char *note;   /* what was assumed, "" when nothing */
    /* valid when reason is NULL */
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_plan plan;
};

/* A table open for reading, and the presets its rows have asked for. */
struct mcp_runs;

/* `presets`, NULL or a folder: DIR/stacks/NAME.json and DIR/gpus/NAME.json are
 * taken before the built-in files of that name. MCP_FORMAT when a column that
 * every row needs is missing. */
enum mcp_status mcp_runs_open(struct mcp_arena *arena, const char *path, const char *presets,
                              struct mcp_runs **out, struct mcp_error *err);
const struct mcp_csv *mcp_runs_csv(const struct mcp_runs *runs);

/* Row `row`: predictable, or with the reason why not. Cannot fail. */
void mcp_run_read(struct mcp_arena *arena, struct mcp_runs *runs, size_t row, struct mcp_run *out);

/* Numbers fitted to published runs in all built-in GPU and stack files. */
int mcp_runs_count_fitted(struct mcp_arena *arena);

#endif
