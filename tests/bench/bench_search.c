/* tests/bench/bench_search.c: whole searches, one core: what each took, judged and proved.
 *
 * As `mcpplan plan` asks them, with four alternatives; then with the article's two rules
 * lifted. Each row is a process of its own, so CPU seconds and peak memory are its own. */
#include "planner/search.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOP = 4 };

struct ask {
    const char *model, *cluster;
    int global_batch_size, sequence_length;
    bool every_schedule; /* else GPipe, 1F1B and interleaved */
};
enum { EVERY_SCHEDULE = (1 << MCP_DUALPIPE_V) - 1 };

static const struct ask asks[] = {
    {"gpt3-175b", "dgx-a100:64", 1536, 2048, false},
    {"gpt3-175b", "dgx-a100:128", 1536, 2048, false},
    {"llama-3.1-405b", "dgx-h100:2048", 2048, 8192, false},
    {"llama-3.1-405b", "dgx-h100:2048", 128, 131072, false},
    {"deepseek-v3", "dgx-h100:256", 15360, 4096, false},
    {"gpt3-175b", "dgx-a100:128", 1536, 2048, true},
    {"llama-3.1-405b", "dgx-h100:2048", 2048, 8192, true},
};
enum { NUM_ASKS = sizeof asks / sizeof *asks };

static enum mcp_status load(struct mcp_arena *arena, const struct ask *ask, struct mcp_model *model,
                            struct mcp_cluster *cluster, struct mcp_stack *stack,
                            struct mcp_error *err)
{
    MCP_TRY(mcp_model_load(arena, ask->model, model, err));
    MCP_TRY(mcp_cluster_load(arena, ask->cluster, cluster, err));
    return mcp_stack_load(arena, "megatron-core", stack, err);
}

/* Tuples that mean something and keep the rules asked for: what is left to a brute force. */
static int64_t legal_tuples(const struct mcp_search_record *record)
{
    return record->bounded + record->fitting + mcp_search_refused(record, mcp_rule_memory) +
           mcp_search_refused(record, mcp_rule_gpipe) + mcp_search_refused(record, mcp_rule_zb_v);
}

/* Every cut of the layers into p contiguous stages, every recompute of every layer. */
static double log10_splits(int num_layers, int p)
{
    double ln_cuts = lgamma(num_layers) - lgamma(p) - lgamma(num_layers - p + 1);
    return ln_cuts / log(10) + num_layers * log10(MCP_NUM_RECOMPUTES);
}

static void heading(void)
{
    printf(
        "search: one core, best of %d layouts; brute force: legal tuples with one recompute\n"
        "  for all layers; splits: cuts and recomputes by layer, for the best pipeline degree\n\n",
        TOP);
    printf("  %-62s %-5s %7s %6s %10s %10s %9s %6s %8s %5s  %-9s %8s %11s %6s\n", "question",
           "rules", "CPU s", "MiB", "candidates", "bounded", "/s", "priced", "/s", "MILPs",
           "result", "best s", "brute force", "splits");
}

static double cpu_s(const struct rusage *used)
{
    return (double)used->ru_utime.tv_sec + 1e-6 * (double)used->ru_utime.tv_usec +
           (double)used->ru_stime.tv_sec + 1e-6 * (double)used->ru_stime.tv_usec;
}

static void report(const struct ask *ask, bool rules, const struct mcp_answer *answer,
                   int num_layers)
{
    const struct mcp_search_record *record = &answer->record;
    const struct mcp_found *best = answer->found;
    struct rusage used;
    char question[80], result[16] = "proven";
    getrusage(RUSAGE_SELF, &used);
    double s = cpu_s(&used);
    snprintf(question, sizeof question, "%s, %s, %d x %d%s", ask->model, ask->cluster,
             ask->global_batch_size, ask->sequence_length,
             ask->every_schedule ? ", every schedule" : "");
    if (!record->proven_optimal)
        snprintf(result, sizeof result, "gap %.1f%%", 100 * record->gap_frac);
    printf("  %-62s %-5s %7.2f %6.0f %10" PRId64 " %10" PRId64 " %9.0f %6" PRId64 " %8.0f %5" PRId64
           "  %-9s ",
           question, rules ? "on" : "off", s, (double)used.ru_maxrss / 1024, record->candidates,
           record->bounded, (double)record->bounded / s, record->priced, (double)record->priced / s,
           record->milps, result);
    if (answer->count == 0) {
        printf("%8s\n", "none");
        return;
    }
    printf("%8.3f %11" PRId64 " 10^%.0f\n", best->iteration_s,
           MCP_NUM_RECOMPUTES * legal_tuples(record),
           log10_splits(num_layers, best->plan.pipeline_parallel));
}

static int search(const struct ask *ask, bool rules)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_stack stack;
    struct mcp_error err;
    struct mcp_job job = mcp_job_default();
    struct mcp_plan_space space = mcp_space_default();
    struct mcp_answer answer;
    if (load(arena, ask, &model, &cluster, &stack, &err) != MCP_OK) {
        fprintf(stderr, "bench_search: %s\n", err.text);
        return 1;
    }
    job.global_batch_size = ask->global_batch_size;
    job.sequence_length = ask->sequence_length;
    space.pipeline_rule = space.batch_rule = rules;
    space.schedules = ask->every_schedule ? EVERY_SCHEDULE : MCP_UNEVEN_SCHEDULES;
    const struct mcp_question question = {&model, &cluster, &job, &stack};
    const struct mcp_search_options options = {.top = TOP, .num_threads = 1};
    mcp_search(arena, &question, &space, &options, &answer);
    report(ask, rules, &answer, model.num_layers);
    mcp_arena_free(arena);
    return 0;
}

static bool in_child(const struct ask *ask, bool rules)
{
    int status = 1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        status = search(ask, rules);
        fflush(stdout);
        _exit(status);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
    heading();
    for (int i = 0; i < 2 * NUM_ASKS; i++)
        if (!in_child(&asks[i / 2], i % 2 == 0))
            return 1;
    return 0;
}
