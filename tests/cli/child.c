/* tests/cli/child.c: posix_spawn without a shell, output by way of unnamed files. */
#include "tests/cli/child.h"

#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char *slurp(struct mcp_arena *arena, FILE *file)
{
    struct mcp_text text = mcp_text_new(arena);
    char block[4096];
    size_t got;
    rewind(file);
    while ((got = fread(block, 1, sizeof block, file)) > 0)
        mcp_text_append(&text, block, got);
    fclose(file);
    return text.data;
}

static void spawn(struct child *child, char *const *argv)
{
    FILE *out = tmpfile(), *err = tmpfile();
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int wait_status;
    cr_assert(out != NULL && err != NULL);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fileno(out), 1);
    posix_spawn_file_actions_adddup2(&actions, fileno(err), 2);
    if (child->stdout_path != NULL && *child->stdout_path == '\0')
        posix_spawn_file_actions_addclose(&actions, 1);
    else if (child->stdout_path != NULL)
        posix_spawn_file_actions_addopen(&actions, 1, child->stdout_path, O_WRONLY, 0);
    cr_assert(eq(int, posix_spawn(&pid, argv[0], &actions, NULL, argv, environ), 0),
              "cannot start %s", argv[0]);
    posix_spawn_file_actions_destroy(&actions);
    cr_assert(eq(int, waitpid(pid, &wait_status, 0), pid));
    child->status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    child->out = slurp(child->arena, out);
    child->err = slurp(child->arena, err);
}

void child_run(struct child *child, char words[][WORD], char *file)
{
    static char by_default[] = "build/release/mcpplan";
    char *argv[MAX_WORDS + 2] = {getenv("MCPPLAN")};
    if (argv[0] == NULL)
        argv[0] = by_default;
    for (int i = 0; i < MAX_WORDS && strcmp(words[i], "~") != 0; i++)
        argv[i + 1] = strcmp(words[i], "@") == 0 ? file : words[i];
    spawn(child, argv);
}

void child_settle_environment(void)
{
    unsetenv("HOME");
    unsetenv("LC_CTYPE");
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("COLUMNS", "100", 1);
    setenv("TZ", "Pacific/Chatham", 1);
}

static const char *after_notes(const char *line)
{
    while (mcp_starts_with(line, "mcpplan: note: "))
        line = strchr(line, '\n') + 1;
    return line;
}

/* A failure is one line on stderr, after notes, and says who speaks. */
static void expect_sentence(const struct child *child, const char *name)
{
    const char *line = after_notes(child->err);
    cr_expect(mcp_starts_with(line, "mcpplan: "), "%s: '%s'", name, child->err);
    const char *end = strchr(line, '\n');
    cr_expect(end != NULL && end[1] == '\0', "%s: '%s'", name, child->err);
}

void child_check(struct child_case *c, char *file)
{
    struct child run = {.arena = mcp_arena_new()};
    child_run(&run, c->words, file);
    cr_expect(eq(int, run.status, (int)c->want), "%s: %s", c->name, run.err);
    cr_expect(ne(ptr, strstr(run.out, c->out), NULL), "%s: '%s'", c->name, run.out);
    cr_expect(ne(ptr, strstr(run.err, c->err), NULL), "%s: '%s'", c->name, run.err);
    if (run.status == MCP_INFEASIBLE && strstr(run.out, "\n  no plan") != NULL)
        cr_expect(eq(str, (char *)after_notes(run.err), ""), "%s: an answer, once", c->name);
    else if (run.status != MCP_OK)
        expect_sentence(&run, c->name);
    if (run.status != MCP_OK && run.status != MCP_CHECK_FAILED && run.status != MCP_INFEASIBLE)
        cr_expect(eq(str, run.out, (char *)""), "%s: no partial output", c->name);
    mcp_arena_free(run.arena);
}

void child_write_file(char path[TEMPORARY_PATH], const char *text, size_t length)
{
    snprintf(path, TEMPORARY_PATH, "/tmp/mcpplan-test-XXXXXX");
    int fd = mkstemp(path);
    cr_assert(ge(int, fd, 0));
    cr_assert(eq(sz, (size_t)write(fd, text, length), length));
    close(fd);
}

void child_keep_output(char path[TEMPORARY_PATH], char words[][WORD], char *file)
{
    struct child child = {.arena = mcp_arena_new()};
    child_run(&child, words, file);
    cr_assert(eq(int, child.status, MCP_OK), "%s", child.err);
    child_write_file(path, child.out, strlen(child.out));
    mcp_arena_free(child.arena);
}

void child_write_plan(char path[TEMPORARY_PATH])
{
    char words[MAX_WORDS][WORD] = {"plan",
                                   "--model",
                                   "tiny",
                                   "--cluster=dgx-h100",
                                   "--global-batch-size=64",
                                   "--pipeline-parallel=2",
                                   "--virtual-stages=1",
                                   "--json",
                                   "~"};
    child_keep_output(path, words, NULL);
}
