/* reports/compare.c: spans of two timelines joined, and summed by kind of op. */
#include "reports/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- ranks --- */

/* The first span of `rank` or of one beyond. */
static size_t first_span(const struct mcp_timeline *timeline, int rank)
{
    size_t low = 0, high = timeline->num_spans;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (timeline->spans[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct mcp_timeline_span *mcp_timeline_spans_of(const struct mcp_timeline *timeline, int rank,
                                                      size_t *count)
{
    size_t first = first_span(timeline, rank);
    *count = first_span(timeline, rank + 1) - first;
    return timeline->spans + first;
}

int mcp_timeline_find_rank(const struct mcp_timeline *timeline, int rank)
{
    if (rank < timeline->num_ranks && timeline->like[rank] >= 0)
        rank = timeline->like[rank];
    size_t first = first_span(timeline, rank);
    return first < timeline->num_spans && timeline->spans[first].rank == rank ? rank : -1;
}

static int num_ranks(const struct mcp_timeline *timeline)
{
    int last = timeline->num_spans > 0 ? timeline->spans[timeline->num_spans - 1].rank + 1 : 0;
    return last > timeline->num_ranks ? last : timeline->num_ranks;
}

/* Where both let equal ranks stand for each other alike, those that stand are enough. */
static bool stands_for(const struct mcp_timeline *timeline, int rank)
{
    return rank >= timeline->num_ranks || timeline->like[rank] < 0 || timeline->like[rank] == rank;
}

static void find_ranks(struct mcp_arena *arena, struct mcp_compare *out)
{
    int a = num_ranks(out->a), b = num_ranks(out->b), most = a > b ? a : b;
    int *ranks = MCP_ARRAY(arena, most, int);
    for (int rank = 0; rank < most; rank++) {
        bool in_a = mcp_timeline_find_rank(out->a, rank) >= 0;
        bool in_b = mcp_timeline_find_rank(out->b, rank) >= 0;
        out->num_only_a += in_a && !in_b;
        out->num_only_b += in_b && !in_a;
        if (in_a && in_b && (stands_for(out->a, rank) || stands_for(out->b, rank)))
            ranks[out->num_ranks++] = rank;
    }
    out->ranks = ranks;
}

/* --- kinds --- */

enum { NUM_KINDS = (MCP_NUM_FUNCTIONS + 1) * MCP_NUM_STREAMS };

/* Directions of messages are one kind. */
static int stream_of(const struct mcp_timeline_span *span)
{
    switch (span->stream) {
    case MCP_STREAM_SEND_PREVIOUS:
    case MCP_STREAM_MIRRORED_SEND_PREVIOUS:
    case MCP_STREAM_MIRRORED_SEND_NEXT:
        return MCP_STREAM_SEND_NEXT;
    case MCP_STREAM_RECEIVE_NEXT:
    case MCP_STREAM_MIRRORED_RECEIVE_NEXT:
    case MCP_STREAM_MIRRORED_RECEIVE_PREVIOUS:
        return MCP_STREAM_RECEIVE_PREVIOUS;
    default:
        return span->stream;
    }
}

static int kind_of(const struct mcp_timeline_span *a, const struct mcp_timeline_span *b)
{
    const struct mcp_timeline_span *known = a->function < MCP_NUM_FUNCTIONS ? a : b;
    return known->function * MCP_NUM_STREAMS + stream_of(known);
}

static const char *kind_name(struct mcp_arena *arena, int kind)
{
    int function = kind / MCP_NUM_STREAMS, stream = kind % MCP_NUM_STREAMS;
    if (function == MCP_NUM_FUNCTIONS)
        return mcp_format(arena, "(%s)", mcp_stream_names[stream]);
    if (stream == MCP_STREAM_COMPUTE || stream >= MCP_STREAM_SEND_NEXT)
        return mcp_functions[function].name;
    return mcp_format(arena, "%s (%s)", mcp_functions[function].name, mcp_stream_names[stream]);
}

double mcp_compare_ratio(const struct mcp_compare_kind *kind)
{
    return kind->a_s > 0 ? kind->b_s / kind->a_s : (double)NAN;
}

static double difference(const struct mcp_compare_kind *kind)
{
    return fabs(kind->b_s - kind->a_s);
}

/* By difference, then by what is in one alone, then by time, then by name. */
static int by_difference(const void *a, const void *b)
{
    const struct mcp_compare_kind *x = a, *y = b;
    double of_x = difference(x), of_y = difference(y);
    if (of_x != of_y)
        return of_x > of_y ? -1 : 1;
    of_x = x->a_s + x->only_a_s + x->only_b_s;
    of_y = y->a_s + y->only_a_s + y->only_b_s;
    return of_x != of_y ? of_x > of_y ? -1 : 1 : strcmp(x->name, y->name);
}

/* Those that occur, and their sums. */
static void settle_kinds(struct mcp_arena *arena, struct mcp_compare_kind *kinds,
                         struct mcp_compare *out)
{
    struct mcp_compare_kind *all = &out->all;
    int count = 0;
    all->name = "in all";
    for (int i = 0; i < NUM_KINDS; i++) {
        struct mcp_compare_kind kind = kinds[i];
        if (kind.num_both + kind.num_a + kind.num_b == 0)
            continue;
        kind.name = kind_name(arena, i);
        kind.a_s /= out->num_ranks;
        kind.b_s /= out->num_ranks;
        kind.only_a_s /= out->num_ranks;
        kind.only_b_s /= out->num_ranks;
        all->num_both += kind.num_both;
        all->num_a += kind.num_a;
        all->num_b += kind.num_b;
        all->a_s += kind.a_s;
        all->b_s += kind.b_s;
        all->only_a_s += kind.only_a_s;
        all->only_b_s += kind.only_b_s;
        out->gross_s += difference(&kind);
        kinds[count++] = kind;
    }
    qsort(kinds, (size_t)count, sizeof *kinds, by_difference);
    out->kinds = kinds;
    out->num_kinds = count;
}

/* --- the farthest pairs, the farthest first --- */

struct worst {
    int most, count;
    struct mcp_compare_pair *pairs; /* [most + 1] */
};

static int64_t duration_ns(const struct mcp_timeline_span *span)
{
    return span->end_ns - span->start_ns;
}

static int64_t apart_ns(const struct mcp_compare_pair *pair)
{
    int64_t ns = duration_ns(pair->b) - duration_ns(pair->a);
    return ns < 0 ? -ns : ns;
}

/* Of equals the one that came first stays. */
static void keep_worst(struct worst *worst, struct mcp_compare_pair pair)
{
    int at = worst->count;
    int64_t ns = apart_ns(&pair);
    if (ns == 0)
        return;
    for (; at > 0 && apart_ns(&worst->pairs[at - 1]) < ns; at--)
        worst->pairs[at] = worst->pairs[at - 1];
    worst->pairs[at] = pair;
    worst->count += worst->count < worst->most;
}

/* --- the join --- */

struct join {
    struct mcp_compare *out;
    struct mcp_compare_kind *kinds;
    struct worst worst;
};

static int by_key(const struct mcp_timeline_span *a, const struct mcp_timeline_span *b)
{
    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    if (a->entry != b->entry)
        return a->entry < b->entry ? -1 : 1;
    return (a->op > b->op) - (a->op < b->op);
}

static double duration_s(const struct mcp_timeline_span *span)
{
    return 1e-9 * (double)duration_ns(span);
}

/* In one timeline alone. */
static void take_alone(struct join *join, const struct mcp_timeline_span *span, bool in_a)
{
    struct mcp_compare_kind *kind = &join->kinds[kind_of(span, span)];
    if (in_a) {
        kind->num_a++;
        kind->only_a_s += duration_s(span);
    } else {
        kind->num_b++;
        kind->only_b_s += duration_s(span);
    }
}

static bool stated_apart(int a, int b)
{
    return a >= 0 && b >= 0 && a != b;
}

/* Both have the key; is it the same op? What one does not state is not held against it. */
static bool is_same(const struct mcp_timeline_span *a, const struct mcp_timeline_span *b)
{
    bool known = a->function < MCP_NUM_FUNCTIONS && b->function < MCP_NUM_FUNCTIONS;
    bool passes = a->pass < MCP_NUM_BLOCK_ROLES && b->pass < MCP_NUM_BLOCK_ROLES;
    return !(known && a->function != b->function) && !(passes && a->pass != b->pass) &&
           !stated_apart(a->layer, b->layer) && !stated_apart(a->microbatch, b->microbatch);
}

static void take_both(struct join *join, int rank, const struct mcp_timeline_span *a,
                      const struct mcp_timeline_span *b)
{
    if (is_same(a, b)) {
        struct mcp_compare_kind *kind = &join->kinds[kind_of(a, b)];
        kind->num_both++;
        kind->a_s += duration_s(a);
        kind->b_s += duration_s(b);
        keep_worst(&join->worst, (struct mcp_compare_pair){rank, a, b});
        return;
    }
    join->out->num_other++;
    take_alone(join, a, true);
    take_alone(join, b, false);
}

static void join_rank(struct join *join, int rank)
{
    const struct mcp_compare *of = join->out;
    size_t num_a, num_b, a = 0, b = 0;
    const struct mcp_timeline_span *in_a =
        mcp_timeline_spans_of(of->a, mcp_timeline_find_rank(of->a, rank), &num_a);
    const struct mcp_timeline_span *in_b =
        mcp_timeline_spans_of(of->b, mcp_timeline_find_rank(of->b, rank), &num_b);
    while (a < num_a || b < num_b) {
        int order = a == num_a ? 1 : b == num_b ? -1 : by_key(&in_a[a], &in_b[b]);
        if (order == 0)
            take_both(join, rank, &in_a[a], &in_b[b]);
        else
            take_alone(join, order < 0 ? &in_a[a] : &in_b[b], order < 0);
        a += order <= 0;
        b += order >= 0;
    }
}

/* --- accounts --- */

/* Ranks that are like one before have its account. */
static struct mcp_account *account_of(struct mcp_arena *arena, const struct mcp_compare *of,
                                      const struct mcp_timeline *timeline,
                                      struct mcp_timeline_ends ends)
{
    struct mcp_account *accounts = MCP_ARRAY(arena, of->num_ranks, struct mcp_account);
    int most = num_ranks(timeline);
    ends.step_ns = of->until_ns > 0 ? of->until_ns : ends.step_ns;
    int *place = MCP_ARRAY(arena, most, int); /* 1 + index of an account of the same spans */
    for (int i = 0; i < of->num_ranks; i++) {
        int rank = mcp_timeline_find_rank(timeline, of->ranks[i]);
        size_t count;
        const struct mcp_timeline_span *spans = mcp_timeline_spans_of(timeline, rank, &count);
        if (place[rank] > 0)
            accounts[i] = accounts[place[rank] - 1];
        else
            mcp_account_of(arena, spans, count, &ends, &accounts[i]);
        place[rank] = i + 1;
    }
    return accounts;
}

static struct mcp_account mean_of(const struct mcp_account *accounts, int count)
{
    struct mcp_account mean = {{0}};
    for (int k = 0; k < MCP_NUM_SECONDS; k++) {
        double sum = 0;
        for (int i = 0; i < count; i++)
            sum += (double)accounts[i].ns[k];
        mean.ns[k] = llround(sum / count);
    }
    return mean;
}

enum mcp_status mcp_compare(struct mcp_arena *arena, const struct mcp_timeline *a,
                            const struct mcp_timeline *b, int most_worst, struct mcp_compare *out,
                            struct mcp_error *err)
{
    struct join join = {out,
                        MCP_ARRAY(arena, NUM_KINDS, struct mcp_compare_kind),
                        {most_worst, 0, MCP_ARRAY(arena, most_worst + 1, struct mcp_compare_pair)}};
    *out = (struct mcp_compare){
        .a = a, .b = b, .ends_a = mcp_timeline_ends(a), .ends_b = mcp_timeline_ends(b)};
    find_ranks(arena, out);
    if (out->num_ranks == 0)
        return mcp_fail(
            err, MCP_INVALID,
            "no rank has spans in both: %d have some in the first alone, %d in the second",
            out->num_only_a, out->num_only_b);
    for (int i = 0; i < out->num_ranks; i++)
        join_rank(&join, out->ranks[i]);
    settle_kinds(arena, join.kinds, out);
    if (out->all.num_both == 0)
        return mcp_fail(err, MCP_INVALID,
                        "no op has the same rank, slot, entry and number in both: they are not of "
                        "one program");
    out->until_ns = a->until_ns;
    if (b->until_ns > 0 && (b->until_ns < a->until_ns || a->until_ns == 0))
        out->until_ns = b->until_ns;
    out->worst = join.worst.pairs;
    out->num_worst = join.worst.count;
    out->accounts_a = account_of(arena, out, a, out->ends_a);
    out->accounts_b = account_of(arena, out, b, out->ends_b);
    out->mean_a = mean_of(out->accounts_a, out->num_ranks);
    out->mean_b = mean_of(out->accounts_b, out->num_ranks);
    return MCP_OK;
}
