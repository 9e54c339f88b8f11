/* core/cluster_fabric.c: leaves, rails, groups, tori and sites as tiers. */
#include "core/cluster_fabric.h"

#include "core/text.h"
#include "core/units.h"

#include <math.h>

#define SWITCH_PORTS 64
#define MOST_SWITCH_PORTS 4096
#define FURTHER_SWITCH_S 0.25e-6

const char *const mcp_fabric_names[MCP_NUM_FABRICS] = {"flat", "fat-tree", "rail", "dragonfly",
                                                       "torus"};

/* A cluster whose tiers grow outwards. */
struct build {
    struct mcp_cluster *cluster;
    const struct mcp_fabric *fabric;
    int num_nodes; /* of one site */
    double nic_bytes_per_s;
    double efficiency_frac;
    double first_latency_s;
    bool full; /* there was no room for a tier */
};

static struct mcp_fabric with_defaults(const struct mcp_fabric *fabric)
{
    struct mcp_fabric all = *fabric;
    all.switch_ports = all.switch_ports == 0 ? SWITCH_PORTS : all.switch_ports;
    all.num_sites = all.num_sites == 0 ? 1 : all.num_sites;
    if (!(all.oversubscription < 0) && !(all.oversubscription > 0))
        all.oversubscription = 1;
    return all;
}

enum mcp_status mcp_fabric_parse_torus(const char *text, struct mcp_fabric *fabric,
                                       struct mcp_error *err)
{
    const char *at = text;
    fabric->num_dimensions = 0;
    while (fabric->num_dimensions < MCP_MAX_TORUS_DIMENSIONS) {
        int size = 0;
        for (; *at >= '0' && *at <= '9' && size <= MCP_MAX_GPUS; at++)
            size = 10 * size + (*at - '0');
        if (size < 1 || size > MCP_MAX_GPUS)
            break;
        fabric->torus[fabric->num_dimensions++] = size;
        if (*at == '\0')
            return MCP_OK;
        if (*at++ != 'x')
            break;
    }
    return mcp_fail(err, MCP_USAGE,
                    "'%.40s' is no torus; write the nodes in each of 1 to %d dimensions, as 4x4x8",
                    text, MCP_MAX_TORUS_DIMENSIONS);
}

/* `nodes` is how many nodes one full domain joins; 0: all. */
static void add_tier(struct build *b, const char *name, int nodes, double bandwidth_bytes_per_s,
                     int further_switches)
{
    struct mcp_cluster *cluster = b->cluster;
    const int64_t ranks = (int64_t)nodes * cluster->gpus_per_node;
    b->full = b->full || cluster->num_tiers == MCP_MAX_TIERS;
    if (b->full)
        return;
    cluster->tiers[cluster->num_tiers++] = (struct mcp_tier){
        .name = name,
        .full_ranks = ranks < MCP_MAX_GPUS ? (int)ranks : MCP_MAX_GPUS,
        .bandwidth_bytes_per_s = bandwidth_bytes_per_s,
        .efficiency_frac = b->efficiency_frac,
        .latency_s = b->first_latency_s + further_switches * FURTHER_SWITCH_S,
    };
}

/* The nodes of a site divide into domains of at most `most` nodes where a wide-area
 * network needs whole sites; elsewhere the last domain may be smaller. */
static int domain_nodes(const struct build *b, int64_t most, int unit)
{
    int nodes = most < MCP_MAX_GPUS ? (int)most : MCP_MAX_GPUS;
    return b->fabric->num_sites > 1 ? mcp_even_part(b->num_nodes, nodes, unit) : nodes;
}

static int ports_down(const struct mcp_fabric *fabric)
{
    double s = fabric->oversubscription;
    int down = (int)floor(fabric->switch_ports * s / (1 + s));
    return down < fabric->switch_ports ? down : fabric->switch_ports - 1;
}

static enum mcp_status too_many_nodes(const struct build *b, int64_t most, struct mcp_error *err)
{
    return mcp_fail(err, MCP_INVALID,
                    "a %s of switches with %d ports joins at most %lld nodes of %d GPUs, not %d; "
                    "take more ports",
                    mcp_fabric_names[b->fabric->kind], b->fabric->switch_ports, (long long)most,
                    b->cluster->gpus_per_node, b->num_nodes);
}

