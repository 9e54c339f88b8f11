/* step/synthesis.c: look through patterns and policies for rows that end early. */
#include "step/synthesis_parts.h"

#include "core/minmax.h"

#include <assert.h>

#define PERIOD 48 /* parts; a slot of equal stages takes a third of them over v */
#define MAX_STAY ((int64_t)8 * PERIOD)
#define NUM_KEPT 4
#define QUICK_GAP                                                                                  \
    (PERIOD / 2) /* with this, equal stays and quick policies most often come
                                  near what all of them give */

/* What was found: the best rows and patterns, of different times each. */
struct found {
    int64_t time_ns;
    struct mcp_synth_slot *rows; /* [p][length] */
};
struct search {
    struct mcp_synth *synth;
    struct found found[NUM_KEPT]; /* best first */
    int num_found;
    struct mcp_synth_pattern patterns[NUM_KEPT];
    int64_t pattern_ns[NUM_KEPT];
    int num_patterns;
};

/* Stays of forwards on even and odd chunks, of backwards on even and odd: grown from
 * `base` by multiples of `growth` as memory allows. */
struct shape {
    int base[4], growth[4];
};
static const struct shape loop_shapes[] = {
    {{8, 8, 0, 0}, {0, 0, 1, 1}}, /* forwards early, backwards late */
    {{0, 0, 0, 0}, {1, 1, 1, 1}},
    {{0, 0, 8, 8}, {1, 1, 0, 0}},
};
static const struct shape v_shapes[] = {
    {{0, 0, 0, 0}, {2, 1, 1, 2}}, /* V-half: up fast and down slow, in turn */
    {{0, 0, 0, 0}, {1, 1, 1, 1}}, /* V-min, V-ZB */
    {{0, 0, 0, 0}, {1, 2, 2, 1}}, {{0, 0, 0, 0}, {2, 1, 2, 1}},
    {{0, 0, 0, 0}, {1, 2, 1, 2}}, {{0, 0, 0, 0}, {2, 2, 3, 3}},
};

static const struct mcp_synth_policy quick_policies[] = {{50, 0, 64}, {50, 60, 64}, {0, 0, 8}};
static const struct mcp_synth_policy first_policies[] = {
    {0, 0, 0}, {0, 0, 1}, {50, 60, 1}, {50, 60, 64}};
static const struct mcp_synth_policy policies[] = {
    {0, 0, 0},  {0, 0, 1},   {0, 0, 2},  {0, 0, 8},  {0, 0, 64},  {50, 0, 0},  {50, 0, 1},
    {50, 0, 4}, {50, 0, 64}, {0, 60, 1}, {0, 60, 8}, {50, 60, 1}, {50, 60, 8}, {50, 60, 64}};

/* --- what is kept of what was found --- */

static void copy_rows(const struct mcp_synth *s, struct mcp_synth_slot *to,
                      const struct mcp_synth_slot *from)
{
    for (size_t i = 0; i < (size_t)s->p * (size_t)s->length; i++)
        to[i] = from[i];
}

static void keep_rows(struct search *search, const struct mcp_synth_slot *rows, int64_t time_ns)
{
    int n = 0;
    while (n < search->num_found && search->found[n].time_ns < time_ns)
        n++;
    if (time_ns == INT64_MAX || n == NUM_KEPT ||
        (n < search->num_found && search->found[n].time_ns == time_ns))
        return;
    search->num_found += search->num_found < NUM_KEPT;
    struct found last = search->found[search->num_found - 1];
    for (int i = search->num_found - 1; i > n; i--)
        search->found[i] = search->found[i - 1];
    search->found[n] = (struct found){time_ns, last.rows};
    if (!last.rows)
        search->found[n].rows = MCP_ARRAY(search->synth->scratch,
                                          (size_t)search->synth->p * (size_t)search->synth->length,
                                          struct mcp_synth_slot);
    copy_rows(search->synth, search->found[n].rows, rows);
}

