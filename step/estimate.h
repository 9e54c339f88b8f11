/* step/estimate.h: plan -> predicted time and memory, added up exactly.
 *
 * Block prices are cached per layer key and combined: slots -> pipeline
 * recurrence -> data-parallel exposure -> optimizer; buffers -> memory by stage.
 * The same numbers as playing the program of step/build.h slot by slot
 * (tests/step/test_identity.c). */
#ifndef MCP_STEP_ESTIMATE_H
#define MCP_STEP_ESTIMATE_H

#include "core/arena.h"
#include "step/legal.h"
#include "step/pipeline.h"
#include "step/price.h"

struct mcp_memory { /* bytes of one rank at its peak */
    int64_t weights_bytes, gradients_bytes, optimizer_bytes;
    int64_t activations_bytes; /* saved frames in flight */
    int64_t buffers_bytes;     /* working set of the block at the peak, gathered weights */
    int64_t reserve_bytes;     /* the stack's: context, communicators, fragmentation */
};
int64_t mcp_memory_allocated(const struct mcp_memory *memory); /* all but the reserve */
int64_t mcp_memory_total(const struct mcp_memory *memory);

struct mcp_stage_prediction { /* of one pipeline rank */
    struct mcp_memory memory;
    int64_t static_bytes;         /* weights, gradients, optimizer: between steps */
    int64_t end_ns;               /* of its last backward */
    double cost_s[MCP_NUM_COSTS]; /* sums to the iteration */
};

struct mcp_prediction {
    double iteration_s;
    double tokens_per_s;
    double model_flops_utilization, hardware_flops_utilization;
    double bubble_frac, bubble_over_ideal, exposed_comm_frac;
    double cost_s[MCP_NUM_COSTS]; /* mean over ranks; sums to iteration_s */
    double comm_s[MCP_NUM_COSTS]; /* mean over ranks, hidden or not */
    int64_t peak_memory_bytes;    /* reserve included; the fullest stage's */
    int peak_stage;
    struct mcp_memory memory; /* of that stage */
    bool fits;
    int64_t memory_limit_bytes;
    double uncertainty_frac; /* half-width of the stated interval */
    struct mcp_stage_prediction stages[MCP_MAX_PIPELINE];
};

/* Caches prices for one question; for one thread at a time. */
struct mcp_pricer;
struct mcp_pricer *mcp_pricer_new(struct mcp_arena *arena, const struct mcp_question *question);
/* For searches, which ask for much and keep little. */
struct mcp_pricer_options {
    /* Predictions say iteration_s, memory and whether it fits; what seconds are spent on, and
     * what follows from that, is left out. */
    bool sums_only;
    /* Of a question that differs in the tiers of its cluster alone: a layer is built once for
     * both. For the same thread, and an arena that lives as long. NULL: none. */
    const struct mcp_pricer *beside;
};
struct mcp_pricer *mcp_pricer_with(struct mcp_arena *arena, const struct mcp_question *question,
                                   const struct mcp_pricer_options *options);
/* Gives back what is kept to price the next plans faster; what was priced stays. */
void mcp_pricer_rest(struct mcp_pricer *pricer);
const struct mcp_question *mcp_pricer_question(const struct mcp_pricer *pricer);

/* Prices a legal plan with chunks, time and memory in full. Cannot fail. */
void mcp_estimate(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                  struct mcp_prediction *out);
/* Time alone or memory alone are never priced apart: a plan is both. */

/* Half-width of what is predicted for a question: its stack's, more where the model has
 * layers of a kind that nobody has measured. */
double mcp_uncertainty_frac(const struct mcp_question *question);

struct mcp_json;
/* The key "predicted" of plan.json. */
void mcp_prediction_to_json(const struct mcp_prediction *prediction, struct mcp_json *object);

#endif
