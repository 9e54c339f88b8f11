/* tests/exec/test_data.c: token files, the order of sequences, reading ahead. */
#include "core/text.h"
#include "exec/data.h"
#include "exec/feed.h"
#include "exec/tokens.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct mcp_arena *arena;
static char folder[64];

static void set_up(void)
{
    arena = mcp_arena_new();
    snprintf(folder, sizeof folder, "/tmp/mcp-test-data-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(folder), NULL));
}

static void tear_down(void)
{
    const char *command = mcp_format(arena, "rm -r %s", folder);
    cr_expect(eq(int, system(command), 0));
    mcp_arena_free(arena);
}

/* A new file, as the old one may be mapped; without syncing, as there are many. */
static void put_file(const char *name, const char *data, size_t length)
{
    unlink(name);
    FILE *file = fopen(name, "wb");
    cr_assert(ne(ptr, file, NULL));
    cr_assert(eq(sz, fwrite(data, 1, length, file), length));
    cr_assert(eq(int, fclose(file), 0));
}

static const char *in_folder(const char *name)
{
    return mcp_format(arena, "%s/%s", folder, name);
}

/* A file of the ids first, first + 1 ... */
static const char *write_tokens(const char *name, int first, int count, int vocab_size)
{
    struct mcp_token_writer *writer;
    struct mcp_error err = {0};
    const struct mcp_token_facts facts = {.vocab_size = vocab_size, .end_of_document = -1};
    cr_assert(
        eq(int, mcp_token_writer_open(arena, in_folder(name), 0, &facts, &writer, &err), MCP_OK),
        "%s", err.text);
    for (int i = 0; i < count; i++)
        cr_assert(eq(int, mcp_token_writer_add(writer, &(int32_t){first + i}, 1, &err), MCP_OK));
    cr_assert(eq(int, mcp_token_writer_finish(writer, NULL, NULL, &err), MCP_OK), "%s", err.text);
    return in_folder(name);
}

struct case_tokens {
    int vocab_size, token_bytes, end_of_document;
    int64_t shard_tokens;
    int files, tokens;
};
ParameterizedTestParameters(data, token_files)
{
    static struct case_tokens cases[] = {
        {257, 2, 256, 0, 1, 8},  {65536, 2, -1, 0, 1, 7}, {65537, 4, 65536, 0, 1, 8},
        {100000, 4, 7, 3, 3, 8}, {300, 2, -1, 7, 1, 7},   {300, 2, 299, 4, 2, 8},
    };
    return cr_make_param_array(struct case_tokens, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_tokens *c, data, token_files, .init = set_up, .fini = tear_down)
{
    const int32_t ids[] = {5, 6, 0, 200, 7, 8, 9};
    struct mcp_token_facts total,
        facts = {.vocab_size = c->vocab_size, .end_of_document = c->end_of_document};
    struct mcp_token_writer *writer;
    struct mcp_error err = {0};
    int files = 0, at = 0;
    const char *path = in_folder("t");
    cr_assert(
        eq(int, mcp_token_writer_open(arena, path, c->shard_tokens, &facts, &writer, &err), MCP_OK),
        "%s", err.text);
    cr_assert(eq(int, mcp_token_writer_add(writer, ids, 4, &err), MCP_OK));
    cr_assert(eq(int, mcp_token_writer_end_document(writer, &err), MCP_OK));
    cr_assert(eq(int, mcp_token_writer_add(writer, ids + 4, 3, &err), MCP_OK));
    if (c->end_of_document >= 0 && c->end_of_document != 7) /* ends with it by itself */
        cr_assert(eq(int, mcp_token_writer_add(writer, &c->end_of_document, 1, &err), MCP_OK));
    cr_assert(eq(int, mcp_token_writer_finish(writer, &total, &files, &err), MCP_OK));
    const int ends = c->end_of_document < 0 ? 0 : c->end_of_document == 7 ? 1 : 2;
    cr_expect(
        eq(int, files,
           (int)(c->shard_tokens > 0 ? (7 + ends + c->shard_tokens - 1) / c->shard_tokens : 1)));
    cr_expect(eq(i64, total.num_tokens, 7 + ends));
    cr_expect(eq(i64, total.num_documents, 1));
    for (int i = 0; i < files; i++) {
        struct mcp_token_file file;
        int32_t read[16];
        const char *name =
            c->shard_tokens > 0 ? mcp_format(arena, "%s/%05d.tokens", path, i) : path;
        cr_assert(eq(int, mcp_token_file_open(arena, name, &file, &err), MCP_OK), "%s", err.text);
        cr_expect(eq(int, file.facts.token_bytes, c->token_bytes));
        cr_expect(eq(int, file.facts.end_of_document, c->end_of_document));
        cr_assert(
            eq(int, mcp_token_file_copy(&file, 0, file.facts.num_tokens, c->vocab_size, read, &err),
               MCP_OK));
        for (int k = 0; k < file.facts.num_tokens; k++, at++) {
            const int gap = ends > 0; /* after the fourth id */
            const int want = at < 4           ? ids[at]
                             : gap && at == 4 ? c->end_of_document
                             : at - gap < 7   ? ids[at - gap]
                                              : c->end_of_document;
            cr_expect(eq(int, read[k], want), "token %d", at);
        }
    }
    cr_expect(eq(int, at, 7 + ends));
}

Test(data, damaged_token_files, .init = set_up, .fini = tear_down)
{
    const char *path = write_tokens("t", 0, 100, 300), *bad = in_folder("bad");
    struct mcp_text whole;
    struct mcp_token_file file;
    struct mcp_error err = {0};
    int32_t ids[100];
    cr_assert(eq(int, mcp_file_read(arena, path, 1 << 20, &whole, &err), MCP_OK));
    cr_assert(eq(sz, whole.length, (size_t)264));
    for (size_t length = 0; length < whole.length; length++) {
        put_file(bad, whole.data, length);
        cr_expect(eq(int, mcp_token_file_open(arena, bad, &file, &err), MCP_FORMAT), "%zu", length);
    }
    for (size_t at = whole.length - 64; at < whole.length; at++) {
        whole.data[at] ^= 4;
        put_file(bad, whole.data, whole.length);
        cr_expect(eq(int, mcp_token_file_open(arena, bad, &file, &err), MCP_FORMAT), "%zu", at);
        whole.data[at] ^= 4;
    }
    whole.data[3] = 1; /* an id of 256 + 1 in a vocabulary that has it, and in one that has not */
    put_file(bad, whole.data, whole.length);
    cr_assert(eq(int, mcp_token_file_open(arena, bad, &file, &err), MCP_OK));
    cr_expect(eq(int, mcp_token_file_copy(&file, 0, 100, 258, ids, &err), MCP_OK));
    cr_expect(eq(int, mcp_token_file_copy(&file, 0, 100, 257, ids, &err), MCP_FORMAT));
    cr_expect(ne(ptr, strstr(err.text, "token 1 has the id 257"), NULL), "%s", err.text);
}

Test(data, permutations)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 4097};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct mcp_arena *scratch = mcp_arena_new();
        const int64_t n = sizes[i];
        int64_t moved = 0, differ = 0;
        bool *seen = MCP_ARRAY(scratch, n, bool);
        for (int64_t x = 0; x < n; x++) {
            const int64_t y = mcp_permute(42, n, x);
            cr_assert(y >= 0 && y < n && !seen[y], "%d of %d", (int)x, (int)n);
            seen[y] = true;
            moved += y != x;
            differ += y != mcp_permute(43, n, x);
        }
        cr_expect(n < 1000 || (moved > n * 9 / 10 && differ > n * 9 / 10), "n = %d", (int)n);
        mcp_arena_free(scratch);
    }
    cr_expect(lt(i64, mcp_permute(1, INT64_MAX, INT64_MAX - 1), INT64_MAX));
}

