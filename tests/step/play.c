/* tests/step/play.c: a reference player of programs: time. */
#include "tests/step/play.h"

#include "core/mesh.h"
#include "step/estimate_parts.h"
#include "tests/step/play_memory.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { NUM_COPIES = 256 };

struct played_slot {
    struct mcp_slot_price price;
    int receives, sends; /* -1: from or to the previous stage, +1: the next, 0: neither */
    bool mirrored;       /* by the streams of chunks that run back */
    int64_t back_ns;     /* what a message back to where it receives from takes to send */
};

struct played_class {
    struct played_slot *slots; /* forward and backward slots, in order */
    int num_slots;
    int64_t head_ns, tail_ns, update_ns;
};

struct player {
    struct mcp_arena *arena;
    const struct mcp_question *question;
    const struct mcp_program *program;
    struct mcp_block_price *prices; /* [type][role] */
    struct played_class *classes;
    struct play_result *out;
};

static const struct mcp_block_price *price_of(const struct player *player,
                                              const struct mcp_entry *entry)
{
    return &player->prices[entry->type * MCP_NUM_BLOCK_ROLES + entry->role];
}

static void price_blocks(struct player *player)
{
    const struct mcp_program *program = player->program;
    const struct mcp_pricing pricing = {player->question, &program->plan};
    player->prices =
        MCP_ARRAY(player->arena, program->num_types * MCP_NUM_BLOCK_ROLES, struct mcp_block_price);
    for (int t = 0; t < program->num_types; t++)
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
            mcp_block_price(&pricing, &program->types[t].blocks[role],
                            &player->prices[t * MCP_NUM_BLOCK_ROLES + role]);
}

/* --- one class: what its slots and edges cost --- */

/* While a class is read. */
struct reading {
    int class;
    int64_t *gathered_ns; /* [layer][copy] a gather that no slot has been charged for yet */
    struct once {         /* of a chunk: transfers of a step, compute of one microbatch */
        int64_t gather_ns, reduce_ns, forward_ns, backward_ns;
    } * once;
    int64_t last_reduce_ns, first_gather_ns; /* after and before all compute */
    /* of the slot */
    int64_t compute_ns, lead_ns;
    struct mcp_data_moves moves;
};

static bool is_compute(int role)
{
    return role <= MCP_BACKWARD_WEIGHT || role == MCP_RECOMPUTE;
}

static bool gathers_again(const struct player *player)
{
    const struct mcp_plan *plan = &player->program->plan;
    return plan->zero_stage == 3 && plan->reshard_after_forward;
}

static int64_t sending_ns(const struct player *player, const struct mcp_entry *entry, int class,
                          bool forward, struct mcp_slot_price *price)
{
    const struct mcp_program *program = player->program;
    mcp_message_price(player->question, &program->plan, &program->types[entry->type], class,
                      forward, price);
    return price->send_ns;
}

static void read_message(struct player *player, const struct mcp_entry *entry, int class,
                         struct played_slot *slot)
{
    const struct mcp_program *program = player->program;
    const struct mcp_op *op = &program->types[entry->type].blocks[entry->role].ops[0];
    double replicas = mcp_plan_world(&program->plan) / program->num_classes;
    slot->mirrored = op->stream >= MCP_STREAM_MIRRORED_SEND_PREVIOUS;
    double bytes = (double)op->dims[0] * mcp_dtype_bytes((enum mcp_dtype)op->dtype) * replicas;
    if (entry->role == MCP_SEND_FORWARD || entry->role == MCP_SEND_BACKWARD) {
        slot->sends = op->delta;
        player->out->sent_bytes += bytes;
        sending_ns(player, entry, class, entry->role == MCP_SEND_FORWARD, &slot->price);
        return;
    }
    struct mcp_slot_price back;
    slot->receives = op->delta;
    slot->back_ns = sending_ns(player, entry, class, entry->role == MCP_RECEIVE_BACKWARD, &back);
    player->out->received_bytes += bytes;
}

