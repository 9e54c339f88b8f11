/* tests/core/test_safetensors.c: tensors in files: what is written is read back, what is
 * not whole is refused. */
#include "core/json.h"
#include "core/safetensors.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct mcp_arena *arena;
static char path[64];

static void set_up(void)
{
    arena = mcp_arena_new();
    snprintf(path, sizeof path, "/tmp/mcp-test-tensors-XXXXXX");
    int file = mkstemp(path);
    cr_assert(file >= 0);
    close(file);
}

static void tear_down(void)
{
    unlink(path);
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

Test(safetensors, round_trip, .init = set_up, .fini = tear_down)
{
    const float numbers[6] = {1, -2, 3.5f, 4, 5, 6};
    const unsigned short half = 0x3f80;
    struct mcp_tensor tensors[] = {
        {.name = "z.half", .dtype = MCP_BF16, .data = &half},
        {.name = "nothing", .dtype = MCP_F32, .num_dims = 2, .shape = {0, 7}, .data = numbers},
        {.name = "a.weight", .dtype = MCP_F32, .num_dims = 2, .shape = {2, 3}, .data = numbers},
    };
    struct mcp_tensor_note notes[] = {{"format", "pt"}, {"said", "\"yes\""}};
    struct mcp_safetensors read, file = {path, 3, tensors, 2, notes};
    struct mcp_file_digest digest;
    struct mcp_file_view view;
    struct mcp_error err = {0};
    cr_assert(eq(int, mcp_safetensors_write(arena, &file, &digest, &err), MCP_OK), "%s", err.text);
    cr_assert(eq(int, mcp_safetensors_read(arena, path, &read, &err), MCP_OK), "%s", err.text);
    cr_assert(eq(int, read.num_tensors, 3));
    const struct mcp_tensor *a = mcp_safetensors_find(&read, "a.weight");
    cr_assert(ne(ptr, (void *)a, NULL));
    cr_expect(eq(int, a->dtype, MCP_F32));
    cr_expect(eq(i64, a->shape[1], 3));
    cr_expect(eq(int, memcmp(a->data, numbers, sizeof numbers), 0));
    cr_expect(eq(i64, mcp_safetensors_find(&read, "z.half")->bytes, 2));
    cr_expect(eq(i64, mcp_safetensors_find(&read, "nothing")->bytes, 0));
    cr_expect(eq(ptr, (void *)mcp_safetensors_find(&read, "b"), NULL));
    cr_expect(mcp_same(mcp_safetensors_note(&read, "said"), "\"yes\""));
    cr_expect(eq(ptr, (void *)mcp_safetensors_note(&read, "unsaid"), NULL));
    cr_assert(eq(int, mcp_file_map(arena, path, &view, &err), MCP_OK));
    cr_expect(eq(u32, mcp_file_digest(&view).crc32c, digest.crc32c));
    for (size_t length = 0; length < view.length; length++) {
        put_file(path, (const char *)view.data, length);
        cr_expect(eq(int, mcp_safetensors_read(arena, path, &read, &err), MCP_FORMAT),
                  "cut to %zu bytes", length);
    }
}

/* Bytes by their place, of a tensor of two and a half megabytes: in what pieces they come. */
struct asked {
    int64_t next, most;
    int index;
};
static enum mcp_status count_up(void *context, int index, int64_t first, int64_t bytes, void *out,
                                struct mcp_error *err)
{
    struct asked *asked = context;
    if (index != asked->index)
        asked->next = 0;
    cr_assert(eq(i64, first, asked->next));
    asked->index = index;
    asked->next = first + bytes;
    asked->most = bytes > asked->most ? bytes : asked->most;
    for (int64_t i = 0; i < bytes; i++)
        ((unsigned char *)out)[i] = (unsigned char)((first + i) % 251 + index);
    return index < 2 ? MCP_OK : mcp_fail(err, MCP_RUN_FAILURE, "no more");
}

Test(safetensors, streams, .init = set_up, .fini = tear_down)
{
    enum { BYTES = 5 << 19 };
    struct mcp_tensor tensors[] = {
        {.name = "a", .dtype = MCP_U8, .num_dims = 1, .shape = {BYTES}},
        {.name = "b", .dtype = MCP_U8, .num_dims = 1, .shape = {7}},
        {.name = "c", .dtype = MCP_U8, .num_dims = 1, .shape = {1}},
    };
    struct mcp_safetensors read, file = {path, 2, tensors, 0, NULL};
    struct asked asked = {0};
    const struct mcp_tensor_source source = {count_up, &asked};
    struct mcp_error err = {0};
    cr_assert(eq(int, mcp_safetensors_stream(arena, &file, &source, NULL, &err), MCP_OK));
    cr_expect(eq(i64, asked.most, 1 << 20));
    cr_assert(eq(int, mcp_safetensors_read(arena, path, &read, &err), MCP_OK), "%s", err.text);
    const unsigned char *a = read.tensors[0].data, *b = read.tensors[1].data;
    int64_t bad = 0;
    for (int64_t i = 0; i < BYTES; i++)
        bad += a[i] != i % 251;
    cr_expect(eq(i64, bad, 0));
    cr_expect(eq(int, b[6], 7));
    file.num_tensors = 3; /* whose last one cannot be had: the file stays as it was */
    cr_expect(eq(int, mcp_safetensors_stream(arena, &file, &source, NULL, &err), MCP_RUN_FAILURE));
    cr_assert(eq(int, mcp_safetensors_read(arena, path, &read, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(int, read.num_tensors, 2));
}

Test(safetensors, two_of_one_name, .init = set_up, .fini = tear_down)
{
    struct mcp_tensor tensors[] = {{.name = "x", .dtype = MCP_U8, .data = "a"},
                                   {.name = "x", .dtype = MCP_U8, .data = "b"}};
    struct mcp_safetensors file = {.path = path, .num_tensors = 2, .tensors = tensors};
    struct mcp_error err = {0};
    cr_expect(eq(int, mcp_safetensors_write(arena, &file, NULL, &err), MCP_INVALID));
    tensors[1] = (struct mcp_tensor){.name = "y", .dtype = MCP_DTYPE_OTHER};
    cr_expect(eq(int, mcp_safetensors_write(arena, &file, NULL, &err), MCP_INVALID));
}

struct case_header {
    char header[200];
    unsigned data_bytes;
    char says[48]; /* "": read */
};
#define TENSOR(dtype, shape, begin, end)                                                           \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
ParameterizedTestParameters(safetensors, headers)
{
    static struct case_header cases[] = {
        {"{}", 0, ""},
        {"{}   ", 0, ""},
        {"{}", 4, "end at byte 0 of 4"},
        {"{\"a\":" TENSOR("F32", "[2]", "0", "8") "}", 8, ""},
        {"{\"a\":" TENSOR("I64", "[1]", "0", "8") "}", 8, ""},
        {"{\"a\":" TENSOR("F32", "[]", "0", "4") "}", 4, ""},
        {"{\"a\":" TENSOR("F32", "[2]", "0", "8") "}", 7, "no range within 7 bytes"},
        {"{\"a\":" TENSOR("F32", "[2]", "0", "8") "}", 9, "end at byte 8 of 9"},
        {"{\"a\":" TENSOR("F32", "[3]", "0", "8") "}", 8, "8 bytes of data for 3 elements"},
        {"{\"a\":" TENSOR("F32", "[2]", "8", "0") "}", 8, "no range"},
        {"{\"a\":" TENSOR("F32", "[-1]", "0", "8") "}", 8, "an integer from 0"},
        {"{\"a\":" TENSOR("F33", "[2]", "0", "8") "}", 8, "\"F33\" is not known"},
        {"{\"a\":" TENSOR("U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, "9 dimensions"},
        {"{\"a\":" TENSOR("U8", "[4294967296,4294967296]", "0", "0") "}", 0, "more elements"},
        {"{\"a\":" TENSOR("F32", "[4611686018427387]", "0", "0") "}", 0, "bytes of data"},
        {"{\"a\":" TENSOR("U8", "[4]", "0", "4") ",\"b\":" TENSOR("U8", "[4]", "2", "6") "}", 6,
         "b: its data begins at byte 2"},
        {"{\"a\":" TENSOR("U8", "[4]", "0", "4") ",\"b\":" TENSOR("U8", "[1]", "5", "6") "}", 6,
         "b: its data begins at byte 5"},
        {"{\"b\":" TENSOR("U8", "[2]", "4", "6") ",\"a\":" TENSOR("U8", "[4]", "0", "4") "}", 6,
         ""},
        {"{\"a\":" TENSOR("U8", "[1]", "0", "1") ",\"a\":" TENSOR("U8", "[1]", "0", "1") "}", 1,
         "duplicate"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "expected [begin"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":0}}", 1, "unknown"},
        {"{\"a\":3}", 0, "a: expected an object"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "expected a string"},
        {"[]", 0, "does not begin with '{'"},
        {" {}", 0, "does not begin with '{'"},
        {"{\"a\":", 0, "line 1"},
    };
    return cr_make_param_array(struct case_header, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_header *c, safetensors, headers, .init = set_up, .fini = tear_down)
{
    struct mcp_text text = mcp_text_new(arena);
    struct mcp_safetensors file;
    struct mcp_error err = {0};
    const uint64_t length = strlen(c->header);
    mcp_text_append(&text, (const char *)&length, sizeof length);
    mcp_text_append(&text, c->header, strlen(c->header));
    for (unsigned i = 0; i < c->data_bytes; i++)
        mcp_text_append(&text, "x", 1);
    put_file(path, text.data, text.length);
    enum mcp_status status = mcp_safetensors_read(arena, path, &file, &err);
    cr_expect(eq(int, status, c->says[0] == '\0' ? MCP_OK : MCP_FORMAT), "%s: %s", c->header,
              err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->header, err.text);
}
