/* step/build.c: plan -> program: types, entry lists, slots of every pipeline rank. */
#include "step/build.h"

#include "step/schedule.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_TYPES 64
_Static_assert((int)MCP_FORWARD == (int)MCP_PASS_FORWARD &&
                   (int)MCP_BACKWARD == (int)MCP_PASS_BACKWARD &&
                   (int)MCP_BACKWARD_INPUT == (int)MCP_PASS_BACKWARD_INPUT &&
                   (int)MCP_BACKWARD_WEIGHT == (int)MCP_PASS_BACKWARD_WEIGHT,
               "a slot's pass is its action's");

struct maker {
    struct mcp_arena *arena;
    const struct mcp_question *question;
    const struct mcp_plan *plan;
    struct mcp_program *program;
    struct mcp_layer_spec specs[MAX_TYPES];
    unsigned short *type_of; /* [extended layers] */
    size_t lists_capacity;
    /* the list being written */
    struct mcp_entry *entries;
    size_t num_entries, entries_capacity;
    int gathers; /* of the rank so far: which copy comes next */
    bool forward_only;
};

static void add_type(struct maker *m, const struct mcp_layer_spec *spec)
{
    struct mcp_program *program = m->program;
    assert(program->num_types < MAX_TYPES);
    m->specs[program->num_types] = *spec;
    mcp_layer_build(m->arena, m->question, m->plan, spec, &program->types[program->num_types++]);
}

static int find_type(const struct maker *m, const struct mcp_layer_spec *spec)
{
    for (int i = 0; i < m->program->num_types; i++)
        if (mcp_layer_spec_equal(&m->specs[i], spec))
            return i;
    return -1;
}

static void make_types(struct maker *m)
{
    struct mcp_program *program = m->program;
    program->types = MCP_ARRAY(m->arena, MAX_TYPES, struct mcp_layer_type);
    m->type_of = MCP_ARRAY(m->arena, program->num_layers + 1, unsigned short);
    struct mcp_layer_spec step = {.kind = MCP_KIND_STEP, .forward_only = m->forward_only};
    add_type(m, &step);
    for (int layer = 0; layer < program->num_layers; layer++) {
        struct mcp_layer_spec spec = mcp_layer_spec_at(m->question, m->plan, layer);
        if (m->forward_only) {
            spec.recompute = MCP_RECOMPUTE_NONE;
            spec.forward_only = true;
        }
        int type = find_type(m, &spec);
        if (type < 0) {
            type = program->num_types;
            add_type(m, &spec);
        }
        m->type_of[layer] = (unsigned short)type;
    }
}

static void make_rank_buffers(struct maker *m)
{
    static const char *const names[MCP_NUM_RANK_BUFFERS] = {"tied_weights", "tied_gradients",
                                                            "loss", "norm", "scalars"};
    struct mcp_program *program = m->program;
    enum mcp_dtype weight = mcp_weight_dtype(m->question, MCP_KIND_HEAD);
    enum mcp_dtype gradient = mcp_gradient_dtype(m->question);
    const int64_t bytes[MCP_NUM_RANK_BUFFERS] = {mcp_shared_weights_bytes(m->question, m->plan),
                                                 mcp_shared_gradients_bytes(m->question, m->plan),
                                                 4, 4, 32};
    program->num_rank_buffers = MCP_NUM_RANK_BUFFERS;
    program->rank_buffers = MCP_ARRAY(m->arena, MCP_NUM_RANK_BUFFERS, struct mcp_buffer);
    for (int i = 0; i < MCP_NUM_RANK_BUFFERS; i++) {
        struct mcp_buffer *buffer = &program->rank_buffers[i];
        snprintf(buffer->name, sizeof buffer->name, "%s", names[i]);
        buffer->bytes = buffer->capacity_bytes = bytes[i];
        buffer->dtype = (unsigned char)(i == MCP_RANK_TIED_WEIGHTS     ? weight
                                        : i == MCP_RANK_TIED_GRADIENTS ? gradient
                                                                       : MCP_F32);
        buffer->kind = (unsigned char)(i == MCP_RANK_TIED_WEIGHTS     ? MCP_BUFFER_WEIGHT
                                       : i == MCP_RANK_TIED_GRADIENTS ? MCP_BUFFER_GRADIENT
                                                                      : MCP_BUFFER_SCRATCH);
    }
}

