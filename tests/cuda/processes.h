/* tests/cuda/processes.h: ranks of mcpplan-exec-cuda on fake GPUs, each a process, started as
 * torchrun starts them (tests/cuda/executor.c). */
#ifndef TESTS_CUDA_PROCESSES_H
#define TESTS_CUDA_PROCESSES_H

#include "tests/cli/place.h"

#include <stdbool.h>

enum { MAX_PROCESSES = 4 };
struct processes {
    const struct place *at;
    const char *program; /* NULL: the executor; else what is started in its place */
    int ranks, port;
    const char *names[MAX_PROCESSES][4]; /* of the environment, and values: for a rank alone */
    const char *values[MAX_PROCESSES][4];
    pid_t children[MAX_PROCESSES];
};

/* A new meeting for so many ranks. */
struct processes processes_new(const struct place *at, int ranks);
/* For one rank, or for all of them (-1). */
void processes_set(struct processes *p, int rank, const char *name, const char *value);
/* Starts all ranks, or one: what it says on stderr lies in @/said0 ..., on stdout in @/out0 ....
 * "@" in options stands for the folder. */
void processes_begin(struct processes *p, const char *options);
void processes_begin_rank(struct processes *p, int rank, const char *options);
/* Its exit code, or 128 + signal; the test ends where it takes longer than a minute. */
int processes_end(struct processes *p, int rank);
/* All of them; true: all have ended well. */
bool processes_succeed(struct processes *p);

/* What all ranks have said but notes and steps: the sentences for the user. */
const char *processes_sentences(const struct processes *p);

#endif
