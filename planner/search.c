/* planner/search.c: waves of families, best bound first; the only door to OpenMP. */
#include "planner/search.h"

#include "core/text.h"
#include "planner/search_parts.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

const char *const mcp_objective_names[MCP_NUM_OBJECTIVES] = {"time", "memory", "cost"};
const char mcp_rule_pipeline[] = "pipeline_rule";
const char mcp_rule_batch[] = "batch_rule";
const char mcp_rule_memory[] = "memory";
const char mcp_rule_gpipe[] = "gpipe_is_never_better";

/* --- records --- */

static void count_in(struct mcp_refused *items, int *num, int most, struct mcp_refused more)
{
    int i = 0;
    while (i < *num && !mcp_same(items[i].rule, more.rule))
        i++;
    if (i == most)
        i--;
    else if (i == *num)
        items[(*num)++].rule = more.rule;
    items[i].count += more.count;
}

void mcp_record_refuse(struct mcp_search_record *record, const char *rule, int64_t count)
{
    count_in(record->refused, &record->num_refused, MCP_MAX_REFUSED,
             (struct mcp_refused){rule, count});
}

int64_t mcp_search_refused(const struct mcp_search_record *record, const char *rule)
{
    for (int i = 0; i < record->num_refused; i++)
        if (mcp_same(record->refused[i].rule, rule))
            return record->refused[i].count;
    return 0;
}

static int by_count(const void *a, const void *b)
{
    const struct mcp_refused *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return strcmp(x->rule, y->rule);
}

/* --- comparing --- */

