/* exec/cuda_nccl.c: the only file that knows NCCL. */
#include "exec/cuda_nccl.h"

#include <nccl.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { SPINS = 2000, ABORT_S = 5 };

struct mcp_nccl {
    struct mcp_nccl_world *world;
    ncclComm_t comm;       /* NULL: ended */
    struct mcp_nccl *next; /* made before this one */
};

struct mcp_nccl_world {
    struct mcp_arena *arena;
    int rank, size;
    double timeout_s;
    bool grouped; /* between group_begin and group_end */
    bool aborted;
    atomic_bool gone; /* all communicators are */
    enum mcp_nccl_fault fault;
    enum mcp_status (*look)(void *context, struct mcp_error *err);
    void *context;
    struct mcp_nccl own;     /* of all ranks; comm NULL for one rank */
    struct mcp_nccl *newest; /* of the others */
};

_Static_assert(sizeof(struct mcp_nccl_id) == NCCL_UNIQUE_ID_BYTES, "an id is NCCL's");

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* --- failures --- */

/* One after the other they may wait for each other's kernels: the first for a stream in which it
 * is behind another. In a group all kernels are told first. */
static void *abort_all(void *handle)
{
    struct mcp_nccl_world *world = handle;
    ncclGroupStart();
    for (const struct mcp_nccl *nccl = world->newest; nccl != NULL; nccl = nccl->next)
        if (nccl->comm != NULL)
            ncclCommAbort(nccl->comm);
    if (world->own.comm != NULL)
        ncclCommAbort(world->own.comm);
    ncclGroupEnd();
    world->gone = true;
    return NULL;
}

/* That may hang, and why this rank gives up is not yet told. */
void mcp_nccl_abort(struct mcp_nccl_world *world)
{
    const double start_s = now_s();
    pthread_t thread;
    if (world->aborted || world->own.comm == NULL)
        return;
    world->aborted = true;
    if (pthread_create(&thread, NULL, abort_all, world) != 0) {
        abort_all(world);
        return;
    }
    while (!world->gone && now_s() - start_s < ABORT_S)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    if (world->gone)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
}

enum mcp_nccl_fault mcp_nccl_fault_of(const struct mcp_nccl_world *world)
{
    return world->fault;
}

enum mcp_status mcp_nccl_give_up(struct mcp_nccl_world *world, const char *what,
                                 struct mcp_error *err)
{
    mcp_nccl_abort(world);
    world->fault = MCP_NCCL_LATE;
    return mcp_fail(err, MCP_RUN_FAILURE, "rank %d has waited %g s for %s", world->rank,
                    world->timeout_s, what);
}

/* Those who know more than NCCL. Giving up may take a while, and others wait to hear of it. */
static enum mcp_status look(struct mcp_nccl_world *world, struct mcp_error *err)
{
    const enum mcp_status status = world->look == NULL ? MCP_OK : world->look(world->context, err);
    if (status == MCP_OK)
        return MCP_OK;
    world->fault = MCP_NCCL_TOLD;
    return status;
}

/* The library's last word is only there while its communicator is. */
static enum mcp_status refuse(struct mcp_nccl *nccl, ncclResult_t code, const char *what,
                              struct mcp_error *err)
{
    const char *detail = ncclGetLastError(nccl->comm);
    bool has_detail = detail != NULL && *detail != '\0';
    mcp_fail(err, MCP_RUN_FAILURE, "rank %d: %s: NCCL says: %s%s%s", nccl->world->rank, what,
             ncclGetErrorString(code), has_detail ? ": " : "", has_detail ? detail : "");
    if (code == ncclRemoteError)
        nccl->world->fault = MCP_NCCL_PEERS;
    mcp_nccl_abort(nccl->world);
    return MCP_RUN_FAILURE;
}

