/* core/mesh.h: where ranks sit: coordinates, groups, and how many members of a
 * group share a domain of links. */
#ifndef MCP_CORE_MESH_H
#define MCP_CORE_MESH_H

#include "core/cluster.h"
#include "core/plan.h"

#include <stdbool.h>

struct mcp_coordinate {
    int tensor, context, data, pipeline;
};

struct mcp_coordinate mcp_mesh_coordinate(const struct mcp_plan *plan, int rank);
int mcp_mesh_rank(const struct mcp_plan *plan, struct mcp_coordinate at);
/* Has every rank the same place in both plans, and groups of the same ranks? */
bool mcp_mesh_is_same(const struct mcp_plan *a, const struct mcp_plan *b);
/* Of the rank that lies on the GPU: the GPU's number, but for plans with a rank map. */
struct mcp_coordinate mcp_mesh_coordinate_on(const struct mcp_plan *plan, int gpu);

/* Ranks in a group over `axes` (an or of enum mcp_axis). */
int mcp_group_size(const struct mcp_plan *plan, unsigned axes);
/* Members of such a group among `domain` consecutive aligned GPUs; at least 1. Under a
 * rank map groups lie differently: that of the worst. */
int mcp_group_in_domain(const struct mcp_plan *plan, unsigned axes, int domain);
/* Of `rank`'s group, those that share its domain under the plan's rank map, itself too. */
int mcp_group_beside(const struct mcp_plan *plan, unsigned axes, int rank, int domain);
/* Do stages a and b of every pipeline share a domain of that many GPUs? */
bool mcp_stages_in_domain(const struct mcp_plan *plan, int a, int b, int domain);
/* The members of `rank`'s group over `axes`, ascending along the axes; returns
 * their number, at most mcp_group_size(). `members` has room for it. */
int mcp_group_members(const struct mcp_plan *plan, unsigned axes, int rank, int *members);
/* Where `rank` is among them; -1: in the middle of the pipeline, for MCP_ENDS. */
int mcp_group_index(const struct mcp_plan *plan, unsigned axes, int rank);

#endif
