/* cli/capacity_text.c: the answer of mcpplan capacity for people. */
#include "cli/capacity_view.h"
#include "core/units.h"
#include "reports/bars.h"
#include "reports/table.h"

#include <math.h>

static const double day_s = 86400, joules_per_mwh = 3.6e9;

static const char *days(struct mcp_arena *arena, double s)
{
    double count = s / day_s;
    if (count >= 99.95)
        return mcp_show_integer(arena, (int64_t)fmin(count + 0.5, 1e15));
    return mcp_format(arena, count < 0.1 ? "%.2g" : count < 9.995 ? "%.2f" : "%.1f", count);
}

static const char *money(struct mcp_arena *arena, double price)
{
    return isnan(price) ? "unknown" : mcp_show_count(arena, price);
}

/* Megawatt-hours, three digits at least. */
static const char *mwh_text(struct mcp_arena *arena, double joules)
{
    double mwh = joules / joules_per_mwh;
    if (isnan(mwh))
        return "?";
    return mwh < 999.5 ? mcp_format(arena, "%.3g", mwh)
                       : mcp_show_integer(arena, (int64_t)fmin(mwh + 0.5, 1e15));
}

/* A paragraph of its own. */
static void put_line(struct mcp_text *out, const struct mcp_style *style, const char *text)
{
    mcp_text_add(out, "  ");
    mcp_wrap(out, text, style->width - 2, 4);
    mcp_text_add(out, "\n");
}

const char *mcp_capacity_limits_text(struct mcp_arena *arena, const struct mcp_capacity_ask *ask)
{
    struct mcp_text text = mcp_text_new(arena);
    if (!isnan(ask->deadline_s))
        mcp_text_add(&text, " within %s days", days(arena, ask->deadline_s));
    if (!isnan(ask->budget))
        mcp_text_add(&text, " for at most %s", money(arena, ask->budget));
    if (!isnan(ask->power_watts))
        mcp_text_add(&text, " under %s", mcp_show(arena, ask->power_watts, MCP_WATTS));
    return text.data;
}

static void put_question(struct mcp_text *out, const struct mcp_style *style,
                         const struct mcp_capacity_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_question *question = &view->machines[0].question;
    const struct mcp_job *job = question->job;
    mcp_wrap(
        out,
        mcp_format(arena, "%s, %s tokens%s; batch %s x %s tokens, %s",
                   mcp_paint(arena, style, MCP_BOLD, mcp_printable(arena, question->model->name)),
                   mcp_show_count(arena, (double)view->ask->tokens),
                   mcp_capacity_limits_text(arena, view->ask),
                   mcp_show_integer(arena, job->global_batch_size),
                   mcp_show_integer(arena, job->sequence_length),
                   mcp_printable(arena, question->stack->name)),
        style->width, 2);
    mcp_text_add(out, "\n");
}

static const char *machines_text(struct mcp_arena *arena, const struct mcp_capacity_view *view,
                                 const struct mcp_capacity_row *row)
{
    const char *spares = row->spares > 0 ? mcp_format(arena, " and %s to spare",
                                                      mcp_show_integer(arena, row->spares))
                                         : "";
    return mcp_format(arena, "%s GPU%s: %s node%s of %s%s", mcp_show_integer(arena, row->gpus),
                      row->gpus == 1 ? "" : "s", mcp_show_integer(arena, row->nodes),
                      row->nodes == 1 ? "" : "s",
                      mcp_printable(arena, view->machines[row->machine].name), spares);
}

/* One line: how many of what, and how long. */
static const char *answer_text(struct mcp_arena *arena, const struct mcp_style *style,
                               const struct mcp_capacity_view *view,
                               const struct mcp_capacity_row *row)
{
    return mcp_format(arena, "%s; %s days (%s to %s)",
                      mcp_paint(arena, style, MCP_BOLD, machines_text(arena, view, row)),
                      days(arena, row->time_s), days(arena, row->low_s), days(arena, row->high_s));
}

static const char *plan_text(struct mcp_arena *arena, const struct mcp_capacity_row *row)
{
    const struct mcp_plan *p = &row->plan;
    return mcp_format(arena, "%dx%dx%dx%d", p->tensor_parallel, p->context_parallel,
                      p->pipeline_parallel, p->data_parallel);
}

