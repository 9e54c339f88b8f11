/* tests/cuda/ranks_world.h: ranks of one plan as threads on fake GPUs. */
#ifndef TESTS_CUDA_RANKS_WORLD_H
#define TESTS_CUDA_RANKS_WORLD_H

#include "exec/cuda_nccl.h"
#include "tests/cuda/fake/engine.h"
#include "tests/exec/ranks_run.h"

#include <pthread.h>
#include <stdio.h>

enum { MAX_RANKS = 4 };

struct world {
    const struct run *planned; /* with its program; every rank has a copy */
    int ranks;
    int ahead; /* struct mcp_cuda_options */
    struct mcp_nccl_id id;
    pthread_barrier_t barrier;
    void (*live)(struct world *world, struct run *run, int rank); /* of each rank */
    void *context;
};

/* Each rank of the plan lives on a GPU of its own, with a copy of the run whose backend is open;
 * returns when all have. */
void run_world(struct world *world);
/* A trainer with new weights, of a rank that lives. */
void begin_training(struct run *run, int rank);

/* Each wait of small plans' programs dropped in turn: a line a plan, "dropped NAME waits
 * redundant doubled unseen", after a line for each wait whose loss does no harm. Doubled: memory
 * that ops take over from each other asks for the wait too; redundant: step/verify.h does not
 * miss it. `only`: one plan's
 * name; NULL: all. */
void run_drops(FILE *out, const char *only);

#endif
