/* planner/bound_chunks.c: several kinds of layers, each rank several chunks: how many of
 * the larger chunks each can have.
 *
 * A chunk begins where all before it are smaller, or up to so many layers later as there
 * are larger ones. It has the fewest of each kind that it has in any of these places, and
 * for the rest whatever kind costs least. */
#include "planner/bound_parts.h"

#include <math.h>

struct chunked {
    const struct mcp_floor *floor;
    int base, larger;             /* layers of the smaller chunks; larger chunks in all */
    struct mcp_layer_floor least; /* of all kinds, each number by itself */
    double rate;                  /* nanoseconds a byte of recompute, at least */
    double even_rate, saved;      /* the same were all layers alike; of each recompute */
};

/* A rank and its chunks so far. */
struct load {
    double pairs, bytes, least_bytes, working;
};

static void open_kinds(const struct mcp_layer_floor *kinds, struct chunked *c)
{
    struct mcp_layer_floor *least = &c->least;
    double extra[MCP_NUM_RECOMPUTES], saved[MCP_NUM_RECOMPUTES];
    *least = kinds[0];
    c->rate = c->even_rate = INFINITY;
    c->saved = 0;
    for (int i = 0; i < c->floor->num_kinds; i++) {
        const struct mcp_layer_floor *kind = &kinds[i];
        least->forward_ns = fmin(least->forward_ns, kind->forward_ns);
        least->backward_ns = fmin(least->backward_ns, kind->backward_ns);
        least->weights_bytes = fmin(least->weights_bytes, kind->weights_bytes);
        least->gradients_bytes = fmin(least->gradients_bytes, kind->gradients_bytes);
        least->optimizer_bytes = fmin(least->optimizer_bytes, kind->optimizer_bytes);
        least->gathered_bytes = fmin(least->gathered_bytes, kind->gathered_bytes);
        least->transient_bytes = fmin(least->transient_bytes, kind->transient_bytes);
        least->kept_bytes = fmin(least->kept_bytes, kind->kept_bytes);
        least->least_kept_bytes = fmin(least->least_kept_bytes, kind->least_kept_bytes);
        least->working_bytes = fmin(least->working_bytes, kind->working_bytes);
        c->rate = fmin(c->rate, kind->ns_per_byte);
        for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
            extra[r] = i == 0 ? kind->extra_ns[r] : fmin(extra[r], kind->extra_ns[r]);
            saved[r] = i == 0 ? kind->given_bytes[r] : fmax(saved[r], kind->given_bytes[r]);
        }
    }
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++)
        if (saved[r] > 0) {
            c->even_rate = fmin(c->even_rate, extra[r] / saved[r]);
            c->saved += saved[r];
        }
}

/* Fewest layers of each kind in chunk k of `size` layers. */
static void count_kinds(const struct chunked *c, int k, int size, int *fewest)
{
    const struct mcp_floor *f = c->floor;
    int stages = f->p * f->v, after = stages - 1 - k, counts[MCP_MAX_LAYER_KINDS] = {0};
    int first = k * c->base + (c->larger > after + 1 ? c->larger - after - 1 : 0);
    int last = k * c->base + (k < c->larger ? k : c->larger);
    last = last + size > f->num_layers ? f->num_layers - size : last;
    for (int i = 0; i < f->num_kinds; i++)
        fewest[i] = size;
    for (int i = 0; i < size && first <= last; i++)
        counts[f->kind_of[f->layer_kind[first + i]]]++;
    for (int at = first; at <= last; at++) {
        for (int i = 0; i < f->num_kinds; i++)
            fewest[i] = counts[i] < fewest[i] ? counts[i] : fewest[i];
        if (at == last)
            break;
        counts[f->kind_of[f->layer_kind[at]]]--;
        counts[f->kind_of[f->layer_kind[at + size]]]++;
    }
}

static void add_layers(const struct chunked *c, const struct mcp_layer_floor *layer, int count,
                       double held, struct load *load)
{
    const struct mcp_floor *f = c->floor;
    double fixed = mcp_floor_static(layer) + (f->gathers_all ? layer->gathered_bytes : 0);
    double working = (f->gathers_all ? 0 : layer->gathered_bytes) + 2 * layer->transient_bytes;
    if (count == 0)
        return;
    load->pairs += count * mcp_floor_pair(layer);
    load->bytes += count * (fixed + held * layer->kept_bytes);
    load->least_bytes += count * (fixed + held * layer->least_kept_bytes);
    load->working = fmax(load->working, working + c->least.working_bytes * f->memory_factor);
}

