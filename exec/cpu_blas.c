/* exec/cpu_blas.c: the only file that knows BLAS (OpenBLAS). */
#include "exec/cpu_blas.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <omp.h>

/* Parts are multiples of the widest tile; smaller products stay on one thread. */
enum { BLAS_STEP = 48, BLAS_SERIAL = 1 << 18 };

static blasint size_of(int64_t size)
{
    assert(size >= 0 && size <= INT_MAX);
    return (blasint)size;
}

static void multiply(const struct mcp_product *p)
{
    if (p->m == 0 || p->n == 0 || (p->k == 0 && p->accumulate))
        return;
    cblas_sgemm(CblasRowMajor, p->a_transposed ? CblasTrans : CblasNoTrans,
                p->b_transposed ? CblasTrans : CblasNoTrans, size_of(p->m), size_of(p->n),
                size_of(p->k), 1.0f, p->a, size_of(p->lda), p->b, size_of(p->ldb),
                p->accumulate ? 1.0f : 0.0f, p->c, size_of(p->ldc));
}

/* Part `index` of `count` of the longer side of the result. */
static struct mcp_product part_of(const struct mcp_product *p, int index, int count)
{
    struct mcp_product part = *p;
    bool by_rows = p->m > p->n;
    int64_t side = by_rows ? p->m : p->n;
    int64_t each = (side + count - 1) / count, first;
    each = (each + BLAS_STEP - 1) / BLAS_STEP * BLAS_STEP;
    first = each * index < side ? each * index : side;
    each = side - first < each ? side - first : each;
    if (by_rows) {
        part.m = each;
        part.a += p->a_transposed ? first : first * p->lda;
        part.c += first * p->ldc;
    } else {
        part.n = each;
        part.b += p->b_transposed ? first * p->ldb : first;
        part.c += first;
    }
    return part;
}

/* Threads of the kernels, not of BLAS: two pools would keep each other from the cores. */
void mcp_blas_multiply(const struct mcp_product *p)
{
    if (p->m * p->n * p->k < BLAS_SERIAL || omp_in_parallel()) {
        multiply(p);
        return;
    }
#pragma omp parallel
    {
        const struct mcp_product part = part_of(p, omp_get_thread_num(), omp_get_num_threads());
        multiply(&part);
    }
}

void mcp_blas_use_no_threads(void)
{
    openblas_set_num_threads(1);
}
