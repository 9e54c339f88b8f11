/* cli/calibrate_layouts.c: which steps are timed. */
#include "cli/calibrate.h"

#include "core/text.h"

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

/* False: not legal. */
static bool add(struct mcp_arena *arena, struct mcp_calibrate *calibrate,
                const struct purpose *purpose, int microbatch)
{
    const struct mcp_question *question = calibrate->question;
    int ranks = mcp_cluster_gpus(question->cluster);
    struct mcp_refusals *refusals = MCP_NEW(arena, struct mcp_refusals);
    struct mcp_plan plan = plan_of(arena, purpose, ranks, microbatch, question->model);
    bool same = ranks == 1 && purpose != purposes; /* one rank has one purpose */
    if (same || calibrate->num_runs == MCP_MAX_CALIBRATION_RUNS ||
        !mcp_legal(arena, question, &plan, refusals))
        return false;
    calibrate->runs[calibrate->num_runs++] = (struct mcp_calibration_run){
        .name = mcp_format(arena, "%s %d, microbatch %d", purpose->name, ranks, microbatch),
        .plan = plan};
    return true;
}

void mcp_calibrate_layouts(struct mcp_arena *arena, struct mcp_calibrate *calibrate)
{
    for (size_t i = 0; i < MCP_COUNT_OF(purposes); i++)
        for (int microbatch = MOST_MICROBATCH; microbatch >= 1; microbatch /= 2)
            if (add(arena, calibrate, &purposes[i], microbatch) && purposes[i].once)
                break;
}
