/* exec/spans.c: a step's seconds, the fastest step's spans, receives beside their sends. */
#include "exec/spans.h"

#include "core/mesh.h"
#include "core/minmax.h"
#include "step/account.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* --- every rank's on all ranks, by sums of numbers --- */

/* Of a span; and what is to be known of a send: its stream, and when it began. Every rank gets
 * those of all, and steps of many ranks have many. */
enum { SPAN_NUMBERS = 10, SEND_NUMBERS = 2 };

static void pack(const struct mcp_timeline_span *span, int count, double *out)
{
    const double numbers[SPAN_NUMBERS] = {
        span->stream, (double)span->start_ns, (double)span->end_ns, span->slot,  span->entry,
        span->op,     span->function,         span->pass,           span->layer, span->microbatch};
    memcpy(out, numbers, (size_t)count * sizeof *numbers);
}

static struct mcp_timeline_span unpack(const double *packed, int count, int rank)
{
    double in[SPAN_NUMBERS] = {0};
    memcpy(in, packed, (size_t)count * sizeof *in);
    return (struct mcp_timeline_span){.rank = rank,
                                      .stream = (unsigned char)in[0],
                                      .start_ns = (int64_t)in[1],
                                      .end_ns = (int64_t)in[2],
                                      .slot = (int)in[3],
                                      .entry = (int)in[4],
                                      .op = (int)in[5],
                                      .function = (unsigned char)in[6],
                                      .pass = (unsigned char)in[7],
                                      .layer = (int)in[8],
                                      .microbatch = (int)in[9]};
}

/* Some spans of every rank, by rank, in the order in which each rank has them: `count` numbers of
 * each. */
static enum mcp_status share(const struct mcp_spans *spans, const struct mcp_timeline *mine,
                             int count, struct mcp_timeline *out, struct mcp_error *err)
{
    struct mcp_arena *arena = spans->arena;
    int world = mcp_plan_world(spans->plan);
    int64_t first = 0, total = 0;
    double *counts = MCP_ARRAY(arena, world, double);
    counts[spans->rank] = (double)mine->num_spans;
    MCP_TRY(spans->calls->agree(spans->backend, counts, world, '+', err));
    for (int r = 0; r < world; r++) {
        first += r < spans->rank ? (int64_t)counts[r] : 0;
        total += (int64_t)counts[r];
    }
    *out = (struct mcp_timeline){.measured = true};
    if (total == 0)
        return MCP_OK;
    if (total > INT_MAX / count)
        return mcp_fail(err, MCP_RUN_FAILURE, "%lld spans are too many to share between ranks",
                        (long long)total);
    double *numbers = MCP_ARRAY(arena, total * count, double);
    for (size_t i = 0; i < mine->num_spans; i++)
        pack(&mine->spans[i], count, numbers + (first + (int64_t)i) * count);
    MCP_TRY(spans->calls->agree(spans->backend, numbers, (int)total * count, '+', err));
    const double *at = numbers;
    for (int r = 0; r < world; r++)
        for (int i = 0; i < (int)counts[r]; i++, at += count) {
            struct mcp_timeline_span span = unpack(at, count, r);
            mcp_timeline_add(arena, out, &span);
        }
    return MCP_OK;
}

enum mcp_status mcp_spans_gather(struct mcp_spans *spans, struct mcp_timeline *out,
                                 struct mcp_error *err)
{
    MCP_TRY(share(spans, &spans->own, SPAN_NUMBERS, out, err));
    mcp_spans_pair(spans->arena, spans->plan, out);
    mcp_timeline_sort(out);
    out->iteration_ns = (int64_t)llround(spans->step_s * 1e9);
    return MCP_OK;
}

/* --- receives --- */

/* What the stage `delta` further sends on its stream `send` is received; 0: no receive. */
struct queue {
    int delta;
    enum mcp_stream send;
};
static const struct queue queues[MCP_NUM_STREAMS] = {
    [MCP_STREAM_RECEIVE_PREVIOUS] = {-1, MCP_STREAM_SEND_NEXT},
    [MCP_STREAM_RECEIVE_NEXT] = {1, MCP_STREAM_SEND_PREVIOUS},
    [MCP_STREAM_MIRRORED_RECEIVE_PREVIOUS] = {-1, MCP_STREAM_MIRRORED_SEND_NEXT},
    [MCP_STREAM_MIRRORED_RECEIVE_NEXT] = {1, MCP_STREAM_MIRRORED_SEND_PREVIOUS},
};

/* The rank `delta` further along the line of stages. */
static int peer_of(const struct mcp_plan *plan, int *line, int rank, int delta)
{
    int count = mcp_group_members(plan, MCP_PIPELINE, rank, line);
    return line[(mcp_group_index(plan, MCP_PIPELINE, rank) + delta + count) % count];
}

/* Indices of the first span of each (rank, stream), and of the next of the same. */
struct chains {
    int64_t *first; /* [world][MCP_NUM_STREAMS]; -1: none */
    int64_t *next;  /* [num_spans] */
};

static struct chains chain(struct mcp_arena *arena, const struct mcp_plan *plan,
                           const struct mcp_timeline *timeline)
{
    size_t cells = (size_t)mcp_plan_world(plan) * MCP_NUM_STREAMS;
    struct chains c = {MCP_ARRAY(arena, cells, int64_t),
                       MCP_ARRAY(arena, timeline->num_spans, int64_t)};
    for (size_t i = 0; i < cells; i++)
        c.first[i] = -1;
    for (int64_t i = (int64_t)timeline->num_spans - 1; i >= 0; i--) {
        const struct mcp_timeline_span *span = &timeline->spans[i];
        int64_t *first = &c.first[span->rank * MCP_NUM_STREAMS + span->stream];
        c.next[i] = *first;
        *first = i;
    }
    return c;
}

