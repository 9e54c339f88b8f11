/* core/json.c: reading JSON. */
#include "core/json_value.h"

#include "core/text.h"

#include <assert.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

#define MAX_DEPTH 64
#define MAX_BYTES ((size_t)64 << 20)
#define LARGEST_EXACT_INT ((int64_t)1 << 53)

/* --- where we are --- */

static void add_path(struct mcp_text *path, const struct mcp_json *json)
{
    if (json->parent == NULL)
        return;
    add_path(path, json->parent);
    if (json->key == NULL)
        mcp_text_add(path, "[%zu]", json->index);
    else
        mcp_text_add(path, "%s%.100s", path->length > 0 ? "." : "", json->key);
}

enum mcp_status mcp_json_fail(const struct mcp_json *json, struct mcp_error *err,
                              const char *format, ...)
{
    struct mcp_text path = mcp_text_new(json->arena);
    va_list args;
    add_path(&path, json);
    va_start(args, format);
    const char *sentence = mcp_vformat(json->arena, format, args);
    va_end(args);
    if (path.length > 0)
        sentence = mcp_format(json->arena, "%s: %s", path.data, sentence);
    return mcp_fail(err, MCP_FORMAT, "%s: %s", json->file, mcp_printable(json->arena, sentence));
}

/* --- reading text --- */

struct place {
    const char *file;
    int line;
    int column;
};

static enum mcp_status fail_at(const struct place *at, struct mcp_error *err, const char *problem)
{
    return mcp_fail(err, MCP_FORMAT, "%s: line %d, column %d: %s", at->file, at->line, at->column,
                    problem);
}

static void advance(struct place *at, char c)
{
    if (c == '\n') {
        at->line++;
        at->column = 0;
    } else if (((unsigned char)c & 0xc0) != 0x80) {
        at->column++; /* characters, not bytes */
    }
}

/* Refuses what must not reach the recursive parser: deep nesting, NUL bytes. */
static enum mcp_status scan(const char *file, const char *text, size_t length,
                            struct mcp_error *err)
{
    struct place at = {file, 1, 0};
    int depth = 0;
    bool in_string = false, escaped = false, empty = true;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        advance(&at, c);
        if (c == '\0')
            return fail_at(&at, err, "NUL byte");
        empty = empty && strchr(" \t\r\n", c) != NULL;
        if (c == '"' && !escaped)
            in_string = !in_string;
        escaped = in_string && c == '\\' && !escaped;
        if (!in_string && (c == '[' || c == '{') && ++depth > MAX_DEPTH)
            return fail_at(&at, err, "nested deeper than 64 levels");
        if (!in_string && (c == ']' || c == '}'))
            depth--;
    }
    return empty ? mcp_fail(err, MCP_FORMAT, "%s: empty, expected JSON", file) : MCP_OK;
}

static void release(void *value)
{
    json_decref((json_t *)value);
}

struct mcp_json *mcp_json_new_root(struct mcp_arena *arena, const char *file, json_t *value)
{
    struct mcp_json *json = MCP_NEW(arena, struct mcp_json);
    assert(value != NULL);
    mcp_defer(arena, release, value);
    *json = (struct mcp_json){.arena = arena, .file = mcp_strdup(arena, file), .value = value};
    return json;
}

enum mcp_status mcp_json_parse(struct mcp_arena *arena, const char *name, const char *text,
                               size_t length, struct mcp_json **out, struct mcp_error *err)
{
    json_error_t problem;
    if (length > MAX_BYTES)
        return mcp_fail(err, MCP_FORMAT, "%s: larger than 64 MiB", name);
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        length -= 3;
    }
    MCP_TRY(scan(name, text, length, err));
    json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);
    if (value == NULL) {
        struct place at = {name, problem.line, problem.column};
        return fail_at(&at, err, mcp_printable(arena, problem.text));
    }
    *out = mcp_json_new_root(arena, name, value);
    return MCP_OK;
}

/* Bytes of a number that JSON does not know, 0 when `text` begins with none. */
static size_t not_finite_at(const char *text, size_t length)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < MCP_COUNT_OF(words); i++)
        if (length >= strlen(words[i]) && memcmp(text, words[i], strlen(words[i])) == 0)
            return strlen(words[i]);
    return 0;
}

