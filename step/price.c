/* step/price.c: an op's seconds, and a block played on its streams. */
#include "step/price_parts.h"

#include "core/mesh.h"
#include "core/stack.h"
#include "step/constants.h"

#include <assert.h>
#include <math.h>
#include <string.h>

const char *const mcp_cost_names[MCP_NUM_COSTS] = {
    "matmul", "attention", "elementwise", "launch",    "tensor", "context",
    "expert", "pipeline",  "data",        "optimizer", "host",   "bubble",
};

int64_t mcp_to_ns(double seconds)
{
    return (int64_t)llround(seconds * 1e9);
}

static enum mcp_cost stream_cost(unsigned stream)
{
    switch (stream) {
    case MCP_STREAM_TENSOR:
        return MCP_COST_TENSOR;
    case MCP_STREAM_CONTEXT:
        return MCP_COST_CONTEXT;
    case MCP_STREAM_EXPERT:
        return MCP_COST_EXPERT;
    case MCP_STREAM_DATA:
        return MCP_COST_DATA;
    case MCP_STREAM_COMPUTE:
    case MCP_STREAM_COPY:
        return MCP_COST_ELEMENTWISE;
    default:
        return MCP_COST_PIPELINE;
    }
}

/* Once a step; frames are cleared in passes. */
static bool is_update(const struct mcp_op *op)
{
    unsigned function = op->function;
    if (function == MCP_FN_ZERO)
        return op->writes[0].space != MCP_SPACE_FRAME;
    return function == MCP_FN_ADAM || function == MCP_FN_SUM_SQUARES ||
           (function >= MCP_FN_MOMENTUM && function <= MCP_FN_ADAM_FROZEN);
}

enum mcp_cost mcp_op_cost(const struct mcp_op *op)
{
    switch (mcp_op_code(op)) {
    case MCP_MATMUL:
        return MCP_COST_MATMUL;
    case MCP_ATTENTION:
    case MCP_SCAN:
        return MCP_COST_ATTENTION;
    case MCP_HOST:
        return MCP_COST_HOST;
    case MCP_MAP:
    case MCP_REDUCTION:
        if (op->stream == MCP_STREAM_DATA) /* part of what its gather takes */
            return MCP_COST_DATA;
        return is_update(op) ? MCP_COST_OPTIMIZER : MCP_COST_ELEMENTWISE;
    default:
        return stream_cost(op->stream);
    }
}

double mcp_op_seconds(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    if (mcp_op_is_transfer(op))
        return mcp_transfer_seconds(pricing, op);
    return mcp_compute_seconds(pricing, op) + mcp_op_start_seconds(pricing, op);
}

/* Products that run between the pieces of a transfer read their neighbours' memory:
 * that takes one NVLink domain. */
static bool in_one_domain(const struct mcp_pricing *pricing, unsigned axes)
{
    const struct mcp_cluster *cluster = pricing->question->cluster;
    int domain = cluster->tiers[0].ranks;
    return cluster->num_tiers == 1 ||
           mcp_group_in_domain(pricing->plan, axes, domain) >= mcp_group_size(pricing->plan, axes);
}

static double tensor_exposed(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    const struct mcp_stack *stack = pricing->question->stack;
    bool overlaps = pricing->plan->overlap.tensor && in_one_domain(pricing, op->group);
    if (op->hiding == MCP_HIDE_BULK && op->function == MCP_FN_ALL_GATHER)
        return overlaps ? 0 : stack->regather_exposed_frac;
    if (op->hiding == MCP_HIDE_BULK && op->function == MCP_FN_ALL_REDUCE)
        return stack->tensor_overlap_frac > 0 ? MCP_BULK_ALL_REDUCE_EXPOSED : 1;
    if (op->hiding == MCP_HIDE_NOT || !pricing->plan->sequence_parallel || !overlaps)
        return 1;
    return 1 - stack->tensor_overlap_frac;
}

double mcp_op_exposed_frac(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    switch (mcp_op_cost(op)) {
    case MCP_COST_TENSOR:
        return tensor_exposed(pricing, op);
    case MCP_COST_EXPERT:
        return pricing->plan->overlap.expert ? 1 - pricing->question->stack->expert_overlap_frac
                                             : 1;
    default:
        return 1;
    }
}

/* Playing a block: one clock a stream; a host op stops issue until it is done. */
struct player {
    const struct mcp_local_op *local;
    int64_t clock[MCP_NUM_STREAMS];
    int64_t end[MCP_MAX_BLOCK_OPS]; /* of each op */
    int64_t issue;
    struct mcp_block_price *out;
};

/* The compute stream idles from its clock to `until`, for op's sake. */
static void idle(struct player *p, int64_t until, enum mcp_cost cost)
{
    int64_t gap = until - p->clock[MCP_STREAM_COMPUTE];
    if (gap > 0)
        p->out->cost_s[cost] += (double)gap * 1e-9;
}

