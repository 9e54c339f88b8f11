/* core/plan.c: one way to split a job: defaults, chunks, JSON. */
#include "core/plan.h"

#include "core/cluster.h"
#include "core/plan_schedule.h"
#include "core/rank_map.h"
#include "core/text.h"
#include "core/units.h"

#include <assert.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

const char *const mcp_recompute_names[MCP_NUM_RECOMPUTES] = {
    [MCP_RECOMPUTE_NONE] = "none",
    [MCP_RECOMPUTE_SELECTIVE] = "selective",
    [MCP_RECOMPUTE_FULL] = "full",
};
const char *const mcp_context_kind_names[MCP_NUM_CONTEXT_KINDS] = {
    [MCP_CONTEXT_RING] = "ring",
    [MCP_CONTEXT_ALL_GATHER] = "all_gather",
    [MCP_CONTEXT_ALL_TO_ALL] = "all_to_all",
};
static const enum mcp_axis mesh_axes[4] = {MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_PIPELINE};
static const char *const mesh_axis_names[4] = {"tensor_parallel", "context_parallel",
                                               "data_parallel", "pipeline_parallel"};

struct mcp_plan mcp_plan_default(void)
{
    return (struct mcp_plan){
        .tensor_parallel = 1,
        .context_parallel = 1,
        .pipeline_parallel = 1,
        .data_parallel = 1,
        .expert_parallel = 1,
        .virtual_stages = 1,
        .reshard_after_forward = true,
        .microbatch_size = 1,
        .schedule = MCP_1F1B,
        .rank_order = {MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_PIPELINE},
        .overlap = {.context = true},
    };
}

bool mcp_plan_gathers_again(const struct mcp_plan *plan)
{
    return plan->zero_stage == 3 && plan->reshard_after_forward;
}

int mcp_plan_world(const struct mcp_plan *plan)
{
    return plan->tensor_parallel * plan->context_parallel * plan->pipeline_parallel *
           plan->data_parallel;
}

int64_t mcp_num_microbatches(const struct mcp_plan *plan, const struct mcp_job *job)
{
    return job->global_batch_size / ((int64_t)plan->data_parallel * plan->microbatch_size);
}

void mcp_plan_uniform_chunks(struct mcp_arena *arena, struct mcp_plan *plan, int num_layers,
                             enum mcp_recompute recompute)
{
    int count = plan->virtual_stages * plan->pipeline_parallel;
    struct mcp_recompute_run *runs = MCP_ARRAY(arena, count, struct mcp_recompute_run);
    plan->chunks = MCP_ARRAY(arena, count, struct mcp_chunk);
    for (int k = 0, first = 0; k < count; k++) {
        int layers = num_layers / count + (k < num_layers % count);
        runs[k] = (struct mcp_recompute_run){recompute, layers};
        plan->chunks[k] = (struct mcp_chunk){first, layers, layers > 0, &runs[k]};
        first += layers;
    }
}

enum mcp_recompute mcp_plan_recompute(const struct mcp_plan *plan, int virtual_stage,
                                      int layer_in_chunk)
{
    const struct mcp_chunk *chunk = &plan->chunks[virtual_stage];
    assert(layer_in_chunk >= 0 && layer_in_chunk < chunk->num_layers);
    int run = 0;
    for (int end = chunk->runs[0].num_layers; end <= layer_in_chunk;
         end += chunk->runs[run].num_layers)
        run++;
    return chunk->runs[run].recompute;
}

/* Well-formed, but wrong: a message with the place, and MCP_INVALID. */
#define contradicts mcp_plan_contradicts

static enum mcp_status read_degree(struct mcp_json *json, const char *key, int *out,
                                   struct mcp_error *err)
{
    MCP_TRY(mcp_json_int(json, key, out, err));
    return *out >= 1 ? MCP_OK : contradicts(json, err, "%s=%d is not at least 1", key, *out);
}

