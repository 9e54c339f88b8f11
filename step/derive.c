/* step/derive.c: what follows from operands alone: waits, recompute, split backward. */
#include "core/stack.h"
#include "step/builder.h"

#include <assert.h>
#include <string.h>

/* Who touched a place last: its writer, and per stream its readers since. Ops + 1. */
struct touched {
    short writer;
    short reader[MCP_NUM_STREAMS];
};

enum { OFFSETS = 2 };
struct history {
    struct touched places[MCP_NUM_SPACES][MCP_MAX_TYPE_BUFFERS][OFFSETS];
    short latest[MCP_NUM_STREAMS];                  /* that the op at hand must come after */
    short waited[MCP_NUM_STREAMS][MCP_NUM_STREAMS]; /* [own][other] */
};

static struct touched *place_of(struct history *h, struct mcp_operand at)
{
    return &h->places[at.space][at.index][at.layer_offset];
}

/* Only places that the block mentions: the table is large, most blocks are small. */
static void forget(struct history *h, const struct mcp_op *ops, int num_ops)
{
    memset(h->waited, 0, sizeof h->waited);
    for (int i = 0; i < num_ops; i++) {
        for (int r = 0; r < ops[i].num_reads; r++)
            memset(place_of(h, ops[i].reads[r]), 0, sizeof(struct touched));
        for (int w = 0; w < ops[i].num_writes; w++)
            memset(place_of(h, ops[i].writes[w]), 0, sizeof(struct touched));
    }
}

static void come_after(struct history *h, const struct mcp_op *ops, short op)
{
    if (op > 0 && op > h->latest[ops[op - 1].stream])
        h->latest[ops[op - 1].stream] = op;
}

/* The last that wrote what op reads of a place, + 1; writers of a place follow each other. */
static short writer_of(struct history *h, const struct mcp_op *ops, const struct mcp_op *op,
                       struct mcp_operand place)
{
    short writer = place_of(h, place)->writer;
    while (writer > 0 && (!mcp_op_writes(&ops[writer - 1], place) ||
                          mcp_read_is_apart(op, &ops[writer - 1], place)))
        writer--;
    return writer;
}

/* Read after write, write after write, write after read. */
static void find_dependences(struct history *h, const struct mcp_op *ops, const struct mcp_op *op)
{
    memset(h->latest, 0, sizeof h->latest);
    for (int r = 0; r < op->num_reads; r++)
        come_after(h, ops, writer_of(h, ops, op, op->reads[r]));
    for (int w = 0; w < op->num_writes; w++) {
        const struct touched *place = place_of(h, op->writes[w]);
        come_after(h, ops, place->writer);
        for (int s = 0; s < MCP_NUM_STREAMS; s++)
            come_after(h, ops, place->reader[s]);
    }
}

static void touch(struct history *h, const struct mcp_op *op, short index)
{
    for (int r = 0; r < op->num_reads; r++)
        place_of(h, op->reads[r])->reader[op->stream] = index;
    for (int w = 0; w < op->num_writes; w++) {
        struct touched *place = place_of(h, op->writes[w]);
        memset(place, 0, sizeof *place);
        place->writer = index;
    }
}

/* The latest op of each other stream that an op depends on, unless its own stream
 * has waited for that one before. */
void mcp_derive_waits(struct mcp_op *ops, int num_ops)
{
    struct history h;
    forget(&h, ops, num_ops);
    for (int i = 0; i < num_ops; i++) {
        struct mcp_op *op = &ops[i];
        find_dependences(&h, ops, op);
        op->num_waits = 0;
        for (int s = 0; s < MCP_NUM_STREAMS; s++) {
            if (s == op->stream || h.latest[s] <= h.waited[op->stream][s])
                continue;
            assert(op->num_waits < MCP_MAX_WAITS);
            h.waited[op->stream][s] = h.latest[s];
            op->waits[op->num_waits++] = (unsigned short)(h.latest[s] - 1);
        }
        touch(&h, op, (short)(i + 1));
    }
}

/* Marks unkept frames that the block reads before it writes them itself. */
static void mark_needed(const struct mcp_builder *b, const struct mcp_block *backward, bool *needed)
{
    for (int i = 0; i < backward->num_ops; i++)
        for (int r = 0; r < backward->ops[i].num_reads; r++) {
            struct mcp_operand at = backward->ops[i].reads[r];
            if (at.space == MCP_SPACE_FRAME && at.layer_offset == 0 && at.index > MCP_FRAME_DX &&
                !b->kept[at.index])
                needed[at.index] = true;
        }
}

