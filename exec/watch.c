/* exec/watch.c: norms of parts and moments of the residual stream, over all ranks. */
#include "exec/watch.h"

#include "exec/half.h"
#include "exec/init.h"
#include "exec/names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 4096 };
enum { OF_WEIGHTS, OF_GRADIENTS, HISTOGRAMS };
static const char *const histogram_names[HISTOGRAMS] = {"weights", "gradients"};

struct norms { /* sums of squares */
    double gradient, weight, update;
};
struct sums { /* of a group */
    struct norms *norms;
    struct mcp_histogram *histograms; /* [HISTOGRAMS]; NULL: none */
};
struct moments {
    double count, sum, sum_squares;
};

struct mcp_watch {
    const struct mcp_program *program;
    const struct mcp_saved_rank *rank; /* NULL: this step is not watched */
    int *first_group;                  /* [num_layers] */
    struct mcp_group_metrics *groups;
    bool *is_bias;                    /* [num_groups] */
    struct norms *norms;              /* [num_groups] */
    struct mcp_histogram *histograms; /* [num_groups][HISTOGRAMS]; NULL: none are asked for */
    int num_groups, num_activations;
    struct mcp_activation_metrics *activations; /* [num_layers] */
    struct moments *moments;                    /* [num_layers], of what the layer reads */
    bool *seen;                                 /* [num_layers], on this rank */
};

/* --- groups --- */

/* A table that is another's twin is that one's group. */
static void add_groups(struct mcp_watch *watch, struct mcp_arena *arena, int layer,
                       const struct mcp_layer_type *type)
{
    watch->first_group[layer] = watch->num_groups;
    for (int part = 0; part < type->num_weights; part++) {
        const struct mcp_weight *weight = &type->weights[part];
        if (weight->duplicate)
            continue;
        watch->is_bias[watch->num_groups] = weight->init == MCP_INIT_ZERO;
        watch->groups[watch->num_groups++] = (struct mcp_group_metrics){
            .name = mcp_format(arena, "layers.%d.%s", layer, weight->name)};
    }
}

static int group_of(const struct mcp_watch *watch, int layer, const struct mcp_layer_type *type,
                    int part)
{
    int group = watch->first_group[layer];
    for (int i = 0; i < part; i++)
        group += !type->weights[i].duplicate;
    return group;
}

struct mcp_watch *mcp_watch_new(struct mcp_arena *arena, const struct mcp_program *program,
                                bool histograms)
{
    struct mcp_watch *watch = MCP_NEW(arena, struct mcp_watch);
    const struct mcp_layer_type **types =
        MCP_ARRAY(arena, program->num_layers + 1, const struct mcp_layer_type *);
    int total = 0;
    for (int layer = 0; layer < program->num_layers; layer++) {
        types[layer] = mcp_program_layer_type(program, layer);
        total += types[layer] != NULL ? types[layer]->num_weights : 0;
    }
    watch->program = program;
    watch->first_group = MCP_ARRAY(arena, program->num_layers + 1, int);
    watch->groups = MCP_ARRAY(arena, total + 1, struct mcp_group_metrics);
    watch->is_bias = MCP_ARRAY(arena, total + 1, bool);
    watch->norms = MCP_ARRAY(arena, total + 1, struct norms);
    if (histograms)
        watch->histograms = MCP_ARRAY(arena, (size_t)total * HISTOGRAMS + 1, struct mcp_histogram);
    watch->activations = MCP_ARRAY(arena, program->num_layers + 1, struct mcp_activation_metrics);
    watch->moments = MCP_ARRAY(arena, program->num_layers + 1, struct moments);
    watch->seen = MCP_ARRAY(arena, program->num_layers + 1, bool);
    for (int layer = 0; layer < program->num_layers; layer++)
        if (types[layer] != NULL)
            add_groups(watch, arena, layer, types[layer]);
    return watch;
}

/* --- activations --- */

