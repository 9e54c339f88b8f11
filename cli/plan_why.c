/* cli/plan_why.c: other layouts and what they lose, what was looked at, and the proof. */
#include "cli/plan_refine.h"
#include "cli/plan_schedule.h"

#include "core/units.h"
#include "reports/table.h"

/* Alternatives */

/* The kind of time of which `other` has most more than `best` (sign 1) or less (-1),
 * `but` left out; -1 when there is none worth a word. */
static int largest_cost(const struct mcp_prediction *best, const struct mcp_prediction *other,
                        int sign, int but, double *seconds)
{
    int largest = -1;
    *seconds = 0.002 * best->iteration_s;
    for (int cost = 0; cost < MCP_NUM_COSTS; cost++) {
        double more = sign * (other->cost_s[cost] - best->cost_s[cost]);
        if (cost != but && more > *seconds) {
            largest = cost;
            *seconds = more;
        }
    }
    return largest;
}

static void add_term(struct mcp_text *text, char sign, int cost, double seconds)
{
    if (cost >= 0)
        mcp_text_add(text, "%s%s %c%s", text->length > 0 ? ", " : "", mcp_cost_names[cost], sign,
                     mcp_show(text->arena, seconds, MCP_SECONDS));
}

/* The two largest losses, and the largest gain that stands against them. */
static const char *losses(struct mcp_arena *arena, enum mcp_objective objective,
                          const struct mcp_prediction *best, const struct mcp_prediction *other)
{
    if (objective == MCP_OBJECTIVE_MEMORY)
        return mcp_format(arena, "memory +%s",
                          mcp_plan_gib(arena, other->peak_memory_bytes - best->peak_memory_bytes));
    struct mcp_text text = mcp_text_new(arena);
    double most, next, gain;
    int first = largest_cost(best, other, 1, -1, &most);
    int second = largest_cost(best, other, 1, first, &next);
    add_term(&text, '+', first, most);
    if (first >= 0)
        add_term(&text, '+', second, next);
    int saved = largest_cost(best, other, -1, -1, &gain);
    if (first >= 0)
        add_term(&text, '-', saved, gain);
    return text.length > 0 ? text.data : "next to nothing";
}

/* Degrees and choices in cells of their own, or where the page is narrow in one. */
enum { WIDE = 100, NUM_WIDE = 13, NUM_NARROW = 5 };

static void add_alternative(struct mcp_table *table, struct mcp_arena *arena,
                            const struct mcp_plan *plan, bool wide)
{
    struct mcp_text narrow = mcp_text_new(arena);
    const struct {
        const char *letter;
        int value, usual;
    } cells[] = {
        {"t", plan->tensor_parallel, 1},   {"c", plan->context_parallel, 1},
        {"p", plan->pipeline_parallel, 1}, {"d", plan->data_parallel, 1},
        {"e", plan->expert_parallel, 1},   {"v", plan->virtual_stages, 1},
        {"b", plan->microbatch_size, 0},   {"z", plan->zero_stage, 0},
    };
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        if (wide)
            mcp_table_cell(table, "%d", cells[i].value);
        else if (cells[i].value != cells[i].usual)
            mcp_text_add(&narrow, "%s%s%d", narrow.length > 0 ? " " : "", cells[i].letter,
                         cells[i].value);
    }
    const char *recompute = mcp_plan_recompute_text(arena, plan);
    bool none = mcp_same(recompute, "none");
    if (wide)
        mcp_table_cell(table, "%s", recompute);
    else
        mcp_table_cell(table, "%s%s%s", narrow.data, none ? "" : ", recompute ",
                       none ? "" : recompute);
}

static struct mcp_table *alternatives_table(struct mcp_arena *arena, bool wide)
{
    static const struct mcp_column wide_columns[NUM_WIDE] = {
        {"TP", "", MCP_RIGHT},        {"CP", "", MCP_RIGHT},   {"PP", "", MCP_RIGHT},
        {"DP", "", MCP_RIGHT},        {"EP", "", MCP_RIGHT},   {"VP", "", MCP_RIGHT},
        {"micro", "", MCP_RIGHT},     {"ZeRO", "", MCP_RIGHT}, {"recompute", "", MCP_LEFT},
        {"iteration", "", MCP_RIGHT}, {"", "", MCP_RIGHT},     {"peak", "", MCP_RIGHT},
        {"loses by", "", MCP_LEFT},
    };
    static const struct mcp_column narrow_columns[NUM_NARROW] = {
        {"layout", "", MCP_LEFT}, {"iteration", "", MCP_RIGHT}, {"", "", MCP_RIGHT},
        {"peak", "", MCP_RIGHT},  {"loses by", "", MCP_LEFT},
    };
    return wide ? mcp_table_new(arena, wide_columns, NUM_WIDE)
                : mcp_table_new(arena, narrow_columns, NUM_NARROW);
}

