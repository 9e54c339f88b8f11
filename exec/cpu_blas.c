/* exec/cpu_blas.c: the only file that knows BLAS (OpenBLAS). */
#include "exec/cpu_blas.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>

static blasint size_of(int64_t size)
{
    assert(size >= 0 && size <= INT_MAX);
    return (blasint)size;
}

void mcp_blas_multiply(const struct mcp_product *p)
{
    if (p->m == 0 || p->n == 0 || (p->k == 0 && p->accumulate))
        return;
    cblas_sgemm(CblasRowMajor, p->a_transposed ? CblasTrans : CblasNoTrans,
                p->b_transposed ? CblasTrans : CblasNoTrans, size_of(p->m), size_of(p->n),
                size_of(p->k), 1.0f, p->a, size_of(p->lda), p->b, size_of(p->ldb),
                p->accumulate ? 1.0f : 0.0f, p->c, size_of(p->ldc));
}
