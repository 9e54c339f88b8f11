/* step/verify_values.c: does every read see the write of its own instance, within
 * its life? The values of one class, in list order. */
#include "step/verify_parts.h"

#include <assert.h>

enum { ROW_NONE = -1, ROW_OVER = -2 };

void mcp_values_new(struct mcp_walk *walk)
{
    const struct mcp_verify *verify = walk->verify;
    const struct mcp_program *program = verify->program;
    size_t stride = (size_t)verify->layer_stride;
    size_t num_rows = ((size_t)program->num_layers + 2) * (size_t)program->num_microbatches;
    walk->rank = MCP_ARRAY(verify->arena, program->num_rank_buffers, struct mcp_cell);
    walk->layers =
        MCP_ARRAY(verify->arena, ((size_t)program->num_layers + 1) * stride, struct mcp_cell);
    walk->copies = MCP_ARRAY(verify->arena, 256 * stride, struct mcp_cell);
    walk->rows = MCP_ARRAY(verify->arena, num_rows, int);
    for (size_t i = 0; i < num_rows; i++)
        walk->rows[i] = ROW_NONE;
}

/* --- frames: a row of cells for each (layer, microbatch) in flight --- */

static int *row_of(const struct mcp_walk *walk, int layer, int microbatch)
{
    return &walk->rows[(size_t)layer * (size_t)walk->verify->program->num_microbatches +
                       (size_t)microbatch];
}

static struct mcp_cell *cells_of(const struct mcp_walk *walk, int row)
{
    return walk->frames + (size_t)row * (size_t)walk->verify->frame_stride;
}

static int new_row(struct mcp_walk *walk)
{
    size_t size = (size_t)walk->verify->frame_stride * sizeof *walk->frames;
    if (walk->num_free > 0) {
        int row = walk->free_rows[--walk->num_free];
        for (int i = 0; i < walk->verify->frame_stride; i++)
            cells_of(walk, row)[i] = (struct mcp_cell){0};
        return row;
    }
    walk->frames =
        mcp_grow(walk->verify->arena, walk->frames, walk->num_rows, &walk->rows_capacity, size);
    return (int)walk->num_rows++;
}

static void free_row(struct mcp_walk *walk, int *row)
{
    walk->free_rows = mcp_grow(walk->verify->arena, walk->free_rows, walk->num_free,
                               &walk->free_capacity, sizeof *walk->free_rows);
    walk->free_rows[walk->num_free++] = *row;
    *row = ROW_OVER;
}

static const struct mcp_cell over = {.state = MCP_CELL_OVER}, empty = {.state = MCP_CELL_EMPTY};

/* The cell of a frame; what does not exist yet or any more reads as such. */
static struct mcp_cell peek_frame(const struct mcp_walk *walk, struct mcp_operand at)
{
    int row = *row_of(walk, walk->entry->layer + at.layer_offset, walk->microbatch);
    if (row < 0)
        return row == ROW_OVER ? over : empty;
    return cells_of(walk, row)[at.index];
}

static struct mcp_cell *make_frame(struct mcp_walk *walk, struct mcp_operand at)
{
    int *row = row_of(walk, walk->entry->layer + at.layer_offset, walk->microbatch);
    if (*row < 0)
        *row = new_row(walk);
    return &cells_of(walk, *row)[at.index];
}

/* Is there nothing in it that is still to be read? */
static bool is_row_over(const struct mcp_walk *walk, const struct mcp_cell *cells)
{
    if (cells[MCP_FRAME_X].state != MCP_CELL_OVER || cells[MCP_FRAME_DX].state != MCP_CELL_OVER)
        return false;
    for (int i = 0; i < walk->verify->frame_stride; i++)
        if (cells[i].state == MCP_CELL_VALID)
            return false;
    return true;
}

static void end_frame(struct mcp_walk *walk, int layer, int microbatch, int index)
{
    int *row = row_of(walk, layer, microbatch);
    if (*row < 0)
        return;
    struct mcp_cell *cells = cells_of(walk, *row);
    cells[index].state = MCP_CELL_OVER;
    if (is_row_over(walk, cells))
        free_row(walk, row);
}

void mcp_values_release(struct mcp_walk *walk, int layer, int microbatch)
{
    int row = *row_of(walk, layer, microbatch);
    if (row >= 0) {
        struct mcp_cell *cells = cells_of(walk, row);
        for (int i = 0; i < walk->verify->frame_stride; i++)
            if (i != MCP_FRAME_DX || cells[i].state == MCP_CELL_EMPTY)
                cells[i].state = MCP_CELL_OVER;
        end_frame(walk, layer, microbatch, MCP_FRAME_X);
    }
    end_frame(walk, layer + 1, microbatch, MCP_FRAME_DX);
}

