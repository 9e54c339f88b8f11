/* tests/cli/test_refine.c: plan --refine: the fastest played of the best by price. */
/* The library does not hold cli/, so its part is compiled in here. */
#include "cli/plan_refine.c"

#include "core/json.h"
#include "tests/cli/child.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NUM_PLANS = 4 };

struct question {
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_question asked;
};

static void ask(struct mcp_arena *arena, struct question *q)
{
    struct mcp_error err;
    cr_assert(eq(int, mcp_model_load(arena, "tiny", &q->model, &err), 0));
    cr_assert(eq(int, mcp_cluster_load(arena, "dgx-h100", &q->cluster, &err), 0));
    cr_assert(eq(int, mcp_stack_load(arena, "megatron-core", &q->stack, &err), 0));
    q->job = mcp_job_default();
    q->job.global_batch_size = 64;
    q->job.sequence_length = 256;
    q->asked = (struct mcp_question){&q->model, &q->cluster, &q->job, &q->stack};
}

/* Eight GPUs in pipelines, tensor groups and replicas: played, each is another step. */
static void plans_of(struct mcp_arena *arena, const struct question *q, struct mcp_found *found)
{
    for (int i = 0; i < NUM_PLANS; i++) {
        struct mcp_plan plan = mcp_plan_default();
        plan.pipeline_parallel = i < 2 ? 1 << i : 1;
        plan.tensor_parallel = i < 2 ? 1 : 1 << (i - 1);
        plan.sequence_parallel = plan.tensor_parallel > 1;
        plan.data_parallel = 8 / plan.pipeline_parallel / plan.tensor_parallel;
        plan.microbatch_size = 1;
        mcp_plan_uniform_chunks(arena, &plan, q->model.num_layers, MCP_RECOMPUTE_NONE);
        found[i] = (struct mcp_found){plan, 1.0 + i, 0};
    }
}

static double played(struct mcp_arena *arena, const struct question *q, const struct mcp_plan *plan)
{
    double seconds = 0;
    struct mcp_error err = {""};
    cr_assert(eq(int, play(arena, &q->asked, plan, &seconds, &err), 0), "%s", err.text);
    return seconds;
}

/* Whatever their prices, those that are played stand as played, and those that are not, behind. */
Test(refine, puts_the_fastest_played_first)
{
    for (int most = 1; most <= NUM_PLANS + 1; most++) {
        struct mcp_context ctx = {.arena = mcp_arena_new()};
        struct question q;
        struct mcp_search_options options = {.top = NUM_PLANS};
        struct mcp_found found[NUM_PLANS];
        int count = most < NUM_PLANS ? most : NUM_PLANS;
        ask(ctx.arena, &q);
        plans_of(ctx.arena, &q, found);
        struct mcp_answer answer = {.count = NUM_PLANS, .found = found};
        struct mcp_plan_view view = {.question = &q.asked, .answer = &answer};
        mcp_plan_refine(&ctx, most, &options, &answer, &view);
        cr_assert(eq(int, view.num_refined, count));
        for (int i = 0; i < count; i++) {
            double seconds = played(ctx.arena, &q, &answer.found[i].plan);
            cr_expect(eq(dbl, seconds, view.refined[i].played_s));
            cr_expect(eq(dbl, answer.found[i].iteration_s, view.refined[i].priced_place));
            if (i > 0)
                cr_expect(le(dbl, view.refined[i - 1].played_s, seconds));
        }
        for (int i = count; i < NUM_PLANS; i++)
            cr_expect(eq(dbl, answer.found[i].iteration_s, 1.0 + i));
        mcp_arena_free(ctx.arena);
    }
}

/* What cannot be played is behind, with its reason; where it is the best by price, nothing is
 * said of the others. */
