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

#endif
