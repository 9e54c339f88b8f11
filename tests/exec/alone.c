/* tests/exec/alone.c: a program of one rank, by kernels alone. */
#include "alone.h"

#include "core/text.h"
#include "exec/half.h"
#include "step/weights.h"

#include <string.h>

static const int32_t *sequence(void *context, int64_t index)
{
    const struct alone *alone = context;
    return alone->ids + index * (alone->setup.job.sequence_length + 1);
}

void alone_model(struct alone *alone, const char *config, int64_t microbatch_size,
                 int64_t sequence_length)
{
    struct setup *s = &alone->setup;
    struct mcp_error err = {""};
    struct mcp_json *json;
    setup_load(s, "gpt2", "dgx-h100", "megatron-core");
    cr_assert(mcp_json_parse(s->arena, "config", config, strlen(config), &json, &err) == MCP_OK,
              "%s", err.text);
    cr_assert(mcp_model_from_json(s->arena, json, &s->model, &err) == MCP_OK, "%s", err.text);
    s->job.precision = MCP_PRECISION_FP32;
    s->job.sequence_length = sequence_length;
    s->plan.microbatch_size = (int)microbatch_size;
}

static void *new_buffer(struct alone *alone, const struct mcp_buffer *buffer)
{
    char *memory = MCP_ARRAY(alone->setup.arena, buffer->capacity_bytes + 64, char);
    memory += -(uintptr_t)memory % 64;
    /* rows that pad the vocabulary are 0 */
    memset(memory, buffer->kind == MCP_BUFFER_WEIGHT ? 0 : 0xff, (size_t)buffer->capacity_bytes);
    return memory;
}

static void **new_table(struct alone *alone, const struct mcp_buffer *buffers, int count)
{
    void **table = MCP_ARRAY(alone->setup.arena, count, void *);
    for (int i = 0; i < count; i++)
        table[i] = new_buffer(alone, &buffers[i]);
    return table;
}

static const struct mcp_layer_type *type_of(const struct alone *alone, int layer)
{
    const struct mcp_program *program = &alone->program;
    for (int l = 0; l < program->num_lists; l++)
        for (int e = 0; e < program->lists[l].num_entries; e++)
            if (program->lists[l].entries[e].layer == layer)
                return &program->types[program->lists[l].entries[e].type];
    return NULL;
}

void alone_build(struct alone *alone, int num_microbatches, enum mcp_recompute recompute)
{
    struct setup *s = &alone->setup;
    struct mcp_program *program = &alone->program;
    setup_finish(s, num_microbatches, recompute);
    mcp_program_build(s->arena, &s->question, &s->plan, program);
    alone->rank_buffers = new_table(alone, program->rank_buffers, program->num_rank_buffers);
    alone->layers = MCP_ARRAY(s->arena, program->num_layers, void **);
    alone->frames = MCP_ARRAY(s->arena, program->num_layers + 1, void ***);
    for (int layer = 0; layer < program->num_layers; layer++) {
        const struct mcp_layer_type *type = type_of(alone, layer);
        alone->layers[layer] =
            new_table(alone, type->buffers[MCP_SPACE_LAYER], type->num_buffers[MCP_SPACE_LAYER]);
        alone->frames[layer] = MCP_ARRAY(s->arena, num_microbatches, void **);
        for (int m = 0; m < num_microbatches; m++)
            alone->frames[layer][m] = new_table(alone, type->buffers[MCP_SPACE_FRAME],
                                                type->num_buffers[MCP_SPACE_FRAME]);
    }
    alone->batch = (struct mcp_batch){.sequence = sequence, .context = alone};
    alone->rank = (struct mcp_rank){.program = program, .batch = &alone->batch};
    alone->rank.inputs =
        (struct mcp_step_inputs){.learning_rate = 1e-3,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .epsilon = 1e-8,
                                 .loss_scale = 1,
                                 .tokens = s->job.global_batch_size * s->job.sequence_length};
}

static void *address(const struct alone *alone, const struct mcp_entry *entry, int microbatch,
                     struct mcp_operand at)
{
    switch (at.space) {
    case MCP_SPACE_RANK:
        return alone->rank_buffers[at.index];
    case MCP_SPACE_LAYER:
        return alone->layers[entry->layer][at.index];
    case MCP_SPACE_FRAME:
        return alone->frames[entry->layer + at.layer_offset][microbatch][at.index];
    default:
        return alone->scratch[at.index];
    }
}

