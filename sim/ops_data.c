/* sim/ops_data.c: the data stream of ranks played op by op: first in, first out. */
#include "sim/ops_parts.h"

#include <math.h>

/* All phases of the block's transfers, one after the other, each made shorter so that they
 * sum to `time_ns`: the share that runs beside compute. Returns how many. */
static int scale_phases(const struct mcp_sim_block *block, int64_t time_ns,
                        struct mcp_sim_phase *phases)
{
    int count = 0;
    int64_t total_ns = 0, done_ns = 0, before_ns = 0;
    for (int i = 0; i < block->num_ops; i++)
        total_ns += block->ops[i].num_phases > 0 ? block->ops[i].time_ns : 0;
    double scale = total_ns > 0 ? (double)time_ns / (double)total_ns : 0;
    for (int i = 0; i < block->num_ops; i++)
        for (int p = 0; p < block->ops[i].num_phases; p++) {
            struct mcp_sim_phase *phase = &phases[count++];
            *phase = block->ops[i].phases[p];
            int64_t fixed_end_ns = llround((double)(done_ns + phase->fixed_ns) * scale);
            done_ns += phase->fixed_ns + phase->shared_ns;
            int64_t end_ns = done_ns < total_ns ? llround((double)done_ns * scale) : time_ns;
            phase->fixed_ns = fixed_end_ns - before_ns;
            phase->shared_ns = end_ns - fixed_end_ns;
            before_ns = end_ns;
        }
    return count;
}

static void start_transfer(struct mcp_sim_ops_play *play, int c)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    const struct mcp_sim_transfer *transfer = &rank->queue[rank->moved];
    const struct mcp_sim_step *step = transfer->step;
    const struct mcp_sim_block *block = mcp_sim_ops_block(play, c, transfer->slot, step);
    struct mcp_sim_activity activity = {
        .kind = MCP_SIM_DATA, .class = c, .fixed_ns = step->data_ns};
    int count = scale_phases(block, step->data_ns, rank->phases);
    if (count > 0)
        mcp_sim_use_ports(&activity, rank->phases, count);
    rank->moving = true;
    mcp_sim_start(play->activities, &activity);
}

static void emit_transfer(const struct mcp_sim_ops_play *play, int c,
                          const struct mcp_sim_transfer *transfer, int64_t start_ns)
{
    const struct mcp_sim_block *block = mcp_sim_ops_block(play, c, transfer->slot, transfer->step);
    int64_t total_ns = 0, before_ns = 0, time_ns = mcp_sim_ops_now(play) - start_ns;
    for (int i = 0; i < block->num_ops; i++)
        total_ns += block->ops[i].time_ns;
    for (int i = 0; i < block->num_ops && total_ns > 0; i++) {
        struct mcp_sim_span span = {
            play->cell, c, transfer->slot, transfer->step->entry, i, MCP_STREAM_DATA, 0, 0};
        double from = (double)before_ns / (double)total_ns;
        before_ns += block->ops[i].time_ns;
        double to = (double)before_ns / (double)total_ns;
        span.start_ns = start_ns + (int64_t)((double)time_ns * from);
        span.end_ns = start_ns + (int64_t)((double)time_ns * to);
        mcp_sim_ops_emit(play, &span);
    }
}

void mcp_sim_ops_end_transfer(struct mcp_sim_ops_play *play,
                              const struct mcp_sim_activity *activity)
{
    int c = activity->class;
    struct mcp_sim_rank *rank = &play->ranks[c];
    const struct mcp_sim_transfer *transfer = &rank->queue[rank->moved++];
    emit_transfer(play, c, transfer, activity->start_ns);
    play->out->events++;
    rank->data_end_ns = mcp_sim_ops_now(play);
    rank->moving = false;
    if (rank->moved < rank->queued)
        start_transfer(play, c);
    if (transfer->step->kind == MCP_SIM_GATHER)
        rank->pending[transfer->step->cell]--;
    if (rank->wait == MCP_SIM_WAIT_WEIGHTS)
        mcp_sim_ops_advance(play, c);
}

void mcp_sim_ops_queue_transfer(struct mcp_sim_ops_play *play, int c,
                                const struct mcp_sim_step *step)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    rank->queue[rank->queued++] = (struct mcp_sim_transfer){rank->slot, step};
    rank->comm_s[MCP_COST_DATA] += mcp_sim_seconds(step->price->time_ns);
    if (step->kind == MCP_SIM_GATHER) {
        rank->pending[step->cell]++;
        rank->alone_ns[step->cell] = step->alone_ns;
    }
    if (!rank->moving)
        start_transfer(play, c);
}
