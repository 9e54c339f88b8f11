/* step/verify_walk.c: one class in list order: slots, entries, passes done once
 * and in order, and what each op must wait for. */
#include "step/verify_parts.h"

#include <stdarg.h>
#include <stdio.h>

/* --- clocks --- */

struct mcp_clocks mcp_clocks_new(struct mcp_arena *arena)
{
    struct mcp_clocks clocks = {.arena = arena};
    mcp_clock_add(&clocks, (struct mcp_clock){{0}});
    return clocks;
}

int mcp_clock_add(struct mcp_clocks *clocks, struct mcp_clock clock)
{
    clocks->items = mcp_grow(clocks->arena, clocks->items, clocks->count, &clocks->capacity,
                             sizeof *clocks->items);
    clocks->items[clocks->count] = clock;
    return (int)clocks->count++;
}

int mcp_clock_join(struct mcp_clocks *clocks, int a, int b)
{
    if (a == b || b == 0)
        return a;
    if (a == 0)
        return b;
    struct mcp_clock join = clocks->items[a];
    bool is_a = true, is_b = true;
    for (int i = 0; i < MCP_NUM_CHANNELS; i++) {
        int other = clocks->items[b].done[i];
        is_a = is_a && join.done[i] >= other;
        is_b = is_b && join.done[i] <= other;
        join.done[i] = join.done[i] > other ? join.done[i] : other;
    }
    if (is_a || is_b)
        return is_a ? a : b;
    return mcp_clock_add(clocks, join);
}

/* --- sentences --- */

enum mcp_status mcp_walk_fail(const struct mcp_walk *walk, int op, const char *format, ...)
{
    char text[512], place[96];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *role = mcp_block_role_names[walk->entry->role];
    if (op >= 0) {
        const struct mcp_op *self = &walk->type->blocks[walk->entry->role].ops[op];
        snprintf(place, sizeof place, " op %d (%s)", op, mcp_functions[self->function].name);
    } else {
        snprintf(place, sizeof place, " (%s)", role);
    }
    return mcp_fail(walk->verify->err, MCP_INVALID, "class %d slot %d entry %d%s: %s", walk->class,
                    walk->slot, walk->entry_index, place, text);
}

/* --- ops --- */

static void add_event(struct mcp_walk *walk, const struct mcp_verify_step *step)
{
    struct mcp_verify *verify = walk->verify;
    const struct mcp_op *op = &walk->type->blocks[walk->entry->role].ops[step->op];
    struct mcp_event_list *list = &verify->events[walk->class].channels[step->channel];
    struct mcp_event event = {.needs = walk->now,
                              .slot = walk->slot,
                              .entry = walk->entry_index,
                              .op = step->op,
                              .layer = walk->entry->layer,
                              .microbatch = walk->microbatch,
                              .function = op->function,
                              .dtype = op->dtype,
                              .group = op->group,
                              .elements = op->dims[0]};
    if (step->channel != MCP_CHANNEL_SPAN) {
        struct mcp_operand frame = op->num_reads > 0 ? op->reads[0] : op->writes[0];
        event.layer += frame.layer_offset;
        event.index = (unsigned char)frame.index;
    }
    list->items =
        mcp_grow(verify->arena, list->items, list->count, &list->capacity, sizeof *list->items);
    list->items[list->count++] = event;
    struct mcp_clock after = verify->clocks.items[walk->now];
    after.done[step->channel] = (int)list->count;
    walk->now = mcp_clock_add(&verify->clocks, after);
}

static void join_wait(struct mcp_walk *walk, const struct mcp_access *access)
{
    const struct mcp_op *op = &walk->type->blocks[walk->entry->role].ops[access->wait];
    int clock =
        op->stream < MCP_STREAM_DATA ? walk->lanes[MCP_LANE_MAIN] : walk->op_clock[access->wait];
    walk->now = mcp_clock_join(&walk->verify->clocks, walk->now, clock);
}

static enum mcp_status look_at(struct mcp_walk *walk, const struct mcp_access *access)
{
    if (access->kind == MCP_ACCESS_WAIT) {
        join_wait(walk, access);
        return MCP_OK;
    }
    return mcp_value_check(walk, access);
}

static void note(struct mcp_walk *walk, const struct mcp_access *access)
{
    if (access->kind != MCP_ACCESS_WAIT)
        mcp_value_note(walk, access);
}

