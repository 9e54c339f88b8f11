/* exec/cpu_kernels_matmul.c: products: of activations with weights, of experts' rows with
 * theirs, and their gradients. */
#include "exec/cpu_blas.h"
#include "exec/cpu_kernels_parts.h"
#include "exec/eight.h"
#include "step/casts.h"

/* Rows of a matrix as they lie; of MCP_F8, which a cast left: times the scale. */
struct matrix {
    struct mcp_view view;
    int64_t stride;
    bool transposed;
    bool is_e5m2;
    float scale;
};

/* c[m][n] = a[m][k] b[k][n] */
struct product {
    int64_t m, n, k;
    struct matrix a, b;
    struct mcp_view c;
    bool accumulate;
};

static bool is_plain(const struct product *p)
{
    return p->a.view.dtype == MCP_F32 && p->b.view.dtype == MCP_F32 && p->c.dtype == MCP_F32;
}

static const float *floats(struct mcp_view view)
{
    return (const float *)(const void *)view.data;
}

static void multiply_plain(const struct product *p)
{
    mcp_blas_multiply(&(struct mcp_product){.m = p->m,
                                            .n = p->n,
                                            .k = p->k,
                                            .a = floats(p->a.view),
                                            .b = floats(p->b.view),
                                            .c = (float *)(void *)p->c.data,
                                            .lda = p->a.stride,
                                            .ldb = p->b.stride,
                                            .ldc = p->n,
                                            .a_transposed = p->a.transposed,
                                            .b_transposed = p->b.transposed,
                                            .accumulate = p->accumulate});
}

/* 16 and 8 bits: blocks are widened on the stack, added up in fp32 over the whole depth, and
 * rounded once. */
enum { BLOCK = 96, DEPTH = 256 };

struct block {
    int64_t row, column;
    int rows, columns;
};

/* `count` numbers from `at` on. */
static const float *numbers_of(const struct matrix *from, int64_t at, int count, float *room)
{
    if (from->view.dtype != MCP_F8)
        return mcp_get(from->view, at, count, room);
    const uint8_t *bytes = (const uint8_t *)(const void *)from->view.data + at;
    mcp_widen_eight(from->is_e5m2, bytes, count, from->scale, room);
    return room;
}

/* As it lies: of a transposed matrix rows are columns. */
static void load_block(const struct matrix *from, struct block block, float *out)
{
    if (from->transposed)
        block = (struct block){block.column, block.row, block.columns, block.rows};
    for (int i = 0; i < block.rows; i++) {
        int64_t at = (block.row + i) * from->stride + block.column;
        float *to = out + (int64_t)i * block.columns;
        const float *numbers = numbers_of(from, at, block.columns, to);
        if (numbers != to)
            memcpy(to, numbers, (size_t)block.columns * sizeof *to);
    }
}

static int shorter(int64_t left, int limit)
{
    return left < limit ? (int)left : limit;
}

/* One block of the result. */
static void multiply_block(const struct product *p, int64_t row, int64_t column)
{
    float a[BLOCK * DEPTH], b[BLOCK * DEPTH], c[BLOCK * BLOCK];
    int rows = shorter(p->m - row, BLOCK), columns = shorter(p->n - column, BLOCK);
    const struct matrix sum = {.view = p->c, .stride = p->n};
    memset(c, 0, sizeof c);
    if (p->accumulate)
        load_block(&sum, (struct block){row, column, rows, columns}, c);
    for (int64_t first = 0; first < p->k; first += DEPTH) {
        int depth = shorter(p->k - first, DEPTH);
        load_block(&p->a, (struct block){row, first, rows, depth}, a);
        load_block(&p->b, (struct block){first, column, depth, columns}, b);
        mcp_blas_multiply(&(struct mcp_product){
            rows, columns, depth, a, b, c, p->a.transposed ? rows : depth,
            p->b.transposed ? depth : columns, columns, p->a.transposed, p->b.transposed, true});
    }
    for (int i = 0; i < rows; i++)
        mcp_put(p->c, (row + i) * p->n + column, columns, c + (int64_t)i * columns);
}

static void multiply(const struct product *p)
{
    if (is_plain(p)) {
        multiply_plain(p);
        return;
    }
    for (int64_t row = 0; row < p->m; row += BLOCK)
        for (int64_t column = 0; column < p->n; column += BLOCK)
            multiply_block(p, row, column);
}

/* Of one local expert, or of a dense layer (expert 0): its weights from the first row that
 * the op uses. */
static struct mcp_view weights_of(const struct mcp_launch *launch, int expert, int64_t columns)
{
    return mcp_view_at(mcp_weight_view(launch, 1, expert), launch->op->dims[4] * columns);
}

