/* planner/explain_memory.c: what each way to save memory saves, and what it costs. */
#include "planner/explain.h"

struct saving {
    const char *name;
    enum mcp_recompute recompute;
    int zero_stage;
};
static const struct saving savings[MCP_NUM_MEMORY_STEPS] = {
    {"recompute_none", MCP_RECOMPUTE_NONE, 0}, {"recompute_selective", MCP_RECOMPUTE_SELECTIVE, 0},
    {"recompute_full", MCP_RECOMPUTE_FULL, 0}, {"zero_1", MCP_RECOMPUTE_FULL, 1},
    {"zero_2", MCP_RECOMPUTE_FULL, 2},         {"zero_3", MCP_RECOMPUTE_FULL, 3},
};

/* The same layers on the same stages, all with `recompute`. */
static struct mcp_chunk *recompute_all(struct mcp_arena *arena, const struct mcp_plan *plan,
                                       enum mcp_recompute recompute)
{
    int count = plan->pipeline_parallel * plan->virtual_stages;
    struct mcp_chunk *chunks = MCP_ARRAY(arena, count, struct mcp_chunk);
    for (int k = 0; k < count; k++) {
        chunks[k] = plan->chunks[k];
        chunks[k].num_runs = chunks[k].num_layers > 0;
        chunks[k].runs = MCP_NEW(arena, struct mcp_recompute_run);
        *chunks[k].runs = (struct mcp_recompute_run){recompute, chunks[k].num_layers};
    }
    return chunks;
}

void mcp_memory_steps(struct mcp_arena *arena, const struct mcp_question *question,
                      const struct mcp_plan *plan, struct mcp_memory_step out[MCP_NUM_MEMORY_STEPS])
{
    struct mcp_pricer *pricer = mcp_pricer_new(arena, question);
    for (int i = 0; i < MCP_NUM_MEMORY_STEPS; i++) {
        out[i] = (struct mcp_memory_step){.name = savings[i].name, .plan = *plan};
        out[i].plan.zero_stage = savings[i].zero_stage;
        out[i].plan.reshard_after_forward = true;
        out[i].plan.chunks = recompute_all(arena, plan, savings[i].recompute);
        out[i].refused = mcp_illegal_rule(question, &out[i].plan);
        if (!out[i].refused)
            mcp_estimate(pricer, &out[i].plan, &out[i].prediction);
    }
}
