/* exec/cpu_kernels_update.c: what happens once a step: clearing, the norm of gradients,
 * clipping, AdamW, and the same with a frozen variance. */
#include "exec/cpu_kernels_parts.h"

#include <math.h>

/* The flat buffer an op works on (step/function.h: zero, adam, sum_squares), and what of it
 * this rank owns. */
struct flat {
    enum mcp_flat kind;
    int64_t elements, first;       /* of the whole, in its buffer */
    int64_t shard, own_first, own; /* elements of a shard; this rank's, of the whole */
    int64_t shard_first;           /* in buffers of shards */
    int member;                    /* of the ranks that share the flat buffer */
    bool sharded;
};

static bool is_expert(struct mcp_operand at)
{
    return at.space == MCP_SPACE_LAYER && at.index % 2 == 1;
}

static unsigned axes_of(bool expert)
{
    return expert ? (unsigned)MCP_EXPERT_DATA : (unsigned)MCP_DATA | MCP_CONTEXT;
}

/* `at`: the gradients or the weights. */
static struct flat flat_of(const struct mcp_launch *launch, struct mcp_operand at)
{
    const int64_t *d = launch->op->dims;
    bool expert = is_expert(at);
    struct flat f = {.elements = d[2], .first = d[3], .shard = d[0], .shard_first = d[4]};
    f.kind = expert ? MCP_FLAT_EXPERT : MCP_FLAT_DENSE;
    if (at.space == MCP_SPACE_RANK ||
        (f.first > 0 && f.first == mcp_flat_first(launch->type, MCP_FLAT_TABLE)))
        f.kind = MCP_FLAT_TABLE;
    f.sharded = f.shard < f.elements;
    f.member = mcp_group_index(&launch->rank->program->plan, axes_of(expert), launch->rank->rank);
    f.own_first = f.sharded ? f.member * f.shard : 0;
    f.own = f.own_first >= f.elements            ? 0
            : f.elements - f.own_first < f.shard ? f.elements - f.own_first
                                                 : f.shard;
    return f;
}

/* Is the buffer one of shards? A small flat buffer would fit into another's shard, so sizes
 * do not tell. */
static bool is_shards(struct mcp_operand at)
{
    return at.space == MCP_SPACE_LAYER && at.index >= MCP_LAYER_WEIGHT_SHARD &&
           at.index <= MCP_LAYER_EXPERT_GRADIENT_SHARD;
}

/* The rank's own elements in a buffer of the whole, or of shards. */
static struct mcp_view own_view(const struct flat *f, struct mcp_operand at, struct mcp_view view)
{
    return mcp_view_at(view, is_shards(at) ? f->shard_first : f->first + f->own_first);
}

void mcp_cpu_zero(const struct mcp_launch *launch)
{
    struct flat f = flat_of(launch, launch->op->writes[0]);
    struct mcp_view view = mcp_write_view(launch, 0);
    int64_t size = view.dtype == MCP_F32 ? 4 : 2;
    int64_t elements = launch->op->dims[0] * launch->op->dims[1];
    view = mcp_view_at(view, is_shards(launch->op->writes[0]) ? f.shard_first : f.first);
#pragma omp parallel for schedule(static) if (elements > MCP_SERIAL)
    for (int64_t at = 0; at < elements; at += MCP_SERIAL) {
        int64_t count = elements - at < MCP_SERIAL ? elements - at : MCP_SERIAL;
        memset(view.data + at * size, 0, (size_t)(count * size));
    }
}

/* --- the norm of gradients --- */

static double piece_of_squares(struct mcp_view view, int64_t first, int64_t last)
{
    double total = 0;
    for (int64_t at = first; at < last; at += MCP_CHUNK) {
        float room[MCP_CHUNK], sum = 0;
        int count = mcp_chunk(last - at);
        const float *x = mcp_get(view, at, count, room);
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < count; i++)
            sum += x[i] * x[i];
        total += (double)sum;
    }
    return total;
}

enum { PIECE = 1 << 16, PIECES = 64 };

/* In pieces of a fixed size, added in order, whatever the threads. */
static double sum_of_squares(struct mcp_view view, int64_t first, int64_t last)
{
    double total = 0;
    for (int64_t from = first; from < last; from += (int64_t)PIECES * PIECE) {
        double sums[PIECES] = {0};
        int64_t pieces = (last - from + PIECE - 1) / PIECE;
        pieces = pieces < PIECES ? pieces : PIECES;
#pragma omp parallel for schedule(static) if (pieces > 1)
        for (int64_t p = 0; p < pieces; p++) {
            int64_t begin = from + p * PIECE, end = begin + PIECE < last ? begin + PIECE : last;
            sums[p] = piece_of_squares(view, begin, end);
        }
        for (int64_t p = 0; p < pieces; p++)
            total += sums[p];
    }
    return total;
}

/* That reduce the op's gradients, or would. */
static int ranks_of(const struct mcp_launch *launch)
{
    return mcp_group_size(&launch->rank->program->plan, axes_of(is_expert(launch->op->reads[0])));
}

