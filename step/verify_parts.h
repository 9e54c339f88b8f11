/* step/verify_parts.h: what the parts of the verifier share; private to
 * step/verify*.c.
 *
 * Blocks are judged once each and summed up as steps (verify_block.c). Every
 * class is then walked in list order: values and their lives (verify_walk.c,
 * verify_values.c). What remains of it are the events that couple classes:
 * messages and collectives that span classes, each with the events of its own
 * rank that must come before; those are matched and played (verify_play.c). */
#ifndef MCP_STEP_VERIFY_PARTS_H
#define MCP_STEP_VERIFY_PARTS_H

#include "core/arena.h"
#include "core/error.h"
#include "step/program.h"

#include <stdbool.h>
#include <stddef.h>

/* Queues as the verifier sees them: the streams of compute, tensor, context and
 * expert are joined at every block's ends, so they are one. */
enum mcp_lane { MCP_LANE_MAIN, MCP_LANE_DATA, MCP_LANE_COPY, MCP_LANE_CHANNEL, MCP_NUM_LANES };

/* What couples classes: the pipeline streams, in their order, and spanning collectives. */
enum mcp_channel {
    MCP_CHANNEL_SEND_NEXT,
    MCP_CHANNEL_RECEIVE_PREVIOUS,
    MCP_CHANNEL_SEND_PREVIOUS,
    MCP_CHANNEL_RECEIVE_NEXT,
    MCP_CHANNEL_MIRRORED_SEND_PREVIOUS,
    MCP_CHANNEL_MIRRORED_RECEIVE_NEXT,
    MCP_CHANNEL_MIRRORED_SEND_NEXT,
    MCP_CHANNEL_MIRRORED_RECEIVE_PREVIOUS,
    MCP_CHANNEL_SPAN,
    MCP_NUM_CHANNELS
};
/* Sends are the even ones, and lead to the next class or the previous one. */
static inline bool mcp_channel_sends(int channel)
{
    return channel < MCP_CHANNEL_SPAN && channel % 2 == 0;
}
static inline bool mcp_channel_is_next(int channel)
{
    return channel == MCP_CHANNEL_SEND_NEXT || channel == MCP_CHANNEL_RECEIVE_NEXT ||
           channel == MCP_CHANNEL_MIRRORED_SEND_NEXT ||
           channel == MCP_CHANNEL_MIRRORED_RECEIVE_NEXT;
}

enum mcp_access_kind {
    MCP_ACCESS_READ,
    MCP_ACCESS_WRITE,
    MCP_ACCESS_ACCUMULATE,
    MCP_ACCESS_CLEAR,
    MCP_ACCESS_WAIT /* for op `wait` of the same block, on another lane */
};

struct mcp_access {
    unsigned char kind;
    struct mcp_operand at;
    int op, wait;
};

/* A run of ops on the main lane, or one op of another lane, or one host op. */
struct mcp_verify_step {
    int op; /* the last */
    enum mcp_lane lane;
    int channel; /* enum mcp_channel, or -1 */
    bool host;
    int first_access, num_accesses;
};

struct mcp_block_summary {
    int num_steps;
    struct mcp_verify_step *steps;
    struct mcp_access *accesses;
};

/* Indices, ranges, streams, waits, hazards and the writing rule of all blocks. */
enum mcp_status mcp_verify_blocks(struct mcp_arena *scratch, const struct mcp_program *program,
                                  struct mcp_error *err);
void mcp_summarise_block(struct mcp_arena *arena, const struct mcp_block *block,
                         struct mcp_block_summary *out);
/* Does `op` add to what `at` holds, which it also writes? */
bool mcp_op_accumulates(const struct mcp_op *op, struct mcp_operand at);

/* Events that must be over, per channel. Clocks are numbered; 0 is the start. */
struct mcp_clock {
    int done[MCP_NUM_CHANNELS];
};
struct mcp_clocks {
    struct mcp_arena *arena;
    struct mcp_clock *items;
    size_t count, capacity;
};
struct mcp_clocks mcp_clocks_new(struct mcp_arena *arena);
int mcp_clock_add(struct mcp_clocks *clocks, struct mcp_clock clock);
/* The clock at which both have come. */
int mcp_clock_join(struct mcp_clocks *clocks, int a, int b);

struct mcp_event {
    int needs; /* clock */
    int slot, entry, op;
    int layer, microbatch; /* of the message's frame, which is .. */
    unsigned char index;   /* .. X or DX */
    unsigned char function, dtype, group;
    int64_t elements;
};
struct mcp_event_list {
    struct mcp_event *items;
    size_t count, capacity;
};
/* Of one class. */
struct mcp_class_events {
    struct mcp_event_list channels[MCP_NUM_CHANNELS];
};

