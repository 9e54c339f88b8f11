/* planner/bound.c: lines below a step's time, and how many layers fit under them. */
#include "planner/bound_parts.h"

#include "step/schedule.h"

#include <math.h>

enum { MAX_LINES = 6, THROUGH = 0 }; /* two, each with two prices of recompute */

/* Of one stage and one kind of layer: T >= base + slope n for each line, n <= most. */
struct cap {
    int num_lines;
    double base[MAX_LINES], slope[MAX_LINES];
    double least, most;
};

/* One kind of layer on all stages. */
struct view {
    const struct mcp_floor *floor;
    int index;                          /* of the kind */
    const struct mcp_layer_floor *kind; /* as the stage at hand runs it */
    double least_pair, least_backward;  /* of any layer */
    struct mcp_chain chain;
    int smallest, largest; /* chunks, for v > 1 */
    int thin;              /* ranks at most that have only the smallest */
};

static double pair(const struct mcp_layer_floor *layer)
{
    return mcp_floor_pair(layer);
}

struct mcp_chain mcp_floor_chain(const struct mcp_floor *floor)
{
    int stages = floor->p * floor->v;
    struct mcp_chain chain = {(stages - 1) * floor->hop_forward_ns,
                              (stages - 1) * floor->hop_backward_ns, 0};
    for (int i = 0; i < floor->num_kinds; i++) {
        const struct mcp_layer_floor *k = &floor->least[i];
        chain.forward_ns += k->num_layers * k->forward_ns;
        chain.backward_ns += k->num_layers * k->backward_ns;
        chain.lead_ns = fmax(chain.lead_ns, (stages - 1) * k->lead_ns);
    }
    for (int i = 0; i < 2; i++) {
        chain.forward_ns += floor->ends[i].forward_ns;
        chain.backward_ns += floor->ends[i].backward_ns;
    }
    return chain;
}

static struct view view_of(const struct mcp_floor *floor, int index)
{
    int stages = floor->p * floor->v;
    struct view view = {.floor = floor,
                        .index = index,
                        .least_pair = INFINITY,
                        .least_backward = INFINITY,
                        .chain = mcp_floor_chain(floor),
                        .smallest = floor->num_layers / stages,
                        .largest = (floor->num_layers + stages - 1) / stages};
    view.thin = (stages * view.largest - floor->num_layers) / floor->v;
    for (int i = 0; i < floor->num_kinds; i++) {
        const struct mcp_layer_floor *k = &floor->least[i];
        view.least_pair = fmin(view.least_pair, pair(k));
        view.least_backward = fmin(view.least_backward, k->backward_ns);
    }
    return view;
}

/* What stage s holds besides layers. */
struct mcp_layer_floor mcp_floor_ends(const struct mcp_floor *floor, int s)
{
    struct mcp_layer_floor sum = {0};
    for (int i = 0; i < 2; i++) {
        const struct mcp_layer_floor *end = &floor->ends[i];
        if (s != (i == 0 ? 0 : floor->p - 1))
            continue;
        sum.forward_ns += end->forward_ns;
        sum.backward_ns += end->backward_ns;
        sum.gather_ns += end->gather_ns;
        sum.reduce_ns += end->reduce_ns;
        sum.weights_bytes += end->weights_bytes;
        sum.gradients_bytes += end->gradients_bytes;
        sum.optimizer_bytes += end->optimizer_bytes;
    }
    return sum;
}

static void add_line(struct cap *cap, double base, double slope)
{
    cap->base[cap->num_lines] = base;
    cap->slope[cap->num_lines++] = slope;
}

/* Layers in the first chunks of ranks below s: a rank's larger chunks come first, so
 * that a small one there makes its rank thin. */
static int layers_below(const struct view *view, int s)
{
    int thin = s < view->thin ? s : view->thin;
    return s * view->largest - thin * (view->largest - view->smallest);
}

/* After the first microbatch has come back to s, what s still has to do; then its
 * last backward goes down. */
