/* exec/tokenizer_json.c: reads Hugging Face's tokenizer.json.
 *
 * Keys that change no id are passed over; whatever else would is refused. */
#include "core/json.h"
#include "core/text.h"
#include "core/unicode.h"
#include "exec/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_VOCAB = 1 << 24 };

struct reader {
    struct mcp_arena *arena;
    struct mcp_tokenizer *out;
};

/* --- vocabulary --- */

/* The byte that a character of a byte-level vocabulary stands for, or -1: bytes that
 * print stand for themselves, the 68 others are counted from U+0100 (GPT-2's encoder.py,
 * bytes_to_unicode). */
static int byte_of_character(uint32_t code)
{
    const bool prints = (code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xac) ||
                        (code >= 0xae && code <= 0xff);
    if (prints)
        return (int)code;
    if (code < 0x100 || code > 0x143)
        return -1;
    const uint32_t index = code - 0x100;
    return (int)(index <= 0x20 ? index : index == 0x43 ? 0xad : index - 0x21 + 0x7f);
}

/* A token as the bytes it stands for; as it is when some character stands for none. */
static struct mcp_token_text token_bytes(struct mcp_arena *arena, const char *text)
{
    const size_t length = strlen(text);
    char *bytes = MCP_ARRAY(arena, length + 1, char);
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        uint32_t code;
        at += mcp_utf8_decode(text + at, length - at, &code);
        const int byte = byte_of_character(code);
        if (byte < 0)
            return (struct mcp_token_text){text, length};
        bytes[count++] = (char)byte;
    }
    return (struct mcp_token_text){bytes, count};
}

static struct mcp_token_text token_text(const struct reader *r, const char *text)
{
    if (r->out->byte_level)
        return token_bytes(r->arena, text);
    return (struct mcp_token_text){text, strlen(text)};
}

static enum mcp_status check_id(struct mcp_json *json, int id, struct mcp_error *err)
{
    if (id < MAX_VOCAB)
        return MCP_OK;
    return mcp_json_fail(json, err, "id %d, expected less than %d", id, MAX_VOCAB);
}

/* vocab_size is one more than the largest id there is. */
static enum mcp_status measure_vocab(const struct reader *r, struct mcp_json *vocab,
                                     struct mcp_error *err)
{
    for (size_t i = 0; i < mcp_json_count(vocab); i++) {
        const char *text;
        int id;
        struct mcp_json *value = mcp_json_member(vocab, i, &text);
        MCP_TRY(mcp_json_as_int(value, &id, err));
        MCP_TRY(check_id(value, id, err));
        r->out->vocab_size = id >= r->out->vocab_size ? id + 1 : r->out->vocab_size;
    }
    for (int i = 0; i < r->out->num_added; i++)
        if (r->out->added[i].id >= r->out->vocab_size)
            r->out->vocab_size = r->out->added[i].id + 1;
    return MCP_OK;
}

static enum mcp_status add_vocab(const struct reader *r, struct mcp_json *vocab,
                                 struct mcp_error *err)
{
    for (size_t i = 0; i < mcp_json_count(vocab); i++) {
        const char *text;
        int id;
        struct mcp_json *value = mcp_json_member(vocab, i, &text);
        MCP_TRY(mcp_json_as_int(value, &id, err));
        const struct mcp_token_text token = token_text(r, text);
        if (r->out->tokens[id].text != NULL)
            return mcp_json_fail(value, err, "id %d belongs to another token too", id);
        if (mcp_token_find(r->out, token.text, token.length) >= 0)
            return mcp_json_fail(value, err, "another token stands for the same bytes");
        mcp_token_add(r->out, token, id);
    }
    return MCP_OK;
}

