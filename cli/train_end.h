/* cli/train_end.h: the last line of a run: what was trained, how fast, and where it is. */
#ifndef MCP_CLI_TRAIN_END_H
#define MCP_CLI_TRAIN_END_H

#include "cli/output.h"
#include "exec/run_options.h"

struct mcp_train_end {
    const struct mcp_run_options *run;
    double seconds; /* in all: ranks' start, checkpoints and evaluations too */
    int restarts;   /* the steps told of are those after the last one */
};

/* A note, of what rank 0 has left in `summary` ("mcpplan.run/1"). MCP_FORMAT: it lacks something. */
enum mcp_status mcp_train_end_note(struct mcp_context *ctx, struct mcp_json *summary,
                                   const struct mcp_train_end *end);

#endif
