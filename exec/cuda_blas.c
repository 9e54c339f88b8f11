/* exec/cuda_blas.c: the only file that knows cuBLASLt.
 *
 * The library's matrices lie column by column: a row-major c = a b is its c' = b' a', of the
 * same memory. */
#include "exec/cuda_blas.h"

#include "exec/cuda_runtime.h"

#include <cublasLt.h>

#include <assert.h>
#include <string.h>

/* What an algorithm is chosen by; compared byte by byte, so without gaps. */
struct shape {
    int64_t m, n, k;
    int64_t a_stride, b_stride;
    int32_t alignment[5]; /* bytes: of a, b, c, the bias, what comes before GELU; 0: none */
    unsigned char a_type, b_type, c_type; /* the library's */
    unsigned char transposed;             /* 1 of a, 2 of b */
};

/* A shape falls into a row of slots, and takes the place of an old one where that is full: shapes
 * of experts' rows have no end, and those of dense layers must not take turns in one place. */
struct choice {
    struct shape shape;
    bool made;
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
};

enum { CHOICES = 1024, IN_A_ROW = 8 };

struct mcp_cuda_blas {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    int64_t workspace_bytes;
    unsigned replaced;
    struct choice choices[CHOICES];
};

static enum mcp_status check(cublasStatus_t code, const char *what, struct mcp_error *err)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return MCP_OK;
    return mcp_fail(err, MCP_RUN_FAILURE, "%s: cuBLASLt says: %s", what,
                    cublasLtGetStatusString(code));
}

static void forget(struct choice *choice)
{
    if (choice->a != NULL)
        cublasLtMatrixLayoutDestroy(choice->a);
    if (choice->b != NULL)
        cublasLtMatrixLayoutDestroy(choice->b);
    if (choice->c != NULL)
        cublasLtMatrixLayoutDestroy(choice->c);
    if (choice->description != NULL)
        cublasLtMatmulDescDestroy(choice->description);
    *choice = (struct choice){.made = false};
}

static void close_blas(void *handle)
{
    struct mcp_cuda_blas *blas = handle;
    for (int i = 0; i < CHOICES; i++)
        forget(&blas->choices[i]);
    if (blas->preference != NULL)
        cublasLtMatmulPreferenceDestroy(blas->preference);
    if (blas->handle != NULL)
        cublasLtDestroy(blas->handle);
}

enum mcp_status mcp_cuda_blas_open(struct mcp_arena *arena, int64_t workspace_bytes,
                                   struct mcp_cuda_blas **out, struct mcp_error *err)
{
    struct mcp_cuda_blas *blas = MCP_NEW(arena, struct mcp_cuda_blas);
    uint64_t bytes = (uint64_t)workspace_bytes;
    mcp_defer(arena, close_blas, blas);
    blas->workspace_bytes = workspace_bytes;
    MCP_TRY(mcp_cuda_new_memory(arena, workspace_bytes, &blas->workspace, err));
    MCP_TRY(check(cublasLtCreate(&blas->handle), "starting", err));
    MCP_TRY(check(cublasLtMatmulPreferenceCreate(&blas->preference), "starting", err));
    *out = blas;
    return check(cublasLtMatmulPreferenceSetAttribute(blas->preference,
                                                      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &bytes, sizeof bytes),
                 "starting", err);
}

static cudaDataType type_of(const struct mcp_cuda_matrix *matrix)
{
    switch (matrix->dtype) {
    case MCP_F32:
        return CUDA_R_32F;
    case MCP_BF16:
        return CUDA_R_16BF;
    case MCP_F8:
        return matrix->is_e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
    default:
        return CUDA_R_16F;
    }
}

static bool is_number(enum mcp_dtype dtype)
{
    return dtype == MCP_F32 || dtype == MCP_BF16 || dtype == MCP_F16;
}

static bool types_fit(const struct mcp_cuda_product *p)
{
    const bool eight = p->a.dtype == MCP_F8;
    const bool c_fits = p->c.dtype == MCP_F32 || p->c.dtype == (eight ? MCP_BF16 : p->a.dtype);
    return (eight || is_number(p->a.dtype)) && p->b.dtype == p->a.dtype && c_fits;
}

