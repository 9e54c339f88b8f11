/* exec/cpu_kernels_ends.c: tokens, embedding, and the loss over a vocabulary that is cut
 * over the tensor group. */
#include "exec/cpu_kernels_math.h"
#include "exec/cpu_kernels_parts.h"
#include "exec/host_functions.h"

#include <math.h>

void mcp_cpu_load_microbatch(const struct mcp_launch *launch)
{
    mcp_batch_ids(launch, launch->writes[0]);
}

/* Row of this rank's share of the vocabulary that a token has, or -1. */
static int64_t local_row(const struct mcp_launch *launch, int32_t token)
{
    int64_t row = token - mcp_first_id(launch);
    return row >= 0 && row < launch->type->facts.vocab_local ? row : -1;
}

/* A token's row of the table if it is here, and its position's if there are any: columns
 * [c, c + count). */
struct lookup {
    struct mcp_view table, positions, out; /* positions.data NULL: none */
    int64_t columns;
    float rounding; /* mcp_rounding_share() */
};

/* values += rounding (what 16 bits make of them - values) */
static void round_towards(enum mcp_dtype dtype, float rounding, int count, float *values)
{
    for (int i = 0; rounding > 0 && i < count; i++)
        values[i] += rounding * (mcp_from_half(dtype, mcp_to_half(dtype, values[i])) - values[i]);
}

static void look_up(const struct lookup *l, int64_t token, int64_t row, int64_t position)
{
    for (int64_t c = 0; c < l->columns; c += MCP_CHUNK) {
        float sum[MCP_CHUNK] = {0}, more[MCP_CHUNK], room[MCP_CHUNK];
        int count = mcp_chunk(l->columns - c);
        if (row >= 0)
            memcpy(sum, mcp_get(l->table, row * l->columns + c, count, room),
                   (size_t)count * sizeof *sum);
        round_towards(l->out.dtype, l->rounding, count, sum);
        if (l->positions.data != NULL) {
            memcpy(more, mcp_get(l->positions, position * l->columns + c, count, room),
                   (size_t)count * sizeof *more);
            round_towards(l->out.dtype, l->rounding, count, more);
        }
        for (int i = 0; l->positions.data != NULL && i < count; i++)
            sum[i] += more[i];
        mcp_put(l->out, token * l->columns + c, count, sum);
    }
}

/* reads ids, table, what else the layer trains if that lies elsewhere; writes rows. Mixed: the
 * same of tables in fp32, which become what 16 bits would hold. */
void mcp_cpu_embedding_forward(const struct mcp_launch *launch)
{
    const int64_t *d = launch->op->dims;
    const int32_t *ids = launch->reads[0];
    struct lookup l = {
        .table = mcp_weight_view(launch, 1, 0), .out = mcp_write_view(launch, 0), .columns = d[1]};
    l.rounding = mcp_rounding_share(launch);
    if (launch->rank->at.tensor == 0) /* outputs of the tensor group are summed */
        l.positions = mcp_positions_view(launch, mcp_read_view(launch, launch->op->num_reads - 1));
#pragma omp parallel for schedule(static) if (d[0] * d[1] > MCP_SERIAL)
    for (int64_t token = 0; token < d[0]; token++)
        look_up(&l, token, local_row(launch, ids[token]), mcp_position_of(launch, token));
}

/* reads dy, ids; writes the table's gradients, those of the rest if they lie elsewhere.
 * Each thread has columns of its own, and adds tokens in order. */
void mcp_cpu_embedding_backward(const struct mcp_launch *launch)
{
    const int64_t *d = launch->op->dims;
    const int32_t *ids = launch->reads[1];
    struct mcp_view dy = mcp_read_view(launch, 0), table = mcp_gradient_view(launch, 0, 0);
    struct mcp_view positions =
        mcp_positions_view(launch, mcp_write_view(launch, launch->op->num_writes - 1));
    enum { WIDTH = 64 };
#pragma omp parallel for schedule(static) if (d[0] * d[1] > MCP_SERIAL)
    for (int64_t c = 0; c < d[1]; c += WIDTH) {
        float room[WIDTH];
        int count = d[1] - c < WIDTH ? (int)(d[1] - c) : WIDTH;
        for (int64_t token = 0; token < d[0]; token++) {
            int64_t row = local_row(launch, ids[token]);
            const float *values = mcp_get(dy, token * d[1] + c, count, room);
            if (row >= 0)
                mcp_add_to(table, row * d[1] + c, count, values);
            if (positions.data != NULL)
                mcp_add_to(positions, mcp_position_of(launch, token) * d[1] + c, count, values);
        }
    }
}

/* --- loss --- */

/* logits += bias, in place */
static void add_bias(struct mcp_view logits, int64_t at, int64_t columns, struct mcp_view bias)
{
    for (int64_t c = 0; c < columns; c += MCP_CHUNK) {
        float room[MCP_CHUNK];
        int count = mcp_chunk(columns - c);
        mcp_add_to(logits, at + c, count, mcp_get(bias, c, count, room));
    }
}

struct extent { /* of a row of logits: its largest, and the sum of exponentials beside it */
    float largest, sum;
};

