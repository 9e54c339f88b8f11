/* exec/cpu_backend.c: streams on one thread: kernels at once, transfers in queues. */
#include "exec/cpu_backend.h"

#include "exec/cpu_blas.h"
#include "exec/cpu_kernels.h"
#include "exec/cpu_outbox.h"
#include "exec/cpu_transfer.h"

#include <sched.h>
#include <string.h>
#include <time.h>

enum { ALIGNMENT = 64, SPINS = 2000 };

/* An op that waits for its turn on a communication stream. */
struct queued {
    struct mcp_launch launch;
    int64_t waits[MCP_NUM_STREAMS]; /* numbers of tickets that must be reached first */
    double queued_s;
};

struct stream {
    struct mcp_cpu_channel *channels[MCP_NUM_AXIS_SETS];
    bool opened[MCP_NUM_AXIS_SETS];
    struct queued *queue; /* those from `reached` on; a ring of `capacity` */
    size_t capacity;
    int64_t number, reached; /* tickets given out, and over */
    bool started;            /* the first in the queue */
    struct mcp_cpu_transfer transfer;
    struct mcp_cpu_outbox outbox;   /* sent, and not yet taken */
    int64_t waits[MCP_NUM_STREAMS]; /* of the next op */
    struct mcp_op_times *times;     /* of tickets first_timed + 1 .. number */
    size_t times_capacity;
    int64_t first_timed;
};

struct mcp_backend {
    struct mcp_arena *arena;
    struct mcp_cpu_world *world;
    const struct mcp_program *program;
    struct mcp_cpu_options options;
    struct stream streams[MCP_NUM_STREAMS];
    struct mcp_cpu_transfer counts; /* of tokens for experts */
    bool new_step;                  /* the next launch is the first since finish() */
    double moved_s;                 /* when anything last did */
};

/* --- groups --- */

static enum mcp_status open_channel(struct mcp_backend *b, unsigned axes, enum mcp_stream stream,
                                    struct mcp_error *err)
{
    struct stream *s = &b->streams[stream];
    if (axes >= MCP_NUM_AXIS_SETS)
        return mcp_fail(err, MCP_INVALID, "a group over axes %u is unknown", axes);
    if (s->opened[axes])
        return MCP_OK;
    s->opened[axes] = true;
    return mcp_cpu_channel_open(b->arena, b->world, &b->program->plan, axes, stream,
                                &s->channels[axes], err);
}

/* Those of all ranks' ops, in one order, whatever this rank runs of them. Counts of
 * tokens go over a channel of the compute stream. */
static enum mcp_status open_channels(struct mcp_backend *b, const struct mcp_program *program,
                                     struct mcp_error *err)
{
    for (int t = 0; t < program->num_types; t++)
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++) {
            const struct mcp_block *block = &program->types[t].blocks[role];
            for (int i = 0; i < block->num_ops; i++) {
                const struct mcp_op *op = &block->ops[i];
                if (mcp_op_is_transfer(op))
                    MCP_TRY(open_channel(b, op->group, (enum mcp_stream)op->stream, err));
                if (op->function == MCP_FN_EXPERT_COUNTS)
                    MCP_TRY(open_channel(b, MCP_EXPERT, MCP_STREAM_COMPUTE, err));
            }
        }
    return MCP_OK;
}

enum mcp_status mcp_cpu_backend_open(struct mcp_arena *arena, struct mcp_cpu_world *world,
                                     const struct mcp_program *program,
                                     const struct mcp_cpu_options *options,
                                     struct mcp_backend **out, struct mcp_error *err)
{
    struct mcp_backend *b = MCP_NEW(arena, struct mcp_backend);
    mcp_blas_use_no_threads();
    b->arena = arena;
    b->world = world;
    b->program = program;
    b->options = *options;
    b->new_step = true;
    *out = b;
    MCP_TRY(open_channels(b, program, err));
    for (int i = 0; i < MCP_INTERPRET_OTHERS; i++)
        if (options->others[i] != NULL)
            MCP_TRY(open_channels(b, options->others[i], err));
    return MCP_OK;
}

