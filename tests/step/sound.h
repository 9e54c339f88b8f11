/* tests/step/sound.h: is a drawn plan's program sound, and does it play as it is priced? */
#ifndef TESTS_STEP_SOUND_H
#define TESTS_STEP_SOUND_H

#include "step/program.h"
#include "tests/step/random_plan.h"

/* The program of a legal plan, verified, and played to the nanosecond and byte that the plan is
 * priced at; returns those bytes, the peak. */
int64_t sound_program(struct mcp_arena *arena, const struct random_plan *drawn,
                      struct mcp_program *out);

#endif
