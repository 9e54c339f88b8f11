/* core/text.h: small operations on text, growing strings, files.
 *
 * Files are read with a size limit and written whole: to a temporary name in
 * the same folder, synced, then renamed, so nothing is ever half-written. */
#ifndef MCP_CORE_TEXT_H
#define MCP_CORE_TEXT_H

#include "core/arena.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A string that grows in an arena; a new one is "". `data` is NUL-terminated, and
 * moves when the string grows. */
struct mcp_text {
    struct mcp_arena *arena;
    char *data;
    size_t length;
    size_t capacity;
};
struct mcp_text mcp_text_new(struct mcp_arena *arena);
void mcp_text_add(struct mcp_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void mcp_text_append(struct mcp_text *text, const char *data, size_t length);

/* The fewest digits that read back equal, in the C locale; `value` is finite. */
void mcp_text_add_number(struct mcp_text *text, double value);

/* The candidate closest to `word` by edit distance within a third of its length, else the
 * shortest that begins with it (three letters or more), else NULL. `count` candidates. */
const char *mcp_nearest(const char *word, const char *const *candidates, size_t count);

bool mcp_same(const char *a, const char *b); /* both may be NULL */
bool mcp_starts_with(const char *text, const char *prefix);
bool mcp_ends_with(const char *text, const char *suffix);
bool mcp_contains_ignoring_case(const char *text, const char *part);

/* Whole decimal numbers only: false on empty, trailing text or overflow.
 * The C locale's decimal point whatever the locale. */
bool mcp_parse_int64(const char *text, int64_t *value);
bool mcp_parse_double(const char *text, double *value); /* finite only */

/* Bytes that a terminal would obey become '?'. */
char *mcp_printable(struct mcp_arena *arena, const char *text);

#define MCP_MAX_FILE_BYTES ((size_t)256 << 20)

/* The whole file, NUL-terminated; "-" is stdin. MCP_IO on failure or when it is
 * larger than `limit_bytes`; *out is then what was read of it. */
enum mcp_status mcp_file_read(struct mcp_arena *arena, const char *path, size_t limit_bytes,
                              struct mcp_text *out, struct mcp_error *err);

/* Replaces `path` by rename; "-" is stdout. The old file stays on failure. */
enum mcp_status mcp_file_replace(const char *path, const char *data, size_t length,
                                 struct mcp_error *err);

/* Makes a rename in the folder of `path` durable, where the file system can. */
void mcp_file_sync_folder(const char *path);

#endif
