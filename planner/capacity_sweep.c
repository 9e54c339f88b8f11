/* planner/capacity_sweep.c: which sizes to try, the knee, the answer. */
#include "planner/capacity.h"

#include "core/units.h"

#include <math.h>

enum { MOST_ROWS = 4096, BETWEEN = 3 };

/* A list of sizes that grows. */
struct sizes {
    struct mcp_arena *arena;
    int count;
    size_t room;
    int *items;
};

static void add_size(struct sizes *sizes, int gpus)
{
    sizes->items = mcp_grow(sizes->arena, sizes->items, (size_t)sizes->count, &sizes->room,
                            sizeof *sizes->items);
    sizes->items[sizes->count++] = gpus;
}

int mcp_capacity_ladder(struct mcp_arena *arena, int unit, int low, int high, int **out)
{
    struct sizes sizes = {.arena = arena};
    int least = unit;
    while (least % 2 == 0 && least / 2 >= low)
        least /= 2;
    for (; least < unit; least *= 2)
        if (least <= high)
            add_size(&sizes, least);
    for (int64_t step = 1, units = 1; units * unit <= high; units += step) {
        if (units == 8 * step)
            step *= 2;
        if (units * unit >= low)
            add_size(&sizes, (int)(units * unit));
    }
    *out = sizes.items;
    return sizes.count;
}

/* Between 1 and the most that a cluster can have, in whole units. */
static int whole_units(double gpus, int unit)
{
    int most = MCP_MAX_GPUS / unit;
    double units = ceil(gpus / unit);
    return (units < 1 ? 1 : units > most ? most : (int)units) * unit;
}

/* Means over the GPUs of a cluster. */
static double mean_peak(const struct mcp_question *question)
{
    double sum = 0;
    for (int i = 0; i < mcp_cluster_num_pools(question->cluster); i++) {
        const struct mcp_cluster *pool = mcp_cluster_pool(question->cluster, i);
        sum += mcp_pool_gpus(pool) * pool->gpu.peak_flops_per_s[question->job->precision];
    }
    return sum / mcp_cluster_gpus(question->cluster);
}

static double mean_watts(const struct mcp_cluster *cluster)
{
    double sum = 0;
    for (int i = 0; i < mcp_cluster_num_pools(cluster); i++) {
        const struct mcp_cluster *pool = mcp_cluster_pool(cluster, i);
        sum += mcp_pool_gpus(pool) * pool->gpu.power_watts;
    }
    return sum / mcp_cluster_gpus(cluster);
}

/* What all states of the model fill, at 16 bytes a parameter. */
static double least_gpus(const struct mcp_question *question)
{
    const struct mcp_parameters parameters = mcp_model_parameters(question->model);
    const struct mcp_cluster *cluster = question->cluster;
    double bytes = 16.0 * (double)(mcp_parameters_total(&parameters) + parameters.mtp), sum = 0;
    for (int i = 0; i < mcp_cluster_num_pools(cluster); i++) {
        const struct mcp_cluster *pool = mcp_cluster_pool(cluster, i);
        sum += (double)mcp_pool_gpus(pool) * (double)pool->gpu.memory_bytes;
    }
    return bytes / (sum / mcp_cluster_gpus(cluster) * question->job->memory_limit_frac);
}

/* No rate is above the peak, so no size below that reaches a deadline; nor do sizes
 * that keep less than an eighth of it pay. */
struct mcp_capacity_range mcp_capacity_range(const struct mcp_capacity_ask *ask,
                                             const struct mcp_capacity_machine *machine)
{
    const struct mcp_question *question = &machine->question;
    int unit = mcp_capacity_unit(question->cluster);
    double low = least_gpus(question), high = 32 * low;
    double flops =
        3 * mcp_model_flops_per_token_forward(question->model, question->job->sequence_length);
    double needed = flops * (double)ask->tokens / mean_peak(question) / ask->deadline_s;
    double powered = ask->power_watts / (mean_watts(question->cluster) * ask->site_power_factor);
    if (!isnan(needed)) {
        low = fmax(low, needed);
        high = 8 * low;
    }
    if (!isnan(powered)) {
        high = isnan(needed) ? powered : fmin(high, powered);
        low = isnan(needed) ? fmax(low, high / 16) : low;
    }
    if (machine->most_gpus > 0)
        high = fmin(high, machine->most_gpus);
    struct mcp_capacity_range range = {whole_units(low, unit), whole_units(high, unit)};
    range.high -= range.high > high && range.high > unit ? unit : 0;
    range.low = range.low < range.high ? range.low : range.high;
    return range;
}