static void add_row(struct mcp_table *table, struct mcp_arena *arena,
                    const struct mcp_plan_view *view, int index, bool wide)
{
    const struct mcp_prediction *best = view->prediction, *p = &view->predictions[index];
    double frac = p->iteration_s / best->iteration_s - 1;
    add_alternative(table, arena, &view->answer->found[index].plan, wide);
    mcp_table_cell(table, "%s", mcp_show(arena, p->iteration_s, MCP_SECONDS));
    mcp_table_cell(table, "%s", index == 0 ? "best" : mcp_format(arena, "%+.1f %%", 100 * frac));
    mcp_table_cell(table, "%s", mcp_plan_gib(arena, p->peak_memory_bytes));
    mcp_table_cell(table, "%s", index == 0 ? "" : losses(arena, view->objective, best, p));
    if (index == 0)
        mcp_table_paint_row(table, MCP_BOLD);
}

void mcp_plan_alternatives_text(struct mcp_text *out, const struct mcp_style *style,
                                const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = out->arena;
    bool wide = style->width >= WIDE;
    struct mcp_table *table = alternatives_table(arena, wide);
    for (int i = 0; i < view->answer->count; i++)
        add_row(table, arena, view, i, wide);
    mcp_heading(out, style, "Other layouts, and what they lose");
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
    mcp_text_add(out, "  ");
    mcp_wrap(out,
             mcp_paint(arena, style, MCP_DIM,
                       mcp_format(arena, "%sof each other layout a good split, not proven its best",
                                  wide ? ""
                                       : "t tensor, c context, p pipeline, d data, e expert, v "
                                         "virtual stages, b microbatch, z ZeRO; ")),
             style->width - 2, 2);
    mcp_text_add(out, "\n");
}

/* The proof */

/* What no plan was found to beat. */
static const char *space_text(const struct mcp_plan_view *view)
{
    unsigned schedules = mcp_plan_schedules_looked_at(view);
    if ((schedules & MCP_UNEVEN_SCHEDULES) == 0)
        return "of these degrees";
    return view->uniform  ? "with layers spread evenly, all with one recompute"
           : view->chosen ? "that meet what is required, however layers are split"
                          : "however layers are split";
}

static const char *proof_by_price(struct mcp_arena *arena, const struct mcp_plan_view *view)
{
    const struct mcp_search_record *record = &view->answer->record;
    const char *why = view->stopped ? "interrupted, so not proven" : "not proven";
    if (record->proven_optimal)
        return mcp_format(arena, "proven best of %s candidates %s%s",
                          mcp_show_count(arena, (double)record->candidates), space_text(view),
                          mcp_plan_schedule_proof(arena, view));
    if (record->gap_frac >= 0.99)
        return mcp_format(arena, "%s: how much faster another plan could be is not known", why);
    if (record->gap_frac < 0.0005)
        return mcp_format(arena, "%s: another plan could be faster by less than 0.1 %%", why);
    return mcp_format(arena, "%s: another plan could be up to %.1f %% faster", why,
                      100 * record->gap_frac);
}

const char *mcp_plan_proof_text(struct mcp_arena *arena, const struct mcp_plan_view *view)
{
    const char *text = proof_by_price(arena, view);
    return mcp_plan_refine_changed(view)
               ? mcp_format(arena, "the fastest of %d that were played; number 1 by price: %s",
                            view->num_refined, text)
               : text;
}

/* What was looked at: candidates, and where each of them went */

enum { COUNT = 11 };

static void write_count(struct mcp_text *out, const struct mcp_style *style, int64_t count,
                        const char *text)
{
    mcp_text_add(out, "  %*s  ", COUNT, mcp_show_integer(out->arena, count));
    mcp_wrap(out, text, style->width - COUNT - 4, COUNT + 4);
    mcp_text_add(out, "\n");
}

/* "weights 73,492, activations 41,444". */
static const char *counts_text(struct mcp_arena *arena, const struct mcp_refused *items, int count)
{
    struct mcp_text text = mcp_text_new(arena);
    for (int i = 0; i < count; i++)
        mcp_text_add(&text, "%s%s %s", i > 0 ? ", " : "", items[i].rule,
                     mcp_show_integer(arena, items[i].count));
    return text.data;
}

