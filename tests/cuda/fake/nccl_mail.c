/* tests/cuda/fake/nccl_mail.c: communicators whose members are processes: what each of them
 * calls lies as a file in a folder that all can read.
 *
 * Files of a communicator begin with its name:
 *     NAME.rank.R      R is a member; locked as long as its process lives, "E" once it has ended
 *     NAME.split.N.R   what R asks of its N-th split
 *     NAME.call.N.R    R's share of the N-th collective
 *     NAME.sent.F.T.N  the N-th message from F to T, until T has taken it
 *     NAME.failed      a member has failed, and others notice such things
 * A file appears whole, by its renaming. */
#include "tests/cuda/fake/nccl_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 256 };

static bool notices;

void fake_set_notices(bool on)
{
    notices = on;
}

bool mail_is_apart(const struct clique *clique)
{
    return clique->name[0] != '\0';
}

/* --- files --- */

static void spell(char path[PATH], const struct clique *clique, const char *format, ...)
{
    char end[96];
    va_list args;
    va_start(args, format);
    vsnprintf(end, sizeof end, format, args);
    va_end(args);
    if (snprintf(path, PATH, "%s.%s", clique->name, end) >= PATH)
        fake_stop("the name of a communicator is too long");
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static void write_all(int file, const char *path, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t some = write(file, at, bytes);
        if (some <= 0)
            fake_stop("%s: %s", path, strerror(errno));
        at += some;
        bytes -= (size_t)some;
    }
}

/* Open for writing, under a name that nobody looks for. */
static int begin_file(const char *path, char hidden[PATH + 8])
{
    snprintf(hidden, PATH + 8, "%s.new", path);
    int file = open(hidden, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0)
        fake_stop("%s: %s", hidden, strerror(errno));
    return file;
}

static void show_file(const char *hidden, const char *path)
{
    if (rename(hidden, path) != 0)
        fake_stop("%s: %s", path, strerror(errno));
}

static void put(const char *path, const void *head, size_t head_bytes, const void *data,
                size_t bytes)
{
    char hidden[PATH + 8];
    int file = begin_file(path, hidden);
    write_all(file, path, head, head_bytes);
    write_all(file, path, data, bytes);
    close(file);
    show_file(hidden, path);
}

static void take(const char *path, void *head, size_t head_bytes, void *data, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    bool whole = file != NULL && fread(head, 1, head_bytes, file) == head_bytes &&
                 fread(data, 1, bytes, file) == bytes;
    if (!whole)
        fake_stop("%s is not there, or too short", path);
    fclose(file);
}

/* --- members --- */

void mail_join(struct ncclComm *comm)
{
    char path[PATH], hidden[PATH + 8];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    spell(path, comm->clique, "rank.%d", comm->rank);
    comm->lock = begin_file(path, hidden);
    fcntl(comm->lock, F_SETLK, &lock);
    show_file(hidden, path);
}

bool mail_is_whole(struct clique *clique)
{
    char path[PATH];
    for (; clique->here < clique->size; clique->here++) {
        spell(path, clique, "rank.%d", clique->here);
        if (!is_there(path))
            return false;
    }
    return true;
}

/* `well`: all that it has called is done. */
void mail_leave(struct ncclComm *comm, bool well)
{
    char path[PATH];
    spell(path, comm->clique, "rank.%d", comm->rank);
    if (well)
        write_all(comm->lock, path, "E", 1);
    close(comm->lock);
}

/* Its process is gone, and has not ended this. */
static bool is_lost(const char *path)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char end = 0;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return false;
    bool asked = fcntl(file, F_GETLK, &lock) == 0;
    bool ended = read(file, &end, 1) == 1;
    close(file);
    return asked && lock.l_type == F_UNLCK && !ended;
}

ncclResult_t mail_failure(const struct ncclComm *comm)
{
    char path[PATH];
    spell(path, comm->clique, "failed");
    bool found = notices && is_there(path);
    for (int i = 0; notices && !found && i < comm->clique->size; i++) {
        spell(path, comm->clique, "rank.%d", i);
        found = i != comm->rank && is_lost(path);
    }
    return found ? ncclRemoteError : ncclSuccess;
}

void mail_fail(const struct ncclComm *comm)
{
    char path[PATH];
    spell(path, comm->clique, "failed");
    put(path, NULL, 0, NULL, 0);
}

/* --- splits --- */

void mail_post_split(const struct ncclComm *comm, const struct split *split)
{
    char path[PATH];
    spell(path, comm->clique, "split.%d.%d", comm->round, comm->rank);
    put(path, split, sizeof *split, NULL, 0);
}

bool mail_take_splits(const struct ncclComm *comm)
{
    char path[PATH];
    struct clique *clique = comm->clique;
    for (int i = 0; i < clique->size; i++) {
        spell(path, clique, "split.%d.%d", comm->round, i);
        if (!is_there(path))
            return false;
        take(path, &clique->splits[i], sizeof clique->splits[i], NULL, 0);
    }
    return true;
}

void mail_name_child(const struct ncclComm *comm, struct clique *child)
{
    const struct clique *clique = comm->clique;
    int length = snprintf(child->name, sizeof child->name, "%s-%d.%d", clique->name, comm->round,
                          clique->splits[comm->rank].color);
    if (length >= (int)sizeof child->name)
        fake_stop("the name of a communicator is too long");
}

/* --- calls --- */

