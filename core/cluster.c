/* core/cluster.c: clusters read, written, checked, and made larger or smaller. */
#include "core/cluster.h"

#include "core/minmax.h"
#include "core/preset.h"
#include "core/text.h"
#include "core/units.h"

#include <math.h>
#include <string.h>

int mcp_pool_gpus(const struct mcp_cluster *pool)
{
    return pool->num_nodes * pool->gpus_per_node;
}

int mcp_cluster_gpus(const struct mcp_cluster *cluster)
{
    int gpus = 0;
    for (; cluster != NULL; cluster = cluster->next)
        gpus += mcp_pool_gpus(cluster);
    return gpus;
}

int mcp_cluster_num_pools(const struct mcp_cluster *cluster)
{
    int pools = 0;
    for (; cluster != NULL; cluster = cluster->next)
        pools++;
    return pools;
}

const struct mcp_cluster *mcp_cluster_pool(const struct mcp_cluster *cluster, int index)
{
    while (index-- > 0)
        cluster = cluster->next;
    return cluster;
}

int mcp_even_part(int total, int full, int unit)
{
    if (full >= total)
        return total;
    for (int parts = (total + full - 1) / full; parts <= total / unit; parts++)
        if (total % parts == 0 && (total / parts) % unit == 0)
            return total / parts;
    return unit;
}

/* Sets every tier's `ranks` from its `full_ranks` and the size of the cluster. */
static void fit_tiers(struct mcp_cluster *cluster)
{
    int total = mcp_pool_gpus(cluster), node = cluster->gpus_per_node, unit = 1;
    for (int k = 0; k < cluster->num_tiers; k++) {
        struct mcp_tier *tier = &cluster->tiers[k];
        if (k == cluster->num_tiers - 1)
            tier->ranks = total;
        else if (tier->full_ranks <= node)
            tier->ranks = mcp_even_part(node, tier->full_ranks, unit);
        else
            tier->ranks = mcp_even_part(total, tier->full_ranks, unit > node ? unit : node);
        unit = tier->ranks;
    }
}

/* The last tier can join more nodes only when it has no limit and those below cover
 * a whole node. */
static bool has_network(const struct mcp_cluster *cluster)
{
    int below = cluster->num_tiers > 1 ? cluster->tiers[cluster->num_tiers - 2].full_ranks : 1;
    return below >= cluster->gpus_per_node && cluster->num_tiers > 0 &&
           cluster->tiers[cluster->num_tiers - 1].full_ranks == 0;
}

static enum mcp_status check_single(const struct mcp_cluster *cluster, struct mcp_error *err)
{
    if (cluster->next == NULL)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "cluster %s + %s: machines of several kinds are used whole; give each its "
                    "number of nodes",
                    cluster->name, cluster->next->name);
}

static enum mcp_status check_size(const struct mcp_cluster *cluster, int num_nodes,
                                  struct mcp_error *err)
{
    if (num_nodes < 1 || cluster->gpus_per_node < 1)
        return mcp_fail(err, MCP_INVALID,
                        "cluster %s: num_nodes=%d and gpus_per_node=%d must be at least 1",
                        cluster->name, num_nodes, cluster->gpus_per_node);
    if ((int64_t)num_nodes * cluster->gpus_per_node > MCP_MAX_GPUS)
        return mcp_fail(err, MCP_INVALID,
                        "cluster %s: %d nodes of %d GPUs are more than %d GPUs; at most %d nodes",
                        cluster->name, num_nodes, cluster->gpus_per_node, MCP_MAX_GPUS,
                        MCP_MAX_GPUS / cluster->gpus_per_node);
    if (num_nodes > 1 && !has_network(cluster))
        return mcp_fail(err, MCP_INVALID,
                        "cluster %s: num_nodes=%d but no tier joins nodes of %d GPUs; add one or "
                        "take 1 node",
                        cluster->name, num_nodes, cluster->gpus_per_node);
    return MCP_OK;
}

enum mcp_status mcp_cluster_resize(struct mcp_cluster *cluster, int num_nodes,
                                   struct mcp_error *err)
{
    MCP_TRY(check_single(cluster, err));
    MCP_TRY(check_size(cluster, num_nodes, err));
    cluster->num_nodes = num_nodes;
    fit_tiers(cluster);
    return MCP_OK;
}

/* Nodes that share `gpus` equally with more than half of each in use; 0: none. */
static int nodes_for(const struct mcp_cluster *cluster, int gpus)
{
    int size = cluster->gpus_per_node;
    if (gpus <= size)
        return 1;
    for (int nodes = (gpus - 1) / size + 1; gpus / nodes > size / 2; nodes++)
        if (gpus % nodes == 0)
            return nodes;
    return 0;
}