static enum mcp_status check_world(const struct mcp_json *json, const struct mcp_plan *plan,
                                   struct mcp_error *err)
{
    int64_t world = (int64_t)plan->tensor_parallel * plan->context_parallel;
    if (!mcp_multiply(world, plan->pipeline_parallel, &world) ||
        !mcp_multiply(world, plan->data_parallel, &world) || world > INT_MAX)
        return contradicts(json, err,
                           "tensor_parallel=%d x context_parallel=%d x pipeline_parallel=%d x "
                           "data_parallel=%d is more than %d ranks",
                           plan->tensor_parallel, plan->context_parallel, plan->pipeline_parallel,
                           plan->data_parallel, INT_MAX);
    return MCP_OK;
}

static enum mcp_status read_choices(struct mcp_json *json, struct mcp_plan *plan,
                                    struct mcp_error *err)
{
    int kind;
    MCP_TRY(mcp_json_bool(json, "sequence_parallel", &plan->sequence_parallel, err));
    MCP_TRY(mcp_json_choice(json, "context_parallel_kind", mcp_context_kind_names,
                            MCP_NUM_CONTEXT_KINDS, &kind, err));
    plan->context_parallel_kind = (enum mcp_context_kind)kind;
    MCP_TRY(mcp_json_int(json, "zero_stage", &plan->zero_stage, err));
    if (plan->zero_stage > 3)
        return contradicts(json, err, "zero_stage=%d is not one of 0, 1, 2, 3", plan->zero_stage);
    return mcp_json_bool(json, "reshard_after_forward", &plan->reshard_after_forward, err);
}

static enum mcp_status read_parallel(struct mcp_json *file, struct mcp_plan *plan,
                                     struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_json_object(file, "parallel", &json, err));
    MCP_TRY(read_degree(json, "tensor_parallel", &plan->tensor_parallel, err));
    MCP_TRY(read_degree(json, "context_parallel", &plan->context_parallel, err));
    MCP_TRY(read_degree(json, "pipeline_parallel", &plan->pipeline_parallel, err));
    MCP_TRY(read_degree(json, "data_parallel", &plan->data_parallel, err));
    MCP_TRY(read_degree(json, "expert_parallel", &plan->expert_parallel, err));
    MCP_TRY(read_degree(json, "virtual_stages", &plan->virtual_stages, err));
    MCP_TRY(read_choices(json, plan, err));
    return check_world(json, plan, err);
}

/* On which pool of a mixed cluster each stage lies; [] where there is one. */
static enum mcp_status read_placement(struct mcp_arena *arena, struct mcp_json *json,
                                      struct mcp_plan *plan, struct mcp_error *err)
{
    struct mcp_json *list;
    if (!mcp_json_has(json, "placement"))
        return MCP_OK;
    MCP_TRY(mcp_json_array(json, "placement", &list, err));
    size_t count = mcp_json_count(list);
    if (count == 0)
        return MCP_OK;
    if (count != (size_t)plan->pipeline_parallel)
        return contradicts(list, err, "%zu pools for pipeline_parallel=%d stages", count,
                           plan->pipeline_parallel);
    int *pools = MCP_ARRAY(arena, count, int);
    for (size_t i = 0; i < count; i++) {
        MCP_TRY(mcp_json_as_int(mcp_json_at(list, i), &pools[i], err));
        if (pools[i] >= MCP_MAX_POOLS)
            return contradicts(list, err, "pool %d; a cluster has %d at most", pools[i],
                               MCP_MAX_POOLS);
    }
    plan->stage_pool = pools;
    return MCP_OK;
}

static enum mcp_status read_run(struct mcp_json *list, size_t index, struct mcp_recompute_run *run,
                                struct mcp_error *err)
{
    const char *name;
    struct mcp_json *count = mcp_json_at(list, 2 * index + 1);
    MCP_TRY(mcp_json_as_string(mcp_json_at(list, 2 * index), &name, err));
    MCP_TRY(mcp_json_as_int(count, &run->num_layers, err));
    if (run->num_layers < 1)
        return contradicts(count, err, "%d layers of \"%s\" are not at least 1", run->num_layers,
                           name);
    for (int i = 0; i < MCP_NUM_RECOMPUTES; i++) {
        if (mcp_same(name, mcp_recompute_names[i])) {
            run->recompute = (enum mcp_recompute)i;
            return MCP_OK;
        }
    }
    return mcp_json_fail(mcp_json_at(list, 2 * index), err, "\"%s\" is not none, selective or full",
                         name);
}

