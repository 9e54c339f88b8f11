/* exec/cuda_streams.c: a ring of events behind each stream. */
#include "exec/cuda_streams.h"

#include "exec/cuda_runtime.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_CAPACITY = 64, OP_TEXT = 160 };

enum mcp_status mcp_cuda_streams_open(struct mcp_arena *arena, struct mcp_nccl_world *world,
                                      bool timed, int ahead, struct mcp_cuda_streams *out,
                                      struct mcp_error *err)
{
    *out =
        (struct mcp_cuda_streams){.arena = arena, .world = world, .timed = timed, .ahead = ahead};
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        MCP_TRY(mcp_cuda_new_stream(arena, s != MCP_STREAM_COMPUTE, &out->each[s].handle, err));
    return mcp_cuda_new_event(arena, true, &out->step_event, err);
}

/* --- marks --- */

static struct mcp_cuda_mark *mark_of(struct mcp_cuda_stream *s, int64_t number)
{
    return &s->marks[number & (s->capacity - 1)];
}

static enum mcp_status look_at(struct mcp_cuda_streams *streams, struct mcp_cuda_stream *s,
                               struct mcp_error *err)
{
    bool reached = true;
    while (reached && s->reached < s->number) {
        MCP_TRY(mcp_cuda_event_reached(mark_of(s, s->reached + 1)->reached, &reached, err));
        s->reached += reached;
    }
    if (!streams->timed)
        s->first = s->reached;
    return MCP_OK;
}

static void grow(struct mcp_arena *arena, struct mcp_cuda_stream *s)
{
    int64_t larger = s->capacity == 0 ? FIRST_CAPACITY : 2 * s->capacity;
    struct mcp_cuda_mark *marks = MCP_ARRAY(arena, larger, struct mcp_cuda_mark);
    for (int64_t n = s->first + 1; n <= s->number; n++)
        marks[n & (larger - 1)] = *mark_of(s, n);
    s->marks = marks;
    s->capacity = larger;
}

/* Nobody waits for room: what blocks the stream may be an op that has not been queued yet. */
static enum mcp_status new_mark(struct mcp_cuda_streams *streams, struct mcp_cuda_stream *s,
                                struct mcp_cuda_mark **out, struct mcp_error *err)
{
    if (s->number - s->first == s->capacity)
        MCP_TRY(look_at(streams, s, err));
    if (s->number - s->first == s->capacity)
        grow(streams->arena, s);
    struct mcp_cuda_mark *mark = mark_of(s, s->number + 1);
    if (mark->reached == NULL)
        MCP_TRY(mcp_cuda_new_event(streams->arena, streams->timed, &mark->reached, err));
    *out = mark;
    return MCP_OK;
}

/* --- ops --- */

enum mcp_status mcp_cuda_streams_start(struct mcp_cuda_streams *streams, struct mcp_error *err)
{
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        streams->each[s].first = streams->each[s].number;
    if (!streams->timed)
        return MCP_OK;
    MCP_TRY(mcp_cuda_record(streams->step_event, streams->each[MCP_STREAM_COMPUTE].handle, err));
    streams->step_s = mcp_cuda_clock();
    return MCP_OK;
}

/* A stream is first in, first out: who has waited for a ticket has for all before it. */
static enum mcp_status queue_waits(struct mcp_cuda_streams *streams, struct mcp_cuda_stream *s,
                                   bool *waits, struct mcp_error *err)
{
    *waits = false;
    for (int i = 0; i < MCP_NUM_STREAMS; i++) {
        struct mcp_cuda_stream *other = &streams->each[i];
        int64_t number = s->waits[i];
        s->waits[i] = 0;
        if (number <= s->waited[i] || number <= other->reached)
            continue;
        MCP_TRY(mcp_cuda_wait(s->handle, mark_of(other, number)->reached, err));
        s->waited[i] = number;
        *waits = true;
    }
    return MCP_OK;
}

/* An event between two ops keeps the second from being made ready while the first runs: where
 * the first is not yet over, and nothing else is waited for, its end says the same. */
