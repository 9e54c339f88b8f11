/* tests/cuda/fake/blas.c: products of cuBLASLt by plain loops, queued on the engine.
 *
 * As the library has it: column-major; descriptors are read at the call; an algorithm is for
 * the types, transpositions, epilogue, shapes and alignments that it was asked for; the workspace
 * is the library's while it runs (it is overwritten here). Operands of 8 bits are taken as Hopper
 * takes them, transposed the first and not the second, aligned to 16 in all they have; their
 * scales are read when the product runs. */
#include "cublasLt.h"
#include "exec/half.h"
#include "tests/cuda/fake/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cublasLtContext {
    int device;
};

struct layout {
    cudaDataType_t type;
    size_t rows, columns, stride;
};

struct description {
    bool a_transposed, b_transposed;
    int32_t a_operation, b_operation;
    uint32_t epilogue;
    const char *bias; /* [rows of D] */
    char *aux;        /* as D, but its stride */
    int64_t aux_stride;
    const float *a_scale, *b_scale;
    int8_t fast; /* sums of 8 bit products lose digits */
};

struct preference {
    size_t workspace_bytes;
    uint32_t schemes;
    uint32_t alignments[4];
};

/* What lies in an algorithm. */
struct algorithm {
    uint32_t shape;  /* of all layouts and the description */
    uint32_t halves; /* not 0: each half of a sum is rounded to the result's format */
    uint32_t alignments[4];
    uint32_t epilogue_alignments[2]; /* of the bias, and the further result */
};

