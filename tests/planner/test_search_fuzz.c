/* tests/planner/test_search_fuzz.c: what the search says of random problems is true.
 *
 * It ends; what it finds is legal, costs what is said and runs (step/verify.h); what it
 * counts adds up; and the search without bounds (planner/exhaustive.h) knows nothing
 * better. MCP_PROBLEMS=5000 asks for more problems than a suite has time for. */
#include "core/text.h"
#include "step/build.h"
#include "step/verify.h"
#include "tests/planner/random_problem.h"

#include <criterion/criterion.h>
#include <string.h>

struct seen {
    int refused, answered, empty, verified, compared, unproven, mixed;
};

struct trial {
    struct mcp_arena *arena;
    const struct random_problem *problem;
    struct mcp_answer answer;
    const char *text; /* the problem, for people */
    struct seen *seen;
};

static struct mcp_answer search(const struct trial *t, struct mcp_search_options options)
{
    struct mcp_answer answer;
    options.objective = t->problem->objective;
    options.uniform = t->problem->uniform;
    mcp_search(t->arena, &t->problem->drawn.question, &t->problem->space, &options, &answer);
    return answer;
}

/* --- plans --- */

/* Pins and bounds are kept. Recompute that differs is judged layer by layer. */
static void expect_asked(const struct trial *t, const struct mcp_plan *plan)
{
    const struct mcp_interval *knobs = t->problem->space.knobs, *asked = &knobs[MCP_KNOB_RECOMPUTE];
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    for (int k = 0; k < MCP_NUM_KNOBS; k++) {
        int value = mcp_knob_value((enum mcp_knob)k, plan);
        bool means = k != MCP_KNOB_RECOMPUTE && (k != MCP_KNOB_RESHARD || plan->zero_stage == 3);
        cr_expect(!means || !knobs[k].given || (knobs[k].low <= value && value <= knobs[k].high),
                  "%s: %s=%d", t->text, mcp_knob_names[k], value);
    }
    for (int k = 0; k < stages; k++)
        for (int i = 0; asked->given && i < plan->chunks[k].num_runs; i++) {
            int recompute = (int)plan->chunks[k].runs[i].recompute;
            cr_expect(asked->low <= recompute && recompute <= asked->high, "%s: recompute %d",
                      t->text, recompute);
        }
}

/* The program of the plan keeps all of its promises. Large ones take too long here. */
static void expect_runs(const struct trial *t, const struct mcp_plan *plan)
{
    struct mcp_program program;
    struct mcp_error err = {""};
    const struct mcp_question *question = &t->problem->drawn.question;
    if (mcp_num_microbatches(plan, question->job) * question->model->num_layers > 100)
        return;
    struct mcp_arena *arena = mcp_arena_new();
    mcp_program_build(arena, question, plan, &program);
    cr_expect(mcp_program_verify(arena, &program, &err) == MCP_OK, "%s: %s", t->text, err.text);
    mcp_arena_free(arena);
    t->seen->verified++;
}

static void expect_true(const struct trial *t, const struct mcp_found *found, bool fits)
{
    struct mcp_refusals refusals = {0};
    const struct mcp_question *question = &t->problem->drawn.question;
    bool legal = mcp_legal(t->arena, question, &found->plan, &refusals);
    cr_expect(legal, "%s: %s", t->text, refusals.items[0].text);
    if (!legal)
        return;
    struct mcp_pricer *pricer = mcp_pricer_new(t->arena, question);
    struct mcp_prediction *prediction = MCP_NEW(t->arena, struct mcp_prediction);
    mcp_estimate(pricer, &found->plan, prediction);
    cr_expect(prediction->iteration_s == found->iteration_s, "%s: takes %.12g, says %.12g", t->text,
              prediction->iteration_s, found->iteration_s);
    cr_expect(prediction->peak_memory_bytes == found->peak_memory_bytes, "%s: bytes", t->text);
    cr_expect(prediction->fits || !fits, "%s: does not fit", t->text);
    expect_asked(t, &found->plan);
}