static enum mcp_status no_equal_parts(const struct mcp_cluster *cluster, int gpus,
                                      struct mcp_error *err)
{
    int below = gpus / cluster->gpus_per_node * cluster->gpus_per_node;
    return mcp_fail(
        err, MCP_INVALID,
        "%d GPUs are no equal parts of nodes of %d in cluster %s; nearest are %d and %d", gpus,
        cluster->gpus_per_node, cluster->name, below, below + cluster->gpus_per_node);
}

/* Tiers that span whole nodes shrink with them. */
static void shrink_nodes(struct mcp_cluster *cluster, int gpus_per_node)
{
    for (int k = 0; k < cluster->num_tiers - 1; k++) {
        struct mcp_tier *tier = &cluster->tiers[k];
        int nodes = tier->full_ranks / cluster->gpus_per_node;
        tier->full_ranks =
            nodes > 0 ? nodes * gpus_per_node : mcp_min_int(tier->full_ranks, gpus_per_node);
    }
    cluster->gpus_per_node = gpus_per_node;
}

enum mcp_status mcp_cluster_take(struct mcp_cluster *cluster, int gpus, struct mcp_error *err)
{
    int nodes, total = mcp_pool_gpus(cluster);
    if (cluster->next != NULL && gpus == mcp_cluster_gpus(cluster))
        return MCP_OK;
    MCP_TRY(check_single(cluster, err));
    if (gpus < 1 || gpus > total)
        return mcp_fail(err, MCP_INVALID, "%d GPUs of cluster %s, which has %d in %d node%s of %d",
                        gpus, cluster->name, total, cluster->num_nodes,
                        cluster->num_nodes == 1 ? "" : "s", cluster->gpus_per_node);
    nodes = nodes_for(cluster, gpus);
    if (nodes == 0 || nodes > cluster->num_nodes)
        return no_equal_parts(cluster, gpus, err);
    shrink_nodes(cluster, gpus / nodes);
    cluster->num_nodes = nodes;
    fit_tiers(cluster);
    return MCP_OK;
}

enum mcp_status mcp_cluster_set_gpus(struct mcp_cluster *cluster, int gpus, struct mcp_error *err)
{
    struct mcp_cluster resized = *cluster;
    int nodes;
    if (cluster->next != NULL)
        return mcp_cluster_take(cluster, gpus, err);
    if (gpus < 1 || gpus > MCP_MAX_GPUS)
        return mcp_fail(err, MCP_INVALID, "%d GPUs: a cluster has 1 to %d", gpus, MCP_MAX_GPUS);
    nodes = nodes_for(cluster, gpus);
    if (nodes == 0)
        return no_equal_parts(cluster, gpus, err);
    MCP_TRY(mcp_cluster_resize(&resized, nodes, err));
    MCP_TRY(mcp_cluster_take(&resized, gpus, err));
    *cluster = resized;
    return MCP_OK;
}

static enum mcp_status read_tier(struct mcp_json *json, struct mcp_tier *tier,
                                 struct mcp_error *err)
{
    *tier = (struct mcp_tier){.bandwidth_bytes_per_s = (double)NAN, .latency_s = (double)NAN};
    MCP_TRY(mcp_json_string(json, "name", &tier->name, err));
    MCP_TRY(mcp_json_maybe_int(json, "ranks", &tier->full_ranks, err));
    MCP_TRY(mcp_json_maybe_amount(json, "bandwidth_bytes_per_s", MCP_BYTES_PER_SECOND,
                                  &tier->bandwidth_bytes_per_s, err));
    MCP_TRY(mcp_json_double(json, "efficiency_frac", &tier->efficiency_frac, err));
    MCP_TRY(mcp_json_maybe_amount(json, "latency_s", MCP_SECONDS, &tier->latency_s, err));
    MCP_TRY(mcp_json_maybe_amount(json, "round_trip_s", MCP_SECONDS, &tier->round_trip_s, err));
    return mcp_json_has(json, "in_switch_reduction")
               ? mcp_json_bool(json, "in_switch_reduction", &tier->in_switch_reduction, err)
               : MCP_OK;
}

