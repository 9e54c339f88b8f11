/* planner/exhaustive.c: price every tuple, one after the other. */
#include "planner/exhaustive.h"

/* true: it fits. */
static bool price(struct mcp_look *look, struct mcp_plan plan, enum mcp_recompute recompute,
                  struct mcp_tuple *tuple)
{
    const struct mcp_search *search = look->search;
    struct mcp_prediction *p = look->desk->prediction;
    struct mcp_arena *scratch = look->desk->scratch;
    struct mcp_mark mark = mcp_arena_mark(scratch);
    const struct mcp_schedule_row *rows = plan.rows;
    mcp_plan_uniform_chunks(scratch, &plan, search->question->model->num_layers, recompute);
    struct mcp_rows_order order = {scratch, look->desk->pricer, search->unlimited, INT64_MAX};
    bool bounded, ordered = mcp_search_order(&order, &plan, &bounded);
    if (ordered)
        mcp_estimate(look->desk->pricer, &plan, p);
    mcp_arena_rewind(scratch, mark);
    look->priced += ordered;
    plan.chunks = NULL;
    plan.rows = rows;
    const struct mcp_found found = {plan, p->iteration_s, p->peak_memory_bytes};
    if (!ordered || (!p->fits && !search->unlimited))
        return false;
    if (tuple->state == MCP_TUPLE_FITS &&
        mcp_found_compare(search->objective, &tuple->found, &found) <= 0)
        return true;
    tuple->state = MCP_TUPLE_FITS;
    tuple->found = found;
    tuple->recompute = recompute;
    return true;
}

/* Of layers spread evenly: without recompute if that fits. */
static void price_all(struct mcp_look *look, const struct mcp_plan *plan, struct mcp_tuple *tuple)
{
    const struct mcp_search *search = look->search;
    bool one = mcp_schedule_is_even(plan->schedule) && mcp_none_is_fastest(search, plan);
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++)
        if (search->recompute[r] && price(look, *plan, (enum mcp_recompute)r, tuple) && one &&
            r == MCP_RECOMPUTE_NONE)
            return;
}

static void try_tuple(struct mcp_search *search, struct mcp_look *look, enum mcp_class class,
                      const struct mcp_plan *plan, struct mcp_tuple *tuple)
{
    struct mcp_tuple *best = &search->lots[tuple->layout].best[class];
    price_all(look, plan, tuple);
    tuple->split = tuple->proven = mcp_schedule_is_even(plan->schedule);
    if (!tuple->split && search->objective != MCP_OBJECTIVE_MEMORY && !search->options->uniform)
        mcp_look_split(look, 0, tuple);
    if (tuple->split && !tuple->proven && (double)tuple->bound_ns < search->open_ns)
        search->open_ns = (double)tuple->bound_ns;
    if (tuple->state == MCP_TUPLE_FITS &&
        (best->layout < 0 || mcp_found_compare(search->objective, &tuple->found, &best->found) < 0))
        *best = *tuple;
}

static void count(struct mcp_search *search, const struct mcp_look *look,
                  const struct mcp_tuple *tuple)
{
    struct mcp_search_record *record = &search->record;
    record->priced += look->priced;
    record->milps += look->milps;
    if (tuple->state == MCP_TUPLE_FITS)
        record->fitting++;
    else
        mcp_record_refute(record, NULL, 1);
}

static void judge(struct mcp_search *search, int at, int64_t index)
{
    const char *refused;
    struct mcp_plan plan;
    const struct mcp_lot *lot = &search->lots[at];
    struct mcp_look look = {.search = search,
                            .desk = &search->desks[0],
                            .lot = lot,
                            .cutoff_ns = INT64_MAX,
                            .cutoff_bytes = INT64_MAX};
    struct mcp_tuple tuple = {.state = MCP_TUPLE_OPEN, .layout = at, .index = index};
    mcp_choices_plan(&lot->choices, index, &plan);
    enum mcp_class class = mcp_search_class(search, &plan, &refused);
    search->record.candidates++;
    if (refused != NULL)
        mcp_record_refuse(&search->record, refused, 1);
    if (class == MCP_NUM_CLASSES || (search->unlimited && class != MCP_KEEPS_ALL))
        return;
    try_tuple(search, &look, class, &plan, &tuple);
    if (class == MCP_KEEPS_ALL)
        count(search, &look, &tuple);
}

/* frac: of the lot's tuples. */
static void tell(const struct mcp_search *search, const struct mcp_lot *lot, double frac,
                 const struct mcp_found **best)
{
    const struct mcp_tuple *found = &lot->best[MCP_KEEPS_ALL];
    if (found->layout >= 0 &&
        (*best == NULL || mcp_found_compare(search->objective, &found->found, *best) < 0))
        *best = &found->found;
    if (search->options->progress != NULL)
        search->options->progress(search->options->progress_context,
                                  ((double)(lot - search->lots) + frac) / search->num_lots, *best);
}

/* Asked to stop: what is left could be anything. */
static bool stopped(struct mcp_search *search)
{
    const volatile sig_atomic_t *stop = search->options->stop;
    if (stop == NULL || *stop == 0)
        return false;
    search->stopped = true;
    search->open_ns = 0;
    return true;
}

void mcp_search_all(struct mcp_search *search)
{
    struct mcp_layout *layouts;
    const struct mcp_found *best = NULL;
    search->num_lots = mcp_space_layouts(search->arena, search->question, search->space, &layouts);
    search->lots = MCP_ARRAY(search->arena, search->num_lots, struct mcp_lot);
    for (int i = 0; i < search->num_lots; i++)
        for (int class = 0; class < MCP_NUM_CLASSES; class ++)
            search->lots[i].best[class].layout = -1;
    search->num_desks = 1;
    search->desks = MCP_NEW(search->arena, struct mcp_desk);
    mcp_desk_open(&search->desks[0], search->question, 1);
    for (int i = 0; i < search->num_lots && !search->stopped; i++) {
        struct mcp_lot *lot = &search->lots[i];
        lot->layout = layouts[i];
        mcp_space_tuples(search->arena, search->question, search->space, &lot->layout,
                         &lot->choices);
        int64_t tuples = mcp_choices_count(&lot->choices), each = lot->choices.recomputes.count;
        for (int64_t k = 0; k < tuples && !stopped(search); k += each) {
            judge(search, i, k);
            tell(search, lot, (double)(k + each) / (double)tuples, &best);
        }
    }
}
