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
