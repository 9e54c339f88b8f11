/* sim/ops.c: ranks, op by op; the events are those of sim/activity.h. */
#include "sim/ops.h"

#include "sim/activity.h"
#include "sim/blocks.h"
#include "sim/end.h"
#include "step/price_parts.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct message {
    int64_t sent_ns, arrival_ns, delay_ns;
};

struct mail {
    struct message *items;
    int posted, read;
};

struct transfer {
    int slot;
    const struct mcp_sim_step *step;
};

enum wait { WAIT_NOTHING, WAIT_WEIGHTS, WAIT_MESSAGE };

struct rank {
    int slot, step, phase; /* phase: of the step, after its timers */
    enum wait wait;
    int64_t wait_since_ns, step_start_ns, slot_start_ns;
    /* block at work */
    const struct mcp_sim_block *block;
    int *left_before; /* [largest block] */
    int ops_left;
    int64_t extra_ns; /* by which shared links slowed its slowest op */
    enum mcp_cost extra_cost;
    /* data stream: first in, first out */
    struct transfer *queue; /* [transfers of the class] */
    int queued, moved;
    bool moving;
    struct mcp_sim_phase *phases; /* of the one under way */
    int *pending;      /* [cell] gathers on their way */
    int64_t *alone_ns; /* [cell] */
    struct mail mail[2];
    int64_t end_ns, data_end_ns;
    double cost_s[MCP_NUM_COSTS], comm_s[MCP_NUM_COSTS], busy_s;
};

struct play {
    const struct mcp_sim_steps *steps;
    const struct mcp_program *program;
    const struct mcp_sim_ops_options *options;
    struct mcp_sim_blocks *blocks;
    struct mcp_sim_activities *activities;
    struct rank *ranks;
    struct mcp_sim_result *out;
};

static void advance(struct play *play, int c);

static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

static int64_t now_of(const struct play *play)
{
    return mcp_sim_now(play->activities);
}

static const struct mcp_slot *slot_of(const struct play *play, int c, int slot)
{
    return &play->program->classes[c].slots[slot];
}

static const struct mcp_entry *entry_of(const struct play *play, int c, int slot,
                                        const struct mcp_sim_step *step)
{
    return &play->program->lists[slot_of(play, c, slot)->list].entries[step->entry];
}

static const struct mcp_sim_list *list_of(const struct play *play, int c)
{
    return &play->steps->lists[slot_of(play, c, play->ranks[c].slot)->list];
}

static const struct mcp_sim_step *step_of(const struct play *play, int c)
{
    return &list_of(play, c)->steps[play->ranks[c].step];
}

static void emit(const struct play *play, const struct mcp_sim_span *span)
{
    if (play->options->span != NULL && span->end_ns > span->start_ns)
        play->options->span(play->options->context, span);
}

static void start_timer(struct play *play, int c, int64_t ns)
{
    mcp_sim_start(play->activities,
                  (struct mcp_sim_activity){.kind = MCP_SIM_TIMER, .class = c, .fixed_ns = ns});
}

static void next_step(struct rank *rank)
{
    rank->step++;
    rank->phase = 0;
}

/* --- blocks --- */

static void start_op(struct play *play, int c, int index)
{
    const struct mcp_sim_op *op = &play->ranks[c].block->ops[index];
    struct mcp_sim_activity activity = {
        .kind = MCP_SIM_OP, .class = c, .index = index, .fixed_ns = op->time_ns};
    if (op->num_phases > 0)
        mcp_sim_use_ports(&activity, op->phases, op->num_phases);
    mcp_sim_start(play->activities, activity);
}

static void start_block(struct play *play, int c, const struct mcp_sim_step *step)
{
    struct rank *rank = &play->ranks[c];
    rank->block = mcp_sim_block_of(play->blocks, c, entry_of(play, c, rank->slot, step));
    rank->ops_left = rank->block->num_ops;
    rank->extra_ns = 0;
    rank->step_start_ns = now_of(play);
    for (int i = 0; i < rank->block->num_ops; i++)
        rank->left_before[i] = rank->block->ops[i].num_before;
    for (int i = 0; i < rank->block->num_ops; i++)
        if (rank->block->ops[i].num_before == 0)
            start_op(play, c, i);
}

