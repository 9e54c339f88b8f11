/* planner/explain_what_if.c: the question changed in one thing, and searched again. */
#include "planner/explain.h"

#include <math.h>

const char *const mcp_what_if_names[MCP_NUM_WHAT_IFS] = {
    [MCP_IF_LINKS_FASTER] = "links_faster",     [MCP_IF_NO_LATENCY] = "no_latency",
    [MCP_IF_MORE_MEMORY] = "more_memory",       [MCP_IF_MEMORY_FASTER] = "memory_faster",
    [MCP_IF_HIGHER_CLOCK] = "higher_clock",     [MCP_IF_TWICE_THE_GPUS] = "twice_the_gpus",
    [MCP_IF_HALF_THE_GPUS] = "half_the_gpus",   [MCP_IF_TWICE_THE_BATCH] = "twice_the_batch",
    [MCP_IF_HALF_THE_BATCH] = "half_the_batch", [MCP_IF_TWICE_THE_LENGTH] = "twice_the_length",
};
const char *const mcp_what_if_texts[MCP_NUM_WHAT_IFS] = {
    [MCP_IF_LINKS_FASTER] = "all links twice as fast",
    [MCP_IF_NO_LATENCY] = "links without latency",
    [MCP_IF_MORE_MEMORY] = "memory +20 %",
    [MCP_IF_MEMORY_FASTER] = "memory bandwidth +20 %",
    [MCP_IF_HIGHER_CLOCK] = "clock +10 %",
    [MCP_IF_TWICE_THE_GPUS] = "twice the devices",
    [MCP_IF_HALF_THE_GPUS] = "half the devices",
    [MCP_IF_TWICE_THE_BATCH] = "batch x 2",
    [MCP_IF_HALF_THE_BATCH] = "batch / 2",
    [MCP_IF_TWICE_THE_LENGTH] = "sequences x 2, batch / 2",
};

/* A question that can be changed, and the space that goes with it. */
struct changed {
    struct mcp_cluster pools[MCP_MAX_POOLS];
    struct mcp_job job;
    struct mcp_question question; /* points to the two */
    struct mcp_plan_space space;
};

void mcp_explain_copy_pools(const struct mcp_cluster *cluster,
                            struct mcp_cluster pools[MCP_MAX_POOLS])
{
    for (int i = 0; i < mcp_cluster_num_pools(cluster); i++) {
        pools[i] = *mcp_cluster_pool(cluster, i);
        if (pools[i].next)
            pools[i].next = &pools[i + 1];
    }
}

static void speed_links(struct mcp_cluster *cluster, double bandwidth, double latency)
{
    for (int i = 0; i < cluster->num_tiers; i++) {
        cluster->tiers[i].bandwidth_bytes_per_s *= bandwidth;
        cluster->tiers[i].latency_s *= latency;
        cluster->tiers[i].round_trip_s *= latency;
    }
}

static void speed_clock(struct mcp_gpu *gpu, double factor)
{
    for (int i = 0; i < MCP_NUM_PRECISIONS; i++)
        gpu->peak_flops_per_s[i] *= factor;
}

/* What changes the machines, one pool at a time; false: this changes none. */
static bool change_pool(struct mcp_cluster *pool, enum mcp_what_if_kind kind)
{
    switch (kind) {
    case MCP_IF_LINKS_FASTER:
        speed_links(pool, 2, 1);
        return true;
    case MCP_IF_NO_LATENCY:
        speed_links(pool, 1, 0);
        return true;
    case MCP_IF_MORE_MEMORY:
        pool->gpu.memory_bytes += pool->gpu.memory_bytes / 5;
        return true;
    case MCP_IF_MEMORY_FASTER:
        pool->gpu.memory_bandwidth_bytes_per_s *= 1.2;
        return true;
    case MCP_IF_HIGHER_CLOCK:
        speed_clock(&pool->gpu, 1.1);
        return true;
    default:
        return false;
    }
}

