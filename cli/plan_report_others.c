/* cli/plan_report_others.c: other plans and why they lose, other questions, the search. */
#include "cli/plan_refine.h"
#include "cli/plan_report.h"

#include "core/units.h"

#include <math.h>
#include <stdlib.h>

static const char *signed_time(struct mcp_arena *arena, int64_t ns)
{
    return mcp_format(arena, "%s%s", ns > 0 ? "+" : "−",
                      mcp_show(arena, 1e-9 * fabs((double)ns), MCP_SECONDS));
}

/* "bubble +351 ms, elementwise +75 ms, matmul −88 ms": what matters, largest first. */
static const char *terms_text(struct mcp_arena *arena, const struct mcp_difference *difference)
{
    enum { MOST_TERMS = 4 };
    enum mcp_cost order[MCP_NUM_COSTS];
    struct mcp_text text = mcp_text_new(arena);
    int count = mcp_difference_order(difference, order), said = 0;
    for (int i = 0; i < count && said < MOST_TERMS; i++) {
        int64_t ns = difference->cost_ns[order[i]];
        if (llabs(ns) * 50 < llabs(difference->cost_ns[order[0]]))
            break;
        mcp_text_add(&text, "%s%s %s", said++ > 0 ? ", " : "", mcp_cost_names[order[i]],
                     signed_time(arena, ns));
    }
    return text.length > 0 ? text.data : "no kind of time";
}

static const char *signed_percent(struct mcp_arena *arena, double frac)
{
    return fabs(frac) < 5e-4
               ? "± 0.0 %"
               : mcp_format(arena, "%s%.1f %%", frac > 0 ? "+" : "−", 100 * fabs(frac));
}

/* One plan beside the answer. */
static void add_other(struct mcp_table *table, struct mcp_arena *arena,
                      const struct mcp_plan_view *view, const struct mcp_plan *plan,
                      const struct mcp_prediction *p)
{
    struct mcp_difference difference;
    mcp_explain_difference(view->prediction, p, &difference);
    mcp_table_cell(table, "%s", mcp_report_times(arena, mcp_plan_degrees_text(arena, plan)));
    mcp_table_cell(
        table, "%s",
        mcp_report_times(arena, mcp_plan_choices_text(arena, plan, view->question->job)));
    mcp_table_cell(table, "%s", mcp_show(arena, p->iteration_s, MCP_SECONDS));
    mcp_table_cell(table, "%s",
                   p == view->prediction
                       ? "best"
                       : signed_percent(arena, p->iteration_s / view->prediction->iteration_s - 1));
    mcp_table_cell(table, "%s", mcp_plan_gib(arena, p->peak_memory_bytes));
    mcp_table_cell(table, "%s", p == view->prediction ? "" : terms_text(arena, &difference));
    if (p == view->prediction)
        mcp_table_paint_row(table, MCP_BOLD);
}

static struct mcp_table *others_table(struct mcp_arena *arena, const char *first)
{
    const struct mcp_column columns[] = {
        {first, "", MCP_LEFT}, {"choices", "", MCP_LEFT}, {"iteration", "", MCP_RIGHT},
        {"", "", MCP_RIGHT},   {"peak", "", MCP_RIGHT},   {"what differs", "", MCP_LEFT}};
    return mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
}

static void add_runners_up(struct mcp_report *report, const struct mcp_plan_view *view)
{
    struct mcp_table *table = others_table(report->arena, "layout");
    for (int i = 0; i < view->answer->count; i++)
        add_other(table, report->arena, view, &view->answer->found[i].plan, &view->predictions[i]);
    mcp_report_table(report, MCP_REPORT_TABLE, "", table);
    mcp_report_say(report, MCP_REPORT_NOTE, MCP_TONE_PLAIN,
                   "Of each other layout a good split of its layers, not proven to be its best. "
                   "What differs is the time that it needs more (+) or less (−), by kind.");
}