void mcp_spans_pair(struct mcp_arena *arena, const struct mcp_plan *plan,
                    struct mcp_timeline *timeline)
{
    const struct chains c = chain(arena, plan, timeline);
    int *line = MCP_ARRAY(arena, mcp_group_size(plan, MCP_PIPELINE), int);
    for (int rank = 0; rank < mcp_plan_world(plan); rank++)
        for (int s = 0; s < MCP_NUM_STREAMS; s++) {
            if (queues[s].delta == 0)
                continue;
            int peer = peer_of(plan, line, rank, queues[s].delta);
            int64_t sent = c.first[peer * MCP_NUM_STREAMS + (int)queues[s].send];
            int64_t got = c.first[rank * MCP_NUM_STREAMS + s];
            for (; sent >= 0 && got >= 0; sent = c.next[sent], got = c.next[got]) {
                struct mcp_timeline_span *span = &timeline->spans[got];
                span->start_ns =
                    mcp_clamp_int64(timeline->spans[sent].start_ns, span->start_ns, span->end_ns);
            }
        }
}

/* --- a step --- */

static void shift(struct mcp_timeline *timeline, double seconds)
{
    int64_t ns = (int64_t)llround(seconds * 1e9);
    for (size_t i = 0; i < timeline->num_spans; i++) {
        timeline->spans[i].start_ns += ns;
        timeline->spans[i].end_ns += ns;
    }
}

/* The last step's spans, from the start of the rank that began first; returns its seconds. */
static enum mcp_status read_step(struct mcp_spans *spans, const struct mcp_interpreter *interpreter,
                                 double *step_s, struct mcp_error *err)
{
    double start_s = mcp_interpreter_start(interpreter);
    double most[2] = {*step_s, -start_s};
    MCP_TRY(spans->calls->agree(spans->backend, most, 2, '>', err));
    double late_s = start_s + most[1];
    *step_s = most[0];
    spans->last.num_spans = 0;
    mcp_interpreter_timeline(interpreter, spans->arena, &spans->last);
    if (late_s < most[0]) /* clocks that are further apart than a step are of two machines */
        shift(&spans->last, late_s);
    return MCP_OK;
}

/* This rank's spans of the last step in issue order, then what the others have sent. */
static enum mcp_status with_sends(const struct mcp_spans *spans, struct mcp_timeline *out,
                                  struct mcp_error *err)
{
    struct mcp_arena *arena = spans->arena;
    struct mcp_timeline own = {.measured = true}, all;
    *out = own;
    for (size_t i = 0; i < spans->last.num_spans; i++) {
        struct mcp_timeline_span *span = &spans->last.spans[i];
        mcp_timeline_add(arena, out, span);
        if (mcp_functions[span->function].code == MCP_SEND)
            mcp_timeline_add(arena, &own, span);
    }
    MCP_TRY(share(spans, &own, SEND_NUMBERS, &all, err));
    for (size_t i = 0; i < all.num_spans; i++)
        if (all.spans[i].rank != spans->rank)
            mcp_timeline_add(arena, out, &all.spans[i]);
    mcp_spans_pair(arena, spans->plan, out);
    return MCP_OK;
}

static enum mcp_status count_seconds(const struct mcp_spans *spans, double step_s,
                                     struct mcp_spans_shares *out, struct mcp_error *err)
{
    struct mcp_timeline timeline;
    struct mcp_account account;
    const int world = mcp_plan_world(spans->plan);
    MCP_TRY(with_sends(spans, &timeline, err));
    struct mcp_timeline_ends ends = mcp_timeline_ends(&spans->last);
    double last[] = {(double)ends.spans_ns, (double)ends.slots_ns};
    MCP_TRY(spans->calls->agree(spans->backend, last, 2, '>', err));
    ends = (struct mcp_timeline_ends){llround(step_s * 1e9), (int64_t)last[0], (int64_t)last[1]};
    ends.step_ns = ends.step_ns > ends.spans_ns ? ends.step_ns : ends.spans_ns;
    mcp_account_of(spans->arena, timeline.spans, spans->last.num_spans, &ends, &account);
    double shares[] = {mcp_account_bubble_frac(&account), mcp_account_exposed_comm_frac(&account)};
    MCP_TRY(spans->calls->agree(spans->backend, shares, 2, '+', err));
    *out = (struct mcp_spans_shares){shares[0] / world, shares[1] / world};
    return MCP_OK;
}

enum mcp_status mcp_spans_take(struct mcp_spans *spans, const struct mcp_interpreter *interpreter,
                               double step_s, struct mcp_spans_shares *out, struct mcp_error *err)
{
    MCP_TRY(read_step(spans, interpreter, &step_s, err));
    struct mcp_mark mark = mcp_arena_mark(spans->arena);
    MCP_TRY(count_seconds(spans, step_s, out, err));
    mcp_arena_rewind(spans->arena, mark);
    if (spans->step_s == 0 || step_s < spans->step_s) {
        const struct mcp_timeline before = spans->own;
        spans->step_s = step_s;
        spans->own = spans->last;
        spans->last = before;
    }
    return MCP_OK;
}
