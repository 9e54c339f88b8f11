/* step/price_collective.c: collectives by their algorithms, laid on the tiers that a group
 * spans. */
#include "step/price_parts.h"

#include "core/mesh.h"
#include "core/stack.h"
#include "step/constants.h"

#include <math.h>

/* Where a group leaves the domains of the tier below; level 0 is the fastest tier. */
struct level {
    int tier;
    double below;   /* members in one domain of the level below: they share their ports */
    double domains; /* ... that meet here */
    double bandwidth_bytes_per_s; /* of one rank's port */
};

struct span {
    int ranks;     /* of the group */
    int neighbors; /* of them in one domain of the fastest tier */
    int num_levels;
    struct level levels[MCP_MAX_TIERS];
};

static struct span span_of(const struct mcp_pricing *pricing, unsigned axes)
{
    const struct mcp_cluster *cluster = pricing->question->cluster;
    struct span span;
    span.ranks = mcp_group_size(pricing->plan, axes);
    span.neighbors = mcp_members_in(pricing, axes, 0, span.ranks);
    span.num_levels = 1;
    span.levels[0] = (struct level){0, 1, span.neighbors, mcp_tier_bandwidth(pricing, 0)};
    int inside = span.neighbors;
    for (int tier = 1; tier < cluster->num_tiers && inside < span.ranks; tier++) {
        int members = mcp_members_in(pricing, axes, tier, span.ranks);
        if (members == inside)
            continue;
        span.levels[span.num_levels++] = (struct level){tier, inside, (double)members / inside,
                                                        mcp_tier_bandwidth(pricing, tier)};
        inside = members;
    }
    return span;
}

static double ramp_seconds(double bytes)
{
    return MCP_COLLECTIVE_RAMP_S * (1 - exp(-bytes / MCP_COLLECTIVE_RAMP_BYTES));
}

static bool is_all_reduce(enum mcp_function function)
{
    return function == MCP_FN_ALL_REDUCE || function == MCP_FN_ALL_REDUCE_MAX;
}

static const struct mcp_tier *tier_of(const struct mcp_pricing *pricing, const struct level *level)
{
    return &pricing->question->cluster->tiers[level->tier];
}

/* The further domains that a message meets at a level, one after the other or by halves. */
static double hop_seconds(const struct mcp_pricing *pricing, const struct level *level, double hops)
{
    if (level->tier == 0)
        return MCP_COLLECTIVE_RANK_S * hops;
    return tier_of(pricing, level)->latency_s * hops + tier_of(pricing, level)->round_trip_s;
}

/* A ring's rate, per rank: members below a level bring a port each. */
static double ring_rate(const struct span *span)
{
    double slowest = span->levels[0].bandwidth_bytes_per_s;
    for (int i = 1; i < span->num_levels; i++)
        slowest = fmin(slowest, span->levels[i].below * span->levels[i].bandwidth_bytes_per_s);
    return slowest;
}

/* ... and what it fills of each tier's ports at that rate. */
static void load_ring(const struct span *span, struct mcp_transfer_phase *phase)
{
    double rate = ring_rate(span);
    for (int i = span->neighbors > 1 ? 0 : 1; i < span->num_levels; i++) {
        const struct level *level = &span->levels[i];
        phase->loads[level->tier] = fmin(1, rate / (level->below * level->bandwidth_bytes_per_s));
    }
}

static struct mcp_transfer_phase *add_phase(struct mcp_transfer *out)
{
    struct mcp_transfer_phase *phase = &out->phases[out->num_phases++];
    *phase = (struct mcp_transfer_phase){0};
    return phase;
}

/* --- ring, tree: every tier at once, at the rate of the slowest --- */

static double start_factor(enum mcp_function function)
{
    return is_all_reduce(function) ? MCP_ALL_REDUCE_START : 1;
}

static void ring(const struct mcp_pricing *pricing, enum mcp_function function,
                 const struct span *span, const struct mcp_payload *payload,
                 struct mcp_transfer *out)
{
    struct mcp_transfer_phase *phase = add_phase(out);
    double n = span->ranks, latency = MCP_COLLECTIVE_START_S;
    for (int i = 0; i < span->num_levels; i++)
        latency += hop_seconds(pricing, &span->levels[i], span->levels[i].domains - 1);
    phase->latency_s = latency * start_factor(function) * payload->latency_share;
    phase->links_s =
        ramp_seconds(payload->bytes) * payload->latency_share +
        (is_all_reduce(function) ? 2 : 1) * payload->bytes * (n - 1) / n / ring_rate(span);
    load_ring(span, phase);
}

/* A chain inside a domain and two trees between domains, each for half of the bytes: a
 * rank is a leaf of one and inside the other, and sends and receives all of it twice. */
