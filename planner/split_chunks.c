/* planner/split_chunks.c: columns of several chunks a rank: how many of them are
 * larger, and how many of the rank's layers do what. */
#include "planner/bound.h"
#include "planner/split_parts.h"

#include "core/stack.h"

#include <stdlib.h>
#include <string.h>

/* A chunk of some virtual stages with `full` and `selective` layers at its bottom. */
struct brick {
    struct mcp_chunk chunk;
    struct mcp_recompute_run runs[MCP_NUM_RECOMPUTES];
    struct mcp_stage stage;
};

/* Of a rank: so many layers do full, so many selective, spread evenly. */
struct share {
    int full, selective;
    int64_t extra_ns;
    double held_bytes; /* frames at the first backward, at least */
};

/* All that may fit on a rank with so many larger chunks, by extra_ns. */
struct shares {
    bool listed;
    int count;
    struct share *items;
    int64_t before_ns, compute_ns, load_ns; /* of ranks before; its own without recompute */
};

struct mcp_chunk_filler {
    bool free;             /* larger chunks may be anywhere, */
    int leads;             /* but for the first chunks of so many ranks: */
    unsigned larger_leads; /* bit by bit */
    int base, larger;      /* layers of the smaller chunks; larger chunks in all */
    int *classes;          /* [p v] of bricks */
    int num_classes;
    struct brick **bricks; /* [classes][larger?][full][selective] */
    struct shares *shares; /* [p][v + 1] */
};

/* Does a chunk hold the same kinds of layers wherever larger chunks before it are?
 * It begins at layer k x base or up to `larger` later. */
static bool kinds_are_fixed(const struct mcp_splitter *s, int base, int larger)
{
    const unsigned char *kinds = s->question->model->layer_kind;
    int layers = s->question->model->num_layers;
    int stages = s->plan->pipeline_parallel * s->plan->virtual_stages;
    for (int k = 0; k < stages; k++) {
        int first = k * base, shifts = k < larger ? k : larger;
        for (int i = 1; i <= shifts; i++) {
            int size = base + 1 < layers - first - i ? base + 1 : layers - first - i;
            if (size > 0 && memcmp(kinds + first, kinds + first + i, (size_t)size) != 0)
                return false;
        }
    }
    return true;
}

/* Of the decoder layers, the first from which on all are alike. */
static int first_alike(const struct mcp_model *model)
{
    int first = model->num_layers - 1;
    while (first > 0 && model->layer_kind[first - 1] == model->layer_kind[first])
        first--;
    return first;
}

int mcp_num_leads(const struct mcp_splitter *s)
{
    const struct mcp_model *model = s->question->model;
    int stages = s->plan->pipeline_parallel * s->plan->virtual_stages;
    int base = model->num_layers / stages, first = first_alike(model);
    int leads = (first + base - 1) / base; /* later chunks begin behind `first` */
    if (!s->options->uneven || kinds_are_fixed(s, base, model->num_layers % stages))
        return 0;
    return leads <= MCP_MOST_LEADS ? leads : -1;
}

struct mcp_chunk_filler *mcp_chunk_filler_new(struct mcp_splitter *s, int leads)
{
    struct mcp_chunk_filler *f = MCP_NEW(s->arena, struct mcp_chunk_filler);
    const struct mcp_model *model = s->question->model;
    int p = s->plan->pipeline_parallel, v = s->plan->virtual_stages, stages = p * v;
    bool alike = mcp_layers_alike(model);
    f->base = model->num_layers / stages;
    f->larger = model->num_layers % stages;
    f->free = s->options->uneven && leads >= 0;
    f->leads = leads;
    f->classes = mcp_stage_classes(s, &f->num_classes);
    for (int k = 0; !alike && k < stages; k++)
        f->classes[k] = k;
    f->num_classes = alike ? f->num_classes : stages;
    f->bricks =
        MCP_ARRAY(s->arena, f->num_classes * 2 * (f->base + 2) * (f->base + 2), struct brick *);
    f->shares = MCP_ARRAY(s->arena, p * (v + 1), struct shares);
    return f;
}

