/* tests/exec/ranks_edits.h: programs that were changed by hand. */
#ifndef TESTS_EXEC_RANKS_EDITS_H
#define TESTS_EXEC_RANKS_EDITS_H

#include "tests/exec/ranks_run.h"

#include <stdio.h>

/* Those that need a world of this size; a line each: "edit NAME NUMBER". */
void run_edits(struct mcp_cpu_world *world, FILE *out);

#endif
