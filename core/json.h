/* core/json.h: JSON in and out, the door to jansson.
 *
 * Reading is typed and keeps the path, so that a message says
 * "plan.json: parallel.tensor_parallel: ...". Duplicate keys, NaN, trailing text,
 * invalid UTF-8, more than 64 levels and files over 64 MiB are refused, with line
 * and column. A BOM is skipped. Every getter marks its key as read:
 * mcp_json_done() then refuses what nobody read (our own files, with the closest
 * known key), mcp_json_ignored() lists it (other people's). Values live as long
 * as the arena. Key order is kept on writing. */
#ifndef MCP_CORE_JSON_H
#define MCP_CORE_JSON_H

#include "core/arena.h"
#include "core/error.h"
#include "core/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mcp_json;

enum mcp_status mcp_json_read(struct mcp_arena *arena, const char *path, struct mcp_json **out,
                              struct mcp_error *err);
/* `name` stands for the file in messages. */
enum mcp_status mcp_json_parse(struct mcp_arena *arena, const char *name, const char *text,
                               size_t length, struct mcp_json **out, struct mcp_error *err);

/* The same for JSON as Python's json writes it: NaN, Infinity and -Infinity are read
 * as null and counted. */
enum mcp_status mcp_json_parse_python(struct mcp_arena *arena, const char *name, const char *text,
                                      size_t length, struct mcp_json **out, size_t *not_finite,
                                      struct mcp_error *err);

/* Fails with MCP_FORMAT "FILE: PATH: <sentence>". */
enum mcp_status mcp_json_fail(const struct mcp_json *json, struct mcp_error *err,
                              const char *format, ...) __attribute__((format(printf, 3, 4)));

/* What is there. Present means: the key exists and is not null. */
bool mcp_json_has(struct mcp_json *json, const char *key);
bool mcp_json_is_object(const struct mcp_json *json);
bool mcp_json_is_array(const struct mcp_json *json);
size_t mcp_json_count(const struct mcp_json *json); /* elements or keys */

/* Required values: MCP_FORMAT when missing, null or of another type. Integers
 * must be written as integers and lie in 0 .. 2^53 (int: 0 .. 2^31-1). */
enum mcp_status mcp_json_int(struct mcp_json *json, const char *key, int *out,
                             struct mcp_error *err);
enum mcp_status mcp_json_int64(struct mcp_json *json, const char *key, int64_t *out,
                               struct mcp_error *err);
enum mcp_status mcp_json_double(struct mcp_json *json, const char *key, double *out,
                                struct mcp_error *err);
enum mcp_status mcp_json_bool(struct mcp_json *json, const char *key, bool *out,
                              struct mcp_error *err);
enum mcp_status mcp_json_string(struct mcp_json *json, const char *key, const char **out,
                                struct mcp_error *err);
/* A string with a unit ("80GiB"). */
enum mcp_status mcp_json_quantity(struct mcp_json *json, const char *key,
                                  enum mcp_dimension dimension, double *out, struct mcp_error *err);
/* One of `names`; *out is its index. The message lists the nearest. */
enum mcp_status mcp_json_choice(struct mcp_json *json, const char *key, const char *const *names,
                                size_t count, int *out, struct mcp_error *err);
enum mcp_status mcp_json_object(struct mcp_json *json, const char *key, struct mcp_json **out,
                                struct mcp_error *err);
enum mcp_status mcp_json_array(struct mcp_json *json, const char *key, struct mcp_json **out,
                               struct mcp_error *err);

/* Optional values: `*out` keeps what it had when the key is absent or null. */
enum mcp_status mcp_json_maybe_int(struct mcp_json *json, const char *key, int *out,
                                   struct mcp_error *err);
enum mcp_status mcp_json_maybe_double(struct mcp_json *json, const char *key, double *out,
                                      struct mcp_error *err);
enum mcp_status mcp_json_maybe_bool(struct mcp_json *json, const char *key, bool *out,
                                    struct mcp_error *err);
enum mcp_status mcp_json_maybe_string(struct mcp_json *json, const char *key, const char **out,
                                      struct mcp_error *err);

/* Elements: of an array by index, of an object by position (key in *key). */
struct mcp_json *mcp_json_at(struct mcp_json *array, size_t index);
struct mcp_json *mcp_json_member(struct mcp_json *object, size_t index, const char **key);
/* The scalar itself, for elements of arrays. */
enum mcp_status mcp_json_as_int(struct mcp_json *json, int *out, struct mcp_error *err);
enum mcp_status mcp_json_as_int64(struct mcp_json *json, int64_t *out, struct mcp_error *err);
enum mcp_status mcp_json_as_double(struct mcp_json *json, double *out, struct mcp_error *err);
enum mcp_status mcp_json_as_string(struct mcp_json *json, const char **out, struct mcp_error *err);

/* Refuses keys that no getter asked for, in this object and those got from it. */
enum mcp_status mcp_json_done(struct mcp_json *json, struct mcp_error *err);
/* The same keys as text "a, b.c", "" when none. */
const char *mcp_json_ignored(struct mcp_arena *arena, struct mcp_json *json);

/* Writing. Setters append in order; a NaN double becomes null (unknown). */
struct mcp_json *mcp_json_new_object(struct mcp_arena *arena);
void mcp_json_set_int(struct mcp_json *object, const char *key, int64_t value);
void mcp_json_set_double(struct mcp_json *object, const char *key, double value);
void mcp_json_set_bool(struct mcp_json *object, const char *key, bool value);
void mcp_json_set_string(struct mcp_json *object, const char *key,
                         const char *value); /* NULL: null */
void mcp_json_set_null(struct mcp_json *object, const char *key);
struct mcp_json *mcp_json_set_object(struct mcp_json *object, const char *key);
struct mcp_json *mcp_json_set_array(struct mcp_json *object, const char *key);
void mcp_json_add_int(struct mcp_json *array, int64_t value);
void mcp_json_add_string(struct mcp_json *array, const char *value);
struct mcp_json *mcp_json_add_object(struct mcp_json *array);
struct mcp_json *mcp_json_add_array(struct mcp_json *array);

/* Two-space indented text with a final newline; the same bytes for the same
 * values. Numbers print with the fewest digits that read back equal. */
const char *mcp_json_text(struct mcp_arena *arena, const struct mcp_json *json);
enum mcp_status mcp_json_write(const char *path, const struct mcp_json *json,
                               struct mcp_error *err);

#endif
