/* cli/compare_text.c: two timelines held against each other, for people. */
#include "cli/compare_view.h"
#include "core/units.h"
#include "reports/table.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_KINDS = 24, MOST_RANKS = 16 };

const char *mcp_compare_side_kind(const struct mcp_compare_side *side)
{
    return side->is_plan ? "plan, played" : mcp_timeline_kind_names[side->timeline.measured];
}

const char *mcp_compare_op_text(struct mcp_arena *arena, const struct mcp_compare_pair *pair)
{
    const struct mcp_timeline_span *span =
        pair->a->function < MCP_NUM_FUNCTIONS ? pair->a : pair->b;
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add(&text, "%s",
                 span->function < MCP_NUM_FUNCTIONS ? mcp_functions[span->function].name
                                                    : mcp_stream_names[span->stream]);
    if (span->pass < MCP_NUM_BLOCK_ROLES)
        mcp_text_add(&text, ", %s", mcp_block_role_names[span->pass]);
    if (span->layer >= 0)
        mcp_text_add(&text, " of layer %d", span->layer);
    if (span->microbatch >= 0)
        mcp_text_add(&text, ", microbatch %d", span->microbatch);
    return text.data;
}

const char *mcp_compare_sentence(struct mcp_arena *arena, const struct mcp_compare_view *view)
{
    double frac = mcp_compare_step_frac(view);
    if (fabs(frac) < 5e-5)
        return "B's step takes as long as A's";
    return mcp_format(arena, "B's step is %.2f %% %s than A's", 100 * fabs(frac),
                      frac > 0 ? "longer" : "shorter");
}

static const char *seconds(struct mcp_arena *arena, double value)
{
    return value > 0 ? mcp_show(arena, value, MCP_SECONDS) : "-";
}

static const char *signed_seconds(struct mcp_arena *arena, double value)
{
    if (value == 0)
        return "-";
    return mcp_format(arena, "%s%s", value > 0 ? "+" : "-",
                      mcp_show(arena, fabs(value), MCP_SECONDS));
}

static const char *ratio(struct mcp_arena *arena, double a, double b)
{
    return a > 0 ? mcp_format(arena, "%.3f", b / a) : "";
}

/* --- the step --- */

static void put_side(struct mcp_text *out, const struct mcp_style *style, const char *name,
                     const struct mcp_compare_side *side)
{
    mcp_text_add(out, "  %s  %s, %s\n", mcp_paint(out->arena, style, MCP_BOLD, name),
                 mcp_printable(out->arena, side->path), mcp_compare_side_kind(side));
}

static void put_joined(struct mcp_text *out, const struct mcp_compare_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_compare *result = &view->result;
    mcp_text_add(out, "  %s op%s on %s rank%s in both",
                 mcp_show_integer(arena, result->all.num_both),
                 result->all.num_both == 1 ? "" : "s", mcp_show_integer(arena, result->num_ranks),
                 result->num_ranks == 1 ? "" : "s");
    if (result->all.num_a + result->all.num_b > 0)
        mcp_text_add(out, "; %s in A alone, %s in B alone",
                     mcp_show_integer(arena, result->all.num_a),
                     mcp_show_integer(arena, result->all.num_b));
    if (result->num_only_a + result->num_only_b > 0)
        mcp_text_add(out, "; left out: %s rank%s of A, %s of B, that the other has not",
                     mcp_show_integer(arena, result->num_only_a),
                     result->num_only_a == 1 ? "" : "s",
                     mcp_show_integer(arena, result->num_only_b));
    mcp_text_add(out, "\n");
    if (result->until_ns > 0)
        mcp_text_add(out,
                     "  one holds no ops after %s: what follows is a rank's time up to there\n",
                     mcp_show(arena, 1e-9 * (double)result->until_ns, MCP_SECONDS));
    if (result->num_other > 0)
        mcp_text_add(out,
                     "  %s of them have one place and are different ops: the programs differ\n",
                     mcp_show_integer(arena, result->num_other));
}

static void put_share(struct mcp_table *table, const char *what, double a, double b)
{
    mcp_table_cell(table, "%s", what);
    mcp_table_cell(table, "%.1f %%", 100 * a);
    mcp_table_cell(table, "%.1f %%", 100 * b);
    mcp_table_cell(table, "%+.1f", 100 * (b - a));
    mcp_table_end_row(table);
}

