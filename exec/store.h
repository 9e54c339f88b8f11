/* exec/store.h: how ranks of a run find each other before anything else joins them, and how they
 * learn of each other's ends: rank 0 listens on a TCP port, the others connect and say the run's
 * token.
 *
 * Who a rank is stands in the environment: torchrun's RANK, WORLD_SIZE, LOCAL_RANK and
 * LOCAL_WORLD_SIZE; Open MPI's OMPI_COMM_WORLD_*; PMI_RANK and PMI_SIZE; Slurm's SLURM_PROCID,
 * SLURM_STEP_NUM_TASKS, SLURM_LOCALID: the first of these that is there. Where rank 0 is: MASTER_ADDR
 * and MASTER_PORT; MCP_PORT is another port, where a launcher listens on that one itself.
 * MCP_TOKEN is the token, else the launcher's name of the run; how often a run has begun again
 * (MCP_RESTART, TORCHELASTIC_RESTART_COUNT, SLURM_RESTART_COUNT) belongs to it. One rank needs
 * none of it. */
#ifndef MCP_EXEC_STORE_H
#define MCP_EXEC_STORE_H

#include "core/arena.h"
#include "core/error.h"

#include <stdbool.h>
#include <stdint.h>

struct mcp_store_place {
    int rank, size;
    int local_rank, local_size; /* of this machine's; -1, 0: unsaid */
    char address[256];          /* of rank 0 */
    int port;
    char token[128];
};
/* MCP_INVALID names what is missing or no number. */
enum mcp_status mcp_store_place_read(struct mcp_store_place *out, struct mcp_error *err);

/* A port of this machine that nobody listens on now, and letters that nobody can guess: for
 * who starts ranks. MCP_IO where the system gives none. */
enum mcp_status mcp_store_new_port(int *port, struct mcp_error *err);
enum mcp_status mcp_store_new_token(char token[33], struct mcp_error *err);

struct mcp_store;
/* Joins all ranks: all call it, and it returns when all are there. Nothing later takes longer
 * than timeout_s. Closed when the arena is freed. MCP_RUN_FAILURE says who is missing, or why a
 * rank is not let in; *out is there to be left all the same. */
enum mcp_status mcp_store_open(struct mcp_arena *arena, const struct mcp_store_place *place,
                               double timeout_s, struct mcp_store **out, struct mcp_error *err);
int mcp_store_rank(const struct mcp_store *store);
int mcp_store_size(const struct mcp_store *store);
/* Sentences say names[i] of the i-th rank from now on: [size], of the caller; NULL: i. */
void mcp_store_name_ranks(struct mcp_store *store, const int *names);

/* Rank 0's `bytes` bytes to all ranks. */
enum mcp_status mcp_store_share(struct mcp_store *store, void *data, int64_t bytes,
                                struct mcp_error *err);
/* `bytes` bytes of every rank to rank 0: all[size x bytes], there alone; NULL elsewhere. */
enum mcp_status mcp_store_gather(struct mcp_store *store, const void *own, int64_t bytes, void *all,
                                 struct mcp_error *err);
/* Sum ('+'), max ('>') or min ('<') of `count` numbers over all ranks, in the ranks' order, in
 * place. A rank that has ended is named. */
enum mcp_status mcp_store_agree(struct mcp_store *store, double *values, int count, char operation,
                                struct mcp_error *err);

/* --- ends --- */

/* While this rank waits for others by other means: has one ended without a word, or does one
 * fail? MCP_RUN_FAILURE says which. Looks ten times a second at most: call it often. */
enum mcp_status mcp_store_look(struct mcp_store *store, struct mcp_error *err);

/* Who is to blame for a rank's end, as far as it knows. */
enum mcp_store_fault {
    MCP_STORE_OWN,    /* the rank itself */
    MCP_STORE_WAITED, /* others: it has waited for them in vain */
    MCP_STORE_TOLD    /* others: it has heard of it while it waited */
};
struct mcp_store_end {
    enum mcp_status status;
    enum mcp_store_fault fault;
    const char *reason; /* where the status is not MCP_OK */
};
/* The last call: how this rank ends. Where ranks fail, rank 0 asks all for their reasons, waits
 * some seconds, and speaks for them: true, and the one sentence for the user in *err. A rank
 * that finds no rank 0 speaks for itself. */
bool mcp_store_leave(struct mcp_store *store, const struct mcp_store_end *end,
                     struct mcp_error *err);

#endif
