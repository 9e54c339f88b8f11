/* planner/bound_kinds.c: several kinds of layers, each in its place: how few layers the
 * first stage can have when all others take as many as their lines allow.
 *
 * What a stage of layers [from, to) takes and holds never falls with a layer more on
 * either side, so that taking all one can from the last stage down leaves the first as
 * few as any split does. */
#include "planner/bound_parts.h"

#include <math.h>

enum { MAX_RATES = 3 };

/* Time for which recompute gives back bytes, whatever the kind: at least `rate` for
 * each, less `spare` for each layer. */
struct rates {
    int count;
    double rate[MAX_RATES];
    double spare[MAX_RATES][MCP_MAX_LAYER_KINDS];
};

struct reach {
    const struct mcp_floor *floor;
    struct mcp_chain chain;
    double first_working; /* of a stage's top layer, of any kind */
    struct rates rates[MCP_MAX_POOLS];
};

/* A stage and the layers on it so far. */
struct load {
    const struct mcp_layer_floor *kinds;
    const struct rates *rates;
    double forwards, backwards; /* slots on the path that dwells here; below 0: none */
    double base_through, base_dwell;
    double held, room;     /* frames; bytes besides the ends */
    double through, dwell; /* of layers */
    double bytes, least_bytes, working, spare[MAX_RATES];
};

/* --- rates --- */

/* How much more `rate` promises than the kind's recompute takes, at most: where its
 * dearer recompute begins. */
static double spare_of(const struct mcp_layer_floor *kind, double rate)
{
    double cheap = kind->ns_per_byte, dear = kind->last_ns_per_byte;
    double bytes = kind->kept_bytes - kind->least_kept_bytes;
    if (rate <= cheap || bytes <= 0)
        return 0;
    if (!isfinite(dear) || dear <= cheap)
        return (rate - cheap) * bytes;
    double kink = fmin(bytes, fmax(0, kind->last_ns / (dear - cheap)));
    return (rate - cheap) * kink + fmax(0, rate - dear) * (bytes - kink);
}

static void add_rate(const struct mcp_floor *floor, const struct mcp_layer_floor *kinds,
                     double rate, struct rates *rates)
{
    if (!isfinite(rate) || rate <= 0)
        return;
    for (int i = 0; i < floor->num_kinds; i++)
        rates->spare[rates->count][i] = spare_of(&kinds[i], rate);
    rates->rate[rates->count++] = rate;
}

/* The least of all kinds, and both of the kind that most layers are. */
static void set_rates(const struct mcp_floor *floor, const struct mcp_layer_floor *kinds,
                      struct rates *rates)
{
    double least = INFINITY;
    int most = 0;
    for (int i = 0; i < floor->num_kinds; i++) {
        least = fmin(least, kinds[i].ns_per_byte);
        most = kinds[i].num_layers > kinds[most].num_layers ? i : most;
    }
    rates->count = 0;
    add_rate(floor, kinds, least, rates);
    if (kinds[most].ns_per_byte > least)
        add_rate(floor, kinds, kinds[most].ns_per_byte, rates);
    add_rate(floor, kinds, kinds[most].last_ns_per_byte, rates);
}

/* --- a stage --- */

static int pool_of(const struct mcp_floor *floor, int s)
{
    return floor->stage_pool != NULL ? floor->stage_pool[s] : 0;
}

static struct load load_of(const struct reach *reach, int s)
{
    const struct mcp_floor *f = reach->floor;
    const struct mcp_layer_floor ends = mcp_floor_ends(f, s);
    int pool = pool_of(f, s);
    double m = (double)f->m, sends = f->p > 1 ? f->send_ns : 0;
    struct load load = {.kinds = f->kinds[pool], .rates = &reach->rates[pool]};
    load.base_through = mcp_floor_way(f, s) + (s > 0 ? mcp_floor_pair(&f->ends[0]) : 0) -
                        reach->chain.lead_ns + m * (mcp_floor_pair(&ends) + 2 * sends);
    load.backwards = f->schedule == MCP_1F1B ? m - 1 : -1;
    load.forwards = fmax(0, fmin(m - f->p + s, m - 1));
    load.base_dwell = reach->chain.forward_ns + reach->chain.backward_ns - reach->chain.lead_ns +
                      load.backwards * (ends.backward_ns + sends) +
                      load.forwards * (ends.forward_ns + sends);
    load.held = mcp_floor_in_flight(f, s) * f->memory_factor;
    load.room = f->room[pool] - mcp_floor_static(&ends);
    return load;
}

static void add_layer(const struct reach *reach, int kind, struct load *load)
{
    const struct mcp_floor *f = reach->floor;
    const struct mcp_layer_floor *layer = &load->kinds[kind];
    double held = mcp_floor_static(layer) + (f->gathers_all ? layer->gathered_bytes : 0);
    double working = (f->gathers_all ? 0 : layer->gathered_bytes) + 2 * layer->transient_bytes;
    load->through += (double)f->m * mcp_floor_pair(layer);
    load->dwell += load->backwards * layer->backward_ns + load->forwards * layer->forward_ns;
    load->bytes += held + load->held * layer->kept_bytes;
    load->least_bytes += held + load->held * layer->least_kept_bytes;
    load->working = fmax(load->working, working + reach->first_working);
    for (int i = 0; i < load->rates->count; i++)
        load->spare[i] += load->rates->spare[i][kind];
}

