/* tests/step/edit.c: a small good program, and tools to break it with. */
#include "tests/step/edit.h"

#include "step/build.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

void edit_build(struct bench *bench, const struct variant *variant)
{
    struct mcp_arena *arena = bench->arena = mcp_arena_new();
    struct mcp_model *model = MCP_NEW(arena, struct mcp_model);
    struct mcp_cluster *cluster = MCP_NEW(arena, struct mcp_cluster);
    struct mcp_stack *stack = MCP_NEW(arena, struct mcp_stack);
    struct mcp_job job = mcp_job_default();
    struct mcp_plan plan = mcp_plan_default();
    struct mcp_error err;
    cr_assert(eq(int, (int)mcp_model_load(arena, "tiny", model, &err), 0));
    cr_assert(eq(int, (int)mcp_cluster_load(arena, "dgx-h100:1", cluster, &err), 0));
    cr_assert(eq(int, (int)mcp_stack_load(arena, "megatron-core", stack, &err), 0));
    plan.pipeline_parallel = plan.tensor_parallel = plan.data_parallel = 2;
    plan.sequence_parallel = true;
    plan.zero_stage = variant->zero_stage;
    plan.overlap.gather = plan.overlap.data = true;
    plan.schedule = variant->schedule;
    job.sequence_length = 128;
    job.global_batch_size = 8;
    mcp_plan_uniform_chunks(arena, &plan, model->num_layers, variant->recompute);
    const struct mcp_question question = {model, cluster, &job, stack};
    struct mcp_refusals refusals;
    cr_assert(eq(int, mcp_legal(arena, &question, &plan, &refusals), 1));
    mcp_program_build(arena, &question, &plan, &bench->program);
}

struct mcp_slot *slot_of(struct bench *bench, int class, int pass, int microbatch)
{
    struct mcp_program_class *c = &bench->program.classes[class];
    for (int s = 0; s < c->num_slots; s++)
        if (c->slots[s].pass == pass && c->slots[s].microbatch == microbatch)
            return &c->slots[s];
    cr_fatal("no such slot");
    return NULL;
}

struct mcp_entry_list *list_of(struct bench *bench, int class, int pass, int microbatch)
{
    struct mcp_program *program = &bench->program;
    struct mcp_slot *slot = slot_of(bench, class, pass, microbatch);
    struct mcp_entry_list *lists =
        MCP_ARRAY(bench->arena, program->num_lists + 1, struct mcp_entry_list);
    memcpy(lists, program->lists, (size_t)program->num_lists * sizeof *lists);
    struct mcp_entry_list *own = &lists[program->num_lists];
    own->num_entries = lists[slot->list].num_entries;
    own->entries = MCP_ARRAY(bench->arena, own->num_entries + 8, struct mcp_entry);
    memcpy(own->entries, lists[slot->list].entries,
           (size_t)own->num_entries * sizeof *own->entries);
    program->lists = lists;
    slot->list = program->num_lists++;
    return own;
}

int entry_of(const struct mcp_entry_list *list, int role, int layer)
{
    for (int e = 0; e < list->num_entries; e++)
        if (list->entries[e].role == role && list->entries[e].layer == layer)
            return e;
    cr_fatal("no such entry");
    return -1;
}

struct mcp_entry take_entry(struct mcp_entry_list *list, int role, int layer)
{
    int at = entry_of(list, role, layer);
    struct mcp_entry entry = list->entries[at];
    memmove(&list->entries[at], &list->entries[at + 1],
            (size_t)(--list->num_entries - at) * sizeof entry);
    return entry;
}

void put_entry(struct mcp_entry_list *list, int at, struct mcp_entry entry)
{
    memmove(&list->entries[at + 1], &list->entries[at],
            (size_t)(list->num_entries++ - at) * sizeof entry);
    list->entries[at] = entry;
}

struct mcp_entry entry_at(struct bench *bench, int class, int pass, int role, int layer)
{
    const struct mcp_slot *slot = slot_of(bench, class, pass, pass == MCP_EPILOGUE ? -1 : 0);
    const struct mcp_entry_list *list = &bench->program.lists[slot->list];
    return list->entries[entry_of(list, role, layer)];
}

struct mcp_block *block_of(struct bench *bench, int layer, int role)
{
    int type = entry_at(bench, layer > 2, MCP_FORWARD, MCP_FORWARD, layer).type;
    return &bench->program.types[type].blocks[role];
}

struct mcp_op *op_of(struct bench *bench, int layer, int role, int function)
{
    struct mcp_block *block = block_of(bench, layer, role);
    for (int i = 0; i < block->num_ops; i++)
        if (block->ops[i].function == function)
            return &block->ops[i];
    cr_fatal("no such op");
    return NULL;
}
