/* exec/cpu_kernels_update.c: what happens once a step: clearing, the norm of gradients,
 * clipping, AdamW, and the same with a frozen variance. */
#include "exec/cpu_kernels_parts.h"
#include "exec/host_functions.h"

#include <math.h>

void mcp_cpu_zero(const struct mcp_launch *launch)
{
    struct mcp_view view = mcp_cleared_view(launch);
    int64_t size = view.dtype == MCP_F32 ? 4 : 2;
    int64_t elements = launch->op->dims[0] * launch->op->dims[1];
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

void mcp_cpu_sum_squares(const struct mcp_launch *launch)
{
    const struct mcp_squares squares = mcp_squares_of(launch);
    float *norm = launch->writes[0];
    if (squares.elements > 0)
        *norm += (float)(sum_of_squares(squares.view, 0, squares.elements) * squares.factor);
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
    const struct mcp_step_reads reads = mcp_step_reads_of(launch);
    const float *loss = launch->reads[reads.loss];
    float squares = reads.squares < 0 ? 0 : *(const float *)launch->reads[reads.squares];
    mcp_set_step_scalars(launch, squares, *loss, launch->writes[0]);
}

/* --- AdamW (Loshchilov and Hutter 2019, algorithm 2) --- */

struct update {
    void (*chunk)(const struct update *u, int64_t at, int count, float decay);
    struct mcp_view gradients; /* of this rank's elements */
    float factor;
    struct mcp_update by;
};

static void update_chunk(const struct update *u, int64_t at, int count, float decay)
{
    float room[MCP_CHUNK];
    const struct mcp_update *by = &u->by;
    const float *g = mcp_get(u->gradients, at, count, room);
    float *w = (by->master != NULL ? by->master : (float *)(void *)by->weights.data) + at;
    float *m = by->first + at, *v = by->second + at;
    for (int i = 0; i < count; i++) {
        float gradient = g[i] * u->factor;
        m[i] = by->beta1 * m[i] + (1 - by->beta1) * gradient;
        v[i] = by->beta2 * v[i] + (1 - by->beta2) * gradient * gradient;
        float step = m[i] * by->correction1 / (sqrtf(v[i] * by->correction2) + by->epsilon);
        w[i] -= by->rate * (step + decay * w[i]);
    }
    mcp_put(by->weights, at, count, w);
}

static void update_range(const struct update *u, int64_t first, int64_t last, float decay)
{
#pragma omp parallel for schedule(static) if (last - first > MCP_SERIAL)
    for (int64_t at = first; at < last; at += MCP_CHUNK)
        u->chunk(u, at, mcp_chunk(last - at), decay);
}

/* Part by part, what of each is this rank's. */
static void update_parts(const struct mcp_launch *launch, const struct mcp_share *share,
                         const struct update *u)
{
    struct mcp_range range = {0};
    while (mcp_next_range(launch, share, &range))
        update_range(u, range.first, range.last, range.decay);
}

/* reads gradients, state, scalars; writes weights, state */
void mcp_cpu_adam(const struct mcp_launch *launch)
{
    struct mcp_operand gradients = launch->op->reads[0];
    const struct mcp_share share = mcp_share_of(launch, gradients);
    const float *scalars = launch->reads[2];
    if (scalars[MCP_SCALAR_SKIPPED] > 0)
        return;
    const struct update u = {.chunk = update_chunk,
                             .gradients = mcp_own_view(&share, gradients, mcp_read_view(launch, 0)),
                             .factor = scalars[MCP_SCALAR_FACTOR],
                             .by = mcp_update_of(launch, &share)};
    update_parts(launch, &share, &u);
}

/* --- 1-bit Adam (step/layer_data.h): before and after signs travel --- */

/* reads gradients, state, scalars; writes state: the first moment by this rank's own gradient,
 * as a share of the mean that its group is to have */
void mcp_cpu_momentum(const struct mcp_launch *launch)
{
    const struct mcp_step_inputs *inputs = &launch->rank->inputs;
    const struct mcp_share share = mcp_share_of(launch, launch->op->reads[0]);
    struct mcp_view gradients = mcp_view_at(mcp_read_view(launch, 0), share.first);
    float *moment = mcp_moment_of(launch, &share);
    float beta = (float)inputs->beta1;
    float factor = (float)(mcp_reducing_ranks(launch) / inputs->loss_scale);
    if (((const float *)launch->reads[2])[MCP_SCALAR_SKIPPED] > 0)
        return;
#pragma omp parallel for schedule(static) if (share.elements > MCP_SERIAL)
    for (int64_t at = 0; at < share.elements; at += MCP_CHUNK) {
        float room[MCP_CHUNK];
        int count = mcp_chunk(share.elements - at);
        const float *g = mcp_get(gradients, at, count, room);
        for (int i = 0; i < count; i++)
            moment[at + i] = beta * moment[at + i] + (1 - beta) * (factor * g[i]);
    }
}

/* What has no variance never had a gradient: it stays. */
static void frozen_chunk(const struct update *u, int64_t at, int count, float decay)
{
    float room[MCP_CHUNK];
    const struct mcp_update *by = &u->by;
    const float *m = by->first + at, *v = by->second + at;
    const float *old = by->master != NULL ? by->master + at : mcp_get(by->weights, at, count, room);
    float *w = by->master != NULL ? by->master + at : mcp_room(by->weights, at, room);
    for (int i = 0; i < count; i++) {
        float step = m[i] * by->correction1 / (sqrtf(v[i] * by->correction2) + by->epsilon);
        w[i] = v[i] > 0 ? old[i] - by->rate * (step + decay * old[i]) : old[i];
    }
    mcp_put(by->weights, at, count, w);
}

/* reads state, scalars; writes weights, state. Corrects the variance for the steps that went
 * into it. */
void mcp_cpu_adam_frozen(const struct mcp_launch *launch)
{
    const struct mcp_share share = mcp_share_of(launch, launch->op->writes[0]);
    const float *scalars = launch->reads[1];
    if (scalars[MCP_SCALAR_SKIPPED] > 0)
        return;
    const struct update u = {.chunk = frozen_chunk, .by = mcp_update_of(launch, &share)};
    update_parts(launch, &share, &u);
}
