/* step/pool.c: gives every buffer instance of a program class its place. */
#include "step/pool_parts.h"

#include <string.h>

static struct mcp_place no_place(void)
{
    return (struct mcp_place){0, 0, -1};
}

static const struct mcp_layer_type *type_of(const struct mcp_pool *pool,
                                            const struct mcp_entry *entry)
{
    return &pool->program->types[entry->type];
}

bool mcp_add_bytes(int64_t *sum, int64_t bytes)
{
    return bytes >= 0 && !__builtin_add_overflow(*sum, bytes, sum);
}

/* Appends room to the block. */
static struct mcp_place append(struct mcp_pool *pool, int64_t bytes)
{
    const int64_t mask = MCP_POOL_ALIGNMENT - 1;
    struct mcp_place place = {pool->bytes, bytes, pool->num_cells};
    if (bytes == 0)
        return no_place();
    pool->num_cells++;
    pool->fits =
        mcp_add_bytes(&pool->bytes, bytes) && mcp_add_bytes(&pool->bytes, mask) && pool->fits;
    pool->bytes &= ~mask;
    return place;
}

/* --- which layers the class holds --- */

/* Calls `each` for every entry of the class in list order. */
static void walk_entries(struct mcp_pool *pool,
                         void (*each)(struct mcp_pool *, const struct mcp_slot *,
                                      const struct mcp_entry *))
{
    for (int s = 0; s < pool->slots->num_slots; s++) {
        const struct mcp_slot *slot = &pool->slots->slots[s];
        const struct mcp_entry_list *list = &pool->program->lists[slot->list];
        for (int e = 0; e < list->num_entries; e++)
            each(pool, slot, &list->entries[e]);
    }
}

static void note_layer(struct mcp_pool *pool, const struct mcp_slot *slot,
                       const struct mcp_entry *entry)
{
    (void)slot;
    pool->types_used[entry->type] = true;
    if (entry->layer == pool->program->num_layers)
        return;
    for (int i = 0; i < 2; i++)
        if (pool->row_of[entry->layer + i] < 0)
            pool->row_of[entry->layer + i] = pool->num_rows++;
    pool->types[entry->layer] = entry->type;
}

static void find_layers(struct mcp_pool *pool)
{
    int layers = pool->program->num_layers;
    pool->row_of = MCP_ARRAY(pool->arena, layers + 2, int);
    pool->types = MCP_ARRAY(pool->arena, layers + 2, int);
    pool->types_used = MCP_ARRAY(pool->arena, pool->program->num_types, bool);
    for (int i = 0; i < layers + 2; i++)
        pool->row_of[i] = pool->types[i] = -1;
    walk_entries(pool, note_layer);
}

/* --- what lasts --- */

static bool writes_elsewhere(const struct mcp_op *op, int index)
{
    bool writes = false, reads = false;
    for (int i = 0; i < op->num_writes; i++)
        writes = writes || (op->writes[i].space == MCP_SPACE_LAYER && op->writes[i].index == index);
    for (int i = 0; i < op->num_reads; i++)
        reads = reads || (op->reads[i].space == MCP_SPACE_LAYER && op->reads[i].index == index);
    return writes && !reads;
}

/* Whole for a while only: written by the gather block from a shard. */
static bool is_gathered(const struct mcp_layer_type *type, int index)
{
    const struct mcp_block *block = &type->blocks[MCP_GATHER];
    for (int i = 0; i < block->num_ops; i++)
        if (writes_elsewhere(&block->ops[i], index))
            return true;
    return false;
}

static enum mcp_turn turn_of(const struct mcp_program *program, const struct mcp_layer_type *type,
                             int index)
{
    if (program->plan.zero_stage >= 2 &&
        (index == MCP_LAYER_GRADIENTS || index == MCP_LAYER_EXPERT_GRADIENTS))
        return MCP_TURN_GRADIENT;
    if (mcp_plan_gathers_again(&program->plan) && is_gathered(type, index))
        return MCP_TURN_COPY;
    return MCP_TURN_NONE;
}

/* Bytes of a layer that lie in places of `turn`. */
static int64_t turn_bytes(const struct mcp_pool *pool, const struct mcp_layer_type *type,
                          enum mcp_turn turn)
{
    int64_t bytes = 0;
    for (int i = 0; i < type->num_buffers[MCP_SPACE_LAYER]; i++)
        if (turn_of(pool->program, type, i) == turn)
            mcp_add_bytes(&bytes, type->buffers[MCP_SPACE_LAYER][i].capacity_bytes);
    return bytes;
}

