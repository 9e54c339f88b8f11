/* step/verify_block.c: is a block sound by itself? Operands, streams, waits,
 * hazards, scratch and the writing rule; and its summary for the walk. */
#include "step/verify_parts.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

/* A block under judgement. */
struct judged {
    const struct mcp_program *program;
    const struct mcp_layer_type *type;
    int type_index, role;
    const struct mcp_block *block;
    struct mcp_error *err;
};

static enum mcp_status fail(const struct judged *at, int op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static enum mcp_status fail(const struct judged *at, int op, const char *format, ...)
{
    char text[512];
    int function = at->block->ops[op].function;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return mcp_fail(at->err, MCP_INVALID, "layer type %d '%s' block %s op %d (%s): %s",
                    at->type_index, at->type->name, mcp_block_role_names[at->role], op,
                    function < MCP_NUM_FUNCTIONS ? mcp_functions[function].name : "?", text);
}

bool mcp_op_accumulates(const struct mcp_op *op, struct mcp_operand at)
{
    switch (op->function) {
    case MCP_FN_MATMUL_TN_ACCUMULATE:
    case MCP_FN_GROUPED_TN_ACCUMULATE:
    case MCP_FN_EMBEDDING_BACKWARD:
    case MCP_FN_NORM_BACKWARD:
    case MCP_FN_BIAS_BACKWARD:
    case MCP_FN_ROTARY_BACKWARD:
    case MCP_FN_RESIDUAL_BACKWARD:
    case MCP_FN_RESIDUAL_DROPOUT_BACKWARD:
    case MCP_FN_GELU_BACKWARD:
    case MCP_FN_SWIGLU_BACKWARD:
    case MCP_FN_LATENT_BACKWARD:
    case MCP_FN_CONV_BACKWARD:
    case MCP_FN_GATE_BACKWARD:
    case MCP_FN_ROUTER_TOP_K_BACKWARD:
    case MCP_FN_LOSS_FORWARD:
    case MCP_FN_SUM_SQUARES:
        return at.space == MCP_SPACE_LAYER || at.space == MCP_SPACE_RANK || mcp_op_reads(op, at);
    default:
        return mcp_op_reads(op, at);
    }
}

/* --- ranges --- */

static int count_buffers(const struct judged *at, int space)
{
    return space == MCP_SPACE_RANK ? at->program->num_rank_buffers : at->type->num_buffers[space];
}

static enum mcp_status check_operands(const struct judged *at, int op,
                                      const struct mcp_operand *operands, int count)
{
    for (int i = 0; i < count; i++) {
        struct mcp_operand o = operands[i];
        if (o.space >= MCP_NUM_SPACES)
            return fail(at, op, "operand %d names space %d of %d", i, o.space, MCP_NUM_SPACES);
        if (o.index >= count_buffers(at, o.space))
            return fail(at, op, "operand %d names %s buffer %d of %d", i, mcp_space_names[o.space],
                        o.index, count_buffers(at, o.space));
        bool boundary = o.space == MCP_SPACE_FRAME && o.index <= MCP_FRAME_DX;
        if (o.layer_offset != 0 && !(o.layer_offset == 1 && boundary))
            return fail(at, op, "operand %d names %s '%s' of another layer; only X and DX may", i,
                        mcp_space_names[o.space],
                        mcp_operand_buffer(at->program, at->type, o)->name);
    }
    return MCP_OK;
}

static enum mcp_status check_waits(const struct judged *at, int op)
{
    const struct mcp_op *self = &at->block->ops[op];
    for (int i = 0; i < self->num_waits; i++)
        if (self->waits[i] >= op)
            return fail(at, op, "waits for op %d, which is not issued before it", self->waits[i]);
    return MCP_OK;
}

static enum mcp_status check_ranges(const struct judged *at, int op)
{
    const struct mcp_op *self = &at->block->ops[op];
    if (self->function >= MCP_NUM_FUNCTIONS || self->stream >= MCP_NUM_STREAMS ||
        self->dtype >= MCP_NUM_DTYPES || self->hiding > MCP_HIDE_BULK)
        return fail(at, op, "function %d, stream %d, dtype %d or hiding %d is out of range",
                    self->function, self->stream, self->dtype, self->hiding);
    if (self->num_reads > MCP_MAX_READS || self->num_writes > MCP_MAX_WRITES ||
        self->num_waits > MCP_MAX_WAITS)
        return fail(at, op, "%d reads, %d writes or %d waits are too many", self->num_reads,
                    self->num_writes, self->num_waits);
    if (self->weight != MCP_NO_WEIGHT && self->weight >= at->type->num_weights)
        return fail(at, op, "weight %d of %d", self->weight, at->type->num_weights);
    if (mcp_op_has_epilogue(self) && self->dims[5] > at->type->num_weights)
        return fail(at, op, "bias %lld of %d weights", (long long)self->dims[5],
                    at->type->num_weights);
    for (int i = 0; i < MCP_MAX_DIMS; i++)
        if (self->dims[i] < 0)
            return fail(at, op, "dimension %d is %lld", i, (long long)self->dims[i]);
    MCP_TRY(check_operands(at, op, self->reads, self->num_reads));
    MCP_TRY(check_operands(at, op, self->writes, self->num_writes));
    return check_waits(at, op);
}

/* --- streams --- */

/* The stream of a collective: that of the slowest axis it spans. */
static int stream_of_group(unsigned group)
{
    if (group & (MCP_DATA | MCP_EXPERT_DATA | MCP_PIPELINE | MCP_ENDS))
        return MCP_STREAM_DATA;
    if (group & MCP_EXPERT)
        return MCP_STREAM_EXPERT;
    return group & MCP_CONTEXT ? MCP_STREAM_CONTEXT : MCP_STREAM_TENSOR;
}

/* X goes to the next stage, and DX back, but for chunks that run from the last rank to the
 * first, which have streams of their own. */
static int stream_of_message(const struct mcp_op *op, int code, struct mcp_operand frame)
{
    bool sends = code == MCP_SEND, next = op->delta > 0;
    bool mirrored = (frame.index == MCP_FRAME_X) == (sends != next);
    if (sends && next)
        return mirrored ? MCP_STREAM_MIRRORED_SEND_NEXT : MCP_STREAM_SEND_NEXT;
    if (sends)
        return mirrored ? MCP_STREAM_MIRRORED_SEND_PREVIOUS : MCP_STREAM_SEND_PREVIOUS;
    if (next)
        return mirrored ? MCP_STREAM_MIRRORED_RECEIVE_NEXT : MCP_STREAM_RECEIVE_NEXT;
    return mirrored ? MCP_STREAM_MIRRORED_RECEIVE_PREVIOUS : MCP_STREAM_RECEIVE_PREVIOUS;
}

static enum mcp_status check_message(const struct judged *at, int op)
{
    const struct mcp_op *self = &at->block->ops[op];
    int code = mcp_functions[self->function].code;
    int count = code == MCP_SEND ? self->num_reads : self->num_writes;
    const struct mcp_operand *o = code == MCP_SEND ? self->reads : self->writes;
    if (self->group != MCP_PIPELINE || (self->delta != 1 && self->delta != -1))
        return fail(at, op, "a message must go one stage along the pipeline");
    if (count != 1 || o->space != MCP_SPACE_FRAME || o->index > MCP_FRAME_DX)
        return fail(at, op, "a message must be one of the frames X and DX");
    int stream = stream_of_message(self, code, *o);
    if (self->stream != stream)
        return fail(at, op, "runs on stream %s; its messages go by %s",
                    mcp_stream_names[self->stream], mcp_stream_names[stream]);
    return MCP_OK;
}

static enum mcp_status check_stream(const struct judged *at, int op)
{
    const struct mcp_op *self = &at->block->ops[op];
    int code = mcp_functions[self->function].code;
    if (code == MCP_SEND || code == MCP_RECEIVE)
        return check_message(at, op);
    if (code == MCP_COLLECTIVE || code == MCP_SHIFT) {
        int stream = stream_of_group(self->group);
        bool aside = self->stream == MCP_STREAM_DATA && !mcp_is_compute_role(at->role);
        if (self->group == 0)
            return fail(at, op, "has no group");
        if (self->stream != stream && !aside)
            return fail(at, op, "runs on stream %s; collectives of its group go by %s",
                        mcp_stream_names[self->stream], mcp_stream_names[stream]);
        return MCP_OK;
    }
    if (self->group != 0)
        return fail(at, op, "has a group but is no transfer");
    if (self->stream > MCP_STREAM_COPY)
        return fail(at, op, "runs on stream %s, which carries messages only",
                    mcp_stream_names[self->stream]);
    return MCP_OK;
}

/* --- hazards --- */

/* Ops that are over before op i starts, as a bit set. */
struct order {
    size_t words;
    uint64_t *before; /* [num_ops][words] */
};

static bool is_before(const struct order *order, int earlier, int later)
{
    uint64_t word = order->before[(size_t)later * order->words + (size_t)earlier / 64];
    return word >> ((unsigned)earlier % 64) & 1;
}

static void come_after(struct order *order, int later, int earlier)
{
    uint64_t *to = order->before + (size_t)later * order->words;
    const uint64_t *from = order->before + (size_t)earlier * order->words;
    for (size_t w = 0; w < order->words; w++)
        to[w] |= from[w];
    to[(size_t)earlier / 64] |= (uint64_t)1 << ((unsigned)earlier % 64);
}

/* Stream order, waits, and host ops, which hold up what is issued after them. */
static struct order order_of(struct mcp_arena *arena, const struct mcp_block *block)
{
    int last[MCP_NUM_STREAMS], host = -1;
    struct order order = {.words = ((size_t)block->num_ops + 63) / 64};
    order.before = MCP_ARRAY(arena, (size_t)block->num_ops * order.words, uint64_t);
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        last[s] = -1;
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_op *op = &block->ops[i];
        if (last[op->stream] >= 0)
            come_after(&order, i, last[op->stream]);
        if (host >= 0)
            come_after(&order, i, host);
        for (int w = 0; w < op->num_waits; w++)
            come_after(&order, i, op->waits[w]);
        last[op->stream] = i;
        if (mcp_functions[op->function].code == MCP_HOST)
            host = i;
    }
    return order;
}

