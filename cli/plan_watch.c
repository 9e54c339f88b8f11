/* cli/plan_watch.c: progress on a terminal's stderr, SIGINT as a request. */
#include "cli/plan_watch.h"

#include "core/units.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double quiet_s = 0.3; /* short searches show nothing */
static const double pause_s = 0.1; /* between two states of the line */

/* What a signal handler can write to. */
static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void show(void *context, double done_frac, const struct mcp_found *best)
{
    struct mcp_plan_watch *watch = context;
    double now = now_s();
    if (now - watch->began_s < quiet_s || now - watch->shown_s < pause_s)
        return;
    struct mcp_mark mark = mcp_arena_mark(watch->scratch);
    const char *found = "nothing that fits yet";
    if (best)
        found = mcp_format(watch->scratch, "best so far %s, ctrl-C takes it",
                           mcp_show(watch->scratch, best->iteration_s, MCP_SECONDS));
    fprintf(stderr, "\r\033[K  searching, %.0f %%: %s", 100 * done_frac, found);
    fflush(stderr);
    mcp_arena_rewind(watch->scratch, mark);
    watch->shown = true;
    watch->shown_s = now;
}

void mcp_plan_watch_begin(struct mcp_plan_watch *watch, struct mcp_search_options *options)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt;
    action.sa_flags = (int)SA_RESETHAND;
    interrupted = 0;
    sigaction(SIGINT, &action, NULL);
    *watch = (struct mcp_plan_watch){
        .scratch = mcp_arena_new(), .terminal = isatty(STDERR_FILENO) == 1, .began_s = now_s()};
    options->stop = &interrupted;
    if (!watch->terminal)
        return;
    options->progress = show;
    options->progress_context = watch;
}

void mcp_plan_watch_end(struct mcp_plan_watch *watch)
{
    if (watch->shown)
        fputs("\r\033[K", stderr);
    signal(SIGINT, SIG_DFL);
    mcp_arena_free(watch->scratch);
}

bool mcp_plan_watch_stopped(void)
{
    return interrupted != 0;
}