/* Two files of 4 and 3 sequences of 5 tokens with leftovers, and one of none. */
static const struct mcp_data *open_data(bool in_order, uint64_t seed)
{
    const char *paths[] = {write_tokens("a", 0, 24, 1000), write_tokens("b", 100, 3, 1000),
                           write_tokens("c", 200, 16, 1000)};
    const struct mcp_data_options options = {5, 1000, seed, in_order};
    const struct mcp_data *data;
    struct mcp_error err = {0};
    cr_assert(eq(int, mcp_data_open(arena, paths, 3, &options, &data, &err), MCP_OK), "%s",
              err.text);
    cr_expect(eq(i64, mcp_data_sequences(data), 7));
    return data;
}

Test(data, in_order, .init = set_up, .fini = tear_down)
{
    const int starts[] = {0, 5, 10, 15, 200, 205, 210};
    const struct mcp_data *data = open_data(true, 0);
    struct mcp_error err = {0};
    for (int position = 0; position < 15; position++) {
        int32_t ids[6];
        cr_assert(eq(int, mcp_data_sequence(data, position, ids, &err), MCP_OK));
        for (int i = 0; i < 6; i++)
            cr_expect(eq(int, ids[i], starts[position % 7] + i), "position %d", position);
    }
}

Test(data, each_once_an_epoch, .init = set_up, .fini = tear_down)
{
    const struct mcp_data *data = open_data(false, 7);
    int64_t same_order = 0;
    for (int epoch = 0; epoch < 40; epoch++) {
        unsigned seen = 0, same = 1;
        for (int i = 0; i < 7; i++) {
            const int64_t place = mcp_data_place(data, epoch * 7 + i);
            seen |= 1u << place;
            same &= place == mcp_data_place(data, i);
        }
        cr_expect(eq(int, (int)seen, 0x7f), "epoch %d", epoch);
        same_order += same;
    }
    cr_expect(lt(i64, same_order, 4)); /* the first, and chance */
}

