/* tests/planner/test_search.c: the best plan is the best, whoever asks. */
#include "core/text.h"
#include "planner/search.h"
#include "tests/planner/question.h"
#include "tests/step/random_plan.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

/* Brute force that shares nothing with the planner but legality and prices. */
struct brute {
    const struct mcp_question *question;
    struct mcp_arena *arena;
    struct mcp_pricer *pricer;
    struct mcp_prediction *prediction;
    enum mcp_objective objective;
    bool orders, any;
    double best_s;
    int64_t best_bytes;
    int64_t candidates, fitting, refused_by_memory, priced;
};

static bool try_plan(struct brute *b, const struct mcp_plan *plan)
{
    mcp_estimate(b->pricer, plan, b->prediction);
    double time = b->prediction->iteration_s;
    int64_t bytes = b->prediction->peak_memory_bytes;
    b->priced++;
    if (!b->prediction->fits)
        return false;
    bool better = time < b->best_s || (time == b->best_s && bytes < b->best_bytes);
    if (b->objective == MCP_OBJECTIVE_MEMORY)
        better = bytes < b->best_bytes || (bytes == b->best_bytes && time < b->best_s);
    if (!b->any || better) {
        b->best_s = time;
        b->best_bytes = bytes;
    }
    b->any = true;
    return true;
}

static void try_recomputes(struct brute *b, struct mcp_plan plan)
{
    bool fits = false;
    b->candidates++;
    if (mcp_illegal_rule(b->question, &plan) || !mcp_pipeline_rule(b->question, &plan) ||
        !mcp_batch_rule(b->question, &plan))
        return;
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
        struct mcp_mark mark = mcp_arena_mark(b->arena);
        mcp_plan_uniform_chunks(b->arena, &plan, b->question->model->num_layers,
                                (enum mcp_recompute)r);
        fits |= try_plan(b, &plan);
        mcp_arena_rewind(b->arena, mark);
    }
    b->fitting += fits;
    b->refused_by_memory += !fits;
}

/* Every order of the axes, equal or not. */
static void try_orders(struct brute *b, struct mcp_plan plan)
{
    if (!b->orders) {
        try_recomputes(b, plan);
        return;
    }
    for (int i = 0; i < 256; i++) {
        const int axis[4] = {i & 3, i >> 2 & 3, i >> 4 & 3, i >> 6};
        unsigned seen = 0;
        for (int k = 0; k < 4; k++) {
            plan.rank_order[k] = (enum mcp_axis)(1 << axis[k]);
            seen |= (unsigned)plan.rank_order[k];
        }
        if (seen == 15)
            try_recomputes(b, plan);
    }
}

static void try_memory_choices(struct brute *b, struct mcp_plan plan)
{
    int64_t replica = b->question->job->global_batch_size / plan.data_parallel;
    int stage_ranks = plan.tensor_parallel * plan.context_parallel * plan.data_parallel;
    bool copies =
        plan.context_parallel * plan.data_parallel > 1 || stage_ranks > plan.expert_parallel;
    for (plan.microbatch_size = 1; plan.microbatch_size <= replica; plan.microbatch_size++) {
        if (replica % plan.microbatch_size != 0)
            continue;
        for (plan.zero_stage = 0; plan.zero_stage <= (copies ? 3 : 0); plan.zero_stage++)
            for (int keeps = 0; keeps <= (plan.zero_stage == 3); keeps++) {
                plan.reshard_after_forward = !keeps;
                try_orders(b, plan);
            }
    }
}

static void try_schedules(struct brute *b, struct mcp_plan plan)
{
    int layers = b->question->model->num_layers, p = plan.pipeline_parallel, largest = 1 << 30;
    for (int v = 1; v == 1 || (p > 1 && p * v <= layers); v++) {
        int chunk = (layers + p * v - 1) / (p * v);
        if (v > 1 && chunk == largest)
            continue;
        largest = chunk;
        plan.virtual_stages = v;
        plan.schedule = v > 1 ? MCP_INTERLEAVED : MCP_1F1B;
        try_memory_choices(b, plan);
        if (v == 1 && p > 1) {
            plan.schedule = MCP_GPIPE;
            try_memory_choices(b, plan);
        }
    }
}

