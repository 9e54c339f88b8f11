/* exec/interpret.c: entry -> op -> resolve, wait, launch, record. */
#include "exec/interpret.h"

#include "core/minmax.h"
#include "core/text.h"
#include "step/batch.h"
#include "step/extents.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Streams that join compute at a block's ends. */
static const bool is_closed[MCP_NUM_STREAMS] = {
    [MCP_STREAM_COMPUTE] = true,
    [MCP_STREAM_TENSOR] = true,
    [MCP_STREAM_CONTEXT] = true,
    [MCP_STREAM_EXPERT] = true,
};

/* Who used a place last, in entries before the one at hand. 0: nobody. */
struct cell {
    struct mcp_ticket writer;
    int64_t readers[MCP_NUM_STREAMS]; /* since then; numbers of tickets */
};

/* What the entry at hand did to a cell: other entries wait for it, its own ops do not:
 * inside a block the program says who waits for whom. */
struct touch {
    int cell;
    bool write;
    struct mcp_ticket by;
};

struct op_key {
    int slot, entry, op;
};

struct record {
    struct op_key key;
    struct mcp_ticket ticket;
    unsigned char function, pass;
    int layer, microbatch;
};

/* A program that the rank runs, in turns with others. */
struct mine {
    const struct mcp_program *program; /* NULL: none */
    struct mcp_pool *pool;
    struct cell *cells;
};

struct mcp_interpreter {
    struct mcp_arena *arena;
    struct mcp_rank *rank;
    const struct mcp_backend_calls *calls;
    struct mcp_backend *backend;
    struct mcp_interpret_options options;
    struct mine mine[1 + MCP_INTERPRET_OTHERS];
    struct mcp_pool *pool;
    char *memory;
    struct cell *cells;
    struct touch *touches;
    size_t num_touches, touches_capacity;
    /* last tickets of earlier entries, by stream */
    int64_t joined[MCP_NUM_STREAMS];  /* of any op */
    int64_t scratch[MCP_NUM_STREAMS]; /* of ops that used scratch */
    struct mcp_ticket tickets[MCP_MAX_BLOCK_OPS];
    /* the entry */
    const struct mcp_entry *entry;
    const struct mcp_layer_type *type;
    struct op_key key;
    int microbatch;
    struct record *records;
    size_t num_records, records_capacity;
    double start_s;
};

/* --- setting up --- */

/* What a plan may have instead. */
static const char *other_way(const struct mcp_op *op)
{
    switch (op->function) {
    case MCP_FN_CAST:
        return ": plan with --precision bf16, fp16 or fp32, or for a stack with casts_operands, as "
               "mcpplan-cpu and mcpplan-cuda have";
    case MCP_FN_ATTENTION_UNFUSED_FORWARD:
    case MCP_FN_ATTENTION_UNFUSED_BACKWARD:
        return ": plan with --attention flash2";
    case MCP_FN_RESIDUAL_DROPOUT_FORWARD:
    case MCP_FN_RESIDUAL_DROPOUT_BACKWARD:
        return ": plan without --dropout";
    default:
        return "";
    }
}

static enum mcp_status refuse(const struct mcp_layer_type *type, const struct mcp_op *op,
                              const struct mcp_backend_calls *calls, struct mcp_error *err)
{
    return mcp_fail(err, MCP_INVALID,
                    "the %s backend cannot run %s in %s, which layers of type '%s' need%s",
                    calls->name, mcp_functions[op->function].name, mcp_dtype_names[op->dtype],
                    type->name, other_way(op));
}

static enum mcp_status check_support(const struct mcp_interpreter *in,
                                     const struct mcp_program *program, struct mcp_error *err)
{
    MCP_TRY(mcp_program_check_trained(program, err));
    for (int t = 0; t < program->num_types; t++)
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++) {
            const struct mcp_block *block = &program->types[t].blocks[role];
            for (int i = 0; i < block->num_ops; i++)
                if (!in->calls->supports((enum mcp_function)block->ops[i].function,
                                         (enum mcp_dtype)block->ops[i].dtype))
                    return refuse(&program->types[t], &block->ops[i], in->calls, err);
        }
    return mcp_program_check_extents(program, err);
}