/* Where types have both, a backward counts in its parts. */
static int64_t in_parts_ns(const struct player *player, const struct mcp_entry *entry)
{
    const struct mcp_layer_type *type = &player->program->types[entry->type];
    struct mcp_entry part = *entry;
    int64_t sum = 0;
    bool parts = type->blocks[MCP_BACKWARD_INPUT].num_ops > 0 ||
                 type->blocks[MCP_BACKWARD_WEIGHT].num_ops > 0;
    if (entry->role != MCP_BACKWARD || !parts)
        return price_of(player, entry)->time_ns;
    for (part.role = MCP_BACKWARD_INPUT; part.role <= MCP_BACKWARD_WEIGHT; part.role++)
        sum += price_of(player, &part)->time_ns;
    return sum;
}

static void read_compute(struct player *player, struct reading *reading,
                         const struct mcp_slot *slot, const struct mcp_entry *entry)
{
    const struct mcp_block_price *price = price_of(player, entry);
    double replicas = mcp_plan_world(&player->program->plan) / player->program->num_classes;
    reading->compute_ns += price->time_ns;
    reading->last_reduce_ns = 0;
    int64_t *gathered_ns = &reading->gathered_ns[NUM_COPIES * entry->layer + entry->copy];
    if (entry->role != MCP_BACKWARD_WEIGHT) { /* which reads no weights */
        reading->moves.gather_ns += *gathered_ns;
        *gathered_ns = 0;
    }
    player->out->flops += price->flops * replicas;
    if (entry->role == MCP_RECOMPUTE)
        player->out->recompute_flops += price->flops * replicas;
    if (slot->microbatch == 0 && entry->role == MCP_FORWARD)
        reading->once[slot->chunk].forward_ns += price->time_ns;
    else if (slot->microbatch == 0)
        reading->once[slot->chunk].backward_ns += in_parts_ns(player, entry);
}

/* Prologue and epilogue have those of all chunks. */
static struct once *once_of(const struct player *player, struct reading *reading, int layer)
{
    const struct mcp_plan *plan = &player->program->plan;
    int stages = plan->pipeline_parallel * plan->virtual_stages, chunk = 0;
    for (int first, count; chunk < plan->virtual_stages - 1; chunk++) {
        int k = mcp_plan_virtual_stage(plan, reading->class, chunk);
        mcp_chunk_layers(player->question->model, stages, k, &plan->chunks[k], &first, &count);
        if (layer >= first && layer < first + count)
            break;
    }
    return &reading->once[chunk];
}

static int64_t alone(const struct player *player, struct mcp_data_moves moves)
{
    int64_t all_ns = moves.gather_ns + moves.reduce_ns;
    return mcp_data_exposed_ns(player->question, &player->program->plan, &moves, all_ns);
}

/* The first gather and the last reduction have no slot to hide in. */
static int64_t unhidden(const struct player *player, struct mcp_data_moves moves)
{
    int64_t all_ns = moves.gather_ns + moves.reduce_ns;
    return all_ns - alone(player, moves);
}

static void read_entry(struct player *player, struct reading *reading, const struct mcp_slot *slot,
                       const struct mcp_entry *entry, struct played_slot *played)
{
    const struct mcp_block_price *price = price_of(player, entry);
    struct played_class *class = &player->classes[reading->class];
    bool of_layer = entry->layer < player->program->num_layers;
    if (is_compute(entry->role)) {
        read_compute(player, reading, slot, entry);
    } else if (entry->role == MCP_GATHER && gathers_again(player)) {
        reading->gathered_ns[NUM_COPIES * entry->layer + entry->copy] = price->time_ns;
        if (slot->pass == MCP_PROLOGUE)
            reading->first_gather_ns = price->time_ns;
    } else if (entry->role == MCP_GATHER) {
        once_of(player, reading, entry->layer)->gather_ns += price->time_ns;
    } else if (entry->role == MCP_REDUCE) {
        if (played->sends != 0 && player->program->plan.zero_stage >= 2)
            played->price.after_ns = alone(player, (struct mcp_data_moves){0, price->time_ns});
        reading->moves.reduce_ns += player->program->plan.zero_stage >= 2 ? price->time_ns : 0;
        once_of(player, reading, entry->layer)->reduce_ns += price->time_ns;
        reading->last_reduce_ns = price->time_ns;
    } else if (entry->role >= MCP_SEND_FORWARD) {
        read_message(player, entry, reading->class, played);
    } else if (of_layer) {
        class->update_ns += price->time_ns;
    }
}

