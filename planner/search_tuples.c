/* planner/search_tuples.c: list what is legal, and bound it before anything is priced. */
#include "planner/search_parts.h"

#include <stdlib.h>

/* GPipe's order never ends earlier than 1F1B's and never holds less. */
static bool dominated(const struct mcp_search *search, const struct mcp_plan *plan)
{
    unsigned schedules = mcp_space_schedules(search->space, search->question->stack);
    return !search->options->exhaustive && plan->schedule == MCP_GPIPE &&
           (schedules >> MCP_1F1B & 1) != 0;
}

enum mcp_class mcp_search_class(const struct mcp_search *search, const struct mcp_plan *plan,
                                const char **refused)
{
    bool pipeline =
        mcp_space_keeps_pipeline_rule(search->space) && !mcp_pipeline_rule(search->question, plan);
    bool batch =
        mcp_space_keeps_batch_rule(search->space) && !mcp_batch_rule(search->question, plan);
    *refused = mcp_search_illegal(search->question, plan);
    if (*refused != NULL)
        return MCP_NUM_CLASSES;
    const char *other =
        dominated(search, plan) ? mcp_rule_gpipe : mcp_search_stands_for(search, plan);
    if (other != NULL)
        *refused = other;
    else if (pipeline || batch)
        *refused = pipeline ? mcp_rule_pipeline : mcp_rule_batch;
    else if (search->refuse != NULL)
        *refused = search->refuse(search->refuse_context, plan);
    if (other != NULL || (pipeline && batch) || (*refused && !pipeline && !batch))
        return MCP_NUM_CLASSES;
    return pipeline ? MCP_BREAKS_PIPELINE : batch ? MCP_BREAKS_BATCH : MCP_KEEPS_ALL;
}

int64_t mcp_family_index(const struct mcp_lot *lot, const struct mcp_family *family, int variant)
{
    return ((int64_t)family->first * lot->variants + variant) * lot->choices.recomputes.count;
}

static void add_family(struct mcp_search *search, struct mcp_loose *loose,
                       const struct mcp_lot *lot, int first)
{
    const char *refused;
    struct mcp_plan plan;
    struct mcp_family family = {.layout = (int)(lot - search->lots), .first = first};
    mcp_choices_plan(&lot->choices, mcp_family_index(lot, &family, 0), &plan);
    enum mcp_class class = mcp_search_class(search, &plan, &refused);
    search->record.candidates += lot->variants;
    if (refused)
        mcp_record_refuse(&search->record, refused, lot->variants);
    if (class == MCP_NUM_CLASSES)
        return;
    mcp_loose_bound(loose, &plan, &family);
    struct mcp_families *to =
        mcp_schedule_is_even(plan.schedule) ? &search->even[class] : &search->families[class];
    to->items = mcp_grow(search->arena, to->items, to->count, &to->capacity, sizeof family);
    to->items[to->count++] = family;
}

static void add_lot(struct mcp_search *search, struct mcp_loose *loose, struct mcp_lot *lot)
{
    struct mcp_choices *choices = &lot->choices;
    mcp_space_tuples(search->arena, search->question, search->space, &lot->layout, choices);
    lot->variants = choices->num_zeros * choices->num_placements * choices->rank_orders.count;
    for (int class = 0; class < MCP_NUM_CLASSES; class ++)
        lot->best[class].layout = -1;
    int64_t tuples = mcp_choices_count(choices) / choices->recomputes.count;
    for (int first = 0; first < tuples / lot->variants; first++)
        add_family(search, loose, lot, first);
}

static bool same_plane(const struct mcp_layout *a, const struct mcp_layout *b)
{
    return a->tensor_parallel == b->tensor_parallel && a->context_parallel == b->context_parallel;
}

/* A desk for each expert degree under one tensor and one context degree. */
static int desk_of(const struct mcp_search *search, int lot)
{
    const struct mcp_layout *layout = &search->lots[lot].layout;
    for (int i = lot - 1; i >= 0 && same_plane(&search->lots[i].layout, layout); i--)
        if (search->lots[i].layout.expert_parallel == layout->expert_parallel)
            return search->lots[i].desk;
    return search->num_desks;
}

static int by_bound(const void *a, const void *b)
{
    const struct mcp_family *x = a, *y = b;
    if (x->bound != y->bound)
        return x->bound < y->bound ? -1 : 1;
    if (x->layout != y->layout)
        return x->layout < y->layout ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static void sort(struct mcp_families *families)
{
    if (families->count > 0)
        qsort(families->items, families->count, sizeof *families->items, by_bound);
}

void mcp_search_enumerate(struct mcp_search *search)
{
    struct mcp_layout *layouts;
    struct mcp_loose *loose = mcp_loose_new(search);
    search->num_lots = mcp_space_layouts(search->arena, search->question, search->space, &layouts);
    search->lots = MCP_ARRAY(search->arena, search->num_lots, struct mcp_lot);
    for (int i = 0; i < search->num_lots; i++) {
        struct mcp_lot *lot = &search->lots[i];
        lot->layout = layouts[i];
        if (i == 0 || !same_plane(&layouts[i - 1], &layouts[i]))
            mcp_loose_turn(loose, &layouts[i]);
        lot->desk = desk_of(search, i);
        search->num_desks += lot->desk == search->num_desks;
        add_lot(search, loose, lot);
    }
    mcp_loose_free(loose);
    search->desks = MCP_ARRAY(search->arena, search->num_desks, struct mcp_desk);
    for (int class = 0; class < MCP_NUM_CLASSES; class ++) {
        sort(&search->families[class]);
        sort(&search->even[class]);
    }
}
