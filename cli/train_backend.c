/* cli/train_backend.c: executors, and what they find in their environment. */
#include "cli/train_backend.h"

#include "exec/store.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const mcp_train_backend_names[MCP_NUM_TRAIN_BACKENDS] = {"cpu", "cuda"};

static bool lies_in(struct mcp_arena *arena, const char *folder, int length, const char *name,
                    const char **path)
{
    *path = mcp_format(arena, "%.*s/%s", length, folder, name);
    return access(*path, X_OK) == 0;
}

static bool lies_beside(struct mcp_arena *arena, const char *name, const char **path)
{
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return false;
    self[length] = '\0';
    return lies_in(arena, self, (int)(strrchr(self, '/') - self), name, path);
}

enum mcp_status mcp_train_executor(struct mcp_context *ctx, enum mcp_train_backend backend,
                                   const char **path)
{
    static const char *const needs[] = {"Open MPI's mpicc", "CUDA's nvcc"};
    const char *name = mcp_format(ctx->arena, "mcpplan-exec-%s", mcp_train_backend_names[backend]);
    const char *folders = getenv("PATH");
    if (lies_beside(ctx->arena, name, path))
        return MCP_OK;
    while (folders != NULL && *folders != '\0') {
        const int length = (int)strcspn(folders, ":");
        if (length > 0 && lies_in(ctx->arena, folders, length, name, path))
            return MCP_OK;
        folders += length + (folders[length] == ':');
    }
    return mcp_fail(&ctx->err, MCP_RUN_FAILURE,
                    "cannot start %s: it is neither beside mcpplan nor on PATH; make builds it "
                    "where it finds %s",
                    name, needs[backend]);
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
