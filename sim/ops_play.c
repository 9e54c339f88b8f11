/* sim/ops_play.c: a whole step op by op: every pipeline of unequal ranks, or one for all. */
#include "sim/ops_parts.h"
#include "step/price_parts.h"

#include <assert.h>
#include <string.h>

static int largest_block(const struct mcp_program *program)
{
    int largest = 0;
    for (int t = 0; t < program->num_types; t++)
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
            if (program->types[t].blocks[role].num_ops > largest)
                largest = program->types[t].blocks[role].num_ops;
    return largest;
}

/* Phases of one block's transfers, at most. */
static int most_phases(const struct mcp_program *program)
{
    return largest_block(program) * MCP_MAX_PHASES;
}

static int count_transfers(const struct mcp_sim_ops_play *play, int c)
{
    int count = 0;
    for (int s = 0; s < play->program->classes[c].num_slots; s++) {
        const struct mcp_sim_list *list =
            &play->steps->lists[play->program->classes[c].slots[s].list];
        for (int i = 0; i < list->num_steps; i++)
            count += list->steps[i].kind == MCP_SIM_GATHER || list->steps[i].kind == MCP_SIM_REDUCE;
    }
    return count;
}

static void make_rank(struct mcp_arena *arena, struct mcp_sim_ops_play *play, int c)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    int cells = (play->program->num_layers + 1) * play->steps->num_copies;
    int num_slots = play->program->classes[c].num_slots;
    rank->left_before = MCP_ARRAY(arena, largest_block(play->program), int);
    rank->times = MCP_ARRAY(arena, num_slots, struct mcp_sim_slot_time);
    rank->queue = MCP_ARRAY(arena, count_transfers(play, c), struct mcp_sim_transfer);
    rank->phases = MCP_ARRAY(arena, most_phases(play->program), struct mcp_sim_phase);
    rank->pending = MCP_ARRAY(arena, cells, int);
    rank->alone_ns = MCP_ARRAY(arena, cells, int64_t);
    for (int i = 0; i < MCP_SIM_MAILS; i++)
        rank->mail[i].items = MCP_ARRAY(arena, num_slots, struct mcp_sim_message);
    play->out->stages[c].earliest_end_ns = INT64_MAX;
}

/* All else of a rank begins at 0; its arrays are as its last pipeline left them: empty. */
static void begin_rank(struct mcp_sim_ops_play *play, int c)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    struct mcp_sim_rank fresh = {.left_before = rank->left_before,
                                 .times = rank->times,
                                 .queue = rank->queue,
                                 .phases = rank->phases,
                                 .pending = rank->pending,
                                 .alone_ns = rank->alone_ns};
    int64_t head_ns = mcp_sim_edges_of(&play->unequal, c)->head_ns;
    for (int i = 0; i < MCP_SIM_MAILS; i++)
        fresh.mail[i].items = rank->mail[i].items;
    fresh.cost_s[MCP_COST_DATA] = fresh.comm_s[MCP_COST_DATA] = mcp_sim_seconds(head_ns);
    fresh.slot_start_ns = head_ns;
    fresh.phase = -1; /* before the first step */
    *rank = fresh;
    mcp_sim_ops_timer(play, c, head_ns);
}

/* Returns when all of it has ended. Bubbles at the end are added when the end is known. */
static int64_t end_rank(struct mcp_sim_ops_play *play, int c)
{
    struct mcp_sim_rank *rank = &play->ranks[c];
    struct mcp_sim_stage *stage = &play->out->stages[c];
    double share = mcp_sim_cell_share(&play->unequal, play->cell);
    int64_t tail_ns = mcp_sim_edges_of(&play->unequal, c)->tail_ns, end_ns = rank->end_ns;
    assert(rank->slot == play->program->classes[c].num_slots);
    if (end_ns < stage->earliest_end_ns)
        stage->earliest_end_ns = end_ns;
    if (end_ns > stage->latest_end_ns)
        stage->latest_end_ns = end_ns;
    if (rank->data_end_ns > end_ns)
        end_ns = rank->data_end_ns;
    end_ns += tail_ns;
    rank->cost_s[MCP_COST_DATA] += mcp_sim_seconds(end_ns - rank->end_ns);
    rank->comm_s[MCP_COST_DATA] += mcp_sim_seconds(tail_ns);
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        stage->cost_s[i] += rank->cost_s[i] * share;
        play->out->comm_s[i] += rank->comm_s[i] * share / play->program->num_classes;
    }
    stage->cost_s[MCP_COST_BUBBLE] -= mcp_sim_seconds(end_ns) * share;
    stage->busy_s += rank->busy_s * share;
    return end_ns;
}

