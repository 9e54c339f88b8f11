/* tests/planner/test_search_brute.c: the best plan against every plan there is.
 *
 * Loops of its own over tuples, cuts and recompute; of the program it shares the prices
 * (step/estimate.h), the rules of meaning (step/legal.h) and how rows are made
 * (step/rows.h), nothing of the planner. */
#include "step/rows.h"
#include "step/stage.h"
#include "tests/planner/random_problem.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <string.h>

enum { MAX_LAYERS = 10, MAX_STAGES = 16 };

struct force {
    const struct random_problem *problem;
    const struct mcp_question *question;
    struct mcp_pricer *pricer;
    struct mcp_prediction *prediction;
    bool uniform;
    int64_t plans, most; /* INT64_MAX: price them; else only count, up to so many */
    bool found;
    double best;
    int64_t best_bytes, least_bytes; /* of the best, of any plan */
    int64_t interleaved, even;       /* tuples of such schedules */
    bool fitted;                     /* the plan priced last */
};

/* --- one plan --- */

struct attempt {
    struct mcp_plan plan;
    int stage[MAX_LAYERS]; /* virtual */
    enum mcp_recompute recompute[MAX_LAYERS];
    int larger[MAX_STAGES], full[MAX_STAGES], selective[MAX_STAGES]; /* by rank */
};

static double value_of(const struct force *f)
{
    return f->problem->objective == MCP_OBJECTIVE_MEMORY ? (double)f->prediction->peak_memory_bytes
                                                         : f->prediction->iteration_s;
}

/* Rows as the search makes them, where the name does not say them. */
static bool has_rows(struct force *f, struct mcp_arena *scratch, struct mcp_plan *plan)
{
    struct mcp_error err;
    if (!mcp_schedule_is_made(plan->schedule))
        return true;
    struct mcp_rows_problem problem = mcp_rows_problem(scratch, f->pricer, plan, false);
    problem.synthesis.quick = true;
    return problem.synthesis.limit_bytes != NULL &&
           mcp_rows_make(scratch, &problem, plan, &err) == MCP_OK;
}

static void estimate(struct force *f, const struct attempt *a)
{
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_plan plan = a->plan;
    f->fitted = has_rows(f, scratch, &plan);
    if (f->fitted) {
        mcp_estimate(f->pricer, &plan, f->prediction);
        f->fitted = f->prediction->fits;
        int64_t bytes = f->prediction->peak_memory_bytes;
        f->least_bytes = bytes < f->least_bytes ? bytes : f->least_bytes;
    }
    mcp_arena_free(scratch);
}

static void price(struct force *f, struct attempt *a)
{
    struct mcp_chunk chunks[MAX_STAGES];
    struct mcp_recompute_run runs[MAX_LAYERS];
    int stages = a->plan.pipeline_parallel * a->plan.virtual_stages;
    f->plans++;
    if (f->most < INT64_MAX)
        return;
    for (int k = 0, first = 0; k < stages; first += chunks[k++].num_layers) {
        chunks[k] = (struct mcp_chunk){.first_layer = first, .runs = runs + first};
        while (first + chunks[k].num_layers < f->question->model->num_layers &&
               a->stage[first + chunks[k].num_layers] == k)
            chunks[k].num_layers++;
        chunks[k].num_runs = chunks[k].num_layers;
    }
    for (int i = 0; i < f->question->model->num_layers; i++)
        runs[i] = (struct mcp_recompute_run){a->recompute[i], 1};
    a->plan.chunks = chunks;
    estimate(f, a);
    if (f->fitted && (!f->found || value_of(f) < f->best)) {
        f->found = true;
        f->best = value_of(f);
        f->best_bytes = f->prediction->peak_memory_bytes;
    }
}

/* --- splits --- */

static bool allows(const struct force *f, enum mcp_knob knob, int value)
{
    const struct mcp_interval *asked = &f->problem->space.knobs[knob];
    return !asked->given || (asked->low <= value && value <= asked->high);
}

static bool pinned(const struct force *f, enum mcp_knob knob)
{
    const struct mcp_interval *asked = &f->problem->space.knobs[knob];
    return asked->given && asked->low == asked->high;
}

