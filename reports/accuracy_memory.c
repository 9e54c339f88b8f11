/* reports/accuracy_memory.c: memory readings of published runs, predicted and compared. */
#include "reports/accuracy_memory.h"

#include "core/mesh.h"
#include "core/units.h"
#include "reports/predict.h"
#include "reports/table.h"

#include <math.h>
#include <stdlib.h>

#define GIB 1073741824.0

/* What a tool shows of the bytes that its process has allocated. */
static const struct quantity {
    const char *name; /* beginning of the quantity column */
    bool between_steps;
    double factor, bytes;
} quantities[] = {
    {"max_allocated", false, 1, 0},           {"allocated_between_steps", true, 1, 0},
    {"max_reserved", false, 1.05, 0.5 * GIB}, {"nvidia_smi", false, 1.06, 6 * GIB},
    {"log_max_memory", false, 1, 0},          {"peak (definition as in source)", false, 1, 0},
};

/* Workspaces of cuBLAS, cuBLASLt and Transformer Engine, which the allocator
 * counts: 32 MiB each from Hopper on, a few MiB each before. */
static double workspace_bytes(const struct mcp_gpu *gpu)
{
    return (isfinite(gpu->peak_flops_per_s[MCP_PRECISION_FP8]) ? 96 : 16) * 1048576.0;
}

/* Tools that print "GB" divide by 2^30. */
static const struct {
    const char *name;
    double bytes;
} units[] = {{"bytes", 1}, {"MiB", 1048576}, {"GiB", GIB}, {"GB", GIB}};

static const struct quantity *find_quantity(const char *name)
{
    for (size_t i = 0; i < MCP_COUNT_OF(quantities); i++)
        if (mcp_starts_with(name, quantities[i].name))
            return &quantities[i];
    return NULL;
}

static double unit_bytes(const char *name)
{
    for (size_t i = 0; i < MCP_COUNT_OF(units); i++)
        if (mcp_starts_with(name, units[i].name))
            return units[i].bytes;
    return (double)NAN;
}

/* The stage that a reading is of: a rank's, the last for Megatron's logging rank,
 * else the fullest. */
static int stage_of(const struct mcp_run *run, const struct mcp_prediction *prediction,
                    const char *place)
{
    int64_t rank;
    if (mcp_same(place, "logging rank"))
        return run->plan.pipeline_parallel - 1;
    if (mcp_starts_with(place, "rank ") && mcp_parse_int64(place + 5, &rank) && rank >= 0 &&
        rank < mcp_plan_world(&run->plan))
        return mcp_mesh_coordinate(&run->plan, (int)rank).pipeline;
    return prediction->peak_stage;
}

static void compare(struct mcp_arena *scratch, const struct mcp_run *run,
                    struct mcp_memory_row *row)
{
    const struct quantity *quantity = find_quantity(row->quantity);
    struct mcp_prediction *prediction = MCP_NEW(scratch, struct mcp_prediction);
    row->reason = mcp_run_predict(scratch, run, prediction);
    if (row->reason != NULL)
        return;
    const struct mcp_stage_prediction *stage =
        &prediction->stages[stage_of(run, prediction, row->place)];
    const int64_t held =
        quantity->between_steps ? stage->static_bytes : mcp_memory_allocated(&stage->memory);
    const double allocated = (double)held + workspace_bytes(&run->cluster.gpu);
    row->predicted_bytes = quantity->factor * allocated + quantity->bytes;
    row->error_frac = row->predicted_bytes / row->measured_bytes - 1;
}

static void measure_row(struct mcp_arena *arena, struct mcp_runs *runs, size_t index,
                        struct mcp_memory_row *row)
{
    const struct mcp_csv *csv = mcp_runs_csv(runs);
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_run run;
    double value = (double)NAN;
    mcp_run_read(scratch, runs, index, &run);
    *row = (struct mcp_memory_row){.id = run.id,
                                   .source = run.source,
                                   .family = mcp_source_family(arena, run.source),
                                   .quantity = mcp_csv_cell(csv, index, "quantity"),
                                   .place = mcp_csv_cell(csv, index, "rank_or_stage"),
                                   .note = mcp_strdup(arena, run.note),
                                   .error_frac = (double)NAN};
    (void)mcp_csv_double(csv, index, "value", &value);
    row->measured_bytes = value * unit_bytes(mcp_csv_cell(csv, index, "unit"));
    if (find_quantity(row->quantity) == NULL)
        row->reason = mcp_format(arena, "quantity \"%.60s\" is not modelled", row->quantity);
    else if (!(row->measured_bytes > 0))
        row->reason = "no value in bytes, MiB or GiB";
    else if (run.reason != NULL)
        row->reason = run.reason;
    else
        compare(scratch, &run, row);
    if (row->reason != NULL)
        row->reason = mcp_strdup(arena, row->reason);
    mcp_arena_free(scratch);
}

