/* planner/halves.h: do all pools of a mixed cluster together beat each one alone? */
#ifndef MCP_PLANNER_HALVES_H
#define MCP_PLANNER_HALVES_H

#include "planner/search.h"

struct mcp_half {
    struct mcp_cluster cluster; /* the pool alone */
    bool found;                 /* a plan fits there, within the same bounds and rules */
    bool proven;                /* that it is the best, or that there is none */
    struct mcp_found best;
};

struct mcp_halves {
    int count; /* pools; 0 where the cluster is of one kind, or another thing than time counts */
    struct mcp_half items[MCP_MAX_POOLS];
    int fastest; /* -1: none has a plan */
};

/* Searches each pool alone. */
void mcp_halves(struct mcp_arena *arena, const struct mcp_question *question,
                const struct mcp_plan_space *space, const struct mcp_search_options *options,
                struct mcp_halves *out);

/* In one sentence, against the best plan of all pools together; NULL: there is none.
 * NULL where there is nothing to say. */
const char *mcp_halves_text(struct mcp_arena *arena, const struct mcp_halves *halves,
                            const struct mcp_prediction *together);

#endif