static void line_after_first(const struct view *view, int s, const struct mcp_layer_floor *ends,
                             struct cap *cap)
{
    const struct mcp_floor *f = view->floor;
    double again = (double)(f->m - 1), left = (double)(f->m - f->p + s);
    double sends = f->p > 1 ? f->send_ns : 0;
    left = fmax(0, fmin(left, again));
    add_line(cap,
             view->chain.forward_ns + view->chain.backward_ns - view->chain.lead_ns +
                 again * (ends->backward_ns + sends) + left * (ends->forward_ns + sends),
             again * view->kind->backward_ns + left * view->kind->forward_ns);
}

/* The same where chunks take turns: most forwards came before the first backward. */
static void line_interleaved(const struct view *view, int s, const struct mcp_layer_floor *ends,
                             struct cap *cap)
{
    const struct mcp_floor *f = view->floor;
    const struct mcp_layer_floor *kind = view->kind;
    int p = f->p, v = f->v, above = p - 1 - s;
    double m = (double)f->m, before = fmin(2 * above + (v - 1) * p + 1, m * v);
    double way = (above * view->smallest + layers_below(view, s)) * view->least_backward;
    double base = view->chain.forward_ns + (p - 1) * f->hop_backward_ns - view->chain.lead_ns + way;
    base += above > 0 ? f->ends[1].backward_ns : 0;
    base += s > 0 ? f->ends[0].backward_ns - f->send_ns : 0;
    base += m * ends->backward_ns + fmax(0, m - before) * ends->forward_ns;
    base += f->send_ns * (2 * m * v - before) - before * view->largest * kind->forward_ns;
    add_line(cap, base, m * pair(kind));
}

double mcp_floor_way(const struct mcp_floor *floor, int s)
{
    double way = s * (floor->hop_forward_ns + floor->hop_backward_ns);
    if (s > 0)
        way -= floor->send_ns; /* the first message down is part of its last slot */
    if (s == floor->p - 1)
        way -= floor->send_ns; /* its first slot receives while it waits */
    return way;
}

/* Up to s, all its slots, and down again. */
static void line_of_rank(const struct view *view, int s, const struct mcp_layer_floor *ends,
                         struct cap *cap)
{
    const struct mcp_floor *f = view->floor;
    double m = (double)f->m, way = mcp_floor_way(f, s);
    double sends = f->p > 1 ? 2 * f->v * f->send_ns : 0;
    double below = f->v > 1 ? layers_below(view, s) * view->least_pair : 0;
    below += s > 0 ? pair(&f->ends[0]) : 0;
    add_line(cap, way + fmax(0, below - view->chain.lead_ns) + m * (pair(ends) + sends),
             m * pair(view->kind));
}

struct mcp_bases mcp_floor_bases(const struct mcp_floor *floor, int s)
{
    struct view view = view_of(floor, 0);
    struct mcp_layer_floor slowest = floor->least[0];
    const struct mcp_layer_floor ends = mcp_floor_ends(floor, s);
    const int pool = floor->stage_pool ? floor->stage_pool[s] : 0;
    struct cap cap = {0};
    for (int i = 0; i < floor->num_kinds; i++)
        slowest.forward_ns = fmax(slowest.forward_ns, floor->kinds[pool][i].forward_ns);
    view.kind = &slowest;
    line_of_rank(&view, s, &ends, &cap);
    line_interleaved(&view, s, &ends, &cap);
    return (struct mcp_bases){cap.base[0], cap.base[1]};
}

int mcp_bound_in_flight(enum mcp_schedule schedule, int p, int v, int64_t m, int s)
{
    int total = (int)(m * v), warm_up = mcp_schedule_warm_up(schedule, p, v, (int)m, s);
    return warm_up < total ? warm_up + 1 : total;
}

int mcp_bound_in_flight_of(int p, int v, int count, int chunk)
{
    int period = p * v, rest = count % period - chunk * p;
    if (v == 1)
        return count;
    return count / period * p + (rest < 0 ? 0 : rest < p ? rest : p);
}

int mcp_floor_in_flight(const struct mcp_floor *f, int s)
{
    return mcp_bound_in_flight(f->schedule, f->p, f->v, f->m, s);
}

int mcp_floor_in_flight_of(const struct mcp_floor *f, int count, int chunk)
{
    return mcp_bound_in_flight_of(f->p, f->v, count, chunk);
}

