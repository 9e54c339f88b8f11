/* step/pool_frames.c: walks a class's slots: which frames live when, and where.
 *
 * The rule of lives is step/memory.c's, for one class and over the step. */
#include "step/pool_parts.h"

#include <string.h>

/* Free places of one size, the one free for longest first. */
struct mcp_frame_sizes {
    int64_t bytes;
    int *free;
    size_t num_free, capacity;
};

struct walk {
    struct mcp_pool *pool;
    struct mcp_frame_sizes *sizes;
    size_t num_sizes, sizes_capacity;
    bool *live;      /* like pool->frames */
    int *last;       /* [num_rows][num_microbatches] number of the entry that is the last pass */
    int64_t x_bytes; /* of the residual stream: the largest X of any type */
    int64_t live_bytes, peak;
    bool *scratch_live;
    bool *ends_input; /* [num_types] with forward */
    /* the entry */
    const struct mcp_entry *entry;
    const struct mcp_layer_type *type;
    const struct mcp_block *block;
    int microbatch, number;
};

static size_t frame_at(const struct mcp_pool *pool, int layer, int microbatch, int index)
{
    size_t m = (size_t)pool->program->num_microbatches, stride = (size_t)pool->frame_stride;
    return ((size_t)pool->row_of[layer] * m + (size_t)microbatch) * stride + (size_t)index;
}

static struct mcp_frame_sizes *size_class(struct walk *w, int64_t bytes)
{
    for (size_t i = 0; i < w->num_sizes; i++)
        if (w->sizes[i].bytes == bytes)
            return &w->sizes[i];
    w->sizes =
        mcp_grow(w->pool->arena, w->sizes, w->num_sizes, &w->sizes_capacity, sizeof *w->sizes);
    w->sizes[w->num_sizes].bytes = bytes;
    return &w->sizes[w->num_sizes++];
}

static int new_place(struct walk *w, int64_t bytes)
{
    struct mcp_pool *pool = w->pool;
    struct mcp_frame_sizes *sizes = size_class(w, bytes);
    if (sizes->num_free > 0) {
        int place = sizes->free[0];
        sizes->num_free--;
        memmove(sizes->free, sizes->free + 1, sizes->num_free * sizeof *sizes->free);
        return place;
    }
    pool->places = mcp_grow(pool->arena, pool->places, pool->num_places, &pool->places_capacity,
                            sizeof *pool->places);
    pool->places[pool->num_places] = mcp_pool_append(pool, bytes);
    return (int)pool->num_places++;
}

static void take(struct walk *w, int layer, int index, int64_t bytes)
{
    struct mcp_pool *pool = w->pool;
    size_t at = frame_at(pool, layer, w->microbatch, index);
    if (w->live[at] || bytes == 0)
        return;
    if (pool->frames[at] == 0)
        pool->frames[at] = new_place(w, bytes) + 1;
    w->live[at] = true;
    w->live_bytes += bytes;
}

static void drop(struct walk *w, int layer, int index)
{
    struct mcp_pool *pool = w->pool;
    size_t at = frame_at(pool, layer, w->microbatch, index);
    if (!w->live[at])
        return;
    int place = pool->frames[at] - 1;
    struct mcp_frame_sizes *sizes = size_class(w, pool->places[place].bytes);
    sizes->free =
        mcp_grow(pool->arena, sizes->free, sizes->num_free, &sizes->capacity, sizeof *sizes->free);
    sizes->free[sizes->num_free++] = place;
    w->live[at] = false;
    w->live_bytes -= pool->places[place].bytes;
}

static bool is_mentioned_after(const struct mcp_block *block, int op, struct mcp_operand at)
{
    for (int i = op + 1; i < block->num_ops; i++)
        if (mcp_op_reads(&block->ops[i], at) || mcp_op_writes(&block->ops[i], at))
            return true;
    return false;
}

static int64_t frame_bytes(const struct walk *w, struct mcp_operand at)
{
    return at.layer_offset > 0 ? w->x_bytes
                               : w->type->buffers[MCP_SPACE_FRAME][at.index].capacity_bytes;
}

