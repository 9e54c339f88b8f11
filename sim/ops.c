/* sim/ops.c: ranks, op by op; the events are those of sim/activity.h. */
#include "sim/ops_parts.h"

#include <math.h>

static const struct mcp_slot *slot_of(const struct mcp_sim_ops_play *play, int c, int slot)
{
    return &play->program->classes[c].slots[slot];
}

static int list_of(const struct mcp_sim_ops_play *play, int c)
{
    return slot_of(play, c, play->ranks[c].slot)->list;
}

static const struct mcp_sim_step *step_of(const struct mcp_sim_ops_play *play, int c)
{
    return mcp_sim_step_at(&play->unequal, play->cell, c, list_of(play, c), play->ranks[c].step);
}

const struct mcp_sim_block *mcp_sim_ops_block(const struct mcp_sim_ops_play *play, int c, int slot,
                                              const struct mcp_sim_step *step)
{
    bool slow = mcp_sim_is_slow(&play->unequal, play->cell, c, step);
    return mcp_sim_block_of(
        slow ? play->slow_blocks : play->blocks, c,
        &play->program->lists[slot_of(play, c, slot)->list].entries[step->entry]);
}

void mcp_sim_ops_emit(const struct mcp_sim_ops_play *play, const struct mcp_sim_span *span)
{
    if (play->options->span != NULL && span->end_ns > span->start_ns)
        play->options->span(play->options->context, span);
}

void mcp_sim_ops_timer(const struct mcp_sim_ops_play *play, int c, int64_t ns)
{
    const struct mcp_sim_activity timer = {.kind = MCP_SIM_TIMER, .class = c, .fixed_ns = ns};
    mcp_sim_start(play->activities, &timer);
}

static void next_step(struct mcp_sim_rank *rank)
{
    rank->step++;
    rank->phase = 0;
}

/* --- blocks --- */

/* Compute alone is slower on a slower rank. */
static int64_t stretched_ns(const struct mcp_sim_rank *rank, const struct mcp_sim_op *op)
{
    bool stretches = op->cost < MCP_COST_TENSOR && rank->stretch.largest != 1;
    return stretches ? llround((double)op->time_ns * rank->stretch.largest) : op->time_ns;
}

void mcp_sim_ops_start_op(const struct mcp_sim_ops_play *play, int c, int index, int64_t elapsed_ns)
{
    const struct mcp_sim_op *op = &play->ranks[c].block->ops[index];
    struct mcp_sim_activity activity = {.kind = MCP_SIM_OP,
                                        .class = c,
                                        .index = index,
                                        .fixed_ns = stretched_ns(&play->ranks[c], op)};
    if (op->num_phases > 0)
        mcp_sim_use_ports(&activity, op->phases, op->num_phases);
    if (elapsed_ns > 0)
        mcp_sim_resume(play->activities, &activity, elapsed_ns);
    else
        mcp_sim_start(play->activities, &activity);
}

static void start_block(struct mcp_sim_ops_play *play, int c, const struct mcp_sim_step *step)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    rank->block = mcp_sim_ops_block(play, c, rank->slot, step);
    rank->ops_left = rank->block->num_ops;
    rank->extra_ns = 0;
    rank->extra_cost = play->unequal.group_cost;
    rank->step_start_ns = mcp_sim_ops_now(play);
    if (mcp_sim_ops_fold(play, c))
        return;
    for (int i = 0; i < rank->block->num_ops; i++)
        rank->left_before[i] = rank->block->ops[i].num_before;
    for (int i = 0; i < rank->block->num_ops; i++)
        if (rank->block->ops[i].num_before == 0)
            mcp_sim_ops_start_op(play, c, i, 0);
}

/* What slower ranks add to a block: their mean is compute, the rest waiting for the
 * slowest. Returns the sum. */
static double account_stretch(const struct mcp_sim_ops_play *play, struct mcp_sim_rank *rank,
                              const struct mcp_sim_step *step)
{
    double stretch_s = mcp_sim_seconds(step->stretch_ns);
    double own = stretch_s * (rank->stretch.mean - 1);
    double group = stretch_s * (rank->stretch.largest - rank->stretch.mean);
    for (int i = MCP_COST_MATMUL; stretch_s > 0 && i < MCP_COST_TENSOR; i++)
        rank->cost_s[i] += step->price->cost_s[i] * own / stretch_s;
    rank->cost_s[play->unequal.group_cost] += group;
    return own + group;
}

