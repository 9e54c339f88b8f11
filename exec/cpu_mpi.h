/* exec/cpu_mpi.h: messages between the ranks of a run: the door of MPI.
 *
 * A channel is a queue of messages of one stream over one set of mesh axes. Channels of
 * different streams never mix their messages; of the pipeline's four streams, what one
 * rank sends to the next the next receives from the previous. Messages posted on a channel
 * move on while it is tested; those of one pair of ranks arrive in the order of posting. */
#ifndef MCP_EXEC_CPU_MPI_H
#define MCP_EXEC_CPU_MPI_H

#include "core/arena.h"
#include "core/error.h"
#include "core/plan.h"
#include "step/program.h"

#include <stddef.h>

struct mcp_cpu_world; /* all ranks of the run */
struct mcp_cpu_channel;

/* Starts MPI; ended when the arena is freed. Once in a process. */
enum mcp_status mcp_cpu_world_open(struct mcp_arena *arena, int *argc, char ***argv,
                                   struct mcp_cpu_world **out, struct mcp_error *err);
int mcp_cpu_world_rank(const struct mcp_cpu_world *world);
int mcp_cpu_world_size(const struct mcp_cpu_world *world);
/* Seconds of a steady clock. */
double mcp_cpu_clock(void);
/* Ends the processes of all ranks with `code`; returns where there is but one. */
void mcp_cpu_world_abort(struct mcp_cpu_world *world, int code);

/* What is waited for longer than this has failed; 0: waits for ever. */
void mcp_cpu_world_limit(struct mcp_cpu_world *world, double timeout_s);
/* Does the rank run on the machine of this one? */
bool mcp_cpu_world_is_beside(const struct mcp_cpu_world *world, int rank);
/* A rank of this machine that runs no more, and why: "rank 1 (process 71) has been
 * stopped". False: all of them do. */
bool mcp_cpu_world_find_lost(const struct mcp_cpu_world *world, char *text, size_t size);

/* Sum ('+'), max ('>') or min ('<') of `count` numbers over all ranks, in place; blocks,
 * at most as long as the limit. */
enum mcp_status mcp_cpu_world_agree(struct mcp_cpu_world *world, double *values, int count,
                                    char operation, struct mcp_error *err);

/* All ranks open the same channels in the same order. NULL where this rank is in no group
 * of the axes, or alone in it. */
enum mcp_status mcp_cpu_channel_open(struct mcp_arena *arena, struct mcp_cpu_world *world,
                                     const struct mcp_plan *plan, unsigned axes,
                                     enum mcp_stream stream, struct mcp_cpu_channel **out,
                                     struct mcp_error *err);
/* Gives up all groups of ranks, for another plan in the same run; channels end with it. */
void mcp_cpu_world_forget(struct mcp_cpu_world *world);
int mcp_cpu_channel_size(const struct mcp_cpu_channel *channel);
int mcp_cpu_channel_index(const struct mcp_cpu_channel *channel); /* of this rank */
/* Another queue of messages over the same group and stream; and are two such? */
struct mcp_cpu_channel *mcp_cpu_channel_twin(struct mcp_arena *arena,
                                             const struct mcp_cpu_channel *channel);
bool mcp_cpu_channel_same(const struct mcp_cpu_channel *a, const struct mcp_cpu_channel *b);

/* Posts a message to or from member `peer`; nothing is done for 0 bytes. Memory belongs to
 * the message until a test says that all are done. */
enum mcp_status mcp_cpu_send(struct mcp_cpu_channel *channel, const void *from, int64_t bytes,
                             int peer, struct mcp_error *err);
enum mcp_status mcp_cpu_receive(struct mcp_cpu_channel *channel, void *to, int64_t bytes, int peer,
                                struct mcp_error *err);
/* Are all messages posted so far done? */
enum mcp_status mcp_cpu_test(struct mcp_cpu_channel *channel, bool *done, struct mcp_error *err);

#endif
