/* reports/accuracy_report.c: errors of predicted runs, as tables and as JSON. */
#include "reports/accuracy.h"

#include "reports/predict.h"
#include "reports/table.h"

#include <math.h>
#include <stdlib.h>

enum { FITTED_LIMIT = 64 };

/* Distinct names, in order of appearance --------------------------------- */

struct names {
    int count;
    const char **items;
    int *rows;
};

static struct names names_new(struct mcp_arena *arena, int room)
{
    return (struct names){0, MCP_ARRAY(arena, room, const char *), MCP_ARRAY(arena, room, int)};
}

static void names_add(struct names *names, const char *name)
{
    int i = 0;
    while (i < names->count && !mcp_same(names->items[i], name))
        i++;
    if (i == names->count)
        names->items[names->count++] = name;
    names->rows[i]++;
}

/* Most rows first; equals stay in order. */
static void names_sort(struct names *names)
{
    for (int i = 1; i < names->count; i++)
        for (int j = i; j > 0 && names->rows[j] > names->rows[j - 1]; j--) {
            const char *name = names->items[j];
            const int rows = names->rows[j];
            names->items[j] = names->items[j - 1];
            names->rows[j] = names->rows[j - 1];
            names->items[j - 1] = name;
            names->rows[j - 1] = rows;
        }
}

/* Text -------------------------------------------------------------------- */

static const struct mcp_column stats_columns[] = {
    {"", "", MCP_LEFT},         {"rows", "", MCP_RIGHT},    {"mean", "%", MCP_RIGHT},
    {"median", "%", MCP_RIGHT}, {"P90", "%", MCP_RIGHT},    {"max", "%", MCP_RIGHT},
    {"bias", "%", MCP_RIGHT},   {"inside", "%", MCP_RIGHT}, {"stated", "+-%", MCP_RIGHT},
};

static void stats_row(struct mcp_table *table, const char *name,
                      const struct mcp_accuracy_stats *stats)
{
    mcp_table_cell(table, "%s", name);
    mcp_table_cell(table, "%d", stats->rows);
    mcp_table_cell(table, "%.1f", 100 * stats->mean);
    mcp_table_cell(table, "%.1f", 100 * stats->median);
    mcp_table_cell(table, "%.1f", 100 * stats->p90);
    mcp_table_cell(table, "%.1f", 100 * stats->max);
    mcp_table_cell(table, "%+.1f", 100 * stats->bias);
    mcp_table_cell(table, "%.0f", 100 * stats->coverage_frac);
    mcp_table_cell(table, "%.1f", 100 * stats->half_width);
}

static void write_sets(struct mcp_arena *arena, const struct mcp_accuracy *accuracy,
                       const struct mcp_style *style, struct mcp_text *out)
{
    struct mcp_table *table = mcp_table_new(arena, stats_columns, MCP_COUNT_OF(stats_columns));
    struct names families = names_new(arena, accuracy->num_rows);
    for (int i = 0; i < mcp_num_accuracy_sets; i++) {
        const struct mcp_accuracy_set *set = &mcp_accuracy_sets[i];
        const struct mcp_accuracy_stats stats =
            mcp_accuracy_stats(arena, accuracy, set->has, NULL, NULL);
        if (stats.rows > 0)
            stats_row(table, set->name, &stats);
    }
    for (int i = 0; i < accuracy->num_rows; i++)
        if (mcp_accuracy_counts(&accuracy->rows[i]))
            names_add(&families, accuracy->rows[i].family);
    names_sort(&families);
    for (int i = 0; i < families.count; i++) {
        const struct mcp_accuracy_stats stats =
            mcp_accuracy_stats(arena, accuracy, NULL, families.items[i], NULL);
        if (i == 0)
            mcp_table_rule(table);
        stats_row(table, families.items[i], &stats);
    }
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
}

static void ranking_row(struct mcp_table *table, const struct mcp_accuracy *accuracy,
                        const char *family)
{
    int groups = 0, layouts = 0;
    double tau = 0, regret = 0, worst = 0;
    for (int i = 0; i < accuracy->num_groups; i++) {
        const struct mcp_accuracy_group *group = &accuracy->groups[i];
        if (!mcp_same(group->family, family))
            continue;
        groups++;
        layouts += group->layouts;
        tau += group->kendall_tau;
        regret += group->regret_frac;
        worst = group->regret_frac > worst ? group->regret_frac : worst;
    }
    mcp_table_cell(table, "%s", family);
    mcp_table_cell(table, "%d", groups);
    mcp_table_cell(table, "%d", layouts);
    mcp_table_cell(table, "%.2f", tau / groups);
    mcp_table_cell(table, "%.1f", 100 * regret / groups);
    mcp_table_cell(table, "%.1f", 100 * worst);
}