/* Larger chunks among the leads of rank r; all: it has no other leads. */
static int larger_leads_of(const struct mcp_splitter *s, const struct mcp_chunk_filler *f, int r,
                           bool *all)
{
    int count = 0, p = s->plan->pipeline_parallel;
    *all = true;
    for (int k = r; k < f->leads; k += p) {
        *all = (f->larger_leads >> k & 1) != 0;
        count += *all;
    }
    return count;
}

/* A rank's larger chunks come first. */
static bool in_order(const struct mcp_splitter *s, const struct mcp_chunk_filler *f)
{
    for (int k = s->plan->pipeline_parallel; k < f->leads; k++)
        if ((f->larger_leads >> k & 1) > (f->larger_leads >> (k - s->plan->pipeline_parallel) & 1))
            return false;
    return true;
}

bool mcp_chunk_filler_turn(struct mcp_splitter *s, struct mcp_chunk_filler *f, unsigned larger)
{
    int side = f->base + 2, first = f->leads > 0 ? f->leads * 2 * side * side : 0;
    f->larger_leads = larger;
    for (int i = 0; i < first; i++) /* those of the leads: classes are stages then */
        f->bricks[i] = NULL;
    for (int i = 0; i < s->plan->pipeline_parallel * (s->plan->virtual_stages + 1); i++)
        f->shares[i].listed = false;
    int count = 0;
    for (unsigned left = larger; left != 0; left &= left - 1)
        count++;
    return count <= f->larger && in_order(s, f);
}

/* Part c of `count` things spread over v chunks, the first ones get more. */
static int part(int count, int v, int c)
{
    return count / v + (c < count % v);
}

/* Where chunk k of `layers` begins; where the larger chunks may be anywhere, as good
 * a place as any: layers from the leads on are alike. */
static int first_layer(const struct mcp_splitter *s, const struct mcp_chunk_filler *f, int k,
                       int layers)
{
    if (k == s->plan->pipeline_parallel * s->plan->virtual_stages - 1)
        return s->question->model->num_layers - layers; /* the head follows */
    int before = f->free ? 0 : k < f->larger ? k : f->larger;
    for (int lead = 0; lead < k && lead < f->leads; lead++)
        before += (int)(f->larger_leads >> lead & 1);
    return k * f->base + before;
}

static const struct brick *brick_at(struct mcp_splitter *s, struct mcp_chunk_filler *f, int k,
                                    bool larger, int full, int selective)
{
    int side = f->base + 2, layers = f->base + larger;
    struct brick **place =
        &f->bricks[((f->classes[k] * 2 + larger) * side + full) * side + selective];
    if (*place)
        return *place;
    struct brick *brick = *place = MCP_NEW(s->arena, struct brick);
    const int counts[MCP_NUM_RECOMPUTES] = {layers - full - selective, selective, full};
    brick->chunk = (struct mcp_chunk){first_layer(s, f, k, layers), layers, 0, brick->runs};
    for (int r = MCP_RECOMPUTE_FULL; r >= MCP_RECOMPUTE_NONE; r--)
        if (counts[r] > 0)
            brick->runs[brick->chunk.num_runs++] =
                (struct mcp_recompute_run){(enum mcp_recompute)r, counts[r]};
    mcp_stage_price(s->pricer, s->plan, k, &brick->chunk, &brick->stage);
    return brick;
}

/* Not priced yet. */
static struct mcp_column make(struct mcp_splitter *s, struct mcp_chunk_filler *f, int r, int larger,
                              const struct share *share)
{
    int p = s->plan->pipeline_parallel, v = s->plan->virtual_stages;
    struct mcp_chunk *chunks = MCP_ARRAY(s->arena, v, struct mcp_chunk);
    const struct mcp_stage **stages = MCP_ARRAY(s->arena, v, const struct mcp_stage *);
    for (int c = 0; c < v; c++) {
        int full = part(share->full, v, c);
        int selective = part(share->full + share->selective, v, c) - full;
        const struct brick *brick = brick_at(s, f, c * p + r, c < larger, full, selective);
        chunks[c] = brick->chunk;
        stages[c] = &brick->stage;
    }
    struct mcp_column column = {.rank = r,
                                .size = f->free ? larger : 0,
                                .recomputes = share->full + share->selective > 0,
                                .chunks = chunks,
                                .stages = stages};
    return column;
}

