/* cli/capacity_jobs_report.c: the answer of mcpplan capacity --jobs as a report. */
#include "cli/capacity_jobs.h"
#include "cli/commands.h"
#include "cli/report_parts.h"
#include "core/units.h"

#include <math.h>
#include <string.h>

static void add_points(struct mcp_report *report, struct mcp_capacity_lines lines)
{
    for (size_t i = 0; i < lines.count; i++)
        mcp_report_say(report, MCP_REPORT_POINT, MCP_TONE_PLAIN, lines.items[i]);
}

/* --- the answer --- */

static void add_figures(struct mcp_report *report, const struct mcp_jobs_view *j)
{
    struct mcp_arena *arena = report->arena;
    int64_t nodes = 0, gpus = 0;
    double watts = 0;
    for (int i = 0; i < j->problem.num_pools; i++) {
        nodes += j->answer.nodes[i];
        gpus += (int64_t)j->answer.nodes[i] * j->pool_facts[i].gpus_per_node;
        if (j->answer.nodes[i] > 0)
            watts += j->answer.nodes[i] * j->pool_facts[i].watts_per_node;
    }
    mcp_report_plain_figure(report, "Jobs", mcp_format(arena, "%d", j->problem.num_jobs),
                            "none is left out");
    mcp_report_plain_figure(
        report, "GPUs", mcp_show_integer(arena, gpus),
        mcp_format(arena, "%s nodes reserved, spares in", mcp_show_integer(arena, nodes)));
    mcp_report_plain_figure(
        report, "Days", mcp_capacity_days(arena, j->problem.horizon_s),
        mcp_format(arena, "in %d slot%s", j->problem.slots, j->problem.slots == 1 ? "" : "s"));
    mcp_report_plain_figure(report, j->answer.priced ? "Price" : "GPU-hours",
                            mcp_show_count(arena, j->answer.cost), mcp_jobs_cost_text(arena, j));
    mcp_report_plain_figure(
        report, "Power", isnan(watts) ? "unknown" : mcp_show(arena, watts, MCP_WATTS),
        mcp_format(arena, "of the site: %g a watt of devices", j->ask.site_power_factor));
}

/* --- jobs over time --- */

/* Names that have no room beside a bar are numbers of the table's rows. */
static const char *bar_name(struct mcp_arena *arena, const struct mcp_jobs_view *j, int job)
{
    const char *name = mcp_printable(arena, j->job_facts[job].name);
    return strlen(name) <= 14 ? name : mcp_format(arena, "job %d", job + 1);
}

/* A bar for each job: what it waits, then the pool that it runs on. */
static void add_times(struct mcp_report *report, const struct mcp_jobs_view *j)
{
    static const int inks[MCP_MOST_JOB_POOLS] = {1, 5, 9, 4, 8, 0, 6, 10};
    struct mcp_arena *arena = report->arena;
    int num_parts = j->problem.num_pools + 1;
    struct mcp_report_part *parts = MCP_ARRAY(arena, num_parts, struct mcp_report_part);
    const char **names = MCP_ARRAY(arena, j->problem.num_jobs, const char *);
    double *values = MCP_ARRAY(arena, j->problem.num_jobs * num_parts, double);
    parts[0] = (struct mcp_report_part){"waiting to start", 11};
    for (int i = 0; i < j->problem.num_pools; i++)
        parts[i + 1] =
            (struct mcp_report_part){mcp_printable(arena, j->pool_facts[i].name), inks[i]};
    for (int i = 0; i < j->problem.num_jobs; i++) {
        const struct mcp_jobs_option *option = &j->options[j->answer.option[i]];
        names[i] = bar_name(arena, j, i);
        values[i * num_parts] = mcp_jobs_start_s(j, i);
        values[i * num_parts + option->pool + 1] = option->time_s;
    }
    const struct mcp_report_bars bars = {.title = "When each job runs, and on which pool",
                                         .num_parts = num_parts,
                                         .num_rows = j->problem.num_jobs,
                                         .parts = parts,
                                         .rows = names,
                                         .values = values,
                                         .dimension = MCP_SECONDS,
                                         .limit = j->problem.horizon_s,
                                         .limit_text = "horizon"};
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "Where and when");
    mcp_report_bars(report, &bars);
    mcp_report_say(report, MCP_REPORT_NOTE, MCP_TONE_PLAIN,
                   "The expected time, failures and checkpoints in. The table has the interval.");
    mcp_report_table(report, MCP_REPORT_TABLE, "Jobs", mcp_jobs_table(arena, j));
    mcp_report_table(report, MCP_REPORT_TABLE, "Pools", mcp_jobs_pools_table(arena, j));
}