/* The last tier's `ranks` may be left out: it spans the cluster. */
static enum mcp_status read_tiers(struct mcp_json *list, struct mcp_cluster *cluster,
                                  struct mcp_error *err)
{
    size_t count = mcp_json_count(list);
    struct mcp_tier *last;
    if (count < 1 || count > MCP_MAX_TIERS)
        return mcp_json_fail(list, err, "%zu tiers; 1 to %d are understood", count, MCP_MAX_TIERS);
    cluster->num_tiers = (int)count;
    for (size_t k = 0; k < count; k++) {
        struct mcp_json *item = mcp_json_at(list, k);
        MCP_TRY(read_tier(item, &cluster->tiers[k], err));
        if (k + 1 < count && cluster->tiers[k].full_ranks < 1)
            return mcp_json_fail(item, err,
                                 "ranks is missing or 0; only the last tier has no limit");
    }
    last = &cluster->tiers[count - 1];
    if (last->full_ranks != 0 && last->full_ranks != mcp_pool_gpus(cluster))
        return mcp_json_fail(list, err, "the last tier has ranks=%d, but the cluster %d GPUs",
                             last->full_ranks, mcp_pool_gpus(cluster));
    last->full_ranks = 0;
    return MCP_OK;
}

/* Domains nest in nodes, or nodes in domains. */
static enum mcp_status check_nesting(const struct mcp_cluster *cluster, struct mcp_error *err)
{
    int unit = 1;
    for (int k = 0; k + 1 < cluster->num_tiers; k++) {
        const struct mcp_tier *tier = &cluster->tiers[k];
        int node = cluster->gpus_per_node;
        if (tier->full_ranks < 1 ||
            (node % tier->full_ranks != 0 && tier->full_ranks % node != 0) ||
            tier->full_ranks % unit != 0)
            return mcp_fail(
                err, MCP_INVALID,
                "cluster %s: tier %s: ranks=%d does not nest between %d ranks below and "
                "nodes of %d GPUs",
                cluster->name, tier->name, tier->full_ranks, unit, node);
        unit = tier->full_ranks;
    }
    return MCP_OK;
}

/* The GPU: a preset's name, a file, or the object itself. */
static enum mcp_status read_gpu(struct mcp_arena *arena, struct mcp_json *json, struct mcp_gpu *gpu,
                                struct mcp_error *err)
{
    const char *name;
    struct mcp_json *object;
    if (mcp_json_string(json, "gpu", &name, NULL) == MCP_OK)
        return mcp_gpu_load(arena, name, gpu, err);
    MCP_TRY(mcp_json_object(json, "gpu", &object, err));
    return mcp_gpu_from_json(arena, object, gpu, err);
}

static enum mcp_status pool_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                      struct mcp_cluster *out, struct mcp_error *err)
{
    static const char *const schema = "mcpplan.cluster/1";
    struct mcp_cluster cluster = {.num_nodes = 1, .source = ""};
    struct mcp_json *tiers;
    int index;
    if (mcp_json_has(json, "schema"))
        MCP_TRY(mcp_json_choice(json, "schema", &schema, 1, &index, err));
    MCP_TRY(mcp_json_string(json, "name", &cluster.name, err));
    MCP_TRY(read_gpu(arena, json, &cluster.gpu, err));
    MCP_TRY(mcp_json_maybe_int(json, "num_nodes", &cluster.num_nodes, err));
    MCP_TRY(mcp_json_int(json, "gpus_per_node", &cluster.gpus_per_node, err));
    MCP_TRY(mcp_json_array(json, "tiers", &tiers, err));
    if (cluster.num_nodes < 1 || cluster.gpus_per_node < 1 ||
        (int64_t)cluster.num_nodes * cluster.gpus_per_node > MCP_MAX_GPUS)
        return mcp_json_fail(json, err, "num_nodes=%d x gpus_per_node=%d is not 1 to %d GPUs",
                             cluster.num_nodes, cluster.gpus_per_node, MCP_MAX_GPUS);
    MCP_TRY(read_tiers(tiers, &cluster, err));
    MCP_TRY(mcp_json_maybe_string(json, "source", &cluster.source, err));
    MCP_TRY(mcp_json_maybe_string(json, "note", &cluster.note, err));
    MCP_TRY(check_nesting(&cluster, err));
    MCP_TRY(mcp_cluster_resize(&cluster, cluster.num_nodes, err));
    *out = cluster;
    return MCP_OK;
}