static void keep_pattern(struct search *search, const struct mcp_synth_pattern *pattern,
                         int64_t time_ns)
{
    int n = search->num_patterns;
    if (n == NUM_KEPT && search->pattern_ns[n - 1] <= time_ns)
        return;
    n = n < NUM_KEPT ? search->num_patterns++ : n - 1;
    for (; n > 0 && search->pattern_ns[n - 1] > time_ns; n--) {
        search->patterns[n] = search->patterns[n - 1];
        search->pattern_ns[n] = search->pattern_ns[n - 1];
    }
    search->patterns[n] = *pattern;
    search->pattern_ns[n] = time_ns;
}

/* --- patterns --- */

static struct mcp_synth_pattern grown(const struct shape *shape, int64_t scale, int64_t gap)
{
    int64_t stay[4];
    for (int i = 0; i < 4; i++)
        stay[i] = shape->base[i] + scale * shape->growth[i];
    return (struct mcp_synth_pattern){
        .period = PERIOD, .stay = {{stay[0], stay[1]}, {stay[2], stay[3]}}, .gap = gap};
}

/* The longest stays that memory allows; where the shortest are too long a longer period,
 * at last one microbatch at a time. */
static bool largest(struct mcp_synth *s, const struct shape *shape, int64_t gap,
                    struct mcp_synth_pattern *out)
{
    int64_t low = PERIOD / 6, high = MAX_STAY;
    *out = grown(shape, low, gap);
    if (mcp_synth_pattern_fits(s, out)) {
        while (high - low > 1) {
            struct mcp_synth_pattern middle = grown(shape, (low + high) / 2, gap);
            bool fits = mcp_synth_pattern_fits(s, &middle);
            *(fits ? &low : &high) = (low + high) / 2;
        }
        *out = grown(shape, low, gap);
        return true;
    }
    low = PERIOD;
    high = gap + (int64_t)s->p * s->v * 8 * PERIOD;
    out->period = high;
    if (!mcp_synth_pattern_fits(s, out))
        return false;
    while (high - low > 1) {
        out->period = (low + high) / 2;
        *(mcp_synth_pattern_fits(s, out) ? &high : &low) = out->period;
    }
    out->period = high;
    return true;
}

static int64_t play(struct search *search, const struct mcp_synth_policy *policy)
{
    int64_t time = mcp_synth_play(search->synth, policy);
    keep_rows(search, search->synth->played, time);
    return time;
}

/* Plays the pattern under some policies; returns the best time. */
static int64_t try_pattern(struct search *search, const struct mcp_synth_pattern *pattern,
                           const struct mcp_synth_policy *some, size_t count)
{
    int64_t best = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (!mcp_synth_order_by_pattern(search->synth, pattern))
            return best;
        int64_t time = play(search, &some[i]);
        best = time < best ? time : best;
    }
    return best;
}

static void try_shapes(struct search *search, int64_t max_work)
{
    struct mcp_synth *s = search->synth;
    bool v = s->problem->placement == MCP_PLACEMENT_V && s->v > 1;
    const struct shape *shapes = v ? v_shapes : loop_shapes;
    size_t num_shapes = v ? MCP_COUNT_OF(v_shapes) : MCP_COUNT_OF(loop_shapes);
    for (size_t i = 0; i < num_shapes; i++) {
        for (int gap = 0; gap < PERIOD; gap += PERIOD / 6) {
            struct mcp_synth_pattern pattern;
            if (search->num_found > 0 && s->work > max_work)
                return;
            if (!largest(s, &shapes[i], gap, &pattern))
                continue;
            int64_t time =
                try_pattern(search, &pattern, first_policies, MCP_COUNT_OF(first_policies));
            keep_pattern(search, &pattern, time);
        }
    }
}

static void try_policies(struct search *search, int64_t max_work)
{
    for (int i = 0; i < search->num_patterns && search->synth->work < max_work; i++)
        try_pattern(search, &search->patterns[i], policies, MCP_COUNT_OF(policies));
}

/* --- better orders from rows --- */