static void put_time(struct mcp_text *out, const struct mcp_style *style,
                     const struct mcp_capacity_row *row)
{
    struct mcp_arena *arena = out->arena;
    put_line(out, style,
             mcp_format(arena,
                        "%s steps of %s sequences and %s = %s days without failures; MFU %.3f "
                        "x ETTR %.3f = goodput %.3f; tensor x context x pipeline x data %s",
                        mcp_show_integer(arena, row->steps),
                        mcp_show_integer(arena, row->global_batch_size),
                        mcp_show(arena, row->iteration_s, MCP_SECONDS), days(arena, row->busy_s),
                        row->model_flops_utilization, row->ettr,
                        row->model_flops_utilization * row->ettr, plan_text(arena, row)));
}

static void put_failures(struct mcp_text *out, const struct mcp_style *style,
                         const struct mcp_capacity_ask *ask, const struct mcp_capacity_row *row)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_leaks leaks = mcp_restart_leaks(&row->restart);
    const char *storage = mcp_format(
        arena, "%s each, %d kept: %s at %s", mcp_show(arena, row->checkpoint_bytes, MCP_BYTES),
        ask->checkpoint_keep, mcp_show(arena, row->storage_bytes, MCP_BYTES),
        mcp_show(arena, row->checkpoint_bytes_per_s, MCP_BYTES_PER_SECOND));
    if (isinf(row->restart.mttf_s)) {
        put_line(out, style, mcp_format(arena, "nothing fails; checkpoints are %s", storage));
        return;
    }
    put_line(out, style,
             mcp_format(arena,
                        "a failure every %s (%s: %g, %g to %g per 1,000 node-days); a checkpoint "
                        "every %s stalls %s; %s",
                        mcp_show(arena, row->restart.mttf_s, MCP_SECONDS), ask->failures.name,
                        ask->failures.rate, ask->failures.low, ask->failures.high,
                        mcp_show(arena, row->restart.interval_s, MCP_SECONDS),
                        mcp_show(arena, row->restart.stall_s, MCP_SECONDS), storage));
    put_line(out, style,
             mcp_format(arena,
                        "lost: %.1f %% saving, %.1f %% redoing, %.1f %% recovering (%s each)",
                        100 * leaks.stall_frac, 100 * leaks.redo_frac, 100 * leaks.recovery_frac,
                        mcp_show(arena, ask->recovery_s, MCP_SECONDS)));
}

static void put_money(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_capacity_view *view, const struct mcp_capacity_row *row)
{
    struct mcp_arena *arena = out->arena;
    const char *hint = mcp_format(arena, "price unknown: --price %s=X states one per GPU and hour",
                                  mcp_printable(arena, view->machines[row->machine].name));
    put_line(out, style,
             mcp_format(arena, "power %s at %g watts a watt of devices, energy %s; %s",
                        mcp_show(arena, row->site_watts, MCP_WATTS), view->ask->site_power_factor,
                        isnan(row->energy_joules)
                            ? "unknown"
                            : mcp_format(arena, "%s MWh", mwh_text(arena, row->energy_joules)),
                        isnan(row->price)
                            ? hint
                            : mcp_format(arena, "price %s, spares in", money(arena, row->price))));
}

static const char *order_text(enum mcp_capacity_order order)
{
    static const char *const texts[MCP_NUM_CAPACITY_ORDERS] = {
        [MCP_BY_PRICE] = "costs least",
        [MCP_BY_ENERGY] = "needs the least energy; prices are unknown",
        [MCP_BY_GPUS] = "needs the fewest devices; prices and powers are unknown",
        [MCP_BY_TIME] = "is done first",
    };
    return texts[order];
}

static void put_answer(struct mcp_text *out, const struct mcp_style *style,
                       const struct mcp_capacity_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_capacity *capacity = view->capacity;
    int answers = 0;
    if (capacity->best < 0) {
        put_line(out, style, mcp_paint(arena, style, MCP_RED, "no size meets that"));
        return;
    }
    const struct mcp_capacity_row *best = &capacity->rows[capacity->best];
    mcp_text_add(out, "\n");
    put_line(out, style, answer_text(arena, style, view, best));
    put_time(out, style, best);
    put_failures(out, style, view->ask, best);
    put_money(out, style, view, best);
    for (int i = 0; i < capacity->num_rows; i++) {
        const struct mcp_capacity_row *row = &capacity->rows[i];
        answers += row->answer;
        if (row->answer && row != best)
            put_line(out, style, mcp_format(arena, "or %s", answer_text(arena, style, view, row)));
    }
    if (answers > 1)
        put_line(out, style,
                 mcp_format(arena, "of these the first %s", order_text(capacity->order)));
}

static void add_word(struct mcp_text *text, bool add, const char *word)
{
    if (add)
        mcp_text_add(text, "%s%s", text->length > 0 ? ", " : "", word);
}