void mcp_block_local(const struct mcp_pricing *pricing, const struct mcp_block *block,
                     struct mcp_local_op *out)
{
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_op *op = &block->ops[i];
        out[i] = (struct mcp_local_op){.flops = mcp_op_flops(op),
                                       .launches = mcp_op_launches(pricing, op)};
        if (mcp_op_is_transfer(op))
            continue;
        double start_s = mcp_op_start_seconds(pricing, op);
        out[i].whole_ns = mcp_to_ns(mcp_compute_seconds(pricing, op) + start_s);
        int64_t start_ns = mcp_to_ns(start_s);
        out[i].start_ns = start_ns < out[i].whole_ns ? start_ns : out[i].whole_ns;
    }
}

static int64_t duration_of(const struct mcp_pricing *pricing, const struct mcp_op *op,
                           const struct mcp_local_op *local, struct mcp_block_price *out)
{
    enum mcp_cost cost = mcp_op_cost(op);
    if (mcp_op_is_transfer(op)) {
        double seconds = mcp_transfer_seconds(pricing, op);
        out->comm_s[cost] += seconds;
        return mcp_to_ns(seconds * mcp_op_exposed_frac(pricing, op));
    }
    if (cost == MCP_COST_DATA) { /* the compute stream pays when it waits for it */
        out->comm_s[cost] += (double)local->whole_ns * 1e-9;
        return local->whole_ns;
    }
    out->cost_s[MCP_COST_LAUNCH] += (double)local->start_ns * 1e-9;
    out->cost_s[cost] += (double)(local->whole_ns - local->start_ns) * 1e-9;
    return local->whole_ns;
}

bool mcp_op_stops_compute(const struct mcp_op *op)
{
    if (mcp_op_code(op) == MCP_SHIFT)
        return op->hiding == MCP_HIDE_NOT;
    return mcp_op_is_transfer(op) &&
           (op->stream == MCP_STREAM_TENSOR || op->stream == MCP_STREAM_EXPERT);
}

static void play_op(struct player *p, const struct mcp_pricing *pricing,
                    const struct mcp_block *block, int i)
{
    const struct mcp_op *op = &block->ops[i];
    int64_t start = p->clock[op->stream] > p->issue ? p->clock[op->stream] : p->issue;
    enum mcp_cost awaited = MCP_COST_HOST;
    for (int w = 0; w < op->num_waits; w++)
        if (p->end[op->waits[w]] > start) {
            start = p->end[op->waits[w]];
            awaited = mcp_op_cost(&block->ops[op->waits[w]]);
        }
    bool stops = mcp_op_stops_compute(op);
    if (stops && p->clock[MCP_STREAM_COMPUTE] > start)
        start = p->clock[MCP_STREAM_COMPUTE];
    if (op->stream == MCP_STREAM_COMPUTE)
        idle(p, start, awaited);
    p->end[i] = p->clock[op->stream] = start + duration_of(pricing, op, &p->local[i], p->out);
    if (stops) {
        idle(p, p->end[i], mcp_op_cost(op));
        p->clock[MCP_STREAM_COMPUTE] = p->end[i];
    }
    if (mcp_op_code(op) == MCP_HOST)
        p->issue = p->end[i];
}

/* Streams join at the block's end; what the compute stream waits for then is the
 * transfer that ends last. */
static int64_t join(struct player *p)
{
    int64_t end = p->clock[MCP_STREAM_COMPUTE];
    enum mcp_cost cost = MCP_COST_HOST;
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        if (p->clock[s] > end) {
            end = p->clock[s];
            cost = stream_cost((unsigned)s);
        }
    idle(p, end, cost);
    return end;
}

void mcp_block_price(const struct mcp_pricing *pricing, const struct mcp_block *block,
                     struct mcp_block_price *out)
{
    struct mcp_local_op local[MCP_MAX_BLOCK_OPS];
    assert(block->num_ops <= MCP_MAX_BLOCK_OPS);
    mcp_block_local(pricing, block, local);
    mcp_block_play(pricing, block, local, out);
}

void mcp_block_play(const struct mcp_pricing *pricing, const struct mcp_block *block,
                    const struct mcp_local_op *local, struct mcp_block_price *out)
{
    struct player player;
    memset(out, 0, sizeof *out);
    memset(player.clock, 0, sizeof player.clock);
    player.issue = 0;
    player.local = local;
    player.out = out;
    for (int i = 0; i < block->num_ops; i++) {
        play_op(&player, pricing, block, i);
        out->flops += local[i].flops;
        out->launches += local[i].launches;
    }
    out->time_ns = join(&player);
    const struct mcp_stack *stack = pricing->question->stack;
    double each = stack->host_launch_s * (stack->cuda_graph ? stack->graph_launch_frac : 1);
    int64_t host = mcp_to_ns(out->launches * each);
    if (host > out->time_ns) {
        out->cost_s[MCP_COST_HOST] += (double)(host - out->time_ns) * 1e-9;
        out->time_ns = host;
    }
}
