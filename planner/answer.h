/* planner/answer.h: why nothing was found, and what would change that.
 *
 * Every change named here was found by searching with it made, never guessed. */
#ifndef MCP_PLANNER_ANSWER_H
#define MCP_PLANNER_ANSWER_H

#include "planner/search.h"

enum mcp_change_kind {
    MCP_CHANGE_KNOB,  /* another value of one that was pinned or bounded */
    MCP_CHANGE_RULE,  /* one of the article's rules, or both, lifted */
    MCP_CHANGE_METHOD /* a search instead of the rule of thumb */
};

struct mcp_change {
    enum mcp_change_kind kind;
    const char *text;       /* "microbatch_size=2 instead of 8" */
    struct mcp_found found; /* the best plan then */
};
#define MCP_MAX_CHANGES (MCP_NUM_KNOBS + 2)

struct mcp_changes {
    int count;
    struct mcp_change items[MCP_MAX_CHANGES]; /* the smallest change first */
};

/* The rule that refused most of what could have been the answer: memory where a
 * plan kept all others, else an article's rule, else one of meaning. NULL when
 * there was no candidate. */
const char *mcp_binding_rule(const struct mcp_search_record *record);

/* The candidate that breaks the fewest rules of meaning, and which; false when
 * there is no candidate. */
bool mcp_least_illegal(struct mcp_arena *arena, const struct mcp_question *question,
                       const struct mcp_plan_space *space, struct mcp_plan *plan,
                       struct mcp_refusals *out);

/* Changes after which a plan fits, one at a time: each pinned or bounded knob freed, the
 * rules lifted. `answer`: of that search, which found nothing. Other machines and jobs:
 * mcp_remedies(). */
void mcp_nearest_changes(struct mcp_arena *arena, const struct mcp_question *question,
                         const struct mcp_plan_space *space,
                         const struct mcp_search_options *options, const struct mcp_answer *answer,
                         struct mcp_changes *out);

#endif
