/* cli/plan_refine.c: --refine K: the best K plans by price are played, and the fastest played wins. */
#include "cli/plan_refine.h"

#include "cli/plan_watch.h"
#include "sim/check.h"
#include "sim/ops.h"
#include "step/build.h"
#include "step/verify.h"

#include <math.h>
#include <stdlib.h>

/* Op by op, on links that are shared, without noise. `arena`: scratch. */
static enum mcp_status play(struct mcp_arena *arena, const struct mcp_question *question,
                            const struct mcp_plan *plan, double *played_s, struct mcp_error *err)
{
    const struct mcp_sim_options options = mcp_sim_options_default();
    const struct mcp_sim_ops_options ops = {.shared_links = true};
    struct mcp_program program;
    struct mcp_sim_result result;
    MCP_TRY(mcp_sim_check_size(plan, question->job, err));
    mcp_program_build(arena, question, plan, &program);
    MCP_TRY(mcp_program_verify(arena, &program, err));
    MCP_TRY(mcp_sim_check_time(question, &program, &options, err));
    mcp_sim_play_ops(arena, question, &program, &ops, &result);
    *played_s = 1e-9 * (double)result.step_ns;
    return MCP_OK;
}

/* The fastest played first; what was not played stands behind, by price. */
static int by_played(const void *a, const void *b)
{
    const struct mcp_refined *x = a, *y = b;
    if (isnan(x->played_s) != isnan(y->played_s))
        return isnan(x->played_s) ? 1 : -1;
    if (!isnan(x->played_s) && x->played_s != y->played_s)
        return x->played_s < y->played_s ? -1 : 1;
    return x->priced_place - y->priced_place;
}

/* False: ctrl-C came, or the best by price cannot be played: nothing to compare with. */
static bool play_all(struct mcp_context *ctx, const struct mcp_search_options *options,
                     const struct mcp_plan_view *view, int count, struct mcp_refined *out)
{
    for (int i = 0; i < count; i++) {
        const struct mcp_found *found = &view->answer->found[i];
        struct mcp_arena *scratch = mcp_arena_new();
        out[i] = (struct mcp_refined){i + 1, *found, (double)NAN, NULL};
        if (play(scratch, view->question, &found->plan, &out[i].played_s, &ctx->err) != MCP_OK)
            out[i].why_not = mcp_strdup(ctx->arena, ctx->err.text);
        mcp_arena_free(scratch);
        ctx->err.text[0] = '\0';
        if (options->progress != NULL)
            options->progress(options->progress_context, (double)(i + 1) / count, NULL);
        if (mcp_plan_watch_stopped())
            return false;
    }
    return out[0].why_not == NULL;
}

static void reorder(struct mcp_arena *arena, const struct mcp_refined *refined, int count,
                    struct mcp_answer *answer)
{
    struct mcp_found *found = MCP_ARRAY(arena, answer->count, struct mcp_found);
    for (int i = 0; i < answer->count; i++)
        found[i] = answer->found[i < count ? refined[i].priced_place - 1 : i];
    answer->found = found;
}

void mcp_plan_refine(struct mcp_context *ctx, int most, const struct mcp_search_options *options,
                     struct mcp_answer *answer, struct mcp_plan_view *view)
{
    int count = answer->count < most ? answer->count : most;
    struct mcp_refined *refined = MCP_ARRAY(ctx->arena, count + 1, struct mcp_refined);
    if (count == 0 || mcp_plan_watch_stopped())
        return;
    if (options->progress != NULL)
        mcp_plan_watch_aside(options->progress_context, "playing the best plans");
    if (!play_all(ctx, options, view, count, refined)) {
        view->not_refined = refined[0].why_not;
        return;
    }
    qsort(refined, (size_t)count, sizeof *refined, by_played);
    reorder(ctx->arena, refined, count, answer);
    view->refined = refined;
    view->num_refined = count;
}