/* A copy to a device's memory takes its time however little it is. */
static void clear_gradients(const struct mcp_interpreter *in)
{
    enum { PIECE = 1 << 20 };
    const struct mcp_place *places;
    const int count = mcp_pool_turns(in->pool, &places);
    struct mcp_arena *scratch = mcp_arena_new();
    const char *zeros = MCP_ARRAY(scratch, count > 0 ? PIECE : 1, char);
    for (int i = 0; i < count; i++)
        for (int64_t at = 0; at < places[i].bytes; at += PIECE)
            in->calls->write(in->backend, in->memory + places[i].offset + at, zeros,
                             mcp_min_int64(PIECE, places[i].bytes - at));
    mcp_arena_free(scratch);
}

static bool is_same_place(struct mcp_place a, struct mcp_place b)
{
    return a.offset == b.offset && a.bytes == b.bytes;
}

/* A rank has the sequences of the first program's batch, and no others. */
static enum mcp_status check_batch(const struct mcp_program *first, const struct mcp_program *other,
                                   struct mcp_error *err)
{
    const long long own[] = {first->num_microbatches, mcp_microbatch_sequences(first),
                             mcp_sequence_tokens(first)};
    const long long its[] = {other->num_microbatches, mcp_microbatch_sequences(other),
                             mcp_sequence_tokens(other)};
    if (memcmp(own, its, sizeof own) == 0)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "the program to turn to has %lld microbatches of %lld x %lld tokens, the one "
                    "to begin with %lld of %lld x %lld: both must be of one plan and job",
                    its[0], its[1], its[2], own[0], own[1], own[2]);
}

/* What lasts must lie where the other program looks for it. */
static enum mcp_status check_other(const struct mine *first, const struct mine *other,
                                   struct mcp_error *err)
{
    MCP_TRY(check_batch(first->program, other->program, err));
    const int layers = first->program->num_layers;
    bool same = other->program->num_layers == layers &&
                mcp_mesh_is_same(&first->program->plan, &other->program->plan);
    for (int i = 0; same && i < MCP_NUM_RANK_BUFFERS; i++)
        same = is_same_place(mcp_pool_lasting(first->pool, -1, i),
                             mcp_pool_lasting(other->pool, -1, i));
    for (int layer = 0; same && layer < layers; layer++)
        for (int i = 0; same && i < MCP_MAX_LAYER_BUFFERS; i++)
            same = is_same_place(mcp_pool_lasting(first->pool, layer, i),
                                 mcp_pool_lasting(other->pool, layer, i));
    return same ? MCP_OK
                : mcp_fail(err, MCP_INVALID,
                           "the program to turn to keeps other buffers than the one to begin "
                           "with: both must be of one plan and job");
}

static enum mcp_status make_pools(struct mcp_interpreter *in, struct mcp_error *err)
{
    for (int i = 0; i <= MCP_INTERPRET_OTHERS; i++) {
        struct mine *mine = &in->mine[i];
        mine->program = i == 0 ? in->rank->program : in->options.others[i - 1];
        if (mine->program == NULL)
            continue;
        MCP_TRY(check_support(in, mine->program, err));
        if (in->rank->at.pipeline >= mine->program->num_classes)
            return mcp_fail(err, MCP_INVALID, "the program to turn to has %d pipeline stages of %d",
                            mine->program->num_classes, in->mine[0].program->num_classes);
        MCP_TRY(mcp_pool_new(in->arena, mine->program, in->rank->at.pipeline, &mine->pool, err));
        mine->cells = MCP_ARRAY(in->arena, mcp_pool_cells(mine->pool), struct cell);
        MCP_TRY(check_other(&in->mine[0], mine, err));
    }
    return MCP_OK;
}

