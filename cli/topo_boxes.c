/* cli/topo_boxes.c: a pool of a cluster as boxes: tiers, nodes, GPUs. */
#include "cli/topo_picture.h"
#include "core/text.h"
#include "core/units.h"

#include <math.h>

enum { MOST_CHIPS = 8, CHIPS_OF_MANY = 4, MOST_DRAWN = 2 };

/* Within a node there is no room for more than the rate. */
static const char *describe_link(struct mcp_arena *arena, const struct mcp_cluster *pool,
                                 const struct mcp_tier *tier)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add(&text, "%s ", mcp_part_name(arena, tier->name));
    if (isnan(tier->bandwidth_bytes_per_s))
        mcp_text_add(&text, "bandwidth unknown");
    else
        mcp_text_add(&text, "%s",
                     mcp_show(arena, tier->bandwidth_bytes_per_s, MCP_BYTES_PER_SECOND));
    if (tier->ranks <= pool->gpus_per_node && tier->ranks < mcp_pool_gpus(pool))
        return text.data;
    mcp_text_add(&text, " a GPU, %.0f %% reached, %s", 100 * tier->efficiency_frac,
                 mcp_show(arena, tier->latency_s, MCP_SECONDS));
    if (tier->round_trip_s > 0)
        mcp_text_add(&text, ", round trip %s", mcp_show(arena, tier->round_trip_s, MCP_SECONDS));
    return text.data;
}

static const char *show_nodes(struct mcp_arena *arena, int nodes)
{
    return mcp_format(arena, "%s node%s", mcp_show_integer(arena, nodes), nodes == 1 ? "" : "s");
}

static const char *title_of(struct mcp_arena *arena, const struct mcp_cluster *pool, int tier)
{
    int ranks = pool->tiers[tier].ranks, node = pool->gpus_per_node;
    if (ranks == mcp_pool_gpus(pool))
        return mcp_format(arena, "%s: %s of %d x %s", mcp_part_name(arena, pool->name),
                          show_nodes(arena, pool->num_nodes), node,
                          mcp_part_name(arena, pool->gpu.name));
    if (ranks == node)
        return "node";
    if (ranks > node)
        return show_nodes(arena, ranks / node);
    return mcp_format(arena, "%d GPUs", ranks);
}

static void add_more(struct mcp_arena *arena, struct mcp_part *part, int count)
{
    if (count > 0)
        mcp_part_add(part,
                     mcp_part_new(arena, MCP_PART_MORE,
                                  mcp_format(arena, "+ %s equal", mcp_show_integer(arena, count))));
}

/* GPUs of a domain, from rank `first`. */
static void add_gpus(struct mcp_arena *arena, struct mcp_part *part, int first, int count)
{
    int drawn = count <= MOST_CHIPS ? count : CHIPS_OF_MANY;
    for (int i = 0; i < drawn; i++)
        mcp_part_add(part,
                     mcp_part_new(arena, MCP_PART_GPU, mcp_format(arena, "GPU%d", first + i)));
    add_more(arena, part, count - drawn);
}

/* The domain of `tier` that begins at rank `first`; a tier that joins but one domain is
 * passed over. */
static struct mcp_part *domain(struct mcp_arena *arena, const struct mcp_cluster *pool, int tier,
                               int first)
{
    int below = tier > 0 ? pool->tiers[tier - 1].ranks : 1;
    int count = pool->tiers[tier].ranks / below;
    if (count == 1 && tier > 0)
        return domain(arena, pool, tier - 1, first);
    struct mcp_part *part = mcp_part_new(arena, MCP_PART_BOX, title_of(arena, pool, tier));
    part->bus = describe_link(arena, pool, &pool->tiers[tier]);
    if (below == 1) {
        add_gpus(arena, part, first, count);
        return part;
    }
    int drawn = count <= MOST_DRAWN && pool->tiers[tier].ranks <= pool->gpus_per_node ? count : 1;
    for (int i = 0; i < drawn; i++)
        mcp_part_add(part, domain(arena, pool, tier - 1, first + i * below));
    add_more(arena, part, count - drawn);
    return part;
}

static double best_rate(const struct mcp_gpu *gpu, const char **name)
{
    static const enum mcp_precision order[] = {MCP_PRECISION_BF16, MCP_PRECISION_FP16,
                                               MCP_PRECISION_FP32};
    for (size_t i = 0; i < MCP_COUNT_OF(order); i++) {
        *name = mcp_precision_names[order[i]];
        if (!isnan(gpu->peak_flops_per_s[order[i]]))
            return gpu->peak_flops_per_s[order[i]];
    }
    return (double)NAN;
}

struct mcp_part *mcp_picture_cluster(struct mcp_arena *arena, const struct mcp_cluster *pool)
{
    const char *precision;
    double rate = best_rate(&pool->gpu, &precision);
    struct mcp_part *part = domain(arena, pool, pool->num_tiers - 1, 0);
    struct mcp_text detail = mcp_text_new(arena);
    mcp_text_add(&detail, "%s GPU%s, each %s", mcp_show_integer(arena, mcp_pool_gpus(pool)),
                 mcp_pool_gpus(pool) == 1 ? "" : "s",
                 mcp_show(arena, (double)pool->gpu.memory_bytes, MCP_BYTES));
    if (!isnan(rate))
        mcp_text_add(&detail, ", %s %s", mcp_show(arena, rate, MCP_FLOPS_PER_SECOND), precision);
    part->detail = detail.data;
    return part;
}
