/* cli/sim_view.h: what mcpplan sim played, before it is text or JSON. */
#ifndef MCP_CLI_SIM_VIEW_H
#define MCP_CLI_SIM_VIEW_H

#include "core/text.h"
#include "reports/style.h"
#include "sim/failure.h"
#include "sim/memory.h"
#include "sim/sim.h"

/* One thing that makes the step what the planner did not say. */
struct mcp_sim_term {
    const char *name; /* "data_edges" ... : a JSON key with _s */
    const char *why;
    double seconds;
    bool asked; /* by an option: shown even where it costs nothing */
};
enum { MCP_MOST_SIM_TERMS = 8 };

/* --fail-rank: a rank that dies within the step (sim/failure.h). */
struct mcp_sim_death {
    struct mcp_sim_failure failure;
    double timeout_s;
    int stage;                        /* of the rank */
    const struct mcp_sim_stop *stops; /* [pipeline] */
    double first_wait_s, last_wait_s; /* of all stages' */
    double noticed_s;                 /* by the first whose timeout has passed */
};

struct mcp_sim_view {
    const struct mcp_question *question;
    const struct mcp_plan *plan;
    const struct mcp_prediction *predicted;
    const struct mcp_sim_options *options;
    const struct mcp_sim_result *result;
    const struct mcp_sim_curve *curves; /* [pipeline] */
    const char *slow_link, *dead_link;  /* as given; NULL: none */
    const struct mcp_sim_death *death;  /* NULL: none */
    bool op_by_op;                      /* else entry by entry, links not shared */
    int num_terms;
    struct mcp_sim_term terms[MCP_MOST_SIM_TERMS]; /* sum to simulated less predicted */
};

double mcp_sim_view_iteration_s(const struct mcp_sim_view *view);
void mcp_sim_view_term(struct mcp_sim_view *view, const char *name, const char *why,
                       double seconds);
void mcp_sim_view_text(struct mcp_text *out, const struct mcp_style *style,
                       const struct mcp_sim_view *view);
/* sim --json (docs/FORMATS.md). */
struct mcp_json *mcp_sim_view_json(struct mcp_arena *arena, const struct mcp_sim_view *view);

/* The same with charts, as HTML or Markdown (sim_report.c). */
struct mcp_context;
enum mcp_status mcp_sim_report_write(struct mcp_context *ctx, const char *path,
                                     const struct mcp_sim_view *view);

/* What a rank's death leaves waiting, in words and as JSON (sim_death.c). */
void mcp_sim_death_text(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_sim_view *view);
void mcp_sim_death_json(struct mcp_json *object, const struct mcp_sim_view *view);

/* The pipeline drawn on character cells (sim_gantt.c). */
void mcp_sim_gantt_text(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_sim_view *view);

#endif