/* What the recompute of a microbatch takes that makes the layers fit. */
static double recompute_ns(const struct load *load)
{
    double most = 0;
    double excess = load->bytes + load->working - load->room;
    if (excess <= 0 || load->held <= 0)
        return 0;
    for (int i = 0; i < load->rates->count; i++)
        most = fmax(most, load->rates->rate[i] * excess / load->held - load->spare[i]);
    return most;
}

/* Where a stage dwells its first backward may recompute while it waits. */
static bool holds(const struct reach *reach, const struct load *load, double below, double time)
{
    const double slack = 1 + 1e-12;
    if (load->least_bytes + load->working > load->room * slack + 1)
        return false;
    double again = recompute_ns(load), m = (double)reach->floor->m;
    if (load->base_through + below + load->through + m * again > time)
        return false;
    return load->backwards < 0 || load->base_dwell + load->dwell + load->backwards * again <= time;
}

/* --- all stages --- */

static double pair_at(const struct mcp_floor *floor, int layer)
{
    return mcp_floor_pair(&floor->least[floor->kind_of[floor->layer_kind[layer]]]);
}

/* Where a stage that ends at `to` begins at the earliest; -1: not even with no layer.
 * below: pairs of all layers before `to`, then before that. */
static int begin_of(const struct reach *reach, int s, int to, double *below, double time)
{
    const struct mcp_floor *f = reach->floor;
    struct load load = load_of(reach, s);
    int from = to;
    if (!holds(reach, &load, *below, time))
        return -1;
    while (from > 0) {
        struct load more = load;
        double under = *below - pair_at(f, from - 1);
        add_layer(reach, f->kind_of[f->layer_kind[from - 1]], &more);
        if (!holds(reach, &more, under, time))
            break;
        load = more;
        *below = under;
        from--;
    }
    return from;
}

/* Layers that stages above the first leave to it; -1: they cannot end in time. */
static int left_to_first(const struct reach *reach, double time)
{
    const struct mcp_floor *f = reach->floor;
    int left = f->num_layers;
    double below = 0;
    for (int i = 0; i < left; i++)
        below += pair_at(f, i);
    for (int s = f->p - 1; s > 0 && left >= 0; s--)
        left = begin_of(reach, s, left, &below, time);
    return left;
}

static bool first_holds(const struct reach *reach, int layers, double time)
{
    struct load load = load_of(reach, 0);
    for (int i = 0; i < layers; i++)
        add_layer(reach, reach->floor->kind_of[reach->floor->layer_kind[i]], &load);
    return holds(reach, &load, 0, time);
}

/* Of stage 0, with `layers` layers. */
struct edges {
    struct mcp_edge gather, reduce;
};

static void add_edges(const struct mcp_floor *f, const struct mcp_layer_floor *part,
                      struct edges *edges)
{
    edges->gather.part += f->gathers_once ? f->exposed_frac * part->gather_ns : 0;
    edges->reduce.part += f->reduces_once ? f->exposed_frac * part->reduce_ns : 0;
    edges->gather.rest += part->gather_ns - part->forward_ns;
    edges->reduce.rest += part->reduce_ns - part->backward_ns - part->slowest_ns;
    if (!f->gathers_once)
        edges->gather.rest = -INFINITY;
    if (!f->reduces_once)
        edges->reduce.rest = -INFINITY;
}

/* What no layer more makes less. */
static double never_hidden(const struct edges *edges)
{
    return fmax(0, edges->gather.part - 1) + fmax(0, edges->reduce.part - 1);
}

/* The least of both edges with so many layers or more. */
static double edges_ns(const struct mcp_floor *f, int layers)
{
    struct edges edges = {{0, 0}, {0, 0}};
    struct mcp_layer_floor ends = mcp_floor_ends(f, 0);
    double least = INFINITY;
    ends.slowest_ns = 0;
    add_edges(f, &ends, &edges);
    for (int n = 0; n <= f->num_layers && never_hidden(&edges) < least; n++) {
        if (n >= layers)
            least = fmin(least, mcp_edge_ns(&edges.gather) + mcp_edge_ns(&edges.reduce));
        if (n < f->num_layers)
            add_edges(f, &f->kinds[pool_of(f, 0)][f->kind_of[f->layer_kind[n]]], &edges);
    }
    return least;
}

static void open_pool(struct reach *reach, int pool)
{
    const struct mcp_floor *f = reach->floor;
    set_rates(f, f->kinds[pool], &reach->rates[pool]);
    for (int i = 0; i < f->num_kinds; i++)
        reach->first_working =
            fmin(reach->first_working, f->kinds[pool][i].working_bytes * f->memory_factor);
}

bool mcp_kinds_reach(const struct mcp_floor *floor, double time)
{
    struct reach reach = {
        .floor = floor, .chain = mcp_floor_chain(floor), .first_working = INFINITY};
    int left = 0;
    for (int s = 0; s < floor->p; s++)
        if (s == 0 || pool_of(floor, s) != pool_of(floor, s - 1))
            open_pool(&reach, pool_of(floor, s));
    for (int i = 0; i < 3; i++) {
        double within = time - edges_ns(floor, left);
        int more = left_to_first(&reach, within);
        if (more < 0 || !first_holds(&reach, more > left ? more : left, within))
            return false;
        if (more <= left)
            break;
        left = more;
    }
    return true;
}
