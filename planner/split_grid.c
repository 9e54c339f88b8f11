/* planner/split_grid.c: dynamic programmes over chains of columns. */
#include "planner/split_parts.h"

#include "core/minmax.h"

#include <string.h>

static size_t nodes_of(const struct mcp_grid *grid)
{
    return (size_t)(grid->p + 1) * (size_t)(grid->length + 1);
}

static int64_t *row_of(const struct mcp_grid *grid, int64_t *values, int rank)
{
    return values + (size_t)rank * (size_t)(grid->length + 1);
}

static void clear(const struct mcp_grid *grid, int64_t *values)
{
    for (size_t i = 0; i < nodes_of(grid); i++)
        values[i] = MCP_NO_WAY;
}

/* Where a column can begin: its place, or anywhere. */
static int last_place(const struct mcp_grid *grid, const struct mcp_column *column)
{
    return grid->counted ? grid->length - column->size : column->from;
}

static void lower(int64_t *value, int64_t candidate)
{
    *value = candidate < *value ? candidate : *value;
}

void mcp_grid_ahead(const struct mcp_grid *grid, const int64_t *weights, int64_t *ahead)
{
    clear(grid, ahead);
    ahead[0] = 0;
    for (int i = 0; i < grid->count; i++) {
        const struct mcp_column *column = &grid->columns[i];
        const int64_t *here = row_of(grid, ahead, column->rank);
        int64_t *next = row_of(grid, ahead, column->rank + 1) + column->size;
        if (weights[i] >= MCP_NO_WAY)
            continue;
        for (int x = column->from; x <= last_place(grid, column); x++)
            if (here[x] < MCP_NO_WAY)
                lower(&next[x], here[x] + weights[i]);
    }
}

/* What weighs on column i that begins at x. */
static int64_t weight_at(const struct mcp_grid *grid, const int64_t *weights, const int64_t *after,
                         int i, int x)
{
    const struct mcp_column *column = &grid->columns[i];
    size_t end = (size_t)column->rank * (size_t)(grid->length + 1) + (size_t)column->size;
    return weights[i] + (after ? after[end + (size_t)x] : 0);
}

static bool within(const struct mcp_grid *grid, const struct mcp_limit *limit, int i, int x)
{
    return limit == NULL || weight_at(grid, limit->weights, limit->after, i, x) <= limit->most;
}

static void behind_within(const struct mcp_grid *grid, const int64_t *weights,
                          const struct mcp_limit *limit, int64_t *behind)
{
    clear(grid, behind);
    behind[nodes_of(grid) - 1] = 0;
    for (int i = grid->count - 1; i >= 0; i--) {
        const struct mcp_column *column = &grid->columns[i];
        int64_t *here = row_of(grid, behind, column->rank);
        const int64_t *next = row_of(grid, behind, column->rank + 1) + column->size;
        if (weights[i] >= MCP_NO_WAY)
            continue;
        for (int x = column->from; x <= last_place(grid, column); x++)
            if (next[x] < MCP_NO_WAY && within(grid, limit, i, x))
                lower(&here[x], next[x] + weights[i]);
    }
}

void mcp_grid_behind(const struct mcp_grid *grid, const int64_t *weights, int64_t *behind)
{
    behind_within(grid, weights, NULL, behind);
}

void mcp_grid_worst_ahead(const struct mcp_grid *grid, const int64_t *weights, const int64_t *after,
                          int64_t *ahead)
{
    clear(grid, ahead);
    ahead[0] = -MCP_NO_WAY;
    for (int i = 0; i < grid->count; i++) {
        const struct mcp_column *column = &grid->columns[i];
        const int64_t *here = row_of(grid, ahead, column->rank);
        int64_t *next = row_of(grid, ahead, column->rank + 1) + column->size;
        for (int x = column->from; x <= last_place(grid, column); x++)
            lower(&next[x], mcp_max_int64(here[x], weight_at(grid, weights, after, i, x)));
    }
}

void mcp_grid_worst_behind(const struct mcp_grid *grid, const int64_t *weights,
                           const int64_t *after, int64_t *behind)
{
    clear(grid, behind);
    behind[nodes_of(grid) - 1] = -MCP_NO_WAY;
    for (int i = grid->count - 1; i >= 0; i--) {
        const struct mcp_column *column = &grid->columns[i];
        int64_t *here = row_of(grid, behind, column->rank);
        const int64_t *next = row_of(grid, behind, column->rank + 1) + column->size;
        for (int x = column->from; x <= last_place(grid, column); x++)
            lower(&here[x], mcp_max_int64(next[x], weight_at(grid, weights, after, i, x)));
    }
}

int64_t mcp_grid_bottleneck(struct mcp_arena *arena, const struct mcp_grid *grid,
                            const int64_t *weights, const int64_t *after)
{
    struct mcp_mark mark = mcp_arena_mark(arena);
    int64_t *ahead = MCP_ARRAY(arena, nodes_of(grid), int64_t);
    mcp_grid_worst_ahead(grid, weights, after, ahead);
    int64_t bottleneck = ahead[nodes_of(grid) - 1];
    mcp_arena_rewind(arena, mark);
    return bottleneck;
}

bool mcp_grid_chain(struct mcp_arena *arena, const struct mcp_grid *grid, const int64_t *weights,
                    const struct mcp_limit *limit, const struct mcp_column **chain)
{
    struct mcp_mark mark = mcp_arena_mark(arena);
    int64_t *behind = MCP_ARRAY(arena, nodes_of(grid), int64_t);
    behind_within(grid, weights, limit, behind);
    bool found = behind[0] < MCP_NO_WAY;
    for (int r = 0, x = 0; found && r < grid->p; r++) {
        const int64_t *next = row_of(grid, behind, r + 1);
        int64_t want = row_of(grid, behind, r)[x];
        for (int i = grid->first[r]; i < grid->first[r + 1]; i++) {
            const struct mcp_column *column = &grid->columns[i];
            if (weights[i] >= MCP_NO_WAY || x < column->from || x > last_place(grid, column) ||
                !within(grid, limit, i, x) || next[x + column->size] + weights[i] != want)
                continue;
            chain[r] = column;
            x += column->size;
            break;
        }
    }
    mcp_arena_rewind(arena, mark);
    return found;
}