/* `count` elements from `first` on, as fp32. */
static void load(const struct mcp_saved_rank *rank, const void *memory, unsigned char dtype,
                 int64_t first, int count, float *out)
{
    uint16_t halves[CHUNK];
    if (dtype == MCP_F32) {
        rank->calls->read(rank->backend, (const char *)memory + first * 4, out, count * 4);
        return;
    }
    rank->calls->read(rank->backend, (const char *)memory + first * 2, halves, count * 2);
    mcp_widen((enum mcp_dtype)dtype, halves, count, out);
}

static int chunk_of(int64_t left)
{
    return left < CHUNK ? (int)left : CHUNK;
}

static void add_moments(const struct mcp_saved_rank *rank, const void *memory, unsigned char dtype,
                        int64_t elements, struct moments *sums)
{
    float values[CHUNK];
    if (rank->calls->moments != NULL) {
        double both[2];
        rank->calls->moments(rank->backend, memory, (enum mcp_dtype)dtype, elements, both);
        sums->sum += both[0];
        sums->sum_squares += both[1];
        sums->count += (double)elements;
        return;
    }
    for (int64_t at = 0; at < elements; at += CHUNK) {
        const int count = chunk_of(elements - at);
        load(rank, memory, dtype, at, count, values);
        for (int i = 0; i < count; i++) {
            sums->sum += (double)values[i];
            sums->sum_squares += (double)values[i] * (double)values[i];
        }
        sums->count += count;
    }
}

void mcp_watch_op(void *context, enum mcp_block_role role, const struct mcp_launch *launch)
{
    struct mcp_watch *watch = context;
    const struct mcp_op *op = launch->op;
    if (watch->rank == NULL || role != MCP_FORWARD || op->stream != MCP_STREAM_COMPUTE ||
        launch->microbatch != 0 || launch->layer >= watch->program->num_layers ||
        watch->seen[launch->layer])
        return;
    for (int i = 0; i < op->num_reads; i++) {
        const struct mcp_operand read = op->reads[i];
        if (read.space != MCP_SPACE_FRAME || read.index != MCP_FRAME_X || read.layer_offset != 0)
            continue;
        const struct mcp_buffer *x = mcp_operand_buffer(watch->program, launch->type, read);
        if (launch->reads[i] == NULL ||
            (x->dtype != MCP_F32 && x->dtype != MCP_BF16 && x->dtype != MCP_F16))
            continue;
        watch->seen[launch->layer] = true;
        add_moments(watch->rank, launch->reads[i], x->dtype,
                    launch->read_bytes[i] / (x->dtype == MCP_F32 ? 4 : 2),
                    &watch->moments[launch->layer]);
        return;
    }
}

void mcp_watch_begin(struct mcp_watch *watch, const struct mcp_saved_rank *rank)
{
    watch->rank = rank;
    memset(watch->norms, 0, (size_t)watch->num_groups * sizeof *watch->norms);
    for (int i = 0; watch->histograms != NULL && i < watch->num_groups * HISTOGRAMS; i++)
        watch->histograms[i] = mcp_histogram_new();
    memset(watch->moments, 0, (size_t)watch->program->num_layers * sizeof *watch->moments);
    memset(watch->seen, 0, (size_t)watch->program->num_layers * sizeof *watch->seen);
}

/* --- norms --- */

struct adam { /* what the last step of an element was */
    double rate, decay, epsilon, correction1, correction2;
    bool frozen, skipped;
};

static struct adam adam_of(const struct mcp_rank *rank, const struct mcp_flat_place *place,
                           const struct mcp_weight *weight)
{
    const struct mcp_step_inputs *in = &rank->inputs;
    const bool frozen = place->gradients == NULL;
    const double firsts = (double)in->updates + 1, seconds = (double)in->variance_updates + !frozen;
    return (struct adam){.rate = in->learning_rate,
                         .decay = mcp_weight_decays(weight) ? in->weight_decay : 0,
                         .epsilon = in->epsilon,
                         .correction1 = 1 / (1 - pow(in->beta1, firsts)),
                         .correction2 = 1 / (1 - pow(in->beta2, seconds)),
                         .frozen = frozen,
                         .skipped = rank->outputs.skipped};
}

