/* planner/search.c: judge every candidate, one layout a task; the only door to
 * OpenMP. */
#include "planner/search.h"

#include "core/text.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

const char *const mcp_objective_names[MCP_NUM_OBJECTIVES] = {"time", "memory", "cost"};
const char mcp_rule_pipeline[] = "pipeline_rule";
const char mcp_rule_batch[] = "batch_rule";
const char mcp_rule_memory[] = "memory";

/* Plans that keep the article's rules, and those that break one of them. */
enum { KEEPS_ALL, BREAKS_PIPELINE, BREAKS_BATCH, NUM_CLASSES };

/* The best of several; without chunks, which belong to the layout. */
struct best {
    bool any;
    enum mcp_recompute recompute;
    struct mcp_found found;
};

/* What a layout has to say. Each task writes its own; they are joined in order. */
struct finding {
    struct best best[NUM_CLASSES];
    struct best smallest;
    struct mcp_search_record record;
};

struct search {
    const struct mcp_question *question;
    const struct mcp_plan_space *space;
    const struct mcp_search_options *options;
    struct mcp_layout *layouts;
    struct finding *findings; /* [layouts] */
    int num_layouts;
    int num_threads;
};

/* One thread's own, for the layouts with one tensor and one context degree: prices
 * of layers are shared within these alone. */
struct worker {
    struct mcp_arena *arena;
    struct mcp_pricer *pricer;
    struct mcp_prediction *prediction;
    int64_t *static_bytes; /* of plans by interleave and ZeRO stage; 0: none priced yet */
    bool *too_large;       /* by ZeRO stage and recompute: a smaller microbatch did not fit */
    double *busy_s;        /* by all but the interleave: of one priced before; 0: none yet */
};

static void refuse(struct mcp_search_record *record, const char *rule, int64_t count)
{
    int i = 0;
    while (i < record->num_refused && !mcp_same(record->refused[i].rule, rule))
        i++;
    if (i == MCP_MAX_REFUSED)
        i--;
    else if (i == record->num_refused)
        record->refused[record->num_refused++].rule = rule;
    record->refused[i].count += count;
}

int64_t mcp_search_refused(const struct mcp_search_record *record, const char *rule)
{
    for (int i = 0; i < record->num_refused; i++)
        if (mcp_same(record->refused[i].rule, rule))
            return record->refused[i].count;
    return 0;
}

/* Below 0: `a` is better. Equal plans in both leave the earlier one. */
static int compare(enum mcp_objective objective, const struct mcp_found *a,
                   const struct mcp_found *b)
{
    int by_time = (a->iteration_s > b->iteration_s) - (a->iteration_s < b->iteration_s);
    int by_memory = (a->peak_memory_bytes > b->peak_memory_bytes) -
                    (a->peak_memory_bytes < b->peak_memory_bytes);
    if (objective == MCP_OBJECTIVE_MEMORY)
        return by_memory != 0 ? by_memory : by_time;
    return by_time != 0 ? by_time : by_memory;
}

static void keep(struct best *best, enum mcp_objective objective, const struct mcp_found *found,
                 enum mcp_recompute recompute)
{
    if (best->any && compare(objective, found, &best->found) >= 0)
        return;
    *best = (struct best){true, recompute, *found};
    best->found.plan.chunks = NULL;
}

static void join_best(struct best *into, enum mcp_objective objective, const struct best *from)
{
    if (from->any)
        keep(into, objective, &from->found, from->recompute);
}

/* The rule that refuses a plan; NULL when none does. Recompute breaks none. */
static const char *why_refused(const struct search *search, const struct mcp_plan *plan,
                               bool *pipeline, bool *batch)
{
    *pipeline =
        mcp_space_keeps_pipeline_rule(search->space) && !mcp_pipeline_rule(search->question, plan);
    *batch = mcp_space_keeps_batch_rule(search->space) && !mcp_batch_rule(search->question, plan);
    const char *rule = mcp_illegal_rule(search->question, plan);
    return rule ? rule : *pipeline ? mcp_rule_pipeline : *batch ? mcp_rule_batch : NULL;
}

