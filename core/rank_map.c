/* core/rank_map.c: ranks on GPUs in any order, and the groups that lie worst. */
#include "core/rank_map.h"

#include "core/mesh.h"

#include <string.h>

/* splitmix64 (Steele, Lea & Flood 2014) */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int *mcp_rank_map_scrambled(struct mcp_arena *arena, int world, int unit, uint64_t seed)
{
    int units = world / unit;
    int *order = MCP_ARRAY(arena, units, int), *gpu_of_rank = MCP_ARRAY(arena, world, int);
    for (int i = 0; i < units; i++)
        order[i] = i;
    for (int i = units - 1; i > 0; i--) { /* Fisher & Yates */
        int other = (int)(next_random(&seed) % (uint64_t)(i + 1)), last = order[i];
        order[i] = order[other];
        order[other] = last;
    }
    for (int rank = 0; rank < world; rank++)
        gpu_of_rank[rank] = order[rank / unit] * unit + rank % unit;
    return gpu_of_rank;
}

/* rank_on[gpu], from -1 on each. */
static enum mcp_status invert(int world, const int *gpu_of_rank, int *rank_on,
                              struct mcp_error *err)
{
    for (int gpu = 0; gpu < world; gpu++)
        rank_on[gpu] = -1;
    for (int r = 0; r < world; r++) {
        int gpu = gpu_of_rank[r];
        if (gpu < 0 || gpu >= world)
            return mcp_fail(err, MCP_INVALID, "rank %d lies on GPU %d; the plan's are 0 to %d", r,
                            gpu, world - 1);
        if (rank_on[gpu] >= 0)
            return mcp_fail(err, MCP_INVALID, "ranks %d and %d both lie on GPU %d", rank_on[gpu], r,
                            gpu);
        rank_on[gpu] = r;
    }
    return MCP_OK;
}

/* FNV-1a */
static uint32_t id_of(int world, const int *gpu_of_rank)
{
    uint32_t h = 2166136261u;
    for (int i = 0; i < world; i++)
        h = (h ^ (uint32_t)gpu_of_rank[i]) * 16777619u;
    return h | 3u; /* not 0, halved neither */
}

static int least_members(const struct mcp_plan *plan, unsigned axes, int domain)
{
    const struct mcp_rank_map *map = plan->rank_map;
    int size = mcp_group_size(plan, axes), least = size;
    if (domain >= map->world || size == 1)
        return size;
    if (size == map->world)
        return domain; /* domains are equally full */
    for (int rank = 0; rank < map->world && least > 1; rank++) {
        int beside = mcp_group_beside(plan, axes, rank, domain);
        least = beside < least ? beside : least;
    }
    return least;
}

/* Those over which plans send. */
static const unsigned axis_sets[] = {MCP_TENSOR,
                                     MCP_CONTEXT,
                                     MCP_DATA,
                                     (unsigned)MCP_DATA | MCP_CONTEXT,
                                     MCP_PIPELINE,
                                     MCP_EXPERT,
                                     MCP_EXPERT_DATA,
                                     MCP_ENDS,
                                     (unsigned)MCP_TENSOR | MCP_CONTEXT | MCP_DATA | MCP_PIPELINE};

/* Room to look at every group of a kind once. */
struct census {
    int *members; /* [world] of the group at hand */
    int *present; /* [world] of them, in each domain; 0 between groups */
    bool *seen;   /* [world] ranks whose group has been looked at */
};

static int census_of(const struct mcp_plan *plan, unsigned axes, int domain, struct census *c)
{
    const struct mcp_rank_map *map = plan->rank_map;
    int least = mcp_group_size(plan, axes);
    memset(c->seen, 0, (size_t)map->world * sizeof *c->seen);
    for (int rank = 0; rank < map->world; rank++) {
        if (c->seen[rank])
            continue;
        int count = mcp_group_members(plan, axes, rank, c->members);
        for (int i = 0; i < count; i++) {
            c->seen[c->members[i]] = true;
            c->present[map->gpu_of_rank[c->members[i]] / domain]++;
        }
        for (int i = 0; i < count; i++) {
            int *present = &c->present[map->gpu_of_rank[c->members[i]] / domain];
            least = *present > 0 && *present < least ? *present : least;
        }
        for (int i = 0; i < count; i++)
            c->present[map->gpu_of_rank[c->members[i]] / domain] = 0;
    }
    return least;
}

