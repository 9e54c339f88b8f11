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
enum mcp_schedule {
    MCP_GPIPE,
    MCP_1F1B,
    MCP_INTERLEAVED,
    MCP_ZB_H1, /* zero bubble, the memory of 1F1B (Qi et al. 2023, "Zero Bubble Pipeline ..") */
    MCP_ZB_H2, /* ... twice that */
    MCP_ZB_V,  /* V placement, the memory of 1F1B (Qi et al. 2024, "Pipeline Parallelism
                * with Controllable Memory") */
    MCP_V_HALF,
    MCP_V_MIN,
    MCP_DUALPIPE_V, /* DeepSeek's DualPipeV: a forward beside each backward */
    MCP_CUSTOM,     /* rows say the order, and `placement` where stages lie */
    MCP_NUM_SCHEDULES
};
/* Which rank holds virtual stage k of p ranks and v chunks each. */
enum mcp_placement {
    MCP_PLACEMENT_LOOP, /* k mod p: chunk 0 of every rank, then chunk 1 from rank 0 again */
    MCP_PLACEMENT_V,    /* there and back: chunk 1 from rank p - 1 down to 0, chunk 2 up .. */
    MCP_NUM_PLACEMENTS
};
enum mcp_pass {
    MCP_PASS_FORWARD,
    MCP_PASS_BACKWARD, /* whole; or in two parts: */
    MCP_PASS_BACKWARD_INPUT,
    MCP_PASS_BACKWARD_WEIGHT,
    MCP_NUM_PASSES
};
extern const char *const mcp_recompute_names[MCP_NUM_RECOMPUTES];       /* "none" ... */
extern const char *const mcp_context_kind_names[MCP_NUM_CONTEXT_KINDS]; /* "ring" ... */
extern const char *const mcp_schedule_names[MCP_NUM_SCHEDULES];         /* "gpipe", "1f1b" ... */
/* Of DualPipe with two copies of the weights: played alone; a sentence says so of "dualpipe". */
extern const char mcp_dualpipe_name[], mcp_dualpipe_sentence[];
extern const char *const mcp_placement_names[MCP_NUM_PLACEMENTS]; /* "loop", "v" */
extern const char mcp_pass_letters[MCP_NUM_PASSES + 1]; /* PyTorch's: F, B (whole), I, W */

/* Sets of mesh axes: a group of ranks is those that differ in these alone. */
enum mcp_axis {
    MCP_TENSOR = 1,
    MCP_CONTEXT = 2,
    MCP_DATA = 4,
    MCP_PIPELINE = 8,
    MCP_EXPERT = 16,      /* consecutive in tensor x context x data */
    MCP_EXPERT_DATA = 32, /* its complement there */
    MCP_ENDS = 64,        /* first and last pipeline stage */
    MCP_NUM_AXIS_SETS = 128
};

struct mcp_recompute_run {
    enum mcp_recompute recompute;
    int num_layers;
};

/* Consecutive layers that one rank runs as a unit: one virtual stage. */
struct mcp_chunk {
    int first_layer;
    int num_layers;
    int num_runs;
    struct mcp_recompute_run *runs; /* cover num_layers, first layer first */
};

/* What a rank does next: one pass of one of its chunks for one microbatch. */
struct mcp_action {
    int chunk; /* of the rank: 0 .. virtual_stages - 1 */
    int microbatch;
    enum mcp_pass pass;
};
struct mcp_schedule_row { /* of one rank, in order */
    int num_actions;
    struct mcp_action *actions;
};

