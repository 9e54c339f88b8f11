/* cli/capacity_words.c: what the text and the report of mcpplan capacity say alike. */
#include "cli/capacity_view.h"
#include "core/units.h"

#include <math.h>

static const double day_s = 86400, joules_per_mwh = 3.6e9;

const char *mcp_capacity_days(struct mcp_arena *arena, double s)
{
    double count = s / day_s;
    if (count >= 99.95)
        return mcp_show_integer(arena, (int64_t)fmin(count + 0.5, 1e15));
    return mcp_format(arena, count < 0.1 ? "%.2g" : count < 9.995 ? "%.2f" : "%.1f", count);
}

const char *mcp_capacity_money(struct mcp_arena *arena, double price)
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

const char *mcp_capacity_limits_text(struct mcp_arena *arena, const struct mcp_capacity_ask *ask)
{
    struct mcp_text text = mcp_text_new(arena);
    if (!isnan(ask->deadline_s))
        mcp_text_add(&text, " within %s days", mcp_capacity_days(arena, ask->deadline_s));
    if (!isnan(ask->budget))
        mcp_text_add(&text, " for at most %s", mcp_capacity_money(arena, ask->budget));
    if (!isnan(ask->power_watts))
        mcp_text_add(&text, " under %s", mcp_show(arena, ask->power_watts, MCP_WATTS));
    return text.data;
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

const char *mcp_capacity_answer_text(struct mcp_arena *arena, const struct mcp_capacity_view *view,
                                     const struct mcp_capacity_row *row)
{
    return mcp_format(arena, "%s; %s days (%s to %s)", machines_text(arena, view, row),
                      mcp_capacity_days(arena, row->time_s), mcp_capacity_days(arena, row->low_s),
                      mcp_capacity_days(arena, row->high_s));
}

const char *mcp_capacity_plan_text(struct mcp_arena *arena, const struct mcp_capacity_row *row)
{
    const struct mcp_plan *p = &row->plan;
    return mcp_format(arena, "%dx%dx%dx%d", p->tensor_parallel, p->context_parallel,
                      p->pipeline_parallel, p->data_parallel);
}

const char *mcp_capacity_known(struct mcp_arena *arena, double value)
{
    return isnan(value) ? "unknown" : mcp_format(arena, "%.4g", value);
}

void mcp_capacity_line(struct mcp_capacity_lines *lines, const char *text)
{
    lines->items =
        mcp_grow(lines->arena, lines->items, lines->count, &lines->capacity, sizeof *lines->items);
    lines->items[lines->count++] = text;
}

/* --- an answer --- */

static void add_time(struct mcp_capacity_lines *lines, const struct mcp_capacity_row *row)
{
    struct mcp_arena *arena = lines->arena;
    mcp_capacity_line(
        lines,
        mcp_format(arena,
                   "%s steps of %s sequences and %s = %s days without failures; MFU %.3f "
                   "x ETTR %.3f = goodput %.3f; tensor x context x pipeline x data %s",
                   mcp_show_integer(arena, row->steps),
                   mcp_show_integer(arena, row->global_batch_size),
                   mcp_show(arena, row->iteration_s, MCP_SECONDS),
                   mcp_capacity_days(arena, row->busy_s), row->model_flops_utilization, row->ettr,
                   row->model_flops_utilization * row->ettr, mcp_capacity_plan_text(arena, row)));
}

static void add_failures(struct mcp_capacity_lines *lines, const struct mcp_capacity_ask *ask,
                         const struct mcp_capacity_row *row)
{
    struct mcp_arena *arena = lines->arena;
    const struct mcp_leaks leaks = mcp_restart_leaks(&row->restart);
    const char *storage = mcp_format(
        arena, "%s each, %d kept: %s at %s", mcp_show(arena, row->checkpoint_bytes, MCP_BYTES),
        ask->checkpoint_keep, mcp_show(arena, row->storage_bytes, MCP_BYTES),
        mcp_show(arena, row->checkpoint_bytes_per_s, MCP_BYTES_PER_SECOND));
    if (isinf(row->restart.mttf_s)) {
        mcp_capacity_line(lines, mcp_format(arena, "nothing fails; checkpoints are %s", storage));
        return;
    }
    mcp_capacity_line(
        lines, mcp_format(arena,
                          "a failure every %s (%s: %g, %g to %g per 1,000 node-days); a checkpoint "
                          "every %s stalls %s; %s",
                          mcp_show(arena, row->restart.mttf_s, MCP_SECONDS), ask->failures.name,
                          ask->failures.rate, ask->failures.low, ask->failures.high,
                          mcp_show(arena, row->restart.interval_s, MCP_SECONDS),
                          mcp_show(arena, row->restart.stall_s, MCP_SECONDS), storage));
    mcp_capacity_line(
        lines,
        mcp_format(arena, "lost: %.1f %% saving, %.1f %% redoing, %.1f %% recovering (%s each)",
                   100 * leaks.stall_frac, 100 * leaks.redo_frac, 100 * leaks.recovery_frac,
                   mcp_show(arena, ask->recovery_s, MCP_SECONDS)));
}

static void add_money(struct mcp_capacity_lines *lines, const struct mcp_capacity_view *view,
                      const struct mcp_capacity_row *row)
{
    struct mcp_arena *arena = lines->arena;
    const char *hint = mcp_format(arena, "price unknown: --price %s=X states one per GPU and hour",
                                  mcp_printable(arena, view->machines[row->machine].name));
    mcp_capacity_line(
        lines, mcp_format(arena, "power %s at %g watts a watt of devices, energy %s; %s",
                          mcp_show(arena, row->site_watts, MCP_WATTS), view->ask->site_power_factor,
                          isnan(row->energy_joules)
                              ? "unknown"
                              : mcp_format(arena, "%s MWh", mwh_text(arena, row->energy_joules)),
                          isnan(row->price) ? hint
                                            : mcp_format(arena, "price %s, spares in",
                                                         mcp_capacity_money(arena, row->price))));
}

struct mcp_capacity_lines mcp_capacity_facts(struct mcp_arena *arena,
                                             const struct mcp_capacity_view *view,
                                             const struct mcp_capacity_row *row)
{
    struct mcp_capacity_lines lines = {.arena = arena};
    add_time(&lines, row);
    add_failures(&lines, view->ask, row);
    add_money(&lines, view, row);
    return lines;
}

const char *mcp_capacity_order_text(enum mcp_capacity_order order)
{
    static const char *const texts[MCP_NUM_CAPACITY_ORDERS] = {
        [MCP_BY_PRICE] = "costs least",
        [MCP_BY_ENERGY] = "needs the least energy; not all prices are known",
        [MCP_BY_GPUS] = "needs the fewest devices; not all prices and powers are known",
        [MCP_BY_TIME] = "is done first",
    };
    return texts[order];
}

/* --- all sizes --- */

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
    mcp_table_cell(table, "%s", mcp_capacity_plan_text(arena, row));
    mcp_table_cell(table, "%s", mcp_show(arena, row->iteration_s, MCP_SECONDS));
    mcp_table_cell(table, "%.3f", row->model_flops_utilization);
    mcp_table_cell(table, "%.3f", row->ettr);
    mcp_table_cell(table, "%s", mcp_capacity_days(arena, row->time_s));
    mcp_table_cell(table, "%s", mwh_text(arena, row->energy_joules));
    mcp_table_cell(table, "%s", isnan(row->price) ? "?" : mcp_capacity_money(arena, row->price));
    mcp_table_cell(table, "%s",
                   isnan(row->next_frac) ? "" : mcp_format(arena, "%.2f", row->next_frac));
    mcp_table_cell(table, "%s", note_text(arena, row));
    if (row->answer)
        mcp_table_paint_row(table, MCP_GREEN);
}

