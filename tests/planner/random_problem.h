/* tests/planner/random_problem.h: small questions and spaces of every kind, from a seed. */
#ifndef TESTS_PLANNER_RANDOM_PROBLEM_H
#define TESTS_PLANNER_RANDOM_PROBLEM_H

#include "planner/search.h"
#include "tests/step/random_plan.h"

struct random_problem {
    struct random_plan drawn; /* its plan means nothing here */
    struct mcp_cluster other; /* the second pool of a mixed cluster */
    struct mcp_plan_space space;
    enum mcp_objective objective;
    bool uniform;
};

struct problem_size {
    int most_layers, most_nodes, most_gpus; /* in a node */
    int most_sequences;                     /* of a batch */
    int pinned_percent;                     /* of the knobs */
    int mixed_percent;
    bool every_schedule; /* else those of whole backwards alone */
};

/* Never fails; the same seed gives the same problem. Some ask for what cannot be:
 * mcp_space_check() says so. */
void random_problem_draw(struct mcp_arena *arena, uint64_t seed, const struct problem_size *size,
                         struct random_problem *out);
/* As many problems as MCP_PROBLEMS asks for, or else the usual number. */
int random_problem_count(int usual);
/* One line for a failing test. */
const char *random_problem_describe(struct mcp_arena *arena, const struct random_problem *problem);

#endif
