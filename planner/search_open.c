/* planner/search_open.c: look into a family: refute by memory, bound, price. */
#include "planner/search_parts.h"

#include "step/rows.h"

#include <math.h>

void mcp_desk_open(struct mcp_desk *desk, const struct mcp_question *question, int tensor_parallel)
{
    const struct mcp_pricer_options sums = {.sums_only = true};
    if (desk->arena != NULL)
        return;
    desk->arena = mcp_arena_new();
    desk->scratch = mcp_arena_new();
    desk->pricer = mcp_pricer_with(desk->arena, question, &sums);
    desk->prediction = MCP_NEW(desk->arena, struct mcp_prediction);
    desk->near = mcp_near_new(desk->arena, desk->pricer, tensor_parallel);
}

void mcp_desks_close(struct mcp_search *search)
{
    for (int i = 0; i < search->num_desks; i++) {
        mcp_arena_free(search->desks[i].scratch);
        mcp_arena_free(search->desks[i].arena);
    }
}

static void keep(const struct mcp_look *look, const struct mcp_plan *plan,
                 enum mcp_recompute recompute, struct mcp_tuple *tuple)
{
    const struct mcp_prediction *p = look->desk->prediction;
    struct mcp_found found = {*plan, p->iteration_s, p->peak_memory_bytes};
    found.plan.chunks = NULL;
    if (plan->schedule != MCP_CUSTOM)
        found.plan.rows = NULL;
    if (tuple->state == MCP_TUPLE_FITS &&
        mcp_found_compare(look->search->objective, &tuple->found, &found) <= 0)
        return;
    tuple->state = MCP_TUPLE_FITS;
    tuple->found = found;
    tuple->recompute = recompute;
}

/* The same recompute everywhere; true when that fits. */
static bool price_one(struct mcp_look *look, struct mcp_plan plan, enum mcp_recompute recompute,
                      struct mcp_tuple *tuple)
{
    const struct mcp_search *search = look->search;
    struct mcp_arena *scratch = look->desk->scratch;
    struct mcp_mark mark = mcp_arena_mark(scratch);
    mcp_plan_uniform_chunks(scratch, &plan, search->question->model->num_layers, recompute);
    struct mcp_rows_order order = {scratch, look->desk->pricer, search->unlimited, look->cutoff_ns};
    bool fits = false, bounded;
    if (mcp_search_order(&order, &plan, &bounded)) {
        mcp_estimate(look->desk->pricer, &plan, look->desk->prediction);
        look->priced++;
        fits = look->desk->prediction->fits || search->unlimited;
    }
    if (bounded && tuple->state == MCP_TUPLE_OPEN)
        tuple->state = MCP_TUPLE_BOUNDED;
    if (fits)
        keep(look, &plan, recompute, tuple);
    mcp_arena_rewind(scratch, mark);
    return fits;
}

bool mcp_none_is_fastest(const struct mcp_search *search, const struct mcp_plan *plan)
{
    bool fills = mcp_schedule_is_made(plan->schedule) && plan->schedule != MCP_DUALPIPE_V;
    return search->objective != MCP_OBJECTIVE_MEMORY && !fills;
}

/* Without recompute if that fits and nothing is faster; else all. */
static void price_uniform(struct mcp_look *look, const struct mcp_plan *plan,
                          struct mcp_tuple *tuple)
{
    bool one = mcp_none_is_fastest(look->search, plan);
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++)
        if (look->search->recompute[r] && price_one(look, *plan, (enum mcp_recompute)r, tuple) &&
            r == MCP_RECOMPUTE_NONE && one)
            return;
}

/* The least bound of its even splits; REFUTED where none can hold a microbatch. */
static void bound_even(struct mcp_look *look, struct mcp_plan plan, struct mcp_tuple *tuple)
{
    const struct mcp_search *search = look->search;
    struct mcp_arena *scratch = look->desk->scratch;
    struct mcp_rows_order order = {scratch, look->desk->pricer, search->unlimited, look->cutoff_ns};
    int64_t least = INT64_MAX;
    tuple->state = MCP_TUPLE_OPEN;
    if (plan.schedule == MCP_CUSTOM) /* its rows may hold whole backwards */
        return;
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
        struct mcp_mark mark = mcp_arena_mark(scratch);
        if (!search->recompute[r])
            continue;
        mcp_plan_uniform_chunks(scratch, &plan, search->question->model->num_layers,
                                (enum mcp_recompute)r);
        int64_t bound_ns = mcp_search_rows_bound_ns(&order, &plan);
        least = bound_ns < least ? bound_ns : least;
        mcp_arena_rewind(scratch, mark);
    }
    tuple->bound_ns = least > tuple->bound_ns ? least : tuple->bound_ns;
    if (least == INT64_MAX)
        tuple->state = MCP_TUPLE_REFUTED;
    else if (tuple->bound_ns > look->cutoff_ns)
        tuple->state = MCP_TUPLE_BOUNDED;
}

void mcp_look_even(struct mcp_look *look, struct mcp_tuple *tuple)
{
    struct mcp_plan plan;
    mcp_choices_plan(&look->lot->choices, tuple->index, &plan);
    tuple->split = tuple->proven = true;
    price_uniform(look, &plan, tuple);
    if (tuple->state == MCP_TUPLE_OPEN)
        tuple->state = MCP_TUPLE_REFUTED;
}

static bool reaches(const struct mcp_look *look, const struct mcp_floor *floor)
{
    return look->cutoff_ns == INT64_MAX || mcp_floor_reaches(floor, (double)look->cutoff_ns);
}

/* What refutes the tuple within the GPUs' memory. */
static const char *refute(const struct mcp_look *look, const struct mcp_floor *floor)
{
    return look->search->unlimited ? NULL : mcp_floor_refute(floor);
}

