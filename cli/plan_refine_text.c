/* cli/plan_refine_text.c: what --refine found, in words. */
#include "cli/plan_refine.h"

#include "core/units.h"

bool mcp_plan_refine_changed(const struct mcp_plan_view *view)
{
    return view->num_refined > 0 && view->refined[0].priced_place != 1;
}

/* Of the best by price. */
static const struct mcp_refined *priced_best(const struct mcp_plan_view *view)
{
    const struct mcp_refined *best = view->refined;
    while (best->priced_place != 1)
        best++;
    return best;
}

const char *mcp_plan_refine_text(struct mcp_arena *arena, const struct mcp_plan_view *view)
{
    const struct mcp_refined *first = view->refined;
    if (view->num_refined == 0 && view->not_refined != NULL)
        return mcp_format(arena, "not played: %s", view->not_refined);
    if (view->num_refined == 0)
        return NULL;
    if (!mcp_plan_refine_changed(view))
        return mcp_format(arena,
                          "the best %d that were found were played op by op: the fastest by price, "
                          "%s, is the fastest played, %s",
                          view->num_refined, mcp_show(arena, first->found.iteration_s, MCP_SECONDS),
                          mcp_show(arena, first->played_s, MCP_SECONDS));
    const struct mcp_refined *priced = priced_best(view);
    return mcp_format(
        arena,
        "the best %d that were found were played op by op, which changed the winner: number %d by "
        "price takes %s played (priced %s), the best by price %s (priced %s)",
        view->num_refined, first->priced_place, mcp_show(arena, first->played_s, MCP_SECONDS),
        mcp_show(arena, first->found.iteration_s, MCP_SECONDS),
        mcp_show(arena, priced->played_s, MCP_SECONDS),
        mcp_show(arena, priced->found.iteration_s, MCP_SECONDS));
}

static const char *percent(struct mcp_arena *arena, double frac)
{
    return mcp_format(arena, "%+.2f %%", 100 * frac);
}

const struct mcp_table *mcp_plan_refine_table(struct mcp_arena *arena,
                                              const struct mcp_plan_view *view)
{
    static const struct mcp_column columns[] = {
        {"by price", "", MCP_RIGHT}, {"layout", "", MCP_LEFT},   {"priced", "", MCP_RIGHT},
        {"played", "", MCP_RIGHT},   {"differs", "", MCP_RIGHT}, {"behind", "", MCP_RIGHT},
    };
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < view->num_refined; i++) {
        const struct mcp_refined *row = &view->refined[i];
        mcp_table_cell(table, "%d", row->priced_place);
        mcp_table_cell(table, "%s, %s", mcp_plan_degrees_text(arena, &row->found.plan),
                       mcp_plan_choices_text(arena, &row->found.plan, view->question->job));
        mcp_table_cell(table, "%s", mcp_show(arena, row->found.iteration_s, MCP_SECONDS));
        if (row->why_not != NULL) {
            mcp_table_cell(table, "not played: %s", row->why_not);
            mcp_table_end_row(table);
            continue;
        }
        mcp_table_cell(table, "%s", mcp_show(arena, row->played_s, MCP_SECONDS));
        mcp_table_cell(table, "%s", percent(arena, row->played_s / row->found.iteration_s - 1));
        mcp_table_cell(table, "%s",
                       i == 0 ? "best"
                              : percent(arena, row->played_s / view->refined[0].played_s - 1));
        if (i == 0)
            mcp_table_paint_row(table, MCP_BOLD);
    }
    return table;
}

void mcp_plan_refine_write(struct mcp_text *out, const struct mcp_style *style,
                           const struct mcp_plan_view *view)
{
    const char *text = mcp_plan_refine_text(out->arena, view);
    if (text == NULL)
        return;
    mcp_heading(out, style, "Played");
    mcp_text_add(out, "  ");
    mcp_wrap(out, text, style->width - 2, 2);
    mcp_text_add(out, "\n");
    if (view->num_refined > 1)
        mcp_table_write(mcp_plan_refine_table(out->arena, view), MCP_SKIN_TERMINAL, style, out);
}