static void keep_times(struct mcp_sim_ops_play *play, int64_t end_ns)
{
    if (end_ns <= play->worst_ns)
        return;
    play->worst_ns = end_ns;
    for (int c = 0; c < play->program->num_classes; c++) {
        struct mcp_sim_stage *stage = &play->out->stages[c];
        memcpy(stage->times, play->ranks[c].times, (size_t)stage->num_slots * sizeof *stage->times);
    }
}

static void play_pipeline(struct mcp_sim_ops_play *play)
{
    struct mcp_sim_activity activity;
    int64_t end_ns = 0;
    mcp_sim_activities_restart(play->activities);
    for (int c = 0; c < play->program->num_classes; c++)
        begin_rank(play, c);
    while (mcp_sim_next(play->activities, &activity))
        mcp_sim_ops_end_activity(play, &activity);
    for (int c = 0; c < play->program->num_classes; c++) {
        int64_t ns = end_rank(play, c);
        end_ns = ns > end_ns ? ns : end_ns;
        play->ends_ns[play->cell * play->program->num_classes + c] = play->ranks[c].end_ns;
    }
    keep_times(play, end_ns);
    play->out->end_ns = end_ns > play->out->end_ns ? end_ns : play->out->end_ns;
}

static void make_play(struct mcp_arena *arena, const struct mcp_question *question,
                      const struct mcp_sim_options *ranks, struct mcp_sim_ops_play *play)
{
    int classes = play->program->num_classes;
    struct mcp_sim_steps *steps = mcp_sim_steps_new(arena, question, play->program);
    if (ranks->slow_port >= 0) {
        steps->slow = mcp_sim_steps_new(arena, ranks->slow_links, play->program);
        play->slow_blocks = mcp_sim_blocks_new(arena, steps->slow);
    }
    play->steps = steps;
    play->blocks = mcp_sim_blocks_new(arena, steps);
    play->activities = mcp_sim_activities_new(arena, classes, play->options->shared_links);
    play->ranks = MCP_ARRAY(arena, classes, struct mcp_sim_rank);
    mcp_sim_unequal_of(arena, steps, ranks, &play->unequal);
    mcp_sim_result_new(arena, play->program, play->out);
    play->out->num_cells = play->unequal.cells.num_cells;
    play->ends_ns = MCP_ARRAY(arena, play->out->num_cells * classes, int64_t);
    for (int c = 0; c < classes; c++)
        make_rank(arena, play, c);
}

void mcp_sim_play_ops(struct mcp_arena *arena, const struct mcp_question *question,
                      const struct mcp_program *program, const struct mcp_sim_ops_options *options,
                      struct mcp_sim_result *out)
{
    struct mcp_sim_ops_play play = {.program = program, .options = options, .out = out};
    const struct mcp_sim_options equal = mcp_sim_options_default();
    make_play(arena, question, options->ranks != NULL ? options->ranks : &equal, &play);
    for (int c = 0; c < program->num_classes; c++) {
        out->stages[c].head_ns = mcp_sim_edges_of(&play.unequal, c)->head_ns;
        out->stages[c].tail_ns = mcp_sim_edges_of(&play.unequal, c)->tail_ns;
    }
    mcp_sim_ops_head_spans(&play);
    for (; play.cell < out->num_cells; play.cell++)
        play_pipeline(&play);
    mcp_sim_finish(play.steps, out);
    mcp_sim_ops_end_spans(&play);
}
