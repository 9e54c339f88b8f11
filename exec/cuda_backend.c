/* exec/cuda_backend.c: queues ops on the device, and does host functions in between. */
#include "exec/cuda_backend.h"

#include "core/minmax.h"
#include "exec/cuda_counts.h"
#include "exec/cuda_launch.h"
#include "exec/cuda_runtime.h"
#include "exec/cuda_streams.h"
#include "exec/cuda_transfer.h"
#include "exec/cuda_wait.h"
#include "exec/events.h"
#include "exec/host_functions.h"
#include "exec/transfer.h"
#include "step/casts.h"

#include <string.h>

/* Batches of ids on their way to the device at once; numbers agreed on at once. */
enum { BATCHES = 4, AGREED = 1 << 16 };

/* Ids on their way, in turn: memory of the host that copies come from. */
struct ids {
    int64_t bytes;          /* of the longest batch */
    int32_t *room[BATCHES]; /* locked in place */
    struct mcp_ticket copied[BATCHES];
    int64_t used;
};

struct mcp_backend {
    struct mcp_arena *arena;
    struct mcp_nccl_world *world;
    struct mcp_cuda_streams streams;
    struct mcp_cuda_queue queues[MCP_NUM_STREAMS]; /* scratch NULL: the stream has no kernels */
    struct mcp_cuda_blas *blas;                    /* of the compute stream */
    struct mcp_cuda_channels *channels;
    struct mcp_cuda_counts counts;
    int64_t counts_bytes;           /* of the longest; 0: there are no experts */
    bool has_casts;                 /* and products in 8 bits of them */
    const struct mcp_weight *askew; /* where one of them lies in between 16 bytes; NULL: nowhere */
    struct ids ids;
    float *scalars;     /* locked in place: what step_scalars reads and writes */
    void *agree_stream; /* and numbers, on the host and on the device */
    double *agreed, *agreed_there;
    bool new_step; /* the next launch is the first since finish() */
    enum mcp_status failed;
    struct mcp_error failure; /* of a copy, which cannot say so */
};

enum { MAX_SCALARS = 64 };

/* --- opening --- */

/* Rows by expert, of this rank and for it. */
static int64_t counts_bytes(const struct mcp_layer_type *type)
{
    return 2 * (int64_t)type->facts.num_experts * (int64_t)sizeof(int32_t);
}

/* What ops of a program take on this backend beside their operands. */
static void size_op(struct mcp_backend *b, const struct mcp_layer_type *type,
                    const struct mcp_op *op, bool *has_kernels)
{
    int64_t bytes = type->facts.microbatch_size * type->facts.sequence_local * 4;
    bool reads_casts = mcp_op_reads_casts(op) && op->dtype == MCP_F8;
    if (op->function == MCP_FN_LOAD_MICROBATCH && bytes > b->ids.bytes)
        b->ids.bytes = bytes;
    if (op->function == MCP_FN_EXPERT_COUNTS)
        b->counts_bytes = mcp_max_int64(b->counts_bytes, counts_bytes(type));
    b->has_casts = b->has_casts || reads_casts;
    if (reads_casts && op->weight != MCP_NO_WEIGHT &&
        mcp_weight_offset(type, op->weight, 0) % 8 != 0)
        b->askew = &type->weights[op->weight];
    has_kernels[op->stream] = has_kernels[op->stream] || !mcp_op_is_transfer(op);
}

static void size_program(struct mcp_backend *b, const struct mcp_program *program,
                         bool *has_kernels)
{
    for (int t = 0; t < program->num_types; t++)
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++) {
            const struct mcp_block *block = &program->types[t].blocks[role];
            for (int i = 0; i < block->num_ops; i++)
                size_op(b, &program->types[t], &block->ops[i], has_kernels);
        }
}

/* Whether products in 8 bits can be had: of the device, and as weights lie. */
static enum mcp_status check_casts(const struct mcp_backend *b, struct mcp_error *err)
{
    struct mcp_cuda_facts facts;
    int device;
    if (!b->has_casts)
        return MCP_OK;
    if (b->askew != NULL)
        return mcp_fail(err, MCP_RUN_FAILURE,
                        "weights '%s' follow others whose number is no multiple of 8, and products "
                        "in 8 bits are of 16 bytes at once: plan with --precision bf16",
                        b->askew->name);
    MCP_TRY(mcp_cuda_chosen(&device, err));
    MCP_TRY(mcp_cuda_facts_of(device, &facts, err));
    if (10 * facts.compute_major + facts.compute_minor >= 89)
        return MCP_OK;
    return mcp_fail(err, MCP_RUN_FAILURE,
                    "%s has no products in 8 bits, which the plan's precision fp8 needs: its "
                    "compute capability is %d.%d, and 8.9 and later have them; plan with "
                    "--precision bf16",
                    facts.name, facts.compute_major, facts.compute_minor);
}

