/* tests/exec/ranks_places.c: each rank on a core of its own where there are enough. */
#include "tests/exec/ranks_places.h"

#include "exec/cpu_binding.h"
#include "topologies/hwloc.h"

static bool is_misplaced(const struct mcp_host_cores *before, const struct mcp_host_cores *after,
                         int ranks, int place, const char *note)
{
    if (ranks == 1 || before->count < ranks) /* all cores, and why where ranks take turns */
        return after->count != before->count || (note == NULL) != (before->count >= ranks);
    return note != NULL || after->count != 1 ||
           after->numbers[0] != before->numbers[place * (before->count / ranks)];
}

int misplaced_ranks(struct mcp_cpu_world *world)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_host_cores before, after;
    struct mcp_plan plan = mcp_plan_default();
    const char *note;
    plan.data_parallel = mcp_cpu_world_size(world);
    CHECK(mcp_host_cores(arena, &before, &err));
    CHECK(mcp_cpu_bind(arena, world, &plan, &note, &err));
    CHECK(mcp_host_cores(arena, &after, &err));
    double wrong =
        is_misplaced(&before, &after, plan.data_parallel, mcp_cpu_world_rank(world), note);
    CHECK(mcp_host_bind(&before, 0, before.count, &err));
    CHECK(mcp_cpu_world_agree(world, &wrong, 1, '+', &err));
    mcp_arena_free(arena);
    return (int)wrong;
}