/* --- what it rests on --- */

static void add_asked(struct mcp_report *report, const struct mcp_jobs_view *j)
{
    static const struct mcp_column columns[] = {
        {"job", "", MCP_LEFT},     {"model", "", MCP_LEFT},      {"tokens", "", MCP_RIGHT},
        {"batch", "", MCP_RIGHT},  {"sequence", "", MCP_RIGHT},  {"precision", "", MCP_LEFT},
        {"stack", "", MCP_LEFT},   {"iteration", "", MCP_RIGHT}, {"uncertainty", "", MCP_RIGHT},
        {"weight", "", MCP_RIGHT},
    };
    struct mcp_arena *arena = report->arena;
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < j->problem.num_jobs; i++) {
        const struct mcp_question *question = j->questions[j->answer.option[i]];
        const struct mcp_capacity_row *row = &j->rows[j->answer.option[i]];
        mcp_table_cell(table, "%s", mcp_printable(arena, j->job_facts[i].name));
        mcp_table_cell(table, "%s", mcp_printable(arena, question->model->name));
        mcp_table_cell(table, "%s", mcp_show_count(arena, (double)j->jobs[i].tokens));
        mcp_table_cell(table, "%s", mcp_show_integer(arena, row->global_batch_size));
        mcp_table_cell(table, "%s", mcp_show_integer(arena, question->job->sequence_length));
        mcp_table_cell(table, "%s", mcp_precision_names[question->job->precision]);
        mcp_table_cell(table, "%s", mcp_printable(arena, question->stack->name));
        mcp_table_cell(table, "%s", mcp_show(arena, row->iteration_s, MCP_SECONDS));
        mcp_table_cell(table, "%s", mcp_report_percent(arena, row->uncertainty_frac));
        mcp_table_cell(table, "%g", j->job_facts[i].weight);
    }
    mcp_report_table(report, MCP_REPORT_TABLE, "", table);
}

static void add_machines(struct mcp_report *report, const struct mcp_jobs_view *j)
{
    static const struct mcp_column columns[] = {
        {"pool", "", MCP_LEFT},   {"machines", "", MCP_LEFT},
        {"GPU", "", MCP_LEFT},    {"of a node", "", MCP_RIGHT},
        {"watts", "", MCP_RIGHT}, {"price of a GPU and hour", "", MCP_RIGHT},
    };
    struct mcp_arena *arena = report->arena;
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < j->problem.num_pools; i++) {
        const struct mcp_cluster *machines = &j->pools[i].machines;
        mcp_table_cell(table, "%s", mcp_printable(arena, j->pool_facts[i].name));
        mcp_table_cell(table, "%s", mcp_printable(arena, machines->name));
        mcp_table_cell(table, "%s", mcp_printable(arena, machines->gpu.name));
        mcp_table_cell(table, "%d", machines->gpus_per_node);
        mcp_table_cell(table, "%s", mcp_capacity_known(arena, machines->gpu.power_watts));
        mcp_table_cell(table, "%s", mcp_capacity_known(arena, machines->gpu.price_per_gpu_hour));
    }
    mcp_report_table(report, MCP_REPORT_TABLE, "", table);
}

enum mcp_status mcp_jobs_report_write(struct mcp_context *ctx, const char *path,
                                      const struct mcp_jobs_view *j)
{
    struct mcp_arena *arena = ctx->arena;
    const struct mcp_jobs_problem *p = &j->problem;
    struct mcp_report report = mcp_report_new(
        arena,
        mcp_format(arena, "%d job%s on %d pool%s of machines", p->num_jobs,
                   p->num_jobs == 1 ? "" : "s", p->num_pools, p->num_pools == 1 ? "" : "s"),
        mcp_format(arena, "within %s days · in %d slot%s · failures: %s",
                   mcp_capacity_days(arena, p->horizon_s), p->slots, p->slots == 1 ? "" : "s",
                   j->ask.failures.name));
    report.made_by =
        "made by mcpplan " MCP_VERSION " capacity; every number is a prediction unless it says "
        "otherwise";
    mcp_report_say(&report, MCP_REPORT_LEAD, MCP_TONE_PLAIN, mcp_jobs_summary(arena, j));
    if (j->interrupted)
        mcp_report_say(&report, MCP_REPORT_PROSE, MCP_TONE_WARN,
                       "interrupted: sizes are missing, and the answer may be another");
    add_figures(&report, j);
    add_times(&report, j);
    mcp_report_say(&report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "What it rests on");
    add_points(&report, mcp_jobs_assumptions(arena, j));
    add_asked(&report, j);
    add_machines(&report, j);
    return mcp_report_file_write(ctx, path, &report);
}