/* The ops of a main run follow each other; a lone op waits for all it needs. */
static enum mcp_status run_accesses(struct mcp_walk *walk, const struct mcp_verify_step *step,
                                    const struct mcp_access *accesses)
{
    bool run = step->lane == MCP_LANE_MAIN;
    for (int i = 0; i < step->num_accesses; i++) {
        MCP_TRY(look_at(walk, &accesses[i]));
        if (run)
            note(walk, &accesses[i]);
    }
    if (run)
        return MCP_OK;
    if (step->channel >= 0)
        add_event(walk, step);
    bool sends = step->channel >= 0 && mcp_channel_sends(step->channel);
    for (int i = 0; i < step->num_accesses; i++) {
        note(walk, &accesses[i]);
        if (sends && accesses[i].kind == MCP_ACCESS_READ)
            mcp_value_end(walk, accesses[i].at);
    }
    return MCP_OK;
}

static enum mcp_status run_step(struct mcp_walk *walk, const struct mcp_block_summary *summary,
                                const struct mcp_verify_step *step)
{
    walk->now = walk->issue;
    if (step->lane != MCP_LANE_CHANNEL)
        walk->now = mcp_clock_join(&walk->verify->clocks, walk->now, walk->lanes[step->lane]);
    MCP_TRY(run_accesses(walk, step, summary->accesses + step->first_access));
    if (step->lane != MCP_LANE_CHANNEL)
        walk->lanes[step->lane] = walk->now;
    walk->op_clock[step->op] = walk->now;
    if (step->host)
        walk->issue = walk->now;
    return MCP_OK;
}

/* --- entries --- */

static bool has_microbatch(int role)
{
    return mcp_is_compute_role(role) || role >= MCP_SEND_FORWARD;
}

static bool role_fits_pass(int role, int pass)
{
    switch (role) {
    case MCP_FORWARD:
    case MCP_BACKWARD:
    case MCP_BACKWARD_INPUT:
    case MCP_BACKWARD_WEIGHT:
    case MCP_PROLOGUE:
        return role == pass;
    case MCP_EPILOGUE:
    case MCP_OPTIMIZER:
        return pass == MCP_EPILOGUE;
    case MCP_RECOMPUTE:
        return pass == MCP_BACKWARD || pass == MCP_BACKWARD_INPUT;
    case MCP_REDUCE:
        return pass != MCP_FORWARD && pass != MCP_PROLOGUE;
    default:
        return true;
    }
}

static enum mcp_status check_entry_ranges(struct mcp_walk *walk)
{
    const struct mcp_program *program = walk->verify->program;
    const struct mcp_entry *entry = walk->entry;
    int m = program->num_microbatches;
    bool once = entry->role == MCP_PROLOGUE || entry->role == MCP_EPILOGUE;
    if (entry->role >= MCP_NUM_BLOCK_ROLES || entry->type >= program->num_types ||
        entry->layer < 0 || entry->layer >= program->num_layers + once)
        return mcp_fail(walk->verify->err, MCP_INVALID,
                        "class %d slot %d entry %d: role %d, type %d or layer %d is out of range",
                        walk->class, walk->slot, walk->entry_index, entry->role, entry->type,
                        entry->layer);
    walk->type = &program->types[entry->type];
    int64_t microbatch = (int64_t)walk->the_slot->microbatch + entry->microbatch_offset;
    walk->microbatch = microbatch >= 0 && microbatch < m ? (int)microbatch : 0;
    if (has_microbatch(entry->role) && (microbatch < 0 || microbatch >= m))
        return mcp_walk_fail(walk, -1, "microbatch %lld is not one of %d", (long long)microbatch,
                             m);
    if (!role_fits_pass(entry->role, walk->the_slot->pass))
        return mcp_walk_fail(walk, -1, "does not belong in a %s slot",
                             mcp_block_role_names[walk->the_slot->pass]);
    return MCP_OK;
}

/* A layer has one type, one class and one chunk. */
static enum mcp_status check_home(struct mcp_walk *walk)
{
    struct mcp_verify *verify = walk->verify;
    int layer = walk->entry->layer, v = verify->program->plan.virtual_stages;
    if (walk->entry->role == MCP_PROLOGUE || walk->entry->role == MCP_EPILOGUE)
        return MCP_OK;
    if (verify->type_of[layer] < 0)
        verify->type_of[layer] = walk->entry->type;
    if (verify->type_of[layer] != walk->entry->type)
        return mcp_walk_fail(walk, -1, "layer %d is of type %d here and %d elsewhere", layer,
                             walk->entry->type, verify->type_of[layer]);
    if (!mcp_is_compute_role(walk->entry->role))
        return MCP_OK;
    int home = walk->class * v + walk->the_slot->chunk;
    if (verify->home[layer] < 0)
        verify->home[layer] = home;
    if (verify->home[layer] != home)
        return mcp_walk_fail(walk, -1, "layer %d is in chunk %d of class %d", layer,
                             verify->home[layer] % v, verify->home[layer] / v);
    return MCP_OK;
}

