/* planner/split_bound.c: what paths say of all splits at once.
 *
 * The longest rest of a split is no less than the least longest rest of any: that one
 * fact, which no relaxation of an integer programme sees, is most of the proof. */
#include "planner/split_parts.h"

/* What columns add to a path; above another, unless that is NULL. */
static int64_t *weigh(struct mcp_splitter *s, const struct mcp_path *path,
                      const struct mcp_path *above)
{
    const struct mcp_grid *grid = &s->grid;
    int64_t *weights = MCP_ARRAY(s->arena, grid->count, int64_t);
    for (int i = 0; i < grid->count; i++)
        weights[i] = mcp_path_ns(grid, path, &grid->columns[i]) -
                     (above ? mcp_path_ns(grid, above, &grid->columns[i]) : 0);
    return weights;
}

static size_t nodes_of(const struct mcp_grid *grid)
{
    return (size_t)(grid->p + 1) * (size_t)(grid->length + 1);
}

static int64_t cutoff_of_pipeline(const struct mcp_splitter *s, const struct mcp_master *master)
{
    return s->cutoff_ns - s->fixed_ns - master->update_ns;
}

/* The least weight of a chain with column i. */
static int64_t least_with(const struct mcp_grid *grid, int i, const int64_t *weights,
                          const int64_t *ahead, const int64_t *behind)
{
    const struct mcp_column *column = &grid->columns[i];
    int last = grid->counted ? grid->length - column->size : column->from;
    const int64_t *here = ahead + (size_t)column->rank * (size_t)(grid->length + 1);
    const int64_t *next = behind + (size_t)(column->rank + 1) * (size_t)(grid->length + 1);
    int64_t least = MCP_NO_WAY;
    for (int x = column->from; x <= last; x++) {
        int64_t sum = here[x] + next[x + column->size];
        if (here[x] < MCP_NO_WAY && next[x + column->size] < MCP_NO_WAY && sum < least)
            least = sum;
    }
    return least < MCP_NO_WAY ? least + weights[i] : MCP_NO_WAY;
}

/* Marks the columns of rank r that no chain can use in time. */
static void mark_slow(struct mcp_splitter *s, const struct mcp_master *master, int r,
                      const struct mcp_path *path, bool *slow)
{
    const struct mcp_grid *grid = &s->grid;
    int64_t *ahead = MCP_ARRAY(s->arena, nodes_of(grid), int64_t);
    int64_t *behind = MCP_ARRAY(s->arena, nodes_of(grid), int64_t);
    int64_t *weights = weigh(s, path, NULL);
    mcp_grid_ahead(grid, weights, ahead);
    mcp_grid_behind(grid, weights, behind);
    for (int i = grid->first[r]; i < grid->first[r + 1]; i++) {
        int64_t least = least_with(grid, i, weights, ahead, behind);
        if (least >= MCP_NO_WAY || least >= cutoff_of_pipeline(s, master))
            slow[i] = true;
        if (least < MCP_NO_WAY && slow[i])
            s->grid.cut = true;
    }
}

static void drop(struct mcp_splitter *s, const bool *slow)
{
    int kept = 0;
    for (int i = 0; i < s->grid.count; i++)
        if (!slow[i])
            s->grid.columns[kept++] = s->grid.columns[i];
    s->grid.count = kept;
    mcp_grid_end(s);
}

static void drop_slow(struct mcp_splitter *s, const struct mcp_master *master)
{
    struct mcp_mark mark = mcp_arena_mark(s->arena);
    bool *slow = MCP_ARRAY(s->arena, s->grid.count, bool);
    for (int r = 0; r < s->grid.p; r++) {
        struct mcp_mark inner = mcp_arena_mark(s->arena);
        mark_slow(s, master, r, &master->through[r], slow);
        mark_slow(s, master, r, &master->paths[r], slow);
        mcp_arena_rewind(s->arena, inner);
    }
    drop(s, slow);
    mcp_arena_rewind(s->arena, mark);
}

/* Of the paths that dwell on each rank, what is sure above the common path: the
 * column's own part, and by where it ends that of the ranks after it. */
struct rests {
    int64_t *own;   /* [columns] */
    int64_t *after; /* [p][length + 1] */
};

static int64_t least_before(const struct mcp_grid *grid, const int64_t *weights, int rank)
{
    int64_t sum = 0;
    for (int r = 0; r < rank; r++) {
        int64_t least = MCP_NO_WAY;
        for (int i = grid->first[r]; i < grid->first[r + 1]; i++)
            least = weights[i] < least ? weights[i] : least;
        if (least == MCP_NO_WAY)
            return MCP_NO_WAY;
        sum += least;
    }
    return sum;
}

