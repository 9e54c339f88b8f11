/* step/pipeline.c: the recurrence played slot by slot: the reference. */
#include "step/pipeline.h"

#include "core/minmax.h"
#include "step/schedule.h"

#include <assert.h>

struct play {
    const struct mcp_pipeline *pipeline;
    const struct mcp_slot_price *prices[MCP_NUM_PASSES];
    int64_t *ends[2]; /* forward, backward: [p v][m], of what is sent; NOT_YET before */
    int *next;        /* [p] index of the rank's next action */
    struct mcp_schedule_row *rows; /* [p] */
    struct mcp_pipeline_rank *ranks;
    int64_t *chunk_end_ns;
};
#define NOT_YET (-1)

static int64_t *end_of(const struct play *play, bool backward, int k, int microbatch)
{
    size_t m = (size_t)play->pipeline->num_microbatches;
    return &play->ends[backward][(size_t)k * m + (size_t)microbatch];
}

/* The virtual stage whose result a slot of stage k awaits, or -1. */
static int sender_of(const struct mcp_pipeline *pipeline, int k, enum mcp_pass pass)
{
    int stages = pipeline->pipeline_parallel * pipeline->virtual_stages;
    int sender = pass == MCP_PASS_FORWARD ? k - 1 : k + 1;
    return pass != MCP_PASS_BACKWARD_WEIGHT && sender < stages ? sender : -1;
}

static int rank_of(const struct mcp_pipeline *pipeline, int k)
{
    return mcp_placed_rank(pipeline->placement, pipeline->pipeline_parallel, k);
}

/* The rank idles until its message has come, less the lead. False: it is not on its way. */
static bool await(const struct play *play, int k, const struct mcp_action *action,
                  struct mcp_pipeline_rank *rank)
{
    int sender = sender_of(play->pipeline, k, action->pass);
    bool backward = action->pass != MCP_PASS_FORWARD;
    if (sender < 0)
        return true;
    int64_t sent = *end_of(play, backward, sender, action->microbatch);
    if (sent == NOT_YET)
        return false;
    if (rank_of(play->pipeline, sender) == rank_of(play->pipeline, k))
        return true;
    /* whole or in parts, a backward sends the same */
    int64_t delay = backward ? play->pipeline->backward[sender].delay_ns
                             : play->pipeline->forward[sender].delay_ns;
    int64_t idle = sent + delay - play->prices[action->pass][k].lead_ns - rank->end_ns;
    if (idle <= 0)
        return true;
    rank->end_ns += idle;
    rank->exposed_ns += mcp_min_int64(idle, delay);
    rank->bubble_ns += idle - mcp_min_int64(idle, delay);
    return true;
}

/* Runs the rank's next slot; false when its message has not been sent. */
static bool advance(struct play *play, int r, const struct mcp_action *action)
{
    const struct mcp_pipeline *pipeline = play->pipeline;
    struct mcp_pipeline_rank *rank = &play->ranks[r];
    int k = mcp_placed_stage(pipeline->placement, pipeline->pipeline_parallel, r, action->chunk);
    const struct mcp_slot_price *price = &play->prices[action->pass][k];
    if (!await(play, k, action, rank))
        return false;
    if (play->next[r] == 0)
        rank->start_ns = rank->end_ns;
    int64_t busy = price->lead_ns + price->body_ns + price->send_ns;
    rank->busy_ns += busy;
    rank->end_ns += busy;
    if (action->pass != MCP_PASS_BACKWARD_WEIGHT)
        *end_of(play, action->pass != MCP_PASS_FORWARD, k, action->microbatch) =
            rank->end_ns - price->after_ns;
    if (action->pass != MCP_PASS_FORWARD && play->chunk_end_ns)
        play->chunk_end_ns[k] = rank->end_ns;
    return true;
}

/* As many slots of rank r as have their messages. */
static bool run_rank(struct play *play, int r)
{
    const struct mcp_schedule_row *row = &play->rows[r];
    int before = play->next[r];
    while (play->next[r] < row->num_actions && advance(play, r, &row->actions[play->next[r]]))
        play->next[r]++;
    return play->next[r] > before;
}

static void begin(struct mcp_arena *scratch, struct play *play)
{
    const struct mcp_pipeline *pipeline = play->pipeline;
    int p = pipeline->pipeline_parallel, m = pipeline->num_microbatches;
    const struct mcp_schedule_shape shape = {p, pipeline->virtual_stages, m};
    size_t slots = (size_t)p * (size_t)pipeline->virtual_stages * (size_t)m;
    play->prices[MCP_PASS_FORWARD] = pipeline->forward;
    play->prices[MCP_PASS_BACKWARD] = pipeline->backward;
    play->prices[MCP_PASS_BACKWARD_INPUT] = pipeline->backward_input;
    play->prices[MCP_PASS_BACKWARD_WEIGHT] = pipeline->backward_weight;
    for (int i = 0; i < 2; i++) {
        play->ends[i] = MCP_ARRAY(scratch, slots, int64_t);
        for (size_t s = 0; s < slots; s++)
            play->ends[i][s] = NOT_YET;
    }
    play->next = MCP_ARRAY(scratch, p, int);
    play->rows = MCP_ARRAY(scratch, p, struct mcp_schedule_row);
    for (int r = 0; r < p; r++) {
        play->rows[r] = pipeline->rows != NULL
                            ? pipeline->rows[r]
                            : mcp_generated_row(scratch, pipeline->schedule, &shape, r);
        play->ranks[r] = (struct mcp_pipeline_rank){0};
        play->ranks[r].end_ns = pipeline->release_ns ? pipeline->release_ns[r] : 0;
    }
}

int64_t mcp_pipeline_play_all(struct mcp_arena *scratch, const struct mcp_pipeline *pipeline,
                              struct mcp_pipeline_rank *ranks, int64_t *chunk_end_ns)
{
    struct mcp_mark mark = mcp_arena_mark(scratch);
    struct play play = {.pipeline = pipeline, .ranks = ranks, .chunk_end_ns = chunk_end_ns};
    begin(scratch, &play);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < pipeline->pipeline_parallel; r++)
            moved |= run_rank(&play, r);
    }
    int64_t end = ranks[0].end_ns;
    for (int r = 0; r < pipeline->pipeline_parallel; r++) {
        assert(play.next[r] == play.rows[r].num_actions);
        end = ranks[r].end_ns > end ? ranks[r].end_ns : end;
    }
    mcp_arena_rewind(scratch, mark);
    return end;
}
