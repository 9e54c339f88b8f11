/* step/load.c: JSON -> program. Every word, index and range is checked; what the
 * program means is for mcp_program_verify(). */
#include "step/dump.h"

#include "core/text.h"
#include "step/dump_names.h"

#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#define LARGEST_EXACT_INT ((int64_t)1 << 53)
#define MAX_BUFFERS 4096 /* of one table */
#define MAX_TYPES 4096
#define MAX_OPS 4096 /* of one block */

struct range {
    int64_t lowest, highest;
};

/* A row being read, cell by cell. */
struct row {
    struct mcp_json *json;
    size_t next;
};

static enum mcp_status open_row(struct mcp_json *rows, size_t index, size_t lowest, size_t highest,
                                struct row *out, struct mcp_error *err)
{
    *out = (struct row){mcp_json_at(rows, index), 0};
    if (!mcp_json_is_array(out->json))
        return mcp_json_fail(out->json, err, "a row must be an array");
    size_t count = mcp_json_count(out->json);
    if (count < lowest || count > highest)
        return mcp_json_fail(out->json, err, "%zu cells where \"columns\" names %zu", count,
                             lowest);
    return MCP_OK;
}

static struct mcp_json *next_cell(struct row *row)
{
    return mcp_json_at(row->json, row->next++);
}

static enum mcp_status read_number(struct row *row, struct range range, int64_t *out,
                                   struct mcp_error *err)
{
    struct mcp_json *cell = next_cell(row);
    double value = 0;
    MCP_TRY(mcp_json_as_double(cell, &value, err));
    if (!(value >= (double)range.lowest && value <= (double)range.highest) || floor(value) != value)
        return mcp_json_fail(cell, err, "%g is not an integer from %lld to %lld", value,
                             (long long)range.lowest, (long long)range.highest);
    *out = (int64_t)value;
    return MCP_OK;
}

static enum mcp_status read_int(struct row *row, struct range range, int *out,
                                struct mcp_error *err)
{
    int64_t value = 0;
    assert(range.lowest >= INT_MIN && range.highest <= INT_MAX);
    MCP_TRY(read_number(row, range, &value, err));
    *out = (int)value;
    return MCP_OK;
}

static enum mcp_status read_choice(struct row *row, const char *const *names, size_t count,
                                   unsigned char *out, struct mcp_error *err)
{
    struct mcp_json *cell = next_cell(row);
    const char *word;
    MCP_TRY(mcp_json_as_string(cell, &word, err));
    for (size_t i = 0; i < count; i++) {
        if (mcp_same(word, names[i])) {
            *out = (unsigned char)i;
            return MCP_OK;
        }
    }
    const char *nearest = mcp_nearest(word, names, count);
    return mcp_json_fail(cell, err, "\"%.40s\" is not known here; the closest is \"%s\"", word,
                         nearest != NULL ? nearest : names[0]);
}

static bool is_name(const char *text)
{
    for (size_t i = 0; text[i] != '\0'; i++)
        if (!isalnum((unsigned char)text[i]) && strchr("_-./:", text[i]) == NULL)
            return false;
    return text[0] != '\0';
}

static enum mcp_status read_name(struct row *row, char *out, size_t size, struct mcp_error *err)
{
    struct mcp_json *cell = next_cell(row);
    const char *text;
    MCP_TRY(mcp_json_as_string(cell, &text, err));
    if (!is_name(text) || strlen(text) >= size)
        return mcp_json_fail(cell, err,
                             "\"%.40s\" is not a name of 1 to %zu letters, digits or _-./:", text,
                             size - 1);
    memcpy(out, text, strlen(text) + 1);
    return MCP_OK;
}

/* The array of `key`, with at most `limit` elements; *count is their number. */
static enum mcp_status read_array(struct mcp_json *object, const char *key, int limit,
                                  struct mcp_json **out, int *count, struct mcp_error *err)
{
    MCP_TRY(mcp_json_array(object, key, out, err));
    if (mcp_json_count(*out) > (size_t)limit)
        return mcp_json_fail(*out, err, "%zu elements are more than %d", mcp_json_count(*out),
                             limit);
    *count = (int)mcp_json_count(*out);
    return MCP_OK;
}

/* --- tables --- */