/* Layer by layer: on this stage or the next. Stages in between hold some. */
static void each_layer(struct force *f, struct attempt *a, int layer)
{
    int p = a->plan.pipeline_parallel, last = p > 1 ? p - 2 : 0;
    if (f->plans > f->most)
        return;
    if (layer == f->question->model->num_layers) {
        if (a->stage[layer - 1] >= last)
            price(f, a);
        return;
    }
    int from = layer > 0 ? a->stage[layer - 1] : 0;
    for (int stage = from; stage <= from + 1 && stage < p; stage++)
        for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
            a->stage[layer] = stage;
            a->recompute[layer] = (enum mcp_recompute)r;
            if (allows(f, MCP_KNOB_RECOMPUTE, r))
                each_layer(f, a, layer + 1);
        }
}

/* The share of pile c where `count` are dealt out over v. */
static int dealt(int count, int v, int c)
{
    return count / v + (c < count % v);
}

static void price_ranks(struct force *f, struct attempt *a)
{
    int p = a->plan.pipeline_parallel, v = a->plan.virtual_stages, layer = 0;
    for (int k = 0; k < p * v; k++) {
        int r = k % p, c = k / p;
        int size = f->question->model->num_layers / (p * v) + (c < a->larger[r]);
        int full = dealt(a->full[r], v, c), either = dealt(a->full[r] + a->selective[r], v, c);
        for (int i = 0; i < size; i++, layer++) {
            a->stage[layer] = k;
            a->recompute[layer] = i < full     ? MCP_RECOMPUTE_FULL
                                  : i < either ? MCP_RECOMPUTE_SELECTIVE
                                               : MCP_RECOMPUTE_NONE;
        }
    }
    price(f, a);
}

/* Rank by rank: how many larger chunks, how many layers of each recompute. */
static void each_rank(struct force *f, struct attempt *a, int r, int left)
{
    int p = a->plan.pipeline_parallel, v = a->plan.virtual_stages;
    if (f->plans > f->most)
        return;
    if (r == p) {
        if (left == 0)
            price_ranks(f, a);
        return;
    }
    for (int larger = 0; larger <= v && larger <= left; larger++) {
        int layers = f->question->model->num_layers / (p * v) * v + larger;
        for (int i = 0; i < (layers + 1) * (layers + 1); i++) {
            a->larger[r] = larger;
            a->full[r] = i / (layers + 1);
            a->selective[r] = i % (layers + 1);
            int none = layers - a->full[r] - a->selective[r];
            if (none >= 0 && (none == 0 || allows(f, MCP_KNOB_RECOMPUTE, MCP_RECOMPUTE_NONE)) &&
                (a->full[r] == 0 || allows(f, MCP_KNOB_RECOMPUTE, MCP_RECOMPUTE_FULL)) &&
                (a->selective[r] == 0 || allows(f, MCP_KNOB_RECOMPUTE, MCP_RECOMPUTE_SELECTIVE)))
                each_rank(f, a, r + 1, left - larger);
        }
    }
}

static void each_uniform(struct force *f, struct attempt *a)
{
    int stages = a->plan.pipeline_parallel * a->plan.virtual_stages;
    /* Of backwards in parts: without recompute if that fits. */
    bool one = a->plan.schedule >= MCP_ZB_H1 && f->problem->objective != MCP_OBJECTIVE_MEMORY;
    f->fitted = false;
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
        if (!allows(f, MCP_KNOB_RECOMPUTE, r))
            continue;
        for (int k = 0, layer = 0; k < stages; k++)
            for (int i = 0; i < dealt(f->question->model->num_layers, stages, k); i++, layer++) {
                a->stage[layer] = k;
                a->recompute[layer] = (enum mcp_recompute)r;
            }
        price(f, a);
        if (one && f->fitted && r == MCP_RECOMPUTE_NONE)
            return;
    }
}

/* --- tuples: each loop one choice --- */