/* What a rank with a layer has besides: gathered weights, gradients on their way, and
 * what the backward of its top layer, of any kind, works with. */
static double working_bytes(const struct view *view)
{
    const struct mcp_floor *f = view->floor;
    const struct mcp_layer_floor *kind = view->kind;
    double gathered = f->gathers_all ? 0 : kind->gathered_bytes, least = INFINITY;
    for (int i = 0; i < f->num_kinds; i++)
        least = fmin(least, kind[i - view->index].working_bytes);
    return gathered + 2 * kind->transient_bytes + least * f->memory_factor;
}

/* Frames of a rank's layers at its first backward. */
struct frames {
    double held;  /* of a layer, at least */
    double freed; /* by a layer that is recomputed, at most */
    double more;  /* and once for each kind of recompute */
};

/* With virtual stages larger chunks come first, and recompute is spread over chunks
 * evenly, the first getting more. */
static struct frames frames_of(const struct mcp_floor *f, int s)
{
    int count = mcp_floor_in_flight(f, s);
    double mean = (double)count / f->v, ahead = 0, most = 0;
    for (int c = 0; c < f->v; c++) {
        ahead += mcp_floor_in_flight_of(f, count, c) - mean;
        most = fmax(most, ahead);
    }
    return (struct frames){mean, mean, most};
}

/* In a microbatch, n layers that do not fit as they are take `rate` for each byte too
 * many, less `spare` for each layer. */
struct excess {
    double bytes, each; /* too many: n x each - bytes */
    double rate, spare;
    int num_bases;
    double times; /* microbatches */
};

/* Where a stage dwells its first backward may recompute while it waits. */
static void add_excess(struct cap *cap, const struct excess *excess)
{
    if (!isfinite(excess->rate) || excess->rate <= 0)
        return;
    for (int i = 0; i < excess->num_bases; i++) {
        double times = i == THROUGH ? excess->times : excess->times - 1;
        double rate = times * excess->rate;
        add_line(cap, cap->base[i] - rate * excess->bytes,
                 cap->slope[i] + rate * excess->each - times * excess->spare);
    }
}

static void add_memory(const struct view *view, int s, const struct mcp_layer_floor *ends,
                       double room, struct cap *cap)
{
    const struct mcp_floor *f = view->floor;
    const struct mcp_layer_floor *kind = view->kind;
    const struct frames frames = frames_of(f, s);
    double held = frames.held * f->memory_factor, freed = frames.freed * f->memory_factor;
    double each = mcp_floor_static(kind) + (f->gathers_all ? kind->gathered_bytes : 0);
    double left = room - mcp_floor_static(ends) - working_bytes(view);
    double least = each + held * kind->least_kept_bytes;
    if (least > 0)
        cap->most = fmin(cap->most, floor(fmax(0, left) / least + 1e-9));
    if (left < 0 || freed <= 0)
        return;
    struct excess excess = {.bytes = left + frames.more * f->memory_factor * kind->saved_bytes,
                            .each = each + held * kind->kept_bytes,
                            .rate = kind->ns_per_byte / freed,
                            .num_bases = cap->num_lines,
                            .times = (double)f->m};
    add_excess(cap, &excess);
    excess.rate = kind->last_ns_per_byte / freed;
    excess.spare = kind->last_ns;
    add_excess(cap, &excess);
}

static void cap_of(struct view *view, int s, struct cap *cap)
{
    const struct mcp_floor *f = view->floor;
    int pool = f->stage_pool ? f->stage_pool[s] : 0;
    view->kind = &f->kinds[pool][view->index];
    const struct mcp_layer_floor ends = mcp_floor_ends(f, s);
    cap->num_lines = 0;
    cap->least = f->v > 1 ? f->v * view->smallest : 0;
    cap->most = f->v > 1 ? f->v * view->largest : view->kind->num_layers;
    line_of_rank(view, s, &ends, cap);
    if (f->v > 1)
        line_interleaved(view, s, &ends, cap);
    else if (f->schedule == MCP_1F1B)
        line_after_first(view, s, &ends, cap);
    if (isfinite(f->room[pool]))
        add_memory(view, s, &ends, f->room[pool], cap);
}

