/* cli/output.c: terminals, and writes that are checked. */
#include "cli/output.h"

#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_WIDTH = 100, LEAST_WIDTH = 40, MOST_WIDTH = 160, LONGEST_WORD = 64 };

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL ? value : "";
}

static bool wants_color(void)
{
    return *environment("NO_COLOR") == '\0' && !mcp_same(environment("TERM"), "dumb") &&
           isatty(STDOUT_FILENO);
}

static bool shows_unicode(void)
{
    const char *locale = environment("LC_ALL");
    if (*locale == '\0')
        locale = environment("LC_CTYPE");
    if (*locale == '\0')
        locale = environment("LANG");
    return mcp_contains_ignoring_case(locale, "utf-8") ||
           mcp_contains_ignoring_case(locale, "utf8");
}

static int terminal_width(void)
{
    int64_t columns = 0;
    struct winsize size;
    if (!mcp_parse_int64(environment("COLUMNS"), &columns) || columns <= 0)
        columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
    if (columns <= 0)
        return DEFAULT_WIDTH;
    return columns < LEAST_WIDTH ? LEAST_WIDTH : columns > MOST_WIDTH ? MOST_WIDTH : (int)columns;
}

struct mcp_style mcp_style_of_stdout(void)
{
    return (struct mcp_style){wants_color(), shows_unicode(), terminal_width()};
}

void mcp_output_guard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) != -1 || errno != EBADF)
            continue;
        /* The lowest free descriptor is fd itself; the mode is the wrong one. */
        if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(MCP_IO);
    }
}

enum mcp_status mcp_output_text(const struct mcp_text *text, struct mcp_error *err)
{
    size_t written = text->length > 0 ? fwrite(text->data, 1, text->length, stdout) : 0;
    if (written != text->length || fflush(stdout) != 0)
        return mcp_fail(err, MCP_IO, "cannot write to standard output: %s", strerror(errno));
    return MCP_OK;
}

enum mcp_status mcp_output_file(struct mcp_context *ctx, const char *path,
                                const struct mcp_json *json)
{
    MCP_TRY(mcp_json_write(path, json, &ctx->err));
    mcp_note("wrote %s", mcp_printable(ctx->arena, path));
    return MCP_OK;
}

enum mcp_status mcp_output_check_place(struct mcp_context *ctx)
{
    if (ctx->output_path == NULL || mcp_same(ctx->output_path, "-"))
        return MCP_OK;
    return mcp_file_check_place(ctx->arena, ctx->output_path, &ctx->err);
}

enum mcp_status mcp_output_result(struct mcp_context *ctx, const struct mcp_text *text,
                                  const struct mcp_json *json)
{
    if (ctx->output_path != NULL)
        MCP_TRY(mcp_output_file(ctx, ctx->output_path, json));
    if (!ctx->json)
        return mcp_output_text(text, &ctx->err);
    struct mcp_text facts = mcp_text_new(ctx->arena);
    const char *printed = mcp_json_text(ctx->arena, json);
    mcp_text_append(&facts, printed, strlen(printed));
    return mcp_output_text(&facts, &ctx->err);
}

enum mcp_status mcp_temporary_folder(struct mcp_context *ctx, const char **out)
{
    const char *place = environment("TMPDIR");
    char *folder = mcp_format(ctx->arena, "%s/mcpplan-XXXXXX", *place != '\0' ? place : "/tmp");
    if (mkdtemp(folder) == NULL)
        return mcp_fail(&ctx->err, MCP_IO, "cannot make a folder like %s: %s", folder,
                        strerror(errno));
    *out = folder;
    return MCP_OK;
}

const char *mcp_shown(struct mcp_arena *arena, const char *word)
{
    size_t length = strlen(word);
    if (length <= LONGEST_WORD)
        return mcp_printable(arena, word);
    length = LONGEST_WORD;
    while (((unsigned char)word[length] & 0xC0) == 0x80 && length > 0)
        length--; /* not within a character */
    return mcp_format(arena, "%s...", mcp_printable(arena, mcp_strndup(arena, word, length)));
}

double mcp_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void mcp_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("mcpplan: note: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}
