/* tests/sim/test_timeline.c: timelines are JSON, in the program's own indices; in traces,
 * spans of a track nest and never cross. */
#include "sim/timeline.h"
#include "tests/step/random_plan.h"

#include "core/json.h"
#include "step/build.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

struct drawn {
    struct random_plan random;
    struct mcp_program program;
    struct mcp_sim_timeline *timeline;
    struct mcp_sim_result result;
};

/* Of the ranks and as long as `wanted` says; NULL: of one rank a stage, all of it. */
static struct drawn *play_of(struct mcp_arena *arena, int seed,
                             const struct mcp_sim_timeline_options *wanted,
                             const struct mcp_sim_options *ranks)
{
    struct drawn *d = MCP_NEW(arena, struct drawn);
    random_plan_draw(arena, (uint64_t)seed, &d->random);
    mcp_program_build(arena, &d->random.question, &d->random.plan, &d->program);
    d->timeline = wanted != NULL ? mcp_sim_timeline_new_of(arena, &d->program, wanted)
                                 : mcp_sim_timeline_new(arena, &d->program);
    const struct mcp_sim_ops_options options = {.shared_links = true,
                                                .ranks = ranks,
                                                .span = mcp_sim_timeline_take,
                                                .context = d->timeline};
    mcp_sim_play_ops(arena, &d->random.question, &d->program, &options, &d->result);
    return d;
}

static struct drawn *play(struct mcp_arena *arena, int seed)
{
    return play_of(arena, seed, NULL, NULL);
}

static struct mcp_json *parse(struct mcp_arena *arena, const struct mcp_text *text)
{
    struct mcp_json *json = NULL;
    struct mcp_error err = {""};
    cr_assert(eq(int, (int)mcp_json_parse(arena, "it", text->data, text->length, &json, &err), 0),
              "%s", err.text);
    return json;
}

static int int_of(struct mcp_json *json, const char *key)
{
    int value = -1;
    cr_assert(eq(int, (int)mcp_json_int(json, key, &value, NULL), 0), "%s", key);
    return value;
}

static double double_of(struct mcp_json *json, const char *key)
{
    double value = -1;
    cr_assert(eq(int, (int)mcp_json_double(json, key, &value, NULL), 0), "%s", key);
    return value;
}

Test(sim_timeline, spans_name_ops_of_the_program)
{
    for (int seed = 0; seed < 12; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = play(arena, seed);
        struct mcp_text text = mcp_text_new(arena);
        struct mcp_json *spans;
        struct mcp_timeline timeline;
        mcp_sim_timeline_fill(d->timeline, &d->result, &timeline);
        mcp_timeline_write(&timeline, false, &text);
        cr_assert(eq(int, (int)mcp_json_array(parse(arena, &text), "spans", &spans, NULL), 0));
        cr_expect(gt(sz, mcp_json_count(spans), 0));
        for (size_t i = 0; i < mcp_json_count(spans); i++) {
            struct mcp_json *span = mcp_json_at(spans, i);
            double start = double_of(span, "start_s"), end = double_of(span, "end_s");
            cr_assert(le(dbl, 0, start));
            cr_assert(lt(dbl, start, end));
            cr_assert(le(dbl, end, (double)d->result.step_ns * 1e-9 + 1e-9));
            cr_assert(ge(int, int_of(span, "slot"), 0));
            cr_assert(ge(int, int_of(span, "entry"), 0));
            cr_assert(ge(int, int_of(span, "op"), 0));
            cr_assert(lt(int, int_of(span, "rank"), mcp_plan_world(&d->random.plan)));
        }
        mcp_arena_free(arena);
    }
}

struct event {
    int track;
    int64_t start_ns, end_ns;
};

static int read_events(struct mcp_json *list, struct event *events)
{
    int count = 0;
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        struct mcp_json *row = mcp_json_at(list, i);
        if (!mcp_json_has(row, "dur"))
            continue;
        struct event *event = &events[count++];
        event->track = int_of(row, "pid") * MCP_NUM_STREAMS + int_of(row, "tid");
        event->start_ns = llround(double_of(row, "ts") * 1e3);
        event->end_ns = event->start_ns + llround(double_of(row, "dur") * 1e3);
    }
    return count;
}

/* As written: track by track, times never go back, and spans nest or follow each other.
 * Returns how many there are. */
static int expect_rules(struct mcp_arena *arena, struct drawn *d, const char *says)
{
    struct mcp_text text = mcp_text_new(arena);
    struct mcp_json *list;
    mcp_sim_timeline_trace(d->timeline, &text);
    cr_assert(eq(int, (int)mcp_json_array(parse(arena, &text), "traceEvents", &list, NULL), 0));
    struct event *events = MCP_ARRAY(arena, mcp_json_count(list), struct event);
    int64_t *open = MCP_ARRAY(arena, mcp_json_count(list), int64_t); /* ends of those open */
    int count = read_events(list, events), depth = 0;
    for (int i = 0; i < count; i++) {
        bool same = i > 0 && events[i].track == events[i - 1].track;
        depth = same ? depth : 0;
        if (same)
            cr_assert(ge(i64, events[i].start_ns, events[i - 1].start_ns), "%s", says);
        cr_assert(gt(i64, events[i].end_ns, events[i].start_ns), "%s", says);
        while (depth > 0 && open[depth - 1] <= events[i].start_ns)
            depth--;
        if (depth > 0)
            cr_assert(le(i64, events[i].end_ns, open[depth - 1]), "%s track %d", says,
                      events[i].track);
        open[depth++] = events[i].end_ns;
    }
    return count;
}

