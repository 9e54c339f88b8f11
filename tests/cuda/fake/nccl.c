/* tests/cuda/fake/nccl.c: communicators between threads, or processes: who belongs to them, what
 * they queue, and when it may run.
 *
 * As the library has it: calls of one communicator run in the order they were made, whatever
 * their streams; calls of a group start together; a message is over when its receiver has
 * taken it. A communicator that does not block answers ncclInProgress to everything, queues
 * what it was asked for when it is asked for its state and not before, and takes no call until
 * then; a split's result is there when the parent's state is ncclSuccess. */
#include "tests/cuda/fake/nccl_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NAP_NS = 200000 };

/* --- what all members of a communicator share --- */

static struct {
    struct clique *cliques;
    long last_id;
    char folder[64];             /* fake_keep_apart() */
    int fail_device, fail_after; /* fake_fail_collective() */
    bool fails;
} all;

static struct clique *new_clique(int size)
{
    struct clique *c = calloc(1, sizeof *c);
    c->members = calloc((size_t)size, sizeof *c->members);
    c->splits = calloc((size_t)size, sizeof *c->splits);
    c->size = size;
    c->next = all.cliques;
    all.cliques = c;
    return c;
}

static struct ncclComm *join_clique(struct clique *clique, int rank, bool blocking)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    comm->clique = clique;
    comm->rank = rank;
    comm->blocking = blocking;
    comm->device = fake_self()->device;
    comm->tail = &comm->first;
    comm->sent = calloc((size_t)clique->size, sizeof *comm->sent);
    comm->received = calloc((size_t)clique->size, sizeof *comm->received);
    if (clique->members[rank] != NULL)
        fake_stop("rank %d has joined a communicator twice", rank);
    for (int i = 0; i < clique->size; i++)
        if (clique->members[i] != NULL && clique->members[i]->device == comm->device)
            fake_stop("ranks %d and %d of a communicator share device %d", i, rank, comm->device);
    clique->members[rank] = comm;
    if (mail_is_apart(clique))
        mail_join(comm);
    else
        clique->here++;
    fake_count_object(1);
    return comm;
}

static void free_comm(struct ncclComm *comm, bool well)
{
    struct clique *clique = comm->clique;
    if (mail_is_apart(clique))
        mail_leave(comm, well);
    clique->members[comm->rank] = NULL;
    while (comm->first != NULL)
        pop_bundle(comm);
    free(comm->sent);
    free(comm->received);
    free(comm);
    fake_count_object(-1);
}

void fake_forget_comms(void)
{
    while (all.cliques != NULL) {
        struct clique *c = all.cliques;
        all.cliques = c->next;
        for (int i = 0; i < c->size; i++)
            if (c->members[i] != NULL)
                free_comm(c->members[i], false);
        free(c->members);
        free(c->splits);
        free(c);
    }
    all.fails = false;
}

void fake_keep_apart(const char *folder)
{
    snprintf(all.folder, sizeof all.folder, "%s", folder);
}

void fake_fail_collective(int device, int after)
{
    fake_lock();
    all.fails = true;
    all.fail_device = device;
    all.fail_after = after;
    fake_unlock();
}

/* --- starting --- */

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress"};
    return result >= 0 && result <= ncclInProgress ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    fake_lock();
    memset(id, 0, sizeof *id);
    if (all.folder[0] != '\0')
        snprintf(id->internal, sizeof id->internal, "%s/%ld-%ld", all.folder, (long)getpid(),
                 ++all.last_id);
    else
        snprintf(id->internal, sizeof id->internal, "fake %ld", ++all.last_id);
    fake_unlock();
    return ncclSuccess;
}

static bool is_whole(const struct ncclComm *comm)
{
    return mail_is_apart(comm->clique) ? mail_is_whole(comm->clique)
                                       : comm->clique->here == comm->clique->size;
}

static void wait_for_members(const struct ncclComm *comm)
{
    fake_wake();
    while (comm->blocking && !is_whole(comm))
        fake_sleep();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return ncclInvalidArgument;
    fake_lock();
    struct clique *clique = all.cliques;
    while (clique != NULL && strcmp(clique->id, id.internal) != 0)
        clique = clique->next;
    if (clique == NULL) {
        clique = new_clique(ranks);
        memcpy(clique->id, id.internal, sizeof clique->id - 1);
        if (clique->id[0] == '/')
            memcpy(clique->name, clique->id, sizeof clique->id);
    }
    if (clique->size != ranks)
        fake_stop("a communicator has %d ranks for one member, %d for another", clique->size,
                  ranks);
    struct ncclComm *comm = join_clique(clique, rank, config == NULL || config->blocking != 0);
    comm->state = STARTS;
    *out = comm;
    wait_for_members(comm);
    if (comm->blocking)
        comm->state = READY;
    fake_unlock();
    return comm->blocking ? ncclSuccess : ncclInProgress;
}

/* --- splitting: when all members have asked, the last makes the communicators --- */

static int rank_in_color(const struct clique *clique, int rank)
{
    int below = 0;
    const struct split *mine = &clique->splits[rank];
    for (int i = 0; i < clique->size; i++) {
        const struct split *other = &clique->splits[i];
        below += other->color == mine->color &&
                 (other->key < mine->key || (other->key == mine->key && i < rank));
    }
    return below;
}

static struct clique *clique_of_color(struct clique **made, const struct clique *parent, int rank)
{
    int size = 0, first = -1;
    for (int i = 0; i < parent->size; i++)
        if (parent->splits[i].color == parent->splits[rank].color) {
            first = first < 0 ? i : first;
            size++;
        }
    if (made[first] == NULL)
        made[first] = new_clique(size);
    return made[first];
}

