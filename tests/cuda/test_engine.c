/* tests/cuda/test_engine.c: the fake GPU's streams, events, copies and products: who runs
 * before whom under each policy. */
#include "cublasLt.h"
#include "exec/half.h"
#include "tests/cuda/fake/engine.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

void mcp_shim_enqueue(void *stream, void (*run)(void *closure), void (*drop)(void *closure),
                      void *closure);

static char done[32]; /* letters of what has run, in order */

static void note(void *letter)
{
    size_t used = strlen(done);
    if (used + 1 < sizeof done)
        done[used] = *(const char *)letter;
}

static cudaStream_t streams[2];

static void begin(const struct fake_policy *policy)
{
    fake_begin(2, (size_t)1 << 24);
    fake_set_policy(policy);
    memset(done, 0, sizeof done);
    for (int i = 0; i < 2; i++)
        cr_assert(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking) == cudaSuccess);
}

static void end(void)
{
    for (int i = 0; i < 2; i++)
        cudaStreamDestroy(streams[i]);
    cr_expect(eq(int, fake_end(), 0), "something was left behind");
}

static void kernel(int stream, char *letter)
{
    mcp_shim_enqueue(streams[stream], note, NULL, letter);
}

static void host(int stream, char *letter)
{
    cudaLaunchHostFunc(streams[stream], note, letter);
}

/* --- orders --- */

/* On stream 0 kernels a, b; on stream 1 x, y; queued a x b y. */
struct case_order {
    char name[32];
    struct fake_policy policy;
    int waits_for;  /* a stream; 2: both, the second first */
    char before[8]; /* done before anybody waits */
    char wants[8];
};