/* Parts of one flat weight or gradient buffer do not touch each other. */
static bool apart(const struct mcp_op *earlier, const struct mcp_op *later, struct mcp_operand at,
                  bool is_write)
{
    if (!is_write && mcp_read_is_apart(later, earlier, at))
        return true;
    return at.space == MCP_SPACE_LAYER && earlier->weight != MCP_NO_WEIGHT &&
           later->weight != MCP_NO_WEIGHT && earlier->weight != later->weight;
}

/* Op `later` reads or writes `o`: earlier ops that touch it must be over. Those
 * before the last ordered writer were judged with that writer. */
static enum mcp_status check_hazard(const struct judged *at, const struct order *order, int later,
                                    struct mcp_operand o, bool is_write)
{
    const struct mcp_op *ops = at->block->ops;
    const char *name = mcp_operand_buffer(at->program, at->type, o)->name;
    for (int i = later - 1; i >= 0; i--) {
        bool written = mcp_op_writes(&ops[i], o);
        bool touched = written || (is_write && mcp_op_reads(&ops[i], o));
        if (!touched || apart(&ops[i], &ops[later], o, is_write))
            continue;
        if (!is_before(order, i, later))
            return fail(at, later, "%s %s '%s', which op %d (%s) %s, and does not wait for it",
                        is_write ? "writes" : "reads", mcp_space_names[o.space], name, i,
                        mcp_functions[ops[i].function].name, written ? "writes" : "reads");
        if (written && o.space != MCP_SPACE_LAYER)
            return MCP_OK;
    }
    return MCP_OK;
}

