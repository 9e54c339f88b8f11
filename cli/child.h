/* cli/child.h: a program that runs for us, and what is done when the user wants it to end.
 *
 * The child has a process group of its own, so that a terminal's ctrl-C comes to us alone and
 * can be passed on as a request: to save and end. Asked again, the child is ended. It reads
 * nothing, and does not outlive us. */
#ifndef MCP_CLI_CHILD_H
#define MCP_CLI_CHILD_H

#include <sys/types.h>

/* From now on SIGINT and SIGTERM do not end us: before files are made that have to be removed. */
void mcp_child_watch(void);
/* The signal by which we were asked to end since then; 0: none. */
int mcp_child_asked(void);

/* fork(), after mcp_child_watch(): until mcp_child_end() SIGINT and SIGTERM reach the child, the
 * first one as the signal `request`. */
pid_t mcp_child_fork(int request);
/* Waits for the child's end; its status as waitpid() gives it. */
int mcp_child_end(void);

#endif
