/* planner/split_path.c: paths through the slots of a step. */
#include "planner/split_parts.h"

#include "step/schedule.h"

#include <assert.h>

enum { FORWARD, BACKWARD };

static struct mcp_path new_path(struct mcp_arena *arena, const struct mcp_plan *plan)
{
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    int *counts = MCP_ARRAY(arena, (size_t)stages * 4, int);
    struct mcp_path path = {{counts, counts + stages},
                            {counts + (size_t)stages * 2, counts + (size_t)stages * 3},
                            0,
                            0};
    return path;
}

static void step_on(struct mcp_path *path, int direction, int k, bool by_message)
{
    path->slots[direction][k]++;
    path->waits[direction][k] += by_message;
}

struct mcp_path mcp_path_through(struct mcp_arena *arena, const struct mcp_plan *plan, int m, int r)
{
    struct mcp_path path = new_path(arena, plan);
    for (int i = 0; i < r; i++) {
        step_on(&path, FORWARD, i, i > 0);
        step_on(&path, BACKWARD, i, true);
    }
    for (int c = 0; c < plan->virtual_stages; c++)
        for (int direction = FORWARD; direction <= BACKWARD; direction++)
            path.slots[direction][c * plan->pipeline_parallel + r] = m;
    path.waits[FORWARD][r] = r > 0;
    return path;
}

/* Of rank r, its slots after the first backward and up to the last forward; or, where
 * no forward follows the first backward, all after that. */
static bool add_dwelling(struct mcp_arena *arena, const struct mcp_plan *plan, int m, int r,
                         struct mcp_path *path)
{
    int p = plan->pipeline_parallel, v = plan->virtual_stages;
    int length = mcp_schedule_length(v, m), first = 0, last = length - 1;
    struct mcp_mark mark = mcp_arena_mark(arena);
    struct mcp_action *actions = MCP_ARRAY(arena, length, struct mcp_action);
    mcp_schedule_actions(plan->schedule, p, v, m, r, actions);
    while (actions[first].pass == MCP_PASS_FORWARD)
        first++;
    while (actions[last].pass != MCP_PASS_FORWARD)
        last--;
    bool again = v == 1 && last > first; /* with more chunks the way back is too long */
    for (int i = first + 1; i <= (again ? last : length - 1); i++)
        step_on(path, actions[i].pass != MCP_PASS_FORWARD, actions[i].chunk * p + r, false);
    mcp_arena_rewind(arena, mark);
    return again;
}

struct mcp_path mcp_path_dwell(struct mcp_arena *arena, const struct mcp_plan *plan, int m, int r)
{
    struct mcp_path path = new_path(arena, plan);
    int p = plan->pipeline_parallel, v = plan->virtual_stages, stages = p * v;
    int own = (v - 1) * p + r;
    for (int k = 0; k < stages; k++)
        step_on(&path, FORWARD, k, k > 0);
    for (int k = stages - 1; k >= own; k--)
        step_on(&path, BACKWARD, k, k < stages - 1);
    if (plan->schedule == MCP_GPIPE) { /* all forwards come first */
        path.slots[FORWARD][r] = path.slots[BACKWARD][r] = m;
    } else if (add_dwelling(arena, plan, m, r, &path)) {
        for (int k = own + 1; k < stages; k++)
            step_on(&path, FORWARD, k, true);
        for (int k = stages - 1; k >= 0; k--)
            step_on(&path, BACKWARD, k, k < stages - 1);
        return path;
    }
    for (int i = r - 1; i >= 0; i--)
        step_on(&path, BACKWARD, i, true);
    return path;
}

struct mcp_path mcp_path_common(struct mcp_arena *arena, const struct mcp_plan *plan)
{
    struct mcp_path path = new_path(arena, plan);
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    for (int k = 0; k < stages; k++) {
        step_on(&path, FORWARD, k, k > 0);
        if (plan->virtual_stages == 1)
            step_on(&path, BACKWARD, k, k < stages - 1);
    }
    return path;
}

struct mcp_path mcp_path_gain(struct mcp_arena *arena, const struct mcp_plan *plan, int r, bool end)
{
    struct mcp_path path = new_path(arena, plan);
    path.first_rank = end ? -1 : r;
    path.last_rank = end ? r : -1;
    return path;
}

struct mcp_path mcp_path_loss(struct mcp_arena *arena, const struct mcp_plan *plan, int r, bool end)
{
    struct mcp_path path = new_path(arena, plan);
    path.first_rank = end ? -1 : 0;
    path.last_rank = end ? 0 : -1;
    for (int i = 0; i < r; i++)
        step_on(&path, end ? BACKWARD : FORWARD, i, end || i > 0);
    path.waits[FORWARD][r] = !end && r > 0;
    return path;
}

static int64_t busy_ns(const struct mcp_slot_price *price)
{
    return price->lead_ns + price->body_ns + price->send_ns;
}