static void place_layer(struct mcp_pool *pool, int layer)
{
    const struct mcp_layer_type *type = &pool->program->types[pool->types[layer]];
    struct mcp_place *places =
        pool->lasting + (size_t)pool->row_of[layer] * (size_t)pool->layer_stride;
    for (int i = 0; i < type->num_buffers[MCP_SPACE_LAYER]; i++) {
        int64_t bytes = type->buffers[MCP_SPACE_LAYER][i].capacity_bytes;
        if (turn_of(pool->program, type, i) != MCP_TURN_NONE)
            continue;
        places[i] = append(pool, bytes);
        pool->fits = mcp_add_bytes(&pool->lasting_bytes, bytes) && pool->fits;
    }
    int64_t copy = turn_bytes(pool, type, MCP_TURN_COPY);
    int64_t gradient = turn_bytes(pool, type, MCP_TURN_GRADIENT);
    pool->fits = mcp_add_bytes(&pool->gathered_bytes, copy) && pool->fits;
    pool->largest[MCP_TURN_COPY] =
        copy > pool->largest[MCP_TURN_COPY] ? copy : pool->largest[MCP_TURN_COPY];
    pool->largest[MCP_TURN_GRADIENT] =
        gradient > pool->largest[MCP_TURN_GRADIENT] ? gradient : pool->largest[MCP_TURN_GRADIENT];
}

static bool type_names(const struct mcp_layer_type *type, int index)
{
    for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
        for (int i = 0; i < type->blocks[role].num_ops; i++) {
            const struct mcp_op *op = &type->blocks[role].ops[i];
            for (int k = 0; k < op->num_reads + op->num_writes; k++) {
                struct mcp_operand at =
                    k < op->num_reads ? op->reads[k] : op->writes[k - op->num_reads];
                if (at.space == MCP_SPACE_RANK && at.index == index)
                    return true;
            }
        }
    return false;
}

/* Rank buffers that a layer of the class names; of them the planner counts what is as large
 * as a layer, not a handful of scalars. */
static void place_rank(struct mcp_pool *pool, int index)
{
    const struct mcp_buffer *buffer = &pool->program->rank_buffers[index];
    bool named = false;
    for (int t = 0; t < pool->program->num_types; t++)
        named = named || (pool->types_used[t] && type_names(&pool->program->types[t], index));
    pool->rank[index] = named ? append(pool, buffer->capacity_bytes) : no_place();
    if (named && buffer->kind != MCP_BUFFER_SCRATCH)
        pool->fits = mcp_add_bytes(&pool->lasting_bytes, buffer->capacity_bytes) && pool->fits;
}

static void place_lasting(struct mcp_pool *pool)
{
    const struct mcp_program *program = pool->program;
    pool->rank = MCP_ARRAY(pool->arena, program->num_rank_buffers, struct mcp_place);
    for (int t = 0; t < program->num_types; t++)
        if (program->types[t].num_buffers[MCP_SPACE_LAYER] > pool->layer_stride)
            pool->layer_stride = program->types[t].num_buffers[MCP_SPACE_LAYER];
    size_t count = (size_t)pool->num_rows * (size_t)pool->layer_stride;
    pool->lasting = MCP_ARRAY(pool->arena, count, struct mcp_place);
    for (size_t i = 0; i < count; i++)
        pool->lasting[i] = no_place();
    for (int i = 0; i < program->num_rank_buffers; i++)
        place_rank(pool, i);
    for (int layer = 0; layer < program->num_layers; layer++)
        if (pool->types[layer] >= 0)
            place_layer(pool, layer);
}

/* --- places that layers take turns in --- */

static void note_copies(struct mcp_pool *pool, const struct mcp_slot *slot,
                        const struct mcp_entry *entry)
{
    (void)slot;
    int64_t bytes = turn_bytes(pool, type_of(pool, entry), MCP_TURN_COPY);
    if (bytes > pool->copies[entry->copy].bytes)
        pool->copies[entry->copy].bytes = bytes;
}

static void place_copies(struct mcp_pool *pool)
{
    if (pool->largest[MCP_TURN_COPY] == 0)
        return;
    walk_entries(pool, note_copies);
    for (int i = 0; i < MCP_POOL_COPIES; i++) {
        pool->num_copies += pool->copies[i].bytes > 0;
        pool->copies[i] = append(pool, pool->copies[i].bytes);
    }
}