/* Costs are the price's; what shared links added goes to the op they slowed most. */
static void finish_block(struct play *play, int c)
{
    struct rank *rank = &play->ranks[c];
    const struct mcp_sim_step *step = step_of(play, c);
    int64_t time_ns = now_of(play) - rank->step_start_ns;
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        rank->cost_s[i] += step->price->cost_s[i];
        rank->comm_s[i] += step->price->comm_s[i];
    }
    rank->cost_s[rank->extra_cost] += seconds(time_ns - step->price->time_ns);
    rank->busy_s += seconds(time_ns);
    const struct mcp_sim_span span = {
        c, rank->slot, step->entry, -1, MCP_STREAM_COMPUTE, rank->step_start_ns, now_of(play)};
    emit(play, &span);
    next_step(rank);
    advance(play, c);
}

static void end_op(struct play *play, const struct mcp_sim_activity *activity)
{
    int c = activity->class;
    struct rank *rank = &play->ranks[c];
    const struct mcp_sim_op *op = &rank->block->ops[activity->index];
    const struct mcp_sim_span span = {c,
                                      rank->slot,
                                      step_of(play, c)->entry,
                                      activity->index,
                                      (enum mcp_stream)op->stream,
                                      activity->start_ns,
                                      now_of(play)};
    emit(play, &span);
    int64_t extra_ns = now_of(play) - activity->start_ns - op->time_ns;
    if (extra_ns >= rank->extra_ns) {
        rank->extra_ns = extra_ns;
        rank->extra_cost = op->cost;
    }
    play->out->events++;
    for (int i = 0; i < op->num_after; i++) {
        int next = rank->block->after[op->first_after + i];
        if (--rank->left_before[next] == 0)
            start_op(play, c, next);
    }
    if (--rank->ops_left > 0)
        return;
    int64_t host_end_ns = rank->step_start_ns + rank->block->host_ns;
    if (host_end_ns > now_of(play)) {
        rank->phase = 2; /* the device waits for launches */
        start_timer(play, c, host_end_ns - now_of(play));
    } else {
        finish_block(play, c);
    }
}

/* --- data stream --- */

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

static void start_transfer(struct play *play, int c)
{
    struct rank *rank = &play->ranks[c];
    const struct transfer *transfer = &rank->queue[rank->moved];
    const struct mcp_sim_step *step = transfer->step;
    const struct mcp_sim_block *block =
        mcp_sim_block_of(play->blocks, c, entry_of(play, c, transfer->slot, step));
    struct mcp_sim_activity activity = {
        .kind = MCP_SIM_DATA, .class = c, .fixed_ns = step->data_ns};
    int count = scale_phases(block, step->data_ns, rank->phases);
    if (count > 0)
        mcp_sim_use_ports(&activity, rank->phases, count);
    rank->moving = true;
    mcp_sim_start(play->activities, activity);
}

static void emit_transfer(const struct play *play, int c, const struct transfer *transfer,
                          int64_t start_ns)
{
    const struct mcp_sim_block *block =
        mcp_sim_block_of(play->blocks, c, entry_of(play, c, transfer->slot, transfer->step));
    int64_t total_ns = 0, before_ns = 0, time_ns = now_of(play) - start_ns;
    for (int i = 0; i < block->num_ops; i++)
        total_ns += block->ops[i].time_ns;
    for (int i = 0; i < block->num_ops && total_ns > 0; i++) {
        struct mcp_sim_span span = {c, transfer->slot, transfer->step->entry, i, MCP_STREAM_DATA, 0,
                                    0};
        double from = (double)before_ns / (double)total_ns;
        before_ns += block->ops[i].time_ns;
        double to = (double)before_ns / (double)total_ns;
        span.start_ns = start_ns + (int64_t)((double)time_ns * from);
        span.end_ns = start_ns + (int64_t)((double)time_ns * to);
        emit(play, &span);
    }
}

static void end_transfer(struct play *play, const struct mcp_sim_activity *activity)
{
    int c = activity->class;
    struct rank *rank = &play->ranks[c];
    const struct transfer *transfer = &rank->queue[rank->moved++];
    emit_transfer(play, c, transfer, activity->start_ns);
    play->out->events++;
    rank->data_end_ns = now_of(play);
    rank->moving = false;
    if (rank->moved < rank->queued)
        start_transfer(play, c);
    if (transfer->step->kind == MCP_SIM_GATHER)
        rank->pending[transfer->step->cell]--;
    if (rank->wait == WAIT_WEIGHTS)
        advance(play, c);
}

