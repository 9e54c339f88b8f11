/* planner/search.c: waves of families, best bound first; the only door to OpenMP. */
#include "planner/search.h"

#include "planner/exhaustive.h"
#include "planner/search_parts.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <time.h>

/* --- waves --- */

enum { LONGEST_WAVE = 64 };
static const double worth_threads_s = 0.03;
enum { MOST_MILPS = 64, MILPS_OF_RUNNER_UP = -1 }; /* of one tuple */

enum wave_kind {
    FIRST_ORDER,  /* families, in their first rank order */
    OTHER_ORDERS, /* and in all others */
    SPLITS        /* tuples */
};

struct wave {
    struct mcp_search *search;
    int class;
    struct mcp_bar bar;
    enum wave_kind kind;
    int count;
    struct mcp_families *all;    /* that waves are made of */
    struct mcp_family *families; /* [count] */
    struct mcp_tuple *splits;    /* [count] */
    int most_milps;              /* of each of them */
    double each_s;               /* of the wave before, that one of them took */
    /* what each gave */
    struct mcp_tuple *tuples[LONGEST_WAVE];
    int num_tuples[LONGEST_WAVE];
    const char *refuted[LONGEST_WAVE]; /* the whole family, by memory */
    bool skipped[LONGEST_WAVE];        /* told to stop before */
    int64_t priced[LONGEST_WAVE], milps[LONGEST_WAVE];
};

static int layout_of(const struct wave *wave, int i)
{
    return wave->kind == SPLITS ? wave->splits[i].layout : wave->families[i].layout;
}

static void look_into(struct wave *wave, struct mcp_look *look, int i)
{
    struct mcp_family *family = &wave->families[i];
    const struct mcp_lot *lot = look->lot;
    int orders = lot->choices.rank_orders.count, each = lot->variants / orders;
    bool others = wave->kind == OTHER_ORDERS;
    int first = others ? 1 : 0, last = others ? orders - 1 : 0;
    wave->num_tuples[i] = 0;
    wave->refuted[i] = mcp_family_refuted(look, family);
    if (wave->refuted[i] != NULL || (others && !family->reached))
        return;
    family->reached = mcp_family_reaches(look, family);
    if (!family->reached || last < first)
        return;
    wave->num_tuples[i] = (last - first + 1) * each;
    if (look->desk->wave == NULL)
        look->desk->wave = mcp_arena_new();
    wave->tuples[i] = MCP_ARRAY(look->desk->wave, wave->num_tuples[i], struct mcp_tuple);
    for (int order = first; order <= last; order++)
        mcp_look_into(look, family, order, wave->tuples[i] + (order - first) * each);
}

static bool told_to_stop(const struct mcp_search *search)
{
    return search->options->stop != NULL && *search->options->stop != 0;
}

static void work(struct wave *wave, int i)
{
    const struct mcp_search *search = wave->search;
    wave->priced[i] = wave->milps[i] = wave->num_tuples[i] = 0;
    wave->refuted[i] = NULL;
    wave->skipped[i] = told_to_stop(search);
    if (wave->skipped[i])
        return;
    const struct mcp_lot *lot = &search->lots[layout_of(wave, i)];
    struct mcp_bar bar =
        wave->kind == SPLITS ? wave->bar : mcp_bar_of(search, lot, wave->class, wave->bar);
    struct mcp_look look = {.search = search,
                            .desk = &search->desks[lot->desk],
                            .lot = lot,
                            .cutoff_ns = bar.ns,
                            .cutoff_bytes = bar.bytes};
    mcp_desk_open(look.desk, search->question, lot->layout.tensor_parallel);
    if (wave->kind == SPLITS)
        mcp_look_split(&look, wave->most_milps, &wave->splits[i]);
    else
        look_into(wave, &look, i);
    wave->priced[i] = look.priced;
    wave->milps[i] = look.milps;
}

static int desk_of(const struct wave *wave, int i)
{
    return wave->search->lots[layout_of(wave, i)].desk;
}

/* All work of the wave at the desk of the i-th, if that is the first there. */
static void work_at_desk(struct wave *wave, int i)
{
    for (int k = 0; k < i; k++)
        if (desk_of(wave, k) == desk_of(wave, i))
            return;
    for (int k = i; k < wave->count; k++)
        if (desk_of(wave, k) == desk_of(wave, i))
            work(wave, k);
}

