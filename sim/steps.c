/* sim/steps.c: prices every entry of a program once. */
#include "sim/steps.h"

#include "core/mesh.h"
#include "core/stack.h"
#include "step/estimate_parts.h"

#include <assert.h>
#include <math.h>

static int pool_of(const struct mcp_plan *plan, int class)
{
    return plan->stage_pool != NULL ? plan->stage_pool[class] : 0;
}

static struct mcp_question question_at(const struct mcp_question *question, int pool)
{
    struct mcp_question at = *question;
    at.cluster = mcp_cluster_pool(question->cluster, pool);
    return at;
}

struct mcp_question mcp_sim_question_of(const struct mcp_question *question,
                                        const struct mcp_plan *plan, int class)
{
    return question_at(question, pool_of(plan, class));
}

static void price_blocks(struct mcp_arena *arena, struct mcp_sim_steps *steps)
{
    const struct mcp_program *program = steps->program;
    int pools = mcp_cluster_num_pools(steps->question->cluster), blocks = 0;
    steps->prices =
        MCP_ARRAY(arena, pools * program->num_types * MCP_NUM_BLOCK_ROLES, struct mcp_block_price);
    for (int pool = 0; pool < pools; pool++) {
        const struct mcp_question at = question_at(steps->question, pool);
        const struct mcp_pricing pricing = {&at, &program->plan};
        for (int t = 0; t < program->num_types; t++)
            for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
                mcp_block_price(&pricing, &program->types[t].blocks[role],
                                &steps->prices[blocks++]);
    }
}

static const struct mcp_block_price *price_of(const struct mcp_sim_steps *steps, int class,
                                              const struct mcp_entry *entry)
{
    int pool = pool_of(&steps->program->plan, class);
    int type = pool * steps->program->num_types + entry->type;
    return &steps->prices[type * MCP_NUM_BLOCK_ROLES + entry->role];
}

/* --- one entry --- */

static int64_t stretchable_ns(const struct mcp_block_price *price)
{
    double seconds = 0;
    for (int i = MCP_COST_MATMUL; i < MCP_COST_TENSOR; i++)
        seconds += price->cost_s[i];
    return mcp_to_ns(seconds);
}

/* The share of a transfer that its stack hides runs beside compute; the rest stands
 * alone: in its slot, or at an edge of the step when it comes once. */
static void split_transfer(const struct mcp_sim_steps *steps, int64_t time_ns, int64_t *edge_ns,
                           struct mcp_sim_step *step)
{
    bool gather = step->kind == MCP_SIM_GATHER;
    const struct mcp_data_moves moves = {gather ? time_ns : 0, gather ? 0 : time_ns};
    int64_t alone = mcp_data_exposed_ns(steps->question, &steps->program->plan, &moves, time_ns);
    step->data_ns = time_ns - alone;
    if (edge_ns != NULL)
        *edge_ns += alone;
    else
        step->alone_ns = alone;
}

static void price_message(const struct mcp_sim_steps *steps, int class,
                          const struct mcp_entry *entry, struct mcp_sim_step *step)
{
    const struct mcp_program *program = steps->program;
    const struct mcp_layer_type *type = &program->types[entry->type];
    struct mcp_slot_price price = {0};
    bool forward = entry->role == MCP_SEND_FORWARD || entry->role == MCP_RECEIVE_BACKWARD;
    const struct mcp_op *op = &type->blocks[entry->role].ops[0];
    bool sends = entry->role == MCP_SEND_FORWARD || entry->role == MCP_SEND_BACKWARD;
    step->side = op->delta > 0;
    step->stream = (enum mcp_stream)op->stream;
    step->mail = (step->side != sends) + (op->stream >= MCP_STREAM_MIRRORED_SEND_PREVIOUS ? 2 : 0);
    step->kind = sends ? MCP_SIM_SEND : MCP_SIM_RECEIVE;
    mcp_message_price(steps->question, &program->plan, type, class, forward, &price);
    step->time_ns = price.send_ns;
    step->delay_ns = price.delay_ns;
}

static bool is_compute(int role)
{
    return role <= MCP_BACKWARD_WEIGHT || role == MCP_RECOMPUTE;
}

static bool add_step(struct mcp_sim_steps *steps, int class, const struct mcp_entry *entry,
                     struct mcp_sim_step *step)
{
    const struct mcp_plan *plan = &steps->program->plan;
    struct mcp_sim_class *of = &steps->classes[class];
    step->price = price_of(steps, class, entry);
    step->cell = entry->layer * steps->num_copies + entry->copy;
    if (entry->role == MCP_BACKWARD_WEIGHT) /* reads no weights: waits for none */
        step->cell = steps->program->num_layers * steps->num_copies;
    if (is_compute(entry->role)) {
        step->kind = MCP_SIM_COMPUTE;
        step->time_ns = step->price->time_ns;
        step->stretch_ns = stretchable_ns(step->price);
    } else if (entry->role == MCP_GATHER) {
        step->kind = MCP_SIM_GATHER;
        split_transfer(steps, step->price->time_ns,
                       mcp_plan_gathers_again(plan) ? NULL : &of->head_ns, step);
        if (mcp_plan_gathers_again(plan) && !plan->overlap.gather)
            step->kind = MCP_SIM_REDUCE; /* the rank waits where it stands, not at its layer */
    } else if (entry->role == MCP_REDUCE) {
        step->kind = MCP_SIM_REDUCE;
        split_transfer(steps, step->price->time_ns, plan->zero_stage >= 2 ? NULL : &of->tail_ns,
                       step);
    } else if (entry->role >= MCP_SEND_FORWARD) {
        price_message(steps, class, entry, step);
    } else {
        return false;
    }
    return true;
}