static void make_splits(struct clique *parent)
{
    struct clique **made = calloc((size_t)parent->size, sizeof *made);
    int device = fake_self()->device;
    for (int i = 0; i < parent->size; i++) {
        struct ncclComm *member = parent->members[i];
        if (parent->splits[i].color < 0)
            continue;
        fake_self()->device = member->device;
        member->child = join_clique(clique_of_color(made, parent, i), rank_in_color(parent, i),
                                    member->blocking);
        member->child->state = STARTS;
    }
    fake_self()->device = device;
    parent->rounds++;
    parent->asked = 0;
    free(made);
}

/* Of a process: of its own, once all have said what they ask for. */
static bool make_own_child(struct ncclComm *comm)
{
    struct clique *made = NULL, *clique = comm->clique;
    const int color = clique->splits[comm->rank].color;
    int size = 0;
    if (!mail_take_splits(comm))
        return false;
    for (int i = 0; i < clique->size; i++)
        size += clique->splits[i].color == color;
    if (color >= 0) {
        made = new_clique(size);
        mail_name_child(comm, made);
        comm->child = join_clique(made, rank_in_color(clique, comm->rank), comm->blocking);
        comm->child->state = STARTS;
    }
    clique->rounds++;
    return true;
}

static void take_child(struct ncclComm *comm)
{
    *comm->child_out = comm->child;
    if (comm->child != NULL && comm->blocking)
        comm->child->state = READY;
    comm->state = READY;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config)
{
    fake_lock();
    struct clique *clique = comm->clique;
    if (comm->state != READY || comm->first != NULL)
        fake_stop("rank %d splits a communicator that is at work", comm->rank);
    if (config != NULL && (config->blocking != 0) != comm->blocking)
        fake_stop("rank %d splits a communicator into others that block, or not, unlike it",
                  comm->rank);
    *out = NULL;
    comm->child = NULL;
    comm->child_out = out;
    comm->state = SPLITS;
    comm->round = clique->rounds;
    clique->splits[comm->rank] = (struct split){color, key};
    if (mail_is_apart(clique))
        mail_post_split(comm, &clique->splits[comm->rank]);
    else if (++clique->asked == clique->size)
        make_splits(clique);
    fake_wake();
    while (comm->blocking && clique->rounds == comm->round)
        fake_sleep();
    if (comm->blocking)
        take_child(comm);
    fake_unlock();
    return comm->blocking ? ncclSuccess : ncclInProgress;
}

/* --- state and end --- */

static ncclResult_t state_of(struct ncclComm *comm)
{
    switch (comm->state) {
    case STARTS:
        comm->state = is_whole(comm) ? READY : STARTS;
        break;
    case SPLITS:
        if (mail_is_apart(comm->clique) ? make_own_child(comm)
                                        : comm->clique->rounds != comm->round)
            take_child(comm);
        break;
    case QUEUES:
        queue_bundles(comm);
        comm->state = READY;
        break;
    case ENDS:
        comm->state = comm->first == NULL ? READY : ENDS;
        break;
    default:
        break;
    }
    return comm->state == READY ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    fake_lock();
    bool joined = fake_self()->joined, apart = mail_is_apart(comm->clique);
    if (apart && comm->failure == ncclSuccess)
        comm->failure = mail_failure(comm);
    *error = comm->failure != ncclSuccess ? comm->failure : state_of(comm);
    if (*error == ncclInProgress && !joined && !apart)
        fake_sleep(); /* ranks ask in a loop, and others have something to do */
    fake_unlock();
    if (*error == ncclInProgress && apart)
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    fake_lock();
    comm->state = ENDS;
    fake_unlock();
    return comm->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    fake_lock();
    if (comm->first != NULL)
        fake_stop("rank %d ends a communicator that is at work", comm->rank);
    free_comm(comm, true);
    fake_unlock();
    return ncclSuccess;
}

/* The library may wait for what is queued on the device before it gives up the next. */
static void check_abort(const struct ncclComm *comm)
{
    for (const struct clique *c = all.cliques; c != NULL && !fake_is_grouped(); c = c->next)
        for (int i = 0; i < c->size; i++)
            if (c->members[i] != NULL && c->members[i] != comm && c->members[i]->first != NULL &&
                c->members[i]->device == comm->device)
                fake_stop("rank %d gives up one communicator, and waits for another's work: "
                          "they are given up in a group",
                          comm->rank);
}

/* What it has queued is over without having been done; its peers learn that it is gone. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    fake_lock();
    check_abort(comm);
    for (int i = 0; i < comm->clique->size; i++)
        if (comm->clique->members[i] != NULL && i != comm->rank && comm->first != NULL)
            comm->clique->members[i]->failure = ncclRemoteError;
    free_comm(comm, false);
    fake_wake();
    fake_unlock();
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->clique->size;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

bool fake_collective_fails(struct ncclComm *comm)
{
    if (!all.fails || (all.fail_device >= 0 && all.fail_device != comm->device) ||
        all.fail_after-- > 0)
        return false;
    all.fails = false;
    if (mail_is_apart(comm->clique))
        mail_fail(comm);
    for (int i = 0; i < comm->clique->size; i++)
        if (comm->clique->members[i] != NULL)
            comm->clique->members[i]->failure = i == comm->rank ? ncclSystemError : ncclRemoteError;
    return true;
}