enum mcp_status mcp_cluster_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                      struct mcp_cluster *out, struct mcp_error *err)
{
    struct mcp_cluster cluster, *pools = MCP_ARRAY(arena, MCP_MAX_POOLS, struct mcp_cluster);
    struct mcp_json *rest;
    MCP_TRY(pool_from_json(arena, json, &cluster, err));
    *out = cluster;
    if (!mcp_json_has(json, "further_pools"))
        return MCP_OK;
    MCP_TRY(mcp_json_array(json, "further_pools", &rest, err));
    size_t count = mcp_json_count(rest);
    if (count < 1 || count >= MCP_MAX_POOLS)
        return mcp_json_fail(rest, err, "%zu pools; 1 to %d are understood", count,
                             MCP_MAX_POOLS - 1);
    for (size_t i = 0; i < count; i++) {
        MCP_TRY(pool_from_json(arena, mcp_json_at(rest, i), &pools[i], err));
        pools[i].next = i + 1 < count ? &pools[i + 1] : NULL;
    }
    out->next = pools;
    return MCP_OK;
}

static void pool_to_json(const struct mcp_cluster *cluster, struct mcp_json *object)
{
    struct mcp_json *tiers;
    mcp_json_set_string(object, "name", cluster->name);
    mcp_gpu_to_json(&cluster->gpu, mcp_json_set_object(object, "gpu"));
    mcp_json_set_int(object, "num_nodes", cluster->num_nodes);
    mcp_json_set_int(object, "gpus_per_node", cluster->gpus_per_node);
    tiers = mcp_json_set_array(object, "tiers");
    for (int k = 0; k < cluster->num_tiers; k++) {
        const struct mcp_tier *tier = &cluster->tiers[k];
        struct mcp_json *item = mcp_json_add_object(tiers);
        mcp_json_set_string(item, "name", tier->name);
        mcp_json_set_int(item, "ranks",
                         k < cluster->num_tiers - 1 ? tier->full_ranks : tier->ranks);
        mcp_json_set_double(item, "bandwidth_bytes_per_s", tier->bandwidth_bytes_per_s);
        mcp_json_set_double(item, "efficiency_frac", tier->efficiency_frac);
        mcp_json_set_double(item, "latency_s", tier->latency_s);
        mcp_json_set_double(item, "round_trip_s", tier->round_trip_s);
        if (tier->in_switch_reduction)
            mcp_json_set_bool(item, "in_switch_reduction", true);
    }
    mcp_json_set_string(object, "source", cluster->source);
    if (cluster->note != NULL)
        mcp_json_set_string(object, "note", cluster->note);
}

void mcp_cluster_to_json(const struct mcp_cluster *cluster, struct mcp_json *object)
{
    pool_to_json(cluster, object);
    if (cluster->next == NULL)
        return;
    struct mcp_json *rest = mcp_json_set_array(object, "further_pools");
    for (const struct mcp_cluster *pool = cluster->next; pool != NULL; pool = pool->next)
        pool_to_json(pool, mcp_json_add_object(rest));
}

struct bound {
    const char *key;
    double value, low, high;
};

static enum mcp_status check_tier(const struct mcp_cluster *cluster, const struct mcp_tier *tier,
                                  struct mcp_error *err)
{
    const struct bound bounds[] = {
        {"bandwidth_bytes_per_s", tier->bandwidth_bytes_per_s, 1e3, 1e15},
        {"efficiency_frac", tier->efficiency_frac, 0.001, 1},
        {"latency_s", tier->latency_s, 0, 60},
        {"round_trip_s", tier->round_trip_s, 0, 60},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const struct bound *b = &bounds[i];
        if (isnan(b->value))
            return mcp_fail(err, MCP_INVALID, "cluster %s: tier %s: %s is unknown; state it",
                            cluster->name, tier->name, b->key);
        if (!(b->value >= b->low && b->value <= b->high))
            return mcp_fail(err, MCP_INVALID, "cluster %s: tier %s: %s=%g is not between %g and %g",
                            cluster->name, tier->name, b->key, b->value, b->low, b->high);
    }
    return MCP_OK;
}

static enum mcp_status check_pool(const struct mcp_cluster *cluster, struct mcp_error *err)
{
    int unit = 1;
    MCP_TRY(mcp_gpu_check(&cluster->gpu, err));
    if (cluster->num_tiers < 1 || cluster->num_tiers > MCP_MAX_TIERS)
        return mcp_fail(err, MCP_INVALID, "cluster %s: %d tiers; 1 to %d are understood",
                        cluster->name, cluster->num_tiers, MCP_MAX_TIERS);
    MCP_TRY(check_size(cluster, cluster->num_nodes, err));
    for (int k = 0; k < cluster->num_tiers; k++) {
        const struct mcp_tier *tier = &cluster->tiers[k];
        MCP_TRY(check_tier(cluster, tier, err));
        if (tier->ranks < unit || tier->ranks % unit != 0)
            return mcp_fail(err, MCP_INVALID,
                            "cluster %s: tier %s joins %d ranks, no multiple of the %d below",
                            cluster->name, tier->name, tier->ranks, unit);
        unit = tier->ranks;
    }
    if (unit != mcp_pool_gpus(cluster))
        return mcp_fail(err, MCP_INVALID, "cluster %s: the last tier joins %d of %d GPUs",
                        cluster->name, unit, mcp_pool_gpus(cluster));
    return MCP_OK;
}

