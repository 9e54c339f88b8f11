/* step/synthesis_greedy.c: list scheduling of a step under exact costs and memory.
 *
 * Ranks decide in order of time. A rank that is free runs, of the forwards and backwards
 * whose messages have come, the first in the order, and may run one ahead of others that
 * have not come as long as these will still fit when they do; where memory is short, or
 * nothing else is there to do in time, it runs the oldest W. An order by dates that
 * respect dependencies never comes to a stop: its earliest slot can always run. */
#include "step/synthesis_parts.h"

#define NEVER INT64_MAX

struct rank_state {
    int64_t free_ns, first_ns, kept_bytes;
    int64_t left_ns; /* slots that have not run, and the tail */
    int head;        /* first of the order that has not run */
    int done;        /* slots run */
    int weights;     /* W run, of those that wait */
    int waiting;     /* B run */
};

struct event {
    int64_t at_ns;
    int rank;
};

struct mcp_synth_greedy {
    struct rank_state *ranks;      /* [p] */
    int *next;                     /* [p][2][v] microbatch */
    int64_t *arrival[2];           /* [p v][m] by pass */
    int64_t *ahead;                /* [p][ordered] bytes of forwards run ahead of that place */
    bool *ran;                     /* [p][ordered] */
    struct mcp_synth_slot *weight; /* [p][v m] W that wait, oldest first */
    struct event *heap;
    int num_events;
};

struct choice {
    bool found, flush;          /* flush: it needs a W run first */
    struct mcp_synth_slot slot; /* ready now */
    int place;
    int64_t soon_ns; /* when the next comes that is known to come; NEVER */
    int soon_place;
};

struct mcp_synth_greedy *mcp_synth_greedy_new(const struct mcp_synth *s)
{
    struct mcp_synth_greedy *g = MCP_NEW(s->scratch, struct mcp_synth_greedy);
    size_t p = (size_t)s->p, slots = p * (size_t)s->v * (size_t)s->m;
    g->ranks = MCP_ARRAY(s->scratch, p, struct rank_state);
    g->next = MCP_ARRAY(s->scratch, p * 2 * (size_t)s->v, int);
    g->arrival[MCP_SYNTH_F] = MCP_ARRAY(s->scratch, slots, int64_t);
    g->arrival[MCP_SYNTH_B] = MCP_ARRAY(s->scratch, slots, int64_t);
    g->ahead = MCP_ARRAY(s->scratch, 2 * slots, int64_t);
    g->ran = MCP_ARRAY(s->scratch, 2 * slots, bool);
    g->weight = MCP_ARRAY(s->scratch, slots, struct mcp_synth_slot);
    /* One event for each slot run and each message; one more for each wait, which a message
     * ends. */
    g->heap = MCP_ARRAY(s->scratch, 8 * slots + p, struct event);
    return g;
}

/* --- events, earliest first, then by rank --- */

static bool earlier(struct event a, struct event b)
{
    return a.at_ns != b.at_ns ? a.at_ns < b.at_ns : a.rank < b.rank;
}