static bool is_written_before(const struct mcp_block *block, int op, struct mcp_operand o)
{
    for (int i = op - 1; i >= 0; i--)
        if (mcp_op_writes(&block->ops[i], o))
            return true;
    return false;
}

static enum mcp_status check_order(const struct judged *at, const struct order *order, int op)
{
    const struct mcp_op *self = &at->block->ops[op];
    for (int i = 0; i < self->num_reads; i++) {
        struct mcp_operand o = self->reads[i];
        MCP_TRY(check_hazard(at, order, op, o, false));
        if (o.space == MCP_SPACE_BLOCK && !is_written_before(at->block, op, o))
            return fail(at, op, "reads scratch '%s', which no earlier op of the block writes",
                        mcp_operand_buffer(at->program, at->type, o)->name);
    }
    for (int i = 0; i < self->num_writes; i++)
        MCP_TRY(check_hazard(at, order, op, self->writes[i], true));
    return MCP_OK;
}

/* --- the writing rule --- */

/* Forward and backward change rank and layer space by accumulation only;
 * gradients that are reduced at once are overwritten. */
static enum mcp_status check_writing(const struct judged *at, int op)
{
    const struct mcp_op *self = &at->block->ops[op];
    for (int i = 0; i < self->num_writes; i++) {
        struct mcp_operand o = self->writes[i];
        if (o.space == MCP_SPACE_FRAME || o.space == MCP_SPACE_BLOCK)
            continue;
        if (at->role == MCP_RECOMPUTE)
            return fail(at, op, "changes %s '%s' a second time; recompute may not",
                        mcp_space_names[o.space],
                        mcp_operand_buffer(at->program, at->type, o)->name);
        if (mcp_op_accumulates(self, o) || mcp_is_transient(at->program, o))
            continue;
        return fail(at, op, "overwrites %s '%s'; forward and backward may only add to it",
                    mcp_space_names[o.space], mcp_operand_buffer(at->program, at->type, o)->name);
    }
    return MCP_OK;
}

