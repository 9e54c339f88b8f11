/* tests/reports/test_compare.c: seconds of a rank from its spans, and timelines joined. */
#include "reports/compare.h"
#include "sim/timeline.h"
#include "step/build.h"
#include "tests/step/random_plan.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

/* --- what a rank's seconds were --- */

enum { MOST_SPANS = 8, OTHER = 1 };

struct case_account {
    char name[48];
    struct mcp_timeline_span spans[MOST_SPANS]; /* of rank 0, then of rank 1; function 0: none */
    int64_t step_ns;               /* negative: counted up to there, whatever the timeline says */
    int64_t want[MCP_NUM_SECONDS]; /* of rank 0 */
};

#define RUN(slot, from, to)                                                                        \
    {                                                                                              \
        0, slot, 2, 0, MCP_STREAM_COMPUTE, MCP_FN_CAST, MCP_FORWARD, 0, 0, from, to                \
    }
#define ON(stream, slot, from, to)                                                                 \
    {                                                                                              \
        0, slot, 1, 0, MCP_STREAM_##stream, MCP_FN_SHIFT, MCP_FORWARD, 0, 0, from, to              \
    }
#define ELSEWHERE(from, to)                                                                        \
    {                                                                                              \
        OTHER, 9, 0, 0, MCP_STREAM_COMPUTE, MCP_FN_CAST, MCP_FORWARD, 0, 0, from, to               \
    }
#define ADAM(slot, from, to)                                                                       \
    {                                                                                              \
        0, slot, 0, 0, MCP_STREAM_COMPUTE, MCP_FN_ADAM, MCP_OPTIMIZER, 0, -1, from, to             \
    }
/* compute, optimizer, tensor, context, expert, pipeline, data, host, bubble */
ParameterizedTestParameters(account, rank)
{
    static struct case_account cases[] = {
        {"all compute", {RUN(0, 0, 100)}, 100, {100}},
        {"the host goes on after it", {RUN(0, 0, 100)}, 130, {100, 0, 0, 0, 0, 0, 0, 30}},
        {"a launch between ops of a slot",
         {RUN(0, 0, 40), RUN(0, 50, 100)},
         100,
         {90, 0, 0, 0, 0, 0, 0, 10}},
        {"tensor beside compute is hidden, else not",
         {RUN(0, 0, 60), ON(TENSOR, 0, 40, 100)},
         100,
         {60, 0, 40}},
        {"context alone", {RUN(0, 0, 60), ON(CONTEXT, 0, 40, 100)}, 100, {60, 0, 0, 40}},
        {"experts alone", {RUN(0, 0, 60), ON(EXPERT, 0, 40, 100)}, 100, {60, 0, 0, 0, 40}},
        {"a message that is awaited, sent late",
         {RUN(0, 0, 20), ON(RECEIVE_PREVIOUS, 1, 50, 70), RUN(1, 70, 100)},
         100,
         {50, 0, 0, 0, 0, 20, 0, 0, 30}},
        {"the same, mirrored",
         {RUN(0, 0, 20), ON(MIRRORED_RECEIVE_NEXT, 1, 50, 70), RUN(1, 70, 100)},
         100,
         {50, 0, 0, 0, 0, 20, 0, 0, 30}},
        {"a message that came in time",
         {RUN(0, 0, 60), ON(RECEIVE_PREVIOUS, 1, 10, 30), RUN(1, 60, 100)},
         100,
         {100}},
        {"a message that was half there",
         {RUN(0, 0, 60), ON(RECEIVE_NEXT, 1, 50, 80), RUN(1, 80, 100)},
         100,
         {80, 0, 0, 0, 0, 20}},
        {"a send keeps the rank busy before it waits",
         {RUN(0, 0, 20), ON(SEND_NEXT, 0, 20, 30), ON(RECEIVE_PREVIOUS, 1, 50, 70),
          RUN(1, 70, 100)},
         100,
         {50, 0, 0, 0, 0, 30, 0, 0, 20}},
        {"data runs while a message is awaited",
         {RUN(0, 0, 20), ON(DATA, 0, 20, 90), ON(RECEIVE_PREVIOUS, 1, 50, 70), RUN(1, 70, 100)},
         100,
         {50, 0, 0, 0, 0, 20, 0, 0, 30}},
        {"data is awaited", {ON(DATA, 0, 0, 30), RUN(0, 30, 100)}, 100, {70, 0, 0, 0, 0, 0, 30}},
        {"another rank is not done",
         {RUN(0, 0, 60), ADAM(2, 90, 100), ELSEWHERE(0, 80)},
         100,
         {60, 10, 0, 0, 0, 0, 0, 10, 20}},
        {"up to a moment within a span",
         {RUN(0, 0, 40), RUN(0, 60, 200)},
         -100,
         {80, 0, 0, 0, 0, 0, 0, 20}},
        {"nothing but the end is known", {RUN(0, 10, 60)}, 0, {50, 0, 0, 0, 0, 0, 0, 10}},
    };
    return cr_make_param_array(struct case_account, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_account *c, account, rank)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_timeline timeline = {.iteration_ns = c->step_ns > 0 ? c->step_ns : 0};
    struct mcp_account account;
    size_t of_rank = 0;
    for (int i = 0; i < MOST_SPANS && c->spans[i].end_ns > 0; i++) {
        mcp_timeline_add(arena, &timeline, &c->spans[i]);
        of_rank += c->spans[i].rank == 0;
    }
    struct mcp_timeline_ends ends = mcp_timeline_ends(&timeline);
    ends.step_ns = c->step_ns < 0 ? -c->step_ns : ends.step_ns;
    mcp_account_of(arena, timeline.spans, of_rank, &ends, &account);
    for (int k = 0; k < MCP_NUM_SECONDS; k++)
        cr_expect(eq(i64, account.ns[k], c->want[k]), "%s: %s", c->name, mcp_second_names[k]);
    mcp_arena_free(arena);
}