static int desks_of(const struct wave *wave)
{
    int count = 0;
    for (int i = 0; i < wave->count; i++) {
        int k = 0;
        while (desk_of(wave, k) != desk_of(wave, i))
            k++;
        count += k == i;
    }
    return count;
}

/* As far as there are desks for them, and, unless they were asked for, where the last wave
 * tells that there is work for longer than they take to start and to wait for each other. */
static int threads_for(const struct wave *wave)
{
    int desks = desks_of(wave), most = wave->search->num_threads;
    bool asked = wave->search->options->num_threads > 0;
    if (!asked && wave->each_s * wave->count < worth_threads_s)
        return 1;
    return desks < most ? desks : most;
}

static double thread_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void run_wave(struct wave *wave)
{
    int threads = wave->search->num_threads > 1 ? threads_for(wave) : 1;
    double took_s = 0;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)                   \
    reduction(+ : took_s)
    for (int i = 0; i < wave->count; i++) {
        double before_s = thread_s();
        work_at_desk(wave, i);
        took_s += thread_s() - before_s;
    }
    if (threads > 1)
        omp_pause_resource_all(omp_pause_soft); /* else they spin until the next wave */
    wave->each_s = took_s / wave->count;
}

/* Are uniform plans not the last word? */
static bool splits(const struct mcp_search *search)
{
    return search->objective != MCP_OBJECTIVE_MEMORY && !search->options->uniform;
}

static void count_tuple(struct wave *wave, const struct mcp_tuple *tuple)
{
    struct mcp_search_record *record = &wave->search->record;
    if (wave->class != MCP_KEEPS_ALL)
        return;
    if (tuple->state == MCP_TUPLE_FITS)
        record->fitting++;
    else if (tuple->state == MCP_TUPLE_BOUNDED)
        record->bounded++;
    else if (tuple->state != MCP_TUPLE_COUNTED)
        mcp_record_refute(record, tuple->refuted, 1);
}

static void join_best(struct wave *wave, const struct mcp_tuple *tuple)
{
    struct mcp_tuple *best = &wave->search->lots[tuple->layout].best[wave->class];
    if (tuple->state == MCP_TUPLE_FITS &&
        (best->layout < 0 ||
         mcp_found_compare(wave->search->objective, &tuple->found, &best->found) < 0))
        *best = *tuple;
}

/* Counted now, or once it is split. */
static void join_tuple(struct wave *wave, const struct mcp_tuple *tuple)
{
    struct mcp_tuples *kept = &wave->search->kept[wave->class];
    join_best(wave, tuple);
    if (!splits(wave->search) || tuple->split ||
        (tuple->state != MCP_TUPLE_FITS && tuple->state != MCP_TUPLE_OPEN)) {
        count_tuple(wave, tuple);
        return;
    }
    kept->items = mcp_grow(wave->search->arena, kept->items, kept->count, &kept->capacity,
                           sizeof *kept->items);
    kept->items[kept->count++] = *tuple;
}

/* Tuples of the family that the wave's kind has to count. */
static int to_count(const struct wave *wave, const struct mcp_family *family)
{
    const struct mcp_lot *lot = &wave->search->lots[family->layout];
    int orders = lot->choices.rank_orders.count, each = lot->variants / orders;
    if (wave->kind == FIRST_ORDER)
        return each;
    for (unsigned left = family->refuted; left != 0; left &= left - 1)
        each--;
    return each * (orders - 1);
}

static void join_families(struct wave *wave)
{
    struct mcp_search_record *record = &wave->search->record;
    for (int i = 0; i < wave->count; i++) {
        const struct mcp_family *family = &wave->families[i];
        int left = to_count(wave, family),
            orders = wave->search->lots[family->layout].choices.rank_orders.count;
        for (int k = 0; k < wave->num_tuples[i]; k++) {
            const struct mcp_tuple *tuple = &wave->tuples[i][k];
            join_tuple(wave, tuple);
            left -= tuple->state != MCP_TUPLE_COUNTED;
            if (tuple->state == MCP_TUPLE_REFUTED && wave->kind == FIRST_ORDER &&
                wave->class == MCP_KEEPS_ALL)
                mcp_record_refute(record, tuple->refuted, orders - 1);
        }
        if (wave->class == MCP_KEEPS_ALL && wave->refuted[i] != NULL)
            mcp_record_refute(record, wave->refuted[i], left);
        else if (wave->class == MCP_KEEPS_ALL)
            record->bounded += left;
    }
}