static enum mcp_status read_recompute(struct mcp_arena *arena, struct mcp_json *json,
                                      struct mcp_chunk *chunk, struct mcp_error *err)
{
    struct mcp_json *list;
    int64_t layers = 0;
    MCP_TRY(mcp_json_array(json, "recompute", &list, err));
    size_t count = mcp_json_count(list);
    if (count % 2 != 0)
        return mcp_json_fail(list, err, "%zu elements are no pairs of a name and a count", count);
    chunk->num_runs = (int)(count / 2);
    chunk->runs = MCP_ARRAY(arena, count / 2, struct mcp_recompute_run);
    for (int i = 0; i < chunk->num_runs; i++) {
        MCP_TRY(read_run(list, (size_t)i, &chunk->runs[i], err));
        layers += chunk->runs[i].num_layers;
    }
    if (layers != chunk->num_layers)
        return contradicts(list, err, "recompute names %lld layers, the chunk has %d",
                           (long long)layers, chunk->num_layers);
    return MCP_OK;
}

static enum mcp_status read_chunk(struct mcp_arena *arena, struct mcp_json *json,
                                  struct mcp_chunk *chunk, struct mcp_error *err)
{
    struct mcp_json *layers;
    MCP_TRY(mcp_json_array(json, "layers", &layers, err));
    if (mcp_json_count(layers) != 2)
        return mcp_json_fail(layers, err, "%zu elements are not [first, count]",
                             mcp_json_count(layers));
    MCP_TRY(mcp_json_as_int(mcp_json_at(layers, 0), &chunk->first_layer, err));
    MCP_TRY(mcp_json_as_int(mcp_json_at(layers, 1), &chunk->num_layers, err));
    return read_recompute(arena, json, chunk, err);
}

/* Only counts what the file holds, so that nothing is allocated for a claim. */
static enum mcp_status check_stage_counts(struct mcp_json *stages, const struct mcp_plan *plan,
                                          struct mcp_error *err)
{
    size_t count = mcp_json_count(stages);
    if (count != (size_t)plan->pipeline_parallel)
        return contradicts(stages, err, "%zu stages where pipeline_parallel=%d", count,
                           plan->pipeline_parallel);
    for (size_t r = 0; r < count; r++) {
        struct mcp_json *stage = mcp_json_at(stages, r), *chunks;
        MCP_TRY(mcp_json_array(stage, "chunks", &chunks, err));
        if (mcp_json_count(chunks) != (size_t)plan->virtual_stages)
            return contradicts(chunks, err, "%zu chunks where virtual_stages=%d",
                               mcp_json_count(chunks), plan->virtual_stages);
    }
    return MCP_OK;
}

/* Virtual stages in order hold layers 0, 1, ... once each; only the first and the
 * last, which have the embedding and the head, can do without any. */
static enum mcp_status check_cover(const struct mcp_json *stages, const struct mcp_plan *plan,
                                   struct mcp_error *err)
{
    int count = plan->virtual_stages * plan->pipeline_parallel;
    int64_t next = 0;
    for (int k = 0; k < count; k++) {
        const struct mcp_chunk *chunk = &plan->chunks[k];
        int r = mcp_plan_rank_of(plan, k), c = mcp_plan_chunk_of(plan, k);
        if (chunk->first_layer != next)
            return contradicts(stages, err, "stage %d, chunk %d starts at layer %d, not at %lld", r,
                               c, chunk->first_layer, (long long)next);
        if (chunk->num_layers == 0 && (count == 1 || (k > 0 && k < count - 1)))
            return contradicts(stages, err, "stage %d, chunk %d has no layers", r, c);
        next += chunk->num_layers;
    }
    if (next < 1 || next > INT_MAX)
        return contradicts(stages, err, "%lld layers in all are not between 1 and %d",
                           (long long)next, INT_MAX);
    return MCP_OK;
}

