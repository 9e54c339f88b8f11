/* exec/tokenizer.c: documents to ids: added tokens, words, merges. */
#include "core/text.h"
#include "core/unicode.h"
#include "exec/tokenizer_parts.h"

#include <assert.h>
#include <string.h>

enum { OUT_IDS = 4096 };
/* Symbols are counted in 32 bits. */
#define MAX_WORD_BYTES ((size_t)1 << 30)

/* A piece of a word: a token so far. */
struct symbol {
    int32_t id;           /* -1: was merged into the one before it */
    int32_t before, next; /* -1 at the ends */
};

/* A merge that is possible, or was: the pair at `at` may have changed since. */
struct candidate {
    uint32_t rank;
    int32_t at;
    int32_t whole;
};

struct encoder {
    struct mcp_arena *arena;
    const char *name; /* of the document, for messages */
    const struct mcp_tokenizer *tokenizer;
    const struct mcp_token_sink *sink;
    struct symbol *symbols;
    size_t num_symbols, symbol_capacity;
    struct candidate *heap;
    size_t num_candidates, candidate_capacity;
    bool last_unknown; /* the last symbol stands for an unknown character */
    size_t num_out;
    int32_t out[OUT_IDS];
};

/* --- maps --- */

struct mcp_number_map mcp_number_map_new(struct mcp_arena *arena, size_t count)
{
    size_t slots = 16;
    while (slots < 2 * count)
        slots *= 2;
    return (struct mcp_number_map){MCP_ARRAY(arena, slots, uint64_t),
                                   MCP_ARRAY(arena, slots, uint64_t), slots - 1};
}

/* The slot of a key, or the empty one where it would be. */
static uint64_t slot_of(const struct mcp_number_map *map, uint64_t key)
{
    uint64_t slot = key * 0x9e3779b97f4a7c15u;
    slot = (slot ^ slot >> 32) & map->mask;
    while (map->keys[slot] != 0 && map->keys[slot] != key + 1)
        slot = (slot + 1) & map->mask;
    return slot;
}

void mcp_number_map_put(struct mcp_number_map *map, uint64_t key, uint64_t value)
{
    const uint64_t slot = slot_of(map, key);
    assert(key + 1 != 0);
    map->keys[slot] = key + 1;
    map->values[slot] = value;
}

bool mcp_number_map_get(const struct mcp_number_map *map, uint64_t key, uint64_t *value)
{
    if (map->mask == 0)
        return false;
    const uint64_t slot = slot_of(map, key);
    *value = map->values[slot];
    return map->keys[slot] != 0;
}

/* --- output --- */

static enum mcp_status flush_out(struct encoder *e, struct mcp_error *err)
{
    const size_t count = e->num_out;
    e->num_out = 0;
    return count > 0 ? e->sink->put(e->sink->context, e->out, count, err) : MCP_OK;
}

static enum mcp_status put_id(struct encoder *e, int32_t id, struct mcp_error *err)
{
    if (e->num_out == OUT_IDS)
        MCP_TRY(flush_out(e, err));
    e->out[e->num_out++] = id;
    return MCP_OK;
}

static enum mcp_status put_ids(struct encoder *e, const int32_t *ids, int count,
                               struct mcp_error *err)
{
    for (int i = 0; i < count; i++)
        MCP_TRY(put_id(e, ids[i], err));
    return MCP_OK;
}

/* --- merges --- */

/* Lowest rank first, then from left to right. */
static bool is_before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct encoder *e, struct candidate new)
{
    e->heap =
        mcp_grow(e->arena, e->heap, e->num_candidates, &e->candidate_capacity, sizeof *e->heap);
    size_t at = e->num_candidates++;
    for (; at > 0 && is_before(&new, &e->heap[(at - 1) / 2]); at = (at - 1) / 2)
        e->heap[at] = e->heap[(at - 1) / 2];
    e->heap[at] = new;
}

static struct candidate pop(struct encoder *e)
{
    const struct candidate top = e->heap[0], last = e->heap[--e->num_candidates];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < e->num_candidates) {
        if (child + 1 < e->num_candidates && is_before(&e->heap[child + 1], &e->heap[child]))
            child++;
        if (!is_before(&e->heap[child], &last))
            break;
        e->heap[at] = e->heap[child];
        at = child;
    }
    e->heap[at] = last;
    return top;
}