static bool may(const struct mcp_splitter *s, enum mcp_recompute recompute, int layers)
{
    return layers == 0 ||
           (s->options->recompute[recompute] &&
            (recompute == MCP_RECOMPUTE_NONE || s->options->max_recomputed_stages != 0));
}

static int by_extra(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    if (x->extra_ns != y->extra_ns)
        return x->extra_ns < y->extra_ns ? -1 : 1;
    return x->full - y->full;
}

/* What recompute of a rank's share adds to its load, and what its frames hold. */
static void weigh(const struct mcp_splitter *s, const struct mcp_chunk_filler *f, int r, int larger,
                  struct share *share)
{
    const unsigned char *kinds = s->question->model->layer_kind;
    int p = s->plan->pipeline_parallel, v = s->plan->virtual_stages;
    int in_flight = mcp_bound_in_flight(s->plan->schedule, p, v, s->grid.m, r);
    const struct mcp_layer_times *times = &s->times[mcp_pool_of(s, r)];
    for (int c = 0; c < v; c++) {
        int full = part(share->full, v, c);
        int some = part(share->full + share->selective, v, c);
        int layers = f->base + (c < larger), first = first_layer(s, f, c * p + r, layers);
        int64_t kept = 0;
        for (int i = 0; i < layers; i++) {
            enum mcp_recompute recompute = i < full   ? MCP_RECOMPUTE_FULL
                                           : i < some ? MCP_RECOMPUTE_SELECTIVE
                                                      : MCP_RECOMPUTE_NONE;
            share->extra_ns += times->extra_ns[kinds[first + i]][recompute];
            kept += times->kept_bytes[kinds[first + i]][recompute];
        }
        share->held_bytes += (double)mcp_bound_in_flight_of(p, v, in_flight, c) * (double)kept;
    }
}

/* Bytes that frames may hold on rank r, at most. */
static double room_for_frames(struct mcp_splitter *s, int r, const struct mcp_column *none)
{
    const struct mcp_stack *stack = s->question->stack;
    double room = (double)(mcp_rank_limit(s, r) - stack->reserve_bytes) + 1;
    room = room / (1 + stack->fragmentation_frac) + 4; /* roundings */
    for (int c = 0; c < s->plan->virtual_stages; c++) {
        const struct mcp_stage *stage = none->stages[c];
        room -= (double)(stage->weights_bytes + stage->gradients_bytes + stage->optimizer_bytes);
    }
    return room * (1 + 1e-12) / stack->activation_memory_factor;
}

static void list_shares(struct mcp_splitter *s, struct mcp_chunk_filler *f, int r, int larger,
                        double room, struct shares *out)
{
    int layers = s->plan->virtual_stages * f->base + larger;
    out->items = MCP_ARRAY(s->arena, (layers + 1) * (layers + 2) / 2, struct share);
    out->count = 0;
    for (int full = 0; full <= layers; full++)
        for (int selective = 0; full + selective <= layers; selective++) {
            struct share share = {full, selective, 0, 0};
            if (!may(s, MCP_RECOMPUTE_FULL, full) || !may(s, MCP_RECOMPUTE_SELECTIVE, selective) ||
                !may(s, MCP_RECOMPUTE_NONE, layers - full - selective))
                continue;
            weigh(s, f, r, larger, &share);
            if (share.held_bytes <= room)
                out->items[out->count++] = share;
        }
    if (out->count > 0)
        qsort(out->items, (size_t)out->count, sizeof *out->items, by_extra);
}

