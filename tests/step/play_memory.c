/* tests/step/play_memory.c: bytes of one class over the step, walked op by op. */
#include "tests/step/play_memory.h"

#include "step/layer.h"
#include "step/outbox.h"

#include <math.h>
#include <string.h>

struct walk {
    struct mcp_arena *arena;
    const struct mcp_question *question;
    const struct mcp_program *program;
    int class;
    int stride;      /* frame buffers of the largest type */
    int64_t *held;   /* [layer][microbatch][stride] bytes of live frames */
    int64_t x_bytes; /* of the residual stream: the largest X of any type */
    int64_t live, peak;
    int64_t kept;       /* of the peak: saved frames */
    bool *scratch_live; /* [block buffers of the largest type] */
    /* the entry */
    const struct mcp_entry *entry;
    const struct mcp_layer_type *type;
    const struct mcp_block *block;
    int microbatch;
};

static int64_t *held(const struct walk *w, int layer, int index)
{
    return &w->held[((size_t)layer * (size_t)w->program->num_microbatches + (size_t)w->microbatch) *
                        (size_t)w->stride +
                    (size_t)index];
}

static void take(struct walk *w, int layer, int index, int64_t bytes)
{
    int64_t *at = held(w, layer, index);
    if (*at == 0) {
        *at = bytes;
        w->live += bytes;
    }
}

static void drop(struct walk *w, int layer, int index)
{
    int64_t *at = held(w, layer, index);
    w->live -= *at;
    *at = 0;
}

static void note(struct walk *w)
{
    if (w->live > w->peak)
        w->peak = w->live;
}

static bool same(struct mcp_operand a, struct mcp_operand b)
{
    return a.space == b.space && a.index == b.index && a.layer_offset == b.layer_offset;
}

static bool mentions(const struct mcp_op *op, struct mcp_operand at)
{
    for (int i = 0; i < op->num_reads; i++)
        if (same(op->reads[i], at))
            return true;
    for (int i = 0; i < op->num_writes; i++)
        if (same(op->writes[i], at))
            return true;
    return false;
}

static bool is_mentioned_after(const struct mcp_block *block, int op, struct mcp_operand at)
{
    for (int i = op + 1; i < block->num_ops; i++)
        if (mentions(&block->ops[i], at))
            return true;
    return false;
}

static int64_t boundary_bytes(const struct walk *w, const struct mcp_operand *at)
{
    int64_t own = w->type->buffers[MCP_SPACE_FRAME][at->index].capacity_bytes;
    return at->layer_offset > 0 ? w->x_bytes : own;
}

/* Values of the layer above are taken before the entry starts. */
static void take_above(struct walk *w)
{
    for (int i = 0; i < w->block->num_ops; i++)
        for (int k = 0; k < w->block->ops[i].num_writes; k++) {
            struct mcp_operand at = w->block->ops[i].writes[k];
            if (at.space == MCP_SPACE_FRAME && at.layer_offset > 0)
                take(w, w->entry->layer + 1, at.index, boundary_bytes(w, &at));
        }
}

static void start_life(struct walk *w, struct mcp_operand at)
{
    if (at.space == MCP_SPACE_FRAME && at.layer_offset == 0)
        take(w, w->entry->layer, at.index, boundary_bytes(w, &at));
    if (at.space == MCP_SPACE_BLOCK && !w->scratch_live[at.index]) {
        w->scratch_live[at.index] = true;
        w->live += w->type->buffers[MCP_SPACE_BLOCK][at.index].capacity_bytes;
    }
}

static bool is_mentioned_in(const struct mcp_block *block, struct mcp_operand at)
{
    return is_mentioned_after(block, -1, at);
}

/* Does what the entry reads of its frames, or was given, have no later reader? */
static bool ends_life(const struct walk *w, struct mcp_operand at)
{
    const struct mcp_block *weight = &w->type->blocks[MCP_BACKWARD_WEIGHT];
    int role = w->entry->role;
    return role == MCP_BACKWARD || role == MCP_BACKWARD_WEIGHT ||
           (role == MCP_BACKWARD_INPUT && !is_mentioned_in(weight, at));
}

