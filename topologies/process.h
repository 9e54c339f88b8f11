/* topologies/process.h: the output of a short-lived program, run without a shell. */
#ifndef MCP_TOPOLOGIES_PROCESS_H
#define MCP_TOPOLOGIES_PROCESS_H

#include "core/arena.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>

struct mcp_process {
    bool found;             /* false: no such program on PATH */
    int exit_code;          /* 128 + signal when killed */
    struct mcp_text output; /* stdout and stderr together */
};

/* Runs argv[0], looked up on PATH, with an empty stdin. MCP_RUN_FAILURE when it
 * takes longer than `limit_s` or prints more than 16 MiB: it is then killed. */
enum mcp_status mcp_process_run(struct mcp_arena *arena, const char *const *argv, double limit_s,
                                struct mcp_process *out, struct mcp_error *err);

#endif