enum mcp_status mcp_json_parse_python(struct mcp_arena *arena, const char *name, const char *text,
                                      size_t length, struct mcp_json **out, size_t *not_finite,
                                      struct mcp_error *err)
{
    struct mcp_text plain = mcp_text_new(arena);
    bool in_string = false, escaped = false;
    size_t copied = 0;
    *not_finite = 0;
    for (size_t i = 0; i < length; i++) {
        const size_t word = in_string ? 0 : not_finite_at(text + i, length - i);
        if (text[i] == '"' && !escaped)
            in_string = !in_string;
        escaped = in_string && text[i] == '\\' && !escaped;
        if (word == 0)
            continue;
        mcp_text_append(&plain, text + copied, i - copied);
        mcp_text_append(&plain, "null", 4);
        i += word - 1;
        copied = i + 1;
        ++*not_finite;
    }
    mcp_text_append(&plain, text + copied, length - copied);
    return mcp_json_parse(arena, name, plain.data, plain.length, out, err);
}

enum mcp_status mcp_json_read(struct mcp_arena *arena, const char *path, struct mcp_json **out,
                              struct mcp_error *err)
{
    struct mcp_text text;
    MCP_TRY(mcp_file_read(arena, path, MAX_BYTES, &text, err));
    return mcp_json_parse(arena, mcp_same(path, "-") ? "standard input" : path, text.data,
                          text.length, out, err);
}

/* --- members --- */

static void list_members(struct mcp_json *json)
{
    const char *key;
    json_t *value;
    size_t i = 0;
    if (json->members != NULL || mcp_json_count(json) == 0)
        return;
    json->num_members = mcp_json_count(json);
    json->members = MCP_ARRAY(json->arena, json->num_members, struct member);
    json_object_foreach(json->value, key, value) {
        json->members[i].key = key;
        json->members[i++].value = value;
    }
    json_array_foreach(json->value, i, value)
        json->members[i].value = value;
}

static void remember_absent(struct mcp_json *json, const char *key)
{
    for (size_t i = 0; i < json->num_asked; i++)
        if (mcp_same(json->asked[i], key))
            return;
    json->asked = (const char **)mcp_grow(json->arena, (void *)json->asked, json->num_asked,
                                          &json->asked_capacity, sizeof *json->asked);
    json->asked[json->num_asked++] = mcp_strdup(json->arena, key);
}

static struct member *find(struct mcp_json *json, const char *key)
{
    if (!mcp_json_is_object(json))
        return NULL;
    list_members(json);
    for (size_t i = 0; i < json->num_members; i++) {
        if (mcp_same(json->members[i].key, key)) {
            json->members[i].read = true;
            return &json->members[i];
        }
    }
    remember_absent(json, key);
    return NULL;
}

struct mcp_json mcp_json_view(const struct mcp_json *parent, const char *key, size_t index,
                              json_t *value)
{
    return (struct mcp_json){.arena = parent->arena,
                             .file = parent->file,
                             .parent = parent,
                             .key = key,
                             .index = index,
                             .value = value};
}

/* The value of a key; `value` is NULL when it is absent. */
static struct mcp_json get(struct mcp_json *json, const char *key)
{
    const struct member *member = find(json, key);
    return mcp_json_view(json, key, 0, member != NULL ? member->value : NULL);
}

struct mcp_json *mcp_json_at(struct mcp_json *array, size_t index)
{
    list_members(array);
    assert(index < array->num_members);
    struct member *member = &array->members[index];
    member->read = true;
    if (member->child == NULL) {
        member->child = MCP_NEW(array->arena, struct mcp_json);
        *member->child = mcp_json_view(array, member->key, index, member->value);
    }
    return member->child;
}

struct mcp_json *mcp_json_member(struct mcp_json *object, size_t index, const char **key)
{
    struct mcp_json *child = mcp_json_at(object, index);
    *key = child->key;
    return child;
}

/* --- what is there --- */

bool mcp_json_has(struct mcp_json *json, const char *key)
{
    const struct member *member = find(json, key);
    return member != NULL && !json_is_null(member->value);
}

bool mcp_json_is_object(const struct mcp_json *json)
{
    return json_is_object(json->value);
}

bool mcp_json_is_array(const struct mcp_json *json)
{
    return json_is_array(json->value);
}

size_t mcp_json_count(const struct mcp_json *json)
{
    return mcp_json_is_object(json) ? json_object_size(json->value) : json_array_size(json->value);
}

/* --- scalars --- */

static const char *shown_number(struct mcp_arena *arena, double value)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add_number(&text, value);
    return text.data;
}