/* KEEPS_ALL .. BREAKS_BATCH, or NUM_CLASSES for one that is not even priced. */
static int classify(const struct search *search, const struct mcp_plan *plan, const char **refused)
{
    bool pipeline, batch;
    *refused = why_refused(search, plan, &pipeline, &batch);
    if (*refused == NULL)
        return KEEPS_ALL;
    if (*refused == mcp_rule_pipeline && !batch)
        return BREAKS_PIPELINE;
    return *refused == mcp_rule_batch ? BREAKS_BATCH : NUM_CLASSES;
}

static int64_t static_peak(const struct mcp_prediction *prediction, int stages)
{
    int64_t peak = 0;
    for (int i = 0; i < stages; i++)
        if (prediction->stages[i].static_bytes > peak)
            peak = prediction->stages[i].static_bytes;
    return peak;
}

/* Prices a candidate; true when it fits. */
static bool price(const struct search *search, struct worker *worker, const struct mcp_plan *plan,
                  int class, struct finding *finding)
{
    enum mcp_objective objective = search->options->objective;
    enum mcp_recompute recompute = mcp_uniform_recompute(plan);
    mcp_estimate(worker->pricer, plan, worker->prediction);
    struct mcp_found found = {*plan, worker->prediction->iteration_s,
                              worker->prediction->peak_memory_bytes};
    if (class == KEEPS_ALL) {
        finding->record.priced++;
        keep(&finding->smallest, MCP_OBJECTIVE_MEMORY, &found, recompute);
    }
    if (worker->prediction->fits)
        keep(&finding->best[class], objective, &found, recompute);
    if (class == KEEPS_ALL && worker->prediction->fits)
        finding->record.fitting++;
    else if (class == KEEPS_ALL)
        refuse(&finding->record, mcp_rule_memory, 1);
    return worker->prediction->fits;
}

/* Is it known that this candidate does not fit? What it keeps between steps is
 * that of any with its interleave and ZeRO stage; activations only grow with the
 * microbatch. */
static bool too_large(const struct search *search, const struct worker *worker, int kept,
                      int variant)
{
    if (search->options->exhaustive)
        return false;
    return worker->too_large[variant] ||
           (!search->options->smallest && worker->static_bytes[kept] > 0 &&
            worker->static_bytes[kept] + search->question->stack->reserve_bytes >
                worker->prediction->memory_limit_bytes);
}

/* Where candidates that differ in the interleave alone meet. */
static int64_t without_interleave(const struct mcp_choices *choices, struct mcp_choice_index at)
{
    int64_t index = at.context_kind;
    index = index * choices->sequence_parallel.count + at.sequence_parallel;
    index = index * choices->microbatches.count + at.microbatch;
    index = index * choices->zero_stages.count + at.zero_stage;
    return index * choices->recomputes.count + at.recompute;
}

/* Mean over ranks of what no order of slots can hide: the time cannot be less. */
static double busy_s(const struct mcp_prediction *p)
{
    return p->iteration_s - p->cost_s[MCP_COST_DATA] - p->cost_s[MCP_COST_PIPELINE] -
           p->cost_s[MCP_COST_BUBBLE];
}

/* Is a plan with the same busy time, or less of it, already slower than the best?
 * Layers cost the same in any interleave, and more recompute never costs less. */
static bool too_slow(const struct search *search, const struct worker *worker, int64_t same,
                     int recompute, const struct best *best)
{
    const double rounding = 1 + 1e-9;
    if (search->options->exhaustive || search->options->objective == MCP_OBJECTIVE_MEMORY ||
        !best->any)
        return false;
    for (int64_t i = same; i >= same - recompute; i--)
        if (worker->busy_s[i] > best->found.iteration_s * rounding)
            return true;
    return false;
}

