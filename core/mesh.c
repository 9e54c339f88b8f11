/* core/mesh.c: ranks as coordinates, and the groups that axes make of them.
 *
 * Tensor, context and data together are the plane: the mesh without its pipeline
 * axis, numbered in rank order. Every group is a set of plane indices times a set
 * of pipeline stages, and both are arithmetic progressions. */
#include "core/mesh.h"

#include "core/rank_map.h"

#include <assert.h>

#define PLANE ((unsigned)(MCP_TENSOR | MCP_CONTEXT | MCP_DATA))
#define STAGES ((unsigned)(MCP_PIPELINE | MCP_ENDS))
#define EXPERTS ((unsigned)(MCP_EXPERT | MCP_EXPERT_DATA))

/* Numbers 0, stride, 2 stride ... below degree x stride. */
struct run {
    int stride, degree;
};
struct runs {
    int count;
    struct run items[8];
};

static int degree_of(const struct mcp_plan *plan, unsigned axis)
{
    switch (axis) {
    case MCP_TENSOR:
        return plan->tensor_parallel;
    case MCP_CONTEXT:
        return plan->context_parallel;
    case MCP_DATA:
        return plan->data_parallel;
    default:
        return plan->pipeline_parallel;
    }
}

static int plane_size(const struct mcp_plan *plan)
{
    return plan->tensor_parallel * plan->context_parallel * plan->data_parallel;
}

/* Ranks between neighbours along the pipeline: the axes faster than it. */
static int pipeline_stride(const struct mcp_plan *plan)
{
    int stride = 1;
    for (int i = 0; i < 4 && plan->rank_order[i] != MCP_PIPELINE; i++)
        stride *= degree_of(plan, plan->rank_order[i]);
    return stride;
}

struct place {
    int plane, stage;
};

static struct place place_of(const struct mcp_plan *plan, int rank)
{
    int low = pipeline_stride(plan), p = plan->pipeline_parallel;
    return (struct place){rank % low + rank / (low * p) * low, rank / low % p};
}

static int rank_at(const struct mcp_plan *plan, struct place at)
{
    int low = pipeline_stride(plan);
    return at.plane % low + low * (at.stage + plan->pipeline_parallel * (at.plane / low));
}

static int *coordinate_along(struct mcp_coordinate *at, unsigned axis)
{
    switch (axis) {
    case MCP_TENSOR:
        return &at->tensor;
    case MCP_CONTEXT:
        return &at->context;
    case MCP_DATA:
        return &at->data;
    default:
        return &at->pipeline;
    }
}

struct mcp_coordinate mcp_mesh_coordinate(const struct mcp_plan *plan, int rank)
{
    struct mcp_coordinate at = {0};
    for (int i = 0; i < 4; i++) {
        int degree = degree_of(plan, plan->rank_order[i]);
        *coordinate_along(&at, plan->rank_order[i]) = rank % degree;
        rank /= degree;
    }
    return at;
}

struct mcp_coordinate mcp_mesh_coordinate_on(const struct mcp_plan *plan, int gpu)
{
    return mcp_mesh_coordinate(plan,
                               plan->rank_map != NULL ? plan->rank_map->rank_on_gpu[gpu] : gpu);
}

int mcp_mesh_rank(const struct mcp_plan *plan, struct mcp_coordinate at)
{
    int rank = 0;
    for (int i = 3; i >= 0; i--)
        rank = rank * degree_of(plan, plan->rank_order[i]) +
               *coordinate_along(&at, plan->rank_order[i]);
    return rank;
}

/* Appends a run, as a longer one where it continues the one before. */
static void add_run(struct runs *runs, int stride, int degree)
{
    struct run *previous = runs->count > 0 ? &runs->items[runs->count - 1] : NULL;
    if (degree == 1)
        return;
    if (previous != NULL && previous->stride * previous->degree == stride)
        previous->degree *= degree;
    else
        runs->items[runs->count++] = (struct run){stride, degree};
}

