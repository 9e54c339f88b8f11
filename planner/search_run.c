/* planner/search_run.c: in which order waves of families and of tuples are made. */
#include "planner/search_wave.h"

#include <math.h>
#include <stdlib.h>

enum { LONGEST_EVEN_WAVE = 8 };
enum { MOST_MILPS = 64, MILPS_OF_RUNNER_UP = -1 }; /* of one tuple */

/* `frac` of the families in their first order, then in the others, then of tuples to split. */
static void tell(const struct mcp_search *search, enum mcp_wave_kind kind, double frac)
{
    static const double begin[] = {0, 0.6, 0.7, 1};
    const struct mcp_tuple *best;
    double done_frac = begin[kind] + (begin[kind + 1] - begin[kind]) * frac;
    if (search->options->progress == NULL)
        return;
    int count = mcp_leaders(search, MCP_KEEPS_ALL, 1, &best);
    search->options->progress(search->options->progress_context, done_frac,
                              count > 0 ? &best->found : NULL);
}

/* Families from `at` on that may still matter, at most `most`. */
static int next_wave(const struct mcp_wave *wave, size_t at, int most)
{
    const struct mcp_families *all = wave->all;
    bool memory = wave->search->objective == MCP_OBJECTIVE_MEMORY;
    double bar = (double)(memory ? wave->bar.bytes : wave->bar.ns);
    int count = 0;
    while (count < most && at + (size_t)count < all->count &&
           all->items[at + (size_t)count].bound <= bar)
        count++;
    return count;
}

static void skip_rest(struct mcp_wave *wave, size_t at)
{
    const struct mcp_families *all = wave->all;
    for (; wave->class == MCP_KEEPS_ALL && at < all->count; at++)
        wave->search->record.bounded += mcp_wave_to_count(wave, &all->items[at]);
}

/* Waves grow, as the bar moves less and less. */
static int longer(int length)
{
    return 2 * length < MCP_LONGEST_WAVE ? 2 * length : MCP_LONGEST_WAVE;
}

static bool stopped(struct mcp_search *search)
{
    search->stopped = search->stopped || mcp_search_told_to_stop(search);
    return search->stopped;
}

/* --- tuples of which even splits alone are looked at --- */

/* The least bound first, of those that may still matter and are bounded by no more than
 * `most_ns`. */
static void take_even(struct mcp_wave *wave, double most_ns, int most)
{
    struct mcp_search *search = wave->search;
    struct mcp_tuples *kept = &search->kept[wave->class];
    wave->count = 0;
    while (wave->count < most && kept->count > 0 && (double)kept->items[0].bound_ns <= most_ns) {
        struct mcp_tuple tuple = mcp_tuples_pop(kept);
        const struct mcp_lot *lot = &search->lots[tuple.layout];
        if (tuple.bound_ns <= mcp_bar_of(search, lot, wave->class, wave->bar).ns) {
            wave->splits[wave->count++] = tuple;
            continue;
        }
        tuple.state = MCP_TUPLE_BOUNDED;
        mcp_wave_count(wave, &tuple);
    }
}

/* What told to stop left open cannot be said to fit or not. */
static void count_even(struct mcp_wave *wave)
{
    for (int i = 0; i < wave->count; i++) {
        if (wave->splits[i].state == MCP_TUPLE_OPEN)
            wave->splits[i].state = MCP_TUPLE_BOUNDED;
        mcp_wave_count(wave, &wave->splits[i]);
    }
}

static bool has_bar(const struct mcp_search *search, int class, int top)
{
    int layouts = 0;
    for (int i = 0; i < search->num_lots; i++)
        layouts += search->lots[i].best[class].layout >= 0;
    return layouts >= top;
}

/* Rows cost more than bounds, so tuples are priced in the order of theirs, and none before a
 * family that may hold a better one is looked into; but for the first few, to have a bar. */
