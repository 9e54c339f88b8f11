/* sim/blocks.c: graphs of ops, and the links that transfers use. */
#include "sim/blocks.h"

#include "core/mesh.h"
#include "core/stack.h"
#include "step/constants.h"
#include "step/estimate_parts.h"

#include <math.h>
#include <string.h>

struct mcp_sim_blocks {
    struct mcp_arena *arena;
    const struct mcp_sim_steps *steps;
    struct mcp_sim_block *items; /* [pool][type][role]; num_ops 0: not made */
};

/* --- links --- */

/* The slower of both ends' links, as its price; see mcp_send_seconds(). */
struct mcp_sim_shape mcp_sim_message_shape(const struct mcp_sim_steps *steps, int class, int side,
                                           int64_t *fixed_ns)
{
    const struct mcp_plan *plan = &steps->program->plan;
    const struct mcp_question at = mcp_sim_question_of(steps->question, plan, class);
    const struct mcp_pricing pricing = {&at, plan};
    struct mcp_sim_shape shape = {{0}};
    int stages = plan->pipeline_parallel, to = (class + (side ? 1 : stages - 1)) % stages;
    *fixed_ns = mcp_to_ns(mcp_send_seconds(&pricing, class, side ? 1 : -1, 0));
    for (int tier = 0; tier < at.cluster->num_tiers; tier++) {
        bool last = tier == at.cluster->num_tiers - 1;
        if (!last && !mcp_stages_in_domain(plan, class, to, at.cluster->tiers[tier].ranks))
            continue;
        shape.loads[tier] =
            tier == 0 ? MCP_SEND_DOMAIN_FRAC : fmin(1, at.stack->message_network_frac);
        break;
    }
    return shape;
}

/* --- ops --- */

/* Each boundary is rounded once, so that phases sum to the op's time. */
static void lay_phases(struct mcp_arena *arena, const struct mcp_transfer *transfer, double exposed,
                       struct mcp_sim_op *out)
{
    struct mcp_sim_phase *phases = MCP_ARRAY(arena, transfer->num_phases, struct mcp_sim_phase);
    double seconds = 0;
    int64_t before_ns = 0;
    for (int i = 0; i < transfer->num_phases; i++) {
        const struct mcp_transfer_phase *from = &transfer->phases[i];
        bool last = i + 1 == transfer->num_phases;
        int64_t fixed_ns = mcp_to_ns((seconds + from->latency_s) * exposed);
        seconds += from->latency_s + from->links_s;
        int64_t end_ns = last ? out->time_ns : mcp_to_ns(seconds * exposed);
        fixed_ns = fixed_ns < end_ns ? fixed_ns : end_ns;
        phases[i].fixed_ns = fixed_ns - before_ns;
        phases[i].shared_ns = end_ns - fixed_ns;
        memcpy(phases[i].shape.loads, from->loads, sizeof from->loads);
        before_ns = end_ns;
    }
    out->num_phases = transfer->num_phases;
    out->phases = phases;
}

static void price_op(struct mcp_arena *arena, const struct mcp_pricing *pricing,
                     const struct mcp_op *op, struct mcp_sim_op *out)
{
    struct mcp_transfer transfer;
    out->stream = op->stream;
    out->cost = mcp_op_cost(op);
    out->time_ns = mcp_to_ns(mcp_op_seconds(pricing, op));
    if (!mcp_op_is_transfer(op))
        return;
    double exposed = mcp_op_exposed_frac(pricing, op);
    out->time_ns = mcp_to_ns(mcp_op_seconds(pricing, op) * exposed);
    mcp_transfer_of(pricing, op, &transfer);
    lay_phases(arena, &transfer, exposed, out);
}

/* Waits of op i, those that queues and stops imply included. Returns how many. */
struct queue_ends {
    int last[MCP_NUM_STREAMS], host;
};

static int list_before(const struct mcp_block *block, int i, struct queue_ends *ends,
                       int before[MCP_MAX_WAITS + 3])
{
    const struct mcp_op *op = &block->ops[i];
    int count = 0, compute = MCP_STREAM_COMPUTE;
    bool stops = mcp_op_stops_compute(op);
    for (int w = 0; w < op->num_waits; w++)
        before[count++] = op->waits[w];
    if (ends->last[op->stream] >= 0)
        before[count++] = ends->last[op->stream];
    if (stops && ends->last[compute] >= 0)
        before[count++] = ends->last[compute];
    if (ends->host >= 0)
        before[count++] = ends->host;
    ends->last[op->stream] = i;
    if (stops)
        ends->last[compute] = i;
    if (mcp_op_code(op) == MCP_HOST)
        ends->host = i;
    return count;
}

static struct queue_ends no_ends(void)
{
    struct queue_ends ends = {.host = -1};
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        ends.last[s] = -1;
    return ends;
}

/* Who waits for whom, as lists of those that come after. */
static void join_ops(struct mcp_arena *arena, const struct mcp_block *block,
                     struct mcp_sim_block *out)
{
    int before[MCP_MAX_WAITS + 3] = {0}, total = 0;
    struct queue_ends ends = no_ends();
    for (int i = 0; i < block->num_ops; i++) {
        out->ops[i].num_before = list_before(block, i, &ends, before);
        for (int b = 0; b < out->ops[i].num_before; b++)
            out->ops[before[b]].num_after++;
        total += out->ops[i].num_before;
    }
    out->after = MCP_ARRAY(arena, total, int);
    for (int i = 0, first = 0; i < block->num_ops; i++) {
        out->ops[i].first_after = first;
        first += out->ops[i].num_after;
        out->ops[i].num_after = 0;
    }
    ends = no_ends();
    for (int i = 0; i < block->num_ops; i++) {
        int count = list_before(block, i, &ends, before);
        for (int b = 0; b < count; b++) {
            struct mcp_sim_op *op = &out->ops[before[b]];
            out->after[op->first_after + op->num_after++] = i;
        }
    }
}

