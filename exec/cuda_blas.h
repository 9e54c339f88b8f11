/* exec/cuda_blas.h: products of matrices on a device, row-major: the door of cuBLASLt.
 *
 * Sums in fp32 whatever the operands are in (no TF32), one product at a time on one stream.
 * The library's choice of algorithm is asked for once a shape and kept; the workspace is fixed,
 * so a shape has one algorithm, and equal inputs give equal bits.
 *
 * Entry points of the library, all that is used of it:
 *   cublasLtCreate cublasLtDestroy cublasLtGetStatusString
 *   cublasLtMatmulDescCreate (CUBLAS_COMPUTE_32F, CUDA_R_32F) cublasLtMatmulDescDestroy
 *   cublasLtMatmulDescSetAttribute (CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB: CUBLAS_OP_N, _T;
 *   _EPILOGUE: CUBLASLT_EPILOGUE_BIAS, _GELU_AUX, _GELU_AUX_BIAS; _BIAS_POINTER,
 *   _EPILOGUE_AUX_POINTER, _EPILOGUE_AUX_LD; types of both: that of D)
 *   cublasLtMatrixLayoutCreate cublasLtMatrixLayoutDestroy (CUDA_R_32F, _16BF, _16F; column
 *   order, no batches)
 *   cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceDestroy
 *   cublasLtMatmulPreferenceSetAttribute (CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
 *   _MIN_ALIGNMENT_A_BYTES, _B_, _C_, _D_; _REDUCTION_SCHEME_MASK)
 *   cublasLtMatmulAlgoGetHeuristic (one result) cublasLtMatmul (C and D are one; alpha 1, beta 0
 *   or 1, on the host)
 *
 * Gradients of biases are sums of their own: epilogues BGRADA and BGRADB overwrite, where those
 * of microbatches add up. */
#ifndef MCP_EXEC_CUDA_BLAS_H
#define MCP_EXEC_CUDA_BLAS_H

#include "core/arena.h"
#include "core/error.h"
#include "core/precision.h"

#include <stdbool.h>
#include <stdint.h>

struct mcp_cuda_blas;

/* A workspace as NVIDIA recommends it for products on its newest devices. */
enum { MCP_CUDA_BLAS_BYTES = 32 << 20 };
/* Of the device that the calling thread has chosen; with a workspace of `workspace_bytes`. */
enum mcp_status mcp_cuda_blas_open(struct mcp_arena *arena, int64_t workspace_bytes,
                                   struct mcp_cuda_blas **out, struct mcp_error *err);

struct mcp_cuda_matrix {
    void *data;           /* row-major, rows without gaps, on the device */
    enum mcp_dtype dtype; /* MCP_F32, MCP_BF16 or MCP_F16 */
    bool transposed;      /* lies as [columns][rows] of what the product takes */
};
struct mcp_cuda_product {
    int64_t m, n, k;
    struct mcp_cuda_matrix a; /* [m][k] */
    struct mcp_cuda_matrix b; /* [k][n], of a's dtype */
    struct mcp_cuda_matrix c; /* [m][n], never transposed; fp32, or of a's dtype */
    bool accumulate;          /* c += a b, else c = a b */
    /* Epilogues, of c's dtype and not where it accumulates; data NULL: none. */
    struct mcp_cuda_matrix bias;        /* [n], added to each row */
    struct mcp_cuda_matrix before_gelu; /* [m][n], n a multiple of 8: what c is GELU by tanh of */
};

/* Queues the product on `stream`: always the same of one struct mcp_cuda_blas. Without rows or
 * columns nothing; with k = 0 c is cleared unless it is added to. */
enum mcp_status mcp_cuda_blas_multiply(struct mcp_cuda_blas *blas,
                                       const struct mcp_cuda_product *product, void *stream,
                                       struct mcp_error *err);

#endif