/* Rank r with `larger` larger chunks, which come first. */
static struct load load_of(const struct chunked *c, const struct mcp_layer_floor *kinds, int r,
                           int larger)
{
    const struct mcp_floor *f = c->floor;
    struct load load = {0, 0, 0, 0};
    int in_flight = mcp_floor_in_flight(f, r);
    for (int chunk = 0; chunk < f->v; chunk++) {
        int fewest[MCP_MAX_LAYER_KINDS], size = c->base + (chunk < larger), rest = size;
        double held = mcp_floor_in_flight_of(f, in_flight, chunk) * f->memory_factor;
        count_kinds(c, chunk * f->p + r, size, fewest);
        for (int i = 0; i < f->num_kinds; i++) {
            add_layers(c, &kinds[i], fewest[i], held, &load);
            rest -= fewest[i];
        }
        add_layers(c, &c->least, rest, held, &load);
    }
    return load;
}

/* What the recompute of a microbatch takes that makes `excess` bytes fit: at most the
 * frames of the first chunk for each byte; or, as recompute is spread over chunks
 * evenly, the first getting more, the mean and a little. */
static double recompute_ns(const struct chunked *c, int r, double excess)
{
    const struct mcp_floor *f = c->floor;
    int count = mcp_floor_in_flight(f, r);
    double mean = (double)count / f->v, ahead = 0, more = 0, most = 0;
    for (int chunk = 0; chunk < f->v; chunk++) {
        ahead += mcp_floor_in_flight_of(f, count, chunk) - mean;
        more = fmax(more, ahead);
    }
    double first = mcp_floor_in_flight_of(f, count, 0) * f->memory_factor;
    if (isfinite(c->rate) && first > 0)
        most = fmax(most, c->rate * excess / first);
    excess -= more * f->memory_factor * c->saved;
    if (isfinite(c->even_rate) && mean > 0)
        most = fmax(most, c->even_rate * excess / (mean * f->memory_factor));
    return most;
}

/* Of rank r, besides its layers. */
struct rank {
    int r;
    double room; /* bytes */
    struct mcp_bases bases;
};

static struct rank rank_of(const struct chunked *c, int r)
{
    const struct mcp_floor *f = c->floor;
    const struct mcp_layer_floor ends = mcp_floor_ends(f, r);
    int pool = f->stage_pool != NULL ? f->stage_pool[r] : 0;
    return (struct rank){r, f->room[pool] - mcp_floor_static(&ends), mcp_floor_bases(f, r)};
}

static bool holds(const struct chunked *c, const struct rank *rank, const struct load *load,
                  double time)
{
    const struct mcp_bases bases = rank->bases;
    const double slack = 1 + 1e-12, room = rank->room, m = (double)c->floor->m;
    double excess = load->bytes + load->working - room, again = 0;
    if (load->least_bytes + load->working > room * slack + 1)
        return false;
    if (excess > 0)
        again = recompute_ns(c, rank->r, excess);
    return bases.through_ns + m * (load->pairs + again) <= time &&
           bases.dwell_ns + m * load->pairs + (m - 1) * again <= time;
}

/* The part of rank 0's gather and reduction that is never hidden. */
static double edges_ns(const struct chunked *c)
{
    const struct mcp_floor *f = c->floor;
    const struct mcp_layer_floor *kinds = f->kinds[f->stage_pool != NULL ? f->stage_pool[0] : 0];
    const struct mcp_layer_floor ends = mcp_floor_ends(f, 0);
    double gather = ends.gather_ns, reduce = ends.reduce_ns;
    bool once = f->gathers_once || f->reduces_once;
    for (int chunk = 0; once && chunk < f->v; chunk++) {
        int fewest[MCP_MAX_LAYER_KINDS];
        count_kinds(c, chunk * f->p, c->base, fewest);
        for (int i = 0; i < f->num_kinds; i++) {
            gather += fewest[i] * kinds[i].gather_ns;
            reduce += fewest[i] * kinds[i].reduce_ns;
        }
    }
    gather *= f->gathers_once ? f->exposed_frac : 0;
    reduce *= f->reduces_once ? f->exposed_frac : 0;
    return fmax(0, gather - 1) + fmax(0, reduce - 1);
}

bool mcp_chunks_reach(const struct mcp_floor *floor, double time)
{
    int stages = floor->p * floor->v, placed = 0;
    struct chunked c = {
        .floor = floor, .base = floor->num_layers / stages, .larger = floor->num_layers % stages};
    const struct mcp_layer_floor *opened = NULL;
    double within = time - edges_ns(&c);
    int most = c.larger < floor->v ? c.larger : floor->v;
    for (int r = 0; r < floor->p; r++) {
        const struct mcp_layer_floor *kinds =
            floor->kinds[floor->stage_pool != NULL ? floor->stage_pool[r] : 0];
        const struct rank rank = rank_of(&c, r);
        int larger = most;
        if (kinds != opened)
            open_kinds(kinds, &c);
        opened = kinds;
        for (; larger >= 0; larger--) {
            struct load load = load_of(&c, kinds, r, larger);
            if (holds(&c, &rank, &load, within))
                break;
        }
        if (larger < 0)
            return false;
        placed += larger;
    }
    return placed >= c.larger;
}