/* Orders by earliest start, latest start or between, and plays. */
static int64_t reschedule(struct search *search, int quarters,
                          const struct mcp_synth_policy *policy)
{
    struct mcp_synth *s = search->synth;
    for (int r = 0; r < s->p; r++) {
        for (size_t i = 0; i < (size_t)s->ordered; i++) {
            /* F and B come before W in both tables */
            size_t at = (size_t)r * (size_t)s->length + i;
            int64_t spare = s->latest[at] - s->start[at];
            s->date[(size_t)r * (size_t)s->ordered + i] = s->start[at] + spare / 4 * quarters;
        }
    }
    return mcp_synth_order_by_date(s) ? play(search, policy) : INT64_MAX;
}

/* By latest starts of the best rows again and again while that helps. */
static void refine(struct search *search, int64_t max_work)
{
    struct mcp_synth *s = search->synth;
    for (int64_t before = INT64_MAX; search->found[0].time_ns < before;) {
        before = search->found[0].time_ns;
        mcp_synth_time(s, search->found[0].rows);
        mcp_synth_latest(s, search->found[0].rows, before);
        for (size_t i = 0; i < MCP_COUNT_OF(policies); i++)
            for (int quarters = 0; quarters <= 4 && s->work < max_work; quarters += 2)
                reschedule(search, quarters, &policies[i]);
    }
}

static void try_zb_v(struct search *search)
{
    struct mcp_synth *s = search->synth;
    if (s->problem->placement != MCP_PLACEMENT_V || s->v != 2)
        return;
    mcp_synth_zb_v(s, s->played);
    for (int r = 0; r < s->p; r++)
        if (!mcp_synth_fits(s, r, s->played + (size_t)r * (size_t)s->length))
            return;
    keep_rows(search, s->played, mcp_synth_time(s, s->played).time_ns);
}

static void repair(struct search *search, int64_t max_work)
{
    struct mcp_synth *s = search->synth;
    int count = search->num_found;
    for (int i = 0; i < count; i++) {
        int64_t share = (max_work - s->work) / (i + 1 < count ? 2 : 1); /* most to the best */
        search->found[i].time_ns = mcp_synth_repair(s, search->found[i].rows, s->work + share);
    }
    for (int i = 1; i < count; i++)
        if (search->found[i].time_ns < search->found[0].time_ns) {
            struct found better = search->found[i];
            search->found[i] = search->found[0];
            search->found[0] = better;
        }
}

static void try_quick(struct search *search)
{
    struct mcp_synth *s = search->synth;
    int64_t bound = mcp_synthesis_bound_ns(s->problem);
    struct mcp_synth_pattern pattern;
    bool v = s->problem->placement == MCP_PLACEMENT_V && s->v > 1;
    if (!largest(s, v ? &v_shapes[1] : &loop_shapes[1], QUICK_GAP, &pattern) ||
        !mcp_synth_order_by_pattern(s, &pattern))
        return;
    for (size_t i = 0; i < MCP_COUNT_OF(quick_policies); i++) {
        int64_t best = search->num_found > 0 ? search->found[0].time_ns : INT64_MAX;
        if (best <= bound)
            return;
        s->give_up_ns = best < s->give_up_ns ? best : s->give_up_ns;
        play(search, &quick_policies[i]);
    }
}

/* One after the other, each until so many tenths of the work are done. */
static const struct {
    void (*look)(struct search *search, int64_t max_work);
    int tenths;
} steps[] = {{try_shapes, 3}, {try_policies, 5}, {refine, 7}, {repair, 10}};

static void look(struct search *search)
{
    const struct mcp_synthesis *problem = search->synth->problem;
    int64_t work = problem->max_work > 0 ? problem->max_work : MCP_SYNTHESIS_WORK;
    int64_t bound = mcp_synthesis_bound_ns(problem);
    try_zb_v(search);
    try_quick(search);
    if (problem->quick)
        return;
    search->synth->give_up_ns = INT64_MAX;
    for (size_t i = 0; i < MCP_COUNT_OF(steps); i++) {
        if (search->num_found > 0 && search->found[0].time_ns <= bound)
            return;
        steps[i].look(search, work / 10 * steps[i].tenths);
    }
    assert(search->num_found > 0); /* one microbatch at a time fits and comes to its end */
}