static void end_life(struct walk *w, int op, struct mcp_operand at)
{
    bool last_pass = ends_life(w, at);
    if (is_mentioned_after(w->block, op, at))
        return;
    if (at.space == MCP_SPACE_BLOCK && w->scratch_live[at.index]) {
        w->scratch_live[at.index] = false;
        w->live -= w->type->buffers[MCP_SPACE_BLOCK][at.index].capacity_bytes;
    }
    if (at.space == MCP_SPACE_FRAME && at.layer_offset == 0 && last_pass &&
        at.index != MCP_FRAME_DX)
        drop(w, w->entry->layer, at.index);
}

static void run_op(struct walk *w, int i)
{
    const struct mcp_op *op = &w->block->ops[i];
    for (int k = 0; k < op->num_writes; k++)
        start_life(w, op->writes[k]);
    note(w);
    for (int k = 0; k < op->num_reads; k++)
        end_life(w, i, op->reads[k]);
    for (int k = 0; k < op->num_writes; k++)
        end_life(w, i, op->writes[k]);
}

/* A backward gives back what is left of its layer, and the gradient it was given; a
 * forward the input that nobody reads again; a send what it has sent. */
static void end_entry(struct walk *w)
{
    int layer = w->entry->layer, role = w->entry->role;
    struct mcp_operand given = {MCP_SPACE_FRAME, 1, MCP_FRAME_DX};
    for (int i = 0; i < w->stride; i++) {
        struct mcp_operand at = {MCP_SPACE_FRAME, 0, (unsigned short)i};
        if (i != MCP_FRAME_DX && ends_life(w, at))
            drop(w, layer, i);
    }
    if (ends_life(w, given))
        drop(w, layer + 1, MCP_FRAME_DX);
    if (role == MCP_FORWARD && mcp_input_ends_with_forward(w->type))
        drop(w, layer, MCP_FRAME_X);
    if (role == MCP_SEND_FORWARD || role == MCP_SEND_BACKWARD) {
        struct mcp_operand at = w->block->ops[0].reads[0];
        drop(w, layer + at.layer_offset, at.index);
    }
}

static void run_entry(struct walk *w, const struct mcp_slot *slot, const struct mcp_entry *entry)
{
    w->entry = entry;
    w->type = &w->program->types[entry->type];
    w->block = &w->type->blocks[entry->role];
    w->microbatch = slot->microbatch + entry->microbatch_offset;
    take_above(w);
    for (int i = 0; i < w->block->num_ops; i++)
        run_op(w, i);
    end_entry(w);
}

/* Frames that wait for their own slot are none of other slots'; for weight gradients the
 * gradient that came in may be one. */
static int64_t own_frames(struct walk *w, const struct mcp_slot *slot)
{
    const struct mcp_plan *plan = &w->program->plan;
    int first, count, stage = mcp_plan_virtual_stage(plan, w->class, slot->chunk);
    int64_t bytes = 0;
    w->microbatch = slot->microbatch;
    if (slot->pass == MCP_FORWARD)
        return 0;
    mcp_chunk_extent(w->question, plan, stage, &first, &count);
    for (int layer = first; layer < first + count; layer++)
        for (int i = 0; i < w->stride; i++)
            bytes += i == MCP_FRAME_DX && layer == first ? 0 : *held(w, layer, i);
    if (slot->pass == MCP_BACKWARD_WEIGHT)
        bytes += *held(w, first + count, MCP_FRAME_DX);
    return bytes;
}

