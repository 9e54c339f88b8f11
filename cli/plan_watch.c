/* cli/plan_watch.c: progress on a terminal's stderr, SIGINT as a request. */
#include "cli/plan_watch.h"

#include "cli/output.h"
#include "core/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double quiet_s = 0.3; /* short searches show nothing */
static const double pause_s = 0.1; /* between two states of the line */

/* What a signal handler can write to and read. */
static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t heard; /* stderr is a terminal: the user is told so */

static const char begin_line[] = "\r\033[K"; /* over what stands there */
static const char stopping[] = "\r\033[K  stopping; ctrl-C again ends at once";

/* Only what is safe in a handler; a write that fails takes nothing but the words. */
static void interrupt(int signal)
{
    (void)signal;
    int error = errno;
    interrupted = 1;
    if (heard && write(STDERR_FILENO, stopping, sizeof stopping - 1) < 0)
        heard = 0;
    errno = error;
}

/* "searching, 40 %: best so far 17.2 s, ctrl-C takes it" */
static const char *progress_text(const struct mcp_plan_watch *watch, double done_frac,
                                 const struct mcp_found *best)
{
    const char *found = "nothing that fits yet";
    if (watch->aside)
        return mcp_format(watch->scratch, "%s, ctrl-C %s", watch->aside, watch->stops);
    if (best)
        found = mcp_format(watch->scratch, "best so far %s, ctrl-C takes it",
                           mcp_show(watch->scratch, best->iteration_s, MCP_SECONDS));
    return mcp_format(watch->scratch, "searching, %.0f %%: %s", 100 * done_frac, found);
}

static void show(void *context, double done_frac, const struct mcp_found *best)
{
    struct mcp_plan_watch *watch = context;
    double now = mcp_now_s();
    if (interrupted || now - watch->began_s < quiet_s || now - watch->shown_s < pause_s)
        return;
    struct mcp_mark mark = mcp_arena_mark(watch->scratch);
    fprintf(stderr, "%s  %s", begin_line, progress_text(watch, done_frac, best));
    fflush(stderr);
    mcp_arena_rewind(watch->scratch, mark);
    watch->shown = true;
    watch->shown_s = now;
}

/* Where SIGINT is ignored, as in a shell's background, it stays so. */
static void catch_interrupts(struct mcp_plan_watch *watch)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt;
    action.sa_flags = (int)SA_RESETHAND;
    interrupted = 0;
    heard = watch->terminal;
    sigaction(SIGINT, NULL, &watch->before);
    if (watch->before.sa_handler != SIG_IGN)
        sigaction(SIGINT, &action, NULL);
}

void mcp_plan_watch_begin(struct mcp_plan_watch *watch, struct mcp_search_options *options)
{
    *watch = (struct mcp_plan_watch){
        .scratch = mcp_arena_new(), .terminal = isatty(STDERR_FILENO) == 1, .began_s = mcp_now_s()};
    catch_interrupts(watch);
    options->stop = &interrupted;
    if (!watch->terminal)
        return;
    options->progress = show;
    options->progress_context = watch;
}

void mcp_plan_watch_aside(struct mcp_plan_watch *watch, const char *what)
{
    mcp_plan_watch_part(watch, what, "leaves it out");
}

void mcp_plan_watch_part(struct mcp_plan_watch *watch, const char *what, const char *stops)
{
    watch->aside = what;
    watch->stops = stops;
}

void mcp_plan_watch_end(struct mcp_plan_watch *watch)
{
    sigaction(SIGINT, &watch->before, NULL);
    if (watch->shown || (watch->terminal && interrupted))
        fputs(begin_line, stderr);
    mcp_arena_free(watch->scratch);
}

bool mcp_plan_watch_stopped(void)
{
    return interrupted != 0;
}