static enum mcp_status check_types(const struct mcp_cuda_product *p, struct mcp_error *err)
{
    if (types_fit(p))
        return MCP_OK;
    return mcp_fail(err, MCP_RUN_FAILURE, "cuBLASLt has no product of %s and %s into %s",
                    mcp_dtype_names[p->a.dtype], mcp_dtype_names[p->b.dtype],
                    mcp_dtype_names[p->c.dtype]);
}

static bool has_epilogue(const struct mcp_cuda_product *p)
{
    return p->bias.data != NULL || p->before_gelu.data != NULL;
}

static enum mcp_status check_epilogue(const struct mcp_cuda_product *p, struct mcp_error *err)
{
    const struct mcp_cuda_matrix *operands[2] = {&p->bias, &p->before_gelu};
    if (!has_epilogue(p))
        return MCP_OK;
    if (p->accumulate || p->k == 0 || (p->before_gelu.data != NULL && p->n % 8 != 0))
        return mcp_fail(err, MCP_RUN_FAILURE,
                        "cuBLASLt has no epilogue for a product of %lld x %lld x %lld",
                        (long long)p->m, (long long)p->n, (long long)p->k);
    for (int i = 0; i < 2; i++)
        if (operands[i]->data != NULL && operands[i]->dtype != p->c.dtype)
            return mcp_fail(err, MCP_RUN_FAILURE,
                            "cuBLASLt has no epilogue of %s for results of %s",
                            mcp_dtype_names[operands[i]->dtype], mcp_dtype_names[p->c.dtype]);
    return MCP_OK;
}

/* From row to row as it lies, of what the product takes as [rows][columns]. */
static int64_t stride_of(const struct mcp_cuda_matrix *matrix, int64_t rows, int64_t columns)
{
    return matrix->stride != 0 ? matrix->stride : matrix->transposed ? rows : columns;
}

/* An operand of 8 bits, or what such a product leaves. */
static bool is_aligned(const struct mcp_cuda_matrix *matrix, int64_t stride)
{
    return (uintptr_t)matrix->data % 16 == 0 &&
           stride * (int64_t)mcp_dtype_bytes(matrix->dtype) % 16 == 0;
}

/* The library would say no more than that it has none. */
static enum mcp_status check_eight(const struct mcp_cuda_product *p, struct mcp_error *err)
{
    if (p->a.dtype != MCP_F8)
        return MCP_OK;
    assert(p->a.scale != NULL && p->b.scale != NULL);
    if (!p->a.transposed && p->b.transposed && !(p->a.is_e5m2 && p->b.is_e5m2) &&
        !has_epilogue(p) && (p->m | p->n | p->k) % 16 == 0 &&
        is_aligned(&p->a, stride_of(&p->a, p->m, p->k)) &&
        is_aligned(&p->b, stride_of(&p->b, p->k, p->n)) && is_aligned(&p->c, p->n))
        return MCP_OK;
    return mcp_fail(err, MCP_RUN_FAILURE,
                    "cuBLASLt's products in 8 bits are of rows along what is summed over, of "
                    "multiples of 16 bytes, one of E4M3 at least, without an epilogue; this one of "
                    "%lld x %lld x %lld is not",
                    (long long)p->m, (long long)p->n, (long long)p->k);
}

static int32_t alignment_of(const void *data)
{
    uintptr_t bits = (uintptr_t)data | 256;
    return (int32_t)(bits & -bits);
}

static struct shape shape_of(const struct mcp_cuda_product *p)
{
    struct shape shape;
    memset(&shape, 0, sizeof shape);
    shape.m = p->m;
    shape.n = p->n;
    shape.k = p->k;
    shape.a_stride = stride_of(&p->a, p->m, p->k);
    shape.b_stride = stride_of(&p->b, p->k, p->n);
    shape.alignment[0] = alignment_of(p->a.data);
    shape.alignment[1] = alignment_of(p->b.data);
    shape.alignment[2] = alignment_of(p->c.data);
    if (p->bias.data != NULL)
        shape.alignment[3] = alignment_of(p->bias.data);
    if (p->before_gelu.data != NULL)
        shape.alignment[4] = alignment_of(p->before_gelu.data);
    shape.a_type = (unsigned char)type_of(&p->a);
    shape.b_type = (unsigned char)type_of(&p->b);
    shape.c_type = (unsigned char)type_of(&p->c);
    shape.transposed = (unsigned char)(p->a.transposed + 2 * p->b.transposed);
    return shape;
}