static enum mcp_status read_stages(struct mcp_arena *arena, struct mcp_json *file,
                                   struct mcp_plan *plan, struct mcp_error *err)
{
    struct mcp_json *stages, *chunks;
    int p = plan->pipeline_parallel, v = plan->virtual_stages;
    MCP_TRY(mcp_json_array(file, "stages", &stages, err));
    MCP_TRY(check_stage_counts(stages, plan, err));
    plan->chunks = mcp_alloc(arena, (size_t)p * (size_t)v, sizeof *plan->chunks);
    for (int r = 0; r < p; r++) {
        MCP_TRY(mcp_json_array(mcp_json_at(stages, (size_t)r), "chunks", &chunks, err));
        for (int c = 0; c < v; c++)
            MCP_TRY(read_chunk(arena, mcp_json_at(chunks, (size_t)c),
                               &plan->chunks[mcp_plan_virtual_stage(plan, r, c)], err));
    }
    return check_cover(stages, plan, err);
}

static enum mcp_status read_axis(struct mcp_json *item, unsigned *seen, enum mcp_axis *out,
                                 struct mcp_error *err)
{
    const char *name;
    MCP_TRY(mcp_json_as_string(item, &name, err));
    for (int i = 0; i < 4; i++) {
        if (!mcp_same(name, mesh_axis_names[i]))
            continue;
        if (*seen & mesh_axes[i])
            return contradicts(item, err, "%s is named twice", name);
        *seen |= mesh_axes[i];
        *out = mesh_axes[i];
        return MCP_OK;
    }
    return mcp_json_fail(item, err, "\"%s\" is no axis: %s, %s, %s, %s", name, mesh_axis_names[0],
                         mesh_axis_names[1], mesh_axis_names[2], mesh_axis_names[3]);
}

static enum mcp_status read_rank_order(struct mcp_json *file, struct mcp_plan *plan,
                                       struct mcp_error *err)
{
    struct mcp_json *list;
    unsigned seen = 0;
    MCP_TRY(mcp_json_array(file, "rank_order", &list, err));
    if (mcp_json_count(list) != 4)
        return contradicts(list, err, "%zu axes where all 4 are needed, fastest first",
                           mcp_json_count(list));
    for (size_t i = 0; i < 4; i++)
        MCP_TRY(read_axis(mcp_json_at(list, i), &seen, &plan->rank_order[i], err));
    return MCP_OK;
}

static enum mcp_status read_overlap(struct mcp_json *file, struct mcp_overlap *overlap,
                                    struct mcp_error *err)
{
    if (!mcp_json_has(file, "overlap"))
        return MCP_OK;
    struct mcp_json *json;
    MCP_TRY(mcp_json_object(file, "overlap", &json, err));
    MCP_TRY(mcp_json_maybe_bool(json, "tensor", &overlap->tensor, err));
    MCP_TRY(mcp_json_maybe_bool(json, "data", &overlap->data, err));
    overlap->gather = overlap->data; /* where a file does not tell them apart */
    MCP_TRY(mcp_json_maybe_bool(json, "gather", &overlap->gather, err));
    MCP_TRY(mcp_json_maybe_bool(json, "context", &overlap->context, err));
    MCP_TRY(mcp_json_maybe_bool(json, "pipeline", &overlap->pipeline, err));
    return mcp_json_maybe_bool(json, "expert", &overlap->expert, err);
}

enum mcp_status mcp_plan_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                   struct mcp_plan *out, struct mcp_error *err)
{
    struct mcp_plan plan = mcp_plan_default();
    MCP_TRY(read_parallel(json, &plan, err));
    MCP_TRY(read_degree(json, "microbatch_size", &plan.microbatch_size, err));
    MCP_TRY(mcp_plan_schedule_from_json(arena, json, &plan, err));
    MCP_TRY(read_stages(arena, json, &plan, err));
    MCP_TRY(read_rank_order(json, &plan, err));
    MCP_TRY(read_placement(arena, json, &plan, err));
    MCP_TRY(mcp_rank_map_from_json(arena, json, &plan, err));
    MCP_TRY(read_overlap(json, &plan.overlap, err));
    *out = plan;
    return MCP_OK;
}