Test(refine, says_what_cannot_be_played)
{
    for (int broken = 0; broken < 2; broken++) {
        struct mcp_context ctx = {.arena = mcp_arena_new()};
        struct question q;
        struct mcp_search_options options = {.top = NUM_PLANS};
        struct mcp_found found[NUM_PLANS];
        ask(ctx.arena, &q);
        q.job.global_batch_size = (int64_t)1 << 40; /* a step of a million million sequences ... */
        plans_of(ctx.arena, &q, found);
        for (int i = 0; i < NUM_PLANS; i++)
            if (i != broken) /* ... is long only where they are small */
                found[i].plan.microbatch_size = 1 << 30;
        struct mcp_answer answer = {.count = 2, .found = found};
        struct mcp_plan_view view = {.question = &q.asked, .answer = &answer};
        mcp_plan_refine(&ctx, 2, &options, &answer, &view);
        const char *why = broken == 0 ? view.not_refined : NULL;
        if (broken == 1) {
            cr_assert(eq(int, view.num_refined, 2));
            why = view.refined[1].why_not;
        }
        cr_assert(ne(ptr, (void *)why, NULL));
        cr_expect(strstr(why, "slots") != NULL, "%s", why);
        mcp_arena_free(ctx.arena);
    }
}

static double number(struct mcp_json *object, const char *key)
{
    double value = -1;
    cr_assert(eq(int, mcp_json_double(object, key, &value, NULL), 0), "%s", key);
    return value;
}

static struct mcp_json *part(struct mcp_json *object, const char *key)
{
    struct mcp_json *out;
    cr_assert(eq(int, mcp_json_object(object, key, &out, NULL), 0), "%s", key);
    return out;
}

static struct mcp_json *ask_program(struct mcp_arena *arena, char words[][WORD], char *file)
{
    struct child child = {.arena = arena};
    struct mcp_json *json = NULL;
    struct mcp_error err = {""};
    child_run(&child, words, file);
    cr_assert(eq(int, child.status, MCP_OK), "%s", child.err);
    cr_assert(eq(int, mcp_json_parse(arena, "it", child.out, strlen(child.out), &json, &err), 0),
              "%s", err.text);
    return json;
}

/* The plan that is written is the fastest played, and sim takes as long for it. */
Test(refine, writes_what_sim_plays)
{
    char words[MAX_WORDS][WORD] = {"plan",
                                   "--model=mixtral-8x7b",
                                   "--cluster=dgx-a100:4",
                                   "--top=2",
                                   "--global-batch-size=64",
                                   "--refine=5",
                                   "--json",
                                   "~"};
    char again[MAX_WORDS][WORD] = {"sim", "@", "--json", "~"};
    char path[TEMPORARY_PATH];
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_json *plan = ask_program(arena, words, NULL), *list, *others;
    const char *text = mcp_json_text(arena, plan);
    child_write_file(path, text, strlen(text));
    struct mcp_json *sim = ask_program(arena, again, path);
    cr_assert(eq(int, mcp_json_array(part(plan, "refined"), "plans", &list, NULL), 0));
    cr_assert(eq(int, mcp_json_array(part(plan, "search"), "runners_up", &others, NULL), 0));
    cr_expect(eq(sz, mcp_json_count(list), 5));
    cr_expect(eq(sz, mcp_json_count(others), 1)); /* --top counts what is shown */
    struct mcp_json *first = mcp_json_at(list, 0);
    cr_expect(
        epsilon_eq(dbl, number(first, "played_iteration_s"), number(sim, "iteration_s"), 1e-9));
    cr_expect(
        eq(dbl, number(first, "data_parallel"), number(part(plan, "parallel"), "data_parallel")));
    for (size_t i = 1; i < 5; i++)
        cr_expect(le(dbl, number(mcp_json_at(list, i - 1), "played_iteration_s"),
                     number(mcp_json_at(list, i), "played_iteration_s")));
    unlink(path);
    mcp_arena_free(arena);
}

Test(refine, knows_time_alone)
{
    struct child_case c = {"",
                           {"plan", "--model=tiny", "--cluster=dgx-h100", "--global-batch-size=64",
                            "--refine=3", "--objective=memory", "~"},
                           MCP_USAGE,
                           "",
                           "--refine chooses by time"};
    child_check(&c, NULL);
}
