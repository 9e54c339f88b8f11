/* cli/diff.c: two JSON answers side by side. */
#include "cli/diff.h"

#include "core/units.h"
#include "reports/table.h"

#include <math.h>
#include <string.h>

enum { MOST_ROWS = 100, MOST_NAMED = 4096 };

static void diff_values(struct mcp_differences *out, const char *path, struct mcp_json *a,
                        struct mcp_json *b);

static void add(struct mcp_differences *out, const struct mcp_difference *item)
{
    if (out->count == out->capacity) {
        int capacity = out->capacity == 0 ? 32 : 2 * out->capacity;
        struct mcp_difference *items = MCP_ARRAY(out->arena, capacity, struct mcp_difference);
        if (out->count > 0)
            memcpy(items, out->items, (size_t)out->count * sizeof *items);
        out->items = items;
        out->capacity = capacity;
    }
    out->items[out->count++] = *item;
}

static bool is_container(const struct mcp_json *json)
{
    return json != NULL && (mcp_json_is_object(json) || mcp_json_is_array(json));
}

/* A member that is no container; `key` NULL: an element. */
static struct mcp_scalar scalar_of(struct mcp_json *parent, const char *key, struct mcp_json *item)
{
    struct mcp_scalar scalar = {MCP_SCALAR_UNKNOWN, 0, NULL};
    bool on;
    if (item == NULL || is_container(item))
        return scalar;
    if (mcp_json_as_double(item, &scalar.number, NULL) == MCP_OK)
        scalar.type = MCP_SCALAR_NUMBER;
    else if (mcp_json_as_string(item, &scalar.text, NULL) == MCP_OK)
        scalar.type = MCP_SCALAR_TEXT;
    else if (key != NULL && mcp_json_bool(parent, key, &on, NULL) == MCP_OK)
        scalar = (struct mcp_scalar){MCP_SCALAR_SWITCH, on, NULL};
    return scalar;
}

static bool is_equal(const struct mcp_scalar *a, const struct mcp_scalar *b)
{
    bool same_number = !(a->number < b->number) && !(a->number > b->number);
    return a->type == b->type && same_number && mcp_same(a->text, b->text);
}

static bool is_ignored(const struct mcp_differences *out, const char *key)
{
    for (const char *const *name = out->ignored; *name != NULL; name++)
        if (mcp_same(*name, key))
            return true;
    return false;
}

static struct mcp_json *member_of(struct mcp_json *object, const char *key)
{
    const char *name;
    if (object == NULL || !mcp_json_is_object(object))
        return NULL;
    for (size_t i = 0; i < mcp_json_count(object); i++) {
        struct mcp_json *item = mcp_json_member(object, i, &name);
        if (mcp_same(name, key))
            return item;
    }
    return NULL;
}

static void diff_members(struct mcp_differences *out, const char *path, struct mcp_json *a,
                         struct mcp_json *b, const char *key)
{
    const char *where = *path == '\0' ? key : mcp_format(out->arena, "%s.%s", path, key);
    struct mcp_json *in_a = member_of(a, key), *in_b = member_of(b, key);
    struct mcp_difference item = {where, scalar_of(a, key, in_a), scalar_of(b, key, in_b)};
    if (!is_equal(&item.a, &item.b))
        add(out, &item);
    diff_values(out, where, is_container(in_a) ? in_a : NULL, is_container(in_b) ? in_b : NULL);
}

static void diff_objects(struct mcp_differences *out, const char *path, struct mcp_json *a,
                         struct mcp_json *b)
{
    struct mcp_json *both[] = {a, b};
    for (int side = 0; side < 2; side++) {
        size_t count = both[side] != NULL ? mcp_json_count(both[side]) : 0;
        for (size_t i = 0; i < count; i++) {
            const char *key;
            (void)mcp_json_member(both[side], i, &key);
            if (!is_ignored(out, key) && (side == 0 || member_of(a, key) == NULL))
                diff_members(out, path, a, b, key);
        }
    }
}

