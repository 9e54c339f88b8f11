/* planner/choice.c: one integer programme over the pool of plans that could win. */
#include "planner/choice.h"

#include "planner/choice_parts.h"
#include "planner/ilp.h"
#include "step/rows.h"

#include <math.h>

const char mcp_rule_required[] = "required";

enum { MOST_NODES = 20000 };

/* The programme */

/* What rows can say of a requirement: linear, as one column alone is 1. */
static void add_requirement_row(const struct mcp_choice_pool *pool, struct mcp_ilp *ilp, int index)
{
    const struct mcp_requirement *r = &pool->requirements->items[index];
    if (r->op != MCP_AT_MOST && r->op != MCP_AT_LEAST)
        return;
    double most = fabs(r->values[0]);
    for (int i = 0; i < pool->count; i++)
        most = fmax(most, fabs(pool->items[i].values[index]));
    double scale = most > 0 ? 100 / most : 1, side = r->values[0] * scale;
    bool above = r->op == MCP_AT_LEAST;
    int row = mcp_ilp_row(ilp, above ? side : -HUGE_VAL, above ? HUGE_VAL : side);
    for (int i = 0; i < pool->count; i++)
        mcp_ilp_set(ilp, row, i, pool->items[i].values[index] * scale);
}

/* Sets and strict limits have no row: a column that breaks one is fixed to 0. */
static bool may_be_chosen(const struct mcp_choice_pool *pool, const struct mcp_pooled *item)
{
    for (int i = 0; i < pool->requirements->count; i++) {
        const struct mcp_requirement *r = &pool->requirements->items[i];
        bool row = r->op == MCP_AT_MOST || r->op == MCP_AT_LEAST;
        if (!row && !item->holds && !mcp_requirement_holds(r, item->values[i]))
            return false;
    }
    return true;
}

static struct mcp_ilp *programme(const struct mcp_choice_pool *pool)
{
    struct mcp_ilp *ilp = mcp_ilp_new(pool->arena);
    double scale = pool->best_ns < INT64_MAX ? 1000 / (double)pool->best_ns : 1;
    for (int i = 0; i < pool->count; i++)
        mcp_ilp_column(ilp, 0, may_be_chosen(pool, &pool->items[i]) ? 1 : 0,
                       (double)pool->items[i].time_ns * scale, true);
    int one = mcp_ilp_row(ilp, 1, 1);
    for (int i = 0; i < pool->count; i++)
        mcp_ilp_set(ilp, one, i, 1);
    for (int i = 0; i < pool->requirements->count; i++)
        add_requirement_row(pool, ilp, i);
    return ilp;
}

/* Column `at`, or all of its degrees. */
static void forbid(const struct mcp_choice_pool *pool, struct mcp_ilp *ilp, int at, bool degrees)
{
    int row = mcp_ilp_row(ilp, 0, 0);
    for (int i = 0; i < pool->count; i++)
        if (i == at || (degrees && pool->items[i].layout == pool->items[at].layout))
            mcp_ilp_set(ilp, row, i, 1);
}

/* The column that is 1; of equals the one that was found first. */
static int chosen(const struct mcp_choice_pool *pool, const struct mcp_ilp_result *result)
{
    int at = -1;
    for (int i = 0; i < pool->count; i++)
        if (result->values[i] > 0.5)
            at = i;
    for (int i = 0; at >= 0 && i < at; i++)
        if (pool->items[i].layout == pool->items[at].layout && pool->items[i].holds &&
            pool->items[i].time_ns <= pool->items[at].time_ns)
            at = i;
    return at;
}

static void choose(struct mcp_arena *arena, struct mcp_choice_pool *pool, struct mcp_answer *out)
{
    int top = pool->options->top > 1 ? pool->options->top : 1;
    out->found = MCP_ARRAY(arena, top, struct mcp_found);
    if (pool->best_ns == INT64_MAX)
        return;
    struct mcp_ilp *ilp = programme(pool);
    while (out->count < top) {
        struct mcp_ilp_result result;
        mcp_ilp_solve(ilp, MOST_NODES, &result);
        pool->search.record.milps++;
        if (result.status != MCP_ILP_OPTIMAL && result.status != MCP_ILP_FEASIBLE)
            return;
        int at = chosen(pool, &result);
        if (at < 0)
            return;
        if (out->count == 0 && pool->items[at].holds && pool->items[at].time_ns > pool->best_ns)
            at = pool->best;                /* as good within the solver's tolerance */
        bool holds = pool->items[at].holds; /* not only within a row's tolerance */
        struct mcp_tuple kept = {.found = pool->items[at].found};
        if (mcp_schedule_is_made(kept.found.plan.schedule))
            kept.found.plan.rows = NULL; /* the pool's: made again */
        if (holds)
            out->found[out->count++] = mcp_search_keep(arena, &pool->question, &kept, false);
        forbid(pool, ilp, at, holds);
    }
}

