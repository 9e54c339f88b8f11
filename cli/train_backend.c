/* cli/train_backend.c: executors, and what they find in their environment. */
#include "cli/train_backend.h"

#include "exec/store.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const mcp_train_backend_names[MCP_NUM_TRAIN_BACKENDS] = {"cpu", "cuda"};

const char *mcp_train_executor(struct mcp_arena *arena, enum mcp_train_backend backend)
{
    const char *name = mcp_format(arena, "mcpplan-exec-%s", mcp_train_backend_names[backend]);
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length > 0) {
        self[length] = '\0';
        char *slash = strrchr(self, '/');
        const char *beside = mcp_format(arena, "%.*s/%s", (int)(slash - self), self, name);
        if (access(beside, X_OK) == 0)
            return beside;
    }
    return name;
}

struct mcp_train_meeting mcp_train_meeting_given(void)
{
    return (struct mcp_train_meeting){getenv("MASTER_PORT") != NULL, getenv("MCP_TOKEN") != NULL};
}

enum mcp_status mcp_train_set_meeting(struct mcp_context *ctx,
                                      const struct mcp_train_meeting *given)
{
    char token[33];
    int port;
    MCP_TRY(mcp_store_new_port(&port, &ctx->err));
    MCP_TRY(mcp_store_new_token(token, &ctx->err));
    setenv("MASTER_ADDR", "127.0.0.1", 0);
    setenv("MASTER_PORT", mcp_format(ctx->arena, "%d", port), !given->has_port);
    setenv("MCP_TOKEN", token, !given->has_token);
    return MCP_OK;
}

void mcp_train_set_restart(struct mcp_arena *arena, int restarts)
{
    setenv("MCP_RESTART", mcp_format(arena, "%d", restarts), 1);
}

void mcp_train_set_planned(const struct mcp_plan_file *file, struct mcp_run_options *run)
{
    const struct mcp_cluster *cluster = &file->cluster;
    if (cluster->next != NULL)
        return;
    run->planned_gpu = cluster->gpu.name;
    run->planned_memory_bytes = cluster->gpu.memory_bytes;
    run->planned_gpus_per_node = cluster->gpus_per_node;
}