/* --- the answer --- */

static bool same_layout(const struct mcp_plan *a, const struct mcp_plan *b)
{
    bool same = true;
    for (int k = MCP_KNOB_TENSOR; k <= MCP_KNOB_EXPERT; k++)
        same = same && mcp_knob_value((enum mcp_knob)k, a) == mcp_knob_value((enum mcp_knob)k, b);
    return same;
}

static double value_of(const struct trial *t, const struct mcp_found *found)
{
    return t->problem->objective == MCP_OBJECTIVE_MEMORY ? (double)found->peak_memory_bytes
                                                         : found->iteration_s;
}

static void expect_ordered(const struct trial *t)
{
    const struct mcp_answer *a = &t->answer;
    for (int i = 1; i < a->count; i++) {
        cr_expect(value_of(t, &a->found[i]) >= value_of(t, &a->found[i - 1]), "%s: runner-up %d",
                  t->text, i);
        for (int k = 0; k < i; k++)
            cr_expect(!same_layout(&a->found[i].plan, &a->found[k].plan), "%s: %d and %d", t->text,
                      i, k);
    }
}

static void expect_adds_up(const struct trial *t, const struct mcp_search_record *record)
{
    int64_t sum = record->bounded + record->fitting;
    for (int i = 0; i < record->num_refused; i++)
        sum += record->refused[i].count;
    cr_expect(sum == record->candidates, "%s: %lld of %lld candidates", t->text, (long long)sum,
              (long long)record->candidates);
    cr_expect(record->proven_optimal || record->gap_frac > 0, "%s: no gap, no proof", t->text);
}

static void expect_answer(const struct trial *t)
{
    const struct mcp_answer *a = &t->answer;
    for (int i = 0; i < a->count; i++)
        expect_true(t, &a->found[i], true);
    for (int k = 0; k < 2; k++)
        if (a->has_beyond[k])
            expect_true(t, &a->beyond[k], true);
    if (a->has_smallest)
        expect_true(t, &a->smallest, false);
    if (a->count > 0)
        expect_runs(t, &a->found[0].plan);
    expect_ordered(t);
    expect_adds_up(t, &a->record);
    t->seen->answered += a->count > 0;
    t->seen->empty += a->count == 0;
    t->seen->unproven += !a->record.proven_optimal;
}

/* --- against the search without bounds --- */

static int64_t count_tuples(const struct trial *t)
{
    int64_t tuples = 0;
    struct mcp_layout *layouts;
    struct mcp_choices choices;
    const struct mcp_question *question = &t->problem->drawn.question;
    int count = mcp_space_layouts(t->arena, question, &t->problem->space, &layouts);
    for (int i = 0; i < count; i++) {
        mcp_space_tuples(t->arena, question, &t->problem->space, &layouts[i], &choices);
        tuples += mcp_choices_count(&choices) / choices.recomputes.count;
    }
    return tuples;
}

static void expect_no_better(const struct trial *t, const struct mcp_answer *than,
                             const struct mcp_answer *proven, const char *who)
{
    if (!proven->record.proven_optimal || than->count == 0)
        return;
    cr_expect(proven->count > 0, "%s: nothing fits, says %s", t->text, who);
    cr_expect(proven->count == 0 || value_of(t, &proven->found[0]) <= value_of(t, &than->found[0]),
              "%s: %s says %.12g, there is %.12g", t->text, who, value_of(t, &proven->found[0]),
              value_of(t, &than->found[0]));
}

