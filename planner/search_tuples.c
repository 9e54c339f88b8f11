/* planner/search_tuples.c: list what is legal, and bound it before anything is priced.
 *
 * The loose bound of a family comes from a kinder machine: matrix products without
 * tiles or waves left over, every group as near as it can lie, start-ups paid once for
 * a million tokens. There a token costs the same whatever the microbatch, so that one
 * price serves all that differ in microbatch, data and pipeline degrees. */
#include "planner/search_parts.h"

#include "core/stack.h"
#include "core/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the kinder machine --- */

enum { LOOSE_TOKENS = 1 << 20 };
static const double unfilled_tiles = 0.01; /* of a million tokens, spread over experts */

struct loose_price { /* of what decides a token's price */
    int expert_parallel;
    bool sequence_parallel, pipelined;
    enum mcp_context_kind context_kind;
    struct mcp_floor floor;
};

struct loose {
    struct mcp_search *search;
    struct mcp_arena *arena; /* of one tensor and one context degree */
    struct mcp_cluster cluster;
    struct mcp_question question;
    struct mcp_pricer *pricer;
    int microbatch;
    struct loose_price *items;
    size_t count, capacity;
};

/* Domains t times as large: then each axis has as much of one as if it came first. */
static void loosen(struct loose *loose, const struct mcp_layout *layout)
{
    const struct mcp_question *question = loose->search->question;
    loose->arena = mcp_arena_new();
    loose->cluster = *question->cluster;
    loose->cluster.gpu.num_multiprocessors = 1;
    for (int tier = 0; tier < loose->cluster.num_tiers; tier++)
        loose->cluster.tiers[tier].ranks *= layout->tensor_parallel;
    loose->question = *question;
    loose->question.cluster = &loose->cluster;
    loose->pricer = mcp_pricer_new(loose->arena, &loose->question);
    int64_t tokens = question->job->sequence_length / layout->context_parallel;
    loose->microbatch = (int)(tokens > 0 ? (LOOSE_TOKENS + tokens - 1) / tokens : 1);
    loose->items = NULL;
    loose->count = loose->capacity = 0;
}

static void scale(struct mcp_layer_floor *layer, double factor)
{
    layer->forward_ns *= factor;
    layer->backward_ns *= factor;
}

static void load_loose(struct loose *loose, const struct mcp_plan *plan, struct mcp_floor *out)
{
    static const bool none[MCP_NUM_RECOMPUTES] = {true}; /* the fastest */
    struct mcp_plan large = *plan;
    large.microbatch_size = loose->microbatch;
    large.zero_stage = 0;
    mcp_floor_load(loose->pricer, &large, none, MCP_FLOOR_SLOTS, out);
    double factor = (1 - unfilled_tiles) / loose->microbatch;
    for (int i = 0; i < out->num_kinds; i++) {
        scale(&out->kinds[0][i], factor);
        scale(&out->least[i], factor);
    }
    for (int i = 0; i < 2; i++)
        scale(&out->ends[i], factor);
    out->hop_forward_ns *= factor;
    out->hop_backward_ns *= factor;
    out->send_ns *= factor;
}

/* The floor of one sequence. */
static const struct mcp_floor *loose_floor(struct loose *loose, const struct mcp_plan *plan)
{
    bool pipelined = plan->pipeline_parallel > 1;
    for (size_t i = 0; i < loose->count; i++) {
        const struct loose_price *p = &loose->items[i];
        if (p->expert_parallel == plan->expert_parallel && p->pipelined == pipelined &&
            p->sequence_parallel == plan->sequence_parallel &&
            p->context_kind == plan->context_parallel_kind)
            return &p->floor;
    }
    loose->items =
        mcp_grow(loose->arena, loose->items, loose->count, &loose->capacity, sizeof *loose->items);
    struct loose_price *p = &loose->items[loose->count++];
    p->expert_parallel = plan->expert_parallel;
    p->pipelined = pipelined;
    p->sequence_parallel = plan->sequence_parallel;
    p->context_kind = plan->context_parallel_kind;
    load_loose(loose, plan, &p->floor);
    return &p->floor;
}

static double loose_bound(struct loose *loose, const struct mcp_plan *plan)
{
    if (loose->search->question->cluster->next != NULL)
        return 0; /* GPUs differ: only exact prices tell */
    struct mcp_floor floor = *loose_floor(loose, plan);
    double b = plan->microbatch_size;
    for (int i = 0; i < floor.num_kinds; i++)
        scale(&floor.least[i], b);
    for (int i = 0; i < 2; i++)
        scale(&floor.ends[i], b);
    floor.hop_forward_ns *= b;
    floor.hop_backward_ns *= b;
    floor.send_ns = plan->virtual_stages > 1 ? 0 : floor.send_ns * b;
    floor.p = plan->pipeline_parallel;
    floor.v = plan->virtual_stages;
    floor.m = mcp_num_microbatches(plan, loose->search->question->job);
    floor.schedule = plan->schedule;
    return mcp_floor_fluid_ns(&floor);
}