void mcp_value_end(struct mcp_walk *walk, struct mcp_operand at)
{
    end_frame(walk, walk->entry->layer + at.layer_offset, walk->microbatch, at.index);
}

/* --- cells --- */

static bool is_gathered(const struct mcp_walk *walk, struct mcp_operand at)
{
    size_t type = walk->entry->type, stride = (size_t)walk->verify->layer_stride;
    return at.space == MCP_SPACE_LAYER && walk->verify->gathered[type * stride + at.index];
}

/* Copies are shared by all layers of a rank when they are given up after each use. */
static bool is_pooled(const struct mcp_walk *walk, struct mcp_operand at)
{
    return mcp_plan_gathers_again(&walk->verify->program->plan) && is_gathered(walk, at);
}

static const struct mcp_buffer *buffer_of(const struct mcp_walk *walk, struct mcp_operand at)
{
    return mcp_operand_buffer(walk->verify->program, walk->type, at);
}

static struct mcp_cell *lasting_cell(const struct mcp_walk *walk, struct mcp_operand at)
{
    size_t stride = (size_t)walk->verify->layer_stride;
    if (at.space == MCP_SPACE_RANK)
        return &walk->rank[at.index];
    if (is_pooled(walk, at))
        return &walk->copies[walk->entry->copy * stride + at.index];
    return &walk->layers[(size_t)walk->entry->layer * stride + at.index];
}

/* Casts are of the weights as they were: each step makes them anew. */
static bool is_cast(struct mcp_operand at)
{
    return at.space == MCP_SPACE_LAYER &&
           (at.index == MCP_LAYER_CAST_WEIGHTS || at.index == MCP_LAYER_CAST_COLUMNS);
}

/* What holds a value between steps: weights and optimizer state. */
static bool is_persistent(const struct mcp_walk *walk, struct mcp_operand at)
{
    int kind = buffer_of(walk, at)->kind;
    return at.space != MCP_SPACE_FRAME && !is_gathered(walk, at) && !is_cast(at) &&
           (kind == MCP_BUFFER_WEIGHT || kind == MCP_BUFFER_OPTIMIZER);
}

static struct mcp_cell peek(const struct mcp_walk *walk, struct mcp_operand at)
{
    struct mcp_cell cell =
        at.space == MCP_SPACE_FRAME ? peek_frame(walk, at) : *lasting_cell(walk, at);
    if (cell.state == MCP_CELL_EMPTY && is_persistent(walk, at))
        cell.state = MCP_CELL_VALID;
    bool fresh = cell.state == MCP_CELL_EMPTY || cell.state == MCP_CELL_REDUCED;
    if (fresh && mcp_is_transient(walk->verify->program, at))
        cell.state = MCP_CELL_CLEARED; /* reducing empties it */
    return cell;
}

/* --- judging --- */

static const char *describe(const struct mcp_walk *walk, struct mcp_operand at)
{
    struct mcp_arena *arena = walk->verify->arena;
    const char *name = buffer_of(walk, at)->name, *space = mcp_space_names[at.space];
    int layer = walk->entry->layer + at.layer_offset;
    if (at.space == MCP_SPACE_RANK)
        return mcp_format(arena, "%s '%s'", space, name);
    if (at.space == MCP_SPACE_LAYER)
        return mcp_format(arena, "%s '%s' of layer %d", space, name, layer);
    return mcp_format(arena, "%s '%s' of layer %d microbatch %d", space, name, layer,
                      walk->microbatch);
}

static enum mcp_status check_frame(const struct mcp_walk *walk, const struct mcp_access *access,
                                   const struct mcp_cell *cell)
{
    bool uses = access->kind == MCP_ACCESS_READ || access->kind == MCP_ACCESS_ACCUMULATE;
    if (cell->state == MCP_CELL_OVER)
        return mcp_walk_fail(walk, access->op,
                             "%s %s after its life, which ended with its last "
                             "reader",
                             uses ? "reads" : "writes", describe(walk, access->at));
    if (uses && cell->state == MCP_CELL_EMPTY)
        return mcp_walk_fail(walk, access->op, "reads %s before it is written",
                             describe(walk, access->at));
    return MCP_OK;
}

