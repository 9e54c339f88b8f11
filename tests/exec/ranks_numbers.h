/* tests/exec/ranks_numbers.h: what ranks do when numbers overflow, beside one rank. */
#ifndef TESTS_EXEC_RANKS_NUMBERS_H
#define TESTS_EXEC_RANKS_NUMBERS_H

#include "tests/exec/ranks_run.h"

#include <stdio.h>

/* Writes a line for each number of the cases of this world's size. */
void run_numbers(struct mcp_cpu_world *world, FILE *out);

#endif