/* Leaves of `leaf_nodes` nodes, `leaves` of them side by side for each such domain. */
static enum mcp_status add_tree(struct build *b, const char *name, int leaf_nodes, int leaves,
                                struct mcp_error *err)
{
    const int ports = b->fabric->switch_ports;
    const double up = b->nic_bytes_per_s / b->fabric->oversubscription;
    int64_t two_levels = (int64_t)(ports / leaves) * leaf_nodes;
    int64_t pod = (int64_t)(ports / 2 / leaves) * leaf_nodes;
    int nodes = domain_nodes(b, leaf_nodes, 1);
    add_tier(b, name, nodes, b->nic_bytes_per_s, 0);
    if (b->num_nodes > two_levels && b->num_nodes > leaf_nodes) {
        if (b->num_nodes > pod * ports)
            return too_many_nodes(b, pod * ports > two_levels ? pod * ports : two_levels, err);
        add_tier(b, "spine", domain_nodes(b, pod, nodes), up, 2);
        add_tier(b, "core", 0, up, 4);
    } else {
        add_tier(b, "spine", 0, up, 2);
    }
    return MCP_OK;
}

/* A node that is wider than a leaf takes several. */
static enum mcp_status add_fat_tree(struct build *b, struct mcp_error *err)
{
    int nics = b->cluster->gpus_per_node, down = ports_down(b->fabric);
    int nodes = b->fabric->nodes_per_leaf > 0 ? b->fabric->nodes_per_leaf : down / nics;
    nodes = nodes > 0 ? nodes : 1;
    int64_t leaves = ((int64_t)nodes * nics + down - 1) / down;
    const int64_t most = (int64_t)down * (b->fabric->switch_ports / 2) / nics;
    if (leaves > b->fabric->switch_ports / 2 && b->fabric->nodes_per_leaf > 1)
        return mcp_fail(err, MCP_INVALID,
                        "%d nodes of %d GPUs are more than the leaves that switches with %d ports "
                        "join side by side; at most %lld nodes a leaf",
                        nodes, nics, b->fabric->switch_ports, (long long)most);
    if (leaves > b->fabric->switch_ports / 2)
        return too_many_nodes(b, most, err);
    return add_tree(b, "leaf", nodes, (int)leaves, err);
}

/* Where spines cannot reach all rails, each rail has spines of its own. */
static enum mcp_status add_rails(struct build *b, struct mcp_error *err)
{
    int nodes = b->fabric->nodes_per_leaf, rails = b->cluster->gpus_per_node;
    if (nodes > ports_down(b->fabric))
        return mcp_fail(err, MCP_INVALID,
                        "a rail of %d nodes needs as many ports down, but a switch with %d ports "
                        "has %d",
                        nodes, b->fabric->switch_ports, ports_down(b->fabric));
    nodes = nodes > 0 ? nodes : ports_down(b->fabric);
    bool has_planes = rails > b->fabric->switch_ports / 2;
    return add_tree(b, "rail", nodes, has_planes ? 1 : rails, err);
}

static enum mcp_status add_dragonfly(struct build *b, struct mcp_error *err)
{
    int global = (b->fabric->switch_ports + 1) / 4, switches = 2 * global;
    int nics = b->cluster->gpus_per_node, nodes = b->fabric->nodes_per_leaf;
    if (nodes == 0)
        nodes = global * switches / nics > 0 ? global * switches / nics : 1;
    if ((int64_t)nodes * nics > (int64_t)global * switches)
        return mcp_fail(err, MCP_INVALID,
                        "a dragonfly's group of switches with %d ports joins %d NICs; %d nodes of "
                        "%d GPUs need more ports",
                        b->fabric->switch_ports, global * switches, nodes, nics);
    int64_t most = ((int64_t)switches * global + 1) * nodes;
    if (b->num_nodes > most)
        return too_many_nodes(b, most, err);
    double local = fmin(1, (switches - 1) / (2.0 * global));
    add_tier(b, "group", domain_nodes(b, nodes, 1), b->nic_bytes_per_s * local, 2);
    add_tier(b, "global", 0, b->nic_bytes_per_s / 2 / b->fabric->oversubscription, 4);
    return MCP_OK;
}