static void try_kinds(struct brute *b, struct mcp_plan plan)
{
    for (int kind = 0; kind < (plan.context_parallel > 1 ? MCP_NUM_CONTEXT_KINDS : 1); kind++)
        for (int sp = 0; sp <= (plan.tensor_parallel > 1); sp++) {
            plan.context_parallel_kind = (enum mcp_context_kind)kind;
            plan.sequence_parallel = sp;
            try_schedules(b, plan);
        }
}

static void try_all(struct brute *b, int num_experts)
{
    int gpus = mcp_cluster_gpus(b->question->cluster);
    struct mcp_plan plan = mcp_plan_default();
    plan.overlap = (struct mcp_overlap){true, true, true, true, true, true};
    for (int t = 1; t <= gpus; t++)
        for (int c = 1; c <= gpus; c++)
            for (int p = 1; p <= gpus; p++) {
                if (gpus % (t * c * p) != 0)
                    continue;
                plan.tensor_parallel = t;
                plan.context_parallel = c;
                plan.pipeline_parallel = p;
                plan.data_parallel = gpus / (t * c * p);
                for (int e = 1; e <= num_experts; e++) {
                    plan.expert_parallel = e;
                    if (num_experts % e == 0 && gpus / p % e == 0)
                        try_kinds(b, plan);
                }
            }
}

static struct brute brute_force(struct loaded *l, int num_experts, enum mcp_objective objective,
                                bool orders)
{
    struct brute b = {.question = &l->question,
                      .arena = mcp_arena_new(),
                      .objective = objective,
                      .orders = orders};
    b.pricer = mcp_pricer_new(l->arena, &l->question);
    b.prediction = MCP_NEW(l->arena, struct mcp_prediction);
    try_all(&b, num_experts);
    mcp_arena_free(b.arena);
    return b;
}

static struct mcp_answer ask(struct loaded *l, const struct mcp_plan_space *space,
                             struct mcp_search_options options)
{
    struct mcp_answer answer;
    mcp_search(l->arena, &l->question, space, &options, &answer);
    return answer;
}

static int64_t all_refused(const struct mcp_search_record *record)
{
    int64_t sum = 0;
    for (int i = 0; i < record->num_refused; i++)
        sum += record->refused[i].count;
    return sum;
}

struct case_brute {
    char name[40], model[24], cluster[16];
    int batch, experts;
    enum mcp_objective objective;
};
ParameterizedTestParameters(search, equals_brute_force)
{
    static struct case_brute cases[] = {
        {"8 B on 8", "llama-3.1-8b", "dgx-h100:1", 16, 1, MCP_OBJECTIVE_TIME},
        {"8 B on 8, least memory", "llama-3.1-8b", "dgx-h100:1", 16, 1, MCP_OBJECTIVE_MEMORY},
        {"GPT-2 on 16", "gpt2", "dgx-a100:2", 32, 1, MCP_OBJECTIVE_TIME},
        {"22 B on 8", "gpt-22b", "dgx-a100:1", 8, 1, MCP_OBJECTIVE_TIME},
        {"Mixtral on 16", "mixtral-8x7b", "dgx-h100:2", 16, 8, MCP_OBJECTIVE_TIME},
    };
    return cr_make_param_array(struct case_brute, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_brute *c, search, equals_brute_force)
{
    struct loaded l;
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, c->model, c->cluster, c->batch, 1024);
    struct brute b = brute_force(&l, c->experts, c->objective, false);
    space.usual_order = true;
    struct mcp_answer quick =
        ask(&l, &space,
            (struct mcp_search_options){
                .objective = c->objective, .top = 1, .uniform = true, .num_threads = 1});
    struct mcp_answer full = ask(&l, &space,
                                 (struct mcp_search_options){.objective = c->objective,
                                                             .top = 1,
                                                             .uniform = true,
                                                             .exhaustive = true,
                                                             .num_threads = 1});
    cr_assert(gt(i64, b.fitting, 0), "%s", c->name);
    cr_assert(eq(int, quick.count, 1), "%s", c->name);
    cr_expect(eq(dbl, quick.found[0].iteration_s, b.best_s), "%s", c->name);
    cr_expect(eq(i64, quick.found[0].peak_memory_bytes, b.best_bytes), "%s", c->name);
    cr_expect(eq(dbl, full.found[0].iteration_s, b.best_s), "%s", c->name);
    cr_expect(eq(i64, full.record.candidates, b.candidates), "%s", c->name);
    cr_expect(eq(i64, full.record.priced, b.priced), "%s", c->name);
    cr_expect(eq(i64, mcp_search_refused(&full.record, mcp_rule_memory), b.refused_by_memory));
    cr_expect(eq(i64, full.record.fitting, b.fitting));
    cr_expect(eq(i64, full.record.bounded, 0));
    cr_expect(lt(i64, quick.record.priced, full.record.priced));
    mcp_arena_free(l.arena);
}

