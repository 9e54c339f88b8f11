/* exec/tokenizer_parts.h: what the files of the tokenizer share; private to them. */
#ifndef MCP_EXEC_TOKENIZER_PARTS_H
#define MCP_EXEC_TOKENIZER_PARTS_H

#include "exec/tokenizer.h"

#include <stdbool.h>

/* Where merges may not reach across. */
enum mcp_word_pattern {
    MCP_WORDS_NONE,   /* a document is one word */
    MCP_WORDS_MARKED, /* each U+2581 begins one */
    MCP_WORDS_GPT2,
    MCP_WORDS_LLAMA3, /* numbers of three digits at most */
    MCP_WORDS_QWEN2,  /* ... of one */
    MCP_NUM_WORD_PATTERNS
};
/* The regular expressions that tokenizer.json gives; NULL for the first two. */
extern const char *const mcp_word_expressions[MCP_NUM_WORD_PATTERNS];

/* Bytes of the first word of `text`, which is valid UTF-8 of `length` > 0 bytes.
 * `pattern` is one that has an expression. */
size_t mcp_word_length(enum mcp_word_pattern pattern, const char *text, size_t length);

/* Numbers by numbers, in an array with holes: key + 1 in `keys`, 0 where it is empty. */
struct mcp_number_map {
    uint64_t *keys;
    uint64_t *values;
    uint64_t mask; /* slots - 1, a power of two; 0: empty map */
};
struct mcp_number_map mcp_number_map_new(struct mcp_arena *arena, size_t count);
/* Room was made for `count` keys; a key that is there is given the new value. */
void mcp_number_map_put(struct mcp_number_map *map, uint64_t key, uint64_t value);
bool mcp_number_map_get(const struct mcp_number_map *map, uint64_t key, uint64_t *value);

/* When a segment of text gets U+2581 put before it. */
enum mcp_prepend {
    MCP_PREPEND_NEVER,
    MCP_PREPEND_ALWAYS,
    MCP_PREPEND_UNLESS_MARKED, /* unless it begins with a space or the mark */
    MCP_PREPEND_FIRST          /* the same, the first segment of the document alone */
};

struct mcp_token_text {
    const char *text; /* NULL: no token has this id */
    size_t length;
};

struct mcp_added_token {
    const char *text;
    size_t length;
    int id;
};

enum { MCP_MAX_AROUND = 8, MCP_BYTES_END_OF_DOCUMENT = 256 };

struct mcp_tokenizer {
    const char *name;
    bool plain_bytes; /* nothing below but vocab_size */
    int vocab_size;
    struct mcp_token_text *tokens;    /* [vocab_size] by id; raw bytes under byte_level */
    struct mcp_number_map ids;        /* hash of a token's text (collisions: next hash) to id */
    struct mcp_number_map merges;     /* left << 32 | right to rank << 32 | id of the whole */
    struct mcp_number_map neighbours; /* pairs of characters that some token holds */
    bool byte_level, ignore_merges, marks_spaces, byte_fallback, fuse_unknown;
    int unknown;           /* -1 when there is none */
    int32_t byte_ids[256]; /* of a byte, under byte_level or byte_fallback */
    enum mcp_word_pattern pattern;
    enum mcp_prepend prepend;
    int num_added;
    struct mcp_added_token *added; /* the longest first */
    bool begins_added[256];        /* first bytes of them */
    int num_before, num_after;
    int32_t before[MCP_MAX_AROUND], after[MCP_MAX_AROUND];
};

/* -1 when there is no such token. */
int mcp_token_find(const struct mcp_tokenizer *tokenizer, const char *text, size_t length);
/* `id` is below vocab_size, and no token is found by that text yet. */
void mcp_token_add(struct mcp_tokenizer *tokenizer, struct mcp_token_text token, int id);

/* exec/tokenizer_json.c */
enum mcp_status mcp_tokenizer_read(struct mcp_arena *arena, const char *path,
                                   struct mcp_tokenizer *out, struct mcp_error *err);

#define MCP_SPACE_MARK "\xe2\x96\x81" /* U+2581 */
#define MCP_SPACE_MARK_CODE 0x2581u

#endif
