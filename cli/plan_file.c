/* cli/plan_file.c: plan.json and its question read, its program built and verified. */
#include "cli/plan_file.h"

#include "cli/switches.h"
#include "planner/space.h"
#include "sim/check.h"
#include "step/build.h"
#include "step/rows.h"
#include "step/verify.h"

#include <string.h>

static enum mcp_status read_question(struct mcp_context *ctx, struct mcp_json *json,
                                     struct mcp_plan_file *out)
{
    struct mcp_json *part;
    MCP_TRY(mcp_json_object(json, "model", &part, &ctx->err));
    MCP_TRY(mcp_model_from_json(ctx->arena, part, &out->model, &ctx->err));
    MCP_TRY(mcp_json_object(json, "cluster", &part, &ctx->err));
    MCP_TRY(mcp_cluster_from_json(ctx->arena, part, &out->cluster, &ctx->err));
    MCP_TRY(mcp_json_object(json, "job", &part, &ctx->err));
    MCP_TRY(mcp_job_from_json(ctx->arena, part, &out->job, &ctx->err));
    MCP_TRY(mcp_json_object(json, "stack", &part, &ctx->err));
    MCP_TRY(mcp_stack_from_json(ctx->arena, part, &out->stack, &ctx->err));
    out->question = (struct mcp_question){&out->model, &out->cluster, &out->job, &out->stack};
    MCP_TRY(mcp_cluster_check(&out->cluster, &ctx->err));
    return mcp_job_check(&out->job, &ctx->err);
}

/* What the parts' checks say does not name the file they are of. */
static enum mcp_status name_file(struct mcp_context *ctx, const char *path, enum mcp_status status)
{
    const char *shown = mcp_shown(ctx->arena, path);
    if (status == MCP_INVALID && strncmp(ctx->err.text, shown, strlen(shown)) != 0)
        mcp_error_prefix(&ctx->err, shown);
    return status;
}

struct mcp_plan_changes mcp_plan_unchanged(void)
{
    return (struct mcp_plan_changes){.schedule = -1, .optimizer = -1, .phase = -1};
}

/* Layers spread evenly over another number of virtual stages, all with the one recompute. */
static enum mcp_status spread(struct mcp_context *ctx, int virtual_stages,
                              struct mcp_plan_file *out)
{
    struct mcp_plan *plan = &out->plan;
    enum mcp_recompute recompute = mcp_uniform_recompute(plan);
    int64_t stages = (int64_t)plan->pipeline_parallel * virtual_stages;
    if (recompute == MCP_NUM_RECOMPUTES || stages > out->model.num_layers)
        return mcp_fail(
            &ctx->err, MCP_INVALID,
            "--schedule %s needs virtual_stages=%d where the plan has %d, and its layers "
            "%s",
            mcp_schedule_names[plan->schedule], virtual_stages, plan->virtual_stages,
            recompute == MCP_NUM_RECOMPUTES ? "recompute different things"
                                            : "are fewer than that takes");
    plan->virtual_stages = virtual_stages;
    mcp_plan_uniform_chunks(ctx->arena, plan, out->model.num_layers, recompute);
    mcp_note("layers are spread evenly over virtual_stages=%d", virtual_stages);
    return MCP_OK;
}

/* DualPipe of p ranks, each with stages r and p - 1 - r: its halves are replicas. */
static enum mcp_status fold_dualpipe(struct mcp_context *ctx, struct mcp_plan *plan)
{
    int p = plan->pipeline_parallel, d = plan->data_parallel;
    if (p % 2 != 0 || p < 4 || plan->virtual_stages != 1 || plan->stage_pool != NULL)
        return mcp_fail(
            &ctx->err, MCP_INVALID,
            "--schedule dualpipe has stages r and p - 1 - r on rank r: it needs an even "
            "pipeline_parallel of 4 or more (here %d), virtual_stages=1 (here %d) and "
            "GPUs of one kind",
            p, plan->virtual_stages);
    plan->pipeline_parallel = p / 2;
    plan->data_parallel = 2 * d;
    plan->virtual_stages = 2;
    mcp_note("dualpipe holds the weights twice and reduces both copies' gradients together: played "
             "as its halves are, dualpipe-v with pipeline_parallel=%d, data_parallel=%d",
             p / 2, 2 * d);
    return MCP_OK;
}

