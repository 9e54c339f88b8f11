/* tests/cuda/fake/nccl_calls.c: collectives and messages: groups of calls as ops of streams. */
#include "tests/cuda/fake/nccl_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MEMBERS = FAKE_MAX_DEVICES };

const char *const piece_names[] = {"all_reduce", "reduce", "broadcast", "reduce_scatter",
                                   "all_gather", "send",   "receive"};

/* --- who meets whom --- */

static bool is_message(const struct piece *p)
{
    return p->kind == SEND || p->kind == RECEIVE;
}

static bool is_partner(const struct piece *mine, int rank, const struct piece *theirs)
{
    if (!is_message(mine))
        return !is_message(theirs) && theirs->number == mine->number;
    return theirs->kind == (mine->kind == SEND ? RECEIVE : SEND) && theirs->peer == rank &&
           theirs->number == mine->number;
}

/* The bundle of a member that holds the partner of a piece; NULL: not yet called. */
static struct bundle *find_partner(const struct ncclComm *comm, const struct piece *mine,
                                   const struct ncclComm *member, struct piece **out)
{
    for (struct bundle *b = member->first; b != NULL; b = b->next)
        for (int i = 0; i < b->num_pieces; i++)
            if (is_partner(mine, comm->rank, &b->pieces[i])) {
                *out = &b->pieces[i];
                return b;
            }
    return NULL;
}

static bool is_active(const struct bundle *b)
{
    return b == b->comm->first && b->op != NULL && b->stream->head == b->op;
}

/* Partners of a piece, by member; how many members take part; 0: not all are there. */
static int gather(const struct bundle *b, struct piece *mine, struct piece **pieces)
{
    const struct clique *clique = b->comm->clique;
    bool message = is_message(mine);
    int members = message ? 1 : clique->size;
    for (int i = 0; i < members; i++) {
        const struct ncclComm *member = clique->members[message ? mine->peer : i];
        const struct bundle *theirs =
            member == NULL ? NULL : find_partner(b->comm, mine, member, &pieces[i]);
        if (theirs == NULL || theirs->comm->failure != ncclSuccess || !is_active(theirs))
            return 0;
    }
    return members;
}

static void check_pieces(const struct bundle *b, const struct piece *mine,
                         struct piece *const *pieces, int members)
{
    for (int i = 0; i < members; i++) {
        const struct piece *p = pieces[i];
        bool same = p->count == mine->count && p->type == mine->type;
        if (!is_message(mine))
            same = same && p->kind == mine->kind && p->operation == mine->operation &&
                   p->peer == mine->peer;
        if (!same)
            fake_stop("rank %d has called %s of %zu (type %d), rank %d %s of %zu (type %d)",
                      b->comm->rank, piece_names[mine->kind], mine->count, mine->type,
                      is_message(mine) ? mine->peer : i, piece_names[p->kind], p->count, p->type);
    }
}

static void do_piece(const struct bundle *b, struct piece *mine, struct piece **pieces, int members)
{
    check_pieces(b, mine, pieces, members);
    mine->done = true;
    for (int i = 0; i < members; i++)
        pieces[i]->done = true;
    if (!is_message(mine)) {
        do_collective(pieces, members, -1);
        return;
    }
    const struct piece *send = mine->kind == SEND ? mine : pieces[0];
    const struct piece *receive = mine->kind == SEND ? pieces[0] : mine;
    memmove(receive->to, send->from, send->count * type_bytes(send->type));
}

/* --- as ops --- */

static struct piece *find_ready(struct bundle *b, struct piece **pieces, int *members)
{
    if (b->comm == NULL || b->comm->failure != ncclSuccess || !is_active(b))
        return NULL;
    if (mail_is_apart(b->comm->clique))
        return mail_find_ready(b);
    for (int i = 0; i < b->num_pieces; i++)
        if (!b->pieces[i].done && (*members = gather(b, &b->pieces[i], pieces)) > 0)
            return &b->pieces[i];
    return NULL;
}

static bool can_run(const struct fake_op *op)
{
    struct piece *pieces[MAX_MEMBERS];
    int members;
    return find_ready(op->closure, pieces, &members) != NULL;
}

static void run(struct fake_op *op)
{
    struct bundle *b = op->closure;
    struct piece *pieces[MAX_MEMBERS];
    int members;
    struct piece *mine = find_ready(b, pieces, &members);
    if (mail_is_apart(b->comm->clique))
        mail_do(b, mine);
    else
        do_piece(b, mine, pieces, members);
}

static bool is_over(const struct fake_op *op)
{
    const struct bundle *b = op->closure;
    for (int i = 0; b->comm != NULL && i < b->num_pieces; i++)
        if (!b->pieces[i].done)
            return false;
    return true;
}

static void free_bundle(struct bundle *b)
{
    free(b->pieces);
    free(b);
}

static void drop(struct fake_op *op)
{
    struct bundle *b = op->closure;
    struct ncclComm *comm = b->comm;
    if (comm != NULL && comm->first == b) {
        comm->first = b->next;
        if (comm->first == NULL)
            comm->tail = &comm->first;
    }
    free_bundle(b);
}

/* What a communicator has called before, and what the partners' have called up to theirs. */
static void need_up_to(const struct ncclComm *comm, const struct bundle *last)
{
    for (const struct bundle *b = comm->first; b != NULL; b = b == last ? NULL : b->next)
        if (b->op != NULL)
            fake_need(b->stream, b->op->position);
}

