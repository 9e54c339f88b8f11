/* tests/cuda/ranks_cuda.c: the layouts of tests/exec on the CUDA backend: ranks are threads on
 * a fake GPU each, and every step runs its streams in another order.
 *
 *     ranks FILE [CASE]
 *
 * writes a line a case: its number, how far its losses are from those of one rank on CPUs, the
 * first loss and the last. */
#include "exec/cuda_backend.h"
#include "exec/cuda_runtime.h"
#include "tests/cuda/fake/engine.h"
#include "tests/exec/ranks_run.h"

#include <pthread.h>
#include <stdio.h>

enum { MAX_RANKS = 4, STREAMS = MCP_NUM_STREAMS };

/* Step by step: orders as such, then each stream of the program held back. */
static const struct fake_policy policies[RANKS_STEPS] = {
    {.order = FAKE_FIFO, .lazy = true},
    {.order = FAKE_TRANSFERS_LAST},
    {.order = FAKE_TRANSFERS_FIRST, .lazy = true},
    {.order = FAKE_KERNELS_LAST},
    {.order = FAKE_NEWEST, .lazy = true},
    {.order = FAKE_STREAM_LAST, .stream = MCP_STREAM_COMPUTE},
    {.order = FAKE_STREAM_LAST, .stream = MCP_STREAM_TENSOR, .lazy = true},
    {.order = FAKE_RANDOM, .seed = 1},
    {.order = FAKE_RANDOM, .seed = 2, .lazy = true},
    {.order = FAKE_FIFO},
};

struct world {
    const struct run *planned; /* with its program; every rank has a copy */
    int ranks;
    struct mcp_nccl_id id;
    pthread_barrier_t step;
    double losses[RANKS_STEPS]; /* rank 0's */
};

struct member {
    struct world *world;
    int rank;
};

static void begin_rank(struct run *run, const struct world *world, int rank)
{
    const struct mcp_cuda_options options = {.timed = true};
    const struct mcp_train_options train = train_options(run);
    struct mcp_nccl_world *nccl;
    run->calls = mcp_cuda_backend;
    CHECK(mcp_cuda_choose(rank, &err));
    CHECK(mcp_nccl_world_open(run->arena, &world->id, rank, world->ranks, 60, &nccl, &err));
    CHECK(mcp_cuda_backend_open(run->arena, nccl, &run->program, &options, &run->backend, &err));
    CHECK(mcp_trainer_new(run->arena, &run->program, rank, &run->calls, run->backend, &run->batch,
                          &train, &run->trainer, &err));
}

static void *live(void *argument)
{
    const struct member *member = argument;
    struct world *world = member->world;
    struct run run = *world->planned;
    struct mcp_step_report report;
    run.arena = mcp_arena_new();
    begin_rank(&run, world, member->rank);
    for (int step = 0; step < RANKS_STEPS; step++) {
        pthread_barrier_wait(&world->step);
        if (member->rank == 0)
            fake_set_policy(&policies[step]);
        fake_join(world->ranks);
        train_step(&run, step, &report);
        fake_leave();
        if (member->rank == 0)
            world->losses[step] = report.loss;
    }
    pthread_barrier_wait(&world->step);
    end(&run);
    return NULL;
}

static void train_all(struct world *world)
{
    struct member members[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    fake_begin(world->ranks, (size_t)1 << 31);
    pthread_barrier_init(&world->step, NULL, (unsigned)world->ranks);
    CHECK(mcp_nccl_make_id(&world->id, &err));
    for (int i = 0; i < world->ranks; i++) {
        members[i] = (struct member){world, i};
        pthread_create(&threads[i], NULL, live, &members[i]);
    }
    for (int i = 0; i < world->ranks; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&world->step);
    int left = fake_end();
    if (left != 0)
        fprintf(stderr, "ranks: %d objects of the GPU were left behind\n", left);
}

/* What one rank makes of a model on a CPU. */
struct reference {
    bool made;
    double losses[RANKS_STEPS];
};

static const double *reference_of(struct mcp_cpu_world *cpu, struct reference *all, int model)
{
    const struct ranks_case alone = {
        model,            1, 1,     1,        1, 1, false,
        MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 1, MCP_RECOMPUTE_NONE};
    struct run run;
    if (!all[model].made) {
        all[model].made = plan_case(&run, &alone);
        build_program(&run);
        begin(&run, cpu, true, 0);
        train_losses(&run, all[model].losses);
        end(&run);
    }
    return all[model].losses;
}

static void run_case(int number, const double *want, FILE *out)
{
    struct run run;
    struct world world = {.planned = &run, .ranks = ranks_world(&ranks_cases[number])};
    fprintf(out, "%d", number);
    fflush(out);
    if (plan_case(&run, &ranks_cases[number])) {
        build_program(&run);
        train_all(&world);
        fprintf(out, " %.3g %.6f %.6f", worst_of(world.losses, want), world.losses[0],
                world.losses[RANKS_STEPS - 1]);
    }
    fprintf(out, "\n");
    mcp_arena_free(run.arena);
}

int main(int argc, char **argv)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_cpu_world *cpu = NULL;
    struct reference all[RANKS_MODELS] = {{false, {0}}};
    int only = argc > 2 ? (int)strtol(argv[2], NULL, 10) : -1, every = ranks_every();
    CHECK(mcp_cpu_world_open(arena, &argc, &argv, &cpu, &err));
    FILE *out = argc > 1 ? fopen(argv[1], "w") : stdout;
    if (out == NULL)
        return 1;
    for (int i = 0; i < ranks_num_cases; i++)
        if (ranks_world(&ranks_cases[i]) <= MAX_RANKS && (only < 0 ? i % every == 0 : only == i))
            run_case(i, reference_of(cpu, all, ranks_cases[i].model), out);
    fclose(out);
    mcp_arena_free(arena);
    return 0;
}