Test(data, feed_gives_what_data_holds, .init = set_up, .fini = tear_down)
{
    const struct mcp_data *data = open_data(false, 3);
    const int64_t indices[] = {4, 1};
    const int64_t firsts[] = {0, 6, 12, 600, 606, 0}; /* on, and twice elsewhere */
    struct mcp_arena *own = mcp_arena_new();
    struct mcp_feed *feed;
    struct mcp_error err = {0};
    double wait_s = 0;
    cr_assert(
        eq(int, mcp_feed_open(own, data, &(struct mcp_feed_options){5, 6, indices, 2}, &feed, &err),
           MCP_OK));
    for (size_t k = 0; k < sizeof firsts / sizeof *firsts; k++) {
        cr_assert(eq(int, mcp_feed_step(feed, firsts[k], &wait_s, &err), MCP_OK));
        for (int i = 0; i < 2; i++) {
            int32_t want[6];
            cr_assert(eq(int, mcp_data_sequence(data, firsts[k] + indices[i], want, &err), MCP_OK));
            const int32_t *got = mcp_feed_sequence(feed, indices[i]);
            cr_assert(ne(ptr, (void *)got, NULL));
            cr_expect(eq(int, memcmp(got, want, sizeof want), 0), "step %zu", k);
        }
    }
    cr_expect(wait_s > 0);
    cr_expect(eq(ptr, (void *)mcp_feed_sequence(feed, 0), NULL));
    cr_expect(eq(ptr, (void *)mcp_feed_sequence(feed, 6), NULL));
    cr_expect(eq(ptr, (void *)mcp_feed_sequence(feed, -1), NULL));
    mcp_arena_free(own);
}

Test(data, feed_says_what_it_cannot_read, .init = set_up, .fini = tear_down)
{
    const char *path = write_tokens("a", 0, 30, 300);
    struct mcp_text whole;
    struct mcp_error err = {0};
    const struct mcp_data *data;
    const struct mcp_data_options options = {5, 300, 0, true};
    const int64_t index = 0;
    struct mcp_feed *feed;
    double wait_s = 0;
    cr_assert(eq(int, mcp_file_read(arena, path, 1 << 20, &whole, &err), MCP_OK));
    whole.data[2 * 12 + 1] = (char)0xff; /* in the third sequence */
    put_file(path, whole.data, whole.length);
    cr_assert(eq(int, mcp_data_open(arena, &path, 1, &options, &data, &err), MCP_OK));
    cr_assert(eq(
        int, mcp_feed_open(arena, data, &(struct mcp_feed_options){5, 1, &index, 1}, &feed, &err),
        MCP_OK));
    cr_expect(eq(int, mcp_feed_step(feed, 0, &wait_s, &err), MCP_OK));
    cr_expect(eq(int, mcp_feed_step(feed, 1, &wait_s, &err), MCP_OK));
    cr_expect(eq(int, mcp_feed_step(feed, 2, &wait_s, &err), MCP_FORMAT));
    cr_expect(ne(ptr, strstr(err.text, "token 12 has the id"), NULL), "%s", err.text);
    cr_expect(eq(int, mcp_feed_step(feed, 3, &wait_s, &err), MCP_OK), "it goes on elsewhere");
}