static void queue_transfer(struct play *play, int c, const struct mcp_sim_step *step)
{
    struct rank *rank = &play->ranks[c];
    rank->queue[rank->queued++] = (struct transfer){rank->slot, step};
    rank->comm_s[MCP_COST_DATA] += seconds(step->price->time_ns);
    if (step->kind == MCP_SIM_GATHER) {
        rank->pending[step->cell]++;
        rank->alone_ns[step->cell] = step->alone_ns;
    }
    if (!rank->moving)
        start_transfer(play, c);
}

/* --- messages --- */

static int peer_of(const struct play *play, int c, int side)
{
    int p = play->program->num_classes;
    return (c + (side ? 1 : p - 1)) % p;
}

/* `part_ns` of the message, of which its latency comes first. */
static void start_message(struct play *play, int c, enum mcp_sim_activity_kind kind,
                          int64_t before_ns, int64_t part_ns)
{
    const struct mcp_sim_step *step = step_of(play, c);
    int64_t latency_ns;
    const struct mcp_sim_shape shape =
        mcp_sim_message_shape(play->steps, c, step->side, &latency_ns);
    struct mcp_sim_activity activity = {.kind = kind, .class = c, .index = step->side};
    latency_ns = latency_ns > before_ns ? latency_ns - before_ns : 0;
    activity.fixed_ns = latency_ns < part_ns ? latency_ns : part_ns;
    activity.shared_ns = part_ns - activity.fixed_ns;
    activity.sent_ns = play->ranks[c].step_start_ns;
    mcp_sim_use_route(&activity, &shape, peer_of(play, c, step->side));
    mcp_sim_start(play->activities, activity);
}

static void end_near(struct play *play, const struct mcp_sim_activity *activity)
{
    int c = activity->class;
    struct rank *rank = &play->ranks[c];
    const struct mcp_sim_step *step = step_of(play, c);
    int64_t time_ns = now_of(play) - activity->start_ns;
    rank->busy_s += seconds(time_ns);
    rank->cost_s[MCP_COST_PIPELINE] += seconds(time_ns);
    rank->comm_s[MCP_COST_PIPELINE] += seconds(step->time_ns + step->delay_ns);
    start_message(play, c, MCP_SIM_FAR, step->time_ns, step->delay_ns);
    const struct mcp_sim_span span = {c,
                                      rank->slot,
                                      step->entry,
                                      0,
                                      step->side ? MCP_STREAM_SEND_NEXT : MCP_STREAM_SEND_PREVIOUS,
                                      activity->start_ns,
                                      now_of(play)};
    emit(play, &span);
    next_step(rank);
    advance(play, c);
}

static void end_far(struct play *play, const struct mcp_sim_activity *activity)
{
    int to = peer_of(play, activity->class, activity->index);
    struct mail *mail = &play->ranks[to].mail[!activity->index];
    int64_t now = now_of(play);
    mail->items[mail->posted++] =
        (struct message){activity->sent_ns, now, now - activity->start_ns};
    play->out->events++;
    if (play->ranks[to].wait == WAIT_MESSAGE)
        advance(play, to);
}

static void receive(struct play *play, int c, const struct mcp_sim_step *step)
{
    struct rank *rank = &play->ranks[c];
    struct mail *mail = &rank->mail[step->side];
    const struct message *message = &mail->items[mail->read++];
    int64_t idle = rank->wait == WAIT_MESSAGE ? now_of(play) - rank->wait_since_ns : 0;
    int64_t exposed = idle < message->delay_ns ? idle : message->delay_ns;
    rank->cost_s[MCP_COST_PIPELINE] += seconds(exposed);
    rank->cost_s[MCP_COST_BUBBLE] += seconds(idle - exposed);
    if (rank->step == 0)
        rank->slot_start_ns += idle;
    const struct mcp_sim_span span = {c,
                                      rank->slot,
                                      step->entry,
                                      0,
                                      step->side ? MCP_STREAM_RECEIVE_NEXT
                                                 : MCP_STREAM_RECEIVE_PREVIOUS,
                                      message->sent_ns,
                                      message->arrival_ns};
    emit(play, &span);
}

