/* cli/compare_report.c: two timelines as a report: two drawings of the step, and the tables. */
#include "cli/commands.h"
#include "cli/compare_view.h"
#include "cli/report_parts.h"
#include "core/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 32, MOST_KINDS = 40 };

/* --- slots over time --- */

enum kind { FORWARD, BACKWARD, WEIGHT, UPDATE, UNKNOWN, NUM_KINDS };
static const struct mcp_gantt_kind all_kinds[NUM_KINDS] = {
    [FORWARD] = {"forward", 1},
    [BACKWARD] = {"backward", 5},
    [WEIGHT] = {"backward of weights", 8},
    [UPDATE] = {"optimizer", 9},
    [UNKNOWN] = {"a slot, not named", 10},
};

static enum kind kind_of(const struct mcp_timeline_span *span)
{
    switch (span->pass) {
    case MCP_FORWARD:
        return FORWARD;
    case MCP_BACKWARD:
    case MCP_BACKWARD_INPUT:
    case MCP_RECOMPUTE:
        return BACKWARD;
    case MCP_BACKWARD_WEIGHT:
        return WEIGHT;
    case MCP_PROLOGUE:
    case MCP_EPILOGUE:
    case MCP_OPTIMIZER:
        return UPDATE;
    default:
        return UNKNOWN;
    }
}

/* What keeps a rank from its next slot: all but messages on their way and data transfers. */
static bool counts(const struct mcp_timeline_span *span)
{
    return span->stream <= MCP_STREAM_EXPERT && span->end_ns > span->start_ns;
}

static int by_start(const void *a, const void *b)
{
    const struct mcp_gantt_span *x = a, *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

/* The row's slots from the spans of a rank, each from its first op to its last; apart. */
static int slots_of(const struct mcp_timeline_span *spans, size_t count, int row,
                    struct mcp_gantt_span *out)
{
    int num = 0, slot = -1;
    int64_t end_ns = 0;
    for (size_t i = 0; i < count; i++) {
        const struct mcp_timeline_span *span = &spans[i];
        if (!counts(span))
            continue;
        if (span->slot != slot)
            out[num++] = (struct mcp_gantt_span){row,          kind_of(span),    span->start_ns,
                                                 span->end_ns, span->microbatch, 0};
        slot = span->slot;
        struct mcp_gantt_span *bar = &out[num - 1];
        bar->start_ns = span->start_ns < bar->start_ns ? span->start_ns : bar->start_ns;
        bar->end_ns = span->end_ns > bar->end_ns ? span->end_ns : bar->end_ns;
        bar->kind = bar->kind == UNKNOWN ? (int)kind_of(span) : bar->kind;
    }
    qsort(out, (size_t)num, sizeof *out, by_start);
    int kept = 0;
    for (int i = 0; i < num; i++) {
        out[i].start_ns = out[i].start_ns > end_ns ? out[i].start_ns : end_ns;
        end_ns = out[i].end_ns > end_ns ? out[i].end_ns : end_ns;
        if (out[i].end_ns > out[i].start_ns)
            out[kept++] = out[i];
    }
    return kept;
}

static size_t num_slots(const struct mcp_timeline_span *spans, size_t count)
{
    size_t num = 0;
    for (size_t i = 0; i < count; i++)
        num += i == 0 || spans[i].slot != spans[i - 1].slot;
    return num;
}

static int64_t longer_ns(const struct mcp_compare *result)
{
    return result->ends_a.step_ns > result->ends_b.step_ns ? result->ends_a.step_ns
                                                           : result->ends_b.step_ns;
}

/* Kinds that occur, numbered anew. */
static const struct mcp_gantt_kind *kinds_used(struct mcp_arena *arena,
                                               struct mcp_gantt_span *spans, int count, int *num)
{
    struct mcp_gantt_kind *kinds = MCP_ARRAY(arena, NUM_KINDS, struct mcp_gantt_kind);
    int numbers[NUM_KINDS];
    bool used[NUM_KINDS] = {false};
    for (int i = 0; i < count; i++)
        used[spans[i].kind] = true;
    *num = 0;
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        numbers[kind] = *num;
        if (used[kind])
            kinds[(*num)++] = all_kinds[kind];
    }
    for (int i = 0; i < count; i++)
        spans[i].kind = numbers[spans[i].kind];
    return kinds;
}