static enum mcp_status read_buffer(struct row *row, struct mcp_buffer *out, struct mcp_error *err)
{
    struct range bytes = {0, LARGEST_EXACT_INT};
    MCP_TRY(read_name(row, out->name, sizeof out->name, err));
    MCP_TRY(read_choice(row, mcp_dtype_names, MCP_NUM_DTYPES, &out->dtype, err));
    MCP_TRY(read_choice(row, mcp_buffer_kind_names, MCP_NUM_BUFFER_KINDS, &out->kind, err));
    MCP_TRY(read_number(row, bytes, &out->bytes, err));
    bytes.lowest = out->bytes;
    return read_number(row, bytes, &out->capacity_bytes, err);
}

struct buffer_table {
    const char *key;
    int *count;
    struct mcp_buffer **items;
};

static enum mcp_status read_buffers(struct mcp_arena *arena, struct mcp_json *object,
                                    const struct buffer_table *table, struct mcp_error *err)
{
    struct mcp_json *rows;
    struct row row;
    MCP_TRY(read_array(object, table->key, MAX_BUFFERS, &rows, table->count, err));
    *table->items = MCP_ARRAY(arena, *table->count, struct mcp_buffer);
    for (int i = 0; i < *table->count; i++) {
        MCP_TRY(open_row(rows, (size_t)i, 5, 5, &row, err));
        MCP_TRY(read_buffer(&row, &(*table->items)[i], err));
    }
    return MCP_OK;
}

static enum mcp_status read_flag(struct row *row, bool *out, struct mcp_error *err)
{
    int flag;
    MCP_TRY(read_int(row, (struct range){0, 1}, &flag, err));
    *out = flag;
    return MCP_OK;
}

/* Bands are all rows of the part. */
static enum mcp_status check_bands(struct row *row, const struct mcp_weight *weight,
                                   struct mcp_error *err)
{
    int64_t rows = 0;
    for (int i = 0; i < MCP_MAX_BANDS; i++)
        rows += weight->bands[i];
    if (rows != 0 && rows != weight->rows)
        return mcp_json_fail(row->json, err, "bands of %lld rows in a part of %lld",
                             (long long)rows, (long long)weight->rows);
    return MCP_OK;
}

static enum mcp_status read_weight(struct row *row, struct mcp_weight *out, struct mcp_error *err)
{
    struct range size = {0, INT_MAX};
    bool *const flags[] = {&out->expert,    &out->replicated, &out->shared, &out->twin,
                           &out->duplicate, &out->by_columns, &out->cast};
    MCP_TRY(read_name(row, out->name, sizeof out->name, err));
    MCP_TRY(read_number(row, size, &out->rows, err));
    MCP_TRY(read_number(row, size, &out->columns, err));
    MCP_TRY(read_int(row, size, &out->copies, err));
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        MCP_TRY(read_flag(row, flags[i], err));
    MCP_TRY(read_choice(row, mcp_init_names, MCP_NUM_INITS, &out->init, err));
    size_t num_bands = mcp_json_count(row->json) - MCP_WEIGHT_COLUMNS;
    for (size_t i = 0; i < num_bands; i++)
        MCP_TRY(read_number(row, (struct range){1, out->rows}, &out->bands[i], err));
    return check_bands(row, out, err);
}

static enum mcp_status read_weights(struct mcp_arena *arena, struct mcp_json *object,
                                    struct mcp_layer_type *type, struct mcp_error *err)
{
    struct mcp_json *rows;
    struct row row;
    MCP_TRY(read_array(object, "weights", MCP_NO_WEIGHT, &rows, &type->num_weights, err));
    type->weights = MCP_ARRAY(arena, type->num_weights, struct mcp_weight);
    for (int i = 0; i < type->num_weights; i++) {
        MCP_TRY(open_row(rows, (size_t)i, MCP_WEIGHT_COLUMNS, MCP_WEIGHT_COLUMNS + MCP_MAX_BANDS,
                         &row, err));
        MCP_TRY(read_weight(&row, &type->weights[i], err));
    }
    return MCP_OK;
}

/* --- ops --- */

struct load {
    struct mcp_arena *arena;
    struct mcp_program *program;
    const struct mcp_layer_type *type;
};