/* --- steps: each runs until it must wait; true when it is over --- */

static void start_waiting(struct play *play, struct rank *rank, enum wait wait)
{
    if (rank->wait == WAIT_NOTHING)
        rank->wait_since_ns = now_of(play);
    rank->wait = wait;
}

static void wait_for_data(struct rank *rank, int64_t ns)
{
    rank->cost_s[MCP_COST_DATA] += seconds(ns);
    rank->busy_s += seconds(ns);
}

static bool run_compute(struct play *play, int c, const struct mcp_sim_step *step)
{
    struct rank *rank = &play->ranks[c];
    if (rank->phase == 2) { /* launches are done */
        finish_block(play, c);
        return false;
    }
    if (rank->pending[step->cell] > 0) {
        start_waiting(play, rank, WAIT_WEIGHTS);
        return false;
    }
    if (rank->wait == WAIT_WEIGHTS)
        wait_for_data(rank, now_of(play) - rank->wait_since_ns);
    rank->wait = WAIT_NOTHING;
    int64_t alone_ns = rank->alone_ns[step->cell];
    rank->alone_ns[step->cell] = 0;
    if (alone_ns > 0) {
        wait_for_data(rank, alone_ns);
        start_timer(play, c, alone_ns);
        return false;
    }
    start_block(play, c, step);
    return false;
}

static bool run_transfer(struct play *play, int c, const struct mcp_sim_step *step)
{
    struct rank *rank = &play->ranks[c];
    if (rank->phase == 0) {
        queue_transfer(play, c, step);
        if (step->kind == MCP_SIM_REDUCE && step->alone_ns > 0) {
            wait_for_data(rank, step->alone_ns);
            start_timer(play, c, step->alone_ns);
            return false;
        }
    }
    return true;
}

static bool run_receive(struct play *play, int c, const struct mcp_sim_step *step)
{
    struct rank *rank = &play->ranks[c];
    if (rank->phase == 0 && step->time_ns > 0) {
        rank->busy_s += seconds(step->time_ns);
        rank->cost_s[MCP_COST_PIPELINE] += seconds(step->time_ns);
        start_timer(play, c, step->time_ns);
        return false;
    }
    if (rank->mail[step->side].read == rank->mail[step->side].posted) {
        start_waiting(play, rank, WAIT_MESSAGE);
        return false;
    }
    receive(play, c, step);
    rank->wait = WAIT_NOTHING;
    return true;
}

static bool run_step(struct play *play, int c, const struct mcp_sim_step *step)
{
    switch (step->kind) {
    case MCP_SIM_COMPUTE:
        return run_compute(play, c, step);
    case MCP_SIM_GATHER:
    case MCP_SIM_REDUCE:
        return run_transfer(play, c, step);
    case MCP_SIM_SEND:
        play->ranks[c].step_start_ns = now_of(play);
        start_message(play, c, MCP_SIM_NEAR, 0, step->time_ns);
        return false;
    case MCP_SIM_RECEIVE:
        return run_receive(play, c, step);
    }
    return true;
}

/* Goes on with the rank's own stream until it must wait. */
static void advance(struct play *play, int c)
{
    struct rank *rank = &play->ranks[c];
    struct mcp_sim_stage *stage = &play->out->stages[c];
    while (rank->slot < play->program->classes[c].num_slots) {
        const struct mcp_sim_list *list = list_of(play, c);
        if (rank->slot_start_ns < 0)
            rank->slot_start_ns = now_of(play);
        while (rank->step < list->num_steps) {
            if (!run_step(play, c, &list->steps[rank->step]))
                return;
            next_step(rank);
        }
        stage->times[rank->slot++] = (struct mcp_sim_slot_time){rank->slot_start_ns, now_of(play)};
        rank->slot_start_ns = -1;
        rank->step = 0;
    }
    rank->end_ns = now_of(play);
}

static void end_activity(struct play *play, const struct mcp_sim_activity *activity)
{
    switch (activity->kind) {
    case MCP_SIM_OP:
        end_op(play, activity);
        return;
    case MCP_SIM_DATA:
        end_transfer(play, activity);
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
        advance(play, activity->class);
        return;
    }
}

/* --- the whole step --- */