/* Most layers under all lines; below 0: not even none. */
static double layers_under(const struct cap *cap, double time)
{
    double most = cap->most;
    for (int i = 0; i < cap->num_lines; i++) {
        double left = time - cap->base[i];
        if (left < 0)
            return -1;
        if (cap->slope[i] * most > left)
            most = floor(left / cap->slope[i] + 1e-9);
    }
    return most >= cap->least ? most : -1;
}

/* A transfer once a step, exposed: at least the part that is never hidden, and what
 * is more than the compute beside it. */
struct edge {
    double part, part_each; /* without layers, of each layer */
    double rest, rest_each;
};

static double edge_ns(const struct edge *edge, double layers)
{
    double part = edge->part + layers * edge->part_each;
    double rest = edge->rest_each > 0 ? edge->rest + layers * edge->rest_each : 0;
    return fmax(0, fmax(part, rest) - 1);
}

struct caps {
    const struct mcp_floor *placed; /* layers differ: they count by place; NULL: alike */
    int count;
    double wanted; /* layers of the kind */
    struct cap items[MCP_MAX_PIPELINE];
    struct edge gather, reduce; /* of stage 0 */
};

static void set_edges(const struct mcp_floor *floor, const struct mcp_layer_floor *kind,
                      struct caps *caps)
{
    const struct mcp_layer_floor ends = mcp_floor_ends(floor, 0);
    double gather = floor->gathers_once ? floor->exposed_frac : 0;
    double reduce = floor->reduces_once ? floor->exposed_frac : 0;
    caps->gather = (struct edge){gather * ends.gather_ns, gather * kind->gather_ns, 0, 0};
    caps->reduce = (struct edge){reduce * ends.reduce_ns, reduce * kind->reduce_ns, 0, 0};
    double beside = floor->v > 1 ? floor->p : 1; /* microbatches of each chunk, at most */
    if (floor->gathers_once) {
        caps->gather.rest = ends.gather_ns - beside * ends.forward_ns;
        caps->gather.rest_each = kind->gather_ns - beside * kind->forward_ns;
    }
    if (floor->reduces_once && isfinite(kind->slowest_ns)) {
        double backward = kind->backward_ns + kind->slowest_ns;
        caps->reduce.rest = ends.reduce_ns - beside * ends.backward_ns;
        caps->reduce.rest_each = kind->reduce_ns - beside * backward;
    }
}

static void caps_of(const struct mcp_floor *floor, struct caps *caps)
{
    caps->placed = floor->num_kinds > 1 ? floor : NULL;
    if (caps->placed)
        return;
    const struct mcp_layer_floor *kind =
        &floor->kinds[floor->stage_pool ? floor->stage_pool[0] : 0][0];
    struct view view = view_of(floor, 0);
    caps->count = floor->p;
    caps->wanted = kind->num_layers;
    set_edges(floor, kind, caps);
    for (int s = 0; s < floor->p; s++)
        cap_of(&view, s, &caps->items[s]);
}

/* Layers under all lines in `time`; -1: a stage cannot even hold its least. */
static double sum_under(const struct caps *caps, int first, double time)
{
    double sum = 0;
    for (int s = first; s < caps->count; s++) {
        double most = layers_under(&caps->items[s], time);
        if (most < 0)
            return -1;
        sum += most;
    }
    return sum;
}

/* Stage 0's gather comes before everything, its reduction after: with as few layers
 * as the others leave to it, both take part of the time. */
static bool reaches(const struct caps *caps, double time)
{
    double left = 0;
    if (caps->placed)
        return caps->placed->v > 1 ? mcp_chunks_reach(caps->placed, time)
                                   : mcp_kinds_reach(caps->placed, time);
    for (int i = 0; i < 3; i++) {
        double edges = edge_ns(&caps->gather, left) + edge_ns(&caps->reduce, left);
        double others = sum_under(caps, 1, time - edges);
        double own = layers_under(&caps->items[0], time - edges);
        if (others < 0 || own < 0 || others + own < caps->wanted)
            return false;
        left = fmax(left, caps->wanted - others);
    }
    return true;
}