/* What an element is known by, NULL: its place. */
static const char *name_of(struct mcp_arena *arena, struct mcp_json *element)
{
    const char *name, *other;
    int index;
    if (!mcp_json_is_object(element))
        return NULL;
    if (mcp_json_int(element, "index", &index, NULL) == MCP_OK)
        return mcp_format(arena, "%d", index);
    if (mcp_json_string(element, "name", &name, NULL) == MCP_OK)
        return name;
    if (mcp_json_string(element, "a", &name, NULL) == MCP_OK &&
        mcp_json_string(element, "b", &other, NULL) == MCP_OK)
        return mcp_format(arena, "%s-%s", name, other);
    return NULL;
}

struct named {
    struct mcp_json *element;
    const char *name;
    bool is_taken;
};

static struct named *list_elements(struct mcp_arena *arena, struct mcp_json *array, size_t *count)
{
    *count = array != NULL ? mcp_json_count(array) : 0;
    struct named *list = MCP_ARRAY(arena, *count > 0 ? *count : 1, struct named);
    for (size_t i = 0; i < *count; i++) {
        struct mcp_json *element = mcp_json_at(array, i);
        const char *name = *count <= MOST_NAMED ? name_of(arena, element) : NULL;
        list[i] = (struct named){element, name != NULL ? name : mcp_format(arena, "%zu", i), false};
    }
    return list;
}

static struct named *take(struct named *list, size_t count, size_t guess, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        struct named *item = &list[(guess + i) % count];
        if (!item->is_taken && mcp_same(item->name, name)) {
            item->is_taken = true;
            return item;
        }
    }
    return NULL;
}

static void diff_elements(struct mcp_differences *out, const char *path, const struct named *a,
                          const struct named *b)
{
    const char *name = mcp_printable(out->arena, a != NULL ? a->name : b->name);
    const char *where = mcp_format(out->arena, "%s[%s]", path, name);
    struct mcp_json *in_a = a != NULL ? a->element : NULL, *in_b = b != NULL ? b->element : NULL;
    struct mcp_difference item = {where, scalar_of(NULL, NULL, in_a), scalar_of(NULL, NULL, in_b)};
    if (!is_equal(&item.a, &item.b))
        add(out, &item);
    diff_values(out, where, is_container(in_a) ? in_a : NULL, is_container(in_b) ? in_b : NULL);
}

static void diff_arrays(struct mcp_differences *out, const char *path, struct mcp_json *a,
                        struct mcp_json *b)
{
    size_t count_a, count_b;
    struct named *in_a = list_elements(out->arena, a, &count_a);
    struct named *in_b = list_elements(out->arena, b, &count_b);
    for (size_t i = 0; i < count_a; i++)
        diff_elements(out, path, &in_a[i], take(in_b, count_b, i, in_a[i].name));
    for (size_t i = 0; i < count_b; i++)
        if (!in_b[i].is_taken)
            diff_elements(out, path, NULL, &in_b[i]);
}

/* Containers, or NULL where there is none. */
static void diff_values(struct mcp_differences *out, const char *path, struct mcp_json *a,
                        struct mcp_json *b)
{
    if ((a != NULL && mcp_json_is_array(a)) || (b != NULL && mcp_json_is_array(b)))
        diff_arrays(out, path, a != NULL && mcp_json_is_array(a) ? a : NULL,
                    b != NULL && mcp_json_is_array(b) ? b : NULL);
    if ((a != NULL && mcp_json_is_object(a)) || (b != NULL && mcp_json_is_object(b)))
        diff_objects(out, path, a != NULL && mcp_json_is_object(a) ? a : NULL,
                     b != NULL && mcp_json_is_object(b) ? b : NULL);
}

void mcp_diff(struct mcp_differences *out, struct mcp_json *a, struct mcp_json *b)
{
    diff_values(out, "", a, b);
}

/* Showing --------------------------------------------------------------------- */

/* A number's unit is in its key. */
static const char *show_number(struct mcp_arena *arena, const char *path, double value)
{
    static const struct {
        const char *part;
        enum mcp_dimension dimension;
    } units[] = {
        {"flops_per_s", MCP_FLOPS_PER_SECOND},
        {"bytes_per_s", MCP_BYTES_PER_SECOND},
        {"bytes", MCP_BYTES},
        {"watts", MCP_WATTS},
        {"_hz", MCP_HERTZ},
        {"latency_s", MCP_SECONDS},
        {"round_trip_s", MCP_SECONDS},
    };
    for (size_t i = 0; i < MCP_COUNT_OF(units); i++)
        if (strstr(path, units[i].part) != NULL)
            return mcp_show(arena, value, units[i].dimension);
    if (fabs(value) < 1e15 && !(floor(value) < value))
        return mcp_show_integer(arena, (int64_t)value);
    return mcp_format(arena, "%.4g", value);
}

