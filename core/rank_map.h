/* core/rank_map.h: which GPU each rank lies on, where that is not its own number.
 *
 * Plans are laid out so that ranks fill the GPUs in rank order: neighbours in a group then
 * share the fastest links. A launcher that knows nothing of this hands out ranks as they come.
 * A rank map says so: of every set of axes it knows the group that lies worst, which sets the
 * pace for all. */
#ifndef MCP_CORE_RANK_MAP_H
#define MCP_CORE_RANK_MAP_H

#include "core/cluster.h"
#include "core/plan.h"

struct mcp_rank_map {
    int world;
    const int *gpu_of_rank; /* [world], each GPU once */
    const int *rank_on_gpu; /* its inverse */
    uint32_t id;            /* of its contents, for caches: not 0 */
    int num_domains;
    int domains[MCP_MAX_TIERS]; /* GPUs: those of the cluster's tiers */
    /* members of a group over the axes in one of the domains that it meets: of the group
     * and the domain with the fewest; 0: not counted yet */
    int least[MCP_MAX_TIERS][MCP_NUM_AXIS_SETS];
};

/* The GPUs of `world` ranks in an order drawn from `seed`, `unit` of them (a node's; it
 * divides `world`) as they are: what a launcher makes of nodes that come in any order. */
int *mcp_rank_map_scrambled(struct mcp_arena *arena, int world, int unit, uint64_t seed);

/* Puts rank r of the plan on GPU gpu_of_rank[r]. `cluster` may be NULL, where it is not known
 * yet: groups are then counted when they are asked for, which is slow. MCP_INVALID, naming the
 * rank, unless every GPU of the plan's world is there once. */
enum mcp_status mcp_plan_place(struct mcp_arena *arena, struct mcp_plan *plan,
                               const struct mcp_cluster *cluster, const int *gpu_of_rank,
                               struct mcp_error *err);

/* The key gpu_of_rank of plan.json, absent where ranks lie on their own numbers. */
enum mcp_status mcp_rank_map_from_json(struct mcp_arena *arena, struct mcp_json *file,
                                       struct mcp_plan *plan, struct mcp_error *err);
void mcp_rank_map_to_json(const struct mcp_plan *plan, struct mcp_json *object);

/* mcp_group_in_domain() of a plan with a rank map. */
int mcp_rank_map_in_domain(const struct mcp_plan *plan, unsigned axes, int domain);
/* Do all ranks of stage a share a domain with their peers of stage b? */
bool mcp_rank_map_stages_meet(const struct mcp_plan *plan, int a, int b, int domain);

#endif
