/* topologies/tiers.c: from one machine's links to a cluster of such machines. */
#include "topologies/tiers.h"

#include <math.h>

/* Large messages over the slot's rate: 18.7 of 31.5 GB/s in a public NCCL
 * benchmark of two L40S behind one host bridge. */
#define PCIE_EFFICIENCY_FRAC 0.59
#define NODE_LATENCY_S 1e-6
#define LEAST_BANDWIDTH_BYTES_PER_S 1e3
#define MOST_BANDWIDTH_BYTES_PER_S 1e15

struct build {
    struct mcp_arena *arena;
    const struct mcp_node *node;
    const struct mcp_node_use *use;
    struct mcp_cluster *cluster;
    struct mcp_text *notes;
};

static void add_tier(struct build *b, const char *name, int ranks, double bandwidth_bytes_per_s,
                     double efficiency_frac)
{
    struct mcp_cluster *cluster = b->cluster;
    cluster->tiers[cluster->num_tiers++] = (struct mcp_tier){
        .name = name,
        .full_ranks = ranks,
        .bandwidth_bytes_per_s = bandwidth_bytes_per_s,
        .efficiency_frac = efficiency_frac,
        .latency_s = NODE_LATENCY_S,
    };
}

/* NVLinks (or XGMI's) that GPU `a` can use at once within its island. */
static int links_in_use(const struct build *b, int a)
{
    int sum = 0, most = 0;
    for (int j = 0; j < b->node->num_gpus; j++) {
        const struct mcp_link *link = mcp_node_link(b->node, a, j);
        if (j == a || !mcp_link_is_direct(link))
            continue;
        sum += link->count;
        most = link->count > most ? link->count : most;
    }
    return sum <= b->use->gpu->num_nvlinks ? sum : most;
}

/* Ranks must follow the islands; says how when GPU numbers do not. */
static void note_order(struct build *b, const int *island, int size)
{
    bool in_order = true;
    struct mcp_text order = mcp_text_new(b->arena);
    for (int i = 0; i < b->node->num_gpus; i++) {
        in_order = in_order && island[i] == i / size * size;
        for (int j = i; island[i] == i && j < b->node->num_gpus; j++)
            if (island[j] == i)
                mcp_text_add(&order, "%s%d", order.length > 0 ? "," : "", b->node->gpus[j].index);
    }
    if (!in_order)
        mcp_text_add(b->notes,
                     "islands of GPUs are not made of consecutive ones: number ranks with "
                     "CUDA_VISIBLE_DEVICES=%s\n",
                     order.data);
}

/* A ring goes round an island that is not fully joined; what wants each pair joined
 * (as custom all-reduce kernels do) does not run there. */
static void note_partial(struct build *b, const int *island)
{
    int *members = MCP_ARRAY(b->arena, b->node->num_gpus, int);
    for (int i = 0; i < b->node->num_gpus; i++) {
        int count = 0;
        for (int j = 0; j < b->node->num_gpus; j++)
            if (island[j] == i)
                members[count++] = j;
        if (mcp_node_fully_joined(b->node, members, count))
            continue;
        mcp_text_add(b->notes, "within an NVLink island not every pair of GPUs is joined\n");
        return;
    }
}

/* The tier of NVLink islands, if they are of equal size; returns that size, 1
 * without. */
static int add_nvlink(struct build *b, int *island)
{
    const struct mcp_gpu *gpu = b->use->gpu;
    int num_gpus = b->node->num_gpus, links = 0;
    if (mcp_node_islands(b->node, MCP_LINK_NVLINK, island) == num_gpus)
        return 1;
    int size = mcp_node_island_size(b->node, island);
    if (size == 0) {
        mcp_text_add(b->notes, "NVLink islands of unequal size are not used as a tier\n");
        return 1;
    }
    for (int i = 0; i < num_gpus; i++) {
        int own = links_in_use(b, i);
        links = i == 0 || own < links ? own : links;
    }
    note_order(b, island, size);
    note_partial(b, island);
    if (isnan(gpu->nvlink_bytes_per_s) || isnan(gpu->nvlink_efficiency_frac))
        mcp_text_add(b->notes, "gpu %s has no NVLink rate: state the tier's bandwidth\n",
                     gpu->name);
    add_tier(b, "nvlink", size, links * gpu->nvlink_bytes_per_s,
             isnan(gpu->nvlink_efficiency_frac) ? 1 : gpu->nvlink_efficiency_frac);
    return size;
}

/* A tier of islands that are larger than those below and fill the node evenly; returns
 * the size of the largest domain so far. */
static int add_islands(struct build *b, const char *name, const int *island, int below)
{
    int size = mcp_node_island_size(b->node, island);
    if (size <= below || size % below != 0 || size >= b->node->num_gpus)
        return below;
    add_tier(b, name, size, b->use->gpu->pcie_bytes_per_s, PCIE_EFFICIENCY_FRAC);
    if (below == 1)
        note_order(b, island, size);
    return size;
}

