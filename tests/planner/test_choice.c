/* tests/planner/test_choice.c: the last choice by one programme: as good as the search
 * where nothing is required, and right where something is. */
#include "core/text.h"
#include "planner/choice.h"
#include "tests/planner/question.h"
#include "tests/planner/random_problem.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>

static const struct mcp_choice_options pool = {.top = 3, .pool_frac = 0.02};

static struct mcp_requirements require(struct mcp_arena *arena, const char *const *texts, int count)
{
    struct mcp_error err = {""};
    struct mcp_requirements list = {count, MCP_ARRAY(arena, count, struct mcp_requirement)};
    for (int i = 0; i < count; i++)
        cr_assert(mcp_requirement_parse(arena, texts[i], &list.items[i], &err) == MCP_OK, "%s",
                  err.text);
    return list;
}

static struct mcp_answer choose(struct loaded *l, const char *const *texts, int count)
{
    struct mcp_answer answer;
    struct mcp_error err = {""};
    struct mcp_plan_space space = mcp_space_default();
    const struct mcp_requirements list = require(l->arena, texts, count);
    cr_assert(mcp_require_bound(&list, &space, &err) == MCP_OK, "%s", err.text);
    mcp_choose(l->arena, &l->question, &space, &list, &pool, &answer);
    return answer;
}

static struct mcp_answer search(struct loaded *l)
{
    struct mcp_answer answer;
    const struct mcp_plan_space space = mcp_space_default();
    const struct mcp_search_options options = {.top = 1, .num_threads = 1};
    mcp_search(l->arena, &l->question, &space, &options, &answer);
    return answer;
}

