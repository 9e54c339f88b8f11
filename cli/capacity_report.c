/* cli/capacity_report.c: the answer of mcpplan capacity as a report. */
#include "cli/capacity_view.h"
#include "cli/commands.h"
#include "cli/report_parts.h"
#include "core/units.h"

#include <math.h>
#include <string.h>

static const double day_s = 86400;

static void add_points(struct mcp_report *report, struct mcp_capacity_lines lines)
{
    for (size_t i = 0; i < lines.count; i++)
        mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN, lines.items[i]);
}

/* --- the answer --- */

static void add_figures(struct mcp_report *report, const struct mcp_capacity_view *view,
                        const struct mcp_capacity_row *row)
{
    struct mcp_arena *arena = report->arena;
    mcp_report_plain_figure(report, "GPUs", mcp_show_integer(arena, row->gpus),
                            mcp_format(arena, "%s nodes, %s to spare",
                                       mcp_show_integer(arena, row->nodes),
                                       mcp_show_integer(arena, row->spares)));
    mcp_report_plain_figure(report, "Days", mcp_capacity_days(arena, row->time_s),
                            mcp_format(arena, "%s to %s", mcp_capacity_days(arena, row->low_s),
                                       mcp_capacity_days(arena, row->high_s)));
    mcp_report_plain_figure(
        report, "MFU", mcp_report_percent(arena, row->model_flops_utilization),
        mcp_format(arena, "%s an iteration", mcp_show(arena, row->iteration_s, MCP_SECONDS)));
    mcp_report_plain_figure(report, "ETTR", mcp_report_percent(arena, row->ettr),
                            "of the time is not lost to failures");
    mcp_report_plain_figure(report, "Price", mcp_capacity_money(arena, row->price),
                            isnan(row->price) ? mcp_format(arena, "--price %s=X states one",
                                                           view->machines[row->machine].name)
                                              : "spares in");
    mcp_report_plain_figure(
        report, "Power",
        isnan(row->site_watts) ? "unknown" : mcp_show(arena, row->site_watts, MCP_WATTS),
        mcp_format(arena, "of the site: %g a watt of devices", view->ask->site_power_factor));
}

static void add_answer(struct mcp_report *report, const struct mcp_capacity_view *view)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_capacity *capacity = view->capacity;
    const struct mcp_capacity_row *best = &capacity->rows[capacity->best];
    int answers = 0;
    mcp_report_say(report, MCP_REPORT_LEAD, MCP_TONE_PLAIN,
                   mcp_capacity_answer_text(arena, view, best));
    if (capacity->interrupted)
        mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_WARN,
                       "interrupted: sizes are missing, and the answer may be another");
    add_figures(report, view, best);
    add_points(report, mcp_capacity_facts(arena, view, best));
    for (int i = 0; i < capacity->num_rows; i++) {
        answers += capacity->rows[i].answer;
        if (capacity->rows[i].answer && i != capacity->best)
            mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
                           mcp_format(arena, "or %s",
                                      mcp_capacity_answer_text(arena, view, &capacity->rows[i])));
    }
    if (answers > 1)
        mcp_report_say(
            report, MCP_REPORT_POINT, MCP_TONE_PLAIN,
            mcp_format(arena, "of these the first %s", mcp_capacity_order_text(capacity->order)));
}

/* --- days over sizes --- */

static struct mcp_report_curve curve_of(struct mcp_arena *arena,
                                        const struct mcp_capacity_view *view, int machine)
{
    static const int inks[] = {1, 5, 9, 4, 8, 0, 6, 10};
    const struct mcp_capacity *capacity = view->capacity;
    struct mcp_report_point *points =
        MCP_ARRAY(arena, capacity->num_rows + 1, struct mcp_report_point);
    struct mcp_report_curve curve = {view->machines[machine].name,
                                     inks[machine % (int)MCP_COUNT_OF(inks)], 0, points};
    for (int i = 0; i < capacity->num_rows; i++) {
        const struct mcp_capacity_row *row = &capacity->rows[i];
        if (row->machine != machine || row->reason != NULL || !(row->time_s > 0))
            continue;
        points[curve.num_points++] = (struct mcp_report_point){
            row->gpus, row->time_s / day_s, row->low_s / day_s, row->high_s / day_s,
            row->answer && row->knee ? "answer, the knee"
            : row->answer            ? "answer"
            : row->knee              ? "knee"
                                     : ""};
    }
    return curve;
}

static void add_curves(struct mcp_report *report, const struct mcp_capacity_view *view)
{
    struct mcp_arena *arena = report->arena;
    struct mcp_report_curve *list = MCP_ARRAY(arena, view->num_machines, struct mcp_report_curve);
    struct mcp_report_curves curves = {.title =
                                           "Days by number of GPUs, failures and checkpoints in",
                                       .x_name = "GPUs",
                                       .y_name = "days",
                                       .curves = list,
                                       .limit = view->ask->deadline_s / day_s,
                                       .limit_text = "deadline"};
    for (int i = 0; i < view->num_machines; i++) {
        list[curves.num_curves] = curve_of(arena, view, i);
        curves.num_curves += list[curves.num_curves].num_points > 0;
    }
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "How many, how long");
    mcp_report_curves(report, &curves);
    mcp_report_say(report, MCP_REPORT_NOTE, MCP_TONE_PLAIN,
                   "Both scales are powers: twice as far down for twice as far right is twice the "
                   "speed of twice the GPUs. Bands are the stated intervals.");
}