static void expect_exhaustive(const struct trial *t)
{
    const struct mcp_answer *a = &t->answer;
    const struct mcp_answer all =
        search(t, (struct mcp_search_options){
                      .top = 1, .exhaustive = true, .smallest = a->has_smallest, .num_threads = 1});
    expect_adds_up(t, &all.record);
    expect_no_better(t, &all, a, "the search");
    expect_no_better(t, a, &all, "the search of all");
    cr_expect(all.record.candidates == a->record.candidates, "%s: candidates", t->text);
    cr_expect(all.record.bounded == 0, "%s: bounded", t->text);
    bool proven = a->record.proven_optimal && all.record.proven_optimal;
    cr_expect((a->record.fitting > 0) == (all.record.fitting > 0) || !proven,
              "%s: %lld fit, of all %lld", t->text, (long long)a->record.fitting,
              (long long)all.record.fitting);
    if (a->has_smallest)
        cr_expect(all.has_smallest &&
                      all.smallest.peak_memory_bytes == a->smallest.peak_memory_bytes,
                  "%s: the smallest", t->text);
    t->seen->compared++;
}

/* --- the same again --- */

static const char *to_text(const struct trial *t, const struct mcp_answer *answer)
{
    struct mcp_text text = mcp_text_new(t->arena);
    for (int i = 0; i < answer->count; i++) {
        struct mcp_json *json = mcp_json_new_object(t->arena);
        mcp_plan_to_json(&answer->found[i].plan, json);
        mcp_text_add(&text, "%s %a %lld\n", mcp_json_text(t->arena, json),
                     answer->found[i].iteration_s, (long long)answer->found[i].peak_memory_bytes);
    }
    const struct mcp_search_record *r = &answer->record;
    mcp_text_add(&text, "%lld %lld %lld %lld %d %a", (long long)r->bounded, (long long)r->priced,
                 (long long)r->fitting, (long long)r->milps, r->proven_optimal, r->gap_frac);
    for (int i = 0; i < r->num_refused; i++)
        mcp_text_add(&text, " %s %lld", r->refused[i].rule, (long long)r->refused[i].count);
    return text.data;
}

static void expect_same_again(const struct trial *t, struct mcp_search_options options)
{
    options.num_threads = 2;
    const struct mcp_answer two = search(t, options);
    const char *a = to_text(t, &t->answer), *b = to_text(t, &two);
    cr_expect(strcmp(a, b) == 0, "%s: with one thread\n%s\nwith two\n%s", t->text, a, b);
}

/* A mixed cluster's pools named in the other order. */
static void expect_same_turned(const struct trial *t, const struct mcp_search_options *options)
{
    struct random_problem turned = *t->problem;
    struct mcp_answer answer;
    turned.drawn.cluster = t->problem->other;
    turned.other = t->problem->drawn.cluster;
    turned.drawn.cluster.next = &turned.other;
    turned.other.next = NULL;
    turned.drawn.question.model = &turned.drawn.model;
    turned.drawn.question.cluster = &turned.drawn.cluster;
    turned.drawn.question.job = &turned.drawn.job;
    turned.drawn.question.stack = &turned.drawn.stack;
    struct trial other = *t;
    other.problem = &turned;
    answer = search(&other, *options);
    if (!answer.record.proven_optimal || !t->answer.record.proven_optimal)
        return;
    cr_expect((answer.count > 0) == (t->answer.count > 0), "%s: turned", t->text);
    if (answer.count > 0 && t->answer.count > 0)
        cr_expect(value_of(t, &answer.found[0]) == value_of(t, &t->answer.found[0]),
                  "%s: turned %.12g, was %.12g", t->text, value_of(t, &answer.found[0]),
                  value_of(t, &t->answer.found[0]));
}

/* --- problems --- */

static void try_problem(struct trial *t, uint64_t seed, int64_t most_tuples)
{
    const struct mcp_search_options options = {
        .top = 1 + (int)(seed % 4), .smallest = seed % 3 == 0, .num_threads = 1};
    t->answer = search(t, options);
    expect_answer(t);
    if (count_tuples(t) <= most_tuples)
        expect_exhaustive(t);
    if (seed % 4 == 1)
        expect_same_again(t, options);
    if (t->problem->drawn.cluster.next != NULL && seed % 2 == 0)
        expect_same_turned(t, &options);
    t->seen->mixed += t->problem->drawn.cluster.next != NULL;
}

