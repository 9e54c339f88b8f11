/* tests/exec/layouts.h: programs of small models, and ranks of them without a backend:
 * memory alone. */
#ifndef MCP_TESTS_EXEC_LAYOUTS_H
#define MCP_TESTS_EXEC_LAYOUTS_H

#include "exec/init.h"
#include "exec/interpret.h"
#include "exec/save.h"
#include "step/build.h"
#include "tests/step/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct layout {
    char model[16]; /* of tests/exec/models */
    int tensor, context, pipeline, data, expert, zero_stage;
    bool half; /* bf16 */
};

static inline const char *layout_name(struct mcp_arena *arena, const struct layout *l)
{
    return mcp_format(arena, "%s t%d c%d p%d d%d e%d zero%d%s", l->model, l->tensor, l->context,
                      l->pipeline, l->data, l->expert, l->zero_stage, l->half ? " bf16" : "");
}

static inline void layout_build(struct setup *s, const struct layout *l, struct mcp_program *out)
{
    char path[64];
    snprintf(path, sizeof path, "tests/exec/models/%s.json", l->model);
    setup_load(s, path, "dgx-a100", "megatron-core");
    s->job.sequence_length = 32;
    s->job.precision = l->half ? MCP_PRECISION_BF16 : MCP_PRECISION_FP32;
    s->plan.tensor_parallel = l->tensor;
    s->plan.sequence_parallel = l->tensor > 1;
    s->plan.context_parallel = l->context;
    s->plan.pipeline_parallel = l->pipeline;
    s->plan.data_parallel = l->data;
    s->plan.expert_parallel = l->expert;
    s->plan.zero_stage = l->zero_stage;
    setup_finish(s, 2 * l->pipeline, MCP_RECOMPUTE_NONE);
    mcp_program_build(s->arena, &s->question, &s->plan, out);
}

/* A backend that has memory and runs nothing. */
static inline bool still_supports(enum mcp_function function, enum mcp_dtype dtype)
{
    (void)function;
    (void)dtype;
    return true;
}
static inline enum mcp_status still_allocate(struct mcp_backend *backend, int64_t bytes,
                                             void **memory, struct mcp_error *err)
{
    (void)err;
    *memory = mcp_alloc((struct mcp_arena *)backend, (size_t)bytes, 1);
    memset(*memory, 0xff, (size_t)bytes);
    return MCP_OK;
}
static inline void still_read(struct mcp_backend *backend, const void *memory, void *host,
                              int64_t bytes)
{
    (void)backend;
    memcpy(host, memory, (size_t)bytes);
}
static inline void still_write(struct mcp_backend *backend, void *memory, const void *host,
                               int64_t bytes)
{
    (void)backend;
    memcpy(memory, host, (size_t)bytes);
}
/* A world of one. */
static inline enum mcp_status still_agree(struct mcp_backend *backend, double *values, int count,
                                          char op, struct mcp_error *err)
{
    (void)backend;
    (void)values;
    (void)count;
    (void)op;
    (void)err;
    return MCP_OK;
}
static const struct mcp_backend_calls still_calls = {.name = "still",
                                                     .supports = still_supports,
                                                     .allocate = still_allocate,
                                                     .read = still_read,
                                                     .write = still_write,
                                                     .agree = still_agree};

/* The backend is the arena. */
static inline struct mcp_interpreter *layout_rank(struct mcp_arena *arena,
                                                  const struct mcp_program *program, int rank,
                                                  struct mcp_rank *out)
{
    const struct mcp_interpret_options options = {0};
    struct mcp_interpreter *interpreter;
    struct mcp_error err = {0};
    *out = (struct mcp_rank){
        .program = program, .rank = rank, .at = mcp_mesh_coordinate(&program->plan, rank)};
    cr_assert(mcp_interpreter_new(arena, out, &still_calls, (struct mcp_backend *)arena, &options,
                                  &interpreter, &err) == MCP_OK,
              "%s", err.text);
    return interpreter;
}

/* A rank with new weights, to save from and load into; it stays where it is. */
struct still_rank {
    struct mcp_rank rank;
    struct mcp_saved_rank saved;
};
static inline void still_rank_new(struct mcp_arena *arena, const struct mcp_program *program,
                                  int rank, uint64_t seed, struct still_rank *out)
{
    struct mcp_backend *backend = (struct mcp_backend *)arena;
    struct mcp_interpreter *interpreter = layout_rank(arena, program, rank, &out->rank);
    out->saved = (struct mcp_saved_rank){interpreter, &out->rank, &still_calls, backend, NULL};
    mcp_init_rank(arena, interpreter, &out->rank, &still_calls, backend, seed);
}

/* A checkpoint of new weights by every rank; `change` of each before, unless it is NULL. */
static inline void layout_save(const struct mcp_program *program, const char *folder,
                               const struct mcp_checkpoint_state *state,
                               void (*change)(const struct still_rank *rank))
{
    const int world = mcp_plan_world(&program->plan);
    struct mcp_file_digest digests[64];
    struct mcp_error err = {0};
    struct mcp_arena *all = mcp_arena_new();
    cr_assert(world <= 64);
    cr_assert(mcp_checkpoint_begin(all, folder, state->step, &err) == MCP_OK, "%s", err.text);
    for (int r = 0; r < world; r++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct still_rank own;
        still_rank_new(arena, program, r, state->seed, &own);
        if (change != NULL)
            change(&own);
        cr_assert(mcp_save_rank(&own.saved, folder, state->step, &digests[r], &err) == MCP_OK, "%s",
                  err.text);
        mcp_arena_free(arena);
    }
    cr_assert(mcp_checkpoint_commit(all, folder, state, world, digests, &err) == MCP_OK, "%s",
              err.text);
    mcp_arena_free(all);
}

#endif