/* The plane indices of the group that holds index 0. */
static struct runs plane_runs(const struct mcp_plan *plan, unsigned axes)
{
    struct runs runs = {0};
    int stride = 1;
    if ((axes & EXPERTS) == EXPERTS)
        axes = (axes & ~EXPERTS) | PLANE;
    assert((axes & EXPERTS) == 0 || (axes & PLANE) == 0);
    if (axes & MCP_EXPERT)
        add_run(&runs, 1, plan->expert_parallel);
    if (axes & MCP_EXPERT_DATA)
        add_run(&runs, plan->expert_parallel, plane_size(plan) / plan->expert_parallel);
    for (int i = 0; i < 4; i++) {
        unsigned axis = plan->rank_order[i];
        if (axis == MCP_PIPELINE)
            continue;
        if (axes & axis)
            add_run(&runs, stride, degree_of(plan, axis));
        stride *= degree_of(plan, axis);
    }
    return runs;
}

/* The stages of the group that holds stage 0. */
static struct run stage_run(const struct mcp_plan *plan, unsigned axes)
{
    int p = plan->pipeline_parallel;
    if (axes & MCP_PIPELINE)
        return (struct run){1, p};
    if ((axes & MCP_ENDS) && p > 1)
        return (struct run){p - 1, 2};
    return (struct run){1, 1};
}

static int runs_size(const struct runs *runs)
{
    int size = 1;
    for (int i = 0; i < runs->count; i++)
        size *= runs->items[i].degree;
    return size;
}

int mcp_group_size(const struct mcp_plan *plan, unsigned axes)
{
    struct runs runs = plane_runs(plan, axes);
    return runs_size(&runs) * stage_run(plan, axes).degree;
}

static int nth_of_runs(const struct runs *runs, int n)
{
    int sum = 0;
    for (int i = 0; i < runs->count; i++) {
        sum += n % runs->items[i].degree * runs->items[i].stride;
        n /= runs->items[i].degree;
    }
    return sum;
}

/* The first plane index of the group that holds `plane`. */
static int first_of_group(const struct runs *runs, int plane)
{
    int first = plane;
    for (int i = 0; i < runs->count; i++)
        first -= plane / runs->items[i].stride % runs->items[i].degree * runs->items[i].stride;
    return first;
}

int mcp_group_members(const struct mcp_plan *plan, unsigned axes, int rank, int *members)
{
    struct place own = place_of(plan, rank);
    struct runs runs = plane_runs(plan, axes);
    struct run stages = stage_run(plan, axes);
    int first = first_of_group(&runs, own.plane);
    int first_stage = axes & STAGES ? 0 : own.stage;
    int count = 0, size = runs_size(&runs);
    for (int s = 0; s < stages.degree; s++)
        for (int n = 0; n < size; n++) {
            struct place at = {first + nth_of_runs(&runs, n), first_stage + s * stages.stride};
            members[count++] = rank_at(plan, at);
        }
    return count;
}

int mcp_group_beside(const struct mcp_plan *plan, unsigned axes, int rank, int domain)
{
    const int *gpu_of_rank = plan->rank_map->gpu_of_rank;
    struct place own = place_of(plan, rank);
    struct runs runs = plane_runs(plan, axes);
    struct run stages = stage_run(plan, axes);
    int first = first_of_group(&runs, own.plane), home = gpu_of_rank[rank] / domain;
    int first_stage = axes & STAGES ? 0 : own.stage;
    int count = 0, size = runs_size(&runs);
    for (int s = 0; s < stages.degree; s++)
        for (int n = 0; n < size; n++) {
            struct place at = {first + nth_of_runs(&runs, n), first_stage + s * stages.stride};
            count += gpu_of_rank[rank_at(plan, at)] / domain == home;
        }
    return count;
}

