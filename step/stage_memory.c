/* step/stage_memory.c: walks a rank's slots and finds the heaviest moment. */
#include "step/stage_memory.h"

#include "step/schedule.h"

#include <assert.h>

struct walk {
    int p, v;
    const struct mcp_chunk_memory *chunks;
    int64_t live; /* frames between slots */
    int64_t peak, kept;
    int forwards, backwards;
    int forward_chunk, forward_left; /* chunk of the next forward; forwards left in its run */
    int backward_chunk, backward_left;
};

/* `running` bytes of a slot at work above `others`; of them its own frames are kept
 * like those of others, the rest is its working set. */
static void note(struct walk *w, int64_t others, int64_t running, int64_t own)
{
    if (others + running > w->peak) {
        w->peak = others + running;
        w->kept = others + (own < running ? own : running);
    }
}

static void forward(struct walk *w)
{
    const struct mcp_chunk_memory *chunk = &w->chunks[w->forward_chunk];
    note(w, w->live, chunk->forward_bytes, chunk->kept_bytes);
    w->live += chunk->kept_bytes;
    w->forwards++;
    if (--w->forward_left == 0) {
        w->forward_left = w->p;
        w->forward_chunk = (w->forward_chunk + 1) % w->v;
    }
}

static void backward(struct walk *w)
{
    const struct mcp_chunk_memory *chunk = &w->chunks[w->backward_chunk];
    w->live -= chunk->kept_bytes;
    note(w, w->live, chunk->backward_bytes, chunk->kept_bytes);
    w->backwards++;
    if (--w->backward_left == 0) {
        w->backward_left = w->p;
        w->backward_chunk = (w->backward_chunk + w->v - 1) % w->v;
    }
}

struct mcp_slot_memory mcp_slot_memory(const struct mcp_chunk_memory *chunks, int virtual_stages,
                                       const struct mcp_action *a, int64_t live_bytes)
{
    const struct mcp_chunk_memory *chunk = &chunks[a->chunk];
    int64_t taken = 0, others = live_bytes - chunk->kept_bytes;
    if (a->pass == MCP_PASS_FORWARD && a->chunk > 0)
        taken = chunk[-1].passed_forward_bytes;
    else if (a->pass != MCP_PASS_FORWARD && a->chunk + 1 < virtual_stages)
        taken = chunk[1].passed_backward_bytes;
    int64_t left = chunk->passed_backward_bytes - taken;
    switch (a->pass) {
    case MCP_PASS_FORWARD:
        left = chunk->kept_bytes + chunk->passed_forward_bytes - taken;
        return (struct mcp_slot_memory){live_bytes, chunk->forward_bytes - taken, left, left};
    case MCP_PASS_BACKWARD:
        return (struct mcp_slot_memory){others, chunk->backward_bytes - taken, chunk->kept_bytes,
                                        left};
    case MCP_PASS_BACKWARD_INPUT:
        left += chunk->weight_kept_bytes;
        return (struct mcp_slot_memory){others, chunk->input_bytes - taken, chunk->kept_bytes,
                                        left};
    default:
        others = live_bytes - chunk->weight_kept_bytes;
        return (struct mcp_slot_memory){others, chunk->weight_bytes, chunk->weight_kept_bytes, 0};
    }
}

static int64_t walk_row(const struct mcp_plan *plan, int num_microbatches, int rank, struct walk *w,
                        int64_t *kept_bytes)
{
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_schedule_row row = mcp_plan_row(scratch, plan, num_microbatches, rank);
    for (int i = 0; i < row.num_actions; i++) {
        struct mcp_slot_memory slot = mcp_slot_memory(w->chunks, w->v, &row.actions[i], w->live);
        note(w, slot.others_bytes, slot.running_bytes, slot.own_bytes);
        w->live = slot.others_bytes + slot.left_bytes;
    }
    mcp_arena_free(scratch);
    *kept_bytes = w->kept;
    return w->peak;
}

int64_t mcp_stage_peak(const struct mcp_plan *plan, int num_microbatches, int rank,
                       const struct mcp_chunk_memory *chunks, int64_t *kept_bytes)
{
    int p = plan->pipeline_parallel, v = plan->virtual_stages, period = p * v;
    int total = num_microbatches * v;
    struct walk w = {.p = p,
                     .v = v,
                     .chunks = chunks,
                     .forward_left = p,
                     .backward_left = p,
                     .backward_chunk = v - 1};
    assert(p > 0 && v > 0 && period > 0);
    if (plan->rows != NULL || plan->schedule > MCP_INTERLEAVED)
        return walk_row(plan, num_microbatches, rank, &w, kept_bytes);
    int warm_up = mcp_schedule_warm_up(plan->schedule, p, v, num_microbatches, rank);
    if (v == 1) { /* every slot is of one chunk: the fullest moment is the first backward */
        int in_flight = warm_up < total ? warm_up + 1 : total;
        w.live = (in_flight - 1) * chunks->kept_bytes;
        note(&w, w.live, chunks->forward_bytes, chunks->kept_bytes);
        note(&w, w.live, chunks->backward_bytes, chunks->kept_bytes);
        *kept_bytes = w.kept;
        return w.peak;
    }
    while (w.forwards < warm_up)
        forward(&w);
    while (w.backwards < total) {
        int pairs = total - w.forwards;
        if (w.backwards == period && pairs > period) { /* the state repeats: jump */
            w.forwards += pairs / period * period;
            w.backwards += pairs / period * period;
        }
        if (w.forwards < total)
            forward(&w);
        backward(&w);
    }
    *kept_bytes = w.kept;
    return w.peak;
}
