/* core/text.c: small operations on text, growing strings, files. */
#include "core/text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- growing strings --- */

struct mcp_text mcp_text_new(struct mcp_arena *arena)
{
    const size_t capacity = 64;
    return (struct mcp_text){arena, MCP_ARRAY(arena, capacity, char), 0, capacity};
}

static void reserve(struct mcp_text *text, size_t more)
{
    assert(more < SIZE_MAX / 2 - text->length);
    if (text->length + more < text->capacity)
        return;
    size_t capacity = 2 * (text->length + more) + 1;
    char *data = MCP_ARRAY(text->arena, capacity, char);
    memcpy(data, text->data, text->length);
    text->data = data;
    text->capacity = capacity;
}

void mcp_text_append(struct mcp_text *text, const char *data, size_t length)
{
    reserve(text, length);
    memcpy(text->data + text->length, data, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void mcp_text_add(struct mcp_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    assert(length >= 0);
    reserve(text, (size_t)length);
    va_start(args, format);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, args);
    va_end(args);
    text->length += (size_t)length;
}

/* What the locale wrote between the digits becomes a point. */
static void use_point(char *number)
{
    char *from = number + strspn(number, "+-0123456789");
    size_t other = strcspn(from, "0123456789e");
    if (other == 0)
        return;
    *from = '.';
    memmove(from + 1, from + other, strlen(from + other) + 1);
}

void mcp_text_add_number(struct mcp_text *text, double value)
{
    char number[40];
    assert(isfinite(value));
    value = value == 0 ? 0 : value; /* "-0" would read back as the integer 0 */
    for (int digits = 15; digits <= 17; digits++) {
        double back;
        snprintf(number, sizeof number, "%.*g", digits, value);
        use_point(number);
        if (mcp_parse_double(number, &back) && back == value)
            break;
    }
    mcp_text_append(text, number, strlen(number));
}

/* --- words --- */

#define LONGEST_WORD 64

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Insertions, deletions, replacements and swaps of neighbours (optimal string
 * alignment); case does not count. Both are at most LONGEST_WORD long. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][LONGEST_WORD + 1];
    size_t length_a = strlen(a), length_b = strlen(b);
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= length_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= length_a; i++) {
        size_t *oldest = before;
        before = last, last = row, row = oldest;
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            row[j] = least(least(last[j], row[j - 1]) + 1,
                           last[j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1));
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return row[length_b];
}

/* The shortest candidate that goes on from `word`, a word cut short. */
static const char *shortest_from(const char *word, const char *const *candidates, size_t count)
{
    const char *shortest = NULL;
    for (size_t i = 0; i < count; i++)
        if (mcp_starts_with(candidates[i], word) &&
            (shortest == NULL || strlen(candidates[i]) < strlen(shortest)))
            shortest = candidates[i];
    return shortest;
}

const char *mcp_nearest(const char *word, const char *const *candidates, size_t count)
{
    const char *nearest = NULL;
    size_t length = strlen(word);
    if (length > LONGEST_WORD)
        return NULL;
    size_t best = (length + 2) / 3 + 1;
    for (size_t i = 0; i < count; i++) {
        if (strlen(candidates[i]) > LONGEST_WORD)
            continue;
        size_t distance = edit_distance(word, candidates[i]);
        if (distance < best && distance < length) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest != NULL || length < 3 ? nearest : shortest_from(word, candidates, count);
}

bool mcp_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

bool mcp_starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool mcp_ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text), wanted = strlen(suffix);
    return length >= wanted && strcmp(text + length - wanted, suffix) == 0;
}

bool mcp_contains_ignoring_case(const char *text, const char *part)
{
    size_t wanted = strlen(part);
    while (strncasecmp(text, part, wanted) != 0)
        if (*text++ == '\0')
            return false;
    return true;
}

/* --- numbers --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *skip_digits(const char *text)
{
    return text + strspn(text, "0123456789");
}

bool mcp_parse_int64(const char *text, int64_t *value)
{
    const char *digits = text + (*text == '-' || *text == '+');
    const char *end = skip_digits(digits);
    if (end == digits || *end != '\0')
        return false;
    errno = 0;
    long long number = strtoll(text, NULL, 10);
    if (errno != 0)
        return false;
    *value = number;
    return true;
}

/* Sign, digits with at most one point, exponent: what strtod calls decimal. */
static bool is_decimal(const char *text)
{
    text += *text == '-' || *text == '+';
    const char *end = skip_digits(text);
    bool has_digits = end > text;
    if (*end == '.') {
        has_digits = has_digits || is_digit(end[1]);
        end = skip_digits(end + 1);
    }
    if (has_digits && (*end == 'e' || *end == 'E')) {
        const char *power = end + 1 + (end[1] == '-' || end[1] == '+');
        end = skip_digits(power);
        has_digits = end > power;
    }
    return has_digits && *end == '\0';
}

bool mcp_parse_double(const char *text, double *value)
{
    char local[400];
    const char *point = strchr(text, '.');
    size_t whole = point != NULL ? (size_t)(point - text) : 0;
    if (!is_decimal(text) || strlen(text) >= sizeof local - MB_LEN_MAX)
        return false;
    if (point != NULL) /* strtod reads the locale's point */
        snprintf(local, sizeof local, "%.*s%s%s", (int)whole, text, localeconv()->decimal_point,
                 point + 1);
    double number = strtod(point != NULL ? local : text, NULL);
    if (!isfinite(number))
        return false;
    *value = number;
    return true;
}