static bool merge_of(const struct encoder *e, int32_t at, struct candidate *out)
{
    const int32_t next = e->symbols[at].next;
    uint64_t value;
    if (next < 0)
        return false;
    const uint64_t pair =
        (uint64_t)(uint32_t)e->symbols[at].id << 32 | (uint32_t)e->symbols[next].id;
    if (!mcp_number_map_get(&e->tokenizer->merges, pair, &value))
        return false;
    *out = (struct candidate){(uint32_t)(value >> 32), at, (int32_t)(uint32_t)value};
    return true;
}

static void push_merge_at(struct encoder *e, int32_t at)
{
    struct candidate new;
    if (at >= 0 && merge_of(e, at, &new))
        push(e, new);
}

static void merge(struct encoder *e, int32_t at, int32_t whole)
{
    const int32_t gone = e->symbols[at].next, next = e->symbols[gone].next;
    e->symbols[at].id = whole;
    e->symbols[at].next = next;
    e->symbols[gone].id = -1;
    if (next >= 0)
        e->symbols[next].before = at;
    push_merge_at(e, e->symbols[at].before);
    push_merge_at(e, at);
}

static void merge_all(struct encoder *e)
{
    struct candidate now;
    e->num_candidates = 0;
    for (size_t i = 0; i + 1 < e->num_symbols; i++)
        push_merge_at(e, (int32_t)i);
    while (e->num_candidates > 0) {
        const struct candidate top = pop(e);
        const bool is_alive = e->symbols[top.at].id >= 0;
        if (is_alive && merge_of(e, top.at, &now) && now.whole == top.whole)
            merge(e, top.at, top.whole);
    }
}

static enum mcp_status put_word(struct encoder *e, struct mcp_error *err)
{
    if (e->num_symbols > 1)
        merge_all(e);
    for (size_t i = 0; i < e->num_symbols; i++)
        if (e->symbols[i].id >= 0)
            MCP_TRY(put_id(e, e->symbols[i].id, err));
    e->num_symbols = 0;
    e->last_unknown = false;
    return MCP_OK;
}

/* --- symbols of words --- */

static void add_symbol(struct encoder *e, int32_t id)
{
    const int32_t at = (int32_t)e->num_symbols;
    e->symbols =
        mcp_grow(e->arena, e->symbols, e->num_symbols, &e->symbol_capacity, sizeof *e->symbols);
    e->symbols[e->num_symbols++] = (struct symbol){id, at - 1, -1};
    if (at > 0)
        e->symbols[at - 1].next = at;
    e->last_unknown = false;
}

static void add_bytes(struct encoder *e, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        add_symbol(e, e->tokenizer->byte_ids[(unsigned char)text[i]]);
}

static void add_character(struct encoder *e, const char *text, size_t length)
{
    const int id = mcp_token_find(e->tokenizer, text, length);
    if (id >= 0) {
        add_symbol(e, id);
    } else if (e->tokenizer->byte_fallback) {
        add_bytes(e, text, length);
    } else if (!e->tokenizer->fuse_unknown || !e->last_unknown) {
        add_symbol(e, e->tokenizer->unknown);
        e->last_unknown = true;
    }
}

static enum mcp_status encode_byte_word(struct encoder *e, const char *text, size_t length,
                                        struct mcp_error *err)
{
    if (e->tokenizer->ignore_merges) {
        /* Tokens are kept as bytes under byte_level. */
        const int id = mcp_token_find(e->tokenizer, text, length);
        if (id >= 0)
            return put_id(e, id, err);
    }
    add_bytes(e, text, length);
    return put_word(e, err);
}

/* --- segments: text between added tokens --- */

/* A character as vocabularies without byte_level write it. */
struct character {
    const char *text;
    size_t length;
    uint32_t code;
    bool known;
};

static struct character character_at(const struct encoder *e, const char *text, size_t length)
{
    struct character c = {.text = text};
    c.length = mcp_utf8_decode(text, length, &c.code);
    if (c.code == ' ' && e->tokenizer->marks_spaces)
        c = (struct character){MCP_SPACE_MARK, 3, MCP_SPACE_MARK_CODE, false};
    c.known = mcp_token_find(e->tokenizer, c.text, c.length) >= 0;
    return c;
}