static enum mcp_status add_torus(struct build *b, struct mcp_error *err)
{
    static const char *const names[MCP_MAX_TORUS_DIMENSIONS] = {"torus-x", "torus-y", "torus-z"};
    const struct mcp_fabric *fabric = b->fabric;
    int64_t nodes = 1;
    for (int i = 0; i < fabric->num_dimensions; i++)
        nodes *= nodes <= MCP_MAX_GPUS ? fabric->torus[i] : 1;
    if (fabric->num_dimensions == 0 || nodes != b->num_nodes)
        return mcp_fail(err, MCP_INVALID,
                        "a torus needs its dimensions, whose product is the %d nodes%s, as %dx1",
                        b->num_nodes, fabric->num_sites > 1 ? " of a site" : "", b->num_nodes);
    nodes = 1;
    for (int i = 0; i < fabric->num_dimensions; i++) {
        nodes *= fabric->torus[i];
        add_tier(b, names[i], i + 1 < fabric->num_dimensions ? (int)nodes : 0,
                 b->nic_bytes_per_s / fabric->num_dimensions, 0);
    }
    return MCP_OK;
}

static enum mcp_status add_fabric(struct build *b, struct mcp_error *err)
{
    switch (b->fabric->kind) {
    case MCP_FABRIC_FAT_TREE:
        return add_fat_tree(b, err);
    case MCP_FABRIC_RAIL:
        return add_rails(b, err);
    case MCP_FABRIC_DRAGONFLY:
        return add_dragonfly(b, err);
    case MCP_FABRIC_TORUS:
        return add_torus(b, err);
    default:
        add_tier(b, "network", 0, b->nic_bytes_per_s, 0);
        return MCP_OK;
    }
}

/* Whole sites below, all of them above. */
static void add_wan(struct build *b)
{
    struct mcp_cluster *cluster = b->cluster;
    int site_gpus = b->num_nodes * cluster->gpus_per_node;
    if (b->fabric->num_sites == 1)
        return;
    cluster->tiers[cluster->num_tiers - 1].full_ranks = site_gpus;
    add_tier(b, "wan", 0, b->fabric->wan_bytes_per_s / site_gpus, 0);
    cluster->tiers[cluster->num_tiers - 1].round_trip_s = b->fabric->round_trip_s;
}

/* Cuts the cluster down to the tiers of a node; its network's NICs are taken where the
 * fabric names none. */
static void keep_node(struct build *b)
{
    struct mcp_cluster *cluster = b->cluster;
    const struct mcp_tier *network = NULL;
    int below = 1, kept = 0;
    while (kept < cluster->num_tiers && below < cluster->gpus_per_node)
        below = cluster->tiers[kept++].full_ranks;
    if (kept == 0 && cluster->tiers[0].full_ranks == 1)
        kept = 1; /* a node of one GPU has a tier of its own */
    if (kept < cluster->num_tiers)
        network = &cluster->tiers[kept];
    if (network != NULL) {
        if (!(b->nic_bytes_per_s > 0))
            b->nic_bytes_per_s = network->bandwidth_bytes_per_s;
        b->efficiency_frac = network->efficiency_frac;
        b->first_latency_s = network->latency_s;
    }
    if (kept > 0)
        cluster->tiers[kept - 1].full_ranks = cluster->gpus_per_node;
    cluster->num_tiers = kept;
}

static enum mcp_status check_sites(const struct mcp_fabric *fabric, int num_nodes,
                                   struct mcp_error *err)
{
    int sites = fabric->num_sites;
    if (sites < 1 || sites > num_nodes || num_nodes % sites != 0)
        return mcp_fail(err, MCP_INVALID, "%d nodes do not divide into %d equal sites", num_nodes,
                        sites);
    if (sites > 1 && !(fabric->wan_bytes_per_s > 0 && fabric->round_trip_s >= 0))
        return mcp_fail(err, MCP_INVALID,
                        "%d sites need the bandwidth of a site and the round trip between them",
                        sites);
    return MCP_OK;
}