/* Values of the layer above are taken before the entry starts. */
static void take_above(struct walk *w)
{
    for (int i = 0; i < w->block->num_ops; i++)
        for (int k = 0; k < w->block->ops[i].num_writes; k++) {
            struct mcp_operand at = w->block->ops[i].writes[k];
            if (at.space == MCP_SPACE_FRAME && at.layer_offset > 0)
                take(w, w->entry->layer + 1, at.index, frame_bytes(w, at));
        }
}

static void start_life(struct walk *w, struct mcp_operand at)
{
    if (at.space == MCP_SPACE_FRAME && at.layer_offset == 0)
        take(w, w->entry->layer, at.index, frame_bytes(w, at));
    if (at.space == MCP_SPACE_BLOCK && !w->scratch_live[at.index]) {
        w->scratch_live[at.index] = true;
        w->live_bytes += w->type->buffers[MCP_SPACE_BLOCK][at.index].capacity_bytes;
    }
}

static bool is_last_pass(const struct walk *w)
{
    int layer = w->entry->layer;
    if (layer == w->pool->program->num_layers || w->microbatch < 0)
        return false;
    size_t at = (size_t)w->pool->row_of[layer] * (size_t)w->pool->program->num_microbatches;
    return w->last[at + (size_t)w->microbatch] == w->number;
}

/* Does nobody mention the layer's frame, or the gradient it was given, after this entry? Of a
 * backward in parts the second may not need what the first did. */
static bool is_last_use(const struct walk *w, struct mcp_operand at)
{
    const struct mcp_block *weight = &w->type->blocks[MCP_BACKWARD_WEIGHT];
    return is_last_pass(w) || (w->entry->role == MCP_BACKWARD_INPUT && weight->num_ops > 0 &&
                               !is_mentioned_after(weight, -1, at));
}

static void end_life(struct walk *w, int op, struct mcp_operand at)
{
    if (is_mentioned_after(w->block, op, at))
        return;
    if (at.space == MCP_SPACE_BLOCK && w->scratch_live[at.index]) {
        w->scratch_live[at.index] = false;
        w->live_bytes -= w->type->buffers[MCP_SPACE_BLOCK][at.index].capacity_bytes;
    }
    if (at.space == MCP_SPACE_FRAME && at.layer_offset == 0 && at.index != MCP_FRAME_DX &&
        is_last_use(w, at))
        drop(w, w->entry->layer, at.index);
}

static void run_op(struct walk *w, int i)
{
    const struct mcp_op *op = &w->block->ops[i];
    for (int k = 0; k < op->num_writes; k++)
        start_life(w, op->writes[k]);
    w->peak = w->live_bytes > w->peak ? w->live_bytes : w->peak;
    for (int k = 0; k < op->num_reads; k++)
        end_life(w, i, op->reads[k]);
    for (int k = 0; k < op->num_writes; k++)
        end_life(w, i, op->writes[k]);
}

/* A last pass gives back what is left of its layer, and the gradient it was given; a forward the
 * input that nobody reads again; a send what it has sent. */
static void end_entry(struct walk *w)
{
    int layer = w->entry->layer, role = w->entry->role;
    const struct mcp_operand given = {MCP_SPACE_FRAME, 1, MCP_FRAME_DX};
    for (int i = 0; i < w->type->num_buffers[MCP_SPACE_FRAME]; i++)
        if (i != MCP_FRAME_DX &&
            is_last_use(w, (struct mcp_operand){MCP_SPACE_FRAME, 0, (unsigned short)i}))
            drop(w, layer, i);
    if (is_last_use(w, given))
        drop(w, layer + 1, MCP_FRAME_DX);
    if (role == MCP_FORWARD && w->ends_input[w->entry->type])
        drop(w, layer, MCP_FRAME_X);
    if (role == MCP_SEND_FORWARD || role == MCP_SEND_BACKWARD) {
        struct mcp_operand at = w->block->ops[0].reads[0];
        drop(w, layer + at.layer_offset, at.index);
    }
}

static void enter(struct walk *w, const struct mcp_slot *slot, const struct mcp_entry *entry)
{
    w->entry = entry;
    w->type = &w->pool->program->types[entry->type];
    w->block = &w->type->blocks[entry->role];
    w->microbatch = slot->microbatch < 0 ? -1 : slot->microbatch + entry->microbatch_offset;
}