/* True where a word ends between two characters. Without a pattern that is where no
 * token holds both side by side: no merge reaches across, so the ids are those of the
 * whole document as one word. */
static bool ends_word(const struct mcp_tokenizer *t, const struct character *before,
                      const struct character *c)
{
    uint64_t value;
    if (t->pattern == MCP_WORDS_MARKED)
        return c->code == MCP_SPACE_MARK_CODE;
    return before->known && c->known &&
           !mcp_number_map_get(&t->neighbours, (uint64_t)before->code << 32 | c->code, &value);
}

static bool begins_with_mark(const char *text, size_t length)
{
    return text[0] == ' ' || (length >= 3 && memcmp(text, MCP_SPACE_MARK, 3) == 0);
}

static bool prepends(const struct mcp_tokenizer *t, bool first, const char *text, size_t length)
{
    if (t->prepend == MCP_PREPEND_NEVER || (t->prepend == MCP_PREPEND_FIRST && !first))
        return false;
    return t->prepend == MCP_PREPEND_ALWAYS || !begins_with_mark(text, length);
}

static enum mcp_status fail_long(const struct encoder *e, struct mcp_error *err)
{
    return mcp_fail(err, MCP_INVALID,
                    "%s: a word is longer than %zu MiB: its merges would not fit, so cut it",
                    e->name, MAX_WORD_BYTES >> 20);
}

static enum mcp_status encode_character_segment(struct encoder *e, const char *text, size_t length,
                                                bool first, struct mcp_error *err)
{
    struct character before = {MCP_SPACE_MARK, 3, MCP_SPACE_MARK_CODE, true};
    if (prepends(e->tokenizer, first, text, length))
        add_character(e, before.text, before.length);
    for (size_t at = 0; at < length;) {
        const struct character c = character_at(e, text + at, length - at);
        if (e->num_symbols > 0 && ends_word(e->tokenizer, &before, &c))
            MCP_TRY(put_word(e, err));
        if (e->num_symbols > MAX_WORD_BYTES)
            return fail_long(e, err);
        add_character(e, c.text, c.length);
        at += text[at] == ' ' ? 1 : c.length;
        before = c;
    }
    return put_word(e, err);
}

static enum mcp_status encode_byte_segment(struct encoder *e, const char *text, size_t length,
                                           struct mcp_error *err)
{
    while (length > 0) {
        const size_t bytes = mcp_word_length(e->tokenizer->pattern, text, length);
        if (bytes > MAX_WORD_BYTES)
            return fail_long(e, err);
        MCP_TRY(encode_byte_word(e, text, bytes, err));
        text += bytes;
        length -= bytes;
    }
    return MCP_OK;
}

static enum mcp_status encode_segment(struct encoder *e, const char *text, size_t length,
                                      bool first, struct mcp_error *err)
{
    if (length == 0)
        return MCP_OK;
    if (e->tokenizer->byte_level)
        return encode_byte_segment(e, text, length, err);
    return encode_character_segment(e, text, length, first, err);
}

/* --- documents --- */

/* The longest added token that begins at `text`, or NULL. */
static const struct mcp_added_token *added_at(const struct mcp_tokenizer *t, const char *text,
                                              size_t length)
{
    if (!t->begins_added[(unsigned char)text[0]])
        return NULL;
    for (int i = 0; i < t->num_added; i++) {
        const struct mcp_added_token *added = &t->added[i];
        if (added->length <= length && memcmp(added->text, text, added->length) == 0)
            return added;
    }
    return NULL;
}

static enum mcp_status encode_text(struct encoder *e, const char *text, size_t length,
                                   struct mcp_error *err)
{
    size_t start = 0;
    for (size_t at = 0; at < length;) {
        const struct mcp_added_token *added = added_at(e->tokenizer, text + at, length - at);
        if (added == NULL) {
            at++;
            continue;
        }
        MCP_TRY(encode_segment(e, text + start, at - start, start == 0, err));
        MCP_TRY(put_id(e, added->id, err));
        at += added->length;
        start = at;
    }
    return encode_segment(e, text + start, length - start, start == 0, err);
}