static enum mcp_status open_queues(struct mcp_backend *b, const bool *has_kernels,
                                   struct mcp_error *err)
{
    for (int s = 0; s < MCP_NUM_STREAMS; s++) {
        b->queues[s].stream = b->streams.each[s].handle;
        if (has_kernels[s])
            MCP_TRY(
                mcp_cuda_new_memory(b->arena, MCP_CUDA_SCRATCH_BYTES, &b->queues[s].scratch, err));
    }
    return MCP_OK;
}

static enum mcp_status open_ids(struct mcp_backend *b, struct mcp_error *err)
{
    for (int i = 0; i < BATCHES; i++) {
        void *room;
        MCP_TRY(mcp_cuda_new_host_memory(b->arena, b->ids.bytes, &room, err));
        b->ids.room[i] = room;
    }
    return MCP_OK;
}

static enum mcp_status open_numbers(struct mcp_backend *b, struct mcp_error *err)
{
    void *scalars, *agreed, *there;
    MCP_TRY(mcp_cuda_new_host_memory(b->arena, MAX_SCALARS * sizeof *b->scalars, &scalars, err));
    MCP_TRY(mcp_cuda_new_host_memory(b->arena, AGREED * sizeof *b->agreed, &agreed, err));
    MCP_TRY(mcp_cuda_new_memory(b->arena, AGREED * sizeof *b->agreed, &there, err));
    b->scalars = scalars;
    b->agreed = agreed;
    b->agreed_there = there;
    return mcp_cuda_new_stream(b->arena, true, &b->agree_stream, err);
}

static enum mcp_status open_all(struct mcp_backend *b, const struct mcp_program *program,
                                const struct mcp_cuda_options *options, struct mcp_error *err)
{
    bool has_kernels[MCP_NUM_STREAMS] = {false};
    struct mcp_cuda_channels_setting setting = {
        .world = b->world, .programs = {program}, .rank = mcp_nccl_world_rank(b->world)};
    for (int i = 0; i < MCP_INTERPRET_OTHERS; i++)
        setting.programs[1 + i] = options->others[i];
    for (int i = 0; i <= MCP_INTERPRET_OTHERS; i++)
        if (setting.programs[i] != NULL)
            size_program(b, setting.programs[i], has_kernels);
    MCP_TRY(check_casts(b, err));
    MCP_TRY(mcp_cuda_streams_open(b->arena, b->world, options->timed, options->ahead, &b->streams,
                                  err));
    MCP_TRY(open_queues(b, has_kernels, err));
    MCP_TRY(open_ids(b, err));
    MCP_TRY(open_numbers(b, err));
    if (b->counts_bytes > 0)
        MCP_TRY(mcp_cuda_counts_reserve(&b->counts, b->counts_bytes, err));
    MCP_TRY(mcp_cuda_blas_open(b->arena, MCP_CUDA_BLAS_BYTES, &b->blas, err));
    return mcp_cuda_channels_open(b->arena, &setting, &b->channels, err);
}

enum mcp_status mcp_cuda_backend_open(struct mcp_arena *arena, struct mcp_nccl_world *world,
                                      const struct mcp_program *program,
                                      const struct mcp_cuda_options *options,
                                      struct mcp_backend **out, struct mcp_error *err)
{
    struct mcp_backend *b = MCP_NEW(arena, struct mcp_backend);
    b->arena = arena;
    b->world = world;
    b->counts.arena = arena;
    b->new_step = true;
    *out = b;
    return open_all(b, program, options, err);
}

const struct mcp_cuda_queue *mcp_cuda_backend_queue(const struct mcp_backend *b,
                                                    enum mcp_stream stream)
{
    return &b->queues[stream];
}

static bool is_host_function(enum mcp_function function)
{
    return function == MCP_FN_LOAD_MICROBATCH || function == MCP_FN_STEP_SCALARS;
}

static bool supports(enum mcp_function function, enum mcp_dtype dtype)
{
    const struct mcp_cuda_kernel *kernel = &mcp_cuda_kernels[function];
    bool is_number = dtype == MCP_F32 || dtype == MCP_BF16 || dtype == MCP_F16;
    if (is_host_function(function) || mcp_functions[function].code == MCP_HOST)
        return is_host_function(function) || kernel->run != NULL;
    return mcp_transfer_supports(function, dtype) || (dtype == MCP_F8 && kernel->takes_casts) ||
           (is_number && (kernel->run != NULL || kernel->multiply != NULL));
}

