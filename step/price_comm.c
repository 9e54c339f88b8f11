/* step/price_comm.c: seconds of transfers: latency, ramp and bandwidth of the tiers
 * that a group spans. */
#include "step/price_parts.h"

#include "core/mesh.h"
#include "core/stack.h"
#include "step/constants.h"

#include <math.h>

/* How a group lies on the tiers. */
struct span {
    int ranks;                    /* of the group */
    int neighbors;                /* of them in one domain of the fastest tier */
    double bandwidth_bytes_per_s; /* of a ring, per rank */
    double latency_s;
};

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

/* A ring through every member: in each tier that it leaves, the members of one
 * domain share their network ports. */
static struct span span_of(const struct mcp_pricing *pricing, unsigned axes)
{
    const struct mcp_cluster *cluster = pricing->question->cluster;
    struct span span = {.ranks = mcp_group_size(pricing->plan, axes)};
    span.neighbors = mcp_members_in(pricing, axes, 0, span.ranks);
    span.bandwidth_bytes_per_s = mcp_tier_bandwidth(pricing, 0);
    span.latency_s = MCP_COLLECTIVE_START_S + MCP_COLLECTIVE_RANK_S * (span.neighbors - 1);
    int inside = span.neighbors;
    for (int tier = 1; tier < cluster->num_tiers && inside < span.ranks; tier++) {
        int members = mcp_members_in(pricing, axes, tier, span.ranks);
        if (members == inside)
            continue;
        double domains = (double)members / inside;
        double bandwidth = inside * mcp_tier_bandwidth(pricing, tier);
        span.bandwidth_bytes_per_s = fmin(span.bandwidth_bytes_per_s, bandwidth);
        span.latency_s +=
            cluster->tiers[tier].latency_s * (domains - 1) + cluster->tiers[tier].round_trip_s;
        inside = members;
    }
    return span;
}

static double ramp_seconds(double bytes)
{
    return MCP_COLLECTIVE_RAMP_S * (1 - exp(-bytes / MCP_COLLECTIVE_RAMP_BYTES));
}

/* Expected number of nodes that a token's experts touch, over experts per token:
 * what a dispatcher that sends a token to a node once saves. */
static double deduplicated_frac(const struct mcp_pricing *pricing, const struct span *span)
{
    const struct mcp_model *model = pricing->question->model;
    double domains = (double)span->ranks / span->neighbors, k = 1;
    for (int i = 0; i < model->num_kinds; i++)
        if (model->kinds[i].experts_per_token > k)
            k = model->kinds[i].experts_per_token;
    return fmin(1, domains * (1 - pow(1 - 1 / domains, k)) / k);
}

/* Inside and outside the domain at the same time. */
static double all_to_all_seconds(const struct mcp_pricing *pricing, const struct span *span,
                                 double bytes, bool deduplicated)
{
    double n = span->ranks, near = span->neighbors;
    double seconds = bytes * (near - 1) / n / mcp_tier_bandwidth(pricing, 0);
    if (span->ranks > span->neighbors) {
        double share = deduplicated ? deduplicated_frac(pricing, span) : 1;
        double slowest = span->bandwidth_bytes_per_s / near;
        seconds = fmax(seconds, bytes * (n - near) / n / slowest * share);
    }
    return MCP_COLLECTIVE_START_S + seconds;
}

/* A member's share of what its group's ring leaves the domain with. */
static double collective_seconds(const struct mcp_pricing *pricing, enum mcp_function function,
                                 unsigned axes, double bytes, double latency_share)
{
    struct span span = span_of(pricing, axes);
    if (span.ranks <= 1 || bytes <= 0)
        return 0;
    double n = span.ranks, part = bytes * (n - 1) / n / span.bandwidth_bytes_per_s;
    double fixed = (span.latency_s + ramp_seconds(bytes)) * latency_share;
    switch (function) {
    case MCP_FN_ALL_REDUCE:
    case MCP_FN_ALL_REDUCE_MAX:
        return fixed + (MCP_ALL_REDUCE_START - 1) * span.latency_s * latency_share + 2 * part;
    case MCP_FN_ALL_TO_ALL:
        return all_to_all_seconds(pricing, &span, bytes, false);
    case MCP_FN_ALL_TO_ALL_V:
        return all_to_all_seconds(pricing, &span, bytes,
                                  pricing->question->stack->deduplicated_dispatch);
    default:
        return fixed + part;
    }
}

double mcp_collective_seconds(const struct mcp_pricing *pricing, enum mcp_function function,
                              unsigned axes, double bytes)
{
    return collective_seconds(pricing, function, axes, bytes, 1);
}

double mcp_send_seconds(const struct mcp_pricing *pricing, int stage, int delta, double bytes)
{
    const struct mcp_cluster *cluster = pricing->question->cluster;
    int stages = pricing->plan->pipeline_parallel, to = (stage + delta + stages) % stages;
    for (int tier = 0; tier < cluster->num_tiers; tier++) {
        int members = mcp_members_in(pricing, MCP_PIPELINE, tier, stages);
        if (stage / members != to / members)
            continue;
        double share =
            tier == 0 ? MCP_SEND_DOMAIN_FRAC : pricing->question->stack->message_network_frac;
        return MCP_SEND_START_S + cluster->tiers[tier].round_trip_s / 2 +
               bytes / (share * mcp_tier_bandwidth(pricing, tier));
    }
    return MCP_SEND_START_S;
}

/* One ring step: the slowest hop of the ring. */
static double shift_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op,
                            double bytes)
{
    struct span span = span_of(pricing, op->group);
    return span.ranks > 1 ? MCP_SEND_START_S + bytes / span.bandwidth_bytes_per_s : 0;
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

double mcp_transfer_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    double bytes = transfer_bytes(op);
    switch (mcp_op_code(op)) {
    case MCP_COLLECTIVE:
        return collective_seconds(pricing, (enum mcp_function)op->function, op->group, bytes,
                                  bucket_share(pricing, op, bytes));
    case MCP_SHIFT:
        return shift_seconds(pricing, op, bytes);
    case MCP_SEND: {
        int stages = pricing->plan->pipeline_parallel;
        return mcp_send_seconds(pricing, op->delta > 0 ? stages - 1 : 0, op->delta, bytes);
    }
    default:
        return 0; /* a receive is the other end of its send */
    }
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