static void run_op(struct alone *alone, const struct mcp_entry *entry, int microbatch,
                   const struct mcp_op *op)
{
    const struct mcp_layer_type *type = &alone->program.types[entry->type];
    struct mcp_launch launch = {.op = op,
                                .type = type,
                                .rank = &alone->rank,
                                .layer = entry->layer,
                                .microbatch = microbatch};
    for (int i = 0; i < op->num_reads; i++) {
        launch.reads[i] = address(alone, entry, microbatch, op->reads[i]);
        launch.read_bytes[i] = mcp_operand_buffer(&alone->program, type, op->reads[i])->bytes;
    }
    for (int i = 0; i < op->num_writes; i++) {
        launch.writes[i] = address(alone, entry, microbatch, op->writes[i]);
        launch.write_bytes[i] = mcp_operand_buffer(&alone->program, type, op->writes[i])->bytes;
    }
    if (mcp_functions[op->function].code == MCP_COLLECTIVE)
        return; /* of one rank */
    cr_assert(mcp_cpu_kernels[op->function].run != NULL, "no kernel for %s",
              mcp_functions[op->function].name);
    mcp_cpu_kernels[op->function].run(&launch);
}

static void run_entry(struct alone *alone, const struct mcp_entry *entry, int microbatch)
{
    const struct mcp_layer_type *type = &alone->program.types[entry->type];
    const struct mcp_block *block = &type->blocks[entry->role];
    struct mcp_mark mark = mcp_arena_mark(alone->setup.arena);
    alone->scratch =
        new_table(alone, type->buffers[MCP_SPACE_BLOCK], type->num_buffers[MCP_SPACE_BLOCK]);
    for (int i = 0; i < block->num_ops; i++)
        run_op(alone, entry, microbatch + entry->microbatch_offset, &block->ops[i]);
    mcp_arena_rewind(alone->setup.arena, mark);
}

void alone_step(struct alone *alone, bool update)
{
    const struct mcp_program_class *class = &alone->program.classes[0];
    for (int s = 0; s < class->num_slots - !update; s++) {
        const struct mcp_slot *slot = &class->slots[s];
        const struct mcp_entry_list *list = &alone->program.lists[slot->list];
        for (int e = 0; e < list->num_entries; e++)
            run_entry(alone, &list->entries[e], slot->microbatch);
    }
}

struct alone_values alone_weight(struct alone *alone, int layer, const char *name, bool gradient,
                                 int copy)
{
    const struct mcp_layer_type *type = type_of(alone, layer);
    for (int i = 0; i < type->num_weights; i++) {
        const struct mcp_weight *weight = &type->weights[i];
        if (!mcp_same(weight->name, name))
            continue;
        int rank_index = gradient ? MCP_RANK_TIED_GRADIENTS : MCP_RANK_TIED_WEIGHTS;
        int index = (gradient ? MCP_LAYER_GRADIENTS : MCP_LAYER_WEIGHTS) + weight->expert;
        const struct mcp_buffer *buffer = weight->shared ? &alone->program.rank_buffers[rank_index]
                                                         : &type->buffers[MCP_SPACE_LAYER][index];
        char *base = weight->shared ? alone->rank_buffers[rank_index] : alone->layers[layer][index];
        enum mcp_dtype dtype = (enum mcp_dtype)buffer->dtype;
        return (struct alone_values){
            base + mcp_weight_offset(type, i, copy) * (int64_t)mcp_dtype_bytes(dtype), dtype};
    }
    return (struct alone_values){NULL, MCP_F32};
}

double alone_get(struct alone_values values, int64_t i)
{
    if (values.dtype == MCP_BF16)
        return (double)mcp_from_bf16(((const uint16_t *)(const void *)values.data)[i]);
    return (double)((const float *)(const void *)values.data)[i];
}

void alone_set(struct alone_values values, int64_t i, double value)
{
    if (values.dtype == MCP_BF16)
        ((uint16_t *)(void *)values.data)[i] = mcp_to_bf16((float)value);
    else
        ((float *)(void *)values.data)[i] = (float)value;
}
