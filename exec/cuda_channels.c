/* exec/cuda_channels.c: makes the groups of ranks that a program's transfers need. */
#include "exec/cuda_channels.h"

#include "core/minmax.h"
#include "exec/cuda_runtime.h"
#include "exec/cuda_wait.h"
#include "exec/transfer.h"
#include "step/outbox.h"

/* Blocks of threads that a call may take on the device. Each has a multiprocessor for itself as
 * long as it waits, and in every communicator it has buffers of some 10 MB for each rank that it
 * hears from. Four move as much as a network does, which is enough for a message that is waited
 * for; and one a few numbers. */
enum { LINK_SETS = 3, MESSAGE_BLOCKS = 4, FEW_BYTES = 1 << 18 };

/* --- groups --- */

/* What two streams exchange with each other: those of messages are a send and the receive
 * that takes it, in turn. */
static int group_stream(enum mcp_stream stream)
{
    int message = (int)stream - MCP_STREAM_SEND_NEXT;
    return message > 0 ? (int)stream - message % 2 : (int)stream;
}

struct mcp_cuda_group *mcp_cuda_group_of(struct mcp_cuda_channels *c, enum mcp_stream stream,
                                         unsigned axes)
{
    return &c->groups[group_stream(stream)][axes];
}

/* Links that share a rank are in different sets: in a ring of odd length the last link, too,
 * is beside the first. */
static int link_set(int sender, int size)
{
    return sender == size - 1 && size % 2 == 1 ? 2 : sender % 2;
}

/* Connects a link while nothing else runs: later a host would wait for its peer's, and take memory
 * of the device while kernels on it wait for others. */
static enum mcp_status connect(struct mcp_cuda_channels *c, struct mcp_nccl *link, bool sends,
                               struct mcp_error *err)
{
    MCP_TRY(sends ? mcp_nccl_send(link, c->first_message, 1, 1, c->first_stream, err)
                  : mcp_nccl_receive(link, c->first_message, 1, 0, c->first_stream, err));
    return mcp_cuda_await(c->world, c->first_stream, "the first message to a neighbour", err);
}

/* Of a ring in which each member sends to the one that is `step` further on. Every rank is
 * in at most one link of a set. */
static enum mcp_status open_links(struct mcp_cuda_channels *c, struct mcp_cuda_group *g,
                                  const int *members, int step, struct mcp_error *err)
{
    int previous = g->index < 0 ? -1 : mcp_neighbour(g->size, g->index, -step);
    for (int set = 0; set < LINK_SETS; set++) {
        struct mcp_nccl *link;
        bool sends = g->index >= 0 && link_set(g->index, g->size) == set;
        bool receives = g->index >= 0 && link_set(previous, g->size) == set;
        int color = sends ? members[g->index] : receives ? members[previous] : -1;
        const struct mcp_nccl_part part = {color, sends ? 0 : 1, MESSAGE_BLOCKS};
        MCP_TRY(mcp_nccl_split(c->world, &part, &link, err));
        if (link == NULL)
            continue;
        *(sends ? &g->out : &g->in) = link;
        MCP_TRY(connect(c, link, sends, err));
    }
    return MCP_OK;
}

/* The same for ranks of a group that send to each other: all of them, or in a ring those beside
 * this one. Collectives are connected when a communicator is made (NCCL_RUNTIME_CONNECT). */
static enum mcp_status connect_members(struct mcp_cuda_channels *c, struct mcp_cuda_group *g,
                                       enum mcp_cuda_connected wanted, struct mcp_error *err)
{
    if (g->all == NULL || g->connected >= wanted)
        return MCP_OK;
    g->connected = wanted;
    MCP_TRY(mcp_nccl_group_begin(g->all, err));
    for (int d = 1; d < g->size; d++) {
        int to = mcp_neighbour(g->size, g->index, d), from = mcp_neighbour(g->size, g->index, -d);
        if (wanted == MCP_CUDA_RING && d != 1 && d != g->size - 1)
            continue;
        MCP_TRY(mcp_nccl_send(g->all, c->first_message, 1, to, c->first_stream, err));
        MCP_TRY(mcp_nccl_receive(g->all, c->first_message, 1, from, c->first_stream, err));
    }
    MCP_TRY(mcp_nccl_group_end(g->all, err));
    return mcp_cuda_await(c->world, c->first_stream, "the first exchange of a group", err);
}