bool mcp_is_memory_table(struct mcp_arena *arena, const char *path)
{
    struct mcp_csv csv;
    return mcp_csv_read(arena, path, &csv, NULL) == MCP_OK &&
           mcp_csv_has_column(&csv, "quantity") && mcp_csv_has_column(&csv, "value") &&
           mcp_csv_has_column(&csv, "unit");
}

enum mcp_status mcp_memory_measure(struct mcp_arena *arena,
                                   const struct mcp_accuracy_options *options,
                                   struct mcp_memory_accuracy *out, struct mcp_error *err)
{
    struct mcp_runs *runs;
    struct mcp_memory_accuracy memory = {0};
    MCP_TRY(mcp_runs_open(arena, options->path, options->presets, &runs, err));
    const struct mcp_csv *csv = mcp_runs_csv(runs);
    memory.rows = MCP_ARRAY(arena, csv->num_rows, struct mcp_memory_row);
    for (size_t i = 0; i < csv->num_rows; i++)
        if (options->source == NULL ||
            mcp_contains_ignoring_case(mcp_csv_cell(csv, i, "source"), options->source))
            measure_row(arena, runs, i, &memory.rows[memory.num_rows++]);
    if (memory.num_rows == 0)
        return mcp_fail(err, MCP_INVALID, "%s: no row of the source asked for", options->path);
    *out = memory;
    return MCP_OK;
}

struct mcp_accuracy_stats mcp_memory_stats(struct mcp_arena *arena,
                                           const struct mcp_memory_accuracy *memory,
                                           const char *quantity, const char *family)
{
    double *errors = MCP_ARRAY(arena, memory->num_rows, double);
    int count = 0;
    for (int i = 0; i < memory->num_rows; i++) {
        const struct mcp_memory_row *row = &memory->rows[i];
        if (row->reason == NULL && (quantity == NULL || mcp_same(row->quantity, quantity)) &&
            (family == NULL || mcp_same(row->family, family)))
            errors[count++] = row->error_frac;
    }
    return mcp_error_stats(arena, errors, NULL, count);
}

/* Each pair of quantity and family once, in order of appearance. */
static int list_pairs(struct mcp_arena *arena, const struct mcp_memory_accuracy *memory,
                      const struct mcp_memory_row ***out)
{
    int count = 0;
    *out = MCP_ARRAY(arena, memory->num_rows, const struct mcp_memory_row *);
    for (int i = 0; i < memory->num_rows; i++) {
        const struct mcp_memory_row *row = &memory->rows[i];
        int k = 0;
        while (k < count && !(mcp_same((*out)[k]->quantity, row->quantity) &&
                              mcp_same((*out)[k]->family, row->family)))
            k++;
        if (k == count && row->reason == NULL)
            (*out)[count++] = row;
    }
    return count;
}

static void put_stats(struct mcp_json *object, const struct mcp_accuracy_stats *stats)
{
    mcp_json_set_int(object, "rows", stats->rows);
    mcp_json_set_double(object, "mean_abs_error_frac", stats->mean);
    mcp_json_set_double(object, "median_abs_error_frac", stats->median);
    mcp_json_set_double(object, "max_abs_error_frac", stats->max);
    mcp_json_set_double(object, "bias_frac", stats->bias);
}

void mcp_memory_accuracy_to_json(struct mcp_arena *arena, const struct mcp_memory_accuracy *memory,
                                 struct mcp_json *object)
{
    const struct mcp_memory_row **pairs;
    mcp_json_set_string(object, "schema", "mcpplan.validate_memory/1");
    struct mcp_json *rows = mcp_json_set_array(object, "rows");
    struct mcp_json *refused = mcp_json_set_array(object, "refused");
    for (int i = 0; i < memory->num_rows; i++) {
        const struct mcp_memory_row *row = &memory->rows[i];
        struct mcp_json *item = mcp_json_add_object(row->reason == NULL ? rows : refused);
        mcp_json_set_string(item, "id", row->id);
        mcp_json_set_string(item, "source", row->source);
        mcp_json_set_string(item, "quantity", row->quantity);
        mcp_json_set_string(item, "rank_or_stage", row->place);
        if (row->reason != NULL) {
            mcp_json_set_string(item, "reason", row->reason);
            continue;
        }
        mcp_json_set_double(item, "measured_bytes", row->measured_bytes);
        mcp_json_set_double(item, "predicted_bytes", row->predicted_bytes);
        mcp_json_set_double(item, "error_frac", row->error_frac);
        mcp_json_set_string(item, "note", row->note);
    }
    struct mcp_json *summary = mcp_json_set_object(object, "summary");
    struct mcp_accuracy_stats stats = mcp_memory_stats(arena, memory, NULL, NULL);
    put_stats(summary, &stats);
    struct mcp_json *list = mcp_json_set_array(summary, "by_quantity");
    const int count = list_pairs(arena, memory, &pairs);
    for (int i = 0; i < count; i++) {
        struct mcp_json *item = mcp_json_add_object(list);
        stats = mcp_memory_stats(arena, memory, pairs[i]->quantity, pairs[i]->family);
        mcp_json_set_string(item, "quantity", pairs[i]->quantity);
        mcp_json_set_string(item, "source", pairs[i]->family);
        put_stats(item, &stats);
    }
}

