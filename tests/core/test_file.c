/* tests/core/test_file.c: checksums, files mapped and written in parts. */
#include "core/crc32c.h"
#include "core/file.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct case_crc {
    unsigned char first, step; /* byte i is first + i * step */
    unsigned length;
    uint32_t want;
};
ParameterizedTestParameters(file, crc32c)
{
    static struct case_crc cases[] = {
        {0, 0, 0, 0},
        {0, 0, 32, 0x8a9136aa}, /* RFC 3720 appendix B.4 */
        {0xff, 0, 32, 0x62a8ab43},
        {0, 1, 32, 0x46dd794e},
        {31, 0xff, 32, 0x113fdb5c},
        {'1', 1, 9, 0xe3069283}, /* "123456789" */
    };
    return cr_make_param_array(struct case_crc, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_crc *c, file, crc32c)
{
    unsigned char data[32];
    for (unsigned i = 0; i < c->length; i++)
        data[i] = (unsigned char)(c->first + i * c->step);
    cr_expect(eq(u32, mcp_crc32c(0, data, c->length), c->want));
    for (unsigned cut = 0; cut <= c->length; cut++)
        cr_expect(
            eq(u32, mcp_crc32c(mcp_crc32c(0, data, cut), data + cut, c->length - cut), c->want),
            "cut at %u", cut);
}

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/mcp-test-file-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(folder), NULL));
}

static void remove_folder(void)
{
    cr_expect(eq(int, rmdir(folder), 0), "something was left behind");
}

/* Whoever is root must not make a file of a device. */
Test(file, a_pipe_stays_one, .init = make_folder, .fini = remove_folder)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_file_writer *writer;
    struct mcp_error err;
    struct stat info;
    char got[4] = "";
    const char *path = mcp_format(arena, "%s/pipe", folder);
    cr_assert(eq(int, mkfifo(path, 0600), 0));
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    cr_assert(eq(int, mcp_file_writer_open(arena, path, &writer, &err), MCP_OK));
    cr_assert(eq(int, mcp_file_writer_add(writer, "abc", 3, &err), MCP_OK));
    cr_expect(eq(int, mcp_file_writer_finish(writer, NULL, &err), MCP_OK));
    cr_expect(read(reader, got, 3) == 3 && memcmp(got, "abc", 3) == 0);
    cr_expect(stat(path, &info) == 0 && S_ISFIFO(info.st_mode));
    close(reader);
    unlink(path);
    mcp_arena_free(arena);
}

Test(file, parts_become_one_file, .init = make_folder, .fini = remove_folder)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_file_writer *writer;
    struct mcp_file_digest digest;
    struct mcp_file_view view;
    struct mcp_error err;
    const size_t part = 700000;
    unsigned char *data = MCP_ARRAY(arena, 5 * part, unsigned char);
    for (size_t i = 0; i < 5 * part; i++)
        data[i] = (unsigned char)(i * i >> 5);
    const char *path = mcp_format(arena, "%s/parts", folder);
    cr_assert(eq(int, mcp_file_writer_open(arena, path, &writer, &err), MCP_OK));
    cr_assert(eq(int, mcp_file_writer_add(writer, data, part, &err), MCP_OK));
    cr_assert(eq(int, mcp_file_writer_add(writer, data + part, 3 * part, &err), MCP_OK));
    cr_assert(eq(int, mcp_file_writer_add(writer, data + 4 * part, part, &err), MCP_OK));
    cr_expect(ne(int, access(path, F_OK), 0), "a part of it was there to be read");
    cr_assert(eq(int, mcp_file_writer_finish(writer, &digest, &err), MCP_OK));
    cr_assert(eq(int, mcp_file_map(arena, path, &view, &err), MCP_OK));
    cr_assert(eq(sz, view.length, 5 * part));
    cr_expect(eq(int, memcmp(view.data, data, 5 * part), 0));
    cr_expect(eq(u32, digest.crc32c, mcp_file_digest(&view).crc32c));
    cr_expect(eq(i64, digest.bytes, (int64_t)(5 * part)));
    unlink(path);
    mcp_arena_free(arena);
}