static bool is_message(const struct mcp_op *op)
{
    return op->function == MCP_FN_SEND || op->function == MCP_FN_RECEIVE;
}

/* Opens what transfers of `op` need, `axes` being its group. */
static enum mcp_status open_group(struct mcp_cuda_channels *c, const struct mcp_plan *plan,
                                  const struct mcp_op *op, unsigned axes, struct mcp_error *err)
{
    if (axes >= MCP_NUM_AXIS_SETS)
        return mcp_fail(err, MCP_INVALID, "a group over axes %u is unknown", axes);
    struct mcp_cuda_group *g = mcp_cuda_group_of(c, (enum mcp_stream)op->stream, axes);
    if (g->opened)
        return MCP_OK;
    int *members = MCP_ARRAY(c->arena, mcp_nccl_world_size(c->world), int);
    g->opened = true;
    g->size = mcp_group_size(plan, axes);
    g->index = mcp_group_index(plan, axes, c->rank);
    if (g->size == 1)
        return MCP_OK;
    mcp_group_members(plan, axes, c->rank, members);
    if (is_message(op)) {
        int step = op->function == MCP_FN_SEND ? op->delta : -op->delta;
        if (step != 1 && step != -1)
            return mcp_fail(err, MCP_INVALID,
                            "a message to the rank %d further on: only to the "
                            "next and the previous there are links",
                            step);
        return open_links(c, g, members, step, err);
    }
    const struct mcp_nccl_part part = {.color = g->index < 0 ? -1 : members[0],
                                       .key = g->index,
                                       .most_blocks = g->longest_bytes <= FEW_BYTES ? 1 : 0};
    return mcp_nccl_split(c->world, &part, &g->all, err);
}

/* Who of a group sends to whom. */
static enum mcp_cuda_connected connection_of(const struct mcp_op *op)
{
    switch (op->function) {
    case MCP_FN_SHIFT:
        return op->delta == 1 || op->delta == -1 ? MCP_CUDA_RING : MCP_CUDA_ALL;
    case MCP_FN_ALL_TO_ALL:
    case MCP_FN_ALL_TO_ALL_V:
    case MCP_FN_EXPERT_COUNTS:
        return MCP_CUDA_ALL;
    default:
        return MCP_CUDA_NONE;
    }
}

static enum mcp_status open_op(struct mcp_cuda_channels *c, const struct mcp_plan *plan,
                               const struct mcp_op *op, struct mcp_error *err)
{
    const bool counts = op->function == MCP_FN_EXPERT_COUNTS;
    const unsigned axes = counts ? (unsigned)MCP_EXPERT : op->group;
    if (!counts && !mcp_op_is_transfer(op))
        return MCP_OK;
    MCP_TRY(open_group(c, plan, op, axes, err));
    return connect_members(c, mcp_cuda_group_of(c, (enum mcp_stream)op->stream, axes),
                           connection_of(op), err);
}

/* --- memory --- */

static int64_t bytes_of(const struct mcp_op *op)
{
    return op->dims[0] * (int64_t)mcp_dtype_bytes((enum mcp_dtype)op->dtype);
}

/* A reduce_scatter that adds: the shard of its sums. */
static void size_room(struct mcp_cuda_channels *c, const struct mcp_program *program,
                      const struct mcp_layer_type *type, const struct mcp_op *op)
{
    if (op->function != MCP_FN_REDUCE_SCATTER ||
        mcp_operand_buffer(program, type, op->writes[0])->kind != MCP_BUFFER_GRADIENT)
        return;
    int size = mcp_cuda_group_of(c, (enum mcp_stream)op->stream, op->group)->size;
    int64_t bytes = mcp_shard_of(op->dims[0], size, 0).count *
                    (int64_t)mcp_dtype_bytes((enum mcp_dtype)op->dtype);
    c->room_bytes[op->stream] = mcp_max_int64(c->room_bytes[op->stream], bytes);
}

/* Before any group is opened, since its blocks depend on it. */
static void measure_block(struct mcp_cuda_channels *c, const struct mcp_block *block)
{
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_op *op = &block->ops[i];
        if (!mcp_op_is_transfer(op) || op->group >= MCP_NUM_AXIS_SETS)
            continue;
        struct mcp_cuda_group *g = mcp_cuda_group_of(c, (enum mcp_stream)op->stream, op->group);
        g->longest_bytes = mcp_max_int64(g->longest_bytes, bytes_of(op));
    }
}