/* Costs are the price's; what shared links added goes to the op they slowed most. */
static void finish_block(struct mcp_sim_ops_play *play, int c)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    const struct mcp_sim_step *step = step_of(play, c);
    int64_t time_ns = mcp_sim_ops_now(play) - rank->step_start_ns;
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        rank->cost_s[i] += step->price->cost_s[i];
        rank->comm_s[i] += step->price->comm_s[i];
    }
    double extra_s = mcp_sim_seconds(time_ns - step->price->time_ns);
    if (play->unequal.any)
        extra_s -= account_stretch(play, rank, step);
    rank->cost_s[rank->extra_cost] += extra_s;
    rank->busy_s += mcp_sim_seconds(time_ns);
    const struct mcp_sim_span span = {play->cell,
                                      c,
                                      rank->slot,
                                      step->entry,
                                      -1,
                                      MCP_STREAM_COMPUTE,
                                      rank->step_start_ns,
                                      mcp_sim_ops_now(play)};
    mcp_sim_ops_emit(play, &span);
    next_step(rank);
    mcp_sim_ops_advance(play, c);
}

void mcp_sim_ops_await_launches(const struct mcp_sim_ops_play *play, int c)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    int64_t host_end_ns = rank->step_start_ns + rank->block->host_ns;
    rank->phase = 2; /* the device waits for launches */
    rank->extra_cost = MCP_COST_HOST;
    mcp_sim_ops_timer(play, c, host_end_ns - mcp_sim_ops_now(play));
}

static void end_op(struct mcp_sim_ops_play *play, const struct mcp_sim_activity *activity)
{
    int c = activity->class;
    struct mcp_sim_rank *rank = &play->ranks[c];
    const struct mcp_sim_op *op = &rank->block->ops[activity->index];
    const struct mcp_sim_span span = {play->cell,         c,
                                      rank->slot,         step_of(play, c)->entry,
                                      activity->index,    (enum mcp_stream)op->stream,
                                      activity->start_ns, mcp_sim_ops_now(play)};
    mcp_sim_ops_emit(play, &span);
    int64_t extra_ns = mcp_sim_ops_now(play) - activity->start_ns - op->time_ns;
    if (op->num_phases > 0 && extra_ns >= rank->extra_ns) {
        rank->extra_ns = extra_ns;
        rank->extra_cost = op->cost;
    }
    play->out->events++;
    for (int i = 0; i < op->num_after; i++) {
        int next = rank->block->after[op->first_after + i];
        if (--rank->left_before[next] == 0)
            mcp_sim_ops_start_op(play, c, next, 0);
    }
    if (--rank->ops_left > 0)
        return;
    int64_t host_end_ns = rank->step_start_ns + rank->block->host_ns;
    if (host_end_ns > mcp_sim_ops_now(play))
        mcp_sim_ops_await_launches(play, c);
    else
        finish_block(play, c);
}

/* --- messages --- */

static int peer_of(const struct mcp_sim_ops_play *play, int c, int side)
{
    int p = play->program->num_classes;
    return (c + (side ? 1 : p - 1)) % p;
}

/* On the ports of both ends. */
static void count_message(struct mcp_sim_ops_play *play, const struct mcp_sim_flow *flow,
                          int change)
{
    for (int i = 0; i < flow->num_links; i++) {
        int class = mcp_sim_link_class(flow->links[i]), tier = mcp_sim_link_tier(flow->links[i]);
        play->ranks[class].messages[tier] += change;
        if (change > 0)
            mcp_sim_ops_unfold(play, class, tier);
    }
}

/* `part_ns` of the message, of which its latency comes first. */
static void start_message(struct mcp_sim_ops_play *play, int c, enum mcp_sim_activity_kind kind,
                          int64_t before_ns, int64_t part_ns)
{
    const struct mcp_sim_step *step = step_of(play, c);
    int64_t latency_ns;
    bool slow = mcp_sim_is_slow(&play->unequal, play->cell, c, step);
    const struct mcp_sim_shape shape =
        mcp_sim_message_shape(slow ? play->steps->slow : play->steps, c, step->side, &latency_ns);
    struct mcp_sim_activity activity = {
        .kind = kind, .class = c, .index = 2 * step->mail + step->side};
    latency_ns = latency_ns > before_ns ? latency_ns - before_ns : 0;
    activity.fixed_ns = latency_ns < part_ns ? latency_ns : part_ns;
    activity.shared_ns = part_ns - activity.fixed_ns;
    activity.sent_ns = play->ranks[c].step_start_ns;
    mcp_sim_use_route(&activity, &shape, peer_of(play, c, step->side));
    count_message(play, &activity.flow, 1);
    mcp_sim_start(play->activities, &activity);
}

