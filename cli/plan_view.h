/* cli/plan_view.h: what mcpplan plan found, before it is text or JSON. */
#ifndef MCP_CLI_PLAN_VIEW_H
#define MCP_CLI_PLAN_VIEW_H

#include "cli/switches.h"
#include "core/text.h"
#include "planner/answer.h"
#include "planner/explain.h"
#include "planner/halves.h"
#include "planner/require.h"
#include "reports/bars.h"

enum { MCP_MOST_REMEDIES_SHOWN = 12 };

/* A plan of --refine. */
struct mcp_refined {
    int priced_place; /* by price, from 1 */
    struct mcp_found found;
    double played_s;     /* NaN: not played */
    const char *why_not; /* then why, else NULL */
};

struct mcp_plan_view {
    const struct mcp_question *question;
    const struct mcp_plan_space *space;
    struct mcp_plan_space asked; /* the same before requirements narrowed it */
    enum mcp_objective objective;
    const char *method;     /* "search", "exhaustive", "rule" */
    const char *arithmetic; /* of the rule of thumb, else NULL */
    int top, refine;        /* plans to show; plans to play, 0: none */
    bool chosen;            /* by planner/choice.h, under requirements */
    bool uniform;           /* uneven stages were not looked at */
    bool stopped;           /* ctrl-C: the answer is the best so far */
    bool interrupted;       /* ctrl-C: if not stopped, what stands beside the answer is cut */
    bool predicts;          /* everything was pinned: fitting or not, this is the answer */
    bool has_plan;
    struct mcp_plan plan; /* the answer; where refused, what comes closest */
    bool priced;          /* prediction is filled */
    const struct mcp_prediction *prediction;
    struct mcp_refusals refusals; /* of the plan; empty when it can be run */
    const struct mcp_answer *answer;
    const struct mcp_prediction *predictions; /* [answer->count] */
    int num_refined; /* plans that --refine played, the fastest played first */
    const struct mcp_refined *refined;
    const char *not_refined; /* why it played none; NULL: it was not asked to, or interrupted */
    const struct mcp_requirements *requirements; /* of --require; none: count is 0 */
    struct mcp_changes changes;
    int num_remedies; /* other questions that have an answer */
    struct mcp_remedy remedies[MCP_MOST_REMEDIES_SHOWN];
    struct mcp_halves halves; /* a mixed cluster against each of its pools */
    const char *halves_text;  /* the same in a sentence; NULL: nothing to say */
    int num_rivals;           /* plans to hold against the answer */
    const struct mcp_rival *rivals;
    const struct mcp_what_if *what_ifs;         /* [MCP_NUM_WHAT_IFS], NULL: not asked for */
    const struct mcp_memory_step *memory_steps; /* [MCP_NUM_MEMORY_STEPS], likewise */
    const struct mcp_savings *savings;          /* likewise */
    const struct mcp_phases *phases;            /* of 1-bit Adam, else NULL */
    const char *placement;                      /* --placement; NULL: by topology */
};

/* "GPU" or "CPU": what the cluster's ranks run on. */
const char *mcp_plan_device(const struct mcp_question *question);
/* "79.6 GiB", or "18.4 MiB" of what tenths of a GiB would not show. */
const char *mcp_plan_gib(struct mcp_arena *arena, int64_t bytes);

/* "tensor 8 x pipeline 4 x data 2", degrees of 1 left out. */
const char *mcp_plan_degrees_text(struct mcp_arena *arena, const struct mcp_plan *plan);
/* The rest: "microbatch 1 x 512, 1f1b, ZeRO 1, sequence parallel, recompute none". */
const char *mcp_plan_choices_text(struct mcp_arena *arena, const struct mcp_plan *plan,
                                  const struct mcp_job *job);

/* "none", or what differs: "full on 3 of 32 layers". */
const char *mcp_plan_recompute_text(struct mcp_arena *arena, const struct mcp_plan *plan);

/* The layout in words and drawn over the nodes; layers and recompute by stage where
 * stages differ. */
void mcp_plan_layout_text(struct mcp_text *out, const struct mcp_style *style,
                          const struct mcp_plan_view *view);

/* A list's item, wrapped. */
void mcp_plan_point(struct mcp_text *out, const struct mcp_style *style, const char *text);

/* Other layouts and what they lose; what was looked at; in how far the answer is
 * proven (plan_why.c). */
void mcp_plan_alternatives_text(struct mcp_text *out, const struct mcp_style *style,
                                const struct mcp_plan_view *view);
void mcp_plan_search_text(struct mcp_text *out, const struct mcp_style *style,
                          const struct mcp_plan_view *view);
const char *mcp_plan_proof_text(struct mcp_arena *arena, const struct mcp_plan_view *view);

/* The parts of memory, for bars. */
enum { MCP_NUM_MEMORY_PARTS = 6 };
void mcp_plan_memory_parts(struct mcp_arena *arena, const struct mcp_memory *memory,
                           struct mcp_bar parts[MCP_NUM_MEMORY_PARTS]);

/* What was asked for beside the answer (plan_explain.c). */
void mcp_plan_rivals_text(struct mcp_text *out, const struct mcp_style *style,
                          const struct mcp_plan_view *view);
void mcp_plan_what_ifs_text(struct mcp_text *out, const struct mcp_style *style,
                            const struct mcp_plan_view *view);
void mcp_plan_savings_text(struct mcp_text *out, const struct mcp_style *style,
                           const struct mcp_plan_view *view);
void mcp_plan_memory_steps_text(struct mcp_text *out, const struct mcp_style *style,
                                const struct mcp_plan_view *view);

/* plan.json (docs/FORMATS.md). */
struct mcp_json *mcp_plan_view_json(struct mcp_arena *arena, const struct mcp_plan_view *view);
void mcp_plan_view_text(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_plan_view *view);
/* One sentence: which rule, and what would change the answer. */
enum mcp_status mcp_plan_view_fail(struct mcp_arena *arena, const struct mcp_plan_view *view,
                                   struct mcp_error *err);

#endif
