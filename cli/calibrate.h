/* cli/calibrate.h: ops timed in short runs of real steps, as `mcpplan calibrate` does. */
#ifndef MCP_CLI_CALIBRATE_H
#define MCP_CLI_CALIBRATE_H

#include "cli/output.h"
#include "cli/train_backend.h"
#include "core/calibration.h"
#include "core/plan.h"
#include "step/legal.h"

/* One layout, run. */
struct mcp_calibration_run {
    const char *name; /* "tensor 2, microbatch 1" */
    struct mcp_plan plan;
    double iteration_s; /* of its fastest step */
    double idle_s;      /* of that, when no op ran on rank 0 */
    double data_s;      /* of transfers between data ranks on rank 0 */
    double exposed_s;   /* in which transfers ran on rank 0 and nothing else did */
};
enum { MCP_MAX_CALIBRATION_RUNS = 64 };

struct mcp_calibrate {
    const struct mcp_question *question; /* of a short model, on all ranks */
    enum mcp_train_backend backend;
    int num_runs, steps, repeats;
    struct mcp_calibration_run runs[MCP_MAX_CALIBRATION_RUNS];
    struct mcp_calibration times; /* every time that an op took */
    size_t times_capacity;
    /* results */
    struct mcp_calibration calibration;
    double spread_frac;       /* core/calibration.h: mcp_calibration_reduce() */
    double data_overlap_frac; /* NaN: no transfers between data ranks were measured */
};

/* Every legal way to use all ranks for one purpose, for several sizes of microbatch, as far as
 * memory holds it. MCP_INVALID: none, or a model that no backend trains; MCP_INFEASIBLE: none
 * that memory holds. */
enum mcp_status mcp_calibrate_layouts(struct mcp_arena *arena, struct mcp_calibrate *calibrate,
                                      struct mcp_error *err);
/* Runs them through `mcpplan train`, in turns. MCP_RUN_FAILURE says what a run said. */
enum mcp_status mcp_calibrate_run(struct mcp_context *ctx, struct mcp_calibrate *calibrate);

#endif