/* NAME or NAME#INDEX in a table: its index, or -1. */
static int find_label(const struct mcp_name_list *list, const char *label, size_t length)
{
    int64_t index;
    const char *mark = memchr(label, '#', length);
    if (mark == NULL)
        return mcp_name_find(list, label, length);
    size_t name_length = (size_t)(mark - label);
    char digits[16] = "";
    if (length - name_length - 1 >= sizeof digits)
        return -1;
    memcpy(digits, mark + 1, length - name_length - 1);
    if (!mcp_parse_int64(digits, &index) || index < 0 || index >= list->count)
        return -1;
    const char *name = mcp_name_at(list, (int)index);
    bool same = strlen(name) == name_length && memcmp(name, label, name_length) == 0;
    return same ? (int)index : -1;
}

static bool parse_space(const char *text, size_t length, unsigned char *out)
{
    for (int i = 0; i < MCP_NUM_SPACES; i++) {
        if (strlen(mcp_space_names[i]) == length && memcmp(mcp_space_names[i], text, length) == 0) {
            *out = (unsigned char)i;
            return true;
        }
    }
    return false;
}

/* SPACE.NAME[#INDEX][+1] */
static bool parse_operand(const struct load *load, const char *text, size_t length,
                          struct mcp_operand *out)
{
    const char *dot = memchr(text, '.', length);
    if (dot == NULL || !parse_space(text, (size_t)(dot - text), &out->space))
        return false;
    length -= (size_t)(dot + 1 - text);
    text = dot + 1;
    if (length > 2 && memcmp(text + length - 2, "+1", 2) == 0) {
        out->layer_offset = 1;
        length -= 2;
    }
    struct mcp_name_list names = mcp_space_buffers(load->program, load->type, out->space);
    int index = find_label(&names, text, length);
    out->index = (unsigned short)index;
    return index >= 0;
}

static enum mcp_status read_operands(const struct load *load, struct row *row, int limit,
                                     struct mcp_operand *out, unsigned char *count,
                                     struct mcp_error *err)
{
    struct mcp_json *cell = next_cell(row);
    const char *text;
    MCP_TRY(mcp_json_as_string(cell, &text, err));
    for (*count = 0; *text != '\0'; (*count)++) {
        size_t length = strcspn(text, " ");
        if (*count == limit)
            return mcp_json_fail(cell, err, "more than %d operands", limit);
        if (!parse_operand(load, text, length, &out[*count]))
            return mcp_json_fail(cell, err, "\"%.*s\" is no buffer of this layer type",
                                 (int)(length < 60 ? length : 60), text);
        text += length;
        text += *text == ' ';
    }
    return MCP_OK;
}

static enum mcp_status read_group(struct row *row, unsigned char *out, struct mcp_error *err)
{
    struct mcp_json *cell = next_cell(row);
    const char *text;
    MCP_TRY(mcp_json_as_string(cell, &text, err));
    for (size_t length; *text != '\0'; text += length + (text[length] == '+')) {
        int axis = 0;
        length = strcspn(text, "+");
        while (axis < MCP_NUM_GROUP_AXES && (strlen(mcp_group_axis_names[axis]) != length ||
                                             memcmp(mcp_group_axis_names[axis], text, length) != 0))
            axis++;
        if (axis == MCP_NUM_GROUP_AXES)
            return mcp_json_fail(cell, err, "\"%.40s\" does not begin with an axis", text);
        *out = (unsigned char)(*out | 1u << axis);
    }
    return MCP_OK;
}

static enum mcp_status read_weight_label(const struct load *load, struct row *row,
                                         unsigned char *out, struct mcp_error *err)
{
    struct mcp_json *cell = next_cell(row);
    struct mcp_name_list names = mcp_weight_names(load->type->weights, load->type->num_weights);
    const char *text;
    MCP_TRY(mcp_json_as_string(cell, &text, err));
    *out = MCP_NO_WEIGHT;
    if (text[0] == '\0')
        return MCP_OK;
    int index = find_label(&names, text, strlen(text));
    if (index < 0)
        return mcp_json_fail(cell, err, "\"%.40s\" is no weight of this layer type", text);
    *out = (unsigned char)index;
    return MCP_OK;
}