/* Something that keeps the rules and takes no less than this was not settled. */
static void leave_open(const struct wave *wave, double bound_ns)
{
    if (wave->class == MCP_KEEPS_ALL && bound_ns < wave->search->open_ns)
        wave->search->open_ns = bound_ns;
}

/* Other orders of what is out of reach in any are settled. */
static void leave_families(const struct wave *wave, size_t at)
{
    const struct mcp_families *all = wave->all;
    while (wave->kind == OTHER_ORDERS && at < all->count && !all->items[at].reached)
        at++;
    if (at < all->count)
        leave_open(wave, all->items[at].bound);
}

static void join_skipped(struct wave *wave)
{
    for (int i = 0; i < wave->count; i++)
        if (wave->skipped[i]) {
            wave->search->stopped = true;
            leave_open(wave, wave->kind == SPLITS ? (double)wave->splits[i].bound_ns
                                                  : wave->families[i].bound);
        }
}

static void forget_tuples(const struct wave *wave)
{
    for (int i = 0; i < wave->count; i++) {
        struct mcp_desk *desk = &wave->search->desks[desk_of(wave, i)];
        mcp_arena_free(desk->wave);
        desk->wave = NULL;
    }
}

static void join_wave(struct wave *wave)
{
    join_skipped(wave);
    if (wave->kind != SPLITS)
        join_families(wave);
    forget_tuples(wave);
    for (int i = 0; wave->kind == SPLITS && i < wave->count; i++)
        join_best(wave, &wave->splits[i]);
    for (int i = 0; wave->class == MCP_KEEPS_ALL && i < wave->count; i++) {
        wave->search->record.priced += wave->priced[i];
        wave->search->record.milps += wave->milps[i];
    }
}

/* --- the search --- */

/* `frac` of the families in their first order, then in the others, then of tuples to split. */
static void tell(const struct mcp_search *search, enum wave_kind kind, double frac)
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
static int next_wave(const struct wave *wave, size_t at, int most)
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

static void skip_rest(struct wave *wave, size_t at)
{
    const struct mcp_families *all = wave->all;
    for (; wave->class == MCP_KEEPS_ALL && at < all->count; at++)
        wave->search->record.bounded += to_count(wave, &all->items[at]);
}

/* Waves grow, as the bar moves less and less. */
static int longer(int length)
{
    return 2 * length < LONGEST_WAVE ? 2 * length : LONGEST_WAVE;
}

static bool stopped(struct mcp_search *search)
{
    search->stopped = search->stopped || told_to_stop(search);
    return search->stopped;
}

static void run_families(struct mcp_search *search, struct mcp_families *all, int class, int top,
                         enum wave_kind kind)
{
    struct wave wave = {.search = search, .all = all, .class = class, .kind = kind};
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
        run_wave(&wave);
        join_wave(&wave);
        at += (size_t)wave.count;
        if (class == MCP_KEEPS_ALL)
            tell(search, kind, (double)at / (double)all->count);
    }
    skip_rest(&wave, at);
}

/* Other rank orders than the first are looked at with what that found as the bar. */
static void run_orders(struct mcp_search *search, struct mcp_families *all, int class)
{
    bool any = false;
    for (int i = 0; i < search->num_lots; i++)
        any = any || search->lots[i].choices.rank_orders.count > 1;
    if (any)
        run_families(search, all, class, 1, OTHER_ORDERS);
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
static void count_kept(struct wave *wave)
{
    const struct mcp_tuples *kept = &wave->search->kept[wave->class];
    for (size_t i = 0; i < kept->count; i++) {
        struct mcp_tuple tuple = kept->items[i];
        if (tuple.state == MCP_TUPLE_OPEN)
            tuple.state = MCP_TUPLE_BOUNDED;
        count_tuple(wave, &tuple);
        if (tuple.split && !tuple.proven)
            leave_open(wave, (double)tuple.bound_ns);
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
    struct wave wave = {.search = search, .class = class, .kind = SPLITS, .most_milps = MOST_MILPS};
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
            leave_open(&wave, (double)kept->items[at].bound_ns);
            break;
        }
        run_wave(&wave);
        join_wave(&wave);
        at += (size_t)wave.count;
        if (class == MCP_KEEPS_ALL)
            tell(search, SPLITS, (double)at / (double)kept->count);
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
        struct wave wave = {
            .search = search, .kind = SPLITS, .count = 1, .most_milps = MILPS_OF_RUNNER_UP};
        tuples[i] = *order[i];
        wave.bar = mcp_bar_at(search, &tuples[i].found);
        wave.splits = &tuples[i];
        if (tuples[i].split || stopped(search))
            continue;
        run_wave(&wave);
        join_wave(&wave);
    }
}