static void add_sizes(struct mcp_report *report, const struct mcp_capacity_view *view)
{
    struct mcp_arena *arena = report->arena;
    for (int i = 0; i < view->num_machines; i++) {
        const char *knee = mcp_capacity_knee_text(arena, view->capacity, i);
        mcp_report_table(report, MCP_REPORT_TABLE, view->machines[i].name,
                         mcp_capacity_table(arena, view->capacity, i));
        add_points(report, mcp_capacity_refused(arena, view->capacity, i));
        if (knee != NULL)
            mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN, knee);
    }
}

/* --- what failures take --- */

enum { TRAINING, SAVING, REDOING, RECOVERING, NUM_PARTS };
static const struct mcp_report_part time_parts[NUM_PARTS] = {
    [TRAINING] = {"training", 1},
    [SAVING] = {"saving checkpoints", 9},
    [REDOING] = {"redoing what was lost", 5},
    [RECOVERING] = {"recovering", 8},
};

static void fill_time(const struct mcp_capacity_row *row, double *values)
{
    const struct mcp_leaks leaks = mcp_restart_leaks(&row->restart);
    values[SAVING] = leaks.stall_frac * row->time_s;
    values[REDOING] = leaks.redo_frac * row->time_s;
    values[RECOVERING] = leaks.recovery_frac * row->time_s;
    values[TRAINING] = row->time_s - values[SAVING] - values[REDOING] - values[RECOVERING];
}

/* "336 GPUs", of several kinds of machines "336 dgx-h100" where that is short. */
static const char *size_text(struct mcp_arena *arena, const struct mcp_capacity_view *view,
                             const struct mcp_capacity_row *row)
{
    const char *name = view->machines[row->machine].name;
    bool named = view->num_machines > 1 && strlen(name) <= 10;
    return mcp_format(arena, "%s %s", mcp_show_integer(arena, row->gpus), named ? name : "GPUs");
}

/* Of every answer and knee. */
static void add_failures(struct mcp_report *report, const struct mcp_capacity_view *view)
{
    struct mcp_arena *arena = report->arena;
    const struct mcp_capacity *capacity = view->capacity;
    const char **rows = MCP_ARRAY(arena, capacity->num_rows, const char *);
    double *values = MCP_ARRAY(arena, capacity->num_rows * NUM_PARTS, double);
    int count = 0;
    for (int i = 0; i < capacity->num_rows; i++) {
        const struct mcp_capacity_row *row = &capacity->rows[i];
        if (row->reason != NULL || !(row->answer || row->knee))
            continue;
        fill_time(row, values + (size_t)count * NUM_PARTS);
        rows[count++] = size_text(arena, view, row);
    }
    const struct mcp_report_bars bars = {"What the time is, of the answers and of knees",
                                         NUM_PARTS,
                                         count,
                                         time_parts,
                                         rows,
                                         values,
                                         MCP_SECONDS,
                                         NAN,
                                         ""};
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "What failures take");
    mcp_report_bars(report, &bars);
    mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN,
                   mcp_format(arena, "Failures: %s.", view->ask->failures.source));
}

/* --- what it rests on --- */

static void add_machines(struct mcp_report *report, const struct mcp_capacity_view *view)
{
    static const struct mcp_column columns[] = {{"machines", "", MCP_LEFT},
                                                {"GPU", "", MCP_LEFT},
                                                {"of a node", "", MCP_RIGHT},
                                                {"watts", "", MCP_RIGHT},
                                                {"price of a GPU and hour", "", MCP_RIGHT}};
    struct mcp_arena *arena = report->arena;
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < view->num_machines; i++) {
        const struct mcp_cluster *cluster = view->machines[i].question.cluster;
        for (int k = 0; k < mcp_cluster_num_pools(cluster); k++) {
            const struct mcp_cluster *pool = mcp_cluster_pool(cluster, k);
            mcp_table_cell(table, "%s", view->machines[i].name);
            mcp_table_cell(table, "%s", pool->gpu.name);
            mcp_table_cell(table, "%d", pool->gpus_per_node);
            mcp_table_cell(table, "%s", mcp_capacity_known(arena, pool->gpu.power_watts));
            mcp_table_cell(table, "%s", mcp_capacity_known(arena, pool->gpu.price_per_gpu_hour));
        }
    }
    mcp_report_table(report, MCP_REPORT_TABLE, "", table);
}

enum mcp_status mcp_capacity_report_write(struct mcp_context *ctx, const char *path,
                                          const struct mcp_capacity_view *view)
{
    struct mcp_arena *arena = ctx->arena;
    const struct mcp_question *question = &view->machines[0].question;
    struct mcp_report report = mcp_report_new(
        arena, question->model->name,
        mcp_format(arena, "%s tokens%s · batch %s × %s tokens · %s · %s",
                   mcp_show_count(arena, (double)view->ask->tokens),
                   mcp_capacity_limits_text(arena, view->ask),
                   mcp_show_integer(arena, question->job->global_batch_size),
                   mcp_show_integer(arena, question->job->sequence_length),
                   mcp_precision_names[question->job->precision], question->stack->name));
    report.made_by =
        "made by mcpplan " MCP_VERSION " capacity; every number is a prediction unless it says "
        "otherwise";
    add_answer(&report, view);
    add_curves(&report, view);
    add_sizes(&report, view);
    add_failures(&report, view);
    mcp_report_say(&report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "What it rests on");
    add_points(&report, mcp_capacity_assumptions(arena, view));
    add_machines(&report, view);
    return mcp_report_file_write(ctx, path, &report);
}