static bool is_duplicate(const struct mcp_layer_type *type, enum mcp_flat flat)
{
    for (int i = 0; i < type->num_weights; i++)
        if (mcp_weight_flat(&type->weights[i]) == flat && type->weights[i].duplicate)
            return true;
    return false;
}

/* Of what this rank alone counts: its shard; or the whole, on the first rank that has it, on
 * each where all have their own; replicated weights on tensor rank 0; a tied table where the
 * embedding is. */
void mcp_cpu_sum_squares(const struct mcp_launch *launch)
{
    struct flat f = flat_of(launch, launch->op->reads[0]);
    struct mcp_view view = own_view(&f, launch->op->reads[0], mcp_read_view(launch, 0));
    int64_t skip = 0;
    float *norm = launch->writes[0];
    bool own = launch->op->dims[5] != 0;
    if ((!f.sharded && !own && f.member > 0) || is_duplicate(launch->type, f.kind))
        return;
    if (launch->rank->at.tensor > 0)
        skip = mcp_flat_replicated(launch->type, f.kind) - f.own_first;
    skip = skip < 0 ? 0 : skip < f.own ? skip : f.own;
    *norm += (float)(sum_of_squares(view, skip, f.own) * (own ? ranks_of(launch) : 1));
}

void mcp_cpu_clear_scalars(const struct mcp_launch *launch)
{
    for (int i = 0; i < launch->op->num_writes; i++)
        memset(launch->writes[i], 0, (size_t)launch->write_bytes[i]);
}

/* reads the sum of squares over all ranks if there is one, this rank's loss; writes scalars,
 * and the step's outcome: the loss is this rank's share of the mean, its owner adds them up. */
void mcp_cpu_step_scalars(const struct mcp_launch *launch)
{
    const struct mcp_step_inputs *inputs = &launch->rank->inputs;
    struct mcp_step_outputs *outputs = &launch->rank->outputs;
    float *scalars = launch->writes[0];
    bool has_norm = launch->op->num_reads > 1;
    const float *loss = launch->reads[has_norm];
    double squares = has_norm ? (double)*(const float *)launch->reads[0] : 0;
    double norm = sqrt(squares) / inputs->loss_scale;
    double factor = 1 / inputs->loss_scale;
    if (launch->op->dims[0] == 0 && inputs->clip_norm > 0 && norm > inputs->clip_norm)
        factor *= inputs->clip_norm / (norm + 1e-6);
    outputs->loss = (double)*loss / (double)inputs->tokens;
    outputs->grad_norm = norm;
    outputs->skipped = !isfinite(norm);
    memset(scalars, 0, (size_t)launch->write_bytes[0]);
    scalars[MCP_SCALAR_FACTOR] = outputs->skipped ? 0 : (float)factor;
    scalars[MCP_SCALAR_SKIPPED] = outputs->skipped;
}

/* --- AdamW (Loshchilov and Hutter 2019, algorithm 2) --- */

struct update {
    void (*chunk)(const struct update *u, int64_t at, int count, float decay);
    struct mcp_view gradients, weights; /* of this rank's elements */
    float *master, *first, *second;     /* master NULL: the weights are it */
    float factor, beta1, beta2, epsilon;
    float rate, correction1, correction2; /* 1 / (1 - beta^t) */
};

static void update_chunk(const struct update *u, int64_t at, int count, float decay)
{
    float room[MCP_CHUNK];
    const float *g = mcp_get(u->gradients, at, count, room);
    float *w = (u->master != NULL ? u->master : (float *)(void *)u->weights.data) + at;
    float *m = u->first + at, *v = u->second + at;
    for (int i = 0; i < count; i++) {
        float gradient = g[i] * u->factor;
        m[i] = u->beta1 * m[i] + (1 - u->beta1) * gradient;
        v[i] = u->beta2 * v[i] + (1 - u->beta2) * gradient * gradient;
        float step = m[i] * u->correction1 / (sqrtf(v[i] * u->correction2) + u->epsilon);
        w[i] -= u->rate * (step + decay * w[i]);
    }
    mcp_put(u->weights, at, count, w);
}

static void update_range(const struct update *u, int64_t first, int64_t last, float decay)
{
#pragma omp parallel for schedule(static) if (last - first > MCP_SERIAL)
    for (int64_t at = first; at < last; at += MCP_CHUNK)
        u->chunk(u, at, mcp_chunk(last - at), decay);
}

