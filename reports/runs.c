/* reports/runs.c: a table of published runs, opened and read row by row. */
#include "reports/runs.h"

#include "core/preset.h"
#include "reports/runs_row.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static const char *const needed_columns[] = {"id", "source", "gpu", "gpus", "model", "layers",
                                             "tp", "pp",     "dp",  "mbs",  "gbs"};

/* Cells ------------------------------------------------------------------- */

const char *mcp_row_cell(const struct mcp_run_row *row, const char *column)
{
    return mcp_csv_cell(&row->runs->csv, row->index, column);
}

bool mcp_row_has(const struct mcp_run_row *row, const char *column)
{
    return mcp_row_cell(row, column)[0] != '\0';
}

enum mcp_status mcp_row_int(const struct mcp_run_row *row, const char *column, int otherwise,
                            int *out, struct mcp_error *err)
{
    int64_t value;
    *out = otherwise;
    if (!mcp_row_has(row, column))
        return MCP_OK;
    if (!mcp_parse_int64(mcp_row_cell(row, column), &value) || value < 0 || value > INT32_MAX)
        return mcp_fail(err, MCP_INVALID, "%s \"%.40s\" is no whole number from 0 on", column,
                        mcp_row_cell(row, column));
    *out = (int)value;
    return MCP_OK;
}

enum mcp_status mcp_row_need(const struct mcp_run_row *row, const char *column, int *out,
                             struct mcp_error *err)
{
    if (!mcp_row_has(row, column))
        return mcp_fail(err, MCP_INVALID, "%s is not stated", column);
    MCP_TRY(mcp_row_int(row, column, 0, out, err));
    if (*out < 1)
        return mcp_fail(err, MCP_INVALID, "%s=%d is not at least 1", column, *out);
    return MCP_OK;
}

void mcp_row_note(struct mcp_run_row *row, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = mcp_vformat(row->arena, format, args);
    va_end(args);
    mcp_text_add(&row->note, "%s%s", row->note.length > 0 ? "; " : "", text);
}

bool mcp_row_says(const struct mcp_run_row *row, const char *column, const char *part)
{
    return mcp_contains_ignoring_case(mcp_row_cell(row, column), part);
}

bool mcp_number_before(const char *text, const char *unit, int *out)
{
    const char *end = strstr(text, unit);
    if (end == NULL)
        return false;
    while (end > text && end[-1] == ' ')
        end--;
    const char *begin = end;
    while (begin > text && isdigit((unsigned char)begin[-1]))
        begin--;
    if (begin == end || end - begin > 6)
        return false;
    for (*out = 0; begin < end; begin++)
        *out = 10 * *out + (*begin - '0');
    return true;
}

/* Presets ----------------------------------------------------------------- */

/* The file that stands for a built-in one, or its name. */
static const char *preset_path(const struct mcp_runs *runs, const char *folder, const char *name)
{
    if (runs->presets == NULL)
        return name;
    const char *path = mcp_format(runs->arena, "%s/%s/%s.json", runs->presets, folder, name);
    return access(path, R_OK) == 0 ? path : name;
}

static enum mcp_status load_gpus(struct mcp_runs *runs, struct mcp_error *err)
{
    const size_t count = mcp_preset_count("gpus");
    runs->gpus = MCP_ARRAY(runs->arena, count, struct mcp_gpu);
    for (size_t i = 0; i < count; i++) {
        const char *path = preset_path(runs, "gpus", mcp_preset_at("gpus", i)->name);
        MCP_TRY(mcp_gpu_load(runs->arena, path, &runs->gpus[i], err));
    }
    runs->num_gpus = (int)count;
    return MCP_OK;
}

static enum mcp_status load_clusters(struct mcp_runs *runs, struct mcp_error *err)
{
    const size_t count = mcp_preset_count("topologies");
    runs->clusters = MCP_ARRAY(runs->arena, count, struct mcp_cluster);
    for (size_t i = 0; i < count; i++) {
        const char *name = mcp_preset_at("topologies", i)->name;
        MCP_TRY(mcp_cluster_load(runs->arena, name, &runs->clusters[i], err));
    }
    runs->num_clusters = (int)count;
    return MCP_OK;
}

static enum mcp_status load_stacks(struct mcp_runs *runs, struct mcp_error *err)
{
    const size_t count = mcp_preset_count("stacks");
    runs->stacks = MCP_ARRAY(runs->arena, count, struct mcp_stack);
    runs->stack_names = MCP_ARRAY(runs->arena, count, const char *);
    for (size_t i = 0; i < count; i++) {
        runs->stack_names[i] = mcp_preset_at("stacks", i)->name;
        const char *path = preset_path(runs, "stacks", runs->stack_names[i]);
        MCP_TRY(mcp_stack_load(runs->arena, path, &runs->stacks[i], err));
    }
    runs->num_stacks = (int)count;
    return MCP_OK;
}