static enum mcp_status check_once(struct mcp_walk *walk, unsigned bit)
{
    unsigned char *ran = mcp_verify_ran(walk->verify, walk->entry->layer, walk->microbatch);
    if (*ran & bit)
        return mcp_walk_fail(walk, -1, "layer %d microbatch %d has run it before",
                             walk->entry->layer, walk->microbatch);
    *ran = (unsigned char)(*ran | bit);
    return MCP_OK;
}

/* Nothing but transfers may stand between a recompute and its backward. */
static enum mcp_status check_recompute(const struct mcp_walk *walk)
{
    const struct mcp_entry *entry = walk->entry, *last = &walk->last_compute;
    if (entry->role != MCP_BACKWARD && entry->role != MCP_BACKWARD_INPUT)
        return MCP_OK;
    if (walk->type->blocks[MCP_RECOMPUTE].num_ops == 0)
        return MCP_OK;
    if (last->role != MCP_RECOMPUTE || last->layer != entry->layer ||
        walk->last_compute_microbatch != walk->microbatch)
        return mcp_walk_fail(walk, -1, "layer %d microbatch %d is not recomputed right before",
                             entry->layer, walk->microbatch);
    return MCP_OK;
}

static enum mcp_status check_compute(struct mcp_walk *walk)
{
    int role = walk->entry->role, layer = walk->entry->layer;
    unsigned ran = *mcp_verify_ran(walk->verify, layer, walk->microbatch);
    if (role != MCP_FORWARD && !(ran & MCP_RAN(MCP_FORWARD)))
        return mcp_walk_fail(walk, -1, "layer %d microbatch %d has not run forward", layer,
                             walk->microbatch);
    bool has_input = walk->type->blocks[MCP_BACKWARD_INPUT].num_ops > 0;
    if (role == MCP_BACKWARD_WEIGHT && has_input && !(ran & MCP_RAN(MCP_BACKWARD_INPUT)))
        return mcp_walk_fail(walk, -1, "layer %d microbatch %d has not run backward_input", layer,
                             walk->microbatch);
    const unsigned parts = MCP_RAN(MCP_BACKWARD_INPUT) | MCP_RAN(MCP_BACKWARD_WEIGHT);
    if ((role == MCP_BACKWARD && (ran & parts)) ||
        ((MCP_RAN(role) & parts) && (ran & MCP_RAN(MCP_BACKWARD))))
        return mcp_walk_fail(walk, -1, "layer %d microbatch %d runs backward whole and in parts",
                             layer, walk->microbatch);
    MCP_TRY(check_once(walk, role == MCP_RECOMPUTE ? MCP_RAN_RECOMPUTE : MCP_RAN(role)));
    MCP_TRY(check_recompute(walk));
    walk->last_compute = *walk->entry;
    walk->last_compute_microbatch = walk->microbatch;
    return MCP_OK;
}

static enum mcp_status check_whole_step(const struct mcp_walk *walk)
{
    struct mcp_verify *verify = walk->verify;
    int layer = walk->entry->layer, m = verify->program->num_microbatches;
    bool whole = walk->entry->role == MCP_OPTIMIZER ||
                 (walk->entry->role == MCP_REDUCE && verify->program->plan.zero_stage < 2);
    if (whole && verify->num_backwards[layer] != m)
        return mcp_walk_fail(walk, -1, "layer %d has run backward for %d of %d microbatches", layer,
                             verify->num_backwards[layer], m);
    if (walk->entry->role == MCP_OPTIMIZER && verify->num_optimised[layer]++ > 0)
        return mcp_walk_fail(walk, -1, "layer %d has run it before", layer);
    return MCP_OK;
}

static void end_entry(struct mcp_walk *walk)
{
    const struct mcp_operand input = {.space = MCP_SPACE_FRAME, .index = MCP_FRAME_X};
    if (walk->entry->role == MCP_FORWARD && walk->verify->ends_input[walk->entry->type])
        mcp_value_end(walk, input);
    if (!mcp_is_last_pass(walk->type, walk->entry->role))
        return;
    walk->verify->num_backwards[walk->entry->layer]++;
    mcp_values_release(walk, walk->entry->layer, walk->microbatch);
}

