/* tests/exec/ranks_memory.h: what the operating system says a rank holds. */
#ifndef TESTS_EXEC_RANKS_MEMORY_H
#define TESTS_EXEC_RANKS_MEMORY_H

#include "tests/exec/ranks_run.h"

#include <stdio.h>

/* For layouts of this world a line each, "memory NAME SHARE": what training took of the machine's
 * memory, libraries aside, over what was planned; of the rank that is furthest off. */
void run_memory(struct mcp_cpu_world *world, FILE *out);

#endif
