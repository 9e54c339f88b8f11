/* reports/runs_row.h: what the parts of runs*.c share: a row being read. */
#ifndef MCP_REPORTS_RUNS_ROW_H
#define MCP_REPORTS_RUNS_ROW_H

#include "reports/runs.h"

#include "core/text.h"

struct mcp_runs {
    struct mcp_arena *arena; /* of the presets */
    struct mcp_csv csv;
    const char *presets; /* folder, or NULL */
    int num_gpus;
    struct mcp_gpu *gpus;
    int num_clusters;
    struct mcp_cluster *clusters;
    int num_stacks;
    struct mcp_stack *stacks;
    const char **stack_names;
};

struct mcp_run_row {
    struct mcp_arena *arena;
    const struct mcp_runs *runs;
    size_t index;
    struct mcp_run *run;
    struct mcp_text note;
};

const char *mcp_row_cell(const struct mcp_run_row *row, const char *column);
bool mcp_row_has(const struct mcp_run_row *row, const char *column); /* not empty */
/* The whole of `column`, or `otherwise` when the cell is empty. MCP_INVALID when
 * it is no number from 0 on. */
enum mcp_status mcp_row_int(const struct mcp_run_row *row, const char *column, int otherwise,
                            int *out, struct mcp_error *err);
/* The same where an empty cell is MCP_INVALID "COLUMN is not stated". */
enum mcp_status mcp_row_need(const struct mcp_run_row *row, const char *column, int *out,
                             struct mcp_error *err);
/* Adds "; SENTENCE" to the row's note. */
void mcp_row_note(struct mcp_run_row *row, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* `column` or its notes contain `part`, whatever the case. */
bool mcp_row_says(const struct mcp_run_row *row, const char *column, const char *part);
/* The number right before `unit` in `text`; false when there is none. */
bool mcp_number_before(const char *text, const char *unit, int *out);

/* runs_family.c: the software, its stack, and what its users leave unsaid. */
struct mcp_run_family {
    const char *source; /* beginning of the source column */
    const char *stack;
    bool dropout;
    bool learned_positions; /* GPT-2's, tied to its output layer */
    bool overlaps;          /* communication overlap is on unless the row says no */
    bool sequence_parallel; /* with tensor parallelism, unless the row says no */
    int zero_stage;
    const char *expert_flags; /* overlap flags of its recipes with experts, or NULL */
};
const struct mcp_run_family *mcp_run_family_of(const struct mcp_run_row *row);
/* The row's overlap flags; where it has none, those of its software's recipes. */
const char *mcp_run_flags(const struct mcp_run_row *row);
bool mcp_run_flagged(const struct mcp_run_row *row, const char *part);
enum mcp_status mcp_run_read_stack(struct mcp_run_row *row, struct mcp_stack *out,
                                   struct mcp_error *err);

/* runs_model.c, runs_cluster.c, runs_plan.c: the parts of a run. */
enum mcp_status mcp_run_read_model(struct mcp_run_row *row, struct mcp_model *out,
                                   struct mcp_error *err);
enum mcp_status mcp_run_read_cluster(struct mcp_run_row *row, struct mcp_cluster *out,
                                     struct mcp_error *err);
enum mcp_status mcp_run_read_job(struct mcp_run_row *row, struct mcp_job *out,
                                 struct mcp_error *err);
enum mcp_status mcp_run_read_plan(struct mcp_run_row *row, struct mcp_plan *out,
                                  struct mcp_error *err);

#endif
