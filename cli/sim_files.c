/* cli/sim_files.c: a step op by op: --timeline, --trace, and for which ranks. */
#include "cli/commands.h"
#include "cli/sim_case.h"
#include "core/units.h"
#include "sim/ops.h"
#include "sim/timeline.h"

#include <string.h>

/* Unless --max-spans says otherwise: some 12 MB of trace, 150 MB of timeline. */
enum { MOST_TRACE_SPANS = 100000, MOST_SPANS = 1000000 };

/* "8" or "8..15". */
static enum mcp_status read_part(struct mcp_context *ctx, const struct mcp_plan *plan,
                                 const char *text, int *first, int *last)
{
    const char *dots = strstr(text, "..");
    const char *low = dots ? mcp_strndup(ctx->arena, text, (size_t)(dots - text)) : text;
    MCP_TRY(mcp_sim_rank_read(ctx, plan, low, first));
    MCP_TRY(mcp_sim_rank_read(ctx, plan, dots ? dots + 2 : text, last));
    if (*last < *first)
        return mcp_fail(&ctx->err, MCP_USAGE, "--ranks %s: %d comes before %d",
                        mcp_shown(ctx->arena, text), *last, *first);
    return MCP_OK;
}

/* "all", or "0,8..15": each rank once, in order. *count 0 when nothing was asked for. */
static enum mcp_status read_ranks(struct mcp_context *ctx, const struct mcp_plan *plan,
                                  const char *text, int **ranks, int *count)
{
    int world = mcp_plan_world(plan);
    bool *asked = MCP_ARRAY(ctx->arena, world, bool);
    *ranks = MCP_ARRAY(ctx->arena, world, int);
    *count = 0;
    while (text != NULL) {
        const char *comma = strchr(text, ',');
        const char *part = comma ? mcp_strndup(ctx->arena, text, (size_t)(comma - text)) : text;
        int first = 0, last = world - 1;
        if (!mcp_same(part, "all"))
            MCP_TRY(read_part(ctx, plan, part, &first, &last));
        for (int rank = first; rank <= last; rank++)
            asked[rank] = true;
        text = comma ? comma + 1 : NULL;
    }
    for (int rank = 0; rank < world; rank++)
        if (asked[rank])
            (*ranks)[(*count)++] = rank;
    return MCP_OK;
}

static void say_left_out(struct mcp_context *ctx, const char *what, const char *from,
                         int64_t until_ns, int64_t kept, int64_t all)
{
    if (until_ns < INT64_MAX)
        mcp_note("%s: %s that begin after %s are left out, %s of %s; --max-spans N keeps more",
                 from, what, mcp_show(ctx->arena, (double)until_ns * 1e-9, MCP_SECONDS),
                 mcp_show_integer(ctx->arena, all - kept), mcp_show_integer(ctx->arena, all));
}

static enum mcp_status write_file(struct mcp_context *ctx, const char *path,
                                  const struct mcp_text *text,
                                  const struct mcp_sim_timeline *timeline)
{
    const struct mcp_sim_kept kept = mcp_sim_timeline_kept(timeline);
    const char *shown = mcp_printable(ctx->arena, path);
    MCP_TRY(mcp_file_replace(path, text->data, text->length, &ctx->err));
    if (!mcp_same(path, "-"))
        mcp_note("wrote %s", shown);
    say_left_out(ctx, "ops", shown, kept.ops_until_ns, kept.ops, kept.all_ops);
    if (kept.all_slots > 0)
        say_left_out(ctx, "slots", shown, kept.slots_until_ns, kept.slots, kept.all_slots);
    return MCP_OK;
}

static enum mcp_status write_files(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                   struct mcp_sim_timeline *timeline,
                                   const struct mcp_sim_result *result)
{
    struct mcp_text text = mcp_text_new(ctx->arena), trace = mcp_text_new(ctx->arena);
    if (args->timeline != NULL) {
        struct mcp_timeline filled;
        mcp_sim_timeline_fill(timeline, result, &filled);
        mcp_timeline_write(&filled, mcp_timeline_is_lines(args->timeline), &text);
        MCP_TRY(write_file(ctx, args->timeline, &text, timeline));
    }
    if (args->trace == NULL)
        return MCP_OK;
    mcp_sim_timeline_trace(timeline, &trace);
    return write_file(ctx, args->trace, &trace, timeline);
}

/* The pipeline to look at where nobody says: that of the slow rank, or of the slow port. */
static int rank_of_interest(const struct mcp_sim_options *options)
{
    if (options->slow_rank >= 0)
        return options->slow_rank;
    return options->slow_port >= 0 ? options->slow_port : 0;
}

enum mcp_status mcp_sim_files_play(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                   const struct mcp_sim_case *played, struct mcp_sim_result *result)
{
    const struct mcp_program *program = &played->file.program;
    struct mcp_sim_ops_options ops = {.shared_links = true, .ranks = &played->options};
    struct mcp_sim_timeline_options wanted = {
        .unequal = mcp_sim_is_unequal(&played->options),
        .around = rank_of_interest(&played->options),
        .most_spans = args->max_spans > 0 ? args->max_spans : MOST_SPANS,
        .most_trace_spans = args->max_spans > 0 ? args->max_spans : MOST_TRACE_SPANS};
    int *ranks;
    MCP_TRY(read_ranks(ctx, &program->plan, args->ranks, &ranks, &wanted.num_ranks));
    wanted.ranks = ranks;
    if (args->timeline != NULL || args->trace != NULL) {
        ops.span = mcp_sim_timeline_take;
        ops.context = mcp_sim_timeline_new_of(ctx->arena, program, &wanted);
    }
    mcp_sim_play_ops(ctx->arena, &played->question, program, &ops, result);
    return ops.span != NULL ? write_files(ctx, args, ops.context, result) : MCP_OK;
}