static struct choice *slot_of(struct mcp_cuda_blas *blas, const struct shape *shape)
{
    const unsigned char *bytes = (const unsigned char *)shape;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *shape; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    hash ^= hash >> 32; /* sizes are round: their low bits are alike */
    struct choice *row = &blas->choices[hash % (CHOICES / IN_A_ROW) * IN_A_ROW];
    for (int i = 0; i < IN_A_ROW; i++)
        if (!row[i].made || memcmp(&row[i].shape, shape, sizeof *shape) == 0)
            return &row[i];
    return &row[blas->replaced++ % IN_A_ROW];
}

/* --- a choice --- */

static enum mcp_status set_transposed(cublasLtMatmulDesc_t description,
                                      cublasLtMatmulDescAttributes_t which, bool transposed,
                                      struct mcp_error *err)
{
    cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    return check(cublasLtMatmulDescSetAttribute(description, which, &operation, sizeof operation),
                 "describing a product", err);
}

/* Where this product's bias, further result and scales lie: algorithms are chosen for alignments
 * alone. The library's first matrix is our second. */
static enum mcp_status point(cublasLtMatmulDesc_t description, const struct mcp_cuda_product *p,
                             struct mcp_error *err)
{
    const struct {
        cublasLtMatmulDescAttributes_t which;
        const void *at;
    } all[] = {{CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->bias.data},
               {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p->before_gelu.data},
               {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p->b.scale},
               {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p->a.scale}};
    for (size_t i = 0; i < MCP_COUNT_OF(all); i++)
        if (all[i].at != NULL)
            MCP_TRY(check(cublasLtMatmulDescSetAttribute(description, all[i].which, &all[i].at,
                                                         sizeof all[i].at),
                          "describing an operand", err));
    return MCP_OK;
}

static enum mcp_status describe_eight(cublasLtMatmulDesc_t description,
                                      const struct mcp_cuda_product *p, struct mcp_error *err)
{
    const int8_t fast = 0;
    if (p->a.dtype != MCP_F8)
        return MCP_OK;
    return check(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast,
                                                sizeof fast),
                 "describing a product in 8 bits", err);
}

static enum mcp_status describe_epilogue(cublasLtMatmulDesc_t description,
                                         const struct mcp_cuda_product *p, struct mcp_error *err)
{
    const bool biased = p->bias.data != NULL, gelu = p->before_gelu.data != NULL;
    const cublasLtEpilogue_t epilogue = !gelu    ? CUBLASLT_EPILOGUE_BIAS
                                        : biased ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                                 : CUBLASLT_EPILOGUE_GELU_AUX;
    if (!has_epilogue(p))
        return MCP_OK;
    MCP_TRY(check(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                 &epilogue, sizeof epilogue),
                  "describing an epilogue", err));
    if (gelu)
        MCP_TRY(check(cublasLtMatmulDescSetAttribute(
                          description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->n, sizeof p->n),
                      "describing an epilogue", err));
    return MCP_OK;
}

/* Of a row-major [rows][columns], or where it lies transposed [columns][rows]. */
static enum mcp_status new_layout(const struct mcp_cuda_matrix *matrix, int64_t rows,
                                  int64_t columns, cublasLtMatrixLayout_t *out,
                                  struct mcp_error *err)
{
    int64_t wide = matrix->transposed ? rows : columns, tall = matrix->transposed ? columns : rows;
    return check(cublasLtMatrixLayoutCreate(out, type_of(matrix), (uint64_t)wide, (uint64_t)tall,
                                            stride_of(matrix, rows, columns)),
                 "describing a matrix", err);
}