/* The same plans kind by kind: the parts of their times side by side. */
static void add_runner_bars(struct mcp_report *report, const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = report->arena;
    int count = view->answer->count;
    struct mcp_report_part *parts = MCP_ARRAY(arena, MCP_NUM_COSTS, struct mcp_report_part);
    const char **rows = MCP_ARRAY(arena, count, const char *);
    double *values = MCP_ARRAY(arena, count * MCP_NUM_COSTS, double);
    for (int i = 0; i < MCP_NUM_COSTS; i++)
        parts[i] = (struct mcp_report_part){mcp_cost_names[i], i % MCP_NUM_INKS};
    for (int row = 0; row < count; row++) {
        rows[row] = row == 0 ? "this plan" : mcp_format(arena, "number %d", row + 1);
        for (int i = 0; i < MCP_NUM_COSTS; i++)
            values[row * MCP_NUM_COSTS + i] = view->predictions[row].cost_s[i];
    }
    const struct mcp_report_bars bars = {"The plans by kind of time, mean over all ranks",
                                         MCP_NUM_COSTS,
                                         count,
                                         parts,
                                         rows,
                                         values,
                                         MCP_SECONDS,
                                         NAN,
                                         ""};
    mcp_report_bars(report, &bars);
}

/* --refine: the same once more, as played. */
static void add_refined(struct mcp_report *report, const struct mcp_plan_view *view)
{
    const char *text = mcp_plan_refine_text(report->arena, view);
    if (text == NULL)
        return;
    mcp_report_say(report, MCP_REPORT_PROSE,
                   mcp_plan_refine_changed(view) ? MCP_TONE_WARN : MCP_TONE_PLAIN,
                   mcp_format(report->arena, "Played: %s.", text));
    if (view->num_refined > 1)
        mcp_report_table(report, MCP_REPORT_TABLE, "The best by price, as played",
                         mcp_plan_refine_table(report->arena, view));
}

static void add_rival(struct mcp_report *report, const struct mcp_plan_view *view,
                      const struct mcp_rival *rival)
{
    struct mcp_arena *arena = report->arena;
    for (int i = 0; i < rival->refusals.count; i++)
        mcp_report_say(
            report, MCP_REPORT_POINT, MCP_TONE_BAD,
            mcp_format(arena, "%s is refused: %s", rival->name, rival->refusals.items[i].text));
    if (rival->made_for)
        mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
                       mcp_format(arena, "%s was made for %s", rival->name, rival->made_for));
    if (!rival->priced)
        return;
    struct mcp_table *table = others_table(arena, "layout");
    add_other(table, arena, view, &view->plan, view->prediction);
    add_other(table, arena, view, &rival->plan, &rival->prediction);
    mcp_report_table(report, MCP_REPORT_TABLE, mcp_format(arena, "Against %s", rival->name), table);
}

static void add_what_ifs(struct mcp_report *report, const struct mcp_plan_view *view)
{
    static const struct mcp_column columns[] = {{"what if", "", MCP_LEFT},
                                                {"iteration", "", MCP_RIGHT},
                                                {"tokens a second", "", MCP_RIGHT},
                                                {"the best plan then", "", MCP_LEFT}};
    struct mcp_arena *arena = report->arena;
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < MCP_NUM_WHAT_IFS; i++) {
        const struct mcp_what_if *what_if = &view->what_ifs[i];
        mcp_table_cell(table, "%s", mcp_what_if_texts[what_if->kind]);
        if (!what_if->fits) {
            mcp_table_cell(table, "-");
            mcp_table_cell(table, "-");
            mcp_table_cell(table, "%s", what_if->possible ? "nothing fits" : "cannot be asked");
            continue;
        }
        mcp_table_cell(table, "%s", mcp_show(arena, what_if->found.iteration_s, MCP_SECONDS));
        mcp_table_cell(table, "× %.3f", what_if->speed_up);
        const char *plan =
            mcp_format(arena, "%s; %s", mcp_plan_degrees_text(arena, &what_if->found.plan),
                       mcp_plan_choices_text(arena, &what_if->found.plan, view->question->job));
        mcp_table_cell(table, "%s", mcp_report_times(arena, plan));
    }
    mcp_report_table(report, MCP_REPORT_TABLE, "What would change it, each searched for anew",
                     table);
}

/* What of each step waits for transfers, and what does not. */
static void add_savings_bars(struct mcp_report *report, const struct mcp_savings *savings)
{
    enum { NUM_PARTS = 2 };
    static const struct mcp_report_part parts[NUM_PARTS] = {
        {"all else", MCP_COST_MATMUL}, {"waiting for transfers", MCP_COST_TENSOR}};
    struct mcp_arena *arena = report->arena;
    const char **rows = MCP_ARRAY(arena, savings->count, const char *);
    double *values = MCP_ARRAY(arena, savings->count * NUM_PARTS, double);
    for (int i = 0; i < savings->count; i++) {
        const struct mcp_saving *row = &savings->rows[i];
        rows[i] = row->name;
        double *of_row = &values[(size_t)i * NUM_PARTS];
        of_row[1] = row->iteration_s * row->exposed_comm_frac;
        of_row[0] = row->iteration_s - of_row[1];
    }
    const struct mcp_report_bars bars = {"A step with each of them, mean over all ranks",
                                         NUM_PARTS,
                                         savings->count,
                                         parts,
                                         rows,
                                         values,
                                         MCP_SECONDS,
                                         NAN,
                                         ""};
    mcp_report_bars(report, &bars);
}