static void run_entry(struct walk *w)
{
    bool has_frames = w->entry->layer < w->pool->program->num_layers && w->microbatch >= 0;
    if (has_frames)
        take_above(w);
    for (int i = 0; i < w->block->num_ops; i++)
        run_op(w, i);
    if (has_frames)
        end_entry(w);
}

/* A message may come while the lead of its slot runs: it is held from the start. */
static void take_messages(struct walk *w, const struct mcp_slot *slot)
{
    const struct mcp_entry_list *list = &w->pool->program->lists[slot->list];
    for (int e = 0; e < list->num_entries; e++) {
        enter(w, slot, &list->entries[e]);
        if (w->entry->role != MCP_RECEIVE_FORWARD && w->entry->role != MCP_RECEIVE_BACKWARD)
            continue;
        struct mcp_operand at = w->block->ops[0].writes[0];
        take(w, w->entry->layer + at.layer_offset, at.index, frame_bytes(w, at));
    }
}

static void each_entry(struct walk *w, void (*visit)(struct walk *))
{
    const struct mcp_program_class *class = w->pool->slots;
    w->number = 0;
    for (int s = 0; s < class->num_slots; s++) {
        const struct mcp_slot *slot = &class->slots[s];
        const struct mcp_entry_list *list = &w->pool->program->lists[slot->list];
        if (visit == run_entry && slot->microbatch >= 0)
            take_messages(w, slot);
        for (int e = 0; e < list->num_entries; e++) {
            enter(w, slot, &list->entries[e]);
            visit(w);
            w->number++;
        }
    }
}

/* Which entry is the last to use the frames of a layer and microbatch. */
static void note_last(struct walk *w)
{
    int role = w->entry->role;
    bool pass = role == MCP_FORWARD || role == MCP_BACKWARD || role == MCP_BACKWARD_INPUT ||
                role == MCP_BACKWARD_WEIGHT; /* the last of them counts */
    if (!pass || w->microbatch < 0)
        return;
    size_t m = (size_t)w->pool->program->num_microbatches;
    w->last[(size_t)w->pool->row_of[w->entry->layer] * m + (size_t)w->microbatch] = w->number;
}

static void make_tables(struct walk *w)
{
    struct mcp_pool *pool = w->pool;
    const struct mcp_program *program = pool->program;
    int scratch = 1;
    pool->frame_stride = 2;
    w->ends_input = MCP_ARRAY(pool->arena, program->num_types, bool);
    for (int t = 0; t < program->num_types; t++) {
        const struct mcp_layer_type *type = &program->types[t];
        w->ends_input[t] = mcp_input_ends_with_forward(type);
        int frames = type->num_buffers[MCP_SPACE_FRAME];
        int64_t x = frames > 0 ? type->buffers[MCP_SPACE_FRAME][MCP_FRAME_X].capacity_bytes : 0;
        pool->frame_stride = frames > pool->frame_stride ? frames : pool->frame_stride;
        w->x_bytes = x > w->x_bytes ? x : w->x_bytes;
        if (type->num_buffers[MCP_SPACE_BLOCK] > scratch)
            scratch = type->num_buffers[MCP_SPACE_BLOCK];
    }
    size_t pairs = (size_t)pool->num_rows * (size_t)program->num_microbatches;
    size_t frames = pairs * (size_t)pool->frame_stride;
    pool->frames = MCP_ARRAY(pool->arena, frames, int);
    w->live = MCP_ARRAY(pool->arena, frames, bool);
    w->last = MCP_ARRAY(pool->arena, pairs, int);
    w->scratch_live = MCP_ARRAY(pool->arena, scratch, bool);
    for (size_t i = 0; i < pairs; i++)
        w->last[i] = -1;
}

void mcp_pool_walk_frames(struct mcp_pool *pool)
{
    struct walk w = {.pool = pool};
    make_tables(&w);
    each_entry(&w, note_last);
    each_entry(&w, run_entry);
    pool->frame_peak_bytes = w.peak;
}

struct mcp_place mcp_pool_frame(const struct mcp_pool *pool, int layer, int microbatch, int index)
{
    int place = microbatch < 0 ? 0 : pool->frames[frame_at(pool, layer, microbatch, index)];
    return place == 0 ? (struct mcp_place){0, 0, -1} : pool->places[place - 1];
}
