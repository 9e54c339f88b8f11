/* core/json_write.c: building and printing JSON. */
#include "core/json_value.h"

#include "core/text.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* --- building --- */

struct mcp_json *mcp_json_new_object(struct mcp_arena *arena)
{
    return mcp_json_new_root(arena, "output", json_object());
}

/* JSON is UTF-8; a file's name need not be. */
static json_t *new_string(struct mcp_arena *arena, const char *value)
{
    json_t *string = json_string(value);
    return string != NULL ? string : json_string(mcp_printable(arena, value));
}

/* Appends `value` to an array (key NULL) or an object and returns it. */
static json_t *put(struct mcp_json *json, const char *key, json_t *value)
{
    int failed = key == NULL ? json_array_append_new(json->value, value)
                             : json_object_set_new(json->value, key, value);
    assert(!failed);
    json->members = NULL; /* the list is out of date */
    json->num_members = 0;
    return value;
}

static struct mcp_json *put_container(struct mcp_json *json, const char *key, json_t *value)
{
    struct mcp_json *child = MCP_NEW(json->arena, struct mcp_json);
    size_t index = mcp_json_count(json);
    *child = mcp_json_view(json, key != NULL ? mcp_strdup(json->arena, key) : NULL, index,
                           put(json, key, value));
    return child;
}

static json_t *new_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void mcp_json_set_int(struct mcp_json *object, const char *key, int64_t value)
{
    put(object, key, json_integer(value));
}

void mcp_json_set_double(struct mcp_json *object, const char *key, double value)
{
    put(object, key, new_number(value));
}

void mcp_json_set_bool(struct mcp_json *object, const char *key, bool value)
{
    put(object, key, json_boolean(value));
}

void mcp_json_set_string(struct mcp_json *object, const char *key, const char *value)
{
    put(object, key, value != NULL ? new_string(object->arena, value) : json_null());
}

void mcp_json_set_null(struct mcp_json *object, const char *key)
{
    put(object, key, json_null());
}

struct mcp_json *mcp_json_set_object(struct mcp_json *object, const char *key)
{
    return put_container(object, key, json_object());
}

struct mcp_json *mcp_json_set_array(struct mcp_json *object, const char *key)
{
    return put_container(object, key, json_array());
}

void mcp_json_add_int(struct mcp_json *array, int64_t value)
{
    put(array, NULL, json_integer(value));
}

void mcp_json_add_string(struct mcp_json *array, const char *value)
{
    put(array, NULL, new_string(array->arena, value));
}

struct mcp_json *mcp_json_add_object(struct mcp_json *array)
{
    return put_container(array, NULL, json_object());
}

struct mcp_json *mcp_json_add_array(struct mcp_json *array)
{
    return put_container(array, NULL, json_array());
}

/* --- text --- */

static int append_bytes(const char *bytes, size_t length, void *text)
{
    mcp_text_append((struct mcp_text *)text, bytes, length);
    return 0;
}

static void write_scalar(struct mcp_text *text, const json_t *value)
{
    if (json_is_real(value)) {
        mcp_text_add_number(text, json_real_value(value));
        return;
    }
    int failed = json_dump_callback(value, append_bytes, text, JSON_ENCODE_ANY);
    assert(!failed);
}

static bool is_container(const json_t *value)
{
    return json_is_object(value) || json_is_array(value);
}

/* Arrays of plain values stay on one line. */
static bool is_flat(const json_t *array)
{
    size_t i;
    json_t *element;
    json_array_foreach(array, i, element)
        if (is_container(element))
            return false;
    return true;
}

static void start_line(struct mcp_text *text, int depth)
{
    mcp_text_add(text, "\n%*s", 2 * depth, "");
}

static void write_value(struct mcp_text *text, const json_t *value, int depth);

static void write_array(struct mcp_text *text, const json_t *array, int depth)
{
    bool flat = is_flat(array);
    mcp_text_append(text, "[", 1);
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i > 0)
            mcp_text_append(text, ", ", flat ? 2 : 1);
        if (!flat)
            start_line(text, depth + 1);
        write_value(text, json_array_get(array, i), depth + 1);
    }
    if (!flat)
        start_line(text, depth);
    mcp_text_append(text, "]", 1);
}

static void write_key(struct mcp_text *text, const char *key)
{
    json_t *string = json_string(key);
    assert(string != NULL);
    write_scalar(text, string);
    json_decref(string);
    mcp_text_append(text, ": ", 2);
}

static void write_object(struct mcp_text *text, json_t *object, int depth)
{
    const char *key;
    json_t *value;
    bool first = true;
    mcp_text_append(text, "{", 1);
    json_object_foreach(object, key, value) {
        if (!first)
            mcp_text_append(text, ",", 1);
        first = false;
        start_line(text, depth + 1);
        write_key(text, key);
        write_value(text, value, depth + 1);
    }
    if (!first)
        start_line(text, depth);
    mcp_text_append(text, "}", 1);
}

static void write_value(struct mcp_text *text, const json_t *value, int depth)
{
    if (json_is_object(value))
        write_object(text, (json_t *)value, depth); /* iterating takes no const */
    else if (json_is_array(value))
        write_array(text, value, depth);
    else
        write_scalar(text, value);
}

const char *mcp_json_text(struct mcp_arena *arena, const struct mcp_json *json)
{
    struct mcp_text text = mcp_text_new(arena);
    write_value(&text, json->value, 0);
    mcp_text_append(&text, "\n", 1);
    return text.data;
}

enum mcp_status mcp_json_write(const char *path, const struct mcp_json *json, struct mcp_error *err)
{
    const char *text = mcp_json_text(json->arena, json);
    return mcp_file_replace(path, text, strlen(text), err);
}