/* The same plan under another schedule; V placement has two chunks on each rank. */
static enum mcp_status reschedule(struct mcp_context *ctx, int asked, struct mcp_plan_file *out)
{
    struct mcp_plan *plan = &out->plan;
    struct mcp_refusals refusals = {0};
    bool twice = asked == MCP_DUALPIPE_TWICE;
    enum mcp_schedule schedule = twice ? MCP_DUALPIPE_V : (enum mcp_schedule)asked;
    if (!mcp_legal(ctx->arena, &out->question, plan, &refusals))
        return MCP_OK; /* what is wrong with it is said later */
    if (twice)
        MCP_TRY(fold_dualpipe(ctx, plan));
    bool folded = mcp_plan_placement(plan) == MCP_PLACEMENT_V;
    bool folds = mcp_schedule_placement(schedule) == MCP_PLACEMENT_V;
    plan->schedule = schedule;
    plan->rows = NULL;
    if (plan->pipeline_parallel > 1 && folds && plan->virtual_stages != 2)
        MCP_TRY(spread(ctx, 2, out));
    if (folded && !folds && schedule != MCP_INTERLEAVED)
        MCP_TRY(spread(ctx, 1, out));
    if (!mcp_schedule_is_made(schedule) || plan->pipeline_parallel == 1)
        return MCP_OK;
    return mcp_plan_make_rows(ctx->arena, mcp_pricer_new(ctx->arena, &out->question), plan,
                              &ctx->err);
}

static enum mcp_status change(struct mcp_context *ctx, const struct mcp_plan_changes *changes,
                              struct mcp_plan_file *out)
{
    const struct mcp_rank_map *map = out->plan.rank_map;
    if (map != NULL) /* now that its cluster is known: counted once */
        MCP_TRY(mcp_plan_place(ctx->arena, &out->plan, &out->cluster, map->gpu_of_rank, &ctx->err));
    mcp_switch_optimizer(changes->optimizer, changes->phase, &out->job);
    MCP_TRY(mcp_job_check(&out->job, &ctx->err));
    MCP_TRY(mcp_switch_overlap(ctx->arena, changes->overlap, &out->stack, &out->plan.overlap,
                               &ctx->err));
    MCP_TRY(
        mcp_switch_placement(ctx->arena, changes->placement, &out->cluster, &out->plan, &ctx->err));
    return changes->schedule >= 0 ? reschedule(ctx, changes->schedule, out) : MCP_OK;
}

enum mcp_status mcp_plan_file_load(struct mcp_context *ctx, const char *path,
                                   const struct mcp_plan_changes *changes,
                                   struct mcp_plan_file *out)
{
    struct mcp_json *json;
    const char *schema = "";
    struct mcp_refusals refusals = {0};
    MCP_TRY(mcp_json_read(ctx->arena, path, &json, &ctx->err));
    MCP_TRY(mcp_json_string(json, "schema", &schema, &ctx->err));
    if (!mcp_same(schema, "mcpplan.plan/1"))
        return mcp_json_fail(json, &ctx->err,
                             "schema is \"%s\"; what is played is \"mcpplan.plan/1\"",
                             mcp_shown(ctx->arena, schema));
    MCP_TRY(name_file(ctx, path, read_question(ctx, json, out)));
    MCP_TRY(mcp_plan_from_json(ctx->arena, json, &out->plan, &ctx->err));
    MCP_TRY(mcp_plan_file_done(json, &ctx->err));
    MCP_TRY(change(ctx, changes, out));
    if (!mcp_legal(ctx->arena, &out->question, &out->plan, &refusals))
        return mcp_fail(&ctx->err, MCP_INVALID, "%s: %s", mcp_shown(ctx->arena, path),
                        refusals.items[0].text);
    MCP_TRY(mcp_sim_check_size(&out->plan, &out->job, &ctx->err));
    mcp_program_build(ctx->arena, &out->question, &out->plan, &out->program);
    return mcp_program_verify(ctx->arena, &out->program, &ctx->err);
}
