/* tests/exec/ranks_eight.h: products of 8 bits on ranks, beside one rank. */
#ifndef TESTS_EXEC_RANKS_EIGHT_H
#define TESTS_EXEC_RANKS_EIGHT_H

#include "tests/exec/ranks_run.h"

#include <stdio.h>

/* Writes a line for each number of the cases of this world's size: "eight NAME NUMBER". */
void run_eight(struct mcp_cpu_world *world, FILE *out);

#endif