/* --- the door --- */

static void set_up_stages(struct mcp_synth *s)
{
    const struct mcp_synthesis *problem = s->problem;
    for (int k = 0; k < s->p * s->v; k++) {
        s->rank_of[k] = mcp_placed_rank(problem->placement, s->p, k);
        s->chunk_of[k] = k / s->p;
        s->stage_of[s->rank_of[k] * s->v + s->chunk_of[k]] = k;
        s->pass_ns[k][MCP_SYNTH_F] = problem->stages[k].forward_ns;
        s->pass_ns[k][MCP_SYNTH_B] = problem->stages[k].backward_input_ns;
        s->pass_ns[k][MCP_SYNTH_W] = problem->stages[k].backward_weight_ns;
    }
    for (int k = 0; k < s->p * s->v; k++) {
        bool last = k + 1 == s->p * s->v;
        bool next_here = last || s->rank_of[k + 1] == s->rank_of[k];
        bool previous_here = k == 0 || s->rank_of[k - 1] == s->rank_of[k];
        if (!next_here)
            s->delay_ns[k][MCP_SYNTH_F] =
                problem->stages[k].forward_delay_ns - problem->stages[k + 1].forward_lead_ns;
        if (!previous_here)
            s->delay_ns[k][MCP_SYNTH_B] =
                problem->stages[k].backward_delay_ns - problem->stages[k - 1].backward_lead_ns;
    }
}

static struct mcp_synth *synth_new(struct mcp_arena *scratch, const struct mcp_synthesis *problem)
{
    struct mcp_synth *s = MCP_NEW(scratch, struct mcp_synth);
    s->problem = problem;
    s->scratch = scratch;
    s->p = problem->pipeline_parallel;
    s->v = problem->virtual_stages;
    s->m = problem->num_microbatches;
    s->ordered = 2 * s->v * s->m;
    s->length = 3 * s->v * s->m;
    s->give_up_ns = problem->quick && problem->give_up_ns > 0 ? problem->give_up_ns + 1 : INT64_MAX;
    size_t stages = (size_t)s->p * (size_t)s->v, p = (size_t)s->p;
    s->rank_of = MCP_ARRAY(scratch, stages, int);
    s->chunk_of = MCP_ARRAY(scratch, stages, int);
    s->stage_of = MCP_ARRAY(scratch, stages, int);
    s->pass_ns = mcp_alloc(scratch, stages, sizeof *s->pass_ns);
    s->delay_ns = mcp_alloc(scratch, stages, sizeof *s->delay_ns);
    s->position = MCP_ARRAY(scratch, p * (size_t)s->ordered, int);
    s->level = MCP_ARRAY(scratch, p * (size_t)s->ordered, int64_t);
    s->date = MCP_ARRAY(scratch, p * (size_t)s->ordered, int64_t);
    s->played = MCP_ARRAY(scratch, p * (size_t)s->length, struct mcp_synth_slot);
    s->start = MCP_ARRAY(scratch, p * (size_t)s->length, int64_t);
    s->latest = MCP_ARRAY(scratch, p * (size_t)s->length, int64_t);
    set_up_stages(s);
    s->greedy = mcp_synth_greedy_new(s);
    return s;
}

static const enum mcp_pass passes[MCP_SYNTH_PASSES] = {MCP_PASS_FORWARD, MCP_PASS_BACKWARD_INPUT,
                                                       MCP_PASS_BACKWARD_WEIGHT};

static void to_rows(struct mcp_arena *arena, const struct mcp_synth *s,
                    const struct mcp_synth_slot *slots, struct mcp_schedule_row *rows)
{
    for (int r = 0; r < s->p; r++) {
        rows[r].num_actions = s->length;
        rows[r].actions = MCP_ARRAY(arena, s->length, struct mcp_action);
        for (int i = 0; i < s->length; i++) {
            const struct mcp_synth_slot *slot = &slots[(size_t)r * (size_t)s->length + (size_t)i];
            rows[r].actions[i] =
                (struct mcp_action){slot->chunk, slot->microbatch, passes[slot->pass]};
        }
    }
}

