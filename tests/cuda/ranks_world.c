/* tests/cuda/ranks_world.c: threads, a fake GPU each, and what the backend needs of them. */
#include "tests/cuda/ranks_world.h"

#include "exec/cuda_backend.h"
#include "exec/cuda_runtime.h"

struct member {
    struct world *world;
    int rank;
};

static void *live(void *argument)
{
    const struct member *member = argument;
    struct world *world = member->world;
    const struct mcp_cuda_options options = {.timed = true, .ahead = world->ahead};
    struct run run = *world->planned;
    struct mcp_nccl_world *nccl;
    run.arena = mcp_arena_new();
    run.calls = mcp_cuda_backend;
    CHECK(mcp_cuda_choose(member->rank, &err));
    const struct mcp_nccl_place place = {
        .id = world->id, .rank = member->rank, .size = world->ranks, .timeout_s = 60};
    CHECK(mcp_nccl_world_open(run.arena, &place, &nccl, &err));
    CHECK(mcp_cuda_backend_open(run.arena, nccl, &run.program, &options, &run.backend, &err));
    world->live(world, &run, member->rank);
    pthread_barrier_wait(&world->barrier);
    end(&run);
    return NULL;
}

void begin_training(struct run *run, int rank)
{
    const struct mcp_train_options train = train_options(run);
    CHECK(mcp_trainer_new(run->arena, &run->program, rank, &run->calls, run->backend, &run->batch,
                          &train, &run->trainer, &err));
}

void run_world(struct world *world)
{
    struct member members[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    struct mcp_error left = {"objects of a GPU were left behind"};
    fake_begin(world->ranks, (size_t)1 << 31);
    fake_connect_early(true);
    pthread_barrier_init(&world->barrier, NULL, (unsigned)world->ranks);
    CHECK(mcp_nccl_make_id(&world->id, &err));
    for (int i = 0; i < world->ranks; i++) {
        members[i] = (struct member){world, i};
        pthread_create(&threads[i], NULL, live, &members[i]);
    }
    for (int i = 0; i < world->ranks; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&world->barrier);
    if (fake_end() != 0)
        stop(&left, "end");
}