Test(sim_timeline, spans_of_a_trace_never_cross)
{
    for (int seed = 0; seed < 40; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = play(arena, seed);
        int count = expect_rules(arena, d, mcp_format(arena, "seed %d", seed));
        const struct mcp_sim_kept kept = mcp_sim_timeline_kept(d->timeline);
        cr_expect(gt(int, count, 0));
        cr_expect(eq(i64, kept.ops, kept.all_ops));
        cr_expect(eq(i64, kept.slots, kept.all_slots));
        cr_expect(eq(i64, kept.ops_until_ns, INT64_MAX));
        mcp_arena_free(arena);
    }
}

/* All ranks, under noise, in files of any length: no more than was asked for, all of what
 * begins before the cut, nothing of what begins after it. */
Test(sim_timeline, long_ones_are_cut_at_one_moment)
{
    int cuts = 0;
    for (int seed = 0; seed < 30; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan random;
        random_plan_draw(arena, (uint64_t)seed, &random);
        int world = mcp_plan_world(&random.plan), *ranks = MCP_ARRAY(arena, world, int);
        for (int i = 0; i < world; i++)
            ranks[i] = i;
        struct mcp_sim_options noise = mcp_sim_options_default();
        noise.noise = 0.02;
        const struct mcp_sim_timeline_options wanted = {.unequal = true,
                                                        .ranks = ranks,
                                                        .num_ranks = world < 24 ? world : 24,
                                                        .most_spans = 2000,
                                                        .most_trace_spans = 4000};
        struct drawn *d = play_of(arena, seed, &wanted, &noise);
        int count = expect_rules(arena, d, mcp_format(arena, "seed %d", seed));
        struct mcp_sim_kept kept = mcp_sim_timeline_kept(d->timeline);
        cr_expect(le(i64, kept.ops, wanted.most_trace_spans));
        cr_expect(le(i64, kept.slots, wanted.most_trace_spans));
        cr_expect(le(int, count, (int)(kept.ops + kept.slots)));
        cr_expect(eq(int, kept.ops < kept.all_ops, kept.ops_until_ns < INT64_MAX), "seed %d", seed);
        cuts += kept.ops < kept.all_ops;
        struct mcp_timeline timeline;
        mcp_sim_timeline_fill(d->timeline, &d->result, &timeline);
        kept = mcp_sim_timeline_kept(d->timeline);
        cr_expect(le(i64, (int64_t)timeline.num_spans, wanted.most_spans));
        for (size_t i = 0; i < timeline.num_spans; i++)
            cr_assert(lt(i64, timeline.spans[i].start_ns, kept.ops_until_ns), "seed %d", seed);
        mcp_arena_free(arena);
    }
    cr_expect(gt(int, cuts, 0));
}

/* Ranks that are asked for have their own spans; lockstep neighbours are said to be alike. */
Test(sim_timeline, unequal_ranks_have_spans_of_their_own)
{
    int looked_at = 0;
    for (int seed = 0; seed < 60; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan random;
        random_plan_draw(arena, (uint64_t)seed, &random);
        int last = mcp_plan_world(&random.plan) - 1;
        const int ranks[2] = {0, last};
        const struct mcp_sim_timeline_options wanted = {.unequal = true,
                                                        .ranks = ranks,
                                                        .num_ranks = 2,
                                                        .most_spans = INT64_MAX,
                                                        .most_trace_spans = INT64_MAX};
        struct mcp_sim_options slow = mcp_sim_options_default();
        slow.slow_rank = last;
        slow.slow_factor = 1.5;
        if (random.plan.data_parallel > 1 && random.plan.expert_parallel == 1 &&
            random.plan.zero_stage < 2) {
            struct drawn *d = play_of(arena, seed, &wanted, &slow);
            struct mcp_timeline timeline;
            mcp_sim_timeline_fill(d->timeline, &d->result, &timeline);
            bool of[2] = {false, false};
            for (size_t i = 0; i < timeline.num_spans; i++)
                for (int k = 0; k < 2; k++)
                    of[k] = of[k] || timeline.spans[i].rank == ranks[k];
            cr_expect(of[0] && of[1], "seed %d", seed);
            cr_expect(eq(int, timeline.like[last], last));
            looked_at++;
        }
        mcp_arena_free(arena);
    }
    cr_expect(gt(int, looked_at, 5));
}