static void write_ranking(struct mcp_arena *arena, const struct mcp_accuracy *accuracy,
                          const struct mcp_style *style, struct mcp_text *out)
{
    static const struct mcp_column columns[] = {
        {"", "", MCP_LEFT},
        {"groups", "", MCP_RIGHT},
        {"layouts", "", MCP_RIGHT},
        {"Kendall tau", "", MCP_RIGHT},
        {"regret", "mean %", MCP_RIGHT},
        {"", "max %", MCP_RIGHT},
    };
    struct names families = names_new(arena, accuracy->num_groups);
    struct mcp_table *table = mcp_table_new(arena, columns, MCP_COUNT_OF(columns));
    for (int i = 0; i < accuracy->num_groups; i++)
        names_add(&families, accuracy->groups[i].family);
    names_sort(&families);
    for (int i = 0; i < families.count; i++)
        ranking_row(table, accuracy, families.items[i]);
    if (families.count == 0)
        return;
    mcp_heading(out, style, "Ranking of layouts (three or more of one model, batch and machine)");
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
}

static int by_error(const void *a, const void *b)
{
    const struct mcp_accuracy_row *const *x = a, *const *y = b;
    const double p = fabs((*x)->error_frac), q = fabs((*y)->error_frac);
    return p != q ? (p < q) - (p > q) : (*x > *y) - (*x < *y);
}

static void write_rows(struct mcp_arena *arena, const struct mcp_accuracy *accuracy, int limit,
                       const struct mcp_style *style, struct mcp_text *out)
{
    static const struct mcp_column columns[] = {
        {"run", "", MCP_LEFT},         {"stack", "", MCP_LEFT},   {"measured", "s", MCP_RIGHT},
        {"predicted", "s", MCP_RIGHT}, {"error", "%", MCP_RIGHT}, {"stated", "+-%", MCP_RIGHT},
    };
    const struct mcp_accuracy_row **rows =
        MCP_ARRAY(arena, accuracy->num_rows, const struct mcp_accuracy_row *);
    struct mcp_table *table = mcp_table_new(arena, columns, MCP_COUNT_OF(columns));
    int count = 0;
    for (int i = 0; i < accuracy->num_rows; i++)
        if (mcp_accuracy_counts(&accuracy->rows[i]))
            rows[count++] = &accuracy->rows[i];
    qsort(rows, (size_t)count, sizeof(const struct mcp_accuracy_row *), by_error);
    for (int i = 0; i < count && i < limit; i++) {
        mcp_table_cell(table, "%s", mcp_printable(arena, rows[i]->id));
        mcp_table_cell(table, "%s", rows[i]->stack);
        mcp_table_cell(table, "%.4g", rows[i]->measured_s);
        mcp_table_cell(table, "%.4g", rows[i]->predicted_s);
        mcp_table_cell(table, "%+.1f", 100 * rows[i]->error_frac);
        mcp_table_cell(table, "%.0f", 100 * rows[i]->uncertainty_frac);
    }
    if (mcp_table_num_rows(table) == 0)
        return;
    mcp_heading(out, style, "Largest errors");
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
}

static void write_refusals(struct mcp_arena *arena, const struct mcp_accuracy *accuracy,
                           const struct mcp_style *style, struct mcp_text *out)
{
    struct mcp_reasons *reasons = mcp_reasons_new(arena, accuracy->num_rows);
    for (int i = 0; i < accuracy->num_rows; i++) {
        const struct mcp_accuracy_row *row = &accuracy->rows[i];
        if (row->reason != NULL)
            mcp_reasons_add(reasons, row->reason);
        else if (!mcp_accuracy_counts(row))
            mcp_reasons_add(reasons, "no measured iteration time: predicted, not compared");
    }
    mcp_reasons_write(reasons, style, out);
}

void mcp_accuracy_to_text(struct mcp_arena *arena, const struct mcp_accuracy *accuracy,
                          const struct mcp_accuracy_options *options, const struct mcp_style *style,
                          struct mcp_text *out)
{
    int counted = 0;
    for (int i = 0; i < accuracy->num_rows; i++)
        counted += mcp_accuracy_counts(&accuracy->rows[i]);
    mcp_text_add(out, "%d of %d rows predicted and compared; error = predicted / measured - 1\n",
                 counted, accuracy->num_rows);
    write_sets(arena, accuracy, style, out);
    mcp_text_add(out, "fitted numbers: %d of %d\n", accuracy->num_fitted, FITTED_LIMIT);
    write_ranking(arena, accuracy, style, out);
    write_rows(arena, accuracy, options->verbose ? accuracy->num_rows : options->worst, style, out);
    write_refusals(arena, accuracy, style, out);
}

