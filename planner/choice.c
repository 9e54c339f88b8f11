/* planner/choice.c: the pool of plans that could win, and one integer programme over it. */
#include "planner/choice.h"

#include "core/text.h"
#include "planner/bound.h"
#include "planner/ilp.h"
#include "planner/split.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char mcp_rule_required[] = "required";

enum { MOST_POOL = 1024, MOST_NODES = 20000, MOST_MILPS = 64 };

struct tuple {
    int64_t bound_ns;
    int layout;
    int64_t index; /* of its first candidate among the layout's */
};

/* A priced plan. */
struct column {
    struct mcp_found found;
    int layout;
    int64_t time_ns;
    bool holds;     /* every requirement */
    double *values; /* [requirements] what it has of each */
};

struct choosing {
    struct mcp_arena *arena;
    const struct mcp_question *question;
    const struct mcp_plan_space *space;
    const struct mcp_requirements *requirements;
    const struct mcp_choice_options *options;
    struct mcp_pricer *pricer;
    struct mcp_prediction *prediction; /* of the last plan priced */
    int64_t limit_bytes;
    bool recompute[MCP_NUM_RECOMPUTES]; /* what may be used */
    struct mcp_layout *layouts;
    size_t num_tuples, capacity;
    struct tuple *tuples;
    int num_columns;
    struct column *columns; /* [MOST_POOL] */
    int64_t best_ns;        /* of columns that hold, */
    int best;               /* the column; -1: none */
    int64_t open_ns;        /* no plan that was not looked at takes less */
    struct mcp_search_record record;
};

static void refuse(struct mcp_search_record *record, const char *rule)
{
    int i = 0;
    while (i < record->num_refused && !mcp_same(record->refused[i].rule, rule))
        i++;
    if (i == MCP_MAX_REFUSED)
        i--;
    else if (i == record->num_refused)
        record->refused[record->num_refused++] = (struct mcp_refused){rule, 0};
    record->refused[i].count++;
}

/* Tuples */

static const char *why_refused(const struct choosing *c, const struct mcp_plan *plan)
{
    const char *rule = mcp_illegal_rule(c->question, plan);
    if (rule)
        return rule;
    if (mcp_space_keeps_pipeline_rule(c->space) && !mcp_pipeline_rule(c->question, plan))
        return mcp_rule_pipeline;
    if (mcp_space_keeps_batch_rule(c->space) && !mcp_batch_rule(c->question, plan))
        return mcp_rule_batch;
    return mcp_require_broken(c->requirements, c->question, plan) ? mcp_rule_required : NULL;
}

/* What no split that fits can beat; INT64_MAX: none fits. */
static int64_t bound_of(const struct choosing *c, const struct mcp_plan *plan)
{
    struct mcp_floor floor;
    mcp_floor_load(c->pricer, plan, c->recompute, MCP_FLOOR_ALL, &floor);
    mcp_floor_limit(&floor, c->question, c->limit_bytes);
    return mcp_floor_ns(&floor);
}

static void add_tuple(struct choosing *c, int layout, int64_t index, const struct mcp_plan *plan)
{
    const char *refused = why_refused(c, plan);
    int64_t bound_ns = refused ? 0 : bound_of(c, plan);
    c->record.candidates++;
    if (bound_ns == INT64_MAX)
        refused = mcp_rule_memory;
    if (refused) {
        refuse(&c->record, refused);
        return;
    }
    c->tuples = mcp_grow(c->arena, c->tuples, c->num_tuples, &c->capacity, sizeof *c->tuples);
    c->tuples[c->num_tuples++] = (struct tuple){bound_ns, layout, index};
}

static void add_layout(struct choosing *c, struct mcp_arena *scratch, int layout)
{
    struct mcp_choices choices;
    struct mcp_mark mark = mcp_arena_mark(scratch);
    mcp_space_choices(scratch, c->question, c->space, &c->layouts[layout], &choices);
    int64_t count = mcp_choices_count(&choices);
    for (int64_t index = 0; index < count; index += choices.recomputes.count) {
        struct mcp_plan plan;
        mcp_choices_plan(&choices, index, &plan);
        plan.chunks = NULL;
        add_tuple(c, layout, index, &plan);
    }
    mcp_arena_rewind(scratch, mark);
}

static bool same_prices(const struct mcp_layout *a, const struct mcp_layout *b)
{
    return a->tensor_parallel == b->tensor_parallel && a->context_parallel == b->context_parallel;
}