/* --- a block alone --- */

/* Ops wait for earlier ones, so one pass finds when each begins. */
static void find_starts(struct mcp_sim_block *block)
{
    block->alone_ns = block->host_ns;
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_sim_op *op = &block->ops[i];
        int64_t end_ns = op->alone_ns + op->time_ns;
        block->alone_ns = end_ns > block->alone_ns ? end_ns : block->alone_ns;
        for (int a = 0; a < op->num_after; a++) {
            struct mcp_sim_op *next = &block->ops[block->after[op->first_after + a]];
            next->alone_ns = end_ns > next->alone_ns ? end_ns : next->alone_ns;
        }
    }
}

/* Do the transfers under way at start_ns ask more of a tier's port than it has? */
static bool overfills(const struct mcp_sim_block *block, int64_t start_ns, int tier)
{
    double load = 0;
    for (int i = 0; i < block->num_ops; i++) {
        int64_t at_ns = block->ops[i].alone_ns;
        for (int p = 0; p < block->ops[i].num_phases; p++) {
            const struct mcp_sim_phase *phase = &block->ops[i].phases[p];
            int64_t from_ns = at_ns + phase->fixed_ns;
            at_ns = from_ns + phase->shared_ns;
            load += from_ns <= start_ns && start_ns < at_ns ? phase->shape.loads[tier] : 0;
        }
    }
    return load > MCP_SIM_FULL_LINK;
}

static void find_port_ends(struct mcp_sim_block *block)
{
    for (int i = 0; i < block->num_ops; i++) {
        int64_t at_ns = block->ops[i].alone_ns;
        for (int p = 0; p < block->ops[i].num_phases; p++) {
            const struct mcp_sim_phase *phase = &block->ops[i].phases[p];
            at_ns += phase->fixed_ns + phase->shared_ns;
            for (int tier = 0; tier < MCP_MAX_TIERS; tier++)
                if (phase->shape.loads[tier] > 0 && at_ns > block->ports_ns[tier])
                    block->ports_ns[tier] = at_ns;
        }
    }
}

static bool meets_itself(const struct mcp_sim_block *block)
{
    for (int i = 0; i < block->num_ops; i++) {
        int64_t at_ns = block->ops[i].alone_ns;
        for (int p = 0; p < block->ops[i].num_phases; p++) {
            const struct mcp_sim_phase *phase = &block->ops[i].phases[p];
            at_ns += phase->fixed_ns;
            for (int tier = 0; tier < MCP_MAX_TIERS; tier++)
                if (phase->shape.loads[tier] > 0 && overfills(block, at_ns, tier))
                    return true;
            at_ns += phase->shared_ns;
        }
    }
    return false;
}

static void make_block(struct mcp_sim_blocks *blocks, const struct mcp_pricing *pricing,
                       const struct mcp_block *block, struct mcp_sim_block *out)
{
    const struct mcp_stack *stack = pricing->question->stack;
    double each = stack->host_launch_s * (stack->cuda_graph ? stack->graph_launch_frac : 1);
    int launches = 0;
    out->num_ops = block->num_ops;
    out->ops = MCP_ARRAY(blocks->arena, block->num_ops, struct mcp_sim_op);
    for (int i = 0; i < block->num_ops; i++) {
        price_op(blocks->arena, pricing, &block->ops[i], &out->ops[i]);
        launches += mcp_op_launches(pricing, &block->ops[i]);
    }
    join_ops(blocks->arena, block, out);
    out->host_ns = mcp_to_ns(launches * each);
    find_starts(out);
    find_port_ends(out);
    out->meets_itself = meets_itself(out);
}

struct mcp_sim_blocks *mcp_sim_blocks_new(struct mcp_arena *arena,
                                          const struct mcp_sim_steps *steps)
{
    struct mcp_sim_blocks *blocks = MCP_NEW(arena, struct mcp_sim_blocks);
    int pools = mcp_cluster_num_pools(steps->question->cluster);
    blocks->arena = arena;
    blocks->steps = steps;
    blocks->items = MCP_ARRAY(arena, pools * steps->program->num_types * MCP_NUM_BLOCK_ROLES,
                              struct mcp_sim_block);
    return blocks;
}

const struct mcp_sim_block *mcp_sim_block_of(struct mcp_sim_blocks *blocks, int class,
                                             const struct mcp_entry *entry)
{
    const struct mcp_program *program = blocks->steps->program;
    int pool = program->plan.stage_pool != NULL ? program->plan.stage_pool[class] : 0;
    int type = pool * program->num_types + entry->type;
    struct mcp_sim_block *block = &blocks->items[type * MCP_NUM_BLOCK_ROLES + entry->role];
    if (block->num_ops == 0) {
        const struct mcp_question at =
            mcp_sim_question_of(blocks->steps->question, &program->plan, class);
        const struct mcp_pricing pricing = {&at, &program->plan};
        make_block(blocks, &pricing, &program->types[entry->type].blocks[entry->role], block);
    }
    return block;
}
