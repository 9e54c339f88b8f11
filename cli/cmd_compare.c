/* cli/cmd_compare.c: mcpplan compare: two timelines op by op, predicted or measured. */
#include "cli/commands.h"
#include "cli/compare_view.h"
#include "cli/plan_file.h"
#include "cli/report_parts.h"
#include "core/mesh.h"
#include "sim/check.h"
#include "sim/timeline.h"

#include <math.h>
#include <string.h>

enum { MOST_WORST = 1000 };

struct args {
    double threshold, kind_threshold;
    int worst;
    const char *report;
};

/* --- what is compared --- */

static enum mcp_status play(struct mcp_context *ctx, const struct mcp_plan_file *file,
                            struct mcp_timeline *out)
{
    const struct mcp_sim_options options = mcp_sim_options_default();
    struct mcp_sim_timeline *timeline = mcp_sim_timeline_new(ctx->arena, &file->program);
    const struct mcp_sim_ops_options ops = {
        .shared_links = true, .span = mcp_sim_timeline_take, .context = timeline};
    struct mcp_sim_result result;
    MCP_TRY(mcp_sim_check_time(&file->question, &file->program, &options, &ctx->err));
    mcp_sim_play_ops(ctx->arena, &file->question, &file->program, &ops, &result);
    mcp_sim_timeline_fill(timeline, &result, out);
    mcp_timeline_sort(out);
    return MCP_OK;
}

/* A plan has the word of its schema; a timeline never has. */
static bool is_plan(const struct mcp_text *text)
{
    return strstr(text->data, "\"mcpplan.plan/1\"") != NULL;
}

static enum mcp_status load(struct mcp_context *ctx, const char *path, struct mcp_compare_side *out,
                            struct mcp_plan_file **plan)
{
    struct mcp_text text;
    out->path = path;
    MCP_TRY(mcp_file_read(ctx->arena, path, MCP_MAX_FILE_BYTES, &text, &ctx->err));
    out->is_plan = is_plan(&text);
    if (!out->is_plan)
        return mcp_timeline_parse(ctx->arena, path, text.data, text.length, &out->timeline,
                                  &ctx->err);
    if (mcp_same(path, "-"))
        return mcp_fail(&ctx->err, MCP_USAGE, "compare reads plans from files; give its name");
    *plan = MCP_NEW(ctx->arena, struct mcp_plan_file);
    const struct mcp_plan_changes none = mcp_plan_unchanged();
    MCP_TRY(mcp_plan_file_load(ctx, path, &none, *plan));
    return play(ctx, *plan, &out->timeline);
}

/* The op is one of the program. */
static bool knows(const struct mcp_program *program, int class,
                  const struct mcp_timeline_span *span)
{
    const struct mcp_program_class *of = &program->classes[class];
    if (span->slot >= of->num_slots)
        return false;
    const struct mcp_entry_list *list = &program->lists[of->slots[span->slot].list];
    if (span->entry >= list->num_entries)
        return false;
    const struct mcp_entry *entry = &list->entries[span->entry];
    return span->op < program->types[entry->type].blocks[entry->role].num_ops;
}

/* What the other side's plan says of ops that the timeline leaves unnamed. */
static enum mcp_status name_ops(struct mcp_context *ctx, const struct mcp_plan_file *plan,
                                struct mcp_compare_side *side)
{
    int world = mcp_plan_world(&plan->plan);
    for (size_t i = 0; i < side->timeline.num_spans; i++) {
        struct mcp_timeline_span *span = &side->timeline.spans[i];
        if (span->function < MCP_NUM_FUNCTIONS && span->pass < MCP_NUM_BLOCK_ROLES)
            continue;
        if (span->rank >= world)
            return mcp_fail(&ctx->err, MCP_INVALID,
                            "%s: there is no rank %d; the plan's are 0 to %d",
                            mcp_shown(ctx->arena, side->path), span->rank, world - 1);
        int class = mcp_mesh_coordinate(&plan->plan, span->rank).pipeline;
        if (!knows(&plan->program, class, span))
            return mcp_fail(&ctx->err, MCP_INVALID,
                            "%s: rank %d, slot %d, entry %d, op %d is not in the plan's program",
                            mcp_shown(ctx->arena, side->path), span->rank, span->slot, span->entry,
                            span->op);
        mcp_timeline_tell(&plan->program, class, span);
    }
    return MCP_OK;
}

/* --- thresholds --- */

double mcp_compare_step_frac(const struct mcp_compare_view *view)
{
    double a = (double)view->result.ends_a.step_ns, b = (double)view->result.ends_b.step_ns;
    return a > 0 ? b / a - 1 : 0;
}

static void add_check(struct mcp_compare_view *view, const char *what, double limit, double value)
{
    view->checks[view->num_checks++] =
        (struct mcp_compare_check){what, limit, value, fabs(value) <= limit};
}