static enum mcp_status run_entry(struct mcp_walk *walk)
{
    const struct mcp_verify *verify = walk->verify;
    MCP_TRY(check_entry_ranges(walk));
    MCP_TRY(check_home(walk));
    if (mcp_is_compute_role(walk->entry->role))
        MCP_TRY(check_compute(walk));
    MCP_TRY(check_whole_step(walk));
    const struct mcp_block_summary *summary =
        &verify->summaries[walk->entry->type * MCP_NUM_BLOCK_ROLES + walk->entry->role];
    for (int i = 0; i < summary->num_steps; i++)
        MCP_TRY(run_step(walk, summary, &summary->steps[i]));
    end_entry(walk);
    return MCP_OK;
}

/* --- slots --- */

static int phase_of(int pass)
{
    if (pass == MCP_PROLOGUE)
        return 0;
    return pass == MCP_EPILOGUE ? 2 : 1;
}

static enum mcp_status check_slot(struct mcp_walk *walk)
{
    const struct mcp_program *program = walk->verify->program;
    const struct mcp_slot *slot = walk->the_slot;
    struct mcp_error *err = walk->verify->err;
    if (slot->pass > MCP_EPILOGUE || slot->list < 0 || slot->list >= program->num_lists)
        return mcp_fail(err, MCP_INVALID, "class %d slot %d: pass %d or list %d is out of range",
                        walk->class, walk->slot, slot->pass, slot->list);
    if (slot->lead < 0 || slot->lead > program->lists[slot->list].num_entries)
        return mcp_fail(err, MCP_INVALID, "class %d slot %d: a lead of %d of %d entries",
                        walk->class, walk->slot, slot->lead,
                        program->lists[slot->list].num_entries);
    if (phase_of(slot->pass) < walk->phase)
        return mcp_fail(err, MCP_INVALID, "class %d slot %d: %s comes too late", walk->class,
                        walk->slot, mcp_block_role_names[slot->pass]);
    walk->phase = phase_of(slot->pass);
    if (walk->phase == 1 && (slot->chunk < 0 || slot->chunk >= program->plan.virtual_stages ||
                             slot->microbatch < 0 || slot->microbatch >= program->num_microbatches))
        return mcp_fail(err, MCP_INVALID, "class %d slot %d: chunk %d microbatch %d do not exist",
                        walk->class, walk->slot, slot->chunk, slot->microbatch);
    return MCP_OK;
}

/* The lead of a slot has waited for none of the slot's own messages. */
static enum mcp_status check_lead(const struct mcp_walk *walk, const struct mcp_clock *start)
{
    const struct mcp_clock *now = &walk->verify->clocks.items[walk->lanes[MCP_LANE_MAIN]];
    for (int i = 0; i < MCP_CHANNEL_SPAN; i++)
        if (!mcp_channel_sends(i) && now->done[i] > start->done[i])
            return mcp_walk_fail(walk, -1, "waits for a message of its slot within the lead of %d",
                                 walk->the_slot->lead);
    return MCP_OK;
}

static enum mcp_status run_slot(struct mcp_walk *walk)
{
    const struct mcp_program *program = walk->verify->program;
    MCP_TRY(check_slot(walk));
    const struct mcp_entry_list *list = &program->lists[walk->the_slot->list];
    struct mcp_clock start = {{0}};
    for (int i = 0; i < MCP_NUM_CHANNELS; i++)
        start.done[i] = (int)walk->verify->events[walk->class].channels[i].count;
    for (int e = 0; e < list->num_entries; e++) {
        walk->entry = &list->entries[e];
        walk->entry_index = e;
        MCP_TRY(run_entry(walk));
        if (e < walk->the_slot->lead)
            MCP_TRY(check_lead(walk, &start));
    }
    return MCP_OK;
}

enum mcp_status mcp_verify_class(struct mcp_verify *verify, int class)
{
    struct mcp_walk walk = {.verify = verify, .class = class};
    const struct mcp_program_class *the_class = &verify->program->classes[class];
    mcp_values_new(&walk);
    walk.op_clock = MCP_ARRAY(verify->arena, verify->max_block_ops, int);
    walk.last_compute.role = MCP_NUM_BLOCK_ROLES;
    for (int s = 0; s < the_class->num_slots; s++) {
        walk.the_slot = &the_class->slots[s];
        walk.slot = s;
        MCP_TRY(run_slot(&walk));
    }
    return mcp_values_finish(&walk);
}
