/* topologies/process.c: the output of a short-lived program, run without a shell. */
#include "topologies/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_OUTPUT_BYTES ((size_t)16 << 20)

extern char **environ;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The program with stdin empty and stdout and stderr into `pipe_end`; returns an
 * errno, 0 on success. */
static int start(const char *const *argv, int pipe_end, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0)
        return error;
    error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, pipe_end, 1);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, pipe_end, 2);
    if (error == 0)
        error = posix_spawnp(pid, argv[0], &actions, NULL, (char *const *)(void *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Reads to the end; false when time or room runs out. */
static bool read_all(int fd, double deadline_s, struct mcp_text *out)
{
    char buffer[4096];
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        double left_s = deadline_s - now_s();
        if (left_s <= 0 || out->length > MAX_OUTPUT_BYTES)
            return false;
        if (poll(&wait, 1, (int)(left_s * 1000) + 1) <= 0)
            continue;
        ssize_t got = read(fd, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0;
        mcp_text_append(out, buffer, (size_t)got);
    }
}

static int wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

enum mcp_status mcp_process_run(struct mcp_arena *arena, const char *const *argv, double limit_s,
                                struct mcp_process *out, struct mcp_error *err)
{
    int ends[2];
    pid_t pid;
    *out = (struct mcp_process){.output = mcp_text_new(arena)};
    mcp_text_append(&out->output, "", 0);
    if (pipe(ends) != 0)
        return mcp_fail(err, MCP_IO, "%s: no pipe: %s", argv[0], strerror(errno));
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    int error = start(argv, ends[1], &pid);
    close(ends[1]);
    if (error != 0) {
        close(ends[0]);
        if (error == ENOENT || error == EACCES || error == ENOTDIR)
            return MCP_OK;
        return mcp_fail(err, MCP_IO, "%s: cannot start: %s", argv[0], strerror(error));
    }
    out->found = true;
    bool complete = read_all(ends[0], now_s() + limit_s, &out->output);
    close(ends[0]);
    if (!complete)
        kill(pid, SIGKILL);
    out->exit_code = wait_for(pid);
    if (!complete)
        return mcp_fail(err, MCP_RUN_FAILURE, "%s: gave no complete answer within %g s", argv[0],
                        limit_s);
    return MCP_OK;
}