static bool supports(enum mcp_function function, enum mcp_dtype dtype)
{
    const struct mcp_cpu_kernel *kernel = &mcp_cpu_kernels[function];
    return mcp_transfer_supports(function, dtype) ||
           (kernel->run != NULL && (kernel->dtypes & (1u << dtype)) != 0);
}

/* --- memory --- */

static enum mcp_status allocate(struct mcp_backend *b, int64_t bytes, void **memory,
                                struct mcp_error *err)
{
    (void)err;
    char *block = MCP_ARRAY(b->arena, bytes + ALIGNMENT, char);
    block += -(uintptr_t)block % ALIGNMENT;
    memset(block, 0xff, (size_t)bytes);
    *memory = block;
    return MCP_OK;
}

static void copy_out(struct mcp_backend *b, const void *memory, void *host, int64_t bytes)
{
    (void)b;
    memcpy(host, memory, (size_t)bytes);
}

static void copy_in(struct mcp_backend *b, void *memory, const void *host, int64_t bytes)
{
    (void)b;
    memcpy(memory, host, (size_t)bytes);
}

/* --- streams --- */

static bool is_reached(const struct mcp_backend *b, const int64_t *waits)
{
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        if (b->streams[s].reached < waits[s])
            return false;
    return true;
}

static struct mcp_op_times *times_of(struct stream *s, int64_t number)
{
    return &s->times[number - s->first_timed - 1];
}

static int64_t new_ticket(struct mcp_backend *b, struct stream *s)
{
    size_t count = (size_t)(s->number - s->first_timed);
    s->times = mcp_grow(b->arena, s->times, count, &s->times_capacity, sizeof *s->times);
    return ++s->number;
}

static void end_op(struct mcp_backend *b, struct stream *s)
{
    s->reached++;
    s->started = false;
    b->moved_s = times_of(s, s->reached)->end_s = mcp_cpu_clock();
}

/* Over as soon as it has been copied; its time ends when it is taken. */
static enum mcp_status send(struct mcp_backend *b, struct stream *s, struct mcp_error *err)
{
    int64_t bytes;
    int peer;
    const void *text = mcp_cpu_transfer_text(&s->transfer, &bytes, &peer);
    return mcp_cpu_outbox_send(b->arena, &s->outbox, s->transfer.channel, text, bytes, peer,
                               s->reached + 1, err);
}

static enum mcp_status start(struct mcp_backend *b, struct stream *s, const struct queued *op,
                             bool *done, struct mcp_error *err)
{
    times_of(s, s->reached + 1)->start_s = mcp_cpu_clock();
    s->started = true;
    if (!mcp_op_is_transfer(op->launch.op)) {
        mcp_cpu_kernels[op->launch.op->function].run(&op->launch);
        *done = true;
        return MCP_OK;
    }
    mcp_cpu_transfer_set(&op->launch, s->channels[op->launch.op->group], &s->transfer);
    *done = op->launch.op->function == MCP_FN_SEND;
    if (*done)
        return send(b, s, err);
    return mcp_cpu_transfer_start(b->arena, &s->transfer, done, err);
}

static enum mcp_status progress_outbox(struct mcp_backend *b, struct stream *s,
                                       struct mcp_error *err)
{
    int64_t ticket;
    do {
        MCP_TRY(mcp_cpu_outbox_poll(&s->outbox, &ticket, err));
        if (ticket > s->first_timed)
            b->moved_s = times_of(s, ticket)->end_s = mcp_cpu_clock();
    } while (ticket > 0);
    return MCP_OK;
}

/* Takes one stream as far as it can go now. */
static enum mcp_status progress_stream(struct mcp_backend *b, struct stream *s,
                                       struct mcp_error *err)
{
    if (s->outbox.on_their_way > 0)
        MCP_TRY(progress_outbox(b, s, err));
    while (s->reached < s->number) {
        const struct queued *op = &s->queue[(size_t)(s->reached % (int64_t)s->capacity)];
        bool done = false;
        if (s->started)
            MCP_TRY(mcp_cpu_transfer_advance(&s->transfer, &done, err));
        else if (is_reached(b, op->waits) && mcp_cpu_clock() - op->queued_s >= b->options.delay_s)
            MCP_TRY(start(b, s, op, &done, err));
        if (!done)
            return MCP_OK;
        end_op(b, s);
    }
    return MCP_OK;
}