static enum mcp_status read_waits(struct row *row, int num_ops, struct mcp_op *op,
                                  struct mcp_error *err)
{
    struct mcp_json *cell = next_cell(row);
    const char *text;
    int64_t wait;
    MCP_TRY(mcp_json_as_string(cell, &text, err));
    while (*text != '\0') {
        char digits[16] = "";
        size_t length = strcspn(text, " ");
        if (op->num_waits == MCP_MAX_WAITS)
            return mcp_json_fail(cell, err, "more than %d waits", MCP_MAX_WAITS);
        if (length < sizeof digits)
            memcpy(digits, text, length);
        if (!mcp_parse_int64(digits, &wait) || wait < 0 || wait >= num_ops)
            return mcp_json_fail(cell, err, "\"%.*s\" is no op of this block, which has %d",
                                 (int)(length < 60 ? length : 60), text, num_ops);
        op->waits[op->num_waits++] = (unsigned short)wait;
        text += length;
        text += *text == ' ';
    }
    return MCP_OK;
}

static enum mcp_status read_function(struct row *row, unsigned char *out, struct mcp_error *err)
{
    const char *names[MCP_NUM_FUNCTIONS];
    for (int i = 0; i < MCP_NUM_FUNCTIONS; i++)
        names[i] = mcp_functions[i].name;
    return read_choice(row, names, MCP_NUM_FUNCTIONS, out, err);
}

static enum mcp_status read_op(const struct load *load, struct row *row, int num_ops,
                               struct mcp_op *op, struct mcp_error *err)
{
    int delta;
    MCP_TRY(read_function(row, &op->function, err));
    MCP_TRY(read_choice(row, mcp_stream_names, MCP_NUM_STREAMS, &op->stream, err));
    MCP_TRY(read_choice(row, mcp_dtype_names, MCP_NUM_DTYPES, &op->dtype, err));
    MCP_TRY(read_group(row, &op->group, err));
    MCP_TRY(read_int(row, (struct range){SCHAR_MIN, SCHAR_MAX}, &delta, err));
    op->delta = (signed char)delta;
    MCP_TRY(read_weight_label(load, row, &op->weight, err));
    MCP_TRY(read_choice(row, mcp_hiding_names, MCP_NUM_HIDINGS, &op->hiding, err));
    MCP_TRY(read_operands(load, row, MCP_MAX_READS, op->reads, &op->num_reads, err));
    MCP_TRY(read_operands(load, row, MCP_MAX_WRITES, op->writes, &op->num_writes, err));
    MCP_TRY(read_waits(row, num_ops, op, err));
    size_t num_dims = mcp_json_count(row->json) - MCP_OP_COLUMNS;
    for (size_t i = 0; i < num_dims; i++)
        MCP_TRY(read_number(row, (struct range){0, LARGEST_EXACT_INT}, &op->dims[i], err));
    return MCP_OK;
}

static enum mcp_status read_block(const struct load *load, struct mcp_json *blocks,
                                  const char *role, struct mcp_block *out, struct mcp_error *err)
{
    struct mcp_json *rows;
    struct row row;
    if (!mcp_json_has(blocks, role))
        return MCP_OK;
    MCP_TRY(read_array(blocks, role, MAX_OPS, &rows, &out->num_ops, err));
    out->ops = MCP_ARRAY(load->arena, out->num_ops, struct mcp_op);
    for (int i = 0; i < out->num_ops; i++) {
        MCP_TRY(open_row(rows, (size_t)i, MCP_OP_COLUMNS, MCP_MAX_COLUMNS, &row, err));
        MCP_TRY(read_op(load, &row, out->num_ops, &out->ops[i], err));
    }
    return MCP_OK;
}

/* --- types, lists, classes --- */

static enum mcp_status read_type_name(struct mcp_json *object, struct mcp_layer_type *type,
                                      struct mcp_error *err)
{
    const char *name;
    MCP_TRY(mcp_json_string(object, "name", &name, err));
    if (strlen(name) >= sizeof type->name)
        return mcp_json_fail(object, err, "name \"%.40s\" is longer than %zu bytes", name,
                             sizeof type->name - 1);
    memcpy(type->name, name, strlen(name) + 1);
    return MCP_OK;
}

