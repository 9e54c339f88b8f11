/* cli/train_backend.h: which program runs a plan's ranks, and what it must be told. */
#ifndef MCP_CLI_TRAIN_BACKEND_H
#define MCP_CLI_TRAIN_BACKEND_H

#include "cli/plan_file.h"
#include "exec/run_options.h"

enum mcp_train_backend { MCP_TRAIN_CPU, MCP_TRAIN_CUDA, MCP_NUM_TRAIN_BACKENDS };
extern const char *const mcp_train_backend_names[MCP_NUM_TRAIN_BACKENDS];

/* The executor beside this program, else by PATH; MCP_RUN_FAILURE where there is none. */
enum mcp_status mcp_train_executor(struct mcp_context *ctx, enum mcp_train_backend backend,
                                   const char **path);

/* Ranks on GPUs find each other by the environment: exec/store.h. What the user has set stays;
 * beside it, ranks of a run that begins again must not meet late ones of the run before. */
struct mcp_train_meeting {
    bool has_port, has_token; /* of the user's */
};
struct mcp_train_meeting mcp_train_meeting_given(void);
/* For ranks that this program starts, once more. */
enum mcp_status mcp_train_set_meeting(struct mcp_context *ctx,
                                      const struct mcp_train_meeting *given);
/* For ranks that anybody starts. */
void mcp_train_set_restart(struct mcp_arena *arena, int restarts);

/* What ranks on GPUs compare their machine with; nothing of clusters of several kinds. */
void mcp_train_set_planned(const struct mcp_plan_file *file, struct mcp_run_options *run);

#endif