static int largest_block(const struct mcp_program *program)
{
    int largest = 0;
    for (int t = 0; t < program->num_types; t++)
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
            if (program->types[t].blocks[role].num_ops > largest)
                largest = program->types[t].blocks[role].num_ops;
    return largest;
}

/* Phases of one block's transfers, at most. */
static int most_phases(const struct mcp_program *program)
{
    return largest_block(program) * MCP_MAX_PHASES;
}

static int count_transfers(const struct play *play, int c)
{
    int count = 0;
    for (int s = 0; s < play->program->classes[c].num_slots; s++) {
        const struct mcp_sim_list *list = &play->steps->lists[slot_of(play, c, s)->list];
        for (int i = 0; i < list->num_steps; i++)
            count += list->steps[i].kind == MCP_SIM_GATHER || list->steps[i].kind == MCP_SIM_REDUCE;
    }
    return count;
}

static void make_rank(struct mcp_arena *arena, struct play *play, int c)
{
    struct rank *rank = &play->ranks[c];
    size_t cells = ((size_t)play->program->num_layers + 1) * (size_t)play->steps->num_copies;
    int num_slots = play->program->classes[c].num_slots;
    rank->slot_start_ns = -1;
    rank->left_before = MCP_ARRAY(arena, largest_block(play->program), int);
    rank->queue = MCP_ARRAY(arena, count_transfers(play, c), struct transfer);
    rank->phases = MCP_ARRAY(arena, most_phases(play->program), struct mcp_sim_phase);
    rank->pending = MCP_ARRAY(arena, cells, int);
    rank->alone_ns = MCP_ARRAY(arena, cells, int64_t);
    for (int i = 0; i < 2; i++)
        rank->mail[i].items = MCP_ARRAY(arena, num_slots, struct message);
    int64_t head_ns = play->steps->classes[c].head_ns;
    rank->cost_s[MCP_COST_DATA] = rank->comm_s[MCP_COST_DATA] = seconds(head_ns);
    rank->slot_start_ns = head_ns;
    rank->phase = -1; /* before the first step */
    start_timer(play, c, head_ns);
}

static void end_rank(struct play *play, int c)
{
    struct rank *rank = &play->ranks[c];
    struct mcp_sim_stage *stage = &play->out->stages[c];
    int64_t tail_ns = play->steps->classes[c].tail_ns, end_ns = rank->end_ns;
    assert(rank->slot == play->program->classes[c].num_slots);
    stage->earliest_end_ns = stage->latest_end_ns = end_ns;
    if (rank->data_end_ns > end_ns)
        end_ns = rank->data_end_ns;
    end_ns += tail_ns;
    rank->cost_s[MCP_COST_DATA] += seconds(end_ns - rank->end_ns);
    rank->comm_s[MCP_COST_DATA] += seconds(tail_ns);
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        stage->cost_s[i] = rank->cost_s[i];
        play->out->comm_s[i] += rank->comm_s[i] / play->program->num_classes;
    }
    stage->cost_s[MCP_COST_BUBBLE] -= seconds(end_ns);
    stage->busy_s = rank->busy_s;
    play->out->end_ns = end_ns > play->out->end_ns ? end_ns : play->out->end_ns;
}

void mcp_sim_play_ops(struct mcp_arena *arena, const struct mcp_question *question,
                      const struct mcp_program *program, const struct mcp_sim_ops_options *options,
                      struct mcp_sim_result *out)
{
    struct play play = {.program = program, .options = options, .out = out};
    struct mcp_sim_activity activity;
    int classes = program->num_classes;
    play.steps = mcp_sim_steps_new(arena, question, program);
    play.blocks = mcp_sim_blocks_new(arena, play.steps);
    play.activities = mcp_sim_activities_new(arena, classes, options->shared_links);
    play.ranks = MCP_ARRAY(arena, classes, struct rank);
    mcp_sim_result_new(arena, program, out);
    for (int c = 0; c < classes; c++)
        make_rank(arena, &play, c);
    while (mcp_sim_next(play.activities, &activity))
        end_activity(&play, &activity);
    for (int c = 0; c < classes; c++)
        end_rank(&play, c);
    mcp_sim_finish(play.steps, out);
    mcp_sim_end_spans(play.steps, play.blocks, options, out);
}
