/* exec/interpret.h: runs a program on one rank: the only loop over slots.
 *
 * For each entry, each op: resolve the operands, wait, launch, record. Waits inside a
 * block are the program's. Across entries an operand waits for the last write of its
 * instance, and a write for its readers too; instances that take turns in one place of
 * memory (step/pool.h) count as one. Tensor, context and expert streams join compute at
 * the ends of a block. Host ops block.
 *
 * It knows no layer, degree, recompute, ZeRO stage or schedule. */
#ifndef MCP_EXEC_INTERPRET_H
#define MCP_EXEC_INTERPRET_H

#include "core/arena.h"
#include "exec/backend.h"
#include "step/pool.h"
#include "step/timeline.h"

struct mcp_interpreter;

enum { MCP_INTERPRET_OTHERS = 2 };

struct mcp_interpret_options {
    bool timeline; /* keep the spans of every step */
    /* what mcp_interpreter_turn() turns to beside the rank's own; NULL: nothing */
    const struct mcp_program *others[MCP_INTERPRET_OTHERS];
    /* Told of every op once it is queued; one of compute has run where compute runs at once.
     * NULL: nobody. */
    void (*look)(void *look_context, enum mcp_block_role role, const struct mcp_launch *launch);
    void *look_context;
};

/* Asks the backend for every function of the program, and of those to turn to, and takes
 * the rank's memory: enough for any of them.
 * MCP_INVALID with one sentence: the first function that the backend lacks, and what of
 * the layer it is, or what the programs keep differently; MCP_RUN_FAILURE: no memory.
 * All must outlive the interpreter. */
enum mcp_status mcp_interpreter_new(struct mcp_arena *arena, struct mcp_rank *rank,
                                    const struct mcp_backend_calls *calls,
                                    struct mcp_backend *backend,
                                    const struct mcp_interpret_options *options,
                                    struct mcp_interpreter **out, struct mcp_error *err);

/* From the next step on the rank runs options->others[which - 1], or for 0 what it began with,
 * with what lasts where it is: all programs keep the same buffers of the same layers. Between
 * steps; every frame is lost. */
void mcp_interpreter_turn(struct mcp_interpreter *interpreter, int which);

/* One step with the rank's inputs; fills its outputs. Every stream is empty at the end. */
enum mcp_status mcp_interpret_step(struct mcp_interpreter *interpreter, struct mcp_error *err);

/* Bytes that live at once on the rank, as planned: the most of all the programs it may turn to. */
int64_t mcp_interpreter_peak_bytes(const struct mcp_interpreter *interpreter);
/* How the rank's memory is laid out. */
const struct mcp_pool *mcp_interpreter_pool(const struct mcp_interpreter *interpreter);

/* A buffer that lasts from step to step: of a layer this rank holds (enum MCP_LAYER_*), or
 * of the rank (layer < 0, enum MCP_RANK_*). Address in the backend's memory for its read()
 * and write(); NULL and 0 bytes where there is none. */
void *mcp_interpreter_buffer(const struct mcp_interpreter *interpreter, int layer, int index,
                             int64_t *bytes);

/* When the last step began, by the backend's clock. */
double mcp_interpreter_start(const struct mcp_interpreter *interpreter);
/* Spans of the last step in issue order; of one rank. */
void mcp_interpreter_timeline(const struct mcp_interpreter *interpreter, struct mcp_arena *arena,
                              struct mcp_timeline *out);

#endif
