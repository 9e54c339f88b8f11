/* core/job.c: what one step must do: defaults, range checks, JSON. */
#include "core/job.h"

static const int64_t max_count = INT64_C(1) << 31;

struct mcp_job mcp_job_default(void)
{
    return (struct mcp_job){
        .global_batch_size = 1,
        .sequence_length = 2048,
        .precision = MCP_PRECISION_BF16,
        .attention = "",
        .memory_limit_frac = 0.94,
    };
}

static enum mcp_status read_precision(struct mcp_json *json, struct mcp_job *job,
                                      struct mcp_error *err)
{
    if (!mcp_json_has(json, "precision"))
        return MCP_OK;
    int index;
    MCP_TRY(
        mcp_json_choice(json, "precision", mcp_precision_names, MCP_NUM_PRECISIONS, &index, err));
    job->precision = (enum mcp_precision)index;
    return MCP_OK;
}

enum mcp_status mcp_job_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                  struct mcp_job *out, struct mcp_error *err)
{
    struct mcp_job job = mcp_job_default();
    MCP_TRY(mcp_json_int64(json, "global_batch_size", &job.global_batch_size, err));
    MCP_TRY(mcp_json_int64(json, "sequence_length", &job.sequence_length, err));
    MCP_TRY(read_precision(json, &job, err));
    MCP_TRY(mcp_json_maybe_bool(json, "dropout", &job.dropout, err));
    MCP_TRY(mcp_json_maybe_string(json, "attention", &job.attention, err));
    MCP_TRY(mcp_json_maybe_double(json, "memory_limit_frac", &job.memory_limit_frac, err));
    struct mcp_error why;
    if (mcp_job_check(&job, &why) != MCP_OK) {
        mcp_json_fail(json, err, "%s", why.text);
        return MCP_INVALID;
    }
    job.attention = mcp_strdup(arena, job.attention);
    *out = job;
    return MCP_OK;
}

void mcp_job_to_json(const struct mcp_job *job, struct mcp_json *object)
{
    mcp_json_set_int(object, "global_batch_size", job->global_batch_size);
    mcp_json_set_int(object, "sequence_length", job->sequence_length);
    mcp_json_set_string(object, "precision", mcp_precision_names[job->precision]);
    mcp_json_set_bool(object, "dropout", job->dropout);
    mcp_json_set_string(object, "attention", job->attention);
    mcp_json_set_double(object, "memory_limit_frac", job->memory_limit_frac);
}

static enum mcp_status check_count(const char *name, int64_t value, struct mcp_error *err)
{
    if (value >= 1 && value < max_count)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID, "%s=%lld is not between 1 and %lld", name, (long long)value,
                    (long long)max_count - 1);
}

enum mcp_status mcp_job_check(const struct mcp_job *job, struct mcp_error *err)
{
    MCP_TRY(check_count("global_batch_size", job->global_batch_size, err));
    MCP_TRY(check_count("sequence_length", job->sequence_length, err));
    if (!(job->memory_limit_frac > 0 && job->memory_limit_frac <= 1))
        return mcp_fail(err, MCP_INVALID,
                        "memory_limit_frac=%g is not above 0 and at most 1; the default is 0.94",
                        job->memory_limit_frac);
    return MCP_OK;
}
