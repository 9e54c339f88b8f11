/* step/legal.h: which plans mean something. The only place that says so.
 *
 * All violated rules are reported together, each with the nearest legal value.
 * Rules of meaning (DESIGN section 3) hold always; the article's two rules hold
 * in searches only and can be lifted. */
#ifndef MCP_STEP_LEGAL_H
#define MCP_STEP_LEGAL_H

#include "core/arena.h"
#include "core/cluster.h"
#include "core/job.h"
#include "core/model.h"
#include "core/plan.h"
#include "core/stack.h"

#include <stdbool.h>

struct mcp_refusal {
    const char *rule; /* "tensor_parallel_divides_heads" ... : stable names */
    const char *text; /* one sentence with the numbers and the nearest legal value */
};
#define MCP_MAX_REFUSALS 40
struct mcp_refusals {
    int count;
    struct mcp_refusal items[MCP_MAX_REFUSALS];
};

struct mcp_question {
    const struct mcp_model *model;
    const struct mcp_cluster *cluster;
    const struct mcp_job *job;
    const struct mcp_stack *stack;
};

/* Every rule of meaning that `plan` breaks; true when none. */
bool mcp_legal(struct mcp_arena *arena, const struct mcp_question *question,
               const struct mcp_plan *plan, struct mcp_refusals *out);

/* The same verdict without sentences, for searches: NULL or the first broken
 * rule's name. Allocates nothing. Chunks and rows are not looked at, so it can
 * be asked of degrees alone. */
const char *mcp_illegal_rule(const struct mcp_question *question, const struct mcp_plan *plan);

/* The article's rules: pipeline <= floor(layers / 5), though 1 is always legal;
 * (global / data) divisible by microbatch x pipeline. */
bool mcp_pipeline_rule(const struct mcp_question *question, const struct mcp_plan *plan);
bool mcp_batch_rule(const struct mcp_question *question, const struct mcp_plan *plan);

#endif