static const struct mcp_layer_type *type_at(const struct maker *m, int layer)
{
    return &m->program->types[layer == m->program->num_layers ? 0 : m->type_of[layer]];
}

/* Blocks without ops are not worth an entry. */
static void add_entry(struct maker *m, enum mcp_block_role role, int layer, int copy)
{
    if (type_at(m, layer)->blocks[role].num_ops == 0)
        return;
    m->entries =
        mcp_grow(m->arena, m->entries, m->num_entries, &m->entries_capacity, sizeof *m->entries);
    struct mcp_entry *entry = &m->entries[m->num_entries++];
    memset(entry, 0, sizeof *entry);
    entry->type = layer == m->program->num_layers ? 0 : m->type_of[layer];
    entry->role = (unsigned char)role;
    entry->layer = layer;
    entry->copy = (unsigned char)copy;
}

/* The list just written, stored once. */
static int finish_list(struct maker *m)
{
    struct mcp_program *program = m->program;
    size_t count = m->num_entries;
    m->num_entries = 0;
    for (int i = program->num_lists - 1; i >= 0; i--)
        if ((size_t)program->lists[i].num_entries == count &&
            memcmp(program->lists[i].entries, m->entries, count * sizeof *m->entries) == 0)
            return i;
    program->lists = mcp_grow(m->arena, program->lists, (size_t)program->num_lists,
                              &m->lists_capacity, sizeof *program->lists);
    struct mcp_entry_list *list = &program->lists[program->num_lists];
    list->num_entries = (int)count;
    list->entries = MCP_ARRAY(m->arena, count, struct mcp_entry);
    if (count > 0)
        memcpy(list->entries, m->entries, count * sizeof *m->entries);
    return program->num_lists++;
}

static int virtual_stage(const struct maker *m, int rank, int chunk)
{
    return mcp_plan_virtual_stage(m->plan, rank, chunk);
}

/* For every slot: one layer ahead, into two copies, or when the layer is at hand, into one. */
static bool gathers(const struct maker *m, int layer)
{
    return mcp_plan_gathers_again(m->plan) && type_at(m, layer)->blocks[MCP_GATHER].num_ops > 0;
}

/* First layer that a slot runs. */
static int entry_layer(const struct maker *m, int rank, const struct mcp_action *action)
{
    int first, count;
    mcp_chunk_extent(m->question, m->plan, virtual_stage(m, rank, action->chunk), &first, &count);
    return action->pass != MCP_PASS_FORWARD ? first + count - 1 : first;
}

/* Does the pass do anything in the layer, with its weights? Weight gradients need none, and
 * the embedding has no input to find a gradient of. */
static bool uses_weights(const struct maker *m, enum mcp_pass pass, int layer)
{
    return pass != MCP_PASS_BACKWARD_WEIGHT && type_at(m, layer)->blocks[pass].num_ops > 0;
}

/* The layer that the slots from `index` on run first with its weights; -1: there is none. */
static int next_layer(const struct maker *m, int rank, const struct mcp_schedule_row *row,
                      int index)
{
    for (; index < row->num_actions; index++) {
        int layer = entry_layer(m, rank, &row->actions[index]);
        if (uses_weights(m, row->actions[index].pass, layer))
            return layer;
    }
    return -1;
}

static void gather_ahead(struct maker *m, int layer)
{
    if (layer >= 0 && gathers(m, layer))
        add_entry(m, MCP_GATHER, layer, m->plan->overlap.gather ? m->gathers++ % 2 : 0);
}

/* Whose weights are gathered before `layer` runs, `next` after it. */
static int gathered_at(const struct maker *m, int layer, int next)
{
    return m->plan->overlap.gather ? next : layer;
}

/* The copy that holds `layer`: the one before the newest once the next is on its way. */
static int copy_of(const struct maker *m, int layer, int next)
{
    if (!gathers(m, layer) || !m->plan->overlap.gather)
        return 0;
    int newer = next >= 0 && gathers(m, next) ? 1 : 0;
    return (m->gathers - 1 - newer) & 1;
}

/* Gradients that are reduced once a step, with nothing to hide them. */
static bool reduces_at_end(const struct maker *m)
{
    return m->plan->zero_stage < 2 && !m->plan->overlap.data;
}

