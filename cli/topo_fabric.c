/* cli/topo_fabric.c: options of the fabric, read and applied. */
#include "cli/topo_fabric.h"

#include "core/units.h"

#include <math.h>

struct mcp_fabric_args mcp_fabric_args_none(void)
{
    return (struct mcp_fabric_args){
        .kind = {-1, mcp_fabric_names, MCP_NUM_FABRICS},
        .oversubscription = (double)NAN,
    };
}

bool mcp_fabric_is_given(const struct mcp_fabric_args *args)
{
    return args->kind.value >= 0 || args->switch_ports > 0 || args->nodes_per_leaf > 0 ||
           args->sites > 0 || !isnan(args->oversubscription) || args->torus != NULL ||
           args->wan != NULL || args->round_trip != NULL;
}

static enum mcp_status quantity(const char *option, const char *text, enum mcp_dimension dimension,
                                double *value, struct mcp_error *err)
{
    if (text == NULL || mcp_quantity_parse(text, dimension, value, err) == MCP_OK)
        return MCP_OK;
    mcp_error_prefix(err, option);
    return MCP_USAGE;
}

/* An option that the kind does not use is a mistake that would go unseen. */
static enum mcp_status check_use(const struct mcp_fabric_args *args, enum mcp_fabric_kind kind,
                                 struct mcp_error *err)
{
    bool has_switches = kind != MCP_FABRIC_FLAT && kind != MCP_FABRIC_TORUS;
    const struct {
        const char *option, *needs;
        bool is_given, is_used;
    } uses[] = {
        {"--switch-ports", "fat-tree, rail or dragonfly", args->switch_ports > 0, has_switches},
        {"--nodes-per-leaf", "fat-tree, rail or dragonfly", args->nodes_per_leaf > 0, has_switches},
        {"--oversubscription", "fat-tree, rail or dragonfly", !isnan(args->oversubscription),
         has_switches},
        {"--torus", "torus", args->torus != NULL, kind == MCP_FABRIC_TORUS},
    };
    for (size_t i = 0; i < MCP_COUNT_OF(uses); i++)
        if (uses[i].is_given && !uses[i].is_used)
            return mcp_fail(err, MCP_USAGE, "%s needs --fabric %s, not %s", uses[i].option,
                            uses[i].needs, mcp_fabric_names[kind]);
    if (args->sites <= 1 && (args->wan != NULL || args->round_trip != NULL))
        return mcp_fail(err, MCP_USAGE, "--wan and --round-trip need --sites 2 or more");
    if (args->sites > 1 && (args->wan == NULL || args->round_trip == NULL))
        return mcp_fail(err, MCP_USAGE,
                        "--sites needs --wan, the bandwidth of a site, and --round-trip");
    if (kind == MCP_FABRIC_TORUS && args->torus == NULL)
        return mcp_fail(err, MCP_USAGE, "--fabric torus needs --torus, as 4x4x8 nodes");
    return MCP_OK;
}

enum mcp_status mcp_fabric_apply(struct mcp_context *ctx, const struct mcp_fabric_args *args,
                                 int num_nodes, double nic_bytes_per_s, struct mcp_cluster *cluster)
{
    struct mcp_fabric fabric = {
        .kind = args->kind.value >= 0 ? (enum mcp_fabric_kind)args->kind.value
                : args->torus != NULL ? MCP_FABRIC_TORUS
                                      : MCP_FABRIC_FLAT,
        .nic_bytes_per_s = isnan(nic_bytes_per_s) ? 0 : nic_bytes_per_s,
        .switch_ports = args->switch_ports,
        .nodes_per_leaf = args->nodes_per_leaf,
        .oversubscription = isnan(args->oversubscription) ? 1 : args->oversubscription,
        .num_sites = args->sites,
    };
    MCP_TRY(check_use(args, fabric.kind, &ctx->err));
    MCP_TRY(quantity("--wan", args->wan, MCP_BYTES_PER_SECOND, &fabric.wan_bytes_per_s, &ctx->err));
    MCP_TRY(
        quantity("--round-trip", args->round_trip, MCP_SECONDS, &fabric.round_trip_s, &ctx->err));
    if (args->torus != NULL && mcp_fabric_parse_torus(args->torus, &fabric, &ctx->err) != MCP_OK) {
        mcp_error_prefix(&ctx->err, "--torus");
        return MCP_USAGE;
    }
    return mcp_cluster_set_fabric(ctx->arena, cluster, num_nodes, &fabric, &ctx->err);
}

static bool is_next_to_gpu(const struct mcp_node *node, int nic)
{
    for (int gpu = 0; gpu < node->num_gpus; gpu++) {
        enum mcp_link_kind kind = mcp_node_link(node, gpu, node->num_gpus + nic)->kind;
        if (kind == MCP_LINK_PIX || kind == MCP_LINK_PXB)
            return true;
    }
    return false;
}

double mcp_fabric_nic_rate(const struct mcp_node *node, int *count)
{
    int near = 0;
    double sum = 0;
    *count = 0;
    for (int i = 0; i < node->num_nics; i++)
        near += is_next_to_gpu(node, i);
    for (int i = 0; i < node->num_nics; i++) {
        if (near > 0 && !is_next_to_gpu(node, i))
            continue;
        if (!(node->nics[i].bytes_per_s > 0))
            return (double)NAN;
        sum += node->nics[i].bytes_per_s;
        ++*count;
    }
    return *count > 0 && node->num_gpus > 0 ? sum / node->num_gpus : (double)NAN;
}