/* Every candidate is accounted for once, with and without the short cut. */
Test(search, record_adds_up)
{
    struct loaded l;
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, "llama-3.1-70b", "dgx-h100:4", 64, 4096);
    l.model.num_layers = 12;
    for (int exhaustive = 0; exhaustive <= 1; exhaustive++) {
        struct mcp_answer a = ask(&l, &space,
                                  (struct mcp_search_options){.objective = MCP_OBJECTIVE_TIME,
                                                              .top = 3,
                                                              .uniform = exhaustive,
                                                              .exhaustive = exhaustive,
                                                              .num_threads = 2});
        const struct mcp_search_record *r = &a.record;
        cr_expect(eq(i64, r->candidates, all_refused(r) + r->bounded + r->fitting));
        cr_expect(lt(i64, r->fitting, r->priced));
        cr_expect(eq(int, a.count, 3));
        cr_expect(r->proven_optimal);
    }
    mcp_arena_free(l.arena);
}

static void expect_same_found(const struct mcp_found *a, const struct mcp_found *b)
{
    cr_expect(eq(dbl, a->iteration_s, b->iteration_s));
    cr_expect(eq(i64, a->peak_memory_bytes, b->peak_memory_bytes));
    for (int k = 0; k < MCP_NUM_KNOBS; k++)
        cr_expect(eq(int, mcp_knob_value((enum mcp_knob)k, &a->plan),
                     mcp_knob_value((enum mcp_knob)k, &b->plan)),
                  "%s", mcp_knob_names[k]);
}

Test(search, threads_change_nothing)
{
    struct loaded l;
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, "mixtral-8x7b", "dgx-h100:4", 64, 4096);
    l.model.num_layers = 12;
    struct mcp_answer one = ask(
        &l, &space,
        (struct mcp_search_options){.objective = MCP_OBJECTIVE_TIME, .top = 5, .num_threads = 1});
    for (int threads = 2; threads <= 5; threads += 3) {
        struct mcp_answer many =
            ask(&l, &space,
                (struct mcp_search_options){
                    .objective = MCP_OBJECTIVE_TIME, .top = 5, .num_threads = threads});
        cr_assert(eq(int, many.count, one.count));
        for (int i = 0; i < one.count; i++)
            expect_same_found(&one.found[i], &many.found[i]);
        cr_expect(eq(i64, many.record.candidates, one.record.candidates));
        cr_expect(eq(i64, many.record.priced, one.record.priced));
        cr_expect(eq(i64, many.record.bounded, one.record.bounded));
        cr_assert(eq(int, many.record.num_refused, one.record.num_refused));
        for (int i = 0; i < one.record.num_refused; i++) {
            cr_expect(mcp_same(many.record.refused[i].rule, one.record.refused[i].rule));
            cr_expect(eq(i64, many.record.refused[i].count, one.record.refused[i].count));
        }
    }
    mcp_arena_free(l.arena);
}

/* Runners-up are worse, in order, and of other layouts. */
Test(search, keeps_the_best_of_other_layouts)
{
    struct loaded l;
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, "llama-3.1-8b", "dgx-h100:2", 64, 4096);
    l.model.num_layers = 12;
    struct mcp_answer a = ask(
        &l, &space,
        (struct mcp_search_options){.objective = MCP_OBJECTIVE_TIME, .top = 8, .num_threads = 2});
    cr_assert(eq(int, a.count, 8));
    for (int i = 1; i < a.count; i++) {
        cr_expect(ge(dbl, a.found[i].iteration_s, a.found[i - 1].iteration_s));
        for (int j = 0; j < i; j++) {
            bool same = true;
            for (int k = MCP_KNOB_TENSOR; k <= MCP_KNOB_EXPERT; k++)
                same &= mcp_knob_value((enum mcp_knob)k, &a.found[i].plan) ==
                        mcp_knob_value((enum mcp_knob)k, &a.found[j].plan);
            cr_expect(not(same), "%d and %d", i, j);
        }
    }
    mcp_arena_free(l.arena);
}

