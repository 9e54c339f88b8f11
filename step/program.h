/* step/program.h: one training step under a plan, as data.
 *
 * Three interpreters share it: the planner adds it up, the simulator plays it,
 * the executor runs it. None of them knows what a layer, ZeRO or recompute is.
 *
 *   program     slots of every program class (one per pipeline coordinate)
 *   slot        (chunk, microbatch, pass) and an ordered list of entries
 *   entry       one block of one layer for one microbatch
 *   block       ordered ops of one pass of one layer: never a whole chunk
 *   layer type  the blocks of equal layers and the buffer table they share
 *   op          one kernel, transfer or host action
 *
 * List order is issue order. An op never holds a rank's coordinate: functions
 * take what depends on it (zigzag halves, vocabulary ranges) from the mesh.
 *
 * Waits. Inside a block an op names the earlier ops it waits for. Across entries
 * none is stored: an operand outside block space waits for the last write of its
 * instance, a write also for its readers. Streams are FIFO. Blocks are closed:
 * tensor, context and expert streams join compute at a block's start and end;
 * only pipeline, data and copy streams cross. */
#ifndef MCP_STEP_PROGRAM_H
#define MCP_STEP_PROGRAM_H

#include "core/plan.h"
#include "core/precision.h"
#include "step/facts.h"
#include "step/function.h"

#include <stdbool.h>
#include <stdint.h>

/* In-order queues of one rank. Pipeline transfers need four, each with its own
 * communicator: with one or two, valid schedules deadlock. Where stages lie there and back
 * (MCP_PLACEMENT_V) they need four for either direction of chunks. */
enum mcp_stream {
    MCP_STREAM_COMPUTE,
    MCP_STREAM_TENSOR,
    MCP_STREAM_CONTEXT,
    MCP_STREAM_EXPERT,
    MCP_STREAM_DATA,
    MCP_STREAM_COPY,
    MCP_STREAM_SEND_NEXT, /* forwards; and backwards by send_previous */
    MCP_STREAM_RECEIVE_PREVIOUS,
    MCP_STREAM_SEND_PREVIOUS,
    MCP_STREAM_RECEIVE_NEXT,
    MCP_STREAM_MIRRORED_SEND_PREVIOUS, /* the same of chunks that run from the last rank down: */
    MCP_STREAM_MIRRORED_RECEIVE_NEXT,  /* forwards of one kind of chunk and backwards of the */
    MCP_STREAM_MIRRORED_SEND_NEXT,     /* other, which go the same way, overtake each other */
    MCP_STREAM_MIRRORED_RECEIVE_PREVIOUS,
    MCP_NUM_STREAMS
};
extern const char *const mcp_stream_names[MCP_NUM_STREAMS];

/* Where a value lives, and so what else names its instance. */
enum mcp_space {
    MCP_SPACE_RANK,  /* nothing: one per rank */
    MCP_SPACE_LAYER, /* layer (and copy, for gathered weights) */
    MCP_SPACE_FRAME, /* layer, microbatch: written in one slot, read in another */
    MCP_SPACE_BLOCK, /* the entry: scratch, unreadable elsewhere */
    MCP_NUM_SPACES
};
extern const char *const mcp_space_names[MCP_NUM_SPACES];

enum mcp_buffer_kind {
    MCP_BUFFER_WEIGHT,
    MCP_BUFFER_GRADIENT,
    MCP_BUFFER_OPTIMIZER,
    MCP_BUFFER_ACTIVATION,
    MCP_BUFFER_SCRATCH,
    MCP_NUM_BUFFER_KINDS
};
extern const char *const mcp_buffer_kind_names[MCP_NUM_BUFFER_KINDS];

struct mcp_buffer {
    char name[24];
    int64_t bytes;
    int64_t capacity_bytes; /* >= bytes where run-time counts can exceed the expected */
    unsigned char dtype, kind;
};

/* Frame indices every layer type has. A layer's output is X at offset +1. */
enum { MCP_FRAME_X = 0, MCP_FRAME_DX = 1 };
/* Layer indices every layer type has: flat buffers that weights are parts of.
 * Dense and expert weights are reduced over different groups. */
