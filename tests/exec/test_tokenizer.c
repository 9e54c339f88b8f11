/* tests/exec/test_tokenizer.c: ids equal those of Hugging Face's tokenizers
 * (tests/golden/make_tokenizers.py), and what is not understood is refused. */
#include "core/json.h"
#include "core/text.h"
#include "exec/tokenizer.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ids {
    struct mcp_arena *arena;
    int32_t *values;
    size_t count, capacity;
};

static enum mcp_status take(void *context, const int32_t *values, size_t count,
                            struct mcp_error *err)
{
    struct ids *ids = context;
    (void)err;
    for (size_t i = 0; i < count; i++) {
        ids->values = mcp_grow(ids->arena, ids->values, ids->count, &ids->capacity, sizeof *values);
        ids->values[ids->count++] = values[i];
    }
    return MCP_OK;
}

static enum mcp_status encode(struct mcp_arena *arena, const struct mcp_tokenizer *tokenizer,
                              const char *text, size_t length, struct ids *out,
                              struct mcp_error *err)
{
    *out = (struct ids){.arena = arena};
    const struct mcp_token_sink sink = {take, out};
    return mcp_tokenizer_encode(tokenizer, "text", text, length, &sink, err);
}

static const char *shown(struct mcp_arena *arena, const struct ids *ids)
{
    struct mcp_text text = mcp_text_new(arena);
    for (size_t i = 0; i < ids->count; i++)
        mcp_text_add(&text, " %d", ids->values[i]);
    return text.data;
}

static void expect_row(struct mcp_arena *arena, const struct mcp_tokenizer *tokenizer,
                       struct mcp_json *row)
{
    struct mcp_error err = {0};
    struct mcp_json *list;
    struct ids got, want = {.arena = arena};
    const char *text = NULL;
    cr_assert(eq(int, mcp_json_string(row, "text", &text, &err), MCP_OK), "%s", err.text);
    cr_assert(eq(int, mcp_json_array(row, "ids", &list, &err), MCP_OK), "%s", err.text);
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        int id = -1;
        cr_assert(eq(int, mcp_json_as_int(mcp_json_at(list, i), &id, &err), MCP_OK));
        take(&want, &(int32_t){id}, 1, &err);
    }
    cr_assert(eq(int, encode(arena, tokenizer, text, strlen(text), &got, &err), MCP_OK), "%s",
              err.text);
    cr_expect(mcp_same(shown(arena, &got), shown(arena, &want)), "%s\n got %s\nwant %s", text,
              shown(arena, &got), shown(arena, &want));
}

struct case_golden {
    char name[16];
    int vocab_size, end_of_document;
};
ParameterizedTestParameters(tokenizer, golden)
{
    static struct case_golden cases[] = {
        {"gpt2", 703, 700}, {"llama3", 704, 700}, {"qwen2", 704, 700},
        {"llama2", 901, 2}, {"mistral", 901, 2},  {"metaspace", 901, 2},
    };
    return cr_make_param_array(struct case_golden, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_golden *c, tokenizer, golden)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_tokenizer *tokenizer;
    struct mcp_error err = {0};
    struct mcp_json *rows;
    const char *base = mcp_format(arena, "tests/golden/tokenizers/%s", c->name);
    cr_assert(eq(int,
                 mcp_tokenizer_load(arena, mcp_format(arena, "%s.json", base), &tokenizer, &err),
                 MCP_OK),
              "%s", err.text);
    cr_expect(eq(int, mcp_tokenizer_vocab_size(tokenizer), c->vocab_size));
    cr_expect(eq(int, mcp_tokenizer_end_of_document(tokenizer), c->end_of_document));
    cr_assert(
        eq(int, mcp_json_read(arena, mcp_format(arena, "%s.ids.json", base), &rows, &err), MCP_OK),
        "%s", err.text);
    cr_assert(mcp_json_count(rows) > 30);
    for (size_t i = 0; i < mcp_json_count(rows); i++)
        expect_row(arena, tokenizer, mcp_json_at(rows, i));
    mcp_arena_free(arena);
}

/* One long word: the ids do not depend on how output is cut. */
Test(tokenizer, long_words)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_tokenizer *tokenizer;
    struct mcp_error err = {0};
    struct ids ids;
    const size_t length = 100000;
    char *text = MCP_ARRAY(arena, length, char);
    memset(text, 'a', length);
    cr_assert(eq(int,
                 mcp_tokenizer_load(arena, "tests/golden/tokenizers/gpt2.json", &tokenizer, &err),
                 MCP_OK),
              "%s", err.text);
    const int a = mcp_tokenizer_id(tokenizer, "a");
    cr_assert(eq(int, encode(arena, tokenizer, text, length, &ids, &err), MCP_OK));
    cr_expect(eq(sz, ids.count, length));
    for (size_t i = 0; i < ids.count; i++)
        cr_assert(eq(int, ids.values[i], a));
    mcp_arena_free(arena);
}

