/* sim/unequal.c: cells, draws, and the groups of a slow port. */
#include "sim/unequal.h"

#include "core/mesh.h"
#include "sim/noise.h"

#include <math.h>

bool mcp_sim_is_unequal(const struct mcp_sim_options *options)
{
    return options->noise > 0 || options->slow_rank >= 0 || options->slow_port >= 0;
}

static enum mcp_cost cost_of_waiting(const struct mcp_plan *plan)
{
    if (plan->tensor_parallel > 1)
        return MCP_COST_TENSOR;
    if (plan->context_parallel > 1)
        return MCP_COST_CONTEXT;
    return plan->expert_parallel > 1 ? MCP_COST_EXPERT : MCP_COST_DATA;
}

static void find_slow_port(struct mcp_sim_unequal *out)
{
    const struct mcp_plan *plan = &out->steps->program->plan;
    int port = out->options->slow_port;
    out->slow_stage = mcp_mesh_coordinate(plan, port).pipeline;
    int first = port - out->offsets[out->slow_stage]; /* of its pipeline */
    for (int cell = 0; cell < out->cells.num_cells; cell++)
        for (int i = out->cells.first[cell]; i < out->cells.first[cell + 1]; i++)
            if (out->cells.members[i] == first)
                out->slow_cell = cell;
}

void mcp_sim_unequal_of(struct mcp_arena *arena, const struct mcp_sim_steps *steps,
                        const struct mcp_sim_options *options, struct mcp_sim_unequal *out)
{
    const struct mcp_plan *plan = &steps->program->plan;
    int classes = steps->program->num_classes;
    *out = (struct mcp_sim_unequal){steps, options, .slow_stage = -1, .slow_cell = -1};
    out->any = mcp_sim_is_unequal(options);
    out->group_cost = cost_of_waiting(plan);
    out->cells.num_cells = 1;
    if (!out->any)
        return;
    out->offsets = MCP_ARRAY(arena, classes, int);
    for (int c = 0; c < classes; c++)
        out->offsets[c] = mcp_sim_rank_on(plan, 0, c);
    out->cells = mcp_sim_cells_of(arena, plan);
    if (steps->slow != NULL)
        find_slow_port(out);
}

double mcp_sim_cell_share(const struct mcp_sim_unequal *unequal, int cell)
{
    const struct mcp_plan *plan = &unequal->steps->program->plan;
    if (!unequal->any)
        return 1;
    int count = unequal->cells.first[cell + 1] - unequal->cells.first[cell];
    return (double)count * plan->pipeline_parallel / mcp_plan_world(plan);
}

struct mcp_sim_stretch mcp_sim_stretch_of(const struct mcp_sim_unequal *unequal, int cell,
                                          int class, int slot)
{
    const struct mcp_sim_options *options = unequal->options;
    double largest = 0, sum = 0, noise = options->noise;
    if (!unequal->any)
        return (struct mcp_sim_stretch){1, 1};
    int first = unequal->cells.first[cell], end = unequal->cells.first[cell + 1];
    for (int i = first; i < end; i++) {
        int r = unequal->cells.members[i] + unequal->offsets[class];
        double factor = r == options->slow_rank ? options->slow_factor : 1;
        if (noise > 0)
            factor *= exp(noise * mcp_sim_normal(options->seed, r, slot) - noise * noise / 2);
        largest = fmax(largest, factor);
        sum += factor;
    }
    return (struct mcp_sim_stretch){largest, sum / (end - first)};
}

/* Groups of compute are within a cell; data groups reach over the cells of a stage; a
 * message has two ends. */
bool mcp_sim_is_slow(const struct mcp_sim_unequal *unequal, int cell, int class,
                     const struct mcp_sim_step *step)
{
    int p = unequal->steps->program->num_classes;
    bool same_cell = cell == unequal->slow_cell, same_stage = class == unequal->slow_stage;
    if (unequal->slow_stage < 0)
        return false;
    switch (step->kind) {
    case MCP_SIM_COMPUTE:
        return same_cell && same_stage;
    case MCP_SIM_GATHER:
    case MCP_SIM_REDUCE:
        return same_stage;
    default:
        return same_cell &&
               (same_stage || (class + (step->side ? 1 : p - 1)) % p == unequal->slow_stage);
    }
}

const struct mcp_sim_step *mcp_sim_step_at(const struct mcp_sim_unequal *unequal, int cell,
                                           int class, int list, int index)
{
    const struct mcp_sim_step *step = &unequal->steps->lists[list].steps[index];
    if (mcp_sim_is_slow(unequal, cell, class, step))
        return &unequal->steps->slow->lists[list].steps[index];
    return step;
}

const struct mcp_sim_class *mcp_sim_edges_of(const struct mcp_sim_unequal *unequal, int class)
{
    return class == unequal->slow_stage ? &unequal->steps->slow->classes[class]
                                        : &unequal->steps->classes[class];
}