static void set_update(const struct mcp_launch *launch, const struct flat *f, const float *scalars,
                       struct update *u)
{
    const struct mcp_step_inputs *inputs = &launch->rank->inputs;
    u->weights = own_view(f, launch->op->writes[0], mcp_write_view(launch, 0));
    bool has_master = u->weights.dtype != MCP_F32;
    float *state = (float *)launch->writes[1] + (has_master ? 3 : 2) * f->shard_first;
    u->master = has_master ? state : NULL;
    u->first = state + (has_master ? f->shard : 0);
    u->second = u->first + f->shard;
    u->factor = scalars[MCP_SCALAR_FACTOR];
    u->beta1 = (float)inputs->beta1;
    u->beta2 = (float)inputs->beta2;
    u->epsilon = (float)inputs->epsilon;
    u->rate = (float)inputs->learning_rate;
    u->correction1 = (float)(1 / (1 - pow(inputs->beta1, (double)inputs->updates + 1)));
    u->correction2 = (float)(1 / (1 - pow(inputs->beta2, (double)inputs->variance_updates + 1)));
}

/* Biases and norms do not decay. */
static bool decays(const struct mcp_weight *weight)
{
    return weight->init == MCP_INIT_NORMAL || weight->init == MCP_INIT_RESIDUAL;
}

/* Part by part, what of each is this rank's. */
static void update_parts(const struct mcp_launch *launch, const struct flat *f,
                         const struct update *u)
{
    const struct mcp_layer_type *type = launch->type;
    for (int part = 0; part < type->num_weights; part++) {
        const struct mcp_weight *weight = &type->weights[part];
        float decay = decays(weight) ? (float)launch->rank->inputs.weight_decay : 0;
        if (mcp_weight_flat(weight) != f->kind)
            continue;
        for (int copy = 0; copy < weight->copies; copy++) {
            int64_t first = mcp_weight_offset(type, part, copy) - f->first - f->own_first;
            int64_t last = first + mcp_weight_elements(weight);
            first = first < 0 ? 0 : first;
            last = last < f->own ? last : f->own;
            update_range(u, first, last, decay);
        }
    }
}

/* reads gradients, state, scalars; writes weights, state */
void mcp_cpu_adam(const struct mcp_launch *launch)
{
    struct flat f = flat_of(launch, launch->op->reads[0]);
    const float *scalars = launch->reads[2];
    struct update u = {.chunk = update_chunk};
    if (scalars[MCP_SCALAR_SKIPPED] > 0)
        return;
    u.gradients = own_view(&f, launch->op->reads[0], mcp_read_view(launch, 0));
    set_update(launch, &f, scalars, &u);
    update_parts(launch, &f, &u);
}

/* --- 1-bit Adam (step/layer_data.h): before and after signs travel --- */

/* reads gradients, state, scalars; writes state: the first moment by this rank's own gradient,
 * as a share of the mean that its group is to have */
void mcp_cpu_momentum(const struct mcp_launch *launch)
{
    struct flat f = flat_of(launch, launch->op->reads[0]);
    const struct mcp_step_inputs *inputs = &launch->rank->inputs;
    bool has_master = launch->op->dtype != MCP_F32;
    struct mcp_view gradients = mcp_view_at(mcp_read_view(launch, 0), f.first);
    float *moment = (float *)launch->writes[0] + (has_master ? 3 : 2) * f.shard_first +
                    (has_master ? f.elements : 0);
    float beta = (float)inputs->beta1, factor = (float)(ranks_of(launch) / inputs->loss_scale);
    if (((const float *)launch->reads[2])[MCP_SCALAR_SKIPPED] > 0)
        return;
#pragma omp parallel for schedule(static) if (f.elements > MCP_SERIAL)
    for (int64_t at = 0; at < f.elements; at += MCP_CHUNK) {
        float room[MCP_CHUNK];
        int count = mcp_chunk(f.elements - at);
        const float *g = mcp_get(gradients, at, count, room);
        for (int i = 0; i < count; i++)
            moment[at + i] = beta * moment[at + i] + (1 - beta) * (factor * g[i]);
    }
}

/* What has no variance never had a gradient: it stays. */
static void frozen_chunk(const struct update *u, int64_t at, int count, float decay)
{
    float room[MCP_CHUNK];
    const float *m = u->first + at, *v = u->second + at;
    const float *old = u->master != NULL ? u->master + at : mcp_get(u->weights, at, count, room);
    float *w = u->master != NULL ? u->master + at : mcp_room(u->weights, at, room);
    for (int i = 0; i < count; i++) {
        float step = m[i] * u->correction1 / (sqrtf(v[i] * u->correction2) + u->epsilon);
        w[i] = v[i] > 0 ? old[i] - u->rate * (step + decay * old[i]) : old[i];
    }
    mcp_put(u->weights, at, count, w);
}

/* reads state, scalars; writes weights, state. Corrects the variance for the steps that went
 * into it. */
void mcp_cpu_adam_frozen(const struct mcp_launch *launch)
{
    struct flat f = flat_of(launch, launch->op->writes[0]);
    const struct mcp_step_inputs *inputs = &launch->rank->inputs;
    const float *scalars = launch->reads[1];
    struct update u = {.chunk = frozen_chunk};
    if (scalars[MCP_SCALAR_SKIPPED] > 0)
        return;
    set_update(launch, &f, scalars, &u);
    u.correction2 = (float)(1 / (1 - pow(inputs->beta2, (double)inputs->variance_updates)));
    update_parts(launch, &f, &u);
}