static enum mcp_status refuse(const struct mcp_synthesis *problem, struct mcp_error *err)
{
    for (int r = 0; r < problem->pipeline_parallel; r++) {
        int64_t need = 0;
        for (int c = 0; c < problem->virtual_stages; c++) {
            int k = mcp_placed_stage(problem->placement, problem->pipeline_parallel, r, c);
            const struct mcp_synthesis_stage *stage = &problem->stages[k];
            need += stage->kept_bytes > stage->kept_for_weight_bytes ? stage->kept_bytes
                                                                     : stage->kept_for_weight_bytes;
        }
        if (need > problem->limit_bytes[r])
            return mcp_fail(err, MCP_INFEASIBLE,
                            "rank %d may keep %lld bytes of activations, one microbatch needs %lld",
                            r, (long long)problem->limit_bytes[r], (long long)need);
    }
    return MCP_OK;
}

enum mcp_status mcp_synthesize(struct mcp_arena *arena, const struct mcp_synthesis *problem,
                               struct mcp_schedule_row *rows, int64_t *time_ns,
                               struct mcp_error *err)
{
    MCP_TRY(refuse(problem, err));
    struct mcp_arena *scratch = mcp_arena_new();
    struct search search = {.synth = synth_new(scratch, problem)};
    look(&search);
    int64_t time = INT64_MAX;
    if (search.num_found > 0) {
        time = mcp_synth_time(search.synth, search.found[0].rows).time_ns;
        to_rows(arena, search.synth, search.found[0].rows, rows);
    }
    if (time_ns)
        *time_ns = time;
    mcp_arena_free(scratch);
    return MCP_OK;
}

int64_t mcp_synthesis_time_ns(struct mcp_arena *scratch, const struct mcp_synthesis *problem,
                              const struct mcp_schedule_row *rows)
{
    struct mcp_mark mark = mcp_arena_mark(scratch);
    struct mcp_synth *s = synth_new(scratch, problem);
    for (int r = 0; r < s->p; r++) {
        for (int i = 0; i < s->length; i++) {
            struct mcp_action action = rows[r].actions[i];
            int pass = action.pass == MCP_PASS_FORWARD          ? MCP_SYNTH_F
                       : action.pass == MCP_PASS_BACKWARD_INPUT ? MCP_SYNTH_B
                                                                : MCP_SYNTH_W;
            s->played[(size_t)r * (size_t)s->length + (size_t)i] =
                (struct mcp_synth_slot){pass, action.chunk, action.microbatch};
        }
    }
    int64_t time = mcp_synth_time(s, s->played).time_ns;
    mcp_arena_rewind(scratch, mark);
    return time;
}

/* --- bounds and limits --- */

/* From the end of rank r's last B of some chunk: up to the first stage, whose W ends it. */
static int64_t way_back_ns(const struct mcp_synthesis *problem, int stage)
{
    int p = problem->pipeline_parallel;
    int64_t way = stage > 0 ? problem->stages[0].backward_weight_ns : 0;
    for (int k = stage; k > 0; k--) {
        bool here = mcp_placed_rank(problem->placement, p, k) ==
                    mcp_placed_rank(problem->placement, p, k - 1);
        const struct mcp_synthesis_stage *next = &problem->stages[k - 1];
        way += next->backward_input_ns;
        way += here ? 0 : problem->stages[k].backward_delay_ns - next->backward_lead_ns;
    }
    return way;
}

static int64_t way_down_ns(const struct mcp_synthesis *problem, int stage)
{
    int p = problem->pipeline_parallel;
    int64_t way = 0;
    for (int k = 0; k < stage; k++) {
        bool here = mcp_placed_rank(problem->placement, p, k) ==
                    mcp_placed_rank(problem->placement, p, k + 1);
        way += problem->stages[k].forward_ns;
        way +=
            here ? 0 : problem->stages[k].forward_delay_ns - problem->stages[k + 1].forward_lead_ns;
    }
    return way;
}