static void need(const struct fake_op *op)
{
    const struct bundle *b = op->closure;
    struct piece *piece;
    if (b->comm == NULL)
        return;
    const struct clique *clique = b->comm->clique;
    need_up_to(b->comm, b);
    for (int i = 0; i < b->num_pieces; i++)
        for (int m = 0; m < clique->size; m++) {
            const struct ncclComm *member = clique->members[m];
            if (member == NULL || (is_message(&b->pieces[i]) && m != b->pieces[i].peer))
                continue;
            need_up_to(member, find_partner(b->comm, &b->pieces[i], member, &piece));
        }
}

static void tell(const struct fake_op *op, char *text, size_t size)
{
    const struct bundle *b = op->closure;
    const struct piece *p = b->pieces;
    for (int i = 0; i < b->num_pieces; i++)
        if (!b->pieces[i].done) {
            p = &b->pieces[i];
            break;
        }
    if (b->comm == NULL)
        snprintf(text, size, "%s, given up", piece_names[p->kind]);
    else
        snprintf(text, size, "%s of %zu, member %d of %d, peer or root %d, number %ld%s",
                 piece_names[p->kind], p->count, b->comm->rank, b->comm->clique->size, p->peer,
                 p->number, b == b->comm->first ? "" : ", behind an earlier call");
}

static const struct fake_op_calls bundle_calls = {
    .can_run = can_run, .run = run, .is_over = is_over, .drop = drop, .need = need, .tell = tell};

/* The first of a communicator's that is not over: given up. */
void pop_bundle(struct ncclComm *comm)
{
    struct bundle *b = comm->first;
    comm->first = b->next;
    b->comm = NULL;
    if (b->op == NULL)
        free_bundle(b);
}

void queue_bundles(struct ncclComm *comm)
{
    struct bundle *next;
    for (struct bundle *b = comm->first; b != NULL; b = next) {
        next = b->next;
        if (b->op == NULL)
            fake_push_op(b->stream, &bundle_calls, FAKE_TRANSFER, b, &b->op);
    }
}

/* --- calls --- */

/* Groups of the calling thread. */
static _Thread_local struct {
    int depth;
    struct bundle *open; /* by communicator; not yet theirs */
} group;

static struct bundle *bundle_of(struct ncclComm *comm, struct CUstream_st *stream)
{
    struct bundle **at = &group.open;
    while (*at != NULL && (*at)->comm != comm)
        at = &(*at)->next;
    if (*at == NULL) {
        *at = calloc(1, sizeof **at);
        (*at)->comm = comm;
        (*at)->stream = stream;
    }
    if ((*at)->stream != stream)
        fake_stop("calls of one group and communicator are on two streams");
    return *at;
}

bool fake_is_grouped(void)
{
    return group.depth > 0;
}

/* fake_connect_early() */
static bool early;

void fake_connect_early(bool on)
{
    early = on;
}

/* Hosts that wait for each other connect two ranks when they first exchange something. */
static void check_connection(const struct ncclComm *comm, const struct piece *p)
{
    const bool is_new = comm->sent[p->peer] + comm->received[p->peer] == 0;
    if (early && is_new && fake_self()->joined && p->peer != comm->rank)
        fake_stop("rank %d is connected to member %d of %d in a step", comm->rank, p->peer,
                  comm->clique->size);
}

static long number_of(struct ncclComm *comm, const struct piece *p)
{
    if (!is_message(p))
        return comm->collectives++;
    check_connection(comm, p);
    return p->kind == SEND ? comm->sent[p->peer]++ : comm->received[p->peer]++;
}

/* What the group has gathered becomes the communicators', and ops where they block. */
static ncclResult_t close_group(void)
{
    ncclResult_t result = ncclSuccess;
    while (group.open != NULL) {
        struct bundle *b = group.open;
        group.open = b->next;
        b->next = NULL;
        *b->comm->tail = b;
        b->comm->tail = &b->next;
        if (b->comm->blocking) {
            queue_bundles(b->comm);
        } else {
            b->comm->state = QUEUES;
            result = ncclInProgress;
        }
    }
    return result;
}

static ncclResult_t call(struct ncclComm *comm, struct CUstream_st *stream, struct piece piece)
{
    fake_lock();
    ncclResult_t result = comm->failure;
    if (result == ncclSuccess && comm->state != READY)
        result = ncclInvalidArgument; /* its last call is not yet over */
    if (result == ncclSuccess && (piece.peer < 0 || piece.peer >= comm->clique->size))
        result = ncclInvalidArgument;
    if (result == ncclSuccess && fake_collective_fails(comm))
        result = comm->failure;
    if (result == ncclSuccess) {
        struct bundle *b = bundle_of(comm, fake_stream(stream));
        piece.number = number_of(comm, &piece);
        b->pieces = realloc(b->pieces, (size_t)(b->num_pieces + 1) * sizeof *b->pieces);
        b->pieces[b->num_pieces++] = piece;
        if (group.depth == 0)
            result = close_group();
    }
    fake_unlock();
    return result;
}

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (group.depth == 0)
        return ncclInvalidUsage;
    fake_lock();
    ncclResult_t result = --group.depth == 0 ? close_group() : ncclSuccess;
    fake_unlock();
    return result;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, stream,
                (struct piece){ALL_REDUCE, from, to, count, type, operation, 0, 0, false});
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, stream,
                (struct piece){REDUCE, from, to, count, type, operation, root, 0, false});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, stream,
                (struct piece){BROADCAST, from, to, count, type, ncclSum, root, 0, false});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t to_count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, stream,
                (struct piece){REDUCE_SCATTER, from, to, to_count, type, operation, 0, 0, false});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t from_count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, stream,
                (struct piece){ALL_GATHER, from, to, from_count, type, ncclSum, 0, 0, false});
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, stream,
                (struct piece){SEND, from, NULL, count, type, ncclSum, peer, 0, false});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return call(comm, stream,
                (struct piece){RECEIVE, NULL, to, count, type, ncclSum, peer, 0, false});
}
