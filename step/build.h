/* step/build.h: plan -> program. */
#ifndef MCP_STEP_BUILD_H
#define MCP_STEP_BUILD_H

#include "core/arena.h"
#include "step/layer.h"
#include "step/program.h"

/* The whole step: layer types, entry lists, slots of every class. The plan must
 * be legal and its chunks set. Owned by the arena; shares plan->chunks. */
void mcp_program_build(struct mcp_arena *arena, const struct mcp_question *question,
                       const struct mcp_plan *plan, struct mcp_program *out);

/* The same of a step that learns nothing: the loss of a batch at the weights as they are, in
 * the layout, order and arithmetic of the step's forwards. What lasts is the step's, and lies
 * where it lies there (step/pool.h); gradients are left cleared. */
void mcp_program_build_evaluation(struct mcp_arena *arena, const struct mcp_question *question,
                                  const struct mcp_plan *plan, struct mcp_program *out);

#endif