/* Clearing, the norm and the optimizer: after the last slot, all of them. */
static void add_update(struct mcp_sim_steps *steps, int class, const struct mcp_entry *entry)
{
    const struct mcp_block_price *price = price_of(steps, class, entry);
    struct mcp_sim_class *of = &steps->classes[class];
    if (entry->layer == steps->program->num_layers)
        return; /* the step's own: mcp_sim_steps.agreement_ns */
    of->update_ns += price->time_ns;
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        of->update_cost_s[i] += price->cost_s[i];
        of->update_comm_s[i] += price->comm_s[i];
    }
}

/* --- lists --- */

/* Inner stages receive while they send. The ends have nothing to send against one
 * receive, which keeps them as busy as a message back would. */
static void settle_receives(struct mcp_sim_list *list)
{
    bool sends = false;
    for (int i = 0; i < list->num_steps; i++)
        sends = sends || list->steps[i].kind == MCP_SIM_SEND;
    for (int i = 0; sends && i < list->num_steps; i++)
        if (list->steps[i].kind == MCP_SIM_RECEIVE)
            list->steps[i].time_ns = 0;
}

static void read_list(struct mcp_arena *arena, struct mcp_sim_steps *steps, int class, int index)
{
    const struct mcp_entry_list *entries = &steps->program->lists[index];
    struct mcp_sim_list *list = &steps->lists[index];
    list->steps = MCP_ARRAY(arena, entries->num_entries, struct mcp_sim_step);
    for (int e = 0; e < entries->num_entries; e++) {
        struct mcp_sim_step *step = &list->steps[list->num_steps];
        step->entry = e;
        if (add_step(steps, class, &entries->entries[e], step))
            list->num_steps++;
        else
            add_update(steps, class, &entries->entries[e]);
    }
    settle_receives(list);
}

static void read_class(struct mcp_arena *arena, struct mcp_sim_steps *steps, int class)
{
    const struct mcp_program_class *of = &steps->program->classes[class];
    for (int s = 0; s < of->num_slots; s++)
        if (steps->lists[of->slots[s].list].steps == NULL)
            read_list(arena, steps, class, of->slots[s].list);
}

static int count_copies(const struct mcp_program *program)
{
    int copies = 1;
    for (int i = 0; i < program->num_lists; i++)
        for (int e = 0; e < program->lists[i].num_entries; e++)
            if (program->lists[i].entries[e].copy >= copies)
                copies = program->lists[i].entries[e].copy + 1;
    return copies;
}

/* --- what all ranks do together after the last slot --- */

/* Collectives that share no bucket with others. */
static int64_t alone_ns(const struct mcp_pricing *pricing, const struct mcp_block *block)
{
    int64_t sum = 0;
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_op *op = &block->ops[i];
        double bytes = (double)op->dims[0] * mcp_dtype_bytes((enum mcp_dtype)op->dtype);
        if (mcp_op_is_transfer(op))
            sum += mcp_to_ns(
                mcp_collective_seconds(pricing, (enum mcp_function)op->function, op->group, bytes));
    }
    return sum;
}

static void price_end(struct mcp_sim_steps *steps)
{
    const struct mcp_plan *plan = &steps->program->plan;
    const struct mcp_stack *stack = steps->question->stack;
    for (int pool = 0; pool < mcp_cluster_num_pools(steps->question->cluster); pool++) {
        const struct mcp_question at = question_at(steps->question, pool);
        const struct mcp_pricing pricing = {&at, plan};
        int64_t ns = alone_ns(&pricing, &steps->program->types[0].blocks[MCP_EPILOGUE]);
        steps->agreement_ns = ns > steps->agreement_ns ? ns : steps->agreement_ns;
    }
    if (plan->zero_stage >= 1)
        steps->broadcast_ns = mcp_to_ns(stack->broadcast_s_per_rank * plan->data_parallel);
    steps->overhead_ns = mcp_to_ns(stack->step_overhead_s);
}

struct mcp_sim_steps *mcp_sim_steps_new(struct mcp_arena *arena,
                                        const struct mcp_question *question,
                                        const struct mcp_program *program)
{
    struct mcp_sim_steps *steps = MCP_NEW(arena, struct mcp_sim_steps);
    steps->question = question;
    steps->program = program;
    steps->num_copies = count_copies(program);
    steps->lists = MCP_ARRAY(arena, program->num_lists, struct mcp_sim_list);
    steps->classes = MCP_ARRAY(arena, program->num_classes, struct mcp_sim_class);
    price_blocks(arena, steps);
    for (int c = 0; c < program->num_classes; c++)
        read_class(arena, steps, c);
    price_end(steps);
    return steps;
}