static enum mcp_status check_gathered(const struct mcp_walk *walk, const struct mcp_access *access,
                                      const struct mcp_cell *cell)
{
    const char *what = describe(walk, access->at);
    if (access->kind != MCP_ACCESS_READ) {
        if (walk->entry->role != MCP_GATHER)
            return mcp_walk_fail(walk, access->op, "writes %s, which only gather blocks may", what);
        return MCP_OK;
    }
    if (cell->state == MCP_CELL_EMPTY)
        return mcp_walk_fail(walk, access->op, "reads %s before it is gathered", what);
    if (cell->owner != walk->entry->layer)
        return mcp_walk_fail(walk, access->op, "reads %s in copy %d, which holds layer %d by now",
                             what, walk->entry->copy, cell->owner);
    return MCP_OK;
}

static bool is_gradient(struct mcp_operand at)
{
    if (at.space == MCP_SPACE_RANK)
        return at.index == MCP_RANK_TIED_GRADIENTS;
    return at.space == MCP_SPACE_LAYER &&
           (at.index == MCP_LAYER_GRADIENTS || at.index == MCP_LAYER_EXPERT_GRADIENTS);
}

/* Gradients that a reduce block must see before anyone uses or loses them. */
static bool is_reduced(const struct mcp_layer_type *type, struct mcp_operand at)
{
    const struct mcp_block *reduce = &type->blocks[MCP_REDUCE];
    for (int i = 0; is_gradient(at) && i < reduce->num_ops; i++)
        for (int r = 0; r < reduce->ops[i].num_reads; r++)
            if (mcp_same_operand(reduce->ops[i].reads[r], at))
                return true;
    return false;
}

/* Forward, backward and recompute: reads, and adds to what was cleared. */
static enum mcp_status check_in_pass(const struct mcp_walk *walk, const struct mcp_access *access,
                                     const struct mcp_cell *cell)
{
    bool transient = mcp_is_transient(walk->verify->program, access->at);
    if (transient && cell->state == MCP_CELL_ADDED && cell->owner != walk->microbatch)
        return mcp_walk_fail(walk, access->op, "changes %s while it holds microbatch %d unreduced",
                             describe(walk, access->at), cell->owner);
    if (access->kind == MCP_ACCESS_ACCUMULATE && cell->state != MCP_CELL_CLEARED &&
        cell->state != MCP_CELL_ADDED)
        return mcp_walk_fail(walk, access->op, "adds to %s, which has not been cleared",
                             describe(walk, access->at));
    return MCP_OK;
}

static bool is_shard(struct mcp_operand at)
{
    return at.space == MCP_SPACE_LAYER &&
           (at.index == MCP_LAYER_GRADIENT_SHARD || at.index == MCP_LAYER_EXPERT_GRADIENT_SHARD);
}

/* A reduce block takes one microbatch's gradients under ZeRO-2 and 3, and adds them to
 * a shard; the flat parts of a buffer one after the other. */
static enum mcp_status check_reduce(const struct mcp_walk *walk, const struct mcp_access *access,
                                    const struct mcp_cell *cell)
{
    bool takes = is_gradient(access->at) && mcp_is_transient(walk->verify->program, access->at);
    bool parts = cell->reduced_by == walk->slot + 1 && cell->owner == walk->microbatch;
    if (takes && cell->state != MCP_CELL_ADDED && !parts)
        return mcp_walk_fail(walk, access->op, "reduces %s, which holds nothing unreduced",
                             describe(walk, access->at));
    if (takes && cell->owner != walk->microbatch)
        return mcp_walk_fail(walk, access->op, "reduces %s of microbatch %d while it holds %d",
                             describe(walk, access->at), walk->microbatch, cell->owner);
    if (is_shard(access->at) && cell->state == MCP_CELL_EMPTY)
        return mcp_walk_fail(walk, access->op, "adds to %s, which has not been cleared",
                             describe(walk, access->at));
    return MCP_OK;
}