/* --- memory --- */

static void *compute(const struct mcp_backend *b)
{
    return b->streams.each[MCP_STREAM_COMPUTE].handle;
}

static enum mcp_status allocate(struct mcp_backend *b, int64_t bytes, void **memory,
                                struct mcp_error *err)
{
    MCP_TRY(mcp_cuda_new_memory(b->arena, bytes, memory, err));
    MCP_TRY(mcp_cuda_set_bytes(*memory, 0xff, bytes, compute(b), err));
    return mcp_cuda_empty_stream(&b->streams, MCP_STREAM_COMPUTE, err);
}

static enum mcp_status copy(struct mcp_backend *b, void *to, const void *from, int64_t bytes,
                            struct mcp_error *err)
{
    /* memory that is not locked is copied at once: a wait before it must know a limit */
    MCP_TRY(mcp_cuda_empty_stream(&b->streams, MCP_STREAM_COMPUTE, err));
    MCP_TRY(mcp_cuda_copy(to, from, bytes, compute(b), err));
    return mcp_cuda_empty_stream(&b->streams, MCP_STREAM_COMPUTE, err);
}

/* What fails here is told by the next launch() or finish(). */
static void copy_out(struct mcp_backend *b, const void *memory, void *host, int64_t bytes)
{
    if (b->failed == MCP_OK)
        b->failed = copy(b, host, memory, bytes, &b->failure);
    if (b->failed != MCP_OK)
        memset(host, 0xff, (size_t)bytes);
}

static void copy_in(struct mcp_backend *b, void *memory, const void *host, int64_t bytes)
{
    if (b->failed == MCP_OK)
        b->failed = copy(b, memory, host, bytes, &b->failure);
}

/* --- what monitors ask --- */

/* Sums that a kernel has left on the device. */
static enum mcp_status fetch_sums(struct mcp_backend *b, double *sums, int count,
                                  struct mcp_error *err)
{
    MCP_TRY(mcp_cuda_check_launch("statistics", err));
    return copy(b, sums, b->agreed_there, count * (int64_t)sizeof *sums, err);
}

static void finish_sums(struct mcp_backend *b, double *sums, int count)
{
    if (b->failed == MCP_OK)
        b->failed = fetch_sums(b, sums, count, &b->failure);
    if (b->failed != MCP_OK)
        memset(sums, 0xff, (size_t)count * sizeof *sums);
}

static struct mcp_cuda_array array_at(const void *memory, enum mcp_dtype dtype, int64_t elements)
{
    const struct mcp_view view = {.data = (char *)memory, .dtype = dtype, .elements = elements};
    return mcp_cuda_array_of(view);
}

static void moments(struct mcp_backend *b, const void *memory, enum mcp_dtype dtype,
                    int64_t elements, double *sums)
{
    mcp_cuda_moments(array_at(memory, dtype, elements), elements, b->agreed_there,
                     &b->queues[MCP_STREAM_COMPUTE]);
    finish_sums(b, sums, 2);
}

static void histogram(struct mcp_backend *b, const void *memory, enum mcp_dtype dtype,
                      int64_t elements, struct mcp_histogram *out)
{
    struct mcp_histogram one;
    double numbers[MCP_CUDA_HISTOGRAM];
    _Static_assert(sizeof one == sizeof numbers && sizeof numbers <= AGREED * sizeof *numbers,
                   "the kernel's histogram is one of exec/events.h");
    mcp_cuda_histogram(array_at(memory, dtype, elements), elements, b->agreed_there,
                       &b->queues[MCP_STREAM_COMPUTE]);
    finish_sums(b, numbers, MCP_CUDA_HISTOGRAM);
    memcpy(&one, numbers, sizeof one);
    mcp_histogram_merge(out, &one);
}

static void step_squares(struct mcp_backend *b, const struct mcp_step_taken *step, double *sums)
{
    const struct mcp_cuda_update_norms op = {.truth = step->weights,
                                             .first = step->first,
                                             .second = step->second,
                                             .sums = b->agreed_there,
                                             .elements = step->elements,
                                             .decay = step->decay,
                                             .epsilon = step->epsilon,
                                             .rate = step->rate,
                                             .correction1 = step->correction1,
                                             .correction2 = step->correction2,
                                             .frozen = step->frozen};
    mcp_cuda_update_norms(&op, &b->queues[MCP_STREAM_COMPUTE]);
    finish_sums(b, sums, 2);
}

static enum mcp_status check_copies(const struct mcp_backend *b, struct mcp_error *err)
{
    return b->failed == MCP_OK ? MCP_OK : mcp_fail(err, b->failed, "%s", b->failure.text);
}