static void each_split(struct force *f, const struct mcp_plan *plan)
{
    struct attempt a = {.plan = *plan};
    const struct mcp_plan_space *space = &f->problem->space;
    const char *rule = mcp_illegal_rule(f->question, plan);
    if (rule != NULL && strcmp(rule, "schedule_has_rows") == 0 &&
        mcp_schedule_is_made(plan->schedule)) /* later */
        rule = NULL;
    if (rule != NULL ||
        (space->pipeline_rule && !pinned(f, MCP_KNOB_PIPELINE) &&
         !mcp_pipeline_rule(f->question, plan)) ||
        (space->batch_rule && !pinned(f, MCP_KNOB_MICROBATCH) &&
         !mcp_batch_rule(f->question, plan)))
        return;
    f->interleaved += plan->virtual_stages > 1;
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    f->even += plan->schedule >= MCP_ZB_H1;
    if (f->uniform || plan->schedule >= MCP_ZB_H1)
        each_uniform(f, &a);
    else if (plan->virtual_stages == 1)
        each_layer(f, &a, 0);
    else
        each_rank(f, &a, 0, f->question->model->num_layers % stages);
}

/* Stages in runs, one for each pool, in both orders. */
static void each_placement(struct force *f, struct mcp_plan plan)
{
    const struct mcp_cluster *cluster = f->question->cluster;
    int pools[MAX_STAGES], ranks = mcp_plan_world(&plan) / plan.pipeline_parallel;
    if (cluster->next == NULL) {
        each_split(f, &plan);
        return;
    }
    int sizes[2] = {mcp_pool_gpus(cluster), mcp_pool_gpus(cluster->next)};
    plan.stage_pool = pools;
    for (int first = 0; first < 2; first++) {
        for (int s = 0; s < plan.pipeline_parallel; s++)
            pools[s] = s < sizes[first] / ranks ? first : 1 - first;
        if (sizes[0] % ranks == 0 && sizes[1] % ranks == 0)
            each_split(f, &plan);
    }
}

static void each_order(struct force *f, struct mcp_plan plan)
{
    static const enum mcp_axis axes[4] = {MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_PIPELINE};
    const struct mcp_plan_space *space = &f->problem->space;
    bool free_order = !space->usual_order || space->knobs[MCP_KNOB_RANK_ORDER].given;
    for (int i = 0, index = 0; i < 256; i++) {
        const int digits[4] = {i >> 6, i >> 4 & 3, i >> 2 & 3, i & 3};
        unsigned seen = 0;
        for (int k = 0; k < 4; k++) {
            plan.rank_order[k] = axes[digits[k]];
            seen |= axes[digits[k]];
        }
        if (seen != 15)
            continue;
        if (free_order ? allows(f, MCP_KNOB_RANK_ORDER, index) : index == 0)
            each_placement(f, plan);
        index++;
    }
}

static void each_zero(struct force *f, struct mcp_plan plan)
{
    int plane = plan.tensor_parallel * plan.context_parallel * plan.data_parallel;
    bool copies = plan.context_parallel * plan.data_parallel > 1 || plane > plan.expert_parallel;
    const struct mcp_interval *asked = &f->problem->space.knobs[MCP_KNOB_ZERO_STAGE];
    for (int zero = 0; zero <= 3; zero++)
        for (int reshard = 0; reshard <= 1; reshard++) {
            bool can = copies || zero == (asked->given ? asked->low : 0);
            plan.zero_stage = zero;
            plan.reshard_after_forward = reshard;
            if (can && allows(f, MCP_KNOB_ZERO_STAGE, zero) &&
                (zero == 3 ? allows(f, MCP_KNOB_RESHARD, reshard) : reshard))
                each_order(f, plan);
        }
}

static void each_microbatch(struct force *f, struct mcp_plan plan)
{
    int64_t replica = f->question->job->global_batch_size / plan.data_parallel;
    for (int b = 1; b <= replica; b++) {
        plan.microbatch_size = b;
        if (replica % b == 0 && allows(f, MCP_KNOB_MICROBATCH, b))
            each_zero(f, plan);
    }
}

