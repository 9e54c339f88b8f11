/* step/synthesis_times.c: when does each slot of given rows start, at the earliest and latest? */
#include "step/synthesis_parts.h"

#define UNKNOWN (-1)

/* The slot of another stage that one of stage k depends on (`next` false) or that depends
 * on it; -1: none. Of the same pass always. */
static int neighbour(const struct mcp_synth *s, int k, int pass, bool next)
{
    if (pass == MCP_SYNTH_W)
        return -1;
    int to = (pass == MCP_SYNTH_F) == next ? k + 1 : k - 1;
    return to < s->p * s->v ? to : -1;
}

static size_t at_stage(const struct mcp_synth *s, int k, struct mcp_synth_slot slot)
{
    slot.chunk = s->chunk_of[k];
    return mcp_synth_timed(s, s->rank_of[k], slot);
}

/* Earliest start that dependencies allow; false where one has not been timed yet. */
static bool ready(const struct mcp_synth *s, int rank, struct mcp_synth_slot slot, int64_t *start)
{
    int k = mcp_synth_stage(s, rank, slot.chunk), from = neighbour(s, k, slot.pass, false);
    if (from >= 0) {
        int64_t theirs = s->start[at_stage(s, from, slot)];
        if (theirs == UNKNOWN)
            return false;
        int64_t arrival = theirs + s->pass_ns[from][slot.pass] + s->delay_ns[from][slot.pass];
        *start = arrival > *start ? arrival : *start;
    }
    if (slot.pass == MCP_SYNTH_F)
        return true;
    slot.pass--;
    return s->start[mcp_synth_timed(s, rank, slot)] != UNKNOWN;
}

static int64_t span(const struct mcp_synth *s, int rank, const struct mcp_synth_slot *row,
                    int64_t end_ns)
{
    int64_t tail = s->problem->tail_ns ? s->problem->tail_ns[rank] : 0;
    int64_t first = s->problem->no_barrier ? s->start[mcp_synth_timed(s, rank, row[0])] : 0;
    return end_ns + tail - first;
}

/* As many slots of the rank as are ready; false: none. */
static bool run_rank(struct mcp_synth *s, int rank, const struct mcp_synth_slot *row, int *next,
                     int64_t *end)
{
    int before = *next;
    for (; *next < s->length && ready(s, rank, row[*next], end); ++*next) {
        s->start[mcp_synth_timed(s, rank, row[*next])] = *end;
        *end += mcp_synth_slot_ns(s, rank, row[*next]);
    }
    return *next > before;
}

struct mcp_synth_result mcp_synth_time(struct mcp_synth *s, const struct mcp_synth_slot *rows)
{
    struct mcp_mark mark = mcp_arena_mark(s->scratch);
    int *next = MCP_ARRAY(s->scratch, s->p, int);
    int64_t *end = MCP_ARRAY(s->scratch, s->p, int64_t);
    struct mcp_synth_result result = {0};
    for (size_t i = 0; i < (size_t)s->p * (size_t)s->length; i++)
        s->start[i] = UNKNOWN;
    for (int r = 0; r < s->p; r++)
        end[r] = s->problem->release_ns ? s->problem->release_ns[r] : 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->p; r++)
            moved |= run_rank(s, r, rows + (size_t)r * (size_t)s->length, &next[r], &end[r]);
    }
    s->work += (int64_t)s->p * s->length;
    for (int r = 0; r < s->p; r++) {
        bool done = next[r] == s->length;
        const struct mcp_synth_slot *row = rows + (size_t)r * (size_t)s->length;
        int64_t time = done ? span(s, r, row, end[r]) : INT64_MAX;
        result.worst = time > result.time_ns ? r : result.worst;
        result.time_ns = time > result.time_ns ? time : result.time_ns;
        result.sum_ns += done ? time : 0;
    }
    mcp_arena_rewind(s->scratch, mark);
    return result;
}

/* Latest start with which its consumer keeps its own; false where that has none yet. */
static bool in_time(const struct mcp_synth *s, int rank, struct mcp_synth_slot slot, int64_t *end)
{
    int k = mcp_synth_stage(s, rank, slot.chunk), to = neighbour(s, k, slot.pass, true);
    if (to < 0)
        return true;
    int64_t theirs = s->latest[at_stage(s, to, slot)];
    if (theirs == INT64_MIN)
        return false;
    int64_t leave = theirs - s->delay_ns[k][slot.pass];
    *end = leave < *end ? leave : *end;
    return true;
}

static bool run_back(struct mcp_synth *s, int rank, const struct mcp_synth_slot *row, int *left,
                     int64_t *end)
{
    int before = *left;
    for (; *left > 0 && in_time(s, rank, row[*left - 1], end); --*left) {
        *end -= mcp_synth_slot_ns(s, rank, row[*left - 1]);
        s->latest[mcp_synth_timed(s, rank, row[*left - 1])] = *end;
    }
    return *left < before;
}

void mcp_synth_latest(struct mcp_synth *s, const struct mcp_synth_slot *rows, int64_t time_ns)
{
    struct mcp_mark mark = mcp_arena_mark(s->scratch);
    int *left = MCP_ARRAY(s->scratch, s->p, int);
    int64_t *end = MCP_ARRAY(s->scratch, s->p, int64_t);
    for (size_t i = 0; i < (size_t)s->p * (size_t)s->length; i++)
        s->latest[i] = INT64_MIN;
    for (int r = 0; r < s->p; r++) {
        left[r] = s->length;
        end[r] = time_ns - span(s, r, rows + (size_t)r * (size_t)s->length, 0);
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->p; r++)
            moved |= run_back(s, r, rows + (size_t)r * (size_t)s->length, &left[r], &end[r]);
    }
    s->work += (int64_t)s->p * s->length;
    mcp_arena_rewind(s->scratch, mark);
}

bool mcp_synth_swap_pays(const struct mcp_synth *s, int rank, const struct mcp_synth_slot *row,
                         int index, int64_t time_ns)
{
    struct mcp_synth_slot first = row[index], second = row[index + 1];
    int64_t early = s->problem->release_ns ? s->problem->release_ns[rank] : 0;
    int64_t late = time_ns - span(s, rank, row, 0);
    if (index > 0)
        early = s->start[mcp_synth_timed(s, rank, row[index - 1])] +
                mcp_synth_slot_ns(s, rank, row[index - 1]);
    if (index + 2 < s->length)
        late = s->latest[mcp_synth_timed(s, rank, row[index + 2])];
    in_time(s, rank, first, &late);
    late -= mcp_synth_slot_ns(s, rank, first);
    ready(s, rank, second, &early);
    int64_t first_early = early + mcp_synth_slot_ns(s, rank, second);
    ready(s, rank, first, &first_early);
    if (first_early > late)
        return false;
    in_time(s, rank, second, &late);
    return early <= late - mcp_synth_slot_ns(s, rank, second);
}

bool mcp_synth_fits(const struct mcp_synth *s, int rank, const struct mcp_synth_slot *row)
{
    int64_t kept = 0;
    for (int i = 0; i < s->length; i++) {
        kept += mcp_synth_change_bytes(s, mcp_synth_stage(s, rank, row[i].chunk), row[i].pass);
        if (kept > s->problem->limit_bytes[rank])
            return false;
    }
    return true;
}