static void try_seed(uint64_t seed, const struct problem_size *size, int64_t most_tuples,
                     struct seen *seen)
{
    struct mcp_error err = {""};
    struct random_problem problem = {0};
    struct trial t = {.arena = mcp_arena_new(), .problem = &problem, .seen = seen};
    random_problem_draw(t.arena, seed, size, &problem);
    t.text =
        mcp_format(t.arena, "seed %d: %s", (int)seed, random_problem_describe(t.arena, &problem));
    if (mcp_space_check(&problem.drawn.question, &problem.space, &err) == MCP_OK)
        try_problem(&t, seed, most_tuples);
    else
        seen->refused++;
    mcp_arena_free(t.arena);
}

static void fuzz(uint64_t seed, int problems, int64_t most_tuples, const struct problem_size *size)
{
    struct seen seen = {0};
    problems = random_problem_count(problems);
    for (int i = 0; i < problems; i++)
        try_seed(seed + (uint64_t)i, size, most_tuples, &seen);
    cr_log_info("%d problems: %d refused, %d answered, %d infeasible, %d not proven, %d mixed; %d "
                "programs verified, %d compared",
                problems, seen.refused, seen.answered, seen.empty, seen.unproven, seen.mixed,
                seen.verified, seen.compared);
    cr_expect(seen.answered > problems / 4, "%d", seen.answered);
    cr_expect(seen.empty > problems / 50, "%d", seen.empty);
    cr_expect(seen.compared > problems / 5, "%d", seen.compared);
    cr_expect(seen.verified > problems / 10, "%d", seen.verified);
}

Test(search_fuzz, small_problems)
{
    const struct problem_size size = {8, 2, 4, 24, 18, 10, false};
    fuzz(300000, 200, 400, &size);
}

Test(search_fuzz, larger_problems)
{
    const struct problem_size size = {16, 4, 8, 100, 12, 0, false};
    fuzz(400000, 60, 200, &size);
}

/* Nodes of three GPUs, for three context ranks: bounds hold whatever orders are asked for. */
Test(search_fuzz, orders_without_the_usual)
{
    const struct problem_size size = {4, 2, 4, 8, 0, 0, false};
    struct seen seen = {0};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct random_problem problem = {0};
        struct trial t = {.arena = mcp_arena_new(), .problem = &problem, .seen = &seen};
        random_problem_draw(t.arena, seed, &size, &problem);
        struct mcp_cluster *cluster = &problem.drawn.cluster;
        cluster->num_nodes = 2;
        cluster->gpus_per_node = cluster->tiers[0].ranks = cluster->tiers[0].full_ranks = 3;
        cluster->tiers[cluster->num_tiers - 1].ranks = 6;
        cluster->gpu.memory_bytes = (int64_t)1 << 40;
        problem.drawn.job.global_batch_size = 8;
        problem.drawn.job.sequence_length = 768;
        problem.objective = MCP_OBJECTIVE_TIME;
        problem.uniform = true;
        problem.space = mcp_space_default();
        problem.space.pipeline_rule = problem.space.batch_rule = false;
        mcp_space_pin(&problem.space, MCP_KNOB_RECOMPUTE, MCP_RECOMPUTE_NONE);
        mcp_space_pin(&problem.space, MCP_KNOB_MICROBATCH, 1);
        problem.space.knobs[MCP_KNOB_RANK_ORDER] =
            (struct mcp_interval){true, 3 + 2 * (int)(seed % 2), MCP_NUM_RANK_ORDERS - 1};
        t.text = mcp_format(t.arena, "seed %d: %s", (int)seed,
                            random_problem_describe(t.arena, &problem));
        t.answer = search(&t, (struct mcp_search_options){.top = 1, .num_threads = 1});
        expect_exhaustive(&t);
        mcp_arena_free(t.arena);
    }
    cr_expect(seen.compared == 60);
}