/* What the walks of all classes share. */
struct mcp_verify {
    struct mcp_arena *arena;
    const struct mcp_program *program;
    struct mcp_block_summary *summaries; /* [type][role] */
    int max_block_ops;
    int frame_stride, layer_stride; /* buffers of the largest type */
    bool *gathered;                 /* [type][layer_stride]: a copy, written by gather blocks */
    bool *ends_input;               /* [type]: with forward */
    unsigned char *ran;             /* [layer][microbatch] bits, MCP_RAN */
    int *home;                      /* [layer] class x virtual_stages + chunk, -1: none yet */
    int *type_of;                   /* [layer], -1: none yet */
    int *num_backwards;             /* [layer] */
    int *num_optimised;             /* [layer] */
    struct mcp_clocks clocks;
    struct mcp_class_events *events; /* [class] */
    struct mcp_error *err;
};
#define MCP_RAN(role) (1u << (role)) /* of forward .. backward_weight */
#define MCP_RAN_RECOMPUTE (1u << 7)
unsigned char *mcp_verify_ran(const struct mcp_verify *verify, int layer, int microbatch);
/* Of an evaluation, which learns nothing. */
static inline bool mcp_is_forward_only(const struct mcp_layer_type *type)
{
    return type->blocks[MCP_BACKWARD].num_ops == 0 && type->blocks[MCP_OPTIMIZER].num_ops == 0;
}
/* The pass after which nothing more is done in a layer for a microbatch. */
static inline bool mcp_is_last_pass(const struct mcp_layer_type *type, int role)
{
    return role == MCP_BACKWARD || role == MCP_BACKWARD_WEIGHT ||
           (role == MCP_FORWARD && mcp_is_forward_only(type)) ||
           (role == MCP_BACKWARD_INPUT && type->blocks[MCP_BACKWARD_WEIGHT].num_ops == 0);
}
static inline bool mcp_is_compute_role(int role)
{
    return role <= MCP_BACKWARD_WEIGHT || role == MCP_RECOMPUTE;
}
/* Gradients that every microbatch's reduction empties, under ZeRO-2 and 3. */
static inline bool mcp_is_transient(const struct mcp_program *program, struct mcp_operand at)
{
    return at.space == MCP_SPACE_LAYER && program->plan.zero_stage >= 2 &&
           (at.index == MCP_LAYER_GRADIENTS || at.index == MCP_LAYER_EXPERT_GRADIENTS);
}

/* One class in list order: appends its events, marks what it ran. */
enum mcp_status mcp_verify_class(struct mcp_verify *verify, int class);
/* Messages and spanning collectives fit together, and nothing waits for ever. */
enum mcp_status mcp_verify_play(const struct mcp_verify *verify);

/* --- values of one class (verify_values.c) --- */

enum mcp_cell_state {
    MCP_CELL_EMPTY,
    MCP_CELL_VALID,
    MCP_CELL_CLEARED,
    MCP_CELL_ADDED,   /* to what was cleared */
    MCP_CELL_REDUCED, /* gradients that a reduce block has read */
    MCP_CELL_OVER     /* a frame after its last reader */
};
struct mcp_cell {
    int write_clock; /* of the last write */
    int read_clock;  /* of all reads since */
    int owner;       /* gathered copy: layer; transient gradient: microbatch */
    int reduced_by;  /* slot + 1 of the last reduce block that read it; 0: none */
    enum mcp_cell_state state;
};

/* Where the walk of a class is. */
struct mcp_walk {
    struct mcp_verify *verify;
    int class, slot, entry_index;
    const struct mcp_slot *the_slot;
    const struct mcp_entry *entry;
    const struct mcp_layer_type *type;
    int microbatch;
    /* order */
    int now; /* clock of what the op at hand waits for */
    int lanes[MCP_LANE_CHANNEL];
    int issue;                     /* clock of the last host op */
    int *op_clock;                 /* [max_block_ops] of this entry's ops beside the main lane */
    struct mcp_entry last_compute; /* role, layer of the last forward, backward or recompute */
    int last_compute_microbatch;
    int phase; /* 0 prologue, 1 passes, 2 epilogue */
    /* values */
    struct mcp_cell *rank;   /* [num_rank_buffers] */
    struct mcp_cell *layers; /* [num_layers + 1][layer_stride] */
    struct mcp_cell *copies; /* [256][layer_stride] */
    int *rows;               /* [num_layers + 2][num_microbatches] row of frames, or below 0 */
    struct mcp_cell *frames; /* [num_rows][frame_stride] */
    size_t num_rows, rows_capacity;
    int *free_rows;
    size_t num_free, free_capacity;
};

void mcp_values_new(struct mcp_walk *walk);
/* Judges one access; joins what it must wait for into walk->now. */
enum mcp_status mcp_value_check(struct mcp_walk *walk, const struct mcp_access *access);
/* Notes it, at walk->now. */
void mcp_value_note(struct mcp_walk *walk, const struct mcp_access *access);
/* The last pass of (layer, microbatch) is over; or a frame has had its last reader. */
void mcp_values_release(struct mcp_walk *walk, int layer, int microbatch);
void mcp_value_end(struct mcp_walk *walk, struct mcp_operand at);
/* At the end of the class: no gradient is left unreduced. */
enum mcp_status mcp_values_finish(struct mcp_walk *walk);

/* "class 1 slot 12 entry 3 op 5 (matmul_nn): ..." or, with op -1, "... entry 3
 * (backward): ..."; MCP_INVALID. */
enum mcp_status mcp_walk_fail(const struct mcp_walk *walk, int op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