/* A pin is kept, never makes the best plan better, and asking for what the free
 * search chose finds the same plan. */
Test(search, pins_are_kept)
{
    struct loaded l;
    struct mcp_plan_space space = mcp_space_default();
    const struct mcp_search_options options = {
        .objective = MCP_OBJECTIVE_TIME, .top = 1, .num_threads = 2};
    load_question(&l, "llama-3.1-8b", "dgx-h100:2", 64, 4096);
    l.model.num_layers = 12;
    struct mcp_answer best = ask(&l, &space, options);
    space.pipeline_rule = space.batch_rule = false;
    struct mcp_answer lifted = ask(&l, &space, options);
    for (int k = 0; k < MCP_NUM_KNOBS; k++) {
        struct mcp_plan_space pinned = mcp_space_default();
        int value = mcp_knob_value((enum mcp_knob)k, &best.found[0].plan);
        if (k == MCP_KNOB_RECOMPUTE && value == MCP_NUM_RECOMPUTES)
            continue; /* layers differ in it */
        mcp_space_pin(&pinned, (enum mcp_knob)k, value);
        struct mcp_answer again = ask(&l, &pinned, options);
        cr_assert(eq(int, again.count, 1), "%s", mcp_knob_names[k]);
        cr_expect(le(dbl, again.found[0].iteration_s, best.found[0].iteration_s));
        cr_expect(ge(dbl, again.found[0].iteration_s, lifted.found[0].iteration_s));
        cr_expect(eq(int, mcp_knob_value((enum mcp_knob)k, &again.found[0].plan), value));
    }
    mcp_arena_free(l.arena);
}

/* Rank orders that lie alike on the links are left out, not those that matter. */
struct case_order {
    char name[24], model[24], cluster[16];
    int batch, experts;
};
ParameterizedTestParameters(search, orders_equal_brute_force)
{
    static struct case_order cases[] = {
        {"dense", "llama-3.1-8b", "dgx-a100:2", 16, 1},
        {"experts", "mixtral-8x7b", "dgx-h100:2", 16, 8},
    };
    return cr_make_param_array(struct case_order, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_order *c, search, orders_equal_brute_force)
{
    struct loaded l;
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, c->model, c->cluster, c->batch, 1024);
    l.model.num_layers = 12;
    for (int tier = 0; tier < l.cluster.num_tiers; tier++) /* so that links count */
        l.cluster.tiers[tier].bandwidth_bytes_per_s /= 16;
    struct brute b = brute_force(&l, c->experts, MCP_OBJECTIVE_TIME, true);
    struct mcp_answer quick =
        ask(&l, &space,
            (struct mcp_search_options){
                .objective = MCP_OBJECTIVE_TIME, .top = 1, .uniform = true, .num_threads = 1});
    cr_assert(eq(int, quick.count, 1));
    cr_expect(eq(dbl, quick.found[0].iteration_s, b.best_s), "%s", c->name);
    cr_expect(eq(i64, quick.found[0].peak_memory_bytes, b.best_bytes), "%s", c->name);
    mcp_arena_free(l.arena);
}

/* Why plans may be left unpriced, on random questions: GPipe neither ends earlier nor
 * holds less than 1F1B; recompute never ends earlier than none; an overlap that is switched
 * on never costs. */