/* Files of a folder are there all or none, and none beside others. */
Test(data, folders_are_whole, .init = set_up, .fini = tear_down)
{
    const struct mcp_token_facts facts = {.vocab_size = 300, .end_of_document = -1};
    const struct mcp_data_options options = {1, 300, 0, true};
    struct mcp_token_writer *writer;
    const struct mcp_data *data;
    struct mcp_error err = {0};
    const char *path = in_folder("shards");
    for (int finished = 0; finished < 2; finished++) {
        struct mcp_arena *own = mcp_arena_new();
        cr_assert(eq(int, mcp_token_writer_open(own, path, 3, &facts, &writer, &err), MCP_OK));
        for (int32_t id = 0; id < 8; id++)
            cr_assert(eq(int, mcp_token_writer_add(writer, &id, 1, &err), MCP_OK));
        cr_expect(eq(int, mcp_data_open(own, &path, 1, &options, &data, &err), MCP_IO));
        if (finished)
            cr_assert(eq(int, mcp_token_writer_finish(writer, NULL, NULL, &err), MCP_OK));
        mcp_arena_free(own);
        cr_expect(eq(int, access(path, F_OK) == 0, finished));
    }
    cr_assert(eq(int, mcp_data_open(arena, &path, 1, &options, &data, &err), MCP_OK));
    cr_expect(eq(i64, mcp_data_sequences(data), 5));
    cr_expect(eq(int, mcp_token_writer_open(arena, path, 3, &facts, &writer, &err), MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, ".tokens already"), NULL), "%s", err.text);
    write_tokens("shards/more.tokens", 0, 6, 299);
    cr_expect(eq(int, mcp_data_open(arena, &path, 1, &options, &data, &err), MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, "vocabulary of 299, the files before it of 300"), NULL),
              "%s", err.text);
}

struct case_refused {
    int64_t sequence_length;
    int vocab_size;
    char path[8];
    enum mcp_status status;
    char says[40];
};
ParameterizedTestParameters(data, refused)
{
    static struct case_refused cases[] = {
        {5, 300, "a", MCP_OK, ""},
        {9, 300, "a", MCP_OK, ""},
        {10, 300, "a", MCP_INVALID, "10 tokens hold no sequence of 10"},
        {5, 299, "a", MCP_INVALID, "made for a vocabulary of 300"},
        {5, 300, ".", MCP_IO, "no file named *.tokens"},
        {5, 300, "none", MCP_IO, "No such file"},
    };
    return cr_make_param_array(struct case_refused, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_refused *c, data, refused, .init = set_up, .fini = tear_down)
{
    const struct mcp_data_options options = {c->sequence_length, c->vocab_size, 0, false};
    const struct mcp_data *data;
    struct mcp_error err = {0};
    write_tokens("a", 0, 10, 300);
    const char *path = in_folder(c->path);
    cr_expect(eq(int, mcp_data_open(arena, &path, 1, &options, &data, &err), c->status));
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s", err.text);
}

/* They would be read as if they were of this one. */
Test(data, shards_of_another_run_are_not_joined, .init = set_up, .fini = tear_down)
{
    const struct mcp_token_facts facts = {.vocab_size = 300, .end_of_document = -1};
    struct mcp_token_writer *writer;
    struct mcp_error err = {""};
    const char *path = in_folder("shards");
    const int32_t ids[3] = {1, 2, 3};
    cr_assert(eq(int, mcp_token_writer_open(arena, path, 2, &facts, &writer, &err), MCP_OK));
    cr_assert(eq(int, mcp_token_writer_add(writer, ids, 3, &err), MCP_OK));
    cr_assert(eq(int, mcp_token_writer_finish(writer, NULL, NULL, &err), MCP_OK));
    cr_expect(eq(int, mcp_token_writer_open(arena, path, 2, &facts, &writer, &err), MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, ".tokens already"), NULL), "%s", err.text);
}

Test(data, folders_are_read_by_name, .init = set_up, .fini = tear_down)
{
    const struct mcp_data_options options = {5, 300, 0, true};
    const struct mcp_data *data;
    struct mcp_error err = {0};
    int32_t ids[6];
    const char *path = folder;
    write_tokens("2.tokens", 20, 6, 300);
    write_tokens("1.tokens", 10, 6, 300);
    write_tokens("0.txt", 0, 6, 300);
    cr_assert(eq(int, mcp_data_open(arena, &path, 1, &options, &data, &err), MCP_OK));
    cr_expect(eq(i64, mcp_data_sequences(data), 2));
    cr_assert(eq(int, mcp_data_sequence(data, 0, ids, &err), MCP_OK));
    cr_expect(eq(int, ids[0], 10));
}