static bool change_gpus(struct changed *to, int gpus)
{
    struct mcp_error unused;
    to->space.knobs[MCP_KNOB_DATA].given = false;
    return gpus > 0 && gpus <= MCP_MAX_GPUS &&
           mcp_cluster_set_gpus(to->pools, gpus, &unused) == MCP_OK;
}

static bool change_batch(struct mcp_job *job, int64_t numerator, int64_t denominator)
{
    struct mcp_error unused;
    int64_t batch = job->global_batch_size;
    if (batch % denominator != 0 || batch / denominator > INT64_MAX / numerator)
        return false;
    job->global_batch_size = batch / denominator * numerator;
    return mcp_job_check(job, &unused) == MCP_OK;
}

static bool change_length(const struct mcp_model *model, struct mcp_job *job)
{
    struct mcp_error unused;
    if (job->sequence_length > INT64_MAX / 2)
        return false;
    job->sequence_length *= 2;
    bool learned = model->position == MCP_POSITION_LEARNED && model->max_sequence_length > 0;
    return !(learned && job->sequence_length > model->max_sequence_length) &&
           change_batch(job, 1, 2) && mcp_job_check(job, &unused) == MCP_OK;
}

/* False: there is no such question. */
static bool change(struct changed *to, enum mcp_what_if_kind kind)
{
    int gpus = mcp_cluster_gpus(to->pools);
    bool machines = false;
    for (int i = 0; i < mcp_cluster_num_pools(to->pools); i++)
        machines = change_pool(&to->pools[i], kind);
    switch (kind) {
    case MCP_IF_TWICE_THE_GPUS:
        return gpus <= MCP_MAX_GPUS / 2 && change_gpus(to, 2 * gpus);
    case MCP_IF_HALF_THE_GPUS:
        return gpus % 2 == 0 && change_gpus(to, gpus / 2);
    case MCP_IF_TWICE_THE_BATCH:
        return change_batch(&to->job, 2, 1);
    case MCP_IF_HALF_THE_BATCH:
        return change_batch(&to->job, 1, 2);
    case MCP_IF_TWICE_THE_LENGTH:
        return change_length(to->question.model, &to->job);
    case MCP_IF_LINKS_FASTER:
    case MCP_IF_NO_LATENCY:
        return gpus > 1;
    default:
        return machines;
    }
}

static double tokens_per_s(const struct mcp_job *job, double iteration_s)
{
    return (double)job->global_batch_size * (double)job->sequence_length / iteration_s;
}

static void ask(struct mcp_arena *arena, const struct changed *to,
                const struct mcp_search_options *options, double now, struct mcp_what_if *out)
{
    struct mcp_answer answer;
    mcp_search(arena, &to->question, &to->space, options, &answer);
    out->fits = answer.count > 0;
    if (!out->fits)
        return;
    out->found = answer.found[0];
    out->tokens_per_s = tokens_per_s(&to->job, out->found.iteration_s);
    out->speed_up = out->tokens_per_s / now;
}

void mcp_what_ifs(struct mcp_arena *arena, const struct mcp_question *question,
                  const struct mcp_plan_space *space, const struct mcp_search_options *options,
                  const struct mcp_found *now, struct mcp_what_if out[MCP_NUM_WHAT_IFS])
{
    struct mcp_search_options one = *options;
    one.top = one.num_threads = 1;
    one.exhaustive = one.smallest = false;
    double rate = tokens_per_s(question->job, now->iteration_s);
    for (int kind = 0; kind < MCP_NUM_WHAT_IFS; kind++) {
        struct changed to = {.job = *question->job, .space = *space};
        mcp_explain_copy_pools(question->cluster, to.pools);
        to.question = (struct mcp_question){question->model, to.pools, &to.job, question->stack};
        out[kind] = (struct mcp_what_if){.kind = (enum mcp_what_if_kind)kind};
        out[kind].possible = change(&to, (enum mcp_what_if_kind)kind);
        if (out[kind].possible)
            ask(arena, &to, &one, rate, &out[kind]);
    }
}