/* w' = w - rate (step + decay w), so w' - w = -rate (step + decay w') / (1 - rate decay). */
static double update_of(const struct adam *adam, double weight, double first, double second)
{
    if (adam->skipped || (adam->frozen && !(second > 0)))
        return 0;
    const double step =
        first * adam->correction1 / (sqrt(second * adam->correction2) + adam->epsilon);
    return adam->rate * (step + adam->decay * weight) / (1 - adam->rate * adam->decay);
}

struct range { /* of a place, from its first element */
    int64_t first, count;
};

/* Does the backend add up itself all that is asked for? */
static bool adds_up(const struct mcp_saved_rank *rank, const struct sums *sums)
{
    const struct mcp_backend_calls *calls = rank->calls;
    return calls->moments != NULL && calls->step_squares != NULL &&
           (sums->histograms == NULL || calls->histogram != NULL);
}

/* Of a backend that adds up itself. A step that was skipped moved nothing. */
static void ask_updates(const struct mcp_saved_rank *rank, const struct mcp_step_taken *step,
                        bool skipped, struct sums *sums)
{
    double squares[2];
    rank->calls->step_squares(rank->backend, step, squares);
    sums->norms->weight += squares[0];
    sums->norms->update += skipped ? 0 : squares[1];
    if (sums->histograms != NULL)
        rank->calls->histogram(rank->backend, step->weights, MCP_F32, step->elements,
                               &sums->histograms[OF_WEIGHTS]);
}

static void add_updates(const struct mcp_saved_rank *rank, const struct mcp_flat_place *place,
                        const struct adam *adam, struct range range, struct sums *sums)
{
    float weights[CHUNK], first[CHUNK], second[CHUNK];
    const int64_t stride = place->state_stride * 4;
    const char *held = place->weights + (place->first - place->held_first) * 4;
    const char *truth = place->has_master ? place->state : held;
    const char *moments = place->state + (place->has_master ? stride : 0);
    if (adds_up(rank, sums)) {
        const struct mcp_step_taken step = {
            .weights = (const float *)(const void *)truth + range.first,
            .first = (const float *)(const void *)moments + range.first,
            .second = (const float *)(const void *)(moments + stride) + range.first,
            .elements = range.count,
            .rate = adam->rate,
            .decay = adam->decay,
            .epsilon = adam->epsilon,
            .correction1 = adam->correction1,
            .correction2 = adam->correction2,
            .frozen = adam->frozen};
        ask_updates(rank, &step, adam->skipped, sums);
        return;
    }
    for (int64_t at = 0; at < range.count; at += CHUNK) {
        const int count = chunk_of(range.count - at);
        load(rank, truth, MCP_F32, range.first + at, count, weights);
        load(rank, moments, MCP_F32, range.first + at, count, first);
        load(rank, moments + stride, MCP_F32, range.first + at, count, second);
        if (sums->histograms != NULL)
            mcp_histogram_add(&sums->histograms[OF_WEIGHTS], weights, count);
        for (int i = 0; i < count; i++) {
            const double w = (double)weights[i];
            const double update = update_of(adam, w, (double)first[i], (double)second[i]);
            sums->norms->weight += w * w;
            sums->norms->update += update * update;
        }
    }
}