static void read_slot(struct player *player, struct reading *reading, const struct mcp_slot *slot)
{
    const struct mcp_entry_list *list = &player->program->lists[slot->list];
    struct played_class *class = &player->classes[reading->class];
    struct played_slot played = {.receives = 0};
    reading->compute_ns = reading->lead_ns = 0;
    reading->moves = (struct mcp_data_moves){0, 0};
    for (int e = 0; e < list->num_entries; e++) {
        if (e == slot->lead)
            reading->lead_ns = reading->compute_ns;
        read_entry(player, reading, slot, &list->entries[e], &played);
    }
    if (slot->pass > MCP_BACKWARD_WEIGHT)
        return;
    int64_t beside = mcp_data_exposed_ns(player->question, &player->program->plan, &reading->moves,
                                         reading->compute_ns);
    played.price.lead_ns = reading->lead_ns;
    played.price.body_ns = reading->compute_ns + beside - reading->lead_ns;
    if (played.price.after_ns > beside)
        played.price.after_ns = beside;
    if (played.receives != 0 && played.sends == 0) /* no send runs beside this receive */
        played.price.lead_ns += played.back_ns;
    class->slots[class->num_slots++] = played;
}

static void price_edges(struct player *player, const struct reading *reading)
{
    const struct mcp_plan *plan = &player->program->plan;
    struct played_class *class = &player->classes[reading->class];
    struct mcp_data_once head = {0}, tail = {0};
    for (int c = 0; c < plan->virtual_stages; c++) {
        const struct once *of = &reading->once[c];
        mcp_data_once_add(player->question, plan, (struct mcp_data_moves){of->gather_ns, 0},
                          of->forward_ns, &head);
        mcp_data_once_add(player->question, plan, (struct mcp_data_moves){0, of->reduce_ns},
                          of->backward_ns, &tail);
    }
    class->head_ns = gathers_again(player)
                         ? unhidden(player, (struct mcp_data_moves){reading->first_gather_ns, 0})
                         : head.alone_ns + head.late_ns;
    class->tail_ns = plan->zero_stage >= 2
                         ? unhidden(player, (struct mcp_data_moves){0, reading->last_reduce_ns})
                         : tail.alone_ns + tail.late_ns;
}

static void read_class(struct player *player, int c)
{
    const struct mcp_program_class *class = &player->program->classes[c];
    struct reading reading = {.class = c};
    reading.gathered_ns =
        MCP_ARRAY(player->arena, NUM_COPIES * player->program->num_layers, int64_t);
    reading.once = MCP_ARRAY(player->arena, player->program->plan.virtual_stages, struct once);
    player->classes[c].slots = MCP_ARRAY(player->arena, class->num_slots, struct played_slot);
    for (int s = 0; s < class->num_slots; s++)
        read_slot(player, &reading, &class->slots[s]);
    price_edges(player, &reading);
}

/* --- all ranks, slot by slot --- */

struct rank {
    int class, next_slot;
    int neighbours[2]; /* previous, next stage */
    int64_t now_ns;
    int64_t *mail[4]; /* arrivals from the previous and the next stage, and mirrored */
    int posted[4], read[4];
};

static int side(int delta)
{
    return delta > 0;
}

static void place_rank(struct player *player, struct rank *ranks, int r)
{
    const struct mcp_plan *plan = &player->program->plan;
    struct mcp_coordinate at = mcp_mesh_coordinate(plan, r), there = at;
    struct rank *rank = &ranks[r];
    int p = plan->pipeline_parallel;
    rank->class = at.pipeline;
    rank->now_ns = player->classes[at.pipeline].head_ns;
    for (int i = 0; i < 2; i++) {
        there.pipeline = (at.pipeline + (i == 0 ? p - 1 : 1)) % p;
        rank->neighbours[i] = mcp_mesh_rank(plan, there);
    }
    for (int i = 0; i < 4; i++)
        rank->mail[i] =
            MCP_ARRAY(player->arena, player->classes[at.pipeline].num_slots + 1, int64_t);
}

