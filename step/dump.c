/* step/dump.c: program -> JSON. One line per buffer, weight, op, entry and slot. */
#include "step/dump.h"

#include "core/text.h"
#include "step/dump_names.h"

#include <assert.h>
#include <string.h>

static void add_columns(struct mcp_json *file)
{
    struct mcp_json *columns = mcp_json_set_object(file, "columns");
    for (int row = 0; row < MCP_NUM_ROWS; row++) {
        struct mcp_json *names = mcp_json_set_array(columns, mcp_row_names[row]);
        for (int i = 0; i < MCP_MAX_COLUMNS && mcp_row_columns[row][i] != NULL; i++)
            mcp_json_add_string(names, mcp_row_columns[row][i]);
    }
}

static void add_buffers(struct mcp_json *object, const char *key, const struct mcp_buffer *buffers,
                        int count)
{
    struct mcp_json *rows = mcp_json_set_array(object, key);
    for (int i = 0; i < count; i++) {
        struct mcp_json *row = mcp_json_add_array(rows);
        mcp_json_add_string(row, buffers[i].name);
        mcp_json_add_string(row, mcp_dtype_names[buffers[i].dtype]);
        mcp_json_add_string(row, mcp_buffer_kind_names[buffers[i].kind]);
        mcp_json_add_int(row, buffers[i].bytes);
        mcp_json_add_int(row, buffers[i].capacity_bytes);
    }
}

static void add_weights(struct mcp_json *object, const struct mcp_layer_type *type)
{
    struct mcp_json *rows = mcp_json_set_array(object, "weights");
    for (int i = 0; i < type->num_weights; i++) {
        const struct mcp_weight *weight = &type->weights[i];
        struct mcp_json *row = mcp_json_add_array(rows);
        mcp_json_add_string(row, weight->name);
        mcp_json_add_int(row, weight->rows);
        mcp_json_add_int(row, weight->columns);
        mcp_json_add_int(row, weight->copies);
        mcp_json_add_int(row, weight->expert);
        mcp_json_add_int(row, weight->replicated);
        mcp_json_add_int(row, weight->shared);
        mcp_json_add_int(row, weight->twin);
        mcp_json_add_int(row, weight->duplicate);
        mcp_json_add_int(row, weight->by_columns);
        mcp_json_add_int(row, weight->cast);
        mcp_json_add_string(row, mcp_init_names[weight->init]);
        for (int k = 0; k < MCP_MAX_BANDS && weight->bands[k] > 0; k++)
            mcp_json_add_int(row, weight->bands[k]);
    }
}

/* NAME, or NAME#INDEX where an earlier item has the name. */
static void append_name(struct mcp_text *text, const struct mcp_name_list *list, int index)
{
    const char *name = mcp_name_at(list, index);
    mcp_text_add(text, "%s", name);
    if (mcp_name_find(list, name, strlen(name)) != index)
        mcp_text_add(text, "#%d", index);
}

struct dump {
    struct mcp_arena *arena;
    const struct mcp_program *program;
    const struct mcp_layer_type *type;
};

static void add_operands(const struct dump *dump, struct mcp_json *row,
                         const struct mcp_operand *operands, int count)
{
    struct mcp_text text = mcp_text_new(dump->arena);
    for (int i = 0; i < count; i++) {
        struct mcp_name_list names =
            mcp_space_buffers(dump->program, dump->type, operands[i].space);
        mcp_text_add(&text, "%s%s.", i > 0 ? " " : "", mcp_space_names[operands[i].space]);
        append_name(&text, &names, operands[i].index);
        mcp_text_add(&text, "%s", operands[i].layer_offset != 0 ? "+1" : "");
    }
    mcp_json_add_string(row, text.data);
}

static void add_group(const struct dump *dump, struct mcp_json *row, unsigned group)
{
    struct mcp_text text = mcp_text_new(dump->arena);
    for (int axis = 0; axis < MCP_NUM_GROUP_AXES; axis++)
        if (group & (1u << axis))
            mcp_text_add(&text, "%s%s", text.length > 0 ? "+" : "", mcp_group_axis_names[axis]);
    mcp_json_add_string(row, text.data);
}

static void add_weight_name(const struct dump *dump, struct mcp_json *row, int weight)
{
    struct mcp_text text = mcp_text_new(dump->arena);
    struct mcp_name_list names = mcp_weight_names(dump->type->weights, dump->type->num_weights);
    if (weight != MCP_NO_WEIGHT)
        append_name(&text, &names, weight);
    mcp_json_add_string(row, text.data);
}

static void add_waits(const struct dump *dump, struct mcp_json *row, const struct mcp_op *op)
{
    struct mcp_text text = mcp_text_new(dump->arena);
    for (int i = 0; i < op->num_waits; i++)
        mcp_text_add(&text, "%s%d", i > 0 ? " " : "", op->waits[i]);
    mcp_json_add_string(row, text.data);
}

