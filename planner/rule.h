/* planner/rule.h: the rule of thumb, as a baseline to compare searches with.
 *
 *     tensor  = ceil(sqrt(parameters / 1e9))
 *     context = pipeline = ceil(sqrt(GPUs / tensor))
 *     data    = floor(GPUs / (tensor x context x pipeline)), at least 1
 *
 * It looks at no divisor and no memory, so what it says is often no plan at all:
 * 34 B parameters on 64 GPUs give 6 x 4 x 4, which is 96 GPUs. */
#ifndef MCP_PLANNER_RULE_H
#define MCP_PLANNER_RULE_H

#include "step/legal.h"

/* Degrees alone; everything else as in mcp_plan_default(). */
struct mcp_plan mcp_rule_plan(const struct mcp_question *question);

/* "tensor = ceil(sqrt(34.5)) = 6, ...": the arithmetic, for people. */
const char *mcp_rule_arithmetic(struct mcp_arena *arena, const struct mcp_question *question);

/* Rules of meaning, and the two of planner/space.h, that `plan` breaks; true when
 * none. */
bool mcp_rule_legal(struct mcp_arena *arena, const struct mcp_question *question,
                    const struct mcp_plan *plan, struct mcp_refusals *out);

#endif