/* Of virtual stages with equal largest chunks the fewest, where any are allowed. */
static bool suits(const struct force *f, enum mcp_schedule schedule, int p, int v)
{
    if (!allows(f, MCP_KNOB_SCHEDULE, (int)schedule) ||
        (!pinned(f, MCP_KNOB_SCHEDULE) && (f->question->stack->schedules >> schedule & 1) == 0))
        return false;
    if (schedule >= MCP_ZB_H1 && p == 1)
        return pinned(f, MCP_KNOB_SCHEDULE);
    if (mcp_schedule_placement(schedule) == MCP_PLACEMENT_V)
        return v == 2;
    return (schedule == MCP_INTERLEAVED) == (v > 1);
}

static void each_interleave(struct force *f, struct mcp_plan plan)
{
    bool folds = (f->question->stack->schedules & (1u << MCP_ZB_V | 1u << MCP_V_HALF)) != 0;
    int layers = f->question->model->num_layers, p = plan.pipeline_parallel;
    bool asked = f->problem->space.knobs[MCP_KNOB_VIRTUAL_STAGES].given;
    for (int v = 1, before = 0; v * p <= layers; v++) {
        int largest = (layers + p * v - 1) / (p * v);
        bool again = largest == before;
        before = largest;
        if ((!asked && again && !(v == 2 && folds)) || (v > 1 && p == 1) ||
            !allows(f, MCP_KNOB_VIRTUAL_STAGES, v))
            continue;
        plan.virtual_stages = v;
        for (int s = 0; s < MCP_NUM_SCHEDULES; s++) {
            plan.schedule = (enum mcp_schedule)s;
            if (suits(f, plan.schedule, p, v))
                each_microbatch(f, plan);
        }
    }
}

static void each_kind(struct force *f, struct mcp_plan plan)
{
    const struct mcp_interval *asked = &f->problem->space.knobs[MCP_KNOB_CONTEXT_KIND];
    for (int kind = 0; kind < MCP_NUM_CONTEXT_KINDS; kind++)
        for (int sp = 0; sp <= 1; sp++) {
            bool can = plan.context_parallel > 1 || kind == (asked->given ? asked->low : 0);
            plan.context_parallel_kind = (enum mcp_context_kind)kind;
            plan.sequence_parallel = sp;
            if (can && allows(f, MCP_KNOB_CONTEXT_KIND, kind) &&
                allows(f, MCP_KNOB_SEQUENCE_PARALLEL, sp))
                each_interleave(f, plan);
        }
}

static void each_expert(struct force *f, struct mcp_plan plan)
{
    int plane = plan.tensor_parallel * plan.context_parallel * plan.data_parallel;
    for (int e = 1; e <= plane; e++) {
        plan.expert_parallel = e;
        if (plane % e == 0 && allows(f, MCP_KNOB_EXPERT, e) &&
            (e == 1 || mcp_model_has_experts(f->question->model)))
            each_kind(f, plan);
    }
}

static struct mcp_plan first_plan(const struct force *f)
{
    const struct mcp_stack *stack = f->question->stack;
    struct mcp_plan plan = mcp_plan_default();
    plan.overlap = mcp_stack_overlap(stack);
    if (!f->problem->space.overlap)
        plan.overlap = (struct mcp_overlap){.tensor = false};
    return plan;
}

static void each_tuple(struct force *f)
{
    int gpus = mcp_cluster_gpus(f->question->cluster);
    struct mcp_plan plan = first_plan(f);
    for (int t = 1; t <= gpus; t++)
        for (int c = 1; c <= gpus / t; c++)
            for (int p = 1; p <= gpus / t / c; p++) {
                int d = gpus / (t * c * p);
                plan.tensor_parallel = t;
                plan.context_parallel = c;
                plan.pipeline_parallel = p;
                plan.data_parallel = d;
                if (t * c * p * d == gpus && allows(f, MCP_KNOB_TENSOR, t) &&
                    allows(f, MCP_KNOB_CONTEXT, c) && allows(f, MCP_KNOB_PIPELINE, p) &&
                    allows(f, MCP_KNOB_DATA, d))
                    each_expert(f, plan);
            }
}

/* --- the comparison --- */

struct seen {
    int compared, unproven, infeasible, experts, mixed, interleaved, uneven, even, even_best;
    double worst;
};