static int frame_of_twin(const struct mcp_builder *b, unsigned short block_index)
{
    for (int f = MCP_FRAME_DX + 1; f < b->type->num_buffers[MCP_SPACE_FRAME]; f++)
        if (b->twin[f] == block_index)
            return f;
    return -1;
}

/* Where the recompute block puts what forward wrote: dropped values that
 * backward needs go to their frames; kept ones are not written twice. */
static struct mcp_operand recompute_place(const struct mcp_builder *b, struct mcp_operand at,
                                          const bool *needed, bool is_write,
                                          struct mcp_operand output_twin)
{
    struct mcp_operand out = at;
    if (at.space == MCP_SPACE_BLOCK) {
        int frame = frame_of_twin(b, at.index);
        if (frame >= 0 && needed[frame]) {
            out.space = MCP_SPACE_FRAME;
            out.index = (unsigned short)frame;
        }
    } else if (is_write && at.space == MCP_SPACE_FRAME) {
        if (at.layer_offset != 0)
            return output_twin;
        out.space = MCP_SPACE_BLOCK;
        out.index = b->twin[at.index];
    }
    return out;
}

static void mark_slice(const struct mcp_builder *b, const struct mcp_block *forward,
                       const bool *needed, bool *include)
{
    bool wanted[MCP_MAX_TYPE_BUFFERS] = {false};
    for (int f = MCP_FRAME_DX + 1; f < b->type->num_buffers[MCP_SPACE_FRAME]; f++)
        if (needed[f])
            wanted[b->twin[f]] = true;
    for (int i = forward->num_ops - 1; i >= 0; i--) {
        const struct mcp_op *op = &forward->ops[i];
        for (int w = 0; w < op->num_writes; w++)
            if (op->writes[w].space == MCP_SPACE_BLOCK && wanted[op->writes[w].index])
                include[i] = true;
        for (int r = 0; include[i] && r < op->num_reads; r++)
            if (op->reads[r].space == MCP_SPACE_BLOCK)
                wanted[op->reads[r].index] = true;
    }
}

/* What forward added to rank or layer space is not added twice. */
static bool writes_frames_or_scratch(const struct mcp_op *op)
{
    for (int w = 0; w < op->num_writes; w++)
        if (op->writes[w].space == MCP_SPACE_RANK || op->writes[w].space == MCP_SPACE_LAYER)
            return false;
    return true;
}

static void emit_slice(struct mcp_builder *b, const struct mcp_block *forward, const bool *include,
                       const bool *needed)
{
    double bytes = (double)b->buffers[MCP_SPACE_FRAME][MCP_FRAME_X].bytes;
    struct mcp_operand twin = mcp_scratch(b, "output_again", bytes, b->activation).block.operand;
    for (int i = 0; i < forward->num_ops; i++) {
        if (!include[i] || !writes_frames_or_scratch(&forward->ops[i]))
            continue;
        struct mcp_op *op = &b->ops[b->num_ops++];
        *op = forward->ops[i];
        for (int r = 0; r < op->num_reads; r++)
            op->reads[r] = recompute_place(b, op->reads[r], needed, false, twin);
        for (int w = 0; w < op->num_writes; w++)
            op->writes[w] = recompute_place(b, op->writes[w], needed, true, twin);
    }
}

void mcp_derive_recompute(struct mcp_builder *b)
{
    const struct mcp_block *forward = &b->type->blocks[MCP_FORWARD];
    bool needed[MCP_MAX_TYPE_BUFFERS] = {false};
    bool include[MCP_MAX_BLOCK_OPS] = {false};
    mark_needed(b, &b->type->blocks[MCP_BACKWARD], needed);
    mark_slice(b, forward, needed, include);
    if (b->drop_all && b->question->stack->recompute_whole_layer)
        memset(include, true, (size_t)forward->num_ops * sizeof *include);
    mcp_begin_block(b, false);
    emit_slice(b, forward, include, needed);
    mcp_end_block(b, MCP_RECOMPUTE);
}

static bool is_gradient(struct mcp_operand at)
{
    if (at.space == MCP_SPACE_RANK)
        return at.index == MCP_RANK_TIED_GRADIENTS;
    return at.space == MCP_SPACE_LAYER &&
           (at.index == MCP_LAYER_GRADIENTS || at.index == MCP_LAYER_EXPERT_GRADIENTS);
}