/* Runs the rank's next slot if its message has been sent. */
static bool run_slot(const struct player *player, struct rank *ranks, int r)
{
    struct rank *rank = &ranks[r];
    const struct played_class *class = &player->classes[rank->class];
    if (rank->next_slot == class->num_slots)
        return false;
    const struct played_slot *slot = &class->slots[rank->next_slot];
    const struct mcp_slot_price *price = &slot->price;
    if (slot->receives != 0) {
        int from = side(slot->receives) + 2 * slot->mirrored;
        if (rank->read[from] == rank->posted[from])
            return false;
        int64_t arrival = rank->mail[from][rank->read[from]++];
        if (arrival - price->lead_ns > rank->now_ns)
            rank->now_ns = arrival - price->lead_ns;
    }
    rank->now_ns += price->lead_ns + price->body_ns + (slot->sends != 0 ? price->send_ns : 0);
    if (slot->sends != 0) {
        struct rank *peer = &ranks[rank->neighbours[side(slot->sends)]];
        int to = !side(slot->sends) + 2 * slot->mirrored;
        peer->mail[to][peer->posted[to]++] = rank->now_ns - price->after_ns + price->delay_ns;
    }
    rank->next_slot++;
    return true;
}

static int64_t play_slots(struct player *player)
{
    int world = mcp_plan_world(&player->program->plan);
    struct rank *ranks = MCP_ARRAY(player->arena, world, struct rank);
    int64_t end_ns = 0;
    for (int r = 0; r < world; r++)
        place_rank(player, ranks, r);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < world; r++)
            while (run_slot(player, ranks, r))
                moved = true;
    }
    for (int c = 0; c < player->program->num_classes; c++)
        player->out->earliest_end_ns[c] = INT64_MAX;
    for (int r = 0; r < world; r++) {
        int c = ranks[r].class;
        int64_t end = ranks[r].now_ns;
        assert(ranks[r].next_slot == player->classes[c].num_slots);
        player->out->earliest_end_ns[c] =
            end < player->out->earliest_end_ns[c] ? end : player->out->earliest_end_ns[c];
        player->out->latest_end_ns[c] =
            end > player->out->latest_end_ns[c] ? end : player->out->latest_end_ns[c];
        if (end + player->classes[c].tail_ns > end_ns)
            end_ns = end + player->classes[c].tail_ns;
    }
    return end_ns;
}

/* A collective that shares no bucket with others. */
static int64_t alone_ns(const struct mcp_pricing *pricing, const struct mcp_op *op)
{
    double bytes = (double)op->dims[0] * mcp_dtype_bytes((enum mcp_dtype)op->dtype);
    return mcp_to_ns(
        mcp_collective_seconds(pricing, (enum mcp_function)op->function, op->group, bytes));
}

/* What all ranks do together after the last slot. */
static int64_t finish_ns(const struct player *player)
{
    const struct mcp_program *program = player->program;
    const struct mcp_stack *stack = player->question->stack;
    const struct mcp_pricing pricing = {player->question, &program->plan};
    int64_t update_ns = 0, agreement_ns = 0;
    for (int c = 0; c < program->num_classes; c++)
        if (player->classes[c].update_ns > update_ns)
            update_ns = player->classes[c].update_ns;
    const struct mcp_program_class *class = &program->classes[0];
    const struct mcp_entry_list *list = &program->lists[class->slots[class->num_slots - 1].list];
    for (int e = 0; e < list->num_entries; e++) {
        const struct mcp_entry *entry = &list->entries[e];
        const struct mcp_block *block = &program->types[entry->type].blocks[entry->role];
        for (int i = 0; entry->layer == program->num_layers && i < block->num_ops; i++)
            if (mcp_op_is_transfer(&block->ops[i]))
                agreement_ns += alone_ns(&pricing, &block->ops[i]);
    }
    double broadcast_s = program->plan.zero_stage >= 1
                             ? stack->broadcast_s_per_rank * program->plan.data_parallel
                             : 0;
    return update_ns + agreement_ns + mcp_to_ns(broadcast_s) + mcp_to_ns(stack->step_overhead_s);
}

void play_program(struct mcp_arena *arena, const struct mcp_question *question,
                  const struct mcp_program *program, struct play_result *out)
{
    struct player player = {.arena = arena, .question = question, .program = program, .out = out};
    memset(out, 0, sizeof *out);
    price_blocks(&player);
    player.classes = MCP_ARRAY(arena, program->num_classes, struct played_class);
    for (int c = 0; c < program->num_classes; c++)
        read_class(&player, c);
    out->step_ns = play_slots(&player) + finish_ns(&player);
    for (int c = 0; c < program->num_classes; c++) {
        play_memory(arena, question, program, c, &out->memory[c]);
        int64_t total = mcp_memory_total(&out->memory[c]);
        if (total > out->peak_memory_bytes)
            out->peak_memory_bytes = total;
    }
}