Test(tokenizer, plain_bytes)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_tokenizer *tokenizer;
    struct mcp_error err = {0};
    struct ids ids;
    cr_assert(eq(int, mcp_tokenizer_load(arena, "bytes", &tokenizer, &err), MCP_OK));
    cr_assert(eq(int, encode(arena, tokenizer, "a\0\xff", 3, &ids, &err), MCP_OK));
    cr_expect(mcp_same(shown(arena, &ids), " 97 0 255"));
    cr_expect(eq(int, mcp_tokenizer_vocab_size(tokenizer), 257));
    cr_expect(eq(int, mcp_tokenizer_end_of_document(tokenizer), 256));
    cr_expect(eq(int, mcp_tokenizer_id(tokenizer, "a"), -1));
    mcp_arena_free(arena);
}

Test(tokenizer, text_that_is_not_utf8)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_tokenizer *tokenizer;
    struct mcp_error err = {0};
    struct ids ids;
    cr_assert(eq(int,
                 mcp_tokenizer_load(arena, "tests/golden/tokenizers/gpt2.json", &tokenizer, &err),
                 MCP_OK));
    cr_expect(eq(int, encode(arena, tokenizer, "ab\xffz", 4, &ids, &err), MCP_FORMAT));
    cr_expect(ne(ptr, strstr(err.text, "text: byte 2 is 0xff"), NULL), "%s", err.text);
    mcp_arena_free(arena);
}

struct case_refused {
    char file[420];
    char says[56];
};
#define MODEL                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\"b\":2,"          \
    "\"ab\":3},\"merges\":[\"a b\"]}"
#define SPLIT(behavior, expression)                                                                \
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{" expression "},\"behavior\":\"" behavior  \
    "\",\"invert\":false},"
ParameterizedTestParameters(tokenizer, refused)
{
    static struct case_refused cases[] = {
        {"{" MODEL "}", ""},
        {"{}", "model"},
        {"{\"model\":{\"type\":\"Unigram\"}}", "\"Unigram\", only \"BPE\""},
        {"{\"model\":{\"dropout\":0.1,\"vocab\":{},\"merges\":[]}}", "dropout"},
        {"{\"model\":{\"end_of_word_suffix\":\"</w>\",\"vocab\":{},\"merges\":[]}}",
         "end_of_word_suffix"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", "would vanish"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"byte_fallback\":true,\"merges\":[]}}", "byte 0x00"},
        {"{\"model\":{\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"b\":0},\"merges\":[]}}",
         "id 0 belongs"},
        {"{\"model\":{\"unk_token\":\"u\",\"vocab\":{\"u\":16777216},\"merges\":[]}}", "less than"},
        {"{\"model\":{\"unk_token\":\"u\",\"vocab\":{\"u\":-1},\"merges\":[]}}", "an integer"},
        {"{\"model\":{\"unk_token\":\"u\",\"vocab\":{\"u\":0},\"merges\":[\"u u\"]}}",
         "\"uu\" is not in"},
        {"{\"model\":{\"unk_token\":\"u\",\"vocab\":{\"u\":0},\"merges\":[\"uu\"]}}",
         "two tokens with a space"},
        {"{\"model\":{\"unk_token\":\"u\",\"vocab\":{\"u\":0},\"merges\":[[\"u\"]]}}",
         "two tokens"},
        {"{\"normalizer\":{\"type\":\"NFC\"}," MODEL "}", "\"NFC\" as it is set up"},
        {"{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"x\"}," MODEL "}", "Prepend"},
        {"{\"pre_tokenizer\":{\"type\":\"Whitespace\"}," MODEL "}", "Whitespace"},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true}," MODEL "}",
         "ByteLevel"},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}," MODEL "}",
         "byte 0x00"},
        {"{" SPLIT("Isolated", "\"Regex\":\"x+\"") MODEL "}", "Split"},
        {"{" SPLIT("Removed", "\"String\":\"x\"") MODEL "}", "Split"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}," MODEL "}",
         "Metaspace"},
        {"{\"post_processor\":{\"type\":\"BertProcessing\"}," MODEL "}", "BertProcessing"},
        {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
         "\"id\":\"s\"}}],\"special_tokens\":{\"s\":{\"ids\":[4]}}}," MODEL "}",
         "beyond the vocabulary's 4"},
        {"{\"added_tokens\":[{\"id\":1,\"content\":\"\"}]," MODEL "}", "without text"},
        {"{\"added_tokens\":[{\"id\":1,\"content\":\"m\",\"lstrip\":true}]," MODEL "}",
         "lstrip of \"m\""},
        {"{\"added_tokens\":[{\"id\":1,\"content\":\"m\",\"normalized\":true}],\"normalizer\":{"
         "\"type\":\"Prepend\",\"prepend\":\"\u2581\"}," MODEL "}",
         "normalized of \"m\""},
    };
    return cr_make_param_array(struct case_refused, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_refused *c, tokenizer, refused)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_tokenizer *tokenizer;
    struct mcp_error err = {0};
    char path[] = "/tmp/mcp-test-tokenizer-XXXXXX";
    const int file = mkstemp(path);
    cr_assert(file >= 0);
    cr_assert(eq(int, mcp_file_replace(path, c->file, strlen(c->file), &err), MCP_OK));
    const enum mcp_status status = mcp_tokenizer_load(arena, path, &tokenizer, &err);
    cr_expect(eq(int, status, c->says[0] == '\0' ? MCP_OK : MCP_FORMAT), "%s: %s", c->file,
              err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->file, err.text);
    close(file);
    unlink(path);
    mcp_arena_free(arena);
}
