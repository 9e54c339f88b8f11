/* cli/train_end.c: the sentence about a run that is over. */
#include "cli/train_end.h"

#include "core/text.h"
#include "core/units.h"

#include <math.h>

/* Of the summary. */
struct facts {
    int64_t first_step, steps, skipped_steps, tokens;
    double seconds, loss, eval_loss, tokens_per_s; /* NaN: unknown, as of no steps */
};

/* NaN: it is null there. */
static enum mcp_status read_known(struct mcp_json *summary, const char *key, double *out,
                                  struct mcp_error *err)
{
    *out = (double)NAN;
    return mcp_json_has(summary, key) ? mcp_json_double(summary, key, out, err) : MCP_OK;
}

static enum mcp_status read_facts(struct mcp_json *summary, struct facts *out,
                                  struct mcp_error *err)
{
    MCP_TRY(mcp_json_int64(summary, "first_step", &out->first_step, err));
    MCP_TRY(mcp_json_int64(summary, "steps", &out->steps, err));
    MCP_TRY(mcp_json_int64(summary, "skipped_steps", &out->skipped_steps, err));
    MCP_TRY(mcp_json_int64(summary, "tokens", &out->tokens, err));
    MCP_TRY(read_known(summary, "seconds", &out->seconds, err));
    MCP_TRY(read_known(summary, "loss", &out->loss, err));
    MCP_TRY(read_known(summary, "eval_loss", &out->eval_loss, err));
    return read_known(summary, "tokens_per_s", &out->tokens_per_s, err);
}

/* "steps 5 to 20 of 20: 32,768 tokens in 10.1 s, 3,250 tokens/s, loss 2.5012" */
static void add_steps(struct mcp_text *out, const struct facts *facts,
                      const struct mcp_train_end *end)
{
    struct mcp_arena *arena = out->arena;
    if (facts->steps == 0) {
        mcp_text_add(out, "no steps");
        return;
    }
    mcp_text_add(out, "steps %s to %s of %s", mcp_show_integer(arena, facts->first_step + 1),
                 mcp_show_integer(arena, facts->first_step + facts->steps),
                 mcp_show_integer(arena, end->run->steps));
    if (end->restarts > 0)
        mcp_text_add(out, " after %d restart%s", end->restarts, end->restarts == 1 ? "" : "s");
    if (facts->skipped_steps > 0)
        mcp_text_add(out, ", %s of them skipped", mcp_show_integer(arena, facts->skipped_steps));
    mcp_text_add(out, ": %s tokens in %s, %s tokens/s, loss %.4f",
                 mcp_show_integer(arena, facts->tokens),
                 mcp_show(arena, facts->seconds, MCP_SECONDS),
                 mcp_show_integer(arena, llround(facts->tokens_per_s)), facts->loss);
    if (isfinite(facts->eval_loss))
        mcp_text_add(out, ", evaluation %.4f", facts->eval_loss);
}

static enum mcp_status add_places(struct mcp_text *out, struct mcp_json *summary,
                                  const struct mcp_run_options *run, struct mcp_error *err)
{
    const struct {
        const char *what, *path;
    } files[] = {{"metrics", run->metrics},
                 {"event files", run->tensorboard_dir},
                 {"the timeline", run->timeline},
                 {"the model", run->export_path}};
    int64_t step;
    if (run->checkpoint_dir != NULL && mcp_json_has(summary, "checkpoint_step")) {
        MCP_TRY(mcp_json_int64(summary, "checkpoint_step", &step, err));
        mcp_text_add(out, "; the checkpoint of step %s in %s", mcp_show_integer(out->arena, step),
                     mcp_printable(out->arena, run->checkpoint_dir));
    }
    for (size_t i = 0; i < MCP_COUNT_OF(files); i++)
        if (files[i].path != NULL)
            mcp_text_add(out, "; %s in %s", files[i].what,
                         mcp_printable(out->arena, files[i].path));
    return MCP_OK;
}

enum mcp_status mcp_train_end_note(struct mcp_context *ctx, struct mcp_json *summary,
                                   const struct mcp_train_end *end)
{
    struct mcp_text text = mcp_text_new(ctx->arena);
    struct facts facts;
    MCP_TRY(read_facts(summary, &facts, &ctx->err));
    add_steps(&text, &facts, end);
    mcp_text_add(&text, "; %s in all", mcp_show(ctx->arena, end->seconds, MCP_SECONDS));
    MCP_TRY(add_places(&text, summary, end->run, &ctx->err));
    mcp_note("trained %s", text.data);
    return MCP_OK;
}
