/* exec/cpu_kernels_matmul.c: products: of activations with weights, of experts' rows with
 * theirs, and their gradients. */
#include "exec/cpu_blas.h"
#include "exec/cpu_kernels_parts.h"

/* One product of views; strides are rows' lengths as they lie. */
struct product {
    int64_t m, n, k;
    struct mcp_view a, b, c;
    bool a_transposed, b_transposed, accumulate;
};

static bool is_plain(const struct product *p)
{
    return p->a.dtype == MCP_F32 && p->b.dtype == MCP_F32 && p->c.dtype == MCP_F32;
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
                                            .a = floats(p->a),
                                            .b = floats(p->b),
                                            .c = (float *)(void *)p->c.data,
                                            .lda = p->a_transposed ? p->m : p->k,
                                            .ldb = p->b_transposed ? p->k : p->n,
                                            .ldc = p->n,
                                            .a_transposed = p->a_transposed,
                                            .b_transposed = p->b_transposed,
                                            .accumulate = p->accumulate});
}

/* 16 bits: blocks are widened on the stack, added up in fp32 over the whole depth, and
 * rounded once. */
enum { BLOCK = 96, DEPTH = 256 };

struct block {
    int64_t row, column; /* of the matrix as it lies */
    int rows, columns;
    int64_t stride;
};

static void load_block(struct mcp_view view, const struct block *block, float *out)
{
    for (int i = 0; i < block->rows; i++) {
        int64_t at = (block->row + i) * block->stride + block->column;
        float *to = out + (int64_t)i * block->columns;
        const float *from = mcp_get(view, at, block->columns, to);
        if (from != to)
            memcpy(to, from, (size_t)block->columns * sizeof *to);
    }
}

static int shorter(int64_t left, int limit)
{
    return left < limit ? (int)left : limit;
}

static void load_a(const struct product *p, int64_t row, int rows, int64_t first, int depth,
                   float *out)
{
    const struct block block = p->a_transposed ? (struct block){first, row, depth, rows, p->m}
                                               : (struct block){row, first, rows, depth, p->k};
    load_block(p->a, &block, out);
}

static void load_b(const struct product *p, int64_t column, int columns, int64_t first, int depth,
                   float *out)
{
    const struct block block = p->b_transposed
                                   ? (struct block){column, first, columns, depth, p->k}
                                   : (struct block){first, column, depth, columns, p->n};
    load_block(p->b, &block, out);
}

/* One block of the result. */
static void multiply_block(const struct product *p, int64_t row, int64_t column)
{
    float a[BLOCK * DEPTH], b[BLOCK * DEPTH], c[BLOCK * BLOCK];
    int rows = shorter(p->m - row, BLOCK), columns = shorter(p->n - column, BLOCK);
    struct block place = {row, column, rows, columns, p->n};
    memset(c, 0, sizeof c);
    if (p->accumulate)
        load_block(p->c, &place, c);
    for (int64_t first = 0; first < p->k; first += DEPTH) {
        int depth = shorter(p->k - first, DEPTH);
        load_a(p, row, rows, first, depth, a);
        load_b(p, column, columns, first, depth, b);
        mcp_blas_multiply(&(struct mcp_product){
            rows, columns, depth, a, b, c, p->a_transposed ? rows : depth,
            p->b_transposed ? depth : columns, columns, p->a_transposed, p->b_transposed, true});
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
    multiply(&(struct product){.m = rows,
                               .n = d[1],
                               .k = d[2],
                               .a = mcp_view_at(mcp_read_view(launch, 0), first * d[2]),
                               .b = weights_of(launch, expert, d[2]),
                               .c = mcp_view_at(mcp_write_view(launch, 0), first * d[1]),
                               .b_transposed = true});
}

/* dims M, N, K: dx[M, N] = dy[M, K] w[K, N] */
static void input_gradient(const struct mcp_launch *launch, int expert, int64_t first, int64_t rows)
{
    const int64_t *d = launch->op->dims;
    multiply(&(struct product){.m = rows,
                               .n = d[1],
                               .k = d[2],
                               .a = mcp_view_at(mcp_read_view(launch, 0), first * d[2]),
                               .b = weights_of(launch, expert, d[1]),
                               .c = mcp_view_at(mcp_write_view(launch, 0), first * d[1])});
}

/* dims M, N, K: dw[M, N] += dy[K, M]^T x[K, N] */
static void weight_gradient(const struct mcp_launch *launch, int expert, int64_t first,
                            int64_t rows)
{
    const int64_t *d = launch->op->dims;
    multiply(&(struct product){.m = d[0],
                               .n = d[1],
                               .k = rows,
                               .a = mcp_view_at(mcp_read_view(launch, 0), first * d[0]),
                               .b = mcp_view_at(mcp_read_view(launch, 1), first * d[1]),
                               .c = gradients_of(launch, expert, d[1]),
                               .a_transposed = true,
                               .accumulate = true});
}

void mcp_cpu_matmul_nt(const struct mcp_launch *launch)
{
    forward(launch, 0, 0, launch->op->dims[0]);
}

void mcp_cpu_matmul_nn(const struct mcp_launch *launch)
{
    input_gradient(launch, 0, 0, launch->op->dims[0]);
}

void mcp_cpu_matmul_tn(const struct mcp_launch *launch)
{
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