int64_t mcp_path_ns(const struct mcp_grid *grid, const struct mcp_path *path,
                    const struct mcp_column *column)
{
    int last = grid->p * grid->v - 1;
    int64_t sum = 0;
    for (int c = 0; c < grid->v; c++) {
        const struct mcp_slot_price *forward = &column->stages[c]->forward;
        const struct mcp_slot_price *backward = &column->stages[c]->backward;
        int k = c * grid->p + column->rank;
        sum += path->slots[FORWARD][k] * busy_ns(forward);
        sum += path->slots[BACKWARD][k] * busy_ns(backward);
        sum -= path->waits[FORWARD][k] * forward->lead_ns;
        sum -= path->waits[BACKWARD][k] * backward->lead_ns;
        if (k < last)
            sum += path->waits[FORWARD][k + 1] * forward->delay_ns;
        if (k > 0)
            sum += path->waits[BACKWARD][k - 1] * (backward->delay_ns - backward->after_ns);
    }
    sum += path->first_rank == column->rank ? column->head_ns : 0;
    sum += path->last_rank == column->rank ? column->tail_ns : 0;
    return sum;
}

/* --- the longest path of a split: play it, then walk back --- */

struct played {
    int64_t end_ns;
    int place; /* in its rank's order */
    bool by_message;
};

struct play {
    const struct mcp_column *const *columns;
    struct mcp_action *actions; /* [p][length] */
    struct played *slots[2];    /* [p v][m] */
    int *done[2];               /* [p v] */
    int *next;                  /* [p] */
    int64_t *clock_ns;          /* [p] */
    int p, v, m, length;
};

static struct played *slot_at(const struct play *play, int direction, int k, int microbatch)
{
    return &play->slots[direction][(size_t)k * (size_t)play->m + (size_t)microbatch];
}

static const struct mcp_slot_price *price_at(const struct play *play, int direction, int k)
{
    const struct mcp_stage *stage = play->columns[k % play->p]->stages[k / play->p];
    return direction == FORWARD ? &stage->forward : &stage->backward;
}

/* The virtual stage whose message a slot of stage k awaits, or -1. */
static int sender_of(const struct play *play, int direction, int k)
{
    int sender = direction == FORWARD ? k - 1 : k + 1;
    return play->p > 1 && sender < play->p * play->v ? sender : -1;
}

static bool advance(struct play *play, int r)
{
    const struct mcp_action *action = &play->actions[r * play->length + play->next[r]];
    int direction = action->pass != MCP_PASS_FORWARD, k = action->chunk * play->p + r;
    int sender = sender_of(play, direction, k);
    const struct mcp_slot_price *price = price_at(play, direction, k);
    int64_t start = play->clock_ns[r];
    struct played *slot = slot_at(play, direction, k, action->microbatch);
    if (sender >= 0) {
        if (play->done[direction][sender] <= action->microbatch)
            return false;
        const struct mcp_slot_price *sent = price_at(play, direction, sender);
        int64_t arrival = slot_at(play, direction, sender, action->microbatch)->end_ns +
                          sent->delay_ns - sent->after_ns - price->lead_ns;
        slot->by_message = arrival > start;
        start = arrival > start ? arrival : start;
    }
    slot->end_ns = play->clock_ns[r] = start + busy_ns(price);
    slot->place = play->next[r]++;
    play->done[direction][k]++;
    return true;
}

static void play_all(struct mcp_arena *arena, const struct mcp_plan *plan, struct play *play)
{
    size_t stages = (size_t)play->p * (size_t)play->v, slots = stages * (size_t)play->m;
    play->length = mcp_schedule_length(play->v, play->m);
    play->actions = MCP_ARRAY(arena, (size_t)play->p * (size_t)play->length, struct mcp_action);
    for (int direction = FORWARD; direction <= BACKWARD; direction++) {
        play->slots[direction] = MCP_ARRAY(arena, slots, struct played);
        play->done[direction] = MCP_ARRAY(arena, stages, int);
    }
    play->next = MCP_ARRAY(arena, play->p, int);
    play->clock_ns = MCP_ARRAY(arena, play->p, int64_t);
    for (int r = 0; r < play->p; r++) {
        play->clock_ns[r] = play->columns[r]->head_ns;
        mcp_schedule_actions(plan->schedule, play->p, play->v, play->m, r,
                             play->actions + (size_t)r * (size_t)play->length);
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < play->p; r++)
            while (play->next[r] < play->length && advance(play, r))
                moved = true;
    }
}

static int last_to_end(const struct play *play)
{
    int last = 0;
    int64_t latest = -1;
    for (int r = 0; r < play->p; r++) {
        int64_t end = play->clock_ns[r] + play->columns[r]->tail_ns;
        assert(play->next[r] == play->length);
        if (end > latest) {
            latest = end;
            last = r;
        }
    }
    return last;
}

struct mcp_path mcp_path_longest(struct mcp_arena *arena, const struct mcp_plan *plan, int m,
                                 const struct mcp_column *const *columns)
{
    struct mcp_path path = new_path(arena, plan);
    struct mcp_mark mark = mcp_arena_mark(arena);
    struct play play = {
        .columns = columns, .p = plan->pipeline_parallel, .v = plan->virtual_stages, .m = m};
    play_all(arena, plan, &play);
    int r = path.last_rank = last_to_end(&play);
    for (int place = play.length - 1; place >= 0;) {
        const struct mcp_action *action = &play.actions[r * play.length + place];
        int direction = action->pass != MCP_PASS_FORWARD, k = action->chunk * play.p + r;
        bool by_message = slot_at(&play, direction, k, action->microbatch)->by_message;
        step_on(&path, direction, k, by_message);
        path.first_rank = r;
        if (!by_message) {
            place--;
            continue;
        }
        k = sender_of(&play, direction, k);
        r = k % play.p;
        place = slot_at(&play, direction, k, action->microbatch)->place;
    }
    mcp_arena_rewind(arena, mark);
    return path;
}
