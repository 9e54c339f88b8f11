/* reports/accuracy.h: predictions beside what published runs measured.
 *
 * error = predicted / measured - 1. Statistics of a set of rows use |error|;
 * bias is the median of the signed error, coverage the share of rows whose error
 * lies within the half-width that the prediction itself states. */
#ifndef MCP_REPORTS_ACCURACY_H
#define MCP_REPORTS_ACCURACY_H

#include "core/arena.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "reports/style.h"

#include <stdbool.h>

struct mcp_accuracy_row {
    const char *id, *source;
    const char *family; /* the source without releases and dates */
    const char *stack;  /* name of the stack file */
    const char *group;  /* equal: the same question under other layouts */
    const char *reason; /* why nothing was predicted, or NULL */
    const char *note;   /* assumptions, "" when none */
    double measured_s;  /* NaN: not stated */
    double predicted_s;
    double error_frac;
    double uncertainty_frac;
    bool experts, complete;
    char trust;
};

struct mcp_accuracy_stats {
    int rows;
    double mean, median, p90, max; /* of |error| */
    double bias;                   /* median error */
    double coverage_frac;
    double half_width; /* median of the stated half-widths */
};

/* Layouts of one question: how well are they ranked? */
struct mcp_accuracy_group {
    const char *group, *family;
    int layouts;
    double regret_frac; /* measured time of the predicted best over the measured best, minus 1 */
    double kendall_tau;
};

struct mcp_accuracy {
    const char *path;
    int num_rows;
    struct mcp_accuracy_row *rows;
    int num_groups;
    struct mcp_accuracy_group *groups;
    int num_fitted;
};

struct mcp_accuracy_options {
    const char *path;
    const char *presets; /* folder of stacks and GPUs to use instead, or NULL */
    const char *source;  /* only rows whose source contains this, or NULL */
    int worst;           /* rows to show */
    bool verbose;        /* show every row and every group */
};

/* Reads the table and predicts each of its rows. */
enum mcp_status mcp_accuracy_measure(struct mcp_arena *arena,
                                     const struct mcp_accuracy_options *options,
                                     struct mcp_accuracy *out, struct mcp_error *err);

/* The row was predicted and measured: it counts in statistics. */
bool mcp_accuracy_counts(const struct mcp_accuracy_row *row);

/* Named sets of rows; has == NULL: all that count. */
struct mcp_accuracy_set {
    const char *key, *name;
    bool (*has)(const struct mcp_accuracy_row *row);
};
extern const struct mcp_accuracy_set mcp_accuracy_sets[];
extern const int mcp_num_accuracy_sets;

/* Of the counting rows for which has(row) and whose `family` and `source` are
 * those given, each unless NULL. NaN where there are no rows. */
struct mcp_accuracy_stats mcp_accuracy_stats(struct mcp_arena *arena,
                                             const struct mcp_accuracy *accuracy,
                                             bool (*has)(const struct mcp_accuracy_row *row),
                                             const char *family, const char *source);

/* The same of plain numbers; `errors` is signed, `widths` may be NULL. */
struct mcp_accuracy_stats mcp_error_stats(struct mcp_arena *arena, const double *errors,
                                          const double *widths, int count);
/* Share of concordant pairs minus share of discordant ones. */
double mcp_kendall_tau(const double *a, const double *b, int count);

void mcp_accuracy_to_json(struct mcp_arena *arena, const struct mcp_accuracy *accuracy,
                          struct mcp_json *object);
void mcp_accuracy_to_text(struct mcp_arena *arena, const struct mcp_accuracy *accuracy,
                          const struct mcp_accuracy_options *options, const struct mcp_style *style,
                          struct mcp_text *out);

#endif