struct mcp_table *mcp_capacity_table(struct mcp_arena *arena, const struct mcp_capacity *capacity,
                                     int machine)
{
    static const struct mcp_column columns[] = {
        {"GPUs", "", MCP_RIGHT},      {"spare", "nodes", MCP_RIGHT},
        {"batch", "", MCP_RIGHT},     {"t x c x p x d", "", MCP_LEFT},
        {"iteration", "", MCP_RIGHT}, {"MFU", "", MCP_RIGHT},
        {"ETTR", "", MCP_RIGHT},      {"time", "days", MCP_RIGHT},
        {"energy", "MWh", MCP_RIGHT}, {"price", "", MCP_RIGHT},
        {"step", "pays", MCP_RIGHT},  {"", "", MCP_LEFT},
    };
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < capacity->num_rows; i++)
        if (capacity->rows[i].machine == machine && capacity->rows[i].reason == NULL)
            put_row(table, arena, &capacity->rows[i]);
    return table;
}

/* Sizes without a plan, each reason once: "192, 224: does not fit in memory". */
struct mcp_capacity_lines mcp_capacity_refused(struct mcp_arena *arena,
                                               const struct mcp_capacity *capacity, int machine)
{
    struct mcp_capacity_lines lines = {.arena = arena};
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
        mcp_capacity_line(&lines,
                          mcp_format(arena, "%s: %s", sizes.data, mcp_printable(arena, reason)));
    }
    return lines;
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