/* Pairs of characters side by side in some token: see neighbours. */
static void note_neighbours(const struct reader *r)
{
    struct mcp_tokenizer *t = r->out;
    size_t total = 0;
    for (int id = 0; id < t->vocab_size; id++)
        total += t->tokens[id].length;
    t->neighbours = mcp_number_map_new(r->arena, total);
    for (int id = 0; id < t->vocab_size; id++) {
        const struct mcp_token_text token = t->tokens[id];
        uint32_t before = 0, code;
        for (size_t at = 0; at < token.length; before = code) {
            const size_t bytes = mcp_utf8_decode(token.text + at, token.length - at, &code);
            if (at > 0)
                mcp_number_map_put(&t->neighbours, (uint64_t)before << 32 | code, 1);
            at += bytes;
        }
    }
}

/* --- merges --- */

/* "a b", or ["a", "b"] since tokenizers 0.20. */
static enum mcp_status merge_sides(const struct reader *r, struct mcp_json *json,
                                   const char *sides[2], struct mcp_error *err)
{
    const char *text;
    if (mcp_json_is_array(json)) {
        if (mcp_json_count(json) != 2)
            return mcp_json_fail(json, err, "expected two tokens");
        MCP_TRY(mcp_json_as_string(mcp_json_at(json, 0), &sides[0], err));
        return mcp_json_as_string(mcp_json_at(json, 1), &sides[1], err);
    }
    MCP_TRY(mcp_json_as_string(json, &text, err));
    const char *space = strchr(text, ' ');
    if (space == NULL || strchr(space + 1, ' ') != NULL)
        return mcp_json_fail(json, err, "\"%.80s\": expected two tokens with a space between",
                             text);
    sides[0] = mcp_strndup(r->arena, text, (size_t)(space - text));
    sides[1] = space + 1;
    return MCP_OK;
}

static enum mcp_status find_token(const struct reader *r, struct mcp_json *json, const char *text,
                                  uint32_t *id, struct mcp_error *err)
{
    const struct mcp_token_text token = token_text(r, text);
    const int found = mcp_token_find(r->out, token.text, token.length);
    if (found < 0)
        return mcp_json_fail(json, err, "\"%.80s\" is not in the vocabulary", text);
    *id = (uint32_t)found;
    return MCP_OK;
}

static enum mcp_status read_merges(const struct reader *r, struct mcp_json *merges,
                                   struct mcp_error *err)
{
    const size_t count = mcp_json_count(merges);
    r->out->merges = mcp_number_map_new(r->arena, count);
    for (size_t rank = 0; rank < count; rank++) {
        struct mcp_json *json = mcp_json_at(merges, rank);
        const char *sides[2] = {"", ""};
        uint32_t left = 0, right = 0, whole = 0;
        MCP_TRY(merge_sides(r, json, sides, err));
        MCP_TRY(find_token(r, json, sides[0], &left, err));
        MCP_TRY(find_token(r, json, sides[1], &right, err));
        const char *joined = mcp_format(r->arena, "%s%s", sides[0], sides[1]);
        MCP_TRY(find_token(r, json, joined, &whole, err));
        mcp_number_map_put(&r->out->merges, (uint64_t)left << 32 | right,
                           (uint64_t)rank << 32 | whole);
    }
    return MCP_OK;
}

/* --- the model --- */

static enum mcp_status refuse_text(struct mcp_json *model, const char *key, struct mcp_error *err)
{
    const char *text = "";
    MCP_TRY(mcp_json_maybe_string(model, key, &text, err));
    return *text == '\0' ? MCP_OK : mcp_json_fail(model, err, "%s is not understood", key);
}

/* Every byte must have its token: one that had none would vanish from the text. */
static enum mcp_status find_bytes(const struct reader *r, struct mcp_json *model,
                                  struct mcp_error *err)
{
    struct mcp_tokenizer *t = r->out;
    for (int byte = 0; byte < 256; byte++) {
        const char raw = (char)byte;
        const char *name = mcp_format(r->arena, "<0x%02X>", (unsigned)byte);
        t->byte_ids[byte] =
            t->byte_level ? mcp_token_find(t, &raw, 1) : mcp_token_find(t, name, strlen(name));
        if (t->byte_ids[byte] < 0)
            return mcp_json_fail(model, err, "the vocabulary has no token for the byte 0x%02x",
                                 (unsigned)byte);
    }
    return MCP_OK;
}

