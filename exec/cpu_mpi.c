/* exec/cpu_mpi.c: the only file that knows MPI. */
#include "exec/cpu_mpi.h"

#include "core/mesh.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_MESSAGE = 1 << 30, SPINS = 2000 };

struct where { /* a rank is */
    int64_t process;
    uint64_t host;
};

struct mcp_cpu_world {
    int rank, size;
    double timeout_s;                                   /* 0: none */
    struct where *places;                               /* [size] */
    MPI_Comm comms[MCP_NUM_STREAMS][MCP_NUM_AXIS_SETS]; /* MPI_COMM_NULL: not made */
    bool made[MCP_NUM_STREAMS][MCP_NUM_AXIS_SETS];
};

struct mcp_cpu_channel {
    struct mcp_arena *arena;
    MPI_Comm comm;
    int size, index;
    MPI_Request *requests;
    size_t num_requests, capacity;
};

static enum mcp_status check(int code, const char *what, struct mcp_error *err)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (code == MPI_SUCCESS)
        return MCP_OK;
    MPI_Error_string(code, text, &length);
    return mcp_fail(err, MCP_RUN_FAILURE, "%s: MPI says: %.*s", what, length, text);
}

static void end_world(void *handle)
{
    (void)handle;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized)
        MPI_Finalize();
}

static enum mcp_status share_places(struct mcp_arena *arena, struct mcp_cpu_world *world,
                                    struct mcp_error *err)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    struct where own = {getpid(), 14695981039346656037u};
    MPI_Get_processor_name(name, &length);
    for (int i = 0; i < length; i++) /* FNV-1a */
        own.host = (own.host ^ (unsigned char)name[i]) * 1099511628211u;
    world->places = MCP_ARRAY(arena, world->size, struct where);
    return check(MPI_Allgather(&own, sizeof own, MPI_BYTE, world->places, sizeof own, MPI_BYTE,
                               MPI_COMM_WORLD),
                 "cannot start", err);
}

enum mcp_status mcp_cpu_world_open(struct mcp_arena *arena, int *argc, char ***argv,
                                   struct mcp_cpu_world **out, struct mcp_error *err)
{
    struct mcp_cpu_world *world = MCP_NEW(arena, struct mcp_cpu_world);
    int level = 0;
    MCP_TRY(check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level), "cannot start", err));
    mcp_defer(arena, end_world, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &world->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world->size);
    *out = world;
    return share_places(arena, world, err);
}

void mcp_cpu_world_limit(struct mcp_cpu_world *world, double timeout_s)
{
    world->timeout_s = timeout_s;
}

bool mcp_cpu_world_is_beside(const struct mcp_cpu_world *world, int rank)
{
    return world->places[rank].host == world->places[world->rank].host;
}

/* The letter of a process's state, 'X' when it is gone. */
static char state_of(int64_t process)
{
    char path[40], text[512];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)process);
    FILE *file = fopen(path, "r");
    const size_t length = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    if (file != NULL)
        fclose(file);
    text[length] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && name_end[1] == ' ' ? name_end[2] : 'X';
}

bool mcp_cpu_world_find_lost(const struct mcp_cpu_world *world, char *text, size_t size)
{
    for (int r = 0; r < world->size; r++) {
        const struct where *place = &world->places[r];
        if (!mcp_cpu_world_is_beside(world, r))
            continue;
        const char state = state_of(place->process);
        const bool stopped = state == 'T' || state == 't';
        if (!stopped && state != 'Z' && state != 'X')
            continue;
        snprintf(text, size, "rank %d (process %lld) has %s", r, (long long)place->process,
                 stopped ? "been stopped" : "ended");
        return true;
    }
    return false;
}

int mcp_cpu_world_rank(const struct mcp_cpu_world *world)
{
    return world->rank;
}

int mcp_cpu_world_size(const struct mcp_cpu_world *world)
{
    return world->size;
}

double mcp_cpu_clock(void)
{
    return MPI_Wtime();
}

void mcp_cpu_world_abort(struct mcp_cpu_world *world, int code)
{
    if (world->size > 1) /* who is alone ends by itself, and without MPI's words */
        MPI_Abort(MPI_COMM_WORLD, code);
}

enum mcp_status mcp_cpu_world_agree(struct mcp_cpu_world *world, double *values, int count,
                                    char operation, struct mcp_error *err)
{
    const MPI_Op op = operation == '+' ? MPI_SUM : operation == '>' ? MPI_MAX : MPI_MIN;
    const double start_s = MPI_Wtime();
    MPI_Request request;
    int done = 0;
    if (world->size == 1)
        return MCP_OK;
    MCP_TRY(
        check(MPI_Iallreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, op, MPI_COMM_WORLD, &request),
              "agreeing on numbers", err));
    for (int tries = 0;; tries++) {
        MCP_TRY(check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "agreeing on numbers", err));
        if (done)
            return MCP_OK;
        if (world->timeout_s > 0 && MPI_Wtime() - start_s > world->timeout_s)
            return mcp_fail(err, MCP_RUN_FAILURE, "ranks have waited for another for %.0f s",
                            world->timeout_s);
        if (tries < SPINS)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

/* What two streams exchange with each other goes over one communicator: those of messages
 * are a send and the receive that takes it, in turn. */
