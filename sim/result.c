/* sim/result.c: what a played step says: times of all ranks together, accounts. */
#include "sim/steps.h"

#include "core/minmax.h"

#include <string.h>

static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

void mcp_sim_result_new(struct mcp_arena *arena, const struct mcp_program *program,
                        struct mcp_sim_result *out)
{
    memset(out, 0, sizeof *out);
    out->num_cells = 1;
    out->num_stages = program->num_classes;
    out->stages = MCP_ARRAY(arena, program->num_classes, struct mcp_sim_stage);
    for (int c = 0; c < program->num_classes; c++) {
        struct mcp_sim_stage *stage = &out->stages[c];
        stage->num_slots = program->classes[c].num_slots;
        stage->slots = program->classes[c].slots;
        stage->times = MCP_ARRAY(arena, stage->num_slots, struct mcp_sim_slot_time);
    }
}

/* By how much all stages together are longer than any of them: step/estimate_result.c. */
static int64_t skew_ns(const struct mcp_sim_result *out)
{
    int64_t end = 0, longest = 0;
    for (int c = 0; c < out->num_stages; c++) {
        const struct mcp_sim_stage *stage = &out->stages[c];
        int first = 0;
        while (first + 1 < stage->num_slots && stage->slots[first].microbatch < 0)
            first++;
        int64_t late = stage->times[first].start_ns - (first > 0 ? stage->times[0].end_ns : 0);
        end = mcp_max_int64(end, stage->latest_end_ns);
        longest = mcp_max_int64(longest, stage->latest_end_ns - late);
    }
    return end - longest;
}

static void summarise(struct mcp_sim_result *out)
{
    double busy = 0, exposed = 0, step = seconds(out->step_ns);
    for (int c = 0; c < out->num_stages; c++) {
        for (int i = 0; i < MCP_NUM_COSTS; i++)
            out->cost_s[i] += out->stages[c].cost_s[i] / out->num_stages;
        busy += out->stages[c].busy_s / out->num_stages;
    }
    for (int i = MCP_COST_TENSOR; i <= MCP_COST_DATA; i++)
        exposed += out->cost_s[i];
    out->bubble_frac = out->cost_s[MCP_COST_BUBBLE] / step;
    double bubble = out->cost_s[MCP_COST_BUBBLE] - seconds(skew_ns(out));
    out->bubble_over_ideal = busy > 0 && bubble > 0 ? bubble / busy : 0;
    out->exposed_comm_frac = exposed / step;
}

/* All ranks go on together once the slowest has ended; each updates its own. */
void mcp_sim_finish(const struct mcp_sim_steps *steps, struct mcp_sim_result *out)
{
    int p = out->num_stages;
    for (int c = 0; c < p; c++)
        out->update_ns = mcp_max_int64(out->update_ns, steps->classes[c].update_ns);
    out->agreement_ns = steps->agreement_ns;
    out->broadcast_ns = steps->broadcast_ns;
    out->overhead_ns = steps->overhead_ns;
    int64_t together_ns = out->agreement_ns + out->broadcast_ns;
    out->step_ns = out->end_ns + out->update_ns + together_ns + out->overhead_ns;
    out->comm_s[MCP_COST_DATA] += seconds(together_ns);
    for (int c = 0; c < p; c++) {
        const struct mcp_sim_class *class = &steps->classes[c];
        double *cost = out->stages[c].cost_s;
        out->stages[c].head_ns = class->head_ns;
        out->stages[c].tail_ns = class->tail_ns;
        for (int i = 0; i < MCP_NUM_COSTS; i++) {
            cost[i] += class->update_cost_s[i];
            out->comm_s[i] += class->update_comm_s[i] / p;
        }
        cost[MCP_COST_DATA] += seconds(together_ns);
        cost[MCP_COST_HOST] += seconds(out->overhead_ns);
        cost[MCP_COST_BUBBLE] += seconds(out->end_ns + out->update_ns - class->update_ns);
    }
    summarise(out);
}
