/* tests/bench/bench_sim.c: how fast a step is played.
 *
 * Llama-3.1-405B on H100, sequence 8,192, tensor 8, context 8, pipeline 16, microbatch 1,
 * 128 microbatches a replica; data 1, 4, 16 and 64 give 1k to 64k ranks. Folded: the
 * program is built, priced and played entry by entry; op by op on shared links; unfolded
 * with 2 % of noise, every rank's jitter drawn, by entry and, once, by op. One core. */
#include "sim/ops.h"
#include "step/build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { REPEATS = 5 };

struct world {
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_question question;
    struct mcp_plan plan;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static enum mcp_status load(struct mcp_arena *arena, int data, struct world *w,
                            struct mcp_error *err)
{
    MCP_TRY(mcp_model_load(arena, "llama-3.1-405b", &w->model, err));
    MCP_TRY(mcp_cluster_load(arena, "dgx-h100", &w->cluster, err));
    MCP_TRY(mcp_stack_load(arena, "megatron-core", &w->stack, err));
    w->job = mcp_job_default();
    w->question = (struct mcp_question){&w->model, &w->cluster, &w->job, &w->stack};
    w->plan = mcp_plan_default();
    w->plan.tensor_parallel = w->plan.context_parallel = 8;
    w->plan.pipeline_parallel = 16;
    w->plan.data_parallel = data;
    w->plan.sequence_parallel = true;
    w->plan.zero_stage = 1;
    w->plan.overlap = (struct mcp_overlap){true, true, true, true, true, true};
    w->job.global_batch_size = 128 * data;
    w->job.sequence_length = 8192;
    mcp_plan_uniform_chunks(arena, &w->plan, w->model.num_layers, MCP_RECOMPUTE_NONE);
    return mcp_cluster_set_gpus(&w->cluster, mcp_plan_world(&w->plan), err);
}

enum way { FOLDED, OPS, NOISY, NOISY_OPS, NUM_WAYS };
static const char *const way_names[NUM_WAYS] = {"folded, by entry", "folded, by op",
                                                "noise, by entry", "noise, by op"};

/* Seconds from the plan to the result. */
static double play(const struct world *w, enum way way, struct mcp_sim_result *result)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_program program;
    struct mcp_sim_options options = mcp_sim_options_default();
    const struct mcp_sim_ops_options ops = {.shared_links = true, .ranks = &options};
    double start = now_s();
    options.noise = way >= NOISY ? 0.02 : 0;
    mcp_program_build(arena, &w->question, &w->plan, &program);
    if (way == OPS || way == NOISY_OPS)
        mcp_sim_play_ops(arena, &w->question, &program, &ops, result);
    else
        mcp_sim_play(arena, &w->question, &program, &options, result);
    double seconds = now_s() - start;
    mcp_arena_free(arena);
    return seconds;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void bench(const struct world *w, enum way way)
{
    double seconds[REPEATS];
    struct mcp_sim_result result;
    struct rusage usage;
    int repeats = way == NOISY_OPS ? 1 : REPEATS;
    for (int i = 0; i < repeats; i++)
        seconds[i] = play(w, way, &result);
    qsort(seconds, (size_t)repeats, sizeof *seconds, by_value);
    getrusage(RUSAGE_SELF, &usage);
    printf("  %6d ranks, %-17s %9.1f ms best, %9.1f median; %9" PRId64
           " events, step %.3f s, %ld MiB so far\n",
           mcp_plan_world(&w->plan), way_names[way], 1e3 * seconds[0], 1e3 * seconds[repeats / 2],
           result.events, (double)result.step_ns * 1e-9, usage.ru_maxrss / 1024);
}

int main(void)
{
    printf("sim: llama-3.1-405b, tensor 8, context 8, pipeline 16\n");
    for (int data = 1; data <= 64; data *= 4) {
        struct mcp_arena *arena = mcp_arena_new();
        struct world w;
        struct mcp_error err;
        if (load(arena, data, &w, &err) != MCP_OK) {
            fprintf(stderr, "bench_sim: %s\n", err.text);
            return 1;
        }
        for (int way = 0; way < NUM_WAYS; way++)
            bench(&w, (enum way)way);
        mcp_arena_free(arena);
    }
    return 0;
}
