/* planner/ilp.c: integer programmes: the only door to GLPK.
 *
 * The programme is kept here, as data; GLPK sees it while it is solved and no
 * longer, so that nothing of GLPK's outlives the call, or crosses threads. */
#include "planner/ilp.h"

#include <glpk.h>
#include <math.h>
#include <setjmp.h>

struct column {
    double low, high, cost;
    bool integer;
};

struct row {
    double low, high;
};

struct mcp_ilp {
    struct mcp_arena *arena;
    struct column *columns;
    struct row *rows;
    int *entry_rows, *entry_columns; /* GLPK counts from 1: entry 0 of these is not used */
    double *entries;
    size_t num_columns, num_rows, num_entries;
    size_t column_room, row_room, entry_row_room, entry_column_room, entry_room;
};

static void room_for_entry(struct mcp_ilp *ilp)
{
    size_t count = ilp->num_entries;
    ilp->entry_rows =
        mcp_grow(ilp->arena, ilp->entry_rows, count, &ilp->entry_row_room, sizeof(int));
    ilp->entry_columns =
        mcp_grow(ilp->arena, ilp->entry_columns, count, &ilp->entry_column_room, sizeof(int));
    ilp->entries = mcp_grow(ilp->arena, ilp->entries, count, &ilp->entry_room, sizeof(double));
}

struct mcp_ilp *mcp_ilp_new(struct mcp_arena *arena)
{
    struct mcp_ilp *ilp = MCP_NEW(arena, struct mcp_ilp);
    ilp->arena = arena;
    room_for_entry(ilp);
    ilp->num_entries = 1;
    return ilp;
}

int mcp_ilp_column(struct mcp_ilp *ilp, double low, double high, double cost, bool integer)
{
    ilp->columns = mcp_grow(ilp->arena, ilp->columns, ilp->num_columns, &ilp->column_room,
                            sizeof *ilp->columns);
    ilp->columns[ilp->num_columns] = (struct column){low, high, cost, integer};
    return (int)ilp->num_columns++;
}

int mcp_ilp_row(struct mcp_ilp *ilp, double low, double high)
{
    ilp->rows = mcp_grow(ilp->arena, ilp->rows, ilp->num_rows, &ilp->row_room, sizeof *ilp->rows);
    ilp->rows[ilp->num_rows] = (struct row){low, high};
    return (int)ilp->num_rows++;
}

void mcp_ilp_set(struct mcp_ilp *ilp, int row, int column, double coefficient)
{
    size_t at = ilp->num_entries;
    if (coefficient == 0)
        return;
    room_for_entry(ilp);
    ilp->entry_rows[at] = row + 1;
    ilp->entry_columns[at] = column + 1;
    ilp->entries[at] = coefficient;
    ilp->num_entries++;
}

static int kind_of_limits(double low, double high)
{
    if (isinf(low))
        return isinf(high) ? GLP_FR : GLP_UP;
    if (isinf(high))
        return GLP_LO;
    return low == high ? GLP_FX : GLP_DB;
}

static glp_prob *translate(const struct mcp_ilp *ilp)
{
    glp_prob *prob = glp_create_prob();
    glp_set_obj_dir(prob, GLP_MIN);
    if (ilp->num_rows > 0)
        glp_add_rows(prob, (int)ilp->num_rows);
    if (ilp->num_columns > 0)
        glp_add_cols(prob, (int)ilp->num_columns);
    for (size_t i = 0; i < ilp->num_rows; i++) {
        const struct row *row = &ilp->rows[i];
        glp_set_row_bnds(prob, (int)i + 1, kind_of_limits(row->low, row->high), row->low,
                         row->high);
    }
    for (size_t j = 0; j < ilp->num_columns; j++) {
        const struct column *column = &ilp->columns[j];
        /* GLPK refuses limits of integers that are none */
        double low = column->integer ? ceil(column->low) : column->low;
        double high = column->integer ? floor(column->high) : column->high;
        if (column->integer)
            glp_set_col_kind(prob, (int)j + 1, GLP_IV);
        glp_set_col_bnds(prob, (int)j + 1, kind_of_limits(low, high), low, high);
        glp_set_obj_coef(prob, (int)j + 1, column->cost);
    }
    if (ilp->num_entries > 1)
        glp_load_matrix(prob, (int)ilp->num_entries - 1, ilp->entry_rows, ilp->entry_columns,
                        ilp->entries);
    return prob;
}

/* What GLPK's callbacks share with the solve. */
struct watch {
    int max_nodes, nodes;
    double bound;
};

static void count_nodes(glp_tree *tree, void *info)
{
    struct watch *watch = info;
    int active, all, total;
    if (glp_ios_reason(tree) != GLP_ISELECT)
        return;
    glp_ios_tree_size(tree, &active, &all, &total);
    watch->nodes = total;
    if (total < watch->max_nodes)
        return;
    int best = glp_ios_best_node(tree);
    if (best != 0)
        watch->bound = glp_ios_node_bound(tree, best);
    glp_ios_terminate(tree);
}

/* The status decides; the return code only where presolve left none. */
static void read_result(const struct mcp_ilp *ilp, glp_prob *prob, int reason,
                        const struct watch *watch, double *values, struct mcp_ilp_result *out)
{
    int status = glp_mip_status(prob);
    out->nodes = watch->nodes;
    if (status == GLP_NOFEAS || reason == GLP_ENOPFS) {
        out->status = MCP_ILP_INFEASIBLE;
        out->bound = INFINITY;
        return;
    }
    out->bound = watch->bound;
    if (status != GLP_OPT && status != GLP_FEAS)
        return;
    out->status = status == GLP_OPT ? MCP_ILP_OPTIMAL : MCP_ILP_FEASIBLE;
    out->objective = glp_mip_obj_val(prob);
    out->bound = status == GLP_OPT ? out->objective : fmin(watch->bound, out->objective);
    for (size_t j = 0; j < ilp->num_columns; j++)
        values[j] = glp_mip_col_val(prob, (int)j + 1);
    out->values = values;
}

static void solve(const struct mcp_ilp *ilp, glp_prob *prob, struct watch *watch, double *values,
                  struct mcp_ilp_result *out)
{
    glp_iocp how;
    glp_init_iocp(&how);
    how.msg_lev = GLP_MSG_OFF;
    how.presolve = GLP_ON;
    how.mir_cuts = GLP_ON;
    how.tol_obj = 1e-9; /* prunes what is no better by this much */
    how.cb_func = count_nodes;
    how.cb_info = watch;
    int reason = glp_intopt(prob, &how);
    read_result(ilp, prob, reason, watch, values, out);
}

static int swallow(void *info, const char *text)
{
    (void)info;
    (void)text;
    return 1;
}

/* GLPK ends the process after a fatal error, unless somebody jumps away. */
static void escape(void *info)
{
    longjmp(*(jmp_buf *)info, 1);
}

void mcp_ilp_solve(struct mcp_ilp *ilp, int max_nodes, struct mcp_ilp_result *out)
{
    jmp_buf jump;
    struct watch watch = {.max_nodes = max_nodes, .bound = -INFINITY};
    double *values = MCP_ARRAY(ilp->arena, ilp->num_columns, double);
    *out = (struct mcp_ilp_result){.status = MCP_ILP_UNKNOWN, .bound = -INFINITY};
    glp_term_hook(swallow, NULL);
    glp_term_out(GLP_OFF);
    glp_error_hook(escape, &jump);
    if (setjmp(jump) == 0)
        solve(ilp, translate(ilp), &watch, values, out);
    glp_free_env(); /* with the problem, the hooks, and what a fatal error left */
}