/* Judging */

/* What a step from `a` to `b` brings of what its machines should. */
static double step_pays(const struct mcp_capacity_row *a, const struct mcp_capacity_row *b)
{
    return (a->time_s / b->time_s - 1) / ((double)b->gpus / a->gpus - 1);
}

/* Does `b` lie on or below the line from `a` to `c`, in speed over GPUs? */
static bool is_below(const struct mcp_capacity_row *a, const struct mcp_capacity_row *b,
                     const struct mcp_capacity_row *c)
{
    double rise = 1 / b->time_s - 1 / a->time_s, whole = 1 / c->time_s - 1 / a->time_s;
    return rise * (c->gpus - a->gpus) <= whole * (b->gpus - a->gpus);
}

/* The sizes on the upper hull of speed over GPUs: other sizes divide worse, and steps
 * between them say nothing about more machines. Returns how many. */
static int hull_of(struct mcp_capacity_row *rows, int count, struct mcp_capacity_row **hull)
{
    int used = 0;
    for (int i = 0; i < count; i++) {
        if (rows[i].reason != NULL || (used > 0 && rows[i].time_s >= hull[used - 1]->time_s))
            continue;
        while (used > 1 && is_below(hull[used - 2], hull[used - 1], &rows[i]))
            used--;
        hull[used++] = &rows[i];
    }
    return used;
}

static void judge_knee(struct mcp_arena *arena, const struct mcp_capacity_ask *ask,
                       struct mcp_capacity_row *rows, int count)
{
    struct mcp_capacity_row **hull = MCP_ARRAY(arena, count, struct mcp_capacity_row *);
    bool before = true;
    for (int i = 0; i < count; i++) {
        rows[i].knee = false;
        rows[i].next_frac = (double)NAN;
    }
    int used = hull_of(rows, count, hull);
    for (int i = 1; i < used; i++) {
        hull[i]->next_frac = step_pays(hull[i - 1], hull[i]);
        hull[i - 1]->knee = before && hull[i]->next_frac < ask->knee_frac;
        before = before && !hull[i - 1]->knee;
    }
}

static bool is_limited(const struct mcp_capacity_ask *ask)
{
    return !isnan(ask->deadline_s) || !isnan(ask->budget) || !isnan(ask->power_watts);
}

/* Is `a` better? Equal: the smaller one, which comes first. */
static bool is_better(enum mcp_capacity_order order, const struct mcp_capacity_row *a,
                      const struct mcp_capacity_row *b)
{
    switch (order) {
    case MCP_BY_PRICE:
        return a->price < b->price;
    case MCP_BY_ENERGY:
        return a->energy_joules < b->energy_joules;
    case MCP_BY_TIME:
        return a->time_s < b->time_s;
    default:
        return a->gpus < b->gpus;
    }
}

/* Without limits the knee is the answer; where there is none, the fastest. */
static void judge_unlimited(struct mcp_capacity_row *rows, int count)
{
    struct mcp_capacity_row *best = NULL;
    for (int i = 0; i < count; i++) {
        rows[i].answer = rows[i].knee;
        if (rows[i].knee)
            return;
        if (rows[i].reason == NULL && (best == NULL || rows[i].time_s < best->time_s))
            best = &rows[i];
    }
    if (best != NULL)
        best->answer = true;
}

static void judge_answer(const struct mcp_capacity_ask *ask, struct mcp_capacity_row *rows,
                         int count)
{
    struct mcp_capacity_row *best = NULL;
    for (int i = 0; i < count; i++) {
        struct mcp_capacity_row *row = &rows[i];
        row->answer = false;
        if (!mcp_capacity_meets(row))
            continue;
        enum mcp_capacity_order order = isnan(ask->deadline_s) ? MCP_BY_TIME
                                        : isnan(row->price)    ? MCP_BY_GPUS
                                                               : MCP_BY_PRICE;
        if (best == NULL || is_better(order, row, best))
            best = row;
    }
    if (best != NULL)
        best->answer = true;
}

static enum mcp_capacity_order order_of(const struct mcp_capacity_ask *ask,
                                        const struct mcp_capacity *capacity)
{
    bool priced = true, powered = true;
    for (int i = 0; i < capacity->num_rows; i++) {
        const struct mcp_capacity_row *row = &capacity->rows[i];
        priced = priced && !(row->answer && isnan(row->price));
        powered = powered && !(row->answer && isnan(row->energy_joules));
    }
    if (isnan(ask->deadline_s) && is_limited(ask))
        return MCP_BY_TIME;
    return priced ? MCP_BY_PRICE : powered ? MCP_BY_ENERGY : MCP_BY_GPUS;
}

