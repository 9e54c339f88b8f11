/* reports/accuracy.c: predicts every row of a table of runs and sums up the errors. */
#include "reports/accuracy.h"

#include "reports/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Prediction -------------------------------------------------------------- */

static const char *group_of(struct mcp_arena *arena, const struct mcp_run *run)
{
    return mcp_format(arena, "%s | %s | %s x %s | batch %s | sequence %s | %s", run->source,
                      run->model_name, run->gpus, run->gpu, run->global_batch, run->sequence,
                      run->precision);
}

static void predict(struct mcp_arena *arena, const struct mcp_run *run,
                    struct mcp_accuracy_row *row)
{
    struct mcp_prediction *prediction = MCP_NEW(arena, struct mcp_prediction);
    row->reason = mcp_run_predict(arena, run, prediction);
    if (row->reason != NULL)
        return;
    row->predicted_s = prediction->iteration_s;
    row->uncertainty_frac = prediction->uncertainty_frac;
    row->error_frac = prediction->iteration_s / run->measured_s - 1;
}

/* Copies what outlives the scratch arena of one row. */
static void keep_texts(struct mcp_arena *arena, const struct mcp_run *run,
                       struct mcp_accuracy_row *row)
{
    row->id = run->id;
    row->source = run->source;
    row->family = mcp_source_family(arena, run->source);
    row->group = group_of(arena, run);
    row->note = mcp_strdup(arena, run->note);
    row->measured_s = run->measured_s;
    row->complete = run->complete;
    row->trust = run->trust;
}

static void measure_row(struct mcp_arena *arena, struct mcp_runs *runs, size_t index,
                        struct mcp_accuracy_row *row)
{
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_run run;
    mcp_run_read(scratch, runs, index, &run);
    *row = (struct mcp_accuracy_row){.predicted_s = (double)NAN, .error_frac = (double)NAN};
    keep_texts(arena, &run, row);
    row->reason = run.reason;
    if (run.reason == NULL) {
        row->stack = mcp_strdup(arena, run.stack.name);
        row->experts = mcp_model_has_experts(&run.model);
        predict(scratch, &run, row);
    }
    if (row->reason != NULL)
        row->reason = mcp_strdup(arena, row->reason);
    mcp_arena_free(scratch);
}

/* Statistics -------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Linear between the two nearest of the sorted values. */
static double quantile(const double *sorted, int count, double q)
{
    const double place = q * (count - 1);
    const int low = (int)floor(place);
    const int high = low + 1 < count ? low + 1 : low;
    return sorted[low] + (place - low) * (sorted[high] - sorted[low]);
}

