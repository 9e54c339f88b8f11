/* step/pipeline_skip.c: the recurrence row by row, whole periods at once: the
 * same result as the reference, some ten times sooner.
 *
 * A row is one slot of each kind on every rank, chosen so that messages come
 * from the same row or the one before. Once the state of all ranks has moved by
 * one constant over some rows, the same rows will move it by the same constant
 * again for as long as every rank has both forwards and backwards to do. */
#include "step/pipeline.h"

#include "core/minmax.h"

#include <assert.h>
#include <string.h>

/* A slot of one virtual stage: what its rank pays, and what it waits for. */
struct cost {
    int64_t busy;  /* lead + body + send */
    int64_t gap;   /* sender's end + gap = latest start without idling; NO_MESSAGE */
    int64_t delay; /* of the awaited message */
};
#define NO_MESSAGE (INT64_MIN / 4)

/* Per rank: end of its last forward, of its last slot, exposed so far. The extra
 * elements are read by ranks without a neighbour there, whose gap voids them. */
struct state {
    int64_t *forward; /* [-1 .. p-1] */
    int64_t *clock;   /* [0 .. p] */
    int64_t *exposed; /* [p] */
};

struct race {
    int p, v, m;
    const struct cost *forward;  /* [p v] */
    const struct cost *backward; /* [p v] */
    int64_t *chunk_end_ns;       /* may be NULL */
};

static size_t state_words(int p)
{
    return 3 * (size_t)p + 2;
}

static struct state state_in(int64_t *words, int p)
{
    int64_t *clock = words + 1 + p;
    return (struct state){words + 1, clock, clock + 1 + p};
}

static struct state new_state(struct mcp_arena *scratch, int p)
{
    return state_in(MCP_ARRAY(scratch, state_words(p), int64_t), p);
}

static void copy_state(struct state to, struct state from, int p)
{
    memcpy(to.forward - 1, from.forward - 1, state_words(p) * sizeof(int64_t));
}

static inline int64_t run_slot(const struct cost *cost, int64_t clock, int64_t sender_end,
                               int64_t *exposed)
{
    int64_t idle = sender_end + cost->gap - clock;
    idle = idle > 0 ? idle : 0;
    *exposed += idle < cost->delay ? idle : cost->delay;
    return clock + idle + cost->busy;
}

/* Whether `now` is `then`, later by one constant. */
static bool has_shifted(struct state now, struct state then, int p)
{
    int64_t shift = now.clock[0] - then.clock[0];
    for (int r = p - 1; r >= 0; r--)
        if (now.clock[r] - then.clock[r] != shift || now.forward[r] - then.forward[r] != shift)
            return false;
    return true;
}

static void repeat(struct state now, struct state then, int p, int64_t times)
{
    int64_t shift = times * (now.clock[0] - then.clock[0]);
    for (int r = 0; r < p; r++) {
        now.forward[r] += shift;
        now.clock[r] += shift;
        now.exposed[r] += times * (now.exposed[r] - then.exposed[r]);
    }
}

/* --- GPipe: two flow shops ---
 *
 * Nothing flows back, so ranks keep speeds of their own and the state does not
 * shift as one. Each rank's step per row is constant, though, until one that
 * works off a backlog catches up: those rows are jumped. */

struct shop {
    const struct cost *costs; /* [p] in the direction of flow */
    int p, stride;            /* rank of position i: first + i stride */
    int first;
    struct state state;
};

/* Rows that advance every rank by step[r]; 0 when the next row is a transition. */
static int steady_rows(const struct shop *shop, int rows, int64_t *step)
{
    int64_t before = 0, before_step = 0;
    for (int i = 0; i < shop->p; i++) {
        int r = shop->first + i * shop->stride;
        const struct cost *cost = &shop->costs[r];
        int64_t idle = before + before_step + cost->gap - shop->state.clock[r];
        step[r] = cost->busy;
        if (idle > 0 && idle != before_step - cost->busy)
            return 0;
        if (idle > 0)
            step[r] = before_step;
        else if (before_step > cost->busy && -idle / (before_step - cost->busy) < rows)
            rows = (int)(-idle / (before_step - cost->busy)) + 1;
        before = shop->state.clock[r];
        before_step = step[r];
    }
    return rows;
}

static void jump_rows(struct shop *shop, int rows, const int64_t *step)
{
    for (int r = 0; r < shop->p; r++) {
        int64_t idle = step[r] - shop->costs[r].busy, delay = shop->costs[r].delay;
        shop->state.clock[r] += rows * step[r];
        shop->state.exposed[r] += rows * (idle < delay ? idle : delay);
    }
}

