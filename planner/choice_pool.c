/* planner/choice_pool.c: walk families and tuples best bound first, and pool what they give. */
#include "planner/choice_parts.h"

#include "core/minmax.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* --- the bar --- */

static int most_kept(const struct mcp_choice_pool *pool)
{
    return pool->options->top > 1 ? pool->options->top : 1;
}

/* Within pool_frac of the best, and better than the last layout that is kept. */
static int64_t reach_ns(const struct mcp_choice_pool *pool)
{
    if (pool->best_ns == INT64_MAX)
        return INT64_MAX;
    double reach = (double)pool->best_ns * (1 + pool->options->pool_frac);
    return mcp_min_int64((int64_t)reach + 1, pool->last_ns);
}

int64_t mcp_choice_pool_cutoff(const struct mcp_choice_pool *pool, int layout)
{
    return mcp_min_int64(reach_ns(pool), pool->layout_ns[layout]);
}

/* The time of the last of the layouts that are kept. */
static int64_t find_last(const struct mcp_choice_pool *pool)
{
    struct mcp_mark mark = mcp_arena_mark(pool->arena);
    int top = most_kept(pool), count = 0;
    int64_t *least = MCP_ARRAY(pool->arena, top, int64_t);
    for (int i = 0; i < pool->search.num_lots; i++) {
        int at = count;
        while (at > 0 && pool->layout_ns[i] < least[at - 1])
            at--;
        if (at == top || pool->layout_ns[i] == INT64_MAX)
            continue;
        count += count < top;
        memmove(least + at + 1, least + at, (size_t)(count - at - 1) * sizeof *least);
        least[at] = pool->layout_ns[i];
    }
    int64_t last = count == top ? least[top - 1] : INT64_MAX;
    mcp_arena_rewind(pool->arena, mark);
    return last;
}

/* --- the pool --- */

static void raise_bar(struct mcp_choice_pool *pool, int at)
{
    const struct mcp_pooled *item = &pool->items[at];
    if (pool->best < 0 ||
        mcp_found_compare(MCP_OBJECTIVE_TIME, &item->found, &pool->items[pool->best].found) < 0) {
        pool->best = at;
        pool->best_ns = item->time_ns;
    }
    if (item->time_ns >= pool->layout_ns[item->layout])
        return;
    pool->layout_ns[item->layout] = item->time_ns;
    pool->last_ns = find_last(pool);
}

bool mcp_choice_pool_add(struct mcp_choice_pool *pool, const struct mcp_tuple *tuple)
{
    const struct mcp_requirements *requirements = pool->requirements;
    const struct mcp_prediction *p = pool->prediction;
    if (pool->count == MCP_MOST_POOL)
        return false;
    struct mcp_pooled item = {mcp_search_keep(pool->arena, &pool->question, tuple, false),
                              tuple->layout, 0, false,
                              MCP_ARRAY(pool->arena, requirements->count, double)};
    mcp_estimate(pool->pricer, &item.found.plan, pool->prediction);
    pool->search.record.priced++;
    item.found.iteration_s = p->iteration_s;
    item.found.peak_memory_bytes = p->peak_memory_bytes;
    item.time_ns = (int64_t)llround(p->iteration_s * 1e9);
    item.holds = p->fits && mcp_require_broken_priced(requirements, &pool->question,
                                                      &item.found.plan, p) == NULL;
    for (int i = 0; i < requirements->count; i++)
        item.values[i] =
            mcp_require_value(&pool->question, requirements->items[i].name, &item.found.plan, p);
    pool->items[pool->count] = item;
    if (item.holds)
        raise_bar(pool, pool->count);
    pool->count++;
    return item.holds;
}

/* --- families --- */

struct mcp_look mcp_choice_pool_look(const struct mcp_choice_pool *pool, int layout,
                                     int64_t cutoff_ns)
{
    const struct mcp_lot *lot = &pool->search.lots[layout];
    struct mcp_desk *desk = &pool->search.desks[lot->desk];
    mcp_desk_open(desk, &pool->question, lot->layout.tensor_parallel);
    return (struct mcp_look){.search = &pool->search,
                             .desk = desk,
                             .lot = lot,
                             .cutoff_ns = cutoff_ns,
                             .cutoff_bytes = INT64_MAX,
                             .fixed = true};
}

/* ZeRO and rank order may be required too: a family knows nothing of them. */
static void take_tuple(struct mcp_choice_pool *pool, const struct mcp_look *look,
                       const struct mcp_tuple *tuple)
{
    struct mcp_search_record *record = &pool->search.record;
    struct mcp_plan plan;
    mcp_choices_plan(&look->lot->choices, tuple->index, &plan);
    if (mcp_require_broken(pool->requirements, &pool->question, &plan) != NULL) {
        mcp_record_refuse(record, mcp_rule_required, 1);
        return;
    }
    mcp_tuples_push(pool->arena, &pool->heap, tuple);
    if (tuple->state != MCP_TUPLE_FITS)
        return;
    record->fitting++;
    if (llround(tuple->found.iteration_s * 1e9) < mcp_choice_pool_cutoff(pool, tuple->layout))
        mcp_choice_pool_add(pool, tuple);
}

static void look_at_order(struct mcp_choice_pool *pool, struct mcp_look *look,
                          struct mcp_family *family, int order)
{
    int orders = look->lot->choices.rank_orders.count, each = look->lot->variants / orders;
    mcp_look_into(look, family, order, pool->looks);
    for (int i = 0; i < each; i++) {
        const struct mcp_tuple *tuple = &pool->looks[i];
        if (tuple->state == MCP_TUPLE_REFUTED)
            mcp_record_refute(&pool->search.record, tuple->refuted, order == 0 ? orders : 1);
        else if (tuple->state == MCP_TUPLE_FITS || tuple->state == MCP_TUPLE_OPEN)
            take_tuple(pool, look, tuple);
    }
}

