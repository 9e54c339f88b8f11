/* step/synthesis_repair.c: swap neighbours on the critical path while that helps. */
#include "step/synthesis_parts.h"

/* Places of slots that are on the critical path and start as the slot before them on
 * their rank ends: what starts as a message comes no swap on that rank hastens. */
struct path {
    int count;
    struct place {
        int rank, index;
    } * places;           /* last first */
    int *index_of;        /* [p][3][v][m] place of a slot in its row */
    int64_t *other_start; /* a table like mcp_synth.start */
};

static void index_rows(const struct mcp_synth *s, const struct mcp_synth_slot *rows,
                       struct path *path)
{
    for (int r = 0; r < s->p; r++)
        for (int i = 0; i < s->length; i++)
            path->index_of[mcp_synth_timed(s, r, rows[(size_t)r * (size_t)s->length + (size_t)i])] =
                i;
}

/* The stage whose message the slot waited for; -1: none. */
static int sender(const struct mcp_synth *s, int stage, int pass)
{
    if (pass == MCP_SYNTH_F)
        return stage - 1;
    return pass == MCP_SYNTH_B && stage + 1 < s->p * s->v ? stage + 1 : -1;
}

static void trace(const struct mcp_synth *s, const struct mcp_synth_slot *rows, int rank,
                  struct path *path)
{
    int i = s->length - 1;
    path->count = 0;
    while (path->count < s->p * s->length) {
        const struct mcp_synth_slot *row = rows + (size_t)rank * (size_t)s->length;
        struct mcp_synth_slot slot = row[i];
        int64_t start = s->start[mcp_synth_timed(s, rank, slot)];
        int64_t before = i == 0 ? -1
                                : s->start[mcp_synth_timed(s, rank, row[i - 1])] +
                                      mcp_synth_slot_ns(s, rank, row[i - 1]);
        if (before == start) {
            path->places[path->count++] = (struct place){rank, i--};
            continue;
        }
        int from = sender(s, mcp_synth_stage(s, rank, slot.chunk), slot.pass);
        if (from < 0)
            return;
        rank = s->rank_of[from];
        slot.chunk = s->chunk_of[from];
        i = path->index_of[mcp_synth_timed(s, rank, slot)];
    }
}

/* May b run before a, its neighbour? Slots of one pass and chunk stay in order. */
static bool may_swap(struct mcp_synth_slot a, struct mcp_synth_slot b)
{
    bool same_stage = a.chunk == b.chunk && a.microbatch == b.microbatch;
    bool same_kind = a.chunk == b.chunk && a.pass == b.pass;
    return !same_stage && !same_kind && !(a.pass == MCP_SYNTH_W && b.pass == MCP_SYNTH_W);
}

static void swap(struct mcp_synth_slot *a)
{
    struct mcp_synth_slot first = a[0];
    a[0] = a[1];
    a[1] = first;
}

/* Times rows as they are; true, with starts of theirs, where they are better. */
static bool better(struct mcp_synth *s, const struct mcp_synth_slot *rows, struct path *path,
                   struct mcp_synth_result *best)
{
    int64_t *start = s->start;
    s->start = path->other_start;
    struct mcp_synth_result now = mcp_synth_time(s, rows);
    bool helps =
        now.time_ns < best->time_ns || (now.time_ns == best->time_ns && now.sum_ns < best->sum_ns);
    if (helps)
        *best = now;
    path->other_start = helps ? start : s->start;
    s->start = helps ? s->start : start;
    return helps;
}

/* Tries each place of the path once; true once a swap helped. */
static bool improve(struct mcp_synth *s, struct mcp_synth_slot *rows, struct path *path,
                    struct mcp_synth_result *best, int64_t max_work)
{
    for (int n = 0; n < path->count && s->work < max_work; n++) {
        int rank = path->places[n].rank, index = path->places[n].index - 1;
        struct mcp_synth_slot *row = rows + (size_t)rank * (size_t)s->length;
        if (!may_swap(row[index], row[index + 1]) ||
            !mcp_synth_swap_pays(s, rank, row, index, best->time_ns))
            continue;
        swap(row + index);
        if (mcp_synth_fits(s, rank, row) && better(s, rows, path, best))
            return true;
        swap(row + index);
    }
    return false;
}

int64_t mcp_synth_repair(struct mcp_synth *s, struct mcp_synth_slot *rows, int64_t max_work)
{
    struct mcp_mark mark = mcp_arena_mark(s->scratch);
    size_t slots = (size_t)s->p * (size_t)s->length;
    struct path path = {.places = MCP_ARRAY(s->scratch, slots, struct place),
                        .index_of = MCP_ARRAY(s->scratch, slots, int),
                        .other_start = MCP_ARRAY(s->scratch, slots, int64_t)};
    int64_t *start = s->start;
    struct mcp_synth_result best = mcp_synth_time(s, rows);
    do {
        index_rows(s, rows, &path);
        mcp_synth_latest(s, rows, best.time_ns);
        trace(s, rows, best.worst, &path);
    } while (improve(s, rows, &path, &best, max_work));
    s->start = start;
    mcp_arena_rewind(s->scratch, mark);
    return best.time_ns;
}