/* After every microbatch's gradients, or bucket by bucket after the last one's of the chunk. */
static void reduce_after(struct maker *m, int layer, bool last)
{
    if (m->plan->zero_stage >= 2 || (last && !reduces_at_end(m)))
        add_entry(m, MCP_REDUCE, layer, 0);
}

static void forward_list(struct maker *m, int k, int next_slot_layer)
{
    int first, count;
    mcp_chunk_extent(m->question, m->plan, k, &first, &count);
    if (mcp_plan_has_boundary(m->plan, k - 1))
        add_entry(m, MCP_RECEIVE_FORWARD, first, 0);
    for (int i = 0; i < count; i++) {
        int layer = first + i, next = i + 1 < count ? layer + 1 : next_slot_layer;
        gather_ahead(m, gathered_at(m, layer, next));
        add_entry(m, MCP_FORWARD, layer, copy_of(m, layer, next));
    }
    if (mcp_plan_has_boundary(m->plan, k))
        add_entry(m, MCP_SEND_FORWARD, first + count - 1, 0);
}

/* A backward slot: whole, or for inputs alone. */
struct backward {
    int k;
    enum mcp_pass pass;
    bool last; /* of its chunk */
    int next_slot_layer;
};

/* Returns how many entries come before the message is needed. */
static int backward_list(struct maker *m, const struct backward *slot)
{
    int first, count, lead = 0, k = slot->k;
    mcp_chunk_extent(m->question, m->plan, k, &first, &count);
    int bottom = first, top = first + count - 1;
    while (bottom < top && !uses_weights(m, slot->pass, bottom))
        bottom++;
    for (int layer = top; layer >= bottom; layer--) {
        int next = layer > bottom ? layer - 1 : slot->next_slot_layer;
        if (uses_weights(m, slot->pass, layer))
            gather_ahead(m, gathered_at(m, layer, next));
        int copy = copy_of(m, layer, next);
        add_entry(m, MCP_RECOMPUTE, layer, copy);
        if (layer == top && mcp_plan_has_boundary(m->plan, k)) {
            lead = (int)m->num_entries;
            add_entry(m, MCP_RECEIVE_BACKWARD, layer, 0);
        }
        add_entry(m, (enum mcp_block_role)slot->pass, layer, copy);
        if (layer == first && mcp_plan_has_boundary(m->plan, k - 1))
            add_entry(m, MCP_SEND_BACKWARD, layer, 0);
        if (slot->pass == MCP_PASS_BACKWARD)
            reduce_after(m, layer, slot->last);
    }
    return lead;
}

static void weight_list(struct maker *m, int k, bool last)
{
    int first, count;
    mcp_chunk_extent(m->question, m->plan, k, &first, &count);
    for (int layer = first + count - 1; layer >= first; layer--) {
        add_entry(m, MCP_BACKWARD_WEIGHT, layer, 0);
        reduce_after(m, layer, last);
    }
}

static struct mcp_slot *add_slot(struct mcp_program_class *class, int chunk, int microbatch,
                                 enum mcp_block_role pass)
{
    struct mcp_slot *slot = &class->slots[class->num_slots++];
    slot->chunk = chunk;
    slot->microbatch = microbatch;
    slot->pass = (unsigned char)pass;
    return slot;
}

static void each_layer(struct maker *m, int rank, enum mcp_block_role role)
{
    for (int c = 0; c < m->plan->virtual_stages; c++) {
        int first, count;
        mcp_chunk_extent(m->question, m->plan, virtual_stage(m, rank, c), &first, &count);
        for (int i = 0; i < count; i++)
            add_entry(m, role, first + i, 0);
    }
}

static void make_prologue(struct maker *m, int rank, struct mcp_program_class *class,
                          int first_layer)
{
    add_entry(m, MCP_PROLOGUE, m->program->num_layers, 0);
    each_layer(m, rank, MCP_PROLOGUE);
    if (m->plan->zero_stage > 0 && !mcp_plan_gathers_again(m->plan))
        each_layer(m, rank, MCP_GATHER);
    gather_ahead(m, gathered_at(m, -1, first_layer));
    add_slot(class, -1, -1, MCP_PROLOGUE)->list = finish_list(m);
}