static enum mcp_status read_type(struct mcp_arena *arena, struct mcp_json *object,
                                 struct mcp_program *program, struct mcp_layer_type *type,
                                 struct mcp_error *err)
{
    struct load load = {arena, program, type};
    struct mcp_json *blocks;
    int recompute;
    MCP_TRY(read_type_name(object, type, err));
    MCP_TRY(mcp_json_choice(object, "recompute", mcp_recompute_names, MCP_NUM_RECOMPUTES,
                            &recompute, err));
    type->recompute = (enum mcp_recompute)recompute;
    MCP_TRY(mcp_facts_from_json(object, &type->facts, err));
    MCP_TRY(read_weights(arena, object, type, err));
    for (int s = 0; s < MCP_NUM_SPACES; s++) {
        struct buffer_table table = {mcp_space_keys[s], &type->num_buffers[s], &type->buffers[s]};
        if (table.key != NULL)
            MCP_TRY(read_buffers(arena, object, &table, err));
    }
    MCP_TRY(mcp_json_object(object, "blocks", &blocks, err));
    for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
        MCP_TRY(read_block(&load, blocks, mcp_block_role_names[role], &type->blocks[role], err));
    return MCP_OK;
}

static enum mcp_status read_types(struct mcp_arena *arena, struct mcp_json *file,
                                  struct mcp_program *program, struct mcp_error *err)
{
    struct mcp_json *types;
    MCP_TRY(read_array(file, "types", MAX_TYPES, &types, &program->num_types, err));
    program->types = MCP_ARRAY(arena, program->num_types, struct mcp_layer_type);
    for (int t = 0; t < program->num_types; t++) {
        struct mcp_json *object = mcp_json_at(types, (size_t)t);
        if (!mcp_json_is_object(object))
            return mcp_json_fail(object, err, "a layer type must be an object");
        MCP_TRY(read_type(arena, object, program, &program->types[t], err));
    }
    return MCP_OK;
}

static enum mcp_status read_entry(struct row *row, const struct mcp_program *program,
                                  struct mcp_entry *out, struct mcp_error *err)
{
    int type, copy;
    MCP_TRY(read_choice(row, mcp_block_role_names, MCP_NUM_BLOCK_ROLES, &out->role, err));
    MCP_TRY(read_int(row, (struct range){0, program->num_types - 1}, &type, err));
    MCP_TRY(read_int(row, (struct range){0, program->num_layers}, &out->layer, err));
    MCP_TRY(read_int(row, (struct range){-program->num_microbatches, program->num_microbatches},
                     &out->microbatch_offset, err));
    MCP_TRY(read_int(row, (struct range){0, UCHAR_MAX}, &copy, err));
    out->type = (unsigned short)type;
    out->copy = (unsigned char)copy;
    return MCP_OK;
}

static enum mcp_status read_list(struct mcp_arena *arena, struct mcp_json *rows,
                                 const struct mcp_program *program, struct mcp_entry_list *out,
                                 struct mcp_error *err)
{
    struct row row;
    if (!mcp_json_is_array(rows))
        return mcp_json_fail(rows, err, "a list must be an array of entries");
    out->num_entries = (int)mcp_json_count(rows);
    out->entries = MCP_ARRAY(arena, out->num_entries, struct mcp_entry);
    for (int e = 0; e < out->num_entries; e++) {
        MCP_TRY(open_row(rows, (size_t)e, 5, 5, &row, err));
        MCP_TRY(read_entry(&row, program, &out->entries[e], err));
    }
    return MCP_OK;
}

static enum mcp_status read_lists(struct mcp_arena *arena, struct mcp_json *file,
                                  struct mcp_program *program, struct mcp_error *err)
{
    struct mcp_json *lists;
    MCP_TRY(read_array(file, "lists", INT_MAX, &lists, &program->num_lists, err));
    program->lists = MCP_ARRAY(arena, program->num_lists, struct mcp_entry_list);
    for (int l = 0; l < program->num_lists; l++)
        MCP_TRY(read_list(arena, mcp_json_at(lists, (size_t)l), program, &program->lists[l], err));
    return MCP_OK;
}

static enum mcp_status read_slot(struct row *row, const struct mcp_program *program,
                                 struct mcp_slot *out, struct mcp_error *err)
{
    MCP_TRY(read_choice(row, mcp_block_role_names, MCP_EPILOGUE + 1, &out->pass, err));
    MCP_TRY(read_int(row, (struct range){-1, program->plan.virtual_stages - 1}, &out->chunk, err));
    MCP_TRY(
        read_int(row, (struct range){-1, program->num_microbatches - 1}, &out->microbatch, err));
    MCP_TRY(read_int(row, (struct range){0, program->num_lists - 1}, &out->list, err));
    return read_int(row, (struct range){0, program->lists[out->list].num_entries}, &out->lead, err);
}