static struct extent extent_of(struct mcp_view logits, int64_t at, int64_t columns)
{
    struct extent e = {-INFINITY, 0};
    for (int64_t c = 0; c < columns; c += MCP_CHUNK) {
        float room[MCP_CHUNK], largest = e.largest, sum = 0;
        int count = mcp_chunk(columns - c);
        const float *x = mcp_get(logits, at + c, count, room);
#pragma omp simd reduction(max : largest)
        for (int i = 0; i < count; i++)
            largest = x[i] > largest ? x[i] : largest;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < count; i++)
            sum += mcp_expf(x[i] - largest);
        float factor = largest > e.largest ? mcp_expf(e.largest - largest) : 1;
        e.sum = (c > 0 ? e.sum * factor : 0) + sum;
        e.largest = largest;
    }
    return e;
}

/* dims tokens, 3, columns. reads logits, targets, bias if any; writes numbers [3][tokens]:
 * largest, logarithm of the sum of exponentials, and the target's logit; and the logits. */
void mcp_cpu_loss_max(const struct mcp_launch *launch)
{
    const int64_t *d = launch->op->dims;
    const int32_t *targets = launch->reads[1];
    float *numbers = launch->writes[0];
    struct mcp_view logits = mcp_write_view(launch, 1), bias = {0};
    int64_t columns = mcp_true_columns(launch, d[2]);
    if (launch->op->weight != MCP_NO_WEIGHT)
        bias = mcp_weight_view(launch, 2, 0);
#pragma omp parallel for schedule(static) if (d[0] * d[2] > MCP_SERIAL)
    for (int64_t token = 0; token < d[0]; token++) {
        int64_t row = local_row(launch, targets[token]);
        float room[1];
        if (bias.data != NULL)
            add_bias(logits, token * d[2], columns, bias);
        struct extent e = extent_of(logits, token * d[2], columns);
        numbers[token] = e.largest;
        numbers[d[0] + token] = e.largest + logf(e.sum);
        numbers[2 * d[0] + token] = row < 0 ? 0 : *mcp_get(logits, token * d[2] + row, 1, room);
    }
}

/* The largest of all ranks is known: sums beside it. A rank of padding alone has none. */
void mcp_cpu_loss_sums(const struct mcp_launch *launch)
{
    int64_t tokens = launch->op->dims[0];
    float *numbers = launch->writes[0];
    for (int64_t i = 0; i < tokens; i++)
        numbers[tokens + i] = expf(numbers[tokens + i] - numbers[i]);
}

/* Row of logits to softmax minus one at the target; 0 in padding. */
static void subtract_target(struct mcp_view logits, int64_t at, int64_t columns, float sum_log,
                            int64_t row)
{
    for (int64_t c = 0; c < columns; c += MCP_CHUNK) {
        float room[MCP_CHUNK], out_room[MCP_CHUNK];
        int count = mcp_chunk(columns - c);
        const float *x = mcp_get(logits, at + c, count, room);
        float *out = mcp_room(logits, at + c, out_room);
        for (int i = 0; i < count; i++)
            out[i] = mcp_expf(x[i] - sum_log);
        if (row >= c && row < c + count)
            out[row - c] -= 1;
        mcp_put(logits, at + c, count, out);
    }
}

static void clear(struct mcp_view view, int64_t at, int64_t count)
{
    size_t size = view.dtype == MCP_F32 ? 4 : 2;
    memset(mcp_view_at(view, at).data, 0, (size_t)count * size);
}

/* reads logits, numbers, targets; writes the loss (adds), logits */
void mcp_cpu_loss_forward(const struct mcp_launch *launch)
{
    const int64_t *d = launch->op->dims;
    const float *numbers = launch->reads[1];
    const int32_t *targets = launch->reads[2];
    struct mcp_view logits = mcp_write_view(launch, 1);
    int64_t columns = mcp_true_columns(launch, d[1]);
    double loss = 0;
    for (int64_t i = 0; i < d[0]; i++)
        loss += log((double)numbers[d[0] + i]) + (double)(numbers[i] - numbers[2 * d[0] + i]);
    *(float *)launch->writes[0] += (float)loss;
#pragma omp parallel for schedule(static) if (d[0] * d[1] > MCP_SERIAL)
    for (int64_t i = 0; i < d[0]; i++) {
        float sum_log = numbers[i] + logf(numbers[d[0] + i]);
        subtract_target(logits, i * d[1], columns, sum_log, local_row(launch, targets[i]));
        clear(logits, i * d[1] + columns, d[1] - columns);
    }
}

/* reads logits (their own gradient by now), targets; writes it scaled to a mean */
void mcp_cpu_loss_backward(const struct mcp_launch *launch)
{
    int64_t elements = launch->op->dims[0] * launch->op->dims[1];
    struct mcp_view from = mcp_read_view(launch, 0), to = mcp_write_view(launch, 0);
    const struct mcp_step_inputs *inputs = &launch->rank->inputs;
    float factor = (float)(inputs->loss_scale / (double)inputs->tokens);
#pragma omp parallel for schedule(static) if (elements > MCP_SERIAL)
    for (int64_t at = 0; at < elements; at += MCP_CHUNK) {
        float room[MCP_CHUNK], out_room[MCP_CHUNK];
        int count = mcp_chunk(elements - at);
        const float *x = mcp_get(from, at, count, room);
        float *out = mcp_room(to, at, out_room);
        for (int i = 0; i < count; i++)
            out[i] = x[i] * factor;
        mcp_put(to, at, count, out);
    }
}
