/* step/schedule.c: the order of forwards and backwards on a pipeline rank. */
#include "step/schedule.h"

#include <assert.h>

int mcp_schedule_length(int virtual_stages, int num_microbatches)
{
    return 2 * virtual_stages * num_microbatches;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Forwards before the first backward; one more is alive when that begins. */
static int warm_up(enum mcp_schedule schedule, int p, int v, int m, int rank)
{
    if (schedule == MCP_GPIPE)
        return m * v;
    if (schedule == MCP_1F1B)
        return smaller(p - 1 - rank, m * v);
    return smaller(2 * (p - 1 - rank) + (v - 1) * p, m * v);
}

/* The index-th forward of a rank: for each group of p microbatches, chunk 0 ..
 * v-1. The index-th backward has the same microbatch and the mirrored chunk. */
static struct mcp_action action_at(int p, int v, int index, bool backward)
{
    if (v == 1)
        return (struct mcp_action){0, index, backward};
    int group = index / (p * v), within = index % (p * v);
    int chunk = within / p;
    return (struct mcp_action){backward ? v - 1 - chunk : chunk, group * p + within % p, backward};
}

void mcp_schedule_actions(enum mcp_schedule schedule, int pipeline_parallel, int virtual_stages,
                          int num_microbatches, int rank, struct mcp_action *actions)
{
    int p = pipeline_parallel, v = virtual_stages, total = num_microbatches * v;
    assert(v == 1 || num_microbatches % p == 0);
    int forward = warm_up(schedule, p, v, num_microbatches, rank);
    int n = 0;
    for (int i = 0; i < forward; i++)
        actions[n++] = action_at(p, v, i, false);
    for (int i = 0; i < total; i++) {
        if (forward < total)
            actions[n++] = action_at(p, v, forward++, false);
        actions[n++] = action_at(p, v, i, true);
    }
}

/* Of the first `count` forwards, how many are of chunk `chunk`. */
static int of_chunk(int p, int v, int count, int chunk)
{
    int within = count % (p * v) - chunk * p;
    return count / (p * v) * p + (within < 0 ? 0 : smaller(within, p));
}

/* Alive when `forwards` have begun and `backwards` have ended. */
static int64_t alive(int p, int v, int forwards, int backwards, const int64_t *chunk_bytes,
                     int *in_flight)
{
    int64_t bytes = 0;
    for (int c = 0; c < v; c++) {
        in_flight[c] = of_chunk(p, v, forwards, c) - of_chunk(p, v, backwards, v - 1 - c);
        bytes += in_flight[c] * chunk_bytes[c];
    }
    return bytes;
}

/* From one backward to the next the weight changes by forward's chunk minus
 * backward's, linearly until one of the two changes chunk: the peak is at one of
 * at most 2 v + 1 such corners of the first period of p v backwards. Returns the
 * number of backwards ended at the peak. */
static int heaviest(int p, int v, int forwards, int total, const int64_t *chunk_bytes)
{
    int steps = smaller(total - forwards, p * v), best = 0;
    int64_t weight = 0, most = 0;
    for (int i = 0; i < steps;) {
        int f = forwards + i;
        int length = smaller(smaller(p - f % p, p - i % p), steps - i);
        weight += length * (chunk_bytes[f % (p * v) / p] - chunk_bytes[v - 1 - i / p]);
        i += length;
        if (weight > most) {
            most = weight;
            best = i;
        }
    }
    return best;
}

int64_t mcp_schedule_in_flight(struct mcp_arena *scratch, enum mcp_schedule schedule,
                               int pipeline_parallel, int virtual_stages, int num_microbatches,
                               int rank, const int64_t *chunk_bytes, int *in_flight)
{
    (void)scratch;
    int p = pipeline_parallel, v = virtual_stages, total = num_microbatches * v;
    int forwards = smaller(warm_up(schedule, p, v, num_microbatches, rank) + 1, total);
    if (v == 1) {
        in_flight[0] = forwards;
        return forwards * chunk_bytes[0];
    }
    int backwards = heaviest(p, v, forwards, total, chunk_bytes);
    return alive(p, v, forwards + backwards, backwards, chunk_bytes, in_flight);
}