static enum mcp_status progress(struct mcp_backend *b, struct mcp_error *err)
{
    for (int s = MCP_STREAM_COMPUTE + 1; s < MCP_NUM_STREAMS; s++)
        if (b->streams[s].reached < b->streams[s].number || b->streams[s].outbox.on_their_way > 0)
            MCP_TRY(progress_stream(b, &b->streams[s], err));
    return MCP_OK;
}

/* --- blocking --- */

/* Names what a rank has waited for too long. */
static enum mcp_status give_up(const struct mcp_backend *b, struct mcp_error *err)
{
    for (int s = 0; s < MCP_NUM_STREAMS; s++) {
        const struct stream *stream = &b->streams[s];
        if (stream->reached == stream->number || !stream->started)
            continue;
        const struct queued *op =
            &stream->queue[(size_t)(stream->reached % (int64_t)stream->capacity)];
        return mcp_fail(err, MCP_RUN_FAILURE,
                        "%s on stream %s (layer %d, microbatch %d) has not moved for %.0f s: "
                        "another rank has stopped, or is slower than that",
                        mcp_functions[op->launch.op->function].name, mcp_stream_names[s],
                        op->launch.layer, op->launch.microbatch, b->options.timeout_s);
    }
    return mcp_fail(err, MCP_RUN_FAILURE, "nothing has moved for %.0f s: another rank has stopped",
                    b->options.timeout_s);
}

/* Ranks may be more than cores: who waits lets others run, the longer the more. */
static enum mcp_status breathe(struct mcp_backend *b, int *tries, struct mcp_error *err)
{
    if (++*tries < SPINS) { /* most transfers are over before a sleep would be */
        sched_yield();
        return MCP_OK;
    }
    int steps = *tries / 256;
    nanosleep(&(struct timespec){.tv_nsec = 20000L * (steps < 24 ? 1 + steps : 25)}, NULL);
    const double limit_s = b->options.timeout_s; /* 0: none */
    return limit_s > 0 && mcp_cpu_clock() - b->moved_s > limit_s ? give_up(b, err) : MCP_OK;
}

static enum mcp_status wait_until(struct mcp_backend *b, const int64_t *waits,
                                  struct mcp_error *err)
{
    int tries = 0;
    b->moved_s = mcp_cpu_clock();
    while (!is_reached(b, waits)) {
        MCP_TRY(progress(b, err));
        MCP_TRY(breathe(b, &tries, err));
    }
    return MCP_OK;
}

/* How many rows each member has for this rank's experts. */
static enum mcp_status exchange_counts(struct mcp_backend *b, const struct mcp_launch *launch,
                                       struct mcp_error *err)
{
    struct mcp_cpu_channel *channel = b->streams[MCP_STREAM_COMPUTE].channels[MCP_EXPERT];
    int32_t *sizes = launch->writes[0];
    int64_t experts = launch->type->facts.num_experts;
    struct mcp_cpu_transfer *t = &b->counts;
    bool done = false;
    int tries = 0;
    *t = (struct mcp_cpu_transfer){.channel = channel,
                                   .what = {.function = MCP_FN_ALL_TO_ALL,
                                            .dtype = MCP_I32,
                                            .elements = experts,
                                            .from = (char *)sizes,
                                            .to = (char *)(sizes + experts)}};
    b->moved_s = mcp_cpu_clock();
    MCP_TRY(mcp_cpu_transfer_start(b->arena, t, &done, err));
    while (!done) {
        MCP_TRY(progress(b, err));
        MCP_TRY(mcp_cpu_transfer_advance(t, &done, err));
        MCP_TRY(breathe(b, &tries, err));
    }
    return MCP_OK;
}

/* --- the table --- */

static void wait_for(struct mcp_backend *b, enum mcp_stream stream, struct mcp_ticket ticket)
{
    int64_t *number = &b->streams[stream].waits[ticket.stream];
    if (ticket.number > *number)
        *number = ticket.number;
}

