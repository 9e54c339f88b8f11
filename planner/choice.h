/* planner/choice.h: the last choice, under what the user requires.
 *
 * A tuple is a plan without its split: degrees, microbatch, switches. All tuples are
 * bounded; those whose bound lies within `pool_frac` of the best plan are split
 * (planner/split.h) and priced exactly, best bound first, and make the pool. One
 * integer programme chooses from the pool,
 *
 *     min sum time x    sum x = 1    requirement rows    x in {0, 1}
 *
 * x per priced plan, and again with the winner's degrees forbidden for each runner-up.
 * The pool grows until no tuple outside can win: then the choice is proven. Where a
 * requirement is about what only a price tells (at least so much memory in use), a
 * tuple whose best splits all break it stays open with its bound, and the gap says
 * what it could still give. */
#ifndef MCP_PLANNER_CHOICE_H
#define MCP_PLANNER_CHOICE_H

#include "planner/require.h"
#include "planner/search.h"

struct mcp_choice_options {
    int top;          /* plans to keep, of different degrees; at least 1 */
    double pool_frac; /* 0.03: tuples bounded within 3 % of the best are in the pool */
    int max_splits;   /* tuples to split before giving up the proof; 0: any number */
    /* as in planner/search.h */
    void (*progress)(void *context, double done_frac, const struct mcp_found *best);
    void *progress_context;
    const volatile sig_atomic_t *stop;
};

/* The fastest plan that meets `requirements`, which may be none. The space should
 * have been narrowed by mcp_require_bound(). */
void mcp_choose(struct mcp_arena *arena, const struct mcp_question *question,
                const struct mcp_plan_space *space, const struct mcp_requirements *requirements,
                const struct mcp_choice_options *options, struct mcp_answer *out);

/* In the words of `refused`: tuples that requirements leave out. */
extern const char mcp_rule_required[]; /* "required" */

#endif