static void conclude(struct mcp_choice_pool *pool, struct mcp_answer *out)
{
    struct mcp_search_record *record = &pool->search.record;
    int64_t time = out->count > 0 ? pool->best_ns : INT64_MAX, refused = 0;
    for (int i = 0; i < record->num_refused; i++)
        refused += record->refused[i].count;
    record->bounded = record->candidates - refused - record->fitting;
    record->proven_optimal = pool->open_ns >= time;
    if (!record->proven_optimal && out->count > 0)
        record->gap_frac = 1 - (double)pool->open_ns / (double)time;
    mcp_record_sort(record);
    out->record = *record;
}

/* The question, and what requirements say before anything is priced */

/* The largest value that an "at most" leaves of `name`. */
static double at_most(const struct mcp_requirements *requirements, enum mcp_require_name name,
                      double most)
{
    for (int i = 0; i < requirements->count; i++) {
        const struct mcp_requirement *r = &requirements->items[i];
        if (r->name == name && (r->op == MCP_AT_MOST || r->op == MCP_BELOW))
            most = fmin(most, r->values[0]);
    }
    return most;
}

/* A device may hold no more than the job, or a requirement, says; where pools differ, what
 * is in bytes is a larger share of the smaller. */
static void limit_memory(struct mcp_choice_pool *pool)
{
    const struct mcp_cluster *cluster = pool->question.cluster;
    double frac = at_most(pool->requirements, MCP_REQUIRE_PEAK_MEMORY_FRAC, 1), most = 0;
    double bytes = at_most(pool->requirements, MCP_REQUIRE_PEAK_MEMORY_BYTES, HUGE_VAL);
    for (int i = 0; i < mcp_cluster_num_pools(cluster); i++)
        most = fmax(most, bytes / (double)mcp_cluster_pool(cluster, i)->gpu.memory_bytes);
    pool->job.memory_limit_frac = fmin(pool->job.memory_limit_frac, fmin(frac, most));
}

static bool may_recompute(const struct mcp_choice_pool *pool, int recompute)
{
    const struct mcp_interval *interval = &pool->search.space->knobs[MCP_KNOB_RECOMPUTE];
    if (interval->given && (recompute < interval->low || recompute > interval->high))
        return false;
    for (int i = 0; i < pool->requirements->count; i++) {
        const struct mcp_requirement *r = &pool->requirements->items[i];
        if ((int)r->name == MCP_KNOB_RECOMPUTE && !mcp_requirement_holds(r, recompute))
            return false;
    }
    return true;
}

static const char *refuse(const void *context, const struct mcp_plan *plan)
{
    const struct mcp_choice_pool *pool = context;
    return mcp_require_broken_family(pool->requirements, &pool->question, plan) ? mcp_rule_required
                                                                                : NULL;
}

static void begin(struct mcp_choice_pool *pool, const struct mcp_question *question,
                  const struct mcp_plan_space *space, const struct mcp_search_options *options)
{
    pool->job = *question->job;
    pool->question = *question;
    pool->question.job = &pool->job;
    limit_memory(pool);
    pool->search = (struct mcp_search){.arena = pool->arena,
                                       .question = &pool->question,
                                       .space = space,
                                       .options = options,
                                       .objective = MCP_OBJECTIVE_TIME,
                                       .refuse = refuse,
                                       .refuse_context = pool};
    pool->pricer = mcp_pricer_new(pool->arena, &pool->question);
    pool->prediction = MCP_NEW(pool->arena, struct mcp_prediction);
    for (int i = 0; i < MCP_NUM_RECOMPUTES; i++)
        pool->search.recompute[i] = may_recompute(pool, i);
    pool->best = -1;
    pool->best_ns = pool->last_ns = pool->open_ns = INT64_MAX;
}

void mcp_choose(struct mcp_arena *arena, const struct mcp_question *question,
                const struct mcp_plan_space *space, const struct mcp_requirements *requirements,
                const struct mcp_choice_options *options, struct mcp_answer *out)
{
    const struct mcp_search_options one = {.objective = MCP_OBJECTIVE_TIME, .num_threads = 1};
    struct mcp_choice_pool pool = {
        .arena = mcp_arena_new(), .requirements = requirements, .options = options};
    *out = (struct mcp_answer){0};
    begin(&pool, question, space, &one);
    mcp_search_enumerate(&pool.search);
    mcp_choice_pool_fill(&pool);
    choose(arena, &pool, out);
    conclude(&pool, out);
    mcp_desks_close(&pool.search);
    mcp_arena_free(pool.arena);
}