static int num_gradients(const struct mcp_op *op)
{
    int count = 0;
    for (int w = 0; w < op->num_writes; w++)
        count += is_gradient(op->writes[w]);
    return count;
}

/* Products, and what has no other result and no part of the weights to hold it by. */
static bool is_weight_gradient(const struct mcp_op *op)
{
    switch (op->function) {
    case MCP_FN_MATMUL_TN_ACCUMULATE:
    case MCP_FN_MATMUL_TN:
    case MCP_FN_GROUPED_TN_ACCUMULATE:
    case MCP_FN_EMBEDDING_BACKWARD:
        return true;
    default:
        return op->weight == MCP_NO_WEIGHT && op->num_writes > 0 &&
               num_gradients(op) == op->num_writes;
    }
}

static bool is_gather(const struct mcp_op *op)
{
    return op->function == MCP_FN_ALL_GATHER && op->group == MCP_TENSOR;
}

/* Which ops go to B and to W: weight gradients to W; a gather to whoever reads
 * it, both if need be, so that only shards are kept between them. */
static void assign_passes(const struct mcp_block *backward, bool *in_input, bool *in_weight)
{
    for (int i = backward->num_ops - 1; i >= 0; i--) {
        const struct mcp_op *op = &backward->ops[i];
        in_weight[i] = is_weight_gradient(op);
        in_input[i] = !in_weight[i];
        if (!is_gather(op))
            continue;
        in_input[i] = false;
        for (int j = i + 1; j < backward->num_ops; j++)
            if (mcp_op_reads(&backward->ops[j], op->writes[0])) {
                in_weight[i] = in_weight[i] || in_weight[j];
                in_input[i] = in_input[i] || in_input[j];
            }
    }
}

/* The frame that stands for scratch value `index` from B to W. */
static unsigned short frame_for(struct mcp_builder *b, unsigned short index, unsigned short *frame)
{
    if (frame[index] == 0) {
        const struct mcp_buffer *old = &b->buffers[MCP_SPACE_BLOCK][index];
        struct mcp_value kept =
            mcp_saved(b, old->name, (double)old->bytes, (enum mcp_dtype)old->dtype, 0);
        b->buffers[MCP_SPACE_FRAME][kept.frame.operand.index].capacity_bytes = old->capacity_bytes;
        frame[index] = kept.frame.operand.index;
    }
    return frame[index];
}

static void promote_places(struct mcp_builder *b, struct mcp_operand *places, int count,
                           const bool *crosses, unsigned short *frame)
{
    for (int i = 0; i < count; i++) {
        struct mcp_operand *at = &places[i];
        if (at->space != MCP_SPACE_BLOCK || !crosses[at->index])
            continue;
        at->index = frame_for(b, at->index, frame);
        at->space = MCP_SPACE_FRAME;
    }
}

/* A scratch value that B writes and W reads becomes a frame. */
static void promote(struct mcp_builder *b, struct mcp_block *backward, const bool *crosses)
{
    unsigned short frame[MCP_MAX_TYPE_BUFFERS] = {0};
    for (int i = 0; i < backward->num_ops; i++) {
        struct mcp_op *op = &backward->ops[i];
        promote_places(b, op->reads, op->num_reads, crosses, frame);
        promote_places(b, op->writes, op->num_writes, crosses, frame);
    }
}

static void mark_crossing(const struct mcp_block *backward, const bool *in_weight, bool *crosses)
{
    bool written_in_weight[MCP_MAX_TYPE_BUFFERS] = {false};
    for (int i = 0; i < backward->num_ops; i++) {
        const struct mcp_op *op = &backward->ops[i];
        for (int w = 0; in_weight[i] && w < op->num_writes; w++)
            if (op->writes[w].space == MCP_SPACE_BLOCK)
                written_in_weight[op->writes[w].index] = true;
    }
    for (int i = 0; i < backward->num_ops; i++) {
        const struct mcp_op *op = &backward->ops[i];
        for (int r = 0; in_weight[i] && r < op->num_reads; r++)
            if (op->reads[r].space == MCP_SPACE_BLOCK && !written_in_weight[op->reads[r].index])
                crosses[op->reads[r].index] = true;
    }
}