/* --- families --- */

/* GPipe's order never ends earlier than 1F1B's and never holds less. */
static bool dominated(const struct mcp_search *search, const struct mcp_plan *plan)
{
    const struct mcp_interval *schedule = &search->space->knobs[MCP_KNOB_SCHEDULE];
    bool other = !schedule->given || (schedule->low <= MCP_1F1B && schedule->high >= MCP_1F1B);
    return plan->schedule == MCP_GPIPE && other && !search->options->exhaustive;
}

static enum mcp_class class_of(const struct mcp_search *search, const struct mcp_plan *plan,
                               const char **refused)
{
    bool pipeline =
        mcp_space_keeps_pipeline_rule(search->space) && !mcp_pipeline_rule(search->question, plan);
    bool batch =
        mcp_space_keeps_batch_rule(search->space) && !mcp_batch_rule(search->question, plan);
    *refused = mcp_illegal_rule(search->question, plan);
    if (*refused != NULL)
        return MCP_NUM_CLASSES;
    if (dominated(search, plan))
        *refused = mcp_rule_gpipe;
    else if (pipeline || batch)
        *refused = pipeline ? mcp_rule_pipeline : mcp_rule_batch;
    if (*refused == mcp_rule_gpipe || (pipeline && batch))
        return MCP_NUM_CLASSES;
    return pipeline ? MCP_BREAKS_PIPELINE : batch ? MCP_BREAKS_BATCH : MCP_KEEPS_ALL;
}

int64_t mcp_family_index(const struct mcp_lot *lot, const struct mcp_family *family, int variant)
{
    return ((int64_t)family->first * lot->variants + variant) * lot->choices.recomputes.count;
}

static void add_family(struct loose *loose, const struct mcp_lot *lot, int first)
{
    const char *refused;
    struct mcp_plan plan;
    struct mcp_search *search = loose->search;
    struct mcp_family family = {0, (int)(lot - search->lots), first};
    mcp_choices_plan(&lot->choices, mcp_family_index(lot, &family, 0), &plan);
    enum mcp_class class = class_of(search, &plan, &refused);
    search->record.candidates += lot->variants;
    if (refused)
        mcp_record_refuse(&search->record, refused, lot->variants);
    if (class == MCP_NUM_CLASSES)
        return;
    if (search->objective != MCP_OBJECTIVE_MEMORY && !search->options->exhaustive)
        family.bound_ns = loose_bound(loose, &plan);
    struct mcp_families *to = &search->families[class];
    to->items = mcp_grow(search->arena, to->items, to->count, &to->capacity, sizeof family);
    to->items[to->count++] = family;
}

static void add_lot(struct loose *loose, struct mcp_lot *lot)
{
    struct mcp_search *search = loose->search;
    struct mcp_choices *choices = &lot->choices;
    mcp_space_tuples(search->arena, search->question, search->space, &lot->layout, choices);
    lot->variants = choices->num_zeros * choices->num_placements * choices->rank_orders.count;
    lot->better_orders = mcp_choices_order_matters(search->question, choices);
    for (int class = 0; class < MCP_NUM_CLASSES; class ++)
        lot->best[class].layout = -1;
    int64_t tuples = mcp_choices_count(choices) / choices->recomputes.count;
    for (int first = 0; first < tuples / lot->variants; first++)
        add_family(loose, lot, first);
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
    if (x->bound_ns != y->bound_ns)
        return x->bound_ns < y->bound_ns ? -1 : 1;
    if (x->layout != y->layout)
        return x->layout < y->layout ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

void mcp_search_enumerate(struct mcp_search *search)
{
    struct mcp_layout *layouts;
    struct loose loose = {.search = search};
    search->num_lots = mcp_space_layouts(search->arena, search->question, search->space, &layouts);
    search->lots = MCP_ARRAY(search->arena, search->num_lots, struct mcp_lot);
    for (int i = 0; i < search->num_lots; i++) {
        struct mcp_lot *lot = &search->lots[i];
        lot->layout = layouts[i];
        if (i == 0 || !same_plane(&layouts[i - 1], &layouts[i])) {
            mcp_arena_free(loose.arena);
            loosen(&loose, &layouts[i]);
        }
        lot->desk = desk_of(search, i);
        search->num_desks += lot->desk == search->num_desks;
        add_lot(&loose, lot);
    }
    mcp_arena_free(loose.arena);
    search->desks = MCP_ARRAY(search->arena, search->num_desks, struct mcp_desk);
    for (int class = 0; class < MCP_NUM_CLASSES; class ++)
        qsort(search->families[class].items, search->families[class].count,
              sizeof(struct mcp_family), by_bound);
}