/* What a rule costs is told by the schedules that are split, unless only others are asked for. */
static void run_even(struct mcp_search *search, int class, int top)
{
    unsigned schedules = mcp_space_schedules(search->space, search->question->stack);
    if (class != MCP_KEEPS_ALL && (schedules & MCP_UNEVEN_SCHEDULES) != 0)
        return;
    run_families(search, &search->even[class], class, top, FIRST_ORDER);
    run_orders(search, &search->even[class], class);
}

static void run_class(struct mcp_search *search, int class)
{
    int top = search->options->top > 1 && class == MCP_KEEPS_ALL ? search->options->top : 1;
    run_families(search, &search->families[class], class, top, FIRST_ORDER);
    run_orders(search, &search->families[class], class);
    if (splits(search))
        run_splits(search, class);
    run_even(search, class, top);
    if (splits(search) && class == MCP_KEEPS_ALL)
        split_runners_up(search, top);
}

static void run_classes(struct mcp_search *search)
{
    mcp_search_enumerate(search);
    for (int class = 0; class < (search->unlimited ? 1 : MCP_NUM_CLASSES); class ++)
        run_class(search, class);
    tell(search, SPLITS, 1);
}

/* --- the door --- */

static void allow_recompute(struct mcp_search *search)
{
    const struct mcp_interval *asked = &search->space->knobs[MCP_KNOB_RECOMPUTE];
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++)
        search->recompute[r] = !asked->given || (asked->low <= r && r <= asked->high);
}

/* How far the best may be from what was left open, if anything was. */
static void conclude(const struct mcp_search *search, struct mcp_search_record *record)
{
    const struct mcp_tuple *best;
    bool memory = search->objective == MCP_OBJECTIVE_MEMORY;
    record->gap_frac = isinf(search->open_ns) ? 0 : 1;
    if (mcp_leaders(search, MCP_KEEPS_ALL, 1, &best) > 0) {
        double value =
            memory ? (double)best->found.peak_memory_bytes : best->found.iteration_s * 1e9;
        record->gap_frac = fmax(0, 1 - search->open_ns / value);
    }
    record->proven_optimal = record->gap_frac == 0;
}

/* Searches in a scratch arena; what is kept goes to `arena`. */
static void run(struct mcp_arena *arena, struct mcp_search *search, struct mcp_answer *out)
{
    search->num_threads =
        search->options->num_threads > 0 ? search->options->num_threads : omp_get_max_threads();
    search->open_ns = INFINITY;
    allow_recompute(search);
    if (search->options->exhaustive)
        mcp_search_all(search);
    else
        run_classes(search);
    mcp_record_sort(&search->record);
    conclude(search, &search->record);
    mcp_search_answer(arena, search, out);
    out->record = search->record;
    mcp_desks_close(search);
}

/* Needs the least memory of all that keep the rules. */
static void find_smallest(struct mcp_arena *arena, struct mcp_search search, struct mcp_answer *out)
{
    struct mcp_answer smallest = {0};
    struct mcp_search_options options = *search.options;
    struct mcp_plan_space space = *search.space;
    space.schedules = mcp_space_schedules(&space, search.question->stack) & MCP_UNEVEN_SCHEDULES;
    search.space = &space;
    options.top = 1;
    options.progress = NULL; /* the search that was asked for has told all */
    search.options = &options;
    search.arena = mcp_arena_new();
    search.objective = MCP_OBJECTIVE_MEMORY;
    search.unlimited = true;
    run(arena, &search, &smallest);
    mcp_arena_free(search.arena);
    out->has_smallest = smallest.count > 0;
    if (smallest.count > 0)
        out->smallest = smallest.found[0];
}

void mcp_search(struct mcp_arena *arena, const struct mcp_question *question,
                const struct mcp_plan_space *space, const struct mcp_search_options *options,
                struct mcp_answer *out)
{
    struct mcp_search search = {
        .question = question, .space = space, .options = options, .objective = options->objective};
    const struct mcp_search asked = search;
    search.arena = mcp_arena_new();
    *out = (struct mcp_answer){0};
    run(arena, &search, out);
    mcp_arena_free(search.arena);
    if (options->smallest)
        find_smallest(arena, asked, out);
}
