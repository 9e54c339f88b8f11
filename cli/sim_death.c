/* cli/sim_death.c: sim --fail-rank: a rank dies within the step, and the others wait. */
#include "cli/sim_case.h"

#include "core/json.h"
#include "core/units.h"

#include <math.h>
#include <string.h>

static enum mcp_status read_seconds(struct mcp_context *ctx, const char *option, const char *text,
                                    double *out)
{
    const double most = 366 * 86400.0;
    if (!mcp_parse_double(text, out) &&
        mcp_quantity_parse(text, MCP_SECONDS, out, &ctx->err) != MCP_OK) {
        mcp_error_prefix(&ctx->err, mcp_format(ctx->arena, "option --%s", option));
        return MCP_USAGE;
    }
    if (*out >= 0 && *out <= most)
        return MCP_OK;
    return mcp_fail(&ctx->err, MCP_USAGE, "option --%s: %s is not between 0 and 366 days", option,
                    mcp_printable(ctx->arena, text));
}

static enum mcp_status read_failure(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                    const struct mcp_sim_case *played, struct mcp_sim_failure *out)
{
    const char *at = strchr(args->fail_rank, '@');
    double seconds;
    if (at == NULL)
        return mcp_fail(&ctx->err, MCP_USAGE, "option --fail-rank: %s is not RANK@TIME: 3@2.5s",
                        mcp_printable(ctx->arena, args->fail_rank));
    const char *rank = mcp_strndup(ctx->arena, args->fail_rank, (size_t)(at - args->fail_rank));
    MCP_TRY(mcp_sim_rank_read(ctx, &played->file.plan, rank, &out->rank));
    MCP_TRY(read_seconds(ctx, "fail-rank", at + 1, &seconds));
    out->at_ns = llround(seconds * 1e9);
    return MCP_OK;
}

/* The first to wait is the first to give up, if the rank is dead by then. */
static void summarise(int num_stages, struct mcp_sim_death *death)
{
    death->first_wait_s = INFINITY;
    for (int s = 0; s < num_stages; s++) {
        double waits_s = (double)death->stops[s].waits_ns * 1e-9;
        death->first_wait_s = fmin(death->first_wait_s, waits_s);
        death->last_wait_s = fmax(death->last_wait_s, waits_s);
    }
    double at_s = (double)death->failure.at_ns * 1e-9;
    death->noticed_s = fmax(at_s, death->first_wait_s + death->timeout_s);
}

enum mcp_status mcp_sim_death_play(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                   const struct mcp_sim_case *played, struct mcp_sim_view *view)
{
    if (args->fail_rank == NULL)
        return MCP_OK;
    const struct mcp_program *program = &played->file.program;
    struct mcp_sim_death *death = MCP_NEW(ctx->arena, struct mcp_sim_death);
    struct mcp_sim_stop *stops = MCP_ARRAY(ctx->arena, program->num_classes, struct mcp_sim_stop);
    MCP_TRY(read_failure(ctx, args, played, &death->failure));
    MCP_TRY(read_seconds(ctx, "failure-timeout", args->failure_timeout, &death->timeout_s));
    if (death->failure.at_ns >= view->result->step_ns)
        return mcp_fail(&ctx->err, MCP_INVALID,
                        "--fail-rank %s: the step ends after %s, before that",
                        mcp_printable(ctx->arena, args->fail_rank),
                        mcp_show(ctx->arena, mcp_sim_view_iteration_s(view), MCP_SECONDS));
    death->stage =
        mcp_sim_play_failure(ctx->arena, &played->question, program, &death->failure, stops);
    death->stops = stops;
    summarise(program->num_classes, death);
    view->death = death;
    return MCP_OK;
}

static const char *show_s(struct mcp_arena *arena, double seconds)
{
    return mcp_show(arena, seconds, MCP_SECONDS);
}

void mcp_sim_death_text(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_sim_view *view)
{
    const struct mcp_sim_death *death = view->death;
    struct mcp_arena *arena = out->arena;
    int world = mcp_plan_world(view->plan);
    mcp_heading(out, style, mcp_format(arena, "If rank %d dies", death->failure.rank));
    mcp_text_add(out, "  ");
    mcp_wrap(out,
             mcp_format(arena,
                        "%s into the step stage %d stops. Of its replica the first stage waits for "
                        "good from %s on, the last from %s on; other replicas come to the end of "
                        "the step and wait there. Nobody is told: at %s the first gives up, after "
                        "a timeout of %s.",
                        show_s(arena, (double)death->failure.at_ns * 1e-9), death->stage,
                        show_s(arena, death->first_wait_s), show_s(arena, death->last_wait_s),
                        show_s(arena, death->noticed_s), show_s(arena, death->timeout_s)),
             style->width - 2, 2);
    mcp_text_add(out, "\n  ");
    mcp_wrap(out,
             mcp_format(arena,
                        "The step is lost: %s of %s GPUs. Then all restart from the last "
                        "checkpoint, and do again what followed it; mcpplan capacity has the "
                        "recovery and how often to save.",
                        show_s(arena, death->noticed_s), mcp_show_integer(arena, world)),
             style->width - 2, 2);
    mcp_text_add(out, "\n");
}

void mcp_sim_death_json(struct mcp_json *object, const struct mcp_sim_view *view)
{
    const struct mcp_sim_death *death = view->death;
    mcp_json_set_int(object, "rank", death->failure.rank);
    mcp_json_set_int(object, "stage", death->stage);
    mcp_json_set_double(object, "at_s", (double)death->failure.at_ns * 1e-9);
    mcp_json_set_double(object, "timeout_s", death->timeout_s);
    mcp_json_set_double(object, "noticed_s", death->noticed_s);
    struct mcp_json *stages = mcp_json_set_array(object, "stages");
    for (int s = 0; s < view->result->num_stages; s++) {
        struct mcp_json *stage = mcp_json_add_object(stages);
        mcp_json_set_double(stage, "waits_s", (double)death->stops[s].waits_ns * 1e-9);
        mcp_json_set_int(stage, "slots_done", death->stops[s].slot);
        mcp_json_set_int(stage, "num_slots", death->stops[s].num_slots);
    }
}