static const struct shares *shares_of(struct mcp_splitter *s, struct mcp_chunk_filler *f, int r,
                                      int larger)
{
    const struct share no_share = {0, 0, 0, 0};
    struct shares *shares = &f->shares[r * (s->plan->virtual_stages + 1) + larger];
    if (shares->listed)
        return shares;
    struct mcp_column none = make(s, f, r, larger, &no_share);
    mcp_column_price(s, &none);
    *shares = (struct shares){.listed = true, .load_ns = none.load_ns};
    for (int i = 0; i < r; i++) {
        const struct mcp_stage *stage = &brick_at(s, f, i, false, 0, 0)->stage;
        shares->before_ns += stage->forward_ns + stage->backward_ns;
    }
    for (int c = 0; c < s->plan->virtual_stages; c++)
        shares->compute_ns += none.stages[c]->forward_ns + none.stages[c]->backward_ns;
    list_shares(s, f, r, larger, room_for_frames(s, r, &none), shares);
    return shares;
}

/* All its slots, and until its first and after its last those of ranks before:
 * compute alone, as more of it may hide transfers. */
static int64_t least_ns(const struct mcp_splitter *s, const struct shares *shares, int i)
{
    int64_t compute = shares->compute_ns + shares->items[i].extra_ns;
    compute = compute > shares->load_ns ? compute : shares->load_ns;
    return s->fixed_ns + shares->before_ns + s->grid.m * compute;
}

/* More recompute in some chunks and less in others may be better or worse, so the
 * first that fits is not enough. */
static void add_columns(struct mcp_splitter *s, struct mcp_chunk_filler *f, int r, int larger,
                        bool first)
{
    const struct shares *shares = shares_of(s, f, r, larger);
    for (int i = 0; i < shares->count; i++) {
        if (least_ns(s, shares, i) >= s->cutoff_ns) {
            s->grid.cut = true;
            break;
        }
        struct mcp_column column = make(s, f, r, larger, &shares->items[i]);
        if (!mcp_column_fits(s, &column))
            continue;
        mcp_column_price(s, &column);
        mcp_grid_add(s, &column);
        if (first)
            break;
    }
}

struct span { /* of larger chunks of a rank */
    int least, most;
};

static struct span span_of(const struct mcp_splitter *s, const struct mcp_chunk_filler *f, int r)
{
    int p = s->plan->pipeline_parallel, v = s->plan->virtual_stages;
    int even = f->larger / p + (r < f->larger % p);
    bool all;
    if (!f->free)
        return (struct span){even, even};
    int least = larger_leads_of(s, f, r, &all);
    return (struct span){least, !all ? least : f->larger < v ? f->larger : v};
}

/* Before anything is priced: can the ranks take all larger chunks and end in time? */
static bool may_win(struct mcp_splitter *s, struct mcp_chunk_filler *f)
{
    int taken = 0;
    for (int r = 0; r < s->plan->pipeline_parallel; r++) {
        const struct span span = span_of(s, f, r);
        int most = -1;
        bool fits = false;
        for (int larger = span.least; larger <= span.most; larger++) {
            const struct shares *shares = shares_of(s, f, r, larger);
            fits |= shares->count > 0;
            if (shares->count > 0 && least_ns(s, shares, 0) < s->cutoff_ns)
                most = larger;
        }
        s->grid.cut = fits;
        if (most < 0)
            return false;
        taken += most;
    }
    s->grid.cut = taken < f->larger;
    return taken >= f->larger;
}

void mcp_fill_chunk_columns(struct mcp_splitter *s, struct mcp_chunk_filler *f, bool first)
{
    int p = s->plan->pipeline_parallel, before = -1;
    mcp_grid_begin(s, f->free ? f->larger : 0, true);
    for (int r = 0; r < p && (r > 0 || may_win(s, f)) && s->grid.count > before; r++) {
        const struct span span = span_of(s, f, r);
        before = s->grid.count;
        for (int larger = span.least; larger <= span.most; larger++)
            add_columns(s, f, r, larger, first);
    }
    mcp_grid_end(s);
}