/* Waits until the library has done on the host what it was asked for. */
static enum mcp_status settle(struct mcp_nccl *nccl, const char *what, struct mcp_error *err)
{
    const double start_s = now_s(), limit_s = nccl->world->timeout_s;
    for (int tries = 0;; tries++) {
        ncclResult_t state = ncclSuccess;
        ncclResult_t code = ncclCommGetAsyncError(nccl->comm, &state);
        if (code != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
            return refuse(nccl, code != ncclSuccess ? code : state, what, err);
        if (state == ncclSuccess)
            return MCP_OK;
        if (limit_s > 0 && now_s() - start_s > limit_s)
            return mcp_nccl_give_up(nccl->world, what, err);
        if (tries < SPINS) {
            sched_yield();
            continue;
        }
        const enum mcp_status told = look(nccl->world, err);
        if (told != MCP_OK)
            return mcp_fail(err, told, "rank %d was waiting for %s", nccl->world->rank, what);
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

static enum mcp_status check(struct mcp_nccl *nccl, ncclResult_t code, const char *what,
                             struct mcp_error *err)
{
    if (code != ncclSuccess && code != ncclInProgress)
        return refuse(nccl, code, what, err);
    return nccl->world->grouped || code == ncclSuccess ? MCP_OK : settle(nccl, what, err);
}

static enum mcp_status check_one(struct mcp_nccl *nccl, struct mcp_error *err)
{
    ncclResult_t state = ncclSuccess;
    if (nccl->comm == NULL)
        return MCP_OK;
    ncclResult_t code = ncclCommGetAsyncError(nccl->comm, &state);
    code = code != ncclSuccess ? code : state;
    return code == ncclSuccess || code == ncclInProgress ? MCP_OK
                                                         : refuse(nccl, code, "a transfer", err);
}

enum mcp_status mcp_nccl_check(struct mcp_nccl_world *world, struct mcp_error *err)
{
    if (world->aborted)
        return mcp_fail(err, MCP_RUN_FAILURE, "rank %d has given up its communicators",
                        world->rank);
    for (struct mcp_nccl *nccl = world->newest; nccl != NULL; nccl = nccl->next)
        MCP_TRY(check_one(nccl, err));
    MCP_TRY(check_one(&world->own, err));
    return look(world, err);
}

/* --- the world and its parts --- */

enum mcp_status mcp_nccl_make_id(struct mcp_nccl_id *out, struct mcp_error *err)
{
    ncclUniqueId id;
    ncclResult_t code = ncclGetUniqueId(&id);
    if (code != ncclSuccess)
        return mcp_fail(err, MCP_RUN_FAILURE, "making an id for the ranks: NCCL says: %s: %s",
                        ncclGetErrorString(code), ncclGetLastError(NULL));
    memcpy(out->bytes, id.internal, sizeof out->bytes);
    return MCP_OK;
}

static void end_comm(struct mcp_nccl *nccl)
{
    struct mcp_error ignored;
    if (nccl->comm == NULL || nccl->world->aborted)
        return;
    if (check(nccl, ncclCommFinalize(nccl->comm), "ending", &ignored) == MCP_OK)
        ncclCommDestroy(nccl->comm);
    nccl->comm = NULL;
}

void mcp_nccl_world_forget(struct mcp_nccl_world *world)
{
    for (struct mcp_nccl *nccl = world->newest; nccl != NULL; nccl = nccl->next)
        end_comm(nccl);
    world->newest = NULL;
}

static void end_world(void *handle)
{
    struct mcp_nccl_world *world = handle;
    mcp_nccl_world_forget(world);
    end_comm(&world->own);
}

enum mcp_status mcp_nccl_world_open(struct mcp_arena *arena, const struct mcp_nccl_place *place,
                                    struct mcp_nccl_world **out, struct mcp_error *err)
{
    struct mcp_nccl_world *world = MCP_NEW(arena, struct mcp_nccl_world);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    *world = (struct mcp_nccl_world){.arena = arena,
                                     .rank = place->rank,
                                     .size = place->size,
                                     .timeout_s = place->timeout_s,
                                     .look = place->look,
                                     .context = place->context};
    world->own.world = world;
    *out = world;
    if (place->size == 1)
        return MCP_OK;
    config.blocking = 0;
    config.maxCTAs = 1; /* it agrees on a few numbers, and each block has its buffers */
    memcpy(unique.internal, place->id.bytes, sizeof unique.internal);
    mcp_defer(arena, end_world, world);
    return check(
        &world->own,
        ncclCommInitRankConfig(&world->own.comm, place->size, unique, place->rank, &config),
        "the meeting of all ranks", err);
}

int mcp_nccl_world_rank(const struct mcp_nccl_world *world)
{
    return world->rank;
}

int mcp_nccl_world_size(const struct mcp_nccl_world *world)
{
    return world->size;
}

double mcp_nccl_world_timeout_s(const struct mcp_nccl_world *world)
{
    return world->timeout_s;
}

struct mcp_nccl *mcp_nccl_everybody(struct mcp_nccl_world *world)
{
    return world->size == 1 ? NULL : &world->own;
}

enum mcp_status mcp_nccl_split(struct mcp_nccl_world *world, const struct mcp_nccl_part *part,
                               struct mcp_nccl **out, struct mcp_error *err)
{
    const int color = part->color < 0 ? NCCL_SPLIT_NOCOLOR : part->color;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = 0;
    if (part->most_blocks > 0)
        config.maxCTAs = part->most_blocks;
    *out = NULL;
    if (world->size == 1)
        return MCP_OK;
    MCP_TRY(check(&world->own, ncclCommSplit(world->own.comm, color, part->key, &comm, &config),
                  "a new group of ranks", err));
    if (comm == NULL)
        return MCP_OK;
    struct mcp_nccl *nccl = MCP_NEW(world->arena, struct mcp_nccl);
    *nccl = (struct mcp_nccl){world, comm, world->newest};
    world->newest = nccl;
    *out = nccl;
    return settle(nccl, "a new group of ranks", err);
}

/* --- calls --- */

bool mcp_nccl_type_of(enum mcp_dtype dtype, enum mcp_nccl_type *out)
{
    static const struct {
        bool has;
        enum mcp_nccl_type type;
    } types[MCP_NUM_DTYPES] = {
        [MCP_F32] = {true, MCP_NCCL_F32}, [MCP_BF16] = {true, MCP_NCCL_BF16},
        [MCP_F16] = {true, MCP_NCCL_F16}, [MCP_I32] = {true, MCP_NCCL_I32},
        [MCP_U8] = {true, MCP_NCCL_U8},
    };
    *out = types[dtype].type;
    return types[dtype].has;
}

static ncclDataType_t type_of(enum mcp_nccl_type type)
{
    static const ncclDataType_t types[] = {
        [MCP_NCCL_F32] = ncclFloat32, [MCP_NCCL_BF16] = ncclBfloat16, [MCP_NCCL_F16] = ncclFloat16,
        [MCP_NCCL_F64] = ncclFloat64, [MCP_NCCL_I32] = ncclInt32,     [MCP_NCCL_U8] = ncclUint8,
    };
    return types[type];
}

static ncclRedOp_t operation_of(char operation)
{
    return operation == '+' ? ncclSum : operation == '>' ? ncclMax : ncclMin;
}

enum mcp_status mcp_nccl_all_reduce(struct mcp_nccl *comm, const struct mcp_nccl_data *data,
                                    char operation, void *stream, struct mcp_error *err)
{
    return check(comm,
                 ncclAllReduce(data->from, data->to, (size_t)data->elements, type_of(data->type),
                               operation_of(operation), comm->comm, stream),
                 "all_reduce", err);
}

enum mcp_status mcp_nccl_reduce_scatter(struct mcp_nccl *comm, const struct mcp_nccl_data *data,
                                        void *stream, struct mcp_error *err)
{
    return check(comm,
                 ncclReduceScatter(data->from, data->to, (size_t)data->elements,
                                   type_of(data->type), ncclSum, comm->comm, stream),
                 "reduce_scatter", err);
}

enum mcp_status mcp_nccl_all_gather(struct mcp_nccl *comm, const struct mcp_nccl_data *data,
                                    void *stream, struct mcp_error *err)
{
    return check(comm,
                 ncclAllGather(data->from, data->to, (size_t)data->elements, type_of(data->type),
                               comm->comm, stream),
                 "all_gather", err);
}

enum mcp_status mcp_nccl_broadcast(struct mcp_nccl *comm, const struct mcp_nccl_data *data,
                                   int root, void *stream, struct mcp_error *err)
{
    return check(comm,
                 ncclBroadcast(data->from, data->to, (size_t)data->elements, type_of(data->type),
                               root, comm->comm, stream),
                 "a part of all_gather", err);
}

enum mcp_status mcp_nccl_reduce(struct mcp_nccl *comm, const struct mcp_nccl_data *data, int root,
                                void *stream, struct mcp_error *err)
{
    return check(comm,
                 ncclReduce(data->from, data->to, (size_t)data->elements, type_of(data->type),
                            ncclSum, root, comm->comm, stream),
                 "a part of reduce_scatter", err);
}

enum mcp_status mcp_nccl_send(struct mcp_nccl *comm, const void *from, int64_t bytes, int peer,
                              void *stream, struct mcp_error *err)
{
    return check(comm, ncclSend(from, (size_t)bytes, ncclUint8, peer, comm->comm, stream), "send",
                 err);
}

enum mcp_status mcp_nccl_receive(struct mcp_nccl *comm, void *to, int64_t bytes, int peer,
                                 void *stream, struct mcp_error *err)
{
    return check(comm, ncclRecv(to, (size_t)bytes, ncclUint8, peer, comm->comm, stream), "receive",
                 err);
}

enum mcp_status mcp_nccl_group_begin(struct mcp_nccl *comm, struct mcp_error *err)
{
    MCP_TRY(check(comm, ncclGroupStart(), "starting a group of calls", err));
    comm->world->grouped = true;
    return MCP_OK;
}

enum mcp_status mcp_nccl_group_end(struct mcp_nccl *comm, struct mcp_error *err)
{
    comm->world->grouped = false;
    return check(comm, ncclGroupEnd(), "a group of calls", err);
}
