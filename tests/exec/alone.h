/* tests/exec/alone.h: runs a program of one rank by kernels alone: no interpreter, no
 * pool, every buffer instance in memory of its own, filled with NaN. */
#ifndef TESTS_EXEC_ALONE_H
#define TESTS_EXEC_ALONE_H

#include "exec/cpu_kernels.h"
#include "step/build.h"
#include "tests/step/setup.h"

struct alone {
    struct setup setup; /* model, job and plan may be changed before alone_build() */
    struct mcp_program program;
    struct mcp_rank rank;
    struct mcp_batch batch;
    const int32_t *ids; /* [sequences][sequence_length + 1] */
    void **rank_buffers;
    void ***layers;  /* [layer][index] */
    void ****frames; /* [layer][microbatch][index] */
    void **scratch;  /* [type][index] flattened by alone_build */
    int *scratch_first;
};

/* A model in the words of config.json, fp32, on one rank. */
void alone_model(struct alone *alone, const char *config, int64_t microbatch_size,
                 int64_t sequence_length);
void alone_build(struct alone *alone, int num_microbatches, enum mcp_recompute recompute);
/* Every slot up to, and with, the epilogue if `update`. */
void alone_step(struct alone *alone, bool update);
/* Element 0 of a weight part of local expert `copy`, or of its gradient, in an extended
 * layer. data NULL: the layer has no such part. */
struct alone_values {
    char *data;
    enum mcp_dtype dtype;
};
struct alone_values alone_weight(struct alone *alone, int layer, const char *name, bool gradient,
                                 int copy);
double alone_get(struct alone_values values, int64_t i);
void alone_set(struct alone_values values, int64_t i, double value);

#endif
