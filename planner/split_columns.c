/* planner/split_columns.c: columns of one chunk a rank: a range of layers, and the
 * cheapest recompute that fits, for each recompute of its last layer. */
#include "planner/split_parts.h"

#include "core/minmax.h"
#include "core/stack.h"
#include "step/schedule.h"

#include <stdlib.h>
#include <string.h>

/* Of each kind the lowest layers do full, the next selective, the rest none. The
 * working set of recompute is largest where it starts, so it belongs below (Jackson's
 * rule for tails): no other order of the same counts needs less memory. The last
 * layer stands apart: its recompute may pass while it waits. */
struct choice {
    int64_t extra_ns;   /* below the last layer, over no recompute */
    int64_t kept_bytes; /* below the last layer */
    unsigned short counts[MCP_MAX_LAYER_KINDS][MCP_NUM_RECOMPUTES]; /* below the last layer */
    unsigned char kind; /* being counted out, while choices are listed */
};

struct filling {
    struct mcp_chunk chunk;
    struct mcp_stage stage;
    const struct mcp_stage *stages[1];
    struct mcp_column column;
};

/* Layers start .. start + size - 1; ranges of the same kinds share one. */
struct range {
    struct range *next; /* of the same pool and size */
    int pool, start, size;
    struct choice *choices; /* by extra_ns */
    int num_choices;
    int64_t *none_ns;         /* [classes] load without recompute; 0: not priced yet */
    int64_t least_kept_bytes; /* of any choice */
    bool listed;
    bool coarse;               /* not all choices are listed */
    struct filling **fillings; /* [classes][recompute of the last][choices] */
};

struct mcp_filler {
    bool alike;
    int *classes; /* [p] 0 .. num_classes - 1 */
    int num_classes;
    /* [p] mcp_layers_ns() of the rank, of those up to it, of it and those after */
    const int64_t **here, **before, **after;
    struct range **ranges;   /* [pools][layers + 1] by size */
    int *nearest, *farthest; /* [p + 1] positions worth a look */
};

enum { MAX_CHOICES = 5000, MAX_CHOICES_ALONE = 40000 }; /* of one of many stages; of all layers */

struct mcp_filler *mcp_filler_new(struct mcp_splitter *s)
{
    struct mcp_filler *f = MCP_NEW(s->arena, struct mcp_filler);
    const struct mcp_model *model = s->question->model;
    int layers = model->num_layers, p = s->plan->pipeline_parallel;
    f->alike = mcp_layers_alike(model);
    f->classes = mcp_stage_classes(s, &f->num_classes);
    f->ranges = MCP_ARRAY(s->arena, MCP_MAX_POOLS * (layers + 1), struct range *);
    f->here = MCP_ARRAY(s->arena, p, const int64_t *);
    f->before = MCP_ARRAY(s->arena, p, const int64_t *);
    f->after = MCP_ARRAY(s->arena, p, const int64_t *);
    for (int r = 0; r < p; r++) {
        f->here[r] = mcp_layers_ns(s, r, r);
        f->before[r] = mcp_layers_ns(s, 0, r);
        f->after[r] = mcp_layers_ns(s, r, p - 1);
    }
    f->nearest = MCP_ARRAY(s->arena, p + 1, int);
    f->farthest = MCP_ARRAY(s->arena, p + 1, int);
    return f;
}

/* --- bounds without recompute --- */

/* Rank r holds layers [from, to) and recomputes; of that, the last layer's may pass
 * while it waits. */
struct place {
    int rank, from, to;
    int64_t below_ns, last_ns;
    int64_t none_ns; /* its slots of a microbatch without recompute; 0: not known */
};

/* The step takes no less: by the paths of mcp_path_through() and mcp_path_dwell().
 * Never less with a layer more: what it adds to a rank is counted before and after
 * ranks as no more. */
static int64_t least_ns(const struct mcp_splitter *s, const struct mcp_filler *f,
                        const struct place *place)
{
    int p = s->plan->pipeline_parallel, layers = s->question->model->num_layers;
    int r = place->rank, from = place->from, to = place->to;
    int64_t own = f->here[r][to] - f->here[r][from] + place->below_ns, m = s->grid.m;
    int64_t before = r > 0 ? f->before[r][from] + s->base_ns[0] : 0;
    int64_t after = r < p - 1 ? f->after[r][layers] - f->after[r][to] + s->base_ns[1] : 0;
    own += (r == 0 ? s->base_ns[0] : 0) + (r == p - 1 ? s->base_ns[1] : 0);
    int64_t through = before + m * mcp_max_int64(own + place->last_ns, place->none_ns),
            dwell = through;
    if (s->plan->schedule == MCP_GPIPE)
        dwell = before + after + m * own + (m - 1) * place->last_ns;
    else if (m > p - r)
        dwell = before + 2 * after +
                (m - p + r - 1) * mcp_max_int64(own + place->last_ns, place->none_ns) + 2 * own;
    return s->fixed_ns + (through > dwell ? through : dwell);
}