static void end_near(struct mcp_sim_ops_play *play, const struct mcp_sim_activity *activity)
{
    int c = activity->class;
    struct mcp_sim_rank *rank = &play->ranks[c];
    const struct mcp_sim_step *step = step_of(play, c);
    int64_t time_ns = mcp_sim_ops_now(play) - activity->start_ns;
    count_message(play, &activity->flow, -1);
    rank->busy_s += mcp_sim_seconds(time_ns);
    rank->cost_s[MCP_COST_PIPELINE] += mcp_sim_seconds(time_ns);
    rank->comm_s[MCP_COST_PIPELINE] += mcp_sim_seconds(step->time_ns + step->delay_ns);
    start_message(play, c, MCP_SIM_FAR, step->time_ns, step->delay_ns);
    const struct mcp_sim_span span = {
        play->cell,           c, rank->slot, step->entry, 0, step->stream, activity->start_ns,
        mcp_sim_ops_now(play)};
    mcp_sim_ops_emit(play, &span);
    next_step(rank);
    mcp_sim_ops_advance(play, c);
}

static void end_far(struct mcp_sim_ops_play *play, const struct mcp_sim_activity *activity)
{
    int to = peer_of(play, activity->class, activity->index % 2);
    struct mcp_sim_mail *mail = &play->ranks[to].mail[activity->index / 2];
    int64_t now = mcp_sim_ops_now(play);
    count_message(play, &activity->flow, -1);
    mail->items[mail->posted++] =
        (struct mcp_sim_message){activity->sent_ns, now, now - activity->start_ns};
    play->out->events++;
    if (play->ranks[to].wait == MCP_SIM_WAIT_MESSAGE)
        mcp_sim_ops_advance(play, to);
}

static void receive(struct mcp_sim_ops_play *play, int c, const struct mcp_sim_step *step)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    struct mcp_sim_mail *mail = &rank->mail[step->mail];
    const struct mcp_sim_message *message = &mail->items[mail->read++];
    int64_t idle =
        rank->wait == MCP_SIM_WAIT_MESSAGE ? mcp_sim_ops_now(play) - rank->wait_since_ns : 0;
    int64_t exposed = idle < message->delay_ns ? idle : message->delay_ns;
    rank->cost_s[MCP_COST_PIPELINE] += mcp_sim_seconds(exposed);
    rank->cost_s[MCP_COST_BUBBLE] += mcp_sim_seconds(idle - exposed);
    if (rank->step == 0)
        rank->slot_start_ns += idle;
    const struct mcp_sim_span span = {
        play->cell,         c, rank->slot, step->entry, 0, step->stream, message->sent_ns,
        message->arrival_ns};
    mcp_sim_ops_emit(play, &span);
}

/* --- steps: each runs until it must wait; true when it is over --- */

static void start_waiting(struct mcp_sim_ops_play *play, struct mcp_sim_rank *rank,
                          enum mcp_sim_wait wait)
{
    if (rank->wait == MCP_SIM_WAIT_NOTHING)
        rank->wait_since_ns = mcp_sim_ops_now(play);
    rank->wait = wait;
}

static void wait_for_data(struct mcp_sim_rank *rank, int64_t ns)
{
    rank->cost_s[MCP_COST_DATA] += mcp_sim_seconds(ns);
    rank->busy_s += mcp_sim_seconds(ns);
}

static bool run_compute(struct mcp_sim_ops_play *play, int c, const struct mcp_sim_step *step)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    if (rank->phase == 2) { /* launches are done */
        finish_block(play, c);
        return false;
    }
    if (rank->pending[step->cell] > 0) {
        start_waiting(play, rank, MCP_SIM_WAIT_WEIGHTS);
        return false;
    }
    if (rank->wait == MCP_SIM_WAIT_WEIGHTS)
        wait_for_data(rank, mcp_sim_ops_now(play) - rank->wait_since_ns);
    rank->wait = MCP_SIM_WAIT_NOTHING;
    int64_t alone_ns = rank->alone_ns[step->cell];
    rank->alone_ns[step->cell] = 0;
    if (alone_ns > 0) {
        wait_for_data(rank, alone_ns);
        mcp_sim_ops_timer(play, c, alone_ns);
        return false;
    }
    start_block(play, c, step);
    return false;
}

