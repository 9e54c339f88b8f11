/* tests/cuda/fake/nccl_parts.h: communicators and what they have queued. */
#ifndef TESTS_CUDA_NCCL_PARTS_H
#define TESTS_CUDA_NCCL_PARTS_H

#include "nccl.h"
#include "tests/cuda/fake/parts.h"

enum piece_kind { ALL_REDUCE, REDUCE, BROADCAST, REDUCE_SCATTER, ALL_GATHER, SEND, RECEIVE };
extern const char *const piece_names[];

/* One call. */
struct piece {
    enum piece_kind kind;
    const char *from;
    char *to;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t operation;
    int peer;    /* of a message; root of the others */
    long number; /* of the communicator's collectives, or of messages from there to here */
    bool done;
};

/* Calls of one communicator that start together, and are one op of a stream. */
struct bundle {
    struct bundle *next;
    struct ncclComm *comm; /* NULL: given up */
    struct CUstream_st *stream;
    struct fake_op *op; /* NULL: not yet queued */
    struct piece *pieces;
    int num_pieces;
    bool posted; /* to members in other processes */
};

enum comm_state { READY, STARTS, SPLITS, QUEUES, ENDS };
struct split {
    int color, key;
};

struct clique {
    struct clique *next;
    char id[128];   /* "": of a split */
    char name[160]; /* members are processes, and their files begin so; "": threads of this one */
    int size, here;
    struct ncclComm **members;
    struct split *splits;
    int asked, rounds; /* of splits */
};

struct ncclComm {
    struct clique *clique;
    int rank, device;
    bool blocking;
    enum comm_state state;
    ncclResult_t failure;
    struct ncclComm *child, **child_out;
    int round;
    struct bundle *first, **tail; /* not over, in order */
    long collectives, *sent, *received;
    int lock; /* of members that are processes */
    long swept;
};

bool fake_is_grouped(void); /* the calling thread is between ncclGroupStart() and ncclGroupEnd() */
/* With the lock held. */
void queue_bundles(struct ncclComm *comm);
void pop_bundle(struct ncclComm *comm);
bool fake_collective_fails(struct ncclComm *comm);
/* Does one piece on all members, or for member `only`, if >= 0; member i's is pieces[i]. */
void do_collective(struct piece *const *pieces, int members, int only);
size_t type_bytes(ncclDataType_t type);

/* nccl_mail.c: members that are processes of their own. */
bool mail_is_apart(const struct clique *clique);
void mail_join(struct ncclComm *comm);
bool mail_is_whole(struct clique *clique);
void mail_leave(struct ncclComm *comm, bool well);
ncclResult_t mail_failure(const struct ncclComm *comm); /* of others, as far as one notices */
void mail_fail(const struct ncclComm *comm);
void mail_post_split(const struct ncclComm *comm, const struct split *split);
bool mail_take_splits(const struct ncclComm *comm); /* false: not all have asked */
void mail_name_child(const struct ncclComm *comm, struct clique *child);
/* What of a bundle at its stream's head may run; NULL: nothing yet. */
struct piece *mail_find_ready(struct bundle *b);
void mail_do(struct bundle *b, struct piece *mine);

#endif