void mcp_capacity_judge(struct mcp_arena *arena, const struct mcp_capacity_ask *ask,
                        struct mcp_capacity *capacity)
{
    struct mcp_capacity_row *rows = capacity->rows;
    for (int first = 0, next; first < capacity->num_rows; first = next) {
        next = first;
        while (next < capacity->num_rows && rows[next].machine == rows[first].machine)
            next++;
        judge_knee(arena, ask, rows + first, next - first);
        if (is_limited(ask))
            judge_answer(ask, rows + first, next - first);
        else
            judge_unlimited(rows + first, next - first);
    }
    capacity->order = order_of(ask, capacity);
    capacity->best = -1;
    for (int i = 0; i < capacity->num_rows; i++)
        if (rows[i].answer &&
            (capacity->best < 0 || is_better(capacity->order, &rows[i], &rows[capacity->best])))
            capacity->best = i;
}

/* Sweeping */

/* Rows being gathered. */
struct sweeping {
    struct mcp_arena *arena;
    const struct mcp_capacity_sweep *sweep;
    struct mcp_capacity *out;
    size_t room;
    int machine;
};

static void add_row(struct sweeping *s, const struct mcp_capacity_row *row, int at)
{
    struct mcp_capacity *out = s->out;
    out->rows = mcp_grow(s->arena, out->rows, (size_t)out->num_rows, &s->room, sizeof *out->rows);
    for (int i = out->num_rows++; i > at; i--)
        out->rows[i] = out->rows[i - 1];
    out->rows[at] = *row;
}

/* Plans a size into row `at`. False: stopped. */
static bool try_size(struct sweeping *s, int gpus, int at)
{
    const struct mcp_capacity_sweep *sweep = s->sweep;
    const struct mcp_capacity_machine *machine = &sweep->machines[s->machine];
    struct mcp_capacity_row row;
    if (sweep->planning)
        sweep->planning(sweep->context,
                        mcp_format(s->arena, "planning %s of %s", mcp_show_integer(s->arena, gpus),
                                   machine->name));
    bool done = mcp_capacity_plan(s->arena, sweep, s->machine, gpus, &row);
    if (done)
        add_row(s, &row, at);
    s->out->interrupted = s->out->interrupted || !done;
    return done;
}

/* Between row `at` and the next: three sizes more, or as many as there are. */
static bool look_between(struct sweeping *s, int at)
{
    int unit = mcp_capacity_unit(s->sweep->machines[s->machine].question.cluster);
    int low = s->out->rows[at].gpus, high = s->out->rows[at + 1].gpus;
    int units = (high - low) / unit, step = (units + BETWEEN) / (BETWEEN + 1);
    for (int gpus = low + step * unit; step > 0 && gpus < high; gpus += step * unit)
        if (!try_size(s, gpus, ++at))
            return false;
    return true;
}

/* From the end, so that what is added moves nothing that is still to be looked at. */
static bool refine(struct sweeping *s, int first)
{
    for (int i = s->out->num_rows - 2; i >= first; i--) {
        const struct mcp_capacity_row *row = &s->out->rows[i];
        bool planned = row[0].reason == NULL && row[1].reason == NULL;
        bool edge = mcp_capacity_meets(&row[0]) != mcp_capacity_meets(&row[1]);
        if (planned && edge && !look_between(s, i))
            return false;
    }
    return true;
}

static bool sweep_machine(struct sweeping *s)
{
    const struct mcp_capacity_machine *machine = &s->sweep->machines[s->machine];
    int first = s->out->num_rows;
    for (int i = 0; i < machine->num_sizes && s->out->num_rows < MOST_ROWS; i++)
        if (!try_size(s, machine->sizes[i], s->out->num_rows))
            return false;
    return !machine->refine || refine(s, first);
}

void mcp_capacity_sweep(struct mcp_arena *arena, const struct mcp_capacity_sweep *sweep,
                        struct mcp_capacity *out)
{
    struct sweeping s = {.arena = arena, .sweep = sweep, .out = out};
    *out = (struct mcp_capacity){.best = -1};
    for (bool going = true; going && s.machine < sweep->num_machines; s.machine++)
        going = sweep_machine(&s);
    mcp_capacity_judge(arena, sweep->ask, out);
}