static const char *show_scalar(struct mcp_arena *arena, const char *path,
                               const struct mcp_scalar *scalar)
{
    switch (scalar->type) {
    case MCP_SCALAR_NUMBER:
        return show_number(arena, path, scalar->number);
    case MCP_SCALAR_TEXT:
        return mcp_printable(arena, scalar->text);
    case MCP_SCALAR_SWITCH:
        return scalar->number > 0 ? "yes" : "no";
    default:
        return "-";
    }
}

static void put_row(struct mcp_arena *arena, const struct mcp_difference *item,
                    struct mcp_table *table)
{
    const char *a = show_scalar(arena, item->path, &item->a);
    const char *b = show_scalar(arena, item->path, &item->b);
    if (mcp_same(a, b) && item->a.type == MCP_SCALAR_NUMBER) { /* digits that rounding hides */
        a = mcp_format(arena, "%.17g", item->a.number);
        b = mcp_format(arena, "%.17g", item->b.number);
    }
    mcp_table_cell(table, "%s", item->path);
    mcp_table_cell(table, "%s", a);
    mcp_table_cell(table, "%s", b);
}

static void put_text(struct mcp_context *ctx, const struct mcp_differences *differences,
                     const char *name_a, const char *name_b, struct mcp_text *out)
{
    const struct mcp_column columns[] = {
        {"differs", "", MCP_LEFT}, {name_a, "", MCP_LEFT}, {name_b, "", MCP_LEFT}};
    struct mcp_table *table = mcp_table_new(ctx->arena, columns, (int)MCP_COUNT_OF(columns));
    if (differences->count == 0)
        return;
    for (int i = 0; i < differences->count && i < MOST_ROWS; i++)
        put_row(ctx->arena, &differences->items[i], table);
    mcp_table_write(table, MCP_SKIN_TERMINAL, &ctx->style, out);
    if (differences->count > MOST_ROWS)
        mcp_text_add(out, "and %d more; --json has all\n", differences->count - MOST_ROWS);
}

static void put_json(struct mcp_json *object, const char *key, const struct mcp_scalar *scalar)
{
    if (scalar->type == MCP_SCALAR_NUMBER)
        mcp_json_set_double(object, key, scalar->number);
    else if (scalar->type == MCP_SCALAR_TEXT)
        mcp_json_set_string(object, key, scalar->text);
    else if (scalar->type == MCP_SCALAR_SWITCH)
        mcp_json_set_bool(object, key, scalar->number > 0);
    else
        mcp_json_set_null(object, key);
}

enum mcp_status mcp_diff_show(struct mcp_context *ctx, const struct mcp_differences *differences,
                              const char *name_a, const char *name_b)
{
    struct mcp_text text = mcp_text_new(ctx->arena);
    struct mcp_json *object = mcp_json_new_object(ctx->arena);
    const char *shown_a = mcp_printable(ctx->arena, name_a);
    const char *shown_b = mcp_printable(ctx->arena, name_b);
    put_text(ctx, differences, shown_a, shown_b, &text);
    mcp_json_set_string(object, "schema", "mcpplan.diff/1");
    mcp_json_set_string(object, "a", name_a);
    mcp_json_set_string(object, "b", name_b);
    struct mcp_json *list = mcp_json_set_array(object, "differences");
    for (int i = 0; i < differences->count; i++) {
        struct mcp_json *row = mcp_json_add_object(list);
        mcp_json_set_string(row, "path", differences->items[i].path);
        put_json(row, "a", &differences->items[i].a);
        put_json(row, "b", &differences->items[i].b);
    }
    MCP_TRY(mcp_output_result(ctx, &text, object));
    if (differences->count == 0)
        return MCP_OK;
    return mcp_fail(&ctx->err, MCP_CHECK_FAILED, "%s and %s differ in %d value%s", shown_a, shown_b,
                    differences->count, differences->count == 1 ? "" : "s");
}