static void run_even_splits(struct mcp_search *search, int class, int top, double most_ns)
{
    struct mcp_tuple splits[LONGEST_EVEN_WAVE];
    struct mcp_wave wave = {
        .search = search, .class = class, .kind = MCP_WAVE_EVEN_SPLITS, .splits = splits};
    for (int length = 1; !stopped(search);
         length = length < LONGEST_EVEN_WAVE ? 2 * length : length) {
        bool first = isfinite(most_ns) && !has_bar(search, class, top);
        wave.bar = mcp_common_bar(search, class, top);
        take_even(&wave, first ? HUGE_VAL : most_ns, first ? 1 : length);
        if (wave.count == 0)
            return;
        mcp_wave_run(&wave);
        count_even(&wave);
        if (first)
            return;
    }
}

static void drop_even(struct mcp_search *search, int class)
{
    struct mcp_tuples *kept = &search->kept[class];
    struct mcp_wave wave = {.search = search, .class = class};
    if (kept->count > 0)
        mcp_wave_leave_open(&wave, (double)kept->items[0].bound_ns);
    for (size_t i = 0; i < kept->count; i++) {
        kept->items[i].state = MCP_TUPLE_BOUNDED;
        mcp_wave_count(&wave, &kept->items[i]);
    }
    kept->count = 0;
}

/* --- families --- */

/* Other orders of what is out of reach in any are settled. */
static void leave_families(const struct mcp_wave *wave, size_t at)
{
    const struct mcp_families *all = wave->all;
    while (wave->kind == MCP_WAVE_OTHER_ORDERS && at < all->count && !all->items[at].reached)
        at++;
    if (at < all->count)
        mcp_wave_leave_open(wave, all->items[at].bound);
}

static void run_families(struct mcp_search *search, struct mcp_families *all, int class, int top,
                         enum mcp_wave_kind kind)
{
    struct mcp_wave wave = {.search = search, .all = all, .class = class, .kind = kind};
    bool even = all == &search->even[class];
    size_t at = 0;
    for (int length = 1; at < all->count; length = longer(length)) {
        wave.bar = mcp_common_bar(search, class, top);
        wave.count = next_wave(&wave, at, length);
        wave.families = all->items + at;
        if (wave.count == 0)
            break;
        if (stopped(search)) {
            leave_families(&wave, at);
            break;
        }
        mcp_wave_run(&wave);
        at += (size_t)wave.count;
        if (even)
            run_even_splits(search, class, top, at < all->count ? all->items[at].bound : HUGE_VAL);
        if (class == MCP_KEEPS_ALL)
            tell(search, kind, (double)at / (double)all->count);
    }
    if (even)
        run_even_splits(search, class, top, HUGE_VAL);
    skip_rest(&wave, at);
}

/* Other rank orders than the first are looked at with what that found as the bar. */
static void run_orders(struct mcp_search *search, struct mcp_families *all, int class)
{
    bool any = false;
    for (int i = 0; i < search->num_lots; i++)
        any = any || search->lots[i].choices.rank_orders.count > 1;
    if (any)
        run_families(search, all, class, 1, MCP_WAVE_OTHER_ORDERS);
}