static enum mcp_status check_block(struct mcp_arena *scratch, const struct judged *at)
{
    struct mcp_mark mark = mcp_arena_mark(scratch);
    for (int i = 0; i < at->block->num_ops; i++) {
        MCP_TRY(check_ranges(at, i));
        MCP_TRY(check_stream(at, i));
        if (mcp_is_compute_role(at->role))
            MCP_TRY(check_writing(at, i));
    }
    struct order order = order_of(scratch, at->block);
    for (int i = 0; i < at->block->num_ops; i++)
        MCP_TRY(check_order(at, &order, i));
    mcp_arena_rewind(scratch, mark);
    return MCP_OK;
}

/* The step itself has no values of a layer; whatever else is one has them all. */
static enum mcp_status check_tables(const struct mcp_program *program, int t, struct mcp_error *err)
{
    const struct mcp_layer_type *type = &program->types[t];
    int count = type->num_buffers[MCP_SPACE_LAYER];
    if (count != 0 && count < MCP_NUM_LAYER_BUFFERS)
        return mcp_fail(err, MCP_INVALID,
                        "layer type %d '%s' has %d layer buffers; none or at least %d are needed",
                        t, type->name, count, MCP_NUM_LAYER_BUFFERS);
    return MCP_OK;
}

static enum mcp_status check_type(struct mcp_arena *scratch, const struct mcp_program *program,
                                  int t, struct mcp_error *err)
{
    const struct mcp_layer_type *type = &program->types[t];
    MCP_TRY(check_tables(program, t, err));
    for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++) {
        struct judged at = {program, type, t, role, &type->blocks[role], err};
        MCP_TRY(check_block(scratch, &at));
    }
    return MCP_OK;
}

enum mcp_status mcp_verify_blocks(struct mcp_arena *scratch, const struct mcp_program *program,
                                  struct mcp_error *err)
{
    if (program->num_rank_buffers < MCP_NUM_RANK_BUFFERS)
        return mcp_fail(err, MCP_INVALID, "%d rank buffers; at least %d are needed",
                        program->num_rank_buffers, MCP_NUM_RANK_BUFFERS);
    for (int t = 0; t < program->num_types; t++)
        MCP_TRY(check_type(scratch, program, t, err));
    return MCP_OK;
}

/* --- summary --- */