struct mcp_accuracy_stats mcp_error_stats(struct mcp_arena *arena, const double *errors,
                                          const double *widths, int count)
{
    const double none = (double)NAN;
    struct mcp_accuracy_stats stats = {0, none, none, none, none, none, none, none};
    if (count == 0)
        return stats;
    double *sorted = MCP_ARRAY(arena, count, double), sum = 0;
    int inside = 0;
    stats.rows = count;
    memcpy(sorted, errors, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    stats.bias = quantile(sorted, count, 0.5);
    for (int i = 0; i < count; i++) {
        sorted[i] = fabs(errors[i]);
        sum += sorted[i];
        inside += widths != NULL && sorted[i] <= widths[i];
    }
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    stats.mean = sum / count;
    stats.median = quantile(sorted, count, 0.5);
    stats.p90 = quantile(sorted, count, 0.9);
    stats.max = sorted[count - 1];
    if (widths == NULL)
        return stats;
    stats.coverage_frac = (double)inside / count;
    memcpy(sorted, widths, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    stats.half_width = quantile(sorted, count, 0.5);
    return stats;
}

bool mcp_accuracy_counts(const struct mcp_accuracy_row *row)
{
    return row->reason == NULL && isfinite(row->error_frac);
}

static bool trusted(const struct mcp_accuracy_row *row)
{
    return row->complete && (row->trust == 'A' || row->trust == 'B');
}

static bool best_dense_rows(const struct mcp_accuracy_row *row)
{
    return row->complete && row->trust == 'A' && !row->experts;
}

static bool dense_rows(const struct mcp_accuracy_row *row)
{
    return trusted(row) && !row->experts;
}

static bool expert_rows(const struct mcp_accuracy_row *row)
{
    return trusted(row) && row->experts;
}

const struct mcp_accuracy_set mcp_accuracy_sets[] = {
    {"all", "all rows predicted", NULL},
    {"dense_trust_a", "dense, complete, trust A", best_dense_rows},
    {"dense", "dense, complete, trust A or B", dense_rows},
    {"experts", "with experts, complete, trust A or B", expert_rows},
};
const int mcp_num_accuracy_sets = sizeof mcp_accuracy_sets / sizeof *mcp_accuracy_sets;

struct mcp_accuracy_stats mcp_accuracy_stats(struct mcp_arena *arena,
                                             const struct mcp_accuracy *accuracy,
                                             bool (*has)(const struct mcp_accuracy_row *row),
                                             const char *family, const char *source)
{
    double *errors = MCP_ARRAY(arena, accuracy->num_rows, double);
    double *widths = MCP_ARRAY(arena, accuracy->num_rows, double);
    int count = 0;
    for (int i = 0; i < accuracy->num_rows; i++) {
        const struct mcp_accuracy_row *row = &accuracy->rows[i];
        if (!mcp_accuracy_counts(row) || (has != NULL && !has(row)) ||
            (family != NULL && !mcp_same(row->family, family)) ||
            (source != NULL && !mcp_same(row->source, source)))
            continue;
        errors[count] = row->error_frac;
        widths[count++] = row->uncertainty_frac;
    }
    return mcp_error_stats(arena, errors, widths, count);
}

/* Ranking ----------------------------------------------------------------- */

double mcp_kendall_tau(const double *a, const double *b, int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            const double product = (a[i] - a[j]) * (b[i] - b[j]);
            sum += (product > 0) - (product < 0);
        }
    return count < 2 ? (double)NAN : 2.0 * sum / ((double)count * (count - 1));
}

static int by_group(const void *a, const void *b)
{
    const struct mcp_accuracy_row *const *x = a, *const *y = b;
    const int order = strcmp((*x)->group, (*y)->group);
    return order != 0 ? order : (*x > *y) - (*x < *y);
}

static struct mcp_accuracy_group rank_group(struct mcp_arena *arena, struct mcp_accuracy_row **rows,
                                            int count)
{
    double *measured = MCP_ARRAY(arena, count, double);
    double *predicted = MCP_ARRAY(arena, count, double);
    int chosen = 0, best = 0;
    for (int i = 0; i < count; i++) {
        measured[i] = rows[i]->measured_s;
        predicted[i] = rows[i]->predicted_s;
        chosen = predicted[i] < predicted[chosen] ? i : chosen;
        best = measured[i] < measured[best] ? i : best;
    }
    return (struct mcp_accuracy_group){
        .group = rows[0]->group,
        .family = rows[0]->family,
        .layouts = count,
        .regret_frac = measured[chosen] / measured[best] - 1,
        .kendall_tau = mcp_kendall_tau(measured, predicted, count),
    };
}

static void find_groups(struct mcp_arena *arena, struct mcp_accuracy *accuracy)
{
    struct mcp_accuracy_row **rows =
        MCP_ARRAY(arena, accuracy->num_rows, struct mcp_accuracy_row *);
    int count = 0;
    for (int i = 0; i < accuracy->num_rows; i++)
        if (mcp_accuracy_counts(&accuracy->rows[i]))
            rows[count++] = &accuracy->rows[i];
    qsort(rows, (size_t)count, sizeof(struct mcp_accuracy_row *), by_group);
    accuracy->groups = MCP_ARRAY(arena, count / 3 + 1, struct mcp_accuracy_group);
    for (int first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count; next++)
            if (!mcp_same(rows[next]->group, rows[first]->group))
                break;
        if (next - first >= 3)
            accuracy->groups[accuracy->num_groups++] =
                rank_group(arena, rows + first, next - first);
    }
}

enum mcp_status mcp_accuracy_measure(struct mcp_arena *arena,
                                     const struct mcp_accuracy_options *options,
                                     struct mcp_accuracy *out, struct mcp_error *err)
{
    struct mcp_runs *runs;
    struct mcp_accuracy accuracy = {.path = options->path};
    MCP_TRY(mcp_runs_open(arena, options->path, options->presets, &runs, err));
    const struct mcp_csv *csv = mcp_runs_csv(runs);
    accuracy.rows = MCP_ARRAY(arena, csv->num_rows, struct mcp_accuracy_row);
    for (size_t i = 0; i < csv->num_rows; i++) {
        if (options->source != NULL &&
            !mcp_contains_ignoring_case(mcp_csv_cell(csv, i, "source"), options->source))
            continue;
        measure_row(arena, runs, i, &accuracy.rows[accuracy.num_rows++]);
    }
    if (accuracy.num_rows == 0)
        return mcp_fail(err, MCP_INVALID, "%s: no row%s%s", options->path,
                        options->source ? " whose source contains " : "",
                        options->source ? options->source : "");
    find_groups(arena, &accuracy);
    accuracy.num_fitted = mcp_runs_count_fitted(arena);
    *out = accuracy;
    return MCP_OK;
}