struct mcp_overlap { /* what the plan asks its stack to hide */
    bool tensor;     /* pieces of transfers between products, or beside products they do not need */
    bool data;       /* gradients' reductions under backward, bucket by bucket */
    bool pipeline;   /* messages under compute */
    bool expert;
    bool gather;  /* ZeRO's weights under compute: the next layer's (3), all under forward (1, 2) */
    bool context; /* ring steps under the attention of the step before */
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
    enum mcp_placement placement; /* of schedule custom; others imply it: mcp_plan_placement() */
    const struct mcp_schedule_row *rows; /* [pipeline_parallel]; NULL: the name says the order */
    struct mcp_chunk *chunks;            /* [virtual_stages x pipeline_parallel] by virtual stage */
    enum mcp_axis rank_order[4];         /* fastest first */
    const int *stage_pool;               /* [pipeline_parallel] pool of the cluster; NULL: 0 */
    struct mcp_overlap overlap;
    /* which GPU each rank lies on; NULL: its own number. core/rank_map.h */
    const struct mcp_rank_map *rank_map;
};

/* Every degree 1, 1F1B, no chunks, nothing hidden but ring steps, rank order tensor, context, data,
 * pipeline. */
struct mcp_plan mcp_plan_default(void);

int mcp_plan_world(const struct mcp_plan *plan);
/* global_batch_size / (data_parallel x microbatch_size). */
int64_t mcp_num_microbatches(const struct mcp_plan *plan, const struct mcp_job *job);

/* Where virtual stages lie: the one place that knows. rank_of and chunk_of are the
 * inverse of virtual_stage. Under MCP_PLACEMENT_V neighbours k, k + 1 on either side of a
 * turn share a rank: what passes between them is no message. */
enum mcp_placement mcp_schedule_placement(enum mcp_schedule schedule); /* custom: loop */
enum mcp_placement mcp_plan_placement(const struct mcp_plan *plan);
int mcp_placed_rank(enum mcp_placement placement, int pipeline_parallel, int virtual_stage);
int mcp_placed_stage(enum mcp_placement placement, int pipeline_parallel, int rank, int chunk);
int mcp_plan_rank_of(const struct mcp_plan *plan, int virtual_stage);
int mcp_plan_chunk_of(const struct mcp_plan *plan, int virtual_stage);
int mcp_plan_virtual_stage(const struct mcp_plan *plan, int rank, int chunk);

/* Does virtual stage k belong to a chunk that runs from the last rank to the first? */
bool mcp_plan_is_mirrored(const struct mcp_plan *plan, int virtual_stage);
/* Do virtual stages k and k + 1 lie on one rank? Then what passes is no message. */
bool mcp_plan_hands_over(const struct mcp_plan *plan, int virtual_stage);
/* Or does a message pass between them? False where one of the two is none. */
bool mcp_plan_has_boundary(const struct mcp_plan *plan, int virtual_stage);
/* Do the first and the last virtual stage lie on one rank? Then tied weights are one table. */
bool mcp_plan_ends_meet(const struct mcp_plan *plan);

/* Are weights gathered for each slot that uses them, and given up after it? */
bool mcp_plan_gathers_again(const struct mcp_plan *plan);
/* Do backwards of the schedule come in two parts, for all microbatches or some? */
bool mcp_plan_splits_backward(const struct mcp_plan *plan);
/* Does the schedule's name say the order, or do only rows? */
bool mcp_schedule_has_generator(enum mcp_schedule schedule);

/* Fills chunks: num_layers spread over virtual stages as evenly as can be, the
 * larger ones first, all with `recompute`. */
void mcp_plan_uniform_chunks(struct mcp_arena *arena, struct mcp_plan *plan, int num_layers,
                             enum mcp_recompute recompute);
enum mcp_recompute mcp_plan_recompute(const struct mcp_plan *plan, int virtual_stage,
                                      int layer_in_chunk);

/* The keys parallel, microbatch_size, schedule, stages, rank_order, overlap. Rows are one
 * string a rank, of virtual stage, letter and microbatch: "0F0 0F1 0I0 0W0". Whether they
 * are complete and can be played is asked of mcp_legal(). */
enum mcp_status mcp_plan_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                   struct mcp_plan *out, struct mcp_error *err);
void mcp_plan_to_json(const struct mcp_plan *plan, struct mcp_json *object);
/* Once its plan is read, refuses keys of a plan.json that are neither of the plan nor of the
 * question and the answer beside it. */
enum mcp_status mcp_plan_file_done(struct mcp_json *file, struct mcp_error *err);

#endif