Test(search, dominance_holds)
{
    int compared = 0, pipelines = 0;
    for (uint64_t seed = 0; seed < 1500; seed++) {
        struct random_plan drawn;
        struct mcp_arena *arena = mcp_arena_new();
        random_plan_draw(arena, seed, &drawn);
        struct mcp_plan *plan = &drawn.plan;
        struct mcp_pricer *pricer = mcp_pricer_new(arena, &drawn.question);
        struct mcp_prediction *p = MCP_ARRAY(arena, 2, struct mcp_prediction);
        if (plan->virtual_stages == 1 && plan->pipeline_parallel > 1) {
            plan->schedule = MCP_1F1B;
            mcp_estimate(pricer, plan, &p[0]);
            plan->schedule = MCP_GPIPE;
            mcp_estimate(pricer, plan, &p[1]);
            cr_expect(le(dbl, p[0].iteration_s, p[1].iteration_s), "seed %d", (int)seed);
            cr_expect(le(i64, p[0].peak_memory_bytes, p[1].peak_memory_bytes), "%d", (int)seed);
            plan->schedule = MCP_1F1B;
            pipelines++;
        }
        for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
            mcp_plan_uniform_chunks(arena, plan, drawn.model.num_layers, (enum mcp_recompute)r);
            mcp_estimate(pricer, plan, &p[r > 0]);
            cr_expect(ge(dbl, p[r > 0].iteration_s, p[0].iteration_s), "seed %d, %d", (int)seed, r);
        }
        bool *const switches[] = {&plan->overlap.tensor,   &plan->overlap.data,
                                  &plan->overlap.pipeline, &plan->overlap.expert,
                                  &plan->overlap.gather,   &plan->overlap.context};
        for (int i = 0; i < 6; i++) {
            *switches[i] = false;
            mcp_estimate(pricer, plan, &p[0]);
            *switches[i] = true;
            mcp_estimate(pricer, plan, &p[1]);
            cr_expect(le(dbl, p[1].iteration_s, p[0].iteration_s), "seed %d, switch %d", (int)seed,
                      i);
        }
        compared++;
        mcp_arena_free(arena);
    }
    cr_expect(gt(int, compared, 1000));
    cr_expect(gt(int, pipelines, 200));
}

/* What a rule costs is what lifting it finds. */
Test(search, rules_are_priced)
{
    struct loaded l;
    struct mcp_plan_space space = mcp_space_default();
    const struct mcp_search_options options = {
        .objective = MCP_OBJECTIVE_TIME, .top = 1, .num_threads = 2};
    load_question(&l, "llama-3.1-8b", "dgx-a100:2", 48, 2048);
    l.model.num_layers = 12;
    struct mcp_answer kept = ask(&l, &space, options);
    struct mcp_plan_space without[2] = {space, space};
    without[0].pipeline_rule = false;
    without[1].batch_rule = false;
    for (int i = 0; i < 2; i++) {
        struct mcp_answer lifted = ask(&l, &without[i], options);
        cr_assert(kept.has_beyond[i], "rule %d refuses nothing", i);
        double best = kept.found[0].iteration_s, beyond = kept.beyond[i].iteration_s;
        cr_expect(eq(dbl, lifted.found[0].iteration_s, beyond < best ? beyond : best));
        cr_expect(eq(i64, lifted.record.candidates, kept.record.candidates));
    }
    mcp_arena_free(l.arena);
}

/* 70 B: baseline, then recompute, then ZeRO-3 too: each takes less memory. */
Test(search, memory_waterfall)
{
    struct loaded l;
    load_question(&l, "llama-3.1-70b", "dgx-h100:8", 512, 4096);
    struct mcp_pricer *pricer = mcp_pricer_new(l.arena, &l.question);
    struct mcp_prediction *p = MCP_ARRAY(l.arena, 3, struct mcp_prediction);
    struct mcp_plan plan = mcp_plan_default();
    plan.tensor_parallel = 4;
    plan.pipeline_parallel = 4;
    plan.data_parallel = 4;
    plan.sequence_parallel = true;
    for (int i = 0; i < 3; i++) {
        plan.zero_stage = i == 2 ? 3 : 0;
        mcp_plan_uniform_chunks(l.arena, &plan, l.model.num_layers,
                                i == 0 ? MCP_RECOMPUTE_NONE : MCP_RECOMPUTE_FULL);
        cr_assert(mcp_illegal_rule(&l.question, &plan) == NULL);
        mcp_estimate(pricer, &plan, &p[i]);
    }
    cr_expect(lt(i64, p[1].peak_memory_bytes, p[0].peak_memory_bytes));
    cr_expect(lt(i64, p[2].peak_memory_bytes, p[1].peak_memory_bytes));
    cr_expect(le(i64, 2 * p[1].memory.activations_bytes, p[0].memory.activations_bytes));
    cr_expect(lt(i64, 2 * p[2].memory.optimizer_bytes, p[1].memory.optimizer_bytes));
    /* forward again: one third of forward and backward */
    double before = p[0].cost_s[MCP_COST_MATMUL] + p[0].cost_s[MCP_COST_ATTENTION];
    double after = p[1].cost_s[MCP_COST_MATMUL] + p[1].cost_s[MCP_COST_ATTENTION];
    cr_expect(gt(dbl, after / before, 1.25));
    cr_expect(lt(dbl, after / before, 1.40));
    mcp_arena_free(l.arena);
}