static int64_t largest_bytes(const struct mcp_interpreter *in)
{
    int64_t largest = 0;
    for (int i = 0; i <= MCP_INTERPRET_OTHERS; i++)
        if (in->mine[i].program != NULL)
            largest = mcp_max_int64(largest, mcp_pool_bytes(in->mine[i].pool));
    return largest;
}

enum mcp_status mcp_interpreter_new(struct mcp_arena *arena, struct mcp_rank *rank,
                                    const struct mcp_backend_calls *calls,
                                    struct mcp_backend *backend,
                                    const struct mcp_interpret_options *options,
                                    struct mcp_interpreter **out, struct mcp_error *err)
{
    struct mcp_interpreter *in = MCP_NEW(arena, struct mcp_interpreter);
    void *memory = NULL;
    in->arena = arena;
    in->rank = rank;
    in->calls = calls;
    in->backend = backend;
    in->options = *options;
    MCP_TRY(make_pools(in, err));
    MCP_TRY(calls->allocate(backend, largest_bytes(in), &memory, err));
    in->memory = memory;
    mcp_interpreter_turn(in, 0);
    *out = in;
    return MCP_OK;
}

void mcp_interpreter_turn(struct mcp_interpreter *in, int which)
{
    const struct mine *mine = &in->mine[which];
    assert(which >= 0 && which <= MCP_INTERPRET_OTHERS && mine->program != NULL);
    in->rank->program = mine->program;
    in->pool = mine->pool;
    in->cells = mine->cells;
    memset(in->cells, 0, (size_t)mcp_pool_cells(in->pool) * sizeof *in->cells); /* all is done */
    clear_gradients(in);
}

/* --- hazards --- */

static void wait_for(const struct mcp_interpreter *in, int stream, int other, int64_t number)
{
    if (other != stream && number > 0)
        in->calls->wait(in->backend, (enum mcp_stream)stream,
                        (struct mcp_ticket){(unsigned char)other, number});
}

/* A read waits for the cell's last write, a write for its readers too. */
static void wait_for_cell(const struct mcp_interpreter *in, int stream, const struct mcp_place *at,
                          bool write)
{
    if (at->cell < 0)
        return;
    const struct cell *cell = &in->cells[at->cell];
    wait_for(in, stream, cell->writer.stream, cell->writer.number);
    for (int s = 0; write && s < MCP_NUM_STREAMS; s++)
        wait_for(in, stream, s, cell->readers[s]);
}

static void touch(struct mcp_interpreter *in, const struct mcp_place *at, bool write,
                  struct mcp_ticket by)
{
    if (at->cell < 0)
        return;
    in->touches = mcp_grow(in->arena, in->touches, in->num_touches, &in->touches_capacity,
                           sizeof *in->touches);
    in->touches[in->num_touches++] = (struct touch){at->cell, write, by};
}

/* At the end of an entry its ops become what others wait for. */
static void settle(struct mcp_interpreter *in)
{
    for (size_t i = 0; i < in->num_touches; i++) {
        const struct touch *t = &in->touches[i];
        struct cell *cell = &in->cells[t->cell];
        if (t->write) {
            memset(cell, 0, sizeof *cell);
            cell->writer = t->by;
        } else {
            cell->readers[t->by.stream] = t->by.number;
        }
    }
    in->num_touches = 0;
}

/* --- one op --- */

struct resolved {
    struct mcp_launch launch;
    struct mcp_place reads[MCP_MAX_READS], writes[MCP_MAX_WRITES];
    bool uses_scratch;
};

static void *resolve(const struct mcp_interpreter *in, struct mcp_operand operand,
                     struct mcp_place *place, int64_t *bytes, bool *uses_scratch)
{
    *place = mcp_pool_place(in->pool, in->entry, in->microbatch, operand);
    *bytes = place->bytes;
    *uses_scratch = *uses_scratch || operand.space == MCP_SPACE_BLOCK;
    return place->bytes == 0 ? NULL : in->memory + place->offset;
}

