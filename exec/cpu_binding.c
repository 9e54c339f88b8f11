/* exec/cpu_binding.c: a rank's share of its machine's cores. */
#include "exec/cpu_binding.h"

#include "core/rank_map.h"
#include "core/text.h"
#include "topologies/binding.h"

#include <omp.h>
#include <stdlib.h>

static int place_of(const struct mcp_plan *plan, int rank)
{
    return plan->rank_map != NULL ? plan->rank_map->gpu_of_rank[rank] : rank;
}

/* What tells sets of cores apart, in 53 bits: FNV-1a. */
static double mark_of(const struct mcp_host_cores *cores)
{
    uint64_t mark = 14695981039346656037u;
    for (int i = 0; i < cores->count; i++)
        mark = (mark ^ (uint64_t)cores->numbers[i]) * 1099511628211u;
    return (double)(mark >> 11);
}

struct beside {       /* the ranks of this machine */
    int count, index; /* how many, and which of them this one is, by places */
    bool alike;       /* all may use the same cores */
};

static struct beside look_around(const struct mcp_cpu_world *world, const struct mcp_plan *plan,
                                 const double *marks)
{
    const int own = mcp_cpu_world_rank(world);
    struct beside out = {0, 0, true};
    for (int r = 0; r < mcp_cpu_world_size(world); r++) {
        if (!mcp_cpu_world_is_beside(world, r))
            continue;
        out.count++;
        out.index += place_of(plan, r) < place_of(plan, own);
        out.alike = out.alike && marks[r] == marks[own];
    }
    return out;
}

static enum mcp_status bind(struct mcp_arena *arena, const struct mcp_host_cores *cores,
                            const struct beside *beside, const char **note, struct mcp_error *err)
{
    const int ranks = beside->alike ? beside->count : 1;
    if (getenv("OMP_NUM_THREADS") == NULL)
        omp_set_num_threads(mcp_binding_threads(cores->count, ranks));
    const int threads = omp_get_max_threads();
    const struct mcp_binding own = mcp_binding_of(cores->count, ranks, threads, beside->index);
    *note = mcp_binding_lack(arena, cores, ranks, threads);
    if (beside->count == 1 || !beside->alike || own.count == 0)
        return MCP_OK; /* nobody to part from, or parted already */
    return mcp_host_bind(cores, own.first, own.count, err);
}

enum mcp_status mcp_cpu_bind(struct mcp_arena *arena, struct mcp_cpu_world *world,
                             const struct mcp_plan *plan, const char **note, struct mcp_error *err)
{
    struct mcp_host_cores cores = {0};
    struct mcp_error why = {""};
    double *marks = MCP_ARRAY(arena, mcp_cpu_world_size(world), double);
    enum mcp_status status = mcp_host_cores(arena, &cores, &why);
    marks[mcp_cpu_world_rank(world)] = mark_of(&cores);
    *note = NULL;
    MCP_TRY(mcp_cpu_world_agree(world, marks, mcp_cpu_world_size(world), '+', err));
    if (status == MCP_OK) {
        const struct beside beside = look_around(world, plan, marks);
        status = bind(arena, &cores, &beside, note, &why);
    }
    if (status != MCP_OK)
        *note = mcp_format(arena, "ranks are not bound to cores: %s", why.text);
    return MCP_OK;
}