static int compare_degrees(const struct mcp_plan *a, const struct mcp_plan *b)
{
    for (int knob = 0; knob < MCP_NUM_KNOBS; knob++) {
        if (knob == MCP_KNOB_RECOMPUTE)
            continue;
        int x = mcp_knob_value((enum mcp_knob)knob, a), y = mcp_knob_value((enum mcp_knob)knob, b);
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

int mcp_found_compare(enum mcp_objective objective, const struct mcp_found *a,
                      const struct mcp_found *b)
{
    int by_time = (a->iteration_s > b->iteration_s) - (a->iteration_s < b->iteration_s);
    int by_memory = (a->peak_memory_bytes > b->peak_memory_bytes) -
                    (a->peak_memory_bytes < b->peak_memory_bytes);
    int first = objective == MCP_OBJECTIVE_MEMORY ? by_memory : by_time;
    int second = objective == MCP_OBJECTIVE_MEMORY ? by_time : by_memory;
    if (first != 0 || second != 0)
        return first != 0 ? first : second;
    return compare_degrees(&a->plan, &b->plan);
}

/* --- the bar --- */

/* The best tuples of different layouts, best first; returns how many, at most `top`. */
static int leaders(const struct mcp_search *search, int class, int top,
                   const struct mcp_tuple **order)
{
    int count = 0;
    for (int i = 0; i < search->num_lots; i++) {
        const struct mcp_tuple *best = &search->lots[i].best[class];
        int at = count;
        if (best->layout < 0)
            continue;
        while (at > 0 &&
               mcp_found_compare(search->objective, &best->found, &order[at - 1]->found) < 0)
            at--;
        if (at == top)
            continue;
        count += count < top;
        memmove(order + at + 1, order + at, (size_t)(count - at - 1) * sizeof *order);
        order[at] = best;
    }
    return count;
}

/* What a tuple must beat to be of use: in time or bytes, by objective. */
struct bar {
    int64_t ns, bytes;
};

static struct bar bar_at(const struct mcp_search *search, const struct mcp_found *found)
{
    struct bar bar = {INT64_MAX, INT64_MAX};
    if (search->objective == MCP_OBJECTIVE_MEMORY)
        bar.bytes = found->peak_memory_bytes;
    else
        bar.ns = llround(found->iteration_s * 1e9);
    return bar;
}

/* The last of the plans to keep; none while there are fewer. */
static struct bar common_bar(const struct mcp_search *search, int class, int top)
{
    struct bar none = {INT64_MAX, INT64_MAX};
    struct mcp_mark mark = mcp_arena_mark(search->arena);
    const struct mcp_tuple **order = MCP_ARRAY(search->arena, top, const struct mcp_tuple *);
    int count = leaders(search, class, top, order);
    struct bar bar = count == top ? bar_at(search, &order[top - 1]->found) : none;
    mcp_arena_rewind(search->arena, mark);
    return search->options->exhaustive ? none : bar;
}

/* A layout has to beat its own best too: only one of its plans is kept. */
static struct bar bar_of(const struct mcp_search *search, const struct mcp_lot *lot, int class,
                         struct bar common)
{
    if (lot->best[class].layout < 0 || search->options->exhaustive)
        return common;
    struct bar own = bar_at(search, &lot->best[class].found);
    return (struct bar){own.ns < common.ns ? own.ns : common.ns,
                        own.bytes < common.bytes ? own.bytes : common.bytes};
}

/* --- waves --- */

enum { LONGEST_WAVE = 64 };

struct wave {
    struct mcp_search *search;
    int class;
    struct bar bar;
    bool orders; /* all rank orders but the first, else the first */
    int count;
    const struct mcp_family *families; /* [count] */
    struct mcp_tuple *tuples[LONGEST_WAVE];
    int num_tuples[LONGEST_WAVE];
    int64_t priced[LONGEST_WAVE];
};

static void look_into(struct wave *wave, int i)
{
    const struct mcp_search *search = wave->search;
    const struct mcp_family *family = &wave->families[i];
    const struct mcp_lot *lot = &search->lots[family->layout];
    struct mcp_desk *desk = &search->desks[lot->desk];
    struct bar bar = bar_of(search, lot, wave->class, wave->bar);
    struct mcp_look look = {search, desk, lot, bar.ns, bar.bytes, 0};
    int orders = lot->choices.rank_orders.count, each = lot->variants / orders;
    mcp_desk_open(desk, search->question);
    int first = wave->orders ? 1 : 0, last = wave->orders ? orders - 1 : 0;
    if (wave->orders && !lot->better_orders && !mcp_family_reaches(&look, family, 0))
        last = 0;
    wave->num_tuples[i] = (last - first + 1) * each;
    wave->tuples[i] = MCP_ARRAY(desk->arena, wave->num_tuples[i], struct mcp_tuple);
    for (int order = first; order <= last; order++)
        mcp_look_into(&look, family, order, wave->tuples[i] + (order - first) * each);
    wave->priced[i] = look.priced;
}

static int desk_of(const struct wave *wave, int i)
{
    return wave->search->lots[wave->families[i].layout].desk;
}

/* All families of the wave at the desk of the i-th, if it is the first there. */
static void work_at_desk(struct wave *wave, int i)
{
    for (int k = 0; k < i; k++)
        if (desk_of(wave, k) == desk_of(wave, i))
            return;
    for (int k = i; k < wave->count; k++)
        if (desk_of(wave, k) == desk_of(wave, i))
            look_into(wave, k);
}

static void run_wave(struct wave *wave)
{
#pragma omp parallel for schedule(dynamic) num_threads(wave->search->num_threads)
    for (int i = 0; i < wave->count; i++)
        work_at_desk(wave, i);
}

static void refuse_memory(struct mcp_search_record *record, const struct mcp_tuple *tuple,
                          int64_t count)
{
    mcp_record_refuse(record, mcp_rule_memory, count);
    if (tuple->refuted != NULL)
        count_in(record->refuted, &record->num_refuted, 4,
                 (struct mcp_refused){tuple->refuted, count});
}

static void join_tuple(struct wave *wave, const struct mcp_tuple *tuple)
{
    struct mcp_search *search = wave->search;
    struct mcp_search_record *record = &search->record;
    struct mcp_tuple *best = &search->lots[tuple->layout].best[wave->class];
    if (tuple->state == MCP_TUPLE_FITS &&
        (best->layout < 0 || mcp_found_compare(search->objective, &tuple->found, &best->found) < 0))
        *best = *tuple;
    if (wave->class != MCP_KEEPS_ALL)
        return;
    if (tuple->state == MCP_TUPLE_FITS)
        record->fitting++;
    else if (tuple->state != MCP_TUPLE_BOUNDED)
        refuse_memory(record, tuple, 1);
    else
        record->bounded++;
}

static void join_wave(struct wave *wave)
{
    for (int i = 0; i < wave->count; i++) {
        const struct mcp_lot *lot = &wave->search->lots[wave->families[i].layout];
        int orders = lot->choices.rank_orders.count, each = lot->variants / orders;
        int expected = wave->orders ? lot->variants - each : each;
        for (int k = 0; k < wave->num_tuples[i]; k++)
            join_tuple(wave, &wave->tuples[i][k]);
        if (wave->class == MCP_KEEPS_ALL) {
            wave->search->record.priced += wave->priced[i];
            wave->search->record.bounded += expected - wave->num_tuples[i];
        }
    }
}

/* --- the search --- */

static bool told_to_stop(const struct mcp_search *search)
{
    return search->options->stop != NULL && *search->options->stop != 0;
}

static void tell(const struct mcp_search *search, double done_frac)
{
    const struct mcp_tuple *best;
    if (search->options->progress == NULL)
        return;
    int count = leaders(search, MCP_KEEPS_ALL, 1, &best);
    search->options->progress(search->options->progress_context, done_frac,
                              count > 0 ? &best->found : NULL);
}

/* Families from `at` on that may still matter, at most `most`. */
static int next_wave(const struct wave *wave, size_t at, int most)
{
    const struct mcp_families *all = &wave->search->families[wave->class];
    int count = 0;
    while (count < most && at + (size_t)count < all->count &&
           all->items[at + (size_t)count].bound_ns <= (double)wave->bar.ns)
        count++;
    return count;
}

static void skip_rest(struct wave *wave, size_t at)
{
    const struct mcp_families *all = &wave->search->families[wave->class];
    for (; wave->class == MCP_KEEPS_ALL && at < all->count; at++) {
        const struct mcp_lot *lot = &wave->search->lots[all->items[at].layout];
        int each = lot->variants / lot->choices.rank_orders.count;
        wave->search->record.bounded += wave->orders ? lot->variants - each : each;
    }
}

/* Waves grow, as the bar moves less and less. */
static void run_class(struct mcp_search *search, int class, int top, bool orders)
{
    struct wave wave = {.search = search, .class = class, .orders = orders};
    const struct mcp_families *all = &search->families[class];
    size_t at = 0;
    for (int length = 1; at < all->count;
         length = 2 * length < LONGEST_WAVE ? 2 * length : LONGEST_WAVE) {
        wave.bar = common_bar(search, class, top);
        wave.count = next_wave(&wave, at, length);
        wave.families = all->items + at;
        search->stopped = search->stopped || told_to_stop(search);
        if (wave.count == 0 || search->stopped)
            break;
        run_wave(&wave);
        join_wave(&wave);
        at += (size_t)wave.count;
        if (class == MCP_KEEPS_ALL)
            tell(search, (double)at / (double)all->count);
    }
    skip_rest(&wave, at);
}

/* Other rank orders than the first are looked at with what that found as the bar. */
static void run_orders(struct mcp_search *search, int class)
{
    bool any = false;
    for (int i = 0; i < search->num_lots; i++)
        any = any || search->lots[i].choices.rank_orders.count > 1;
    if (any)
        run_class(search, class, 1, true);
}

/* --- the answer --- */

static struct mcp_found finish(struct mcp_arena *arena, const struct mcp_search *search,
                               const struct mcp_tuple *tuple)
{
    struct mcp_found found = tuple->found;
    if (found.plan.stage_pool != NULL) {
        int *pools = MCP_ARRAY(arena, found.plan.pipeline_parallel, int);
        memcpy(pools, found.plan.stage_pool, (size_t)found.plan.pipeline_parallel * sizeof *pools);
        found.plan.stage_pool = pools;
    }
    if (found.plan.chunks == NULL)
        mcp_plan_uniform_chunks(arena, &found.plan, search->question->model->num_layers,
                                tuple->recompute);
    return found;
}

static void answer_class(struct mcp_arena *arena, const struct mcp_search *search,
                         struct mcp_answer *out)
{
    int top = search->options->top > 1 ? search->options->top : 1;
    const struct mcp_tuple **order = MCP_ARRAY(arena, top, const struct mcp_tuple *);
    out->count = leaders(search, MCP_KEEPS_ALL, top, order);
    out->found = MCP_ARRAY(arena, out->count, struct mcp_found);
    for (int i = 0; i < out->count; i++)
        out->found[i] = finish(arena, search, order[i]);
    for (int k = 0; k < 2; k++) {
        const struct mcp_tuple *best;
        out->has_beyond[k] = leaders(search, MCP_BREAKS_PIPELINE + k, 1, &best) > 0;
        if (out->has_beyond[k])
            out->beyond[k] = finish(arena, search, best);
    }
}

static void allow_recompute(struct mcp_search *search)
{
    const struct mcp_interval *asked = &search->space->knobs[MCP_KNOB_RECOMPUTE];
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++)
        search->recompute[r] = !asked->given || (asked->low <= r && r <= asked->high);
}

static void free_desks(struct mcp_search *search)
{
    for (int i = 0; i < search->num_desks; i++) {
        mcp_arena_free(search->desks[i].scratch);
        mcp_arena_free(search->desks[i].arena);
    }
}

/* Searches in a scratch arena; what is kept goes to `arena`. */
static void run(struct mcp_arena *arena, struct mcp_search *search, struct mcp_answer *out)
{
    int top = search->options->top > 1 ? search->options->top : 1;
    search->num_threads =
        search->options->num_threads > 0 ? search->options->num_threads : omp_get_num_procs();
    allow_recompute(search);
    mcp_search_enumerate(search);
    for (int class = 0; class < (search->unlimited ? 1 : MCP_NUM_CLASSES); class ++) {
        run_class(search, class, class == MCP_KEEPS_ALL ? top : 1, false);
        run_orders(search, class);
    }
    struct mcp_search_record *record = &search->record;
    qsort(record->refused, (size_t)record->num_refused, sizeof *record->refused, by_count);
    record->proven_optimal = !search->stopped;
    answer_class(arena, search, out);
    out->record = *record;
    free_desks(search);
}

/* Needs the least memory of all that keep the rules. */
static void find_smallest(struct mcp_arena *arena, struct mcp_search search, struct mcp_answer *out)
{
    struct mcp_answer smallest = {0};
    struct mcp_search_options options = *search.options;
    options.top = 1;
    options.exhaustive = false;
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
    if (out->count == 0 || options->smallest)
        find_smallest(arena, asked, out);
}