static void judge_fit(const struct search *search, struct worker *worker,
                      const struct mcp_choices *choices, int64_t index, int class,
                      struct finding *finding)
{
    struct mcp_plan plan;
    struct mcp_choice_index at = mcp_choices_at(choices, index);
    int kept = at.interleave * choices->zero_stages.count + at.zero_stage;
    int variant = at.zero_stage * choices->recomputes.count + at.recompute;
    int64_t same = without_interleave(choices, at);
    if (too_large(search, worker, kept, variant)) {
        if (class == KEEPS_ALL)
            refuse(&finding->record, mcp_rule_memory, 1);
        return;
    }
    if (too_slow(search, worker, same, at.recompute, &finding->best[class])) {
        finding->record.bounded += class == KEEPS_ALL;
        return;
    }
    mcp_choices_plan(choices, index, &plan);
    worker->too_large[variant] = !price(search, worker, &plan, class, finding);
    worker->static_bytes[kept] = static_peak(worker->prediction, plan.pipeline_parallel);
    worker->busy_s[same] = busy_s(worker->prediction);
}

/* Candidates first .. first + recomputes, of which rules refuse all or none. Those
 * that break an article rule are priced too, to say what it costs. */
static void judge(const struct search *search, struct worker *worker,
                  const struct mcp_choices *choices, int64_t first, struct finding *finding)
{
    const char *refused;
    struct mcp_plan plan;
    mcp_choices_plan(choices, first, &plan);
    int class = classify(search, &plan, &refused);
    if (refused)
        refuse(&finding->record, refused, choices->recomputes.count);
    for (int i = 0; class != NUM_CLASSES && i < choices->recomputes.count; i++)
        judge_fit(search, worker, choices, first + i, class, finding);
}

/* Candidates that differ in microbatch, ZeRO stage and recompute alone follow each
 * other, the smaller microbatches first. */
static void judge_layout(const struct search *search, struct worker *worker, int index)
{
    struct mcp_choices choices;
    struct finding *finding = &search->findings[index];
    struct mcp_mark mark = mcp_arena_mark(worker->arena);
    mcp_space_choices(worker->arena, search->question, search->space, &search->layouts[index],
                      &choices);
    int64_t count = mcp_choices_count(&choices);
    size_t variants = (size_t)choices.zero_stages.count * (size_t)choices.recomputes.count;
    finding->record.candidates = count;
    worker->too_large = MCP_ARRAY(worker->arena, variants, bool);
    worker->busy_s = MCP_ARRAY(worker->arena, count / choices.num_interleaves, double);
    worker->static_bytes =
        MCP_ARRAY(worker->arena, choices.num_interleaves * choices.zero_stages.count, int64_t);
    for (int64_t first = 0; first < count; first += choices.recomputes.count) {
        if (first % ((int64_t)variants * choices.microbatches.count) == 0)
            memset(worker->too_large, 0, variants * sizeof *worker->too_large);
        judge(search, worker, &choices, first, finding);
    }
    mcp_arena_rewind(worker->arena, mark);
}

static bool same_group(const struct mcp_layout *a, const struct mcp_layout *b)
{
    return a->tensor_parallel == b->tensor_parallel && a->context_parallel == b->context_parallel;
}

/* The layouts from `first` on that share a pricer, and so its memory. */
static void judge_group(const struct search *search, int first)
{
    struct mcp_arena *arena = mcp_arena_new(), *scratch = mcp_arena_new();
    struct worker worker = {.arena = scratch,
                            .pricer = mcp_pricer_new(arena, search->question),
                            .prediction = MCP_NEW(arena, struct mcp_prediction)};
    const struct mcp_layout *layouts = search->layouts;
    for (int i = first; i < search->num_layouts && same_group(&layouts[i], &layouts[first]); i++)
        judge_layout(search, &worker, i);
    mcp_arena_free(scratch);
    mcp_arena_free(arena);
}