/* Time after the pipeline: fixed parts, and the largest update. */
static double after_ns(const struct mcp_floor *floor)
{
    double total = 0, largest = fmax(floor->ends[0].update_ns, floor->ends[1].update_ns);
    for (int i = 0; i < floor->num_kinds; i++) {
        const struct mcp_layer_floor *kind = &floor->least[i];
        int most = (kind->num_layers + floor->p - 1) / floor->p;
        total += kind->num_layers * kind->update_ns;
        largest = fmax(largest, most * kind->update_ns);
    }
    total += floor->ends[0].update_ns + floor->ends[1].update_ns;
    return floor->fixed_ns + fmax(largest, total / floor->p);
}

/* Any order: ranks have the mean of all slots, and wait for the first forward as long as the
 * even chunks before theirs take. */
static double busy_ns(const struct mcp_floor *floor)
{
    double work = pair(&floor->ends[0]) + pair(&floor->ends[1]), least = INFINITY;
    int layers = floor->num_layers / (floor->p * floor->v); /* of each chunk, at least */
    for (int i = 0; i < floor->num_kinds; i++) {
        work += floor->least[i].num_layers * pair(&floor->least[i]);
        least = fmin(least, floor->least[i].forward_ns);
    }
    double wait = (floor->p - 1) / 2.0 * (layers * least + floor->hop_forward_ns);
    /* less, as two parts of a backward are rounded each by itself */
    return ((double)floor->m * work / floor->p + wait) * (1 - 1e-5);
}

/* All kinds together, layers cut as finely as one likes; 0 where GPUs differ. */
static double fluid_ns(const struct mcp_floor *floor)
{
    double inverse = 0, sum = 0, largest = 0, work = 0;
    struct view views[MCP_MAX_LAYER_KINDS];
    if (floor->any_order)
        return busy_ns(floor);
    if (floor->num_pools > 1)
        return 0;
    for (int i = 0; i < floor->num_kinds; i++) {
        views[i] = view_of(floor, i);
        views[i].kind = &floor->least[i];
        work += views[i].kind->num_layers * pair(views[i].kind);
    }
    for (int s = 0; s < floor->p; s++) {
        double base = 0, slope = INFINITY; /* T >= base + slope x time of layers on s */
        const struct mcp_layer_floor ends = mcp_floor_ends(floor, s);
        for (int i = 0; i < floor->num_kinds; i++) {
            struct cap cap = {0};
            if (floor->v == 1 && floor->schedule == MCP_1F1B)
                line_after_first(&views[i], s, &ends, &cap);
            else
                line_of_rank(&views[i], s, &ends, &cap);
            base = cap.base[0];
            slope = fmin(slope, cap.slope[0] / pair(views[i].kind));
        }
        largest = fmax(largest, base);
        if (slope <= 0)
            return largest;
        inverse += 1 / slope;
        sum += base / slope;
    }
    return fmax(largest, (work + sum) / inverse);
}

static const double rounding = 1e-11;

bool mcp_floor_reaches(const struct mcp_floor *floor, double time_ns)
{
    struct caps caps;
    double time = time_ns * (1 + rounding) + 1 - after_ns(floor);
    if ((floor->any_order || floor->num_kinds > 1) && fluid_ns(floor) > time)
        return false;
    caps_of(floor, &caps);
    return floor->any_order || reaches(&caps, time);
}

/* From `low` on. */
static double least_time(const struct caps *caps, double low)
{
    double high = fmax(low, 1);
    if (!reaches(caps, INFINITY))
        return INFINITY;
    while (!reaches(caps, high)) {
        low = high;
        high *= 1.25;
    }
    for (int i = 0; i < 40 && high - low > 1e-7 * high; i++) {
        double middle = (low + high) / 2;
        if (reaches(caps, middle))
            high = middle;
        else
            low = middle;
    }
    return low;
}

double mcp_floor_fluid_ns(const struct mcp_floor *floor)
{
    return (fluid_ns(floor) + after_ns(floor)) * (1 - rounding);
}

int64_t mcp_floor_ns(const struct mcp_floor *floor)
{
    struct caps caps;
    double time = fluid_ns(floor);
    caps_of(floor, &caps);
    time = floor->any_order ? time : fmax(time, least_time(&caps, time));
    if (!isfinite(time))
        return INT64_MAX;
    return (int64_t)fmax(0, (time + after_ns(floor)) * (1 - rounding) - 1);
}