static void ask_gradients(const struct mcp_saved_rank *rank, const struct mcp_flat_place *place,
                          struct range range, double scale, struct sums *sums)
{
    const enum mcp_dtype dtype = (enum mcp_dtype)place->gradients_dtype;
    const char *gradients =
        (const char *)place->gradients + range.first * (int64_t)mcp_dtype_bytes(dtype);
    double both[2];
    rank->calls->moments(rank->backend, gradients, dtype, range.count, both);
    sums->norms->gradient += both[1] * scale * scale;
    if (sums->histograms != NULL)
        rank->calls->histogram(rank->backend, gradients, dtype, range.count,
                               &sums->histograms[OF_GRADIENTS]);
}

static void add_gradients(const struct mcp_saved_rank *rank, const struct mcp_flat_place *place,
                          struct range range, struct sums *sums)
{
    float values[CHUNK];
    const double scale = 1 / rank->rank->inputs.loss_scale;
    if (place->gradients != NULL && adds_up(rank, sums)) {
        ask_gradients(rank, place, range, scale, sums);
        return;
    }
    for (int64_t at = 0; place->gradients != NULL && at < range.count; at += CHUNK) {
        const int count = chunk_of(range.count - at);
        load(rank, place->gradients, place->gradients_dtype, range.first + at, count, values);
        if (sums->histograms != NULL)
            mcp_histogram_add(&sums->histograms[OF_GRADIENTS], values, count);
        for (int i = 0; i < count; i++)
            sums->norms->gradient += (double)values[i] * scale * ((double)values[i] * scale);
    }
    if (place->gradients == NULL)
        sums->norms->gradient = (double)NAN;
}

/* Every element once: of ranks that hold all the first, of replicated parts tensor rank 0. */
static void add_place(struct mcp_watch *watch, int layer, const struct mcp_layer_type *type,
                      const struct mcp_flat_place *place)
{
    struct mcp_arena *scratch = mcp_arena_new();
    const struct mcp_saved_rank *rank = watch->rank;
    const struct mcp_flat_key key = {&watch->program->plan, rank->rank->rank, layer, type,
                                     place->flat};
    struct mcp_piece *pieces;
    const int count = mcp_flat_pieces(scratch, &key, &pieces);
    for (int i = 0; i < count; i++) {
        const struct mcp_piece *piece = &pieces[i];
        int64_t begin;
        const int64_t elements = mcp_piece_within(piece, place->first, place->count, &begin);
        const struct range range = {piece->offset + begin - place->first, elements};
        if (elements == 0 || !piece->owned)
            continue;
        const int group = group_of(watch, layer, type, piece->part);
        struct sums sums = {&watch->norms[group], NULL};
        if (watch->histograms != NULL)
            sums.histograms = &watch->histograms[group * HISTOGRAMS];
        const struct adam adam = adam_of(rank->rank, place, &type->weights[piece->part]);
        add_updates(rank, place, &adam, range, &sums);
        add_gradients(rank, place, range, &sums);
    }
    mcp_arena_free(scratch);
}

static void add_layer(struct mcp_watch *watch, int layer)
{
    const struct mcp_saved_rank *rank = watch->rank;
    const int type = mcp_pool_type(mcp_interpreter_pool(rank->interpreter), layer);
    struct mcp_flat_place places[MCP_NUM_FLATS];
    const int count = mcp_flat_places(rank->interpreter, rank->rank, layer, places);
    for (int i = 0; i < count; i++)
        if (mcp_answers_for_place(&places[i]))
            add_place(watch, layer, &rank->rank->program->types[type], &places[i]);
}

/* --- all ranks --- */

static void settle_groups(struct mcp_watch *watch)
{
    for (int i = 0; i < watch->num_groups; i++) {
        struct mcp_group_metrics *group = &watch->groups[i];
        group->grad_norm = sqrt(watch->norms[i].gradient);
        group->weight_norm = watch->is_bias[i] ? (double)NAN : sqrt(watch->norms[i].weight);
        group->update_norm = sqrt(watch->norms[i].update);
    }
}