/* Layers that are alike may be anywhere in the window. */
static bool can_win(const struct mcp_splitter *s, const struct mcp_filler *f,
                    const struct place *place)
{
    struct place moved = *place;
    int size = place->to - place->from, last = f->alike ? f->farthest[place->rank] : place->from;
    if (last > s->question->model->num_layers - size)
        last = s->question->model->num_layers - size;
    for (; moved.from <= last; moved.from++) {
        moved.to = moved.from + size;
        if (least_ns(s, f, &moved) < s->cutoff_ns)
            return true;
    }
    return false;
}

static int least_layers(const struct mcp_splitter *s, int r)
{
    return s->plan->pipeline_parallel > 1 && (r == 0 || r == s->plan->pipeline_parallel - 1) ? 0
                                                                                             : 1;
}

/* Positions between ranks that a chain of ranks that can win may pass. */
static void find_window(struct mcp_splitter *s, struct mcp_filler *f)
{
    int p = s->plan->pipeline_parallel, layers = s->question->model->num_layers;
    f->nearest[0] = f->farthest[0] = 0;
    for (int r = 0; r < p; r++) {
        struct place place = {r, f->farthest[r], f->farthest[r] + least_layers(s, r), 0, 0, 0};
        for (; place.to < layers; place.to++) {
            const struct place more = {r, place.from, place.to + 1, 0, 0, 0};
            if (least_ns(s, f, &more) >= s->cutoff_ns)
                break;
        }
        f->farthest[r + 1] = place.to < layers ? place.to : layers;
    }
    f->nearest[p] = layers;
    for (int r = p - 1; r > 0; r--) {
        struct place place = {r, f->nearest[r + 1] - least_layers(s, r), f->nearest[r + 1], 0, 0,
                              0};
        for (; place.from > 0; place.from--) {
            const struct place more = {r, place.from - 1, place.to, 0, 0, 0};
            if (least_ns(s, f, &more) >= s->cutoff_ns)
                break;
        }
        f->nearest[r] = place.from > 0 ? place.from : 0;
    }
    for (int r = 0; r < p; r++)
        s->grid.cut |= f->nearest[r] > 0 || f->farthest[r + 1] < layers;
}

static void uniform_window(const struct mcp_splitter *s, struct mcp_filler *f)
{
    int p = s->plan->pipeline_parallel, layers = s->question->model->num_layers;
    f->farthest[0] = 0;
    for (int r = 0; r < p; r++)
        f->farthest[r + 1] = f->farthest[r] + layers / p + (r < layers % p);
    memcpy(f->nearest, f->farthest, (size_t)(p + 1) * sizeof(int));
}

/* --- choices --- */

static int recomputed(const struct choice *choice)
{
    int count = 0;
    for (int k = 0; k < MCP_MAX_LAYER_KINDS; k++)
        for (int r = MCP_RECOMPUTE_NONE + 1; r < MCP_NUM_RECOMPUTES; r++)
            count += choice->counts[k][r];
    return count;
}

/* Where recompute is free, as in layers that save nothing for it to drop, less first. */
static int by_extra(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    if (x->extra_ns != y->extra_ns)
        return x->extra_ns < y->extra_ns ? -1 : 1;
    if (recomputed(x) != recomputed(y))
        return recomputed(x) - recomputed(y);
    return memcmp(x->counts, y->counts, sizeof x->counts);
}

static bool may(const struct mcp_splitter *s, enum mcp_recompute recompute)
{
    return s->options->recompute[recompute] &&
           (recompute == MCP_RECOMPUTE_NONE || s->options->max_recomputed_stages != 0);
}

/* Splits of `layers` over the recomputes that may be used. */
static int64_t ways(const struct mcp_splitter *s, int layers)
{
    int kinds =
        may(s, MCP_RECOMPUTE_NONE) + may(s, MCP_RECOMPUTE_SELECTIVE) + may(s, MCP_RECOMPUTE_FULL);
    if (kinds == 3)
        return (int64_t)(layers + 1) * (layers + 2) / 2;
    return kinds == 2 ? layers + 1 : kinds == 1 || layers == 0;
}

