/* planner/ilp.h: integer programmes: the only door to GLPK.
 *
 * Minimise cost x over rows low <= a x <= high and columns low <= x <= high, some of
 * them integer. Deterministic: nodes are limited, never seconds. One problem is
 * made, solved and freed by one thread. Keep coefficients within 1e-3 .. 1e4:
 * milliseconds and mebibytes, not seconds and bytes. */
#ifndef MCP_PLANNER_ILP_H
#define MCP_PLANNER_ILP_H

#include "core/arena.h"

#include <stdbool.h>

struct mcp_ilp;

struct mcp_ilp *mcp_ilp_new(struct mcp_arena *arena); /* freed with the arena */
/* Both return the index, from 0. */
int mcp_ilp_column(struct mcp_ilp *ilp, double low, double high, double cost, bool integer);
int mcp_ilp_row(struct mcp_ilp *ilp, double low, double high); /* INFINITY: no limit */
void mcp_ilp_set(struct mcp_ilp *ilp, int row, int column, double coefficient);

enum mcp_ilp_status {
    MCP_ILP_OPTIMAL,
    MCP_ILP_FEASIBLE,   /* the node limit was met: objective is not proven */
    MCP_ILP_INFEASIBLE, /* proven */
    MCP_ILP_UNKNOWN     /* the node limit was met before anything was found */
};

struct mcp_ilp_result {
    enum mcp_ilp_status status;
    double objective;
    double bound;         /* no solution costs less */
    const double *values; /* [columns] */
    int nodes;
};

/* Can be called again after rows or columns were added. */
void mcp_ilp_solve(struct mcp_ilp *ilp, int max_nodes, struct mcp_ilp_result *out);

#endif