/* Some drivers print SYS for each pair, also within a socket. */
static void note_sockets(struct build *b, int *island)
{
    int by_links = mcp_node_islands(b->node, MCP_LINK_NODE, island);
    if (mcp_node_sockets(b->node, island) < by_links)
        mcp_text_add(b->notes, "every path between GPUs reads SYS: sockets are told by the GPUs' "
                               "NUMA nodes\n");
}

/* What joins the node where NVLink does not. */
static void add_pcie(struct build *b, int *island, int below)
{
    int num_gpus = b->node->num_gpus;
    double bandwidth = b->use->gpu->pcie_bytes_per_s;
    if (num_gpus == 1)
        add_tier(b, "local", 1, b->use->gpu->memory_bandwidth_bytes_per_s, 1);
    if (below == num_gpus)
        return;
    mcp_node_islands(b->node, MCP_LINK_PXB, island);
    below = add_islands(b, "switch", island, below);
    note_sockets(b, island);
    bool one_socket = mcp_node_sockets(b->node, island) == 1;
    if (!one_socket)
        (void)add_islands(b, "pcie", island, below);
    add_tier(b, one_socket ? "pcie" : "smp", num_gpus, bandwidth, PCIE_EFFICIENCY_FRAC);
    mcp_text_add(b->notes, "PCIe is assumed to reach %.0f %% of the slot of GPU %s\n",
                 100 * PCIE_EFFICIENCY_FRAC, b->use->gpu->name);
}

static enum mcp_status check_node(const struct mcp_node *node, const struct mcp_gpu *gpu,
                                  struct mcp_error *err)
{
    int unknown = 0;
    if (node->num_gpus == 0)
        return mcp_fail(err, MCP_INVALID, "the machine has no GPUs to make a cluster of");
    for (int i = 0; i < node->num_gpus; i++)
        for (int j = i + 1; j < node->num_gpus; j++)
            unknown += mcp_node_link(node, i, j)->kind == MCP_LINK_UNKNOWN;
    if (unknown > 0)
        return mcp_fail(err, MCP_INVALID,
                        "the links of %d of %d pairs of GPUs are unknown; give the whole output of "
                        "`nvidia-smi topo -m`",
                        unknown, node->num_gpus * (node->num_gpus - 1) / 2);
    if (node->nvlinks_unknown && gpu->num_nvlinks > 0)
        return mcp_fail(err, MCP_INVALID,
                        "only the PCI paths are known, not the NVLinks that GPU %s has; add the "
                        "output of `nvidia-smi topo -m`",
                        gpu->name);
    return MCP_OK;
}

enum mcp_status mcp_cluster_add_network(struct mcp_cluster *cluster, int num_nodes,
                                        double bandwidth_bytes_per_s, struct mcp_error *err)
{
    if (num_nodes > 1 && isnan(bandwidth_bytes_per_s))
        return mcp_fail(err, MCP_INVALID, "%d nodes need the bandwidth of the network between them",
                        num_nodes);
    if (bandwidth_bytes_per_s < LEAST_BANDWIDTH_BYTES_PER_S ||
        bandwidth_bytes_per_s > MOST_BANDWIDTH_BYTES_PER_S)
        return mcp_fail(
            err, MCP_INVALID, "a network of %g bytes/s per GPU is not between %g and %g",
            bandwidth_bytes_per_s, LEAST_BANDWIDTH_BYTES_PER_S, MOST_BANDWIDTH_BYTES_PER_S);
    if (!isnan(bandwidth_bytes_per_s)) {
        cluster->tiers[cluster->num_tiers - 1].full_ranks = cluster->gpus_per_node;
        cluster->tiers[cluster->num_tiers++] = (struct mcp_tier){
            .name = "network",
            .bandwidth_bytes_per_s = bandwidth_bytes_per_s,
            .efficiency_frac = MCP_NETWORK_EFFICIENCY_FRAC,
            .latency_s = MCP_NETWORK_LATENCY_S,
        };
    }
    return mcp_cluster_resize(cluster, num_nodes, err);
}

enum mcp_status mcp_node_cluster(struct mcp_arena *arena, const struct mcp_node *node,
                                 const struct mcp_node_use *use, struct mcp_cluster *out,
                                 struct mcp_text *notes, struct mcp_error *err)
{
    struct mcp_cluster cluster = {.name = use->name, .gpu = *use->gpu, .source = use->source};
    struct build b = {arena, node, use, &cluster, notes};
    MCP_TRY(check_node(node, use->gpu, err));
    cluster.gpus_per_node = node->num_gpus;
    int *island = MCP_ARRAY(arena, node->num_gpus, int);
    add_pcie(&b, island, add_nvlink(&b, island));
    MCP_TRY(mcp_cluster_add_network(&cluster, use->num_nodes, use->network_bytes_per_s, err));
    *out = cluster;
    return MCP_OK;
}
