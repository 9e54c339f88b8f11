/* tests/sim/test_timeline.c: timelines are JSON, in the program's own indices; in traces,
 * spans of a track nest and never cross. */
#include "sim/timeline.h"
#include "tests/step/random_plan.h"

#include "core/json.h"
#include "step/build.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdlib.h>

struct drawn {
    struct random_plan random;
    struct mcp_program program;
    struct mcp_sim_timeline *timeline;
    struct mcp_sim_result result;
};

static struct drawn *play(struct mcp_arena *arena, int seed)
{
    struct drawn *d = MCP_NEW(arena, struct drawn);
    random_plan_draw(arena, (uint64_t)seed, &d->random);
    mcp_program_build(arena, &d->random.question, &d->random.plan, &d->program);
    d->timeline = mcp_sim_timeline_new(arena, &d->program);
    const struct mcp_sim_ops_options options = {
        .shared_links = true, .span = mcp_sim_timeline_take, .context = d->timeline};
    mcp_sim_play_ops(arena, &d->random.question, &d->program, &options, &d->result);
    return d;
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

/* By track and start, the longest first. */
static int by_place(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->track != y->track)
        return x->track < y->track ? -1 : 1;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

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
    qsort(events, (size_t)count, sizeof *events, by_place);
    return count;
}

Test(sim_timeline, spans_of_a_trace_never_cross)
{
    for (int seed = 0; seed < 40; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct drawn *d = play(arena, seed);
        struct mcp_text text = mcp_text_new(arena);
        struct mcp_json *list;
        mcp_sim_timeline_trace(d->timeline, &text);
        cr_assert(eq(int, (int)mcp_json_array(parse(arena, &text), "traceEvents", &list, NULL), 0));
        struct event *events = MCP_ARRAY(arena, mcp_json_count(list), struct event);
        int64_t *open = MCP_ARRAY(arena, mcp_json_count(list), int64_t); /* ends of those open */
        int count = read_events(list, events), depth = 0;
        for (int i = 0; i < count; i++) {
            if (i > 0 && events[i].track != events[i - 1].track)
                depth = 0;
            while (depth > 0 && open[depth - 1] <= events[i].start_ns)
                depth--;
            if (depth > 0)
                cr_assert(le(i64, events[i].end_ns, open[depth - 1]), "seed %d track %d", seed,
                          events[i].track);
            open[depth++] = events[i].end_ns;
        }
        cr_expect(gt(int, count, 0));
        mcp_arena_free(arena);
    }
}