static void resolve_op(const struct mcp_interpreter *in, const struct mcp_op *op,
                       struct resolved *out)
{
    struct mcp_launch *launch = &out->launch;
    out->uses_scratch = false;
    launch->op = op;
    launch->type = in->type;
    launch->rank = in->rank;
    launch->layer = in->entry->layer;
    launch->microbatch = in->microbatch;
    for (int i = 0; i < op->num_reads; i++)
        launch->reads[i] =
            resolve(in, op->reads[i], &out->reads[i], &launch->read_bytes[i], &out->uses_scratch);
    for (int i = 0; i < op->num_writes; i++)
        launch->writes[i] = resolve(in, op->writes[i], &out->writes[i], &launch->write_bytes[i],
                                    &out->uses_scratch);
}

/* For what the block says, for what earlier entries did to the operands, and at the start
 * of the block for streams that join. */
static void wait_for_all(const struct mcp_interpreter *in, int index, const struct resolved *op)
{
    const struct mcp_op *self = op->launch.op;
    int stream = self->stream;
    const unsigned short *more;
    int num_more = mcp_pool_waits(in->pool, in->entry->type, in->entry->role, index, &more);
    for (int i = 0; i < self->num_waits; i++)
        wait_for(in, stream, in->tickets[self->waits[i]].stream,
                 in->tickets[self->waits[i]].number);
    for (int i = 0; i < num_more; i++)
        wait_for(in, stream, in->tickets[more[i]].stream, in->tickets[more[i]].number);
    for (int i = 0; i < self->num_reads; i++)
        wait_for_cell(in, stream, &op->reads[i], false);
    for (int i = 0; i < self->num_writes; i++)
        wait_for_cell(in, stream, &op->writes[i], true);
    for (int s = 0; s < MCP_NUM_STREAMS; s++) {
        if (is_closed[stream] && is_closed[s])
            wait_for(in, stream, s, in->joined[s]);
        if (op->uses_scratch)
            wait_for(in, stream, s, in->scratch[s]);
    }
}

static void record(struct mcp_interpreter *in, const struct mcp_op *op, struct mcp_ticket ticket)
{
    if (!in->options.timeline)
        return;
    in->records = mcp_grow(in->arena, in->records, in->num_records, &in->records_capacity,
                           sizeof *in->records);
    in->records[in->num_records++] = (struct record){.key = in->key,
                                                     .ticket = ticket,
                                                     .function = op->function,
                                                     .pass = in->entry->role,
                                                     .layer = in->entry->layer,
                                                     .microbatch = in->microbatch};
}

static enum mcp_status run_op(struct mcp_interpreter *in, int index, bool *scratch_streams,
                              struct mcp_error *err)
{
    const struct mcp_op *op = &in->type->blocks[in->entry->role].ops[index];
    struct resolved resolved;
    struct mcp_ticket ticket = {0};
    in->key.op = index;
    resolve_op(in, op, &resolved);
    wait_for_all(in, index, &resolved);
    MCP_TRY(in->calls->launch(in->backend, &resolved.launch, &ticket, err));
    in->tickets[index] = ticket;
    record(in, op, ticket);
    if (in->options.look != NULL)
        in->options.look(in->options.look_context, in->entry->role, &resolved.launch);
    for (int i = 0; i < op->num_reads; i++)
        touch(in, &resolved.reads[i], false, ticket);
    for (int i = 0; i < op->num_writes; i++)
        touch(in, &resolved.writes[i], true, ticket);
    scratch_streams[op->stream] = scratch_streams[op->stream] || resolved.uses_scratch;
    return MCP_OK;
}

/* --- entries and slots --- */

static enum mcp_status run_entry(struct mcp_interpreter *in, struct mcp_error *err)
{
    const struct mcp_block *block = &in->type->blocks[in->entry->role];
    bool scratch_streams[MCP_NUM_STREAMS] = {false};
    assert(block->num_ops <= MCP_MAX_BLOCK_OPS);
    for (int i = 0; i < block->num_ops; i++)
        MCP_TRY(run_op(in, i, scratch_streams, err));
    for (int i = 0; i < block->num_ops; i++)
        in->joined[in->tickets[i].stream] = in->tickets[i].number;
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        if (scratch_streams[s])
            in->scratch[s] = in->joined[s];
    settle(in);
    return MCP_OK;
}