static enum mcp_status note_start(struct mcp_cuda_streams *streams, struct mcp_cuda_stream *s,
                                  struct mcp_cuda_mark *mark, bool waits, struct mcp_error *err)
{
    bool over = true;
    if (!waits && s->number > s->first)
        MCP_TRY(mcp_cuda_event_reached(mark_of(s, s->number)->reached, &over, err));
    mark->at_once = !over;
    if (mark->at_once)
        return MCP_OK;
    if (mark->started == NULL)
        MCP_TRY(mcp_cuda_new_event(streams->arena, true, &mark->started, err));
    return mcp_cuda_record(mark->started, s->handle, err);
}

/* The driver, too, makes the host wait where a stream holds about a thousand ops, but knows no
 * limit of time: a rank whose peer has stopped would wait there for ever. */
static enum mcp_status make_room(struct mcp_cuda_streams *streams, enum mcp_stream stream,
                                 struct mcp_error *err)
{
    if (streams->ahead == 0 || stream != MCP_STREAM_COMPUTE)
        return MCP_OK;
    const int64_t number = streams->each[stream].number - streams->ahead + 1;
    return mcp_cuda_reach(streams, (struct mcp_ticket){(unsigned char)stream, number}, err);
}

enum mcp_status mcp_cuda_begin_op(struct mcp_cuda_streams *streams, const struct mcp_launch *launch,
                                  struct mcp_error *err)
{
    struct mcp_cuda_stream *s = &streams->each[launch->op->stream];
    struct mcp_cuda_mark *mark;
    bool waits;
    MCP_TRY(make_room(streams, (enum mcp_stream)launch->op->stream, err));
    MCP_TRY(queue_waits(streams, s, &waits, err));
    MCP_TRY(new_mark(streams, s, &mark, err));
    mark->function = launch->op->function;
    mark->layer = launch->layer;
    mark->microbatch = launch->microbatch;
    mark->order = streams->queued++;
    return streams->timed ? note_start(streams, s, mark, waits, err) : MCP_OK;
}

enum mcp_status mcp_cuda_end_op(struct mcp_cuda_streams *streams, const struct mcp_launch *launch,
                                struct mcp_ticket *ticket, struct mcp_error *err)
{
    struct mcp_cuda_stream *s = &streams->each[launch->op->stream];
    MCP_TRY(mcp_cuda_record(mark_of(s, s->number + 1)->reached, s->handle, err));
    s->number++;
    *ticket = (struct mcp_ticket){launch->op->stream, s->number};
    return MCP_OK;
}

/* --- waiting on the host --- */

enum mcp_status mcp_cuda_look(struct mcp_cuda_streams *streams, bool *moved, struct mcp_error *err)
{
    *moved = false;
    for (int i = 0; i < MCP_NUM_STREAMS; i++) {
        struct mcp_cuda_stream *s = &streams->each[i];
        int64_t before = s->reached;
        MCP_TRY(look_at(streams, s, err));
        *moved = *moved || s->reached > before;
    }
    return MCP_OK;
}

bool mcp_cuda_all_reached(const struct mcp_cuda_streams *streams)
{
    for (int i = 0; i < MCP_NUM_STREAMS; i++)
        if (streams->each[i].reached < streams->each[i].number)
            return false;
    return true;
}

/* The first op queued that is not over: all that it waits for is, so that it runs, or waits for
 * other ranks. -1: none; else its stream. */
static int find_op(struct mcp_cuda_streams *streams, const struct mcp_cuda_mark **out)
{
    int found = -1;
    for (int i = 0; i < MCP_NUM_STREAMS; i++) {
        struct mcp_cuda_stream *s = &streams->each[i];
        if (s->reached == s->number)
            continue;
        const struct mcp_cuda_mark *mark = mark_of(s, s->reached + 1);
        if (found < 0 || mark->order < (*out)->order) {
            found = i;
            *out = mark;
        }
    }
    return found;
}

/* Where a device has failed: a kernel, rather than the transfer that it waits for. */
static int find_kernel(struct mcp_cuda_streams *streams, const struct mcp_cuda_mark **out)
{
    struct mcp_cuda_stream *s = &streams->each[MCP_STREAM_COMPUTE];
    if (s->reached == s->number)
        return find_op(streams, out);
    *out = mark_of(s, s->reached + 1);
    return MCP_STREAM_COMPUTE;
}

