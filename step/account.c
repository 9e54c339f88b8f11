/* step/account.c: a sweep over a rank's spans; gaps are explained by what ends them. */
#include "step/account.h"

#include "core/minmax.h"

#include <stdbool.h>
#include <stdlib.h>

const char *const mcp_second_names[MCP_NUM_SECONDS] = {
    "compute", "optimizer", "tensor", "context", "expert", "pipeline", "data", "host", "bubble",
};

/* --- the step --- */

static bool is_update(const struct mcp_timeline_span *span)
{
    return span->pass == MCP_EPILOGUE || span->pass == MCP_OPTIMIZER || span->pass == MCP_PROLOGUE;
}

static struct mcp_timeline_ends ends_of(const struct mcp_timeline_span *spans, size_t count)
{
    struct mcp_timeline_ends ends = {0};
    for (size_t i = 0; i < count; i++) {
        if (spans[i].end_ns > ends.spans_ns)
            ends.spans_ns = spans[i].end_ns;
        if (!is_update(&spans[i]) && spans[i].end_ns > ends.slots_ns)
            ends.slots_ns = spans[i].end_ns;
    }
    ends.step_ns = ends.spans_ns;
    return ends;
}

struct mcp_timeline_ends mcp_timeline_ends(const struct mcp_timeline *timeline)
{
    struct mcp_timeline_ends ends = ends_of(timeline->spans, timeline->num_spans);
    if (timeline->iteration_ns > ends.step_ns)
        ends.step_ns = timeline->iteration_ns;
    return ends;
}

/* --- what a span says of its rank --- */

/* In the order in which they count where several run. Receives are seen where they are awaited. */
enum activity { RUNS, UPDATES, HOSTS, TENSOR, CONTEXT, EXPERT, SENDS, DATA, NOTHING };
static const enum mcp_second second_of[DATA] = {
    MCP_SECOND_COMPUTE, MCP_SECOND_OPTIMIZER, MCP_SECOND_HOST,     MCP_SECOND_TENSOR,
    MCP_SECOND_CONTEXT, MCP_SECOND_EXPERT,    MCP_SECOND_PIPELINE,
};

static bool is_receive(const struct mcp_timeline_span *span)
{
    static const bool receives[MCP_NUM_STREAMS] = {
        [MCP_STREAM_RECEIVE_PREVIOUS] = true,
        [MCP_STREAM_RECEIVE_NEXT] = true,
        [MCP_STREAM_MIRRORED_RECEIVE_PREVIOUS] = true,
        [MCP_STREAM_MIRRORED_RECEIVE_NEXT] = true,
    };
    return receives[span->stream];
}

static enum activity activity_of(const struct mcp_timeline_span *span)
{
    static const enum activity of_streams[MCP_NUM_STREAMS] = {
        RUNS,    TENSOR, CONTEXT, EXPERT, DATA,    DATA,  SENDS,
        NOTHING, SENDS,  NOTHING, SENDS,  NOTHING, SENDS, NOTHING,
    };
    if (span->stream != MCP_STREAM_COMPUTE)
        return of_streams[span->stream];
    if (span->function < MCP_NUM_FUNCTIONS && mcp_functions[span->function].code == MCP_HOST)
        return HOSTS;
    return span->pass == MCP_OPTIMIZER || span->function == MCP_FN_ADAM ? UPDATES : RUNS;
}

/* --- the sweep --- */

struct event {
    int64_t ns;
    const struct mcp_timeline_span *span;
    int change; /* +1: begins, -1: ends */
};

/* Part of a gap, in which nothing runs on the rank but perhaps a data transfer. */
struct piece {
    int64_t from_ns, to_ns;
    bool data;
};

struct sweep {
    const struct mcp_timeline_span *spans; /* of the rank, by slot */
    size_t num_spans;
    int active[NOTHING];
    int last_slot, last_entry; /* of the last span that ran; -1: none yet */
    struct mcp_timeline_ends own, all;
    struct piece *pieces;
    int num_pieces;
    struct mcp_account *out;
};

/* Ends before beginnings, so that what follows at once leaves no overlap. */
static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return x->change - y->change;
}

static enum activity foremost(const struct sweep *sweep)
{
    for (int i = 0; i < NOTHING; i++)
        if (sweep->active[i] > 0)
            return (enum activity)i;
    return NOTHING;
}

static int64_t overlap(const struct piece *piece, int64_t from_ns, int64_t to_ns)
{
    from_ns = piece->from_ns > from_ns ? piece->from_ns : from_ns;
    to_ns = piece->to_ns < to_ns ? piece->to_ns : to_ns;
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

/* The message that an entry of the slot waited for in the gap: the last to arrive of those that
 * the slot receives before it, and after what ran last. NULL: none. */
static const struct mcp_timeline_span *awaited(const struct sweep *sweep,
                                               const struct mcp_timeline_span *next,
                                               int64_t from_ns, int64_t to_ns)
{
    const struct mcp_timeline_span *found = NULL;
    int after = next->slot == sweep->last_slot ? sweep->last_entry : -1;
    size_t low = 0, high = sweep->num_spans;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sweep->spans[middle].slot < next->slot)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < sweep->num_spans && sweep->spans[low].slot == next->slot &&
           sweep->spans[low].entry < next->entry;
         low++) {
        const struct mcp_timeline_span *span = &sweep->spans[low];
        if (is_receive(span) && span->entry > after && span->end_ns > from_ns &&
            span->start_ns < to_ns && (found == NULL || span->end_ns > found->end_ns))
            found = span;
    }
    return found;
}

