/* cli/report_parts.c: files, questions and kinds of time in reports. */
#include "cli/report_parts.h"

#include "core/units.h"
#include "reports/html.h"
#include "reports/markdown.h"

#include <math.h>
#include <string.h>

/* The file */

static bool is_html(const char *path)
{
    return mcp_ends_with(path, ".html") || mcp_ends_with(path, ".htm");
}

enum mcp_status mcp_report_file_check(const char *path, struct mcp_error *err)
{
    if (is_html(path) || mcp_ends_with(path, ".md"))
        return MCP_OK;
    return mcp_fail(err, MCP_USAGE,
                    "--report writes a page or Markdown, as the file's name says: end it in .html "
                    "or .md");
}

enum mcp_status mcp_report_file_write(struct mcp_context *ctx, const char *path,
                                      const struct mcp_report *report)
{
    struct mcp_text out = mcp_text_new(ctx->arena);
    if (is_html(path))
        mcp_report_html(report, &out);
    else
        mcp_report_markdown(report, &out);
    MCP_TRY(mcp_file_replace(path, out.data, out.length, &ctx->err));
    mcp_note("wrote %s", mcp_printable(ctx->arena, path));
    return MCP_OK;
}

/* Words */

const char *mcp_report_times(struct mcp_arena *arena, const char *text)
{
    struct mcp_text out = mcp_text_new(arena);
    for (const char *at = text; *at != '\0'; at++) {
        bool times = mcp_starts_with(at, " x ");
        mcp_text_append(&out, times ? " ×" : at, times ? strlen(" ×") : 1);
        at += times;
    }
    return out.data;
}

static const char *machines_text(struct mcp_arena *arena, const struct mcp_cluster *cluster)
{
    struct mcp_text text = mcp_text_new(arena);
    for (int i = 0; i < mcp_cluster_num_pools(cluster); i++) {
        const struct mcp_cluster *pool = mcp_cluster_pool(cluster, i);
        mcp_text_add(&text, "%s%s × %s in %s node%s", i > 0 ? " and " : "",
                     mcp_show_integer(arena, mcp_pool_gpus(pool)), pool->gpu.name,
                     mcp_show_integer(arena, pool->num_nodes), pool->num_nodes == 1 ? "" : "s");
    }
    return text.data;
}

const char *mcp_report_question(struct mcp_arena *arena, const struct mcp_question *question)
{
    const struct mcp_job *job = question->job;
    return mcp_format(arena, "on %s · batch %s × %s tokens · %s · %s",
                      machines_text(arena, question->cluster),
                      mcp_show_integer(arena, job->global_batch_size),
                      mcp_show_integer(arena, job->sequence_length),
                      mcp_precision_names[job->precision], question->stack->name);
}

const char *const *mcp_report_stages(struct mcp_arena *arena, int stages)
{
    const char **names = MCP_ARRAY(arena, stages, const char *);
    for (int i = 0; i < stages; i++)
        names[i] = mcp_format(arena, "stage %d", i);
    return names;
}

const char *mcp_report_percent(struct mcp_arena *arena, double frac)
{
    return mcp_format(arena, "%.1f %%", 100 * frac);
}

void mcp_report_plain_figure(struct mcp_report *report, const char *label, const char *value,
                             const char *note)
{
    const struct mcp_report_figure figure = {label, value, note, NAN};
    mcp_report_figure(report, MCP_TONE_PLAIN, &figure);
}

/* Kinds of time */

/* The inks in the order of the kinds. */
static const struct mcp_report_part *cost_parts(struct mcp_arena *arena)
{
    struct mcp_report_part *parts = MCP_ARRAY(arena, MCP_NUM_COSTS, struct mcp_report_part);
    for (int i = 0; i < MCP_NUM_COSTS; i++)
        parts[i] = (struct mcp_report_part){mcp_cost_names[i], i % MCP_NUM_INKS};
    return parts;
}

void mcp_report_costs(struct mcp_report *report, const char *title, const char *const *rows,
                      const double *values, int num_rows)
{
    const struct mcp_report_bars bars = {
        title,       MCP_NUM_COSTS, num_rows, cost_parts(report->arena), rows, values,
        MCP_SECONDS, NAN,           ""};
    mcp_report_bars(report, &bars);
}

static const char *const cost_texts[MCP_NUM_COSTS] = {
    [MCP_COST_MATMUL] = "matrix products",
    [MCP_COST_ATTENTION] = "attention kernels",
    [MCP_COST_ELEMENTWISE] = "element-wise kernels, norms, casts: bound by memory",
    [MCP_COST_LAUNCH] = "start-up of kernels on the device",
    [MCP_COST_TENSOR] = "tensor-parallel collectives, as far as nothing hides them",
    [MCP_COST_CONTEXT] = "exchange of keys and values between context ranks, likewise",
    [MCP_COST_EXPERT] = "all-to-all between experts, likewise",
    [MCP_COST_PIPELINE] = "messages between stages, likewise",
    [MCP_COST_DATA] = "gradients and weights between replicas, likewise",
    [MCP_COST_OPTIMIZER] = "update of the weights",
    [MCP_COST_HOST] = "the device waits for its host",
    [MCP_COST_BUBBLE] = "a stage waits for one that has not sent yet",
};

void mcp_report_cost_table(struct mcp_report *report, const double cost_s[MCP_NUM_COSTS],
                           const double comm_s[MCP_NUM_COSTS], double step_s)
{
    static const struct mcp_column columns[] = {{"kind", "", MCP_LEFT},
                                                {"what it is", "", MCP_LEFT},
                                                {"in the step", "", MCP_RIGHT},
                                                {"share", "", MCP_RIGHT},
                                                {"in all, hidden too", "", MCP_RIGHT}};
    struct mcp_arena *arena = report->arena;
    struct mcp_table *table = mcp_table_new(arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        if (!(cost_s[i] > 0) && !(comm_s[i] > 0))
            continue;
        mcp_table_cell(table, "%s", mcp_cost_names[i]);
        mcp_table_cell(table, "%s", cost_texts[i]);
        mcp_table_cell(table, "%s", mcp_show(arena, cost_s[i], MCP_SECONDS));
        mcp_table_cell(table, "%s", mcp_report_percent(arena, cost_s[i] / step_s));
        mcp_table_cell(table, "%s", comm_s[i] > 0 ? mcp_show(arena, comm_s[i], MCP_SECONDS) : "");
    }
    mcp_report_table(report, MCP_REPORT_TABLE, "", table);
}