static void run_shop(struct shop *shop, int rows, int64_t *step)
{
    while (rows > 0) {
        int steady = steady_rows(shop, rows, step);
        jump_rows(shop, steady, step);
        rows -= steady;
        if (steady > 0)
            continue;
        int64_t sender_end = 0;
        for (int i = 0; i < shop->p; i++) {
            int r = shop->first + i * shop->stride;
            sender_end = run_slot(&shop->costs[r], shop->state.clock[r], sender_end,
                                  &shop->state.exposed[r]);
            shop->state.clock[r] = sender_end;
        }
        rows--;
    }
}

static struct state play_gpipe(struct mcp_arena *scratch, const struct race *race,
                               struct state state)
{
    int p = race->p;
    int64_t *step = MCP_ARRAY(scratch, p, int64_t);
    run_shop(&(struct shop){race->forward, p, 1, 0, state}, race->m, step);
    run_shop(&(struct shop){race->backward, p, -1, p - 1, state}, race->m, step);
    return state;
}

/* --- 1F1B ---
 *
 * Row i of rank r: forward p-1-r+i, then backward i. The forward's message is of
 * the row before, the backward's of this row. */

enum { MAX_PERIOD = 64 };

static void warm_up_1f1b(const struct race *race, struct state state)
{
    int p = race->p;
    for (int i = 0; i < mcp_min_int(race->m, p - 1); i++) {
        for (int r = 0; r < p - 1 - i; r++) {
            state.clock[r] = run_slot(&race->forward[r], state.clock[r], state.forward[r - 1],
                                      &state.exposed[r]);
            state.forward[r] = state.clock[r];
        }
    }
}

/* Ranks below `first` have no forwards left. */
static void run_row_1f1b(const struct race *race, int first, struct state from, struct state to)
{
    for (int r = race->p - 1; r >= 0; r--) {
        int64_t clock = from.clock[r], exposed = from.exposed[r];
        if (r >= first)
            clock = run_slot(&race->forward[r], clock, from.forward[r - 1], &exposed);
        to.forward[r] = clock;
        to.clock[r] = run_slot(&race->backward[r], clock, to.clock[r + 1], &exposed);
        to.exposed[r] = exposed;
    }
}

/* The states of the last rows: row i ends in state i + 1, at (i + 1) mod depth. */
struct history {
    int64_t *words;
    int p, depth;
};

static struct state state_at(const struct history *history, int index)
{
    size_t at = (size_t)(index % history->depth);
    return state_in(history->words + at * state_words(history->p), history->p);
}

/* If state `index` repeats an earlier one, jumps over as many periods as fit into
 * `rows`. Returns the rows that are jumped, or -1 when nothing repeats. */
static int jump_periods(const struct history *history, int index, int rows)
{
    struct state now = state_at(history, index);
    int longest = mcp_min_int(mcp_min_int(index, history->depth - 1), rows);
    for (int q = 1; q <= longest; q++) {
        struct state then = state_at(history, index - q);
        if (!has_shifted(now, then, history->p))
            continue;
        repeat(now, then, history->p, rows / q);
        return rows / q * q;
    }
    return -1;
}

static struct state play_1f1b(struct mcp_arena *scratch, const struct race *race,
                              struct state start)
{
    int p = race->p, m = race->m, depth = mcp_min_int(p, MAX_PERIOD) + 1;
    int shared = m - p + 1; /* rows in which every rank has a forward */
    int jumped = -1, index = 0;
    struct history history = {MCP_ARRAY(scratch, (size_t)depth * state_words(p), int64_t), p,
                              depth};
    copy_state(state_at(&history, 0), start, p);
    warm_up_1f1b(race, state_at(&history, 0));
    for (int i = 0; i < m; i++, index++) {
        run_row_1f1b(race, p + i - m, state_at(&history, index), state_at(&history, index + 1));
        if (jumped < 0)
            jumped = jump_periods(&history, index + 1, shared - 1 - i);
        if (jumped > 0) {
            i += jumped;
            jumped = 0;
        }
    }
    return state_at(&history, index);
}

/* --- interleaved ---
 *
 * Row t of rank r: forward t-r, then backward t-lag+r: all messages, those around
 * the ring too, are of the row before. In each row one rank's forwards and one
 * rank's backwards turn to their next chunk; after p v rows all chunks return. */

enum { MAX_PERIODS = 4 };