enum mcp_status mcp_plan_file_done(struct mcp_json *file, struct mcp_error *err)
{
    static const char *const beside[] = {"schema",  "model",       "cluster",          "job",
                                         "stack",   "predicted",   "refusals",         "search",
                                         "against", "sensitivity", "memory_waterfall", "savings",
                                         "phases",  "refined"};
    for (size_t i = 0; i < MCP_COUNT_OF(beside); i++)
        (void)mcp_json_has(file, beside[i]); /* marks the key as known */
    return mcp_json_done(file, err);
}

static void write_parallel(const struct mcp_plan *plan, struct mcp_json *json)
{
    mcp_json_set_int(json, "tensor_parallel", plan->tensor_parallel);
    mcp_json_set_int(json, "context_parallel", plan->context_parallel);
    mcp_json_set_int(json, "pipeline_parallel", plan->pipeline_parallel);
    mcp_json_set_int(json, "data_parallel", plan->data_parallel);
    mcp_json_set_int(json, "expert_parallel", plan->expert_parallel);
    mcp_json_set_int(json, "virtual_stages", plan->virtual_stages);
    mcp_json_set_bool(json, "sequence_parallel", plan->sequence_parallel);
    mcp_json_set_string(json, "context_parallel_kind",
                        mcp_context_kind_names[plan->context_parallel_kind]);
    mcp_json_set_int(json, "zero_stage", plan->zero_stage);
    mcp_json_set_bool(json, "reshard_after_forward", plan->reshard_after_forward);
}

static void write_chunk(const struct mcp_chunk *chunk, struct mcp_json *json)
{
    struct mcp_json *layers = mcp_json_set_array(json, "layers");
    mcp_json_add_int(layers, chunk->first_layer);
    mcp_json_add_int(layers, chunk->num_layers);
    struct mcp_json *recompute = mcp_json_set_array(json, "recompute");
    for (int i = 0; i < chunk->num_runs; i++) {
        mcp_json_add_string(recompute, mcp_recompute_names[chunk->runs[i].recompute]);
        mcp_json_add_int(recompute, chunk->runs[i].num_layers);
    }
}

static void write_stages(const struct mcp_plan *plan, struct mcp_json *stages)
{
    int p = plan->pipeline_parallel;
    for (int r = 0; plan->chunks && r < p; r++) {
        struct mcp_json *chunks = mcp_json_set_array(mcp_json_add_object(stages), "chunks");
        for (int c = 0; c < plan->virtual_stages; c++)
            write_chunk(&plan->chunks[mcp_plan_virtual_stage(plan, r, c)],
                        mcp_json_add_object(chunks));
    }
}

static void write_rank_order(const struct mcp_plan *plan, struct mcp_json *list)
{
    for (int i = 0; i < 4; i++)
        for (int a = 0; a < 4; a++)
            if (plan->rank_order[i] == mesh_axes[a])
                mcp_json_add_string(list, mesh_axis_names[a]);
}

void mcp_plan_to_json(const struct mcp_plan *plan, struct mcp_json *object)
{
    write_parallel(plan, mcp_json_set_object(object, "parallel"));
    mcp_json_set_int(object, "microbatch_size", plan->microbatch_size);
    mcp_plan_schedule_to_json(plan, mcp_json_set_object(object, "schedule"));
    write_stages(plan, mcp_json_set_array(object, "stages"));
    write_rank_order(plan, mcp_json_set_array(object, "rank_order"));
    struct mcp_json *placement = mcp_json_set_array(object, "placement");
    for (int r = 0; plan->stage_pool != NULL && r < plan->pipeline_parallel; r++)
        mcp_json_add_int(placement, plan->stage_pool[r]);
    mcp_rank_map_to_json(plan, object);
    struct mcp_json *overlap = mcp_json_set_object(object, "overlap");
    mcp_json_set_bool(overlap, "tensor", plan->overlap.tensor);
    mcp_json_set_bool(overlap, "data", plan->overlap.data);
    mcp_json_set_bool(overlap, "pipeline", plan->overlap.pipeline);
    mcp_json_set_bool(overlap, "expert", plan->overlap.expert);
    mcp_json_set_bool(overlap, "gather", plan->overlap.gather);
    mcp_json_set_bool(overlap, "context", plan->overlap.context);
}