static void judge_all(const struct search *search)
{
#pragma omp parallel for schedule(dynamic) num_threads(search->num_threads)
    for (int i = 0; i < search->num_layouts; i++)
        if (i == 0 || !same_group(&search->layouts[i - 1], &search->layouts[i]))
            judge_group(search, i);
}

static int by_count(const void *a, const void *b)
{
    const struct mcp_refused *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return strcmp(x->rule, y->rule);
}

static void join_records(const struct search *search, struct mcp_search_record *out)
{
    for (int i = 0; i < search->num_layouts; i++) {
        const struct mcp_search_record *record = &search->findings[i].record;
        out->candidates += record->candidates;
        out->bounded += record->bounded;
        out->priced += record->priced;
        out->fitting += record->fitting;
        for (int k = 0; k < record->num_refused; k++)
            refuse(out, record->refused[k].rule, record->refused[k].count);
    }
    qsort(out->refused, (size_t)out->num_refused, sizeof *out->refused, by_count);
    out->proven_optimal = true;
}

static struct mcp_found finish(struct mcp_arena *arena, const struct mcp_question *question,
                               const struct best *best)
{
    struct mcp_found found = best->found;
    mcp_plan_uniform_chunks(arena, &found.plan, question->model->num_layers, best->recompute);
    return found;
}

/* The best of each layout, best first, `top` of them. */
static void rank_layouts(struct mcp_arena *arena, const struct search *search,
                         struct mcp_answer *out)
{
    int top = search->options->top > 1 ? search->options->top : 1;
    const struct best **order = MCP_ARRAY(arena, top, const struct best *);
    int count = 0;
    for (int i = 0; i < search->num_layouts; i++) {
        const struct best *best = &search->findings[i].best[KEEPS_ALL];
        int at = count;
        while (best->any && at > 0 &&
               compare(search->options->objective, &best->found, &order[at - 1]->found) < 0)
            at--;
        if (!best->any || at == top)
            continue;
        count += count < top;
        memmove(order + at + 1, order + at, (size_t)(count - at - 1) * sizeof(struct best *));
        order[at] = best;
    }
    out->count = count;
    out->found = MCP_ARRAY(arena, count, struct mcp_found);
    for (int i = 0; i < count; i++)
        out->found[i] = finish(arena, search->question, order[i]);
}

static void join_beyond(struct mcp_arena *arena, const struct search *search,
                        struct mcp_answer *out)
{
    struct best smallest = {0}, beyond[2] = {0};
    for (int i = 0; i < search->num_layouts; i++) {
        const struct finding *finding = &search->findings[i];
        join_best(&smallest, MCP_OBJECTIVE_MEMORY, &finding->smallest);
        for (int k = 0; k < 2; k++)
            join_best(&beyond[k], search->options->objective, &finding->best[BREAKS_PIPELINE + k]);
    }
    out->has_smallest = smallest.any;
    if (smallest.any)
        out->smallest = finish(arena, search->question, &smallest);
    for (int k = 0; k < 2; k++) {
        out->has_beyond[k] = beyond[k].any;
        if (beyond[k].any)
            out->beyond[k] = finish(arena, search->question, &beyond[k]);
    }
}

void mcp_search(struct mcp_arena *arena, const struct mcp_question *question,
                const struct mcp_plan_space *space, const struct mcp_search_options *options,
                struct mcp_answer *out)
{
    struct search search = {.question = question, .space = space, .options = options};
    search.num_layouts = mcp_space_layouts(arena, question, space, &search.layouts);
    search.num_threads = options->num_threads > 0 ? options->num_threads : omp_get_num_procs();
    search.findings = MCP_ARRAY(arena, search.num_layouts, struct finding);
    judge_all(&search);
    *out = (struct mcp_answer){0};
    join_records(&search, &out->record);
    rank_layouts(arena, &search, out);
    join_beyond(arena, &search, out);
}