const char *mcp_capacity_knee_text(struct mcp_arena *arena, const struct mcp_capacity *capacity,
                                   int machine)
{
    double last = last_step(capacity, machine);
    return isnan(last)
               ? NULL
               : mcp_format(arena, "no knee: the last step still brings %.2f of what it should",
                            last);
}

/* --- assumptions --- */

/* "tensor_parallel 8, microbatch_size 1..2"; "" when nothing is pinned or bounded. */
static const char *pins_text(struct mcp_arena *arena, const struct mcp_plan_space *space)
{
    struct mcp_text text = mcp_text_new(arena);
    for (int knob = 0; knob < MCP_NUM_KNOBS; knob++) {
        const struct mcp_interval *asked = &space->knobs[knob];
        const char *low = mcp_knob_text(arena, (enum mcp_knob)knob, asked->low);
        if (asked->given)
            mcp_text_add(&text, "%s%s %s%s", text.length > 0 ? ", " : "", mcp_knob_names[knob], low,
                         asked->high > asked->low
                             ? mcp_format(arena, "..%s",
                                          mcp_knob_text(arena, (enum mcp_knob)knob, asked->high))
                             : "");
    }
    return text.data;
}

void mcp_capacity_run_assumptions(struct mcp_capacity_lines *lines,
                                  const struct mcp_capacity_ask *ask)
{
    if (ask->batch_slack_frac > 0)
        mcp_capacity_line(lines,
                          mcp_format(lines->arena,
                                     "a size that does not divide the batch may move it by %g %%; "
                                     "--batch-slack 0 forbids that",
                                     100 * ask->batch_slack_frac));
    mcp_capacity_line(lines, mcp_format(lines->arena, "failures: %s", ask->failures.source));
    mcp_capacity_line(
        lines, mcp_format(lines->arena,
                          "spares: enough with probability %g while a repair takes %s; they "
                          "are rented, and draw no power",
                          ask->spare_quantile, mcp_show(lines->arena, ask->repair_s, MCP_SECONDS)));
    if (isnan(ask->checkpoint_bytes_per_s))
        mcp_capacity_line(
            lines,
            "checkpoints are written at 0.122 GB/s a GPU (Llama 3: 2 TB/s of 16,384), and stall "
            "training that long; --checkpoint-bandwidth, --checkpoint-stall state yours");
}

struct mcp_capacity_lines mcp_capacity_assumptions(struct mcp_arena *arena,
                                                   const struct mcp_capacity_view *view)
{
    struct mcp_capacity_lines lines = {.arena = arena};
    const struct mcp_capacity_ask *ask = view->ask;
    const char *pins = pins_text(arena, view->space);
    if (*pins != '\0')
        mcp_capacity_line(&lines, mcp_format(arena, "every plan has %s, as asked", pins));
    mcp_capacity_line(&lines, "ETTR, the effective training time ratio: of the time, what saving "
                              "and failures leave");
    mcp_capacity_line(
        &lines, mcp_format(arena,
                           "step pays: what more GPUs bring of what they should, from one size "
                           "that divides well to the next; the knee is the last size before "
                           "it falls below %g",
                           ask->knee_frac));
    mcp_capacity_run_assumptions(&lines, ask);
    return lines;
}