static void tree(const struct mcp_pricing *pricing, const struct span *span,
                 const struct mcp_payload *payload, struct mcp_transfer *out)
{
    struct mcp_transfer_phase *phase = add_phase(out);
    double latency = MCP_COLLECTIVE_START_S +
                     hop_seconds(pricing, &span->levels[0], span->levels[0].domains - 1);
    for (int i = 1; i < span->num_levels; i++)
        latency += hop_seconds(pricing, &span->levels[i], ceil(log2(span->levels[i].domains)));
    phase->latency_s = latency * MCP_ALL_REDUCE_START * payload->latency_share;
    phase->links_s = ramp_seconds(payload->bytes) * payload->latency_share +
                     2 * payload->bytes / ring_rate(span);
    load_ring(span, phase);
}

/* --- hierarchical: a collective of its own at every level, one after the other --- */

static void add_level(const struct mcp_pricing *pricing, enum mcp_function function,
                      const struct level *level, const struct mcp_payload *payload,
                      struct mcp_transfer *out)
{
    double domains = level->domains;
    if (domains <= 1)
        return;
    struct mcp_transfer_phase *phase = add_phase(out);
    double bytes = payload->bytes / level->below;
    phase->latency_s = (MCP_COLLECTIVE_START_S + hop_seconds(pricing, level, domains - 1)) *
                       start_factor(function) * payload->latency_share;
    phase->links_s = ramp_seconds(bytes) * payload->latency_share +
                     (is_all_reduce(function) ? 2 : 1) * bytes * (domains - 1) / domains /
                         level->bandwidth_bytes_per_s;
    phase->loads[level->tier] = 1;
}

/* Reduce-scatter on the way up, all-gather on the way down; an all-reduce has its own at
 * the top. */
static void hierarchical(const struct mcp_pricing *pricing, enum mcp_function function,
                         const struct span *span, const struct mcp_payload *payload,
                         struct mcp_transfer *out)
{
    int top = span->num_levels - 1;
    if (is_all_reduce(function) || function == MCP_FN_REDUCE_SCATTER)
        for (int i = 0; i < top; i++)
            add_level(pricing, MCP_FN_REDUCE_SCATTER, &span->levels[i], payload, out);
    add_level(pricing, function, &span->levels[top], payload, out);
    if (is_all_reduce(function) || function == MCP_FN_ALL_GATHER)
        for (int i = top - 1; i >= 0; i--)
            add_level(pricing, MCP_FN_ALL_GATHER, &span->levels[i], payload, out);
}

/* --- in switches that add up what ranks send --- */

struct switches {
    bool near;    /* of the fastest tier, among two ranks or more */
    bool network; /* of every further tier that the group leaves, at least one */
};

static struct switches switches_of(const struct mcp_pricing *pricing, const struct span *span)
{
    struct switches found = {span->neighbors > 1 &&
                                 tier_of(pricing, &span->levels[0])->in_switch_reduction,
                             span->num_levels > 1};
    for (int i = 1; i < span->num_levels; i++)
        found.network = found.network && tier_of(pricing, &span->levels[i])->in_switch_reduction;
    return found;
}

/* Seconds for which the level's ports are in use. What a rank holds is cut among the
 * members of a domain, each with a port to the network. */
static double in_switch_seconds(const struct span *span, int i, const struct switches *in)
{
    const struct level *level = &span->levels[i];
    double near = span->neighbors, far = span->ranks / near;
    double rate = level->bandwidth_bytes_per_s;
    if (i == 0 && near <= 1)
        return 0;
    if (i == 0)
        return in->near ? (near + 1) / near / (rate * MCP_IN_SWITCH_FRAC)
                        : 2 * (near - 1) / near / rate;
    return in->network ? 1 / (level->below * rate) : 2 * (far - 1) / far / (level->below * rate);
}

/* All levels at once, as pieces follow each other through them. */
static void in_switch(const struct mcp_pricing *pricing, const struct span *span,
                      const struct mcp_payload *payload, struct mcp_transfer *out)
{
    const struct switches in = switches_of(pricing, span);
    double seconds[MCP_MAX_TIERS] = {0}, slowest = 0, latency = MCP_COLLECTIVE_START_S;
    if (!in.near && !in.network) {
        ring(pricing, MCP_FN_ALL_REDUCE, span, payload, out);
        return;
    }
    struct mcp_transfer_phase *phase = add_phase(out);
    for (int i = 0; i < span->num_levels; i++) {
        bool once = i == 0 ? in.near : in.network;
        latency += hop_seconds(pricing, &span->levels[i], once ? 1 : span->levels[i].domains - 1);
        seconds[i] = payload->bytes * in_switch_seconds(span, i, &in);
        slowest = fmax(slowest, seconds[i]);
    }
    phase->latency_s = latency * MCP_ALL_REDUCE_START * payload->latency_share;
    phase->links_s = ramp_seconds(payload->bytes) * payload->latency_share + slowest;
    for (int i = 0; i < span->num_levels; i++)
        phase->loads[span->levels[i].tier] = seconds[i] / slowest;
}