static enum mcp_status check_lasting(const struct mcp_walk *walk, const struct mcp_access *access,
                                     const struct mcp_cell *cell)
{
    int role = walk->entry->role;
    bool is_read = access->kind == MCP_ACCESS_READ;
    if (is_read && cell->state == MCP_CELL_EMPTY)
        return mcp_walk_fail(walk, access->op, "reads %s before it is written",
                             describe(walk, access->at));
    if (mcp_is_compute_role(role))
        return check_in_pass(walk, access, cell);
    if (access->kind == MCP_ACCESS_ACCUMULATE && cell->state == MCP_CELL_EMPTY)
        return mcp_walk_fail(walk, access->op, "adds to %s before it is written",
                             describe(walk, access->at));
    if (role == MCP_REDUCE)
        return check_reduce(walk, access, cell);
    if (cell->state == MCP_CELL_ADDED && is_reduced(walk->type, access->at))
        return mcp_walk_fail(walk, access->op, "%s %s before it is reduced",
                             is_read ? "reads" : "changes", describe(walk, access->at));
    return MCP_OK;
}

enum mcp_status mcp_value_check(struct mcp_walk *walk, const struct mcp_access *access)
{
    struct mcp_clocks *clocks = &walk->verify->clocks;
    struct mcp_cell cell = peek(walk, access->at);
    if (access->at.space == MCP_SPACE_FRAME)
        MCP_TRY(check_frame(walk, access, &cell));
    else if (is_gathered(walk, access->at))
        MCP_TRY(check_gathered(walk, access, &cell));
    else
        MCP_TRY(check_lasting(walk, access, &cell));
    walk->now = mcp_clock_join(clocks, walk->now, cell.write_clock);
    if (access->kind != MCP_ACCESS_READ)
        walk->now = mcp_clock_join(clocks, walk->now, cell.read_clock);
    return MCP_OK;
}

/* --- noting --- */

static enum mcp_cell_state state_after(const struct mcp_walk *walk, const struct mcp_access *access,
                                       enum mcp_cell_state before)
{
    if (access->at.space == MCP_SPACE_FRAME)
        return MCP_CELL_VALID;
    if (access->kind == MCP_ACCESS_CLEAR)
        return MCP_CELL_CLEARED;
    bool in_place = access->kind == MCP_ACCESS_ACCUMULATE;
    if (walk->entry->role == MCP_REDUCE && is_gradient(access->at))
        return in_place && mcp_is_transient(walk->verify->program, access->at) ? before
                                                                               : MCP_CELL_REDUCED;
    if (access->kind == MCP_ACCESS_READ)
        return before;
    if (in_place)
        return before == MCP_CELL_CLEARED ? MCP_CELL_ADDED : before;
    bool in_pass = mcp_is_compute_role(walk->entry->role);
    return in_pass && is_gradient(access->at) ? MCP_CELL_ADDED : MCP_CELL_VALID;
}

void mcp_value_note(struct mcp_walk *walk, const struct mcp_access *access)
{
    struct mcp_clocks *clocks = &walk->verify->clocks;
    struct mcp_cell *cell = access->at.space == MCP_SPACE_FRAME ? make_frame(walk, access->at)
                                                                : lasting_cell(walk, access->at);
    cell->state = state_after(walk, access, peek(walk, access->at).state);
    if (cell->state == MCP_CELL_REDUCED)
        cell->reduced_by = walk->slot + 1;
    if (access->kind == MCP_ACCESS_READ) {
        cell->read_clock = mcp_clock_join(clocks, cell->read_clock, walk->now);
        return;
    }
    cell->write_clock = walk->now;
    cell->read_clock = 0;
    if (walk->entry->role != MCP_REDUCE)
        cell->owner = is_gathered(walk, access->at) ? walk->entry->layer : walk->microbatch;
}

enum mcp_status mcp_values_finish(struct mcp_walk *walk)
{
    const struct mcp_verify *verify = walk->verify;
    static const unsigned short gradients[2] = {MCP_LAYER_GRADIENTS, MCP_LAYER_EXPERT_GRADIENTS};
    for (int layer = 0; layer < verify->program->num_layers; layer++) {
        if (verify->home[layer] / verify->program->plan.virtual_stages != walk->class)
            continue;
        const struct mcp_layer_type *type = &verify->program->types[verify->type_of[layer]];
        for (int i = 0; i < 2; i++) {
            struct mcp_operand at = {MCP_SPACE_LAYER, 0, gradients[i]};
            size_t cell = (size_t)layer * (size_t)verify->layer_stride + at.index;
            if (walk->layers[cell].state == MCP_CELL_ADDED && is_reduced(type, at))
                return mcp_fail(verify->err, MCP_INVALID,
                                "class %d: layer '%s' of layer %d is never reduced", walk->class,
                                type->buffers[MCP_SPACE_LAYER][at.index].name, layer);
        }
    }
    return MCP_OK;
}
