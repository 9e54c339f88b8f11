/* exec/cpu_kernels_norm.c: LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019).
 *
 *     y = (x - mean) r w + b,  r = 1 / sqrt(mean((x - mean)^2) + epsilon)
 *     dx = r (g - mean(g) - z mean(g z)),  g = dy w,  z = (x - mean) r
 * RMSNorm takes the mean as 0, and mean(g) too. A norm of heads treats each head of queries
 * and keys as a row of its own, and leaves what is beside them as it is. */
#include "exec/cpu_kernels_parts.h"

#include <math.h>

enum { ROWS = 128 }; /* whose statistics are kept at a time */

/* What is normed: `columns` numbers at `at` of each of a row's segments. */
struct norm {
    const struct mcp_layer_facts *facts;
    struct mcp_view weights; /* data NULL: none */
    bool has_bias;
    int64_t rows, columns, stride;
    int64_t first, weight_at, bias_at; /* of a segment in its row, in the part */
};

struct statistics {
    float mean, factor;
};

static struct statistics measure(const struct norm *n, struct mcp_view x, int64_t at)
{
    float room[MCP_CHUNK];
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < n->columns && n->facts->norm_centers; c += MCP_CHUNK) {
        int count = mcp_chunk(n->columns - c);
        const float *values = mcp_get(x, at + c, count, room);
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int i = 0; i < count; i++)
            part += values[i];
        sum += (double)part;
    }
    float mean = (float)(sum / (double)n->columns);
    for (int64_t c = 0; c < n->columns; c += MCP_CHUNK) {
        int count = mcp_chunk(n->columns - c);
        const float *values = mcp_get(x, at + c, count, room);
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int i = 0; i < count; i++)
            part += (values[i] - mean) * (values[i] - mean);
        squares += (double)part;
    }
    double variance = squares / (double)n->columns + n->facts->norm_epsilon;
    return (struct statistics){mean, (float)(1 / sqrt(variance))};
}

/* `count` weights from column c on; ones where there are none. */
static const float *weights_at(const struct norm *n, int64_t c, int count, float *room)
{
    if (n->weights.data != NULL)
        return mcp_get(n->weights, n->weight_at + c, count, room);
    for (int i = 0; i < count; i++)
        room[i] = 1;
    return room;
}

static void norm_row(const struct norm *n, struct mcp_view x, struct mcp_view y, int64_t row)
{
    int64_t at = row * n->stride + n->first;
    struct statistics s = measure(n, x, at);
    for (int64_t c = 0; c < n->columns; c += MCP_CHUNK) {
        float x_room[MCP_CHUNK], y_room[MCP_CHUNK], w_room[MCP_CHUNK], b_room[MCP_CHUNK];
        int count = mcp_chunk(n->columns - c);
        const float *in = mcp_get(x, at + c, count, x_room);
        const float *w = weights_at(n, c, count, w_room);
        float *out = mcp_room(y, at + c, y_room);
        for (int i = 0; i < count; i++)
            out[i] = (in[i] - s.mean) * s.factor * w[i];
        if (n->has_bias) {
            const float *b = mcp_get(n->weights, n->bias_at + c, count, b_room);
            for (int i = 0; i < count; i++)
                out[i] += b[i];
        }
        mcp_put(y, at + c, count, out);
    }
}

/* --- backward --- */

struct norm_back {
    struct norm n;
    struct mcp_view dy, x, residual, dx, gradient; /* residual.data NULL: none */
};

enum { COLUMNS = 64 }; /* whose gradients one thread adds up at a time */

/* Column sums of dy z, and of dy, over rows whose statistics are given. */
static void sum_columns(const struct norm_back *b, int64_t at, int64_t rows, int count,
                        const struct statistics *s, float sums[2][COLUMNS])
{
    float x_room[COLUMNS], dy_room[COLUMNS];
    for (int64_t row = 0; row < rows; row++) {
        const float *x = mcp_get(b->x, at + row * b->n.stride, count, x_room);
        const float *dy = mcp_get(b->dy, at + row * b->n.stride, count, dy_room);
        for (int i = 0; i < count; i++) {
            sums[0][i] += dy[i] * (x[i] - s[row].mean) * s[row].factor;
            sums[1][i] += dy[i];
        }
    }
}

static void add_gradients(const struct norm_back *b, int64_t first_row, int64_t rows,
                          const struct statistics *s)
{
    const struct norm *n = &b->n;
#pragma omp parallel for schedule(static) if (rows * n->columns > MCP_SERIAL)
    for (int64_t c = 0; c < n->columns; c += COLUMNS) {
        float sums[2][COLUMNS] = {{0}};
        int count = n->columns - c < COLUMNS ? (int)(n->columns - c) : COLUMNS;
        sum_columns(b, first_row * n->stride + n->first + c, rows, count, s, sums);
        mcp_add_to(b->gradient, n->weight_at + c, count, sums[0]);
        if (n->has_bias)
            mcp_add_to(b->gradient, n->bias_at + c, count, sums[1]);
    }
}

struct means {
    float gradient, product; /* of g, and of g z */
};

static struct means mean_gradients(const struct norm_back *b, int64_t at, struct statistics s)
{
    const struct norm *n = &b->n;
    double gradient = 0, product = 0;
    for (int64_t c = 0; c < n->columns; c += MCP_CHUNK) {
        float x_room[MCP_CHUNK], dy_room[MCP_CHUNK], w_room[MCP_CHUNK];
        int count = mcp_chunk(n->columns - c);
        const float *x = mcp_get(b->x, at + c, count, x_room);
        const float *dy = mcp_get(b->dy, at + c, count, dy_room);
        const float *w = weights_at(n, c, count, w_room);
        float sum = 0, other = 0;
#pragma omp simd reduction(+ : sum, other)
        for (int i = 0; i < count; i++) {
            sum += dy[i] * w[i];
            other += dy[i] * w[i] * (x[i] - s.mean) * s.factor;
        }
        gradient += (double)sum;
        product += (double)other;
    }
    double columns = (double)n->columns;
    return (struct means){n->facts->norm_centers ? (float)(gradient / columns) : 0,
                          (float)(product / columns)};
}

