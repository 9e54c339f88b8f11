/* tests/exec/ranks.h: layouts that must train alike, and what is said about each.
 *
 * The program tests/ranks, started by mpirun on as many ranks as its cases need, trains
 * each for some steps and compares with one rank; the tests of tests/exec read what it
 * writes: one line a case. */
#ifndef TESTS_EXEC_RANKS_H
#define TESTS_EXEC_RANKS_H

#include "core/plan.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS_GPT2, RANKS_LLAMA, RANKS_MOE, RANKS_MODELS, RANKS_DEMO = RANKS_MODELS };
enum { RANKS_STEPS = 10 };

struct ranks_case {
    int model;
    int tensor, context, pipeline, data, expert;
    bool sequence_parallel;
    int context_kind; /* enum mcp_context_kind */
    int zero_stage;
    bool reshard;
    int schedule; /* enum mcp_schedule */
    int virtual_stages;
    int microbatch_size;
    int recompute; /* enum mcp_recompute */
};

extern const struct ranks_case ranks_cases[];
extern const int ranks_num_cases;

/* MCP_RANKS_FULL=1: all values of all axes with each other, as far as they are legal, in place
 * of the cover: cases are numbers below ranks_product. False: the number is of another world,
 * or says the same as a smaller one. */
extern const int ranks_product;
bool ranks_of_product(int number, int world, struct ranks_case *out);
static inline bool ranks_full(void)
{
    return getenv("MCP_RANKS_FULL") != NULL;
}

/* MCP_RANKS_EVERY=n runs every n-th case of each world and nothing but cases: sanitizers are
 * slow, and most cases walk the same code. */
static inline int ranks_every(void)
{
    const char *text = getenv("MCP_RANKS_EVERY");
    char *end = NULL;
    const long every = text != NULL ? strtol(text, &end, 10) : 1;
    if (every >= 1 && every <= 1000 && (end == NULL || *end == '\0'))
        return (int)every;
    fprintf(stderr, "MCP_RANKS_EVERY=%s: not a number from 1 to 1000\n", text);
    exit(2);
}

/* The larger of what has been seen and a new one; NaN is the worst, whatever follows. */
static inline double ranks_worse(double seen, double value)
{
    return isnan(seen) || value <= seen ? seen : value;
}

static inline int ranks_world(const struct ranks_case *c)
{
    return c->tensor * c->context * c->pipeline * c->data;
}

/* Do products add biases and apply GELU? Of half the layouts; what they are compared with
 * has passes. */
static inline bool ranks_is_fused(const struct ranks_case *c)
{
    return (c->zero_stage + c->context + c->sequence_parallel) % 2 == 0;
}

/* Of the cover: so chosen, no world is without a case. */
static inline bool ranks_is_chosen(int number)
{
    int before = 0;
    for (int i = 0; i < number; i++)
        before += ranks_world(&ranks_cases[i]) == ranks_world(&ranks_cases[number]);
    return before % ranks_every() == 0;
}

#endif
