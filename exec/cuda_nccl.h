/* exec/cuda_nccl.h: collectives and messages between devices: the door of NCCL.
 *
 * A world joins all ranks of a run; a communicator some of them, numbered from 0. Calls do
 * not block: where the library is still at work the door waits, up to the world's limit, and
 * then gives up all communicators of the world (ncclCommAbort), so that no stream hangs. Every
 * failure is MCP_RUN_FAILURE with one sentence naming this rank and the library's reason.
 * A world of one rank needs no library: its communicators are NULL.
 *
 * Entry points of the library, all that is used of it:
 *   ncclGetUniqueId ncclCommInitRankConfig (NCCL_CONFIG_INITIALIZER, blocking 0)
 *   ncclCommSplit (NCCL_SPLIT_NOCOLOR; blocking 0, maxCTAs) ncclCommGetAsyncError
 *   ncclCommAbort (in a group: all communicators of this rank)
 *   ncclCommFinalize ncclCommDestroy ncclGroupStart ncclGroupEnd
 *   ncclAllReduce ncclReduceScatter ncclAllGather ncclBroadcast ncclReduce ncclSend ncclRecv
 *   (ncclFloat32 ncclBfloat16 ncclFloat16 ncclFloat64 ncclInt32 ncclUint8;
 *   ncclSum ncclMax ncclMin)
 *   ncclGetErrorString ncclGetLastError
 * of the results by name: ncclSuccess ncclInProgress. All may return ncclInProgress. */
#ifndef MCP_EXEC_CUDA_NCCL_H
#define MCP_EXEC_CUDA_NCCL_H

#include "core/arena.h"
#include "core/error.h"
#include "core/precision.h"

#include <stdbool.h>
#include <stdint.h>

/* What one rank makes and all others must have to join. */
struct mcp_nccl_id {
    char bytes[128];
};
enum mcp_status mcp_nccl_make_id(struct mcp_nccl_id *out, struct mcp_error *err);

struct mcp_nccl_world;
struct mcp_nccl_place {
    struct mcp_nccl_id id; /* unread for one rank */
    int rank, size;
    double timeout_s; /* 0: no limit */
    /* asked again and again while this rank waits: MCP_OK, or why that is in vain, upon which the
     * caller gives up; NULL: nobody */
    enum mcp_status (*look)(void *context, struct mcp_error *err);
    void *context;
};
/* Joins the world on the device that the calling thread has chosen: all ranks together. Ended
 * when the arena is freed. */
enum mcp_status mcp_nccl_world_open(struct mcp_arena *arena, const struct mcp_nccl_place *place,
                                    struct mcp_nccl_world **out, struct mcp_error *err);
int mcp_nccl_world_rank(const struct mcp_nccl_world *world);
int mcp_nccl_world_size(const struct mcp_nccl_world *world);
double mcp_nccl_world_timeout_s(const struct mcp_nccl_world *world);

struct mcp_nccl; /* a communicator; NULL: of this rank alone, or this rank is in none */
struct mcp_nccl_part {
    int color, key;  /* ranks of one color >= 0 make a communicator, ordered by key; < 0: none */
    int most_blocks; /* of threads that a call of it takes on the device; 0: the library's choice */
};
/* Of all ranks together, in one order. Of the world's arena. */
enum mcp_status mcp_nccl_split(struct mcp_nccl_world *world, const struct mcp_nccl_part *part,
                               struct mcp_nccl **out, struct mcp_error *err);
/* The world's own. */
struct mcp_nccl *mcp_nccl_everybody(struct mcp_nccl_world *world);
/* Ends all communicators but the world's, in order: for another plan in the same run. */
void mcp_nccl_world_forget(struct mcp_nccl_world *world);

enum mcp_nccl_type {
    MCP_NCCL_F32,
    MCP_NCCL_BF16,
    MCP_NCCL_F16,
    MCP_NCCL_F64,
    MCP_NCCL_I32,
    MCP_NCCL_U8
};
/* The type of a dtype that transfers have; false: there is none. */
bool mcp_nccl_type_of(enum mcp_dtype dtype, enum mcp_nccl_type *out);

/* What a collective works on. Operations: '+', '>' (largest), '<' (smallest). */
struct mcp_nccl_data {
    const void *from;
    void *to;
    int64_t elements;
    enum mcp_nccl_type type;
};

/* Each queues on `stream`. Elements: of the whole (all_reduce, broadcast, reduce), or of one
 * member's share (reduce_scatter, all_gather). In place as NCCL has it: the member's share lies
 * at its own place in the whole. */
enum mcp_status mcp_nccl_all_reduce(struct mcp_nccl *comm, const struct mcp_nccl_data *data,
                                    char operation, void *stream, struct mcp_error *err);
enum mcp_status mcp_nccl_reduce_scatter(struct mcp_nccl *comm, const struct mcp_nccl_data *data,
                                        void *stream, struct mcp_error *err);
enum mcp_status mcp_nccl_all_gather(struct mcp_nccl *comm, const struct mcp_nccl_data *data,
                                    void *stream, struct mcp_error *err);
enum mcp_status mcp_nccl_broadcast(struct mcp_nccl *comm, const struct mcp_nccl_data *data,
                                   int root, void *stream, struct mcp_error *err);
enum mcp_status mcp_nccl_reduce(struct mcp_nccl *comm, const struct mcp_nccl_data *data, int root,
                                void *stream, struct mcp_error *err);
enum mcp_status mcp_nccl_send(struct mcp_nccl *comm, const void *from, int64_t bytes, int peer,
                              void *stream, struct mcp_error *err);
enum mcp_status mcp_nccl_receive(struct mcp_nccl *comm, void *to, int64_t bytes, int peer,
                                 void *stream, struct mcp_error *err);

/* Calls between the two start together, all of one communicator: they may wait for each other.
 * The end waits until the library has queued them. */
enum mcp_status mcp_nccl_group_begin(struct mcp_nccl *comm, struct mcp_error *err);
enum mcp_status mcp_nccl_group_end(struct mcp_nccl *comm, struct mcp_error *err);

/* Has a communicator of the world failed since? Then all are given up. */
enum mcp_status mcp_nccl_check(struct mcp_nccl_world *world, struct mcp_error *err);
/* Gives up all communicators: what streams still hold of them ends with an error. Returns after
 * some seconds though the library should not. */
void mcp_nccl_abort(struct mcp_nccl_world *world);

/* Whose doing a failure is, as far as this rank knows. */
enum mcp_nccl_fault {
    MCP_NCCL_OWN,
    MCP_NCCL_PEERS, /* NCCL says so */
    MCP_NCCL_LATE,  /* others have been waited for in vain */
    MCP_NCCL_TOLD   /* place->look has said why */
};
enum mcp_nccl_fault mcp_nccl_fault_of(const struct mcp_nccl_world *world);
/* The limit has passed while this rank waited for `what`: gives up all communicators. */
enum mcp_status mcp_nccl_give_up(struct mcp_nccl_world *world, const char *what,
                                 struct mcp_error *err);

#endif
