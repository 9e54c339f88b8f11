/* tests/step/setup.h: a question and a plan from presets, to be changed before use. */
#ifndef TESTS_STEP_SETUP_H
#define TESTS_STEP_SETUP_H

#include "step/build.h"
#include "step/layer.h"
#include "step/verify.h"

#include <criterion/criterion.h>

struct setup {
    struct mcp_arena *arena;
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_question question; /* of the four above */
    struct mcp_plan plan;
};

static inline void setup_load(struct setup *s, const char *model, const char *cluster,
                              const char *stack)
{
    struct mcp_error err = {""};
    s->arena = mcp_arena_new();
    cr_assert(mcp_model_load(s->arena, model, &s->model, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cluster_load(s->arena, cluster, &s->cluster, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_stack_load(s->arena, stack, &s->stack, &err) == MCP_OK, "%s", err.text);
    s->job = mcp_job_default();
    s->question = (struct mcp_question){&s->model, &s->cluster, &s->job, &s->stack};
    s->plan = mcp_plan_default();
}

/* The first `count` layers of the model alone. */
static inline void setup_cut(struct setup *s, int count)
{
    s->model.num_layers = count;
    s->model.num_mtp_layers = 0;
}

/* Equal chunks, a global batch of `num_microbatches` for each replica, and as many
 * GPUs as the plan has ranks. */
static inline void setup_finish(struct setup *s, int num_microbatches, enum mcp_recompute recompute)
{
    s->job.global_batch_size =
        (int64_t)s->plan.data_parallel * s->plan.microbatch_size * num_microbatches;
    mcp_plan_uniform_chunks(s->arena, &s->plan, s->model.num_layers, recompute);
    struct mcp_refusals refusals = {0};
    struct mcp_error err = {""};
    cr_assert(mcp_cluster_set_gpus(&s->cluster, mcp_plan_world(&s->plan), &err) == MCP_OK, "%s",
              err.text);
    cr_assert(mcp_legal(s->arena, &s->question, &s->plan, &refusals), "%s", refusals.items[0].text);
}

/* The whole program of the plan, verified. */
static inline void setup_program(struct setup *s, struct mcp_program *out)
{
    struct mcp_error err = {""};
    mcp_program_build(s->arena, &s->question, &s->plan, out);
    cr_assert(mcp_program_verify(s->arena, out, &err) == MCP_OK, "%s", err.text);
}

static inline struct mcp_layer_type setup_layer(struct setup *s, int kind,
                                                enum mcp_recompute recompute)
{
    struct mcp_layer_type type;
    const struct mcp_layer_spec spec = {.kind = kind, .recompute = recompute};
    mcp_layer_build(s->arena, &s->question, &s->plan, &spec, &type);
    return type;
}

#endif
