/* planner/search_split.c: the tuples that may still win, split into stages. */
#include "planner/search_parts.h"
#include "planner/split.h"

#include <math.h>

static void take(struct mcp_look *look, const struct mcp_plan *plan, const struct mcp_split *split,
                 struct mcp_tuple *tuple)
{
    struct mcp_plan whole = *plan;
    struct mcp_prediction *prediction = look->desk->prediction;
    whole.chunks = split->chunks;
    mcp_estimate(look->desk->pricer, &whole, prediction);
    look->priced++;
    const struct mcp_found found = {whole, prediction->iteration_s, prediction->peak_memory_bytes};
    if (tuple->state == MCP_TUPLE_FITS &&
        mcp_found_compare(look->search->objective, &tuple->found, &found) <= 0)
        return;
    tuple->state = MCP_TUPLE_FITS;
    tuple->found = found;
}

void mcp_look_split(struct mcp_look *look, int max_milps, struct mcp_tuple *tuple)
{
    struct mcp_plan plan;
    struct mcp_split split;
    struct mcp_split_options options = {.limit_bytes = INT64_MAX,
                                        .better_than_ns = look->cutoff_ns,
                                        .uneven = true,
                                        .max_recomputed_stages = -1,
                                        .max_milps = max_milps};
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++)
        options.recompute[r] = look->search->recompute[r];
    mcp_choices_plan(&look->lot->choices, tuple->index, &plan);
    mcp_split_best(look->desk->arena, look->desk->pricer, &plan, &options, &split);
    look->milps += split.milps;
    tuple->split = true;
    tuple->bound_ns = split.bound_ns > tuple->bound_ns ? split.bound_ns : tuple->bound_ns;
    tuple->proven = split.proven;
    if (split.found)
        take(look, &plan, &split, tuple);
    else if (tuple->state == MCP_TUPLE_OPEN)
        tuple->state = split.bound_ns == INT64_MAX ? MCP_TUPLE_REFUTED : MCP_TUPLE_BOUNDED;
}
