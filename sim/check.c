/* sim/check.c: bounds on what is played. */
#include "sim/check.h"

#include "step/price.h"

#include <math.h>

enum { LARGEST_DRAW = 8 }; /* no normal draw is larger (sim/noise.c) */

enum mcp_status mcp_sim_check_size(const struct mcp_plan *plan, const struct mcp_job *job,
                                   struct mcp_error *err)
{
    int passes = mcp_plan_splits_backward(plan) ? 3 : 2;
    double slots = (double)passes * (double)mcp_num_microbatches(plan, job) * plan->virtual_stages *
                   plan->pipeline_parallel;
    if (slots <= MCP_SIM_MOST_SLOTS)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "the step has %.0f slots (%d x microbatches x virtual_stages x "
                    "pipeline_parallel); at most %d are played: a larger microbatch_size or a "
                    "smaller global_batch_size makes fewer",
                    slots, passes, MCP_SIM_MOST_SLOTS);
}

/* The slowest pool's. */
static double block_s(const struct mcp_question *question, const struct mcp_plan *plan,
                      const struct mcp_block *block)
{
    double slowest = 0;
    for (int pool = 0; pool < mcp_cluster_num_pools(question->cluster); pool++) {
        struct mcp_question at = *question;
        at.cluster = mcp_cluster_pool(question->cluster, pool);
        const struct mcp_pricing pricing = {&at, plan};
        double seconds = 0;
        for (int i = 0; i < block->num_ops; i++)
            seconds += mcp_op_seconds(&pricing, &block->ops[i]);
        if (!(seconds <= slowest))
            slowest = seconds;
    }
    return slowest;
}

static double list_s(const struct mcp_question *question, const struct mcp_program *program,
                     const struct mcp_entry_list *list)
{
    double seconds = 0;
    for (int e = 0; e < list->num_entries; e++) {
        const struct mcp_entry *entry = &list->entries[e];
        seconds +=
            block_s(question, &program->plan, &program->types[entry->type].blocks[entry->role]);
    }
    return seconds;
}

enum mcp_status mcp_sim_check_time(const struct mcp_question *question,
                                   const struct mcp_program *program,
                                   const struct mcp_sim_options *options, struct mcp_error *err)
{
    const double most = 9e9;
    double longest = 0, slots = 0;
    for (int i = 0; i < program->num_lists; i++)
        longest = fmax(longest, list_s(question, program, &program->lists[i]));
    for (int c = 0; c < program->num_classes; c++)
        slots += program->classes[c].num_slots;
    double slower = options->slow_factor * exp(LARGEST_DRAW * options->noise);
    if (longest * slots * slower <= most)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "a slot of this plan takes up to %.3g s, times %.3g slots and a slowdown of up "
                    "to %.3g: no step of centuries is played; look at the cluster's rates",
                    longest, slots, slower);
}