static enum mcp_status read_class(struct mcp_arena *arena, struct mcp_json *rows,
                                  const struct mcp_program *program,
                                  struct mcp_program_class *class, struct mcp_error *err)
{
    struct row row;
    if (!mcp_json_is_array(rows))
        return mcp_json_fail(rows, err, "a class must be an array of slots");
    class->num_slots = (int)mcp_json_count(rows);
    class->slots = MCP_ARRAY(arena, class->num_slots, struct mcp_slot);
    for (int s = 0; s < class->num_slots; s++) {
        MCP_TRY(open_row(rows, (size_t)s, 5, 5, &row, err));
        MCP_TRY(read_slot(&row, program, &class->slots[s], err));
    }
    return MCP_OK;
}

static enum mcp_status read_classes(struct mcp_arena *arena, struct mcp_json *file,
                                    struct mcp_program *program, struct mcp_error *err)
{
    struct mcp_json *classes;
    MCP_TRY(read_array(file, "classes", INT_MAX, &classes, &program->num_classes, err));
    program->classes = MCP_ARRAY(arena, program->num_classes, struct mcp_program_class);
    for (int c = 0; c < program->num_classes; c++)
        MCP_TRY(
            read_class(arena, mcp_json_at(classes, (size_t)c), program, &program->classes[c], err));
    return MCP_OK;
}

/* --- file --- */

static enum mcp_status check_column(struct mcp_json *names, int i, const char *expected,
                                    struct mcp_error *err)
{
    const char *name;
    MCP_TRY(mcp_json_as_string(mcp_json_at(names, (size_t)i), &name, err));
    if (!mcp_same(name, expected))
        return mcp_json_fail(names, err, "column %d is \"%.40s\" where \"%s\" is expected", i, name,
                             expected != NULL ? expected : "none");
    return MCP_OK;
}

static enum mcp_status check_columns(struct mcp_json *columns, int row, struct mcp_error *err)
{
    struct mcp_json *names;
    const char *const *expected = mcp_row_columns[row];
    int count = 0;
    MCP_TRY(read_array(columns, mcp_row_names[row], MCP_MAX_COLUMNS, &names, &count, err));
    for (int i = 0; i < count; i++)
        MCP_TRY(check_column(names, i, expected[i], err));
    if (count < MCP_MAX_COLUMNS && expected[count] != NULL)
        return mcp_json_fail(names, err, "column \"%s\" is missing", expected[count]);
    return MCP_OK;
}

static enum mcp_status read_heading(struct mcp_arena *arena, struct mcp_json *file,
                                    struct mcp_program *program, struct mcp_error *err)
{
    const char *schema;
    struct mcp_json *columns, *plan;
    MCP_TRY(mcp_json_string(file, "schema", &schema, err));
    if (!mcp_same(schema, MCP_PROGRAM_SCHEMA))
        return mcp_json_fail(file, err, "schema is \"%.60s\", expected \"%s\"", schema,
                             MCP_PROGRAM_SCHEMA);
    MCP_TRY(mcp_json_object(file, "columns", &columns, err));
    for (int row = 0; row < MCP_NUM_ROWS; row++)
        MCP_TRY(check_columns(columns, row, err));
    MCP_TRY(mcp_json_object(file, "plan", &plan, err));
    MCP_TRY(mcp_plan_from_json(arena, plan, &program->plan, err));
    MCP_TRY(mcp_json_int(file, "num_microbatches", &program->num_microbatches, err));
    return mcp_json_int(file, "num_layers", &program->num_layers, err);
}

enum mcp_status mcp_program_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                      struct mcp_program *out, struct mcp_error *err)
{
    struct buffer_table rank = {"rank_buffers", &out->num_rank_buffers, &out->rank_buffers};
    *out = (struct mcp_program){.num_microbatches = 0};
    MCP_TRY(read_heading(arena, json, out, err));
    MCP_TRY(read_buffers(arena, json, &rank, err));
    MCP_TRY(read_types(arena, json, out, err));
    MCP_TRY(read_lists(arena, json, out, err));
    MCP_TRY(read_classes(arena, json, out, err));
    return mcp_json_done(json, err);
}