/* The first rank order, or all that may be. */
static void open_family(struct mcp_choice_pool *pool, struct mcp_family *family, bool all)
{
    struct mcp_look look =
        mcp_choice_pool_look(pool, family->layout, mcp_choice_pool_cutoff(pool, family->layout));
    const char *refuted = mcp_family_refuted(&look, family);
    int orders = look.lot->choices.rank_orders.count;
    family->reached = refuted == NULL && mcp_family_reaches(&look, family);
    if (refuted != NULL)
        mcp_record_refute(&pool->search.record, refuted, look.lot->variants);
    for (int order = 0; family->reached && order < (all ? orders : 1); order++)
        look_at_order(pool, &look, family, order);
    mcp_pricer_rest(look.desk->pricer);
    pool->search.record.priced += look.priced;
}

/* Other rank orders have nothing to offer but the best. */
static void open_orders(struct mcp_choice_pool *pool, struct mcp_family *family)
{
    struct mcp_look look = mcp_choice_pool_look(
        pool, family->layout, mcp_min_int64(pool->best_ns, pool->layout_ns[family->layout]));
    if (!family->reached || !mcp_family_reaches(&look, family))
        return;
    for (int order = 1; order < look.lot->choices.rank_orders.count; order++)
        look_at_order(pool, &look, family, order);
    mcp_pricer_rest(look.desk->pricer);
    pool->search.record.priced += look.priced;
}

/* --- the walk --- */

static void tell(const struct mcp_choice_pool *pool)
{
    size_t all = pool->families.count;
    if (pool->options->progress)
        pool->options->progress(pool->options->progress_context,
                                (double)pool->at / (double)(all > 0 ? all : 1),
                                pool->best >= 0 ? &pool->items[pool->best].found : NULL);
}

static bool given_up(const struct mcp_choice_pool *pool)
{
    const struct mcp_choice_options *options = pool->options;
    return pool->count == MCP_MOST_POOL ||
           (options->max_splits > 0 && pool->splits >= options->max_splits) ||
           (options->stop != NULL && *options->stop != 0);
}

/* Is the rank order among what is required? Then the first may be none of those. */
static bool orders_required(const struct mcp_choice_pool *pool)
{
    for (int i = 0; i < pool->requirements->count; i++)
        if ((int)pool->requirements->items[i].name == MCP_KNOB_RANK_ORDER)
            return true;
    return false;
}

/* Splits it, or prices its even splits where it is one of those alone. */
static void settle(struct mcp_choice_pool *pool, struct mcp_tuple *tuple)
{
    struct mcp_plan plan;
    mcp_choices_plan(&pool->search.lots[tuple->layout].choices, tuple->index, &plan);
    if (mcp_schedule_is_even(plan.schedule))
        mcp_choice_pool_even(pool, tuple);
    else
        mcp_choice_pool_split(pool, tuple);
}

/* False: given up before all was settled. */
static bool walk(struct mcp_choice_pool *pool, bool all_orders)
{
    const struct mcp_families *families = &pool->families;
    for (;;) {
        double family = INFINITY, tuple = INFINITY;
        if (pool->at < families->count)
            family = families->items[pool->at].bound;
        if (pool->heap.count > 0)
            tuple = (double)pool->heap.items[0].bound_ns;
        double least = fmin(family, tuple);
        if (isinf(least) || least >= (double)reach_ns(pool))
            return true;
        if (given_up(pool)) {
            pool->open_ns = mcp_min_int64(pool->open_ns, (int64_t)least);
            return false;
        }
        tell(pool);
        if (family <= tuple) {
            open_family(pool, &families->items[pool->at++], all_orders);
        } else {
            struct mcp_tuple next = mcp_tuples_pop(&pool->heap);
            settle(pool, &next);
        }
    }
}

static int most_variants(const struct mcp_search *search)
{
    int most = 0;
    for (int i = 0; i < search->num_lots; i++)
        most = search->lots[i].variants > most ? search->lots[i].variants : most;
    return most;
}

static void merge_families(struct mcp_choice_pool *pool)
{
    const struct mcp_families *a = &pool->search.families[MCP_KEEPS_ALL];
    const struct mcp_families *b = &pool->search.even[MCP_KEEPS_ALL];
    size_t i = 0, k = 0;
    pool->families.items = MCP_ARRAY(pool->arena, a->count + b->count, struct mcp_family);
    while (i < a->count || k < b->count) {
        bool first = k == b->count || (i < a->count && a->items[i].bound <= b->items[k].bound);
        pool->families.items[pool->families.count++] = first ? a->items[i++] : b->items[k++];
    }
}

void mcp_choice_pool_fill(struct mcp_choice_pool *pool)
{
    const struct mcp_families *families = &pool->families;
    merge_families(pool);
    bool all_orders = orders_required(pool);
    pool->items = MCP_ARRAY(pool->arena, MCP_MOST_POOL, struct mcp_pooled);
    pool->looks = MCP_ARRAY(pool->arena, most_variants(&pool->search), struct mcp_tuple);
    pool->layout_ns = MCP_ARRAY(pool->arena, pool->search.num_lots, int64_t);
    for (int i = 0; i < pool->search.num_lots; i++)
        pool->layout_ns[i] = INT64_MAX;
    if (!walk(pool, all_orders) || all_orders)
        return;
    for (size_t i = 0; i < pool->at; i++)
        open_orders(pool, &families->items[i]);
    walk(pool, all_orders);
}