static bool spell_op(struct mcp_cuda_streams *streams, bool kernel, char text[static OP_TEXT])
{
    const struct mcp_cuda_mark *mark = NULL;
    const int stream = kernel ? find_kernel(streams, &mark) : find_op(streams, &mark);
    snprintf(text, OP_TEXT, "what its device does");
    if (stream >= 0 && mark->microbatch < 0)
        snprintf(text, OP_TEXT, "%s on stream %s (layer %d)", mcp_functions[mark->function].name,
                 mcp_stream_names[stream], mark->layer);
    else if (stream >= 0)
        snprintf(text, OP_TEXT, "%s on stream %s (layer %d, microbatch %d)",
                 mcp_functions[mark->function].name, mcp_stream_names[stream], mark->layer,
                 mark->microbatch);
    return stream >= 0;
}

/* All communicators; the op that has been waited for is named. */
static enum mcp_status give_up(struct mcp_cuda_streams *streams, struct mcp_error *err)
{
    char op[OP_TEXT];
    spell_op(streams, false, op);
    return mcp_nccl_give_up(streams->world, op, err);
}

enum mcp_status mcp_cuda_name_op(struct mcp_cuda_streams *streams, enum mcp_status status,
                                 struct mcp_error *err)
{
    const enum mcp_nccl_fault fault = mcp_nccl_fault_of(streams->world);
    char op[OP_TEXT];
    if (status == MCP_OK || err == NULL || fault == MCP_NCCL_LATE)
        return status;
    const bool known = spell_op(streams, fault == MCP_NCCL_OWN, op);
    if (fault == MCP_NCCL_TOLD)
        return mcp_fail(err, status, "rank %d was waiting for %s",
                        mcp_nccl_world_rank(streams->world), op);
    const size_t length = strlen(err->text);
    if (known)
        snprintf(err->text + length, sizeof err->text - length, " (at work: %s)", op);
    return status;
}

enum mcp_status mcp_cuda_wait_on(struct mcp_cuda_streams *streams,
                                 struct mcp_cuda_patience *patience, struct mcp_error *err)
{
    bool moved = false, over = false;
    MCP_TRY(mcp_cuda_look(streams, &moved, err));
    if (moved)
        mcp_cuda_take_heart(patience);
    else
        MCP_TRY(mcp_cuda_breathe(patience, &over, err));
    return over ? give_up(streams, err) : MCP_OK;
}

enum mcp_status mcp_cuda_empty_stream(struct mcp_cuda_streams *streams, enum mcp_stream stream,
                                      struct mcp_error *err)
{
    struct mcp_cuda_patience patience = mcp_cuda_patience_of(streams->world);
    bool empty = false;
    for (;;) {
        MCP_TRY(mcp_cuda_stream_empty(streams->each[stream].handle, &empty, err));
        if (empty)
            return MCP_OK;
        MCP_TRY(mcp_cuda_wait_on(streams, &patience, err));
    }
}

enum mcp_status mcp_cuda_reach(struct mcp_cuda_streams *streams, struct mcp_ticket ticket,
                               struct mcp_error *err)
{
    const struct mcp_cuda_stream *s = &streams->each[ticket.stream];
    struct mcp_cuda_patience patience = mcp_cuda_patience_of(streams->world);
    while (s->reached < ticket.number)
        MCP_TRY(mcp_cuda_wait_on(streams, &patience, err));
    return MCP_OK;
}

bool mcp_cuda_times_of(struct mcp_cuda_streams *streams, struct mcp_ticket ticket,
                       struct mcp_op_times *out)
{
    struct mcp_cuda_stream *s = &streams->each[ticket.stream];
    double start_s = 0, end_s = 0;
    if (!streams->timed || ticket.number <= s->first || ticket.number > s->reached)
        return false;
    const struct mcp_cuda_mark *mark = mark_of(s, ticket.number);
    void *started = mark->at_once ? mark_of(s, ticket.number - 1)->reached : mark->started;
    if (mcp_cuda_elapsed_s(streams->step_event, started, &start_s, NULL) != MCP_OK ||
        mcp_cuda_elapsed_s(streams->step_event, mark->reached, &end_s, NULL) != MCP_OK)
        return false;
    *out = (struct mcp_op_times){streams->step_s + start_s, streams->step_s + end_s};
    return true;
}
