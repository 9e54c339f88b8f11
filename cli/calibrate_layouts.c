/* cli/calibrate_layouts.c: which steps are timed. */
#include "cli/calibrate.h"

#include "core/minmax.h"
#include "core/text.h"
#include "core/units.h"
#include "step/build.h"
#include "step/estimate.h"

#include <string.h>

enum { MOST_MICROBATCH = 4 };

/* All ranks for one axis. */
struct purpose {
    const char *name;
    enum mcp_axis axis;
    int zero_stage;
    bool sequence_parallel, overlap;
    bool once; /* for the largest microbatch alone: its ops are those of another, but for
                * transfers that do not depend on it */
    enum mcp_context_kind context_kind;
};
static const struct purpose purposes[] = {
    {.name = "data", .axis = MCP_DATA},
    {.name = "data, overlapped", .axis = MCP_DATA, .overlap = true, .once = true},
    {.name = "data, ZeRO-1", .axis = MCP_DATA, .zero_stage = 1, .once = true},
    {.name = "data, ZeRO-3", .axis = MCP_DATA, .zero_stage = 3, .once = true},
    {.name = "tensor", .axis = MCP_TENSOR},
    {.name = "tensor with sequence", .axis = MCP_TENSOR, .sequence_parallel = true},
    {.name = "context ring", .axis = MCP_CONTEXT},
    {.name = "context all-to-all",
     .axis = MCP_CONTEXT,
     .context_kind = MCP_CONTEXT_ALL_TO_ALL,
     .once = true},
    {.name = "context all-gather",
     .axis = MCP_CONTEXT,
     .context_kind = MCP_CONTEXT_ALL_GATHER,
     .once = true},
    {.name = "pipeline", .axis = MCP_PIPELINE},
};

static struct mcp_plan plan_of(struct mcp_arena *arena, const struct purpose *purpose, int ranks,
                               int microbatch, const struct mcp_model *model)
{
    struct mcp_plan plan = mcp_plan_default();
    plan.tensor_parallel = purpose->axis == MCP_TENSOR ? ranks : 1;
    plan.context_parallel = purpose->axis == MCP_CONTEXT ? ranks : 1;
    plan.pipeline_parallel = purpose->axis == MCP_PIPELINE ? ranks : 1;
    plan.data_parallel = purpose->axis == MCP_DATA ? ranks : 1;
    plan.sequence_parallel = purpose->sequence_parallel;
    plan.context_parallel_kind = purpose->context_kind;
    plan.zero_stage = purpose->zero_stage;
    plan.overlap.data = purpose->overlap;
    plan.microbatch_size = microbatch;
    mcp_plan_uniform_chunks(arena, &plan, model->num_layers, MCP_RECOMPUTE_NONE);
    return plan;
}

/* What layouts are judged by. */
struct judge {
    struct mcp_arena *arena;
    struct mcp_calibrate *calibrate;
    struct mcp_pricer *pricer;
    struct mcp_prediction *prediction;
    int64_t least_bytes;   /* that a legal layout needs of a rank; INT64_MAX: none is legal */
    struct mcp_plan legal; /* the first, if any */
};

/* False: not legal, or beyond the ranks' memory. */
static bool add(struct judge *judge, const struct purpose *purpose, int microbatch)
{
    struct mcp_arena *arena = judge->arena;
    struct mcp_calibrate *calibrate = judge->calibrate;
    const struct mcp_question *question = calibrate->question;
    int ranks = mcp_cluster_gpus(question->cluster);
    struct mcp_refusals *refusals = MCP_NEW(arena, struct mcp_refusals);
    struct mcp_plan plan = plan_of(arena, purpose, ranks, microbatch, question->model);
    bool same = ranks == 1 && purpose != purposes; /* one rank has one purpose */
    if (same || calibrate->num_runs == MCP_MAX_CALIBRATION_RUNS ||
        !mcp_legal(arena, question, &plan, refusals))
        return false;
    if (judge->least_bytes == INT64_MAX)
        judge->legal = plan;
    mcp_estimate(judge->pricer, &plan, judge->prediction);
    judge->least_bytes = mcp_min_int64(judge->least_bytes, judge->prediction->peak_memory_bytes);
    if (!judge->prediction->fits)
        return false;
    calibrate->runs[calibrate->num_runs++] = (struct mcp_calibration_run){
        .name = mcp_format(arena, "%s %d, microbatch %d", purpose->name, ranks, microbatch),
        .plan = plan};
    return true;
}

/* By what of it is in the way first: its layers, then its size. */
static enum mcp_status check(const struct judge *judge, struct mcp_error *err)
{
    const struct mcp_question *question = judge->calibrate->question;
    const int ranks = mcp_cluster_gpus(question->cluster);
    struct mcp_program program;
    if (judge->least_bytes == INT64_MAX)
        return mcp_fail(err, MCP_INVALID,
                        "no layout of %s over %d ranks is legal; choose another --ranks or "
                        "--global-batch-size",
                        question->model->name, ranks);
    mcp_program_build(judge->arena, question, &judge->legal, &program);
    MCP_TRY(mcp_program_check_trained(&program, err));
    if (judge->calibrate->num_runs > 0)
        return MCP_OK;
    return mcp_fail(
        err, MCP_INFEASIBLE,
        "steps of %s with sequences of %lld need %s of each of %d ranks, which may "
        "use %s; choose a smaller --sequence-length, --global-batch-size or --ranks",
        question->model->name, (long long)question->job->sequence_length,
        mcp_show(judge->arena, (double)judge->least_bytes, MCP_BYTES), ranks,
        mcp_show(judge->arena, (double)judge->prediction->memory_limit_bytes, MCP_BYTES));
}

enum mcp_status mcp_calibrate_layouts(struct mcp_arena *arena, struct mcp_calibrate *calibrate,
                                      struct mcp_error *err)
{
    struct judge judge = {.arena = arena,
                          .calibrate = calibrate,
                          .pricer = mcp_pricer_new(arena, calibrate->question),
                          .prediction = MCP_NEW(arena, struct mcp_prediction),
                          .least_bytes = INT64_MAX};
    for (size_t i = 0; i < MCP_COUNT_OF(purposes); i++)
        for (int microbatch = MOST_MICROBATCH; microbatch >= 1; microbatch /= 2)
            if (add(&judge, &purposes[i], microbatch) && purposes[i].once)
                break;
    return check(&judge, err);
}
