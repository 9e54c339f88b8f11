/* cli/plan_watch.h: a long search shows how far it is, and ctrl-C ends it early. */
#ifndef MCP_CLI_PLAN_WATCH_H
#define MCP_CLI_PLAN_WATCH_H

#include "planner/search.h"

#include <signal.h>
#include <stdbool.h>

struct mcp_plan_watch {
    struct mcp_arena *scratch;
    bool terminal; /* stderr is one: a line is kept there */
    bool shown;
    double began_s, shown_s;
    const char *aside;       /* NULL: the search for the answer itself */
    const char *stops;       /* what ctrl-C does then */
    struct sigaction before; /* what SIGINT did */
};

/* Sets progress and stop in `options`. From here on the first SIGINT asks searches
 * to stop, the second ends the program. */
void mcp_plan_watch_begin(struct mcp_plan_watch *watch, struct mcp_search_options *options);
/* What searches from here on are for, beside the answer: "what would change it". */
void mcp_plan_watch_aside(struct mcp_plan_watch *watch, const char *what);
/* The same where ctrl-C does not leave it out: "shows the sizes planned so far". */
void mcp_plan_watch_part(struct mcp_plan_watch *watch, const char *what, const char *stops);
/* Clears the line; SIGINT does again what it did. */
void mcp_plan_watch_end(struct mcp_plan_watch *watch);
/* Has a SIGINT come since begin? */
bool mcp_plan_watch_stopped(void);

#endif