/* Both on one scale, so that they can be read one below the other. */
static void add_gantt(struct mcp_report *report, const struct mcp_compare_view *view,
                      const struct mcp_compare_side *side, const char *title)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_compare *result = &view->result;
    struct mcp_gantt gantt = {.title = title,
                              .num_rows =
                                  result->num_ranks < MOST_ROWS ? result->num_ranks : MOST_ROWS,
                              .num_chunks = 1,
                              .end_ns = longer_ns(result)};
    const char **rows = MCP_ARRAY(arena, gantt.num_rows, const char *);
    struct mcp_gantt_span *spans = NULL;
    size_t room = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int row = 0; row < gantt.num_rows; row++) {
            size_t count;
            int rank = mcp_timeline_find_rank(&side->timeline, result->ranks[row]);
            const struct mcp_timeline_span *of =
                mcp_timeline_spans_of(&side->timeline, rank, &count);
            rows[row] = mcp_format(arena, "rank %d", result->ranks[row]);
            if (pass == 0)
                room += num_slots(of, count);
            else
                gantt.num_spans += slots_of(of, count, row, spans + gantt.num_spans);
        }
        spans = spans != NULL ? spans : MCP_ARRAY(arena, room, struct mcp_gantt_span);
    }
    gantt.rows = rows;
    gantt.spans = spans;
    gantt.kinds = kinds_used(arena, spans, gantt.num_spans, &gantt.num_kinds);
    mcp_report_gantt(report, &gantt);
}

static void add_gantts(struct mcp_report *report, const struct mcp_compare_view *view)
{
    struct mcp_arena *arena = report->arena;
    const char *a = mcp_format(arena, "A: %s, %s", view->a.path, mcp_compare_side_kind(&view->a));
    const char *b = mcp_format(arena, "B: %s, %s", view->b.path, mcp_compare_side_kind(&view->b));
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "The step over time");
    mcp_report_say(
        report, MCP_REPORT_PROSE, MCP_TONE_PLAIN,
        mcp_format(
            arena, "Both on one scale. A bar is a slot, from its first op to its last.%s",
            view->result.num_ranks > MOST_ROWS
                ? mcp_format(arena, " The first %d ranks of %d.", MOST_ROWS, view->result.num_ranks)
                : ""));
    mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN, a);
    add_gantt(report, view, &view->a, a);
    mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN, b);
    add_gantt(report, view, &view->b, b);
}

/* --- numbers --- */

static const char *seconds(struct mcp_arena *arena, double value)
{
    return value > 0 ? mcp_show(arena, value, MCP_SECONDS) : "-";
}

static const char *signed_seconds(struct mcp_arena *arena, double value)
{
    if (value == 0)
        return "-";
    return mcp_format(arena, "%s%s", value > 0 ? "+" : "−",
                      mcp_show(arena, fabs(value), MCP_SECONDS));
}

static void add_figures(struct mcp_report *report, const struct mcp_compare_view *view)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_compare *result = &view->result;
    const double a = 1e-9 * (double)result->ends_a.step_ns,
                 b = 1e-9 * (double)result->ends_b.step_ns;
    mcp_report_plain_figure(report, "Step of A", seconds(arena, a),
                            mcp_compare_side_kind(&view->a));
    mcp_report_plain_figure(report, "Step of B", seconds(arena, b),
                            mcp_compare_side_kind(&view->b));
    mcp_report_plain_figure(
        report, "Bubble", mcp_report_percent(arena, mcp_account_bubble_frac(&result->mean_b)),
        mcp_format(arena, "of B; %s of A",
                   mcp_report_percent(arena, mcp_account_bubble_frac(&result->mean_a))));
    mcp_report_plain_figure(
        report, "Communication",
        mcp_report_percent(arena, mcp_account_exposed_comm_frac(&result->mean_b)),
        mcp_format(arena, "of B, exposed; %s of A",
                   mcp_report_percent(arena, mcp_account_exposed_comm_frac(&result->mean_a))));
    mcp_report_plain_figure(report, "Ops compared", mcp_show_integer(arena, result->all.num_both),
                            mcp_format(arena, "on %s rank%s",
                                       mcp_show_integer(arena, result->num_ranks),
                                       result->num_ranks == 1 ? "" : "s"));
}

static void add_checks(struct mcp_report *report, const struct mcp_compare_view *view)
{
    for (int i = 0; i < view->num_checks; i++) {
        const struct mcp_compare_check *check = &view->checks[i];
        mcp_report_say(report, MCP_REPORT_POINT, check->holds ? MCP_TONE_GOOD : MCP_TONE_BAD,
                       mcp_format(report->arena, "%s is %+.1f %% off; the threshold is %g %%",
                                  check->what, 100 * check->value_frac, 100 * check->limit_frac));
    }
}