/* --- memory --- */

/* What is held between steps (0 weights, 1 gradients too, 2 all) against the room of all
 * ranks together: cheap, and refuses most of what does not fit. */
static bool too_much(const struct mcp_floor *floor, int parts)
{
    double sum = 0;
    if (floor->num_pools > 1)
        return false;
    for (int i = -2; i < floor->num_kinds; i++) {
        const struct mcp_layer_floor *layer = i < 0 ? &floor->ends[i + 2] : &floor->kinds[0][i];
        double held = layer->weights_bytes + (parts >= 1 ? layer->gradients_bytes : 0) +
                      (parts >= 2 ? layer->optimizer_bytes : 0);
        sum += held * (i < 0 ? 1 : layer->num_layers);
    }
    return sum > floor->p * (floor->room[0] * (1 + 1e-9) + 1);
}

static bool holds(const struct mcp_floor *floor)
{
    struct caps caps;
    caps_of(floor, &caps);
    return reaches(&caps, INFINITY);
}

static void strip_layer(struct mcp_layer_floor *layer, int parts)
{
    layer->kept_bytes = layer->least_kept_bytes = layer->working_bytes = 0;
    layer->gathered_bytes = layer->transient_bytes = 0;
    layer->gradients_bytes = parts >= 1 ? layer->gradients_bytes : 0;
    layer->optimizer_bytes = parts >= 2 ? layer->optimizer_bytes : 0;
}

/* The floor with no more than some of its bytes: 0 weights, 1 gradients too, 2 all
 * that is held between steps. */
static void strip(const struct mcp_floor *floor, int parts, struct mcp_floor *bare)
{
    mcp_floor_copy(floor, bare);
    for (int i = 0; i < 2; i++)
        strip_layer(&bare->ends[i], parts);
    for (int pool = 0; pool < bare->num_pools; pool++)
        for (int i = 0; i < bare->num_kinds; i++)
            strip_layer(&bare->kinds[pool][i], parts);
}

const char *mcp_floor_refute(const struct mcp_floor *floor)
{
    static const char *const parts[] = {"weights", "gradients", "optimizer"};
    struct mcp_floor bare;
    for (int i = 0; i < 3; i++)
        if (too_much(floor, i))
            return parts[i];
    if (floor->any_order || holds(floor))
        return NULL;
    for (int i = 0; i < 3; i++) {
        strip(floor, i, &bare);
        if (!holds(&bare))
            return parts[i];
    }
    return "activations";
}

/* The mean of ranks, each with one microbatch of a chunk at least. */
int64_t mcp_floor_bytes(const struct mcp_floor *floor, const struct mcp_question *question)
{
    const struct mcp_stack *stack = question->stack;
    double bytes = mcp_floor_static(&floor->ends[0]) + mcp_floor_static(&floor->ends[1]);
    double working = INFINITY;
    if (floor->num_pools > 1)
        return 0;
    for (int i = 0; i < floor->num_kinds; i++) {
        const struct mcp_layer_floor *kind = &floor->kinds[0][i];
        bool first = floor->v == 1 || floor->num_kinds == 1; /* else chunk 0 may hold none */
        double kept = first ? kind->least_kept_bytes * floor->memory_factor : 0;
        bytes += kind->num_layers * (mcp_floor_static(kind) + kept / floor->v);
        working = fmin(working, kind->working_bytes * floor->memory_factor);
    }
    bytes = bytes / floor->p + (floor->p > 1 ? 0 : working);
    return (int64_t)(bytes * (1 - rounding) * (1 + stack->fragmentation_frac)) +
           stack->reserve_bytes - 8;
}

/* --- plans --- */

static const bool any_recompute[MCP_NUM_RECOMPUTES] = {true, true, true};

int64_t mcp_bound_ns(struct mcp_pricer *pricer, const struct mcp_plan *plan)
{
    struct mcp_floor floor;
    mcp_floor_load(pricer, plan, any_recompute, MCP_FLOOR_STEP, &floor);
    return mcp_floor_ns(&floor);
}
