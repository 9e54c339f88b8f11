/* exec/cpu_blas.h: products of fp32 matrices, row-major. The door to BLAS is cpu_blas.c. */
#ifndef MCP_EXEC_CPU_BLAS_H
#define MCP_EXEC_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

struct mcp_product {
    int64_t m, n, k;
    const float *a; /* [m][k], or transposed [k][m]; `lda` from row to row as it lies */
    const float *b; /* [k][n], or transposed [n][k] */
    float *c;       /* [m][n] */
    int64_t lda, ldb, ldc;
    bool a_transposed, b_transposed;
    bool accumulate; /* c += a b, else c = a b */
};

/* By the threads of OpenMP, each with a part of the longer side of c. */
void mcp_blas_multiply(const struct mcp_product *product);
/* The library's own threads would compete with them: it is to use none. Once, at the start. */
void mcp_blas_use_no_threads(void);

#endif