/* --- host functions --- */

/* The ids are on their way when this returns; the host's batch is not looked at again. */
static enum mcp_status load_microbatch(struct mcp_backend *b, const struct mcp_launch *launch,
                                       struct mcp_error *err)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    const struct mcp_cuda_stream *stream = &b->streams.each[launch->op->stream];
    int64_t slot = b->ids.used++ % BATCHES;
    MCP_TRY(mcp_cuda_reach(&b->streams, b->ids.copied[slot], err));
    mcp_batch_ids(launch, b->ids.room[slot]);
    b->ids.copied[slot] = (struct mcp_ticket){launch->op->stream, stream->number + 1};
    return mcp_cuda_copy(launch->writes[0], b->ids.room[slot],
                         facts->microbatch_size * facts->sequence_local * 4, stream->handle, err);
}

/* Once a step the host waits for the device. */
static enum mcp_status step_scalars(struct mcp_backend *b, const struct mcp_launch *launch,
                                    struct mcp_error *err)
{
    const struct mcp_step_reads reads = mcp_step_reads_of(launch);
    enum mcp_stream stream = (enum mcp_stream)launch->op->stream;
    void *handle = b->queues[stream].stream;
    float *squares = &b->scalars[0], *loss = &b->scalars[1], *scalars = &b->scalars[2];
    if (launch->write_bytes[0] > (MAX_SCALARS - 2) * (int64_t)sizeof *scalars)
        return mcp_fail(err, MCP_RUN_FAILURE, "a step has %lld bytes of scalars, and %d at most",
                        (long long)launch->write_bytes[0], MAX_SCALARS - 2);
    *squares = 0;
    if (reads.squares >= 0)
        MCP_TRY(mcp_cuda_copy(squares, launch->reads[reads.squares], sizeof *squares, handle, err));
    MCP_TRY(mcp_cuda_copy(loss, launch->reads[reads.loss], sizeof *loss, handle, err));
    MCP_TRY(mcp_cuda_empty_stream(&b->streams, stream, err));
    mcp_set_step_scalars(launch, *squares, *loss, scalars);
    return mcp_cuda_copy(launch->writes[0], scalars, launch->write_bytes[0], handle, err);
}

/* Behind the kernel that counts: what others have, and a copy of it all for the host, which
 * products and transfers to come are sized by. */
static enum mcp_status share_counts(struct mcp_backend *b, const struct mcp_launch *launch,
                                    struct mcp_error *err)
{
    enum mcp_stream stream = (enum mcp_stream)launch->op->stream;
    int64_t experts = launch->type->facts.num_experts, bytes = counts_bytes(launch->type);
    int32_t *sizes = launch->writes[0], *host;
    MCP_TRY(mcp_cuda_counts_place(&b->counts, sizes, bytes, &host, err));
    MCP_TRY(mcp_cuda_exchange_counts(b->channels, sizes, experts, b->queues[stream].stream, err));
    MCP_TRY(mcp_cuda_copy(host, sizes, bytes, b->queues[stream].stream, err));
    return mcp_cuda_empty_stream(&b->streams, stream, err);
}

/* --- ops --- */

static void wait_for(struct mcp_backend *b, enum mcp_stream stream, struct mcp_ticket ticket)
{
    int64_t *number = &b->streams.each[stream].waits[ticket.stream];
    if (ticket.number > *number)
        *number = ticket.number;
}

static const int32_t *sizes_of(const struct mcp_backend *b, const struct mcp_launch *launch)
{
    const int32_t *device = mcp_launch_sizes(launch);
    return device == NULL ? NULL : mcp_cuda_counts_at(&b->counts, device);
}

/* The workspace of products is one stream's. */
static enum mcp_status multiply(const struct mcp_cuda_kernel *kernel,
                                const struct mcp_cuda_call *call, struct mcp_error *err)
{
    if (call->launch->op->stream != MCP_STREAM_COMPUTE)
        return mcp_fail(err, MCP_RUN_FAILURE, "a product on stream %s: only compute has them",
                        mcp_stream_names[call->launch->op->stream]);
    return kernel->multiply(call, err);
}