struct lister {
    struct mcp_splitter *s;
    struct range *range;
    int layers[MCP_MAX_LAYER_KINDS]; /* below the last */
};

static void note(struct lister *lister, struct choice *choice)
{
    const struct mcp_layer_times *times = &lister->s->times[lister->range->pool];
    for (int k = 0; k < MCP_MAX_LAYER_KINDS; k++)
        for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
            choice->extra_ns += choice->counts[k][r] * times->extra_ns[k][r];
            choice->kept_bytes += choice->counts[k][r] * times->kept_bytes[k][r];
        }
    lister->range->choices[lister->range->num_choices++] = *choice;
}

static bool divide(const struct mcp_splitter *s, struct choice *choice, int kind, int layers,
                   int full, int selective)
{
    int none = layers - full - selective;
    if ((full > 0 && !may(s, MCP_RECOMPUTE_FULL)) || none < 0 ||
        (selective > 0 && !may(s, MCP_RECOMPUTE_SELECTIVE)) ||
        (none > 0 && !may(s, MCP_RECOMPUTE_NONE)))
        return false;
    choice->counts[kind][MCP_RECOMPUTE_FULL] = (unsigned short)full;
    choice->counts[kind][MCP_RECOMPUTE_SELECTIVE] = (unsigned short)selective;
    choice->counts[kind][MCP_RECOMPUTE_NONE] = (unsigned short)none;
    return true;
}

/* All ways for kinds `kind` and up: one kind after the other. */
static void list_all(struct lister *lister, struct choice choice)
{
    int kind = choice.kind, layers = kind < MCP_MAX_LAYER_KINDS ? lister->layers[kind] : 0;
    if (kind == MCP_MAX_LAYER_KINDS) {
        note(lister, &choice);
        return;
    }
    choice.kind++;
    for (int full = 0; full <= layers; full++)
        for (int selective = 0; full + selective <= layers; selective++)
            if (divide(lister->s, &choice, kind, layers, full, selective))
                list_all(lister, choice);
}

/* The lowest `full` layers, then `selective`, whatever their kind. */
static void list_coarse(struct lister *lister)
{
    const struct mcp_model *model = lister->s->question->model;
    const struct range *range = lister->range;
    int below = range->size - 1;
    for (int full = 0; full <= below; full++)
        for (int selective = 0; full + selective <= below; selective++) {
            struct choice choice = {0}, whole = {0};
            if (!divide(lister->s, &whole, 0, below, full, selective))
                continue;
            for (int i = 0; i < below; i++)
                choice.counts[model->layer_kind[range->start + i]][i < full ? MCP_RECOMPUTE_FULL
                                                                   : i < full + selective
                                                                       ? MCP_RECOMPUTE_SELECTIVE
                                                                       : MCP_RECOMPUTE_NONE]++;
            note(lister, &choice);
        }
}

static void list_choices(struct mcp_splitter *s, const struct mcp_filler *f, struct range *range)
{
    struct lister lister = {s, range, {0}};
    int64_t count = 1, most = s->plan->pipeline_parallel > 1 ? MAX_CHOICES : MAX_CHOICES_ALONE;
    for (int i = 0; i + 1 < range->size; i++)
        lister.layers[s->question->model->layer_kind[range->start + i]]++;
    int kinds = 0;
    for (int k = 0; k < MCP_MAX_LAYER_KINDS && count <= most; k++) {
        count *= ways(s, lister.layers[k]);
        kinds += lister.layers[k] > 0;
    }
    range->coarse = count > most && kinds > 1;
    if (range->coarse)
        count = ways(s, range->size - 1);
    range->choices = MCP_ARRAY(s->arena, count, struct choice);
    if (range->coarse)
        list_coarse(&lister);
    else
        list_all(&lister, (struct choice){0});
    qsort(range->choices, (size_t)range->num_choices, sizeof *range->choices, by_extra);
    range->listed = true;
    range->least_kept_bytes = INT64_MAX;
    for (int i = 0; i < range->num_choices; i++)
        if (range->choices[i].kept_bytes < range->least_kept_bytes)
            range->least_kept_bytes = range->choices[i].kept_bytes;
    range->fillings = MCP_ARRAY(s->arena, f->num_classes * MCP_NUM_RECOMPUTES * range->num_choices,
                                struct filling *);
}

