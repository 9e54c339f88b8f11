/* exec/cuda_rooflines.c: one step in which each new op is launched again and again. */
#include "exec/cuda_rooflines.h"

#include "core/mesh.h"
#include "core/minmax.h"
#include "exec/cuda_backend.h"
#include "exec/cuda_blas.h"
#include "exec/cuda_kernels.h"
#include "exec/cuda_runtime.h"
#include "exec/half.h"
#include "exec/train.h"
#include "step/casts.h"

#include <assert.h>
#include <stdlib.h>

enum { PATTERN = 1 << 19 /* numbers */ };

struct bench {
    struct mcp_arena *arena;
    struct mcp_backend *backend;
    const struct mcp_program *program;
    struct mcp_cuda_rooflines_options options;
    struct mcp_rooflines *out;
    int64_t bytes;   /* of each of the two that follow, on the device */
    char *from, *to; /* filled with numbers between -1 and 1 */
    double *sums;    /* on the device: where reading leaves what it finds */
    void *start, *end;
    struct mcp_cuda_blas *blas;
    double *times_s; /* of one op */
    int32_t *ids;    /* of one sequence */
    int64_t vocab_size;
    enum mcp_status status; /* of what cannot say so */
    struct mcp_error failure;
};

/* What is timed, queued once. */
struct timed {
    enum mcp_status (*queue)(struct bench *bench, const struct timed *self, struct mcp_error *err);
    enum mcp_stream stream;
    const struct mcp_launch *launch; /* of an op */
    enum mcp_dtype dtype;            /* of a product */
};

struct mcp_cuda_rooflines_options mcp_cuda_rooflines_default(void)
{
    return (struct mcp_cuda_rooflines_options){.product_size = 8192,
                                               .copy_bytes = INT64_C(512) << 20,
                                               .flush_bytes = INT64_C(256) << 20,
                                               .repeats = 20,
                                               .warmups = 3};
}

/* --- opening --- */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u; /* Knuth's */
    return *state >> 8;
}

/* In bf16, each second one the upper half of an fp32 number: products of zeros would cost less
 * power, and so run faster, than any that train. */
static enum mcp_status fill(struct bench *b, char *memory, struct mcp_error *err)
{
    struct mcp_arena *scratch = mcp_arena_new();
    uint16_t *pattern = MCP_ARRAY(scratch, PATTERN, uint16_t);
    const int64_t piece = PATTERN * (int64_t)sizeof *pattern;
    void *stream = mcp_cuda_backend_queue(b->backend, MCP_STREAM_COMPUTE)->stream;
    enum mcp_status status = MCP_OK;
    uint32_t state = 1;
    for (int i = 0; i < PATTERN; i++)
        pattern[i] = mcp_to_bf16((float)next_random(&state) * 0x1p-23f - 1);
    for (int64_t at = 0; status == MCP_OK && at < b->bytes; at += piece)
        status =
            mcp_cuda_copy(memory + at, pattern, mcp_min_int64(piece, b->bytes - at), stream, err);
    if (status == MCP_OK)
        status = mcp_cuda_finish_stream(stream, err);
    mcp_arena_free(scratch);
    return status;
}

static enum mcp_status open_memory(struct bench *b, struct mcp_error *err)
{
    const struct mcp_cuda_rooflines_options *o = &b->options;
    void *from, *to, *sums;
    const int64_t matrix = o->product_size * o->product_size * (int64_t)sizeof(float);
    b->bytes = mcp_max_int64(2 * matrix, mcp_max_int64(o->copy_bytes, o->flush_bytes));
    MCP_TRY(mcp_cuda_new_memory(b->arena, b->bytes, &from, err));
    MCP_TRY(mcp_cuda_new_memory(b->arena, b->bytes, &to, err));
    MCP_TRY(mcp_cuda_new_memory(b->arena, 2 * (int64_t)sizeof *b->sums, &sums, err));
    b->from = from;
    b->to = to;
    b->sums = sums;
    MCP_TRY(fill(b, b->from, err));
    return fill(b, b->to, err);
}

static enum mcp_status open_bench(struct bench *b, struct mcp_error *err)
{
    b->times_s = MCP_ARRAY(b->arena, b->options.repeats, double);
    b->ids = MCP_ARRAY(b->arena, mcp_sequence_tokens(b->program) + 1, int32_t);
    for (int t = 0; t < b->program->num_types; t++)
        b->vocab_size = mcp_max_int64(b->vocab_size, b->program->types[t].facts.vocab_size);
    MCP_TRY(mcp_cuda_new_event(b->arena, true, &b->start, err));
    MCP_TRY(mcp_cuda_new_event(b->arena, true, &b->end, err));
    MCP_TRY(mcp_cuda_blas_open(b->arena, MCP_CUDA_BLAS_BYTES, &b->blas, err));
    return open_memory(b, err);
}