/* JSON -------------------------------------------------------------------- */

static void put_stats(struct mcp_json *object, const struct mcp_accuracy_stats *stats)
{
    mcp_json_set_int(object, "rows", stats->rows);
    mcp_json_set_double(object, "mean_abs_error_frac", stats->mean);
    mcp_json_set_double(object, "median_abs_error_frac", stats->median);
    mcp_json_set_double(object, "p90_abs_error_frac", stats->p90);
    mcp_json_set_double(object, "max_abs_error_frac", stats->max);
    mcp_json_set_double(object, "bias_frac", stats->bias);
    mcp_json_set_double(object, "inside_interval_frac", stats->coverage_frac);
    mcp_json_set_double(object, "median_uncertainty_frac", stats->half_width);
}

static void put_rows(const struct mcp_accuracy *accuracy, struct mcp_json *rows,
                     struct mcp_json *refused)
{
    for (int i = 0; i < accuracy->num_rows; i++) {
        const struct mcp_accuracy_row *row = &accuracy->rows[i];
        const bool counts = mcp_accuracy_counts(row);
        struct mcp_json *item = mcp_json_add_object(counts ? rows : refused);
        mcp_json_set_string(item, "id", row->id);
        mcp_json_set_string(item, "source", row->source);
        if (!counts) {
            mcp_json_set_string(item, "reason",
                                row->reason != NULL ? row->reason : "no measured iteration time");
            continue;
        }
        mcp_json_set_double(item, "measured_iteration_s", row->measured_s);
        mcp_json_set_double(item, "predicted_iteration_s", row->predicted_s);
        mcp_json_set_double(item, "error_frac", row->error_frac);
        mcp_json_set_double(item, "uncertainty_frac", row->uncertainty_frac);
        mcp_json_set_string(item, "stack", row->stack);
        mcp_json_set_string(item, "note", row->note);
    }
}

static void put_groups(const struct mcp_accuracy *accuracy, struct mcp_json *list)
{
    for (int i = 0; i < accuracy->num_groups; i++) {
        const struct mcp_accuracy_group *group = &accuracy->groups[i];
        struct mcp_json *item = mcp_json_add_object(list);
        mcp_json_set_string(item, "group", group->group);
        mcp_json_set_int(item, "layouts", group->layouts);
        mcp_json_set_double(item, "regret_frac", group->regret_frac);
        mcp_json_set_double(item, "kendall_tau", group->kendall_tau);
    }
}

static void put_summary(struct mcp_arena *arena, const struct mcp_accuracy *accuracy,
                        struct mcp_json *summary)
{
    struct names sources = names_new(arena, accuracy->num_rows);
    struct mcp_accuracy_stats stats = mcp_accuracy_stats(arena, accuracy, NULL, NULL, NULL);
    put_stats(summary, &stats);
    struct mcp_json *sets = mcp_json_set_object(summary, "sets");
    for (int i = 0; i < mcp_num_accuracy_sets; i++) {
        const struct mcp_accuracy_set *set = &mcp_accuracy_sets[i];
        stats = mcp_accuracy_stats(arena, accuracy, set->has, NULL, NULL);
        put_stats(mcp_json_set_object(sets, set->key), &stats);
    }
    struct mcp_json *by_source = mcp_json_set_object(summary, "by_source");
    for (int i = 0; i < accuracy->num_rows; i++)
        if (mcp_accuracy_counts(&accuracy->rows[i]))
            names_add(&sources, accuracy->rows[i].source);
    for (int i = 0; i < sources.count; i++) {
        stats = mcp_accuracy_stats(arena, accuracy, NULL, NULL, sources.items[i]);
        put_stats(mcp_json_set_object(by_source, sources.items[i]), &stats);
    }
    put_groups(accuracy, mcp_json_set_array(summary, "groups"));
    mcp_json_set_int(summary, "fitted_numbers", accuracy->num_fitted);
    mcp_json_set_int(summary, "fitted_numbers_limit", FITTED_LIMIT);
}

void mcp_accuracy_to_json(struct mcp_arena *arena, const struct mcp_accuracy *accuracy,
                          struct mcp_json *object)
{
    mcp_json_set_string(object, "schema", "mcpplan.validate/1");
    struct mcp_json *rows = mcp_json_set_array(object, "rows");
    struct mcp_json *refused = mcp_json_set_array(object, "refused");
    put_rows(accuracy, rows, refused);
    put_summary(arena, accuracy, mcp_json_set_object(object, "summary"));
}