static int by_bound(const void *a, const void *b)
{
    const struct tuple *x = a, *y = b;
    if (x->bound_ns != y->bound_ns)
        return x->bound_ns < y->bound_ns ? -1 : 1;
    if (x->layout != y->layout)
        return x->layout < y->layout ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Prices are shared by layouts of one tensor and context degree: a pricer for each. */
static void find_tuples(struct choosing *c)
{
    int count = mcp_space_layouts(c->arena, c->question, c->space, &c->layouts);
    struct mcp_arena *prices = NULL, *scratch = mcp_arena_new();
    for (int i = 0; i < count; i++) {
        if (i == 0 || !same_prices(&c->layouts[i], &c->layouts[i - 1])) {
            mcp_arena_free(prices);
            prices = mcp_arena_new();
            c->pricer = mcp_pricer_new(prices, c->question);
        }
        add_layout(c, scratch, i);
    }
    mcp_arena_free(prices);
    mcp_arena_free(scratch);
    if (c->num_tuples > 0)
        qsort(c->tuples, c->num_tuples, sizeof *c->tuples, by_bound);
}

/* Splits */

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

static bool may_recompute(const struct choosing *c, int recompute)
{
    const struct mcp_interval *interval = &c->space->knobs[MCP_KNOB_RECOMPUTE];
    if (interval->given && (recompute < interval->low || recompute > interval->high))
        return false;
    for (int i = 0; i < c->requirements->count; i++) {
        const struct mcp_requirement *r = &c->requirements->items[i];
        if ((int)r->name == MCP_KNOB_RECOMPUTE && !mcp_requirement_holds(r, recompute))
            return false;
    }
    return true;
}

static struct mcp_split_options split_options(const struct choosing *c)
{
    struct mcp_split_options options = {.limit_bytes = c->limit_bytes,
                                        .better_than_ns = INT64_MAX,
                                        .uneven = true,
                                        .max_recomputed_stages = -1,
                                        .max_milps = MOST_MILPS};
    double stages = at_most(c->requirements, MCP_REQUIRE_RECOMPUTED_STAGES, INT_MAX);
    if (stages < INT_MAX)
        options.max_recomputed_stages = (int)stages;
    for (int i = 0; i < MCP_NUM_RECOMPUTES; i++)
        options.recompute[i] = c->recompute[i];
    if (c->best_ns < INT64_MAX)
        options.better_than_ns = (int64_t)((double)c->best_ns * (1 + c->options->pool_frac)) + 1;
    return options;
}

static int64_t to_ns(double seconds)
{
    return (int64_t)llround(seconds * 1e9);
}

/* Prices `plan`, which keeps its chunks, and puts it into the pool. */
static bool add_column(struct choosing *c, const struct mcp_plan *plan, int layout)
{
    if (c->num_columns == MOST_POOL)
        return false;
    const struct mcp_requirements *requirements = c->requirements;
    struct column *column = &c->columns[c->num_columns++];
    mcp_estimate(c->pricer, plan, c->prediction);
    c->record.priced++;
    *column = (struct column){
        .found = {*plan, c->prediction->iteration_s, c->prediction->peak_memory_bytes},
        .layout = layout,
        .time_ns = to_ns(c->prediction->iteration_s),
        .values = MCP_ARRAY(c->arena, requirements->count, double),
        .holds = c->prediction->fits &&
                 mcp_require_broken_priced(requirements, c->question, plan, c->prediction) == NULL,
    };
    for (int i = 0; i < requirements->count; i++)
        column->values[i] =
            mcp_require_value(c->question, requirements->items[i].name, plan, c->prediction);
    if (column->holds && column->time_ns < c->best_ns) {
        c->best_ns = column->time_ns;
        c->best = c->num_columns - 1;
    }
    return column->holds;
}

static bool split(struct choosing *c, const struct mcp_plan *tuple,
                  const struct mcp_split_options *options, int layout, struct mcp_split *out)
{
    struct mcp_plan plan = *tuple;
    mcp_split_best(c->arena, c->pricer, &plan, options, out);
    c->record.milps += out->milps;
    if (!out->found)
        return false;
    plan.chunks = out->chunks;
    return add_column(c, &plan, layout);
}

/* The best split breaks a requirement that only a price tells: others of the tuple,
 * with less freedom in what they recompute and how they cut. */
static void split_otherwise(struct choosing *c, const struct mcp_plan *tuple, int layout)
{
    struct mcp_split unused;
    for (int subset = 1; subset < 1 << MCP_NUM_RECOMPUTES; subset++) {
        struct mcp_split_options options = split_options(c);
        bool any = false;
        options.better_than_ns = c->best_ns;
        for (int i = 0; i < MCP_NUM_RECOMPUTES; i++) {
            options.recompute[i] = options.recompute[i] && (subset >> i & 1);
            any = any || options.recompute[i];
        }
        for (int uneven = 0; any && uneven < 2; uneven++) {
            options.uneven = uneven;
            split(c, tuple, &options, layout, &unused);
        }
    }
}

static void plan_of(const struct choosing *c, const struct tuple *tuple, struct mcp_plan *out)
{
    struct mcp_choices choices;
    mcp_space_choices(c->arena, c->question, c->space, &c->layouts[tuple->layout], &choices);
    mcp_choices_plan(&choices, tuple->index, out);
    out->chunks = NULL;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool required_of_price(const struct mcp_requirements *requirements)
{
    for (int i = 0; i < requirements->count; i++)
        if (requirements->items[i].name >= MCP_REQUIRE_RECOMPUTED_STAGES)
            return true;
    return false;
}

static void open_tuple(struct choosing *c, const struct tuple *tuple)
{
    struct mcp_plan plan;
    struct mcp_split best;
    struct mcp_split_options options = split_options(c);
    int64_t before = c->best_ns;
    plan_of(c, tuple, &plan);
    bool holds = split(c, &plan, &options, tuple->layout, &best);
    if (best.found)
        c->record.fitting++;
    else if (best.bound_ns == INT64_MAX)
        refuse(&c->record, mcp_rule_memory);
    else
        c->record.bounded++;
    if (!best.proven || (best.found && !holds))
        c->open_ns = smaller(c->open_ns, best.bound_ns);
    if (best.found && !holds && required_of_price(c->requirements) && best.time_ns < before)
        split_otherwise(c, &plan, tuple->layout);
}

static void tell(const struct choosing *c, size_t at)
{
    if (c->options->progress)
        c->options->progress(c->options->progress_context, (double)at / (double)c->num_tuples,
                             c->best >= 0 ? &c->columns[c->best].found : NULL);
}

static bool stopped(const struct choosing *c)
{
    return c->options->stop && *c->options->stop != 0;
}

/* Best bound first, until none that is left can be in the pool. */
static void fill_pool(struct choosing *c)
{
    size_t i = 0;
    int most = c->options->max_splits > 0 ? c->options->max_splits : INT_MAX;
    while (i < c->num_tuples && c->num_columns < MOST_POOL && (int64_t)i < most && !stopped(c)) {
        double reach = (double)c->best_ns * (1 + c->options->pool_frac);
        if (c->best_ns < INT64_MAX && (double)c->tuples[i].bound_ns > reach)
            break;
        tell(c, i);
        open_tuple(c, &c->tuples[i++]);
    }
    if (i < c->num_tuples)
        c->open_ns = smaller(c->open_ns, c->tuples[i].bound_ns);
    c->record.bounded += (int64_t)(c->num_tuples - i);
}

/* The programme */

/* What rows can say of a requirement: linear, as one column alone is 1. */
static void add_requirement_row(const struct choosing *c, struct mcp_ilp *ilp, int index)
{
    const struct mcp_requirement *r = &c->requirements->items[index];
    if (r->op != MCP_AT_MOST && r->op != MCP_AT_LEAST)
        return;
    double most = fabs(r->values[0]);
    for (int i = 0; i < c->num_columns; i++)
        most = fmax(most, fabs(c->columns[i].values[index]));
    double scale = most > 0 ? 100 / most : 1, side = r->values[0] * scale;
    bool above = r->op == MCP_AT_LEAST;
    int row = mcp_ilp_row(ilp, above ? side : -HUGE_VAL, above ? HUGE_VAL : side);
    for (int i = 0; i < c->num_columns; i++)
        mcp_ilp_set(ilp, row, i, c->columns[i].values[index] * scale);
}

/* Sets and strict limits have no row: a column that breaks one is fixed to 0. */
static bool may_be_chosen(const struct choosing *c, const struct column *column)
{
    for (int i = 0; i < c->requirements->count; i++) {
        const struct mcp_requirement *r = &c->requirements->items[i];
        bool row = r->op == MCP_AT_MOST || r->op == MCP_AT_LEAST;
        if (!row && !column->holds && !mcp_requirement_holds(r, column->values[i]))
            return false;
    }
    return true;
}

static struct mcp_ilp *programme(const struct choosing *c)
{
    struct mcp_ilp *ilp = mcp_ilp_new(c->arena);
    double scale = c->best_ns < INT64_MAX ? 1000 / (double)c->best_ns : 1;
    for (int i = 0; i < c->num_columns; i++)
        mcp_ilp_column(ilp, 0, may_be_chosen(c, &c->columns[i]) ? 1 : 0,
                       (double)c->columns[i].time_ns * scale, true);
    int one = mcp_ilp_row(ilp, 1, 1);
    for (int i = 0; i < c->num_columns; i++)
        mcp_ilp_set(ilp, one, i, 1);
    for (int i = 0; i < c->requirements->count; i++)
        add_requirement_row(c, ilp, i);
    return ilp;
}

/* Column `at`, or all of its degrees. */
static void forbid(const struct choosing *c, struct mcp_ilp *ilp, int at, bool degrees)
{
    int row = mcp_ilp_row(ilp, 0, 0);
    for (int i = 0; i < c->num_columns; i++)
        if (i == at || (degrees && c->columns[i].layout == c->columns[at].layout))
            mcp_ilp_set(ilp, row, i, 1);
}

/* The column that is 1; of equals the one that was found first. */
static int chosen(const struct choosing *c, const struct mcp_ilp_result *result)
{
    int at = -1;
    for (int i = 0; i < c->num_columns; i++)
        if (result->values[i] > 0.5)
            at = i;
    for (int i = 0; at >= 0 && i < at; i++)
        if (c->columns[i].layout == c->columns[at].layout && c->columns[i].holds &&
            c->columns[i].time_ns <= c->columns[at].time_ns)
            at = i;
    return at;
}

static void choose(struct choosing *c, struct mcp_answer *out)
{
    int top = c->options->top > 1 ? c->options->top : 1;
    out->found = MCP_ARRAY(c->arena, top, struct mcp_found);
    if (c->best_ns == INT64_MAX)
        return;
    struct mcp_ilp *ilp = programme(c);
    while (out->count < top) {
        struct mcp_ilp_result result;
        mcp_ilp_solve(ilp, MOST_NODES, &result);
        c->record.milps++;
        if (result.status != MCP_ILP_OPTIMAL && result.status != MCP_ILP_FEASIBLE)
            return;
        int at = chosen(c, &result);
        if (out->count == 0 && c->columns[at].holds && c->columns[at].time_ns > c->best_ns)
            at = c->best;                  /* as good within the solver's tolerance */
        bool holds = c->columns[at].holds; /* not only within a row's tolerance */
        if (holds)
            out->found[out->count++] = c->columns[at].found;
        forbid(c, ilp, at, holds);
    }
}

static int by_count(const void *a, const void *b)
{
    const struct mcp_refused *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return strcmp(x->rule, y->rule);
}

static void conclude(struct choosing *c, struct mcp_answer *out)
{
    struct mcp_search_record *record = &c->record;
    if (record->num_refused > 0)
        qsort(record->refused, (size_t)record->num_refused, sizeof *record->refused, by_count);
    int64_t time = out->count > 0 ? to_ns(out->found[0].iteration_s) : INT64_MAX;
    record->proven_optimal = c->open_ns >= time;
    if (!record->proven_optimal && out->count > 0)
        record->gap_frac = 1 - (double)c->open_ns / (double)time;
    out->record = *record;
}

/* A device may hold no more than the job, or a requirement, says. */
static int64_t limit_of(const struct mcp_question *question,
                        const struct mcp_requirements *requirements)
{
    double memory = (double)question->cluster->gpu.memory_bytes;
    double frac =
        at_most(requirements, MCP_REQUIRE_PEAK_MEMORY_FRAC, question->job->memory_limit_frac);
    return (int64_t)at_most(requirements, MCP_REQUIRE_PEAK_MEMORY_BYTES, memory * frac);
}

void mcp_choose(struct mcp_arena *arena, const struct mcp_question *question,
                const struct mcp_plan_space *space, const struct mcp_requirements *requirements,
                const struct mcp_choice_options *options, struct mcp_answer *out)
{
    struct choosing c = {.arena = arena,
                         .question = question,
                         .space = space,
                         .requirements = requirements,
                         .options = options,
                         .prediction = MCP_NEW(arena, struct mcp_prediction),
                         .limit_bytes = limit_of(question, requirements),
                         .columns = MCP_ARRAY(arena, MOST_POOL, struct column),
                         .best_ns = INT64_MAX,
                         .best = -1,
                         .open_ns = INT64_MAX};
    *out = (struct mcp_answer){0};
    for (int i = 0; i < MCP_NUM_RECOMPUTES; i++)
        c.recompute[i] = may_recompute(&c, i);
    find_tuples(&c);
    c.pricer = mcp_pricer_new(arena, question);
    fill_pool(&c);
    choose(&c, out);
    conclude(&c, out);
}