/* --- the simulator's own accounts --- */

struct played {
    struct random_plan random;
    struct mcp_program program;
    struct mcp_sim_result result;
    struct mcp_timeline timeline;
};

static struct played *play(struct mcp_arena *arena, int seed)
{
    struct played *p = MCP_NEW(arena, struct played);
    random_plan_draw(arena, (uint64_t)seed, &p->random);
    mcp_program_build(arena, &p->random.question, &p->random.plan, &p->program);
    struct mcp_sim_timeline *timeline = mcp_sim_timeline_new(arena, &p->program);
    const struct mcp_sim_ops_options options = {
        .shared_links = true, .span = mcp_sim_timeline_take, .context = timeline};
    mcp_sim_play_ops(arena, &p->random.question, &p->program, &options, &p->result);
    mcp_sim_timeline_fill(timeline, &p->result, &p->timeline);
    mcp_timeline_sort(&p->timeline);
    return p;
}

/* Counted from spans, a step is what the simulator, which knows why each rank waits, says. But a
 * host that launches while nothing runs cannot be told from one that waits; a sender's own time
 * is the message's here and bubble there; what a stack broadcasts after the update, and under
 * ZeRO-2 and 3 a part of the transfers, has no span. */
Test(account, agrees_with_the_simulator)
{
    for (int seed = 0; seed < 120; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct played *p = play(arena, seed);
        struct mcp_compare same;
        struct mcp_error err = {""};
        double step_s = 1e-9 * (double)p->result.step_ns;
        cr_assert(eq(int, mcp_compare(arena, &p->timeline, &p->timeline, 5, &same, &err), 0), "%s",
                  err.text);
        for (int i = 0; i < same.num_ranks; i++) {
            int64_t sum = 0;
            for (int k = 0; k < MCP_NUM_SECONDS; k++)
                sum += same.accounts_a[i].ns[k];
            cr_assert(eq(i64, sum, p->result.step_ns), "seed %d", seed);
        }
        double broadcast = 1e-9 * (double)p->result.broadcast_ns / step_s;
        double host = (double)same.mean_a.ns[MCP_SECOND_HOST] * 1e-9;
        double bubble = mcp_account_bubble_frac(&same.mean_a) - p->result.bubble_frac;
        double idle = bubble + (host - p->result.cost_s[MCP_COST_HOST]) / step_s;
        double comm =
            mcp_account_exposed_comm_frac(&same.mean_a) - p->result.exposed_comm_frac + broadcast;
        cr_expect(gt(dbl, idle, -0.02), "seed %d: bubble and host %g", seed, idle);
        if (p->random.plan.zero_stage < 2) {
            cr_expect(lt(dbl, fabs(idle - broadcast), 0.02), "seed %d: bubble and host %g", seed,
                      idle);
            cr_expect(lt(dbl, fabs(comm), 0.02), "seed %d: communication %g", seed, comm);
        }
        mcp_arena_free(arena);
    }
}