static int *turn_at(const struct mcp_pool *pool, int layer, int microbatch)
{
    return &pool->turns[(size_t)pool->row_of[layer] * (size_t)pool->program->num_microbatches +
                        (size_t)microbatch];
}

/* The place that has been free for longest; two at least, so that one layer's reduction
 * does not hold up the next layer's backward. */
static void take_turn(struct mcp_pool *pool, int *turn)
{
    if (pool->num_free_turns == 0) {
        if (pool->num_turns == MCP_POOL_TURNS) {
            pool->fits = false;
            *turn = 0;
            return;
        }
        pool->transient[pool->num_turns] = append(pool, pool->largest[MCP_TURN_GRADIENT]);
        *turn = pool->num_turns++;
        return;
    }
    *turn = pool->free_turns[0];
    pool->num_free_turns--;
    memmove(pool->free_turns, pool->free_turns + 1,
            (size_t)pool->num_free_turns * sizeof *pool->free_turns);
}

static bool mentions_transient(const struct mcp_pool *pool, const struct mcp_entry *entry)
{
    const struct mcp_layer_type *type = type_of(pool, entry);
    const struct mcp_block *block = &type->blocks[entry->role];
    for (int i = 0; i < block->num_ops; i++)
        for (int w = 0; w < block->ops[i].num_writes; w++) {
            struct mcp_operand at = block->ops[i].writes[w];
            if (at.space == MCP_SPACE_LAYER &&
                turn_of(pool->program, type, at.index) == MCP_TURN_GRADIENT)
                return true;
        }
    return false;
}

/* From the first pass that adds to a layer's gradient until its reduction. */
static void note_turns(struct mcp_pool *pool, const struct mcp_slot *slot,
                       const struct mcp_entry *entry)
{
    if (slot->microbatch < 0 || entry->layer == pool->program->num_layers)
        return;
    int *turn = turn_at(pool, entry->layer, slot->microbatch + entry->microbatch_offset);
    if (*turn < 0 && mentions_transient(pool, entry))
        take_turn(pool, turn);
    if (entry->role == MCP_REDUCE && *turn >= 0 && pool->num_free_turns < MCP_POOL_TURNS)
        pool->free_turns[pool->num_free_turns++] = *turn;
}

static void place_turns(struct mcp_pool *pool)
{
    size_t count = (size_t)pool->num_rows * (size_t)pool->program->num_microbatches;
    if (pool->largest[MCP_TURN_GRADIENT] == 0)
        return;
    pool->turns = MCP_ARRAY(pool->arena, count, int);
    for (size_t i = 0; i < count; i++)
        pool->turns[i] = -1;
    for (int i = 0; i < 2; i++) {
        pool->transient[i] = append(pool, pool->largest[MCP_TURN_GRADIENT]);
        pool->free_turns[pool->num_free_turns++] = pool->num_turns++;
    }
    walk_entries(pool, note_turns);
}

/* --- scratch --- */

static void place_scratch(struct mcp_pool *pool)
{
    int64_t bytes = 0;
    size_t blocks = (size_t)pool->program->num_types * MCP_NUM_BLOCK_ROLES;
    pool->scratch = MCP_ARRAY(pool->arena, blocks, struct mcp_scratch_layout);
    for (int t = 0; t < pool->program->num_types; t++)
        for (int role = 0; pool->types_used[t] && role < MCP_NUM_BLOCK_ROLES; role++) {
            struct mcp_scratch_layout *layout = &pool->scratch[t * MCP_NUM_BLOCK_ROLES + role];
            pool->fits = mcp_scratch_lay_out(pool->arena, &pool->program->types[t],
                                             (enum mcp_block_role)role, layout) &&
                         pool->fits;
            bytes = layout->bytes > bytes ? layout->bytes : bytes;
        }
    pool->scratch_offset = append(pool, bytes).offset;
}

enum mcp_status mcp_pool_new(struct mcp_arena *arena, const struct mcp_program *program, int class,
                             struct mcp_pool **out, struct mcp_error *err)
{
    struct mcp_pool *pool = MCP_NEW(arena, struct mcp_pool);
    pool->arena = arena;
    pool->program = program;
    pool->slots = &program->classes[class];
    pool->fits = true;
    find_layers(pool);
    place_lasting(pool);
    place_copies(pool);
    place_turns(pool);
    place_scratch(pool);
    mcp_pool_walk_frames(pool);
    int64_t copies = pool->num_copies * pool->largest[MCP_TURN_COPY];
    bool all = !program->plan.reshard_after_forward || copies > pool->gathered_bytes;
    pool->peak_bytes = pool->lasting_bytes + (all ? pool->gathered_bytes : copies) +
                       2 * pool->largest[MCP_TURN_GRADIENT] + pool->frame_peak_bytes;
    *out = pool;
    if (!pool->fits)
        return mcp_fail(err, MCP_INVALID,
                        "the buffers of pipeline stage %d are beyond what 64 bits can number",
                        class);
    return MCP_OK;
}