/* Gradients that other ops of B have beside their results: of norms, biases. They wait for
 * W in frames of their own: gradients of a layer are then added to in one go, and can be
 * reduced at once. */
struct held {
    struct mcp_operand frame, gradients;
    enum mcp_dtype dtype;
    unsigned char weight;
    int64_t rows, columns;
};
struct held_list {
    int count;
    struct held items[MCP_MAX_TYPE_WEIGHTS];
};

static struct held *hold(struct mcp_builder *b, const struct mcp_op *op, int write,
                         struct held_list *list)
{
    assert(list->count < MCP_MAX_TYPE_WEIGHTS);
    const struct mcp_weight *part = &b->weights[op->weight];
    enum mcp_dtype dtype = mcp_gradient_dtype(b->question);
    struct held *held = &list->items[list->count++];
    *held = (struct held){.gradients = op->writes[write],
                          .dtype = dtype,
                          .weight = op->weight,
                          .rows = part->rows,
                          .columns = part->columns * part->copies};
    struct mcp_value frame =
        mcp_saved(b, "d_weights", mcp_bytes_of(held->rows, held->columns, dtype), dtype, 0);
    held->frame = frame.frame.operand;
    return held;
}

static void emit_input_op(struct mcp_builder *b, const struct mcp_op *op, struct held_list *list)
{
    struct mcp_op here = *op;
    for (int w = 0; w < op->num_writes; w++) {
        if (!is_gradient(op->writes[w]))
            continue;
        if (op->weight == MCP_NO_WEIGHT) { /* a norm without weights: nothing to hold */
            assert(w == op->num_writes - 1);
            here.num_writes--;
            continue;
        }
        const struct held *held = hold(b, op, w, list);
        here.writes[w] = held->frame;
        mcp_emit(b, (struct mcp_call){
                        .function = MCP_FN_ZERO,
                        .dtype = held->dtype,
                        .has_dtype = true,
                        .writes = {{true, held->frame}},
                        .dims = {held->rows * held->columns, 1, held->rows * held->columns}});
    }
    assert(b->num_ops < b->max_ops);
    b->ops[b->num_ops++] = here;
}

static void emit_input(struct mcp_builder *b, const struct mcp_block *backward,
                       const bool *in_input, struct held_list *list)
{
    mcp_begin_block(b, false);
    for (int i = 0; i < backward->num_ops; i++)
        if (in_input[i])
            emit_input_op(b, &backward->ops[i], list);
    mcp_end_block(b, MCP_BACKWARD_INPUT);
}

static void emit_weight(struct mcp_builder *b, const struct mcp_block *backward,
                        const bool *in_weight, const struct held_list *list)
{
    mcp_begin_block(b, false);
    for (int i = 0; i < backward->num_ops; i++)
        if (in_weight[i])
            b->ops[b->num_ops++] = backward->ops[i];
    for (int i = 0; i < list->count; i++) {
        const struct held *held = &list->items[i];
        mcp_emit(b, (struct mcp_call){.function = MCP_FN_ADD,
                                      .dtype = held->dtype,
                                      .has_dtype = true,
                                      .weight = held->weight + 1,
                                      .reads = {{true, held->gradients}, {true, held->frame}},
                                      .writes = {{true, held->gradients}},
                                      .dims = {held->rows, held->columns}});
    }
    mcp_end_block(b, MCP_BACKWARD_WEIGHT);
}

/* The whole backward stays as it is: schedules can have both. */
void mcp_derive_split(struct mcp_builder *b)
{
    const struct mcp_block *whole = &b->type->blocks[MCP_BACKWARD];
    struct mcp_block backward = {whole->num_ops,
                                 MCP_ARRAY(b->arena, whole->num_ops, struct mcp_op)};
    bool in_input[MCP_MAX_BLOCK_OPS], in_weight[MCP_MAX_BLOCK_OPS];
    bool crosses[MCP_MAX_TYPE_BUFFERS] = {false};
    struct held_list *list = MCP_NEW(b->arena, struct held_list);
    memcpy(backward.ops, whole->ops, (size_t)whole->num_ops * sizeof *backward.ops);
    assign_passes(&backward, in_input, in_weight);
    mark_crossing(&backward, in_weight, crosses);
    promote(b, &backward, crosses);
    emit_input(b, &backward, in_input, list);
    emit_weight(b, &backward, in_weight, list);
}
