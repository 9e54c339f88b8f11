/* tests/exec/ranks_bits.h: 1-bit Adam as ranks run it. */
#ifndef TESTS_EXEC_RANKS_BITS_H
#define TESTS_EXEC_RANKS_BITS_H

#include "tests/exec/ranks_run.h"

#include <stdio.h>

/* What needs a world of this size; a line each: "bits NAME NUMBER". */
void run_bits(struct mcp_cpu_world *world, FILE *out);

#endif