static void back_row(const struct norm_back *b, int64_t row, struct statistics s)
{
    const struct norm *n = &b->n;
    int64_t at = row * n->stride + n->first;
    struct means m = mean_gradients(b, at, s);
    for (int64_t c = 0; c < n->columns; c += MCP_CHUNK) {
        float x_room[MCP_CHUNK], dy_room[MCP_CHUNK], w_room[MCP_CHUNK], r_room[MCP_CHUNK];
        float out_room[MCP_CHUNK];
        int count = mcp_chunk(n->columns - c);
        const float *x = mcp_get(b->x, at + c, count, x_room);
        const float *dy = mcp_get(b->dy, at + c, count, dy_room);
        const float *w = weights_at(n, c, count, w_room);
        float *out = mcp_room(b->dx, at + c, out_room);
        for (int i = 0; i < count; i++)
            out[i] =
                s.factor * (dy[i] * w[i] - m.gradient - (x[i] - s.mean) * s.factor * m.product);
        if (b->residual.data != NULL) {
            const float *residual = mcp_get(b->residual, at + c, count, r_room);
            for (int i = 0; i < count; i++)
                out[i] += residual[i];
        }
        mcp_put(b->dx, at + c, count, out);
    }
}

static void back(const struct norm_back *b)
{
    const struct norm *n = &b->n;
    for (int64_t first = 0; first < n->rows; first += ROWS) {
        struct statistics s[ROWS];
        int64_t rows = n->rows - first < ROWS ? n->rows - first : ROWS;
#pragma omp parallel for schedule(static) if (rows * n->columns > MCP_SERIAL)
        for (int64_t i = 0; i < rows; i++)
            s[i] = measure(n, b->x, (first + i) * n->stride + n->first);
        if (n->weights.data != NULL)
            add_gradients(b, first, rows, s);
#pragma omp parallel for schedule(static) if (rows * n->columns > MCP_SERIAL)
        for (int64_t i = 0; i < rows; i++)
            back_row(b, first + i, s[i]);
    }
}

/* --- rows, and heads of rows --- */

/* Segment `segment` of a band of the row. */
static struct norm segment_of(const struct mcp_launch *launch, const struct mcp_norm_shape *shape,
                              const struct mcp_norm_band *band, int64_t segment, int weights)
{
    struct norm n = {.facts = &launch->type->facts,
                     .has_bias = shape->has_bias,
                     .rows = shape->rows,
                     .columns = band->columns,
                     .stride = shape->stride,
                     .first = band->first + segment * band->columns,
                     .weight_at = band->weight_at,
                     .bias_at = band->bias_at};
    if (launch->op->weight != MCP_NO_WEIGHT)
        n.weights = mcp_weight_view(launch, weights, 0);
    return n;
}

/* What no norm touches goes on as it is. */
static void copy_rest(const struct mcp_norm_shape *shape, struct mcp_view from, struct mcp_view to)
{
    size_t size = from.dtype == MCP_F32 ? 4 : 2;
    if (shape->stride == shape->columns || from.data == to.data)
        return;
    for (int64_t row = 0; row < shape->rows; row++) {
        int64_t at = row * shape->stride + shape->columns;
        memcpy(mcp_view_at(to, at).data, mcp_view_at(from, at).data,
               (size_t)(shape->stride - shape->columns) * size);
    }
}

static void norm_rows(const struct norm *n, struct mcp_view x, struct mcp_view y)
{
#pragma omp parallel for schedule(static) if (n->rows * n->columns > MCP_SERIAL)
    for (int64_t row = 0; row < n->rows; row++)
        norm_row(n, x, y, row);
}

/* reads x, weights; writes y */
void mcp_cpu_norm_forward(const struct mcp_launch *launch)
{
    struct mcp_view x = mcp_read_view(launch, 0), y = mcp_write_view(launch, 0);
    const struct mcp_norm_shape shape = mcp_norm_shape_of(launch, x);
    for (int i = 0; i < shape.num_bands; i++)
        for (int64_t segment = 0; segment < shape.bands[i].segments; segment++) {
            const struct norm n = segment_of(launch, &shape, &shape.bands[i], segment, 1);
            norm_rows(&n, x, y);
        }
    copy_rest(&shape, x, y);
}

/* reads dy, x, weights if any, residual if any; writes dx, gradients */
void mcp_cpu_norm_backward(const struct mcp_launch *launch)
{
    bool weighted = launch->op->weight != MCP_NO_WEIGHT;
    int residual = weighted ? 3 : 2;
    struct norm_back b = {.dy = mcp_read_view(launch, 0),
                          .x = mcp_read_view(launch, 1),
                          .dx = mcp_write_view(launch, 0)};
    const struct mcp_norm_shape shape = mcp_norm_shape_of(launch, b.x);
    if (launch->op->num_reads > residual)
        b.residual = mcp_read_view(launch, residual);
    if (weighted)
        b.gradient = mcp_gradient_view(launch, 1, 0);
    for (int i = 0; i < shape.num_bands; i++)
        for (int64_t segment = 0; segment < shape.bands[i].segments; segment++) {
            b.n = segment_of(launch, &shape, &shape.bands[i], segment, 2);
            back(&b);
        }
    copy_rest(&shape, b.dy, b.dx);
}
