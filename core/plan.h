/* core/plan.h: one way to split a job over a cluster.
 *
 * world = tensor x context x pipeline x data. Experts are spread over
 * tensor x context x data and are no factor of the world. */
#ifndef MCP_CORE_PLAN_H
#define MCP_CORE_PLAN_H

#include "core/arena.h"
#include "core/error.h"
#include "core/job.h"
#include "core/json.h"

#include <stdbool.h>
#include <stdint.h>

enum mcp_recompute {
    MCP_RECOMPUTE_NONE,
    MCP_RECOMPUTE_SELECTIVE,
    MCP_RECOMPUTE_FULL,
    MCP_NUM_RECOMPUTES
};
enum mcp_context_kind {
    MCP_CONTEXT_RING,
    MCP_CONTEXT_ALL_GATHER,
    MCP_CONTEXT_ALL_TO_ALL,
    MCP_NUM_CONTEXT_KINDS
};
enum mcp_schedule { MCP_GPIPE, MCP_1F1B, MCP_INTERLEAVED, MCP_NUM_SCHEDULES };
extern const char *const mcp_recompute_names[MCP_NUM_RECOMPUTES];       /* "none" ... */
extern const char *const mcp_context_kind_names[MCP_NUM_CONTEXT_KINDS]; /* "ring" ... */
extern const char *const mcp_schedule_names[MCP_NUM_SCHEDULES];         /* "gpipe", "1f1b" ... */

/* Sets of mesh axes: a group of ranks is those that differ in these alone. */
enum mcp_axis {
    MCP_TENSOR = 1,
    MCP_CONTEXT = 2,
    MCP_DATA = 4,
    MCP_PIPELINE = 8,
    MCP_EXPERT = 16,      /* consecutive in tensor x context x data */
    MCP_EXPERT_DATA = 32, /* its complement there */
    MCP_ENDS = 64         /* first and last pipeline stage */
};

struct mcp_recompute_run {
    enum mcp_recompute recompute;
    int num_layers;
};

/* Consecutive layers that one rank runs as a unit. Virtual stage k = chunk c of
 * stage r has k = c x pipeline_parallel + r. */
struct mcp_chunk {
    int first_layer;
    int num_layers;
    int num_runs;
    struct mcp_recompute_run *runs; /* cover num_layers, first layer first */
};

struct mcp_overlap { /* what the plan asks its stack to hide */
    bool tensor, data, pipeline, expert;
};

struct mcp_plan {
    int tensor_parallel, context_parallel, pipeline_parallel, data_parallel;
    int expert_parallel;
    int virtual_stages;
    bool sequence_parallel;
    enum mcp_context_kind context_parallel_kind;
    int zero_stage;             /* 0 .. 3 */
    bool reshard_after_forward; /* ZeRO-3 gathers again in backward */
    int microbatch_size;
    enum mcp_schedule schedule;
    struct mcp_chunk *chunks;    /* [virtual_stages x pipeline_parallel] by virtual stage */
    enum mcp_axis rank_order[4]; /* fastest first */
    const int *stage_pool;       /* [pipeline_parallel] pool of the cluster; NULL: 0 */
    struct mcp_overlap overlap;
};

/* Every degree 1, 1F1B, no chunks, rank order tensor, context, data, pipeline. */
struct mcp_plan mcp_plan_default(void);

int mcp_plan_world(const struct mcp_plan *plan);
/* global_batch_size / (data_parallel x microbatch_size). */
int64_t mcp_num_microbatches(const struct mcp_plan *plan, const struct mcp_job *job);

/* Fills chunks: num_layers spread over virtual stages as evenly as can be, the
 * larger ones first, all with `recompute`. */
void mcp_plan_uniform_chunks(struct mcp_arena *arena, struct mcp_plan *plan, int num_layers,
                             enum mcp_recompute recompute);
enum mcp_recompute mcp_plan_recompute(const struct mcp_plan *plan, int virtual_stage,
                                      int layer_in_chunk);

/* The keys parallel, microbatch_size, schedule, stages, rank_order, overlap. */
enum mcp_status mcp_plan_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                   struct mcp_plan *out, struct mcp_error *err);
void mcp_plan_to_json(const struct mcp_plan *plan, struct mcp_json *object);
/* Once its plan is read, refuses keys of a plan.json that are neither of the plan nor of the
 * question and the answer beside it. */
enum mcp_status mcp_plan_file_done(struct mcp_json *file, struct mcp_error *err);

#endif
