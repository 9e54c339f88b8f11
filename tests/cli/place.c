/* tests/cli/place.c: commands by a shell, in a folder of their own. */
#include "tests/cli/place.h"

#include "core/text.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *place_spelled(const struct place *at, const char *text)
{
    struct mcp_text out = mcp_text_new(at->arena);
    for (const char *c = text; *c != '\0'; c++)
        if (*c == '@')
            mcp_text_add(&out, "%s", at->folder);
        else
            mcp_text_append(&out, c, 1);
    return out.data;
}

static const char *line_of(const struct place *at, const char *command)
{
    return mcp_format(at->arena,
                      "export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 OMP_NUM_THREADS=1 "
                      "OPENBLAS_NUM_THREADS=1 OMPI_MCA_btl_vader_single_copy_mechanism=none; exec "
                      "%s %s > %s/out 2> %s/said",
                      at->program, place_spelled(at, command), at->folder, at->folder);
}

static int exit_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

int place_run(const struct place *at, const char *command)
{
    return exit_code(system(line_of(at, command)));
}

void place_must(const struct place *at, const char *command)
{
    const int code = place_run(at, command);
    cr_assert(code == 0, "%s: %d: %s", command, code, place_content(at, "said"));
}

pid_t place_begin(const struct place *at, const char *command)
{
    const char *line = line_of(at, command);
    const pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    return child;
}

int place_end_of(pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
    return exit_code(status);
}

const char *place_program(const struct place *at, const char *name)
{
    const char *slash = strrchr(at->program, '/');
    return mcp_format(at->arena, "%.*s/%s", (int)(slash - at->program), at->program, name);
}

int place_shell(const struct place *at, const char *command)
{
    return exit_code(system(place_spelled(at, command)));
}

const char *place_content(const struct place *at, const char *name)
{
    struct mcp_text text = mcp_text_new(at->arena);
    const char *path = mcp_format(at->arena, "%s/%s", at->folder, name);
    return mcp_file_read(at->arena, path, 1 << 24, &text, NULL) == MCP_OK ? text.data : "";
}

struct place place_new(void)
{
    const char *program = getenv("MCPPLAN");
    struct place at = {mcp_arena_new(), NULL, program ? program : "build/release/mcpplan"};
    char *folder = mcp_strdup(at.arena, "/tmp/mcpplan-place-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    at.folder = folder;
    cr_assert(place_shell(&at, "sed 's/\"vocab_size\": 200/\"vocab_size\": 260/' "
                               "tests/exec/models/llama-tiny.json > @/model.json") == 0);
    place_must(&at, "data tokenize examples/text/poems.txt -o @/text.tokens");
    return at;
}

void place_leave(const struct place *at)
{
    cr_expect(place_shell(at, "rm -r @") == 0);
    mcp_arena_free(at->arena);
}
