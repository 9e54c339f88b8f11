/* planner/search_best.c: the best of what was found: what others must beat, and the answer. */
#include "planner/search_parts.h"

#include <math.h>
#include <string.h>

int mcp_leaders(const struct mcp_search *search, int class, int top, const struct mcp_tuple **order)
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

struct mcp_bar mcp_bar_at(const struct mcp_search *search, const struct mcp_found *found)
{
    struct mcp_bar bar = {INT64_MAX, INT64_MAX};
    if (search->objective == MCP_OBJECTIVE_MEMORY)
        bar.bytes = found->peak_memory_bytes;
    else
        bar.ns = llround(found->iteration_s * 1e9);
    return bar;
}

double mcp_beyond_factor(const struct mcp_search *search)
{
    unsigned schedules = mcp_space_schedules(search->space, search->question->stack);
    bool even = (schedules & MCP_UNEVEN_SCHEDULES) == 0;
    return even && search->objective != MCP_OBJECTIVE_MEMORY ? 1 : 2;
}

/* Nobody asks what breaking a rule gives where it takes more than so many times as much. */
static struct mcp_bar bar_beyond(const struct mcp_search *search, int class)
{
    const struct mcp_tuple *best;
    if (class == MCP_KEEPS_ALL || mcp_leaders(search, MCP_KEEPS_ALL, 1, &best) == 0)
        return (struct mcp_bar){INT64_MAX, INT64_MAX};
    struct mcp_found more = best->found;
    more.iteration_s *= mcp_beyond_factor(search);
    more.peak_memory_bytes *= (int64_t)mcp_beyond_factor(search);
    return mcp_bar_at(search, &more);
}

struct mcp_bar mcp_common_bar(const struct mcp_search *search, int class, int top)
{
    struct mcp_bar none = bar_beyond(search, class);
    struct mcp_mark mark = mcp_arena_mark(search->arena);
    const struct mcp_tuple **order = MCP_ARRAY(search->arena, top, const struct mcp_tuple *);
    int count = mcp_leaders(search, class, top, order);
    struct mcp_bar bar = count == top ? mcp_bar_at(search, &order[top - 1]->found) : none;
    mcp_arena_rewind(search->arena, mark);
    return bar;
}

struct mcp_bar mcp_bar_of(const struct mcp_search *search, const struct mcp_lot *lot, int class,
                          struct mcp_bar common)
{
    if (lot->best[class].layout < 0)
        return common;
    struct mcp_bar own = mcp_bar_at(search, &lot->best[class].found);
    return (struct mcp_bar){own.ns < common.ns ? own.ns : common.ns,
                            own.bytes < common.bytes ? own.bytes : common.bytes};
}

void mcp_search_answer(struct mcp_arena *arena, const struct mcp_search *search,
                       struct mcp_answer *out)
{
    int top = search->options->top > 1 ? search->options->top : 1;
    const struct mcp_tuple **order = MCP_ARRAY(arena, top, const struct mcp_tuple *);
    out->count = mcp_leaders(search, MCP_KEEPS_ALL, top, order);
    out->found = MCP_ARRAY(arena, out->count, struct mcp_found);
    for (int i = 0; i < out->count; i++)
        out->found[i] = mcp_search_keep(arena, search->question, order[i], search->unlimited);
    out->beyond_factor = mcp_beyond_factor(search);
    for (int k = 0; k < 2; k++) {
        const struct mcp_tuple *best;
        struct mcp_bar far = bar_beyond(search, MCP_BREAKS_PIPELINE + k), bar = far;
        if (mcp_leaders(search, MCP_BREAKS_PIPELINE + k, 1, &best) > 0)
            bar = mcp_bar_at(search, &best->found);
        out->has_beyond[k] = bar.ns < far.ns || bar.bytes < far.bytes;
        if (out->has_beyond[k])
            out->beyond[k] = mcp_search_keep(arena, search->question, best, search->unlimited);
    }
}
