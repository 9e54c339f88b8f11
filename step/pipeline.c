/* step/pipeline.c: the recurrence played slot by slot: the reference. */
#include "step/pipeline.h"

#include "step/schedule.h"

#include <assert.h>

/* Microbatches of a virtual stage pass in order, so counts say which ends are known. */
struct track {
    int *done;     /* [p v] slots ended */
    int64_t *ends; /* [p v][m] */
    const struct mcp_slot_price *prices;
};

struct play {
    const struct mcp_pipeline *pipeline;
    struct track tracks[2];     /* forward, backward */
    int *next;                  /* [p] index of the rank's next action */
    struct mcp_action *actions; /* [p][2 m v] */
    struct mcp_pipeline_rank *ranks;
    int64_t *chunk_end_ns;
};

static struct track new_track(struct mcp_arena *scratch, const struct mcp_pipeline *pipeline,
                              const struct mcp_slot_price *prices)
{
    size_t stages = (size_t)pipeline->pipeline_parallel * (size_t)pipeline->virtual_stages;
    return (struct track){
        MCP_ARRAY(scratch, stages, int),
        MCP_ARRAY(scratch, stages * (size_t)pipeline->num_microbatches, int64_t),
        prices,
    };
}

/* The virtual stage whose message a slot of stage k awaits, or -1. */
static int sender_of(const struct mcp_pipeline *pipeline, int k, bool backward)
{
    int stages = pipeline->pipeline_parallel * pipeline->virtual_stages;
    int sender = backward ? k + 1 : k - 1;
    return pipeline->pipeline_parallel > 1 && sender < stages ? sender : -1;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Runs the rank's next slot; false when its message has not been sent. */
static bool advance(struct play *play, int r, const struct mcp_action *action)
{
    const struct mcp_pipeline *pipeline = play->pipeline;
    bool backward = action->pass != MCP_PASS_FORWARD;
    struct track *track = &play->tracks[backward];
    struct mcp_pipeline_rank *rank = &play->ranks[r];
    int m = pipeline->num_microbatches, k = action->chunk * pipeline->pipeline_parallel + r;
    int sender = sender_of(pipeline, k, backward);
    const struct mcp_slot_price *price = &track->prices[k];
    int64_t start = rank->end_ns, busy = price->lead_ns + price->body_ns + price->send_ns;
    if (sender >= 0) {
        if (track->done[sender] <= action->microbatch)
            return false;
        int64_t delay = track->prices[sender].delay_ns;
        int64_t arrival =
            track->ends[(size_t)sender * (size_t)m + (size_t)action->microbatch] + delay;
        if (arrival - price->lead_ns > start)
            start = arrival - price->lead_ns;
        int64_t idle = start - rank->end_ns;
        rank->exposed_ns += smaller(idle, delay);
        rank->bubble_ns += idle - smaller(idle, delay);
    }
    assert(track->done[k] == action->microbatch);
    rank->busy_ns += busy;
    rank->end_ns = start + busy;
    track->ends[(size_t)k * (size_t)m + (size_t)track->done[k]++] = rank->end_ns;
    if (backward && play->chunk_end_ns)
        play->chunk_end_ns[k] = rank->end_ns;
    return true;
}

/* As many slots of rank r as have their messages. */
static bool run_rank(struct play *play, int r)
{
    const struct mcp_pipeline *pipeline = play->pipeline;
    int length = mcp_schedule_length(pipeline->virtual_stages, pipeline->num_microbatches);
    const struct mcp_action *actions = play->actions + (size_t)r * (size_t)length;
    int before = play->next[r];
    while (play->next[r] < length && advance(play, r, &actions[play->next[r]]))
        play->next[r]++;
    return play->next[r] > before;
}

static void begin(struct mcp_arena *scratch, struct play *play)
{
    const struct mcp_pipeline *pipeline = play->pipeline;
    int p = pipeline->pipeline_parallel, v = pipeline->virtual_stages;
    int m = pipeline->num_microbatches, length = mcp_schedule_length(v, m);
    play->tracks[false] = new_track(scratch, pipeline, pipeline->forward);
    play->tracks[true] = new_track(scratch, pipeline, pipeline->backward);
    play->next = MCP_ARRAY(scratch, p, int);
    play->actions = MCP_ARRAY(scratch, (size_t)p * (size_t)length, struct mcp_action);
    for (int r = 0; r < p; r++) {
        mcp_schedule_actions(pipeline->schedule, p, v, m, r,
                             play->actions + (size_t)r * (size_t)length);
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
        assert(play.next[r] ==
               mcp_schedule_length(pipeline->virtual_stages, pipeline->num_microbatches));
        end = ranks[r].end_ns > end ? ranks[r].end_ns : end;
    }
    mcp_arena_rewind(scratch, mark);
    return end;
}