/* Most: count alone, and give up there; INT64_MAX: price. */
static struct force brute_force(struct mcp_arena *arena, const struct random_problem *problem,
                                int64_t most)
{
    struct force f = {.problem = problem,
                      .question = &problem->drawn.question,
                      .uniform = problem->uniform || problem->objective == MCP_OBJECTIVE_MEMORY,
                      .most = most,
                      .least_bytes = INT64_MAX};
    f.pricer = mcp_pricer_new(arena, f.question);
    f.prediction = MCP_NEW(arena, struct mcp_prediction);
    each_tuple(&f);
    return f;
}

static void set_memory(struct random_problem *problem, double limit_bytes)
{
    int64_t bytes = (int64_t)(limit_bytes / problem->drawn.job.memory_limit_frac) + 1;
    problem->drawn.cluster.gpu.memory_bytes = problem->other.gpu.memory_bytes = bytes;
}

/* Less memory than the best plan would like, in part or to the least that any needs. */
static void tighten(struct mcp_arena *arena, struct random_problem *problem, int percent)
{
    set_memory(problem, 1e15);
    const struct force f = brute_force(arena, problem, INT64_MAX);
    set_memory(problem,
               (double)f.least_bytes + (double)(f.best_bytes - 1 - f.least_bytes) / 100 * percent);
}

/* As no plan of the uniform kind: layers or recompute differ. */
static bool is_uneven(const struct mcp_plan *plan, int num_layers)
{
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    bool uneven = mcp_uniform_recompute(plan) == MCP_NUM_RECOMPUTES;
    for (int k = 0; k < stages; k++)
        uneven = uneven || plan->chunks[k].num_layers != dealt(num_layers, stages, k);
    return uneven;
}

static void compare(const struct random_problem *problem, const struct force *f,
                    const struct mcp_answer *answer, const char *text, struct seen *seen)
{
    const struct mcp_search_record *record = &answer->record;
    double best = answer->count == 0 ? 0
                  : problem->objective == MCP_OBJECTIVE_MEMORY
                      ? (double)answer->found[0].peak_memory_bytes
                      : answer->found[0].iteration_s;
    if (!record->proven_optimal) {
        seen->unproven++;
        cr_expect(f->interleaved > 0, "%s: not proven", text);
        cr_expect(answer->count == 0 ||
                      (best >= f->best && f->best >= best * (1 - record->gap_frac) * (1 - 1e-9)),
                  "%s: %.12g, gap %g, brute %.12g", text, best, record->gap_frac, f->best);
        return;
    }
    double off = f->found && answer->count > 0 ? fabs(best / f->best - 1) : 0;
    cr_expect(f->found == (answer->count > 0), "%s: found %d, brute %d", text, answer->count,
              f->found);
    cr_expect(off <= 1e-9, "%s: %.12g, brute %.12g", text, best, f->best);
    seen->worst = fmax(seen->worst, off);
    seen->compared++;
    seen->infeasible += !f->found;
    seen->experts += mcp_model_has_experts(f->question->model);
    seen->mixed += f->question->cluster->next != NULL;
    seen->interleaved += f->interleaved > 0;
    seen->even += f->even > 0;
    seen->even_best += answer->count > 0 && answer->found[0].plan.schedule >= MCP_ZB_H1;
    seen->uneven +=
        answer->count > 0 && is_uneven(&answer->found[0].plan, f->question->model->num_layers);
}

static void judge(struct mcp_arena *arena, const struct random_problem *problem,
                  const struct force *f, const char *name, struct seen *seen)
{
    struct mcp_answer answer;
    const struct mcp_search_options options = {
        .objective = problem->objective, .top = 1, .num_threads = 1, .uniform = problem->uniform};
    mcp_search(arena, &problem->drawn.question, &problem->space, &options, &answer);
    compare(problem, f, &answer,
            mcp_format(arena, "%s: %s", name, random_problem_describe(arena, problem)), seen);
}