static void add_op(const struct dump *dump, struct mcp_json *row, const struct mcp_op *op)
{
    int num_dims = MCP_MAX_DIMS;
    mcp_json_add_string(row, mcp_functions[op->function].name);
    mcp_json_add_string(row, mcp_stream_names[op->stream]);
    mcp_json_add_string(row, mcp_dtype_names[op->dtype]);
    add_group(dump, row, op->group);
    mcp_json_add_int(row, op->delta);
    add_weight_name(dump, row, op->weight);
    mcp_json_add_string(row, mcp_hiding_names[op->hiding]);
    add_operands(dump, row, op->reads, op->num_reads);
    add_operands(dump, row, op->writes, op->num_writes);
    add_waits(dump, row, op);
    while (num_dims > 0 && op->dims[num_dims - 1] == 0)
        num_dims--;
    for (int i = 0; i < num_dims; i++)
        mcp_json_add_int(row, op->dims[i]);
}

static void add_blocks(const struct dump *dump, struct mcp_json *object)
{
    struct mcp_json *blocks = mcp_json_set_object(object, "blocks");
    for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++) {
        const struct mcp_block *block = &dump->type->blocks[role];
        if (block->num_ops == 0)
            continue;
        struct mcp_json *ops = mcp_json_set_array(blocks, mcp_block_role_names[role]);
        for (int i = 0; i < block->num_ops; i++)
            add_op(dump, mcp_json_add_array(ops), &block->ops[i]);
    }
}

static void add_types(struct mcp_arena *arena, struct mcp_json *file,
                      const struct mcp_program *program)
{
    struct mcp_json *types = mcp_json_set_array(file, "types");
    for (int t = 0; t < program->num_types; t++) {
        const struct mcp_layer_type *type = &program->types[t];
        struct mcp_json *object = mcp_json_add_object(types);
        mcp_json_set_string(object, "name", type->name);
        mcp_json_set_string(object, "recompute", mcp_recompute_names[type->recompute]);
        mcp_facts_to_json(&type->facts, object);
        add_weights(object, type);
        for (int space = 0; space < MCP_NUM_SPACES; space++)
            if (mcp_space_keys[space] != NULL)
                add_buffers(object, mcp_space_keys[space], type->buffers[space],
                            type->num_buffers[space]);
        add_blocks(&(struct dump){arena, program, type}, object);
    }
}

static void add_lists(struct mcp_json *file, const struct mcp_program *program)
{
    struct mcp_json *lists = mcp_json_set_array(file, "lists");
    for (int l = 0; l < program->num_lists; l++) {
        struct mcp_json *rows = mcp_json_add_array(lists);
        for (int e = 0; e < program->lists[l].num_entries; e++) {
            const struct mcp_entry *entry = &program->lists[l].entries[e];
            struct mcp_json *row = mcp_json_add_array(rows);
            mcp_json_add_string(row, mcp_block_role_names[entry->role]);
            mcp_json_add_int(row, entry->type);
            mcp_json_add_int(row, entry->layer);
            mcp_json_add_int(row, entry->microbatch_offset);
            mcp_json_add_int(row, entry->copy);
        }
    }
}

static void add_classes(struct mcp_json *file, const struct mcp_program *program)
{
    struct mcp_json *classes = mcp_json_set_array(file, "classes");
    for (int c = 0; c < program->num_classes; c++) {
        struct mcp_json *rows = mcp_json_add_array(classes);
        for (int s = 0; s < program->classes[c].num_slots; s++) {
            const struct mcp_slot *slot = &program->classes[c].slots[s];
            struct mcp_json *row = mcp_json_add_array(rows);
            mcp_json_add_string(row, mcp_block_role_names[slot->pass]);
            mcp_json_add_int(row, slot->chunk);
            mcp_json_add_int(row, slot->microbatch);
            mcp_json_add_int(row, slot->list);
            mcp_json_add_int(row, slot->lead);
        }
    }
}

struct mcp_json *mcp_program_to_json(struct mcp_arena *arena, const struct mcp_program *program)
{
    struct mcp_json *file = mcp_json_new_object(arena);
    mcp_json_set_string(file, "schema", MCP_PROGRAM_SCHEMA);
    add_columns(file);
    mcp_plan_to_json(&program->plan, mcp_json_set_object(file, "plan"));
    mcp_json_set_int(file, "num_microbatches", program->num_microbatches);
    mcp_json_set_int(file, "num_layers", program->num_layers);
    add_buffers(file, "rank_buffers", program->rank_buffers, program->num_rank_buffers);
    add_types(arena, file, program);
    add_lists(file, program);
    add_classes(file, program);
    return file;
}
