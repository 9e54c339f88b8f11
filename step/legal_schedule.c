/* step/legal_schedule.c: rules about the order of slots. */
#include "step/legal_parts.h"

#include "core/text.h"
#include "core/units.h"
#include "step/pipeline.h"
#include "step/schedule.h"

#include <limits.h>

static bool schedule_has(enum mcp_schedule schedule, int v)
{
    if (schedule == MCP_CUSTOM)
        return true;
    if (mcp_schedule_placement(schedule) == MCP_PLACEMENT_V)
        return v == 2;
    return (schedule == MCP_INTERLEAVED) == (v > 1);
}

bool mcp_hold_schedule(const struct ask *ask, int v)
{
    return schedule_has(ask->plan->schedule, v);
}

bool mcp_folds(const struct ask *ask)
{
    return mcp_schedule_placement(ask->plan->schedule) == MCP_PLACEMENT_V;
}

const char *mcp_say_virtual_stages(struct mcp_arena *arena, const struct ask *ask, int v)
{
    int p = ask->plan->pipeline_parallel, layers = ask->model->num_layers;
    const char *sum =
        mcp_format(arena, "pipeline_parallel=%d x virtual_stages=%d = %lld exceeds num_layers=%d",
                   p, v, (long long)p * v, layers);
    if (!mcp_folds(ask) || v != 2)
        return sum;
    const char *nearest =
        layers < 4 ? "schedule 1f1b" : mcp_format(arena, "pipeline_parallel=%d", layers / 2);
    return mcp_format(arena, "%s, and schedule %s has two chunks a rank; nearest legal %s", sum,
                      mcp_schedule_names[ask->plan->schedule], nearest);
}

const char *mcp_say_schedule(struct mcp_arena *arena, const struct ask *ask, int v)
{
    enum mcp_schedule schedule = ask->plan->schedule;
    const char *nearest = v > 1 ? "schedule interleaved" : "schedule 1f1b";
    if (mcp_schedule_placement(schedule) == MCP_PLACEMENT_V)
        nearest = "virtual_stages=2";
    return mcp_format(arena, "schedule %s does not go with virtual_stages=%d; nearest legal %s",
                      mcp_schedule_names[schedule], v, nearest);
}

/* Where the microbatches can be counted: other rules say so where not. */
bool mcp_hold_dualpipe(const struct ask *ask, int p)
{
    const struct mcp_plan *plan = ask->plan;
    int64_t each;
    if (plan->schedule != MCP_DUALPIPE_V || plan->rows != NULL || p == 1 || p > MCP_MAX_PIPELINE ||
        !mcp_multiply(plan->data_parallel, plan->microbatch_size, &each) ||
        ask->job->global_batch_size % each != 0)
        return true;
    return ask->job->global_batch_size / each >= mcp_dualpipe_v_least_microbatches(p);
}

const char *mcp_say_dualpipe(struct mcp_arena *arena, const struct ask *ask, int p)
{
    int64_t m = mcp_num_microbatches(ask->plan, ask->job);
    return mcp_format(arena,
                      "schedule dualpipe-v on pipeline_parallel=%d needs %d microbatches or more, "
                      "there are %lld; nearest legal %lld",
                      p, mcp_dualpipe_v_least_microbatches(p), (long long)m,
                      (long long)(m / 2 > 1 ? m / 2 : 1));
}

bool mcp_hold_named_rows(const struct ask *ask, int p)
{
    (void)p;
    return ask->plan->rows != NULL || mcp_schedule_has_generator(ask->plan->schedule);
}

const char *mcp_say_named_rows(struct mcp_arena *arena, const struct ask *ask, int p)
{
    (void)p;
    return mcp_format(arena, "schedule %s has no order of its own: schedule.rows must say it",
                      mcp_schedule_names[ask->plan->schedule]);
}

/* Asked where the microbatches can be counted: other rules say so where not. */
static const char *rows_fault(struct mcp_arena *arena, const struct ask *ask)
{
    const struct mcp_plan *plan = ask->plan;
    int64_t each, m;
    if (plan->rows == NULL || plan->pipeline_parallel > MCP_MAX_PIPELINE ||
        !mcp_multiply(plan->data_parallel, plan->microbatch_size, &each) ||
        ask->job->global_batch_size % each != 0)
        return NULL;
    m = ask->job->global_batch_size / each;
    return m < 1 || m > INT_MAX ? NULL : mcp_rows_fault(arena, plan, (int)m);
}

bool mcp_hold_rows(const struct ask *ask, int p)
{
    (void)p;
    struct mcp_arena *scratch = mcp_arena_new();
    bool holds = rows_fault(scratch, ask) == NULL;
    mcp_arena_free(scratch);
    return holds;
}

const char *mcp_say_rows(struct mcp_arena *arena, const struct ask *ask, int p)
{
    (void)p;
    return rows_fault(arena, ask);
}