/* What stands before a share's numbers. */
struct head {
    enum piece_kind kind;
    ncclDataType_t type;
    ncclRedOp_t operation;
    int peer;
    size_t count;
};

static struct head head_of(const struct piece *p)
{
    struct head head;
    memset(&head, 0, sizeof head);
    head.kind = p->kind;
    head.type = p->type;
    head.operation = p->operation;
    head.peer = p->peer;
    head.count = p->count;
    return head;
}

static bool is_message(const struct piece *p)
{
    return p->kind == SEND || p->kind == RECEIVE;
}

/* Of a rank's share. */
static size_t share_bytes(const struct clique *clique, const struct piece *p, int rank)
{
    size_t bytes = p->count * type_bytes(p->type);
    if (p->kind == REDUCE_SCATTER)
        return bytes * (size_t)clique->size;
    return p->kind == BROADCAST && rank != p->peer ? 0 : bytes;
}

/* Where a message lies, or a rank's share of a collective. */
static void spell_piece(char path[PATH], const struct ncclComm *comm, const struct piece *p,
                        int rank)
{
    if (p->kind == SEND)
        spell(path, comm->clique, "sent.%d.%d.%ld", comm->rank, p->peer, p->number);
    else if (p->kind == RECEIVE)
        spell(path, comm->clique, "sent.%d.%d.%ld", p->peer, comm->rank, p->number);
    else
        spell(path, comm->clique, "call.%ld.%d", p->number, rank);
}

static void post(struct bundle *b)
{
    char path[PATH];
    for (int i = 0; !b->posted && i < b->num_pieces; i++) {
        const struct piece *p = &b->pieces[i];
        const struct head head = head_of(p);
        if (p->kind == RECEIVE)
            continue;
        spell_piece(path, b->comm, p, b->comm->rank);
        put(path, &head, sizeof head, p->from, share_bytes(b->comm->clique, p, b->comm->rank));
    }
    b->posted = true;
}

static bool is_ready(const struct ncclComm *comm, const struct piece *p)
{
    char path[PATH];
    int members = is_message(p) ? 1 : comm->clique->size;
    for (int i = 0; i < members; i++) {
        spell_piece(path, comm, p, i);
        if (is_there(path) == (p->kind == SEND))
            return false;
    }
    return true;
}

/* What has come to its stream's head is shown to the others. */
struct piece *mail_find_ready(struct bundle *b)
{
    post(b);
    for (int i = 0; i < b->num_pieces; i++)
        if (!b->pieces[i].done && is_ready(b->comm, &b->pieces[i]))
            return &b->pieces[i];
    return NULL;
}

static void check_heads(const struct ncclComm *comm, const struct head *mine,
                        const struct head *theirs, int rank)
{
    bool same = mine->count == theirs->count && mine->type == theirs->type;
    if (mine->kind != RECEIVE)
        same = same && memcmp(mine, theirs, sizeof *mine) == 0;
    if (!same)
        fake_stop("rank %d has called %s of %zu (type %d), rank %d %s of %zu (type %d)", comm->rank,
                  piece_names[mine->kind], mine->count, mine->type, rank, piece_names[theirs->kind],
                  theirs->count, theirs->type);
}

static void receive(const struct ncclComm *comm, const struct piece *p)
{
    char path[PATH];
    struct head head;
    const struct head mine = head_of(p);
    spell_piece(path, comm, p, 0);
    take(path, &head, sizeof head, NULL, 0);
    check_heads(comm, &mine, &head, p->peer);
    take(path, &head, sizeof head, p->to, p->count * type_bytes(p->type));
    unlink(path);
}

static char *fetch_share(const struct ncclComm *comm, const struct piece *mine, int rank)
{
    char path[PATH];
    struct head head;
    const struct head own = head_of(mine);
    const size_t bytes = share_bytes(comm->clique, mine, rank);
    spell_piece(path, comm, mine, rank);
    take(path, &head, sizeof head, NULL, 0);
    check_heads(comm, &own, &head, rank);
    char *share = malloc(bytes + 1);
    take(path, &head, sizeof head, share, bytes);
    return share;
}

static void join_collective(const struct ncclComm *comm, const struct piece *mine)
{
    struct piece all[FAKE_MAX_DEVICES], *pieces[FAKE_MAX_DEVICES] = {NULL};
    char *shares[FAKE_MAX_DEVICES];
    const int size = comm->clique->size;
    for (int i = 0; i < size; i++) {
        shares[i] = fetch_share(comm, mine, i);
        all[i] = *mine;
        all[i].from = shares[i];
        pieces[i] = &all[i];
    }
    do_collective(pieces, size, comm->rank);
    for (int i = 0; i < size; i++)
        free(shares[i]);
}

/* All members have come to this bundle, so that nobody reads what was before it. */
static void sweep(struct ncclComm *comm, const struct bundle *b)
{
    char path[PATH];
    long first = b->pieces[0].number;
    for (; comm->swept < first; comm->swept++) {
        spell(path, comm->clique, "call.%ld.%d", comm->swept, comm->rank);
        unlink(path);
    }
}

void mail_do(struct bundle *b, struct piece *mine)
{
    mine->done = true;
    if (mine->kind == RECEIVE)
        receive(b->comm, mine);
    if (is_message(mine))
        return;
    join_collective(b->comm, mine);
    sweep(b->comm, b);
}
