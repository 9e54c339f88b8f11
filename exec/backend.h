/* exec/backend.h: the seam: what the interpreter asks of a machine.
 *
 * Above it, written once: the interpreter, data, checkpoints, monitoring. Below it a
 * backend: memory, streams, kernels by function, collectives by axes, a clock.
 *
 * Streams. Each of enum mcp_stream is a first-in first-out queue. A ticket names the
 * state of a stream after everything queued on it so far. mcp_backend_calls.launch()
 * queues one op; before it the interpreter has said, with wait(), which tickets of
 * other streams must be reached first. A backend may run an op at once when its waits
 * are reached (a CPU's compute stream does), later, or beside others. Host functions
 * (enum mcp_code MCP_HOST) have done what they do on the host when launch() returns, after
 * all their waits; what they write is there for ops that come later on their stream.
 *
 * Values. An op's operands come resolved: addresses in the backend's memory. What an
 * op means is its function, dtype and dimensions (step/function.h), the facts of its
 * layer type, and where this rank sits in the mesh. Nothing else is looked at.
 *
 * Transfers, over the k ranks of the op's group in the order of mcp_group_members():
 *   dims[0] is n, elements of the full-size buffer; dims[2] the first of them in a buffer
 *   that holds more; dims[3] the shard's first in its own buffer, where that is another.
 *   Elements are of the op's dtype. An all_reduce with dims[4] = n is of this rank's shard,
 *   of dims[0] elements and over data x context, of n sharded in place. A send or receive of
 *   less than its buffer is this tensor rank's part of it: as many elements from at.tensor x
 *   dims[0] on.
 *   A shard is contiguous: with q = ceil(n / k), member i holds [i q, min(n, (i + 1) q)):
 *   the last may be short, or empty.
 *   all_gather, reduce_scatter: reads[0] == writes[0] means in place: the shard lies at its
 *   own offset in the whole. all_to_all: block i of k to member i, as they lie.
 *   all_to_all_v: reads[1] are the sizes that expert_counts left: i32 rows this rank has
 *   for each expert, [experts]; then, which the backend fills in by exchange, rows that
 *   each member has for each expert of this rank, [k][experts / k]. With delta 1 rows
 *   sorted by expert go to the ranks of their experts, where they lie by expert, then by
 *   member; with delta -1 they come back. dims[0] is expected rows x columns, dims[2] the
 *   columns.
 *   A reduce_scatter into another buffer of kind gradient adds to what that holds, and
 *   clears what it read: gradients that are whole for one microbatch only (ZeRO-2, 3).
 *   Sums depend on the members' values and order alone: equal inputs give equal bits. On CPUs
 *   they are taken in the order of the members, in fp32, under every ZeRO stage alike; on GPUs
 *   in NCCL's order, in the format that travels: alike where its algorithm is the same. */
#ifndef MCP_EXEC_BACKEND_H
#define MCP_EXEC_BACKEND_H

#include "core/error.h"
#include "core/mesh.h"
#include "step/program.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one step's scalars are, alike on all ranks; kept by the interpreter's owner. */
struct mcp_step_inputs {
    int64_t step;             /* from 0 */
    int64_t updates;          /* steps before this one that moved weights: into first moments */
    int64_t variance_updates; /* ... into second moments, which 1-bit Adam freezes */
    double learning_rate;     /* of this step */
    double beta1, beta2, epsilon, weight_decay;
    double clip_norm;  /* 0: none */
    double loss_scale; /* of fp16; 1 otherwise */
    int64_t tokens;    /* of the whole batch: what the loss is a mean over */
};

/* What came of it. Host functions of the epilogue fill it. */
struct mcp_step_outputs {
    double loss;      /* mean over the batch; on every rank */
    double grad_norm; /* global, before clipping, loss scale taken out */
    bool skipped;     /* a gradient was not finite: no weight moved */
};

/* Where tokens come from: rows of a batch, as the interpreter's owner sees them. */
struct mcp_batch {
    /* ids[sequence_length + 1] of sequence `index` of this step's global batch. */
    const int32_t *(*sequence)(void *context, int64_t index);
    void *context;
};

