/* cli/plan_view.h: what mcpplan plan found, before it is text or JSON. */
#ifndef MCP_CLI_PLAN_VIEW_H
#define MCP_CLI_PLAN_VIEW_H

#include "core/text.h"
#include "planner/answer.h"
#include "reports/style.h"

struct mcp_plan_view {
    const struct mcp_question *question;
    const struct mcp_plan_space *space;
    enum mcp_objective objective;
    const char *method;     /* "search", "exhaustive", "rule" */
    const char *arithmetic; /* of the rule of thumb, else NULL */
    bool predicts;          /* everything was pinned: fitting or not, this is the answer */
    bool has_plan;
    struct mcp_plan plan; /* the answer; where refused, what comes closest */
    bool priced;          /* prediction is filled */
    const struct mcp_prediction *prediction;
    struct mcp_refusals refusals; /* of the plan; empty when it can be run */
    const struct mcp_answer *answer;
    const struct mcp_prediction *predictions; /* [answer->count] */
    struct mcp_changes changes;
};

/* "tensor 8 x pipeline 4 x data 2", degrees of 1 left out. */
const char *mcp_plan_degrees_text(struct mcp_arena *arena, const struct mcp_plan *plan);
/* The rest: "microbatch 1 x 512, 1f1b, ZeRO 1, sequence parallel, recompute none". */
const char *mcp_plan_choices_text(struct mcp_arena *arena, const struct mcp_plan *plan,
                                  const struct mcp_job *job);

/* The layout in words and drawn over the nodes. */
void mcp_plan_layout_text(struct mcp_text *out, const struct mcp_style *style,
                          const struct mcp_plan_view *view);

/* plan.json (docs/FORMATS.md). */
struct mcp_json *mcp_plan_view_json(struct mcp_arena *arena, const struct mcp_plan_view *view);
void mcp_plan_view_text(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_plan_view *view);
/* One sentence: which rule, and what would change the answer. */
enum mcp_status mcp_plan_view_fail(struct mcp_arena *arena, const struct mcp_plan_view *view,
                                   struct mcp_error *err);

#endif
