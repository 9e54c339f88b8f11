/* tests/step/random_plan.h: legal plans of every kind, drawn from a seed. */
#ifndef TESTS_STEP_RANDOM_PLAN_H
#define TESTS_STEP_RANDOM_PLAN_H

#include "step/legal.h"

#include <stdint.h>

struct random_plan {
    struct mcp_model model; /* tiny to medium: grouped, latent, states, experts, MTP */
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_question question; /* of the four above */
    struct mcp_plan plan;
};

/* Never fails; the same seed gives the same plan. GPipe, 1F1B and interleaved; or any
 * schedule, with rows, those of custom ones in any order. */
void random_plan_draw(struct mcp_arena *arena, uint64_t seed, struct random_plan *out);
void random_plan_draw_any(struct mcp_arena *arena, uint64_t seed, struct random_plan *out);
/* Makes the plan a custom one of `num_microbatches`, with rows in any order that its degrees
 * and placement allow, backwards whole and in parts. */
void random_rows_draw(struct mcp_arena *arena, uint64_t seed, int num_microbatches,
                      struct mcp_plan *plan);
/* One line for a failing test. */
const char *random_plan_describe(struct mcp_arena *arena, const struct random_plan *drawn);

#endif