enum {
    MCP_LAYER_WEIGHTS,
    MCP_LAYER_EXPERT_WEIGHTS,
    MCP_LAYER_GRADIENTS,
    MCP_LAYER_EXPERT_GRADIENTS,
    MCP_LAYER_OPTIMIZER,
    MCP_LAYER_EXPERT_OPTIMIZER,
    MCP_LAYER_WEIGHT_SHARD, /* ZeRO-3: what is kept; WEIGHTS is then gathered */
    MCP_LAYER_EXPERT_WEIGHT_SHARD,
    MCP_LAYER_GRADIENT_SHARD, /* ZeRO-2 and 3: GRADIENTS is then transient */
    MCP_LAYER_EXPERT_GRADIENT_SHARD,
    MCP_NUM_LAYER_BUFFERS,
    /* further ones under 1-bit Adam */
    MCP_LAYER_WORKER_ERROR = MCP_NUM_LAYER_BUFFERS, /* what a rank's signs left out */
    MCP_LAYER_EXPERT_WORKER_ERROR,
    MCP_LAYER_SERVER_ERROR, /* what the averages' signs left out, of the part it averages */
    MCP_LAYER_EXPERT_SERVER_ERROR,
    /* and under stacks that cast operands: weights in 8 bits, and transposed (step/casts.h) */
    MCP_LAYER_CAST_WEIGHTS,
    MCP_LAYER_CAST_COLUMNS,
    MCP_MAX_LAYER_BUFFERS
};
/* Rank buffers every program has. */
enum {
    MCP_RANK_TIED_WEIGHTS, /* the head's; 0 bytes unless another layer of the rank reads it */
    MCP_RANK_TIED_GRADIENTS,
    MCP_RANK_LOSS,
    MCP_RANK_NORM,
    MCP_RANK_SCALARS, /* learning rate, clip coefficient, skip flag, loss scale */
    MCP_NUM_RANK_BUFFERS
};

struct mcp_operand {
    unsigned char space;
    signed char layer_offset; /* 0 or +1 */
    unsigned short index;     /* into the space's table of the layer type (rank: of the program) */
};

#define MCP_MAX_RING 256 /* ranks of a context ring: four ops a step */
#define MCP_MAX_BLOCK_OPS 1280
#define MCP_MAX_TYPE_BUFFERS 192 /* in one space */
#define MCP_MAX_READS 6
#define MCP_MAX_WRITES 3
#define MCP_MAX_WAITS 6
#define MCP_MAX_DIMS 8
#define MCP_NO_WEIGHT 0xff
#define MCP_MAX_BANDS 4 /* of one weight: queries, gates, keys, values */

/* How a transfer may hide under products of its block, if the stack does so. */
enum mcp_hiding {
    MCP_HIDE_NOT,     /* what follows needs all of it */
    MCP_HIDE_CHUNKED, /* cut in pieces that alternate with the adjacent product */
    MCP_HIDE_BULK     /* independent of the product beside it */
};

struct mcp_op {
    unsigned char function; /* enum mcp_function, which implies the code */
    unsigned char stream;
    unsigned char dtype;
    unsigned char group;  /* enum mcp_axis bits; 0 for local ops */
    signed char delta;    /* send, receive, shift: distance along the axis */
    unsigned char weight; /* index of the weight part used, or MCP_NO_WEIGHT */
    unsigned char hiding; /* enum mcp_hiding */
    unsigned char num_reads, num_writes, num_waits;
    unsigned short waits[MCP_MAX_WAITS]; /* earlier ops of the block */
    struct mcp_operand reads[MCP_MAX_READS];
    struct mcp_operand writes[MCP_MAX_WRITES];
    int64_t dims[MCP_MAX_DIMS]; /* meaning by code: step/function.h */
};

/* Passes of slots, the first four as enum mcp_pass, and the further blocks that entries can
 * name. */
enum mcp_block_role {
    MCP_FORWARD,
    MCP_BACKWARD,
    MCP_BACKWARD_INPUT,
    MCP_BACKWARD_WEIGHT,
    MCP_PROLOGUE, /* clears accumulators; as a pass: everything before microbatch 0 */
    MCP_EPILOGUE, /* as a pass: everything after the last backward; as a block: norm, scalars */
    MCP_RECOMPUTE,
    MCP_GATHER, /* weights of the layer from their shards */
    MCP_REDUCE, /* gradients of the layer over their groups */
    MCP_OPTIMIZER,
    MCP_SEND_FORWARD,
    MCP_RECEIVE_FORWARD,
    MCP_SEND_BACKWARD,
    MCP_RECEIVE_BACKWARD,
    MCP_NUM_BLOCK_ROLES
};
extern const char *const mcp_block_role_names[MCP_NUM_BLOCK_ROLES];

struct mcp_block {
    int num_ops;
    struct mcp_op *ops;
};

/* A part of the flat weight buffer, as one rank holds it: step/weights.h says where, and
 * what it is of the whole tensor. */
struct mcp_weight {
    char name[24];
    int64_t rows, columns;
    int copies; /* local experts, else 1 */
    bool expert;
    bool replicated;    /* over the tensor group: norms, row-parallel biases, router */
    bool shared;        /* lives in rank space: several layers of the rank read it */
    bool twin;          /* tied weights on two stages: the same table is in another layer */
    bool duplicate;     /* ... and the norm of gradients counts it there */
    bool by_columns;    /* cut over the tensor group by columns, else by rows */
    bool cast;          /* products read it in 8 bits, from MCP_LAYER_CAST_WEIGHTS */
    unsigned char init; /* enum mcp_init */
    int64_t bands[MCP_MAX_BANDS]; /* rows of each, if it is cut band by band; 0: no more */
};

