/* cli/cmd_validate.c: mcpplan validate: predict published runs and show every error. */
#include "cli/commands.h"
#include "reports/accuracy.h"
#include "reports/accuracy_memory.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

struct validate_args {
    struct mcp_accuracy_options options;
    double max_mean_error, max_median_error;
};

/* A folder mistyped would leave the built-in presets in place, unsaid. */
static enum mcp_status check_folder(struct mcp_context *ctx, const char *path)
{
    struct stat status;
    if (path == NULL)
        return MCP_OK;
    if (stat(path, &status) != 0)
        return mcp_fail(&ctx->err, MCP_IO, "--presets %s: %s", mcp_shown(ctx->arena, path),
                        strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return mcp_fail(&ctx->err, MCP_IO, "--presets %s: is no folder",
                        mcp_shown(ctx->arena, path));
    return MCP_OK;
}

static enum mcp_status check_limit(const char *what, double error, double limit,
                                   struct mcp_error *err)
{
    if (isnan(limit) || error <= limit)
        return MCP_OK;
    return mcp_fail(err, MCP_CHECK_FAILED, "the %s error %.4f exceeds the limit %.4f", what, error,
                    limit);
}

static enum mcp_status check_limits(const struct validate_args *args,
                                    const struct mcp_accuracy_stats *stats, struct mcp_error *err)
{
    if (stats->rows == 0)
        return mcp_fail(err, MCP_CHECK_FAILED, "no row of %s could be compared",
                        args->options.path);
    MCP_TRY(check_limit("mean", stats->mean, args->max_mean_error, err));
    return check_limit("median", stats->median, args->max_median_error, err);
}

static enum mcp_status validate_runs(struct mcp_context *ctx, const struct validate_args *args)
{
    struct mcp_accuracy accuracy;
    struct mcp_text text = mcp_text_new(ctx->arena);
    struct mcp_json *json = mcp_json_new_object(ctx->arena);
    MCP_TRY(mcp_accuracy_measure(ctx->arena, &args->options, &accuracy, &ctx->err));
    mcp_accuracy_to_text(ctx->arena, &accuracy, &args->options, &ctx->style, &text);
    mcp_accuracy_to_json(ctx->arena, &accuracy, json);
    MCP_TRY(mcp_output_result(ctx, &text, json));
    const struct mcp_accuracy_stats stats =
        mcp_accuracy_stats(ctx->arena, &accuracy, NULL, NULL, NULL);
    return check_limits(args, &stats, &ctx->err);
}

static enum mcp_status validate_memory(struct mcp_context *ctx, const struct validate_args *args)
{
    struct mcp_memory_accuracy memory;
    struct mcp_text text = mcp_text_new(ctx->arena);
    struct mcp_json *json = mcp_json_new_object(ctx->arena);
    MCP_TRY(mcp_memory_measure(ctx->arena, &args->options, &memory, &ctx->err));
    mcp_memory_accuracy_to_text(ctx->arena, &memory, &args->options, &ctx->style, &text);
    mcp_memory_accuracy_to_json(ctx->arena, &memory, json);
    MCP_TRY(mcp_output_result(ctx, &text, json));
    const struct mcp_accuracy_stats stats = mcp_memory_stats(ctx->arena, &memory, NULL, NULL);
    return check_limits(args, &stats, &ctx->err);
}

enum mcp_status mcp_cmd_validate(struct mcp_context *ctx, int argc, char **argv)
{
    struct validate_args args = {
        .options = {.worst = 12}, .max_mean_error = (double)NAN, .max_median_error = (double)NAN};
    const struct mcp_option options[] = {
        {"source", MCP_OPT_STRING, &args.options.source,
         "only rows whose source contains this text"},
        {"presets", MCP_OPT_FILE, &args.options.presets,
         "folder whose stacks/NAME.json and gpus/NAME.json replace the built-in ones"},
        {"Output", MCP_OPT_HEADING, NULL, NULL},
        {"worst", MCP_OPT_INT, &args.options.worst, "rows with the largest errors to show"},
        {"verbose", MCP_OPT_FLAG, &args.options.verbose, "show every row"},
        {"Limits that can fail (exit code 1)", MCP_OPT_HEADING, NULL, NULL},
        {"max-mean-error", MCP_OPT_FRAC, &args.max_mean_error, "largest mean of |error| allowed"},
        {"max-median-error", MCP_OPT_FRAC, &args.max_median_error,
         "largest median of |error| allowed"},
    };
    const struct mcp_usage usage = {
        .command = "validate",
        .summary = "predict published or measured runs and show each error",
        .synopsis = "FILE.csv [options]",
        .description =
            "Every row of the table is one training run: its model, machines, layout and batch in "
            "columns that docs/FORMATS.md lists. The row is predicted as plan would predict it and "
            "compared with iteration_time_s. A table with the columns quantity, value and unit is "
            "one of memory readings and is compared in bytes. Rows that cannot be predicted are "
            "listed with the reason.",
        .min_operands = 1,
        .max_operands = 1,
        .options = options,
        .num_options = MCP_COUNT_OF(options),
        .examples = "mcpplan validate runs.csv\n"
                    "mcpplan validate runs.csv --source BigScience --max-mean-error 0.06\n"
                    "mcpplan validate memory.csv --json\n",
    };
    if (!mcp_options_parse(ctx, &usage, argc, argv))
        return ctx->status;
    args.options.path = ctx->operands[0];
    MCP_TRY(check_folder(ctx, args.options.presets));
    if (mcp_is_memory_table(ctx->arena, args.options.path))
        return validate_memory(ctx, &args);
    return validate_runs(ctx, &args);
}
