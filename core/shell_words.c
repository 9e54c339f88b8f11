/* core/shell_words.c: the words of a shell script or of a YAML of flags. */
#include "core/shell_words.h"
#include "core/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMES = 4096, MOST_VALUE_BYTES = 4096 };

struct names {
    size_t count, capacity;
    const char **items, **values; /* values: NULL where nothing sets the name */
};

struct reader {
    struct mcp_arena *arena;
    const char *at;
    struct names names;
    struct mcp_words words;
    size_t words_capacity;
};

/* MOST_NAMES: there is no room for it, so nothing is known of it. */
static size_t find_name(struct reader *r, const char *name, size_t length)
{
    for (size_t i = 0; i < r->names.count; i++)
        if (strncmp(r->names.items[i], name, length) == 0 && r->names.items[i][length] == '\0')
            return i;
    if (r->names.count == MOST_NAMES)
        return MOST_NAMES;
    if (r->names.items == NULL) {
        r->names.items = MCP_ARRAY(r->arena, MOST_NAMES, const char *);
        r->names.values = MCP_ARRAY(r->arena, MOST_NAMES, const char *);
    }
    r->names.items[r->names.count] = mcp_strndup(r->arena, name, length);
    return r->names.count++;
}

static size_t name_length(const char *text)
{
    size_t length = 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_')
        length++;
    return isdigit((unsigned char)text[0]) ? 0 : length;
}

/* $NAME, ${NAME} or ${NAME:-value} at r->at: its value, or itself. */
static void expand(struct reader *r, struct mcp_text *word)
{
    const char *start = r->at, *name = start + 1;
    const bool braces = *name == '{';
    name += braces;
    const size_t length = name_length(name);
    const char *end = name + length, *fallback = NULL;
    if (length == 0) {
        mcp_text_append(word, r->at++, 1);
        return;
    }
    if (braces) {
        fallback = mcp_starts_with(end, ":-") ? end + 2 : NULL;
        const char *close = strpbrk(end, "}\n");
        end = close == NULL || *close != '}' ? end : close + 1;
    }
    r->at = end;
    const size_t index = find_name(r, name, length);
    const char *value = index < MOST_NAMES ? r->names.values[index] : NULL;
    if (value != NULL)
        mcp_text_append(word, value, strlen(value));
    else if (fallback != NULL && end > fallback)
        mcp_text_append(word, fallback, (size_t)(end - 1 - fallback));
    else
        mcp_text_append(word, start, (size_t)(end - start));
}

/* Within quotes: up to the same quote. */
static void read_quoted(struct reader *r, struct mcp_text *word)
{
    const char quote = *r->at++;
    while (*r->at != '\0' && *r->at != quote) {
        if (quote == '"' && *r->at == '$') {
            expand(r, word);
            continue;
        }
        if (quote == '"' && *r->at == '\\' && r->at[1] != '\0')
            r->at++;
        mcp_text_append(word, r->at++, 1);
    }
    r->at += *r->at == quote;
}

static bool is_blank(char c)
{
    return c != '\0' && strchr(" \t\r\n;", c) != NULL;
}

static void read_word(struct reader *r, struct mcp_text *word)
{
    while (*r->at != '\0' && !is_blank(*r->at)) {
        if (*r->at == '"' || *r->at == '\'')
            read_quoted(r, word);
        else if (*r->at == '$')
            expand(r, word);
        else if (*r->at == '\\')
            r->at += r->at[1] == '\0' ? 1 : 2; /* a line's end, or a blank nobody needs */
        else
            mcp_text_append(word, r->at++, 1);
    }
}

static void skip_blanks(struct reader *r)
{
    while (is_blank(*r->at) || *r->at == '#' || (*r->at == '\\' && is_blank(r->at[1]))) {
        if (*r->at == '#')
            r->at += strcspn(r->at, "\n");
        else
            r->at++;
    }
}

/* NAME=value is remembered, unless it leads back to itself or grows without end. */
static void remember(struct reader *r, const char *word)
{
    const size_t length = name_length(word);
    if (length == 0 || word[length] != '=')
        return;
    const char *value = word + length + 1;
    if (strchr(value, '$') != NULL || strlen(value) >= MOST_VALUE_BYTES)
        return;
    const size_t index = find_name(r, word, length);
    if (index < MOST_NAMES)
        r->names.values[index] = value;
}

static void add_word(struct reader *r, const char *word)
{
    struct mcp_words *words = &r->words;
    words->items = (const char **)mcp_grow(r->arena, (void *)words->items, words->count,
                                           &r->words_capacity, sizeof *words->items);
    words->items[words->count++] = word;
    remember(r, word);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names that stand somewhere and are set nowhere. */
static const char *list_open(struct reader *r)
{
    struct mcp_text text = mcp_text_new(r->arena);
    size_t count = 0;
    const char **open = MCP_ARRAY(r->arena, r->names.count + 1, const char *);
    for (size_t i = 0; i < r->names.count; i++)
        if (r->names.values[i] == NULL)
            open[count++] = r->names.items[i];
    qsort((void *)open, count, sizeof *open, by_name);
    for (size_t i = 0; i < count; i++)
        mcp_text_add(&text, "%s%s", i == 0 ? "" : " ", open[i]);
    return text.data;
}

struct mcp_words mcp_shell_words(struct mcp_arena *arena, const char *text)
{
    struct reader r = {.arena = arena, .at = text};
    for (skip_blanks(&r); *r.at != '\0' && r.words.count < MCP_MAX_WORDS; skip_blanks(&r)) {
        struct mcp_text word = mcp_text_new(arena);
        read_word(&r, &word);
        add_word(&r, word.data);
    }
    r.words.open = list_open(&r);
    return r.words;
}
