/* tests/planner/question.h: a question from presets, in one call. */
#ifndef MCP_TESTS_PLANNER_QUESTION_H
#define MCP_TESTS_PLANNER_QUESTION_H

#include "step/legal.h"

#include <criterion/criterion.h>

struct loaded {
    struct mcp_arena *arena;
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_question question;
};

static inline void load_question(struct loaded *out, const char *model, const char *cluster,
                                 int64_t global_batch_size, int64_t sequence_length)
{
    struct mcp_error err = {""};
    out->arena = mcp_arena_new();
    cr_assert(mcp_model_load(out->arena, model, &out->model, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_cluster_load(out->arena, cluster, &out->cluster, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_stack_load(out->arena, "megatron-core", &out->stack, &err) == MCP_OK, "%s",
              err.text);
    out->stack.schedules |= 1u << MCP_GPIPE; /* which 1F1B dominates */
    out->job = mcp_job_default();
    out->job.global_batch_size = global_batch_size;
    out->job.sequence_length = sequence_length;
    out->question = (struct mcp_question){&out->model, &out->cluster, &out->job, &out->stack};
}

#endif
