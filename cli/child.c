/* cli/child.c: signals between the user and a child. */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a signal's handler needs. */
static volatile sig_atomic_t asked, guarded, first_request;

static void ask(int number)
{
    const int request = asked == 0 ? (int)first_request : SIGTERM;
    asked = number;
    if (guarded > 0)
        kill((pid_t)guarded, request);
}

static void set_handlers(void (*handler)(int))
{
    const struct sigaction action = {.sa_handler = handler};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void mcp_child_watch(void)
{
    set_handlers(ask);
}

int mcp_child_asked(void)
{
    return (int)asked;
}

/* In the child: another group that reads from the terminal would be stopped. */
static void begin(void)
{
    const int nothing = open("/dev/null", O_RDONLY);
    set_handlers(SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setpgid(0, 0);
    if (nothing >= 0) {
        dup2(nothing, STDIN_FILENO);
        close(nothing);
    }
}

pid_t mcp_child_fork(int request)
{
    sigset_t both, before;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    sigprocmask(SIG_BLOCK, &both, &before); /* one that comes now is for whom it finds ready */
    const pid_t child = fork();
    if (child == 0)
        begin();
    if (child > 0) {
        setpgid(child, child); /* whoever comes first */
        first_request = request;
        guarded = (sig_atomic_t)child;
    }
    const bool was_asked = asked != 0; /* what waits now the handler passes on */
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (child > 0 && was_asked)
        kill(child, request);
    return child;
}

int mcp_child_end(void)
{
    int status = 0;
    while (waitpid((pid_t)guarded, &status, 0) < 0 && errno == EINTR)
        continue;
    guarded = 0;
    return status;
}