/* A value as a message shows it. */
static const char *shown(const struct mcp_json *json)
{
    switch (json_typeof(json->value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return mcp_format(json->arena, "\"%.60s\"", json_string_value(json->value));
    case JSON_INTEGER:
        return mcp_format(json->arena, "%lld", (long long)json_integer_value(json->value));
    case JSON_REAL:
        return shown_number(json->arena, json_real_value(json->value));
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        break;
    }
    return "null";
}

static enum mcp_status fail_type(const struct mcp_json *json, struct mcp_error *err,
                                 const char *expected)
{
    if (json->parent != NULL && json->key != NULL && !mcp_json_is_object(json->parent))
        return mcp_json_fail(json->parent, err, "got %s, expected an object with the key '%s'",
                             shown(json->parent), json->key);
    if (json->value == NULL)
        return mcp_json_fail(json, err, "missing, expected %s", expected);
    return mcp_json_fail(json, err, "got %s, expected %s", shown(json), expected);
}

static enum mcp_status as_int64(const struct mcp_json *json, int64_t largest, int64_t *out,
                                struct mcp_error *err)
{
    json_int_t value = json_integer_value(json->value);
    if (!json_is_integer(json->value) || value < 0 || value > largest)
        return fail_type(json, err,
                         mcp_format(json->arena, "an integer from 0 to %lld", (long long)largest));
    *out = value;
    return MCP_OK;
}

enum mcp_status mcp_json_as_int(struct mcp_json *json, int *out, struct mcp_error *err)
{
    int64_t value = 0;
    MCP_TRY(as_int64(json, INT_MAX, &value, err));
    *out = (int)value;
    return MCP_OK;
}

enum mcp_status mcp_json_as_int64(struct mcp_json *json, int64_t *out, struct mcp_error *err)
{
    return as_int64(json, LARGEST_EXACT_INT, out, err);
}

enum mcp_status mcp_json_as_double(struct mcp_json *json, double *out, struct mcp_error *err)
{
    if (!json_is_number(json->value))
        return fail_type(json, err, "a number");
    *out = json_number_value(json->value);
    return MCP_OK;
}

enum mcp_status mcp_json_as_string(struct mcp_json *json, const char **out, struct mcp_error *err)
{
    if (!json_is_string(json->value))
        return fail_type(json, err, "a string");
    *out = json_string_value(json->value);
    return MCP_OK;
}

enum mcp_status mcp_json_int(struct mcp_json *json, const char *key, int *out,
                             struct mcp_error *err)
{
    struct mcp_json child = get(json, key);
    return mcp_json_as_int(&child, out, err);
}

enum mcp_status mcp_json_int64(struct mcp_json *json, const char *key, int64_t *out,
                               struct mcp_error *err)
{
    struct mcp_json child = get(json, key);
    return as_int64(&child, LARGEST_EXACT_INT, out, err);
}

enum mcp_status mcp_json_double(struct mcp_json *json, const char *key, double *out,
                                struct mcp_error *err)
{
    struct mcp_json child = get(json, key);
    return mcp_json_as_double(&child, out, err);
}

enum mcp_status mcp_json_bool(struct mcp_json *json, const char *key, bool *out,
                              struct mcp_error *err)
{
    struct mcp_json child = get(json, key);
    if (!json_is_boolean(child.value))
        return fail_type(&child, err, "true or false");
    *out = json_is_true(child.value);
    return MCP_OK;
}

enum mcp_status mcp_json_string(struct mcp_json *json, const char *key, const char **out,
                                struct mcp_error *err)
{
    struct mcp_json child = get(json, key);
    return mcp_json_as_string(&child, out, err);
}

enum mcp_status mcp_json_quantity(struct mcp_json *json, const char *key,
                                  enum mcp_dimension dimension, double *out, struct mcp_error *err)
{
    struct mcp_json child = get(json, key);
    struct mcp_error problem;
    if (!json_is_string(child.value))
        return fail_type(&child, err, "a string with a number and its unit");
    if (mcp_quantity_parse(json_string_value(child.value), dimension, out, &problem) != MCP_OK)
        return mcp_json_fail(&child, err, "%s", problem.text);
    return MCP_OK;
}

/* "a", "b" or "c" (did you mean "b"?) */
static const char *list_choices(struct mcp_arena *arena, const char *const *names, size_t count,
                                const char *value)
{
    struct mcp_text list = mcp_text_new(arena);
    for (size_t i = 0; i < count; i++)
        mcp_text_add(&list, "%s\"%s\"", i == 0 ? "" : i + 1 < count ? ", " : " or ", names[i]);
    const char *nearest = value != NULL ? mcp_nearest(value, names, count) : NULL;
    if (nearest != NULL)
        mcp_text_add(&list, " (did you mean \"%s\"?)", nearest);
    return list.data;
}

enum mcp_status mcp_json_choice(struct mcp_json *json, const char *key, const char *const *names,
                                size_t count, int *out, struct mcp_error *err)
{
    struct mcp_json child = get(json, key);
    const char *value = json_string_value(child.value);
    for (size_t i = 0; i < count; i++) {
        if (mcp_same(value, names[i])) {
            *out = (int)i;
            return MCP_OK;
        }
    }
    return fail_type(&child, err, list_choices(json->arena, names, count, value));
}

/* --- containers --- */

static enum mcp_status get_container(struct mcp_json *json, const char *key, json_type type,
                                     struct mcp_json **out, struct mcp_error *err)
{
    const struct member *member = find(json, key);
    if (member == NULL || json_typeof(member->value) != type) {
        struct mcp_json child = mcp_json_view(json, key, 0, member != NULL ? member->value : NULL);
        return fail_type(&child, err, type == JSON_OBJECT ? "an object" : "an array");
    }
    *out = mcp_json_at(json, (size_t)(member - json->members));
    return MCP_OK;
}

enum mcp_status mcp_json_object(struct mcp_json *json, const char *key, struct mcp_json **out,
                                struct mcp_error *err)
{
    return get_container(json, key, JSON_OBJECT, out, err);
}

enum mcp_status mcp_json_array(struct mcp_json *json, const char *key, struct mcp_json **out,
                               struct mcp_error *err)
{
    return get_container(json, key, JSON_ARRAY, out, err);
}

/* --- optional values --- */

enum mcp_status mcp_json_maybe_int(struct mcp_json *json, const char *key, int *out,
                                   struct mcp_error *err)
{
    return mcp_json_has(json, key) ? mcp_json_int(json, key, out, err) : MCP_OK;
}

enum mcp_status mcp_json_maybe_double(struct mcp_json *json, const char *key, double *out,
                                      struct mcp_error *err)
{
    return mcp_json_has(json, key) ? mcp_json_double(json, key, out, err) : MCP_OK;
}

enum mcp_status mcp_json_maybe_bool(struct mcp_json *json, const char *key, bool *out,
                                    struct mcp_error *err)
{
    return mcp_json_has(json, key) ? mcp_json_bool(json, key, out, err) : MCP_OK;
}

enum mcp_status mcp_json_maybe_string(struct mcp_json *json, const char *key, const char **out,
                                      struct mcp_error *err)
{
    return mcp_json_has(json, key) ? mcp_json_string(json, key, out, err) : MCP_OK;
}

/* --- keys that nobody read --- */

static enum mcp_status fail_unknown(struct mcp_json *json, const char *key, struct mcp_error *err)
{
    size_t count = 0;
    const char **known = MCP_ARRAY(json->arena, json->num_members + json->num_asked, const char *);
    for (size_t i = 0; i < json->num_asked; i++)
        known[count++] = json->asked[i];
    for (size_t i = 0; i < json->num_members; i++)
        if (json->members[i].read)
            known[count++] = json->members[i].key;
    const char *nearest = mcp_nearest(key, known, count);
    if (nearest == NULL)
        return mcp_json_fail(json, err, "unknown key '%.100s'", key);
    return mcp_json_fail(json, err, "unknown key '%.100s' (did you mean '%s'?)", key, nearest);
}

enum mcp_status mcp_json_done(struct mcp_json *json, struct mcp_error *err)
{
    if (mcp_json_is_object(json))
        list_members(json);
    for (size_t i = 0; i < json->num_members; i++) {
        struct member *member = &json->members[i];
        if (member->key != NULL && !member->read)
            return fail_unknown(json, member->key, err);
        if (member->child != NULL)
            MCP_TRY(mcp_json_done(member->child, err));
    }
    return MCP_OK;
}

/* Paths are relative to the object that the caller asked about. */
static void add_ignored(struct mcp_text *list, struct mcp_json *json, const char *prefix)
{
    if (mcp_json_is_object(json))
        list_members(json);
    for (size_t i = 0; i < json->num_members; i++) {
        const struct member *member = &json->members[i];
        const char *path = member->key == NULL
                               ? mcp_format(json->arena, "%s[%zu]", prefix, i)
                               : mcp_format(json->arena, "%s%s%s", prefix,
                                            *prefix != '\0' ? "." : "", member->key);
        if (member->key != NULL && !member->read)
            mcp_text_add(list, "%s%s", list->length > 0 ? ", " : "", path);
        if (member->child != NULL)
            add_ignored(list, member->child, path);
    }
}

const char *mcp_json_ignored(struct mcp_arena *arena, struct mcp_json *json)
{
    struct mcp_text list = mcp_text_new(arena);
    add_ignored(&list, json, "");
    return mcp_printable(arena, list.data);
}