static const char *note_text(struct mcp_arena *arena, const struct mcp_capacity_row *row)
{
    struct mcp_text text = mcp_text_new(arena);
    add_word(&text, row->answer, "answer");
    add_word(&text, row->knee, "knee");
    add_word(&text, row->breaks[MCP_LIMIT_DEADLINE], "late");
    add_word(&text, row->breaks[MCP_LIMIT_BUDGET], "over budget");
    add_word(&text, row->breaks[MCP_LIMIT_POWER], "over power");
    add_word(&text, !row->proven, "unproven");
    return text.data;
}

static void put_row(struct mcp_table *table, struct mcp_arena *arena,
                    const struct mcp_capacity_row *row)
{
    mcp_table_cell(table, "%s", mcp_show_integer(arena, row->gpus));
    mcp_table_cell(table, "%s", mcp_show_integer(arena, row->spares));
    mcp_table_cell(table, "%s", mcp_show_integer(arena, row->global_batch_size));
    mcp_table_cell(table, "%s", plan_text(arena, row));
    mcp_table_cell(table, "%s", mcp_show(arena, row->iteration_s, MCP_SECONDS));
    mcp_table_cell(table, "%.3f", row->model_flops_utilization);
    mcp_table_cell(table, "%.3f", row->ettr);
    mcp_table_cell(table, "%s", days(arena, row->time_s));
    mcp_table_cell(table, "%s", mwh_text(arena, row->energy_joules));
    mcp_table_cell(table, "%s", isnan(row->price) ? "?" : money(arena, row->price));
    mcp_table_cell(table, "%s",
                   isnan(row->next_frac) ? "" : mcp_format(arena, "%.2f", row->next_frac));
    mcp_table_cell(table, "%s", note_text(arena, row));
    if (row->answer)
        mcp_table_paint_row(table, MCP_GREEN);
}

/* Sizes without a plan, each reason once: "192, 224: does not fit in memory". */
static void put_refused(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_capacity *capacity, int machine)
{
    struct mcp_arena *arena = out->arena;
    bool *said = MCP_ARRAY(arena, capacity->num_rows + 1, bool);
    for (int i = 0; i < capacity->num_rows; i++) {
        const char *reason = capacity->rows[i].reason;
        struct mcp_text sizes = mcp_text_new(arena);
        if (said[i] || reason == NULL || capacity->rows[i].machine != machine)
            continue;
        for (int k = i; k < capacity->num_rows; k++) {
            const struct mcp_capacity_row *row = &capacity->rows[k];
            if (row->machine != machine || !mcp_same(row->reason, reason))
                continue;
            said[k] = true;
            mcp_text_add(&sizes, "%s%s", k > i ? "; " : "", mcp_show_integer(arena, row->gpus));
        }
        put_line(out, style, mcp_format(arena, "%s: %s", sizes.data, mcp_printable(arena, reason)));
    }
}

/* How far from a knee the sizes end; NaN: there is a knee, or one size. */
static double last_step(const struct mcp_capacity *capacity, int machine)
{
    double last = (double)NAN;
    for (int i = 0; i < capacity->num_rows; i++) {
        const struct mcp_capacity_row *row = &capacity->rows[i];
        if (row->machine == machine && row->knee)
            return (double)NAN;
        if (row->machine == machine && !isnan(row->next_frac))
            last = row->next_frac;
    }
    return last;
}

static void put_table(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_capacity_view *view, int machine)
{
    static const struct mcp_column columns[] = {
        {"GPUs", "", MCP_RIGHT},      {"spare", "nodes", MCP_RIGHT},
        {"batch", "", MCP_RIGHT},     {"t x c x p x d", "", MCP_LEFT},
        {"iteration", "", MCP_RIGHT}, {"MFU", "", MCP_RIGHT},
        {"ETTR", "", MCP_RIGHT},      {"time", "days", MCP_RIGHT},
        {"energy", "MWh", MCP_RIGHT}, {"price", "", MCP_RIGHT},
        {"step", "pays", MCP_RIGHT},  {"", "", MCP_LEFT},
    };
    struct mcp_arena *arena = out->arena;
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < view->capacity->num_rows; i++)
        if (view->capacity->rows[i].machine == machine && view->capacity->rows[i].reason == NULL)
            put_row(table, arena, &view->capacity->rows[i]);
    mcp_heading(out, style, mcp_printable(arena, view->machines[machine].name));
    if (mcp_table_num_rows(table) > 0)
        mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
    put_refused(out, style, view->capacity, machine);
    double last = last_step(view->capacity, machine);
    if (!isnan(last))
        put_line(
            out, style,
            mcp_format(arena, "no knee: the last step still brings %.2f of what it should", last));
}