static void put_step(struct mcp_text *out, const struct mcp_style *style,
                     const struct mcp_compare_view *view)
{
    static const struct mcp_column columns[] = {{"", "", MCP_LEFT},
                                                {"A", "", MCP_RIGHT},
                                                {"B", "", MCP_RIGHT},
                                                {"difference", "", MCP_RIGHT},
                                                {"B / A", "", MCP_RIGHT}};
    struct mcp_arena *arena = out->arena;
    const struct mcp_compare *result = &view->result;
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    double a = 1e-9 * (double)result->ends_a.step_ns, b = 1e-9 * (double)result->ends_b.step_ns;
    mcp_table_cell(table, "step");
    mcp_table_cell(table, "%s", seconds(arena, a));
    mcp_table_cell(table, "%s", seconds(arena, b));
    mcp_table_cell(table, "%s", signed_seconds(arena, b - a));
    mcp_table_cell(table, "%s", ratio(arena, a, b));
    mcp_table_paint_row(table, MCP_BOLD);
    for (int k = 0; k < MCP_NUM_SECONDS; k++) {
        double of_a = 1e-9 * (double)result->mean_a.ns[k];
        double of_b = 1e-9 * (double)result->mean_b.ns[k];
        if (of_a == 0 && of_b == 0)
            continue;
        mcp_table_cell(table, "  %s", mcp_second_names[k]);
        mcp_table_cell(table, "%s", seconds(arena, of_a));
        mcp_table_cell(table, "%s", seconds(arena, of_b));
        mcp_table_cell(table, "%s", signed_seconds(arena, of_b - of_a));
        mcp_table_cell(table, "%s", ratio(arena, of_a, of_b));
    }
    mcp_table_rule(table);
    put_share(table, "bubble", mcp_account_bubble_frac(&result->mean_a),
              mcp_account_bubble_frac(&result->mean_b));
    put_share(table, "exposed communication", mcp_account_exposed_comm_frac(&result->mean_a),
              mcp_account_exposed_comm_frac(&result->mean_b));
    mcp_heading(out, style, "A rank's time, mean over ranks");
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
}

/* --- kinds --- */

static void put_kind(struct mcp_table *table, struct mcp_arena *arena,
                     const struct mcp_compare *result, const struct mcp_compare_kind *kind)
{
    double difference = kind->b_s - kind->a_s;
    mcp_table_cell(table, "%s", kind->name);
    mcp_table_cell(table, "%s", mcp_show_integer(arena, kind->num_both));
    mcp_table_cell(table, "%s", seconds(arena, kind->a_s));
    mcp_table_cell(table, "%s", seconds(arena, kind->b_s));
    mcp_table_cell(table, "%s", ratio(arena, kind->a_s, kind->b_s));
    mcp_table_cell(table, "%s", signed_seconds(arena, difference));
    mcp_table_cell(table, "%s",
                   result->gross_s > 0 && kind != &result->all
                       ? mcp_format(arena, "%.1f %%", 100 * fabs(difference) / result->gross_s)
                       : "");
    mcp_table_cell(table, "%s",
                   kind->num_a > 0
                       ? mcp_format(arena, "%s, %s", mcp_show_integer(arena, kind->num_a),
                                    seconds(arena, kind->only_a_s))
                       : "");
    mcp_table_cell(table, "%s",
                   kind->num_b > 0
                       ? mcp_format(arena, "%s, %s", mcp_show_integer(arena, kind->num_b),
                                    seconds(arena, kind->only_b_s))
                       : "");
}

static void put_kinds(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_compare_view *view)
{
    static const struct mcp_column columns[] = {
        {"op", "", MCP_LEFT},     {"count", "", MCP_RIGHT},   {"A", "", MCP_RIGHT},
        {"B", "", MCP_RIGHT},     {"B / A", "", MCP_RIGHT},   {"difference", "", MCP_RIGHT},
        {"share", "", MCP_RIGHT}, {"A alone", "", MCP_RIGHT}, {"B alone", "", MCP_RIGHT}};
    const struct mcp_compare *result = &view->result;
    struct mcp_table *table = mcp_table_new(out->arena, columns, (int)MCP_COUNT_OF(columns));
    int shown = result->num_kinds < MOST_KINDS ? result->num_kinds : MOST_KINDS;
    for (int i = 0; i < shown; i++)
        put_kind(table, out->arena, result, &result->kinds[i]);
    mcp_table_rule(table);
    put_kind(table, out->arena, result, &result->all);
    mcp_heading(out, style, "Kinds of op, seconds of a rank");
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
    if (shown < result->num_kinds)
        mcp_text_add(out, "  %d kinds that differ less are not shown; --json has them\n",
                     result->num_kinds - shown);
}