/* What is not awaited: a transfer of data, others' slots, the host. */
static void count_rest(const struct sweep *sweep, const struct piece *piece)
{
    int64_t all = piece->to_ns - piece->from_ns;
    int64_t others = overlap(piece, sweep->own.slots_ns, sweep->all.slots_ns) +
                     overlap(piece, mcp_max_int64(sweep->own.spans_ns, sweep->all.slots_ns),
                             sweep->all.spans_ns);
    if (all <= 0)
        return;
    if (piece->data) {
        sweep->out->ns[MCP_SECOND_DATA] += all;
        return;
    }
    sweep->out->ns[MCP_SECOND_BUBBLE] += others;
    sweep->out->ns[MCP_SECOND_HOST] += all - others;
}

/* The gap ends as `next` begins; NULL: with the step. */
static void explain_gap(struct sweep *sweep, const struct mcp_timeline_span *next)
{
    const struct mcp_timeline_span *message = NULL;
    int count = sweep->num_pieces;
    sweep->num_pieces = 0;
    if (count > 0 && next != NULL)
        message = awaited(sweep, next, sweep->pieces[0].from_ns, sweep->pieces[count - 1].to_ns);
    for (int i = 0; i < count; i++) {
        struct piece piece = sweep->pieces[i];
        if (message != NULL) {
            sweep->out->ns[MCP_SECOND_BUBBLE] += overlap(&piece, 0, message->start_ns);
            sweep->out->ns[MCP_SECOND_PIPELINE] +=
                overlap(&piece, message->start_ns, message->end_ns);
            if (piece.from_ns < message->end_ns)
                piece.from_ns = message->end_ns;
        }
        count_rest(sweep, &piece);
    }
}

/* From one event to the next. */
static void count_interval(struct sweep *sweep, int64_t from_ns, int64_t to_ns)
{
    enum activity activity = foremost(sweep);
    to_ns = to_ns < sweep->all.step_ns ? to_ns : sweep->all.step_ns;
    if (to_ns <= from_ns)
        return;
    if (activity < DATA)
        sweep->out->ns[second_of[activity]] += to_ns - from_ns;
    else
        sweep->pieces[sweep->num_pieces++] = (struct piece){from_ns, to_ns, activity == DATA};
}

static void pass_event(struct sweep *sweep, const struct event *event)
{
    enum activity activity = activity_of(event->span);
    if (activity == NOTHING)
        return;
    if (event->change > 0 && activity < DATA && foremost(sweep) >= DATA)
        explain_gap(sweep, event->span);
    if (activity < DATA) {
        sweep->last_slot = event->span->slot;
        sweep->last_entry = event->span->entry;
    }
    sweep->active[activity] += event->change;
}

void mcp_account_of(struct mcp_arena *arena, const struct mcp_timeline_span *spans, size_t count,
                    const struct mcp_timeline_ends *ends, struct mcp_account *out)
{
    struct mcp_mark mark = mcp_arena_mark(arena);
    struct event *events = MCP_ARRAY(arena, 2 * count, struct event);
    struct sweep sweep = {.spans = spans,
                          .num_spans = count,
                          .last_slot = -1,
                          .last_entry = -1,
                          .own = ends_of(spans, count),
                          .all = *ends,
                          .pieces = MCP_ARRAY(arena, 2 * count + 2, struct piece),
                          .out = out};
    int64_t now_ns = 0;
    *out = (struct mcp_account){{0}};
    for (size_t i = 0; i < count; i++) {
        events[2 * i] = (struct event){spans[i].start_ns, &spans[i], 1};
        events[2 * i + 1] = (struct event){spans[i].end_ns, &spans[i], -1};
    }
    if (count > 0)
        qsort(events, 2 * count, sizeof *events, by_time);
    for (size_t i = 0; i < 2 * count; i++) {
        count_interval(&sweep, now_ns, events[i].ns);
        now_ns = events[i].ns;
        pass_event(&sweep, &events[i]);
    }
    count_interval(&sweep, now_ns, ends->step_ns);
    explain_gap(&sweep, NULL);
    mcp_arena_rewind(arena, mark);
}

static double frac(const struct mcp_account *account, enum mcp_second from, enum mcp_second to)
{
    int64_t part = 0, all = 0;
    for (int i = 0; i < MCP_NUM_SECONDS; i++) {
        part += i >= (int)from && i <= (int)to ? account->ns[i] : 0;
        all += account->ns[i];
    }
    return all > 0 ? (double)part / (double)all : 0;
}

double mcp_account_bubble_frac(const struct mcp_account *account)
{
    return frac(account, MCP_SECOND_BUBBLE, MCP_SECOND_BUBBLE);
}

double mcp_account_exposed_comm_frac(const struct mcp_account *account)
{
    return frac(account, MCP_SECOND_TENSOR, MCP_SECOND_DATA);
}
