/* planner/split_ilp.c: the integer programme over columns.
 *
 *     least  pipeline + update     where each rank takes one column, and these make
 *                                   a chain
 *     pipeline >= path              for each path that was cut
 *     pipeline >= common path + begin + rest + end
 *     update >= update[r], rest >= rest[r]      for each rank
 *     begin, end >= gain - loss                 for each rank no later than all of rest
 *
 * The three count from what mcp_master_bound() proved, paths from the sum of each
 * rank's least: GLPK adds up small differences, in units that its tolerances suit. */
#include "planner/ilp.h"
#include "planner/split_parts.h"

#include <math.h>

enum { MAX_NODES = 300 };

struct builder {
    struct mcp_splitter *s;
    const struct mcp_master *master;
    struct mcp_ilp *ilp;
    double unit_ns;
    int pipeline, update, rests; /* columns after those of the grid; the last [p] */
};

static void add_variables(struct builder *b)
{
    const struct mcp_grid *grid = &b->s->grid;
    double room = INFINITY;
    if (b->s->cutoff_ns < MCP_NO_WAY)
        room = (double)(b->s->cutoff_ns - b->s->fixed_ns - b->master->update_ns -
                        b->master->least_ns) /
                   b->unit_ns +
               1; /* what is close is for exact prices to tell */
    for (int i = 0; i < grid->count; i++)
        mcp_ilp_column(b->ilp, 0, 1, 0, true);
    b->pipeline = mcp_ilp_column(b->ilp, 0, room, 1, false);
    b->update = mcp_ilp_column(b->ilp, 0, room, 1, false);
}

/* What leaves a position between two ranks came to it. */
static void add_chain_rows(struct builder *b)
{
    const struct mcp_grid *grid = &b->s->grid;
    int positions = grid->length + 1, start = mcp_ilp_row(b->ilp, 1, 1);
    for (int i = 0; i < (grid->p - 1) * positions; i++)
        mcp_ilp_row(b->ilp, 0, 0);
    for (int i = 0; i < grid->count; i++) {
        const struct mcp_column *column = &grid->columns[i];
        int from = start + 1 + (column->rank - 1) * positions + column->from;
        mcp_ilp_set(b->ilp, column->rank == 0 ? start : from, i, 1);
        if (column->rank < grid->p - 1)
            mcp_ilp_set(b->ilp, from + positions + column->size, i, -1);
    }
}

static void add_size_rows(struct builder *b)
{
    const struct mcp_grid *grid = &b->s->grid;
    int all = mcp_ilp_row(b->ilp, grid->length, grid->length);
    for (int r = 0; r < grid->p; r++) {
        int one = mcp_ilp_row(b->ilp, 1, 1);
        for (int i = grid->first[r]; i < grid->first[r + 1]; i++) {
            mcp_ilp_set(b->ilp, one, i, 1);
            mcp_ilp_set(b->ilp, all, i, grid->columns[i].size);
        }
    }
}

/* Of each rank, the least part of a path; returns the sum. */
static int64_t least_parts(const struct mcp_grid *grid, const struct mcp_path *path, int64_t *least)
{
    int64_t sum = 0;
    for (int r = 0; r < grid->p; r++) {
        least[r] = MCP_NO_WAY;
        for (int i = grid->first[r]; i < grid->first[r + 1]; i++) {
            int64_t part = mcp_path_ns(grid, path, &grid->columns[i]);
            least[r] = part < least[r] ? part : least[r];
        }
        sum += least[r];
    }
    return sum;
}

/* Returns the row: pipeline >= path. */
static int add_path_row(struct builder *b, const struct mcp_path *path, int64_t rest_ns)
{
    const struct mcp_master *master = b->master;
    const struct mcp_grid *grid = &b->s->grid;
    int64_t *least = MCP_ARRAY(b->s->arena, grid->p, int64_t);
    int64_t base = least_parts(grid, path, least) + rest_ns - master->least_ns;
    int row = mcp_ilp_row(b->ilp, (double)base / b->unit_ns, INFINITY);
    mcp_ilp_set(b->ilp, row, b->pipeline, 1);
    for (int i = 0; i < grid->count; i++) {
        const struct mcp_column *column = &grid->columns[i];
        int64_t above = mcp_path_ns(grid, path, column) - least[column->rank];
        mcp_ilp_set(b->ilp, row, i, -(double)above / b->unit_ns);
    }
    return row;
}

/* `longest` is no less than what any rank's column has above `least_ns`. */
static void add_longest_rows(struct builder *b, int longest, int64_t least_ns,
                             const int64_t *values)
{
    const struct mcp_grid *grid = &b->s->grid;
    for (int r = 0; r < grid->p; r++) {
        int row = mcp_ilp_row(b->ilp, 0, INFINITY);
        mcp_ilp_set(b->ilp, row, longest, 1);
        for (int i = grid->first[r]; i < grid->first[r + 1]; i++)
            if (values[i] > least_ns)
                mcp_ilp_set(b->ilp, row, i, -(double)(values[i] - least_ns) / b->unit_ns);
    }
}

/* `more` is no less than what a path gains by beginning, or ending, on a later rank. */
static void add_edge_row(struct builder *b, int more, const struct mcp_path *gain,
                         const struct mcp_path *loss)
{
    const struct mcp_grid *grid = &b->s->grid;
    int row = mcp_ilp_row(b->ilp, 0, INFINITY);
    mcp_ilp_set(b->ilp, row, more, 1);
    for (int i = 0; i < grid->count; i++) {
        int64_t part =
            mcp_path_ns(grid, gain, &grid->columns[i]) - mcp_path_ns(grid, loss, &grid->columns[i]);
        mcp_ilp_set(b->ilp, row, i, -(double)part / b->unit_ns);
    }
}