/* --- single ops, single ranks --- */

static void put_worst(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_compare_view *view)
{
    static const struct mcp_column columns[] = {
        {"rank", "", MCP_RIGHT}, {"slot", "", MCP_RIGHT},      {"entry", "", MCP_RIGHT},
        {"op", "", MCP_RIGHT},   {"what", "", MCP_LEFT},       {"A", "", MCP_RIGHT},
        {"B", "", MCP_RIGHT},    {"difference", "", MCP_RIGHT}};
    struct mcp_arena *arena = out->arena;
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < view->result.num_worst; i++) {
        const struct mcp_compare_pair *pair = &view->result.worst[i];
        double a = 1e-9 * (double)(pair->a->end_ns - pair->a->start_ns);
        double b = 1e-9 * (double)(pair->b->end_ns - pair->b->start_ns);
        mcp_table_cell(table, "%d", pair->rank);
        mcp_table_cell(table, "%d", pair->a->slot);
        mcp_table_cell(table, "%d", pair->a->entry);
        mcp_table_cell(table, "%d", pair->a->op);
        mcp_table_cell(table, "%s", mcp_compare_op_text(arena, pair));
        mcp_table_cell(table, "%s", seconds(arena, a));
        mcp_table_cell(table, "%s", seconds(arena, b));
        mcp_table_cell(table, "%s", signed_seconds(arena, b - a));
    }
    if (view->result.num_worst == 0)
        return;
    mcp_heading(out, style, "Ops farthest apart");
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
}

static void put_account(struct mcp_table *table, struct mcp_arena *arena,
                        const struct mcp_account *account)
{
    int64_t runs = account->ns[MCP_SECOND_COMPUTE] + account->ns[MCP_SECOND_OPTIMIZER];
    mcp_table_cell(table, "%s", seconds(arena, 1e-9 * (double)runs));
    mcp_table_cell(table, "%.1f %%", 100 * mcp_account_exposed_comm_frac(account));
    mcp_table_cell(table, "%.1f %%", 100 * mcp_account_bubble_frac(account));
}

static void put_ranks(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_compare_view *view)
{
    static const struct mcp_column columns[] = {
        {"rank", "", MCP_RIGHT},    {"compute", "A", MCP_RIGHT}, {"exposed", "A", MCP_RIGHT},
        {"bubble", "A", MCP_RIGHT}, {"compute", "B", MCP_RIGHT}, {"exposed", "B", MCP_RIGHT},
        {"bubble", "B", MCP_RIGHT}};
    const struct mcp_compare *result = &view->result;
    struct mcp_table *table = mcp_table_new(out->arena, columns, (int)MCP_COUNT_OF(columns));
    int shown = result->num_ranks < MOST_RANKS ? result->num_ranks : MOST_RANKS;
    for (int i = 0; i < shown; i++) {
        mcp_table_cell(table, "%d", result->ranks[i]);
        put_account(table, out->arena, &result->accounts_a[i]);
        put_account(table, out->arena, &result->accounts_b[i]);
    }
    mcp_heading(out, style, "Ranks");
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
    if (shown < result->num_ranks)
        mcp_text_add(out, "  %d more are in --json\n", result->num_ranks - shown);
}

void mcp_compare_text(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_compare_view *view)
{
    mcp_text_add(out, "%s\n",
                 mcp_paint(out->arena, style, MCP_BOLD, mcp_compare_sentence(out->arena, view)));
    put_side(out, style, "A", &view->a);
    put_side(out, style, "B", &view->b);
    put_joined(out, view);
    put_step(out, style, view);
    put_kinds(out, style, view);
    put_worst(out, style, view);
    put_ranks(out, style, view);
}