static enum mcp_status read_unknown(const struct reader *r, struct mcp_json *model,
                                    struct mcp_error *err)
{
    const char *text = NULL;
    MCP_TRY(mcp_json_maybe_bool(model, "fuse_unk", &r->out->fuse_unknown, err));
    MCP_TRY(mcp_json_maybe_bool(model, "byte_fallback", &r->out->byte_fallback, err));
    MCP_TRY(mcp_json_maybe_string(model, "unk_token", &text, err));
    r->out->unknown = text != NULL ? mcp_token_find(r->out, text, strlen(text)) : -1;
    if (r->out->byte_level || r->out->byte_fallback)
        return find_bytes(r, model, err);
    if (r->out->unknown < 0)
        return mcp_json_fail(model, err,
                             "neither byte_fallback nor an unk_token: characters that "
                             "the vocabulary lacks would vanish");
    return MCP_OK;
}

static enum mcp_status read_model(const struct reader *r, struct mcp_json *root,
                                  struct mcp_error *err)
{
    struct mcp_json *model, *vocab, *merges;
    const char *type = "BPE";
    MCP_TRY(mcp_json_object(root, "model", &model, err));
    MCP_TRY(mcp_json_maybe_string(model, "type", &type, err));
    if (!mcp_same(type, "BPE"))
        return mcp_json_fail(model, err, "type \"%.40s\", only \"BPE\" is understood", type);
    if (mcp_json_has(model, "dropout"))
        return mcp_json_fail(model, err, "dropout of merges is not understood, take it out");
    MCP_TRY(refuse_text(model, "continuing_subword_prefix", err));
    MCP_TRY(refuse_text(model, "end_of_word_suffix", err));
    MCP_TRY(mcp_json_maybe_bool(model, "ignore_merges", &r->out->ignore_merges, err));
    MCP_TRY(mcp_json_object(model, "vocab", &vocab, err));
    MCP_TRY(mcp_json_array(model, "merges", &merges, err));
    MCP_TRY(measure_vocab(r, vocab, err));
    r->out->ids = mcp_number_map_new(r->arena, mcp_json_count(vocab) + (size_t)r->out->num_added);
    r->out->tokens = MCP_ARRAY(r->arena, r->out->vocab_size, struct mcp_token_text);
    MCP_TRY(add_vocab(r, vocab, err));
    MCP_TRY(read_unknown(r, model, err));
    if (!r->out->byte_level)
        note_neighbours(r);
    return read_merges(r, merges, err);
}

/* --- added tokens --- */

