/* step/price_comm.c: what links carry, and what transfers take on them. */
#include "step/price_parts.h"

#include "core/mesh.h"
#include "core/stack.h"
#include "step/constants.h"
#include "step/measured.h"

double mcp_tier_bandwidth(const struct mcp_pricing *pricing, int tier)
{
    const struct mcp_tier *t = &pricing->question->cluster->tiers[tier];
    double frac = tier > 0 ? pricing->question->stack->network_frac : 1;
    return t->bandwidth_bytes_per_s * t->efficiency_frac * frac;
}

int mcp_members_in(const struct mcp_pricing *pricing, unsigned axes, int tier, int ranks)
{
    const struct mcp_cluster *cluster = pricing->question->cluster;
    if (tier == cluster->num_tiers - 1)
        return ranks;
    int members = mcp_group_in_domain(pricing->plan, axes, cluster->tiers[tier].ranks);
    return members < ranks ? members : ranks;
}

double mcp_send_seconds(const struct mcp_pricing *pricing, int stage, int delta, double bytes)
{
    const struct mcp_cluster *cluster = pricing->question->cluster;
    double measured;
    if (mcp_message_measured(pricing, bytes, &measured))
        return measured;
    int stages = pricing->plan->pipeline_parallel, to = (stage + delta + stages) % stages;
    for (int tier = 0; tier < cluster->num_tiers; tier++) {
        bool last = tier == cluster->num_tiers - 1;
        if (!last && !mcp_stages_in_domain(pricing->plan, stage, to, cluster->tiers[tier].ranks))
            continue;
        double share =
            tier == 0 ? MCP_SEND_DOMAIN_FRAC : pricing->question->stack->message_network_frac;
        return MCP_SEND_START_S + cluster->tiers[tier].round_trip_s / 2 +
               bytes / (share * mcp_tier_bandwidth(pricing, tier));
    }
    return MCP_SEND_START_S;
}

/* Gradient and weight collectives travel in buckets of several layers: a layer
 * pays its share of a bucket's latency. An op may name the bytes it goes with. */
static double bucket_share(const struct mcp_pricing *pricing, const struct mcp_op *op, double bytes)
{
    double bucket = (double)pricing->question->stack->bucket_bytes;
    bytes = op->dims[1] > 0 ? (double)op->dims[1] : bytes;
    bool alone =
        (op->group & ((unsigned)MCP_PIPELINE | MCP_ENDS)) != 0; /* once for the whole model */
    bool once = pricing->plan->zero_stage < 3 && op->stream == MCP_STREAM_DATA && !alone;
    return once && bucket > bytes ? bytes / bucket : 1;
}

/* Of the full-size buffer, or of the message. */
static double transfer_bytes(const struct mcp_op *op)
{
    return (double)op->dims[0] * mcp_dtype_bytes((enum mcp_dtype)op->dtype);
}

/* Links are in use for as long as was measured, shared out as they would be. */
static void fit(struct mcp_transfer *transfer, double seconds)
{
    double sum = mcp_transfer_sum(transfer);
    for (int i = 0; i < transfer->num_phases && sum > 0; i++) {
        transfer->phases[i].latency_s *= seconds / sum;
        transfer->phases[i].links_s *= seconds / sum;
    }
}

void mcp_transfer_of(const struct mcp_pricing *pricing, const struct mcp_op *op,
                     struct mcp_transfer *out)
{
    double bytes = transfer_bytes(op), measured;
    out->num_phases = 0;
    if (mcp_op_code(op) == MCP_COLLECTIVE)
        mcp_collective_of(pricing, (enum mcp_function)op->function, op->group,
                          &(struct mcp_payload){bytes, bucket_share(pricing, op, bytes)}, out);
    else if (mcp_op_code(op) == MCP_SHIFT)
        mcp_shift_of(pricing, op->group, bytes, out);
    if (mcp_op_measured(pricing, op, &measured))
        fit(out, measured);
}

double mcp_transfer_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    struct mcp_transfer transfer;
    if (mcp_op_code(op) == MCP_SEND) {
        int stages = pricing->plan->pipeline_parallel;
        return mcp_send_seconds(pricing, op->delta > 0 ? stages - 1 : 0, op->delta,
                                transfer_bytes(op));
    }
    mcp_transfer_of(pricing, op, &transfer); /* a receive is the other end of its send */
    return mcp_transfer_sum(&transfer);
}

double mcp_op_sent_bytes(const struct mcp_op *op, int ranks)
{
    double k = ranks, bytes = transfer_bytes(op);
    bool twice = op->function == MCP_FN_ALL_REDUCE || op->function == MCP_FN_ALL_REDUCE_MAX;
    switch (mcp_op_code(op)) {
    case MCP_SEND:
    case MCP_SHIFT:
        return bytes;
    case MCP_COLLECTIVE:
        return (twice ? 2 : 1) * bytes * (k - 1) / k;
    default:
        return 0;
    }
}