static void push(struct mcp_synth_greedy *g, int64_t at_ns, int rank)
{
    struct event event = {at_ns, rank};
    int i = g->num_events++;
    while (i > 0 && earlier(event, g->heap[(i - 1) / 2])) {
        g->heap[i] = g->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    g->heap[i] = event;
}

static struct event pop(struct mcp_synth_greedy *g)
{
    struct event first = g->heap[0], last = g->heap[--g->num_events];
    int i = 0;
    for (int child = 1; child < g->num_events; child = 2 * i + 1) {
        if (child + 1 < g->num_events && earlier(g->heap[child + 1], g->heap[child]))
            child++;
        if (!earlier(g->heap[child], last))
            break;
        g->heap[i] = g->heap[child];
        i = child;
    }
    g->heap[i] = last;
    return first;
}

/* --- one rank's choice --- */

/* Will what comes before `place` in the order still fit once this forward has run? */
static bool leaves_room(const struct mcp_synth *s, int rank, int place, int64_t bytes)
{
    const struct mcp_synth_greedy *g = s->greedy;
    size_t row = (size_t)rank * (size_t)s->ordered;
    for (int i = g->ranks[rank].head; i < place; i++)
        if (s->level[row + (size_t)i] + g->ahead[row + (size_t)i] + bytes >
            s->problem->limit_bytes[rank])
            return false;
    return true;
}

static void consider(struct mcp_synth *s, const struct mcp_synth_policy *policy, int rank,
                     struct mcp_synth_slot slot, struct choice *choice)
{
    const struct mcp_synth_greedy *g = s->greedy;
    const struct rank_state *state = &g->ranks[rank];
    int stage = mcp_synth_stage(s, rank, slot.chunk);
    int64_t arrival = g->arrival[slot.pass][(size_t)stage * (size_t)s->m + (size_t)slot.microbatch];
    if (arrival == NEVER)
        return;
    int place = s->position[mcp_synth_ordered(s, rank, slot)];
    int64_t change = mcp_synth_change_bytes(s, stage, slot.pass);
    bool late = arrival > state->free_ns;
    if (late ? arrival >= choice->soon_ns : choice->found && place >= choice->place)
        return; /* whether it fits or not */
    if (slot.pass == MCP_SYNTH_F &&
        (place - state->head > policy->window || !leaves_room(s, rank, place, change)))
        return;
    bool full = change > 0 && state->kept_bytes + change > s->problem->limit_bytes[rank];
    if (full && state->weights == state->waiting)
        return;
    if (late) {
        choice->soon_ns = arrival;
        choice->soon_place = place;
    } else {
        choice->found = true;
        choice->flush = full;
        choice->slot = slot;
        choice->place = place;
    }
}

static struct choice choose(struct mcp_synth *s, const struct mcp_synth_policy *policy, int rank)
{
    const int *next = s->greedy->next + (size_t)rank * 2 * (size_t)s->v;
    struct choice choice = {.soon_ns = NEVER};
    for (int pass = MCP_SYNTH_F; pass <= MCP_SYNTH_B; pass++) {
        for (int c = 0; c < s->v; c++) {
            int b = next[pass * s->v + c];
            if (b < s->m && (pass == MCP_SYNTH_F || b < next[c]))
                consider(s, policy, rank, (struct mcp_synth_slot){pass, c, b}, &choice);
        }
    }
    return choice;
}

/* --- running a slot --- */

static void deliver(struct mcp_synth *s, int stage, struct mcp_synth_slot slot, int64_t end_ns)
{
    struct mcp_synth_greedy *g = s->greedy;
    int last = s->p * s->v - 1, pass = slot.pass;
    int to = pass == MCP_SYNTH_F ? stage + 1 : stage - 1;
    if (pass == MCP_SYNTH_F && stage == last) {
        to = last;
        pass = MCP_SYNTH_B;
    }
    if (to < 0)
        return;
    int64_t arrival = end_ns + (to == stage ? 0 : s->delay_ns[stage][slot.pass]);
    g->arrival[pass][(size_t)to * (size_t)s->m + (size_t)slot.microbatch] = arrival;
    int64_t now = end_ns - s->pass_ns[stage][slot.pass]; /* what is past wakes nobody */
    if (s->rank_of[to] != s->rank_of[stage])
        push(g, arrival > now ? arrival : now, s->rank_of[to]);
}

/* What the order and memory of the rank know of it. */
static void account(struct mcp_synth *s, int rank, struct mcp_synth_slot slot)
{
    struct mcp_synth_greedy *g = s->greedy;
    struct rank_state *state = &g->ranks[rank];
    size_t row = (size_t)rank * (size_t)s->ordered;
    int stage = mcp_synth_stage(s, rank, slot.chunk);
    int place = s->position[mcp_synth_ordered(s, rank, slot)];
    if (slot.pass == MCP_SYNTH_B)
        g->weight[(size_t)rank * (size_t)(s->v * s->m) + (size_t)state->waiting++] =
            (struct mcp_synth_slot){MCP_SYNTH_W, slot.chunk, slot.microbatch};
    else
        for (int i = state->head; i < place; i++)
            g->ahead[row + (size_t)i] += s->problem->stages[stage].kept_bytes;
    g->next[((size_t)rank * 2 + (size_t)slot.pass) * (size_t)s->v + (size_t)slot.chunk]++;
    g->ran[row + (size_t)place] = true;
    while (state->head < s->ordered && g->ran[row + (size_t)state->head])
        state->head++;
}

static void run(struct mcp_synth *s, int rank, struct mcp_synth_slot slot)
{
    struct mcp_synth_greedy *g = s->greedy;
    struct rank_state *state = &g->ranks[rank];
    int stage = mcp_synth_stage(s, rank, slot.chunk);
    if (state->done == 0)
        state->first_ns = state->free_ns;
    s->played[(size_t)rank * (size_t)s->length + (size_t)state->done++] = slot;
    state->free_ns += s->pass_ns[stage][slot.pass];
    state->left_ns -= s->pass_ns[stage][slot.pass];
    state->kept_bytes += mcp_synth_change_bytes(s, stage, slot.pass);
    if (slot.pass == MCP_SYNTH_W) {
        state->weights++;
    } else {
        account(s, rank, slot);
        deliver(s, stage, slot, state->free_ns);
    }
    push(g, state->free_ns, rank);
}

/* The oldest W, unless `before_ns` comes too soon for it. */
static bool run_weight(struct mcp_synth *s, const struct mcp_synth_policy *policy, int rank,
                       int64_t before_ns)
{
    const struct mcp_synth_greedy *g = s->greedy;
    const struct rank_state *state = &g->ranks[rank];
    if (state->weights == state->waiting)
        return false;
    struct mcp_synth_slot slot =
        g->weight[(size_t)rank * (size_t)(s->v * s->m) + (size_t)state->weights];
    int64_t ns = mcp_synth_slot_ns(s, rank, slot);
    if (before_ns != NEVER && state->free_ns + ns > before_ns + ns / 100 * policy->slack)
        return false;
    run(s, rank, slot);
    return true;
}

static void decide(struct mcp_synth *s, const struct mcp_synth_policy *policy, int rank)
{
    struct mcp_synth_greedy *g = s->greedy;
    int64_t now = g->ranks[rank].free_ns;
    struct choice choice = choose(s, policy, rank);
    bool known = choice.soon_ns != NEVER;
    if (choice.found && choice.flush) {
        run_weight(s, policy, rank, NEVER);
        return;
    }
    int64_t patience = s->pass_ns[0][MCP_SYNTH_F] / 100 * policy->patience;
    bool wait = choice.found && known && policy->patience > 0 && choice.soon_place < choice.place &&
                choice.soon_ns - now <= patience;
    if (choice.found && !wait) {
        run(s, rank, choice.slot);
        return;
    }
    static const struct mcp_synth_policy in_time = {0, 0, 0};
    if (!run_weight(s, wait ? &in_time : policy, rank, choice.soon_ns) && known)
        push(g, choice.soon_ns, rank);
}

static int64_t all_ns(const struct mcp_synth *s, int rank)
{
    int64_t sum = 0;
    for (int c = 0; c < s->v; c++)
        for (int pass = 0; pass < MCP_SYNTH_PASSES; pass++)
            sum += s->pass_ns[mcp_synth_stage(s, rank, c)][pass];
    return s->m * sum + (s->problem->tail_ns ? s->problem->tail_ns[rank] : 0);
}

static void begin(struct mcp_synth *s)
{
    struct mcp_synth_greedy *g = s->greedy;
    size_t slots = (size_t)s->p * (size_t)s->v * (size_t)s->m;
    for (size_t i = 0; i < slots; i++)
        g->arrival[0][i] = g->arrival[1][i] = NEVER;
    for (size_t i = 0; i < 2 * slots; i++) {
        g->ahead[i] = 0;
        g->ran[i] = false;
    }
    for (int i = 0; i < s->m; i++)
        g->arrival[MCP_SYNTH_F][i] = 0;
    for (int i = 0; i < s->p * 2 * s->v; i++)
        g->next[i] = 0;
    g->num_events = 0;
    for (int r = 0; r < s->p; r++) {
        int64_t release = s->problem->release_ns ? s->problem->release_ns[r] : 0;
        g->ranks[r] = (struct rank_state){.free_ns = release, .left_ns = all_ns(s, r)};
        push(g, release, r);
    }
}

static int64_t gave_up(struct mcp_synth *s)
{
    for (int r = 0; r < s->p; r++)
        s->work += s->greedy->ranks[r].done;
    return NEVER;
}

int64_t mcp_synth_play(struct mcp_synth *s, const struct mcp_synth_policy *policy)
{
    struct mcp_synth_greedy *g = s->greedy;
    begin(s);
    while (g->num_events > 0) {
        struct event event = pop(g);
        struct rank_state *state = &g->ranks[event.rank];
        if (event.at_ns < state->free_ns || state->done == s->length)
            continue;
        state->free_ns = event.at_ns; /* idle until now */
        if (!s->problem->no_barrier && state->free_ns + state->left_ns >= s->give_up_ns)
            return gave_up(s);
        decide(s, policy, event.rank);
    }
    s->work += (int64_t)s->p * s->length;
    int64_t longest = 0;
    for (int r = 0; r < s->p; r++) {
        if (g->ranks[r].done < s->length)
            return NEVER;
        int64_t tail = s->problem->tail_ns ? s->problem->tail_ns[r] : 0;
        int64_t first = s->problem->no_barrier ? g->ranks[r].first_ns : 0;
        int64_t end = g->ranks[r].free_ns + tail - first;
        longest = end > longest ? end : longest;
    }
    return longest;
}