struct case_question {
    char model[24], cluster[16];
    int batch, length;
};
ParameterizedTestParameters(choice, agrees_with_the_search)
{
    static struct case_question cases[] = {{"llama-3.1-8b", "dgx-h100:1", 64, 4096},
                                           {"llama-3.1-8b", "dgx-h100:2", 32, 8192},
                                           {"gpt-22b", "dgx-a100:4", 64, 2048},
                                           {"mixtral-8x7b", "dgx-h100:2", 64, 4096},
                                           {"llama-3.1-70b", "dgx-h100:4", 64, 4096}};
    return cr_make_param_array(struct case_question, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_question *c, choice, agrees_with_the_search)
{
    struct loaded l;
    load_question(&l, c->model, c->cluster, c->batch, c->length);
    struct mcp_answer chosen = choose(&l, NULL, 0), searched = search(&l);
    cr_assert(gt(int, chosen.count, 0));
    cr_assert(chosen.record.proven_optimal);
    cr_expect(eq(dbl, chosen.found[0].iteration_s, searched.found[0].iteration_s), "%s", c->model);
    mcp_arena_free(l.arena);
}

/* What is required holds, and costs. */
struct case_required {
    char text[40];
    int name;
    double low, high;
};
ParameterizedTestParameters(choice, requirements_hold)
{
    static struct case_required cases[] = {
        {"tensor_parallel in 1,8", MCP_KNOB_TENSOR, 8, 8},
        {"microbatch_size!=1", MCP_KNOB_MICROBATCH, 2, 1e9},
        {"num_microbatches<=8", MCP_REQUIRE_NUM_MICROBATCHES, 1, 8},
        {"recomputed_stages<=0", MCP_REQUIRE_RECOMPUTED_STAGES, 0, 0},
        {"peak_memory_frac<=0.7", MCP_REQUIRE_PEAK_MEMORY_FRAC, 0, 0.7},
        {"bubble_frac<=0.03", MCP_REQUIRE_BUBBLE_FRAC, 0, 0.03},
        {"peak_memory_frac>=0.92", MCP_REQUIRE_PEAK_MEMORY_FRAC, 0.92, 0.94},
    };
    return cr_make_param_array(struct case_required, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_required *c, choice, requirements_hold)
{
    struct loaded l;
    const char *const texts[] = {c->text};
    load_question(&l, "llama-3.1-70b", "dgx-h100:4", 64, 4096);
    struct mcp_answer free = choose(&l, NULL, 0), answer = choose(&l, texts, 1);
    struct mcp_prediction *p = MCP_NEW(l.arena, struct mcp_prediction);
    cr_assert(gt(int, answer.count, 0), "%s", c->text);
    for (int i = 0; i < answer.count; i++) {
        const struct mcp_plan *plan = &answer.found[i].plan;
        mcp_estimate(mcp_pricer_new(l.arena, &l.question), plan, p);
        double value = mcp_require_value(&l.question, (enum mcp_require_name)c->name, plan, p);
        cr_expect(ge(dbl, value, c->low), "%s", c->text);
        cr_expect(le(dbl, value, c->high), "%s", c->text);
        cr_expect(p->fits);
        cr_expect(eq(dbl, p->iteration_s, answer.found[i].iteration_s));
        if (i > 0)
            cr_expect(ge(dbl, p->iteration_s, answer.found[i - 1].iteration_s));
    }
    cr_expect(ge(dbl, answer.found[0].iteration_s, free.found[0].iteration_s));
    mcp_arena_free(l.arena);
}

/* Schedules of which even splits alone are looked at are chosen from too. */
Test(choice, every_schedule)
{
    static const char *const texts[] = {"schedule!=interleaved", "peak_memory_frac<=0.5",
                                        "schedule in v-half,zb-h1"};
    struct loaded l;
    struct mcp_answer chosen, searched;
    struct mcp_error err = {""};
    struct mcp_plan_space space = mcp_space_default();
    const struct mcp_search_options options = {.top = 1, .num_threads = 1};
    const struct mcp_requirements none = {0, NULL};
    load_question(&l, "llama-3.1-8b", "dgx-h100:2", 32, 8192);
    space.schedules = (1u << MCP_V_MIN) * 2 - 1;
    space.knobs[MCP_KNOB_PIPELINE] = (struct mcp_interval){true, 2, 4};
    mcp_choose(l.arena, &l.question, &space, &none, &pool, &chosen);
    mcp_search(l.arena, &l.question, &space, &options, &searched);
    cr_assert(gt(int, chosen.count, 0));
    cr_expect(eq(dbl, chosen.found[0].iteration_s, searched.found[0].iteration_s));
    for (int i = 0; i < 3; i++) {
        struct mcp_prediction *p = MCP_NEW(l.arena, struct mcp_prediction);
        struct mcp_plan_space narrowed = space;
        const struct mcp_requirements list = require(l.arena, &texts[i], 1);
        cr_assert(mcp_require_bound(&list, &narrowed, &err) == MCP_OK, "%s", err.text);
        mcp_choose(l.arena, &l.question, &narrowed, &list, &pool, &chosen);
        cr_assert(gt(int, chosen.count, 0), "%s", texts[i]);
        mcp_estimate(mcp_pricer_new(l.arena, &l.question), &chosen.found[0].plan, p);
        cr_expect(eq(dbl, p->iteration_s, chosen.found[0].iteration_s), "%s", texts[i]);
        cr_expect(mcp_require_broken_priced(&list, &l.question, &chosen.found[0].plan, p) == NULL,
                  "%s", texts[i]);
        cr_expect(ge(dbl, p->iteration_s, searched.found[0].iteration_s));
    }
    mcp_arena_free(l.arena);
}

/* Runners-up have other degrees. */
Test(choice, runners_up_differ)
{
    struct loaded l;
    load_question(&l, "llama-3.1-8b", "dgx-h100:2", 64, 4096);
    struct mcp_answer answer = choose(&l, NULL, 0);
    cr_assert(gt(int, answer.count, 1));
    for (int i = 0; i < answer.count; i++)
        for (int k = 0; k < i; k++) {
            int differ = 0;
            for (int knob = MCP_KNOB_TENSOR; knob <= MCP_KNOB_EXPERT; knob++)
                differ += mcp_knob_value((enum mcp_knob)knob, &answer.found[i].plan) !=
                          mcp_knob_value((enum mcp_knob)knob, &answer.found[k].plan);
            cr_expect(gt(int, differ, 0));
        }
    mcp_arena_free(l.arena);
}

/* Nothing can meet it: no plan, and the record says why. */
Test(choice, nothing_meets_it)
{
    static const char *const texts[] = {"num_microbatches>=100000", "tensor_parallel in 2,8"};
    struct loaded l;
    load_question(&l, "llama-3.1-8b", "dgx-h100:1", 64, 4096);
    struct mcp_answer answer = choose(&l, texts, 2);
    cr_expect(eq(int, answer.count, 0));
    cr_expect(answer.record.proven_optimal);
    cr_expect(gt(i64, mcp_search_refused(&answer.record, mcp_rule_required), 0));
    mcp_arena_free(l.arena);
}

/* --- against every plan there is: tuples x cuts x recompute of each layer --- */

enum { MOST_LAYERS = 6, MOST_SETS = 6, MOST_PLANS = 30000 };

struct force {
    const struct mcp_question *question;
    struct mcp_pricer *pricer;
    struct mcp_prediction *prediction;
    bool recompute[MCP_NUM_RECOMPUTES];
    int num_sets;
    struct mcp_requirements sets[MOST_SETS];
    struct mcp_plan_space spaces[MOST_SETS];   /* each narrowed, which may pin a knob */
    bool possible[MOST_SETS], asks[MOST_SETS]; /* at all; of the tuple at hand */
    double best[MOST_SETS];                    /* seconds; INFINITY: no plan that fits meets them */
    int plans;
};

struct attempt {
    struct mcp_plan plan;
    int stage[MOST_LAYERS];
    struct mcp_recompute_run runs[MOST_LAYERS];
};

static void try_plan(struct force *f, struct attempt *a)
{
    struct mcp_chunk chunks[MOST_LAYERS] = {{0}};
    int layers = f->question->model->num_layers;
    f->plans++;
    for (int i = 0; i < layers; i++)
        chunks[a->stage[i]].num_layers++;
    for (int s = 0, first = 0; s < a->plan.pipeline_parallel; first += chunks[s++].num_layers) {
        chunks[s].first_layer = first;
        chunks[s].num_runs = chunks[s].num_layers;
        chunks[s].runs = a->runs + first;
    }
    a->plan.chunks = chunks;
    mcp_estimate(f->pricer, &a->plan, f->prediction);
    for (int i = 0; f->prediction->fits && i < f->num_sets; i++)
        if (f->asks[i] && f->prediction->iteration_s < f->best[i] &&
            mcp_require_broken_priced(&f->sets[i], f->question, &a->plan, f->prediction) == NULL)
            f->best[i] = f->prediction->iteration_s;
}

/* Each layer on the stage of the one before or on the next; the last two stages may be
 * left without. */
static void try_layers(struct force *f, struct attempt *a, int layer)
{
    int p = a->plan.pipeline_parallel, from = layer > 0 ? a->stage[layer - 1] : 0;
    if (layer == f->question->model->num_layers) {
        if (p == 1 || from >= p - 2)
            try_plan(f, a);
        return;
    }
    for (int stage = from; stage <= from + 1 && stage < p && f->plans <= MOST_PLANS; stage++)
        for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
            a->stage[layer] = stage;
            a->runs[layer] = (struct mcp_recompute_run){(enum mcp_recompute)r, 1};
            if (f->recompute[r])
                try_layers(f, a, layer + 1);
        }
}

static bool in_space(const struct mcp_question *question, const struct mcp_plan_space *space,
                     const struct mcp_plan *plan)
{
    return mcp_illegal_rule(question, plan) == NULL &&
           (!mcp_space_keeps_pipeline_rule(space) || mcp_pipeline_rule(question, plan)) &&
           (!mcp_space_keeps_batch_rule(space) || mcp_batch_rule(question, plan));
}

static void try_all(struct mcp_arena *arena, struct force *f, const struct mcp_plan_space *space)
{
    struct mcp_layout *layouts;
    int count = mcp_space_layouts(arena, f->question, space, &layouts);
    for (int i = 0; i < count; i++) {
        struct mcp_choices choices;
        mcp_space_tuples(arena, f->question, space, &layouts[i], &choices);
        int64_t tuples = mcp_choices_count(&choices);
        for (int64_t k = 0; k < tuples && f->plans <= MOST_PLANS; k += choices.recomputes.count) {
            struct attempt a;
            mcp_choices_plan(&choices, k, &a.plan);
            bool any = false;
            for (int set = 0; set < f->num_sets; set++) {
                f->asks[set] = f->possible[set] && in_space(f->question, &f->spaces[set], &a.plan);
                any = any || f->asks[set];
            }
            if (any)
                try_layers(f, &a, 0);
        }
    }
}

/* One or two of these, of which many contradict what is best. */
static struct mcp_requirements draw_requirements(struct mcp_arena *arena, uint64_t seed)
{
    static const char *const all[] = {
        "tensor_parallel in 1,4",  "data_parallel!=1",       "pipeline_parallel in 2,4",
        "num_microbatches<=2",     "num_microbatches>=4",    "recomputed_stages<=0",
        "recomputed_stages<=1",    "recomputed_layers<=2",   "recomputed_layers>=1",
        "peak_memory_frac>=0.6",   "peak_memory_frac>=0.85", "peak_memory_frac<=0.5",
        "peak_memory_frac<0.8",    "most_layers<=2",         "zero_stage!=0",
        "microbatch_size in 1,4",  "bubble_frac<=0.1",       "exposed_comm_frac<=0.02",
        "peak_memory_bytes<=6GiB", "recompute!=selective"};
    enum { COUNT = (int)(sizeof all / sizeof *all) };
    const char *texts[2] = {all[seed % COUNT], all[seed / COUNT % COUNT]};
    return require(arena, texts, seed % 3 == 0 ? 1 : 2);
}

struct seen {
    int compared, proven, met;
};

static void compare(const struct force *f, int set, const struct mcp_answer *answer,
                    const char *text, struct seen *seen)
{
    const struct mcp_search_record *record = &answer->record;
    double best = f->best[set], ns = 1e-9; /* times are compared in whole ones */
    seen->compared++;
    seen->proven += record->proven_optimal;
    seen->met += answer->count > 0;
    for (int i = 0; i < answer->count; i++) {
        const struct mcp_found *found = &answer->found[i];
        mcp_estimate(f->pricer, &found->plan, f->prediction);
        cr_expect(f->prediction->fits && f->prediction->iteration_s == found->iteration_s, "%s",
                  text);
        cr_expect(mcp_require_broken_priced(&f->sets[set], f->question, &found->plan,
                                            f->prediction) == NULL,
                  "%s", text);
    }
    if (answer->count == 0) {
        cr_expect(isinf(best) || !record->proven_optimal, "%s: none, brute %.12g", text, best);
        return;
    }
    double time = answer->found[0].iteration_s;
    cr_expect(time >= best - ns, "%s: %.12g, brute %.12g", text, time, best);
    cr_expect(best >= time * (1 - record->gap_frac) - ns, "%s: %.12g, gap %g, brute %.12g", text,
              time, record->gap_frac, best);
    cr_expect(time <= best + ns || !record->proven_optimal, "%s: %.12g, brute %.12g", text, time,
              best);
}

static void choose_sets(struct mcp_arena *arena, struct force *f,
                        const struct random_problem *problem, uint64_t seed, struct seen *seen)
{
    for (int i = 0; i < f->num_sets; i++) {
        struct mcp_answer answer;
        const struct mcp_requirements *set = &f->sets[i];
        if (!f->possible[i])
            continue;
        mcp_choose(arena, f->question, &f->spaces[i], set, &pool, &answer);
        const char *text = mcp_format(
            arena, "seed %d, %s%s%s: %s", (int)seed, set->items[0].text, set->count > 1 ? ", " : "",
            set->count > 1 ? set->items[1].text : "", random_problem_describe(arena, problem));
        compare(f, i, &answer, text, seen);
    }
}

static void try_seed(uint64_t seed, const struct problem_size *size, struct seen *seen)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct random_problem problem = {0};
    random_problem_draw(arena, seed, size, &problem);
    problem.space.knobs[MCP_KNOB_VIRTUAL_STAGES] = (struct mcp_interval){true, 1, 1};
    if (!problem.space.knobs[MCP_KNOB_PIPELINE].given)
        problem.space.knobs[MCP_KNOB_PIPELINE] = (struct mcp_interval){true, 1, 4};
    struct force f = {.question = &problem.drawn.question, .num_sets = MOST_SETS};
    const struct mcp_interval *recompute = &problem.space.knobs[MCP_KNOB_RECOMPUTE];
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++)
        f.recompute[r] = !recompute->given || (recompute->low <= r && r <= recompute->high);
    f.pricer = mcp_pricer_new(arena, f.question);
    f.prediction = MCP_NEW(arena, struct mcp_prediction);
    for (int i = 0; i < MOST_SETS; i++) {
        f.sets[i] = draw_requirements(arena, seed * 97 + (uint64_t)i * 61);
        f.spaces[i] = problem.space;
        f.possible[i] = mcp_require_bound(&f.sets[i], &f.spaces[i], NULL) == MCP_OK &&
                        mcp_space_check(f.question, &f.spaces[i], NULL) == MCP_OK;
        f.best[i] = (double)INFINITY;
    }
    if (mcp_space_check(f.question, &problem.space, NULL) == MCP_OK)
        try_all(arena, &f, &problem.space);
    if (f.plans > 0 && f.plans <= MOST_PLANS)
        choose_sets(arena, &f, &problem, seed, seen);
    mcp_arena_free(arena);
}

static void expect_chosen(uint64_t seed, int problems, const struct problem_size *size)
{
    struct seen seen = {0};
    problems = random_problem_count(problems);
    for (; seen.compared < problems; seed++)
        try_seed(seed, size, &seen);
    cr_log_info("%d problems, %d met, %d proven", seen.compared, seen.met, seen.proven);
    cr_expect(gt(int, seen.met, seen.compared / 4));
    cr_expect(gt(int, seen.proven, seen.compared / 2));
}

Test(choice, equals_brute_force)
{
    const struct problem_size size = {5, 2, 4, 8, 30, 0, false};
    expect_chosen(1, 240, &size);
}

Test(choice, equals_brute_force_on_mixed_clusters)
{
    const struct problem_size size = {5, 1, 4, 8, 20, 100, false};
    expect_chosen(5000, 60, &size);
}