static void add_accounts(struct mcp_report *report, const struct mcp_compare *result)
{
    static const int inks[MCP_NUM_SECONDS] = {0, 9, 4, 5, 6, 7, 8, 10, 11};
    static const char *const rows[] = {"A", "B"};
    struct mcp_arena *arena = report->arena;
    struct mcp_report_part *parts = MCP_ARRAY(arena, MCP_NUM_SECONDS, struct mcp_report_part);
    double *values = MCP_ARRAY(arena, 2 * MCP_NUM_SECONDS, double);
    for (int k = 0; k < MCP_NUM_SECONDS; k++) {
        parts[k] = (struct mcp_report_part){mcp_second_names[k], inks[k]};
        values[k] = 1e-9 * (double)result->mean_a.ns[k];
        values[MCP_NUM_SECONDS + k] = 1e-9 * (double)result->mean_b.ns[k];
    }
    const struct mcp_report_bars bars = {"What a rank's time was, mean over the ranks compared",
                                         MCP_NUM_SECONDS,
                                         2,
                                         parts,
                                         rows,
                                         values,
                                         MCP_SECONDS,
                                         NAN,
                                         ""};
    mcp_report_bars(report, &bars);
    if (result->until_ns > 0)
        mcp_report_say(report, MCP_REPORT_NOTE, MCP_TONE_WARN,
                       mcp_format(arena, "Up to %s: one timeline holds no ops after that.",
                                  mcp_show(arena, 1e-9 * (double)result->until_ns, MCP_SECONDS)));
    mcp_report_say(report, MCP_REPORT_NOTE, MCP_TONE_PLAIN,
                   "Counted from the spans of each rank. Communication counts where nothing runs "
                   "beside it; a rank whose message was not sent yet is in the bubble.");
}

static const char *alone(struct mcp_arena *arena, int64_t count, double seconds_of)
{
    return count == 0 ? ""
                      : mcp_format(arena, "%s, %s", mcp_show_integer(arena, count),
                                   seconds(arena, seconds_of));
}

static void add_kind(struct mcp_table *table, struct mcp_arena *arena,
                     const struct mcp_compare *result, const struct mcp_compare_kind *kind)
{
    double difference = kind->b_s - kind->a_s;
    mcp_table_cell(table, "%s", kind->name);
    mcp_table_cell(table, "%s", mcp_show_integer(arena, kind->num_both));
    mcp_table_cell(table, "%s", seconds(arena, kind->a_s));
    mcp_table_cell(table, "%s", seconds(arena, kind->b_s));
    mcp_table_cell(table, "%s",
                   kind->a_s > 0 ? mcp_format(arena, "%.3f", kind->b_s / kind->a_s) : "");
    mcp_table_cell(table, "%s", signed_seconds(arena, difference));
    mcp_table_cell(table, "%s",
                   result->gross_s > 0 && kind != &result->all
                       ? mcp_report_percent(arena, fabs(difference) / result->gross_s)
                       : "");
    mcp_table_cell(table, "%s", alone(arena, kind->num_a, kind->only_a_s));
    mcp_table_cell(table, "%s", alone(arena, kind->num_b, kind->only_b_s));
    if (kind == &result->all)
        mcp_table_paint_row(table, MCP_BOLD);
}

static void add_kinds(struct mcp_report *report, const struct mcp_compare *result)
{
    static const struct mcp_column columns[] = {
        {"op", "", MCP_LEFT},           {"count", "", MCP_RIGHT},
        {"A", "", MCP_RIGHT},           {"B", "", MCP_RIGHT},
        {"B / A", "", MCP_RIGHT},       {"difference", "", MCP_RIGHT},
        {"share of it", "", MCP_RIGHT}, {"in A alone", "", MCP_RIGHT},
        {"in B alone", "", MCP_RIGHT}};
    struct mcp_table *table = mcp_table_new(report->arena, columns, (int)MCP_COUNT_OF(columns));
    int shown = result->num_kinds < MOST_KINDS ? result->num_kinds : MOST_KINDS;
    for (int i = 0; i < shown; i++)
        add_kind(table, report->arena, result, &result->kinds[i]);
    add_kind(table, report->arena, result, &result->all);
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "Kinds of op");
    mcp_report_table(report, MCP_REPORT_TABLE, "", table);
    mcp_report_say(
        report, MCP_REPORT_NOTE, MCP_TONE_PLAIN,
        mcp_format(report->arena,
                   "Seconds of a rank, mean over ranks; ops that run side by side count "
                   "each. Shares are of all differences without their signs.%s",
                   shown < result->num_kinds
                       ? mcp_format(report->arena, " %d kinds that differ less are left out.",
                                    result->num_kinds - shown)
                       : ""));
    if (result->num_other > 0)
        mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_WARN,
                       mcp_format(report->arena,
                                  "%s ops have one place in both and are different ops: the "
                                  "programs differ.",
                                  mcp_show_integer(report->arena, result->num_other)));
}