static enum mcp_status where(const struct mcp_interpreter *in, enum mcp_status status,
                             struct mcp_error *err)
{
    char place[160];
    const struct mcp_op *op = &in->type->blocks[in->entry->role].ops[in->key.op];
    if (err != NULL && mcp_error_names_rank(err->text))
        return status; /* the backend knows better, and has said where */
    snprintf(place, sizeof place, "rank %d, layer %d %s, %s", in->rank->rank, in->entry->layer,
             mcp_block_role_names[in->entry->role], mcp_functions[op->function].name);
    mcp_error_prefix(err, place);
    return status;
}

static enum mcp_status run_slot(struct mcp_interpreter *in, const struct mcp_slot *slot,
                                struct mcp_error *err)
{
    const struct mcp_program *program = in->rank->program;
    const struct mcp_entry_list *list = &program->lists[slot->list];
    for (int e = 0; e < list->num_entries; e++) {
        in->key.entry = e;
        in->entry = &list->entries[e];
        in->type = &program->types[in->entry->type];
        in->microbatch =
            slot->microbatch < 0 ? -1 : slot->microbatch + in->entry->microbatch_offset;
        enum mcp_status status = run_entry(in, err);
        if (status != MCP_OK)
            return where(in, status, err);
    }
    return MCP_OK;
}

enum mcp_status mcp_interpret_step(struct mcp_interpreter *in, struct mcp_error *err)
{
    const struct mcp_program_class *class = &in->rank->program->classes[in->rank->at.pipeline];
    in->num_records = 0;
    in->start_s = in->calls->clock(in->backend);
    for (int s = 0; s < class->num_slots; s++) {
        in->key.slot = s;
        MCP_TRY(run_slot(in, &class->slots[s], err));
    }
    return in->calls->finish(in->backend, err);
}

/* --- asking --- */

int64_t mcp_interpreter_peak_bytes(const struct mcp_interpreter *in)
{
    int64_t peak = 0;
    for (int i = 0; i <= MCP_INTERPRET_OTHERS; i++)
        if (in->mine[i].program != NULL)
            peak = mcp_max_int64(peak, mcp_pool_peak_bytes(in->mine[i].pool));
    return peak;
}

const struct mcp_pool *mcp_interpreter_pool(const struct mcp_interpreter *in)
{
    return in->pool;
}

void *mcp_interpreter_buffer(const struct mcp_interpreter *in, int layer, int index, int64_t *bytes)
{
    struct mcp_place place = mcp_pool_lasting(in->pool, layer, index);
    *bytes = place.bytes;
    return place.bytes == 0 ? NULL : in->memory + place.offset;
}

double mcp_interpreter_start(const struct mcp_interpreter *in)
{
    return in->start_s;
}

static int64_t to_ns(double seconds)
{
    return seconds <= 0 ? 0 : (int64_t)(seconds * 1e9 + 0.5);
}

void mcp_interpreter_timeline(const struct mcp_interpreter *in, struct mcp_arena *arena,
                              struct mcp_timeline *out)
{
    for (size_t i = 0; i < in->num_records; i++) {
        const struct record *r = &in->records[i];
        struct mcp_op_times times;
        if (!in->calls->times(in->backend, r->ticket, &times))
            continue;
        struct mcp_timeline_span span = {.rank = in->rank->rank,
                                         .slot = r->key.slot,
                                         .entry = r->key.entry,
                                         .op = r->key.op,
                                         .stream = r->ticket.stream,
                                         .function = r->function,
                                         .pass = r->pass,
                                         .layer = r->layer,
                                         .microbatch = r->microbatch,
                                         .start_ns = to_ns(times.start_s - in->start_s),
                                         .end_ns = to_ns(times.end_s - in->start_s)};
        mcp_timeline_add(arena, out, &span);
    }
}