static struct rests list_rests(struct mcp_splitter *s, const struct mcp_master *master)
{
    const struct mcp_grid *grid = &s->grid;
    size_t row = (size_t)grid->length + 1;
    struct rests rests = {MCP_ARRAY(s->arena, grid->count, int64_t),
                          MCP_ARRAY(s->arena, nodes_of(grid), int64_t)};
    for (int r = 0; r < grid->p; r++) {
        struct mcp_mark mark = mcp_arena_mark(s->arena);
        int64_t *weights = weigh(s, &master->paths[r], &master->common);
        int64_t *behind = MCP_ARRAY(s->arena, nodes_of(grid), int64_t);
        int64_t before = least_before(grid, weights, r);
        mcp_grid_behind(grid, weights, behind);
        for (int i = grid->first[r]; i < grid->first[r + 1]; i++)
            rests.own[i] = before + weights[i];
        for (size_t x = 0; x < row; x++)
            rests.after[(size_t)r * row + x] = behind[(size_t)(r + 1) * row + x];
        mcp_arena_rewind(s->arena, mark);
    }
    return rests;
}

/* The least longest rest of ranks from `first` on. */
static int64_t longest_rest(struct mcp_splitter *s, const struct rests *rests, int first)
{
    const struct mcp_grid *grid = &s->grid;
    int64_t *weights = MCP_ARRAY(s->arena, grid->count, int64_t);
    for (int i = 0; i < grid->count; i++)
        weights[i] = grid->columns[i].rank < first ? -MCP_NO_WAY : rests->own[i];
    return mcp_grid_bottleneck(s->arena, grid, weights, rests->after);
}

static int64_t worst(int64_t a, int64_t b, int64_t c)
{
    int64_t larger = a > b ? a : b;
    return larger > c ? larger : c;
}

/* Drops the columns that leave other ranks too much: by the least common path and the
 * least longest rest of any chain with them. */
static void drop_unbalanced(struct mcp_splitter *s, const struct mcp_master *master,
                            const struct rests *rests)
{
    const struct mcp_grid *grid = &s->grid;
    struct mcp_mark mark = mcp_arena_mark(s->arena);
    size_t row = (size_t)grid->length + 1;
    int64_t *common = weigh(s, &master->common, NULL), *tables[4];
    bool *slow = MCP_ARRAY(s->arena, grid->count, bool);
    for (int t = 0; t < 4; t++)
        tables[t] = MCP_ARRAY(s->arena, nodes_of(grid), int64_t);
    mcp_grid_ahead(grid, common, tables[0]);
    mcp_grid_behind(grid, common, tables[1]);
    mcp_grid_worst_ahead(grid, rests->own, rests->after, tables[2]);
    mcp_grid_worst_behind(grid, rests->own, rests->after, tables[3]);
    for (int i = 0; i < grid->count; i++) {
        const struct mcp_column *column = &grid->columns[i];
        int last = grid->counted ? grid->length - column->size : column->from;
        slow[i] = true;
        for (int x = column->from; x <= last && slow[i]; x++) {
            size_t here = (size_t)column->rank * row + (size_t)x;
            size_t next = here + row + (size_t)column->size;
            int64_t own = rests->own[i] + rests->after[next - row];
            int64_t rest = worst(tables[2][here], own, tables[3][next]);
            slow[i] = tables[0][here] >= MCP_NO_WAY || tables[1][next] >= MCP_NO_WAY ||
                      tables[0][here] + common[i] + tables[1][next] + rest >=
                          cutoff_of_pipeline(s, master);
        }
        s->grid.cut |= slow[i];
    }
    drop(s, slow);
    mcp_arena_rewind(s->arena, mark);
}

static void list_dwells(struct mcp_splitter *s, struct mcp_master *master,
                        const struct rests *rests)
{
    static const int firsts[MCP_MAX_DWELLS] = {0, 1, 3};
    master->num_dwells = 0;
    for (int i = 0; i < MCP_MAX_DWELLS && firsts[i] < s->grid.p; i++) {
        struct mcp_dwell *dwell = &master->dwells[master->num_dwells++];
        dwell->first = firsts[i];
        dwell->rest_ns = longest_rest(s, rests, firsts[i]);
        for (int end = 0; end < 2; end++)
            for (int r = 0; r <= firsts[i]; r++) {
                dwell->gains[end][r] = mcp_path_gain(s->arena, s->plan, r, end);
                dwell->losses[end][r] = mcp_path_loss(s->arena, s->plan, r, end);
            }
    }
}

static int64_t *list_values(struct mcp_splitter *s, bool updates)
{
    int64_t *values = MCP_ARRAY(s->arena, s->grid.count, int64_t);
    for (int i = 0; i < s->grid.count; i++)
        values[i] = updates ? s->grid.columns[i].update_ns : s->grid.columns[i].load_ns;
    return values;
}

