/* planner/choice_parts.h: the pool that the last choice is made from. Private to
 * planner/choice*.c. */
#ifndef MCP_PLANNER_CHOICE_PARTS_H
#define MCP_PLANNER_CHOICE_PARTS_H

#include "planner/choice.h"
#include "planner/search_parts.h"
#include "planner/split.h"

/* A priced plan. */
struct mcp_pooled {
    struct mcp_found found;
    int layout;
    int64_t time_ns;
    bool holds;     /* every requirement */
    double *values; /* [requirements] what it has of each */
};

struct mcp_choice_pool {
    struct mcp_arena *arena; /* the pool's own */
    struct mcp_job job;      /* with no more memory than is required */
    struct mcp_question question;
    const struct mcp_requirements *requirements;
    const struct mcp_choice_options *options;
    struct mcp_search search;
    struct mcp_pricer *pricer; /* of all that may be required, as those of the search are not */
    struct mcp_prediction *prediction;
    struct mcp_families families; /* of all schedules, least bound first */
    size_t at;                    /* families looked into */
    struct mcp_tuples heap;       /* those that may be split, least bound first */
    struct mcp_tuple *looks;      /* room for one family's */
    int splits, steered;
    int count;
    struct mcp_pooled *items; /* [MCP_MOST_POOL] */
    int best;                 /* of those that hold; -1: none */
    int64_t best_ns;          /* ... its time, */
    int64_t last_ns;          /* and that of the last layout worth keeping; else INT64_MAX */
    int64_t *layout_ns;       /* [lots] the best of each that holds */
    int64_t open_ns;          /* no plan that was not settled takes less */
};
enum { MCP_MOST_POOL = 1024 };

/* Families and tuples, least bound first, until none left can be among the answers. */
void mcp_choice_pool_fill(struct mcp_choice_pool *pool);
/* choice_split.c: the tuple's best split that meets what is required, into the pool. */
void mcp_choice_pool_split(struct mcp_choice_pool *pool, struct mcp_tuple *tuple);
/* The same of a tuple of which even splits alone are looked at, each recompute by itself. */
void mcp_choice_pool_even(struct mcp_choice_pool *pool, const struct mcp_tuple *tuple);
/* What a plan of the layout must beat to be of use. */
int64_t mcp_choice_pool_cutoff(const struct mcp_choice_pool *pool, int layout);
/* Prices what the tuple has found; true when it meets all that is required. */
bool mcp_choice_pool_add(struct mcp_choice_pool *pool, const struct mcp_tuple *tuple);
struct mcp_look mcp_choice_pool_look(const struct mcp_choice_pool *pool, int layout,
                                     int64_t cutoff_ns);

#endif