/* How a new weight begins. */
enum mcp_init {
    MCP_INIT_NORMAL,   /* N(0, init_std) */
    MCP_INIT_RESIDUAL, /* the same, scaled down: what is added to the residual stream */
    MCP_INIT_NORM,     /* rows of ones, each followed by its row of zeros if norms have biases */
    MCP_INIT_ZERO,     /* biases */
    MCP_NUM_INITS
};
extern const char *const mcp_init_names[MCP_NUM_INITS];

struct mcp_layer_type {
    char name[32];
    enum mcp_recompute recompute;
    struct mcp_layer_facts facts;
    int num_weights;
    struct mcp_weight *weights;
    int num_buffers[MCP_NUM_SPACES];
    struct mcp_buffer *buffers[MCP_NUM_SPACES]; /* layer, frame, block; rank is the program's */
    struct mcp_block blocks[MCP_NUM_BLOCK_ROLES];
};

struct mcp_entry {
    unsigned short type;   /* into program->types */
    unsigned char role;    /* enum mcp_block_role */
    unsigned char copy;    /* physical copy of gathered weights */
    int layer;             /* extended: 0 embedding, 1 .. L decoder, MTP modules, head;
                            * num_layers: the step itself (scalars all ranks agree on) */
    int microbatch_offset; /* to the slot's */
};

/* Entries shared by all slots that run the same list. */
struct mcp_entry_list {
    int num_entries;
    struct mcp_entry *entries;
};

struct mcp_slot {
    int chunk;          /* 0 .. virtual_stages - 1, or -1 */
    int microbatch;     /* or -1 */
    unsigned char pass; /* forward, backward, backward_input, backward_weight, prologue, epilogue */
    int list;           /* into program->lists */
    int lead;           /* entries at the start that need no message */
};

struct mcp_program_class { /* ranks with equal slots: a pipeline coordinate */
    int num_slots;
    struct mcp_slot *slots;
};

struct mcp_program {
    struct mcp_plan plan; /* degrees, schedule; chunks */
    int num_microbatches;
    int num_layers; /* extended */
    int num_types;
    struct mcp_layer_type *types; /* types[0] is the step's own: prologue and epilogue */
    int num_rank_buffers;
    struct mcp_buffer *rank_buffers;
    int num_lists;
    struct mcp_entry_list *lists;
    int num_classes; /* pipeline_parallel */
    struct mcp_program_class *classes;
};

/* Do two operands of one layer type's blocks mean one value, or place? */
static inline bool mcp_same_operand(struct mcp_operand a, struct mcp_operand b)
{
    return a.space == b.space && a.index == b.index && a.layer_offset == b.layer_offset;
}

static inline bool mcp_op_reads(const struct mcp_op *op, struct mcp_operand at)
{
    for (int i = 0; i < op->num_reads; i++)
        if (mcp_same_operand(op->reads[i], at))
            return true;
    return false;
}

static inline bool mcp_op_writes(const struct mcp_op *op, struct mcp_operand at)
{
    for (int i = 0; i < op->num_writes; i++)
        if (mcp_same_operand(op->writes[i], at))
            return true;
    return false;
}

/* Is it a buffer of shards of weights or gradients? A small flat buffer would fit into another's
 * shard, so sizes do not tell. */
static inline bool mcp_is_of_shards(struct mcp_operand at)
{
    return at.space == MCP_SPACE_LAYER && at.index >= MCP_LAYER_WEIGHT_SHARD &&
           at.index <= MCP_LAYER_EXPERT_GRADIENT_SHARD;
}

/* The buffer an operand of `type` means. */
const struct mcp_buffer *mcp_operand_buffer(const struct mcp_program *program,
                                            const struct mcp_layer_type *type,
                                            struct mcp_operand operand);
/* Which of the op's reads says how many rows each expert has: a buffer of I32. -1: none. */
int mcp_op_expert_sizes(const struct mcp_program *program, const struct mcp_layer_type *type,
                        const struct mcp_op *op);
/* Can the op add a bias as it stores, the part dims[5] - 1 of the weights? */
bool mcp_op_has_epilogue(const struct mcp_op *op);

/* Are elements of `at` that `reader` reads other ones than `writer` writes? Known of sums of
 * squares and all-reduces of a layer's flat buffers, whose dims say which (step/function.h);
 * false of all else. Asked of reads only: writes of one buffer keep their order whatever they
 * touch of it, so that who comes after one comes after all before it. */
bool mcp_read_is_apart(const struct mcp_op *reader, const struct mcp_op *writer,
                       struct mcp_operand at);

/* MCP_INVALID names the first layer type that no backend can train, and why: its facts' lack. */
enum mcp_status mcp_program_check_trained(const struct mcp_program *program, struct mcp_error *err);

/* Is forward the last to read the layer's input: does no block of a later pass mention it? Its
 * frame then ends with forward's entry, and not with the last pass like others. */
bool mcp_input_ends_with_forward(const struct mcp_layer_type *type);

/* Does it move values between ranks? */
bool mcp_op_is_transfer(const struct mcp_op *op);

/* The type of a layer: that of any entry which runs it; NULL: none does. */
const struct mcp_layer_type *mcp_program_layer_type(const struct mcp_program *program, int layer);

#endif