/* --- the join --- */

static struct mcp_timeline_span op(int rank, int slot, enum mcp_function function, int64_t ns)
{
    return (struct mcp_timeline_span){
        rank,        slot, 0, 0,           MCP_STREAM_COMPUTE, (unsigned char)function,
        MCP_FORWARD, 0,    0, 1000 * slot, 1000 * slot + ns};
}

static struct mcp_timeline timeline_of(struct mcp_arena *arena,
                                       const struct mcp_timeline_span *spans, size_t count)
{
    struct mcp_timeline timeline = {0};
    for (size_t i = 0; i < count; i++)
        mcp_timeline_add(arena, &timeline, &spans[i]);
    mcp_timeline_sort(&timeline);
    return timeline;
}

static const struct mcp_compare_kind *kind_of(const struct mcp_compare *compare, const char *name)
{
    for (int i = 0; i < compare->num_kinds; i++)
        if (strcmp(compare->kinds[i].name, name) == 0)
            return &compare->kinds[i];
    return NULL;
}

Test(compare, sums_ops_that_both_have)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_timeline_span in_a[] = {
        op(0, 0, MCP_FN_CAST, 100), op(0, 1, MCP_FN_CAST, 100), op(0, 2, MCP_FN_ADD, 50),
        op(0, 3, MCP_FN_ADD, 60),   op(1, 0, MCP_FN_CAST, 100),
    };
    const struct mcp_timeline_span in_b[] = {
        op(0, 0, MCP_FN_CAST, 150), op(0, 1, MCP_FN_CAST, 90),  op(0, 2, MCP_FN_COPY, 50),
        op(0, 4, MCP_FN_ADD, 70),   op(2, 0, MCP_FN_CAST, 100),
    };
    const struct mcp_timeline a = timeline_of(arena, in_a, 5), b = timeline_of(arena, in_b, 5);
    struct mcp_compare found;
    struct mcp_error err = {""};
    cr_assert(eq(int, mcp_compare(arena, &a, &b, 1, &found, &err), 0), "%s", err.text);
    cr_expect(eq(int, found.num_ranks, 1));
    cr_expect(eq(int, found.num_only_a, 1));
    cr_expect(eq(int, found.num_only_b, 1));
    cr_expect(eq(i64, found.num_other, 1)); /* an add here, a copy there */
    const struct mcp_compare_kind *cast = kind_of(&found, "cast"), *add = kind_of(&found, "add");
    cr_assert(cast != NULL && add != NULL && kind_of(&found, "copy") != NULL);
    cr_expect(eq(i64, cast->num_both, 2));
    cr_expect(epsilon_eq(dbl, cast->a_s, 200e-9, 1e-15));
    cr_expect(epsilon_eq(dbl, cast->b_s, 240e-9, 1e-15));
    cr_expect(epsilon_eq(dbl, mcp_compare_ratio(cast), 1.2, 1e-9));
    cr_expect(eq(i64, add->num_both, 0));
    cr_expect(eq(i64, add->num_a, 2));
    cr_expect(eq(i64, add->num_b, 1));
    cr_expect(epsilon_eq(dbl, add->only_a_s, 110e-9, 1e-15));
    cr_assert(eq(int, found.num_worst, 1));
    cr_expect(eq(int, found.worst[0].a->slot, 0));
    mcp_arena_free(arena);
}

