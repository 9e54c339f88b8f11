/* cli/plan_report.h: a plan as a report for people: --report FILE.html or FILE.md. */
#ifndef MCP_CLI_PLAN_REPORT_H
#define MCP_CLI_PLAN_REPORT_H

#include "cli/plan_options.h"
#include "cli/plan_view.h"
#include "cli/report_parts.h"

/* Replaces args->report by the answer, which must have been priced. */
enum mcp_status mcp_plan_report_write(struct mcp_context *ctx, const struct mcp_plan_args *args,
                                      const struct mcp_plan_view *view);

/* The parts of it, in this order. */
void mcp_plan_report_answer(struct mcp_report *report, const struct mcp_plan_view *view);
void mcp_plan_report_layout(struct mcp_report *report, const struct mcp_plan_view *view);
void mcp_plan_report_time(struct mcp_report *report, const struct mcp_plan_view *view);
/* The step as it is played: who runs what when, and memory over time. */
void mcp_plan_report_play(struct mcp_report *report, const struct mcp_plan_view *view);
/* What each way to save communication is worth; nothing where it was not asked for. */
void mcp_plan_report_savings(struct mcp_report *report, const struct mcp_plan_view *view);
void mcp_plan_report_others(struct mcp_report *report, const struct mcp_plan_view *view);
void mcp_plan_report_search(struct mcp_report *report, const struct mcp_plan_view *view);
/* `stack`: the preset or file that the stack was read from. */
void mcp_plan_report_inputs(struct mcp_report *report, const struct mcp_plan_view *view,
                            const char *stack);

#endif
