/* planner/require.h: what a plan must be besides legal: "pipeline_parallel<=8".
 *
 *     requirement = name op value | name "in" value {"," value}
 *     op          = "<=" ">=" "<" ">" "=" "==" "!="
 *
 * Names are the plan's keys (tensor_parallel ... recompute), what follows from them
 * (num_microbatches, recomputed_stages, recomputed_layers, layers of the fullest
 * stage) and what is predicted (iteration_s, peak_memory_bytes, peak_memory_frac of
 * a device's memory, model_flops_utilization, bubble_frac, exposed_comm_frac).
 * Values are numbers, "12.5 %", "60GiB", "20 s", or words where the plan has words. */
#ifndef MCP_PLANNER_REQUIRE_H
#define MCP_PLANNER_REQUIRE_H

#include "planner/space.h"
#include "step/estimate.h"

enum mcp_require_name {
    /* the first MCP_NUM_KNOBS are enum mcp_knob */
    MCP_REQUIRE_NUM_MICROBATCHES = MCP_NUM_KNOBS,
    MCP_REQUIRE_RECOMPUTED_STAGES, /* pipeline stages that recompute anything */
    MCP_REQUIRE_RECOMPUTED_LAYERS, /* layers of which anything is recomputed */
    MCP_REQUIRE_MOST_LAYERS,       /* of a stage */
    MCP_REQUIRE_ITERATION_S,       /* from here on predicted */
    MCP_REQUIRE_PEAK_MEMORY_BYTES,
    MCP_REQUIRE_PEAK_MEMORY_FRAC,
    MCP_REQUIRE_MFU,
    MCP_REQUIRE_BUBBLE_FRAC,
    MCP_REQUIRE_EXPOSED_COMM_FRAC,
    MCP_NUM_REQUIRE_NAMES
};
extern const char *const mcp_require_names[MCP_NUM_REQUIRE_NAMES];

enum mcp_require_op {
    MCP_AT_MOST,
    MCP_AT_LEAST,
    MCP_BELOW,
    MCP_ABOVE,
    MCP_ONE_OF, /* "=" has one value */
    MCP_NONE_OF /* "!=" */
};

enum { MCP_MOST_VALUES = 32 };

struct mcp_requirement {
    const char *text; /* as written */
    enum mcp_require_name name;
    enum mcp_require_op op;
    int count;
    double values[MCP_MOST_VALUES]; /* in the base unit */
};

struct mcp_requirements {
    int count;
    struct mcp_requirement *items;
};

/* MCP_USAGE, naming what is understood, when it is not. */
enum mcp_status mcp_requirement_parse(struct mcp_arena *arena, const char *text,
                                      struct mcp_requirement *out, struct mcp_error *err);

/* Narrows the space's bounds to what the requirements leave of them; MCP_INVALID
 * when that is nothing. What bounds cannot say is said by mcp_require_broken() and its like. */
enum mcp_status mcp_require_bound(const struct mcp_requirements *requirements,
                                  struct mcp_plan_space *space, struct mcp_error *err);
/* Does any requirement say more than bounds can? */
bool mcp_require_more(const struct mcp_requirements *requirements);
/* What `plan` has of it; `prediction` is needed from MCP_REQUIRE_ITERATION_S on,
 * chunks from MCP_REQUIRE_RECOMPUTED_STAGES on and for recompute. */
double mcp_require_value(const struct mcp_question *question, enum mcp_require_name name,
                         const struct mcp_plan *plan, const struct mcp_prediction *prediction);
bool mcp_requirement_holds(const struct mcp_requirement *requirement, double value);

/* The first requirement that degrees, microbatch and switches break, whatever the
 * split; NULL when none. */
const struct mcp_requirement *mcp_require_broken(const struct mcp_requirements *requirements,
                                                 const struct mcp_question *question,
                                                 const struct mcp_plan *plan);
/* The same of all plans that differ from it in ZeRO, placement and rank order alone. */
const struct mcp_requirement *mcp_require_broken_family(const struct mcp_requirements *requirements,
                                                        const struct mcp_question *question,
                                                        const struct mcp_plan *plan);
/* The same of a priced plan: all requirements. */
const struct mcp_requirement *mcp_require_broken_priced(const struct mcp_requirements *requirements,
                                                        const struct mcp_question *question,
                                                        const struct mcp_plan *plan,
                                                        const struct mcp_prediction *prediction);

#endif