/* Returns the plans that brute force priced; 0: no problem, or too large a one. */
static int64_t try_seed(uint64_t seed, const struct problem_size *size, int64_t most,
                        struct seen *seen)
{
    static const int percent[] = {0, 5, 15, 40, 70, 100};
    struct mcp_error err;
    struct force f = {0};
    struct random_problem problem = {0};
    struct mcp_arena *arena = mcp_arena_new();
    random_problem_draw(arena, seed, size, &problem);
    struct mcp_interval *pipeline = &problem.space.knobs[MCP_KNOB_PIPELINE];
    struct mcp_interval *order = &problem.space.knobs[MCP_KNOB_RANK_ORDER];
    if (seed % 3 == 0) /* not the usual one */
        *order = (struct mcp_interval){true, 1 + (int)(seed / 3 % 8), 9 + (int)(seed / 24 % 15)};
    if (!pipeline->given)
        *pipeline = (struct mcp_interval){true, 1, 4};
    if (pipeline->high <= 4 &&
        mcp_space_check(&problem.drawn.question, &problem.space, &err) == MCP_OK)
        f = brute_force(arena, &problem, most);
    if (f.plans > 0 && f.plans <= most) {
        if (seed % 4 != 0)
            tighten(arena, &problem, percent[seed % MCP_COUNT_OF(percent)]);
        f = brute_force(arena, &problem, INT64_MAX);
        judge(arena, &problem, &f, mcp_format(arena, "seed %d", (int)seed), seen);
    } else {
        f.plans = 0;
    }
    mcp_arena_free(arena);
    return f.plans;
}

static void expect_best(uint64_t seed, int problems, int64_t most, const struct problem_size *size)
{
    int64_t plans = 0;
    struct seen seen = {0};
    problems = random_problem_count(problems);
    for (; seen.compared - seen.infeasible < problems; seed++)
        plans += try_seed(seed, size, most, &seen);
    cr_log_info("%d problems (%d infeasible, %d with experts, %d mixed, %d interleaved, %d "
                "uneven), %d not proven, %lld plans, worst difference %g",
                seen.compared, seen.infeasible, seen.experts, seen.mixed, seen.interleaved,
                seen.uneven, seen.unproven, (long long)plans, seen.worst);
    cr_expect(lt(int, seen.unproven, seen.compared / 5));
    cr_expect(gt(int, seen.experts, seen.compared / 8));
    cr_expect(gt(int, seen.interleaved, 0));
    cr_expect(eq(int, seen.mixed, size->mixed_percent > 0 ? seen.compared : 0));
    cr_expect(size->every_schedule || seen.uneven > seen.compared / 10);
    cr_expect(size->every_schedule == false || (seen.even > 0 && seen.even_best > 0), "%d, %d best",
              seen.even, seen.even_best);
}

/* Many small spaces, mostly pinned. */
Test(search_brute, narrow_spaces)
{
    const struct problem_size size = {MAX_LAYERS, 2, 4, 12, 45, 0, false};
    expect_best(1, 260, 20000, &size);
}

/* Fewer, with more of their own to choose. */
Test(search_brute, wide_spaces)
{
    const struct problem_size size = {5, 2, 3, 8, 15, 0, false};
    expect_best(100000, 60, 60000, &size);
}

/* Two kinds of GPUs: which of them come first. */
Test(search_brute, mixed_clusters)
{
    const struct problem_size size = {6, 1, 4, 12, 30, 100, false};
    expect_best(200000, 60, 30000, &size);
}

/* Found by long runs. The fullest GPU is the one with the least room left: where pools
 * differ, others may hold more, which a bound forgot. */
Test(search_brute, fuller_than_the_fullest)
{
    const struct problem_size size = {6, 1, 4, 12, 30, 100, false};
    struct seen seen = {0};
    cr_expect(gt(i64, try_seed(244988, &size, 30000, &seen), 0));
    cr_expect(eq(int, seen.compared, 1));
}

/* Found by long runs: more recompute elsewhere hides more of the last reduction. */
Test(search_brute, recompute_that_hides_more)
{
    const struct problem_size size = {5, 2, 3, 8, 15, 0, false};
    struct seen seen = {0};
    cr_expect(gt(i64, try_seed(101249, &size, 60000, &seen), 0));
    cr_expect(eq(int, seen.compared, 1));
}

/* With backwards in two parts, and V placement; few whole splits besides. */
Test(search_brute, every_schedule)
{
    const struct problem_size size = {6, 1, 4, 12, 40, 0, true};
    expect_best(300000, 60, 20000, &size);
}