void mcp_plan_report_savings(struct mcp_report *report, const struct mcp_plan_view *view)
{
    if (view->savings == NULL)
        return;
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN,
                   "What each way to save communication is worth");
    mcp_report_table(report, MCP_REPORT_TABLE,
                     "None of them, each alone, and all; communication that compute waits for as a "
                     "share of the step",
                     mcp_savings_table(report->arena, view->savings));
    add_savings_bars(report, view->savings);
}

void mcp_plan_report_others(struct mcp_report *report, const struct mcp_plan_view *view)
{
    bool runners_up = view->answer->count > 1;
    if (!runners_up && view->num_rivals == 0 && view->num_refined == 0 && !view->what_ifs)
        return;
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "Other plans, and why they lose");
    if (runners_up) {
        add_runners_up(report, view);
        add_runner_bars(report, view);
    }
    add_refined(report, view);
    for (int i = 0; i < view->num_rivals; i++)
        add_rival(report, view, &view->rivals[i]);
    if (view->what_ifs)
        add_what_ifs(report, view);
}

/* The search */

static void add_count(struct mcp_table *table, struct mcp_arena *arena, int64_t count,
                      const char *what, const char *why)
{
    if (count == 0)
        return;
    mcp_table_cell(table, "%s", what);
    mcp_table_cell(table, "%s", mcp_show_integer(arena, count));
    mcp_table_cell(table, "%s", why);
}

static void add_refused(struct mcp_table *table, struct mcp_arena *arena, const char *what,
                        const struct mcp_refused *refused, int count)
{
    for (int i = 0; i < count; i++)
        add_count(table, arena, refused[i].count, what, refused[i].rule);
}

static void add_rule(struct mcp_report *report, const struct mcp_plan_view *view, int index,
                     const char *rule)
{
    struct mcp_arena *arena = report->arena;
    if (!view->answer->has_beyond[index] || view->answer->count == 0)
        return;
    const struct mcp_found *beyond = &view->answer->beyond[index];
    mcp_report_say(
        report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
        mcp_format(
            arena, "The best plan that the %s rule refuses, %s, takes %s (%s).", rule,
            mcp_plan_degrees_text(arena, &beyond->plan),
            mcp_show(arena, beyond->iteration_s, MCP_SECONDS),
            signed_percent(arena, beyond->iteration_s / view->answer->found[0].iteration_s - 1)));
}

void mcp_plan_report_search(struct mcp_report *report, const struct mcp_plan_view *view)
{
    static const struct mcp_column columns[] = {
        {"candidates", "", MCP_LEFT}, {"how many", "", MCP_RIGHT}, {"why", "", MCP_LEFT}};
    struct mcp_arena *arena = report->arena;
    const struct mcp_search_record *record = &view->answer->record;
    if (view->predicts || record->candidates == 0)
        return;
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    add_count(table, arena, record->candidates, "in all", "plans but for their split into stages");
    mcp_table_paint_row(table, MCP_BOLD);
    add_refused(table, arena, "refused", record->refused, record->num_refused);
    add_count(table, arena, record->bounded, "bounded",
              "cannot win, however their layers are split");
    add_count(table, arena, record->fitting, "fit", "a plan of theirs was priced and fits");
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "What was searched, what is proven");
    mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN, mcp_plan_proof_text(arena, view));
    mcp_report_table(report, MCP_REPORT_TABLE, "", table);
    mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
                   mcp_format(arena, "%s plans were priced in full, %s integer programmes solved.",
                              mcp_show_integer(arena, record->priced),
                              mcp_show_integer(arena, record->milps)));
    for (int i = 0; i < record->num_refuted; i++)
        mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
                       mcp_format(arena, "%s alone were too much for memory in %s of them.",
                                  record->refuted[i].rule,
                                  mcp_show_integer(arena, record->refuted[i].count)));
    add_rule(report, view, 0, "pipeline");
    add_rule(report, view, 1, "batch");
}
