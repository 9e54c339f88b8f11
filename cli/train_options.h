/* cli/train_options.h: what mcpplan train is asked. */
#ifndef MCP_CLI_TRAIN_OPTIONS_H
#define MCP_CLI_TRAIN_OPTIONS_H

#include "cli/options.h"
#include "exec/run_options.h"

struct mcp_train_args {
    struct mcp_run_options run; /* what the ranks are told; the rest is for who starts them */
    struct mcp_choice backend, decay;
    int threads, max_restarts;
    bool dry_run;
};

/* False: return ctx->status. */
bool mcp_train_args_parse(struct mcp_context *ctx, struct mcp_train_args *args, int argc,
                          char **argv);

#endif