static void add_worst(struct mcp_report *report, const struct mcp_compare *result)
{
    static const struct mcp_column columns[] = {
        {"op", "", MCP_LEFT}, {"rank", "", MCP_RIGHT}, {"slot", "", MCP_RIGHT},
        {"A", "", MCP_RIGHT}, {"B", "", MCP_RIGHT},    {"difference", "", MCP_RIGHT}};
    struct mcp_arena *arena = report->arena;
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < result->num_worst; i++) {
        const struct mcp_compare_pair *pair = &result->worst[i];
        double a = 1e-9 * (double)(pair->a->end_ns - pair->a->start_ns);
        double b = 1e-9 * (double)(pair->b->end_ns - pair->b->start_ns);
        mcp_table_cell(table, "%s", mcp_compare_op_text(arena, pair));
        mcp_table_cell(table, "%d", pair->rank);
        mcp_table_cell(table, "%d", pair->a->slot);
        mcp_table_cell(table, "%s", seconds(arena, a));
        mcp_table_cell(table, "%s", seconds(arena, b));
        mcp_table_cell(table, "%s", signed_seconds(arena, b - a));
    }
    if (result->num_worst > 0)
        mcp_report_table(report, MCP_REPORT_TABLE, "Ops farthest apart", table);
}

static void add_ranks(struct mcp_report *report, const struct mcp_compare *result)
{
    enum { MOST_LISTED = 256 };
    static const struct mcp_column columns[] = {{"rank", "", MCP_RIGHT},
                                                {"exposed, A", "", MCP_RIGHT},
                                                {"exposed, B", "", MCP_RIGHT},
                                                {"bubble, A", "", MCP_RIGHT},
                                                {"bubble, B", "", MCP_RIGHT}};
    struct mcp_arena *arena = report->arena;
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    int shown = result->num_ranks < MOST_LISTED ? result->num_ranks : MOST_LISTED;
    for (int i = 0; i < shown; i++) {
        const struct mcp_account *a = &result->accounts_a[i], *b = &result->accounts_b[i];
        mcp_table_cell(table, "%d", result->ranks[i]);
        mcp_table_cell(table, "%s", mcp_report_percent(arena, mcp_account_exposed_comm_frac(a)));
        mcp_table_cell(table, "%s", mcp_report_percent(arena, mcp_account_exposed_comm_frac(b)));
        mcp_table_cell(table, "%s", mcp_report_percent(arena, mcp_account_bubble_frac(a)));
        mcp_table_cell(table, "%s", mcp_report_percent(arena, mcp_account_bubble_frac(b)));
    }
    mcp_report_table(report, MCP_REPORT_MORE,
                     shown < result->num_ranks
                         ? mcp_format(arena, "The first %d ranks of %d", shown, result->num_ranks)
                         : "Rank by rank",
                     table);
}

enum mcp_status mcp_compare_report_write(struct mcp_context *ctx, const char *path,
                                         const struct mcp_compare_view *view)
{
    struct mcp_arena *arena = ctx->arena;
    struct mcp_report report = mcp_report_new(
        arena, "Two timelines of a step",
        mcp_format(arena, "A: %s, %s · B: %s, %s", view->a.path, mcp_compare_side_kind(&view->a),
                   view->b.path, mcp_compare_side_kind(&view->b)));
    report.made_by = "made by mcpplan " MCP_VERSION " compare; differences are those of B from A";
    mcp_report_say(&report, MCP_REPORT_LEAD, MCP_TONE_PLAIN, mcp_compare_sentence(arena, view));
    add_checks(&report, view);
    add_figures(&report, view);
    add_accounts(&report, &view->result);
    add_gantts(&report, view);
    add_kinds(&report, &view->result);
    add_worst(&report, &view->result);
    add_ranks(&report, &view->result);
    return mcp_report_file_write(ctx, path, &report);
}