static struct mcp_view gradients_of(const struct mcp_launch *launch, int expert, int64_t columns)
{
    return mcp_view_at(mcp_gradient_view(launch, 0, expert), launch->op->dims[4] * columns);
}

/* dims M, N, K: y[M, N] = x[M, K] w[N, K]^T */
static void forward(const struct mcp_launch *launch, int expert, int64_t first, int64_t rows)
{
    const int64_t *d = launch->op->dims;
    multiply(&(struct product){
        .m = rows,
        .n = d[1],
        .k = d[2],
        .a = {.view = mcp_view_at(mcp_read_view(launch, 0), first * d[2]), .stride = d[2]},
        .b = {.view = weights_of(launch, expert, d[2]), .stride = d[2], .transposed = true},
        .c = mcp_view_at(mcp_write_view(launch, 0), first * d[1])});
}

/* dims M, N, K: dx[M, N] = dy[M, K] w[K, N] */
static void input_gradient(const struct mcp_launch *launch, int expert, int64_t first, int64_t rows)
{
    const int64_t *d = launch->op->dims;
    multiply(&(struct product){
        .m = rows,
        .n = d[1],
        .k = d[2],
        .a = {.view = mcp_view_at(mcp_read_view(launch, 0), first * d[2]), .stride = d[2]},
        .b = {.view = weights_of(launch, expert, d[1]), .stride = d[1]},
        .c = mcp_view_at(mcp_write_view(launch, 0), first * d[1])});
}

/* dims M, N, K: dw[M, N] += dy[K, M]^T x[K, N] */
static void weight_gradient(const struct mcp_launch *launch, int expert, int64_t first,
                            int64_t rows)
{
    const int64_t *d = launch->op->dims;
    multiply(&(struct product){
        .m = d[0],
        .n = d[1],
        .k = rows,
        .a = {.view = mcp_view_at(mcp_read_view(launch, 0), first * d[0]),
              .stride = d[0],
              .transposed = true},
        .b = {.view = mcp_view_at(mcp_read_view(launch, 1), first * d[1]), .stride = d[1]},
        .c = gradients_of(launch, expert, d[1]),
        .accumulate = true});
}

/* What a cast left: numbers that are summed over lie beside each other. */
static struct matrix cast_of(const struct mcp_launch *launch, int index)
{
    const struct mcp_cast_view cast = mcp_cast_view(launch, index);
    return (struct matrix){.view = {.data = cast.bytes, .dtype = MCP_F8},
                           .stride = cast.stride,
                           .transposed = index == 1,
                           .is_e5m2 = cast.is_e5m2,
                           .scale = *(const float *)cast.scale};
}

/* dims M, N, K: c[M, N] = a[M, K] b[N, K]^T, or added to c */
static void multiply_casts(const struct mcp_launch *launch, struct mcp_view c, bool accumulate)
{
    const int64_t *d = launch->op->dims;
    multiply(&(struct product){.m = d[0],
                               .n = d[1],
                               .k = d[2],
                               .a = cast_of(launch, 0),
                               .b = cast_of(launch, 1),
                               .c = c,
                               .accumulate = accumulate});
}

void mcp_cpu_matmul_nt(const struct mcp_launch *launch)
{
    if (mcp_op_reads_casts(launch->op))
        multiply_casts(launch, mcp_write_view(launch, 0), false);
    else
        forward(launch, 0, 0, launch->op->dims[0]);
}

void mcp_cpu_matmul_nn(const struct mcp_launch *launch)
{
    if (mcp_op_reads_casts(launch->op))
        multiply_casts(launch, mcp_write_view(launch, 0), false);
    else
        input_gradient(launch, 0, 0, launch->op->dims[0]);
}

void mcp_cpu_matmul_tn(const struct mcp_launch *launch)
{
    if (mcp_op_reads_casts(launch->op))
        multiply_casts(launch, gradients_of(launch, 0, launch->op->dims[1]), true);
    else
        weight_gradient(launch, 0, 0, launch->op->dims[2]);
}

/* Rows lie by expert. */
static void each_expert(const struct mcp_launch *launch,
                        void (*product)(const struct mcp_launch *, int, int64_t, int64_t))
{
    const int32_t *sizes = mcp_launch_sizes(launch);
    int64_t first = 0;
    for (int expert = 0; expert < (int)launch->op->dims[3]; expert++) {
        int64_t rows = mcp_expert_rows(launch, sizes, expert);
        product(launch, expert, first, rows);
        first += rows;
    }
}

void mcp_cpu_grouped_nt(const struct mcp_launch *launch)
{
    each_expert(launch, forward);
}

void mcp_cpu_grouped_nn(const struct mcp_launch *launch)
{
    each_expert(launch, input_gradient);
}

void mcp_cpu_grouped_tn(const struct mcp_launch *launch)
{
    each_expert(launch, weight_gradient);
}