ParameterizedTestParameters(engine, order)
{
    static struct case_order cases[] = {
        {"as queued", {.order = FAKE_FIFO}, 2, "", "axby"},
        {"newest", {.order = FAKE_NEWEST}, 2, "", "xyab"},
        {"kernels last", {.order = FAKE_KERNELS_LAST}, 2, "", "xyab"},
        {"first stream last", {.order = FAKE_STREAM_LAST, .stream = 0}, 2, "", "xyab"},
        {"second stream last", {.order = FAKE_STREAM_LAST, .stream = 1}, 2, "", "abxy"},
        {"more than is waited for", {.order = FAKE_FIFO}, 0, "", "axb"},
        {"only what is waited for", {.order = FAKE_FIFO, .lazy = true}, 0, "", "ab"},
        {"only the other stream", {.order = FAKE_FIFO, .lazy = true}, 1, "", "xy"},
        {"at once", {.eager = true}, 2, "axby", "axby"},
    };
    return cr_make_param_array(struct case_order, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_order *c, engine, order)
{
    static char letters[] = "abxy";
    begin(&c->policy);
    kernel(0, &letters[0]);
    host(1, &letters[2]);
    kernel(0, &letters[1]);
    host(1, &letters[3]);
    cr_expect(eq(str, done, c->before), "%s", c->name);
    cudaStreamSynchronize(streams[c->waits_for == 2 ? 1 : c->waits_for]);
    if (c->waits_for == 2)
        cudaStreamSynchronize(streams[0]);
    cr_expect(eq(str, done, c->wants), "%s", c->name);
    end();
}

Test(engine, random_order_is_the_seed_s)
{
    static char letters[] = "abxy";
    char first[32] = "", other[32] = "";
    bool differs = false;
    for (uint64_t seed = 0; seed < 16; seed++)
        for (int again = 0; again < 2; again++) {
            const struct fake_policy policy = {.order = FAKE_RANDOM, .seed = seed};
            begin(&policy);
            for (int i = 0; i < 4; i++)
                kernel(i / 2, &letters[i]);
            cudaStreamSynchronize(streams[0]);
            cudaStreamSynchronize(streams[1]);
            if (again)
                cr_expect(eq(str, done, other), "a seed has two orders");
            memcpy(other, done, sizeof other);
            if (*first == '\0')
                memcpy(first, done, sizeof first);
            differs = differs || strcmp(first, done) != 0;
            end();
        }
    cr_expect(differs, "all seeds have one order");
}

/* --- events --- */

Test(engine, waits_hold_whatever_the_order)
{
    static char letters[] = "abxy";
    for (int waits = 0; waits < 2; waits++) {
        const struct fake_policy policy = {.order = FAKE_STREAM_LAST, .stream = 0};
        cudaEvent_t event;
        begin(&policy);
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        cudaStreamWaitEvent(streams[1], event, 0); /* not yet recorded: for nothing */
        kernel(0, &letters[0]);
        cudaEventRecord(event, streams[0]);
        if (waits)
            cudaStreamWaitEvent(streams[1], event, 0);
        kernel(0, &letters[1]);
        cudaEventRecord(event, streams[0]); /* after the wait: nothing to it */
        kernel(1, &letters[2]);
        cr_expect(eq(int, cudaEventQuery(event), cudaErrorNotReady)); /* at first too early */
        cr_expect(eq(int, cudaEventQuery(event), cudaSuccess));       /* asking runs what can run */
        cr_expect(eq(str, done, waits ? "axb" : "xab"), "%s", waits ? "waits" : "waits not");
        cudaEventDestroy(event);
        end();
    }
}

Test(engine, asking_needs_no_more_than_it_asks_for)
{
    static char letters[] = "ab";
    const struct fake_policy lazy = {.order = FAKE_FIFO, .lazy = true};
    cudaEvent_t start, stop;
    float milliseconds = 0;
    begin(&lazy);
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    cudaEventRecord(start, streams[0]);
    kernel(0, &letters[0]);
    cudaEventRecord(stop, streams[0]);
    kernel(0, &letters[1]);
    cr_expect(eq(int, cudaEventElapsedTime(&milliseconds, start, stop), cudaErrorNotReady));
    cr_expect(eq(int, cudaEventSynchronize(stop), cudaSuccess));
    cr_expect(eq(str, done, "a"));
    cr_expect(eq(int, cudaEventElapsedTime(&milliseconds, start, stop), cudaSuccess));
    cr_expect(epsilon_eq(flt, milliseconds, 1e-3f, 1e-6f)); /* one op, one microsecond */
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    end();
}

/* --- memory --- */

static const struct fake_policy fifo = {.order = FAKE_FIFO};

Test(engine, pageable_memory_is_read_at_the_call_and_locked_memory_when_the_copy_runs)
{
    float pageable = 1, *locked, *device, back[2];
    begin(&fifo);
    cr_assert(cudaMallocHost((void **)&locked, sizeof *locked) == cudaSuccess);
    cr_assert(cudaMalloc((void **)&device, 4 * sizeof *device) == cudaSuccess);
    *locked = 1;
    cudaMemcpyAsync(device, &pageable, sizeof pageable, cudaMemcpyDefault, streams[0]);
    cudaMemcpyAsync(device + 1, locked, sizeof *locked, cudaMemcpyHostToDevice, streams[0]);
    pageable = *locked = 2;
    cudaMemcpyAsync(back, device, sizeof back, cudaMemcpyDefault, streams[0]);
    cr_expect(eq(flt, back[0], 1));
    cr_expect(eq(flt, back[1], 2));
    cudaMemcpy(back, device + 2, sizeof back, cudaMemcpyDeviceToHost);
    cr_expect(isnan(back[0]) && isnan(back[1]), "new memory is no number");
    cr_expect(
        eq(int, cudaMemcpy(back, &pageable, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue),
        "the host's memory is not the device's");
    cudaFree(device);
    cudaFreeHost(locked);
    end();
}

Test(engine, device_memory_ends)
{
    void *memory = NULL;
    size_t free_bytes, total;
    begin(&fifo);
    cr_expect(eq(int, cudaMalloc(&memory, (size_t)1 << 25), cudaErrorMemoryAllocation));
    cr_expect(eq(int, cudaGetLastError(), cudaErrorMemoryAllocation));
    cr_expect(eq(int, cudaGetLastError(), cudaSuccess));
    cr_expect(eq(int, cudaMalloc(&memory, (size_t)1 << 23), cudaSuccess));
    cudaMemGetInfo(&free_bytes, &total);
    cr_expect(eq(sz, free_bytes, (size_t)1 << 23));
    cr_expect(eq(sz, total, (size_t)1 << 24));
    cr_expect(eq(int, cudaFree((char *)memory + 8), cudaErrorInvalidValue));
    cudaFree(memory);
    end();
}

/* What the kernel may not read it says, where we would die. */
static bool can_read(const void *memory)
{
    int ends[2];
    cr_assert(pipe(ends) == 0);
    bool can = write(ends[1], memory, 1) == 1;
    cr_expect(can || errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    return can;
}

Test(engine, ranks_that_train_cannot_look_into_device_memory)
{
    char *device, *locked;
    begin(&fifo);
    cudaMalloc((void **)&device, 64);
    cudaMallocHost((void **)&locked, 64);
    cr_expect(can_read(device));
    fake_join(1);
    cr_expect(not(can_read(device)));
    cr_expect(can_read(locked));
    cudaMemsetAsync(device, 1, 64, streams[0]);
    cudaMemcpyAsync(locked, device, 64, cudaMemcpyDefault, streams[0]);
    cudaStreamSynchronize(streams[0]);
    cr_expect(eq(int, locked[63], 1));
    cr_expect(not(can_read(device)));
    fake_leave();
    cr_expect(can_read(device));
    cr_expect(not(can_read(device + 256)), "behind the block is nothing");
    cudaFree(device);
    cudaFreeHost(locked);
    end();
}

Test(engine, no_device)
{
    static const int errors[] = {cudaErrorInsufficientDriver, cudaErrorNoDevice};
    int count = 7;
    begin(&fifo);
    for (int i = 0; i < 2; i++) {
        fake_set_device_error(errors[i]);
        cr_expect(eq(int, cudaGetDeviceCount(&count), errors[i]));
        cr_expect(eq(int, cudaSetDevice(0), errors[i]));
    }
    fake_set_device_error(0);
    cr_expect(eq(int, cudaGetDeviceCount(&count), cudaSuccess));
    cr_expect(eq(int, count, 2));
    cr_expect(eq(int, cudaSetDevice(2), cudaErrorInvalidDevice));
    end();
}

/* --- being stuck --- */

Test(engine, lists_what_is_queued)
{
    static char letters[] = "a";
    char text[1000];
    cudaEvent_t event;
    begin(&fifo);
    cudaEventCreate(&event);
    kernel(0, letters);
    cudaEventRecord(event, streams[0]);
    cudaStreamWaitEvent(streams[1], event, 0);
    kernel(1, letters);
    fake_list(text, sizeof text);
    cr_expect(eq(str, text,
                 "device 0 stream 0: 2 ops, the first (place 1): kernel\n"
                 "device 0 stream 1: 2 ops, the first (place 1): waits for place 2 of device 0 "
                 "stream 0\n"));
    cudaEventDestroy(event);
    end();
}

/* --- products --- */

struct case_product {
    char name[32];
    cudaDataType_t type, out_type;
    int m, n, k;
    bool a_transposed, b_transposed;
    float beta;
};

ParameterizedTestParameters(engine, product)
{
    static struct case_product cases[] = {
        {"plain", CUDA_R_32F, CUDA_R_32F, 3, 5, 7, false, false, 0},
        {"first transposed", CUDA_R_32F, CUDA_R_32F, 3, 5, 7, true, false, 0},
        {"second transposed, added", CUDA_R_32F, CUDA_R_32F, 4, 1, 2, false, true, 1},
        {"both transposed, bf16 to fp32", CUDA_R_16BF, CUDA_R_32F, 2, 3, 4, true, true, 1},
        {"bf16", CUDA_R_16BF, CUDA_R_16BF, 6, 2, 3, false, false, 0},
    };
    return cr_make_param_array(struct case_product, cases, sizeof cases / sizeof *cases);
}

struct matrix {
    cudaDataType_t type;
    int rows, columns; /* as it lies, by columns */
    char *data;
    cublasLtMatrixLayout_t layout;
};

static struct matrix new_matrix(cudaDataType_t type, int rows, int columns)
{
    struct matrix m = {type, rows, columns, NULL, NULL};
    cr_assert(cudaMalloc((void **)&m.data, (size_t)(rows * columns) * 4) == cudaSuccess);
    cr_assert(cublasLtMatrixLayoutCreate(&m.layout, type, (uint64_t)rows, (uint64_t)columns,
                                         rows) == CUBLAS_STATUS_SUCCESS);
    for (int i = 0; i < rows * columns; i++) {
        float value = (float)((i * 7) % 11 - 5) / 4;
        if (type == CUDA_R_32F)
            ((float *)(void *)m.data)[i] = value;
        else
            ((uint16_t *)(void *)m.data)[i] = mcp_to_bf16(value);
    }
    return m;
}

static float at(const struct matrix *m, int row, int column)
{
    int i = column * m->rows + row;
    return m->type == CUDA_R_32F ? ((float *)(void *)m->data)[i]
                                 : mcp_from_bf16(((uint16_t *)(void *)m->data)[i]);
}

static void free_matrix(struct matrix *m)
{
    cublasLtMatrixLayoutDestroy(m->layout);
    cudaFree(m->data);
}

static void multiply(const struct case_product *c, struct matrix *a, struct matrix *b,
                     struct matrix *d)
{
    const int32_t operations[] = {CUBLAS_OP_N, CUBLAS_OP_T};
    const float alpha = 1;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t how;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&how, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_TRANSA, &operations[c->a_transposed],
                                   sizeof *operations);
    cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_TRANSB, &operations[c->b_transposed],
                                   sizeof *operations);
    cublasLtMatmulPreferenceCreate(&wish);
    cr_assert(cublasLtMatmulAlgoGetHeuristic(handle, how, a->layout, b->layout, d->layout,
                                             d->layout, wish, 1, &result,
                                             &found) == CUBLAS_STATUS_SUCCESS);
    cr_assert(eq(int, found, 1));
    cr_assert(cublasLtMatmul(handle, how, &alpha, a->data, a->layout, b->data, b->layout, &c->beta,
                             d->data, d->layout, d->data, d->layout, &result.algo, NULL, 0,
                             streams[0]) == CUBLAS_STATUS_SUCCESS);
    cudaStreamSynchronize(streams[0]);
    cublasLtMatmulPreferenceDestroy(wish);
    cublasLtMatmulDescDestroy(how);
    cublasLtDestroy(handle);
}

ParameterizedTest(struct case_product *c, engine, product)
{
    begin(&fifo);
    struct matrix a =
        new_matrix(c->type, c->a_transposed ? c->k : c->m, c->a_transposed ? c->m : c->k);
    struct matrix b =
        new_matrix(c->type, c->b_transposed ? c->n : c->k, c->b_transposed ? c->k : c->n);
    struct matrix d = new_matrix(c->out_type, c->m, c->n),
                  old = new_matrix(c->out_type, c->m, c->n);
    multiply(c, &a, &b, &d);
    for (int i = 0; i < c->m; i++)
        for (int j = 0; j < c->n; j++) {
            float sum = 0;
            for (int l = 0; l < c->k; l++)
                sum += (c->a_transposed ? at(&a, l, i) : at(&a, i, l)) *
                       (c->b_transposed ? at(&b, j, l) : at(&b, l, j));
            sum += c->beta * at(&old, i, j);
            if (c->out_type == CUDA_R_16BF)
                sum = mcp_from_bf16(mcp_to_bf16(sum));
            cr_expect(eq(flt, at(&d, i, j), sum), "%s", c->name); /* quarters: exact */
        }
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&d);
    free_matrix(&old);
    end();
}