static void start_step(struct mcp_backend *b)
{
    b->new_step = false;
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        b->streams[s].first_timed = b->streams[s].number;
}

static enum mcp_status run_now(struct mcp_backend *b, const struct mcp_launch *launch,
                               struct mcp_error *err)
{
    struct stream *s = &b->streams[MCP_STREAM_COMPUTE];
    MCP_TRY(wait_until(b, s->waits, err));
    new_ticket(b, s);
    times_of(s, s->number)->start_s = mcp_cpu_clock();
    mcp_cpu_kernels[launch->op->function].run(launch);
    if (launch->op->function == MCP_FN_EXPERT_COUNTS)
        MCP_TRY(exchange_counts(b, launch, err));
    end_op(b, s);
    return progress(b, err);
}

/* A ring that is full doubles; what is queued keeps its order. */
static void make_place(struct mcp_backend *b, struct stream *s)
{
    size_t used = (size_t)(s->number - s->reached), capacity = s->capacity;
    if (used < capacity)
        return;
    size_t larger = capacity == 0 ? 16 : 2 * capacity;
    struct queued *queue = MCP_ARRAY(b->arena, larger, struct queued);
    for (int64_t n = s->reached; n < s->number; n++)
        queue[(size_t)(n % (int64_t)larger)] = s->queue[(size_t)(n % (int64_t)capacity)];
    s->queue = queue;
    s->capacity = larger;
}

static enum mcp_status launch_op(struct mcp_backend *b, const struct mcp_launch *launch,
                                 struct mcp_ticket *ticket, struct mcp_error *err)
{
    struct stream *s = &b->streams[launch->op->stream];
    if (b->new_step)
        start_step(b);
    if (launch->op->stream == MCP_STREAM_COMPUTE) {
        MCP_TRY(run_now(b, launch, err));
    } else {
        make_place(b, s);
        struct queued *op = &s->queue[(size_t)(s->number % (int64_t)s->capacity)];
        op->launch = *launch;
        op->queued_s = mcp_cpu_clock();
        memcpy(op->waits, s->waits, sizeof op->waits);
        new_ticket(b, s);
        MCP_TRY(progress(b, err));
    }
    memset(s->waits, 0, sizeof s->waits);
    *ticket = (struct mcp_ticket){launch->op->stream, s->number};
    return MCP_OK;
}

static bool reached(struct mcp_backend *b, struct mcp_ticket ticket)
{
    return b->streams[ticket.stream].reached >= ticket.number;
}

static int on_their_way(const struct mcp_backend *b)
{
    int count = 0;
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        count += b->streams[s].outbox.on_their_way;
    return count;
}

static enum mcp_status finish(struct mcp_backend *b, struct mcp_error *err)
{
    int64_t all[MCP_NUM_STREAMS];
    int tries = 0;
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        all[s] = b->streams[s].number;
    b->new_step = true;
    MCP_TRY(wait_until(b, all, err));
    while (on_their_way(b) > 0) {
        MCP_TRY(progress(b, err));
        MCP_TRY(breathe(b, &tries, err));
    }
    return MCP_OK;
}

static bool times(struct mcp_backend *b, struct mcp_ticket ticket, struct mcp_op_times *out)
{
    struct stream *s = &b->streams[ticket.stream];
    if (ticket.number <= s->first_timed || ticket.number > s->reached)
        return false;
    *out = *times_of(s, ticket.number);
    return true;
}

static double read_clock(struct mcp_backend *b)
{
    (void)b;
    return mcp_cpu_clock();
}

static enum mcp_status agree(struct mcp_backend *b, double *values, int count, char operation,
                             struct mcp_error *err)
{
    return mcp_cpu_world_agree(b->world, values, count, operation, err);
}

static void close_backend(struct mcp_backend *b)
{
    mcp_cpu_world_forget(b->world);
}

const struct mcp_backend_calls mcp_cpu_backend = {
    .name = "cpu",
    .supports = supports,
    .allocate = allocate,
    .read = copy_out,
    .write = copy_in,
    .wait = wait_for,
    .launch = launch_op,
    .reached = reached,
    .finish = finish,
    .times = times,
    .clock = read_clock,
    .agree = agree,
    .close = close_backend,
};
