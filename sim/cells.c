/* sim/cells.c: connected components of the groups that meet within slots. */
#include "sim/cells.h"

#include "core/mesh.h"

#include <assert.h>

int mcp_sim_rank_on(const struct mcp_plan *plan, int rank, int stages)
{
    struct mcp_coordinate at = mcp_mesh_coordinate(plan, rank);
    at.pipeline = (at.pipeline + stages) % plan->pipeline_parallel;
    return mcp_mesh_rank(plan, at);
}

/* The smallest rank of its component so far; paths are halved on the way. */
static int root_of(int *parent, int rank)
{
    while (parent[rank] != rank) {
        parent[rank] = parent[parent[rank]];
        rank = parent[rank];
    }
    return rank;
}

static void join_group(int *parent, const int *members, int count)
{
    for (int i = 1; i < count; i++) {
        int a = root_of(parent, members[0]), b = root_of(parent, members[i]);
        parent[a < b ? b : a] = a < b ? a : b;
    }
}

static void join_groups(struct mcp_arena *arena, const struct mcp_plan *plan, unsigned axes,
                        int *parent)
{
    int world = mcp_plan_world(plan), size = mcp_group_size(plan, axes);
    struct mcp_mark mark = mcp_arena_mark(arena);
    int *members = MCP_ARRAY(arena, size, int);
    for (int rank = 0; size > 1 && rank < world; rank++) {
        if (mcp_mesh_coordinate(plan, rank).pipeline != 0)
            continue;
        int count = mcp_group_members(plan, axes, rank, members);
        if (members[0] == rank) /* each group once */
            join_group(parent, members, count);
    }
    mcp_arena_rewind(arena, mark);
}

static void list_cells(struct mcp_arena *arena, const struct mcp_plan *plan, int *parent,
                       struct mcp_sim_cells *cells)
{
    int world = mcp_plan_world(plan), plane = world / plan->pipeline_parallel, count = 0;
    int *cell_of = MCP_ARRAY(arena, world, int), *filled = MCP_ARRAY(arena, plane + 1, int);
    cells->first = MCP_ARRAY(arena, plane + 1, int);
    cells->members = MCP_ARRAY(arena, plane, int);
    for (int rank = 0; rank < world; rank++) {
        if (mcp_mesh_coordinate(plan, rank).pipeline != 0)
            continue;
        int root = root_of(parent, rank);
        if (root == rank)
            cell_of[rank] = cells->num_cells++;
        cells->first[cell_of[root] + 1]++;
    }
    for (int i = 0; i < cells->num_cells; i++)
        cells->first[i + 1] += cells->first[i];
    for (int rank = 0; rank < world; rank++) {
        if (mcp_mesh_coordinate(plan, rank).pipeline != 0)
            continue;
        int cell = cell_of[root_of(parent, rank)];
        cells->members[cells->first[cell] + filled[cell]++] = rank;
        count++;
    }
    assert(count == plane);
}

struct mcp_sim_cells mcp_sim_cells_of(struct mcp_arena *arena, const struct mcp_plan *plan)
{
    struct mcp_sim_cells cells = {0};
    int world = mcp_plan_world(plan);
    int *parent = MCP_ARRAY(arena, world, int);
    for (int i = 0; i < world; i++)
        parent[i] = i;
    join_groups(arena, plan, (unsigned)MCP_TENSOR | MCP_CONTEXT, parent);
    if (plan->expert_parallel > 1)
        join_groups(arena, plan, MCP_EXPERT, parent);
    if (plan->zero_stage >= 2)
        join_groups(arena, plan, MCP_DATA, parent);
    list_cells(arena, plan, parent, &cells);
    return cells;
}