/* Is it at best heavier than what there is? */
static bool too_heavy(const struct mcp_look *look, struct mcp_floor *floor)
{
    if (look->cutoff_bytes == INT64_MAX)
        return false;
    mcp_floor_limit_fullest(floor, look->search->question, look->cutoff_bytes);
    return mcp_floor_refute(floor) != NULL;
}

/* Bounds, the cheaper first; false when they settle it. */
static bool survives(struct mcp_look *look, const struct mcp_plan *plan, struct mcp_tuple *tuple)
{
    struct mcp_floor floor;
    struct mcp_pricer *pricer = look->desk->pricer;
    const bool *recompute = look->search->recompute;
    mcp_floor_load(pricer, plan, recompute, MCP_FLOOR_STEP, &floor);
    if (!reaches(look, &floor))
        return false;
    mcp_floor_complete(pricer, plan, recompute, &floor);
    tuple->refuted = refute(look, &floor);
    if (tuple->refuted != NULL)
        tuple->state = MCP_TUPLE_REFUTED;
    if (tuple->refuted != NULL || !reaches(look, &floor))
        return false;
    if (look->search->objective != MCP_OBJECTIVE_MEMORY) /* which never splits */
        tuple->bound_ns = mcp_floor_ns(&floor);
    return !too_heavy(look, &floor);
}

/* What was found is the bar for the rest of its family. */
static void lower_bar(struct mcp_look *look, const struct mcp_tuple *tuple)
{
    bool time = look->search->objective != MCP_OBJECTIVE_MEMORY;
    if (tuple->state != MCP_TUPLE_FITS || look->fixed)
        return;
    int64_t ns = llround(tuple->found.iteration_s * 1e9), bytes = tuple->found.peak_memory_bytes;
    if (time && ns < look->cutoff_ns)
        look->cutoff_ns = ns;
    if (!time && bytes < look->cutoff_bytes)
        look->cutoff_bytes = bytes;
}

const char *mcp_family_refuted(const struct mcp_look *look, const struct mcp_family *family)
{
    struct mcp_plan plan;
    mcp_choices_plan(&look->lot->choices, mcp_family_index(look->lot, family, 0), &plan);
    return mcp_loose_refute(family, look->search, &plan);
}

bool mcp_family_reaches(const struct mcp_look *look, const struct mcp_family *family)
{
    struct mcp_plan plan;
    const struct mcp_search *search = look->search;
    mcp_choices_plan(&look->lot->choices, mcp_family_index(look->lot, family, 0), &plan);
    if (!mcp_loose_reaches(family, search, &plan, look->cutoff_ns))
        return false;
    return look->cutoff_ns == INT64_MAX ||
           mcp_near_reaches(look->desk->near, &plan, search->recompute, look->cutoff_ns);
}

/* The same in one rank order, on the machine as it is; nothing is known of placements
 * besides the first. */
static bool order_reaches(const struct mcp_look *look, const struct mcp_family *family, int order)
{
    struct mcp_plan plan;
    struct mcp_floor floor;
    if (look->cutoff_ns == INT64_MAX || look->lot->choices.num_placements > 1)
        return true;
    mcp_choices_plan(&look->lot->choices, mcp_family_index(look->lot, family, order), &plan);
    plan.zero_stage = 0;
    mcp_floor_load(look->desk->pricer, &plan, look->search->recompute, MCP_FLOOR_SLOTS, &floor);
    return reaches(look, &floor);
}

/* A mixed cluster has more variants than bits, but one rank order. */
static bool has_bit(unsigned bits, int variant)
{
    return variant < 32 && (bits >> variant & 1) != 0;
}

static void set_bit(unsigned *bits, int variant)
{
    if (variant < 32)
        *bits |= 1u << variant;
}

/* What memory alone settled is settled for all rank orders. */
static void keep_for_orders(const struct mcp_look *look, struct mcp_family *family, int variant,
                            const struct mcp_tuple *tuple)
{
    if (tuple->state == MCP_TUPLE_REFUTED)
        set_bit(&family->refuted, variant); /* and counted */
    else if (look->search->objective == MCP_OBJECTIVE_MEMORY)
        set_bit(&family->heavy, variant);
}

void mcp_look_into(struct mcp_look *look, struct mcp_family *family, int order,
                   struct mcp_tuple *out)
{
    const struct mcp_lot *lot = look->lot;
    const struct mcp_search *search = look->search;
    int orders = lot->choices.rank_orders.count, count = lot->variants / orders;
    bool any = order_reaches(look, family, order);
    for (int i = 0; i < count; i++) {
        struct mcp_plan plan;
        struct mcp_tuple *tuple = &out[i];
        *tuple = (struct mcp_tuple){.state = MCP_TUPLE_BOUNDED, .layout = family->layout};
        tuple->index = mcp_family_index(lot, family, i * orders + order);
        if (order > 0 && has_bit(family->refuted, i))
            tuple->state = MCP_TUPLE_COUNTED;
        if (!any || tuple->state == MCP_TUPLE_COUNTED || (order > 0 && has_bit(family->heavy, i)))
            continue;
        mcp_choices_plan(&lot->choices, tuple->index, &plan);
        if (!survives(look, &plan, tuple)) {
            if (order == 0)
                keep_for_orders(look, family, i, tuple);
            continue;
        }
        tuple->state = MCP_TUPLE_OPEN;
        if (mcp_schedule_is_even(plan.schedule) && search->objective != MCP_OBJECTIVE_MEMORY) {
            bound_even(look, plan, tuple);
            continue;
        }
        tuple->split = tuple->proven = mcp_schedule_is_even(plan.schedule);
        price_uniform(look, &plan, tuple);
        lower_bar(look, tuple);
    }
}