static enum mcp_status check_columns(const struct mcp_csv *csv, struct mcp_error *err)
{
    for (size_t i = 0; i < MCP_COUNT_OF(needed_columns); i++)
        if (!mcp_csv_has_column(csv, needed_columns[i]))
            return mcp_fail(err, MCP_FORMAT, "%s: no column \"%s\"; a table of runs has one",
                            csv->path, needed_columns[i]);
    return MCP_OK;
}

enum mcp_status mcp_runs_open(struct mcp_arena *arena, const char *path, const char *presets,
                              struct mcp_runs **out, struct mcp_error *err)
{
    struct mcp_runs *runs = MCP_NEW(arena, struct mcp_runs);
    runs->arena = arena;
    runs->presets = presets;
    MCP_TRY(mcp_csv_read(arena, path, &runs->csv, err));
    MCP_TRY(check_columns(&runs->csv, err));
    MCP_TRY(load_gpus(runs, err));
    MCP_TRY(load_clusters(runs, err));
    MCP_TRY(load_stacks(runs, err));
    *out = runs;
    return MCP_OK;
}

const struct mcp_csv *mcp_runs_csv(const struct mcp_runs *runs)
{
    return &runs->csv;
}

int mcp_runs_count_fitted(struct mcp_arena *arena)
{
    struct mcp_runs runs = {.arena = arena};
    int fitted = 0;
    if (load_gpus(&runs, NULL) != MCP_OK || load_stacks(&runs, NULL) != MCP_OK)
        return 0;
    for (int i = 0; i < runs.num_gpus; i++)
        fitted += runs.gpus[i].num_fitted;
    for (int i = 0; i < runs.num_stacks; i++)
        fitted += runs.stacks[i].num_fitted;
    return fitted;
}

/* One run ----------------------------------------------------------------- */

static void read_labels(struct mcp_run_row *row, struct mcp_run *run)
{
    run->id = mcp_row_cell(row, "id");
    run->source = mcp_row_cell(row, "source");
    run->gpu = mcp_row_cell(row, "gpu");
    run->model_name = mcp_row_cell(row, "model");
    run->precision = mcp_row_cell(row, "precision");
    run->sequence = mcp_row_cell(row, "seq");
    run->gpus = mcp_row_cell(row, "gpus");
    run->global_batch = mcp_row_cell(row, "gbs");
    run->measured_s = (double)NAN;
    if (!mcp_csv_double(&row->runs->csv, row->index, "iteration_time_s", &run->measured_s) ||
        run->measured_s <= 0)
        run->measured_s = (double)NAN;
    run->complete = mcp_same(mcp_row_cell(row, "complete"), "1");
    run->trust = mcp_row_cell(row, "trust")[0];
}

static enum mcp_status check_workload(const struct mcp_run_row *row, struct mcp_error *err)
{
    const char *workload = mcp_row_cell(row, "workload");
    if (mcp_row_says(row, "id", "-lora")) /* tables of readings have no workload */
        workload = "lora";
    if (workload[0] != '\0' && !mcp_same(workload, "pretrain"))
        return mcp_fail(err, MCP_INVALID, "workload \"%.40s\" is not modelled, only pretrain is",
                        workload);
    return MCP_OK;
}

static enum mcp_status read_run(struct mcp_run_row *row, struct mcp_error *err)
{
    struct mcp_run *run = row->run;
    MCP_TRY(check_workload(row, err));
    MCP_TRY(mcp_run_read_stack(row, &run->stack, err));
    MCP_TRY(mcp_run_read_model(row, &run->model, err));
    MCP_TRY(mcp_run_read_cluster(row, &run->cluster, err));
    MCP_TRY(mcp_run_read_job(row, &run->job, err));
    return mcp_run_read_plan(row, &run->plan, err);
}

void mcp_run_read(struct mcp_arena *arena, struct mcp_runs *runs, size_t index, struct mcp_run *out)
{
    struct mcp_run_row row = {arena, runs, index, out, mcp_text_new(arena)};
    struct mcp_error err = {{0}};
    *out = (struct mcp_run){.note = ""};
    read_labels(&row, out);
    if (read_run(&row, &err) != MCP_OK)
        out->reason = mcp_strdup(arena, err.text);
    if (row.note.length > 0)
        out->note = row.note.data;
}