static int by_tuple_bound(const void *a, const void *b)
{
    const struct mcp_tuple *x = a, *y = b;
    if (x->bound_ns != y->bound_ns)
        return x->bound_ns < y->bound_ns ? -1 : 1;
    if (x->layout != y->layout)
        return x->layout < y->layout ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* What was not split cannot win, whether it fits or not. */
static void count_kept(struct mcp_wave *wave)
{
    const struct mcp_tuples *kept = &wave->search->kept[wave->class];
    for (size_t i = 0; i < kept->count; i++) {
        struct mcp_tuple tuple = kept->items[i];
        if (tuple.state == MCP_TUPLE_OPEN)
            tuple.state = MCP_TUPLE_BOUNDED;
        mcp_wave_count(wave, &tuple);
        if (tuple.split && !tuple.proven)
            mcp_wave_leave_open(wave, (double)tuple.bound_ns);
    }
}

/* Plans that break a rule are split where they may beat those that keep it. */
static struct mcp_bar split_bar(const struct mcp_search *search, int class)
{
    struct mcp_bar bar = mcp_common_bar(search, MCP_KEEPS_ALL, 1);
    struct mcp_bar own = mcp_common_bar(search, class, 1);
    return (struct mcp_bar){own.ns < bar.ns ? own.ns : bar.ns, INT64_MAX};
}

static void run_splits(struct mcp_search *search, int class)
{
    struct mcp_wave wave = {
        .search = search, .class = class, .kind = MCP_WAVE_SPLITS, .most_milps = MOST_MILPS};
    struct mcp_tuples *kept = &search->kept[class];
    size_t at = 0;
    if (kept->count > 0)
        qsort(kept->items, kept->count, sizeof *kept->items, by_tuple_bound);
    for (int length = 1; at < kept->count; length = longer(length)) {
        wave.bar = split_bar(search, class);
        wave.splits = kept->items + at;
        wave.count = 0;
        while (wave.count < length && at + (size_t)wave.count < kept->count &&
               wave.splits[wave.count].bound_ns < wave.bar.ns)
            wave.count++;
        if (wave.count == 0)
            break;
        if (stopped(search)) {
            mcp_wave_leave_open(&wave, (double)kept->items[at].bound_ns);
            break;
        }
        mcp_wave_run(&wave);
        at += (size_t)wave.count;
        if (class == MCP_KEEPS_ALL)
            tell(search, MCP_WAVE_SPLITS, (double)at / (double)kept->count);
    }
    count_kept(&wave);
}

/* The runners-up too are split, but not proven: each stays behind the best. */
static void split_runners_up(struct mcp_search *search, int top)
{
    const struct mcp_tuple **order = MCP_ARRAY(search->arena, top, const struct mcp_tuple *);
    struct mcp_tuple *tuples = MCP_ARRAY(search->arena, top, struct mcp_tuple);
    int count = mcp_leaders(search, MCP_KEEPS_ALL, top, order);
    for (int i = 1; i < count; i++) {
        struct mcp_wave wave = {.search = search,
                                .kind = MCP_WAVE_SPLITS,
                                .count = 1,
                                .most_milps = MILPS_OF_RUNNER_UP};
        tuples[i] = *order[i];
        wave.bar = mcp_bar_at(search, &tuples[i].found);
        wave.splits = &tuples[i];
        if (tuples[i].split || stopped(search))
            continue;
        mcp_wave_run(&wave);
    }
}

/* What a rule costs is told by the schedules that are split, unless only others are asked for. */
static void run_even(struct mcp_search *search, int class, int top)
{
    unsigned schedules = mcp_space_schedules(search->space, search->question->stack);
    if (class != MCP_KEEPS_ALL && (schedules & MCP_UNEVEN_SCHEDULES) != 0)
        return;
    search->kept[class].count = 0;
    run_families(search, &search->even[class], class, top, MCP_WAVE_FIRST_ORDER);
    run_orders(search, &search->even[class], class);
    drop_even(search, class);
}

static void run_class(struct mcp_search *search, int class)
{
    int top = search->options->top > 1 && class == MCP_KEEPS_ALL ? search->options->top : 1;
    run_families(search, &search->families[class], class, top, MCP_WAVE_FIRST_ORDER);
    run_orders(search, &search->families[class], class);
    if (mcp_search_splits(search))
        run_splits(search, class);
    run_even(search, class, top);
    if (mcp_search_splits(search) && class == MCP_KEEPS_ALL)
        split_runners_up(search, top);
}

void mcp_search_run(struct mcp_search *search)
{
    mcp_search_enumerate(search);
    for (int class = 0; class < (search->unlimited ? 1 : MCP_NUM_CLASSES); class ++)
        run_class(search, class);
    tell(search, MCP_WAVE_SPLITS, 1);
}