static enum mcp_status encode_plain_bytes(struct encoder *e, const char *text, size_t length,
                                          struct mcp_error *err)
{
    for (size_t i = 0; i < length; i++)
        MCP_TRY(put_id(e, (unsigned char)text[i], err));
    return MCP_OK;
}

static enum mcp_status encode_document(struct encoder *e, const char *text, size_t length,
                                       struct mcp_error *err)
{
    const struct mcp_tokenizer *t = e->tokenizer;
    const size_t valid = t->plain_bytes ? length : mcp_utf8_check(text, length);
    if (valid < length)
        return mcp_fail(err, MCP_FORMAT, "%s: byte %zu is 0x%02x, where no UTF-8 character begins",
                        e->name, valid, (unsigned char)text[valid]);
    MCP_TRY(put_ids(e, t->before, t->num_before, err));
    MCP_TRY(t->plain_bytes ? encode_plain_bytes(e, text, length, err)
                           : encode_text(e, text, length, err));
    MCP_TRY(put_ids(e, t->after, t->num_after, err));
    return flush_out(e, err);
}

enum mcp_status mcp_tokenizer_encode(const struct mcp_tokenizer *tokenizer, const char *name,
                                     const char *text, size_t length,
                                     const struct mcp_token_sink *sink, struct mcp_error *err)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct encoder *encoder = MCP_NEW(arena, struct encoder);
    encoder->arena = arena;
    encoder->name = name;
    encoder->tokenizer = tokenizer;
    encoder->sink = sink;
    const enum mcp_status status = encode_document(encoder, text, length, err);
    mcp_arena_free(arena);
    return status;
}

/* --- vocabularies --- */

static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash >> 1;
}

int mcp_token_find(const struct mcp_tokenizer *tokenizer, const char *text, size_t length)
{
    uint64_t hash = hash_of(text, length), id;
    for (; mcp_number_map_get(&tokenizer->ids, hash, &id); hash++) {
        const struct mcp_token_text *token = &tokenizer->tokens[id];
        if (token->length == length && memcmp(token->text, text, length) == 0)
            return (int)id;
    }
    return -1;
}

void mcp_token_add(struct mcp_tokenizer *tokenizer, struct mcp_token_text token, int id)
{
    uint64_t hash = hash_of(token.text, token.length), taken;
    while (mcp_number_map_get(&tokenizer->ids, hash, &taken))
        hash++;
    mcp_number_map_put(&tokenizer->ids, hash, (uint64_t)id);
    tokenizer->tokens[id] = token;
}

enum mcp_status mcp_tokenizer_load(struct mcp_arena *arena, const char *name_or_path,
                                   const struct mcp_tokenizer **out, struct mcp_error *err)
{
    struct mcp_tokenizer *tokenizer = MCP_NEW(arena, struct mcp_tokenizer);
    *out = tokenizer;
    tokenizer->name = mcp_strdup(arena, name_or_path);
    tokenizer->plain_bytes = mcp_same(name_or_path, "bytes");
    tokenizer->vocab_size = MCP_BYTES_END_OF_DOCUMENT + 1;
    return tokenizer->plain_bytes ? MCP_OK
                                  : mcp_tokenizer_read(arena, name_or_path, tokenizer, err);
}

int mcp_tokenizer_vocab_size(const struct mcp_tokenizer *tokenizer)
{
    return tokenizer->vocab_size;
}

int mcp_tokenizer_id(const struct mcp_tokenizer *tokenizer, const char *token)
{
    for (int i = 0; i < tokenizer->num_added; i++)
        if (mcp_same(tokenizer->added[i].text, token))
            return tokenizer->added[i].id;
    return mcp_token_find(tokenizer, token, strlen(token));
}

int mcp_tokenizer_end_of_document(const struct mcp_tokenizer *tokenizer)
{
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
    int id = tokenizer->plain_bytes ? MCP_BYTES_END_OF_DOCUMENT : -1;
    for (size_t i = 0; id < 0 && i < MCP_COUNT_OF(names); i++)
        id = mcp_tokenizer_id(tokenizer, names[i]);
    return id;
}
