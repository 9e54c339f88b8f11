/* cli/report_parts.h: what reports of plans and of simulations share. */
#ifndef MCP_CLI_REPORT_PARTS_H
#define MCP_CLI_REPORT_PARTS_H

#include "cli/output.h"
#include "reports/report.h"
#include "sim/memory.h"
#include "sim/sim.h"

/* Is the file's name one that says what it shall be? MCP_USAGE when not. */
enum mcp_status mcp_report_file_check(const char *path, struct mcp_error *err);
/* Replaces the file: HTML or Markdown, as its name says. */
enum mcp_status mcp_report_file_write(struct mcp_context *ctx, const char *path,
                                      const struct mcp_report *report);

/* "tensor 8 × data 4" of "tensor 8 x data 4". */
const char *mcp_report_times(struct mcp_arena *arena, const char *text);
/* "on 64 × h100 in 8 nodes · batch 512 × 4,096 tokens · bf16 · megatron-core". */
const char *mcp_report_question(struct mcp_arena *arena, const struct mcp_question *question);
/* "stage 0" ... */
const char *const *mcp_report_stages(struct mcp_arena *arena, int stages);
const char *mcp_report_percent(struct mcp_arena *arena, double frac);

/* A figure without meter or tone. */
void mcp_report_plain_figure(struct mcp_report *report, const char *label, const char *value,
                             const char *note);
/* Bars by kind of time, [num_rows][MCP_NUM_COSTS] seconds. */
void mcp_report_costs(struct mcp_report *report, const char *title, const char *const *rows,
                      const double *values, int num_rows);
/* Kinds of time in words; `step_s` is what they add up to. */
void mcp_report_cost_table(struct mcp_report *report, const double cost_s[MCP_NUM_COSTS],
                           const double comm_s[MCP_NUM_COSTS], double step_s);

/* A step that was played (report_step.c): who runs what when; memory by stage and time. */
struct mcp_report_step {
    const struct mcp_question *question;
    struct mcp_sim_played played;
};
void mcp_report_step_gantt(struct mcp_report *report, const struct mcp_report_step *step);
void mcp_report_step_memory(struct mcp_report *report, const struct mcp_report_step *step);
/* The parts of memory, as inks. */
extern const struct mcp_report_part mcp_report_memory_parts[];

#endif
