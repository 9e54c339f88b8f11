/* planner/search.c: waves of families, best bound first; the only door to OpenMP. */
#include "planner/search.h"

#include "planner/exhaustive.h"
#include "planner/search_wave.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <time.h>

/* --- waves --- */

static const double worth_threads_s = 0.03;

static bool is_of_tuples(enum mcp_wave_kind kind)
{
    return kind == MCP_WAVE_SPLITS || kind == MCP_WAVE_EVEN_SPLITS;
}

static int layout_of(const struct mcp_wave *wave, int i)
{
    return is_of_tuples(wave->kind) ? wave->splits[i].layout : wave->families[i].layout;
}

static void look_into(struct mcp_wave *wave, struct mcp_look *look, int i)
{
    struct mcp_family *family = &wave->families[i];
    const struct mcp_lot *lot = look->lot;
    int orders = lot->choices.rank_orders.count, each = lot->variants / orders;
    bool others = wave->kind == MCP_WAVE_OTHER_ORDERS;
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

bool mcp_search_told_to_stop(const struct mcp_search *search)
{
    return search->options->stop != NULL && *search->options->stop != 0;
}

static void work(struct mcp_wave *wave, int i)
{
    const struct mcp_search *search = wave->search;
    wave->priced[i] = wave->milps[i] = wave->num_tuples[i] = 0;
    wave->refuted[i] = NULL;
    wave->skipped[i] = mcp_search_told_to_stop(search);
    if (wave->skipped[i])
        return;
    const struct mcp_lot *lot = &search->lots[layout_of(wave, i)];
    struct mcp_bar bar =
        wave->kind == MCP_WAVE_SPLITS ? wave->bar : mcp_bar_of(search, lot, wave->class, wave->bar);
    struct mcp_look look = {.search = search,
                            .desk = &search->desks[lot->desk],
                            .lot = lot,
                            .cutoff_ns = bar.ns,
                            .cutoff_bytes = bar.bytes};
    mcp_desk_open(look.desk, search->question, lot->layout.tensor_parallel);
    look.desk->used = true;
    if (wave->kind == MCP_WAVE_SPLITS)
        mcp_look_split(&look, wave->most_milps, &wave->splits[i]);
    else if (wave->kind == MCP_WAVE_EVEN_SPLITS)
        mcp_look_even(&look, &wave->splits[i]);
    else
        look_into(wave, &look, i);
    wave->priced[i] = look.priced;
    wave->milps[i] = look.milps;
}

static int desk_of(const struct mcp_wave *wave, int i)
{
    return wave->search->lots[layout_of(wave, i)].desk;
}

/* All work of the wave at the desk of the i-th, if that is the first there. */
static void work_at_desk(struct mcp_wave *wave, int i)
{
    for (int k = 0; k < i; k++)
        if (desk_of(wave, k) == desk_of(wave, i))
            return;
    for (int k = i; k < wave->count; k++)
        if (desk_of(wave, k) == desk_of(wave, i))
            work(wave, k);
}

static int desks_of(const struct mcp_wave *wave)
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
static int threads_for(const struct mcp_wave *wave)
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

static void run_wave(struct mcp_wave *wave)
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
bool mcp_search_splits(const struct mcp_search *search)
{
    return search->objective != MCP_OBJECTIVE_MEMORY && !search->options->uniform;
}

void mcp_wave_count(struct mcp_wave *wave, const struct mcp_tuple *tuple)
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

static void join_best(struct mcp_wave *wave, const struct mcp_tuple *tuple)
{
    struct mcp_tuple *best = &wave->search->lots[tuple->layout].best[wave->class];
    if (tuple->state == MCP_TUPLE_FITS &&
        (best->layout < 0 ||
         mcp_found_compare(wave->search->objective, &tuple->found, &best->found) < 0))
        *best = *tuple;
}

/* Counted now, or once it is split. */
static void join_tuple(struct mcp_wave *wave, const struct mcp_tuple *tuple)
{
    struct mcp_tuples *kept = &wave->search->kept[wave->class];
    bool even = wave->all == &wave->search->even[wave->class];
    join_best(wave, tuple);
    if (!(mcp_search_splits(wave->search) || even) || tuple->split ||
        (tuple->state != MCP_TUPLE_FITS && tuple->state != MCP_TUPLE_OPEN)) {
        mcp_wave_count(wave, tuple);
        return;
    }
    if (even) {
        mcp_tuples_push(wave->search->arena, kept, tuple);
        return;
    }
    kept->items = mcp_grow(wave->search->arena, kept->items, kept->count, &kept->capacity,
                           sizeof *kept->items);
    kept->items[kept->count++] = *tuple;
}

/* Tuples of the family that the wave's kind has to count. */
int mcp_wave_to_count(const struct mcp_wave *wave, const struct mcp_family *family)
{
    const struct mcp_lot *lot = &wave->search->lots[family->layout];
    int orders = lot->choices.rank_orders.count, each = lot->variants / orders;
    if (wave->kind == MCP_WAVE_FIRST_ORDER)
        return each;
    for (unsigned left = family->refuted; left != 0; left &= left - 1)
        each--;
    return each * (orders - 1);
}

static void join_families(struct mcp_wave *wave)
{
    struct mcp_search_record *record = &wave->search->record;
    for (int i = 0; i < wave->count; i++) {
        const struct mcp_family *family = &wave->families[i];
        int left = mcp_wave_to_count(wave, family),
            orders = wave->search->lots[family->layout].choices.rank_orders.count;
        for (int k = 0; k < wave->num_tuples[i]; k++) {
            const struct mcp_tuple *tuple = &wave->tuples[i][k];
            join_tuple(wave, tuple);
            left -= tuple->state != MCP_TUPLE_COUNTED;
            if (tuple->state == MCP_TUPLE_REFUTED && wave->kind == MCP_WAVE_FIRST_ORDER &&
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
void mcp_wave_leave_open(const struct mcp_wave *wave, double bound_ns)
{
    if (wave->class == MCP_KEEPS_ALL && bound_ns < wave->search->open_ns)
        wave->search->open_ns = bound_ns;
}

static void join_skipped(struct mcp_wave *wave)
{
    for (int i = 0; i < wave->count; i++)
        if (wave->skipped[i]) {
            wave->search->stopped = true;
            mcp_wave_leave_open(wave, is_of_tuples(wave->kind) ? (double)wave->splits[i].bound_ns
                                                               : wave->families[i].bound);
        }
}

/* What the wave alone needed; and what desks keep to work faster, where the wave left them out. */
static void clear_desks(const struct mcp_wave *wave)
{
    for (int d = 0; d < wave->search->num_desks; d++) {
        struct mcp_desk *desk = &wave->search->desks[d];
        bool used = desk->used;
        desk->used = false;
        mcp_arena_free(desk->wave);
        desk->wave = NULL;
        if (!used && desk->pricer != NULL)
            mcp_pricer_rest(desk->pricer);
    }
}

static void join_wave(struct mcp_wave *wave)
{
    join_skipped(wave);
    if (!is_of_tuples(wave->kind))
        join_families(wave);
    clear_desks(wave);
    for (int i = 0; is_of_tuples(wave->kind) && i < wave->count; i++)
        join_best(wave, &wave->splits[i]);
    for (int i = 0; wave->class == MCP_KEEPS_ALL && i < wave->count; i++) {
        wave->search->record.priced += wave->priced[i];
        wave->search->record.milps += wave->milps[i];
    }
}

void mcp_wave_run(struct mcp_wave *wave)
{
    run_wave(wave);
    join_wave(wave);
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
        mcp_search_run(search);
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