static void fill(struct mcp_arena *arena, const struct mcp_plan *plan, struct mcp_rank_map *map,
                 const struct mcp_cluster *cluster)
{
    struct mcp_mark mark = mcp_arena_mark(arena);
    struct census census = {MCP_ARRAY(arena, map->world, int), MCP_ARRAY(arena, map->world, int),
                            MCP_ARRAY(arena, map->world, bool)};
    for (int tier = 0; tier < cluster->num_tiers; tier++) {
        int domain = cluster->tiers[tier].ranks;
        for (size_t i = 0; i < sizeof axis_sets / sizeof *axis_sets; i++)
            map->least[tier][axis_sets[i]] = census_of(plan, axis_sets[i], domain, &census);
        map->domains[map->num_domains++] = domain;
    }
    mcp_arena_rewind(arena, mark);
}

enum mcp_status mcp_plan_place(struct mcp_arena *arena, struct mcp_plan *plan,
                               const struct mcp_cluster *cluster, const int *gpu_of_rank,
                               struct mcp_error *err)
{
    int world = mcp_plan_world(plan);
    int *rank_on_gpu = MCP_ARRAY(arena, world, int);
    MCP_TRY(invert(world, gpu_of_rank, rank_on_gpu, err));
    struct mcp_rank_map *map = MCP_NEW(arena, struct mcp_rank_map);
    *map = (struct mcp_rank_map){.world = world,
                                 .gpu_of_rank = gpu_of_rank,
                                 .rank_on_gpu = rank_on_gpu,
                                 .id = id_of(world, gpu_of_rank)};
    plan->rank_map = map;
    if (cluster != NULL)
        fill(arena, plan, map, cluster);
    return MCP_OK;
}

enum mcp_status mcp_rank_map_from_json(struct mcp_arena *arena, struct mcp_json *file,
                                       struct mcp_plan *plan, struct mcp_error *err)
{
    struct mcp_json *list;
    struct mcp_error why;
    if (!mcp_json_has(file, "gpu_of_rank"))
        return MCP_OK;
    MCP_TRY(mcp_json_array(file, "gpu_of_rank", &list, err));
    size_t count = mcp_json_count(list);
    if (count != (size_t)mcp_plan_world(plan))
        mcp_json_fail(list, err, "%zu GPUs for the plan's %d ranks", count, mcp_plan_world(plan));
    if (count != (size_t)mcp_plan_world(plan))
        return MCP_INVALID;
    int *gpu_of_rank = MCP_ARRAY(arena, count, int);
    for (size_t i = 0; i < count; i++)
        MCP_TRY(mcp_json_as_int(mcp_json_at(list, i), &gpu_of_rank[i], err));
    if (mcp_plan_place(arena, plan, NULL, gpu_of_rank, &why) == MCP_OK)
        return MCP_OK;
    mcp_json_fail(list, err, "%s", why.text);
    return MCP_INVALID;
}

void mcp_rank_map_to_json(const struct mcp_plan *plan, struct mcp_json *object)
{
    if (plan->rank_map == NULL)
        return;
    struct mcp_json *list = mcp_json_set_array(object, "gpu_of_rank");
    for (int r = 0; r < plan->rank_map->world; r++)
        mcp_json_add_int(list, plan->rank_map->gpu_of_rank[r]);
}

int mcp_rank_map_in_domain(const struct mcp_plan *plan, unsigned axes, int domain)
{
    const struct mcp_rank_map *map = plan->rank_map;
    for (int i = 0; i < map->num_domains; i++)
        if (map->domains[i] == domain && map->least[i][axes] > 0)
            return map->least[i][axes];
    return least_members(plan, axes, domain);
}

bool mcp_rank_map_stages_meet(const struct mcp_plan *plan, int a, int b, int domain)
{
    const struct mcp_rank_map *map = plan->rank_map;
    for (int rank = 0; rank < map->world; rank++) {
        struct mcp_coordinate at = mcp_mesh_coordinate(plan, rank);
        if (at.pipeline != a)
            continue;
        at.pipeline = b;
        int peer = mcp_mesh_rank(plan, at);
        if (map->gpu_of_rank[rank] / domain != map->gpu_of_rank[peer] / domain)
            return false;
    }
    return true;
}
