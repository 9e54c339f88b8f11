/* exec/cuda_wait.c: looks again and again, politely. */
#include "exec/cuda_wait.h"

#include "exec/cuda_runtime.h"

#include <sched.h>
#include <time.h>

enum { SPINS = 2000, CHECK_EVERY = 64 };

double mcp_cuda_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct mcp_cuda_patience mcp_cuda_patience_of(struct mcp_nccl_world *world)
{
    return (struct mcp_cuda_patience){.world = world, .since_s = mcp_cuda_clock()};
}

void mcp_cuda_take_heart(struct mcp_cuda_patience *patience)
{
    patience->since_s = mcp_cuda_clock();
    patience->tries = 0;
}

enum mcp_status mcp_cuda_breathe(struct mcp_cuda_patience *p, bool *over, struct mcp_error *err)
{
    const double limit_s = mcp_nccl_world_timeout_s(p->world);
    *over = false;
    p->tries++;
    if (p->tries % CHECK_EVERY == 0)
        MCP_TRY(mcp_nccl_check(p->world, err));
    if (p->tries < SPINS) { /* most waits are shorter than a sleep */
        sched_yield();
        return MCP_OK;
    }
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    *over = limit_s > 0 && mcp_cuda_clock() - p->since_s > limit_s;
    return MCP_OK;
}

enum mcp_status mcp_cuda_await(struct mcp_nccl_world *world, void *stream, const char *what,
                               struct mcp_error *err)
{
    struct mcp_cuda_patience patience = mcp_cuda_patience_of(world);
    bool empty = false, over = false;
    for (;;) {
        MCP_TRY(mcp_cuda_stream_empty(stream, &empty, err));
        if (empty)
            return MCP_OK;
        const enum mcp_status status = mcp_cuda_breathe(&patience, &over, err);
        if (status != MCP_OK && mcp_nccl_fault_of(world) == MCP_NCCL_TOLD)
            return mcp_fail(err, status, "rank %d was waiting for %s", mcp_nccl_world_rank(world),
                            what);
        MCP_TRY(status);
        if (over)
            return mcp_nccl_give_up(world, what, err);
    }
}
