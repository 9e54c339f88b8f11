/* core/mesh.h: where ranks sit: coordinates, groups, and how many members of a
 * group share a domain of links. */
#ifndef MCP_CORE_MESH_H
#define MCP_CORE_MESH_H

#include "core/cluster.h"
#include "core/plan.h"

struct mcp_coordinate {
    int tensor, context, data, pipeline;
};

struct mcp_coordinate mcp_mesh_coordinate(const struct mcp_plan *plan, int rank);
int mcp_mesh_rank(const struct mcp_plan *plan, struct mcp_coordinate at);

/* Ranks in a group over `axes` (an or of enum mcp_axis). */
int mcp_group_size(const struct mcp_plan *plan, unsigned axes);
/* Members of such a group among `domain` consecutive aligned ranks; at least 1. */
int mcp_group_in_domain(const struct mcp_plan *plan, unsigned axes, int domain);
/* The members of `rank`'s group over `axes`, ascending along the axes; returns
 * their number, at most mcp_group_size(). `members` has room for it. */
int mcp_group_members(const struct mcp_plan *plan, unsigned axes, int rank, int *members);

#endif