static bool matters(const struct mcp_compare_view *view, const struct mcp_compare_kind *kind)
{
    double a = 1e-9 * (double)view->result.ends_a.step_ns;
    double b = 1e-9 * (double)view->result.ends_b.step_ns;
    return kind->num_both > 0 &&
           (kind->a_s >= MCP_COMPARE_LEAST_SHARE * a || kind->b_s >= MCP_COMPARE_LEAST_SHARE * b);
}

static void check(struct mcp_arena *arena, const struct args *args, struct mcp_compare_view *view)
{
    const struct mcp_compare *result = &view->result;
    view->checks = MCP_ARRAY(arena, result->num_kinds + 1, struct mcp_compare_check);
    if (!isnan(args->threshold))
        add_check(view, "the step", args->threshold, mcp_compare_step_frac(view));
    for (int i = 0; i < result->num_kinds && !isnan(args->kind_threshold); i++)
        if (matters(view, &result->kinds[i]))
            add_check(view, result->kinds[i].name, args->kind_threshold,
                      result->kinds[i].a_s > 0 ? mcp_compare_ratio(&result->kinds[i]) - 1
                                               : (double)INFINITY);
}

/* The first that does not hold, in one sentence. */
static enum mcp_status judge(struct mcp_context *ctx, const struct mcp_compare_view *view)
{
    int broken = 0;
    const struct mcp_compare_check *first = NULL;
    for (int i = view->num_checks - 1; i >= 0; i--) {
        broken += !view->checks[i].holds;
        first = view->checks[i].holds ? first : &view->checks[i];
    }
    if (first == NULL)
        return MCP_OK;
    return mcp_fail(&ctx->err, MCP_CHECK_FAILED,
                    "%s is %+.1f %% off, beyond the threshold of %g %%%s", first->what,
                    100 * first->value_frac, 100 * first->limit_frac,
                    broken > 1 ? mcp_format(ctx->arena, "; so are %d others", broken - 1) : "");
}

/* --- */

static enum mcp_status compare(struct mcp_context *ctx, const struct args *args)
{
    struct mcp_compare_view *view = MCP_NEW(ctx->arena, struct mcp_compare_view);
    struct mcp_plan_file *plan_a = NULL, *plan_b = NULL;
    struct mcp_text text = mcp_text_new(ctx->arena);
    int worst = args->worst < MOST_WORST ? args->worst : MOST_WORST;
    MCP_TRY(load(ctx, ctx->operands[0], &view->a, &plan_a));
    MCP_TRY(load(ctx, ctx->operands[1], &view->b, &plan_b));
    if (plan_a != NULL)
        MCP_TRY(name_ops(ctx, plan_a, &view->b));
    if (plan_b != NULL)
        MCP_TRY(name_ops(ctx, plan_b, &view->a));
    MCP_TRY(mcp_compare(ctx->arena, &view->a.timeline, &view->b.timeline, worst, &view->result,
                        &ctx->err));
    check(ctx->arena, args, view);
    mcp_compare_text(&text, &ctx->style, view);
    if (args->report != NULL)
        MCP_TRY(mcp_compare_report_write(ctx, args->report, view));
    MCP_TRY(mcp_output_result(ctx, &text, mcp_compare_json(ctx->arena, view)));
    return judge(ctx, view);
}

enum mcp_status mcp_cmd_compare(struct mcp_context *ctx, int argc, char **argv)
{
    struct args args = {.threshold = (double)NAN, .kind_threshold = (double)NAN, .worst = 10};
    const struct mcp_option options[] = {
        {"Comparing", MCP_OPT_HEADING, NULL, NULL},
        {"threshold", MCP_OPT_FRAC, &args.threshold,
         "fail where the step of B differs from that of A by a larger share"},
        {"kind-threshold", MCP_OPT_FRAC, &args.kind_threshold,
         "fail where a kind of op does that takes 1 % of a step or more"},
        {"worst", MCP_OPT_COUNT, &args.worst, "ops to show that lie farthest apart"},
        {"report", MCP_OPT_FILE, &args.report,
         "the comparison with charts: a page (FILE.html) or Markdown (FILE.md)"},
    };
    const struct mcp_usage usage = {
        .command = "compare",
        .summary = "hold two timelines of a step against each other, op by op",
        .synopsis = "A B [options]",
        .description =
            "A and B are timelines, as sim --timeline writes them: predicted or measured, one JSON "
            "object or JSON lines. Either may be a plan, which is played first. Ops "
            "join by rank, slot, entry and number; ranks that A or B says are equal stand for each "
            "other. Shows each kind of op, where a rank's time goes, the ops farthest apart, and "
            "what only one has. Differences are those of B from A.",
        .min_operands = 2,
        .max_operands = 2,
        .options = options,
        .num_options = MCP_COUNT_OF(options),
        .examples = "mcpplan compare plan.json run.jsonl\n"
                    "mcpplan compare before.json after.json --threshold 0.10\n"
                    "mcpplan compare plan.json run.jsonl --report difference.html\n",
    };
    if (!mcp_options_parse(ctx, &usage, argc, argv))
        return ctx->status;
    if (args.report != NULL)
        MCP_TRY(mcp_report_file_check(args.report, &ctx->err));
    return compare(ctx, &args);
}
