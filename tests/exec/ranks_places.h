/* tests/exec/ranks_places.h: ranks bound to cores. */
#ifndef TESTS_EXEC_RANKS_PLACES_H
#define TESTS_EXEC_RANKS_PLACES_H

#include "tests/exec/ranks_run.h"

/* Binds the ranks, looks where each of them may run, and lets them go: 0, or how many are not
 * where they should be. */
int misplaced_ranks(struct mcp_cpu_world *world);

#endif