/* Chains of the least largest load, or rest, and of these of the least common path. */
static void balance(struct mcp_splitter *s, struct mcp_master *master, const struct rests *rests,
                    const struct mcp_column **chains[2])
{
    int64_t *common = weigh(s, &master->common, NULL), *loads = list_values(s, false);
    int64_t load = mcp_grid_bottleneck(s->arena, &s->grid, loads, NULL);
    const struct mcp_limit largest = {loads, NULL, load};
    const struct mcp_limit longest = {rests->own, rests->after, master->dwells[0].rest_ns};
    mcp_grid_chain(s->arena, &s->grid, common, NULL, chains[0]);
    master->least_ns = master->dwells[0].rest_ns;
    for (int r = 0; r < s->grid.p; r++)
        master->least_ns += mcp_path_ns(&s->grid, &master->common, chains[0][r]);
    if (load * s->grid.m > master->least_ns)
        master->least_ns = load * s->grid.m;
    mcp_grid_chain(s->arena, &s->grid, common, &largest, chains[0]);
    mcp_grid_chain(s->arena, &s->grid, common, &longest, chains[1]);
}

static void list_paths(struct mcp_splitter *s, struct mcp_master *master)
{
    int p = s->grid.p;
    master->common = mcp_path_common(s->arena, s->plan);
    master->through = MCP_ARRAY(s->arena, p, struct mcp_path);
    master->paths = MCP_ARRAY(s->arena, p, struct mcp_path);
    for (int r = 0; r < p; r++) {
        master->through[r] = mcp_path_through(s->arena, s->plan, s->grid.m, r);
        master->paths[r] = mcp_path_dwell(s->arena, s->plan, s->grid.m, r);
    }
}

bool mcp_master_bound(struct mcp_splitter *s, struct mcp_master *master,
                      const struct mcp_column **chains[2])
{
    struct mcp_grid *grid = &s->grid;
    if (master->paths == NULL)
        list_paths(s, master);
    master->update_ns = mcp_grid_bottleneck(s->arena, grid, list_values(s, true), NULL);
    if (master->update_ns >= MCP_NO_WAY)
        return false;
    drop_slow(s, master);
    struct rests rests = list_rests(s, master);
    drop_unbalanced(s, master, &rests);
    master->update_ns = mcp_grid_bottleneck(s->arena, grid, list_values(s, true), NULL);
    if (master->update_ns >= MCP_NO_WAY)
        return false;
    rests = list_rests(s, master);
    list_dwells(s, master, &rests);
    balance(s, master, &rests, chains);
    return true;
}

void mcp_master_cut(struct mcp_splitter *s, struct mcp_master *master, struct mcp_path path)
{
    master->cuts =
        mcp_grow(s->arena, master->cuts, master->num_cuts, &master->room, sizeof *master->cuts);
    master->cuts[master->num_cuts++] = path;
}

static int64_t sum_of(const struct mcp_splitter *s, const struct mcp_path *path,
                      const struct mcp_column *const *chain)
{
    int64_t sum = 0;
    for (int r = 0; r < s->grid.p; r++)
        sum += mcp_path_ns(&s->grid, path, chain[r]);
    return sum;
}

/* Beyond the common path. */
static int64_t dwell_ns(const struct mcp_splitter *s, const struct mcp_master *master,
                        const struct mcp_dwell *dwell, const struct mcp_column *const *chain)
{
    int64_t rest = dwell->rest_ns, more[2] = {0, 0};
    int64_t common = sum_of(s, &master->common, chain);
    for (int r = dwell->first; r < s->grid.p; r++) {
        int64_t own = sum_of(s, &master->paths[r], chain) - common;
        rest = own > rest ? own : rest;
    }
    for (int end = 0; end < 2; end++)
        for (int r = 0; r <= dwell->first; r++) {
            int64_t gain =
                sum_of(s, &dwell->gains[end][r], chain) - sum_of(s, &dwell->losses[end][r], chain);
            more[end] = gain > more[end] ? gain : more[end];
        }
    return rest + more[0] + more[1];
}

int64_t mcp_master_ns(const struct mcp_splitter *s, const struct mcp_master *master,
                      const struct mcp_column *const *chain)
{
    int64_t update = master->update_ns, longest = master->least_ns;
    int64_t common = sum_of(s, &master->common, chain);
    for (int r = 0; r < s->grid.p; r++)
        update = chain[r]->update_ns > update ? chain[r]->update_ns : update;
    for (int i = 0; i < master->num_dwells; i++) {
        int64_t sum = common + dwell_ns(s, master, &master->dwells[i], chain);
        longest = sum > longest ? sum : longest;
    }
    for (size_t i = 0; i < master->num_cuts; i++) {
        int64_t sum = sum_of(s, &master->cuts[i], chain);
        longest = sum > longest ? sum : longest;
    }
    return s->fixed_ns + update + longest;
}