static enum mcp_status queue_op(struct mcp_backend *b, const struct mcp_launch *launch,
                                struct mcp_error *err)
{
    const struct mcp_cuda_kernel *kernel = &mcp_cuda_kernels[launch->op->function];
    const struct mcp_cuda_queue *queue = &b->queues[launch->op->stream];
    const struct mcp_cuda_call call = {launch, queue, b->blas, sizes_of(b, launch)};
    if (mcp_op_is_transfer(launch->op))
        return mcp_cuda_transfer(b->channels, launch, call.sizes, queue->stream, err);
    if (launch->op->function == MCP_FN_LOAD_MICROBATCH)
        return load_microbatch(b, launch, err);
    if (launch->op->function == MCP_FN_STEP_SCALARS)
        return step_scalars(b, launch, err);
    if (kernel->multiply != NULL)
        return multiply(kernel, &call, err);
    kernel->run(&call);
    MCP_TRY(mcp_cuda_check_launch(mcp_functions[launch->op->function].name, err));
    return launch->op->function == MCP_FN_EXPERT_COUNTS ? share_counts(b, launch, err) : MCP_OK;
}

static enum mcp_status queue_launch(struct mcp_backend *b, const struct mcp_launch *launch,
                                    struct mcp_ticket *ticket, struct mcp_error *err)
{
    MCP_TRY(check_copies(b, err));
    if (b->new_step)
        MCP_TRY(mcp_cuda_streams_start(&b->streams, err));
    b->new_step = false;
    MCP_TRY(mcp_cuda_begin_op(&b->streams, launch, err));
    MCP_TRY(queue_op(b, launch, err));
    return mcp_cuda_end_op(&b->streams, launch, ticket, err);
}

static enum mcp_status launch_op(struct mcp_backend *b, const struct mcp_launch *launch,
                                 struct mcp_ticket *ticket, struct mcp_error *err)
{
    return mcp_cuda_name_op(&b->streams, queue_launch(b, launch, ticket, err), err);
}

static bool reached(struct mcp_backend *b, struct mcp_ticket ticket)
{
    bool moved;
    if (b->failed == MCP_OK)
        b->failed = mcp_cuda_look(&b->streams, &moved, &b->failure);
    return b->streams.each[ticket.stream].reached >= ticket.number;
}

static enum mcp_status empty_all(struct mcp_backend *b, struct mcp_error *err)
{
    struct mcp_cuda_patience patience = mcp_cuda_patience_of(b->world);
    bool left = false;
    b->new_step = true;
    MCP_TRY(check_copies(b, err));
    for (;;) {
        MCP_TRY(mcp_cuda_messages_left(b->channels, &left, err));
        if (left && mcp_cuda_all_reached(&b->streams))
            return MCP_OK;
        MCP_TRY(mcp_cuda_wait_on(&b->streams, &patience, err));
    }
}

static enum mcp_status finish(struct mcp_backend *b, struct mcp_error *err)
{
    return mcp_cuda_name_op(&b->streams, empty_all(b, err), err);
}

static bool times(struct mcp_backend *b, struct mcp_ticket ticket, struct mcp_op_times *out)
{
    return mcp_cuda_times_of(&b->streams, ticket, out);
}

static double read_clock(struct mcp_backend *b)
{
    (void)b;
    return mcp_cuda_clock();
}

static enum mcp_status agree(struct mcp_backend *b, double *values, int count, char operation,
                             struct mcp_error *err)
{
    struct mcp_nccl *all = mcp_nccl_everybody(b->world);
    for (int first = 0; all != NULL && first < count; first += AGREED) {
        int some = count - first < AGREED ? count - first : AGREED;
        int64_t bytes = some * (int64_t)sizeof *values;
        const struct mcp_nccl_data data = {b->agreed_there, b->agreed_there, some, MCP_NCCL_F64};
        memcpy(b->agreed, values + first, (size_t)bytes);
        MCP_TRY(mcp_cuda_copy(b->agreed_there, b->agreed, bytes, b->agree_stream, err));
        MCP_TRY(mcp_nccl_all_reduce(all, &data, operation, b->agree_stream, err));
        MCP_TRY(mcp_cuda_copy(b->agreed, b->agreed_there, bytes, b->agree_stream, err));
        MCP_TRY(mcp_cuda_await(b->world, b->agree_stream, "an agreement", err));
        memcpy(values + first, b->agreed, (size_t)bytes);
    }
    return MCP_OK;
}

static void close_backend(struct mcp_backend *b)
{
    mcp_nccl_world_forget(b->world);
}

const struct mcp_backend_calls mcp_cuda_backend = {
    .name = "cuda",
    .supports = supports,
    .allocate = allocate,
    .read = copy_out,
    .write = copy_in,
    .moments = moments,
    .step_squares = step_squares,
    .histogram = histogram,
    .wait = wait_for,
    .launch = launch_op,
    .reached = reached,
    .finish = finish,
    .times = times,
    .clock = read_clock,
    .agree = agree,
    .close = close_backend,
};