static struct range *find_range(struct mcp_splitter *s, struct mcp_filler *f, int pool, int start,
                                int size)
{
    const unsigned char *kinds = s->question->model->layer_kind;
    struct range **first = &f->ranges[pool * (s->question->model->num_layers + 1) + size];
    struct range *range = *first;
    while (range && memcmp(kinds + range->start, kinds + start, (size_t)size) != 0)
        range = range->next;
    if (range)
        return range;
    range = MCP_NEW(s->arena, struct range);
    *range = (struct range){.next = *first, .pool = pool, .start = start, .size = size};
    range->none_ns = MCP_ARRAY(s->arena, f->num_classes, int64_t);
    *first = range;
    return range;
}

/* --- columns --- */

/* Of a kind's next layer, lowest first. */
static enum mcp_recompute take(struct choice *left, int kind)
{
    for (int r = MCP_RECOMPUTE_FULL; r > MCP_RECOMPUTE_NONE; r--)
        if (left->counts[kind][r] > 0) {
            left->counts[kind][r]--;
            return (enum mcp_recompute)r;
        }
    return MCP_RECOMPUTE_NONE;
}

static void lay_out(struct mcp_splitter *s, const struct range *range, int start,
                    const struct choice *choice, enum mcp_recompute last, struct filling *filling)
{
    struct mcp_chunk *chunk = &filling->chunk;
    struct choice left = *choice;
    *chunk = (struct mcp_chunk){start, range->size, 0,
                                MCP_ARRAY(s->arena, range->size, struct mcp_recompute_run)};
    for (int i = 0; i < range->size; i++) {
        enum mcp_recompute recompute = last;
        if (i + 1 < range->size)
            recompute = take(&left, s->question->model->layer_kind[range->start + i]);
        if (chunk->num_runs == 0 || chunk->runs[chunk->num_runs - 1].recompute != recompute)
            chunk->runs[chunk->num_runs++].recompute = recompute;
        chunk->runs[chunk->num_runs - 1].num_layers++;
        filling->column.recomputes |= recompute != MCP_RECOMPUTE_NONE;
    }
}

static struct filling *fill(struct mcp_splitter *s, const struct mcp_filler *f, struct range *range,
                            int r, int index, enum mcp_recompute last)
{
    int at = f->classes[r] * MCP_NUM_RECOMPUTES + (int)last;
    struct filling **place = &range->fillings[at * range->num_choices + index];
    if (*place)
        return *place;
    struct filling *filling = *place = MCP_NEW(s->arena, struct filling);
    /* what follows the last rank's layers is known by its place */
    int end = s->question->model->num_layers, start = range->start;
    lay_out(s, range, r < s->plan->pipeline_parallel - 1 ? start : end - range->size,
            &range->choices[index], last, filling);
    mcp_stage_price(s->pricer, s->plan, r, &filling->chunk, &filling->stage);
    filling->stages[0] = &filling->stage;
    filling->column.stages = filling->stages;
    filling->column.chunks = &filling->chunk;
    filling->column.size = range->size;
    mcp_column_price(s, &filling->column);
    return filling;
}

/* What frames of a microbatch may keep, at most, where rank r holds the range. */
static int64_t room_for_kept(struct mcp_splitter *s, const struct mcp_filler *f, int r,
                             struct range *range, enum mcp_recompute last)
{
    const struct mcp_stage *stage = &fill(s, f, range, r, 0, last)->stage;
    int64_t room = mcp_rank_limit(s, r) - stage->weights_bytes - stage->gradients_bytes -
                   stage->optimizer_bytes;
    int in_flight =
        1 + mcp_schedule_warm_up(s->plan->schedule, s->plan->pipeline_parallel, 1, s->grid.m, r);
    in_flight = in_flight < s->grid.m ? in_flight : s->grid.m;
    double kept = (double)room / (s->question->stack->activation_memory_factor * (double)in_flight);
    return (kept < 1e18 ? (int64_t)kept + 1 : MCP_NO_WAY) - s->base_kept_bytes;
}

/* The cheapest that fits and can win; and while more recompute may hide more of the tail
 * than it takes longer, those that fit. */