struct mcp_place mcp_pool_append(struct mcp_pool *pool, int64_t bytes)
{
    return append(pool, bytes);
}

/* --- asking --- */

static struct mcp_place scratch_place(const struct mcp_pool *pool, const struct mcp_entry *entry,
                                      int index)
{
    const struct mcp_scratch_layout *layout =
        &pool->scratch[entry->type * MCP_NUM_BLOCK_ROLES + entry->role];
    int64_t bytes = type_of(pool, entry)->buffers[MCP_SPACE_BLOCK][index].capacity_bytes;
    return (struct mcp_place){pool->scratch_offset + layout->offsets[index], bytes, -1};
}

/* Buffers of one layer lie one after the other in the place of its turn. */
static struct mcp_place turn_place(const struct mcp_pool *pool, const struct mcp_entry *entry,
                                   enum mcp_turn turn, struct mcp_place place, int index)
{
    const struct mcp_layer_type *type = type_of(pool, entry);
    for (int i = 0; i < index; i++)
        if (turn_of(pool->program, type, i) == turn)
            place.offset += type->buffers[MCP_SPACE_LAYER][i].capacity_bytes;
    place.bytes = type->buffers[MCP_SPACE_LAYER][index].capacity_bytes;
    return place;
}

static struct mcp_place layer_place(const struct mcp_pool *pool, const struct mcp_entry *entry,
                                    int microbatch, int index)
{
    enum mcp_turn turn = turn_of(pool->program, type_of(pool, entry), index);
    if (turn == MCP_TURN_COPY)
        return turn_place(pool, entry, turn, pool->copies[entry->copy], index);
    if (turn == MCP_TURN_NONE)
        return mcp_pool_lasting(pool, entry->layer, index);
    int at = *turn_at(pool, entry->layer, microbatch);
    return at < 0 ? no_place() : turn_place(pool, entry, turn, pool->transient[at], index);
}

struct mcp_place mcp_pool_place(const struct mcp_pool *pool, const struct mcp_entry *entry,
                                int microbatch, struct mcp_operand operand)
{
    switch (operand.space) {
    case MCP_SPACE_RANK:
        return pool->rank[operand.index];
    case MCP_SPACE_LAYER:
        return layer_place(pool, entry, microbatch, operand.index);
    case MCP_SPACE_FRAME:
        return mcp_pool_frame(pool, entry->layer + operand.layer_offset, microbatch, operand.index);
    default:
        return scratch_place(pool, entry, operand.index);
    }
}

struct mcp_place mcp_pool_lasting(const struct mcp_pool *pool, int layer, int index)
{
    if (layer < 0)
        return index < pool->program->num_rank_buffers ? pool->rank[index] : no_place();
    if (layer >= pool->program->num_layers || pool->types[layer] < 0 || index >= pool->layer_stride)
        return no_place();
    return pool->lasting[(size_t)pool->row_of[layer] * (size_t)pool->layer_stride + (size_t)index];
}

int mcp_pool_waits(const struct mcp_pool *pool, int type, int role, int op,
                   const unsigned short **waits)
{
    const struct mcp_scratch_layout *layout = &pool->scratch[type * MCP_NUM_BLOCK_ROLES + role];
    *waits = layout->waits == NULL ? NULL : layout->waits[op];
    return layout->waits == NULL ? 0 : layout->num_waits[op];
}

int mcp_pool_cells(const struct mcp_pool *pool)
{
    return pool->num_cells;
}

int64_t mcp_pool_bytes(const struct mcp_pool *pool)
{
    return pool->bytes;
}

int64_t mcp_pool_peak_bytes(const struct mcp_pool *pool)
{
    return pool->peak_bytes;
}

int mcp_pool_turns(const struct mcp_pool *pool, const struct mcp_place **places)
{
    *places = pool->transient;
    return pool->num_turns;
}

int mcp_pool_type(const struct mcp_pool *pool, int layer)
{
    return layer >= 0 && layer < pool->program->num_layers ? pool->types[layer] : -1;
}