static void make_epilogue(struct maker *m, int rank, struct mcp_program_class *class)
{
    if (reduces_at_end(m))
        each_layer(m, rank, MCP_REDUCE);
    each_layer(m, rank, MCP_EPILOGUE);
    add_entry(m, MCP_EPILOGUE, m->program->num_layers, 0);
    each_layer(m, rank, MCP_OPTIMIZER);
    add_slot(class, -1, -1, MCP_EPILOGUE)->list = finish_list(m);
}

/* The action after which the chunk's gradients are complete. */
static bool is_last_of_chunk(const struct mcp_schedule_row *row, int index)
{
    for (int i = index + 1; i < row->num_actions; i++)
        if (row->actions[i].chunk == row->actions[index].chunk &&
            (row->actions[i].pass == MCP_PASS_BACKWARD ||
             row->actions[i].pass == MCP_PASS_BACKWARD_WEIGHT))
            return false;
    return true;
}

static void make_slot(struct maker *m, int rank, struct mcp_program_class *class,
                      const struct mcp_schedule_row *row, int index)
{
    const struct mcp_action *a = &row->actions[index];
    int k = virtual_stage(m, rank, a->chunk), next = next_layer(m, rank, row, index + 1);
    struct mcp_slot *slot = add_slot(class, a->chunk, a->microbatch, (enum mcp_block_role)a->pass);
    bool last = a->pass != MCP_PASS_FORWARD && is_last_of_chunk(row, index);
    switch (a->pass) {
    case MCP_PASS_FORWARD:
        forward_list(m, k, next);
        break;
    case MCP_PASS_BACKWARD_WEIGHT:
        weight_list(m, k, last);
        break;
    default:
        slot->lead = backward_list(m, &(struct backward){k, a->pass, last, next});
    }
    slot->list = finish_list(m);
}

/* What is left of an order that waits for nothing in vain does not either. */
static struct mcp_schedule_row forwards_of(struct mcp_arena *arena, struct mcp_schedule_row row)
{
    struct mcp_action *forwards = MCP_ARRAY(arena, row.num_actions, struct mcp_action);
    int count = 0;
    for (int i = 0; i < row.num_actions; i++)
        if (row.actions[i].pass == MCP_PASS_FORWARD)
            forwards[count++] = row.actions[i];
    return (struct mcp_schedule_row){.num_actions = count, .actions = forwards};
}

static void make_class(struct maker *m, int rank)
{
    struct mcp_schedule_row row =
        mcp_plan_row(m->arena, m->plan, m->program->num_microbatches, rank);
    if (m->forward_only)
        row = forwards_of(m->arena, row);
    struct mcp_program_class *class = &m->program->classes[rank];
    class->slots = MCP_ARRAY(m->arena, row.num_actions + 2, struct mcp_slot);
    m->gathers = 0;
    make_prologue(m, rank, class, entry_layer(m, rank, &row.actions[0]));
    for (int i = 0; i < row.num_actions; i++)
        make_slot(m, rank, class, &row, i);
    make_epilogue(m, rank, class);
}

static void build(struct mcp_arena *arena, const struct mcp_question *question,
                  const struct mcp_plan *plan, bool forward_only, struct mcp_program *out)
{
    struct maker *m = MCP_NEW(arena, struct maker);
    m->forward_only = forward_only;
    memset(out, 0, sizeof *out);
    m->arena = arena;
    m->question = question;
    m->plan = plan;
    m->program = out;
    out->plan = *plan;
    out->num_microbatches = (int)mcp_num_microbatches(plan, question->job);
    out->num_layers = mcp_extended_layers(question->model);
    out->num_classes = plan->pipeline_parallel;
    out->classes = MCP_ARRAY(arena, out->num_classes, struct mcp_program_class);
    make_types(m);
    make_rank_buffers(m);
    for (int rank = 0; rank < out->num_classes; rank++)
        make_class(m, rank);
}

void mcp_program_build(struct mcp_arena *arena, const struct mcp_question *question,
                       const struct mcp_plan *plan, struct mcp_program *out)
{
    build(arena, question, plan, false, out);
}

void mcp_program_build_evaluation(struct mcp_arena *arena, const struct mcp_question *question,
                                  const struct mcp_plan *plan, struct mcp_program *out)
{
    build(arena, question, plan, true, out);
}