/* The library's first matrix is our second. */
static enum mcp_status describe(struct choice *choice, const struct mcp_cuda_product *p,
                                struct mcp_error *err)
{
    MCP_TRY(check(cublasLtMatmulDescCreate(&choice->description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                  "describing a product", err));
    MCP_TRY(set_transposed(choice->description, CUBLASLT_MATMUL_DESC_TRANSA, p->b.transposed, err));
    MCP_TRY(set_transposed(choice->description, CUBLASLT_MATMUL_DESC_TRANSB, p->a.transposed, err));
    MCP_TRY(describe_epilogue(choice->description, p, err));
    MCP_TRY(describe_eight(choice->description, p, err));
    MCP_TRY(point(choice->description, p, err));
    MCP_TRY(new_layout(&p->a, p->m, p->k, &choice->a, err));
    MCP_TRY(new_layout(&p->b, p->k, p->n, &choice->b, err));
    return new_layout(&p->c, p->m, p->n, &choice->c, err);
}

static enum mcp_status set_alignments(const struct mcp_cuda_blas *blas, const struct shape *shape,
                                      struct mcp_error *err)
{
    static const cublasLtMatmulPreferenceAttributes_t which[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    static const int of[4] = {1, 0, 2, 2};
    for (int i = 0; i < 4; i++) {
        uint32_t bytes = (uint32_t)shape->alignment[of[i]];
        MCP_TRY(check(
            cublasLtMatmulPreferenceSetAttribute(blas->preference, which[i], &bytes, sizeof bytes),
            "describing a product", err));
    }
    return MCP_OK;
}

/* Parts of a long sum are added up in fp32, too, and not in the result's format. */
static enum mcp_status set_sums(const struct mcp_cuda_blas *blas, const struct shape *shape,
                                struct mcp_error *err)
{
    const uint32_t schemes = shape->c_type == CUDA_R_32F ? CUBLASLT_REDUCTION_SCHEME_MASK
                                                         : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    return check(cublasLtMatmulPreferenceSetAttribute(blas->preference,
                                                      CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &schemes, sizeof schemes),
                 "describing a product", err);
}

static enum mcp_status choose(struct mcp_cuda_blas *blas, struct choice *choice,
                              const struct mcp_cuda_product *p, const struct shape *shape,
                              struct mcp_error *err)
{
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    forget(choice);
    choice->shape = *shape;
    MCP_TRY(describe(choice, p, err));
    MCP_TRY(set_alignments(blas, shape, err));
    MCP_TRY(set_sums(blas, shape, err));
    cublasStatus_t code =
        cublasLtMatmulAlgoGetHeuristic(blas->handle, choice->description, choice->b, choice->a,
                                       choice->c, choice->c, blas->preference, 1, &result, &found);
    if (code == CUBLAS_STATUS_SUCCESS && found == 0)
        code = CUBLAS_STATUS_NOT_SUPPORTED;
    MCP_TRY(check(code,
                  has_epilogue(p) ? "choosing an algorithm for a product with an epilogue, which "
                                    "stacks without fused_epilogues have none of"
                                  : "choosing an algorithm",
                  err));
    choice->algorithm = result.algo;
    choice->made = true;
    return MCP_OK;
}

static int64_t bytes_of(const struct mcp_cuda_product *p)
{
    return p->m * p->n * (int64_t)mcp_dtype_bytes(p->c.dtype);
}

enum mcp_status mcp_cuda_blas_multiply(struct mcp_cuda_blas *blas, const struct mcp_cuda_product *p,
                                       void *stream, struct mcp_error *err)
{
    const float one = 1, beta = p->accumulate ? 1 : 0;
    MCP_TRY(check_types(p, err));
    MCP_TRY(check_epilogue(p, err));
    MCP_TRY(check_eight(p, err));
    if (p->m == 0 || p->n == 0 || (p->k == 0 && p->accumulate))
        return MCP_OK;
    if (p->k == 0)
        return mcp_cuda_set_bytes(p->c.data, 0, bytes_of(p), stream, err);
    struct shape shape = shape_of(p);
    struct choice *choice = slot_of(blas, &shape);
    if (!choice->made || memcmp(&choice->shape, &shape, sizeof shape) != 0)
        MCP_TRY(choose(blas, choice, p, &shape, err));
    MCP_TRY(point(choice->description, p, err));
    return check(cublasLtMatmul(blas->handle, choice->description, &one, p->b.data, choice->b,
                                p->a.data, choice->a, &beta, p->c.data, choice->c, p->c.data,
                                choice->c, &choice->algorithm, blas->workspace,
                                (size_t)blas->workspace_bytes, stream),
                 "a product", err);
}