static void measure_ops(struct mcp_cuda_channels *c, const struct mcp_program *program)
{
    for (int t = 0; t < program->num_types; t++)
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
            measure_block(c, &program->types[t].blocks[role]);
}

static enum mcp_status open_block(struct mcp_cuda_channels *c, const struct mcp_program *program,
                                  const struct mcp_layer_type *type, int role,
                                  struct mcp_error *err)
{
    const struct mcp_block *block = &type->blocks[role];
    for (int i = 0; i < block->num_ops; i++) {
        MCP_TRY(open_op(c, &program->plan, &block->ops[i], err));
        size_room(c, program, type, &block->ops[i]);
    }
    return MCP_OK;
}

static enum mcp_status open_ops(struct mcp_cuda_channels *c, const struct mcp_program *program,
                                struct mcp_error *err)
{
    for (int t = 0; t < program->num_types; t++)
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
            MCP_TRY(open_block(c, program, &program->types[t], role, err));
    return MCP_OK;
}

/* The longest that any of the programs needs. */
static void size_outboxes(struct mcp_cuda_channels *c, const struct mcp_program *program)
{
    struct mcp_outbox needed[MCP_NUM_STREAMS];
    mcp_program_outboxes(program, mcp_mesh_coordinate(&program->plan, c->rank).pipeline, needed);
    for (int s = 0; s < MCP_NUM_STREAMS; s++) {
        struct mcp_cuda_outbox *box = &c->outboxes[s];
        box->slots = (int)mcp_max_int64(box->slots, needed[s].places);
        box->slot_bytes =
            mcp_max_int64(box->slot_bytes, (needed[s].message_bytes + 255) / 256 * 256);
    }
}

static enum mcp_status open_outbox(struct mcp_cuda_channels *c, struct mcp_cuda_outbox *box,
                                   struct mcp_error *err)
{
    void *room;
    if (box->slots == 0)
        return MCP_OK;
    box->left = MCP_ARRAY(c->arena, box->slots, void *);
    MCP_TRY(mcp_cuda_new_memory(c->arena, box->slots * box->slot_bytes, &room, err));
    box->room = room;
    MCP_TRY(mcp_cuda_new_stream(c->arena, true, &box->stream, err));
    MCP_TRY(mcp_cuda_new_event(c->arena, false, &box->copied, err));
    for (int i = 0; i < box->slots; i++)
        MCP_TRY(mcp_cuda_new_event(c->arena, false, &box->left[i], err));
    return MCP_OK;
}

static enum mcp_status open_memory(struct mcp_cuda_channels *c, struct mcp_error *err)
{
    for (int s = 0; s < MCP_NUM_STREAMS; s++) {
        MCP_TRY(open_outbox(c, &c->outboxes[s], err));
        if (c->room_bytes[s] > 0)
            MCP_TRY(mcp_cuda_new_memory(c->arena, c->room_bytes[s], &c->room[s], err));
    }
    return MCP_OK;
}

enum mcp_status mcp_cuda_channels_open(struct mcp_arena *arena,
                                       const struct mcp_cuda_channels_setting *setting,
                                       struct mcp_cuda_channels **out, struct mcp_error *err)
{
    struct mcp_cuda_channels *c = MCP_NEW(arena, struct mcp_cuda_channels);
    c->arena = arena;
    c->world = setting->world;
    c->rank = setting->rank;
    *out = c;
    MCP_TRY(mcp_cuda_new_stream(arena, true, &c->first_stream, err));
    MCP_TRY(mcp_cuda_new_memory(arena, 1, &c->first_message, err));
    for (int p = 0; p <= MCP_INTERPRET_OTHERS; p++)
        if (setting->programs[p] != NULL)
            measure_ops(c, setting->programs[p]);
    for (int p = 0; p <= MCP_INTERPRET_OTHERS; p++) {
        if (setting->programs[p] == NULL)
            continue;
        MCP_TRY(open_ops(c, setting->programs[p], err));
        size_outboxes(c, setting->programs[p]);
    }
    return open_memory(c, err);
}

enum mcp_status mcp_cuda_messages_left(struct mcp_cuda_channels *channels, bool *left,
                                       struct mcp_error *err)
{
    *left = true;
    for (int s = 0; s < MCP_NUM_STREAMS && *left; s++)
        if (channels->outboxes[s].slots > 0)
            MCP_TRY(mcp_cuda_stream_empty(channels->outboxes[s].stream, left, err));
    return MCP_OK;
}