size_t cublasLtGetVersion(void)
{
    return 130000;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    fake_lock();
    struct cublasLtContext *context = calloc(1, sizeof *context);
    context->device = fake_self()->device;
    fake_count_object(1);
    *out = context;
    fake_unlock();
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t end_object(void *object)
{
    fake_lock();
    free(object);
    fake_count_object(-1);
    fake_unlock();
    return CUBLAS_STATUS_SUCCESS;
}

static void *new_object(size_t bytes)
{
    fake_lock();
    void *object = calloc(1, bytes);
    fake_count_object(1);
    fake_unlock();
    return object;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return end_object(handle);
}

/* --- descriptors: ours lie where the library's would --- */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    struct description *d = new_object(sizeof *d);
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *out = (void *)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description)
{
    return end_object(description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    struct description *d = (struct description *)(void *)description;
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        void *at;
        size_t bytes;
    } known[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &d->a_operation, sizeof d->a_operation},
        {CUBLASLT_MATMUL_DESC_TRANSB, &d->b_operation, sizeof d->b_operation},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &d->epilogue, sizeof d->epilogue},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &d->bias, sizeof d->bias},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &d->aux, sizeof d->aux},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &d->aux_stride, sizeof d->aux_stride},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &d->a_scale, sizeof d->a_scale},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &d->b_scale, sizeof d->b_scale},
        {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &d->fast, sizeof d->fast},
    };
    size_t i = 0, count = sizeof known / sizeof *known;
    while (i < count && known[i].attribute != attribute)
        i++;
    if (i == count || bytes != known[i].bytes)
        return i == count ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_INVALID_VALUE;
    memcpy(known[i].at, value, bytes);
    d->a_transposed = d->a_operation != CUBLAS_OP_N;
    d->b_transposed = d->b_operation != CUBLAS_OP_N;
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_eight(cudaDataType_t type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

static size_t bytes_of(cudaDataType_t type)
{
    return is_eight(type) ? 1 : type == CUDA_R_32F ? 4 : 2;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride)
{
    if (stride < (int64_t)rows ||
        (type != CUDA_R_32F && type != CUDA_R_16BF && type != CUDA_R_16F && !is_eight(type)))
        return CUBLAS_STATUS_INVALID_VALUE;
    struct layout *layout = new_object(sizeof *layout);
    *layout = (struct layout){type, (size_t)rows, (size_t)columns, (size_t)stride};
    *out = (void *)layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return end_object(layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes)
{
    (void)layout, (void)attribute, (void)value, (void)bytes;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct preference *p = new_object(sizeof *p);
    p->schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
    for (int i = 0; i < 4; i++)
        p->alignments[i] = 256;
    *out = (void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return end_object(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    struct preference *p = (struct preference *)(void *)preference;
    int which = (int)attribute - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof(uint64_t)) {
        uint64_t wide;
        memcpy(&wide, value, sizeof wide);
        p->workspace_bytes = (size_t)wide;
        return CUBLAS_STATUS_SUCCESS;
    }
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && bytes == sizeof p->schemes) {
        memcpy(&p->schemes, value, sizeof p->schemes);
        return CUBLAS_STATUS_SUCCESS;
    }
    if (which < 0 || which >= 4 || bytes != sizeof(uint32_t))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(&p->alignments[which], value, sizeof(uint32_t));
    return CUBLAS_STATUS_SUCCESS;
}

/* --- products --- */

struct product {
    struct layout a, b, d;
    struct description how;
    const char *from_a, *from_b;
    char *to;
    float alpha, beta;
    bool halves;
    char *workspace;
    size_t workspace_bytes;
};

static uint32_t mix(uint32_t hash, size_t value)
{
    return (hash ^ (uint32_t)value ^ (uint32_t)(value >> 32)) * 16777619u;
}

static uint32_t shape_of(const struct product *p)
{
    const struct layout *layouts[] = {&p->a, &p->b, &p->d};
    uint32_t hash = p->how.a_transposed + 2u * p->how.b_transposed + 4u * p->how.epilogue;
    for (int i = 0; i < 3; i++) {
        hash = mix(mix(hash, (size_t)layouts[i]->type), layouts[i]->rows);
        hash = mix(mix(hash, layouts[i]->columns), layouts[i]->stride);
    }
    return hash;
}

static bool has_bias(const struct product *p)
{
    return (p->how.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}

static bool has_gelu(const struct product *p)
{
    return (p->how.epilogue & CUBLASLT_EPILOGUE_GELU) != 0;
}

/* The further result lies in columns of a multiple of 8 numbers. */
static bool epilogue_fits(const struct product *p)
{
    const struct description *how = &p->how;
    if (how->epilogue != CUBLASLT_EPILOGUE_DEFAULT && how->epilogue != CUBLASLT_EPILOGUE_BIAS &&
        how->epilogue != CUBLASLT_EPILOGUE_GELU_AUX &&
        how->epilogue != CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        return false;
    return (!has_bias(p) || how->bias != NULL) &&
           (!has_gelu(p) || (how->aux != NULL && how->aux_stride % 8 == 0 &&
                             how->aux_stride >= (int64_t)p->d.rows));
}

static bool is_multiple_of_16(const struct layout *l)
{
    return l->rows % 16 == 0 && l->columns % 16 == 0 && l->stride * bytes_of(l->type) % 16 == 0;
}

/* Scales are there where they are read, and nowhere else. */
static bool types_fit(const struct product *p)
{
    const cudaDataType_t a = p->a.type, b = p->b.type, d = p->d.type;
    if (!is_eight(a))
        return a == b && (d == a || d == CUDA_R_32F) && p->how.a_scale == NULL &&
               p->how.b_scale == NULL;
    return is_eight(b) && (a == CUDA_R_8F_E4M3 || b == CUDA_R_8F_E4M3) &&
           (d == CUDA_R_32F || d == CUDA_R_16BF || d == CUDA_R_16F) && p->how.a_transposed &&
           !p->how.b_transposed && is_multiple_of_16(&p->a) && is_multiple_of_16(&p->b) &&
           is_multiple_of_16(&p->d) && (!has_bias(p) || d != CUDA_R_32F);
}

static bool fits(const struct product *p)
{
    const struct layout *a = &p->a, *b = &p->b;
    size_t m = p->how.a_transposed ? a->columns : a->rows;
    size_t k = p->how.a_transposed ? a->rows : a->columns;
    size_t k_of_b = p->how.b_transposed ? b->columns : b->rows;
    size_t n = p->how.b_transposed ? b->rows : b->columns;
    return m > 0 && n > 0 && k > 0 && k == k_of_b && p->d.rows == m && p->d.columns == n &&
           types_fit(p) && epilogue_fits(p);
}

static struct product product_of(cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a,
                                 cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d)
{
    return (struct product){.a = *(const struct layout *)(void *)a,
                            .b = *(const struct layout *)(void *)b,
                            .d = *(const struct layout *)(void *)d,
                            .how = *(const struct description *)(void *)how};
}

static bool is_same_layout(cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b)
{
    return memcmp(a, b, sizeof(struct layout)) == 0;
}

static uint32_t alignment_of(const void *pointer)
{
    const uintptr_t bits = (uintptr_t)pointer | 16;
    return pointer == NULL ? 0 : (uint32_t)(bits & -bits);
}

static bool is_aligned_to_16(const struct preference *wish)
{
    for (int i = 0; i < 4; i++)
        if (wish->alignments[i] % 16 != 0)
            return false;
    return true;
}

static _Atomic int chosen;

int fake_algorithms_chosen(void)
{
    return chosen;
}

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                               cublasLtMatrixLayout_t a_layout, cublasLtMatrixLayout_t b_layout,
                               cublasLtMatrixLayout_t c_layout, cublasLtMatrixLayout_t d_layout,
                               cublasLtMatmulPreference_t preference, int requested,
                               cublasLtMatmulHeuristicResult_t results[], int *found)
{
    (void)handle;
    const struct product p = product_of(description, a_layout, b_layout, d_layout);
    const struct preference *wish = (const struct preference *)(void *)preference;
    *found = 0;
    if (requested < 1 || !fits(&p) || !is_same_layout(c_layout, d_layout) ||
        (is_eight(p.a.type) && !is_aligned_to_16(wish)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    struct algorithm algorithm = {.shape = shape_of(&p),
                                  .halves = wish->schemes & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE};
    memcpy(algorithm.alignments, wish->alignments, sizeof algorithm.alignments);
    algorithm.epilogue_alignments[0] = alignment_of(p.how.bias);
    algorithm.epilogue_alignments[1] = alignment_of(p.how.aux);
    memset(&results[0], 0, sizeof results[0]);
    memcpy(&results[0].algo, &algorithm, sizeof algorithm);
    results[0].workspaceSize = wish->workspace_bytes;
    chosen++;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static float half_to_float(cudaDataType_t type, uint16_t bits)
{
    return type == CUDA_R_16BF ? mcp_from_bf16(bits) : mcp_from_f16(bits);
}

/* By the definition of both formats (OCP OFP8): of E4M3 all but the largest code are numbers. */
static float eight_to_float(cudaDataType_t type, uint8_t bits)
{
    const int fraction_bits = type == CUDA_R_8F_E4M3 ? 3 : 2, bias = fraction_bits == 3 ? 7 : 15;
    const int exponent = (bits & 0x7f) >> fraction_bits,
              fraction = bits & ((1 << fraction_bits) - 1);
    const bool is_last = exponent == 0x7f >> fraction_bits;
    const double whole = exponent == 0 ? 0 : 1 << fraction_bits;
    double value = ldexp(whole + fraction, (exponent > 1 ? exponent : 1) - bias - fraction_bits);
    if (is_last && (fraction_bits == 2 || fraction == 7))
        value = fraction_bits == 2 && fraction == 0 ? INFINITY : NAN;
    return (float)((bits & 0x80) != 0 ? -value : value);
}

static float number_at(cudaDataType_t type, const char *data, size_t at)
{
    if (is_eight(type))
        return eight_to_float(type, ((const uint8_t *)(const void *)data)[at]);
    return type == CUDA_R_32F ? ((const float *)(const void *)data)[at]
                              : half_to_float(type, ((const uint16_t *)(const void *)data)[at]);
}

/* To [rows][columns], by rows. */
static float *unpack(const struct layout *layout, const char *data, bool transposed)
{
    float *out = malloc(layout->rows * layout->columns * sizeof *out);
    for (size_t j = 0; j < layout->columns; j++)
        for (size_t i = 0; i < layout->rows; i++) {
            size_t from = j * layout->stride + i;
            size_t to = transposed ? j * layout->rows + i : i * layout->columns + j;
            out[to] = number_at(layout->type, data, from);
        }
    return out;
}

static void store(cudaDataType_t type, char *data, size_t at, float value)
{
    if (type == CUDA_R_32F)
        ((float *)(void *)data)[at] = value;
    else
        ((uint16_t *)(void *)data)[at] =
            type == CUDA_R_16BF ? mcp_to_bf16(value) : mcp_to_f16(value);
}

/* Element (i, j) of D, from the sum of products and what was there. */
static void end_element(const struct product *p, size_t i, size_t j, float value)
{
    const float root_2_over_pi = 0.7978845608028654f;
    if (has_bias(p))
        value += number_at(p->d.type, p->how.bias, i);
    if (has_gelu(p)) {
        store(p->d.type, p->how.aux, j * (size_t)p->how.aux_stride + i, value);
        value *= 0.5f * (1 + tanhf(root_2_over_pi * (value + 0.044715f * value * value * value)));
    }
    store(p->d.type, p->to, j * p->d.stride + i, value);
}

static float round_to(cudaDataType_t type, float value)
{
    return type == CUDA_R_32F    ? value
           : type == CUDA_R_16BF ? mcp_from_bf16(mcp_to_bf16(value))
                                 : mcp_from_f16(mcp_to_f16(value));
}

/* As algorithms may that split a sum and keep its parts in the result's format. */
static float sum_halves(cudaDataType_t type, const float *a, const float *b, size_t k, size_t n)
{
    float halves[2] = {0, 0};
    for (size_t l = 0; l < k; l++)
        halves[2 * l >= k] += a[l] * b[l * n];
    return round_to(type, halves[0]) + round_to(type, halves[1]);
}

static float scale_of(const float *scale)
{
    return scale == NULL ? 1 : *scale;
}

static void run_product(struct fake_op *op)
{
    const struct product *p = op->closure;
    size_t m = p->d.rows, n = p->d.columns;
    size_t k = p->how.a_transposed ? p->a.rows : p->a.columns;
    float *a = unpack(&p->a, p->from_a, p->how.a_transposed); /* [m][k] */
    float *b = unpack(&p->b, p->from_b, p->how.b_transposed); /* [k][n] */
    float *row = malloc(n * sizeof *row);
    const float alpha = p->alpha * scale_of(p->how.a_scale) * scale_of(p->how.b_scale);
    for (size_t i = 0; i < m; i++) {
        memset(row, 0, n * sizeof *row);
        for (size_t l = 0; l < k; l++)
            for (size_t j = 0; j < n; j++)
                row[j] += a[i * k + l] * b[l * n + j];
        for (size_t j = 0; (p->halves || p->how.fast) && j < n; j++)
            row[j] = sum_halves(p->how.fast ? CUDA_R_16BF : p->d.type, a + i * k, b + j, k, n);
        for (size_t j = 0; j < n; j++) {
            size_t at = j * p->d.stride + i;
            float old = p->beta != 0 ? p->beta * number_at(p->d.type, p->to, at) : 0;
            end_element(p, i, j, alpha * row[j] + old);
        }
    }
    if (p->workspace_bytes > 0)
        memset(p->workspace, 0xff, p->workspace_bytes);
    free(a);
    free(b);
    free(row);
}

static void drop_product(struct fake_op *op)
{
    free(op->closure);
}

static const struct fake_op_calls product_calls = {.run = run_product, .drop = drop_product};

static void check_algorithm(const struct product *p, const cublasLtMatmulAlgo_t *algo)
{
    struct algorithm algorithm;
    const void *operands[4] = {p->from_a, p->from_b, p->to, p->to};
    memcpy(&algorithm, algo, sizeof algorithm);
    if (algorithm.shape != shape_of(p))
        fake_stop("a product of %zu x %zu is run by another shape's algorithm", p->d.rows,
                  p->d.columns);
    if (alignment_of(p->how.bias) < algorithm.epilogue_alignments[0] ||
        alignment_of(p->how.aux) < algorithm.epilogue_alignments[1])
        fake_stop("the epilogue of a product of %zu x %zu is less aligned than its algorithm's",
                  p->d.rows, p->d.columns);
    for (int i = 0; i < 4; i++)
        if (algorithm.alignments[i] == 0 || (uintptr_t)operands[i] % algorithm.alignments[i] != 0)
            fake_stop("operand %d of a product of %zu x %zu is not aligned to %u bytes", i,
                      p->d.rows, p->d.columns, algorithm.alignments[i]);
}

static bool is_of_halves(const cublasLtMatmulAlgo_t *algo)
{
    struct algorithm algorithm;
    memcpy(&algorithm, algo, sizeof algorithm);
    return algorithm.halves != 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    struct product p = product_of(description, a_layout, b_layout, d_layout);
    enum { OVERWRITTEN = 4096 };
    if (!fits(&p) || c != d || !is_same_layout(c_layout, d_layout))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    p.from_a = a;
    p.from_b = b;
    p.to = d;
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    p.workspace = workspace;
    p.workspace_bytes = workspace_bytes < OVERWRITTEN ? workspace_bytes : OVERWRITTEN;
    fake_lock();
    if (handle->device != fake_self()->device)
        fake_stop("a handle of device %d is used on device %d", handle->device,
                  fake_self()->device);
    if (algorithm != NULL)
        check_algorithm(&p, algorithm);
    p.halves = algorithm == NULL || is_of_halves(algorithm);
    struct product *queued = malloc(sizeof *queued);
    *queued = p;
    fake_push(fake_stream(stream), &product_calls, FAKE_KERNEL, "product", queued);
    fake_unlock();
    return CUBLAS_STATUS_SUCCESS;
}