static int comm_of(enum mcp_stream stream)
{
    int message = (int)stream - MCP_STREAM_SEND_NEXT;
    return message > 0 ? (int)stream - message % 2 : (int)stream;
}

/* Collective over the world: ranks outside of all groups take part with no colour. */
static enum mcp_status make_comm(struct mcp_cpu_world *world, const int *members, int count,
                                 MPI_Comm *out, struct mcp_error *err)
{
    int color = MPI_UNDEFINED, key = 0;
    for (int i = 0; i < count; i++)
        if (members[i] == world->rank) {
            color = members[0];
            key = i;
        }
    MCP_TRY(check(MPI_Comm_split(MPI_COMM_WORLD, color, key, out), "making a group of ranks", err));
    if (*out != MPI_COMM_NULL)
        MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN);
    return MCP_OK;
}

enum mcp_status mcp_cpu_channel_open(struct mcp_arena *arena, struct mcp_cpu_world *world,
                                     const struct mcp_plan *plan, unsigned axes,
                                     enum mcp_stream stream, struct mcp_cpu_channel **out,
                                     struct mcp_error *err)
{
    int *members = MCP_ARRAY(arena, world->size, int), comm = comm_of(stream);
    *out = NULL;
    if (axes >= MCP_NUM_AXIS_SETS)
        return mcp_fail(err, MCP_INVALID, "a group over axes %u is unknown", axes);
    if (mcp_group_size(plan, axes) == 1)
        return MCP_OK;
    if (!world->made[comm][axes]) {
        int count = mcp_group_members(plan, axes, world->rank, members);
        MCP_TRY(make_comm(world, members, count, &world->comms[comm][axes], err));
        world->made[comm][axes] = true;
    }
    if (world->comms[comm][axes] == MPI_COMM_NULL)
        return MCP_OK;
    struct mcp_cpu_channel *channel = MCP_NEW(arena, struct mcp_cpu_channel);
    channel->arena = arena;
    channel->comm = world->comms[comm][axes];
    MPI_Comm_size(channel->comm, &channel->size);
    MPI_Comm_rank(channel->comm, &channel->index);
    *out = channel;
    return MCP_OK;
}

void mcp_cpu_world_forget(struct mcp_cpu_world *world)
{
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        for (int a = 0; a < MCP_NUM_AXIS_SETS; a++) {
            if (world->made[s][a] && world->comms[s][a] != MPI_COMM_NULL)
                MPI_Comm_free(&world->comms[s][a]);
            world->made[s][a] = false;
        }
}

int mcp_cpu_channel_size(const struct mcp_cpu_channel *channel)
{
    return channel->size;
}

int mcp_cpu_channel_index(const struct mcp_cpu_channel *channel)
{
    return channel->index;
}

struct mcp_cpu_channel *mcp_cpu_channel_twin(struct mcp_arena *arena,
                                             const struct mcp_cpu_channel *channel)
{
    struct mcp_cpu_channel *twin = MCP_NEW(arena, struct mcp_cpu_channel);
    twin->arena = arena;
    twin->comm = channel->comm;
    twin->size = channel->size;
    twin->index = channel->index;
    return twin;
}

bool mcp_cpu_channel_same(const struct mcp_cpu_channel *a, const struct mcp_cpu_channel *b)
{
    return a->comm == b->comm;
}

static MPI_Request *new_request(struct mcp_cpu_channel *channel)
{
    channel->requests = mcp_grow(channel->arena, channel->requests, channel->num_requests,
                                 &channel->capacity, sizeof *channel->requests);
    return &channel->requests[channel->num_requests++];
}

/* Counts of MPI are ints: large messages go in pieces. */
enum mcp_status mcp_cpu_send(struct mcp_cpu_channel *channel, const void *from, int64_t bytes,
                             int peer, struct mcp_error *err)
{
    const char *at = from;
    while (bytes > 0) {
        int piece = bytes < MAX_MESSAGE ? (int)bytes : MAX_MESSAGE;
        MCP_TRY(check(MPI_Isend(at, piece, MPI_BYTE, peer, 0, channel->comm, new_request(channel)),
                      "sending", err));
        at += piece;
        bytes -= piece;
    }
    return MCP_OK;
}

enum mcp_status mcp_cpu_receive(struct mcp_cpu_channel *channel, void *to, int64_t bytes, int peer,
                                struct mcp_error *err)
{
    char *at = to;
    while (bytes > 0) {
        int piece = bytes < MAX_MESSAGE ? (int)bytes : MAX_MESSAGE;
        MCP_TRY(check(MPI_Irecv(at, piece, MPI_BYTE, peer, 0, channel->comm, new_request(channel)),
                      "receiving", err));
        at += piece;
        bytes -= piece;
    }
    return MCP_OK;
}

enum mcp_status mcp_cpu_test(struct mcp_cpu_channel *channel, bool *done, struct mcp_error *err)
{
    int all = 1;
    if (channel->num_requests > 0)
        MCP_TRY(check(
            MPI_Testall((int)channel->num_requests, channel->requests, &all, MPI_STATUSES_IGNORE),
            "a transfer", err));
    *done = all != 0;
    if (*done)
        channel->num_requests = 0;
    return MCP_OK;
}