int mcp_group_index(const struct mcp_plan *plan, unsigned axes, int rank)
{
    struct place own = place_of(plan, rank);
    struct runs runs = plane_runs(plan, axes);
    struct run stages = stage_run(plan, axes);
    int index = 0, factor = 1;
    for (int i = 0; i < runs.count; i++) {
        index += own.plane / runs.items[i].stride % runs.items[i].degree * factor;
        factor *= runs.items[i].degree;
    }
    if (!(axes & STAGES))
        return index;
    return own.stage % stages.stride != 0 ? -1 : index + own.stage / stages.stride * factor;
}

bool mcp_mesh_is_same(const struct mcp_plan *a, const struct mcp_plan *b)
{
    const int world = mcp_plan_world(a);
    bool same = world == mcp_plan_world(b) &&
                mcp_group_size(a, MCP_EXPERT) == mcp_group_size(b, MCP_EXPERT);
    for (int rank = 0; same && rank < world; rank++) {
        const struct mcp_coordinate x = mcp_mesh_coordinate(a, rank);
        const struct mcp_coordinate y = mcp_mesh_coordinate(b, rank);
        same = x.tensor == y.tensor && x.context == y.context && x.data == y.data &&
               x.pipeline == y.pipeline;
    }
    return same;
}

static int greatest_common_divisor(int a, int b)
{
    while (b != 0) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Runs over plane indices as runs over ranks: those beyond the pipeline axis lie
 * pipeline_parallel times farther apart. A run that crosses it is cut in two; one
 * that does not nest there keeps the part that does. */
static void add_rank_run(const struct mcp_plan *plan, struct runs *out, struct run run)
{
    int low = pipeline_stride(plan), p = plan->pipeline_parallel;
    if (run.stride >= low) {
        add_run(out, run.stride * p, run.degree);
    } else if (run.stride * run.degree <= low) {
        add_run(out, run.stride, run.degree);
    } else {
        int near = greatest_common_divisor(low / run.stride, run.degree);
        add_run(out, run.stride, near);
        if (run.stride * near == low)
            add_run(out, low * p, run.degree / near);
    }
}

/* Least members of the run in one of the aligned domains that it meets. */
static int run_in_domain(struct run run, int domain)
{
    int common = greatest_common_divisor(run.stride * run.degree, domain);
    return common < run.stride ? 1 : common / run.stride;
}

/* Both ends share a domain only where the whole pipeline does. */
static int ends_in_domain(const struct mcp_plan *plan, int domain)
{
    int p = plan->pipeline_parallel;
    return p > 1 && run_in_domain((struct run){pipeline_stride(plan), p}, domain) == p ? 2 : 1;
}

int mcp_group_in_domain(const struct mcp_plan *plan, unsigned axes, int domain)
{
    struct runs plane = plane_runs(plan, axes), ranks = {0};
    int members = 1;
    if (plan->rank_map != NULL)
        return mcp_rank_map_in_domain(plan, axes, domain);
    if (domain >= mcp_plan_world(plan))
        return mcp_group_size(plan, axes);
    for (int i = 0; i < plane.count; i++)
        add_rank_run(plan, &ranks, plane.items[i]);
    if (axes & MCP_PIPELINE)
        add_run(&ranks, pipeline_stride(plan), plan->pipeline_parallel);
    else if (axes & MCP_ENDS)
        members = ends_in_domain(plan, domain);
    for (int i = 0; i < ranks.count; i++)
        members *= run_in_domain(ranks.items[i], domain);
    return members;
}

bool mcp_stages_in_domain(const struct mcp_plan *plan, int a, int b, int domain)
{
    if (domain >= mcp_plan_world(plan))
        return true;
    if (plan->rank_map != NULL)
        return mcp_rank_map_stages_meet(plan, a, b, domain);
    int members = mcp_group_in_domain(plan, MCP_PIPELINE, domain);
    return a / members == b / members;
}