struct ring {
    const struct race *race;
    int total; /* m v slots of each kind on a rank */
    int lag;
    struct cost *forward;  /* [p] of the chunk that each rank is at */
    struct cost *backward; /* [p] */
    struct state state;
};

static int lag_of(int p, int v)
{
    return 2 * (p - 1) + (v - 1) * p;
}

static void turn_chunks(struct ring *ring, int t)
{
    int p = ring->race->p, v = ring->race->v;
    int r = t % p, k = t - r;
    if (k < ring->total)
        ring->forward[r] = ring->race->forward[k / p % v * p + r];
    r = p - 1 - (t + 1) % p;
    k = t - ring->lag + r;
    if (k >= 0 && k < ring->total)
        ring->backward[r] = ring->race->backward[(v - 1 - k / p % v) * p + r];
}

/* The last backward of every chunk comes when forwards have run out. */
static void note_chunk_end(const struct ring *ring, int r, int backward)
{
    const struct race *race = ring->race;
    int p = race->p, v = race->v;
    if (race->chunk_end_ns && backward >= ring->total - p * v && backward % p == p - 1)
        race->chunk_end_ns[(v - 1 - backward / p % v) * p + r] = ring->state.clock[r];
}

static void run_shared_row(struct ring *ring)
{
    struct state s = ring->state;
    int p = ring->race->p;
    int64_t sender_end = s.forward[p - 1];
    s.clock[p] = s.clock[0];
    for (int r = 0; r < p; r++) {
        int64_t old = s.forward[r];
        s.forward[r] = run_slot(&ring->forward[r], s.clock[r], sender_end, &s.exposed[r]);
        s.clock[r] = run_slot(&ring->backward[r], s.forward[r], s.clock[r + 1], &s.exposed[r]);
        sender_end = old;
    }
}

/* The same where some ranks have not begun, or have no forwards left. */
static void run_partial_row(struct ring *ring, int t)
{
    struct state s = ring->state;
    int p = ring->race->p;
    int64_t sender_end = s.forward[p - 1];
    s.clock[p] = s.clock[0];
    for (int r = 0; r < p; r++) {
        int64_t old = s.forward[r];
        int f = t - r, b = t - ring->lag + r;
        if (f >= 0 && f < ring->total) {
            s.clock[r] = run_slot(&ring->forward[r], s.clock[r], sender_end, &s.exposed[r]);
            s.forward[r] = s.clock[r];
        }
        if (b >= 0 && b < ring->total) {
            s.clock[r] = run_slot(&ring->backward[r], s.clock[r], s.clock[r + 1], &s.exposed[r]);
            note_chunk_end(ring, r, b);
        }
        sender_end = old;
    }
}

static void run_partial_rows(struct ring *ring, int t, int end)
{
    for (; t < end; t++) {
        turn_chunks(ring, t);
        run_partial_row(ring, t);
    }
}

/* Saves the state, the `at`-th, and compares it with those of p v rows ago and of
 * few times that. Returns the period it found, or 0; then it has jumped over as
 * many as fit into *rows, and lowered that. */
static int skip_periods(const struct ring *ring, int64_t *saved, int at, int *rows)
{
    int p = ring->race->p, v = ring->race->v, depth = MAX_PERIODS * v + 1;
    size_t words = state_words(p);
    copy_state(state_in(saved + (size_t)(at % depth) * words, p), ring->state, p);
    for (int q = 1; q <= mcp_min_int(at / v, MAX_PERIODS); q++) {
        struct state then = state_in(saved + (size_t)((at - q * v) % depth) * words, p);
        int period = q * p * v;
        if (!has_shifted(ring->state, then, p))
            continue;
        repeat(ring->state, then, p, *rows / period);
        *rows %= period;
        return period;
    }
    return 0;
}

/* The rows from `t` on, in all of which every rank has both kinds of slots. */
static void run_shared_rows(struct mcp_arena *scratch, struct ring *ring, int t, int rows)
{
    int p = ring->race->p, period = 0;
    size_t depth = (size_t)MAX_PERIODS * (size_t)ring->race->v + 1;
    int64_t *saved = MCP_ARRAY(scratch, depth * state_words(p), int64_t);
    for (int row = 0; row < rows; row++) {
        if (row % p == 0 && period == 0) {
            int left = rows - row;
            period = skip_periods(ring, saved, row / p, &left);
            rows = row + left;
        }
        if (row == rows)
            break;
        turn_chunks(ring, t + row);
        run_shared_row(ring);
    }
}