struct mcp_rank {
    const struct mcp_program *program;
    int rank;                 /* of the world */
    struct mcp_coordinate at; /* its place in the mesh */
    struct mcp_step_inputs inputs;
    struct mcp_step_outputs outputs;
    const struct mcp_batch *batch;
};

/* One op of one entry, resolved. */
struct mcp_launch {
    const struct mcp_op *op;
    const struct mcp_layer_type *type;
    struct mcp_rank *rank;
    int layer, microbatch;
    void *reads[MCP_MAX_READS];
    void *writes[MCP_MAX_WRITES];
    int64_t read_bytes[MCP_MAX_READS]; /* sizes of the buffers behind them */
    int64_t write_bytes[MCP_MAX_WRITES];
};

struct mcp_ticket {
    unsigned char stream; /* enum mcp_stream */
    int64_t number;       /* ops queued on it so far; 0 is always reached */
};

/* A span on a stream, in seconds of clock(). */
struct mcp_op_times {
    double start_s, end_s;
};

/* AdamW's last step of fp32 weights (the master where there is one) and their moments. */
struct mcp_step_taken {
    const float *weights, *first, *second;
    int64_t elements;
    double rate, decay, epsilon;
    double correction1, correction2; /* 1 / (1 - beta^t) */
    bool frozen;                     /* what has no variance did not move */
};

struct mcp_histogram;
struct mcp_backend; /* the instance of one rank; defined by the backend */

struct mcp_backend_calls {
    const char *name; /* "cpu", "cuda" */

    /* Has it a kernel for the function at that dtype? Asked before anything runs. */
    bool (*supports)(enum mcp_function function, enum mcp_dtype dtype);

    /* One block for all of a rank's buffers, `bytes` long, filled with NaN patterns so
     * that reading what nobody wrote shows. MCP_RUN_FAILURE with one sentence when it is not to
     * be had. Freed by close(). */
    enum mcp_status (*allocate)(struct mcp_backend *backend, int64_t bytes, void **memory,
                                struct mcp_error *err);
    /* Host copies, synchronous, for weights, checkpoints and statistics. */
    void (*read)(struct mcp_backend *backend, const void *memory, void *host, int64_t bytes);
    void (*write)(struct mcp_backend *backend, void *memory, const void *host, int64_t bytes);
    /* What monitors ask of memory that is slow to read; NULL: the owner reads and adds up itself.
     * Synchronous. sums[0], sums[1]: sum and sum of squares of `elements` numbers of a floating
     * dtype; of weights as they are, and of what the step moved them by. */
    void (*moments)(struct mcp_backend *backend, const void *memory, enum mcp_dtype dtype,
                    int64_t elements, double *sums);
    void (*step_squares)(struct mcp_backend *backend, const struct mcp_step_taken *step,
                         double *sums);
    /* Adds the numbers to a histogram (exec/events.h). */
    void (*histogram)(struct mcp_backend *backend, const void *memory, enum mcp_dtype dtype,
                      int64_t elements, struct mcp_histogram *histogram);

    /* The next op queued on `stream` starts after `ticket`. */
    void (*wait)(struct mcp_backend *backend, enum mcp_stream stream, struct mcp_ticket ticket);
    /* Queues an op on its stream. MCP_RUN_FAILURE names what failed: a peer lost, memory, a
     * function that the backend lacks. */
    enum mcp_status (*launch)(struct mcp_backend *backend, const struct mcp_launch *launch,
                              struct mcp_ticket *ticket, struct mcp_error *err);
    bool (*reached)(struct mcp_backend *backend, struct mcp_ticket ticket);
    /* Returns when all streams are empty, or a transfer failed or timed out. */
    enum mcp_status (*finish)(struct mcp_backend *backend, struct mcp_error *err);

    /* Times of the op behind a ticket, once reached; false if they were not kept. */
    bool (*times)(struct mcp_backend *backend, struct mcp_ticket ticket, struct mcp_op_times *out);
    double (*clock)(struct mcp_backend *backend);

    /* Collectives of the owner, outside programs: checkpoints' votes, statistics. All
     * ranks call them in one order. op: sum, max or min of `count` doubles in place. */
    enum mcp_status (*agree)(struct mcp_backend *backend, double *values, int count, char op,
                             struct mcp_error *err);
    void (*close)(struct mcp_backend *backend);
};

#endif