static int compare_lengths(const void *a, const void *b)
{
    const struct mcp_added_token *x = a, *y = b;
    if (x->length != y->length)
        return x->length > y->length ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static enum mcp_status refuse_flag(struct mcp_json *token, const char *key, const char *text,
                                   struct mcp_error *err)
{
    bool is_set = false;
    MCP_TRY(mcp_json_maybe_bool(token, key, &is_set, err));
    if (is_set)
        return mcp_json_fail(token, err, "%s of \"%.80s\" is not understood", key, text);
    return MCP_OK;
}

static enum mcp_status read_added_token(struct mcp_json *json, struct mcp_added_token *out,
                                        struct mcp_error *err)
{
    MCP_TRY(mcp_json_string(json, "content", &out->text, err));
    MCP_TRY(mcp_json_int(json, "id", &out->id, err));
    MCP_TRY(check_id(json, out->id, err));
    MCP_TRY(refuse_flag(json, "single_word", out->text, err));
    MCP_TRY(refuse_flag(json, "lstrip", out->text, err));
    MCP_TRY(refuse_flag(json, "rstrip", out->text, err));
    out->length = strlen(out->text);
    if (out->length == 0)
        return mcp_json_fail(json, err, "an added token without text");
    return MCP_OK;
}

static enum mcp_status read_added(const struct reader *r, struct mcp_json *root,
                                  struct mcp_error *err)
{
    struct mcp_json *list;
    if (!mcp_json_has(root, "added_tokens"))
        return MCP_OK;
    MCP_TRY(mcp_json_array(root, "added_tokens", &list, err));
    const size_t count = mcp_json_count(list);
    r->out->added = MCP_ARRAY(r->arena, count, struct mcp_added_token);
    for (size_t i = 0; i < count; i++) {
        struct mcp_added_token *added = &r->out->added[i];
        struct mcp_json *json = mcp_json_at(list, i);
        MCP_TRY(read_added_token(json, added, err));
        /* It would be looked for as the normaliser writes it. */
        if (r->out->prepend == MCP_PREPEND_ALWAYS)
            MCP_TRY(refuse_flag(json, "normalized", added->text, err));
        r->out->begins_added[(unsigned char)added->text[0]] = true;
    }
    r->out->num_added = (int)count;
    qsort(r->out->added, count, sizeof *r->out->added, compare_lengths);
    return MCP_OK;
}

/* --- normaliser and words --- */

static enum mcp_status read_type(struct mcp_json *json, const char **type, struct mcp_error *err)
{
    return mcp_json_string(json, "type", type, err);
}

static enum mcp_status fail_type(struct mcp_json *json, const char *type, struct mcp_error *err)
{
    return mcp_json_fail(json, err,
                         "\"%.40s\" as it is set up here is not understood: GPT-2's, Llama's and "
                         "Qwen 2's tokenizers are",
                         type);
}

/* Prepend U+2581, or write spaces so. */
static enum mcp_status read_normalizer_step(const struct reader *r, struct mcp_json *json,
                                            struct mcp_error *err)
{
    const char *type, *text = "", *wanted = "";
    struct mcp_json *pattern;
    MCP_TRY(read_type(json, &type, err));
    if (mcp_same(type, "Prepend")) {
        MCP_TRY(mcp_json_string(json, "prepend", &text, err));
        r->out->prepend = MCP_PREPEND_ALWAYS;
        return mcp_same(text, MCP_SPACE_MARK) ? MCP_OK : fail_type(json, type, err);
    }
    if (!mcp_same(type, "Replace"))
        return fail_type(json, type, err);
    MCP_TRY(mcp_json_object(json, "pattern", &pattern, err));
    MCP_TRY(mcp_json_maybe_string(pattern, "String", &wanted, err));
    MCP_TRY(mcp_json_string(json, "content", &text, err));
    r->out->marks_spaces = true;
    const bool is_mark = mcp_same(wanted, " ") && mcp_same(text, MCP_SPACE_MARK);
    return is_mark ? MCP_OK : fail_type(json, type, err);
}

/* An object of a tokenizer.json that is one step, or a Sequence of them under `list_key`. */
static enum mcp_status
read_steps(const struct reader *r, struct mcp_json *json, const char *list_key,
           enum mcp_status (*read_step)(const struct reader *r, struct mcp_json *json,
                                        struct mcp_error *err),
           struct mcp_error *err)
{
    struct mcp_json *list;
    const char *type;
    MCP_TRY(read_type(json, &type, err));
    if (!mcp_same(type, "Sequence"))
        return read_step(r, json, err);
    MCP_TRY(mcp_json_array(json, list_key, &list, err));
    for (size_t i = 0; i < mcp_json_count(list); i++)
        MCP_TRY(read_step(r, mcp_json_at(list, i), err));
    return MCP_OK;
}

static enum mcp_status read_normalizer(const struct reader *r, struct mcp_json *root,
                                       struct mcp_error *err)
{
    struct mcp_json *json;
    if (!mcp_json_has(root, "normalizer"))
        return MCP_OK;
    MCP_TRY(mcp_json_object(root, "normalizer", &json, err));
    return read_steps(r, json, "normalizers", read_normalizer_step, err);
}

static enum mcp_status read_metaspace(const struct reader *r, struct mcp_json *json,
                                      struct mcp_error *err)
{
    const char *mark = MCP_SPACE_MARK, *scheme = "always";
    bool prefixes = true, splits = true;
    MCP_TRY(mcp_json_maybe_string(json, "replacement", &mark, err));
    MCP_TRY(mcp_json_maybe_string(json, "prepend_scheme", &scheme, err));
    MCP_TRY(mcp_json_maybe_bool(json, "add_prefix_space", &prefixes, err));
    MCP_TRY(mcp_json_maybe_bool(json, "split", &splits, err));
    r->out->marks_spaces = true;
    r->out->pattern = splits ? MCP_WORDS_MARKED : MCP_WORDS_NONE;
    if (!prefixes || mcp_same(scheme, "never"))
        r->out->prepend = MCP_PREPEND_NEVER;
    else
        r->out->prepend = mcp_same(scheme, "first") ? MCP_PREPEND_FIRST : MCP_PREPEND_UNLESS_MARKED;
    return mcp_same(mark, MCP_SPACE_MARK) ? MCP_OK : fail_type(json, "Metaspace", err);
}

static enum mcp_status read_split(const struct reader *r, struct mcp_json *json,
                                  struct mcp_error *err)
{
    struct mcp_json *pattern;
    const char *behavior, *expression = "";
    bool inverts = false;
    MCP_TRY(mcp_json_object(json, "pattern", &pattern, err));
    MCP_TRY(mcp_json_maybe_string(pattern, "Regex", &expression, err));
    MCP_TRY(mcp_json_string(json, "behavior", &behavior, err));
    MCP_TRY(mcp_json_maybe_bool(json, "invert", &inverts, err));
    for (int i = 0; i < MCP_NUM_WORD_PATTERNS; i++)
        if (mcp_same(expression, mcp_word_expressions[i]) && mcp_same(behavior, "Isolated") &&
            !inverts) {
            r->out->pattern = (enum mcp_word_pattern)i;
            return MCP_OK;
        }
    return fail_type(json, "Split", err);
}

static enum mcp_status read_byte_level(const struct reader *r, struct mcp_json *json,
                                       struct mcp_error *err)
{
    bool prefixes = true, splits = true;
    MCP_TRY(mcp_json_maybe_bool(json, "add_prefix_space", &prefixes, err));
    MCP_TRY(mcp_json_maybe_bool(json, "use_regex", &splits, err));
    if (prefixes || splits != (r->out->pattern == MCP_WORDS_NONE))
        return fail_type(json, "ByteLevel", err);
    r->out->byte_level = true;
    r->out->pattern = splits ? MCP_WORDS_GPT2 : r->out->pattern;
    return MCP_OK;
}

static enum mcp_status read_words_step(const struct reader *r, struct mcp_json *json,
                                       struct mcp_error *err)
{
    const char *type;
    MCP_TRY(read_type(json, &type, err));
    if (mcp_same(type, "ByteLevel"))
        return read_byte_level(r, json, err);
    if (mcp_same(type, "Split") && r->out->pattern == MCP_WORDS_NONE)
        return read_split(r, json, err);
    if (mcp_same(type, "Metaspace") && r->out->prepend == MCP_PREPEND_NEVER)
        return read_metaspace(r, json, err);
    return fail_type(json, type, err);
}

/* Either bytes or characters: marked spaces and ByteLevel exclude each other. */
static enum mcp_status read_words(const struct reader *r, struct mcp_json *root,
                                  struct mcp_error *err)
{
    struct mcp_json *json;
    const char *type;
    if (!mcp_json_has(root, "pre_tokenizer"))
        return MCP_OK;
    MCP_TRY(mcp_json_object(root, "pre_tokenizer", &json, err));
    MCP_TRY(read_type(json, &type, err));
    MCP_TRY(read_steps(r, json, "pretokenizers", read_words_step, err));
    const bool splits_by_expression = r->out->pattern > MCP_WORDS_MARKED;
    if (r->out->byte_level != splits_by_expression || (r->out->byte_level && r->out->marks_spaces))
        return fail_type(json, type, err);
    return MCP_OK;
}

/* --- what is put around a document --- */

static enum mcp_status add_special(const struct reader *r, struct mcp_json *template,
                                   struct mcp_json *special, bool is_after, struct mcp_error *err)
{
    struct mcp_json *tokens, *token, *ids;
    const char *name;
    MCP_TRY(mcp_json_string(special, "id", &name, err));
    MCP_TRY(mcp_json_object(template, "special_tokens", &tokens, err));
    MCP_TRY(mcp_json_object(tokens, name, &token, err));
    MCP_TRY(mcp_json_array(token, "ids", &ids, err));
    int *count = is_after ? &r->out->num_after : &r->out->num_before;
    int32_t *list = is_after ? r->out->after : r->out->before;
    for (size_t i = 0; i < mcp_json_count(ids); i++) {
        int id;
        MCP_TRY(mcp_json_as_int(mcp_json_at(ids, i), &id, err));
        if (*count == MCP_MAX_AROUND || id >= r->out->vocab_size)
            return mcp_json_fail(ids, err,
                                 "more than %d special tokens, or one beyond the "
                                 "vocabulary's %d",
                                 MCP_MAX_AROUND, r->out->vocab_size);
        list[(*count)++] = id;
    }
    return MCP_OK;
}

static enum mcp_status read_template(const struct reader *r, struct mcp_json *json,
                                     struct mcp_error *err)
{
    struct mcp_json *single, *special;
    bool is_after = false;
    MCP_TRY(mcp_json_array(json, "single", &single, err));
    for (size_t i = 0; i < mcp_json_count(single); i++) {
        struct mcp_json *piece = mcp_json_at(single, i);
        if (!mcp_json_has(piece, "SpecialToken")) {
            is_after = true;
            continue;
        }
        MCP_TRY(mcp_json_object(piece, "SpecialToken", &special, err));
        MCP_TRY(add_special(r, json, special, is_after, err));
    }
    return MCP_OK;
}

static enum mcp_status read_around_step(const struct reader *r, struct mcp_json *json,
                                        struct mcp_error *err)
{
    const char *type;
    MCP_TRY(read_type(json, &type, err));
    if (mcp_same(type, "ByteLevel")) /* it moves offsets only */
        return MCP_OK;
    return mcp_same(type, "TemplateProcessing") ? read_template(r, json, err)
                                                : fail_type(json, type, err);
}

static enum mcp_status read_around(const struct reader *r, struct mcp_json *root,
                                   struct mcp_error *err)
{
    struct mcp_json *json;
    if (!mcp_json_has(root, "post_processor"))
        return MCP_OK;
    MCP_TRY(mcp_json_object(root, "post_processor", &json, err));
    return read_steps(r, json, "processors", read_around_step, err);
}

enum mcp_status mcp_tokenizer_read(struct mcp_arena *arena, const char *path,
                                   struct mcp_tokenizer *out, struct mcp_error *err)
{
    const struct reader reader = {arena, out};
    struct mcp_json *root;
    out->vocab_size = 0;
    MCP_TRY(mcp_json_read(arena, path, &root, err));
    MCP_TRY(read_normalizer(&reader, root, err));
    MCP_TRY(read_words(&reader, root, err));
    MCP_TRY(read_added(&reader, root, err));
    MCP_TRY(read_model(&reader, root, err));
    return read_around(&reader, root, err);
}