/* --- times --- */

/* By what the copy does not read. */
static enum mcp_status flush(struct bench *b, const struct mcp_cuda_queue *queue,
                             struct mcp_error *err)
{
    const struct mcp_cuda_array all = {b->to, MCP_CUDA_F32};
    mcp_cuda_moments(all, b->options.flush_bytes / (int64_t)sizeof(float), b->sums, queue);
    return mcp_cuda_check_launch("reading other memory", err);
}

static enum mcp_status time_once(struct bench *b, const struct timed *what, double *seconds,
                                 struct mcp_error *err)
{
    const struct mcp_cuda_queue *queue = mcp_cuda_backend_queue(b->backend, what->stream);
    MCP_TRY(flush(b, queue, err));
    MCP_TRY(mcp_cuda_record(b->start, queue->stream, err));
    MCP_TRY(what->queue(b, what, err));
    MCP_TRY(mcp_cuda_record(b->end, queue->stream, err));
    MCP_TRY(mcp_cuda_finish_stream(queue->stream, err));
    return mcp_cuda_elapsed_s(b->start, b->end, seconds, err);
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Of an even number the upper of the two in the middle. */
static enum mcp_status time_all(struct bench *b, const struct timed *what, double *min_s,
                                double *median_s, struct mcp_error *err)
{
    const int repeats = b->options.repeats;
    for (int i = -b->options.warmups; i < repeats; i++)
        MCP_TRY(time_once(b, what, &b->times_s[i > 0 ? i : 0], err));
    qsort(b->times_s, (size_t)repeats, sizeof *b->times_s, by_size);
    *min_s = b->times_s[0];
    *median_s = b->times_s[repeats / 2];
    return MCP_OK;
}

/* --- what the device reaches --- */

static enum mcp_status queue_copy(struct bench *b, const struct timed *self, struct mcp_error *err)
{
    void *stream = mcp_cuda_backend_queue(b->backend, self->stream)->stream;
    return mcp_cuda_copy(b->to, b->from, b->options.copy_bytes, stream, err);
}

static enum mcp_status measure_copy(struct bench *b, struct mcp_error *err)
{
    const struct timed copy = {.queue = queue_copy, .stream = MCP_STREAM_COMPUTE};
    double min_s, median_s;
    MCP_TRY(time_all(b, &copy, &min_s, &median_s, err));
    if (median_s > 0)
        b->out->copy_bytes_per_s = 2 * (double)b->options.copy_bytes / median_s;
    return MCP_OK;
}

/* Of the two that are multiplied in 8 bits: behind the product, which takes 2 bytes a number. */
static char *cast_at(const struct bench *b, int index)
{
    const int64_t n = b->options.product_size;
    return b->to + (4 + 2 * index) * n * n;
}

static struct mcp_cuda_matrix matrix_at(const struct bench *b, enum mcp_dtype dtype, int index)
{
    const int64_t n = b->options.product_size, bytes = n * n * (int64_t)mcp_dtype_bytes(dtype);
    if (dtype != MCP_F8)
        return mcp_cuda_matrix_of(b->from + index * bytes, dtype, index == 1);
    char *cast = cast_at(b, index);
    return (struct mcp_cuda_matrix){.data = cast + MCP_CAST_HEADER_BYTES,
                                    .dtype = dtype,
                                    .transposed = index == 1,
                                    .scale = cast};
}

static enum mcp_status cast_both(const struct bench *b, struct mcp_error *err)
{
    const int64_t n = b->options.product_size, bytes = 2 * n * n;
    if (!mcp_cast_fits(n, n))
        return mcp_fail(err, MCP_USAGE,
                        "--product-size %lld: products in 8 bits are of multiples of %d",
                        (long long)n, MCP_CAST_MULTIPLE);
    for (int i = 0; i < 2; i++) {
        const struct mcp_cuda_cast cast = {.from = {b->from + i * bytes, MCP_CUDA_BF16},
                                           .rows = cast_at(b, i),
                                           .num_rows = n,
                                           .num_columns = n};
        mcp_cuda_cast(&cast, mcp_cuda_backend_queue(b->backend, MCP_STREAM_COMPUTE));
    }
    return mcp_cuda_check_launch("casting", err);
}

static enum mcp_status queue_product(struct bench *b, const struct timed *self,
                                     struct mcp_error *err)
{
    const int64_t n = b->options.product_size;
    const enum mcp_dtype result = self->dtype == MCP_F8 ? MCP_BF16 : self->dtype;
    const struct mcp_cuda_product product = {.m = n,
                                             .n = n,
                                             .k = n,
                                             .a = matrix_at(b, self->dtype, 0),
                                             .b = matrix_at(b, self->dtype, 1),
                                             .c = mcp_cuda_matrix_of(b->to, result, false)};
    void *stream = mcp_cuda_backend_queue(b->backend, self->stream)->stream;
    return mcp_cuda_blas_multiply(b->blas, &product, stream, err);
}

/* In the format of the op's products, where it has any and they were not measured before. */
static enum mcp_status measure_peak(struct bench *b, const struct mcp_op *op, struct mcp_error *err)
{
    const int code = mcp_functions[op->function].code;
    const double n = (double)b->options.product_size;
    const struct timed product = {
        .queue = queue_product, .stream = MCP_STREAM_COMPUTE, .dtype = (enum mcp_dtype)op->dtype};
    double min_s, median_s;
    if ((code != MCP_MATMUL && code != MCP_ATTENTION) || b->out->peak_flops_per_s[op->dtype] > 0)
        return MCP_OK;
    if (op->dtype == MCP_F8)
        MCP_TRY(cast_both(b, err));
    MCP_TRY(time_all(b, &product, &min_s, &median_s, err));
    if (median_s > 0)
        b->out->peak_flops_per_s[op->dtype] = 2 * n * n * n / median_s;
    return MCP_OK;
}

/* --- ops --- */

static enum mcp_status queue_op(struct bench *b, const struct timed *self, struct mcp_error *err)
{
    struct mcp_ticket ticket;
    return mcp_cuda_backend.launch(b->backend, self->launch, &ticket, err);
}

/* All that was queued before is over: nothing else runs, and the op's operands are there. */
static enum mcp_status measure_op(struct bench *b, const struct mcp_launch *launch,
                                  struct mcp_roofline_op *op, struct mcp_error *err)
{
    const struct timed timed = {
        .queue = queue_op, .stream = (enum mcp_stream)launch->op->stream, .launch = launch};
    MCP_TRY(mcp_cuda_backend.finish(b->backend, err));
    MCP_TRY(measure_peak(b, launch->op, err));
    MCP_TRY(time_all(b, &timed, &op->min_s, &op->median_s, err));
    return mcp_cuda_backend.finish(b->backend, err);
}

/* Told of every op behind its launch. */
static void look_at(void *context, enum mcp_block_role role, const struct mcp_launch *launch)
{
    struct bench *b = context;
    (void)role;
    if (b->status != MCP_OK)
        return;
    struct mcp_roofline_op *op =
        mcp_rooflines_find(b->arena, b->out, b->program, launch->type, launch->op);
    if (op != NULL && op->launches++ == 0)
        b->status = measure_op(b, launch, op, &b->failure);
}

static const int32_t *random_sequence(void *context, int64_t index)
{
    struct bench *b = context;
    uint32_t state = (uint32_t)index;
    for (int64_t i = 0; i <= mcp_sequence_tokens(b->program); i++)
        b->ids[i] = (int32_t)(next_random(&state) % mcp_max_int64(1, b->vocab_size));
    return b->ids;
}

static enum mcp_status train_step(struct bench *b, struct mcp_error *err)
{
    const struct mcp_batch batch = {random_sequence, b};
    struct mcp_train_options train = mcp_train_options_default();
    struct mcp_trainer *trainer;
    struct mcp_step_report report;
    train.interpret.look = look_at;
    train.interpret.look_context = b;
    MCP_TRY(mcp_trainer_new(b->arena, b->program, 0, &mcp_cuda_backend, b->backend, &batch, &train,
                            &trainer, err));
    MCP_TRY(open_bench(b, err)); /* behind the program's memory: who has too little hears of that */
    MCP_TRY(measure_copy(b, err));
    MCP_TRY(mcp_trainer_step(trainer, &report, err));
    return b->status == MCP_OK ? MCP_OK : mcp_fail(err, b->status, "%s", b->failure.text);
}

enum mcp_status mcp_cuda_rooflines_measure(struct mcp_arena *arena, struct mcp_backend *backend,
                                           const struct mcp_program *program,
                                           const struct mcp_cuda_rooflines_options *options,
                                           struct mcp_rooflines *out, struct mcp_error *err)
{
    struct bench *b = MCP_NEW(arena, struct bench);
    assert(mcp_plan_world(&program->plan) == 1);
    b->arena = arena;
    b->backend = backend;
    b->program = program;
    b->options = *options;
    b->out = out;
    out->product_size = options->product_size;
    out->copy_bytes = options->copy_bytes;
    out->flush_bytes = options->flush_bytes;
    out->repeats = options->repeats;
    out->warmups = options->warmups;
    MCP_TRY(train_step(b, err));
    mcp_rooflines_sort(out);
    return MCP_OK;
}