/* --- what may reach a terminal --- */

/* Length of the printable UTF-8 character at `text`, 0 for anything else. */
static size_t printable_length(const unsigned char *text)
{
    if (text[0] < 0x80)
        return text[0] >= 0x20 && text[0] != 0x7f ? 1 : 0;
    size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    bool is_control = text[0] == 0xc2 && text[1] < 0xa0;
    bool is_overlong = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xf0 && text[1] < 0x90);
    bool is_beyond = (text[0] == 0xed && text[1] > 0x9f) || (text[0] == 0xf4 && text[1] > 0x8f);
    return is_control || is_overlong || is_beyond ? 0 : length;
}

char *mcp_printable(struct mcp_arena *arena, const char *text)
{
    char *copy = mcp_strdup(arena, text);
    for (size_t i = 0; copy[i] != '\0';) {
        size_t length = printable_length((const unsigned char *)copy + i);
        if (length == 0)
            copy[i] = '?';
        i += length == 0 ? 1 : length;
    }
    return copy;
}

/* --- files --- */

static enum mcp_status fail_errno(const char *path, struct mcp_error *err)
{
    return mcp_fail(err, MCP_IO, "%s: %s", path, strerror(errno));
}

static enum mcp_status read_all(int file, const char *path, size_t limit_bytes,
                                struct mcp_text *out, struct mcp_error *err)
{
    for (;;) {
        const size_t step = 64 << 10;
        reserve(out, step);
        ssize_t got = read(file, out->data + out->length, step);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(path, err);
        out->length += (size_t)got;
        out->data[out->length] = '\0';
        if (out->length > limit_bytes)
            return mcp_fail(err, MCP_IO, "%s: larger than %zu MiB", path, limit_bytes >> 20);
        if (got == 0)
            return MCP_OK;
    }
}

enum mcp_status mcp_file_read(struct mcp_arena *arena, const char *path, size_t limit_bytes,
                              struct mcp_text *out, struct mcp_error *err)
{
    *out = mcp_text_new(arena);
    if (mcp_same(path, "-"))
        return read_all(STDIN_FILENO, "standard input", limit_bytes, out, err);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return fail_errno(path, err);
    enum mcp_status status = read_all(file, path, limit_bytes, out, err);
    close(file);
    return status;
}

static bool write_all(int file, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t done = write(file, data, length);
        if (done < 0 && errno != EINTR)
            return false;
        if (done > 0) {
            data += done;
            length -= (size_t)done;
        }
    }
    return true;
}

/* Pipes, terminals and devices cannot be replaced, only written to. */
static enum mcp_status write_in_place(const char *path, const char *data, size_t length,
                                      struct mcp_error *err)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return fail_errno(path, err);
    bool done = write_all(file, data, length);
    int reason = errno;
    if (close(file) == 0 && done)
        return MCP_OK;
    errno = done ? errno : reason;
    return fail_errno(path, err);
}

static enum mcp_status write_stdout(const char *data, size_t length, struct mcp_error *err)
{
    if (fflush(stdout) != 0 || !write_all(STDOUT_FILENO, data, length))
        return fail_errno("standard output", err);
    return MCP_OK;
}

/* Makes a rename durable. The new file is already in place, so a file system
 * that cannot sync folders is no reason to report a failure. */
void mcp_file_sync_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    int file = open(length == 0 ? "." : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return;
    (void)fsync(file);
    close(file);
}

/* mkstemp gives 0600; people expect what open would have given. */
static mode_t default_mode(void)
{
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static enum mcp_status write_and_rename(const char *path, mode_t mode, const char *data,
                                        size_t length, struct mcp_error *err)
{
    char temporary[PATH_MAX];
    int wanted = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    if (wanted < 0 || (size_t)wanted >= sizeof temporary)
        return mcp_fail(err, MCP_IO, "%s: %s", path, strerror(ENAMETOOLONG));
    int file = mkstemp(temporary);
    if (file < 0)
        return fail_errno(path, err);
    bool done = fchmod(file, mode) == 0 && write_all(file, data, length) && fsync(file) == 0;
    int reason = errno;
    if (close(file) != 0 && done) {
        done = false;
        reason = errno;
    }
    if (done && rename(temporary, path) == 0) {
        mcp_file_sync_folder(path);
        return MCP_OK;
    }
    errno = done ? errno : reason;
    enum mcp_status status = fail_errno(path, err);
    unlink(temporary);
    return status;
}

enum mcp_status mcp_file_replace(const char *path, const char *data, size_t length,
                                 struct mcp_error *err)
{
    struct stat old, entry;
    char target[PATH_MAX];
    if (mcp_same(path, "-"))
        return write_stdout(data, length, err);
    if (stat(path, &old) != 0)
        return write_and_rename(path, default_mode(), data, length, err);
    if (S_ISDIR(old.st_mode))
        return mcp_fail(err, MCP_IO, "%s: is a directory, expected a file's name", path);
    if (!S_ISREG(old.st_mode))
        return write_in_place(path, data, length, err);
    if (lstat(path, &entry) == 0 && S_ISLNK(entry.st_mode)) {
        if (realpath(path, target) == NULL)
            return fail_errno(path, err);
        path = target; /* the link stays, what it names is replaced */
    }
    return write_and_rename(path, old.st_mode & 0777, data, length, err);
}
