/* step/pool.h: where every buffer instance of a rank lies in one block of memory.
 *
 * Walks the slots of a program class once, as the planner's memory does (step/memory.c):
 *   rank and layer buffers last; gathered weights that are gathered again share two places
 *   (an entry names its copy), gradients that one microbatch's reduction empties two more;
 *   frames live from their first write to the last mention in the last pass of their layer
 *   and microbatch, an input that no later pass reads until its forward ends; X and DX that
 *   a message brings from the start of its slot, those that one takes away until it is sent;
 *   block scratch from first to last mention.
 * Frames of equal size take over each other's places exactly. Scratch of a block is laid out
 * by intervals of its ops: two values that never live at once may share bytes, and what
 * comes later then waits for what was there before (mcp_pool_waits()).
 *
 * Places that share bytes with another instance over time share a cell: whoever tracks
 * hazards by cell needs to know nothing else. */
#ifndef MCP_STEP_POOL_H
#define MCP_STEP_POOL_H

#include "core/arena.h"
#include "core/error.h"
#include "step/program.h"

#include <stdint.h>

struct mcp_pool; /* of one program class */

struct mcp_place {
    int64_t offset; /* in the block, a multiple of MCP_POOL_ALIGNMENT */
    int64_t bytes;  /* of the buffer; 0: there is none */
    int cell;       /* 0 .. mcp_pool_cells() - 1; -1: block scratch */
};
#define MCP_POOL_ALIGNMENT 64

/* The program must be verified. Owned by the arena. MCP_INVALID: sizes that overflow. */
enum mcp_status mcp_pool_new(struct mcp_arena *arena, const struct mcp_program *program, int class,
                             struct mcp_pool **out, struct mcp_error *err);

/* Where `operand` of an entry of the class lies. */
struct mcp_place mcp_pool_place(const struct mcp_pool *pool, const struct mcp_entry *entry,
                                int microbatch, struct mcp_operand operand);
/* A buffer that lasts: of a layer, or with layer < 0 of the rank. */
struct mcp_place mcp_pool_lasting(const struct mcp_pool *pool, int layer, int index);

/* Places of gradients that one microbatch's reduction empties: they start out zero. */
int mcp_pool_turns(const struct mcp_pool *pool, const struct mcp_place **places);
/* The type of a layer that the class runs; -1: it does not. */
int mcp_pool_type(const struct mcp_pool *pool, int layer);

/* Further earlier ops of the block that op must wait for, since it takes over the bytes
 * of scratch that they used on other streams; returns how many. */
int mcp_pool_waits(const struct mcp_pool *pool, int type, int role, int op,
                   const unsigned short **waits);

int mcp_pool_cells(const struct mcp_pool *pool);
/* Bytes of the block. */
int64_t mcp_pool_bytes(const struct mcp_pool *pool);
/* The most bytes that live at once: the planner's peak without its reserve. */
int64_t mcp_pool_peak_bytes(const struct mcp_pool *pool);

#endif