static void write_refused(struct mcp_text *out, const struct mcp_style *style,
                          const struct mcp_search_record *record)
{
    struct mcp_arena *arena = out->arena;
    int64_t refused = 0;
    for (int i = 0; i < record->num_refused; i++)
        refused += record->refused[i].count;
    if (refused > 0)
        write_count(out, style, refused,
                    mcp_format(arena, "refused: %s",
                               counts_text(arena, record->refused, record->num_refused)));
}

static const char *priced_text(struct mcp_arena *arena, const struct mcp_search_record *record)
{
    const char *plans =
        mcp_format(arena, "fit%s; %s plan%s priced in full", record->fitting == 1 ? "s" : "",
                   mcp_show_integer(arena, record->priced), record->priced == 1 ? "" : "s");
    if (record->milps == 0)
        return plans;
    return mcp_format(arena, "%s, %s integer programme%s solved", plans,
                      mcp_show_integer(arena, record->milps), record->milps == 1 ? "" : "s");
}

/* The search looks no further beyond a rule than twice the best, or than the best. */
static void write_far_rule(struct mcp_text *out, const struct mcp_style *style,
                           const struct mcp_plan_view *view, const char *rule, const char *name)
{
    bool memory = view->objective == MCP_OBJECTIVE_MEMORY;
    if (view->chosen || view->interrupted || mcp_search_refused(&view->answer->record, rule) == 0)
        return;
    mcp_plan_point(out, style,
                   mcp_format(out->arena,
                              "the %s rule costs nothing: all that it alone refuses %s %s, or "
                              "does not fit",
                              name, memory ? "needs" : "takes",
                              view->answer->beyond_factor < 2 ? "as long or longer"
                              : memory                        ? "more than twice as much"
                                                              : "more than twice as long"));
}

/* What keeping one of the article's rules costs here, in what is minimised. */
static void write_rule_price(struct mcp_text *out, const struct mcp_style *style,
                             const struct mcp_plan_view *view, int index)
{
    struct mcp_arena *arena = out->arena;
    const char *name = index == 0 ? "pipeline" : "batch";
    const struct mcp_found *beyond = &view->answer->beyond[index];
    if (view->answer->count == 0)
        return;
    if (!view->answer->has_beyond[index]) {
        write_far_rule(out, style, view, index == 0 ? mcp_rule_pipeline : mcp_rule_batch, name);
        return;
    }
    const struct mcp_found *best = &view->answer->found[0];
    bool memory = view->objective == MCP_OBJECTIVE_MEMORY;
    double frac = memory ? (double)beyond->peak_memory_bytes / (double)best->peak_memory_bytes - 1
                         : beyond->iteration_s / best->iteration_s - 1;
    const char *plan = mcp_plan_degrees_text(arena, &beyond->plan);
    const char *value = memory ? mcp_plan_gib(arena, beyond->peak_memory_bytes)
                               : mcp_show(arena, beyond->iteration_s, MCP_SECONDS);
    const char *text =
        frac < 0 ? mcp_format(arena, "--%s-rule off would save %.1f %%: %s takes %s", name,
                              -100 * frac, plan, value)
                 : mcp_format(arena,
                              "the %s rule costs nothing: the best it refuses, %s, takes %s "
                              "(%+.1f %%)",
                              name, plan, value, 100 * frac);
    mcp_plan_point(out, style, text);
}

void mcp_plan_search_text(struct mcp_text *out, const struct mcp_style *style,
                          const struct mcp_plan_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_search_record *record = &view->answer->record;
    bool interleaved = view->answer->count > 0 && view->plan.virtual_stages > 1;
    mcp_heading(out, style, "What was looked at");
    write_count(out, style, record->candidates,
                "candidates: plans but for their split into stages");
    write_refused(out, style, record);
    if (record->bounded > 0)
        write_count(out, style, record->bounded, "cannot win, however their layers are split");
    if (record->fitting > 0)
        write_count(out, style, record->fitting, priced_text(arena, record));
    if (record->num_refuted > 0)
        mcp_plan_point(out, style,
                       mcp_format(arena,
                                  "memory refused these before pricing, by what alone is too "
                                  "much: %s",
                                  counts_text(arena, record->refuted, record->num_refuted)));
    if (interleaved && record->proven_optimal && !view->uniform)
        mcp_plan_point(out, style,
                       "splits with virtual stages: chunks that differ by a layer at most, "
                       "recompute chosen for each rank");
    write_rule_price(out, style, view, 0);
    write_rule_price(out, style, view, 1);
}
