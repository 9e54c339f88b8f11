/* tests/planner/test_stop.c: a search says how far it is, and gives what it has when told to stop. */
#include "planner/search.h"
#include "tests/planner/question.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>

struct listener {
    int calls, stop_after; /* 0: never */
    double last_frac;
    bool went_back;
    double best_s;
    volatile sig_atomic_t stop;
};

static void listen(void *context, double done_frac, const struct mcp_found *best)
{
    struct listener *listener = context;
    listener->went_back |= done_frac < listener->last_frac || done_frac > 1;
    listener->last_frac = done_frac;
    listener->best_s = best != NULL ? best->iteration_s : (double)INFINITY;
    listener->calls++;
    if (listener->calls == listener->stop_after)
        listener->stop = 1;
}

struct stop_row {
    char model[24], cluster[40];
    int after, threads;
};
ParameterizedTestParameters(stop, gives_the_best_so_far)
{
    static struct stop_row rows[] = {
        {"llama-3.1-70b", "dgx-h100:8", 0, 1},
        {"llama-3.1-70b", "dgx-h100:8", 1, 1},
        {"llama-3.1-70b", "dgx-h100:8", 4, 2},
        {"llama-3.1-70b", "dgx-h100:8", 40, 2},
        {"deepseek-v2", "dgx-h100:16", 1, 2},
        {"deepseek-v2", "dgx-h100:16", 12, 1},
        {"llama-3.1-8b", "dgx-a100:1+dgx-h100:1", 3, 2},
    };
    return cr_make_param_array(struct stop_row, rows, sizeof rows / sizeof *rows);
}
ParameterizedTest(struct stop_row *row, stop, gives_the_best_so_far)
{
    struct loaded q;
    struct mcp_answer answer;
    struct listener listener = {.stop_after = row->after};
    const struct mcp_plan_space space = mcp_space_default();
    load_question(&q, row->model, row->cluster, 256, 4096);
    const struct mcp_search_options options = {.top = 2,
                                               .smallest = row->after == 0,
                                               .num_threads = row->threads,
                                               .progress = listen,
                                               .progress_context = &listener,
                                               .stop = &listener.stop};
    mcp_search(q.arena, &q.question, &space, &options, &answer);
    const struct mcp_search_record *record = &answer.record;
    int64_t refused = 0;
    for (int i = 0; i < record->num_refused; i++)
        refused += record->refused[i].count;
    cr_expect(not(listener.went_back));
    cr_expect(gt(dbl, listener.last_frac, 0.99));
    cr_expect(ge(int, listener.calls, row->after));
    cr_expect(eq(int, record->proven_optimal, row->after == 0));
    cr_expect(eq(i64, record->candidates, refused + record->bounded + record->fitting));
    if (answer.count == 0) {
        cr_expect(eq(dbl, record->gap_frac, 1)); /* anything may be */
    } else {
        cr_expect(eq(int, record->gap_frac > 0, row->after > 0));
        cr_expect(lt(dbl, record->gap_frac, 1));
        cr_expect(eq(dbl, listener.best_s, answer.found[0].iteration_s));
    }
    mcp_arena_free(q.arena);
}
