/* tests/core/test_text.c: numbers, closest words, what a terminal sees, files that stay whole. */
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct case_number {
    char text[32];
    double want; /* NaN: refused */
    bool is_whole;
};
ParameterizedTestParameters(text, numbers)
{
    static struct case_number cases[] = {
        {"0", 0, true},
        {"-12", -12, true},
        {"+3", 3, true},
        {"9223372036854775807", 9223372036854775807.0, true},
        {"9223372036854775808", 9223372036854775808.0, false},
        {"1.5", 1.5, false},
        {".5", 0.5, false},
        {"2.", 2, false},
        {"1e3", 1000, false},
        {"1e-999", 0, false},
        {"", (double)NAN, false},
        {" 1", (double)NAN, false},
        {"1 ", (double)NAN, false},
        {"-", (double)NAN, false},
        {".", (double)NAN, false},
        {"1e", (double)NAN, false},
        {"1.2.3", (double)NAN, false},
        {"0x10", (double)NAN, false},
        {"nan", (double)NAN, false},
        {"inf", (double)NAN, false},
        {"1e999", (double)NAN, false},
        {"1,5", (double)NAN, false},
    };
    return cr_make_param_array(struct case_number, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_number *c, text, numbers)
{
    double number = -7;
    int64_t whole = -7;
    cr_expect(eq(int, mcp_parse_double(c->text, &number), !isnan(c->want)), "%s", c->text);
    cr_expect(eq(dbl, number, isnan(c->want) ? -7 : c->want), "%s", c->text);
    cr_expect(eq(int, mcp_parse_int64(c->text, &whole), c->is_whole), "%s", c->text);
    cr_expect(eq(dbl, (double)whole, c->is_whole ? c->want : -7), "%s", c->text);
}

struct case_nearest {
    char word[72];
    char want[24]; /* "": none */
};
ParameterizedTestParameters(text, nearest)
{
    static struct case_nearest cases[] = {
        {"tensor_paralel", "tensor_parallel"},
        {"Tensor-Parallel", "tensor_parallel"},
        {"bf61", "bf16"},
        {"BF16", "bf16"},
        {"zero", "zero_stage"},
        {"ze", ""},
        {"recompute", ""},
        {"", ""},
        {"x", ""},
        {"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", ""},
    };
    return cr_make_param_array(struct case_nearest, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_nearest *c, text, nearest)
{
    static const char *const known[] = {"pipeline_parallel", "tensor_parallel", "zero_stage",
                                        "bf16", "fp8"};
    const char *got = mcp_nearest(c->word, known, sizeof known / sizeof *known);
    cr_expect(eq(str, (char *)(got != NULL ? got : ""), c->want), "%s", c->word);
}

Test(text, comparing_words)
{
    cr_expect(mcp_same(NULL, NULL) && !mcp_same("", NULL) && !mcp_same("a", "A"));
    cr_expect(mcp_starts_with("dgx-a100", "dgx") && !mcp_starts_with("dgx", "dgx-a100"));
    cr_expect(mcp_ends_with("x.json", ".json") && !mcp_ends_with("json", ".json"));
    cr_expect(mcp_contains_ignoring_case("NVIDIA H100", "h100"));
    cr_expect(mcp_contains_ignoring_case("", "") && !mcp_contains_ignoring_case("H10", "h100"));
}

Test(text, a_terminal_obeys_nothing_we_print)
{
    struct mcp_arena *arena = mcp_arena_new();
    cr_expect(eq(str, mcp_printable(arena, "a\x1b[31mb\r\n\x7f"), (char *)"a?[31mb???"));
    cr_expect(eq(str, mcp_printable(arena, "\xc2\x9b\xff\xe2\x82"), (char *)"?????"));
    cr_expect(eq(str, mcp_printable(arena, "caf\xc3\xa9 \xf0\x9f\x98\x80"),
                 (char *)"caf\xc3\xa9 \xf0\x9f\x98\x80"));
    mcp_arena_free(arena);
}

Test(text, strings_grow)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text text = mcp_text_new(arena);
    cr_expect(eq(str, text.data, (char *)""));
    for (int i = 0; i < 1000; i++)
        mcp_text_add(&text, "%d,", i);
    cr_expect(eq(sz, text.length, 3890));
    cr_expect(eq(sz, strlen(text.data), text.length));
    cr_expect(mcp_ends_with(text.data, ",998,999,"));
    mcp_arena_free(arena);
}

/* --- files, each test in a folder of its own --- */

static char folder[64];

static void enter_folder(void)
{
    snprintf(folder, sizeof folder, "%s/test_text.XXXXXX", P_tmpdir);
    cr_assert(mkdtemp(folder) != NULL && chdir(folder) == 0);
}

static int count_files(void)
{
    int count = 0;
    DIR *dir = opendir(".");
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void leave_folder(void)
{
    unlink("plan.json");
    unlink("link");
    rmdir("inner");
    cr_expect(rmdir(folder) == 0, "a file was left behind");
}

TestSuite(file, .init = enter_folder, .fini = leave_folder);

static void expect_content(const char *path, const char *want)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_text text;
    cr_expect(eq(int, (int)mcp_file_read(arena, path, 1000, &text, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(str, text.data, (char *)want));
    mcp_arena_free(arena);
}

Test(file, is_written_and_replaced_with_its_mode)
{
    struct mcp_error err = {""};
    struct stat info;
    umask(0);
    cr_expect(eq(int, (int)mcp_file_replace("plan.json", "one", 3, &err), MCP_OK), "%s", err.text);
    cr_expect(stat("plan.json", &info) == 0 && (info.st_mode & 0777) == 0666);
    cr_assert(chmod("plan.json", 0640) == 0);
    cr_expect(eq(int, (int)mcp_file_replace("plan.json", "two\n", 4, &err), MCP_OK));
    expect_content("plan.json", "two\n");
    cr_expect(stat("plan.json", &info) == 0 && (info.st_mode & 0777) == 0640);
    cr_expect(eq(int, count_files(), 1));
}

Test(file, behind_a_link_is_replaced_and_the_link_stays)
{
    struct mcp_error err = {""};
    struct stat info;
    mcp_file_replace("plan.json", "one", 3, &err);
    cr_assert(symlink("plan.json", "link") == 0);
    cr_expect(eq(int, (int)mcp_file_replace("link", "two", 3, &err), MCP_OK));
    cr_expect(lstat("link", &info) == 0 && S_ISLNK(info.st_mode));
    expect_content("plan.json", "two");
}

Test(file, stays_whole_when_the_disk_is_full)
{
    struct mcp_error err = {""};
    struct rlimit limit = {8, 8};
    mcp_file_replace("plan.json", "old", 3, &err);
    signal(SIGXFSZ, SIG_IGN);
    cr_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    cr_expect(eq(int, (int)mcp_file_replace("plan.json", "0123456789", 10, &err), MCP_IO));
    cr_expect(eq(str, err.text, (char *)"plan.json: File too large"));
    expect_content("plan.json", "old");
    cr_expect(eq(int, count_files(), 1), "the temporary file is gone");
}

Test(file, is_no_folder_and_needs_one)
{
    struct mcp_error err = {""};
    cr_assert(mkdir("inner", 0777) == 0);
    cr_expect(eq(int, (int)mcp_file_replace("inner", "x", 1, &err), MCP_IO));
    cr_expect(eq(str, err.text, (char *)"inner: is a directory, expected a file's name"));
    cr_expect(eq(int, (int)mcp_file_replace("none/plan.json", "x", 1, &err), MCP_IO));
    cr_expect(eq(str, err.text, (char *)"none/plan.json: No such file or directory"));
}

Test(file, reading_says_what_is_wrong)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_text text;
    mcp_file_replace("plan.json", "0123456789", 10, &err);
    cr_expect(eq(int, (int)mcp_file_read(arena, "plan.json", 9, &text, &err), MCP_IO));
    cr_expect(eq(str, err.text, (char *)"plan.json: larger than 0 MiB"));
    cr_expect(eq(int, (int)mcp_file_read(arena, "none", 9, &text, &err), MCP_IO));
    cr_expect(eq(str, err.text, (char *)"none: No such file or directory"));
    cr_expect(eq(int, (int)mcp_file_read(arena, ".", 9, &text, &err), MCP_IO));
    cr_expect(eq(str, err.text, (char *)".: Is a directory"));
    mcp_arena_free(arena);
}

Test(text, a_full_device_is_an_error)
{
    struct mcp_error err = {""};
    cr_expect(eq(int, (int)mcp_file_replace("/dev/full", "x", 1, &err), MCP_IO));
    cr_expect(eq(str, err.text, (char *)"/dev/full: No space left on device"));
    cr_assert(freopen("/dev/full", "w", stdout) != NULL);
    cr_expect(eq(int, (int)mcp_file_replace("-", "x", 1, &err), MCP_IO));
    cr_expect(eq(str, err.text, (char *)"standard output: No space left on device"));
}

Test(text, closed_standard_input_is_an_error)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_text text;
    close(STDIN_FILENO);
    cr_expect(eq(int, (int)mcp_file_read(arena, "-", 9, &text, &err), MCP_IO));
    cr_expect(eq(str, err.text, (char *)"standard input: Bad file descriptor"));
    mcp_arena_free(arena);
}