/* Byte-nanoseconds that one microbatch keeps on rank r, at least: from the start of its
 * forward on a stage to the end of its backward there it goes up to the last stage. */
static double kept_ns(const struct mcp_synthesis *problem, int r)
{
    int p = problem->pipeline_parallel, last = p * problem->virtual_stages - 1;
    double kept = 0, way = 0;
    for (int k = last; k >= 0; k--) {
        const struct mcp_synthesis_stage *stage = &problem->stages[k], *next = stage + 1;
        int rank = mcp_placed_rank(problem->placement, p, k);
        if (k < last && mcp_placed_rank(problem->placement, p, k + 1) != rank)
            way += (double)(stage->forward_delay_ns - next->forward_lead_ns +
                            next->backward_delay_ns - stage->backward_lead_ns);
        way += (double)(stage->forward_ns + stage->backward_input_ns);
        if (rank == r)
            kept += way * (double)stage->kept_bytes +
                    (double)(stage->backward_weight_ns * stage->kept_for_weight_bytes);
    }
    return kept;
}

/* What a rank keeps, over the whole step, is no more than its limit all the time. */
static int64_t memory_bound_ns(const struct mcp_synthesis *problem, int r)
{
    if (problem->limit_bytes == NULL || problem->limit_bytes[r] <= 0)
        return 0;
    double bound = problem->num_microbatches * kept_ns(problem, r) /
                   (double)problem->limit_bytes[r] * (1 - 1e-9);
    return bound < 4e18 ? (int64_t)bound : INT64_MAX / 2;
}

int64_t mcp_synthesis_bound_ns(const struct mcp_synthesis *problem)
{
    int p = problem->pipeline_parallel, m = problem->num_microbatches;
    int64_t bound = 0;
    for (int r = 0; r < p; r++) {
        int64_t pair = 0, weights = 0, first = INT64_MAX, back = INT64_MAX;
        for (int c = 0; c < problem->virtual_stages; c++) {
            int k = mcp_placed_stage(problem->placement, p, r, c);
            const struct mcp_synthesis_stage *stage = &problem->stages[k];
            int64_t down = way_down_ns(problem, k), up = way_back_ns(problem, k);
            pair += stage->forward_ns + stage->backward_input_ns;
            weights += stage->backward_weight_ns;
            first = down < first ? down : first;
            back = up < back ? up : back;
        }
        int64_t tail = problem->tail_ns ? problem->tail_ns[r] : 0;
        int64_t all = mcp_max_int64(m * (pair + weights), memory_bound_ns(problem, r)) + tail;
        if (!problem->no_barrier) {
            int64_t release = problem->release_ns ? problem->release_ns[r] : 0;
            int64_t tail0 = problem->tail_ns ? problem->tail_ns[0] : 0;
            int64_t start = mcp_max_int64(first, release);
            all = mcp_max_int64(start + all, start + m * pair + back + (back > 0 ? tail0 : 0));
        }
        bound = mcp_max_int64(bound, all);
    }
    return bound;
}

void mcp_synthesis_limit(enum mcp_schedule schedule, const struct mcp_synthesis *problem,
                         int64_t *limit_bytes)
{
    int p = problem->pipeline_parallel;
    int64_t pair = 0, pairs = p; /* of all ranks the largest, and how many */
    for (int r = 0; r < p; r++) {
        int64_t own = 0;
        for (int c = 0; c < problem->virtual_stages; c++) {
            int k = mcp_placed_stage(problem->placement, p, r, c);
            own += problem->stages[k].kept_bytes;
        }
        pair = mcp_max_int64(pair, own);
    }
    if (schedule == MCP_ZB_H2)
        pairs = 2 * (int64_t)p;
    else if (schedule == MCP_V_HALF)
        pairs = (p + 2) / 2;
    else if (schedule == MCP_V_MIN)
        pairs = (p + 4) / 3;
    for (int r = 0; r < p; r++)
        limit_bytes[r] = pairs * pair;
}