static struct state play_interleaved(struct mcp_arena *scratch, const struct race *race,
                                     struct state state)
{
    int p = race->p, total = race->m * race->v, lag = lag_of(p, race->v);
    struct ring ring = {
        race, total, lag, MCP_ARRAY(scratch, p, struct cost), MCP_ARRAY(scratch, p, struct cost),
        state};
    run_partial_rows(&ring, 0, mcp_min_int(lag, total));
    run_shared_rows(scratch, &ring, lag, total - lag);
    run_partial_rows(&ring, total, total + lag);
    return state;
}

/* --- the door --- */

static struct cost *read_costs(struct mcp_arena *scratch, const struct mcp_pipeline *pipeline,
                               const struct mcp_slot_price *prices, int towards_sender)
{
    int p = pipeline->pipeline_parallel, stages = p * pipeline->virtual_stages;
    struct cost *costs = MCP_ARRAY(scratch, stages, struct cost);
    for (int k = 0; k < stages; k++) {
        const struct mcp_slot_price *price = &prices[k];
        int sender = k + towards_sender;
        costs[k] = (struct cost){price->lead_ns + price->body_ns + price->send_ns, NO_MESSAGE, 0};
        if (p == 1 || sender < 0 || sender >= stages)
            continue;
        costs[k].gap = prices[sender].delay_ns - prices[sender].after_ns - price->lead_ns;
        costs[k].delay = prices[sender].delay_ns;
    }
    return costs;
}

static struct state play(struct mcp_arena *scratch, const struct race *race,
                         enum mcp_schedule schedule, const int64_t *release_ns)
{
    struct state state = new_state(scratch, race->p);
    for (int r = 0; release_ns && r < race->p; r++)
        state.clock[r] = release_ns[r];
    if (schedule == MCP_GPIPE)
        return play_gpipe(scratch, race, state);
    if (schedule == MCP_1F1B)
        return play_1f1b(scratch, race, state);
    return play_interleaved(scratch, race, state);
}

static struct mcp_pipeline_rank rank_result(const struct race *race, struct state state, int r,
                                            int64_t release_ns)
{
    int64_t busy = 0;
    for (int k = r; k < race->p * race->v; k += race->p)
        busy += race->m * (race->forward[k].busy + race->backward[k].busy);
    return (struct mcp_pipeline_rank){
        .end_ns = state.clock[r],
        .busy_ns = busy,
        .exposed_ns = state.exposed[r],
        .bubble_ns = state.clock[r] - release_ns - busy - state.exposed[r],
    };
}

/* Every rank begins with the first forward of chunk 0. */
static void first_starts(const struct race *race, const int64_t *release_ns,
                         struct mcp_pipeline_rank *ranks)
{
    int64_t sender_end = 0, exposed = 0;
    for (int r = 0; r < race->p; r++) {
        const struct cost *cost = &race->forward[r];
        sender_end = run_slot(cost, release_ns ? release_ns[r] : 0, sender_end, &exposed);
        ranks[r].start_ns = sender_end - cost->busy;
    }
}

int64_t mcp_pipeline_play(struct mcp_arena *scratch, const struct mcp_pipeline *pipeline,
                          struct mcp_pipeline_rank *ranks, int64_t *chunk_end_ns)
{
    if (pipeline->rows != NULL || pipeline->schedule > MCP_INTERLEAVED)
        return mcp_pipeline_play_all(scratch, pipeline, ranks, chunk_end_ns);
    struct mcp_mark mark = mcp_arena_mark(scratch);
    const int64_t *release_ns = pipeline->release_ns;
    struct race race = {
        pipeline->pipeline_parallel,
        pipeline->virtual_stages,
        pipeline->num_microbatches,
        read_costs(scratch, pipeline, pipeline->forward, -1),
        read_costs(scratch, pipeline, pipeline->backward, 1),
        chunk_end_ns,
    };
    assert(race.v == 1 || (race.p > 1 && race.m % race.p == 0));
    assert(race.v == 1 || pipeline->schedule == MCP_INTERLEAVED);
    struct state state = play(scratch, &race, pipeline->schedule, release_ns);
    int64_t end = state.clock[0];
    for (int r = 0; r < race.p; r++) {
        ranks[r] = rank_result(&race, state, r, release_ns ? release_ns[r] : 0);
        end = state.clock[r] > end ? state.clock[r] : end;
        if (chunk_end_ns && race.v == 1)
            chunk_end_ns[r] = state.clock[r];
    }
    first_starts(&race, release_ns, ranks);
    mcp_arena_rewind(scratch, mark);
    return end;
}