static void settle_activations(struct mcp_watch *watch)
{
    watch->num_activations = 0;
    for (int layer = 1; layer < watch->program->num_layers; layer++) {
        const struct moments *sums = &watch->moments[layer];
        if (sums->count == 0)
            continue;
        const double mean = sums->sum / sums->count;
        watch->activations[watch->num_activations++] = (struct mcp_activation_metrics){
            layer - 1, mean, sums->sum_squares / sums->count - mean * mean};
    }
}

/* A histogram's fields are sums but the first two. */
enum { SUMS = 3 + MCP_HISTOGRAM_BUCKETS };

static void pack(const struct mcp_histogram *histogram, double *sums, double *ends)
{
    const double moments[3] = {histogram->count, histogram->sum, histogram->sum_squares};
    memcpy(sums, moments, sizeof moments);
    memcpy(sums + 3, histogram->buckets, sizeof histogram->buckets);
    ends[0] = -histogram->min;
    ends[1] = histogram->max;
}

static void unpack(const double *sums, const double *ends, struct mcp_histogram *histogram)
{
    *histogram = (struct mcp_histogram){
        .min = -ends[0], .max = ends[1], .count = sums[0], .sum = sums[1], .sum_squares = sums[2]};
    memcpy(histogram->buckets, sums + 3, sizeof histogram->buckets);
}

/* All at once: an agreement costs more than its numbers. */
static enum mcp_status agree_on_histograms(struct mcp_arena *scratch, struct mcp_watch *watch,
                                           const struct mcp_saved_rank *rank, struct mcp_error *err)
{
    const int count = watch->histograms != NULL ? watch->num_groups * HISTOGRAMS : 0;
    double *sums = MCP_ARRAY(scratch, (size_t)count * SUMS + 1, double);
    double *ends = MCP_ARRAY(scratch, (size_t)count * 2 + 1, double);
    if (count == 0)
        return MCP_OK;
    for (int i = 0; i < count; i++)
        pack(&watch->histograms[i], sums + i * SUMS, ends + i * 2);
    MCP_TRY(rank->calls->agree(rank->backend, sums, count * SUMS, '+', err));
    MCP_TRY(rank->calls->agree(rank->backend, ends, count * 2, '>', err));
    for (int i = 0; i < count; i++)
        unpack(sums + i * SUMS, ends + i * 2, &watch->histograms[i]);
    return MCP_OK;
}

enum mcp_status mcp_watch_end(struct mcp_watch *watch, struct mcp_error *err)
{
    const struct mcp_saved_rank *rank = watch->rank;
    const int layers = watch->program->num_layers;
    for (int layer = 0; layer < layers; layer++)
        add_layer(watch, layer);
    watch->rank = NULL;
    MCP_TRY(rank->calls->agree(rank->backend, (double *)(void *)watch->norms, 3 * watch->num_groups,
                               '+', err));
    MCP_TRY(
        rank->calls->agree(rank->backend, (double *)(void *)watch->moments, 3 * layers, '+', err));
    struct mcp_arena *scratch = mcp_arena_new();
    const enum mcp_status status = agree_on_histograms(scratch, watch, rank, err);
    mcp_arena_free(scratch);
    settle_groups(watch);
    settle_activations(watch);
    return status;
}

void mcp_watch_fill(const struct mcp_watch *watch, struct mcp_step_metrics *metrics)
{
    metrics->num_groups = watch->num_groups;
    metrics->groups = watch->groups;
    metrics->num_activations = watch->num_activations;
    metrics->activations = watch->activations;
}

void mcp_watch_histograms(const struct mcp_watch *watch, struct mcp_events *events)
{
    char tag[96];
    for (int i = 0; watch->histograms != NULL && i < watch->num_groups * HISTOGRAMS; i++) {
        if (watch->histograms[i].count == 0)
            continue;
        snprintf(tag, sizeof tag, "%s/%s", histogram_names[i % HISTOGRAMS],
                 watch->groups[i / HISTOGRAMS].name);
        mcp_events_histogram(events, tag, &watch->histograms[i]);
    }
}