/* Columns, one a rank: what the path that dwells there has above the common path and
 * the first of these. */
static void add_rests(struct builder *b)
{
    const struct mcp_grid *grid = &b->s->grid;
    const struct mcp_master *master = b->master;
    int64_t least = master->dwells[0].rest_ns;
    for (int r = 0; r < grid->p; r++) {
        int rest = mcp_ilp_column(b->ilp, -INFINITY, INFINITY, 0, false);
        int row = mcp_ilp_row(b->ilp, -(double)least / b->unit_ns, INFINITY);
        b->rests = r == 0 ? rest : b->rests;
        mcp_ilp_set(b->ilp, row, rest, 1);
        for (int i = 0; i < grid->count; i++) {
            int64_t part = mcp_path_ns(grid, &master->paths[r], &grid->columns[i]) -
                           mcp_path_ns(grid, &master->common, &grid->columns[i]);
            mcp_ilp_set(b->ilp, row, i, -(double)part / b->unit_ns);
        }
    }
}

static void add_dwell_rows(struct builder *b, const struct mcp_dwell *dwell)
{
    int row = add_path_row(b, &b->master->common, dwell->rest_ns);
    int rest = mcp_ilp_column(b->ilp, 0, INFINITY, 0, false);
    double shift = (double)(b->master->dwells[0].rest_ns - dwell->rest_ns) / b->unit_ns;
    mcp_ilp_set(b->ilp, row, rest, -1);
    for (int r = dwell->first; r < b->s->grid.p; r++) {
        int longest = mcp_ilp_row(b->ilp, shift, INFINITY);
        mcp_ilp_set(b->ilp, longest, rest, 1);
        mcp_ilp_set(b->ilp, longest, b->rests + r, -1);
    }
    for (int end = 0; end < 2 && dwell->first > 0; end++) {
        int more = mcp_ilp_column(b->ilp, 0, INFINITY, 0, false);
        mcp_ilp_set(b->ilp, row, more, -1);
        for (int r = 1; r <= dwell->first; r++)
            add_edge_row(b, more, &dwell->gains[end][r], &dwell->losses[end][r]);
    }
}

static void add_update_rows(struct builder *b)
{
    const struct mcp_grid *grid = &b->s->grid;
    int64_t *updates = MCP_ARRAY(b->s->arena, grid->count, int64_t);
    for (int i = 0; i < grid->count; i++)
        updates[i] = grid->columns[i].update_ns;
    add_longest_rows(b, b->update, b->master->update_ns, updates);
}

static void add_recompute_row(struct builder *b)
{
    const struct mcp_grid *grid = &b->s->grid;
    int most = b->s->options->max_recomputed_stages;
    if (most < 0)
        return;
    int row = mcp_ilp_row(b->ilp, -INFINITY, most);
    for (int i = 0; i < grid->count; i++)
        if (grid->columns[i].recomputes)
            mcp_ilp_set(b->ilp, row, i, 1);
}

static void read_chain(const struct mcp_grid *grid, const struct mcp_ilp_result *result,
                       const struct mcp_column **chain)
{
    for (int r = 0; r < grid->p; r++)
        for (int i = grid->first[r]; i < grid->first[r + 1]; i++)
            if (result->values[i] > 0.5)
                chain[r] = &grid->columns[i];
}

void mcp_master_solve(struct mcp_splitter *s, const struct mcp_master *master,
                      const struct mcp_column **chain, struct mcp_master_result *out)
{
    struct mcp_mark mark = mcp_arena_mark(s->arena);
    struct builder b = {.s = s, .master = master, .ilp = mcp_ilp_new(s->arena)};
    struct mcp_ilp_result result;
    b.unit_ns = fmax((double)master->least_ns * 1e-6, 1);
    add_variables(&b);
    if (s->grid.counted)
        add_size_rows(&b);
    else
        add_chain_rows(&b);
    add_rests(&b);
    for (int i = 0; i < master->num_dwells; i++)
        add_dwell_rows(&b, &master->dwells[i]);
    for (size_t i = 0; i < master->num_cuts; i++)
        add_path_row(&b, &master->cuts[i], 0);
    add_update_rows(&b);
    add_recompute_row(&b);
    mcp_ilp_solve(b.ilp, MAX_NODES, &result);
    *out = (struct mcp_master_result){.nodes = result.nodes, .bound_ns = s->cutoff_ns};
    out->solved = result.status == MCP_ILP_OPTIMAL || result.status == MCP_ILP_FEASIBLE;
    out->optimal = result.status == MCP_ILP_OPTIMAL || result.status == MCP_ILP_INFEASIBLE;
    int64_t least = s->fixed_ns + master->update_ns + master->least_ns;
    if (out->solved) {
        read_chain(&s->grid, &result, chain);
        out->objective_ns = least + (int64_t)floor(result.objective * b.unit_ns);
    }
    if (result.status == MCP_ILP_OPTIMAL)
        out->bound_ns = mcp_master_ns(s, master, chain);
    else if (result.status != MCP_ILP_INFEASIBLE)
        out->bound_ns = result.bound > 0 ? least + (int64_t)(result.bound * b.unit_ns) : least;
    mcp_arena_rewind(s->arena, mark);
}
