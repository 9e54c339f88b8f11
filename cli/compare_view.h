/* cli/compare_view.h: what mcpplan compare found, before it is text, JSON or a report. */
#ifndef MCP_CLI_COMPARE_VIEW_H
#define MCP_CLI_COMPARE_VIEW_H

#include "cli/output.h"
#include "reports/compare.h"

struct mcp_compare_side {
    const char *path;
    bool is_plan; /* played for this */
    struct mcp_timeline timeline;
};

/* A threshold that was asked for. */
struct mcp_compare_check {
    const char *what;              /* "the step", or a kind of op */
    double limit_frac, value_frac; /* value: |B / A - 1| */
    bool holds;
};

struct mcp_compare_view {
    struct mcp_compare_side a, b;
    struct mcp_compare result;
    int num_checks;
    struct mcp_compare_check *checks;
};

/* Kinds of op of which either side spends this share of its step, or more, can break
 * --kind-threshold. */
#define MCP_COMPARE_LEAST_SHARE 0.01

/* B / A - 1 of the steps. */
double mcp_compare_step_frac(const struct mcp_compare_view *view);
/* "B's step is 9.23 % longer than A's". */
const char *mcp_compare_sentence(struct mcp_arena *arena, const struct mcp_compare_view *view);
/* "predicted", "measured", "plan, played". */
const char *mcp_compare_side_kind(const struct mcp_compare_side *side);
/* "matmul_nt, forward of layer 3, microbatch 0"; what is not stated is left out. */
const char *mcp_compare_op_text(struct mcp_arena *arena, const struct mcp_compare_pair *pair);

/* compare_text.c */
void mcp_compare_text(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_compare_view *view);
/* compare_json.c: mcpplan.compare/1 (docs/FORMATS.md). */
struct mcp_json *mcp_compare_json(struct mcp_arena *arena, const struct mcp_compare_view *view);
/* compare_report.c: as HTML or Markdown. */
enum mcp_status mcp_compare_report_write(struct mcp_context *ctx, const char *path,
                                         const struct mcp_compare_view *view);

#endif