/* Days, all machines on one scale. */
static void put_chart(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_capacity_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_capacity *capacity = view->capacity;
    struct mcp_bar *bars = MCP_ARRAY(arena, capacity->num_rows + 1, struct mcp_bar);
    int count = 0;
    for (int i = 0; i < capacity->num_rows; i++) {
        const struct mcp_capacity_row *row = &capacity->rows[i];
        const char *name = mcp_printable(arena, view->machines[row->machine].name);
        if (row->reason == NULL)
            bars[count++] = (struct mcp_bar){
                .label = mcp_format(arena, "%s %s%s%s", name, mcp_show_integer(arena, row->gpus),
                                    row->answer ? " answer" : "", row->knee ? " knee" : ""),
                .value = row->time_s,
                .text = days(arena, row->time_s),
                .color = row->answer ? MCP_GREEN
                         : row->knee ? MCP_YELLOW
                                     : MCP_CYAN,
            };
    }
    if (count < 2)
        return;
    mcp_heading(out, style, "Days");
    mcp_bars_write(out, style, bars, count, 0);
}

static void put_notes(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_capacity_view *view)
{
    struct mcp_arena *arena = out->arena;
    const struct mcp_capacity_ask *ask = view->ask;
    mcp_heading(out, style, "Assumed");
    put_line(out, style,
             mcp_format(arena,
                        "step pays: what more GPUs bring of what they should, from one size "
                        "that divides well to the next; the knee is the last size before "
                        "it falls below %g",
                        ask->knee_frac));
    if (ask->batch_slack_frac > 0)
        put_line(out, style,
                 mcp_format(arena,
                            "a size that does not divide the batch may move it by %g %%; "
                            "--batch-slack 0 forbids that",
                            100 * ask->batch_slack_frac));
    put_line(out, style, mcp_format(arena, "failures: %s", ask->failures.source));
    put_line(out, style,
             mcp_format(arena,
                        "spares: enough with probability %g while a repair takes %s; they "
                        "are rented, and draw no power",
                        ask->spare_quantile, mcp_show(arena, ask->repair_s, MCP_SECONDS)));
    if (isnan(ask->checkpoint_bytes_per_s))
        put_line(
            out, style,
            "checkpoints are written at 0.122 GB/s a GPU (Llama 3: 2 TB/s of 16,384), and stall "
            "training that long; --checkpoint-bandwidth, --checkpoint-stall state yours");
}

void mcp_capacity_text(struct mcp_text *out, const struct mcp_style *style,
                       const struct mcp_capacity_view *view)
{
    put_question(out, style, view);
    if (view->capacity->interrupted)
        put_line(out, style,
                 mcp_paint(out->arena, style, MCP_YELLOW,
                           "interrupted: sizes are missing, and the answer may be another"));
    put_answer(out, style, view);
    for (int i = 0; i < view->num_machines; i++)
        put_table(out, style, view, i);
    put_chart(out, style, view);
    put_notes(out, style, view);
}

enum mcp_status mcp_capacity_fail(struct mcp_arena *arena, const struct mcp_capacity_view *view,
                                  struct mcp_error *err)
{
    const struct mcp_capacity_row *near = NULL;
    const struct mcp_capacity *capacity = view->capacity;
    const char *limits = mcp_capacity_limits_text(arena, view->ask);
    for (int i = 0; i < capacity->num_rows; i++) {
        const struct mcp_capacity_row *row = &capacity->rows[i];
        if (row->reason == NULL && (near == NULL || row->time_s < near->time_s))
            near = row;
    }
    if (capacity->interrupted && near == NULL)
        return mcp_fail(err, MCP_INFEASIBLE, "interrupted before a size was planned");
    if (near == NULL)
        return mcp_fail(err, MCP_INFEASIBLE, "no size that was tried has a plan%s%s",
                        capacity->num_rows > 0 ? ": " : "",
                        capacity->num_rows > 0 ? capacity->rows[capacity->num_rows - 1].reason
                                               : "");
    return mcp_fail(err, MCP_INFEASIBLE,
                    "no size that was tried trains %s tokens%s; the fastest, %s GPUs of %s, takes "
                    "%s days, draws %s and costs %s",
                    mcp_show_count(arena, (double)view->ask->tokens), limits,
                    mcp_show_integer(arena, near->gpus),
                    mcp_printable(arena, view->machines[near->machine].name),
                    days(arena, near->time_s), mcp_show(arena, near->site_watts, MCP_WATTS),
                    isnan(near->price) ? "an unknown price" : money(arena, near->price));
}