Test(file, what_is_not_finished_leaves_nothing, .init = make_folder, .fini = remove_folder)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_file_writer *writer;
    struct mcp_error err;
    const char *path = mcp_format(arena, "%s/half", folder);
    cr_assert(eq(int, mcp_file_writer_open(arena, path, &writer, &err), MCP_OK));
    cr_assert(eq(int, mcp_file_writer_add(writer, "half", 4, &err), MCP_OK));
    mcp_arena_free(arena);
}

struct case_place {
    char name[24], says[32];
};
ParameterizedTestParameters(file, places)
{
    static struct case_place cases[] = {
        {"new", ""},
        {"old", ""},
        {"folder", "is a directory"},
        {"none/new", "No such file"},
        {"old/new", "Not a directory"},
        {"/dev/null", ""},
        {"/proc/new/new", "No such file"},
    };
    return cr_make_param_array(struct case_place, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_place *c, file, places, .init = make_folder, .fini = remove_folder)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    char path[128];
    snprintf(path, sizeof path, "%s/folder", folder);
    cr_assert(eq(int, mkdir(path, 0777), 0));
    snprintf(path, sizeof path, "%s/old", folder);
    fclose(fopen(path, "w"));
    snprintf(path, sizeof path, "%s/%s", folder, c->name);
    const enum mcp_status got =
        mcp_file_check_place(arena, c->name[0] == '/' ? c->name : path, &err);
    cr_expect(eq(int, (int)got, c->says[0] == '\0' ? MCP_OK : MCP_IO));
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s", err.text);
    snprintf(path, sizeof path, "%s/new", folder);
    cr_expect(ne(int, access(path, F_OK), 0), "asking has made the file");
    snprintf(path, sizeof path, "%s/old", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/folder", folder);
    rmdir(path);
    mcp_arena_free(arena);
}

/* Of a folder that is there, or is to be made; root may write anywhere. */
Test(file, where_a_folder_can_be, .init = make_folder, .fini = remove_folder)
{
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"", ""},
        {"/", ""},
        {"/new", ""},
        {"/new///", ""},
        {"/new/deeper", "No such file"},
        {"/file", "Not a directory"},
        {"/file/under", "Not a directory"},
    };
    struct mcp_arena *arena = mcp_arena_new();
    const char *file = mcp_format(arena, "%s/file", folder);
    fclose(fopen(file, "w"));
    for (size_t i = 0; i < MCP_COUNT_OF(cases); i++) {
        struct mcp_error err = {""};
        const char *path = mcp_format(arena, "%s%s", folder, cases[i].name);
        const enum mcp_status got = mcp_file_check_folder(arena, path, &err);
        cr_expect(eq(int, (int)got, cases[i].says[0] == '\0' ? MCP_OK : MCP_IO), "%s", path);
        cr_expect(ne(ptr, strstr(err.text, cases[i].says), NULL), "%s: %s", path, err.text);
    }
    cr_expect(ne(int, access(mcp_format(arena, "%s/new", folder), F_OK), 0));
    unlink(file);
    mcp_arena_free(arena);
}

Test(file, what_cannot_be_mapped_is_said, .init = make_folder, .fini = remove_folder)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_file_writer *writer;
    struct mcp_file_view view;
    struct mcp_error err = {0};
    const char *pipe = mcp_format(arena, "%s/pipe", folder);
    cr_assert(eq(int, mkfifo(pipe, 0600), 0));
    cr_expect(eq(int, mcp_file_map(arena, folder, &view, &err), MCP_IO));
    cr_expect(eq(int, mcp_file_map(arena, pipe, &view, &err), MCP_IO));
    cr_expect(ne(ptr, strstr(err.text, "regular file"), NULL), "%s", err.text);
    unlink(pipe);
    cr_expect(eq(int, mcp_file_map(arena, pipe, &view, &err), MCP_IO));
    cr_expect(eq(int, mcp_file_writer_open(arena, "/tmp/mcp-no-folder/x", &writer, &err), MCP_IO));
    mcp_arena_free(arena);
}
