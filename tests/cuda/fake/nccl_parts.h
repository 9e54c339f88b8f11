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
};

enum comm_state { READY, STARTS, SPLITS, QUEUES, ENDS };
struct split;

struct clique {
    struct clique *next;
    char id[64]; /* "": of a split */
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
};

bool fake_is_grouped(void); /* the calling thread is between ncclGroupStart() and ncclGroupEnd() */
/* With the lock held. */
void queue_bundles(struct ncclComm *comm);
void pop_bundle(struct ncclComm *comm);
bool fake_collective_fails(struct ncclComm *comm);
/* Does one piece on all members; member i's is pieces[i]. */
void do_collective(struct piece *const *pieces, int members);
size_t type_bytes(ncclDataType_t type);

#endif