static void write_pairs(struct mcp_arena *arena, const struct mcp_memory_accuracy *memory,
                        const struct mcp_style *style, struct mcp_text *out)
{
    static const struct mcp_column columns[] = {
        {"quantity", "", MCP_LEFT}, {"source", "", MCP_LEFT},   {"readings", "", MCP_RIGHT},
        {"mean", "%", MCP_RIGHT},   {"median", "%", MCP_RIGHT}, {"max", "%", MCP_RIGHT},
        {"bias", "%", MCP_RIGHT},
    };
    struct mcp_table *table = mcp_table_new(arena, columns, MCP_COUNT_OF(columns));
    const struct mcp_memory_row **pairs;
    const int count = list_pairs(arena, memory, &pairs);
    for (int i = 0; i < count; i++) {
        const struct mcp_accuracy_stats stats =
            mcp_memory_stats(arena, memory, pairs[i]->quantity, pairs[i]->family);
        mcp_table_cell(table, "%s", mcp_printable(arena, pairs[i]->quantity));
        mcp_table_cell(table, "%s", pairs[i]->family);
        mcp_table_cell(table, "%d", stats.rows);
        mcp_table_cell(table, "%.1f", 100 * stats.mean);
        mcp_table_cell(table, "%.1f", 100 * stats.median);
        mcp_table_cell(table, "%.1f", 100 * stats.max);
        mcp_table_cell(table, "%+.1f", 100 * stats.bias);
    }
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
}

static int by_error(const void *a, const void *b)
{
    const struct mcp_memory_row *const *x = a, *const *y = b;
    const double p = fabs((*x)->error_frac), q = fabs((*y)->error_frac);
    return p != q ? (p < q) - (p > q) : (*x > *y) - (*x < *y);
}

static void write_rows(struct mcp_arena *arena, const struct mcp_memory_accuracy *memory, int limit,
                       const struct mcp_style *style, struct mcp_text *out)
{
    static const struct mcp_column columns[] = {
        {"reading", "", MCP_LEFT},      {"quantity", "", MCP_LEFT},      {"of", "", MCP_LEFT},
        {"measured", "GiB", MCP_RIGHT}, {"predicted", "GiB", MCP_RIGHT}, {"error", "%", MCP_RIGHT},
    };
    const struct mcp_memory_row **rows =
        MCP_ARRAY(arena, memory->num_rows, const struct mcp_memory_row *);
    struct mcp_table *table = mcp_table_new(arena, columns, MCP_COUNT_OF(columns));
    int count = 0;
    for (int i = 0; i < memory->num_rows; i++)
        if (memory->rows[i].reason == NULL)
            rows[count++] = &memory->rows[i];
    qsort(rows, (size_t)count, sizeof(const struct mcp_memory_row *), by_error);
    for (int i = 0; i < count && i < limit; i++) {
        mcp_table_cell(table, "%s", mcp_printable(arena, rows[i]->id));
        mcp_table_cell(table, "%s", mcp_printable(arena, rows[i]->quantity));
        mcp_table_cell(table, "%s", mcp_printable(arena, rows[i]->place));
        mcp_table_cell(table, "%.2f", rows[i]->measured_bytes / GIB);
        mcp_table_cell(table, "%.2f", rows[i]->predicted_bytes / GIB);
        mcp_table_cell(table, "%+.1f", 100 * rows[i]->error_frac);
    }
    if (mcp_table_num_rows(table) == 0)
        return;
    mcp_heading(out, style, "Largest errors");
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
}

void mcp_memory_accuracy_to_text(struct mcp_arena *arena, const struct mcp_memory_accuracy *memory,
                                 const struct mcp_accuracy_options *options,
                                 const struct mcp_style *style, struct mcp_text *out)
{
    struct mcp_reasons *reasons = mcp_reasons_new(arena, memory->num_rows);
    int counted = 0;
    for (int i = 0; i < memory->num_rows; i++) {
        counted += memory->rows[i].reason == NULL;
        if (memory->rows[i].reason != NULL)
            mcp_reasons_add(reasons, memory->rows[i].reason);
    }
    mcp_text_add(out,
                 "%d of %d memory readings predicted and compared; error = predicted / "
                 "measured - 1\n",
                 counted, memory->num_rows);
    write_pairs(arena, memory, style, out);
    write_rows(arena, memory, options->verbose ? memory->num_rows : options->worst, style, out);
    mcp_reasons_write(reasons, style, out);
}
