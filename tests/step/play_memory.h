/* tests/step/play_memory.h: bytes of one class over the step, walked op by op. */
#ifndef TESTS_STEP_PLAY_MEMORY_H
#define TESTS_STEP_PLAY_MEMORY_H

#include "step/estimate.h"
#include "step/program.h"

void play_memory(struct mcp_arena *arena, const struct mcp_question *question,
                 const struct mcp_program *program, int class, struct mcp_memory *out);

#endif