static enum mcp_status check_fabric(const struct mcp_cluster *cluster,
                                    const struct mcp_fabric *fabric, int num_nodes,
                                    struct mcp_error *err)
{
    if (cluster->next != NULL)
        return mcp_fail(err, MCP_INVALID, "a fabric joins nodes of one kind, not %s and %s",
                        cluster->name, cluster->next->name);
    if (num_nodes < 1 || (int64_t)num_nodes * cluster->gpus_per_node > MCP_MAX_GPUS)
        return mcp_fail(err, MCP_INVALID, "%d nodes of %d GPUs are not 1 to %d GPUs", num_nodes,
                        cluster->gpus_per_node, MCP_MAX_GPUS);
    if (!(fabric->oversubscription >= 1 && fabric->oversubscription <= 1000))
        return mcp_fail(err, MCP_INVALID, "an oversubscription of %g is not between 1 and 1000",
                        fabric->oversubscription);
    if (fabric->switch_ports < 4 || fabric->switch_ports > MOST_SWITCH_PORTS)
        return mcp_fail(err, MCP_INVALID, "switches of %d ports are not of 4 to %d",
                        fabric->switch_ports, MOST_SWITCH_PORTS);
    if (fabric->nodes_per_leaf < 0 || fabric->nodes_per_leaf > MCP_MAX_GPUS)
        return mcp_fail(err, MCP_INVALID, "%d nodes under a leaf", fabric->nodes_per_leaf);
    return check_sites(fabric, num_nodes, err);
}

/* The file says what was built. */
static const char *describe(struct mcp_arena *arena, const char *source,
                            const struct mcp_fabric *fabric)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add(&text, "%s%sfabric %s", source, *source != '\0' ? "; " : "",
                 mcp_fabric_names[fabric->kind]);
    if (fabric->kind == MCP_FABRIC_TORUS)
        for (int i = 0; i < fabric->num_dimensions; i++)
            mcp_text_add(&text, "%s%d", i > 0 ? "x" : " ", fabric->torus[i]);
    else if (fabric->kind != MCP_FABRIC_FLAT)
        mcp_text_add(&text, " of switches with %d ports, oversubscription %g", fabric->switch_ports,
                     fabric->oversubscription);
    if (fabric->num_sites > 1)
        mcp_text_add(&text, ", %d sites of %s, round trip %s", fabric->num_sites,
                     mcp_show(arena, fabric->wan_bytes_per_s, MCP_BYTES_PER_SECOND),
                     mcp_show(arena, fabric->round_trip_s, MCP_SECONDS));
    return text.data;
}

enum mcp_status mcp_cluster_set_fabric(struct mcp_arena *arena, struct mcp_cluster *cluster,
                                       int num_nodes, const struct mcp_fabric *fabric,
                                       struct mcp_error *err)
{
    struct mcp_cluster built = *cluster;
    const struct mcp_fabric all = with_defaults(fabric);
    struct build b = {
        .cluster = &built,
        .fabric = &all,
        .nic_bytes_per_s = fabric->nic_bytes_per_s,
        .efficiency_frac = MCP_NETWORK_EFFICIENCY_FRAC,
        .first_latency_s = MCP_NETWORK_LATENCY_S,
    };
    MCP_TRY(check_fabric(cluster, &all, num_nodes, err));
    b.num_nodes = num_nodes / all.num_sites;
    keep_node(&b);
    if (!(b.nic_bytes_per_s > 0))
        return mcp_fail(err, MCP_INVALID,
                        "cluster %s has no network: state the bandwidth between nodes",
                        cluster->name);
    MCP_TRY(add_fabric(&b, err));
    add_wan(&b);
    if (b.full)
        return mcp_fail(
            err, MCP_INVALID, "cluster %s: %d tiers of a node and those of a %s are more than %d",
            cluster->name, cluster->num_tiers, mcp_fabric_names[fabric->kind], MCP_MAX_TIERS);
    built.source = describe(arena, cluster->source, &all);
    MCP_TRY(mcp_cluster_resize(&built, num_nodes, err));
    *cluster = built;
    return MCP_OK;
}