/* Splits "NAME:NODES"; a colon that no number follows belongs to the name, unless
 * a preset stands before it. */
static enum mcp_status split_nodes(struct mcp_arena *arena, const char *text, const char **name,
                                   int *num_nodes, struct mcp_error *err)
{
    const char *colon = strrchr(text, ':');
    int64_t nodes;
    *name = text;
    *num_nodes = 0;
    if (colon == NULL || colon == text)
        return MCP_OK;
    if (mcp_parse_int64(colon + 1, &nodes)) {
        if (nodes < 1 || nodes > MCP_MAX_GPUS)
            return mcp_fail(err, MCP_INVALID, "%s: %s nodes; write 1 to %d", text, colon + 1,
                            MCP_MAX_GPUS);
        *name = mcp_strndup(arena, text, (size_t)(colon - text));
        *num_nodes = (int)nodes;
        return MCP_OK;
    }
    for (size_t i = 0; i < mcp_preset_count("topologies"); i++) {
        const char *preset = mcp_preset_at("topologies", i)->name;
        if (strlen(preset) == (size_t)(colon - text) && mcp_starts_with(text, preset))
            return mcp_fail(err, MCP_INVALID, "%s: '%s' is no number of nodes; write %s:2", text,
                            colon + 1, preset);
    }
    return MCP_OK;
}

enum mcp_status mcp_cluster_check(const struct mcp_cluster *cluster, struct mcp_error *err)
{
    for (; cluster != NULL; cluster = cluster->next)
        MCP_TRY(check_pool(cluster, err));
    return MCP_OK;
}

static enum mcp_status load_pool(struct mcp_arena *arena, const char *name_or_path,
                                 struct mcp_cluster *out, struct mcp_error *err)
{
    const char *name;
    int num_nodes;
    struct mcp_json *json;
    struct mcp_cluster cluster = {0};
    MCP_TRY(split_nodes(arena, name_or_path, &name, &num_nodes, err));
    MCP_TRY(mcp_preset_read(arena, "topologies", name, &json, err));
    MCP_TRY(mcp_cluster_from_json(arena, json, &cluster, err));
    MCP_TRY(mcp_json_done(json, err));
    if (num_nodes > 0)
        MCP_TRY(mcp_cluster_resize(&cluster, num_nodes, err));
    *out = cluster;
    return MCP_OK;
}

/* A mixed cluster's GPUs as a whole are as limited as any. */
static enum mcp_status join_pools(struct mcp_cluster *pools, int count, struct mcp_error *err)
{
    int64_t gpus = 0;
    for (int i = 0; i < count; i++) {
        MCP_TRY(count > 1 ? check_single(&pools[i], err) : MCP_OK);
        gpus += mcp_pool_gpus(&pools[i]);
        if (i + 1 < count)
            pools[i].next = &pools[i + 1];
    }
    if (gpus > MCP_MAX_GPUS)
        return mcp_fail(err, MCP_INVALID, "cluster %s + ...: more than %d GPUs", pools[0].name,
                        MCP_MAX_GPUS);
    return mcp_cluster_check(&pools[0], err);
}

enum mcp_status mcp_cluster_load(struct mcp_arena *arena, const char *name_or_path,
                                 struct mcp_cluster *out, struct mcp_error *err)
{
    struct mcp_cluster *pools = MCP_ARRAY(arena, MCP_MAX_POOLS, struct mcp_cluster);
    int count = 0;
    for (const char *part = name_or_path, *end; part != NULL; part = *end == '+' ? end + 1 : NULL) {
        end = part + strcspn(part, "+");
        if (count == MCP_MAX_POOLS)
            return mcp_fail(err, MCP_INVALID, "cluster '%s': at most %d kinds of machines",
                            name_or_path, MCP_MAX_POOLS);
        const char *name = mcp_strndup(arena, part, (size_t)(end - part));
        MCP_TRY(load_pool(arena, name, &pools[count++], err));
    }
    MCP_TRY(join_pools(pools, count, err));
    *out = pools[0];
    return MCP_OK;
}