static bool run_transfer(struct mcp_sim_ops_play *play, int c, const struct mcp_sim_step *step)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    if (rank->phase == 0) {
        mcp_sim_ops_queue_transfer(play, c, step);
        if (step->kind == MCP_SIM_REDUCE && step->alone_ns > 0) {
            wait_for_data(rank, step->alone_ns);
            mcp_sim_ops_timer(play, c, step->alone_ns);
            return false;
        }
    }
    return true;
}

static bool run_receive(struct mcp_sim_ops_play *play, int c, const struct mcp_sim_step *step)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    if (rank->phase == 0 && step->time_ns > 0) {
        rank->busy_s += mcp_sim_seconds(step->time_ns);
        rank->cost_s[MCP_COST_PIPELINE] += mcp_sim_seconds(step->time_ns);
        mcp_sim_ops_timer(play, c, step->time_ns);
        return false;
    }
    if (rank->mail[step->mail].read == rank->mail[step->mail].posted) {
        start_waiting(play, rank, MCP_SIM_WAIT_MESSAGE);
        return false;
    }
    receive(play, c, step);
    rank->wait = MCP_SIM_WAIT_NOTHING;
    return true;
}

static bool run_step(struct mcp_sim_ops_play *play, int c, const struct mcp_sim_step *step)
{
    switch (step->kind) {
    case MCP_SIM_COMPUTE:
        return run_compute(play, c, step);
    case MCP_SIM_GATHER:
    case MCP_SIM_REDUCE:
        return run_transfer(play, c, step);
    case MCP_SIM_SEND:
        play->ranks[c].step_start_ns = mcp_sim_ops_now(play);
        start_message(play, c, MCP_SIM_NEAR, 0, step->time_ns);
        return false;
    case MCP_SIM_RECEIVE:
        return run_receive(play, c, step);
    }
    return true;
}

static void end_slot(struct mcp_sim_ops_play *play, int c)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    const struct mcp_sim_span span = {
        play->cell,           c, rank->slot, -1, -1, MCP_STREAM_COMPUTE, rank->slot_start_ns,
        mcp_sim_ops_now(play)};
    mcp_sim_ops_emit(play, &span);
    rank->times[rank->slot++] =
        (struct mcp_sim_slot_time){rank->slot_start_ns, mcp_sim_ops_now(play)};
    rank->slot_start_ns = -1;
    rank->step = 0;
}

static void begin_slot(struct mcp_sim_ops_play *play, int c)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    if (rank->slot_start_ns < 0)
        rank->slot_start_ns = mcp_sim_ops_now(play);
    if (rank->step == 0 && rank->phase <= 0)
        rank->stretch = mcp_sim_stretch_of(&play->unequal, play->cell, c, rank->slot);
}

void mcp_sim_ops_advance(struct mcp_sim_ops_play *play, int c)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    while (rank->slot < play->program->classes[c].num_slots) {
        const struct mcp_sim_list *list = &play->steps->lists[list_of(play, c)];
        begin_slot(play, c);
        while (rank->step < list->num_steps) {
            if (!run_step(play, c, step_of(play, c)))
                return;
            next_step(rank);
        }
        end_slot(play, c);
    }
    rank->end_ns = mcp_sim_ops_now(play);
}

void mcp_sim_ops_end_activity(struct mcp_sim_ops_play *play,
                              const struct mcp_sim_activity *activity)
{
    switch (activity->kind) {
    case MCP_SIM_OP:
        end_op(play, activity);
        return;
    case MCP_SIM_BLOCK:
        play->ranks[activity->class].folded = false;
        play->out->events++;
        finish_block(play, activity->class);
        return;
    case MCP_SIM_DATA:
        mcp_sim_ops_end_transfer(play, activity);
        return;
    case MCP_SIM_NEAR:
        end_near(play, activity);
        return;
    case MCP_SIM_FAR:
        end_far(play, activity);
        return;
    case MCP_SIM_TIMER:
        if (play->ranks[activity->class].phase < 1)
            play->ranks[activity->class].phase++;
        mcp_sim_ops_advance(play, activity->class);
        return;
    }
}
