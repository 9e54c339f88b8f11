/* exec/spans.c: the fastest step's spans, and receives beside their sends. */
#include "exec/spans.h"

#include "core/mesh.h"

#include <math.h>
#include <string.h>

/* --- the fastest step --- */

static void shift(struct mcp_timeline *timeline, double seconds)
{
    int64_t ns = (int64_t)llround(seconds * 1e9);
    for (size_t i = 0; i < timeline->num_spans; i++) {
        timeline->spans[i].start_ns += ns;
        timeline->spans[i].end_ns += ns;
    }
}

enum mcp_status mcp_spans_take(struct mcp_spans *spans, const struct mcp_interpreter *interpreter,
                               double step_s, struct mcp_error *err)
{
    double start_s = mcp_interpreter_start(interpreter);
    double most[2] = {step_s, -start_s};
    MCP_TRY(spans->calls->agree(spans->backend, most, 2, '>', err));
    if (spans->step_s > 0 && most[0] >= spans->step_s)
        return MCP_OK;
    double late_s = start_s + most[1];
    spans->step_s = most[0];
    spans->own.num_spans = 0;
    mcp_interpreter_timeline(interpreter, spans->arena, &spans->own);
    if (late_s < most[0]) /* clocks that are further apart than a step are of two machines */
        shift(&spans->own, late_s);
    return MCP_OK;
}

/* --- every rank's on all ranks, by sums of numbers --- */

enum { SPAN_NUMBERS = 10 };

static void pack(const struct mcp_timeline_span *span, double *out)
{
    const double numbers[SPAN_NUMBERS] = {
        span->slot, span->entry, span->op,         span->stream,           span->function,
        span->pass, span->layer, span->microbatch, (double)span->start_ns, (double)span->end_ns};
    memcpy(out, numbers, sizeof numbers);
}

static struct mcp_timeline_span unpack(const double *in, int rank)
{
    return (struct mcp_timeline_span){.rank = rank,
                                      .slot = (int)in[0],
                                      .entry = (int)in[1],
                                      .op = (int)in[2],
                                      .stream = (unsigned char)in[3],
                                      .function = (unsigned char)in[4],
                                      .pass = (unsigned char)in[5],
                                      .layer = (int)in[6],
                                      .microbatch = (int)in[7],
                                      .start_ns = (int64_t)in[8],
                                      .end_ns = (int64_t)in[9]};
}

enum mcp_status mcp_spans_gather(struct mcp_spans *spans, struct mcp_timeline *out,
                                 struct mcp_error *err)
{
    int world = mcp_plan_world(spans->plan), first = 0, total = 0;
    double *counts = MCP_ARRAY(spans->arena, world, double);
    counts[spans->rank] = (double)spans->own.num_spans;
    MCP_TRY(spans->calls->agree(spans->backend, counts, world, '+', err));
    for (int r = 0; r < world; r++) {
        first += r < spans->rank ? (int)counts[r] : 0;
        total += (int)counts[r];
    }
    double *numbers = MCP_ARRAY(spans->arena, (size_t)total * SPAN_NUMBERS, double);
    for (size_t i = 0; i < spans->own.num_spans; i++)
        pack(&spans->own.spans[i], numbers + ((size_t)first + i) * SPAN_NUMBERS);
    MCP_TRY(spans->calls->agree(spans->backend, numbers, total * SPAN_NUMBERS, '+', err));
    *out = (struct mcp_timeline){.measured = true};
    if (spans->rank != 0)
        return MCP_OK;
    const double *at = numbers;
    for (int r = 0; r < world; r++)
        for (int i = 0; i < (int)counts[r]; i++, at += SPAN_NUMBERS) {
            struct mcp_timeline_span span = unpack(at, r);
            mcp_timeline_add(spans->arena, out, &span);
        }
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

static int peer_of(const struct mcp_plan *plan, int rank, int delta)
{
    struct mcp_coordinate at = mcp_mesh_coordinate(plan, rank);
    int stages = plan->pipeline_parallel;
    at.pipeline = (at.pipeline + delta + stages) % stages;
    return mcp_mesh_rank(plan, at);
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

static int64_t clamped(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

void mcp_spans_pair(struct mcp_arena *arena, const struct mcp_plan *plan,
                    struct mcp_timeline *timeline)
{
    const struct chains c = chain(arena, plan, timeline);
    for (int rank = 0; rank < mcp_plan_world(plan); rank++)
        for (int s = 0; s < MCP_NUM_STREAMS; s++) {
            if (queues[s].delta == 0)
                continue;
            int peer = peer_of(plan, rank, queues[s].delta);
            int64_t sent = c.first[peer * MCP_NUM_STREAMS + (int)queues[s].send];
            int64_t got = c.first[rank * MCP_NUM_STREAMS + s];
            for (; sent >= 0 && got >= 0; sent = c.next[sent], got = c.next[got]) {
                struct mcp_timeline_span *span = &timeline->spans[got];
                span->start_ns =
                    clamped(timeline->spans[sent].start_ns, span->start_ns, span->end_ns);
            }
        }
}