static bool add_cheapest(struct mcp_splitter *s, struct mcp_filler *f, int r, int from,
                         struct range *range, enum mcp_recompute last)
{
    int kind = range->size > 0 ? s->question->model->layer_kind[from + range->size - 1] : 0;
    int64_t top_ns = range->size > 0 ? s->times[range->pool].extra_ns[kind][last] : 0;
    int64_t top_bytes = range->size > 0 ? s->times[range->pool].kept_bytes[kind][last] : 0;
    int64_t room = range->num_choices > 0 ? room_for_kept(s, f, r, range, last) - top_bytes : 0;
    s->grid.partial |= range->coarse && range->least_kept_bytes <= room;
    int64_t most_ns = MCP_NO_WAY;
    bool any = false;
    for (int i = 0; i < range->num_choices; i++) {
        const struct choice *choice = &range->choices[i];
        const struct place place = {r, from, from + range->size, choice->extra_ns, top_ns, 0};
        if (any && choice->extra_ns >= most_ns)
            break;
        if (!can_win(s, f, &place)) {
            s->grid.cut = true;
            break;
        }
        if (choice->kept_bytes > room)
            continue;
        struct mcp_column column = fill(s, f, range, r, i, last)->column;
        column.rank = r;
        column.from = f->alike ? 0 : from;
        if (!mcp_column_fits(s, &column))
            continue;
        mcp_grid_add(s, &column);
        if (!any)
            most_ns = choice->extra_ns + mcp_column_hideable(s, &column);
        any = true;
    }
    return any;
}

static int64_t none_ns(struct mcp_splitter *s, const struct mcp_filler *f, struct range *range,
                       int r)
{
    int64_t *load = &range->none_ns[f->classes[r]];
    int end = s->question->model->num_layers, size = range->size;
    struct mcp_recompute_run run = {MCP_RECOMPUTE_NONE, size};
    struct mcp_chunk chunk = {range->start, size, size > 0, &run};
    struct mcp_stage stage;
    if (r == s->plan->pipeline_parallel - 1)
        chunk.first_layer = end - size;
    if (*load > 0)
        return *load;
    mcp_stage_price(s->pricer, s->plan, r, &chunk, &stage);
    *load = stage.forward.lead_ns + stage.forward.body_ns + stage.forward.send_ns +
            stage.backward.lead_ns + stage.backward.body_ns + stage.backward.send_ns;
    return *load;
}

/* For each recompute of the last layer: with that, less of it below is never worse (see
 * mcp_grid_add()) but for what it hides. False when nothing fits. */
static bool add_range(struct mcp_splitter *s, struct mcp_filler *f, int r, int from, int to)
{
    struct range *range = find_range(s, f, mcp_pool_of(s, r), from, to - from);
    const struct place place = {r, from, to, 0, 0, none_ns(s, f, range, r)};
    bool any = false;
    if (!can_win(s, f, &place)) {
        s->grid.cut = true;
        return false;
    }
    if (!range->listed)
        list_choices(s, f, range);
    for (int last = 0; last < MCP_NUM_RECOMPUTES; last++)
        if (to == from ? last == MCP_RECOMPUTE_NONE : may(s, (enum mcp_recompute)last))
            any |= add_cheapest(s, f, r, from, range, (enum mcp_recompute)last);
    return any || to == from; /* a layer may let MTP modules recompute */
}

/* A range that does not fit is part of no range that does. */
static void add_ranges(struct mcp_splitter *s, struct mcp_filler *f, int r, int from)
{
    int first = from + least_layers(s, r);
    if (first < f->nearest[r + 1])
        first = f->nearest[r + 1];
    for (int to = first; to <= f->farthest[r + 1]; to++)
        if (!add_range(s, f, r, from, to))
            break;
}

/* Of layers that are alike only the sizes count. */
static void add_sizes(struct mcp_splitter *s, struct mcp_filler *f, int r)
{
    int least = f->nearest[r + 1] - f->farthest[r], most = f->farthest[r + 1] - f->nearest[r];
    if (least < least_layers(s, r))
        least = least_layers(s, r);
    for (int size = least; size <= most; size++)
        if (!add_range(s, f, r, f->nearest[r], f->nearest[r] + size))
            break;
}

void mcp_fill_columns(struct mcp_splitter *s, struct mcp_filler *f, bool first)
{
    int p = s->plan->pipeline_parallel;
    mcp_grid_begin(s, s->question->model->num_layers, f->alike);
    if (first || !s->options->uneven)
        uniform_window(s, f);
    else
        find_window(s, f);
    for (int r = 0; r < p; r++) {
        if (f->alike)
            add_sizes(s, f, r);
        for (int from = f->nearest[r]; !f->alike && from <= f->farthest[r]; from++)
            add_ranges(s, f, r, from);
    }
    mcp_grid_end(s);
}
