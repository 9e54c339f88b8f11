/* tests/bench/bench_plans.c: plans priced in full, time and memory, per second.
 *
 * Uniform plans of every eighth layout of gpt3-175b on 128 nodes of dgx-a100 (1,024
 * GPUs), batch 1,536, sequence 2,048, in the usual rank order, that are legal and keep
 * the article's rules; one core. Cold: a pricer that has seen nothing; warm: the same
 * once more. */
#include "planner/search.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPEATS = 3, LAYOUT_STEP = 8 };

struct plans {
    struct mcp_plan *items;
    size_t count, capacity;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct plans legal_plans(struct mcp_arena *arena, const struct mcp_question *question)
{
    struct plans plans = {0};
    struct mcp_layout *layouts;
    struct mcp_plan_space space = mcp_space_default();
    space.usual_order = true;
    int num_layouts = mcp_space_layouts(arena, question, &space, &layouts);
    for (int i = 0; i < num_layouts; i += LAYOUT_STEP) {
        struct mcp_choices choices;
        mcp_space_choices(arena, question, &space, &layouts[i], &choices);
        int64_t count = mcp_choices_count(&choices);
        for (int64_t k = 0; k < count; k++) {
            struct mcp_plan plan;
            mcp_choices_plan(&choices, k, &plan);
            if (mcp_illegal_rule(question, &plan) || !mcp_pipeline_rule(question, &plan) ||
                !mcp_batch_rule(question, &plan))
                continue;
            plans.items = mcp_grow(arena, plans.items, plans.count, &plans.capacity, sizeof plan);
            plans.items[plans.count++] = plan;
        }
    }
    return plans;
}

/* Seconds for all plans; the checksum keeps the work from being left out. */
static double price_all(struct mcp_pricer *pricer, const struct plans *plans,
                        struct mcp_prediction *prediction, int64_t *fitting)
{
    double start = now_s();
    *fitting = 0;
    for (size_t i = 0; i < plans->count; i++) {
        mcp_estimate(pricer, &plans->items[i], prediction);
        *fitting += prediction->fits;
    }
    return now_s() - start;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void report(const char *name, double *seconds, size_t count)
{
    qsort(seconds, REPEATS, sizeof *seconds, by_value);
    printf("  %-5s %9.0f plans/s best, %9.0f median\n", name, (double)count / seconds[0],
           (double)count / seconds[REPEATS / 2]);
}

static enum mcp_status load(struct mcp_arena *arena, struct mcp_model *model,
                            struct mcp_cluster *cluster, struct mcp_stack *stack,
                            struct mcp_error *err)
{
    MCP_TRY(mcp_model_load(arena, "gpt3-175b", model, err));
    MCP_TRY(mcp_cluster_load(arena, "dgx-a100:128", cluster, err));
    return mcp_stack_load(arena, "megatron-core", stack, err);
}

int main(void)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_stack stack;
    struct mcp_error err;
    struct mcp_job job = mcp_job_default();
    if (load(arena, &model, &cluster, &stack, &err) != MCP_OK) {
        fprintf(stderr, "bench_plans: %s\n", err.text);
        return 1;
    }
    job.global_batch_size = 1536;
    job.sequence_length = 2048;
    const struct mcp_question question = {&model, &cluster, &job, &stack};
    struct plans plans = legal_plans(arena, &question);
    struct mcp_prediction *prediction = MCP_NEW(arena, struct mcp_prediction);
    double cold[REPEATS], warm[REPEATS];
    int64_t fitting = 0;
    for (int i = 0; i < REPEATS; i++) {
        struct mcp_arena *own = mcp_arena_new();
        struct mcp_pricer *pricer = mcp_pricer_new(own, &question);
        cold[i] = price_all(pricer, &plans, prediction, &fitting);
        warm[i] = price_all(pricer, &plans, prediction, &fitting);
        mcp_arena_free(own);
    }
    printf("plans: gpt3-175b on dgx-a100:128, %zu legal, %" PRId64 " fit; %d repeats, one core\n",
           plans.count, fitting, REPEATS);
    report("cold", cold, plans.count);
    report("warm", warm, plans.count);
    mcp_arena_free(arena);
    return 0;
}
