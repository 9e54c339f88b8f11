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
 *   _EPILOGUE_AUX_POINTER, _EPILOGUE_AUX_LD; types of both: that of D; of 8 bits
 *   _A_SCALE_POINTER, _B_SCALE_POINTER: one fp32 of the whole matrix each, as
 *   _A_SCALE_MODE and _B_SCALE_MODE are by default; _FAST_ACCUM 0)
 *   cublasLtMatrixLayoutCreate cublasLtMatrixLayoutDestroy (CUDA_R_32F, _16BF, _16F, _8F_E4M3,
 *   _8F_E5M2; column order, no batches)
 *   cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceDestroy
 *   cublasLtMatmulPreferenceSetAttribute (CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
 *   _MIN_ALIGNMENT_A_BYTES, _B_, _C_, _D_; _REDUCTION_SCHEME_MASK)
 *   cublasLtMatmulAlgoGetHeuristic (one result) cublasLtMatmul (C and D are one; alpha 1, beta 0
 *   or 1, on the host)
 *
 * Gradients of biases are sums of their own: epilogues BGRADA and BGRADB overwrite, where those
 * of microbatches add up.
 *
 * Products of 8 bits (NVIDIA's manual of cuBLAS 13.0, cublasLtMatmul and Tensor Core Usage): only
 * the library's "TN" on compute capability 8.9 and 9.0, both operands contiguous along k; rows,
 * columns, strides and places multiples of 16 bytes; E4M3 with either, never E5M2 with itself; C
 * and D alike, bf16 or fp32 (fp16 too, not used), and added to as other products are; fp32
 * computes and scales. Tensor cores of Hopper keep about 14 bits of the sums that they take of
 * such products (DeepSeek-V3 2024, section 3.3.2); without fast accumulation the library adds those
 * up in fp32 every so many products. */
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
    void *data;           /* row-major, on the device */
    enum mcp_dtype dtype; /* MCP_F32, MCP_BF16 or MCP_F16; of a and b MCP_F8 */
    bool transposed;      /* lies as [columns][rows] of what the product takes */
    int64_t stride;       /* of a and b: numbers from row to row as they lie; 0: without gaps */
    /* MCP_F8 */
    const void *scale; /* fp32, on the device: a number is its byte's times it */
    bool is_e5m2;      /* else E4M3 */
};
/* Of 16 or 32 bits, without gaps. */
static inline struct mcp_cuda_matrix mcp_cuda_matrix_of(void *data, enum mcp_dtype dtype,
                                                        bool transposed)
{
    return (struct mcp_cuda_matrix){.data = data, .dtype = dtype, .transposed = transposed};
}

struct mcp_cuda_product {
    int64_t m, n, k;
    struct mcp_cuda_matrix a; /* [m][k]; in 8 bits never transposed */
    struct mcp_cuda_matrix b; /* [k][n], of a's dtype; in 8 bits transposed */
    struct mcp_cuda_matrix c; /* [m][n], never transposed; fp32, or of a's dtype (8 bits: bf16) */
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