/* A message may come while the lead of its slot runs: it is held from the start. */
static void take_messages(struct walk *w, const struct mcp_slot *slot)
{
    const struct mcp_entry_list *list = &w->program->lists[slot->list];
    for (int e = 0; e < list->num_entries; e++) {
        const struct mcp_entry *entry = &list->entries[e];
        w->type = &w->program->types[entry->type];
        w->microbatch = slot->microbatch + entry->microbatch_offset;
        if (entry->role != MCP_RECEIVE_FORWARD && entry->role != MCP_RECEIVE_BACKWARD)
            continue;
        struct mcp_operand at = w->type->blocks[entry->role].ops[0].writes[0];
        take(w, entry->layer + at.layer_offset, at.index, boundary_bytes(w, &at));
    }
}

/* Saved frames at the peak: those of other slots, and what this one saves or uses up. */
static void run_slot(struct walk *w, const struct mcp_slot *slot)
{
    const struct mcp_entry_list *list = &w->program->lists[slot->list];
    int64_t own = own_frames(w, slot), before = w->live, peak = w->peak;
    take_messages(w, slot);
    for (int e = 0; e < list->num_entries; e++)
        run_entry(w, slot, &list->entries[e]);
    if (w->peak == peak)
        return;
    int64_t others = before - own, running = w->peak - others;
    if (slot->pass == MCP_FORWARD)
        own = w->live - before;
    w->kept = others + (own < running ? own : running);
}

static void run_slots(struct walk *w)
{
    const struct mcp_program_class *class = &w->program->classes[w->class];
    for (int s = 0; s < class->num_slots; s++)
        if (class->slots[s].microbatch >= 0)
            run_slot(w, &class->slots[s]);
}

/* --- what lasts --- */

static int64_t buffer_bytes(const struct mcp_layer_type *type, int index)
{
    return type->buffers[MCP_SPACE_LAYER][index].capacity_bytes +
           type->buffers[MCP_SPACE_LAYER][index + 1].capacity_bytes;
}

struct whole { /* weights and gradients that are whole for a while only */
    int64_t gathered, largest_gathered, largest_transient;
    int64_t largest_parameters; /* of a layer between the ends, experts left out */
};

static void add_layer(const struct mcp_program *program, const struct mcp_entry *entry,
                      struct mcp_memory *memory, struct whole *whole)
{
    const struct mcp_layer_type *type = &program->types[entry->type];
    bool is_end = entry->layer == 0 || entry->layer == program->num_layers - 1;
    int64_t parameters = is_end ? 0 : mcp_layer_type_parameters(type, false);
    if (parameters > whole->largest_parameters)
        whole->largest_parameters = parameters;
    int zero = program->plan.zero_stage;
    int64_t weights = buffer_bytes(type, MCP_LAYER_WEIGHTS);
    int64_t gradients = buffer_bytes(type, MCP_LAYER_GRADIENTS);
    memory->optimizer_bytes += buffer_bytes(type, MCP_LAYER_OPTIMIZER);
    for (int i = MCP_NUM_LAYER_BUFFERS; i < type->num_buffers[MCP_SPACE_LAYER]; i++)
        *(i < MCP_LAYER_CAST_WEIGHTS ? &memory->optimizer_bytes : &weights) +=
            type->buffers[MCP_SPACE_LAYER][i].capacity_bytes;
    memory->weights_bytes += zero == 3 ? buffer_bytes(type, MCP_LAYER_WEIGHT_SHARD) : weights;
    memory->gradients_bytes += zero >= 2 ? buffer_bytes(type, MCP_LAYER_GRADIENT_SHARD) : gradients;
    if (zero == 3) {
        whole->gathered += weights;
        whole->largest_gathered =
            weights > whole->largest_gathered ? weights : whole->largest_gathered;
    }
    if (zero >= 2 && gradients > whole->largest_transient)
        whole->largest_transient = gradients;
}

static bool uses_rank_buffer(const struct mcp_layer_type *type, int index)
{
    struct mcp_operand at = {MCP_SPACE_RANK, 0, (unsigned short)index};
    for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
        for (int i = 0; i < type->blocks[role].num_ops; i++)
            if (mentions(&type->blocks[role].ops[i], at))
                return true;
    return false;
}

