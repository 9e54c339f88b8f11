/* sim/ops_fold.c: a block is one event while nobody contends for its links. */
#include "sim/ops_parts.h"

static bool has_ports_to_itself(const struct mcp_sim_rank *rank)
{
    for (int tier = 0; tier < MCP_MAX_TIERS; tier++)
        if (rank->messages[tier] > 0 && rank->block->ports_ns[tier] > 0)
            return false;
    return rank->moved == rank->queued && !rank->block->meets_itself;
}

/* What else may come to its ports is messages alone, which unfold it: data transfers are
 * begun between blocks. A slower rank's ops have other lengths, and spans want each. */
bool mcp_sim_ops_fold(const struct mcp_sim_ops_play *play, int c)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    if (play->options->span != NULL || rank->stretch.largest != 1)
        return false;
    if (play->options->shared_links && !has_ports_to_itself(rank))
        return false;
    const struct mcp_sim_activity activity = {
        .kind = MCP_SIM_BLOCK, .class = c, .fixed_ns = rank->block->alone_ns};
    mcp_sim_start(play->activities, &activity);
    rank->folded = true;
    return true;
}

static bool has_ended(const struct mcp_sim_op *op, int64_t elapsed_ns)
{
    return op->alone_ns + op->time_ns <= elapsed_ns;
}

/* Those that have ended by now let others begin. */
static void catch_up(struct mcp_sim_rank *rank, int64_t elapsed_ns)
{
    const struct mcp_sim_block *block = rank->block;
    rank->ops_left = block->num_ops;
    for (int i = 0; i < block->num_ops; i++)
        rank->left_before[i] = block->ops[i].num_before;
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_sim_op *op = &block->ops[i];
        if (!has_ended(op, elapsed_ns))
            continue;
        rank->ops_left--;
        for (int a = 0; a < op->num_after; a++)
            rank->left_before[block->after[op->first_after + a]]--;
    }
}

void mcp_sim_ops_unfold(const struct mcp_sim_ops_play *play, int c, int tier)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    const struct mcp_sim_block *block = rank->block;
    int64_t elapsed_ns = mcp_sim_ops_now(play) - rank->step_start_ns;
    if (!play->options->shared_links || !rank->folded || elapsed_ns >= block->ports_ns[tier])
        return;
    rank->folded = false;
    mcp_sim_drop_block(play->activities, c);
    catch_up(rank, elapsed_ns);
    for (int i = 0; i < block->num_ops; i++)
        if (!has_ended(&block->ops[i], elapsed_ns) && rank->left_before[i] == 0)
            mcp_sim_ops_start_op(play, c, i, elapsed_ns - block->ops[i].alone_ns);
    if (rank->ops_left == 0)
        mcp_sim_ops_await_launches(play, c);
}