static enum mcp_lane lane_of(const struct mcp_op *op)
{
    switch (op->stream) {
    case MCP_STREAM_DATA:
        return MCP_LANE_DATA;
    case MCP_STREAM_COPY:
        return MCP_LANE_COPY;
    default:
        return op->stream < MCP_STREAM_DATA ? MCP_LANE_MAIN : MCP_LANE_CHANNEL;
    }
}

static int channel_of(const struct mcp_op *op)
{
    if (op->stream >= MCP_STREAM_SEND_NEXT)
        return op->stream - MCP_STREAM_SEND_NEXT;
    return op->group & (MCP_PIPELINE | MCP_ENDS) ? MCP_CHANNEL_SPAN : -1;
}

struct summary_writer {
    const struct mcp_block *block;
    struct mcp_block_summary *out;
    int num_accesses;
};

/* On the main lane what was read or written before needs no second look. */
static void add_access(struct summary_writer *w, enum mcp_access_kind kind, struct mcp_operand at,
                       int op)
{
    if (at.space == MCP_SPACE_BLOCK)
        return;
    for (int i = 0; i < w->num_accesses && lane_of(&w->block->ops[op]) == MCP_LANE_MAIN; i++) {
        const struct mcp_access *old = &w->out->accesses[i];
        if (old->kind != MCP_ACCESS_WAIT && mcp_same_operand(old->at, at) &&
            lane_of(&w->block->ops[old->op]) == MCP_LANE_MAIN &&
            (old->kind == kind || kind == MCP_ACCESS_READ))
            return;
    }
    w->out->accesses[w->num_accesses++] = (struct mcp_access){(unsigned char)kind, at, op, 0};
}

static void add_op(struct summary_writer *w, int op)
{
    const struct mcp_op *self = &w->block->ops[op];
    enum mcp_lane lane = lane_of(self);
    for (int i = 0; i < self->num_waits; i++)
        if (lane != MCP_LANE_MAIN || lane_of(&w->block->ops[self->waits[i]]) != MCP_LANE_MAIN)
            w->out->accesses[w->num_accesses++] =
                (struct mcp_access){MCP_ACCESS_WAIT, {0}, op, self->waits[i]};
    for (int i = 0; i < self->num_reads; i++)
        if (!mcp_op_writes(self, self->reads[i]))
            add_access(w, MCP_ACCESS_READ, self->reads[i], op);
    for (int i = 0; i < self->num_writes; i++) {
        enum mcp_access_kind kind = MCP_ACCESS_WRITE;
        if (self->function == MCP_FN_ZERO || self->function == MCP_FN_CLEAR_SCALARS)
            kind = MCP_ACCESS_CLEAR;
        else if (mcp_op_accumulates(self, self->writes[i]))
            kind = MCP_ACCESS_ACCUMULATE;
        add_access(w, kind, self->writes[i], op);
    }
}

void mcp_summarise_block(struct mcp_arena *arena, const struct mcp_block *block,
                         struct mcp_block_summary *out)
{
    const size_t per_op = MCP_MAX_READS + MCP_MAX_WRITES + MCP_MAX_WAITS;
    struct summary_writer w = {block, out, 0};
    out->steps = MCP_ARRAY(arena, block->num_ops, struct mcp_verify_step);
    out->accesses = MCP_ARRAY(arena, (size_t)block->num_ops * per_op, struct mcp_access);
    out->num_steps = 0;
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_op *op = &block->ops[i];
        struct mcp_verify_step *last = out->num_steps > 0 ? &out->steps[out->num_steps - 1] : NULL;
        struct mcp_verify_step step = {.op = i,
                                       .lane = lane_of(op),
                                       .channel = channel_of(op),
                                       .host = mcp_functions[op->function].code == MCP_HOST,
                                       .first_access = w.num_accesses};
        bool run = last != NULL && step.lane == MCP_LANE_MAIN && last->lane == MCP_LANE_MAIN &&
                   !step.host && !last->host;
        if (!run)
            out->steps[out->num_steps++] = step;
        add_op(&w, i);
        last = &out->steps[out->num_steps - 1];
        last->op = i;
        last->num_accesses = w.num_accesses - last->first_access;
    }
}
