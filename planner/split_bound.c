/* planner/split_bound.c: what paths say of all splits at once.
 *
 * The longest rest of a split is no less than the least longest rest of any: that one
 * fact, which no relaxation of an integer programme sees, is most of the proof. */
#include "planner/split_parts.h"

static int64_t *weigh(struct mcp_splitter *s, const struct mcp_path *path)
{
    int64_t *weights = MCP_ARRAY(s->arena, s->grid.count, int64_t);
    for (int i = 0; i < s->grid.count; i++)
        weights[i] = mcp_path_ns(&s->grid, path, &s->grid.columns[i]);
    return weights;
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
                      struct mcp_path path, bool *slow)
{
    const struct mcp_grid *grid = &s->grid;
    size_t nodes = (size_t)(grid->p + 1) * (size_t)(grid->length + 1);
    int64_t *ahead = MCP_ARRAY(s->arena, nodes, int64_t);
    int64_t *behind = MCP_ARRAY(s->arena, nodes, int64_t);
    int64_t *weights = weigh(s, &path);
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
        mark_slow(s, master, r, mcp_path_through(s->arena, s->plan, s->grid.m, r), slow);
        mark_slow(s, master, r, mcp_path_after_first(s->arena, s->plan, s->grid.m, r), slow);
        mcp_arena_rewind(s->arena, inner);
    }
    drop(s, slow);
    mcp_arena_rewind(s->arena, mark);
}

/* What is sure of a path beyond mcp_path_common(): of other ranks than its own. */
static int64_t sure_rest(const struct mcp_splitter *s, const struct mcp_master *master,
                         const struct mcp_path *path, int own)
{
    const struct mcp_grid *grid = &s->grid;
    int64_t sum = 0;
    for (int r = 0; r < grid->p; r++) {
        int64_t least = MCP_NO_WAY;
        for (int i = grid->first[r]; r != own && i < grid->first[r + 1]; i++) {
            int64_t rest = mcp_path_ns(grid, path, &grid->columns[i]) -
                           mcp_path_ns(grid, &master->common, &grid->columns[i]);
            least = rest < least ? rest : least;
        }
        sum += r != own ? least : 0;
    }
    return sum;
}

static void list_rests(struct mcp_splitter *s, struct mcp_master *master)
{
    const struct mcp_grid *grid = &s->grid;
    master->rests_ns = MCP_ARRAY(s->arena, grid->count, int64_t);
    for (int r = 0; r < grid->p; r++) {
        struct mcp_path path = mcp_path_after_first(s->arena, s->plan, grid->m, r);
        int64_t others = sure_rest(s, master, &path, r);
        for (int i = grid->first[r]; i < grid->first[r + 1]; i++)
            master->rests_ns[i] = others + mcp_path_ns(grid, &path, &grid->columns[i]) -
                                  mcp_path_ns(grid, &master->common, &grid->columns[i]);
    }
}

static int64_t *list_values(struct mcp_splitter *s, bool updates)
{
    int64_t *values = MCP_ARRAY(s->arena, s->grid.count, int64_t);
    for (int i = 0; i < s->grid.count; i++)
        values[i] = updates ? s->grid.columns[i].update_ns : s->grid.columns[i].load_ns;
    return values;
}

/* The chain of the least common path among those of the least longest rest. */
static void balance(struct mcp_splitter *s, struct mcp_master *master,
                    const struct mcp_column **chain)
{
    struct mcp_mark mark = mcp_arena_mark(s->arena);
    int64_t *weights = weigh(s, &master->common), loads = 0;
    master->least_ns = master->rest_ns;
    mcp_grid_chain(s->arena, &s->grid, weights, chain);
    for (int r = 0; r < s->grid.p; r++)
        master->least_ns += mcp_path_ns(&s->grid, &master->common, chain[r]);
    for (int i = 0; i < s->grid.count; i++)
        if (master->rests_ns[i] > master->rest_ns)
            weights[i] = MCP_NO_WAY;
    mcp_grid_chain(s->arena, &s->grid, weights, chain);
    loads = mcp_grid_bottleneck(s->arena, &s->grid, list_values(s, false)) * s->grid.m;
    master->least_ns = loads > master->least_ns ? loads : master->least_ns;
    mcp_arena_rewind(s->arena, mark);
}

bool mcp_master_bound(struct mcp_splitter *s, struct mcp_master *master,
                      const struct mcp_column **chain)
{
    struct mcp_grid *grid = &s->grid;
    master->common = mcp_path_common(s->arena, s->plan);
    master->update_ns = mcp_grid_bottleneck(s->arena, grid, list_values(s, true));
    if (master->update_ns >= MCP_NO_WAY)
        return false;
    drop_slow(s, master);
    master->update_ns = mcp_grid_bottleneck(s->arena, grid, list_values(s, true));
    if (master->update_ns >= MCP_NO_WAY)
        return false;
    list_rests(s, master);
    master->rest_ns = mcp_grid_bottleneck(s->arena, grid, master->rests_ns);
    balance(s, master, chain);
    return true;
}

void mcp_master_cut(struct mcp_splitter *s, struct mcp_master *master, struct mcp_path path)
{
    master->cuts =
        mcp_grow(s->arena, master->cuts, master->num_cuts, &master->room, sizeof *master->cuts);
    master->cuts[master->num_cuts++] = path;
}

int64_t mcp_master_ns(const struct mcp_splitter *s, const struct mcp_master *master,
                      const struct mcp_column *const *chain)
{
    int64_t update = master->update_ns, rest = master->rest_ns, longest = 0;
    for (int r = 0; r < s->grid.p; r++) {
        int64_t own = master->rests_ns[chain[r] - s->grid.columns];
        update = chain[r]->update_ns > update ? chain[r]->update_ns : update;
        rest = own > rest ? own : rest;
        longest += mcp_path_ns(&s->grid, &master->common, chain[r]);
    }
    longest += rest;
    longest = longest > master->least_ns ? longest : master->least_ns;
    for (size_t i = 0; i < master->num_cuts; i++) {
        int64_t sum = 0;
        for (int r = 0; r < s->grid.p; r++)
            sum += mcp_path_ns(&s->grid, &master->cuts[i], chain[r]);
        longest = sum > longest ? sum : longest;
    }
    return s->fixed_ns + update + longest;
}
