/* step/legal_extra.c: rules of what is sharded, of optimizers, and of where ranks lie. */
#include "step/legal_parts.h"

#include "core/rank_map.h"
#include "core/text.h"

bool mcp_hold_zero(const struct ask *ask, int stage)
{
    (void)ask;
    return stage >= 0 && stage <= 3;
}

const char *mcp_say_zero(struct mcp_arena *arena, const struct ask *ask, int stage)
{
    (void)ask;
    return mcp_format(arena, "zero_stage=%d is not one of 0, 1, 2, 3; nearest legal %d", stage,
                      stage < 0 ? 0 : 3);
}

bool mcp_hold_whole_state(const struct ask *ask, int stage)
{
    return ask->job->optimizer != MCP_OPTIMIZER_ONE_BIT_ADAM || stage == 0;
}

const char *mcp_say_whole_state(struct mcp_arena *arena, const struct ask *ask, int stage)
{
    (void)ask;
    return mcp_format(arena,
                      "zero_stage=%d shards moments that every rank of one_bit_adam keeps whole; "
                      "nearest legal 0, or optimizer adam",
                      stage);
}

bool mcp_hold_clip(const struct ask *ask, int value)
{
    (void)value;
    return ask->job->clip_global_norm != MCP_CLIP_ON || !mcp_job_is_frozen(ask->job);
}

const char *mcp_say_clip(struct mcp_arena *arena, const struct ask *ask, int value)
{
    (void)ask;
    (void)value;
    return mcp_format(arena, "clip_global_norm=true needs the gradient of all ranks, which the "
                             "frozen phase of one_bit_adam never makes; nearest legal "
                             "clip_global_norm=false, or phase warm");
}

bool mcp_hold_casts(const struct ask *ask, int value)
{
    (void)value;
    enum mcp_precision precision = ask->job->precision;
    return !ask->stack->casts_operands ||
           (precision != MCP_PRECISION_MXFP8 && precision != MCP_PRECISION_NVFP4);
}

const char *mcp_say_casts(struct mcp_arena *arena, const struct ask *ask, int value)
{
    (void)value;
    return mcp_format(arena,
                      "stack %s has no products in precision %s, whose blocks have scales of their "
                      "own; nearest legal fp8, or another stack",
                      ask->stack->name, mcp_precision_names[ask->job->precision]);
}

/* Pools hold whole stages, which a map of single ranks would tear apart. */
bool mcp_hold_rank_map(const struct ask *ask, int data_parallel)
{
    (void)data_parallel;
    const struct mcp_rank_map *map = ask->plan->rank_map;
    return map == NULL || (ask->cluster->next == NULL && map->world == mcp_plan_world(ask->plan));
}

const char *mcp_say_rank_map(struct mcp_arena *arena, const struct ask *ask, int data_parallel)
{
    (void)data_parallel;
    int ranks = ask->plan->rank_map->world;
    if (ask->cluster->next != NULL)
        return mcp_format(arena, "gpu_of_rank places single ranks, but the cluster has pools of "
                                 "several kinds, which hold whole stages; leave it out");
    return mcp_format(arena, "gpu_of_rank places %d ranks, the plan has %d", ranks,
                      mcp_plan_world(ask->plan));
}
