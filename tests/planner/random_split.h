/* tests/planner/random_split.h: splits of a plan's own space (planner/split.h), at random. */
#ifndef MCP_TESTS_PLANNER_RANDOM_SPLIT_H
#define MCP_TESTS_PLANNER_RANDOM_SPLIT_H

#include "core/arena.h"
#include "core/plan.h"

#include <stdint.h>

/* *state is not 0. */
uint64_t random_next(uint64_t *state);
/* Gives the plan chunks. */
void random_split_draw(struct mcp_arena *arena, uint64_t *dice, int num_layers,
                       struct mcp_plan *plan);

#endif