/* At one place, but of other work: no op of both. What is not stated is not held against it. */
Test(compare, does_not_join_ops_of_other_work)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_timeline_span in_a[4], in_b[4];
    for (int i = 0; i < 4; i++) {
        in_a[i] = op(0, i, MCP_FN_SEND, 100);
        in_b[i] = op(0, i, MCP_FN_SEND, 200);
        in_a[i].stream = MCP_STREAM_SEND_NEXT;
        in_b[i].stream = MCP_STREAM_MIRRORED_SEND_NEXT;
    }
    in_b[0].microbatch = 1;
    in_b[1].layer = 3;
    in_b[2].pass = MCP_BACKWARD_INPUT;
    in_b[3].layer = in_b[3].microbatch = -1;
    const struct mcp_timeline a = timeline_of(arena, in_a, 4), b = timeline_of(arena, in_b, 4);
    struct mcp_compare found;
    struct mcp_error err = {""};
    cr_assert(eq(int, mcp_compare(arena, &a, &b, 4, &found, &err), 0), "%s", err.text);
    cr_expect(eq(i64, found.num_other, 3));
    cr_expect(eq(i64, found.all.num_both, 1));
    cr_expect(eq(int, found.num_kinds, 1), "messages both ways, mirrored or not, are one kind");
    cr_assert(eq(int, found.num_worst, 1));
    cr_expect(eq(int, found.worst[0].a->slot, 3));
    mcp_arena_free(arena);
}

/* A timeline of stages against the same with every rank written out. */
Test(compare, looks_equal_ranks_up)
{
    for (int seed = 0; seed < 20; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct played *p = play(arena, seed);
        struct mcp_timeline all = {.measured = true, .iteration_ns = p->timeline.iteration_ns};
        struct mcp_compare found, turned;
        struct mcp_error err = {""};
        int world = mcp_plan_world(&p->random.plan);
        world = world < 16 ? world : 16; /* some of them */
        for (int rank = 0; rank < world; rank++) {
            size_t count;
            const struct mcp_timeline_span *spans =
                mcp_timeline_spans_of(&p->timeline, p->timeline.like[rank], &count);
            for (size_t i = 0; i < count; i++) {
                struct mcp_timeline_span span = spans[i];
                span.rank = rank;
                span.end_ns += span.end_ns - span.start_ns; /* twice as long */
                mcp_timeline_add(arena, &all, &span);
            }
        }
        cr_assert(eq(int, mcp_compare(arena, &p->timeline, &all, 3, &found, &err), 0), "%s",
                  err.text);
        cr_assert(eq(int, mcp_compare(arena, &all, &p->timeline, 3, &turned, &err), 0), "%s",
                  err.text);
        cr_expect(eq(int, found.num_ranks, world), "seed %d", seed);
        cr_expect(eq(i64, found.all.num_both, (int64_t)all.num_spans), "seed %d", seed);
        cr_expect(eq(i64, found.all.num_a + found.all.num_b, 0), "seed %d", seed);
        for (int i = 0; i < found.num_kinds; i++)
            cr_expect(epsilon_eq(dbl, mcp_compare_ratio(&found.kinds[i]), 2, 1e-9), "seed %d",
                      seed);
        for (int i = 0; i < turned.num_kinds; i++)
            cr_expect(epsilon_eq(dbl, mcp_compare_ratio(&turned.kinds[i]), 0.5, 1e-9), "seed %d",
                      seed);
        for (int i = 1; i < found.num_kinds; i++)
            cr_expect(ge(dbl, found.kinds[i - 1].b_s - found.kinds[i - 1].a_s,
                         found.kinds[i].b_s - found.kinds[i].a_s));
        mcp_arena_free(arena);
    }
}

Test(compare, refuses_what_has_nothing_in_common)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_timeline_span one = op(0, 0, MCP_FN_CAST, 100),
                                   rank = op(1, 0, MCP_FN_CAST, 9),
                                   slot = op(0, 1, MCP_FN_CAST, 100);
    const struct mcp_timeline a = timeline_of(arena, &one, 1), b = timeline_of(arena, &rank, 1),
                              c = timeline_of(arena, &slot, 1), none = {0};
    struct mcp_compare found;
    struct mcp_error err = {""};
    cr_expect(eq(int, mcp_compare(arena, &a, &b, 1, &found, &err), MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, "no rank has spans in both: 1 have"), NULL), "%s", err.text);
    cr_expect(eq(int, mcp_compare(arena, &a, &c, 1, &found, &err), MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, "not of one program"), NULL), "%s", err.text);
    cr_expect(eq(int, mcp_compare(arena, &a, &none, 1, &found, &err), MCP_INVALID));
    mcp_arena_free(arena);
}
