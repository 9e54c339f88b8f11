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
    enum mcp_context_kind context_kind;
};
static const struct purpose purposes[] = {
    {"data", MCP_DATA, 0, false, false, MCP_CONTEXT_RING},
    {"data, overlapped", MCP_DATA, 0, false, true, MCP_CONTEXT_RING},
    {"data, ZeRO-1", MCP_DATA, 1, false, false, MCP_CONTEXT_RING},
    {"data, ZeRO-3", MCP_DATA, 3, false, false, MCP_CONTEXT_RING},
    {"tensor", MCP_TENSOR, 0, false, false, MCP_CONTEXT_RING},
    {"tensor with sequence", MCP_TENSOR, 0, true, false, MCP_CONTEXT_RING},
    {"context ring", MCP_CONTEXT, 0, false, false, MCP_CONTEXT_RING},
    {"context all-to-all", MCP_CONTEXT, 0, false, false, MCP_CONTEXT_ALL_TO_ALL},
    {"context all-gather", MCP_CONTEXT, 0, false, false, MCP_CONTEXT_ALL_GATHER},
    {"pipeline", MCP_PIPELINE, 0, false, false, MCP_CONTEXT_RING},
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

static void add(struct mcp_arena *arena, struct mcp_calibrate *calibrate,
                const struct purpose *purpose, int microbatch)
{
    const struct mcp_question *question = calibrate->question;
    int ranks = mcp_cluster_gpus(question->cluster);
    struct mcp_refusals *refusals = MCP_NEW(arena, struct mcp_refusals);
    struct mcp_plan plan = plan_of(arena, purpose, ranks, microbatch, question->model);
    if (calibrate->num_runs == MCP_MAX_CALIBRATION_RUNS ||
        !mcp_legal(arena, question, &plan, refusals))
        return;
    calibrate->runs[calibrate->num_runs++] = (struct mcp_calibration_run){
        .name = mcp_format(arena, "%s %d, microbatch %d", purpose->name, ranks, microbatch),
        .plan = plan};
}

void mcp_calibrate_layouts(struct mcp_arena *arena, struct mcp_calibrate *calibrate)
{
    for (size_t i = 0; i < MCP_COUNT_OF(purposes); i++)
        for (int microbatch = 1; microbatch <= MOST_MICROBATCH; microbatch *= 2)
            add(arena, calibrate, &purposes[i], microbatch);
}