/* --- all-to-all: no algorithm but direct --- */

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

/* Every rank sends each other its part at once, through its own port in every tier that
 * lies between them. */
static void all_to_all(const struct mcp_pricing *pricing, const struct span *span,
                       const struct mcp_payload *payload, bool deduplicated,
                       struct mcp_transfer *out)
{
    struct mcp_transfer_phase *phase = add_phase(out);
    double n = span->ranks, near = span->neighbors, latency = MCP_COLLECTIVE_START_S;
    double rate = span->levels[0].bandwidth_bytes_per_s, seconds[MCP_MAX_TIERS];
    double share = deduplicated ? deduplicated_frac(pricing, span) : 1;
    seconds[0] = payload->bytes * (near - 1) / n / rate;
    phase->links_s = seconds[0];
    for (int i = 1; i < span->num_levels; i++) {
        const struct level *level = &span->levels[i];
        double bytes = payload->bytes * (n - level->below) / n * share;
        seconds[i] = bytes / level->bandwidth_bytes_per_s;
        phase->links_s =
            fmax(phase->links_s, bytes / fmin(level->bandwidth_bytes_per_s, rate / near));
        latency += tier_of(pricing, level)->round_trip_s;
    }
    phase->latency_s = latency * payload->latency_share;
    for (int i = 0; i < span->num_levels; i++)
        phase->loads[span->levels[i].tier] = seconds[i] / phase->links_s;
}

/* --- --- */

static void by_algorithm(const struct mcp_pricing *pricing, enum mcp_collective_algorithm algorithm,
                         enum mcp_function function, const struct span *span,
                         const struct mcp_payload *payload, struct mcp_transfer *out)
{
    if (algorithm == MCP_HIERARCHICAL)
        hierarchical(pricing, function, span, payload, out);
    else if (algorithm == MCP_TREE && is_all_reduce(function))
        tree(pricing, span, payload, out);
    else if (algorithm == MCP_IN_SWITCH && is_all_reduce(function))
        in_switch(pricing, span, payload, out);
    else
        ring(pricing, function, span, payload, out);
}

static void fastest(const struct mcp_pricing *pricing, enum mcp_function function,
                    const struct span *span, const struct mcp_payload *payload,
                    struct mcp_transfer *out)
{
    by_algorithm(pricing, MCP_RING, function, span, payload, out);
    for (int i = MCP_RING + 1; i < MCP_FASTEST; i++) {
        struct mcp_transfer other = {0};
        by_algorithm(pricing, (enum mcp_collective_algorithm)i, function, span, payload, &other);
        if (mcp_transfer_sum(&other) < mcp_transfer_sum(out))
            *out = other;
    }
}

void mcp_collective_of(const struct mcp_pricing *pricing, enum mcp_function function, unsigned axes,
                       const struct mcp_payload *payload, struct mcp_transfer *out)
{
    const struct mcp_stack *stack = pricing->question->stack;
    const struct span span = span_of(pricing, axes);
    out->num_phases = 0;
    if (span.ranks <= 1 || payload->bytes <= 0)
        return;
    if (function == MCP_FN_ALL_TO_ALL || function == MCP_FN_ALL_TO_ALL_V)
        all_to_all(pricing, &span, payload,
                   function == MCP_FN_ALL_TO_ALL_V && stack->deduplicated_dispatch, out);
    else if (stack->collective_algorithm == MCP_FASTEST)
        fastest(pricing, function, &span, payload, out);
    else
        by_algorithm(pricing, stack->collective_algorithm, function, &span, payload, out);
}

double mcp_collective_seconds(const struct mcp_pricing *pricing, enum mcp_function function,
                              unsigned axes, double bytes)
{
    struct mcp_transfer transfer;
    mcp_collective_of(pricing, function, axes, &(struct mcp_payload){bytes, 1}, &transfer);
    return mcp_transfer_sum(&transfer);
}

void mcp_shift_of(const struct mcp_pricing *pricing, unsigned axes, double bytes,
                  struct mcp_transfer *out)
{
    const struct span span = span_of(pricing, axes);
    out->num_phases = 0;
    if (span.ranks <= 1)
        return;
    struct mcp_transfer_phase *phase = add_phase(out);
    phase->latency_s = MCP_SEND_START_S;
    phase->links_s = bytes / ring_rate(&span);
    load_ring(&span, phase);
}

double mcp_transfer_sum(const struct mcp_transfer *transfer)
{
    double seconds = 0;
    for (int i = 0; i < transfer->num_phases; i++)
        seconds += transfer->phases[i].latency_s + transfer->phases[i].links_s;
    return seconds;
}