/* Layers that the class runs, each once; and rank buffers they name. */
static void add_lasting(const struct mcp_program *program, int c, struct mcp_memory *memory,
                        struct whole *whole)
{
    const struct mcp_program_class *class = &program->classes[c];
    bool shared[2] = {false, false};
    for (int s = 0; s < class->num_slots; s++) {
        const struct mcp_slot *slot = &class->slots[s];
        const struct mcp_entry_list *list = &program->lists[slot->list];
        for (int e = 0; slot->microbatch == 0 && e < list->num_entries; e++) {
            const struct mcp_layer_type *type = &program->types[list->entries[e].type];
            if (list->entries[e].role != MCP_FORWARD)
                continue;
            add_layer(program, &list->entries[e], memory, whole);
            for (int i = 0; i < 2; i++)
                shared[i] = shared[i] || uses_rank_buffer(type, i);
        }
    }
    if (shared[0])
        memory->weights_bytes += program->rank_buffers[MCP_RANK_TIED_WEIGHTS].capacity_bytes;
    if (shared[1])
        memory->gradients_bytes += program->rank_buffers[MCP_RANK_TIED_GRADIENTS].capacity_bytes;
}

static struct walk new_walk(struct mcp_arena *arena, const struct mcp_question *question,
                            const struct mcp_program *program, int class)
{
    struct walk w = {
        .arena = arena, .question = question, .program = program, .class = class, .stride = 2};
    int scratch = 1;
    for (int t = 0; t < program->num_types; t++) {
        const struct mcp_layer_type *type = &program->types[t];
        int frames = type->num_buffers[MCP_SPACE_FRAME],
            blocks = type->num_buffers[MCP_SPACE_BLOCK];
        w.stride = frames > w.stride ? frames : w.stride;
        scratch = blocks > scratch ? blocks : scratch;
        if (type->buffers[MCP_SPACE_FRAME][MCP_FRAME_X].capacity_bytes > w.x_bytes)
            w.x_bytes = type->buffers[MCP_SPACE_FRAME][MCP_FRAME_X].capacity_bytes;
    }
    w.held = mcp_alloc(arena, ((size_t)program->num_layers + 1) * (size_t)program->num_microbatches,
                       (size_t)w.stride * sizeof *w.held);
    w.scratch_live = MCP_ARRAY(arena, scratch, bool);
    return w;
}

/* As an executor makes them. */
static int64_t message_copies(const struct mcp_question *question,
                              const struct mcp_program *program, int class)
{
    struct mcp_outbox boxes[MCP_NUM_STREAMS];
    int64_t bytes = 0;
    mcp_program_outboxes(program, class, boxes);
    for (int s = 0; s < MCP_NUM_STREAMS; s++)
        bytes += boxes[s].places * boxes[s].message_bytes;
    return question->stack->message_copies ? bytes : 0;
}

void play_memory(struct mcp_arena *arena, const struct mcp_question *question,
                 const struct mcp_program *program, int class, struct mcp_memory *out)
{
    const struct mcp_stack *stack = question->stack;
    struct walk w = new_walk(arena, question, program, class);
    struct whole whole = {0};
    memset(out, 0, sizeof *out);
    run_slots(&w);
    add_lasting(program, class, out, &whole);
    int64_t two = (program->plan.overlap.gather ? 2 : 1) * whole.largest_gathered;
    bool all = !program->plan.reshard_after_forward || two > whole.gathered;
    double factor = stack->activation_memory_factor;
    double dummy = (double)whole.largest_parameters * stack->dummy_gradient_bytes;
    out->activations_bytes = (int64_t)llround((double)w.kept * factor);
    out->buffers_bytes = (int64_t)llround((double)(w.peak - w.kept) * factor) +
                         (all ? whole.gathered : two) + 2 * whole.largest_transient +
                         (int64_t)llround(dummy);
    out->reserve_bytes =
        stack->reserve_bytes + message_copies(question, program, class) +
        (int64_t)llround((double)mcp_memory_allocated(out) * stack->fragmentation_frac);
}
